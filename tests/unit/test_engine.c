/* Engine and session on the demo: answers, errors, going back, cancelling, faults. */
#include "base/fault.h"
#include "base/mem.h"
#include "support/demo.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static sluice_engine *engine; /* shared by the tests that need no options of their own */

static sluice_session *open_session(void)
{
    sluice_session *s;
    sluice_error err = {0};
    if (sluice_session_open(engine, &s, &err) != SLUICE_OK)
        fail_msg("%s", err.detail);
    return s;
}

/* The chat prompt of one question; free with sluice_free. */
static int32_t *ask(const char *question, size_t *n)
{
    sluice_message message = {"user", question};
    int32_t *ids;
    sluice_error err = {0};
    if (sluice_chat_encode(sluice_engine_tokenizer(engine), &message, 1, true, &ids, n, NULL, &err) !=
        SLUICE_OK)
        fail_msg("%s", err.detail);
    return ids;
}

struct collected {
    char text[1024];
    size_t length, pieces;
    sluice_session *cancel_after_two; /* NULL: no */
};

static bool collect(void *user, const sluice_piece *piece)
{
    struct collected *c = user;
    assert_true(c->length + piece->text_bytes < sizeof c->text);
    memcpy(c->text + c->length, piece->text, piece->text_bytes);
    c->length += piece->text_bytes;
    c->text[c->length] = '\0';
    if (++c->pieces == 2 && c->cancel_after_two)
        sluice_session_cancel(c->cancel_after_two);
    return true;
}

static sluice_generated answer(sluice_session *s, const char *question,
                               const sluice_generate_options *options, struct collected *c)
{
    size_t n;
    int32_t *ids = ask(question, &n);
    sluice_generated result;
    sluice_error err = {0};
    if (sluice_session_sync(s, ids, n, NULL, &err) != SLUICE_OK ||
        sluice_generate(s, options, collect, c, &result, &err) != SLUICE_OK)
        fail_msg("%s", err.detail);
    sluice_free(ids);
    return result;
}

#define LIGHTHOUSE "noun: a tower with a light that gives warning of shoals to passing ships"

static void answers_from_the_dictionary(void **state)
{
    (void)state;
    sluice_session *s = open_session();
    struct collected c = {0};
    sluice_generate_options greedy = {.max_tokens = 64};
    sluice_generated r = answer(s, "What does lighthouse mean?", &greedy, &c);
    assert_string_equal(c.text, LIGHTHOUSE);
    assert_int_equal(r.finish, SLUICE_FINISH_STOP);
    assert_int_equal(r.stop_id, 106);
    sluice_session_stats stats;
    sluice_session_stats_get(s, &stats);
    assert_int_equal(stats.prefill_tokens, 18);
    assert_int_equal(stats.decode_tokens, 16);
    assert_int_equal(stats.decode_expert_requests, 16 * 8 * 4);
    sluice_session_close(s);
}

static void stop_strings_end_the_text_before_them(void **state)
{
    (void)state;
    sluice_session *s = open_session();
    const char *const stops[] = {"never", "with a light"};
    sluice_generate_options options = {.max_tokens = 64, .stops = stops, .n_stops = 2};
    struct collected c = {0};
    sluice_generated r = answer(s, "What does lighthouse mean?", &options, &c);
    assert_string_equal(c.text, "noun: a tower ");
    assert_int_equal(r.finish, SLUICE_FINISH_STOP);
    assert_int_equal(r.stop_string, 1);
    sluice_session_close(s);
}

static void max_tokens_is_length(void **state)
{
    (void)state;
    sluice_session *s = open_session();
    sluice_generate_options options = {.max_tokens = 3};
    struct collected c = {0};
    sluice_generated r = answer(s, "What does lighthouse mean?", &options, &c);
    assert_int_equal(r.finish, SLUICE_FINISH_LENGTH);
    assert_int_equal(r.tokens, 3);
    sluice_session_close(s);
}

static void a_second_turn_reuses_the_first(void **state)
{
    (void)state;
    sluice_session *s = open_session();
    sluice_generate_options greedy = {.max_tokens = 64};
    struct collected c = {0};
    (void)answer(s, "What does lighthouse mean?", &greedy, &c);
    const sluice_message turns[] = {{"user", "What does lighthouse mean?"},
                                    {"assistant", c.text},
                                    {"user", "What kind of thing is a violin?"}};
    int32_t *ids;
    size_t n, reused;
    assert_int_equal(
        sluice_chat_encode(sluice_engine_tokenizer(engine), turns, 3, true, &ids, &n, NULL, NULL), SLUICE_OK);
    assert_int_equal(sluice_session_sync(s, ids, n, &reused, NULL), SLUICE_OK);
    assert_int_equal(reused, 18 + 16);
    struct collected second = {0};
    sluice_generated r;
    assert_int_equal(sluice_generate(s, &greedy, collect, &second, &r, NULL), SLUICE_OK);
    assert_string_equal(second.text, "a violin is a kind of bowed stringed instrument");
    sluice_free(ids);
    sluice_session_close(s);
}

