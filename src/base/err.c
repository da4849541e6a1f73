#include "base/err.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The header's help for the analyzer must not reach the definitions. */
#undef err_set
#undef err_errno
#undef err_prefix
#undef err_memory

static const char *const STATUS_TEXT[] = {
    [SLUICE_OK] = "done",
    [SLUICE_E_ARGUMENT] = "bad argument",
    [SLUICE_E_IO] = "input/output error",
    [SLUICE_E_FORMAT] = "bad format",
    [SLUICE_E_CORRUPT] = "corrupt data",
    [SLUICE_E_UNSUPPORTED] = "not supported",
    [SLUICE_E_MEMORY] = "out of memory",
    [SLUICE_E_BUDGET] = "memory budget too small",
    [SLUICE_E_CONTEXT] = "context full",
    [SLUICE_E_BUSY] = "busy",
    [SLUICE_E_EXISTS] = "already exists",
    [SLUICE_E_CANCELLED] = "cancelled",
    [SLUICE_E_NUMERIC] = "value not finite",
};

const char *sluice_status_text(sluice_status status)
{
    size_t i = (size_t)status;
    return i < sizeof STATUS_TEXT / sizeof *STATUS_TEXT ? STATUS_TEXT[i] : "unknown status";
}

/* Append at `used`. Where the text does not fit, it ends before the character that was cut in two. */
static void vappend(sluice_error *err, size_t used, const char *format, va_list args)
{
    size_t room = sizeof err->detail - used;
    int n = vsnprintf(err->detail + used, room, format, args);
    if (n < 0)
        err->detail[used] = '\0';
    else if ((size_t)n >= room)
        err->detail[utf8_complete_prefix(err->detail, sizeof err->detail - 1)] = '\0';
}

__attribute__((format(printf, 2, 3))) static void append(sluice_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vappend(err, strlen(err->detail), format, args);
    va_end(args);
}

static void vset(sluice_error *err, sluice_status status, const char *format, va_list args)
{
    err->status = status;
    vappend(err, 0, format, args);
}

sluice_status err_set(sluice_error *err, sluice_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        vset(err, status, format, args);
        va_end(args);
    }
    return status;
}

sluice_status err_errno(sluice_error *err, int errnum, const char *format, ...)
{
    sluice_status status = errnum == ENOMEM ? SLUICE_E_MEMORY : SLUICE_E_IO;
    if (err) {
        va_list args;
        va_start(args, format);
        vset(err, status, format, args);
        va_end(args);
        char reason[96];
        const char *text;
        if (errnum == ENOSPC)
            text = "the disk is full; free some space and go on with --resume";
        else if (errnum == EDQUOT)
            text = "your disk quota is used up; free some space and go on with --resume";
        else
            text = strerror_r(errnum, reason, sizeof reason); /* the GNU variant: returns the text */
        append(err, ": %s", text);
    }
    return status;
}

sluice_status err_prefix(sluice_error *err, sluice_status status, const char *format, ...)
{
    if (!err)
        return status;
    char old[SLUICE_DETAIL_BYTES];
    memcpy(old, err->detail, sizeof old);
    va_list args;
    va_start(args, format);
    vset(err, status, format, args);
    va_end(args);
    append(err, ": %s", old);
    return status;
}

sluice_status err_memory(sluice_error *err, size_t bytes, const char *what)
{
    return err_set(err, SLUICE_E_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
}
