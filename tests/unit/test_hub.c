/* Installs from a hub: the same bytes as from a directory, whatever goes wrong on the way can be recovered
 * from, and whatever cannot is told by name. */
#include "hub_fixture.h"

static char *snapshot, *root, *whole;
static struct httpd hub = {.commit = HUB_COMMIT};

static int set_up(void **state)
{
    (void)state;
    hub_unset_proxies();
    snapshot = fx_snapshot();
    hub_write_digests(snapshot);
    root = fx_temp_fast();
    whole = fx_path(root, "whole.gturbo");
    assert_ok(fx_install(snapshot, whole, err));
    hub.dir = snapshot;
    httpd_start(&hub);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    httpd_stop(&hub);
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

static char *output_path(void)
{
    return fx_path(root, "hub.gturbo");
}

/* The manifest names the repository where the directory's has its own name; all else is equal. */
static void assert_whole(const char *output)
{
    static const char *const SAME[] = {
        RESIDENT_NAME, "packed_experts/layer_01.bin", "packed_experts/layer_02.bin",
        LAYOUT_NAME,   "tokenizer/tokenizer.json",    "tokenizer/config.json"};
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        size_t n, m;
        unsigned char *a = fx_read(fx_path(whole, SAME[i]), &n), *b = fx_read(fx_path(output, SAME[i]), &m);
        if (n != m || memcmp(a, b, n) != 0)
            fx_fail("%s differs", SAME[i]);
        free(a);
        free(b);
    }
    sluice_verify_report v;
    assert_ok(sluice_verify(output, NULL, &v, err));
    assert_false(v.receipt_renewed);
    fx_assert_clean(output);
}

/* What is verified follows what is done, and at the end of the copy is all of it. */
static void follow(void *user, const sluice_progress *p)
{
    sluice_progress *last = user;
    if (strcmp(p->phase, "copy") != 0)
        return;
    assert_true(p->done_bytes >= last->done_bytes && p->verified_bytes >= last->verified_bytes);
    assert_true(p->verified_bytes <= p->done_bytes);
    *last = *p;
}

