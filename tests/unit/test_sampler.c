/* Sampler: each step against a plain computation, draws against their distribution. */
#include "run/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 40 };

struct fixture {
    struct arena arena;
    struct sampler sampler;
    float logits[VOCAB];
};

static void open_fixture(struct fixture *f)
{
    assert_int_equal(arena_open(&f->arena, NULL, sampler_bytes(VOCAB), "test", NULL), SLUICE_OK);
    sampler_open(&f->sampler, VOCAB, &f->arena);
    for (int i = 0; i < VOCAB; i++)
        f->logits[i] = (float)((i * 17) % VOCAB) * 0.1f; /* a permutation of 0, 0.1, … 3.9 */
}

static int32_t draw_at(struct fixture *f, const sluice_sampling *p, size_t position)
{
    static const int32_t TOKENS[4096]; /* all of token 0; penalties are off unless a test sets them */
    sluice_token_logprob choice;
    sampler_draw(&f->sampler, f->logits, TOKENS, position, p, &choice, NULL, 0);
    return choice.id;
}

static void greedy_takes_the_largest_and_the_lower_index_on_ties(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    sluice_sampling p = {0};
    f.logits[7] = f.logits[30] = 50;
    assert_int_equal(draw_at(&f, &p, 0), 7);
    arena_close(&f.arena);
}

static void logprobs_are_of_the_models_own_distribution(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)f.logits[i]);
    sluice_logit_bias bias = {3, 100};
    sluice_sampling p = {.biases = &bias, .n_biases = 1};
    sluice_token_logprob choice, top[5];
    sampler_draw(&f.sampler, f.logits, NULL, 0, &p, &choice, top, 5);
    assert_int_equal(choice.id, 3); /* the bias decides */
    assert_true(fabs((double)choice.logprob - ((double)f.logits[3] - log(sum))) < 1e-5);
    for (int i = 0; i < 5; i++) {
        assert_true(fabs((double)f.logits[top[i].id] - (3.9 - 0.1 * i)) < 1e-5);
        assert_true(fabs((double)top[i].logprob - ((double)f.logits[top[i].id] - log(sum))) < 1e-5);
    }
    arena_close(&f.arena);
}

static void penalties_change_only_tokens_that_occurred(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    memset(f.logits, 0, sizeof f.logits);
    f.logits[5] = 4;
    f.logits[6] = 3;
    f.logits[7] = -1;
    const int32_t tokens[] = {5, 5, 7};
    sluice_token_logprob choice;
    sluice_sampling p = {.repetition_penalty = 2}; /* 5: 4 / 2 */
    sampler_draw(&f.sampler, f.logits, tokens, 3, &p, &choice, NULL, 0);
    assert_int_equal(choice.id, 6);
    assert_float_equal(f.sampler.candidates[5].logit, 2, 0);
    assert_float_equal(f.sampler.candidates[7].logit, -2, 0); /* negative: multiplied */
    assert_float_equal(f.sampler.candidates[6].logit, 3, 0);
    p = (sluice_sampling){.presence_penalty = 0.5f, .frequency_penalty = 0.25f};
    sampler_draw(&f.sampler, f.logits, tokens, 3, &p, &choice, NULL, 0);
    assert_float_equal(f.sampler.candidates[5].logit, 4 - 0.5f - 2 * 0.25f, 0);
    assert_float_equal(f.sampler.candidates[7].logit, -1 - 0.5f - 0.25f, 0);
    arena_close(&f.arena);
}

static void draws_depend_on_seed_and_position_alone(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    sluice_sampling p = {.temperature = 1, .seed = 42}, other = {.temperature = 1, .seed = 43};
    int differs = 0;
    for (size_t at = 0; at < 200; at++) {
        int32_t first = draw_at(&f, &p, at);
        assert_int_equal(draw_at(&f, &p, at), first);
        differs += draw_at(&f, &other, at) != first;
    }
    assert_true(differs > 100);
    arena_close(&f.arena);
}

