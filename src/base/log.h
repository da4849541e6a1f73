/* What a user looks for when something is slow or odd: decisions, and failures that nobody waits for. Errors
 * of a call are returned and are not records.
 *
 * A record is one line of text without its end, at most LOG_RECORD_BYTES, handed to one sink: a function of
 * the caller's, or standard error. Level and sink are fixed at log_open(). Thread-safe: records come one at a
 * time, and a sink must not log. Nothing is allocated. A level that is off costs a comparison, and the
 * arguments are not evaluated. A NULL log is one that is off. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "sluice.h"

#include <pthread.h>

enum { LOG_RECORD_BYTES = 768 };

struct log {
    sluice_log how;
    pthread_mutex_t lock;
};

/* `how` NULL or zeroed: off. Its `user` is borrowed until log_close(). */
void log_open(struct log *log, const sluice_log *how);
void log_close(struct log *log);

static inline bool log_shows(const struct log *log, sluice_log_level level)
{
    return log && level <= log->how.level;
}

/* As printf. Control characters become spaces; what does not fit is cut between characters and ends in "...".
 * Through the macros below, which look at the level first. */
void log_write(struct log *log, sluice_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_at(log, level, ...)                                                                              \
    do {                                                                                                     \
        if (log_shows(log, level))                                                                           \
            log_write(log, level, __VA_ARGS__);                                                              \
    } while (0)
/* A failure that nobody waits for. */
#define log_error(log, ...) log_at(log, SLUICE_LOG_ERROR, __VA_ARGS__)
/* Something is not as it was meant, and work goes on without it. */
#define log_warning(log, ...) log_at(log, SLUICE_LOG_WARNING, __VA_ARGS__)
/* A decision, a few times in a run. */
#define log_info(log, ...) log_at(log, SLUICE_LOG_INFO, __VA_ARGS__)
/* What happens often: each file, each prompt. */
#define log_debug(log, ...) log_at(log, SLUICE_LOG_DEBUG, __VA_ARGS__)

#endif
