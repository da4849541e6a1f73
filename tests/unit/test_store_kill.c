/* Installs killed with SIGKILL: at every read of the source in turn, and at random moments, over and over on
 * the same output, with and without --overwrite. However often it was killed, a resume ends in the same
 * bytes, and no output exists in between that is not complete. */
#include "store_fixture.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { RANDOM_KILLS = 60, RANGE_BYTES = 4096 };

static char *snapshot, *root, *whole;

/* A source that takes its time, so that a kill finds the install at work, and that can kill the process. */
struct slow {
    struct source *inner;
    uint64_t reads, die_at;
    long pause_ns;
};

static sluice_status slow_read(struct source *s, const char *file, uint64_t offset, void *buffer, size_t n,
                               sluice_error *err)
{
    struct slow *slow = s->state;
    if (++slow->reads == slow->die_at)
        (void)raise(SIGKILL);
    struct timespec pause = {0, slow->pause_ns};
    if (slow->pause_ns)
        (void)nanosleep(&pause, NULL);
    return slow->inner->read(slow->inner, file, offset, buffer, n, err);
}

static sluice_status slow_size(struct source *s, const char *file, uint64_t *bytes, sluice_error *err)
{
    struct slow *slow = s->state;
    return slow->inner->size(slow->inner, file, bytes, err);
}

static sluice_status slow_exists(struct source *s, const char *file, bool *there, sluice_error *err)
{
    struct slow *slow = s->state;
    return slow->inner->exists(slow->inner, file, there, err);
}

static sluice_status slow_identity(struct source *s, const char *file, char text[SOURCE_IDENTITY_BYTES],
                                   sluice_error *err)
{
    struct slow *slow = s->state;
    return slow->inner->identity(slow->inner, file, text, err);
}

static sluice_status install(const char *output, bool over, bool resume, uint64_t die_at, long pause_ns,
                             sluice_error *err)
{
    struct slow slow = {.die_at = die_at, .pause_ns = pause_ns};
    TRY(source_open_dir(&slow.inner, snapshot, err));
    struct source source = {.state = &slow,
                            .name = slow.inner->name,
                            .size = slow_size,
                            .exists = slow_exists,
                            .read = slow_read,
                            .identity = slow_identity};
    sluice_install_options o = {.output_dir = output, .overwrite = over, .resume = resume};
    sluice_status status = store_install_from(
        &source, &o, &(struct install_limits){.range_bytes = RANGE_BYTES}, fx_recipe, NULL, err);
    source_close(slow.inner);
    return status;
}

/* Fork an install; it ends by itself or by the kill. 0 when it ended well. */
static pid_t start(const char *output, bool over, uint64_t die_at, long pause_ns)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sluice_error err = {0};
        sluice_status status = install(output, over, true, die_at, pause_ns, &err);
        if (status != SLUICE_OK && status != SLUICE_E_EXISTS)
            (void)fprintf(stderr, "%s\n", err.detail);
        _exit(status == SLUICE_OK || status == SLUICE_E_EXISTS ? 0 : 1);
    }
    return child;
}

static void check_between(const char *output)
{
    if (access(output, F_OK) == 0)
        fx_assert_same_dir(whole, output);
}

/* The end: without an output yet, a resume makes it. */
static void finish(const char *output, bool over)
{
    sluice_error e = {0};
    sluice_status status = install(output, over, true, 0, 0, &e);
    if (status != SLUICE_OK && status != SLUICE_E_EXISTS)
        fx_fail("the last resume says: %s", e.detail);
    fx_assert_same_dir(whole, output);
    struct gturbo *store;
    assert_ok(gturbo_open(output, SLUICE_VERIFY_RECEIPT, NULL, &store, err));
    gturbo_close(store);
}

static void wipe(const char *output)
{
    static const char *const SUFFIXES[] = {"", ".partial", ".resume.json", ".resume.json.tmp",
                                           ".install.lock"};
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s%s", output, SUFFIXES[i]);
        assert_ok(file_remove_tree(path, err));
    }
}

static int set_up(void **state)
{
    (void)state;
    snapshot = fx_snapshot();
    root = fx_temp_fast(); /* a kill loses nothing that was written: syncing is not what this tests */
    whole = fx_path(root, "whole.gturbo");
    assert_ok(install(whole, false, false, 0, 0, err));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

static void killed_at_every_read(void **state)
{
    (void)state;
    char *output = fx_path(root, "each.gturbo");
    uint64_t n = 1;
    for (bool more = true; more; n++) {
        wipe(output);
        more = fx_killed(start(output, false, n, 0));
        assert_int_equal(access(output, F_OK) == 0, !more);
        finish(output, false);
        fx_assert_clean(output);
    }
    assert_true(n > 50);
}

/* Killed again and again at the k-th read of each run: always some progress, never a wrong byte. */
static void killed_again_and_again(void **state)
{
    (void)state;
    char *output = fx_path(root, "again.gturbo");
    int kills = 0;
    while (fx_killed(start(output, false, 18, 0))) {
        kills++;
        assert_true(kills < 200);
        check_between(output);
    }
    assert_true(kills > 3);
    finish(output, false);
    fx_assert_clean(output);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    (void)nanosleep(&pause, NULL);
}

/* Kills at random moments; a run that gets through starts over. */
static void kill_randomly(const char *output, bool over, unsigned seed)
{
    uint64_t begin = clock_ns();
    assert_false(fx_killed(start(output, over, 0, 200000)));
    uint64_t whole_ns = clock_ns() - begin;
    int kills = 0, runs = 0;
    while (kills < RANDOM_KILLS) {
        assert_true(++runs < 20 * RANDOM_KILLS);
        pid_t child = start(output, over, 0, 200000);
        seed = seed * 1103515245u + 12345u;
        sleep_ns(whole_ns * (seed >> 8 & 0xFFFF) / 0xFFFF);
        (void)kill(child, SIGKILL);
        bool dead = fx_killed(child);
        kills += dead;
        check_between(output);
        if (!dead) {
            fx_assert_clean(output);
            if (!over)
                wipe(output);
        }
    }
    finish(output, over);
    fx_assert_clean(output);
}

static void killed_at_random(void **state)
{
    (void)state;
    kill_randomly(fx_path(root, "random.gturbo"), false, 1);
}

static void overwrite_killed_at_random(void **state)
{
    (void)state;
    kill_randomly(fx_path(root, "over.gturbo"), true, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_every_read),
        cmocka_unit_test(killed_again_and_again),
        cmocka_unit_test(killed_at_random),
        cmocka_unit_test(overwrite_killed_at_random),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
