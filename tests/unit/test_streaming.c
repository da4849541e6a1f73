/* The whole engine with few slots: whatever brings the experts, the logits are the same bytes. And what the
 * statistics say about it. */
#include "base/fault.h"
#include "support/run.h"

#include <sys/stat.h>

#define DEMO_SOURCE "demo/dictionary-moe"

enum { TOKENS = 96, SLOTS = 4, FULL = 64 };

static char dir[PATH_BYTES], install[PATH_BYTES], mirror[PATH_BYTES];
static int32_t ids[TOKENS];
static struct rows expected;

static int setup(void **state)
{
    (void)state;
    char path[PATH_BYTES], command[4 * PATH_BYTES];
    temp_make(dir);
    install_into(DEMO_SOURCE, dir, "demo.gturbo", install);
    /* A mirror of some layers, as cp -a leaves it. */
    assert_int_equal(mkdir(path_join(mirror, dir, "mirror"), 0777), 0);
    assert_int_equal(mkdir(path_join(path, mirror, "packed_experts"), 0777), 0);
    int n =
        snprintf(command, sizeof command, "cp -a '%s'/packed_experts/layer_0[0-4].bin '%s'", install, path);
    assert_true(n > 0 && (size_t)n < sizeof command);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < TOKENS; i++)
        ids[i] = 300 + (i * 613 + i * i * 7) % 5000;
    sluice_engine *engine = engine_open(install, &(sluice_engine_options){.expert_slots = FULL});
    expected = score_fresh(engine, ids, TOKENS);
    sluice_engine_close(engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(expected.v);
    temp_remove(dir);
    return 0;
}

static void assert_rows(const struct rows *rows, size_t first, const char *what)
{
    for (size_t i = 0; i < rows->n; i++)
        if (memcmp(row_at(rows, i), row_at(&expected, first + i), rows->vocab * sizeof(float)) != 0)
            fail_msg("%s: the logits at position %zu differ", what, first + i);
}

/* Half as a prompt, half token by token; the statistics of the session. */
static sluice_session_stats run(const sluice_engine_options *options, const char *what)
{
    sluice_engine *engine = engine_open(install, options);
    sluice_session *session = session_open(engine);
    sluice_session_stats stats;
    uint32_t vocab = vocab_of(engine);
    struct rows prompt = score_from(session, ids, TOKENS / 2, 0, vocab);
    assert_rows(&prompt, 0, what);
    free(prompt.v);
    for (size_t i = TOKENS / 2; i < TOKENS; i++) {
        struct rows one = score_from(session, ids, i + 1, i, vocab);
        assert_rows(&one, i, what);
        free(one.v);
    }
    sluice_session_stats_get(session, &stats);
    sluice_session_close(session);
    sluice_engine_close(engine);
    return stats;
}

static void no_way_of_reading_changes_a_bit(void **state)
{
    (void)state;
    const char *mirrors[] = {mirror};
    const sluice_paths paths = {mirrors, 1};
    const struct {
        const char *what;
        sluice_engine_options options;
    } ROWS[] = {
        {"auto", {.expert_slots = SLOTS}},
        {"threads", {.expert_slots = SLOTS, .io = SLUICE_IO_THREADS}},
        {"one thread", {.expert_slots = SLOTS, .io = SLUICE_IO_THREADS, .read_threads = 1}},
        {"one in flight", {.expert_slots = 7, .read_threads = 1}},
        {"lookahead", {.expert_slots = SLOTS, .lookahead_experts = 4}},
        {"long lookahead", {.expert_slots = 9, .lookahead_experts = 32}},
        {"lookahead by threads", {.expert_slots = SLOTS, .lookahead_experts = 6, .io = SLUICE_IO_THREADS}},
        {"mirror", {.expert_slots = SLOTS, .mirrors = paths}},
        {"mirror by receipt",
         {.expert_slots = SLOTS, .mirrors = paths, .verification = SLUICE_VERIFY_RECEIPT}},
        {"mirror and lookahead",
         {.expert_slots = 5,
          .mirrors = paths,
          .lookahead_experts = 8,
          .verification = SLUICE_VERIFY_RECEIPT}},
        {"small chunks", {.expert_slots = SLOTS, .prefill_chunk_tokens = 5, .lookahead_experts = 4}},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        (void)run(&ROWS[i].options, ROWS[i].what);
}

static void a_stuttering_drive_changes_no_bit(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 40; n += 13) {
        fault_arm(FAULT_SHORT, n * 9);
        fault_arm(FAULT_AGAIN, n * 7);
        (void)run(&(sluice_engine_options){.expert_slots = SLOTS}, "stutter");
        assert_true(fault_fired(FAULT_SHORT) && fault_fired(FAULT_AGAIN));
    }
}

