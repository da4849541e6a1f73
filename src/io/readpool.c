#include "io/readpool.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { DIRECT_BYTES = 4096 }; /* the strictest alignment that O_DIRECT asks for */
enum { THREADS_DEFAULT = 8, THREADS_MAX = 256, WAIT_SLICE_NS = 100000000 };

struct read_pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct read_request *head, **tail; /* queue, oldest first */
    bool stop;
    uint32_t threads;
    pthread_t *ids;
};

static void perform(struct read_request *r)
{
    r->got = 0;
    r->errnum = 0;
    while (r->got < r->bytes) {
        ssize_t n = fault_hit(FAULT_READ) ? (errno = EIO, -1)
                                          : pread(r->fd, (char *)r->buffer + r->got, r->bytes - r->got,
                                                  (off_t)(r->offset + r->got));
        if (n < 0 && errno == EINTR)
            continue;
        /* Some file systems refuse to go on with a direct read that met the end of the file off a boundary.
         */
        if (n < 0 && !(errno == EINVAL && r->got % DIRECT_BYTES != 0))
            r->errnum = errno;
        if (n <= 0)
            break;
        r->got += (size_t)n;
    }
    r->done_ns = clock_ns();
}

static void *reader_main(void *arg)
{
    struct read_pool *pool = arg;
    (void)pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->head && !pool->stop)
            (void)pthread_cond_wait(&pool->work, &pool->lock);
        struct read_request *r = pool->head;
        if (!r)
            break; /* stopped, and the queue is drained */
        pool->head = r->next;
        if (!pool->head)
            pool->tail = &pool->head;
        (void)pthread_mutex_unlock(&pool->lock);
        perform(r);
        (void)pthread_mutex_lock(&pool->lock);
        atomic_store_explicit(&r->state, READ_DONE, memory_order_release);
        (void)pthread_cond_broadcast(&pool->done);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

sluice_status reads_open(struct read_pool **out, uint32_t threads, sluice_error *err)
{
    *out = NULL;
    if (threads == 0)
        threads = THREADS_DEFAULT;
    if (threads > THREADS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u read threads were asked for, the most is %d", threads,
                       THREADS_MAX);
    struct read_pool *pool = mem_calloc(1, sizeof *pool);
    pthread_t *ids = mem_calloc(threads, sizeof *ids);
    if (!pool || !ids) {
        mem_free(pool);
        mem_free(ids);
        return err_memory(err, sizeof *pool, "the read pool");
    }
    pool->ids = ids;
    pool->tail = &pool->head;
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->work, NULL);
    (void)pthread_cond_init(&pool->done, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = 0;
    while (pool->threads < threads && !failed) {
        failed =
            fault_hit(FAULT_ALLOC) ? ENOMEM : pthread_create(&ids[pool->threads], NULL, reader_main, pool);
        if (!failed)
            pool->threads++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        reads_close(pool);
        return err_errno(err, failed, "cannot start %u read threads", threads);
    }
    *out = pool;
    return SLUICE_OK;
}

void reads_close(struct read_pool *pool)
{
    if (!pool)
        return;
    (void)pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    (void)pthread_cond_broadcast(&pool->work);
    (void)pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->threads; i++)
        (void)pthread_join(pool->ids[i], NULL);
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_cond_destroy(&pool->work);
    (void)pthread_mutex_destroy(&pool->lock);
    mem_free(pool->ids);
    mem_free(pool);
}

void reads_submit(struct read_pool *pool, struct read_request *const *requests, size_t n)
{
    (void)pthread_mutex_lock(&pool->lock);
    for (size_t i = 0; i < n; i++) {
        requests[i]->next = NULL;
        atomic_store_explicit(&requests[i]->state, READ_QUEUED, memory_order_relaxed);
        *pool->tail = requests[i];
        pool->tail = &requests[i]->next;
    }
    for (size_t i = 0; i < n && i < pool->threads; i++)
        (void)pthread_cond_signal(&pool->work);
    (void)pthread_mutex_unlock(&pool->lock);
}

bool reads_done(const struct read_request *request)
{
    return atomic_load_explicit(&request->state, memory_order_acquire) == READ_DONE;
}

bool reads_wait(struct read_pool *pool, struct read_request *request, const atomic_bool *cancel)
{
    if (reads_done(request))
        return true;
    (void)pthread_mutex_lock(&pool->lock);
    bool done;
    while (!(done = reads_done(request)) && !(cancel && atomic_load(cancel))) {
        uint64_t until = clock_ns() + WAIT_SLICE_NS;
        struct timespec deadline = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        (void)pthread_cond_timedwait(&pool->done, &pool->lock, &deadline);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return done;
}
