/* base/cores: what is found lies within the affinity mask, and a bound thread stays on its core. */
#include "support/unit.h"

#include "base/cores.h"
#include "base/fault.h"

#include <sched.h>

static struct cores *opened(void)
{
    struct cores *cores;
    sluice_error err;
    assert_ok(cores_open(&cores, &err), err);
    return cores;
}

static void they_follow_the_affinity_mask(void **state)
{
    (void)state;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    struct cores *cores = opened();
    assert_true(cores_count(cores) >= 1 && cores_count(cores) <= (uint32_t)CPU_COUNT(&old));
    cores_close(cores);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &old))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    cores = opened();
    assert_int_equal(cores_count(cores), 1);
    cores_close(cores);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

/* As many threads as cores end on different ones, whatever was preferred before. */
static void threads_get_cores_of_their_own(void **state)
{
    (void)state;
    cpu_set_t old, seen, own;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    struct cores *cores = opened();
    for (uint32_t near = 0; near <= cores_count(cores); near++) {
        cores_prefer_near(cores, near);
        CPU_ZERO(&seen);
        for (uint32_t i = 0; i < cores_count(cores); i++) {
            if (!cores_bind(cores, pthread_self(), i)) {
                print_message("threads cannot be bound here\n");
                cores_close(cores);
                skip();
            }
            assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
            assert_true(CPU_COUNT(&own) >= 1);
            for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                assert_true(!CPU_ISSET(cpu, &own) || (CPU_ISSET(cpu, &old) && !CPU_ISSET(cpu, &seen)));
                if (CPU_ISSET(cpu, &own))
                    CPU_SET(cpu, &seen);
            }
        }
        assert_true(CPU_EQUAL(&seen, &old));
    }
    cores_close(cores);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        struct cores *cores;
        sluice_error err;
        fault_arm(FAULT_ALLOC, n);
        assert_int_equal(cores_open(&cores, &err), SLUICE_E_MEMORY);
        fault_arm(FAULT_ALLOC, 0);
        assert_null(cores);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_follow_the_affinity_mask),
        cmocka_unit_test(threads_get_cores_of_their_own),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
