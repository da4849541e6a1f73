/* Reads by a pool of threads that call pread: one read in flight per thread. */
#include "io/reads_engine.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_DEFAULT = 8, STALL_NS = 200000 };

struct threads {
    struct reads base;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct read_request *head, **tail; /* queue, oldest first */
    bool stop;
    uint32_t threads;
    pthread_t *ids;
};

static void nap(uint64_t ns)
{
    struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    (void)nanosleep(&time, NULL);
}

static void perform(struct read_request *r)
{
    bool ended = r->bytes == 0;
    while (!ended) {
        ssize_t n = pread(r->fd, (char *)r->buffer + r->got, r->bytes - r->got, (off_t)(r->offset + r->got));
        ended = reads_take(r, n < 0 ? -errno : n);
        if (!ended && r->stalls)
            nap((uint64_t)STALL_NS * r->stalls);
    }
    while (fault_reads_held())
        nap(STALL_NS);
}

static void *reader_main(void *arg)
{
    struct threads *t = arg;
    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->head && !t->stop)
            (void)pthread_cond_wait(&t->work, &t->lock);
        struct read_request *r = t->head;
        if (!r)
            break; /* stopped, and the queue is drained */
        t->head = r->next;
        if (!t->head)
            t->tail = &t->head;
        (void)pthread_mutex_unlock(&t->lock);
        perform(r);
        (void)pthread_mutex_lock(&t->lock);
        reads_finish(&t->base, r);
        (void)pthread_cond_broadcast(&t->done);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void threads_close(struct reads *reads)
{
    struct threads *t = (struct threads *)reads;
    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_broadcast(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->threads; i++)
        (void)pthread_join(t->ids[i], NULL);
    (void)pthread_cond_destroy(&t->done);
    (void)pthread_cond_destroy(&t->work);
    (void)pthread_mutex_destroy(&t->lock);
    mem_free(t->ids);
    mem_free(t);
}

static void threads_submit(struct reads *reads, struct read_request *const *requests, size_t n)
{
    struct threads *t = (struct threads *)reads;
    (void)pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < n; i++) {
        reads_prepare(requests[i]);
        *t->tail = requests[i];
        t->tail = &requests[i]->next;
    }
    for (size_t i = 0; i < n && i < t->threads; i++)
        (void)pthread_cond_signal(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
}

static bool threads_wait(struct reads *reads, struct read_request *request, const atomic_bool *cancel)
{
    struct threads *t = (struct threads *)reads;
    (void)pthread_mutex_lock(&t->lock);
    bool done;
    while (!(done = reads_done(request)) && !(cancel && atomic_load(cancel))) {
        uint64_t until = clock_ns() + READS_WAIT_SLICE_NS;
        struct timespec deadline = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        (void)pthread_cond_timedwait(&t->done, &t->lock, &deadline);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return done;
}

static const struct reads_ops THREADS = {
    .name = "threads",
    .close = threads_close,
    .submit = threads_submit,
    .wait = threads_wait,
};

sluice_status reads_threads_open(struct reads **out, const struct reads_options *options, sluice_error *err)
{
    uint32_t threads = options->depth ? options->depth : THREADS_DEFAULT;
    *out = NULL;
    struct threads *t = mem_calloc(1, sizeof *t);
    pthread_t *ids = mem_calloc(threads, sizeof *ids);
    if (!t || !ids) {
        mem_free(t);
        mem_free(ids);
        return err_memory(err, sizeof *t, "the read threads");
    }
    t->base.ops = &THREADS;
    t->base.depth = threads;
    t->ids = ids;
    t->tail = &t->head;
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->work, NULL);
    (void)pthread_cond_init(&t->done, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    int failed = 0;
    while (t->threads < threads && !failed) {
        failed = fault_hit(FAULT_ALLOC) ? ENOMEM : thread_start(&ids[t->threads], reader_main, t);
        if (!failed)
            t->threads++;
    }
    if (failed) {
        threads_close(&t->base);
        return err_errno(err, failed, "cannot start %u read threads", threads);
    }
    *out = &t->base;
    return SLUICE_OK;
}
