/* Installs from a hub that end at any moment: killed, cut off from the network, out of power with everything
 * lost that was not synced. However often, a resume ends in the same bytes, and no output exists in between
 * that is not complete. */
#include "hub_fixture.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { RANDOM_KILLS = 200 };

static char *snapshot, *root, *whole, *attic;
static struct httpd *hub; /* shared with the server, a process of its own: forks want one thread */
static pid_t server;
static const char *url;
static unsigned lost_entries;

static struct hub_run to(const char *output, bool resume)
{
    struct hub_run run = hub_run_to(output, hub);
    run.url = url;
    run.install.resume = resume;
    return run;
}

static int set_up(void **state)
{
    (void)state;
    hub_unset_proxies();
    snapshot = fx_snapshot();
    hub_write_digests(snapshot);
    root = fx_temp_fast();
    whole = fx_path(root, "whole.gturbo");
    attic = fx_path(root, "attic");
    assert_int_equal(mkdir(attic, 0777), 0);
    void *map = mmap(NULL, sizeof *hub, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    hub = map;
    hub->commit = HUB_COMMIT;
    hub->digests = true;
    hub->dir = snapshot;
    server = httpd_fork(hub);
    assert_true(server > 0);
    url = strdup(hub_url(hub));
    struct hub_run run = to(whole, false);
    assert_ok(hub_install(&run, NULL, err));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    httpd_kill(server);
    (void)munmap(hub, sizeof *hub);
    free((char *)(uintptr_t)url);
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

/* The thread sanitizer ends a child that was forked beside other threads and starts its own. */
static void skip_where_forks_cannot_start_threads(void)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
}

/* ---- killed ---- */

static pid_t start(const char *output)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct hub_run run = to(output, true);
        sluice_error e = {0};
        sluice_status status = hub_install(&run, NULL, &e);
        if (status != SLUICE_OK && status != SLUICE_E_EXISTS)
            (void)fprintf(stderr, "%s\n", e.detail);
        _exit(status == SLUICE_OK || status == SLUICE_E_EXISTS ? 0 : 1);
    }
    return child;
}

static void killed_at_random_moments(void **state)
{
    (void)state;
    skip_where_forks_cannot_start_threads();
    char *output = fx_path(root, "killed.gturbo");
    unsigned kills = 0, finished = 0, runs = 0, wanted = (unsigned)scaled(RANDOM_KILLS, 12);
    uint64_t seed = 20261129, begin = clock_ns();
    assert_false(fx_killed(start(output)));
    uint64_t whole_ns = clock_ns() - begin;
    hub_wipe(output);
    while (kills < wanted) {
        assert_true(++runs < 40 * RANDOM_KILLS);
        pid_t child = start(output);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t after = whole_ns * (seed >> 40) / (1u << 24);
        struct timespec pause = {(time_t)(after / 1000000000u), (long)(after % 1000000000u)};
        (void)nanosleep(&pause, NULL);
        (void)kill(child, SIGKILL);
        bool dead = fx_killed(child);
        kills += dead;
        /* About every second run is killed, however the machine's speed changes. */
        whole_ns = dead ? whole_ns / 8 * 9 : whole_ns / 8 * 7;
        if (access(output, F_OK) == 0)
            fx_assert_same_dir(whole, output);
        if (!dead) {
            finished++;
            fx_assert_clean(output);
            hub_wipe(output);
        }
    }
    struct hub_run run = to(output, true);
    sluice_error e = {0};
    sluice_status status = hub_install(&run, NULL, &e);
    if (status != SLUICE_OK && status != SLUICE_E_EXISTS)
        fx_fail("the last resume says: %s", e.detail);
    fx_assert_same_dir(whole, output);
    (void)printf("%u kills, %u runs came through\n", kills, finished);
    hub_wipe(output);
}

/* ---- cut off ---- */

/* The network goes away after each number of requests in turn. */
static void cut_off_at_every_request(void **state)
{
    (void)state;
    char *output = fx_path(root, "cut.gturbo");
    unsigned step = (unsigned)scaled(9, 29), n = 0;
    for (;; n += step) {
        struct hub_run run = to(output, false);
        run.limits.attempts = 1;
        httpd_strike(hub, HTTPD_CLOSE, n, 1000000);
        sluice_error e = {0};
        sluice_status status = hub_install(&run, NULL, &e);
        bool struck = atomic_load(&hub->struck) > 0;
        httpd_strike(hub, HTTPD_GOOD, 0, 0);
        if (!struck)
            break;
        assert_int_equal(status, SLUICE_E_IO);
        assert_int_not_equal(access(output, F_OK), 0);
        run = to(output, true);
        assert_ok(hub_install(&run, NULL, err));
        fx_assert_same_dir(whole, output);
        fx_assert_clean(output);
        hub_wipe(output);
    }
    assert_true(n > 50);
    fx_assert_same_dir(whole, output);
    hub_wipe(output);
}

/* ---- failing writes, and power ---- */

enum power { POWER_STAYS, POWER_GOES, POWER_GOES_OVER }; /* the last one: while an install is replaced */

static struct hub_run to_be_disturbed(const char *output, enum power power)
{
    struct hub_run run = to(output, false);
    run.range_bytes = 16384;
    run.limits.head_bytes = 4096; /* few requests: they are not what fails here */
    run.limits.buffer_bytes = 128 << 10;
    run.install.overwrite = power == POWER_GOES_OVER;
    return run;
}