static void cancel_is_clean_and_the_session_goes_on(void **state)
{
    (void)state;
    sluice_session *s = open_session();
    sluice_generate_options greedy = {.max_tokens = 64};
    struct collected c = {.cancel_after_two = s};
    sluice_generated r = answer(s, "What does lighthouse mean?", &greedy, &c);
    assert_int_equal(r.finish, SLUICE_FINISH_CANCELLED);
    assert_true(c.pieces <= 3);
    sluice_error err;
    int32_t id = 2;
    assert_int_equal(sluice_session_prefill(s, &id, 1, &err), SLUICE_E_CANCELLED);
    sluice_session_uncancel(s);
    c = (struct collected){0};
    (void)answer(s, "What does lighthouse mean?", &greedy, &c);
    assert_string_equal(c.text, LIGHTHOUSE);
    sluice_session_close(s);
}

static void overflow_names_both_numbers(void **state)
{
    (void)state;
    sluice_engine *small;
    sluice_session *s;
    sluice_error err = {0};
    sluice_engine_options options = {.context_tokens = 20};
    assert_int_equal(sluice_engine_open(demo.install, &options, &small, &err), SLUICE_OK);
    assert_int_equal(sluice_session_open(small, &s, &err), SLUICE_OK);
    int32_t ids[32];
    for (int i = 0; i < 32; i++)
        ids[i] = 300 + i;
    assert_int_equal(sluice_session_prefill(s, ids, 12, &err), SLUICE_OK);
    assert_int_equal(sluice_session_prefill(s, ids, 9, &err), SLUICE_E_CONTEXT);
    assert_non_null(strstr(err.detail, "20 tokens"));
    assert_non_null(strstr(err.detail, "12 are in use"));
    size_t n;
    (void)sluice_session_tokens(s, &n);
    assert_int_equal(n, 12);
    assert_int_equal(sluice_session_sync(s, ids, 21, NULL, &err), SLUICE_E_CONTEXT);
    /* Generation stops at the context's end by itself. */
    sluice_generate_options all = {.ignore_stop_ids = true};
    sluice_generated r;
    ids[0] = 2;
    assert_int_equal(sluice_session_sync(s, ids, 12, NULL, &err), SLUICE_OK);
    assert_int_equal(sluice_generate(s, &all, NULL, NULL, &r, &err), SLUICE_OK);
    assert_int_equal(r.finish, SLUICE_FINISH_LENGTH);
    assert_int_equal(r.tokens, 9);
    sluice_session_close(s);
    sluice_engine_close(small);
}

static void going_back_is_refused_where_the_window_has_forgotten(void **state)
{
    (void)state;
    sluice_engine *e;
    sluice_session *s;
    sluice_error err = {0};
    sluice_engine_options options = {.context_tokens = 512, .prefill_chunk_tokens = 16};
    assert_int_equal(sluice_engine_open(demo.install, &options, &e, &err), SLUICE_OK);
    assert_int_equal(sluice_session_open(e, &s, &err), SLUICE_OK);
    int32_t ids[400];
    for (int i = 0; i < 400; i++)
        ids[i] = 300 + (i * 37) % 5000;
    assert_int_equal(sluice_session_prefill(s, ids, 400, &err), SLUICE_OK);
    assert_int_equal(sluice_session_rewind(s, 100, &err), SLUICE_E_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "sliding window"));
    assert_non_null(sluice_session_logits(s));
    assert_int_equal(sluice_session_rewind(s, 390, &err),
                     SLUICE_OK); /* the ring has 16 rows beyond the window */
    assert_null(sluice_session_logits(s));
    assert_int_equal(sluice_session_rewind(s, 0, &err), SLUICE_OK);
    assert_int_equal(sluice_session_rewind(s, 1, &err), SLUICE_E_ARGUMENT);
    /* sync falls back to the start when it cannot go back. */
    size_t reused;
    assert_int_equal(sluice_session_prefill(s, ids, 400, &err), SLUICE_OK);
    assert_int_equal(sluice_session_sync(s, ids, 200, &reused, &err), SLUICE_OK);
    assert_int_equal(reused, 0);
    sluice_session_close(s);
    sluice_engine_close(e);
}

