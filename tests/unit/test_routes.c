/* Routing traces: recorded, refused, drawn, replayed; what the cache simulator makes of them; and the phases
 * of a step, which must add up. */
#include "store_fixture.h"

#include "support/demo.h"

#include "run/cachesim.h"
#include "run/session.h"

#include <math.h>

static const int32_t PROMPT[] = {2,   105, 536,  481, 384, 485, 501, 538,
                                 639, 544, 1104, 502, 106, 384, 105, 4928};
enum { N_PROMPT = sizeof PROMPT / sizeof *PROMPT, N_ANSWER = 12 };

enum { PATH_BYTES = 256 };

static const char *in_demo(char path[PATH_BYTES], const char *name)
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", demo.dir, name);
    return path;
}

static sluice_engine *engine_open(const sluice_engine_options *options)
{
    sluice_engine *engine = NULL;
    assert_ok(sluice_engine_open(demo.install, options, &engine, err));
    return engine;
}

static sluice_session *session_open(sluice_engine *engine)
{
    sluice_session *session = NULL;
    assert_ok(sluice_session_open(engine, &session, err));
    return session;
}

static bool keep_going(void *user, const sluice_piece *piece)
{
    (void)user;
    (void)piece;
    return true;
}

/* Prompt and a greedy answer of N_ANSWER tokens, of which all but the last are appended. */
static void answer(sluice_session *s)
{
    sluice_generated generated;
    const sluice_generate_options options = {.max_tokens = N_ANSWER, .ignore_stop_ids = true};
    assert_ok(sluice_session_prefill(s, PROMPT, N_PROMPT, err));
    assert_ok(sluice_generate(s, &options, keep_going, NULL, &generated, err));
}

static void record(const sluice_engine_options *options, const char *path)
{
    sluice_engine *engine = engine_open(options);
    sluice_session *s = session_open(engine);
    assert_ok(sluice_session_record_routes(s, path, err));
    answer(s);
    assert_ok(sluice_session_record_routes(s, NULL, err));
    sluice_session_close(s);
    sluice_engine_close(engine);
}

static struct routes load(const char *path)
{
    struct routes r;
    assert_ok(routes_load(path, &r, err));
    return r;
}

/* ---- recording ---- */

static void test_recording(void **state)
{
    (void)state;
    char a[PATH_BYTES], b[PATH_BYTES];
    record(&(sluice_engine_options){.prefill_chunk_tokens = 5}, in_demo(a, "a.routes"));
    struct routes r = load(a);
    assert_string_equal(r.family, "gemma4");
    assert_int_equal(r.layers, 8);
    assert_int_equal(r.experts, 64);
    assert_int_equal(r.top_k, 4);
    assert_int_equal(r.tokens, N_PROMPT + N_ANSWER - 1);
    for (size_t t = 0; t < r.tokens; t++) {
        assert_int_equal(r.token[t].position, t);
        assert_int_equal(r.token[t].decode, t >= N_PROMPT);
        assert_int_equal(r.token[t].rows_left, t >= N_PROMPT - 1 ? 0 : 4 - t % 5);
    }
    /* What an expert cache holds does not change what the router chooses. */
    record(&(sluice_engine_options){.prefill_chunk_tokens = 5, .expert_slots = 5}, in_demo(b, "b.routes"));
    struct routes other = load(b);
    assert_int_equal(other.tokens, r.tokens);
    assert_memory_equal(other.ids, r.ids, r.tokens * r.layers * r.top_k * sizeof *r.ids);
    routes_free(&other);
    /* A second recording goes on after the first. */
    record(&(sluice_engine_options){.prefill_chunk_tokens = 5}, a);
    other = load(a);
    assert_int_equal(other.tokens, 2 * r.tokens);
    size_t half = r.tokens * r.layers * r.top_k;
    assert_memory_equal(other.ids, other.ids + half, half * sizeof *other.ids);
    routes_free(&other);
    routes_free(&r);
}

