#include "io/reads_engine.h"

#include "base/clock.h"
#include "base/fault.h"

#include <errno.h>

enum {
    DIRECT_BYTES = 4096, /* the strictest alignment that O_DIRECT asks for */
    STALLS_MAX = 16,     /* attempts in a row that bring nothing before a read is given up */
};

sluice_status reads_open(struct reads **reads, const struct reads_options *options, sluice_error *err)
{
    *reads = NULL;
    if (options->depth > READS_DEPTH_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u reads in flight were asked for, the most is %u",
                       options->depth, READS_DEPTH_MAX);
    if (options->engine == SLUICE_IO_THREADS)
        return reads_threads_open(reads, options, err);
    sluice_error refusal;
    sluice_status status = reads_uring_open(reads, options, &refusal);
    if (status == SLUICE_E_UNSUPPORTED && options->engine == SLUICE_IO_AUTO) {
        log_info(options->log, "threads read in the ring's place: %s", refusal.detail);
        return reads_threads_open(reads, options, err);
    }
    if (status == SLUICE_E_UNSUPPORTED)
        return err_set(err, status, "%s; choose the engine \"threads\" or \"auto\"", refusal.detail);
    if (status != SLUICE_OK && err)
        *err = refusal;
    return status;
}

void reads_close(struct reads *reads)
{
    if (reads)
        reads->ops->close(reads);
}

const char *reads_engine(const struct reads *reads)
{
    return reads->ops->name;
}

uint32_t reads_depth(const struct reads *reads)
{
    return reads->depth;
}

uint32_t reads_add_file(struct reads *reads, int fd)
{
    return reads->ops->add_file ? reads->ops->add_file(reads, fd) : 0;
}

void reads_submit(struct reads *reads, struct read_request *const *requests, size_t n)
{
    if (n == 0)
        return;
    atomic_fetch_add_explicit(&reads->busy, (uint32_t)n, memory_order_relaxed);
    reads->ops->submit(reads, requests, n);
}

bool reads_done(const struct read_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_acquire) == READ_DONE;
}

void reads_look(struct reads *reads)
{
    if (reads->ops->poll)
        reads->ops->poll(reads);
}

bool reads_ready(struct reads *reads, const struct read_request *request)
{
    if (!reads_done(request))
        reads_look(reads);
    return reads_done(request);
}

bool reads_wait(struct reads *reads, struct read_request *request, const atomic_bool *cancel)
{
    return reads_done(request) || reads->ops->wait(reads, request, cancel);
}

uint32_t reads_busy(const struct reads *reads)
{
    return atomic_load_explicit(&reads->busy, memory_order_relaxed);
}

/* ---- for the engines ---- */

void reads_prepare(struct read_request *request)
{
    request->next = NULL;
    request->got = 0;
    request->errnum = 0;
    request->stalls = 0;
    atomic_store_explicit(&request->state, READ_QUEUED, memory_order_relaxed);
}

/* What the debug hook makes of an attempt's result. */
static ssize_t disturbed(ssize_t result)
{
    if (fault_hit(FAULT_READ))
        return -EIO;
    if (fault_hit(FAULT_AGAIN))
        return -EAGAIN;
    if (result > DIRECT_BYTES && fault_hit(FAULT_SHORT))
        return result / 2 / DIRECT_BYTES * DIRECT_BYTES > 0 ? result / 2 / DIRECT_BYTES * DIRECT_BYTES
                                                            : DIRECT_BYTES;
    return result;
}

bool reads_take(struct read_request *request, ssize_t result)
{
    result = disturbed(result);
    /* ECANCELED and EFAULT: the ring drops what a thread that ended meanwhile had submitted, and a cached
     * read that it would have finished in that thread finds no memory to copy to. */
    if (result == -EINTR || result == -EAGAIN || result == -ECANCELED || result == -EFAULT) {
        if (++request->stalls < STALLS_MAX)
            return false;
        request->errnum = (int)-result;
        return true;
    }
    if (result < 0) {
        /* Some file systems refuse to go on with a direct read that met the end of the file off a boundary.
         */
        if (result != -EINVAL || request->got % DIRECT_BYTES == 0)
            request->errnum = (int)-result;
        return true;
    }
    request->stalls = 0;
    request->got += (size_t)result;
    return result == 0 || request->got >= request->bytes;
}

void reads_finish(struct reads *reads, struct read_request *request)
{
    request->done_ns = clock_ns();
    atomic_fetch_sub_explicit(&reads->busy, 1, memory_order_relaxed);
    atomic_store_explicit(&request->state, READ_DONE, memory_order_release);
}