/* Chi-squared of 4000 draws against the exact probabilities of the kept tokens. */
static void check_distribution(struct fixture *f, const sluice_sampling *p, const bool *kept)
{
    double weight[VOCAB], total = 0;
    int count[VOCAB] = {0}, n = 4000, classes = 0;
    for (int i = 0; i < VOCAB; i++) {
        weight[i] = kept[i] ? exp((double)f->logits[i] / (double)p->temperature) : 0;
        total += weight[i];
    }
    for (int at = 0; at < n; at++)
        count[draw_at(f, p, (size_t)at)]++;
    double chi = 0;
    for (int i = 0; i < VOCAB; i++) {
        double expected = n * weight[i] / total;
        if (!kept[i]) {
            assert_int_equal(count[i], 0);
            continue;
        }
        classes++;
        chi += (count[i] - expected) * (count[i] - expected) / expected;
    }
    /* mean classes - 1, standard deviation sqrt(2 (classes - 1)): five of them never happen by chance */
    assert_true(chi < classes + 5 * sqrt(2.0 * classes));
}

static void filters_keep_what_they_say(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f);
    bool all[VOCAB], best4[VOCAB], above[VOCAB], nucleus[VOCAB];
    double sum = 0, mass = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)f.logits[i]);
    for (int i = 0; i < VOCAB; i++) {
        all[i] = true;
        best4[i] = f.logits[i] > 3.55f;
        above[i] = exp((double)f.logits[i] - 3.9) >= 0.5;
    }
    /* The smallest set of best tokens whose probability reaches 0.4. */
    memset(nucleus, 0, sizeof nucleus);
    for (int rank = VOCAB - 1; rank >= 0 && mass < 0.4; rank--) {
        for (int i = 0; i < VOCAB; i++) {
            if (fabs((double)f.logits[i] - 0.1 * rank) < 0.01) {
                nucleus[i] = true;
                mass += exp((double)f.logits[i]) / sum;
            }
        }
    }
    check_distribution(&f, &(sluice_sampling){.temperature = 1, .seed = 1}, all);
    check_distribution(&f, &(sluice_sampling){.temperature = 0.5f, .seed = 2}, all);
    check_distribution(&f, &(sluice_sampling){.temperature = 1, .seed = 3, .top_k = 4}, best4);
    check_distribution(&f, &(sluice_sampling){.temperature = 2, .seed = 4, .min_p = 0.5f}, above);
    check_distribution(&f, &(sluice_sampling){.temperature = 1, .seed = 5, .top_p = 0.4f}, nucleus);
    /* top-p is of the whole distribution even when the temperature flattens the final draw. */
    check_distribution(&f, &(sluice_sampling){.temperature = 3, .seed = 6, .top_p = 0.4f}, nucleus);
    arena_close(&f.arena);
}

static void bad_values_are_named(void **state)
{
    (void)state;
    const struct {
        const char *name;
        sluice_sampling p;
    } ROWS[] = {
        {"temperature", {.temperature = -1}},
        {"temperature", {.temperature = NAN}},
        {"top_p", {.top_p = 1.5f}},
        {"min_p", {.min_p = -0.1f}},
        {"repetition_penalty", {.repetition_penalty = -2}},
        {"presence_penalty", {.presence_penalty = 1e9f}},
        {"frequency_penalty", {.frequency_penalty = -INFINITY}},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_error err;
        assert_int_equal(sluice_sampling_check(&ROWS[i].p, &err), SLUICE_E_ARGUMENT);
        assert_non_null(strstr(err.detail, ROWS[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_the_lower_index_on_ties),
        cmocka_unit_test(logprobs_are_of_the_models_own_distribution),
        cmocka_unit_test(penalties_change_only_tokens_that_occurred),
        cmocka_unit_test(draws_depend_on_seed_and_position_alone),
        cmocka_unit_test(filters_keep_what_they_say),
        cmocka_unit_test(bad_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