static void test_recording_refusals(void **state)
{
    (void)state;
    char path[PATH_BYTES], missing[PATH_BYTES];
    sluice_engine *engine = engine_open(NULL);
    sluice_session *s = session_open(engine);
    assert_fails(sluice_session_record_routes(s, in_demo(missing, "no/where.routes"), err), SLUICE_E_IO,
                 "no/where.routes");
    FILE *file = fopen(in_demo(path, "letter.txt"), "w");
    assert_non_null(file);
    for (int i = 0; i < 400; i++)
        (void)fputc('x', file);
    assert_int_equal(fclose(file), 0);
    assert_fails(sluice_session_record_routes(s, path, err), SLUICE_E_FORMAT, "no routing trace");
    /* A write that fails shows at the end, and leaves a file that says it did not end. */
    in_demo(path, "failed.routes");
    assert_ok(sluice_session_record_routes(s, path, err));
    fault_arm(FAULT_WRITE, 2);
    answer(s);
    assert_true(fault_fired(FAULT_WRITE));
    fault_arm(FAULT_WRITE, 0);
    assert_fails(sluice_session_record_routes(s, NULL, err), SLUICE_E_IO, "failed.routes");
    struct routes r;
    assert_fails(routes_load(path, &r, err), SLUICE_E_FORMAT, "did not end");
    sluice_session_close(s);
    sluice_engine_close(engine);
}

/* ---- reading ---- */

static void test_parse_refusals(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    record(NULL, in_demo(path, "whole.routes"));
    size_t n;
    unsigned char *bytes = fx_read(path, &n);
    struct routes r;
    assert_fails(routes_parse(bytes, n - 1, &r, "x", err), SLUICE_E_FORMAT, "cut or changed");
    assert_fails(routes_parse(bytes, 100, &r, "x", err), SLUICE_E_FORMAT, "no routing trace");
    unsigned char *first = bytes + ROUTES_HEADER_BYTES + 8, was = first[0];
    first[0] = 64;
    assert_fails(routes_parse(bytes, n, &r, "x", err), SLUICE_E_FORMAT, "above 63");
    routes_free(&r);
    first[0] = first[2];
    assert_fails(routes_parse(bytes, n, &r, "x", err), SLUICE_E_FORMAT, "twice");
    routes_free(&r);
    first[0] = was;
    bytes[ROUTES_HEADER_BYTES + 4] = 200; /* rows that follow */
    assert_fails(routes_parse(bytes, n, &r, "x", err), SLUICE_E_FORMAT, "past the end");
    routes_free(&r);
    free(bytes);
}

/* ---- drawing ---- */

static double overlap(const struct routes *r)
{
    size_t same = 0, row = (size_t)r->layers * r->top_k;
    for (size_t t = 1; t < r->tokens; t++)
        for (size_t i = 0; i < row; i++)
            for (uint32_t k = 0; k < r->top_k; k++)
                same += r->ids[t * row + i] == r->ids[(t - 1) * row + i / r->top_k * r->top_k + k];
    return (double)same / (double)((r->tokens - 1) * row);
}

static void assert_distinct(const struct routes *r)
{
    for (size_t i = 0; i < r->tokens * r->layers; i++)
        for (uint32_t k = 0; k < r->top_k; k++) {
            assert_true(r->ids[i * r->top_k + k] < r->experts);
            for (uint32_t j = 0; j < k; j++)
                assert_int_not_equal(r->ids[i * r->top_k + k], r->ids[i * r->top_k + j]);
        }
}

static void test_drawn(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double low, high; /* of the overlap between neighbours */
    } CASES[] = {
        {"reuse:0", 0.05, 0.08}, /* 8 of 128 by chance */
        {"reuse:0.5", 0.50, 0.56}, {"reuse:1", 1.0, 1.0}, {"zipf:0", 0.05, 0.08}, {"zipf:1.2", 0.25, 0.60},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct routes a, b, c;
        assert_ok(routes_generate(CASES[i].spec, 5, 128, 8, 300, 7, &a, err));
        assert_ok(routes_generate(CASES[i].spec, 5, 128, 8, 300, 7, &b, err));
        assert_ok(routes_generate(CASES[i].spec, 5, 128, 8, 300, 8, &c, err));
        size_t bytes = a.tokens * a.layers * a.top_k * sizeof *a.ids;
        assert_distinct(&a);
        assert_memory_equal(a.ids, b.ids, bytes);
        assert_memory_not_equal(a.ids, c.ids, bytes);
        double x = overlap(&a);
        if (x < CASES[i].low || x > CASES[i].high)
            fail_msg("%s: neighbours share %f", CASES[i].spec, x);
        routes_free(&a);
        routes_free(&b);
        routes_free(&c);
    }
    static const char *const WRONG[] = {"zipf:", "zipf:x", "zipf:-1", "reuse:1.5", "reuse:0.5x", "zipf:11"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        struct routes r;
        assert_fails(routes_generate(WRONG[i], 5, 128, 8, 10, 0, &r, err), SLUICE_E_ARGUMENT, WRONG[i]);
        routes_free(&r);
    }
}

