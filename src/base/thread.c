#include "base/thread.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/fault.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#define LANES_MAX 256

/* How long a thread spins before it parks. The gaps between the operations of a token are a few microseconds
 * and a wake through the kernel costs five to fifty; on a busy machine spinning takes time from those who
 * could use it. */
enum { SPIN_NS = 30000, PAUSES = 16 };

/* A wait for others' parts this much longer than the caller's own parts took means that one of them lost its
 * processor. Then the caller runs alone for a multiple of what it waited: about a tenth of the time goes into
 * finding out again. */
enum { STALL_NS = 100000, STALL_FACTOR = 2, ALONE_FACTOR = 10 };
#define ALONE_NS_MAX 200000000u

enum { PART_BITS = 16, PARTS_MAX = 65535, CACHE_LINE = 64 };

struct worker {
    struct pool *pool;
    pthread_t thread;
};

struct pool {
    uint32_t lanes, n_workers;
    struct worker *workers;
    cpu_set_t taken; /* the processors of the workers' cores, where a caller has others */
    pthread_mutex_t callers;
    uint64_t alone_until_ns; /* guarded by `callers` */
    pthread_mutex_t lock;    /* for parking only */
    pthread_cond_t wake, done;
    _Atomic uint32_t parked, caller_parked;
    _Atomic bool stop;
    /* Number of the run (32 bits), its parts (16), the next part to take (16). A thread takes a part by
     * raising the last; that fails when the run has changed, so what was read of `fn` and `arg` belongs to
     * it. Kept away from what else is written often. */
    char before_ticket[CACHE_LINE];
    _Atomic uint64_t ticket;
    _Atomic(pool_fn) fn;
    _Atomic(void *) arg;
    char before_left[CACHE_LINE];
    _Atomic uint32_t left; /* parts that are not finished */
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static uint32_t next_part(uint64_t ticket)
{
    return (uint32_t)ticket & PARTS_MAX;
}

static uint32_t parts_of(uint64_t ticket)
{
    return (uint32_t)(ticket >> PART_BITS) & PARTS_MAX;
}

static bool has_part(uint64_t ticket)
{
    return next_part(ticket) < parts_of(ticket);
}

/* Take and run parts until none is left to take. */
static void take_parts(struct pool *pool)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while (has_part(ticket)) {
        const pool_fn fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *arg = atomic_load_explicit(&pool->arg, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        fn(arg, next_part(ticket), parts_of(ticket));
        if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->caller_parked)) {
            (void)pthread_mutex_lock(&pool->lock);
            (void)pthread_cond_signal(&pool->done);
            (void)pthread_mutex_unlock(&pool->lock);
        }
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

/* Spin until `ready(pool)`, or for SPIN_NS. */
static bool spin_for(struct pool *pool, bool (*ready)(struct pool *))
{
    const uint64_t until = clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < PAUSES; i++) {
            if (ready(pool))
                return true;
            relax();
        }
    } while (clock_ns() < until);
    return false;
}

static bool has_work(struct pool *pool)
{
    return has_part(atomic_load_explicit(&pool->ticket, memory_order_acquire)) ||
           atomic_load_explicit(&pool->stop, memory_order_relaxed);
}

static bool is_done(struct pool *pool)
{
    return atomic_load_explicit(&pool->left, memory_order_acquire) == 0;
}

/* `parked` rises before has_work() is asked for the last time, and the caller reads it after it published:
 * one of the two sees the other. Both use sequentially consistent accesses. */
static void *worker_main(void *arg)
{
    struct pool *pool = ((struct worker *)arg)->pool;
    for (;;) {
        if (!spin_for(pool, has_work)) {
            (void)pthread_mutex_lock(&pool->lock);
            atomic_fetch_add(&pool->parked, 1);
            while (!has_part(atomic_load(&pool->ticket)) && !atomic_load(&pool->stop))
                (void)pthread_cond_wait(&pool->wake, &pool->lock);
            atomic_fetch_sub(&pool->parked, 1);
            (void)pthread_mutex_unlock(&pool->lock);
        }
        if (atomic_load(&pool->stop))
            return NULL;
        take_parts(pool);
    }
}