static void bad_arguments_are_named(void **state)
{
    (void)state;
    sluice_session *s = open_session();
    sluice_error err;
    int32_t bad = 8192;
    assert_int_equal(sluice_session_prefill(s, &bad, 1, &err), SLUICE_E_ARGUMENT);
    assert_non_null(strstr(err.detail, "8192"));
    sluice_sampling greedy = {0};
    sluice_token_logprob choice;
    assert_int_equal(sluice_session_sample(s, &greedy, &choice, NULL, 0, &err), SLUICE_E_ARGUMENT);
    sluice_generate_options options = {.top_logprobs = 21};
    sluice_generated r;
    assert_int_equal(sluice_generate(s, &options, NULL, NULL, &r, &err), SLUICE_E_ARGUMENT);
    sluice_session_close(s);

    const struct {
        sluice_engine_options options;
        sluice_status status;
        const char *says;
    } ROWS[] = {
        {{.context_tokens = 5000}, SLUICE_E_ARGUMENT, "4096"},
        {{.prefill_chunk_tokens = 5000}, SLUICE_E_ARGUMENT, "4096"},
        {{.expert_slots = 1}, SLUICE_E_ARGUMENT, "from 2 to 64"},
        {{.expert_slots = 65}, SLUICE_E_ARGUMENT, "from 2 to 64"},
        {{.expert_slots = 8, .expert_cache_bytes = 1 << 20}, SLUICE_E_ARGUMENT, "exclude each other"},
        {{.expert_cache_bytes = 1000}, SLUICE_E_BUDGET, "at least 2"},
        {{.memory_bytes = 20 << 20}, SLUICE_E_BUDGET, "smallest budget"},
        {{.threads = 1000}, SLUICE_E_ARGUMENT, "1000 threads"},
        {{.read_threads = 1000}, SLUICE_E_ARGUMENT, "1000 reads in flight"},
        {{.max_sessions = 1000}, SLUICE_E_ARGUMENT, "1000 sessions"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_engine *e;
        sluice_status status = sluice_engine_open(demo.install, &ROWS[i].options, &e, &err);
        if (status != ROWS[i].status || !strstr(err.detail, ROWS[i].says))
            fail_msg("row %zu: status %d, \"%s\"", i, (int)status, err.detail);
        assert_null(e);
    }
}

static void the_smallest_budget_works_and_one_less_does_not(void **state)
{
    (void)state;
    sluice_plan plan;
    sluice_error err;
    sluice_engine_options options = {.memory_bytes = 1, .context_tokens = 256};
    assert_int_equal(sluice_plan_install(demo.install, &options, &plan, &err), SLUICE_E_BUDGET);
    assert_true(plan.minimum_bytes > 0);
    options.memory_bytes = plan.minimum_bytes - 1;
    assert_int_equal(sluice_plan_install(demo.install, &options, &plan, &err), SLUICE_E_BUDGET);
    options.memory_bytes = plan.minimum_bytes;
    assert_int_equal(sluice_plan_install(demo.install, &options, &plan, &err), SLUICE_OK);
    assert_int_equal(plan.expert_slots, 2);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan.n_items; i++)
        sum += plan.items[i].bytes;
    assert_int_equal(sum, plan.total_bytes);
    sluice_engine *e;
    assert_int_equal(sluice_engine_open(demo.install, &options, &e, &err), SLUICE_OK);
    sluice_session *first, *second;
    assert_int_equal(sluice_session_open(e, &first, &err), SLUICE_OK);
    assert_int_equal(sluice_session_open(e, &second, &err), SLUICE_E_BUDGET); /* planned for one */
    assert_null(second);
    sluice_session_close(first);
    sluice_engine_close(e);
}

static void a_snapshot_of_another_engine_is_refused(void **state)
{
    (void)state;
    sluice_engine *other;
    sluice_session *a = open_session(), *b;
    sluice_snapshot *snapshot;
    sluice_error err;
    assert_int_equal(sluice_engine_open(demo.install, NULL, &other, &err), SLUICE_OK);
    assert_int_equal(sluice_session_open(other, &b, &err), SLUICE_OK);
    assert_int_equal(sluice_session_snapshot(a, &snapshot, &err), SLUICE_OK);
    assert_int_equal(sluice_session_restore(b, snapshot, &err), SLUICE_E_ARGUMENT);
    sluice_snapshot_free(snapshot);
    sluice_session_close(b);
    sluice_engine_close(other);
    sluice_session_close(a);
}

/* ---- two sessions at once ---- */

struct talker {
    const char *question, *expected;
    bool right;
};