/* ---- replaying ---- */

static void test_replay(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    sluice_engine *engine = engine_open(NULL);
    struct routes drawn;
    assert_ok(routes_generate("reuse:0.3", 8, 64, 4, 10, 1, &drawn, err));
    struct route_replay replay;
    assert_ok(replay_open(&replay, &drawn, engine->model, err));
    replay.first = 7;
    sluice_session *s = session_open(engine);
    s->override = &replay.override;
    assert_ok(sluice_session_record_routes(s, in_demo(path, "replayed.routes"), err));
    answer(s);
    sluice_session_close(s); /* ends the recording too */
    struct routes seen = load(path);
    size_t row = (size_t)seen.layers * seen.top_k;
    for (size_t t = 0; t < seen.tokens; t++)
        assert_memory_equal(seen.ids + t * row, drawn.ids + (t + 7) % 10 * row, row * sizeof *seen.ids);
    routes_free(&seen);
    drawn.experts = 63;
    assert_fails(replay_open(&replay, &drawn, engine->model, err), SLUICE_E_ARGUMENT, "63 experts");
    routes_free(&drawn);
    sluice_engine_close(engine);
}

/* Guesses over a trace are distinct experts, right as often as stated, and the same each time. */
static void test_guesses(void **state)
{
    (void)state;
    enum { TOKENS = 200, LAYERS = 8, TOP_K = 4, GUESSES = 4 };
    static const double ACCURACIES[] = {0.25, 0.65, 1};
    sluice_engine *engine = engine_open(NULL);
    struct routes drawn;
    assert_ok(routes_generate("zipf:1", LAYERS, 64, TOP_K, TOKENS, 5, &drawn, err));
    struct route_replay replay;
    assert_ok(replay_open(&replay, &drawn, engine->model, err));
    for (size_t a = 0; a < sizeof ACCURACIES / sizeof *ACCURACIES; a++) {
        uint32_t right = 0;
        replay.guess_accuracy = ACCURACIES[a];
        for (uint32_t i = 0; i < TOKENS * LAYERS; i++) {
            const uint16_t *truth = drawn.ids + (size_t)i * TOP_K;
            uint16_t ids[GUESSES], again[GUESSES];
            replay.override.guess(replay.override.user, i % LAYERS, i / LAYERS, GUESSES, ids);
            replay.override.guess(replay.override.user, i % LAYERS, i / LAYERS, GUESSES, again);
            assert_memory_equal(ids, again, sizeof ids);
            for (uint32_t k = 0; k < GUESSES; k++) {
                assert_true(ids[k] < drawn.experts);
                for (uint32_t j = 0; j < k; j++)
                    assert_int_not_equal(ids[j], ids[k]);
                for (uint32_t j = 0; j < TOP_K; j++)
                    right += truth[j] == ids[k];
            }
        }
        double share = (double)right / (TOKENS * LAYERS * GUESSES);
        if (fabs(share - ACCURACIES[a]) > 0.02)
            fail_msg("%g were asked for, %g are right", ACCURACIES[a], share);
    }
    routes_free(&drawn);
    sluice_engine_close(engine);
}

/* A benchmark with replaced experts leaves nothing behind: answers before and after are the same bits. */
static void count_row(void *user, const sluice_bench_row *row)
{
    uint32_t *rows = user;
    ++*rows;
    assert_true(row->decode_tokens_per_second > 0 && row->prefill_tokens_per_second > 0);
    assert_true(row->memory_bytes_per_second > 0 && row->drive_bytes_per_second > 0);
    assert_true(row->decode_touched_bytes_per_token > 1e6 && row->decode_touched_bytes_per_token < 1e8);
    assert_true(row->prefill_used_bytes > 0);
    double sum = 0;
    for (int i = 0; i < SLUICE_PHASES; i++)
        sum += (double)row->profile.decode_ns[i];
    assert_true(sum > 0);
    assert_true(row->hit_rate >= 0 && row->hit_rate <= 1);
    assert_true((row->hit_rate < 1) == (row->decode_read_bytes_per_token > 0));
    assert_true(row->expert_slots == row->experts_per_layer || row->hit_rate < 1);
    assert_true(row->decode_drive_ratio >= 0 && row->decode_memory_ratio > 0);
    const bool all = row->expert_slots == row->experts_per_layer;
    assert_true((row->experts_bytes_per_second > 0) == all && (row->decode_reading_ratio > 0) == all);
}

