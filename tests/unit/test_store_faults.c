/* Every allocation, read, write, sync and rename of an install, an open and a verification made to fail in
 * turn: an error comes back, nothing leaks (under the sanitizer), no output exists unless it is complete, and
 * a resume ends in the same bytes. */
#include "store_fixture.h"

static const char *const KIND_NAMES[FAULT_KINDS] = {"allocation", "read", "write", "sync", "rename"};

/* Large ranges, so that a sweep is thousands of short installs and not thousands of long ones. */
enum { RANGE_BYTES = 32768 };

static char *snapshot, *root, *whole;

static sluice_status install(const char *output, bool resume, bool overwrite, sluice_error *err)
{
    sluice_install_options o = {
        .source_dir = snapshot, .output_dir = output, .resume = resume, .overwrite = overwrite};
    return fx_install_ranges(&o, RANGE_BYTES, NULL, err);
}

static int set_up(void **state)
{
    (void)state;
    snapshot = fx_snapshot();
    root = fx_temp_fast();
    whole = fx_path(root, "whole.gturbo");
    assert_ok(install(whole, false, false, err));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

/* Open descriptors of this process. */
static int descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        (void)closedir(dir);
    return n;
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

/* One install with the n-th operation of a kind failing. False when there are fewer. */
static bool install_with_fault(enum fault_kind kind, uint64_t n, bool over)
{
    char output[PATH_MAX];
    (void)snprintf(output, sizeof output, "%s/small.gturbo", root);
    wipe(output);
    if (over)
        assert_ok(install(output, false, false, err));
    sluice_error e = {0};
    int before = descriptors();
    fault_arm(kind, n);
    sluice_status status = install(output, false, over, &e);
    bool fired = fault_fired(kind);
    fault_arm(kind, 0);
    assert_int_equal(descriptors(), before);
    if (!fired) {
        assert_int_equal(status, SLUICE_OK);
        fx_assert_same_dir(whole, output);
        return false;
    }
    if (status == SLUICE_OK || e.detail[0] == '\0')
        fx_fail("%s %llu failed, the install said \"%s\"", KIND_NAMES[kind], (unsigned long long)n, e.detail);
    if (access(output, F_OK) == 0)
        fx_assert_same_dir(whole,
                           output); /* complete: the fault came after the rename, or it is the old one */
    if (install(output, true, over, &e) != SLUICE_OK)
        fx_fail("after %s %llu failed, a resume says: %s", KIND_NAMES[kind], (unsigned long long)n, e.detail);
    fx_assert_same_dir(whole, output);
    fx_assert_clean(output);
    return true;
}

static void sweep_install(enum fault_kind kind, uint64_t least, bool over)
{
    uint64_t n = 1;
    while (install_with_fault(kind, n, over))
        n++;
    if (n <= least)
        fx_fail("only %llu of the %ss were reached", (unsigned long long)n - 1, KIND_NAMES[kind]);
}

static void install_survives_allocations(void **state)
{
    (void)state;
    sweep_install(FAULT_ALLOC, 400, false);
}

static void install_survives_reads(void **state)
{
    (void)state;
    sweep_install(FAULT_READ, 60, false);
}

static void install_survives_writes(void **state)
{
    (void)state;
    sweep_install(FAULT_WRITE, 60, false);
}

static void install_survives_syncs(void **state)
{
    (void)state;
    sweep_install(FAULT_FSYNC, 40, false);
}

static void install_survives_renames(void **state)
{
    (void)state;
    sweep_install(FAULT_RENAME, 10, false);
}

static void overwrite_survives_renames(void **state)
{
    (void)state;
    sweep_install(FAULT_RENAME, 10, true);
}

/* A resume itself may fail anywhere too. */
static bool resume_with_fault(enum fault_kind kind, uint64_t n)
{
    char output[PATH_MAX];
    (void)snprintf(output, sizeof output, "%s/small.gturbo", root);
    wipe(output);
    fault_arm(FAULT_FSYNC, 24);
    assert_int_not_equal(install(output, false, false, NULL), SLUICE_OK);
    fault_arm(FAULT_FSYNC, 0);
    int before = descriptors();
    fault_arm(kind, n);
    sluice_status status = install(output, true, false, NULL);
    bool fired = fault_fired(kind);
    fault_arm(kind, 0);
    assert_int_equal(descriptors(), before);
    assert_int_equal(status == SLUICE_OK, !fired);
    if (fired && access(output, F_OK) == 0)
        fx_assert_same_dir(whole, output);
    if (fired)
        assert_ok(install(output, true, false, err));
    fx_assert_same_dir(whole, output);
    return fired;
}

static void resume_survives_everything(void **state)
{
    (void)state;
    /* The kinds after a rename are of block reads, which an install does not do. */
    for (int kind = 0; kind <= FAULT_RENAME; kind++) {
        /* every one up to 40, then steps: the loop over ranges repeats itself */
        uint64_t n = 1;
        while (resume_with_fault((enum fault_kind)kind, n))
            n += n < 40 ? 1 : 17;
        assert_true(n > (kind == FAULT_RENAME ? 5 : 8));
    }
}

/* ---- open and verify ---- */

static sluice_status open_all(sluice_verification verification, sluice_error *err)
{
    struct gturbo *store;
    TRY(gturbo_open(whole, verification, NULL, &store, err));
    char *text = NULL;
    size_t bytes;
    int fd;
    sluice_status status = gturbo_layer_fd(store, 1, &fd, err);
    if (status == SLUICE_OK)
        status = gturbo_load_text(store, "tokenizer/config.json", 1u << 20, &text, &bytes, err);
    mem_free(text);
    if (status == SLUICE_OK) {
        json_t *description = gturbo_describe(store);
        if (!description)
            status = err_memory(err, 0, "a description");
        json_decref(description);
    }
    gturbo_close(store);
    return status;
}

static sluice_status open_full(sluice_error *err)
{
    return open_all(SLUICE_VERIFY_FULL, err);
}

static sluice_status open_receipt(sluice_error *err)
{
    return open_all(SLUICE_VERIFY_RECEIPT, err);
}

static sluice_status verify_renewing(sluice_error *err)
{
    (void)unlink(fx_path(whole, "verified-install.json"));
    return sluice_verify(whole, NULL, NULL, err);
}

static void sweep_call(sluice_status (*call)(sluice_error *), bool may_succeed)
{
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        for (uint64_t n = 1;; n++) {
            sluice_error e = {0};
            int before = descriptors();
            fault_arm((enum fault_kind)kind, n);
            sluice_status status = call(&e);
            bool fired = fault_fired((enum fault_kind)kind);
            fault_arm((enum fault_kind)kind, 0);
            assert_int_equal(descriptors(), before);
            if (!fired) {
                assert_int_equal(status, SLUICE_OK);
                break;
            }
            if (status == SLUICE_OK && !may_succeed)
                fx_fail("%s %llu failed unnoticed", KIND_NAMES[kind], (unsigned long long)n);
        }
}

/* The description tells that a receipt cannot be read instead of failing, so reads late in it may succeed. */
static void open_survives_everything(void **state)
{
    (void)state;
    sweep_call(open_full, true);
    sweep_call(open_receipt, true);
}

static sluice_status open_only(sluice_error *err)
{
    struct gturbo *store;
    int fd;
    TRY(gturbo_open(whole, SLUICE_VERIFY_FULL, NULL, &store, err));
    sluice_status status = gturbo_layer_fd(store, 2, &fd, err);
    gturbo_close(store);
    return status;
}

static sluice_status open_trusting(sluice_error *err)
{
    struct gturbo *store;
    TRY(gturbo_open(whole, SLUICE_VERIFY_RECEIPT, NULL, &store, err));
    gturbo_close(store);
    return SLUICE_OK;
}

static void open_reports_every_failure(void **state)
{
    (void)state;
    sweep_call(open_only, false);
    sweep_call(open_trusting, false);
}

static void verify_reports_every_failure(void **state)
{
    (void)state;
    sweep_call(verify_renewing, false);
    assert_ok(open_trusting(err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(install_survives_allocations), cmocka_unit_test(install_survives_reads),
        cmocka_unit_test(install_survives_writes),      cmocka_unit_test(install_survives_syncs),
        cmocka_unit_test(install_survives_renames),     cmocka_unit_test(overwrite_survives_renames),
        cmocka_unit_test(resume_survives_everything),   cmocka_unit_test(open_survives_everything),
        cmocka_unit_test(open_reports_every_failure),   cmocka_unit_test(verify_reports_every_failure),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
