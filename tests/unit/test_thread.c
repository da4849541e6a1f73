/* base/thread: every lane runs once per call, shares cover the work exactly, callers take turns. */
#include "support/unit.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

static struct pool *opened(uint32_t lanes)
{
    struct pool *pool;
    sluice_error err;
    assert_ok(pool_open(&pool, lanes, &err), err);
    return pool;
}

/* ---- shares ---- */

static void shares_cover_exactly(void **state)
{
    (void)state;
    static const size_t GRAINS[] = {1, 3, 16, 64};
    for (size_t g = 0; g < sizeof GRAINS / sizeof *GRAINS; g++)
        for (uint32_t lanes = 1; lanes <= 9; lanes++)
            for (size_t n = 0; n <= 200; n++) {
                size_t grain = GRAINS[g], at = 0, least = SIZE_MAX, most = 0;
                for (uint32_t lane = 0; lane < lanes; lane++) {
                    size_t begin, end;
                    pool_share(n, grain, lane, lanes, &begin, &end);
                    assert_int_equal(begin, at);
                    assert_true(end >= begin);
                    /* Cut between units only. */
                    assert_true(begin % grain == 0 || begin == n);
                    assert_true(end % grain == 0 || end == n);
                    size_t units = (end - begin + grain - 1) / grain;
                    least = units < least ? units : least;
                    most = units > most ? units : most;
                    at = end;
                }
                assert_int_equal(at, n);
                assert_true(most - least <= 1);
            }
}

/* ---- running ---- */

enum { LANES_TRIED = 8 };

struct tally {
    uint32_t lanes;
    unsigned long calls[LANES_TRIED]; /* each written by its lane alone */
    atomic_bool wrong;                /* cmocka's asserts work on the main thread only */
};

static void count_lane(void *arg, uint32_t lane, uint32_t lanes)
{
    struct tally *tally = arg;
    if (lane < lanes && lanes == tally->lanes)
        tally->calls[lane]++;
    else
        atomic_store(&tally->wrong, true);
}

static void every_lane_runs_once_per_call(void **state)
{
    (void)state;
    unsigned long runs = scaled(3000, 1000);
    for (uint32_t lanes = 1; lanes <= LANES_TRIED; lanes = lanes < 4 ? lanes + 1 : lanes * 2) {
        struct pool *pool = opened(lanes);
        assert_int_equal(pool_lanes(pool), lanes);
        struct tally tally = {.lanes = lanes};
        for (unsigned long i = 0; i < runs; i++) {
            pool_run(pool, count_lane, &tally);
            /* All of this call is done and visible: no lane may lag behind into the next. */
            for (uint32_t lane = 0; lane < lanes; lane++)
                if (tally.calls[lane] != i + 1)
                    fail_msg("run %lu of %u lanes: lane %u ran %lu times", i, lanes, lane, tally.calls[lane]);
        }
        assert_false(tally.wrong);
        pool_close(pool);
    }
}

struct sum {
    const uint32_t *items;
    size_t n;
    uint64_t parts[LANES_TRIED];
};

static void sum_share(void *arg, uint32_t lane, uint32_t lanes)
{
    struct sum *sum = arg;
    size_t begin, end;
    pool_share(sum->n, 16, lane, lanes, &begin, &end);
    sum->parts[lane] = 0;
    for (size_t i = begin; i < end; i++)
        sum->parts[lane] += sum->items[i];
}

static void work_is_visible_to_the_caller(void **state)
{
    (void)state;
    enum { N = 1003 };
    uint32_t items[N];
    struct pool *pool = opened(4);
    for (unsigned long round = 0; round < scaled(2000, 500); round++) {
        uint64_t want = 0;
        for (size_t i = 0; i < N; i++) { /* written by the caller, read by the lanes */
            items[i] = (uint32_t)(i * 7 + round);
            want += items[i];
        }
        struct sum sum = {.items = items, .n = N};
        pool_run(pool, sum_share, &sum);
        assert_true(sum.parts[0] + sum.parts[1] + sum.parts[2] + sum.parts[3] == want);
    }
    pool_close(pool);
}