/* What was not synced is lost, all of it (seed 0) or a part, and nothing that is there lies about it. */
static void lose_power(const char *output, uint64_t seed, bool finished)
{
    struct fault_loss loss = fault_lose(seed);
    lost_entries += loss.entries;
    if (finished) {
        assert_int_equal(loss.writes, 0);
        assert_int_equal(access(output, F_OK), 0);
    }
    if (access(output, F_OK) == 0)
        fx_assert_same_dir(whole, output);
}

/* The n-th operation of a kind fails, and when the power goes then, what was not synced until then is lost.
 */
static bool fails_once(enum fault_kind kind, uint64_t n, enum power power, uint64_t seed)
{
    char *output = fx_path(root, "faulty.gturbo");
    struct hub_run run = to_be_disturbed(output, power);
    sluice_error e = {0};
    if (power == POWER_GOES_OVER && access(output, F_OK) != 0)
        assert_ok(hub_install(&run, NULL, err));
    if (power != POWER_STAYS)
        fault_remember(attic);
    fault_arm(kind, n);
    sluice_status status = hub_install(&run, NULL, &e);
    bool fired = fault_fired(kind);
    fault_arm(kind, 0);
    if (power != POWER_STAYS)
        lose_power(output, seed, status == SLUICE_OK);
    if (fired)
        assert_true(status != SLUICE_OK && e.detail[0]);
    else
        assert_int_equal(status, SLUICE_OK);
    if (access(output, F_OK) == 0)
        fx_assert_same_dir(whole, output);
    if (fired || power != POWER_STAYS) {
        run.install.resume = true;
        sluice_error again = {0};
        /* A finished one may have a journal again, which the resume recognises, or none, which leaves it
         * nothing to do. */
        status = hub_install(&run, NULL, &again);
        if (status != SLUICE_OK && (fired || status != SLUICE_E_EXISTS))
            fx_fail("after operation %llu of kind %d failed (%s), a resume says: %s", (unsigned long long)n,
                    (int)kind, e.detail, again.detail);
    }
    fx_assert_same_dir(whole, output);
    fx_assert_clean(output);
    if (power != POWER_GOES_OVER)
        hub_wipe(output);
    return fired;
}

static void sweep(enum power power, uint64_t step, uint64_t seed)
{
    static const enum fault_kind KINDS[] = {FAULT_WRITE, FAULT_FSYNC, FAULT_RENAME};
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        uint64_t n = 1;
        while (fails_once(KINDS[i], n, power, seed ? seed + n : 0))
            n += step;
        assert_true(n > 10);
    }
    hub_wipe(fx_path(root, "faulty.gturbo"));
}

static void every_write_sync_and_rename_fails_once(void **state)
{
    (void)state;
    sweep(POWER_STAYS, scaled(1, 11), 0);
}

static void power_is_lost(void **state)
{
    (void)state;
    lost_entries = 0;
    sweep(POWER_GOES, scaled(1, 11), 0);
    assert_true(lost_entries > 0);
}

static void power_is_lost_and_a_part_was_on_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= scaled(3, 1); seed++)
        sweep(POWER_GOES, scaled(5, 17), seed * 20261130);
}

static void power_is_lost_while_replacing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < scaled(3, 2); seed++)
        sweep(POWER_GOES_OVER, scaled(9, 23), seed * 20261130);
}

/* ---- two at once, and a tampered partial ---- */

static void two_installers(void **state)
{
    (void)state;
    skip_where_forks_cannot_start_threads();
    char *output = fx_path(root, "two.gturbo");
    unsigned busy = 0, done = 0;
    atomic_store(&hub->pause_us, 2000);
    pid_t children[3];
    for (size_t i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct hub_run run = to(output, true);
            sluice_status status = hub_install(&run, NULL, NULL);
            _exit(status == SLUICE_OK ? 0 : status == SLUICE_E_BUSY || status == SLUICE_E_EXISTS ? 3 : 1);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
        done += WEXITSTATUS(status) == 0;
        busy += WEXITSTATUS(status) == 3;
    }
    atomic_store(&hub->pause_us, 0);
    assert_true(done >= 1);
    assert_int_equal(done + busy, 3);
    fx_assert_same_dir(whole, output);
    fx_assert_clean(output);
    hub_wipe(output);
}

static void tampered_partial_is_repaired(void **state)
{
    (void)state;
    char *output = fx_path(root, "tampered.gturbo"), *partial = fx_path(root, "tampered.gturbo.partial");
    struct hub_run run = to(output, false);
    run.limits.attempts = 1;
    httpd_strike(hub, HTTPD_CLOSE, 60, 1000000);
    assert_int_equal(hub_install(&run, NULL, NULL), SLUICE_E_IO);
    httpd_strike(hub, HTTPD_GOOD, 0, 0);
    fx_flip(fx_path(partial, RESIDENT_NAME), 16384 + 100, true);
    fx_flip(fx_path(partial, "packed_experts/layer_01.bin"), 10, true);
    run = to(output, true);
    assert_ok(hub_install(&run, NULL, err));
    fx_assert_same_dir(whole, output);
    hub_wipe(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_random_moments),
        cmocka_unit_test(cut_off_at_every_request),
        cmocka_unit_test(every_write_sync_and_rename_fails_once),
        cmocka_unit_test(power_is_lost),
        cmocka_unit_test(power_is_lost_and_a_part_was_on_disk),
        cmocka_unit_test(power_is_lost_while_replacing),
        cmocka_unit_test(two_installers),
        cmocka_unit_test(tampered_partial_is_repaired),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
