/* Parallel block reads: submit a batch, compute, wait for each.
 *
 * Two engines stand behind one interface: an io_uring (reads_uring.c), and threads that call pread
 * (reads_threads.c) for kernels and sandboxes that refuse the first. The bytes are the same.
 *
 * A request is a plain structure that the caller owns and keeps still until it is done; one call submits a
 * whole batch; completion is a state in the request. Fields under "result" are written by the engine and may
 * be read after reads_wait(), or once reads_done() or reads_ready() said true. Short reads are continued and
 * interrupted ones begun again inside. Submitting and waiting are safe from several threads; one request has
 * one owner. Waiting parks: it never burns a core that could compute. */
#ifndef IO_READS_H
#define IO_READS_H

#include "base/err.h"
#include "base/log.h"

#include <stdatomic.h>

enum read_state { READ_IDLE = 0, READ_QUEUED, READ_DONE };

struct read_request {
    int fd;
    uint32_t file; /* of reads_add_file() for this fd; 0: none */
    void *buffer;  /* `bytes` of room; aligned to 4096 when the file is open with O_DIRECT */
    size_t bytes;
    uint64_t offset;
    struct read_request *next; /* the engine's own */
    uint32_t stalls;           /* the engine's own */
    uint32_t buffer_id;        /* 1..reads_options.buffers when `buffer` and `bytes` never change; 0: none */
    /* result */
    _Atomic int state;
    int errnum;       /* 0, or why the read failed */
    size_t got;       /* bytes read; less than `bytes` only when errnum is set or the file ended */
    uint64_t done_ns; /* clock_ns() at completion */
};

struct reads;

#define READS_DEPTH_MAX 256u

struct reads_options {
    sluice_io engine; /* SLUICE_IO_AUTO: the ring, or threads where it is refused */
    uint32_t depth;   /* reads in flight at once; 0: 8 threads, or 64 in the ring */
    uint32_t buffers; /* largest buffer_id; 0: none is registered */
    struct log *log;  /* may be NULL: told when SLUICE_IO_AUTO turns to threads */
};

/* SLUICE_E_UNSUPPORTED: SLUICE_IO_URING was asked for and the kernel refuses it; the sentence says why. */
sluice_status reads_open(struct reads **reads, const struct reads_options *options, sluice_error *err);
/* Waits for reads in flight. NULL is fine. */
void reads_close(struct reads *reads);
/* "uring" or "threads". */
const char *reads_engine(const struct reads *reads);
/* Reads in flight at once. */
uint32_t reads_depth(const struct reads *reads);
/* Tell the engine of a file that stays open until reads_close(), which makes reads of it cheaper. 0: the
 * engine has no use for it, or no room. */
uint32_t reads_add_file(struct reads *reads, int fd);
/* Queue n requests; never fails, never blocks on the drive. Each goes to READ_QUEUED. */
void reads_submit(struct reads *reads, struct read_request *const *requests, size_t n);
/* The state as it was last seen: never enters the kernel. */
bool reads_done(const struct read_request *request);
/* Look at what has completed meanwhile, for reads_done() to tell. */
void reads_look(struct reads *reads);
/* As reads_done(), after reads_look(). */
bool reads_ready(struct reads *reads, const struct read_request *request);
/* Park until the request is done or *cancel (may be NULL) becomes true, looked at ten times a second. False
 * when cancelled: the request is still in flight and its buffer must stay. */
bool reads_wait(struct reads *reads, struct read_request *request, const atomic_bool *cancel);
/* Requests that were submitted and are not done. */
uint32_t reads_busy(const struct reads *reads);

#endif
