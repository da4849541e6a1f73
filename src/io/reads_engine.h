/* What the engines behind io/reads.h share; for the reads*.c files only. */
#ifndef IO_READS_ENGINE_H
#define IO_READS_ENGINE_H

#include "io/reads.h"

#include <sys/types.h>

struct reads_ops {
    const char *name;
    void (*close)(struct reads *reads);
    void (*submit)(struct reads *reads, struct read_request *const *requests, size_t n);
    void (*poll)(struct reads *reads);
    bool (*wait)(struct reads *reads, struct read_request *request, const atomic_bool *cancel);
    uint32_t (*add_file)(struct reads *reads, int fd);
};

/* The first member of an engine's structure. */
struct reads {
    const struct reads_ops *ops;
    uint32_t depth; /* reads in flight at once */
    _Atomic uint32_t busy;
};

enum { READS_WAIT_SLICE_NS = 100000000 }; /* how often a wait looks at its cancel flag */

sluice_status reads_uring_open(struct reads **reads, const struct reads_options *options, sluice_error *err);
sluice_status reads_threads_open(struct reads **reads, const struct reads_options *options,
                                 sluice_error *err);

/* Forget the results of an earlier use. */
void reads_prepare(struct read_request *request);
/* Take the result of one attempt at [got, bytes): a byte count or a negative errno. True when the request has
 * ended, well or not; false when the rest must be attempted (stalls > 0: the last attempt brought nothing).
 */
bool reads_take(struct read_request *request, ssize_t result);
/* Mark as done; the request may be reused by its owner from here on. */
void reads_finish(struct reads *reads, struct read_request *request);

#endif
