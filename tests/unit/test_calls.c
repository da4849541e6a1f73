/* Answers taken apart: every dialect's streams at every split point, and forced calls read back. */
#include "base/fault.h"
#include "base/mem.h"
#include "call_streams.h"
#include "support/unit.h"
#include "text/calls.h"
#include "text/tokenizer.h"

struct log {
    struct str text;
    char last;
    bool open;
};

static sluice_status on_part(void *user, const struct part *part, sluice_error *err)
{
    static const char LETTERS[] = {[PART_CONTENT] = 'T',   [PART_REASONING] = 'R', [PART_CALL] = 'C',
                                   [PART_ARGUMENTS] = 'C', [PART_CALL_END] = 'C',  [PART_MALFORMED] = 'X'};
    struct log *log = user;
    char letter = LETTERS[part->kind];
    bool goes_on = log->open && log->last == letter && part->kind != PART_CALL;
    bool ok = goes_on || (!log->open || str_putc(&log->text, '|'));
    ok = ok && (goes_on ||
                str_printf(&log->text, "%c%s ", letter, letter == 'X' && part->call != CALL_NONE ? "!" : ""));
    ok = ok && (part->kind != PART_CALL || str_printf(&log->text, "%s ", part->name));
    ok = ok && str_append(&log->text, part->text, part->n);
    ok = ok && (part->kind != PART_CALL_END || str_putc(&log->text, '.'));
    log->open = true;
    log->last = letter;
    return ok ? SLUICE_OK : err_memory(err, part->n, "the log");
}

/* Feed pieces that end at the cuts. */
static sluice_status run(size_t row, const json_t *tools, const size_t *cuts, size_t n_cuts, struct log *log)
{
    struct calls calls;
    const char *text = CALL_STREAMS[row].text;
    size_t at = 0;
    sluice_status status = SLUICE_OK;
    calls_open(&calls, dialect_named(CALL_STREAMS[row].dialect), tools, CALL_STREAMS[row].reasoning, on_part,
               log);
    for (size_t i = 0; i <= n_cuts && status == SLUICE_OK; i++) {
        size_t end = i < n_cuts ? cuts[i] : strlen(text);
        status = calls_feed(&calls, text + at, end - at, NULL);
        at = end;
    }
    if (status == SLUICE_OK)
        status = calls_finish(&calls, false, NULL);
    if (status == SLUICE_OK && log->open)
        (void)str_putc(&log->text, '|');
    calls_close(&calls);
    return status;
}

static void check(size_t row, const json_t *tools, const size_t *cuts, size_t n_cuts)
{
    struct log log = {0};
    assert_int_equal(run(row, tools, cuts, n_cuts, &log), SLUICE_OK);
    if (!log.text.p || strcmp(log.text.p, CALL_STREAMS[row].events) != 0)
        fail_msg("stream %zu, %zu cuts (first %zu): [%s], not [%s]", row, n_cuts, n_cuts ? cuts[0] : 0,
                 log.text.p ? log.text.p : "", CALL_STREAMS[row].events);
    str_free(&log.text);
}

static json_t *tools_new(bool all)
{
    json_t *tools = NULL, *more = NULL;
    assert_int_equal(json_parse(CALL_TOOLS, sizeof CALL_TOOLS - 1, "tools", &tools, NULL), SLUICE_OK);
    assert_int_equal(json_parse(CALL_MORE_TOOLS, sizeof CALL_MORE_TOOLS - 1, "tools", &more, NULL),
                     SLUICE_OK);
    assert_int_equal(all ? json_array_extend(tools, more) : 0, 0);
    json_decref(more);
    return tools;
}

static void test_streams(void **state)
{
    (void)state;
    json_t *tools = tools_new(true);
    for (size_t row = 0; row < N_CALL_STREAMS; row++) {
        size_t n = strlen(CALL_STREAMS[row].text), *cuts = malloc(n * sizeof *cuts);
        assert_non_null(cuts);
        check(row, tools, NULL, 0);
        for (size_t i = 1; i < n; i++)
            check(row, tools, &i, 1);
        for (size_t step = 1; step < 5; step++) {
            size_t n_cuts = 0;
            for (size_t i = step; i < n; i += step)
                cuts[n_cuts++] = i;
            check(row, tools, cuts, n_cuts);
        }
        free(cuts);
    }
    json_decref(tools);
}

/* ---- token by token ---- */