static void each_expert_is_read_once_per_chunk(void **state)
{
    (void)state;
    sluice_engine_options options = {.expert_slots = SLOTS, .prefill_chunk_tokens = TOKENS};
    sluice_engine *engine = engine_open(install, &options);
    sluice_session *session = session_open(engine);
    sluice_session_stats stats;
    sluice_error err;
    EXPECT_OK(sluice_session_prefill(session, ids, TOKENS, &err));
    sluice_session_stats_get(session, &stats);
    sluice_session_close(session);
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    struct stat st;
    char path[PATH_BYTES];
    assert_int_equal(stat(path_join(path, install, "packed_experts/layer_00.bin"), &st), 0);
    /* 96 tokens need nearly all of the 64 experts of each layer, and none more than once. */
    uint64_t all = (uint64_t)st.st_size * info.layers;
    assert_in_range(stats.prefill_read_bytes, all / 2, all);
    sluice_engine_close(engine);
}

static void guesses_are_counted_and_mostly_useful(void **state)
{
    (void)state;
    sluice_engine_options options = {
        .expert_slots = SLOTS, .lookahead_experts = 4, .verification = SLUICE_VERIFY_RECEIPT};
    sluice_session_stats with = run(&options, "lookahead");
    options.lookahead_experts = SLUICE_LOOKAHEAD_OFF;
    sluice_session_stats without = run(&options, "no lookahead");
    assert_int_equal(without.guesses, 0);
    assert_int_equal(without.useful_guesses, 0);
    assert_int_equal(without.wasted_guess_bytes, 0);
    assert_true(with.guesses > 0);
    assert_true(with.useful_guesses > 0 && with.useful_guesses <= with.guesses);
    assert_true(with.decode_expert_hits >= without.decode_expert_hits);
    assert_true(with.decode_read_bytes >= without.decode_read_bytes);
}

static void the_chunk_follows_the_budget(void **state)
{
    (void)state;
    sluice_plan plan;
    sluice_error err;
    /* All experts fit: up to 512. Few slots and room: larger. A tight budget: 128. */
    sluice_engine_options options = {.expert_slots = SLUICE_SLOTS_ALL};
    EXPECT_OK(sluice_plan_install(install, &options, &plan, &err));
    assert_int_equal(plan.prefill_chunk_tokens, 512);
    uint64_t least = plan.minimum_bytes;
    options = (sluice_engine_options){.expert_slots = SLOTS, .memory_bytes = 1ull << 30};
    EXPECT_OK(sluice_plan_install(install, &options, &plan, &err));
    assert_int_equal(plan.prefill_chunk_tokens, 2048);
    assert_int_equal(plan.minimum_bytes, least);
    options = (sluice_engine_options){.memory_bytes = least};
    EXPECT_OK(sluice_plan_install(install, &options, &plan, &err));
    assert_int_equal(plan.prefill_chunk_tokens, 128);
    options =
        (sluice_engine_options){.expert_slots = SLOTS, .memory_bytes = 1ull << 30, .context_tokens = 300};
    EXPECT_OK(sluice_plan_install(install, &options, &plan, &err));
    assert_int_equal(plan.prefill_chunk_tokens, 256);
    options.prefill_chunk_tokens = 64;
    EXPECT_OK(sluice_plan_install(install, &options, &plan, &err));
    assert_int_equal(plan.prefill_chunk_tokens, 64);
}

