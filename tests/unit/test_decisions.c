/* What an engine tells of its decisions: each of them, with what was really decided, and nothing unasked. */
#include "support/demo.h"
#include "support/unit.h"

#include "base/fault.h"
#include "run/session.h"
#include "store/drive.h"
#include "store/gturbo_private.h"

#include <fcntl.h>
#include <pthread.h>

enum { KEPT = 128 };

struct told {
    pthread_mutex_t lock;
    size_t n;
    struct {
        sluice_log_level level;
        char text[1024];
    } records[KEPT];
};

static struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(void *user, sluice_log_level level, const char *record)
{
    struct told *t = user;
    (void)pthread_mutex_lock(&t->lock);
    if (t->n < KEPT) {
        t->records[t->n].level = level;
        (void)snprintf(t->records[t->n].text, sizeof t->records[t->n].text, "%s", record);
        t->n++;
    }
    (void)pthread_mutex_unlock(&t->lock);
}

static size_t count(const char *words)
{
    size_t n = 0;
    (void)pthread_mutex_lock(&told.lock);
    for (size_t i = 0; i < told.n; i++)
        n += strstr(told.records[i].text, words) != NULL;
    (void)pthread_mutex_unlock(&told.lock);
    return n;
}

static void expect_record(sluice_log_level level, const char *words)
{
    for (size_t i = 0; i < told.n; i++)
        if (told.records[i].level == level && strstr(told.records[i].text, words))
            return;
    for (size_t i = 0; i < told.n; i++)
        print_message("  %s\n", told.records[i].text);
    fail_msg("no record holds \"%s\"", words);
}

static sluice_engine *opened(sluice_log_level level, sluice_engine_options options)
{
    sluice_error err;
    sluice_engine *engine;
    told.n = 0;
    options.log = (sluice_log){level, keep, &told};
    assert_ok(sluice_engine_open(demo.install, &options, &engine, &err), err);
    return engine;
}

static void every_decision_is_told(void **state)
{
    (void)state;
    char line[256];
    sluice_engine *e = opened(SLUICE_LOG_INFO, (sluice_engine_options){.memory_bytes = 256 << 20});
    const sluice_plan *plan = sluice_engine_plan(e);
    expect_record(SLUICE_LOG_INFO, "verification: full, each expert file is hashed before its first use");
    expect_record(SLUICE_LOG_INFO, "of the family gemma4, 8 layers, 64 experts of which a token takes 4");
    (void)snprintf(line, sizeof line, "kernels: %s (the best of this processor), activations int8",
                   e->options.isa);
    expect_record(SLUICE_LOG_INFO, line);
    (void)snprintf(line, sizeof line, "%u threads (one for each core)", pool_lanes(e->pool));
    expect_record(SLUICE_LOG_INFO, line);
    (void)snprintf(line, sizeof line,
                   "%.1f MiB planned of 256.0 MiB (--memory); context 4096 tokens, prefill chunk %u",
                   (double)plan->total_bytes / 1048576, plan->prefill_chunk_tokens);
    expect_record(SLUICE_LOG_INFO, line);
    expect_record(SLUICE_LOG_INFO, "lookahead: off, every expert fits into memory");
    expect_record(SLUICE_LOG_INFO, "drafting: off");
    (void)snprintf(line, sizeof line, "at most %u at once (no measurement by sluice probe is remembered)",
                   reads_depth(e->reads));
    expect_record(SLUICE_LOG_INFO, line);
    assert_int_equal(count("memory: reserve"), 0); /* a detail */
    sluice_engine_close(e);
}

static void what_was_asked_for_is_told_as_such(void **state)
{
    (void)state;
    sluice_engine *e = opened(SLUICE_LOG_INFO, (sluice_engine_options){.isa = "ref",
                                                                       .threads = 3,
                                                                       .expert_slots = 16,
                                                                       .prefill_chunk_tokens = 17,
                                                                       .kv = SLUICE_KV_BF16,
                                                                       .activations = SLUICE_ACTIVATIONS_F32,
                                                                       .verification = SLUICE_VERIFY_RECEIPT,
                                                                       .io = SLUICE_IO_THREADS,
                                                                       .read_threads = 5,
                                                                       .lookahead_experts = 2,
                                                                       .draft = SLUICE_DRAFT_LOOKUP,
                                                                       .draft_max = 7});
    expect_record(SLUICE_LOG_INFO, "the receipt is trusted, nothing is hashed");
    expect_record(
        SLUICE_LOG_INFO,
        "kernels: ref (as asked for), activations f32, keys and values bf16; 3 threads (as asked for)");
    expect_record(
        SLUICE_LOG_INFO,
        "prefill chunk 17 tokens (as asked for), 16 of 64 experts per layer in memory (as asked for)");
    expect_record(SLUICE_LOG_INFO, "lookahead: 2 experts of the next layer are guessed (as asked for)");
    expect_record(SLUICE_LOG_INFO, "drafting: from the text, at most 7 tokens a pass");
    expect_record(SLUICE_LOG_INFO, "experts are read by threads, at most 5 at once (as asked for)");
    sluice_engine_close(e);
}

