/* Placement decides speed, never output: the same tokens give the same bytes of logits for every cache size,
 * eviction policy, chunk size, number of threads and readers, and whether a state was reached directly, by
 * going back, or from a snapshot. Bytes are compared, not values. */
#include <pthread.h>

#include "support/run.h"

#define DEMO            "demo/dictionary-moe"
#define DEMO_LONG       9   /* the prompt past the sliding window of 128 tokens */
#define DEMO_LONG_TAKEN 144 /* of its tokens: past the window and two blocks of 64 positions */
#define TINY            "tests/golden/gemma4/q4"
#define TINY_PROMPT     2 /* 139 tokens, window 16 */
#define TINY_TAKEN      48

struct input {
    int32_t *ids;
    size_t n;
};

/* The last three are of tiny checkpoints: Gemma's with its sliding window, and those with recurrent state. */
enum { SHORT, LONG, TINY_INPUT, QWEN36_INPUT, QWEN38_INPUT, N_INPUTS };

enum model { DEMO_MODEL, GEMMA_TINY, QWEN36_TINY, QWEN38_TINY, N_MODELS };

static const struct {
    const char *source;
    bool experts;
} MODELS[N_MODELS] = {
    {DEMO, true}, {TINY, true}, {"tests/golden/qwen36/q4", true}, {"tests/golden/qwen38/dense", false}};

static struct input g_inputs[N_INPUTS];
static char g_temp[PATH_BYTES], g_installs[N_MODELS][PATH_BYTES];

/* The arithmetic: what may change the bytes. */
struct mode {
    const char *name;
    sluice_activations activations;
    sluice_kv_type kv;
    unsigned every; /* run each n-th of the settings below; all of them in the default arithmetic */
};

static const struct mode MODES[] = {
    {"int8 activations, f16 kv", SLUICE_ACTIVATIONS_INT8, SLUICE_KV_F16, 1},
    {"f32 activations, f32 kv", SLUICE_ACTIVATIONS_F32, SLUICE_KV_F32, 3},
    {"int8 activations, bf16 kv", SLUICE_ACTIVATIONS_INT8, SLUICE_KV_BF16, 3},
    {"f32 activations, f16 kv", SLUICE_ACTIVATIONS_F32, SLUICE_KV_F16, 3},
};
#define N_MODES (sizeof MODES / sizeof *MODES)

/* Everything else: what may not. Slots for the demo (64 experts, 4 a token) and the tiny checkpoint (8, 2 a
 * token). Every pair of a slot count and a policy, every chunk size with either policy, every number of
 * threads with either engine, both engines with few reads in flight and with many, and with guesses and
 * without. The automatic engine is the ring, where there is one. */
struct setting {
    uint32_t demo_slots, tiny_slots;
    sluice_eviction eviction;
    uint32_t chunk, threads;
    sluice_io io;
    uint32_t read_threads, lookahead;
};

static const struct setting SETTINGS[] = {
    {2, 2, SLUICE_EVICT_LFU, 1, 1, SLUICE_IO_AUTO, 1, 0},
    {3, 3, SLUICE_EVICT_LRU, 32, 2, SLUICE_IO_THREADS, 8, 0},
    {8, 4, SLUICE_EVICT_LFU, 7, 4, SLUICE_IO_AUTO, 8, 2},
    {8, 4, SLUICE_EVICT_LRU, 256, 1, SLUICE_IO_THREADS, 8, 6},
    {16, 6, SLUICE_EVICT_LFU, 256, 2, SLUICE_IO_AUTO, 64, 0},
    {16, 6, SLUICE_EVICT_LRU, 1, 4, SLUICE_IO_THREADS, 1, 4},
    {SLUICE_SLOTS_ALL, SLUICE_SLOTS_ALL, SLUICE_EVICT_LFU, 32, 4, SLUICE_IO_THREADS, 1, 0},
    {SLUICE_SLOTS_ALL, SLUICE_SLOTS_ALL, SLUICE_EVICT_LRU, 7, 2, SLUICE_IO_AUTO, 8, 2},
};
#define N_SETTINGS (sizeof SETTINGS / sizeof *SETTINGS)