static void arrives_whole(void **state)
{
    (void)state;
    char *output = output_path();
    struct hub_run run = hub_run_to(output, &hub);
    sluice_install_report r;
    atomic_store(&hub.largest, 0);
    atomic_store(&hub.peak, 0);
    atomic_store(&hub.together, 2);
    sluice_progress last = {0};
    run.install.watch = (sluice_watch){.progress = follow, .user = &last};
    assert_ok(hub_install(&run, &r, err));
    atomic_store(&hub.together, 0);
    assert_true(last.total_bytes > 0);
    assert_int_equal(last.done_bytes, last.total_bytes);
    assert_int_equal(last.verified_bytes, last.total_bytes);
    assert_whole(output);
    assert_in_range(atomic_load(&hub.largest), 513, 1024); /* pieces, not whole ranges at once */
    assert_in_range(atomic_load(&hub.peak), 2, 3);         /* several in flight, no more than allowed */
    json_t *receipt = json_load_file(fx_path(output, "verified-install.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(receipt, "sourceRevision")), HUB_COMMIT);
    assert_string_equal(json_string_value(json_object_get(receipt, "sourceRepoID")), "owner/small");
    json_decref(receipt);
    hub_wipe(output);
}

static void arrives_whole_with_any_cut(void **state)
{
    (void)state;
    static const struct {
        uint32_t connections, head;
        uint64_t buffers, range;
    } CUTS[] = {{1, 512, 512, 777},
                {8, 512, 1 << 20, 65536},
                {4, 65536, 0, 0},
                {2, 100, 400, 100},
                {5, 512, 8192, 3000}};
    char *output = output_path();
    for (size_t i = 0; i < scaled(5, 2); i++) {
        struct hub_run run = hub_run_to(output, &hub);
        run.limits.connections = CUTS[i].connections;
        run.limits.head_bytes = CUTS[i].head;
        run.limits.buffer_bytes = CUTS[i].buffers;
        run.range_bytes = CUTS[i].range;
        hub.digests = i % 2 == 0;
        assert_ok(hub_install(&run, NULL, err));
        assert_whole(output);
        hub_wipe(output);
    }
    hub.digests = false;
}

/* ---- what passes ---- */

static bool is_stall(int fault)
{
    return fault == HTTPD_STALL || fault == HTTPD_DRIP;
}

/* Short where a stall is wanted; where it is not, a slow machine must not look like one. */
static uint32_t stall_of(int fault)
{
    return is_stall(fault) ? (uint32_t)scaled(150, 500) : hub_limits().stall_ms;
}

static void passing_faults_are_ridden_out(void **state)
{
    (void)state;
    static const int FAULTS[] = {HTTPD_SHORT, HTTPD_SHORT_END, HTTPD_STALL, HTTPD_RESET,
                                 HTTPD_CLOSE, HTTPD_429,       HTTPD_503,   HTTPD_500};
    char *output = output_path();
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        for (unsigned skip = 0; skip < 40; skip += (unsigned)scaled(13, 39)) {
            struct hub_run run = hub_run_to(output, &hub);
            run.limits.stall_ms = stall_of(FAULTS[i]);
            /* What a busy machine delays looks like a stall too, any number of times. */
            run.limits.attempts = is_stall(FAULTS[i]) ? 10000 : hub_limits().attempts;
            httpd_strike(&hub, FAULTS[i], skip, FAULTS[i] == HTTPD_503 ? 1 : 2); /* that one waits a second */
            sluice_error e = {0};
            if (hub_install(&run, NULL, &e) != SLUICE_OK)
                fx_fail("fault %d after %u requests: %s", FAULTS[i], skip, e.detail);
            assert_true(atomic_load(&hub.struck) >= 1);
            assert_whole(output);
            hub_wipe(output);
        }
}

/* Slower than a stall allows, but never silent for long: it goes on. */
static void slow_drip_is_endured(void **state)
{
    (void)state;
    char *output = output_path();
    struct hub_run run = hub_run_to(output, &hub);
    httpd_strike(&hub, HTTPD_DRIP, 20, 1);
    assert_ok(hub_install(&run, NULL, err));
    assert_int_equal(atomic_load(&hub.struck), 1);
    assert_whole(output);
    hub_wipe(output);
}

/* ---- what does not pass ---- */

/* It never stalls, and would take at least a second a piece. A slow machine may exceed the limit before the
 * strike, and must say the same. */
static void a_request_that_lasts_too_long_is_given_up(void **state)
{
    (void)state;
    char *output = output_path();
    struct hub_run run = hub_run_to(output, &hub);
    run.limits.attempts = 2;
    run.limits.whole_ms = 400;
    httpd_strike(&hub, HTTPD_DRIP, 30, 1000000);
    sluice_error e = {0};
    assert_int_equal(hub_install(&run, NULL, &e), SLUICE_E_IO);
    assert_non_null(strstr(e.detail, "timed out"));
    httpd_strike(&hub, HTTPD_GOOD, 0, 0);
    run.limits.whole_ms = hub_limits().whole_ms;
    run.install.resume = true;
    assert_ok(hub_install(&run, NULL, err));
    assert_whole(output);
    hub_wipe(output);
}

static void lasting_faults_are_told(void **state)
{
    (void)state;
    static const struct {
        int fault;
        sluice_status status;
        const char *words;
    } ROWS[] = {
        {HTTPD_WHOLE, SLUICE_E_UNSUPPORTED, "ignores byte ranges"},
        {HTTPD_OTHER, SLUICE_E_FORMAT, "answered with another byte range"},
        {HTTPD_LONG, SLUICE_E_FORMAT, "sends more of"},
        {HTTPD_LENGTH, SLUICE_E_FORMAT, "announces"},
        {HTTPD_SHORT, SLUICE_E_IO, "reading"},
        {HTTPD_STALL, SLUICE_E_IO, "stalled: less than 1024 bytes/s"},
        {HTTPD_DRIP, SLUICE_E_IO, "stalled: less than 1024 bytes/s"},
        {HTTPD_RESET, SLUICE_E_IO, "reading"},
        {HTTPD_CLOSE, SLUICE_E_IO, "reading"},
        {HTTPD_GARBAGE, SLUICE_E_IO, "reading"},
        {HTTPD_429, SLUICE_E_IO, "answers 429"},
        {HTTPD_503, SLUICE_E_IO, "answers 503"},
        {HTTPD_WAIT, SLUICE_E_IO, "asks to wait 86400 s"},
        {HTTPD_500, SLUICE_E_IO, "answers 500"},
        {HTTPD_403, SLUICE_E_IO, "set HF_TOKEN"},
        {HTTPD_404, SLUICE_E_IO, "(404)"},
        {HTTPD_416, SLUICE_E_CORRUPT, "changed while it was read"},
        {HTTPD_TAG, SLUICE_E_CORRUPT, "another entity tag"},
        {HTTPD_COMMIT, SLUICE_E_CORRUPT, "the repository moved"},
        {HTTPD_NAMELESS, SLUICE_E_FORMAT, "no commit id"},
        {HTTPD_GZIP, SLUICE_E_UNSUPPORTED, "compressed (gzip)"},
        {HTTPD_LOOP, SLUICE_E_IO, "more than 5 times"},
    };
    char *output = output_path();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct hub_run run = hub_run_to(output, &hub);
        run.limits.attempts = 2;
        run.limits.stall_ms = stall_of(ROWS[i].fault);
        httpd_strike(&hub, ROWS[i].fault, 30, 1000000);
        sluice_error e = {0};
        sluice_status status = hub_install(&run, NULL, &e);
        if (status != ROWS[i].status || !strstr(e.detail, ROWS[i].words))
            fx_fail("fault %d: status %d, \"%s\"", ROWS[i].fault, (int)status, e.detail);
        assert_int_not_equal(access(output, F_OK), 0);
        /* The server has recovered: what was read is kept. */
        run.limits.stall_ms = hub_limits().stall_ms;
        httpd_strike(&hub, HTTPD_GOOD, 0, 0);
        run.install.resume = true;
        sluice_install_report r;
        assert_ok(hub_install(&run, &r, err));
        /* On a busy machine the first request may have seemed to stall, before anything was there to keep. */
        assert_true(r.reused_bytes > 0 || is_stall(ROWS[i].fault));
        assert_whole(output);
        hub_wipe(output);
    }
}

/* Right lengths, wrong bytes: the digest that the hub states for the shard finds it. */
static void corruption_is_found(void **state)
{
    (void)state;
    char *output = output_path();
    struct hub_run run = hub_run_to(output, &hub);
    hub.digests = true;
    httpd_strike(&hub, HTTPD_CORRUPT, 30, 1);
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_CORRUPT, "arrived damaged");
    assert_int_equal(atomic_load(&hub.struck), 1);
    assert_int_not_equal(access(output, F_OK), 0);
    run.install.resume = true;
    assert_ok(hub_install(&run, NULL, err));
    assert_whole(output);
    hub_wipe(output);
    hub.digests = false;
}