static void lookahead_says_why_it_is_off(void **state)
{
    (void)state;
    static const struct {
        sluice_engine_options options;
        const char *words;
    } ROWS[] = {
        {{.expert_slots = 4}, "lookahead: off, a token's own experts barely fit"},
        {{.expert_slots = 32},
         "lookahead: 2 experts of the next layer are guessed (what pays for this family)"},
        {{.expert_slots = 32, .lookahead_experts = SLUICE_LOOKAHEAD_OFF}, "lookahead: off, as asked for"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_engine *e = opened(SLUICE_LOG_INFO, ROWS[i].options);
        expect_record(SLUICE_LOG_INFO, ROWS[i].words);
        sluice_engine_close(e);
    }
}

static void a_ring_that_is_refused_is_told_with_the_reason(void **state)
{
    (void)state;
    sluice_engine *e = opened(SLUICE_LOG_INFO, (sluice_engine_options){0});
    const bool has_ring = strcmp(reads_engine(e->reads), "uring") == 0;
    assert_int_equal(count("threads read in the ring's place: the kernel refuses an io_uring ("), !has_ring);
    sluice_engine_close(e);
    if (!has_ring)
        skip();
    /* Reading the resident weights takes a ring of its own, which nobody asks about. */
    for (uint64_t n = 1; n <= 2; n++) {
        fault_arm(FAULT_RING, n);
        e = opened(SLUICE_LOG_INFO, (sluice_engine_options){0});
        assert_true(fault_fired(FAULT_RING));
        bool own = strcmp(reads_engine(e->reads), "threads") == 0;
        assert_int_equal(
            count("threads read in the ring's place: the kernel refuses an io_uring (Operation not "
                  "permitted)"),
            own);
        assert_int_equal(count("experts are read by threads, at most 8 at once"), own);
        sluice_engine_close(e);
        if (own)
            return;
    }
    fail_msg("no expert reads were refused a ring");
}

static void what_a_probe_found_is_told(void **state)
{
    (void)state;
    sluice_probe_report report;
    sluice_error err;
    char line[128], memory[128];
    const struct drive_limits brief = {.file_bytes = 1 << 20, .row_ns = 1000000};
    assert_ok(drive_probe(demo.install, &brief, NULL, &report, &err), err);
    sluice_engine *e = opened(SLUICE_LOG_INFO, (sluice_engine_options){0});
    (void)snprintf(line, sizeof line, "at most %u at once (as sluice probe found best)",
                   report.rows[report.best].depth);
    expect_record(SLUICE_LOG_INFO, line);
    sluice_engine_close(e);
    (void)snprintf(memory, sizeof memory, "%s.probe.json", demo.install);
    assert_ok(file_publish(memory, "{}", 2, &err), err);
    e = opened(SLUICE_LOG_INFO, (sluice_engine_options){0});
    expect_record(SLUICE_LOG_INFO,
                  "(what sluice probe remembered is of another device or file system, or damaged)");
    sluice_engine_close(e);
    assert_int_equal(unlink(memory), 0);
}

static void details_name_each_file_and_prompt(void **state)
{
    (void)state;
    sluice_error err;
    sluice_session *session;
    static const int32_t ids[] = {300, 301, 302, 303, 304};
    sluice_engine *e = opened(SLUICE_LOG_DEBUG, (sluice_engine_options){.prefill_chunk_tokens = 2});
    assert_ok(sluice_session_open(e, &session, &err), err);
    assert_ok(sluice_session_prefill(session, ids, 5, &err), err);
    sluice_session_close(session);
    sluice_engine_close(e);
    assert_int_equal(count(".bin was hashed: 2.0 MiB in"), 8);
    assert_int_equal(count("/packed_experts/layer_07.bin is read "), 1);
    assert_int_equal(count("prefill: 5 tokens in chunks of 2 took"), 1);
    expect_record(SLUICE_LOG_DEBUG, "memory: reserve 32.0 MiB");
}

static void a_first_use_that_waits_is_told(void **state)
{
    (void)state;
    struct gturbo *store;
    struct log log;
    sluice_error err;
    int fd;
    told.n = 0;
    log_open(&log, &(sluice_log){SLUICE_LOG_INFO, keep, &told});
    assert_ok(gturbo_open(demo.install, SLUICE_VERIFY_FULL, NULL, &store, &err), err);
    gturbo_log(store, &log);
    for (int i = 0; i < 2; i++)
        assert_ok(gturbo_layer_fd(store, 3, &fd, &err), err);
    gturbo_close(store);
    assert_int_equal(count("the first use of packed_experts/layer_03.bin waited "), 1);
    assert_int_equal(told.n, 1);
    log_close(&log);
}

static bool was_found(sluice_engine *e, uint32_t layer)
{
    struct layer_file *file = &e->store->private->layer_files[layer];
    (void)pthread_mutex_lock(&file->lock);
    bool found = file->failure.status != SLUICE_OK;
    (void)pthread_mutex_unlock(&file->lock);
    return found;
}

/* Damage that is found ahead of a use which never comes. */
static void damage_that_nobody_met_is_told_at_the_end(void **state)
{
    (void)state;
    char path[160];
    unsigned char byte;
    (void)snprintf(path, sizeof path, "%s/packed_experts/layer_05.bin", demo.install);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, 777), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 777), 1);
    sluice_engine *e = opened(SLUICE_LOG_DEBUG, (sluice_engine_options){0});
    for (int i = 0; i < 1000 && !was_found(e, 5); i++)
        (void)usleep(10000);
    assert_true(was_found(e, 5));
    assert_int_equal(count("is damaged"), 0);
    sluice_engine_close(e);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 777), 1);
    (void)close(fd);
    expect_record(SLUICE_LOG_ERROR, "layer_05.bin is damaged: its SHA-256 is ");
    assert_int_equal(count("is damaged"), 1);
    sluice_error err;
    assert_ok(sluice_verify(demo.install, NULL, NULL, &err), err);
}

