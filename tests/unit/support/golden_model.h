/* Tiny checkpoints against goldens from outside, whatever their family: logits, routes, hidden states and
 * greedy continuations. tests/golden/README.md says what the goldens hold. */
#ifndef SUPPORT_GOLDEN_MODEL_H
#define SUPPORT_GOLDEN_MODEL_H

#include <dirent.h>
#include <math.h>

#include "golden.h"

#define LOGIT_TOLERANCE  1e-4 /* of the range of a row's reference logits */
#define WEIGHT_TOLERANCE 1e-5 /* of a router weight; mlx-lm comes within 4e-6 */
#define HIDDEN_TOLERANCE 1e-4 /* of the range of a row of hidden states */

/* Where installs and traces of this program go. */
static char g_temp[PATH_BYTES];

/* The checkpoints of a family: `dir` holds NAME/, NAME.json and NAME.bin. */
struct golden_family {
    const char *family, *dir;
    const char *const *names;
    size_t n_names;
};

/* The mode that outside references are compared in. One chunk holds any prompt, so a trace is one piece. */
static const sluice_engine_options EXACT = {
    .context_tokens = 512,
    .prefill_chunk_tokens = 256,
    .expert_slots = SLUICE_SLOTS_ALL,
    .threads = 2,
    .kv = SLUICE_KV_F32,
    .activations = SLUICE_ACTIVATIONS_F32,
};

/* Largest differences seen, in units of their tolerances' bases; printed so that a drift shows before it
 * fails. */
struct worst {
    double logit, weight, hidden;
};

static inline void raise_to(double *worst, double value)
{
    if (value > *worst || isnan(value))
        *worst = value;
}

/* ---- one prompt of a tiny checkpoint ---- */

struct prompt {
    const struct golden *golden;
    size_t index;
    const json_t *json;
    int32_t *ids;
    size_t n;
};

static inline struct golden_tensor prompt_tensor(const struct prompt *p, const char *what, const char *dtype)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%zu.%s", p->index, what);
    return golden_get(p->golden, name, dtype);
}

static inline void compare_logits(const struct prompt *p, const struct rows *rows, struct worst *worst)
{
    struct golden_tensor steps = prompt_tensor(p, "logits", "U16"), range = prompt_tensor(p, "range", "F32");
    const json_t *argmax = json_object_get(p->json, "argmax");
    assert_int_equal(steps.shape[0], p->n);
    assert_int_equal(steps.shape[1], rows->vocab);
    assert_int_equal(json_array_size(argmax), p->n);
    for (size_t i = 0; i < p->n; i++) {
        const float *row = row_at(rows, i);
        double low = f32_at(&range, 2 * i), span = f32_at(&range, 2 * i + 1) - low;
        for (uint32_t t = 0; t < rows->vocab; t++) {
            double reference = low + u16_at(&steps, i * rows->vocab + t) / 65535.0 * span;
            double off = fabs(row[t] - reference) / span;
            raise_to(&worst->logit, off);
            if (!(off <= LOGIT_TOLERANCE))
                fail_msg(
                    "prompt %zu position %zu token %u: logit %.6f, reference %.6f, off by %.2g of the range",
                    p->index, i, t, (double)row[t], reference, off);
        }
        int best = best_of(row, rows->vocab), reference = (int)json_integer_value(json_array_get(argmax, i));
        if (best != reference)
            fail_msg("prompt %zu position %zu: best token %d, reference %d", p->index, i, best, reference);
    }
}

/* Greedy continuation, one token appended at a time. */
static inline void compare_greedy(const struct prompt *p, sluice_session *session, uint32_t vocab)
{
    sluice_error err;
    const json_t *greedy = json_object_get(p->json, "greedy");
    assert_true(json_array_size(greedy) >= 64);
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        const float *logits = need((void *)sluice_session_logits(session));
        int32_t best = best_of(logits, vocab);
        int reference = (int)json_integer_value(json_array_get(greedy, i));
        if (best != reference)
            fail_msg("prompt %zu, step %zu of its continuation: token %d, reference %d", p->index, i, best,
                     reference);
        EXPECT_OK(sluice_session_prefill(session, &best, 1, &err));
    }
}

struct taken {
    int32_t ids[128];
    size_t n;
};

static inline bool take_piece(void *user, const sluice_piece *piece)
{
    struct taken *taken = user;
    if (piece->token.id >= 0 && taken->n < sizeof taken->ids / sizeof *taken->ids)
        taken->ids[taken->n++] = piece->token.id;
    return true;
}

