#include "base/thread.h"

#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#define LANES_MAX 256

/* Generations: the caller raises `generation` and waits until `busy` is 0 again. A worker spins a little
 * before it parks: the gaps between operations of a token are a few microseconds, a futex wake costs more. */
enum { SPIN_ROUNDS = 2000 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t lane;
};

struct pool {
    uint32_t lanes;
    struct worker *workers; /* lanes - 1, for lanes 1.. */
    pthread_mutex_t callers;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    _Atomic uint64_t generation;
    _Atomic uint32_t busy;
    /* Written before `generation` rises, while every worker waits for that; read after it has risen. */
    bool stop;
    pool_fn fn;
    void *arg;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static uint64_t wait_generation(struct pool *pool, uint64_t seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        uint64_t now = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (now != seen)
            return now;
        relax();
    }
    (void)pthread_mutex_lock(&pool->lock);
    uint64_t now;
    while ((now = atomic_load(&pool->generation)) == seen)
        (void)pthread_cond_wait(&pool->wake, &pool->lock);
    (void)pthread_mutex_unlock(&pool->lock);
    return now;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_generation(pool, seen);
        if (pool->stop)
            return NULL;
        pool->fn(pool->arg, worker->lane, pool->lanes);
        if (atomic_fetch_sub_explicit(&pool->busy, 1, memory_order_acq_rel) == 1) {
            (void)pthread_mutex_lock(&pool->lock);
            (void)pthread_cond_signal(&pool->done);
            (void)pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void publish(struct pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_release);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
}

uint32_t thread_available(void)
{
    /* The kernel refuses a mask shorter than its own, and a cpu_set_t holds only 1024. */
    for (size_t cpus = CPU_SETSIZE; cpus <= (size_t)CPU_SETSIZE * 64; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int rc = sched_getaffinity(0, bytes, set), errnum = errno;
        int n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (n > 0)
            return (uint32_t)n;
        if (rc == 0 || errnum != EINVAL)
            break;
    }
    return 1;
}

sluice_status pool_open(struct pool **out, uint32_t lanes, sluice_error *err)
{
    *out = NULL;
    if (lanes == 0)
        lanes = thread_available();
    if (lanes > LANES_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u threads were asked for, the most is %d", lanes, LANES_MAX);
    struct pool *pool = mem_calloc(1, sizeof *pool);
    struct worker *workers = mem_calloc(lanes, sizeof *workers);
    if (!pool || !workers) {
        mem_free(pool);
        mem_free(workers);
        return err_memory(err, sizeof *pool + lanes * sizeof *workers, "the thread pool");
    }
    pool->workers = workers;
    pool->lanes = 1;
    (void)pthread_mutex_init(&pool->callers, NULL);
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    (void)pthread_cond_init(&pool->done, NULL);
    /* Signals belong to the caller's threads, never to a worker. */
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = 0;
    for (uint32_t lane = 1; lane < lanes && !failed; lane++) {
        workers[lane - 1] = (struct worker){.pool = pool, .lane = lane};
        failed = fault_hit(FAULT_ALLOC)
                     ? ENOMEM
                     : pthread_create(&workers[lane - 1].thread, NULL, worker_main, &workers[lane - 1]);
        if (!failed)
            pool->lanes = lane + 1;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed) {
        pool_close(pool);
        return err_errno(err, failed, "cannot start %u threads", lanes);
    }
    *out = pool;
    return SLUICE_OK;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    publish(pool);
    for (uint32_t lane = 1; lane < pool->lanes; lane++)
        (void)pthread_join(pool->workers[lane - 1].thread, NULL);
    (void)pthread_cond_destroy(&pool->done);
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_mutex_destroy(&pool->lock);
    (void)pthread_mutex_destroy(&pool->callers);
    mem_free(pool->workers);
    mem_free(pool);
}

uint32_t pool_lanes(const struct pool *pool)
{
    return pool->lanes;
}

void pool_run(struct pool *pool, pool_fn fn, void *arg)
{
    (void)pthread_mutex_lock(&pool->callers);
    if (pool->lanes > 1) {
        pool->fn = fn;
        pool->arg = arg;
        atomic_store(&pool->busy, pool->lanes - 1);
        publish(pool);
    }
    fn(arg, 0, pool->lanes);
    for (int i = 0; i < SPIN_ROUNDS && atomic_load_explicit(&pool->busy, memory_order_acquire) != 0; i++)
        relax();
    if (atomic_load_explicit(&pool->busy, memory_order_acquire) != 0) {
        (void)pthread_mutex_lock(&pool->lock);
        while (atomic_load(&pool->busy) != 0)
            (void)pthread_cond_wait(&pool->done, &pool->lock);
        (void)pthread_mutex_unlock(&pool->lock);
    }
    (void)pthread_mutex_unlock(&pool->callers);
}

void pool_share(size_t n, size_t grain, uint32_t lane, uint32_t lanes, size_t *begin, size_t *end)
{
    size_t units = (n + grain - 1) / grain;
    size_t low = units / lanes, extra = units % lanes;
    size_t first = lane * low + (lane < extra ? lane : extra);
    size_t count = low + (lane < extra ? 1 : 0);
    size_t b = first * grain, e = (first + count) * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}