static bool ignore_piece(void *user, const sluice_piece *piece)
{
    (void)user;
    (void)piece;
    return true;
}

static void drafting_that_rests_is_told(void **state)
{
    (void)state;
    sluice_error err;
    sluice_session *s;
    sluice_generated result;
    static const int32_t ids[] = {300, 301, 302, 300, 301, 302, 300, 301};
    sluice_engine *e = opened(SLUICE_LOG_INFO, (sluice_engine_options){.draft = SLUICE_DRAFT_LOOKUP});
    assert_ok(sluice_session_open(e, &s, &err), err);
    assert_ok(sluice_session_prefill(s, ids, 8, &err), err);
    /* As if rounds had been measured to be far dearer than plain passes. */
    s->speculation.pace.plain_ns = 1e6;
    for (int n = 1; n <= DRAFT_MAX; n++)
        s->speculation.pace.round_ns[n] = 1e9;
    const sluice_generate_options options = {.max_tokens = 8, .ignore_stop_ids = true};
    assert_ok(sluice_generate(s, &options, ignore_piece, NULL, &result, &err), err);
    assert_int_equal(
        count("drafting rests for 16 tokens: it does not pay (80 % of the guesses are right, a pass "
              "without takes 1.0 ms)"),
        1);
    sluice_session_close(s);
    sluice_engine_close(e);
}

static void nothing_is_told_unasked(void **state)
{
    (void)state;
    sluice_engine_close(opened(SLUICE_LOG_OFF, (sluice_engine_options){0}));
    assert_int_equal(told.n, 0);
    sluice_engine_close(opened(SLUICE_LOG_WARNING, (sluice_engine_options){0}));
    assert_int_equal(told.n, 0); /* all is well: nothing to warn of */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_decision_is_told),
        cmocka_unit_test(what_was_asked_for_is_told_as_such),
        cmocka_unit_test(lookahead_says_why_it_is_off),
        cmocka_unit_test(a_ring_that_is_refused_is_told_with_the_reason),
        cmocka_unit_test(what_a_probe_found_is_told),
        cmocka_unit_test(details_name_each_file_and_prompt),
        cmocka_unit_test(a_first_use_that_waits_is_told),
        cmocka_unit_test(damage_that_nobody_met_is_told_at_the_end),
        cmocka_unit_test(drafting_that_rests_is_told),
        cmocka_unit_test(nothing_is_told_unasked),
    };
    return cmocka_run_group_tests(tests, demo_setup, demo_teardown);
}