/* Long enough between calls that every worker has parked, and inside a call that the caller parks too. */
static void nap_in_last_lane(void *arg, uint32_t lane, uint32_t lanes)
{
    if (lane + 1 == lanes)
        (void)usleep(3000);
    count_lane(arg, lane, lanes);
}

static void parked_workers_wake(void **state)
{
    (void)state;
    struct pool *pool = opened(3);
    struct tally tally = {.lanes = 3};
    for (unsigned long i = 1; i <= 20; i++) {
        (void)usleep(5000);
        pool_run(pool, nap_in_last_lane, &tally);
        for (int lane = 0; lane < 3; lane++)
            assert_int_equal(tally.calls[lane], i);
    }
    (void)usleep(5000);
    pool_close(pool); /* of parked workers */
}

struct place {
    pthread_t caller;
    int caller_on, other_on; /* processors; -1: ran nothing */
};

/* Long enough that each of two threads takes one of two parts. */
static void note_processor(void *arg, uint32_t lane, uint32_t lanes)
{
    struct place *place = arg;
    (void)lane;
    (void)lanes;
    *(pthread_equal(pthread_self(), place->caller) ? &place->caller_on : &place->other_on) = sched_getcpu();
    (void)usleep(2000);
}

/* A caller that the system put on the worker's core leaves it, and may go where it might before. */
static void a_caller_leaves_the_workers_core(void **state)
{
    (void)state;
    enum { TRIES = 50 };
    cpu_set_t old, one, now;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    if (thread_available() < 2)
        skip();
    struct pool *pool = opened(2);
    int met = 0, left = 0;
    for (int i = 0; i < TRIES; i++) {
        struct place before = {pthread_self(), -1, -1}, after = before;
        pool_run(pool, note_processor, &before);
        if (before.other_on < 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)before.other_on, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
        if (sched_getcpu() != before.other_on)
            continue;
        pool_run(pool, note_processor, &after);
        met++;
        left += after.caller_on != before.other_on;
        assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
        assert_true(CPU_EQUAL(&now, &old));
    }
    pool_close(pool);
    if (met == 0)
        skip();
    assert_true(left > 0);
}

/* ---- several callers ---- */

struct caller {
    struct pool *pool;
    atomic_int *inside;
    struct tally tally;
    unsigned long runs;
    atomic_bool overlapped;
};

static void count_alone(void *arg, uint32_t lane, uint32_t lanes)
{
    struct caller *caller = arg;
    /* Only lanes of one call at a time: a second caller's would raise this above `lanes`. */
    if (atomic_fetch_add(caller->inside, 1) >= (int)lanes)
        atomic_store(&caller->overlapped, true);
    count_lane(&caller->tally, lane, lanes);
    (void)sched_yield();
    atomic_fetch_sub(caller->inside, 1);
}

static void *call_many(void *arg)
{
    struct caller *caller = arg;
    for (unsigned long i = 0; i < caller->runs; i++)
        pool_run(caller->pool, count_alone, caller);
    return NULL;
}

static void callers_take_turns(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    struct pool *pool = opened(3);
    atomic_int inside = 0;
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] =
            (struct caller){.pool = pool, .inside = &inside, .tally = {.lanes = 3}, .runs = scaled(500, 300)};
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(callers[i].overlapped);
        assert_false(callers[i].tally.wrong);
        for (int lane = 0; lane < 3; lane++)
            assert_int_equal(callers[i].tally.calls[lane], callers[i].runs);
    }
    assert_int_equal(inside, 0);
    pool_close(pool);
}

struct outer {
    struct pool *inner;
    _Atomic unsigned long leaves;
};

static void count_leaf(void *arg, uint32_t lane, uint32_t lanes)
{
    (void)lane;
    (void)lanes;
    atomic_fetch_add((_Atomic unsigned long *)arg, 1);
}