static void corrupt_small_files_are_found(void **state)
{
    (void)state;
    char *output = output_path(), hex[SHA256_HEX_BYTES];
    struct hub_run run = hub_run_to(output, &hub);
    assert_ok(sha256_hex("{}", 2, hex, err)); /* not what tokenizer.json holds */
    fx_text(snapshot, "tokenizer.json.sha256", hex);
    hub.digests = true;
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_CORRUPT, "tokenizer.json arrived damaged");
    assert_int_not_equal(access(output, F_OK), 0);
    assert_int_equal(unlink(fx_path(snapshot, "tokenizer.json.sha256")), 0);
    hub.digests = false;
    hub_wipe(output);
}

/* ---- redirects and tokens ---- */

static void redirects_drop_the_token(void **state)
{
    (void)state;
    char *output = output_path();
    struct httpd front = {.dir = snapshot, .commit = HUB_COMMIT, .next_host = &hub, .token = "hf_secret"};
    httpd_start(&front);
    struct hub_run run = hub_run_to(output, &front);
    run.limits.token = "hf_secret";
    hub.token = NULL;
    atomic_store(&hub.refused, 0);
    assert_ok(hub_install(&run, NULL, err));
    assert_int_equal(atomic_load(&hub.refused), 0); /* the other host never saw it */
    assert_int_equal(atomic_load(&front.refused), 0);
    assert_whole(output);
    /* Where a redirect led is remembered: one question per file, not one per piece. */
    assert_true(atomic_load(&front.requests) < 20);
    hub_wipe(output);
    /* A remembered address that expires is asked for anew. */
    httpd_strike(&hub, HTTPD_403, 25, 1);
    assert_ok(hub_install(&run, NULL, err));
    assert_int_equal(atomic_load(&hub.struck), 1);
    assert_whole(output);
    hub_wipe(output);
    httpd_stop(&front);
}

static void tokens_are_needed_and_kept(void **state)
{
    (void)state;
    char *output = output_path();
    struct httpd gated = {.dir = snapshot, .commit = HUB_COMMIT, .token = "hf_secret"};
    httpd_start(&gated);
    struct hub_run run = hub_run_to(output, &gated);
    sluice_error e = {0};
    assert_int_equal(hub_install(&run, NULL, &e), SLUICE_E_IO);
    assert_non_null(strstr(e.detail, "set HF_TOKEN"));
    run.limits.token = "hf_secret";
    assert_ok(hub_install(&run, NULL, err));
    assert_whole(output);
    hub_wipe(output);
    httpd_stop(&gated);
}

/* ---- names, revisions ---- */