static enum model model_of(size_t input)
{
    static const enum model MODEL_OF[N_INPUTS] = {
        [TINY_INPUT] = GEMMA_TINY, [QWEN36_INPUT] = QWEN36_TINY, [QWEN38_INPUT] = QWEN38_TINY};
    return MODEL_OF[input];
}

static sluice_engine *open_with(const struct mode *mode, const struct setting *setting, enum model model)
{
    sluice_engine_options options = {
        .context_tokens = 512,
        .prefill_chunk_tokens = setting->chunk,
        .expert_slots = model == DEMO_MODEL ? setting->demo_slots : setting->tiny_slots,
        .threads = setting->threads,
        .io = setting->io,
        .read_threads = setting->read_threads,
        .lookahead_experts = MODELS[model].experts ? setting->lookahead : 0,
        .max_sessions = 2,
        .kv = mode->kv,
        .activations = mode->activations,
        .eviction = setting->eviction,
        .verification = SLUICE_VERIFY_RECEIPT,
    };
    return engine_open(g_installs[model], &options);
}

/* What all others are compared with: every expert resident, one thread, chunks of 64. */
static const struct setting PLAIN = {
    SLUICE_SLOTS_ALL, SLUICE_SLOTS_ALL, SLUICE_EVICT_LFU, 64, 1, SLUICE_IO_AUTO, 1, 0};

/* Computed on first use, kept until the end: rows of every mode and input. */
static struct rows g_baselines[N_MODES][N_INPUTS];

