/* Gemma 4 against Hugging Face transformers, in float32: the tiny checkpoints of tests/golden/gemma4 and the
 * trained one of demo/dictionary-moe. tests/golden/README.md says what the goldens hold. */
#include "support/golden_model.h"

#define DEMO        "demo/dictionary-moe"
#define END_OF_TURN 106 /* <turn|> of the demo */

static const char *const NAMES[] = {"bf16", "g128", "onegroup", "plainkv", "q2", "q4", "q8g32"};
#define N_NAMES (sizeof NAMES / sizeof *NAMES)
static const struct golden_family FAMILY = {"gemma4", "tests/golden/gemma4", NAMES, N_NAMES};

/* ---- the demo ---- */

static double log_sum_exp(const float *row, uint32_t n)
{
    double top = row[best_of(row, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(row[i] - top);
    return top + log(sum);
}

/* The 20 largest logits of the last position, and that no other token belongs among them. */
static void compare_top(const json_t *top, const float *row, uint32_t vocab, size_t index, double *worst)
{
    assert_int_equal(json_array_size(top), 20);
    double least = INFINITY;
    bool *listed = need(calloc(vocab, sizeof *listed));
    for (size_t i = 0; i < 20; i++) {
        const json_t *pair = json_array_get(top, i);
        size_t id = (size_t)json_integer_value(json_array_get(pair, 0));
        double reference = json_number_value(json_array_get(pair, 1)), off;
        assert_true(id < vocab);
        listed[id] = true;
        off = fabs(row[id] - reference);
        raise_to(worst, off);
        if (!(off <= 1e-3))
            fail_msg("demo prompt %zu: last logit of token %zu is %.5f, reference %.5f", index, id,
                     (double)row[id], reference);
        least = reference < least ? reference : least;
    }
    for (uint32_t t = 0; t < vocab; t++)
        if (!listed[t] && !(row[t] <= least + 1e-3))
            fail_msg("demo prompt %zu: token %u with logit %.5f is not among the reference's top 20", index,
                     t, (double)row[t]);
    free(listed);
}

static void compare_positions(const json_t *prompt, const int32_t *ids, const struct rows *rows, size_t index,
                              double *worst)
{
    const json_t *argmax = json_object_get(prompt, "argmax"), *next = json_object_get(prompt, "next_logprob");
    assert_int_equal(json_array_size(argmax), rows->n);
    assert_int_equal(json_array_size(next), rows->n - 1);
    for (size_t i = 0; i < rows->n; i++) {
        const float *row = row_at(rows, i);
        int best = best_of(row, rows->vocab), reference = (int)json_integer_value(json_array_get(argmax, i));
        if (best != reference)
            fail_msg("demo prompt %zu position %zu: best token %d, reference %d", index, i, best, reference);
        if (i + 1 == rows->n)
            break;
        double logprob = row[ids[i + 1]] - log_sum_exp(row, rows->vocab);
        double off = fabs(logprob - json_number_value(json_array_get(next, i)));
        raise_to(worst, off);
        if (!(off <= 1e-3))
            fail_msg("demo prompt %zu position %zu: log-probability of the next token %.5f, reference %.5f",
                     index, i, logprob, json_number_value(json_array_get(next, i)));
    }
}

/* Up to the end of the turn: what follows is arbitrary and comes near ties. */
static void compare_answer(const json_t *prompt, sluice_session *session, uint32_t vocab, size_t index)
{
    sluice_error err;
    const json_t *greedy = json_object_get(prompt, "greedy");
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        int32_t best = best_of(need((void *)sluice_session_logits(session)), vocab);
        int reference = (int)json_integer_value(json_array_get(greedy, i));
        if (best != reference)
            fail_msg("demo prompt %zu, step %zu of its answer: token %d, reference %d", index, i, best,
                     reference);
        if (best == END_OF_TURN)
            return;
        EXPECT_OK(sluice_session_prefill(session, &best, 1, &err));
    }
}

static void compare_demo_routes(const json_t *layers, sluice_engine *engine, const int32_t *ids, size_t n,
                                double *worst)
{
    struct golden trace = trace_open(engine, ids, n, "trace-demo");
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    assert_int_equal(json_array_size(layers), info.layers);
    size_t k = info.experts_per_token;
    for (size_t layer = 0; layer < info.layers; layer++) {
        const json_t *experts = json_object_get(json_array_get(layers, layer), "experts");
        const json_t *weights = json_object_get(json_array_get(layers, layer), "weights");
        struct golden_tensor our_ids = layer_tensor(&trace, layer, "router.ids", "u16", n, k);
        struct golden_tensor our_weights = layer_tensor(&trace, layer, "router.weights", "f32", n, k);
        assert_int_equal(json_array_size(experts), n);
        for (size_t i = 0; i < n * k; i++) {
            unsigned reference =
                (unsigned)json_integer_value(json_array_get(json_array_get(experts, i / k), i % k));
            if (u16_at(&our_ids, i) != reference)
                fail_msg("demo layer %zu position %zu: choice %zu is expert %u, reference %u", layer, i / k,
                         i % k, u16_at(&our_ids, i), reference);
            double off = fabs(f32_at(&our_weights, i) -
                              json_number_value(json_array_get(json_array_get(weights, i / k), i % k)));
            raise_to(worst, off);
            assert_true(off <= 1e-4);
        }
    }
    golden_close(&trace);
}

static void test_demo(void **state)
{
    (void)state;
    char install[PATH_BYTES];
    json_t *reference = json_file_load(DEMO "/reference.json");
    install_into(DEMO, g_temp, "demo", install);
    sluice_engine_options options = EXACT;
    options.prefill_chunk_tokens = 0; /* the default, which the longest prompt exceeds */
    sluice_engine *engine = engine_open(install, &options);
    uint32_t vocab = vocab_of(engine);

    double worst = 0, worst_weight = 0;
    const json_t *prompts = json_object_get(reference, "prompts");
    assert_int_equal(json_array_size(prompts), 12);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *prompt = json_array_get(prompts, i);
        size_t n;
        int32_t *ids = ids_of(json_object_get(prompt, "ids"), &n);
        if (i == 0) {
            const json_t *router = json_object_get(reference, "router");
            assert_int_equal(json_integer_value(json_object_get(router, "prompt")), 0);
            compare_demo_routes(json_object_get(router, "layers"), engine, ids, n, &worst_weight);
        }
        sluice_session *session = session_open(engine);
        struct rows rows = score_from(session, ids, n, 0, vocab);
        compare_positions(prompt, ids, &rows, i, &worst);
        compare_top(json_object_get(prompt, "top20"), row_at(&rows, n - 1), vocab, i, &worst);
        compare_answer(prompt, session, vocab, i);
        sluice_session_close(session);
        free(rows.v);
        free(ids);
    }
    print_message("demo: logits and log-probabilities within %.1e, router weights %.1e\n", worst,
                  worst_weight);
    sluice_engine_close(engine);
    json_decref(reference);
}

static void test_tiny(void **state)
{
    compare_tiny(&FAMILY, *state);
}

static void test_every_golden_is_listed(void **state)
{
    (void)state;
    every_golden_is_listed(&FAMILY);
}

int main(void)
{
    struct CMUnitTest tests[N_NAMES + 2];
    for (size_t i = 0; i < N_NAMES; i++)
        tests[i] = (struct CMUnitTest){NAMES[i], test_tiny, NULL, NULL, (void *)NAMES[i]};
    tests[N_NAMES] = (struct CMUnitTest)cmocka_unit_test(test_every_golden_is_listed);
    tests[N_NAMES + 1] = (struct CMUnitTest)cmocka_unit_test(test_demo);
    return cmocka_run_group_tests_name("golden gemma4", tests, make_temp, remove_temp);
}
