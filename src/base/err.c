#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

static void vset(sluice_error *err, sluice_status status, const char *format, va_list args)
{
    err->status = status;
    (void)vsnprintf(err->detail, sizeof err->detail, format, args);
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
        const char *text = reason;
        if (errnum == ENOSPC)
            text = "the disk is full; free some space and go on with --resume";
        else if (errnum == EDQUOT)
            text = "your disk quota is used up; free some space and go on with --resume";
        else
            text = strerror_r(errnum, reason, sizeof reason); /* the GNU variant: returns the text */
        size_t used = strlen(err->detail);
        (void)snprintf(err->detail + used, sizeof err->detail - used, ": %s", text);
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
    size_t used = strlen(err->detail);
    (void)snprintf(err->detail + used, sizeof err->detail - used, ": %s", old);
    return status;
}

sluice_status err_memory(sluice_error *err, size_t bytes, const char *what)
{
    return err_set(err, SLUICE_E_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
}
