/* The drive probe: the table, what is remembered where, and what is ignored. */
#include "support/demo.h"
#include "support/unit.h"

#include "base/json.h"
#include "base/mem.h"
#include "store/drive.h"

#include <dirent.h>
#include <sys/stat.h>

static char memory[128]; /* demo.install ".probe.json" */
static const struct drive_limits BRIEF = {.file_bytes = 8u << 20, .row_ns = 500000};

static unsigned entries(const char *path)
{
    unsigned n = 0;
    DIR *list = opendir(path);
    assert_non_null(list);
    while (readdir(list))
        n++;
    (void)closedir(list);
    return n;
}

static sluice_probe_report probed(const char *path)
{
    sluice_probe_report report;
    sluice_error err;
    assert_ok(drive_probe(path, &BRIEF, NULL, &report, &err), err);
    return report;
}

static void the_table_covers_engines_modes_depths_and_blocks(void **state)
{
    (void)state;
    sluice_probe_report report = probed(demo.install);
    bool engines[3] = {false}, modes[2] = {false};
    uint64_t smallest = UINT64_MAX, largest = 0, stride = report.rows[report.best].block_bytes;
    uint32_t deepest = 0;
    for (uint32_t i = 0; i < report.n_rows; i++) {
        const sluice_probe_row *row = &report.rows[i];
        assert_true(row->bytes_per_s > 0);
        assert_true(row->cpu_s_per_gb >= 0);
        engines[row->engine] = true;
        modes[row->direct] = true;
        deepest = row->depth > deepest ? row->depth : deepest;
        smallest = row->block_bytes < smallest ? row->block_bytes : smallest;
        largest = row->block_bytes > largest ? row->block_bytes : largest;
        /* The best is within the noise of the fastest at its block size. */
        if (row->block_bytes == stride)
            assert_true(report.rows[report.best].bytes_per_s >= 0.95 * row->bytes_per_s);
    }
    assert_false(engines[SLUICE_IO_AUTO]);
    assert_true(engines[SLUICE_IO_THREADS] && modes[0]);
    assert_int_equal(deepest, 32);
    assert_true(smallest <= 128u << 10 && largest == 4u << 20);
}

static void nothing_is_left_behind_but_the_result(void **state)
{
    (void)state;
    unsigned inside = entries(demo.install);
    sluice_probe_report report = probed(demo.install);
    assert_true(report.temporary); /* the demo's files are small */
    assert_true(report.remembered);
    assert_string_equal(report.why_not, "");
    assert_int_equal(entries(demo.install), inside);
    assert_true(file_exists(memory));
    assert_int_equal(entries(demo.dir), 2 + 2); /* ., .., the install, the result */
    assert_false(file_exists(report.file));

    /* A directory that is no install: measured, and nothing is remembered. */
    char plain[128], none[160];
    (void)snprintf(plain, sizeof plain, "%s/plain", demo.dir);
    (void)snprintf(none, sizeof none, "%s.probe.json", plain);
    assert_int_equal(mkdir(plain, 0777), 0);
    report = probed(plain);
    assert_false(report.remembered);
    assert_int_equal(entries(plain), 2);
    assert_false(file_exists(none));
    assert_int_equal(rmdir(plain), 0);
}

static void the_result_is_recalled(void **state)
{
    (void)state;
    struct drive_choice choice;
    (void)unlink(memory);
    assert_false(drive_recall(demo.install, &choice, NULL));
    sluice_probe_report report = probed(demo.install);
    const sluice_probe_row *best = &report.rows[report.best];
    char slashed[128];
    (void)snprintf(slashed, sizeof slashed, "%s//", demo.install);
    for (int i = 0; i < 2; i++) {
        memset(&choice, 0, sizeof choice);
        assert_true(drive_recall(i ? slashed : demo.install, &choice, NULL));
        assert_int_equal(choice.engine, best->engine);
        assert_int_equal(choice.direct, best->direct);
        assert_int_equal(choice.depth, best->depth);
    }
}