/* The same continuation from sluice_generate, whose zeroed sampling is greedy. */
static inline void compare_generated(const struct prompt *p, sluice_engine *engine)
{
    sluice_error err;
    const json_t *greedy = json_object_get(p->json, "greedy");
    sluice_session *session = session_open(engine);
    EXPECT_OK(sluice_session_prefill(session, p->ids, p->n, &err));
    sluice_generate_options options = {.max_tokens = (uint32_t)json_array_size(greedy),
                                       .ignore_stop_ids = true};
    struct taken taken = {.n = 0};
    sluice_generated result;
    EXPECT_OK(sluice_generate(session, &options, take_piece, &taken, &result, &err));
    assert_int_equal(result.finish, SLUICE_FINISH_LENGTH);
    assert_int_equal(result.tokens, json_array_size(greedy));
    assert_int_equal(taken.n, json_array_size(greedy));
    for (size_t i = 0; i < taken.n; i++)
        assert_int_equal(taken.ids[i], json_integer_value(json_array_get(greedy, i)));
    sluice_session_close(session);
}

/* ---- traces ---- */

/* Record a trace of ids under `dir`/`name` and open it. */
static inline struct golden trace_open(sluice_engine *engine, const int32_t *ids, size_t n, const char *name)
{
    sluice_error err;
    char dir[PATH_BYTES], index[PATH_BYTES], data[PATH_BYTES], digest[SLUICE_DIGEST_TEXT_BYTES];
    path_join(dir, g_temp, name);
    EXPECT_OK(sluice_trace_record(engine, ids, n, dir, digest, &err));
    struct golden trace = golden_open(path_join(index, dir, "index.json"), path_join(data, dir, "data.bin"));
    assert_string_equal(json_string_value(json_object_get(trace.root, "digest")), digest);
    temp_remove(dir);
    return trace;
}

static inline struct golden_tensor layer_tensor(const struct golden *trace, size_t layer, const char *what,
                                                const char *dtype, size_t rows, size_t cols)
{
    char name[64];
    (void)snprintf(name, sizeof name, "layers.%zu.%s", layer, what);
    struct golden_tensor tensor = golden_get(trace, name, dtype);
    assert_int_equal(tensor.shape[0], rows);
    assert_int_equal(tensor.shape[1], cols);
    return tensor;
}

static inline void compare_hidden(const struct prompt *p, const struct golden *trace, size_t layer,
                                  struct worst *worst)
{
    struct golden_tensor reference = prompt_tensor(p, "hidden", "F32");
    size_t hidden = reference.shape[2];
    assert_int_equal(reference.shape[1], p->n);
    struct golden_tensor ours = layer_tensor(trace, layer, "out", "f32", p->n, hidden);
    for (size_t i = 0; i < p->n; i++) {
        size_t row = (layer * p->n + i) * hidden;
        float low = f32_at(&reference, row), high = low;
        for (size_t c = 1; c < hidden; c++) {
            float value = f32_at(&reference, row + c);
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        for (size_t c = 0; c < hidden; c++) {
            double off =
                fabs((double)f32_at(&ours, i * hidden + c) - f32_at(&reference, row + c)) / (high - low);
            raise_to(&worst->hidden, off);
            if (!(off <= HIDDEN_TOLERANCE))
                fail_msg("prompt %zu layer %zu position %zu column %zu: hidden state %.6f, reference %.6f",
                         p->index, layer, i, c, (double)f32_at(&ours, i * hidden + c),
                         (double)f32_at(&reference, row + c));
        }
    }
}

static inline void compare_routes(const struct prompt *p, const struct golden *trace, size_t layer,
                                  struct worst *worst)
{
    struct golden_tensor ids = prompt_tensor(p, "router.ids", "U8");
    struct golden_tensor weights = prompt_tensor(p, "router.weights", "F32");
    size_t k = ids.shape[2];
    assert_int_equal(ids.shape[1], p->n);
    struct golden_tensor our_ids = layer_tensor(trace, layer, "router.ids", "u16", p->n, k);
    struct golden_tensor our_weights = layer_tensor(trace, layer, "router.weights", "f32", p->n, k);
    for (size_t i = 0; i < p->n * k; i++) {
        size_t at = layer * p->n * k + i;
        if (u16_at(&our_ids, i) != u8_at(&ids, at))
            fail_msg("prompt %zu layer %zu position %zu: choice %zu is expert %u, reference %u", p->index,
                     layer, i / k, i % k, u16_at(&our_ids, i), u8_at(&ids, at));
        double off = fabs((double)f32_at(&our_weights, i) - f32_at(&weights, at));
        raise_to(&worst->weight, off);
        if (!(off <= WEIGHT_TOLERANCE))
            fail_msg("prompt %zu layer %zu position %zu: weight %zu is %.7f, reference %.7f", p->index, layer,
                     i / k, i % k, (double)f32_at(&our_weights, i), (double)f32_at(&weights, at));
    }
}

/* Layer by layer, so that the first message names the place where the two part. */
static inline void compare_trace(const struct prompt *p, sluice_engine *engine, struct worst *worst)
{
    struct golden trace = trace_open(engine, p->ids, p->n, "trace");
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    for (size_t layer = 0; layer < info.layers; layer++) {
        if (info.experts_per_layer)
            compare_routes(p, &trace, layer, worst);
        if (p->index == 0)
            compare_hidden(p, &trace, layer, worst);
    }
    golden_close(&trace);
}

/* ---- tiny checkpoints ---- */

static inline void check_info(const struct golden_family *family, const struct golden *golden,
                              const sluice_engine *engine)
{
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    assert_string_equal(info.family, family->family);
    assert_int_equal(info.vocab_tokens, json_integer_value(json_object_get(golden->root, "vocab")));
    assert_int_equal(info.layers, json_integer_value(json_object_get(golden->root, "layers")));
    assert_int_equal(info.experts_per_token, json_integer_value(json_object_get(golden->root, "top_k")));
}

static inline void compare_prompt(const struct golden *golden, size_t index, sluice_engine *engine,
                                  struct worst *worst)
{
    const json_t *prompts = json_object_get(golden->root, "prompts");
    struct prompt p = {.golden = golden, .index = index, .json = json_array_get(prompts, index)};
    p.ids = ids_of(json_object_get(p.json, "ids"), &p.n);
    compare_trace(&p, engine, worst);