static void wake_all(struct pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    (void)pthread_cond_broadcast(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
}

uint32_t thread_available(void)
{
    struct cores *cores;
    if (cores_open(&cores, NULL) != SLUICE_OK)
        return 1;
    uint32_t n = cores_count(cores);
    cores_close(cores);
    return n;
}

int thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(thread, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

static void bind_worker(struct pool *pool, struct cores *cores, uint32_t i)
{
    cpu_set_t own;
    const pthread_t thread = pool->workers[i].thread;
    if (cores_bind(cores, thread, i + 1) && pool->lanes <= cores_count(cores) &&
        pthread_getaffinity_np(thread, sizeof own, &own) == 0)
        CPU_OR(&pool->taken, &pool->taken, &own);
}

/* The caller's thread keeps its freedom and is lane 0; the workers get the other cores, one each. */
static int start_workers(struct pool *pool, struct cores *cores)
{
    int failed = 0;
    while (pool->n_workers + 1 < pool->lanes && !failed) {
        struct worker *worker = &pool->workers[pool->n_workers];
        worker->pool = pool;
        failed = fault_hit(FAULT_ALLOC) ? ENOMEM : thread_start(&worker->thread, worker_main, worker);
        if (!failed)
            bind_worker(pool, cores, pool->n_workers++);
    }
    return failed;
}

sluice_status pool_open(struct pool **out, uint32_t lanes, sluice_error *err)
{
    *out = NULL;
    if (lanes > LANES_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u threads were asked for, the most is %d", lanes, LANES_MAX);
    struct cores *cores;
    TRY(cores_open(&cores, err));
    if (lanes == 0)
        lanes = cores_count(cores) < LANES_MAX ? cores_count(cores) : LANES_MAX;
    cores_prefer_near(cores, lanes);
    struct pool *pool = mem_calloc(1, sizeof *pool);
    struct worker *workers = mem_calloc(lanes, sizeof *workers);
    if (!pool || !workers) {
        mem_free(pool);
        mem_free(workers);
        cores_close(cores);
        return err_memory(err, sizeof *pool + lanes * sizeof *workers, "the thread pool");
    }
    pool->workers = workers;
    pool->lanes = lanes;
    (void)pthread_mutex_init(&pool->callers, NULL);
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->wake, NULL);
    (void)pthread_cond_init(&pool->done, NULL);
    int failed = start_workers(pool, cores);
    cores_close(cores);
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
    atomic_store(&pool->stop, true);
    wake_all(pool);
    for (uint32_t i = 0; i < pool->n_workers; i++)
        (void)pthread_join(pool->workers[i].thread, NULL);
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

static void publish(struct pool *pool, uint32_t parts, pool_fn fn, void *arg)
{
    const uint64_t run = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 2 * PART_BITS) + 1;
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&pool->left, parts, memory_order_relaxed);
    atomic_store(&pool->ticket, run << 2 * PART_BITS | (uint64_t)parts << PART_BITS);
    if (atomic_load(&pool->parked))
        wake_all(pool);
}

static void await_others(struct pool *pool)
{
    if (is_done(pool) || spin_for(pool, is_done))
        return;
    (void)pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_parked, 1);
    while (atomic_load(&pool->left) != 0)
        (void)pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_parked, 0);
    (void)pthread_mutex_unlock(&pool->lock);
}

/* The system wakes a caller that waited for reads where it likes, on a worker's core too, and leaves both
 * there: streamed decoding ran on one core of two for seconds (docs/learned.md). A caller that finds itself
 * on such a core goes to another one that it may use; its affinity stays as it was. */
static void step_aside(const struct pool *pool)
{
    const int processor = sched_getcpu();
    cpu_set_t own, shared, others;
    if (processor < 0 || processor >= CPU_SETSIZE || !CPU_ISSET((size_t)processor, &pool->taken) ||
        sched_getaffinity(0, sizeof own, &own) != 0)
        return;
    CPU_AND(&shared, &own, &pool->taken);
    CPU_XOR(&others, &own, &shared);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
        (void)sched_setaffinity(0, sizeof own, &own);
}

void pool_run_parts(struct pool *pool, uint32_t parts, pool_fn fn, void *arg)
{
    assert(parts <= PARTS_MAX);
    (void)pthread_mutex_lock(&pool->callers);
    const uint64_t from = clock_ns();
    if (pool->lanes == 1 || parts < 2 || from < pool->alone_until_ns) {
        for (uint32_t part = 0; part < parts; part++)
            fn(arg, part, parts);
    } else {
        step_aside(pool);
        publish(pool, parts, fn, arg);
        take_parts(pool);
        const uint64_t own = clock_ns();
        await_others(pool);
        const uint64_t waited = clock_ns() - own;
        if (waited > STALL_NS + STALL_FACTOR * (own - from)) {
            const uint64_t alone = ALONE_FACTOR * waited;
            pool->alone_until_ns = own + waited + (alone < ALONE_NS_MAX ? alone : ALONE_NS_MAX);
        }
    }
    (void)pthread_mutex_unlock(&pool->callers);
}

void pool_run(struct pool *pool, pool_fn fn, void *arg)
{
    pool_run_parts(pool, pool->lanes, fn, arg);
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