/* Replace a member, or remove it, in the remembered result. */
static void tamper(const char *key, json_t *value)
{
    json_error_t error;
    json_t *root = json_load_file(memory, 0, &error);
    assert_non_null(root);
    if (value)
        assert_int_equal(json_object_set_new(root, key, value), 0);
    else
        assert_int_equal(json_object_del(root, key), 0);
    assert_int_equal(json_dump_file(root, memory, 0), 0);
    json_decref(root);
}

static void stale_and_foreign_results_are_ignored(void **state)
{
    (void)state;
    static const char *const KEYS[] = {"schemaVersion", "device", "fileSystem", "engine", "direct", "depth"};
    struct drive_choice choice;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        for (int how = 0; how < 3; how++) {
            (void)probed(demo.install);
            assert_true(drive_recall(demo.install, &choice, NULL));
            tamper(KEYS[i], how == 0 ? NULL : how == 1 ? json_string("7:7") : json_integer(1000));
            assert_false(drive_recall(demo.install, &choice, NULL));
        }
    }
    sluice_error err;
    assert_ok(file_publish(memory, "{\"schemaVersion\": 1", 18, &err), err);
    assert_false(drive_recall(demo.install, &choice, NULL));
}

static void an_install_opens_whatever_lies_beside_it(void **state)
{
    (void)state;
    sluice_error err;
    sluice_engine *engine;
    const sluice_engine_options options = {.expert_slots = 4};
    (void)probed(demo.install);
    static const char *const CHOICES[][2] = {{"threads", "t"}, {"threads", "f"}, {"uring", "f"}, {"no", "t"}};
    for (size_t i = 0; i < sizeof CHOICES / sizeof *CHOICES; i++) {
        tamper("engine", json_string(CHOICES[i][0]));
        tamper("direct", json_boolean(CHOICES[i][1][0] == 't'));
        assert_ok(sluice_engine_open(demo.install, &options, &engine, &err), err);
        sluice_session *session;
        assert_ok(sluice_session_open(engine, &session, &err), err);
        assert_ok(sluice_session_prefill(session, (const int32_t[]){300, 301, 302}, 3, &err), err);
        sluice_session_close(session);
        sluice_engine_close(engine);
    }
}

static void what_cannot_be_measured_is_named(void **state)
{
    (void)state;
    sluice_probe_report report;
    sluice_error err;
    const volatile int stop = 1;
    const sluice_watch watch = {.cancel = &stop};
    assert_fails(drive_probe("/nonexistent", &BRIEF, NULL, &report, &err), SLUICE_E_IO, err, "/nonexistent");
    assert_fails(drive_probe("/dev/null", &BRIEF, NULL, &report, &err), SLUICE_E_ARGUMENT, err,
                 "not a directory");
    assert_fails(drive_probe(demo.install, &BRIEF, &watch, &report, &err), SLUICE_E_CANCELLED, err, "");
    const struct drive_limits huge = {.file_bytes = UINT64_C(1) << 60, .row_ns = 1};
    assert_fails(drive_probe(demo.install, &huge, NULL, &report, &err), SLUICE_E_IO, err, "bytes free");
    assert_int_equal(entries(demo.dir), 2 + 2);
}

static int setup(void **state)
{
    if (demo_setup(state) != 0)
        return -1;
    (void)snprintf(memory, sizeof memory, "%s.probe.json", demo.install);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_covers_engines_modes_depths_and_blocks),
        cmocka_unit_test(nothing_is_left_behind_but_the_result),
        cmocka_unit_test(the_result_is_recalled),
        cmocka_unit_test(stale_and_foreign_results_are_ignored),
        cmocka_unit_test(an_install_opens_whatever_lies_beside_it),
        cmocka_unit_test(what_cannot_be_measured_is_named),
    };
    return cmocka_run_group_tests(tests, setup, demo_teardown);
}