static void refuses_bad_names(void **state)
{
    (void)state;
    static const char *const REPOS[] = {"",     "small", "/small", "owner/", "a/b/c",
                                        "../x", "a/..",  "a b/c",  "a/b?c"};
    static const char *const BASES[] = {"ftp://host", "host", "https://", "http://user@host",
                                        "https://host/?q"};
    struct http_options limits = hub_limits();
    struct source *source;
    for (size_t i = 0; i < sizeof REPOS / sizeof *REPOS; i++)
        assert_fails(
            source_open_hub(
                &source,
                &(struct hub_options){.base_url = hub_url(&hub), .repo = REPOS[i], .limits = &limits}, err),
            SLUICE_E_ARGUMENT, "is no repository");
    for (size_t i = 0; i < sizeof BASES / sizeof *BASES; i++)
        assert_fails(
            source_open_hub(
                &source, &(struct hub_options){.base_url = BASES[i], .repo = "a/b", .limits = &limits}, err),
            SLUICE_E_ARGUMENT, "is no base address");
}

static void revisions_are_held(void **state)
{
    (void)state;
    char *output = output_path();
    struct hub_run run = hub_run_to(output, &hub);
    run.revision = "ffffffffffffffffffffffffffffffffffffffff";
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_CORRUPT, "the repository moved");
    run.revision = "../main";
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_ARGUMENT, "is no revision");
    run.revision = HUB_COMMIT;
    assert_ok(hub_install(&run, NULL, err));
    hub_wipe(output);
    /* A mirror that names no commit. */
    hub.commit = NULL;
    run.revision = "main";
    assert_ok(hub_install(&run, NULL, err));
    assert_whole(output);
    hub_wipe(output);
    hub.commit = HUB_COMMIT;
}

static void nobody_answers(void **state)
{
    (void)state;
    struct httpd gone = {.dir = snapshot};
    httpd_start(&gone);
    httpd_stop(&gone);
    struct hub_run run = hub_run_to(output_path(), &gone);
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_IO, "reading config.json from http://127.0.0.1");
}

/* The server takes whole addresses as well, as proxies do; the host in them is nowhere to be found. */
static void proxies_of_the_environment_are_used(void **state)
{
    (void)state;
    char *output = output_path(), proxy[64];
    struct hub_run run = hub_run_to(output, &hub);
    run.limits.attempts = 1;
    run.url = "http://hub.invalid";
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_IO, "reading config.json from http://hub.invalid");
    (void)snprintf(proxy, sizeof proxy, "http://127.0.0.1:%u", hub.port);
    assert_int_equal(setenv("http_proxy", proxy, 1), 0);
    assert_ok(hub_install(&run, NULL, err));
    assert_whole(output);
    hub_wipe(output);
    assert_int_equal(setenv("no_proxy", "hub.invalid", 1), 0);
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_IO, "reading config.json from http://hub.invalid");
    (void)unsetenv("no_proxy");
    (void)unsetenv("http_proxy");
    hub_wipe(output);
}

/* ---- cancelling ---- */

static volatile int stop;

static void stop_soon(void *user, const sluice_progress *progress)
{
    (void)user;
    if (strcmp(progress->phase, "copy") == 0)
        stop = 1;
}

static void cancel_pauses(void **state)
{
    (void)state;
    char *output = output_path();
    struct hub_run run = hub_run_to(output, &hub);
    stop = 0;
    run.limits.cancel = &stop;
    run.install.watch = (sluice_watch){.progress = stop_soon, .cancel = &stop};
    assert_fails(hub_install(&run, NULL, err), SLUICE_E_CANCELLED, "go on with --resume");
    stop = 0;
    run.install.watch.progress = NULL;
    run.install.resume = true;
    assert_ok(hub_install(&run, NULL, err));
    assert_whole(output);
    hub_wipe(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrives_whole),
        cmocka_unit_test(arrives_whole_with_any_cut),
        cmocka_unit_test(passing_faults_are_ridden_out),
        cmocka_unit_test(slow_drip_is_endured),
        cmocka_unit_test(lasting_faults_are_told),
        cmocka_unit_test(a_request_that_lasts_too_long_is_given_up),
        cmocka_unit_test(corruption_is_found),
        cmocka_unit_test(corrupt_small_files_are_found),
        cmocka_unit_test(redirects_drop_the_token),
        cmocka_unit_test(tokens_are_needed_and_kept),
        cmocka_unit_test(refuses_bad_names),
        cmocka_unit_test(revisions_are_held),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(proxies_of_the_environment_are_used),
        cmocka_unit_test(cancel_pauses),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