static void *talk(void *arg)
{
    struct talker *t = arg;
    struct collected c = {0};
    sluice_message message = {"user", t->question};
    sluice_session *s;
    int32_t *ids = NULL;
    size_t n;
    sluice_generated r;
    sluice_generate_options greedy = {.max_tokens = 64};
    if (sluice_session_open(engine, &s, NULL) != SLUICE_OK)
        return NULL;
    if (sluice_chat_encode(sluice_engine_tokenizer(engine), &message, 1, true, &ids, &n, NULL, NULL) ==
            SLUICE_OK &&
        sluice_session_prefill(s, ids, n, NULL) == SLUICE_OK &&
        sluice_generate(s, &greedy, collect, &c, &r, NULL) == SLUICE_OK)
        t->right = strcmp(c.text, t->expected) == 0;
    sluice_free(ids);
    sluice_session_close(s);
    return NULL;
}

static void sessions_share_an_engine(void **state)
{
    (void)state;
    struct talker talkers[] = {
        {"What does lighthouse mean?", LIGHTHOUSE, false},
        {"What kind of thing is a violin?", "a violin is a kind of bowed stringed instrument", false},
        {"What is another word for happy?", "felicitous, glad, well-chosen", false},
    };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &talkers[i]), 0);
    for (int i = 0; i < 3; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_true(talkers[i].right);
    }
}

/* ---- faults ---- */

/* Open, answer two tokens, close. */
static sluice_status whole_run(sluice_error *err)
{
    sluice_engine *e = NULL;
    sluice_session *s = NULL;
    int32_t *ids = NULL;
    size_t n;
    sluice_message message = {"user", "photosynthesis"};
    sluice_generate_options greedy = {.max_tokens = 2};
    sluice_generated r;
    sluice_engine_options options = {
        .expert_slots = 4, .context_tokens = 64, .threads = 1, .read_threads = 1};
    sluice_status status = sluice_engine_open(demo.install, &options, &e, err);
    if (status == SLUICE_OK)
        status = sluice_session_open(e, &s, err);
    if (status == SLUICE_OK)
        status = sluice_chat_encode(sluice_engine_tokenizer(e), &message, 1, true, &ids, &n, NULL, err);
    if (status == SLUICE_OK)
        status = sluice_session_prefill(s, ids, n, err);
    if (status == SLUICE_OK)
        status = sluice_generate(s, &greedy, NULL, NULL, &r, err);
    sluice_free(ids);
    sluice_session_close(s);
    sluice_engine_close(e);
    return status;
}

/* Fail the n-th operation for every n up to 60, then in growing steps until none is left to fail. (A run
 * makes tens of thousands of allocations, nearly all of them jansson's; those are also failed one by one in
 * the tokenizer's own test.) */
static void sweep(enum fault_kind kind, sluice_status expected)
{
    uint64_t step = 1, n = 1;
    for (;; n += step) {
        sluice_error err = {0};
        fault_arm(kind, n);
        sluice_status status = whole_run(&err);
        bool fired = fault_fired(kind);
        fault_arm(kind, 0);
        if (!fired) {
            assert_int_equal(status, SLUICE_OK);
            break;
        }
        if (status == SLUICE_OK || err.detail[0] == '\0')
            fail_msg("operation %llu failed unnoticed", (unsigned long long)n);
        if (status != expected)
            fail_msg("operation %llu: status %d, \"%s\"", (unsigned long long)n, (int)status, err.detail);
        if (n >= 60)
            step = 1 + n / 6;
    }
    assert_true(n > 20);
}

static void every_failed_allocation_is_told(void **state)
{
    (void)state;
    sweep(FAULT_ALLOC, SLUICE_E_MEMORY);
}

static void every_failed_read_is_told(void **state)
{
    (void)state;
    sweep(FAULT_READ, SLUICE_E_IO);
}

static int setup(void **state)
{
    sluice_error err = {0};
    sluice_engine_options options = {.expert_slots = 8, .max_sessions = 3};
    if (demo_setup(state) != 0)
        return -1;
    if (sluice_engine_open(demo.install, &options, &engine, &err) == SLUICE_OK)
        return 0;
    (void)fprintf(stderr, "%s\n", err.detail);
    return -1;
}

static int teardown(void **state)
{
    sluice_engine_close(engine);
    return demo_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_from_the_dictionary),
        cmocka_unit_test(stop_strings_end_the_text_before_them),
        cmocka_unit_test(max_tokens_is_length),
        cmocka_unit_test(a_second_turn_reuses_the_first),
        cmocka_unit_test(cancel_is_clean_and_the_session_goes_on),
        cmocka_unit_test(overflow_names_both_numbers),
        cmocka_unit_test(going_back_is_refused_where_the_window_has_forgotten),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(the_smallest_budget_works_and_one_less_does_not),
        cmocka_unit_test(a_snapshot_of_another_engine_is_refused),
        cmocka_unit_test(sessions_share_an_engine),
        cmocka_unit_test(every_failed_allocation_is_told),
        cmocka_unit_test(every_failed_read_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