static void test_bench(void **state)
{
    (void)state;
    static const uint32_t PROMPTS[] = {3, 9}, SLOTS[] = {4, SLUICE_SLOTS_ALL}, CHUNKS[] = {2, 8},
                          THREADS[] = {1, 2};
    sluice_bench_options o = {
        .prompt_tokens = PROMPTS,
        .expert_slots = SLOTS,
        .prefill_chunks = CHUNKS,
        .threads = THREADS,
        .n_prompt_tokens = 2,
        .n_expert_slots = 2,
        .n_prefill_chunks = 2,
        .n_threads = 2,
        .generated_tokens = 3,
        .repetitions = 2,
        .route_trace = "zipf:0.5",
        .profile = true,
    };
    uint32_t rows = 0;
    assert_ok(sluice_bench(demo.install, NULL, &o, count_row, &rows, err));
    assert_int_equal(rows, 16);
    o = (sluice_bench_options){.prompt_tokens = PROMPTS,
                               .n_prompt_tokens = 1,
                               .generated_tokens = 2,
                               .cold = true,
                               .profile = true,
                               .repetitions = 1};
    rows = 0;
    assert_ok(sluice_bench(demo.install, NULL, &o, count_row, &rows, err));
    assert_int_equal(rows, 1);
    o.generated_tokens = 5000;
    assert_fails(sluice_bench(demo.install, NULL, &o, count_row, &rows, err), SLUICE_E_ARGUMENT,
                 "do not fit");
    o.generated_tokens = 2;
    o.route_trace = "zipf:none";
    assert_fails(sluice_bench(demo.install, NULL, &o, count_row, &rows, err), SLUICE_E_ARGUMENT, "zipf:S");
    volatile int cancel = 1;
    o.route_trace = NULL;
    o.watch.cancel = &cancel;
    assert_fails(sluice_bench(demo.install, NULL, &o, count_row, &rows, err), SLUICE_E_CANCELLED,
                 "cancelled");
    assert_int_equal(rows, 1);
}

/* ---- phases ---- */

/* Every phase but the wait must have been entered; sampling belongs to decode. */
static void check_phases(sluice_session *s)
{
    sluice_profile profile;
    sluice_session_stats stats;
    sluice_session_profile_get(s, &profile);
    sluice_session_stats_get(s, &stats);
    double prefill = 0, decode = 0;
    for (int i = 0; i < SLUICE_PHASES; i++) {
        assert_non_null(profile.names[i]);
        prefill += (double)profile.prefill_ns[i];
        decode += (double)profile.decode_ns[i];
        bool waits = strcmp(profile.names[i], "read wait") == 0;
        assert_true(waits || profile.decode_ns[i] > 0);
    }
    assert_true(prefill > 0.98 * (double)stats.prefill_ns && prefill < 1.02 * (double)stats.prefill_ns);
    assert_true(decode > 0.98 * (double)stats.decode_ns && decode < 1.02 * (double)stats.decode_ns);
}

/* A round checks several tokens in one pass, which is decode too. */
static void test_phases_of_drafts(void **state)
{
    (void)state;
    sluice_engine *engine = engine_open(&(sluice_engine_options){.draft = SLUICE_DRAFT_LOOKUP});
    sluice_session *s = session_open(engine);
    sluice_session_stats stats;
    sluice_session_profile(s, true);
    answer(s);
    check_phases(s);
    sluice_session_stats_get(s, &stats);
    assert_true(stats.draft_rounds > 0);
    sluice_session_close(s);
    sluice_engine_close(engine);
}

static void test_phases_add_up(void **state)
{
    (void)state;
    sluice_engine *engine = engine_open(&(sluice_engine_options){.expert_slots = 6});
    sluice_session *s = session_open(engine);
    sluice_profile profile;
    sluice_session_profile(s, true);
    answer(s);
    check_phases(s);
    sluice_session_close(s);
    s = session_open(engine);
    answer(s);
    sluice_session_profile_get(s, &profile);
    for (int i = 0; i < SLUICE_PHASES; i++)
        assert_true(profile.prefill_ns[i] == 0 && profile.decode_ns[i] == 0);
    sluice_session_close(s);
    sluice_engine_close(engine);
}