static sluice_status feed_tokens(const struct tokenizer *tok, const struct call_stream *stream,
                                 struct calls *calls)
{
    struct ids ids = {0};
    struct tok_stream decoder;
    sluice_status status = tok_encode(tok, stream->text, strlen(stream->text), NULL, true, &ids, NULL);
    tok_stream_open(&decoder, tok, true);
    for (size_t i = 0; i < ids.n && status == SLUICE_OK; i++) {
        str_clear(&decoder.out);
        status = tok_stream_push(&decoder, ids.v[i], NULL);
        if (status == SLUICE_OK && decoder.out.len)
            status = calls_feed(calls, decoder.out.p, decoder.out.len, NULL);
    }
    str_clear(&decoder.out);
    if (status == SLUICE_OK)
        status = tok_stream_finish(&decoder, NULL);
    if (status == SLUICE_OK && decoder.out.len)
        status = calls_feed(calls, decoder.out.p, decoder.out.len, NULL);
    tok_stream_close(&decoder);
    mem_free(ids.v);
    return status;
}

static void check_tokens(const char *path)
{
    char *text = NULL;
    size_t n;
    struct tokenizer *tok = NULL;
    sluice_error err = {0};
    json_t *tools = tools_new(true);
    assert_ok(file_load(path, (size_t)64 << 20, &text, &n, &err), err);
    assert_ok(tok_open(text, n, NULL, 0, &tok, &err), err);
    for (size_t row = 0; row < N_CALL_STREAMS; row++) {
        const struct call_stream *stream = &CALL_STREAMS[row];
        struct log log = {0};
        struct calls calls;
        if (strchr(stream->text, '\xFF')) /* tokens are decoded to valid UTF-8 alone */
            continue;
        calls_open(&calls, dialect_named(stream->dialect), tools, stream->reasoning, on_part, &log);
        assert_int_equal(feed_tokens(tok, stream, &calls), SLUICE_OK);
        assert_int_equal(calls_finish(&calls, false, NULL), SLUICE_OK);
        (void)str_putc(&log.text, '|');
        if (strcmp(log.text.p, stream->events) != 0)
            fail_msg("%s, stream %zu: [%s], not [%s]", path, row, log.text.p, stream->events);
        calls_close(&calls);
        str_free(&log.text);
    }
    tok_close(tok);
    mem_free(text);
    json_decref(tools);
}

static void test_tokens(void **state)
{
    (void)state;
    check_tokens("tests/golden/tokenizer/qwen.json");
    check_tokens("tests/golden/tokenizer/deepseek.json");
    check_tokens("demo/dictionary-moe/tokenizer.json");
}

/* ---- what is certain is handed out ---- */

static void test_early(void **state)
{
    (void)state;
    static const struct {
        const char *dialect, *text, *events;
    } ROWS[] = {
        {"tagged", "<tool_call>{\"name\": \"get_weather\", ", "C get_weather "},
        {"tagged", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par",
         "C get_weather {\"city\":\"Par"},
        {"tagged", "<tool_call>{\"arguments\": {\"city\": \"Par", ""},
        {"tagged", "<tool_call>\n<function=get_weather>\n<parameter=city>\nLine 1\nLine \"2\"\n</par",
         "C get_weather {\"city\":\"Line 1\\nLine \\\"2\\\""},
        {"tagged", "<tool_call>\n<function=get_weather>\n<parameter=days>\n12", "C get_weather {\"days\":"},
        {"tagged", "<tool_call>get_weather\n<arg_key>city</arg_key><arg_value>Par",
         "C get_weather {\"city\":\"Par"},
        {"gemma4", "<|tool_call>call:get_weather{city:" QUOTE "Par", "C get_weather {\"city\":\"Par"},
        {"gemma4", "<|tool_call>call:get_weather{deep:{a:[1,2", "C get_weather {\"deep\":{\"a\":[1,"},
        {"deepseek",
         "<" DSML "tool_calls><" DSML "invoke name=\"get_weather\"><" DSML
         "parameter name=\"city\" string=\"true\">Par</" DSML,
         "C get_weather {\"city\":\"Par"},
        {"inkling", "<|content_invoke_tool_json|>{\"name\":\"get_weather\",\"args\":{\"city\":\"Par",
         "C get_weather {\"city\":\"Par"},
    };
    json_t *tools = tools_new(true);
    for (size_t row = 0; row < sizeof ROWS / sizeof *ROWS; row++) {
        struct log log = {0};
        struct calls calls;
        calls_open(&calls, dialect_named(ROWS[row].dialect), tools, false, on_part, &log);
        for (const char *at = ROWS[row].text; *at; at++)
            assert_int_equal(calls_feed(&calls, at, 1, NULL), SLUICE_OK);
        assert_string_equal(log.text.p ? log.text.p : "", ROWS[row].events);
        assert_int_equal(calls_finish(&calls, true, NULL), SLUICE_OK);
        assert_string_equal(log.text.p ? log.text.p : "", ROWS[row].events);
        assert_false(calls.malformed);
        assert_int_equal(calls.n_complete, 0);
        calls_close(&calls);
        str_free(&log.text);
    }
    json_decref(tools);
}