static const struct rows *baseline(const struct mode *mode, size_t input)
{
    struct rows *rows = &g_baselines[mode - MODES][input];
    if (!rows->v) {
        sluice_engine *engine = open_with(mode, &PLAIN, model_of(input));
        *rows = score_fresh(engine, g_inputs[input].ids, g_inputs[input].n);
        sluice_engine_close(engine);
    }
    return rows;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void expect_row(const float *row, const struct rows *reference, size_t position, const char *what)
{
    const float *expected = row_at(reference, position);
    if (!row) {
        fail_msg("%s: no logits at position %zu", what, position);
        return;
    }
    for (uint32_t t = 0; t < reference->vocab; t++)
        if (bits_of(row[t]) != bits_of(expected[t]))
            fail_msg("%s: position %zu token %u: logit %a, elsewhere %a", what, position, t, (double)row[t],
                     (double)expected[t]);
}

/* rows[i] equals reference[first + i]. */
static void expect_rows(const struct rows *rows, const struct rows *reference, size_t first, const char *what)
{
    assert_int_equal(rows->vocab, reference->vocab);
    assert_int_equal(rows->n + first, reference->n);
    for (size_t i = 0; i < rows->n; i++)
        expect_row(row_at(rows, i), reference, first + i, what);
}

static void expect_score(sluice_session *session, const struct input *in, size_t first,
                         const struct rows *reference, const char *what)
{
    struct rows rows = score_from(session, in->ids, in->n, first, reference->vocab);
    expect_rows(&rows, reference, first, what);
    free(rows.v);
}

static void append(sluice_session *session, const int32_t *ids, size_t n)
{
    sluice_error err;
    EXPECT_OK(sluice_session_prefill(session, ids, n, &err));
}

static void expect_tokens(const sluice_session *session, const int32_t *ids, size_t n)
{
    size_t count;
    const int32_t *tokens = sluice_session_tokens(session, &count);
    assert_int_equal(count, n);
    if (n > 0)
        assert_memory_equal(tokens, ids, n * sizeof *ids);
}

/* ---- settings ---- */

static uint64_t read_bytes(const sluice_session *session)
{
    sluice_session_stats stats;
    sluice_session_stats_get(session, &stats);
    return stats.decode_read_bytes + stats.prefill_read_bytes;
}

/* One run of a fresh session; returns what it read from disk. */
static uint64_t run_once(sluice_engine *engine, size_t input, const struct rows *reference, const char *what)
{
    sluice_session *session = session_open(engine);
    expect_score(session, &g_inputs[input], 0, reference, what);
    uint64_t bytes = read_bytes(session);
    sluice_session_close(session);
    return bytes;
}

static void compare_setting(const struct mode *mode, const struct setting *s, enum model model)
{
    uint32_t slots = model == DEMO_MODEL ? s->demo_slots : s->tiny_slots;
    sluice_engine *engine = open_with(mode, s, model);
    for (size_t i = 0; i < N_INPUTS; i++) {
        if (model_of(i) != model)
            continue;
        char what[200];
        (void)snprintf(what, sizeof what,
                       "%s, input %zu, %d slots, %s, chunk %u, %u threads, %s, %u reads, lookahead %u",
                       mode->name, i, (int)slots, s->eviction == SLUICE_EVICT_LFU ? "lfu" : "lru", s->chunk,
                       s->threads, s->io == SLUICE_IO_THREADS ? "reading threads" : "ring", s->read_threads,
                       s->lookahead);
        uint64_t cold = run_once(engine, i, baseline(mode, i), what);
        uint64_t warm = run_once(engine, i, baseline(mode, i), what);
        /* That the cache is as large as asked: all experts stay, or there are fewer slots than needed. */
        if (slots == SLUICE_SLOTS_ALL || !MODELS[model].experts) {
            assert_int_equal(warm, 0);
        } else {
            assert_true(cold > 0);
            assert_true(warm > 0 || i == SHORT);
        }
    }
    sluice_engine_close(engine);
}

static void test_settings(void **state)
{
    const struct mode *mode = *state;
    /* Sanitizers and emulators take a quarter of the matrix. */
    size_t step = mode->every * (getenv("SLUICE_TEST_SHORT") ? 4 : 1);
    for (size_t i = 0; i < N_SETTINGS; i += step) {
        for (int model = 0; model < N_MODELS; model++)
            compare_setting(mode, &SETTINGS[i], (enum model)model);
    }
}

/* Modes do change bytes, so an option that is ignored cannot pass for one that is obeyed. */
static void test_modes_differ(void **state)
{
    (void)state;
    for (size_t input = 0; input < N_INPUTS; input++)
        for (size_t i = 0; i < N_MODES; i++)
            for (size_t j = 0; j < i; j++) {
                const struct rows *a = baseline(&MODES[i], input), *b = baseline(&MODES[j], input);
                assert_int_equal(a->n, b->n);
                assert_memory_not_equal(a->v, b->v, a->n * a->vocab * sizeof(float));
            }
}

/* ---- one session, other paths to the same state ---- */

/* A small cache and chunks that divide nothing, so that a sliding window's ring wraps early. */
static const struct setting TIGHT = {8, 3, SLUICE_EVICT_LFU, 7, 2, SLUICE_IO_AUTO, 8, 0};

static struct input taken(size_t input)
{
    struct input in = g_inputs[input];
    if (model_of(input) != DEMO_MODEL)
        in.n = TINY_TAKEN;
    return in;
}

/* The first n rows. */
static struct rows head(const struct rows *rows, size_t n)
{
    struct rows part = *rows;
    part.n = n;
    return part;
}

/* Forty tokens that belong to no prompt: they fill the window of the tiny checkpoint twice. */
static void wander(sluice_session *session)
{
    int32_t ids[40];
    for (size_t i = 0; i < 40; i++)
        ids[i] = (int32_t)(20 + 5 * i);
    append(session, ids, 40);
}

static void snapshots_of(const struct mode *mode, size_t input)
{
    sluice_error err;
    struct input in = taken(input);
    struct rows reference = head(baseline(mode, input), in.n);
    sluice_engine *engine = open_with(mode, &TIGHT, model_of(input));
    sluice_session *session = session_open(engine), *other = session_open(engine);
    for (size_t p = 1; p < in.n; p++) {
        sluice_snapshot *snapshot = NULL;
        EXPECT_OK(sluice_session_rewind(session, 0, &err));
        append(session, in.ids, p);
        EXPECT_OK(sluice_session_snapshot(session, &snapshot, &err));
        expect_row(sluice_session_logits(session), &reference, p - 1, "after taking a snapshot");
        expect_score(session, &in, p, &reference, "going on after a snapshot");

        EXPECT_OK(sluice_session_rewind(session, 0, &err));
        wander(session);
        EXPECT_OK(sluice_session_restore(session, snapshot, &err));
        expect_tokens(session, in.ids, p);
        expect_row(sluice_session_logits(session), &reference, p - 1, "restored");
        expect_score(session, &in, p, &reference, "going on from a snapshot");

        EXPECT_OK(sluice_session_restore(other, snapshot, &err));
        expect_tokens(other, in.ids, p);
        expect_score(other, &in, p, &reference, "going on from another session's snapshot");
        sluice_snapshot_free(snapshot);
    }
    sluice_session_close(other);
    sluice_session_close(session);
    sluice_engine_close(engine);
}

static void test_snapshots(void **state)
{
    const struct mode *mode = *state;
    snapshots_of(mode, SHORT);
    snapshots_of(mode, TINY_INPUT);
    snapshots_of(mode, QWEN36_INPUT);
    snapshots_of(mode, QWEN38_INPUT);
}

/* Back to p and on again; returns false when the window has forgotten what p needs, with nothing changed. */
static bool rewind_and_score(sluice_session *session, const struct input *in, size_t p,
                             const struct rows *reference)
{
    sluice_error err;
    sluice_status status = sluice_session_rewind(session, p, &err);
    if (status == SLUICE_E_UNSUPPORTED) {
        assert_true(strlen(err.detail) > 0);
        expect_tokens(session, in->ids, in->n);
        expect_row(sluice_session_logits(session), reference, in->n - 1, "after a refused rewind");
        return false;
    }
    EXPECT_OK(status);
    expect_tokens(session, in->ids, p);
    assert_null(sluice_session_logits(session));
    expect_score(session, in, p, reference, "after a rewind");
    return true;
}

static void rewind_everywhere(const struct mode *mode, size_t input)
{
    struct input in = taken(input);
    struct rows rows = head(baseline(mode, input), in.n), *reference = &rows;
    sluice_engine *engine = open_with(mode, &TIGHT, model_of(input));
    sluice_session *session = session_open(engine);
    append(session, in.ids, in.n);
    for (size_t p = in.n; p-- > 0;)
        assert_true(rewind_and_score(session, &in, p, reference));
    sluice_session_close(session);
    sluice_engine_close(engine);
}

/* The window of 128 forgets nothing of 18 tokens; recurrent state is computed again from a checkpoint or from
 * nothing. */
static void test_rewind(void **state)
{
    const struct mode *mode = *state;
    rewind_everywhere(mode, SHORT);
    rewind_everywhere(mode, QWEN36_INPUT);
    rewind_everywhere(mode, QWEN38_INPUT);
}

/* A window of 16 in 48 tokens: the last step can be taken back, the early ones are gone, 0 always works. */
static void test_rewind_past_window(void **state)
{
    const struct mode *mode = *state;
    struct input in = taken(TINY_INPUT);
    struct rows reference = head(baseline(mode, TINY_INPUT), in.n);
    sluice_engine *engine = open_with(mode, &TIGHT, GEMMA_TINY);
    sluice_session *session = session_open(engine);
    append(session, in.ids, in.n);
    for (size_t p = in.n - 1; p > 0; p--) {
        bool possible = rewind_and_score(session, &in, p, &reference);
        assert_true(possible || p < in.n - 1);
        assert_false(possible && p == 1);
    }
    assert_true(rewind_and_score(session, &in, 0, &reference));
    sluice_session_close(session);
    sluice_engine_close(engine);
}

/* Token by token through the interface, and chunk by chunk within it. */
static void test_one_token_at_a_time(void **state)
{
    const struct mode *mode = *state;
    for (size_t input = 0; input < N_INPUTS; input++) {
        struct input in = taken(input);
        const struct rows *all = baseline(mode, input);
        sluice_engine *engine = open_with(mode, &TIGHT, model_of(input));
        sluice_session *session = session_open(engine);
        assert_null(sluice_session_logits(session));
        for (size_t i = 0; i < in.n; i++) {
            append(session, in.ids + i, 1);
            expect_row(sluice_session_logits(session), all, i, "one token at a time");
        }
        sluice_session_close(session);
        sluice_engine_close(engine);
    }
}

/* Turn a timeline into another that shares its beginning. */
static void test_sync(void **state)
{
    const struct mode *mode = *state;
    sluice_error err;
    enum { SHARED = 11 };
    struct input in = taken(SHORT);
    int32_t other[SHARED + 6];
    memcpy(other, in.ids, SHARED * sizeof *other);
    for (size_t i = SHARED; i < SHARED + 6; i++)
        other[i] = (int32_t)(600 + i);
    assert_int_not_equal(other[SHARED], in.ids[SHARED]);

    sluice_engine *engine = open_with(mode, &TIGHT, DEMO_MODEL);
    struct rows reference = score_fresh(engine, other, SHARED + 6);
    sluice_session *session = session_open(engine);
    append(session, in.ids, in.n);
    size_t reused = SIZE_MAX;
    EXPECT_OK(sluice_session_sync(session, other, SHARED + 6, &reused, &err));
    assert_int_equal(reused, SHARED);
    expect_tokens(session, other, SHARED + 6);
    expect_row(sluice_session_logits(session), &reference, SHARED + 5, "after a sync");
    /* All of it is there, and at most the last token is computed again. */
    EXPECT_OK(sluice_session_sync(session, other, SHARED + 6, &reused, &err));
    assert_true(reused >= SHARED + 5);
    expect_tokens(session, other, SHARED + 6);
    expect_row(sluice_session_logits(session), &reference, SHARED + 5, "after a second sync");
    /* Nothing but its beginning: the logits of its last token are gone and have to be made again. */
    EXPECT_OK(sluice_session_sync(session, other, SHARED, &reused, &err));
    assert_int_equal(reused, SHARED - 1);
    expect_tokens(session, other, SHARED);
    expect_row(sluice_session_logits(session), &reference, SHARED - 1, "after a sync to the beginning");
    sluice_session_close(session);
    sluice_engine_close(engine);
    free(reference.v);
}

/* ---- two sessions, one cache ---- */

static void test_interleaved(void **state)
{
    const struct mode *mode = *state;
    const struct input *a = &g_inputs[SHORT], *b = &g_inputs[LONG];
    const struct rows *rows_a = baseline(mode, SHORT), *rows_b = baseline(mode, LONG);
    sluice_engine *engine = open_with(mode, &TIGHT, DEMO_MODEL);
    sluice_session *one = session_open(engine), *two = session_open(engine);
    for (size_t i = 0; i < a->n; i++) {
        append(one, a->ids + i, 1);
        append(two, b->ids + 3 * i, 3);
        expect_row(sluice_session_logits(one), rows_a, i, "interleaved, first session");
        expect_row(sluice_session_logits(two), rows_b, 3 * i + 2, "interleaved, second session");
    }
    sluice_session_close(two);
    sluice_session_close(one);
    sluice_engine_close(engine);
}

struct worker {
    sluice_session *session;
    const struct input *in;
    struct rows rows;
    sluice_status status;
    sluice_error err;
};

/* No assertions: they would leave the thread. */
static void *work(void *argument)
{
    struct worker *w = argument;
    w->status = sluice_session_score(w->session, w->in->ids, w->in->n, rows_keep, &w->rows, &w->err);
    return NULL;
}

/* Two threads compete for four slots, as many as one token needs. */
static void test_concurrent(void **state)
{
    const struct mode *mode = *state;
    const struct rows *references[2] = {baseline(mode, SHORT), baseline(mode, LONG)};
    const struct setting few = {4, 2, SLUICE_EVICT_LRU, 7, 2, SLUICE_IO_AUTO, 8, 0};
    sluice_engine *engine = open_with(mode, &few, DEMO_MODEL);
    struct worker workers[2];
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        workers[i] = (struct worker){.session = session_open(engine), .in = &g_inputs[i == 0 ? SHORT : LONG]};
        workers[i].rows = rows_make(workers[i].in->n, references[i]->vocab);
    }
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        if (workers[i].status != SLUICE_OK)
            fail_msg("concurrent session %zu: %s", i, workers[i].err.detail);
        assert_int_equal(workers[i].rows.got, workers[i].rows.n);
        assert_true(workers[i].rows.in_order);
        expect_rows(&workers[i].rows, references[i], 0, "concurrent");
        free(workers[i].rows.v);
        sluice_session_close(workers[i].session);
    }
    sluice_engine_close(engine);
}