/* ---- the cache simulator ---- */

/* One layer, one expert per token, so that the policies can be followed by hand. */
static struct routes by_hand(const uint16_t *ids, size_t n)
{
    struct routes r = {.layers = 1, .experts = 4, .top_k = 1, .tokens = n};
    r.token = calloc(n, sizeof *r.token);
    r.ids = calloc(n, sizeof *r.ids);
    assert_true(r.token && r.ids);
    for (size_t t = 0; t < n; t++)
        r.token[t].decode = true;
    memcpy(r.ids, ids, n * sizeof *ids);
    return r;
}

static void assert_hits(const struct routes *r, sluice_cache_policy policy, uint32_t slots, uint64_t hits)
{
    struct cachesim_count count;
    assert_ok(cachesim_run(r, policy, slots, &count, err));
    if (count.hits != hits || count.requests != r->tokens * r->layers)
        fail_msg("%s with %u slots: %llu hits of %llu, expected %llu", sluice_cache_policy_name(policy),
                 slots, (unsigned long long)count.hits, (unsigned long long)count.requests,
                 (unsigned long long)hits);
}

static void test_sim_by_hand(void **state)
{
    (void)state;
    /* 0 0 0 1 2 0 1 2 with two slots. LRU: 0m 0h 0h 1m 2m(evicts 0) 0m 1m 2m. LFU keeps 0: 0m 0h 0h 1m 2m 0h
     * 1m 2m. Belady: 2 evicts 1 or bypasses nothing: 0m 0h 0h 1m 2m(evicts 1, used later than 0) 0h 1m(evicts
     * 0) 2h. */
    static const uint16_t IDS[] = {0, 0, 0, 1, 2, 0, 1, 2};
    struct routes r = by_hand(IDS, 8);
    assert_hits(&r, SLUICE_CACHE_LRU, 2, 2);
    assert_hits(&r, SLUICE_CACHE_LFU, 2, 3);
    assert_hits(&r, SLUICE_CACHE_BELADY, 2, 4);
    assert_hits(&r, SLUICE_CACHE_POOL_LRU, 2, 2);
    assert_hits(&r, SLUICE_CACHE_LRU, 4, 5);
    assert_hits(&r, SLUICE_CACHE_BELADY, 4, 5);
    routes_free(&r);
}

/* What must hold for any trace: more slots or knowledge of the future never hurt where theory says so, and
 * every policy with all slots misses each expert once. */
static void test_sim_bounds(void **state)
{
    (void)state;
    static const char *const SPECS[] = {"zipf:1", "reuse:0.6", "reuse:0"};
    for (size_t i = 0; i < sizeof SPECS / sizeof *SPECS; i++) {
        struct routes r;
        assert_ok(routes_generate(SPECS[i], 3, 32, 4, 400, 5, &r, err));
        uint64_t before[2] = {0}, all = 0;
        for (uint32_t slots = 4; slots <= 32; slots *= 2) {
            struct cachesim_count best, pool_best, count;
            assert_ok(cachesim_run(&r, SLUICE_CACHE_BELADY, slots, &best, err));
            assert_ok(cachesim_run(&r, SLUICE_CACHE_POOL_BELADY, slots, &pool_best, err));
            assert_true(best.hits >= before[0]);
            before[0] = best.hits;
            for (int p = 0; p < SLUICE_CACHE_POLICIES; p++) {
                assert_ok(cachesim_run(&r, (sluice_cache_policy)p, slots, &count, err));
                bool pooled = strncmp(sluice_cache_policy_name((sluice_cache_policy)p), "pool", 4) == 0;
                assert_true(count.hits <= (pooled ? pool_best.hits : best.hits));
                if (slots == 32) {
                    all = all ? all : count.hits;
                    assert_int_equal(count.hits, all);
                }
            }
        }
        routes_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recording),      cmocka_unit_test(test_recording_refusals),
        cmocka_unit_test(test_parse_refusals), cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_replay),         cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_bench),          cmocka_unit_test(test_phases_of_drafts),
        cmocka_unit_test(test_phases_add_up),  cmocka_unit_test(test_sim_by_hand),
        cmocka_unit_test(test_sim_bounds),
    };
    return cmocka_run_group_tests(tests, demo_setup, demo_teardown);
}
