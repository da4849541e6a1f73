/* Parallel block reads: submit a batch, compute, wait for each.
 *
 * The interface is shaped so that io_uring can replace the threads behind it: a request is a plain structure
 * that the caller owns and keeps still until it is done; one call submits a whole batch; completion is a
 * state in the request. Fields under "result" are written by the pool and may be read after reads_wait() or
 * once reads_done() is true. Submitting and waiting are safe from several threads; one request has one owner.
 * Waiting parks: it never burns a core that could compute. */
#ifndef IO_READPOOL_H
#define IO_READPOOL_H

#include "base/err.h"

#include <stdatomic.h>

enum read_state { READ_IDLE = 0, READ_QUEUED, READ_DONE };

struct read_request {
    int fd;
    void *buffer; /* `bytes` of room; aligned to 4096 when the file is open with O_DIRECT */
    size_t bytes;
    uint64_t offset;
    struct read_request *next; /* the pool's own */
    /* result */
    _Atomic int state;
    int errnum;       /* 0, or why the read failed */
    size_t got;       /* bytes read; less than `bytes` only when errnum is set or the file ended */
    uint64_t done_ns; /* clock_ns() at completion */
};

struct read_pool;

/* threads 0: 8, which keeps an NVMe drive busy with 1-3 MB reads. */
sluice_status reads_open(struct read_pool **pool, uint32_t threads, sluice_error *err);
/* Waits for reads in flight. NULL is fine. */
void reads_close(struct read_pool *pool);
/* Queue n requests; never fails, never blocks on the drive. Each goes to READ_QUEUED. */
void reads_submit(struct read_pool *pool, struct read_request *const *requests, size_t n);
bool reads_done(const struct read_request *request);
/* Park until the request is done or *cancel (may be NULL) becomes true, looked at ten times a second. False
 * when cancelled: the request is still in flight and its buffer must stay. */
bool reads_wait(struct read_pool *pool, struct read_request *request, const atomic_bool *cancel);

#endif
