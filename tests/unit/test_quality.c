/* The quality gate of the default arithmetic (docs/design.md, section 8), on answers to held-out questions.
 */
#include "base/mem.h"
#include "support/demo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PROMPTS_MAX = 100 };

/* "question \t answer": the positions that write the answer and end the turn are compared. */
static sluice_prompt read_line(const sluice_tokenizer *tokenizer, char *line)
{
    char *tab = strchr(line, '\t');
    assert_non_null(tab);
    *tab = '\0';
    const sluice_message turns[] = {{"user", line}, {"assistant", tab + 1}};
    int32_t *before, *whole;
    size_t n_before, n_whole;
    assert_int_equal(sluice_chat_encode(tokenizer, turns, 1, true, &before, &n_before, NULL, NULL),
                     SLUICE_OK);
    assert_int_equal(sluice_chat_encode(tokenizer, turns, 2, false, &whole, &n_whole, NULL, NULL), SLUICE_OK);
    assert_true(n_whole > n_before && memcmp(before, whole, n_before * sizeof *before) == 0);
    sluice_free(before);
    /* The last two ids end the turn and its line; nothing is written after them. */
    return (sluice_prompt){.ids = whole, .n_ids = n_whole - 2, .first = n_before - 1};
}

static void the_default_arithmetic_passes_its_gate(void **state)
{
    (void)state;
    sluice_tokenizer *tokenizer;
    sluice_prompt prompts[PROMPTS_MAX];
    size_t n = 0, bytes;
    char *text, *place = NULL;
    sluice_error err = {0};
    assert_int_equal(sluice_tokenizer_open(demo.install, &tokenizer, &err), SLUICE_OK);
    assert_int_equal(file_load("tests/golden/demo/heldout.tsv", 1 << 20, &text, &bytes, &err), SLUICE_OK);
    /* A slow variant (an emulator, a sanitizer) takes every sixth. */
    int step = getenv("SLUICE_TEST_SHORT") ? 6 : 1, at = 0;
    for (char *line = strtok_r(text, "\n", &place); line && n < PROMPTS_MAX;
         line = strtok_r(NULL, "\n", &place))
        if (at++ % step == 0)
            prompts[n++] = read_line(tokenizer, line);
    assert_true(n >= 10);
    sluice_check_report report;
    if (sluice_check(demo.install, NULL, prompts, n, &report, &err) != SLUICE_OK)
        fail_msg("%s", err.detail);
    print_message("%zu answers, %llu positions: mean KL %.2e, most %.2e, top-1 agreement %.2f %%\n", n,
                  (unsigned long long)report.positions, report.mean_kl, report.max_kl,
                  100 * report.top1_agreement);
    assert_true(report.positions >= 5 * n);
    assert_true(report.mean_kl <= 1e-3);
    assert_true(report.mean_kl > 0); /* two arithmetics were compared */
    assert_true(report.top1_agreement >= 0.99);
    for (size_t i = 0; i < n; i++)
        sluice_free((void *)prompts[i].ids);
    mem_free(text);
    sluice_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_default_arithmetic_passes_its_gate)};
    return cmocka_run_group_tests(tests, demo_setup, demo_teardown);
}