    uint32_t vocab = vocab_of(engine);
    sluice_session *session = session_open(engine);
    struct rows rows = score_from(session, p.ids, p.n, 0, vocab);
    compare_logits(&p, &rows, worst);
    compare_greedy(&p, session, vocab);
    sluice_session_close(session);
    compare_generated(&p, engine);
    free(rows.v);
    free(p.ids);
}

/* Install a checkpoint under g_temp and open it and its golden. */
static inline sluice_engine *golden_install(const struct golden_family *family, const char *name,
                                            const sluice_engine_options *options, struct golden *golden)
{
    char source[PATH_BYTES], install[PATH_BYTES], json[PATH_BYTES], data[PATH_BYTES];
    (void)snprintf(json, sizeof json, "%s/%s.json", family->dir, name);
    (void)snprintf(data, sizeof data, "%s/%s.bin", family->dir, name);
    *golden = golden_open(json, data);
    install_into(path_join(source, family->dir, name), g_temp, name, install);
    sluice_engine *engine = engine_open(install, options);
    check_info(family, golden, engine);
    return engine;
}

static inline void compare_tiny(const struct golden_family *family, const char *name)
{
    struct golden golden;
    sluice_engine *engine = golden_install(family, name, &EXACT, &golden);
    struct worst worst = {0};
    size_t n = json_array_size(json_object_get(golden.root, "prompts"));
    assert_true(n >= 3);
    for (size_t i = 0; i < n; i++)
        compare_prompt(&golden, i, engine, &worst);
    print_message(
        "%s: logits within %.1e of the range, router weights %.1e, hidden states %.1e of the range\n", name,
        worst.logit, worst.weight, worst.hidden);
    sluice_engine_close(engine);
    golden_close(&golden);
}

/* A checkpoint that is added to the directory is added to the test's table too. */
static inline void every_golden_is_listed(const struct golden_family *family)
{
    DIR *dir = need(opendir(family->dir));
    size_t found = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        bool listed = false;
        for (size_t i = 0; i < family->n_names; i++)
            listed = listed || (strlen(family->names[i]) == length - 5 &&
                                strncmp(entry->d_name, family->names[i], length - 5) == 0);
        if (!listed)
            fail_msg("%s/%s is compared by no test", family->dir, entry->d_name);
        found++;
    }
    (void)closedir(dir);
    assert_int_equal(found, family->n_names);
}

static inline int make_temp(void **state)
{
    (void)state;
    temp_make(g_temp);
    return 0;
}

static inline int remove_temp(void **state)
{
    (void)state;
    temp_remove(g_temp);
    return 0;
}

#endif