static void run_inner(void *arg, uint32_t lane, uint32_t lanes)
{
    (void)lane;
    (void)lanes;
    struct outer *outer = arg;
    pool_run(outer->inner, count_leaf, &outer->leaves);
}

static void one_pool_inside_another(void **state)
{
    (void)state;
    struct pool *pool = opened(3);
    struct outer outer = {.inner = opened(2)};
    unsigned long runs = scaled(300, 50);
    for (unsigned long i = 0; i < runs; i++)
        pool_run(pool, run_inner, &outer);
    assert_int_equal(outer.leaves, runs * 3 * 2);
    pool_close(pool);
    pool_close(outer.inner);
}

/* ---- opening and closing ---- */

static void open_and_close_at_once(void **state)
{
    (void)state;
    for (unsigned long i = 0; i < scaled(200, 30); i++)
        pool_close(opened((uint32_t)(1 + i % 5)));
    pool_close(NULL);
}

static void lanes_default_to_the_affinity_mask(void **state)
{
    (void)state;
    struct pool *pool = opened(0);
    assert_int_equal(pool_lanes(pool), thread_available());
    pool_close(pool);

    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    assert_true(thread_available() >= 1 && thread_available() <= (uint32_t)CPU_COUNT(&old));
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &old))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(thread_available(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

static void too_many_lanes_are_refused(void **state)
{
    (void)state;
    struct pool *pool = (struct pool *)&pool;
    sluice_error err;
    assert_fails(pool_open(&pool, 257, &err), SLUICE_E_ARGUMENT, err,
                 "257 threads were asked for, the most is 256");
    assert_null(pool);
}

/* Memory for the cores and the pool, then each thread in turn: nothing stays behind, and a full open follows.
 */
static void failures_while_opening_leave_nothing(void **state)
{
    (void)state;
    int failures = 0;
    for (bool fired = true; fired;) {
        struct pool *pool = NULL;
        sluice_error err;
        fault_arm(FAULT_ALLOC, (uint64_t)failures + 1);
        sluice_status status = pool_open(&pool, 5, &err);
        fired = fault_fired(FAULT_ALLOC);
        fault_arm(FAULT_ALLOC, 0);
        if (fired) {
            failures++;
            assert_int_equal(status, SLUICE_E_MEMORY);
            assert_null(pool);
        } else {
            assert_int_equal(status, SLUICE_OK);
            assert_int_equal(pool_lanes(pool), 5);
            pool_close(pool);
        }
    }
    assert_int_equal(failures, 2 + 2 + 4);
}

static pthread_t main_thread;
static atomic_int elsewhere, received;

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&received, 1);
    if (!pthread_equal(pthread_self(), main_thread))
        atomic_fetch_add(&elsewhere, 1);
}

static void signals_reach_the_callers_thread_only(void **state)
{
    (void)state;
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_signal}, old;
    assert_int_equal(sigaction(SIGUSR1, &action, &old), 0);
    struct pool *pool = opened(4);
    for (int i = 0; i < 50; i++)
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_false(sigismember(&mask, SIGUSR1)); /* opening gave the caller its mask back */
    pool_close(pool);
    assert_true(received > 0);
    assert_int_equal(elsewhere, 0);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_exactly),
        cmocka_unit_test(every_lane_runs_once_per_call),
        cmocka_unit_test(work_is_visible_to_the_caller),
        cmocka_unit_test(parked_workers_wake),
        cmocka_unit_test(a_caller_leaves_the_workers_core),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(one_pool_inside_another),
        cmocka_unit_test(open_and_close_at_once),
        cmocka_unit_test(lanes_default_to_the_affinity_mask),
        cmocka_unit_test(too_many_lanes_are_refused),
        cmocka_unit_test(failures_while_opening_leave_nothing),
        cmocka_unit_test(signals_reach_the_callers_thread_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