/* ---- limits ---- */

static void feed(struct calls *calls, const char *text)
{
    assert_int_equal(calls_feed(calls, text, strlen(text), NULL), SLUICE_OK);
}

/* A limit that cuts a call is no fault of the model's. */
static void test_cut(void **state)
{
    (void)state;
    json_t *tools = tools_new(true);
    struct log log = {0};
    struct calls calls;
    calls_open(&calls, dialect_named("tagged"), tools, false, on_part, &log);
    feed(&calls, "a<tool_call>{");
    assert_int_equal(calls_finish(&calls, true, NULL), SLUICE_OK);
    assert_string_equal(log.text.p, "T a");
    assert_false(calls.malformed);
    calls_close(&calls);
    str_free(&log.text);
    json_decref(tools);
}

/* A call that never ends is bounded in memory; all of it is there as raw text. */
static void test_too_long(void **state)
{
    (void)state;
    json_t *tools = tools_new(true);
    struct log log = {0};
    struct calls calls;
    size_t fed = 0;
    calls_open(&calls, dialect_named("tagged"), tools, false, on_part, &log);
    feed(&calls, "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":\"");
    for (; fed < 2 * CALL_BYTES_MAX; fed += 8)
        feed(&calls, "xxxxxxxx");
    assert_true(calls.malformed);
    assert_true(calls.body.cap <= 2 * CALL_BYTES_MAX);
    feed(&calls, "</tool_call> on");
    assert_int_equal(calls_finish(&calls, false, NULL), SLUICE_OK);
    const char *raw = strstr(log.text.p, "|X! {\"name\"");
    assert_non_null(raw);
    assert_int_equal(strspn(strrchr(raw, ':') + 2, "x"), fed);
    assert_string_equal(log.text.p + log.text.len - 5, "|T on");
    calls_close(&calls);
    str_free(&log.text);
    json_decref(tools);
}

/* One call more than the most is none. */
static void test_too_many(void **state)
{
    (void)state;
    json_t *tools = tools_new(true);
    struct log log = {0};
    struct calls calls;
    calls_open(&calls, dialect_named("tagged"), tools, false, on_part, &log);
    for (int i = 0; i <= CALLS_MAX; i++)
        feed(&calls, "<tool_call>now</tool_call>");
    assert_int_equal(calls_finish(&calls, false, NULL), SLUICE_OK);
    assert_int_equal(calls.n_complete, CALLS_MAX);
    assert_true(calls.malformed);
    assert_string_equal(log.text.p + log.text.len - 6, "|X now");
    calls_close(&calls);
    str_free(&log.text);
    json_decref(tools);
}

/* ---- forced calls ---- */

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* A random text of the grammar, byte by byte; marks are spelled. False: it did not end. */
static bool random_text(struct walker *w, const struct dialect *dialect, uint64_t seed, struct str *out)
{
    static const char *const ENDS[] = {
        "\n</parameter>\n", "</" DSML "parameter>\n", "</arg_value>\n", QUOTE, "\"", "}", "]", ",", "\": "};
    uint32_t at = walker_start(w);
    for (int step = 0; step < 4000; step++) {
        unsigned symbols[GRAMMAR_SYMBOLS], n = 0;
        if (walker_complete(w, at))
            return true;
        for (unsigned s = 0; s < GRAMMAR_SYMBOLS; s++) {
            uint32_t next;
            assert_int_equal(walker_symbol(w, at, s, &next, NULL), SLUICE_OK);
            if (next != WALKER_DEAD)
                symbols[n++] = s;
        }
        if (n == 0 || (walker_accepts(w, at) && next_random(&seed) % 2))
            return walker_accepts(w, at);
        unsigned pick = symbols[next_random(&seed) % n];
        /* Often what ends things; else numbers and texts would go on for ever. */
        const char *goal = ENDS[next_random(&seed) % (sizeof ENDS / sizeof *ENDS)];
        uint32_t beyond;
        assert_int_equal(walker_bytes(w, at, goal, strlen(goal), &beyond, NULL), SLUICE_OK);
        if (beyond != WALKER_DEAD) {
            assert_true(str_puts(out, goal));
            at = beyond;
            continue;
        }
        if (symbols[n - 1] >= 256 && next_random(&seed) % 2)
            pick = symbols[n - 1];
        assert_true(pick < 256 ? str_putc(out, (char)pick) : str_puts(out, dialect->marks[pick - 256]));
        assert_int_equal(walker_symbol(w, at, pick, &at, NULL), SLUICE_OK);
    }
    return false;
}