/* ---- fixture ---- */

static struct input prompt_from(const char *path, size_t index, size_t limit)
{
    json_t *root = json_file_load(path);
    const json_t *prompt = json_array_get(json_object_get(root, "prompts"), index);
    struct input in;
    in.ids = ids_of(json_object_get(prompt, "ids"), &in.n);
    if (limit > 0) {
        assert_true(in.n >= limit);
        in.n = limit;
    }
    json_decref(root);
    return in;
}

/* A full verification writes the receipts that the engines here open with. */
static int make_installs(void **state)
{
    (void)state;
    sluice_error err;
    temp_make(g_temp);
    for (int model = 0; model < N_MODELS; model++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%d.gturbo", model);
        install_into(MODELS[model].source, g_temp, name, g_installs[model]);
        EXPECT_OK(sluice_verify(g_installs[model], NULL, NULL, &err));
    }
    g_inputs[SHORT] = prompt_from(DEMO "/reference.json", 0, 0);
    g_inputs[LONG] = prompt_from(DEMO "/reference.json", DEMO_LONG, DEMO_LONG_TAKEN);
    g_inputs[TINY_INPUT] = prompt_from(TINY ".json", TINY_PROMPT, 0);
    g_inputs[QWEN36_INPUT] = prompt_from("tests/golden/qwen36/q4.json", TINY_PROMPT, 0);
    g_inputs[QWEN38_INPUT] = prompt_from("tests/golden/qwen38/dense.json", TINY_PROMPT, 0);
    return 0;
}

static int remove_installs(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_INPUTS; i++) {
        free(g_inputs[i].ids);
        for (size_t mode = 0; mode < N_MODES; mode++)
            free(g_baselines[mode][i].v);
    }
    temp_remove(g_temp);
    return 0;
}

#define WITH(function, mode)                                                                                 \
    {                                                                                                        \
#function ", " #mode, function, NULL, NULL, (void *)&MODES[mode]                                     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(test_settings, 0),
        WITH(test_settings, 1),
        WITH(test_settings, 2),
        WITH(test_settings, 3),
        cmocka_unit_test(test_modes_differ),
        WITH(test_snapshots, 0),
        WITH(test_snapshots, 1),
        WITH(test_rewind, 0),
        WITH(test_rewind, 1),
        WITH(test_rewind_past_window, 0),
        WITH(test_rewind_past_window, 1),
        WITH(test_one_token_at_a_time, 0),
        WITH(test_one_token_at_a_time, 1),
        WITH(test_sync, 0),
        WITH(test_interleaved, 0),
        WITH(test_concurrent, 0),
        WITH(test_concurrent, 1),
    };
    return cmocka_run_group_tests_name("equality", tests, make_installs, remove_installs);
}