/* What is left open is the family's where experts are streamed and a token's own have room; spares are
 * planned. */
static void the_lookahead_is_chosen_and_planned(void **state)
{
    (void)state;
    const struct {
        uint32_t slots, asked, planned;
    } ROWS[] = {
        {2 * SLOTS, 0, 2}, {SLOTS, SLUICE_LOOKAHEAD_OFF, 0}, {SLOTS, 16, 16},
        {SLOTS, 0, 0},     {SLUICE_SLOTS_ALL, 0, 0},         {SLUICE_SLOTS_ALL, 3, 3},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_plan plan, none;
        sluice_error err;
        sluice_engine_options options = {.expert_slots = ROWS[i].slots,
                                         .lookahead_experts = SLUICE_LOOKAHEAD_OFF};
        EXPECT_OK(sluice_plan_install(install, &options, &none, &err));
        options.lookahead_experts = ROWS[i].asked;
        EXPECT_OK(sluice_plan_install(install, &options, &plan, &err));
        assert_int_equal(plan.lookahead_experts, ROWS[i].planned);
        assert_int_equal(plan.total_bytes > none.total_bytes, ROWS[i].planned > 0);
    }
}

static void impossible_options_are_named(void **state)
{
    (void)state;
    const char *many[] = {mirror, mirror, mirror, mirror, mirror, mirror, mirror, mirror};
    const char *none[] = {dir};
    const struct {
        sluice_engine_options options;
        sluice_status status;
        const char *says;
    } ROWS[] = {
        {{.lookahead_experts = 33},
         SLUICE_E_ARGUMENT,
         "a lookahead of 33 experts was asked for, the most is 32"},
        {{.mirrors = {many, 8}}, SLUICE_E_ARGUMENT, "8 mirrors were given, at most 7 are possible"},
        {{.mirrors = {none, 1}}, SLUICE_E_ARGUMENT, "holds no packed_experts/layer_NN.bin"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_engine *engine;
        sluice_error err;
        assert_int_equal(sluice_engine_open(install, &ROWS[i].options, &engine, &err), ROWS[i].status);
        if (!strstr(err.detail, ROWS[i].says))
            fail_msg("\"%s\" does not contain \"%s\"", err.detail, ROWS[i].says);
    }
}

/* The n-th ring of an open is refused. The one asked for by name is an error, others become threads. */
static void a_refused_ring_is_an_error_only_by_name(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        const sluice_engine_options options = {.io = named ? SLUICE_IO_URING : SLUICE_IO_AUTO,
                                               .verification = SLUICE_VERIFY_RECEIPT};
        int refused = 0;
        bool fired = true;
        for (uint64_t n = 1; fired; n++) {
            sluice_engine *engine;
            sluice_error err;
            fault_arm(FAULT_RING, n);
            sluice_status status = sluice_engine_open(install, &options, &engine, &err);
            fired = fault_fired(FAULT_RING);
            fault_arm(FAULT_RING, 0);
            if (status != SLUICE_OK) {
                assert_int_equal(status, SLUICE_E_UNSUPPORTED);
                assert_non_null(strstr(err.detail, "io_uring"));
                refused++;
            }
            sluice_engine_close(engine);
        }
        assert_int_equal(refused, named);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_way_of_reading_changes_a_bit),
        cmocka_unit_test(a_stuttering_drive_changes_no_bit),
        cmocka_unit_test(each_expert_is_read_once_per_chunk),
        cmocka_unit_test(guesses_are_counted_and_mostly_useful),
        cmocka_unit_test(the_chunk_follows_the_budget),
        cmocka_unit_test(the_lookahead_is_chosen_and_planned),
        cmocka_unit_test(impossible_options_are_named),
        cmocka_unit_test(a_refused_ring_is_an_error_only_by_name),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