static void check_forced(const char *name, enum call_style style, bool marks, const char *only, bool many)
{
    json_t *tools = tools_new(false);
    const struct dialect *dialect = dialect_named(name);
    struct grammar_builder b;
    struct grammar *g = NULL;
    struct walker *w = NULL;
    sluice_error err = {0};
    bool is_mark[CALL_MARKS_MAX];
    size_t ended = 0;
    for (size_t i = 0; i < CALL_MARKS_MAX; i++)
        is_mark[i] = marks && dialect->marks[i];
    grammar_builder_open(&b, &err);
    uint32_t rule = calls_rule(&b, dialect, style, is_mark, tools, only, many);
    if (grammar_finish(&b, rule, "the tools", &g) != SLUICE_OK)
        fail_msg("%s: %s", name, err.detail);
    grammar_builder_close(&b);
    assert_int_equal(walker_open(g, NULL, NULL, 0, &w, NULL), SLUICE_OK);
    for (uint64_t seed = 1; seed <= scaled(60, 10); seed++) {
        struct log log = {0};
        struct calls calls;
        struct str text = {0};
        bool end = random_text(w, dialect, seed * 7919, &text);
        calls_open(&calls, dialect, tools, false, on_part, &log);
        assert_int_equal(calls_feed(&calls, text.p ? text.p : "", text.len, NULL), SLUICE_OK);
        assert_int_equal(calls_finish(&calls, !end, NULL), SLUICE_OK);
        if (calls.malformed || (end && calls.n_calls == 0) || (!many && calls.n_calls > 1))
            fail_msg("%s, style %d: [%s] gives [%s]", name, (int)style, text.p, log.text.p ? log.text.p : "");
        ended += end;
        calls_close(&calls);
        str_free(&text);
        str_free(&log.text);
    }
    assert_true(ended >= scaled(5, 1));
    walker_close(w);
    grammar_close(g);
    json_decref(tools);
}

static void test_forced(void **state)
{
    (void)state;
    for (int marks = 0; marks < 2; marks++) {
        check_forced("tagged", STYLE_JSON, marks, NULL, true);
        check_forced("tagged", STYLE_XML, marks, NULL, true);
        check_forced("tagged", STYLE_XML, marks, "get_weather", false);
        check_forced("tagged", STYLE_ARG_KEYS, marks, NULL, false);
        check_forced("gemma4", STYLE_JSON, marks, NULL, true);
        check_forced("deepseek", STYLE_JSON, marks, NULL, true);
        check_forced("inkling", STYLE_JSON, marks, "now", false);
    }
}

static void test_memory(void **state)
{
    (void)state;
    json_t *tools = tools_new(true);
    for (size_t row = 6; row < N_CALL_STREAMS; row += scaled(1, 4)) {
        for (uint64_t n = 1;; n++) {
            struct log log = {0};
            fault_arm(FAULT_ALLOC, n);
            sluice_status status = run(row, tools, NULL, 0, &log);
            bool fired = fault_fired(FAULT_ALLOC);
            fault_arm(FAULT_ALLOC, 0);
            str_free(&log.text);
            if (!fired)
                break;
            /* What is short of memory must not be taken for what is wrong. */
            if (status == SLUICE_OK && !strchr(CALL_STREAMS[row].events, 'X'))
                fail_msg("stream %zu, allocation %u: no failure", row, (unsigned)n);
            assert_true(n < 5000);
        }
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams), cmocka_unit_test(test_tokens),   cmocka_unit_test(test_early),
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_too_long), cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_forced),  cmocka_unit_test(test_memory),
    };
    mem_hook_json();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
