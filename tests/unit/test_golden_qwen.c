/* Qwen against Hugging Face transformers, in float32: the tiny checkpoints of tests/golden/qwen, with routed
 * experts (Qwen 3.6) and dense (Qwen 3.8), in MLX's layout and as published. Beside what every family's
 * goldens hold: recurrent states and convolution inputs, in one go and token by token, and the drafting
 * layer's guesses. */
#include "support/golden_model.h"

#include "run/session.h"

#define STATE_TOLERANCE 1e-4 /* of the range of a layer's state */

static const char *const NAMES36[] = {"bf16", "q4", "q8g32"}, *const NAMES38[] = {"dense", "mtp", "original"};
#define N36 (sizeof NAMES36 / sizeof *NAMES36)
#define N38 (sizeof NAMES38 / sizeof *NAMES38)

static const struct golden_family QWEN_36 = {"qwen36", "tests/golden/qwen36", NAMES36, N36},
                                  QWEN_38 = {"qwen38", "tests/golden/qwen38", NAMES38, N38};

struct test {
    const struct golden_family *family;
    const char *name;
};

static void test_tiny(void **state)
{
    const struct test *test = *state;
    compare_tiny(test->family, test->name);
}

static void test_every_golden_is_listed(void **state)
{
    (void)state;
    every_golden_is_listed(&QWEN_36);
    every_golden_is_listed(&QWEN_38);
}

/* ---- states ---- */

static void compare_floats(const struct golden *golden, const char *name, const float *ours, size_t n,
                           double *worst)
{
    struct golden_tensor reference = golden_get(golden, name, "F32");
    assert_int_equal(reference.shape[0] * reference.shape[1] * reference.shape[2], n);
    float low = f32_at(&reference, 0), high = low;
    for (size_t i = 1; i < n; i++) {
        low = f32_at(&reference, i) < low ? f32_at(&reference, i) : low;
        high = f32_at(&reference, i) > high ? f32_at(&reference, i) : high;
    }
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)ours[i] - f32_at(&reference, i)) / (high - low);
        raise_to(worst, off);
        if (!(off <= STATE_TOLERANCE))
            fail_msg("%s element %zu: %.7f, reference %.7f", name, i, (double)ours[i],
                     (double)f32_at(&reference, i));
    }
}

/* The first and the last DeltaNet layer's state, at the prompt's end or the continuation's. */
static void compare_states(const struct golden *golden, const sluice_session *session, const char *when,
                           double *worst)
{
    const struct recurrent *r = &session->recurrent;
    size_t layers = 0, seen = 0;
    for (uint32_t l = 0; l < r->n_layers; l++)
        layers += r->shapes[l].state_values > 0;
    assert_true(layers > 0);
    for (uint32_t l = 0; l < r->n_layers; l++) {
        const struct recurrent_shape *shape = &r->shapes[l];
        if (shape->state_values == 0)
            continue;
        char name[64];
        if (seen == 0 || seen == layers - 1) {
            (void)snprintf(name, sizeof name, "1.%s.state.%zu", when, seen);
            compare_floats(golden, name, r->views[l].state, shape->state_values, worst);
            (void)snprintf(name, sizeof name, "1.%s.tail.%zu", when, seen);
            compare_floats(golden, name, r->views[l].tail, (size_t)shape->tail_rows * shape->channels, worst);
        }
        seen++;
    }
}

/* The prompt in one chunk, in chunks of 5, and token by token; then its continuation token by token. */
static void test_states(void **state)
{
    const struct test *test = *state;
    static const uint32_t CHUNKS[] = {256, 5, 1};
    double worst = 0;
    for (size_t c = 0; c < sizeof CHUNKS / sizeof *CHUNKS; c++) {
        sluice_error err;
        sluice_engine_options options = EXACT;
        options.prefill_chunk_tokens = CHUNKS[c];
        temp_remove(g_temp); /* installs have the checkpoint's name */
        temp_make(g_temp);
        struct golden golden;
        sluice_engine *engine = golden_install(test->family, test->name, &options, &golden);
        sluice_session *session = session_open(engine);
        const json_t *prompt = json_array_get(json_object_get(golden.root, "prompts"), 1);
        size_t n, more;
        int32_t *ids = ids_of(json_object_get(prompt, "ids"), &n);
        int32_t *greedy = ids_of(json_object_get(prompt, "greedy"), &more);
        EXPECT_OK(sluice_session_prefill(session, ids, n, &err));
        compare_states(&golden, session, "prompt", &worst);
        assert_true(more >= 64);
        for (size_t i = 0; i < more; i++)
            EXPECT_OK(sluice_session_prefill(session, greedy + i, 1, &err));
        compare_states(&golden, session, "end", &worst);
        free(ids);
        free(greedy);
        sluice_session_close(session);
        sluice_engine_close(engine);
        golden_close(&golden);
    }
    print_message("%s: states within %.1e of their range\n", test->name, worst);
}

int main(void)
{
    enum { N = N36 + N38 };
    static struct test cases[N];
    struct CMUnitTest tests[2 * N + 1];
    for (size_t i = 0; i < N; i++) {
        cases[i] = i < N36 ? (struct test){&QWEN_36, NAMES36[i]} : (struct test){&QWEN_38, NAMES38[i - N36]};
        tests[2 * i] = (struct CMUnitTest){cases[i].name, test_tiny, NULL, NULL, &cases[i]};
        tests[2 * i + 1] = (struct CMUnitTest){"states", test_states, NULL, NULL, &cases[i]};
    }
    tests[2 * N] = (struct CMUnitTest)cmocka_unit_test(test_every_golden_is_listed);
    return cmocka_run_group_tests_name("golden qwen", tests, make_temp, remove_temp);
}
