#include "base/log.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char CUT[] = "...";

static const char *const LEVELS[] = {
    [SLUICE_LOG_OFF] = "off",   [SLUICE_LOG_ERROR] = "error", [SLUICE_LOG_WARNING] = "warning",
    [SLUICE_LOG_INFO] = "info", [SLUICE_LOG_DEBUG] = "debug",
};

/* One write per line: lines of several processes that share a terminal or a file stay whole. */
static void to_stderr(void *user, sluice_log_level level, const char *record)
{
    char line[LOG_RECORD_BYTES + 16];
    (void)user;
    int n = snprintf(line, sizeof line, "%s: %s\n", LEVELS[level], record);
    const char *at = line;
    for (size_t left = (size_t)n; left > 0;) {
        ssize_t wrote = write(STDERR_FILENO, at, left);
        if (wrote < 0 && errno != EINTR)
            return; /* there is nowhere to tell it */
        at += wrote > 0 ? wrote : 0;
        left -= wrote > 0 ? (size_t)wrote : 0;
    }
}

void log_open(struct log *log, const sluice_log *how)
{
    log->how = how ? *how : (sluice_log){0};
    if (!log->how.write)
        log->how.write = to_stderr;
    (void)pthread_mutex_init(&log->lock, NULL);
}

void log_close(struct log *log)
{
    (void)pthread_mutex_destroy(&log->lock);
}

void log_write(struct log *log, sluice_log_level level, const char *format, ...)
{
    char record[LOG_RECORD_BYTES];
    const int errnum = errno;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(record, sizeof record, format, args);
    va_end(args);
    if (n < 0)
        record[0] = '\0';
    else if ((size_t)n >= sizeof record)
        memcpy(record + utf8_complete_prefix(record, sizeof record - sizeof CUT), CUT, sizeof CUT);
    for (char *c = record; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = ' ';
    (void)pthread_mutex_lock(&log->lock);
    log->how.write(log->how.user, level, record);
    (void)pthread_mutex_unlock(&log->lock);
    errno = errnum;
}
