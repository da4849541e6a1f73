/* Answers taken apart: every dialect's streams at every split point, and forced calls read back. */
#include "base/fault.h"
#include "base/mem.h"
#include "support/unit.h"
#include "text/calls.h"

static const char TOOLS[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{"
                            "\"type\":\"object\",\"properties\":"
                            "{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"deep\":{"
                            "\"type\":\"object\",\"properties\":{\"a\":"
                            "{\"type\":\"array\",\"items\":{\"type\":\"number\"}}}},\"unit\":{\"type\":"
                            "\"string\",\"enum\":[\"C\",\"F\"]}},"
                            "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":"
                            "\"now\",\"parameters\":{\"type\":"
                            "\"object\",\"properties\":{}}}}]";

#define DSML                                                                                                 \
    "\xEF\xBD\x9C"                                                                                           \
    "DSML"                                                                                                   \
    "\xEF\xBD\x9C"
#define QUOTE "<|\"|>"

/* events: R reasoning, T text, C a call, X malformed; each ended by a line end. */
static const struct {
    const char *dialect;
    bool reasoning;
    const char *text, *events;
} STREAMS[] = {
    {"plain", false, "Hello <b>world</b>. ", "T Hello <b>world</b>. |"},
    {"plain", false, " x", "T  x|"},
    {"plain", false, "<think>\nhm\n</think>\n\nYes.\n", "R hm|T Yes.\n|"},
    {"plain", true, "hm <not>\n</think>\n\nYes <thin", "R hm <not>|T Yes <thin|"},
    {"plain", true, "never closed", "R never closed|"},
    {"plain", false, "<tool_call>x</tool_call>", "T <tool_call>x</tool_call>|"},
    {"tagged", true,
     "think\n</think>\n\nLet me see.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
     "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
     "R think|T Let me see.|C get_weather {\"city\":\"Paris\",\"days\":3}|"},
    {"tagged", false,
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a}<\"}}\n</tool_call>\n<tool_call>"
     "{\"name\":\"now\",\"arguments\":{}}</tool_call>\n",
     "C get_weather {\"city\":\"a}<\"}|C now {}|"},
    {"tagged", false,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n<arg_key>deep</arg_key>"
     "<arg_value>{\"a\": [1]}</arg_value></tool_call>",
     "C get_weather {\"city\":\"12\",\"deep\":{\"a\":[1]}}|"},
    {"tagged", true, "I call.<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>",
     "R I call.|C now {}|"},
    {"tagged", false,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\nline 1\n\nline 2 "
     "</par>\n</parameter>\n</function>\n"
     "</tool_call>",
     "C get_weather {\"city\":\"line 1\\n\\nline 2 </par>\"}|"},
    {"tagged", false, "a <tool_call>nonsense {</tool_call> b", "T a|X nonsense {|T b|"},
    {"tagged", false, "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>",
     "X {\"name\":\"unknown\",\"arguments\":{}}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":{\"a\":1,\"a\":2}}</tool_call>",
     "X {\"name\":\"now\",\"arguments\":{\"a\":1,\"a\":2}}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\",\"arguments\":[]}</tool_call>",
     "X {\"name\":\"now\",\"arguments\":[]}|"},
    {"tagged", false, "<tool_call>{\"name\":\"now\"", "X {\"name\":\"now\"|"},
    {"gemma4", false,
     "<|channel>thought\nhm hm\n<channel|>Sure.\n<|tool_call>call:get_weather{city:" QUOTE "Pa{ris}" QUOTE
     ",days:3,deep:{a:[1,2.5],b:true},unit:" QUOTE "C" QUOTE "}<tool_call|><|tool_response>",
     "R hm hm|T Sure.|C get_weather "
     "{\"city\":\"Pa{ris}\",\"days\":3,\"deep\":{\"a\":[1,2.5],\"b\":true},\"unit\":\"C\"}|"},
    {"gemma4", false, "<|channel>thought\n<channel|>Hi", "T Hi|"},
    {"gemma4", false, "<|channel>final\nHi<channel|>", "T Hi|"},
    {"gemma4", false, "<|tool_call>call:now{}<tool_call|><|tool_call>call:now{}<tool_call|>",
     "C now {}|C now {}|"},
    {"gemma4", false, "<|tool_call>call:now{x}<tool_call|>", "X call:now{x}|"},
    {"gemma4", false, "<|tool_call>call:now{a:1,a:2}<tool_call|>", "X call:now{a:1,a:2}|"},
    {"deepseek", true,
     "why</think>Text\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"get_weather\">\n<" DSML
     "parameter name=\"city\" string=\"true\">a\nb</" DSML "parameter>\n<" DSML
     "parameter name=\"days\" string=\"false\">4</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
     "invoke name=\"now\">\n</" DSML "invoke>\n</" DSML "tool_calls>",
     "R why|T Text|C get_weather {\"city\":\"a\\nb\",\"days\":4}|C now {}|"},
    {"deepseek", false, "<" DSML "tool_calls>\n<" DSML "invoke name=\"now\">\n</" DSML "tool_calls>",
     "X \n<" DSML "invoke name=\"now\">\n|"},
    {"inkling", false,
     "<|content_thinking|>deep<|end_message|><|message_model|><|content_text|>Well.<|end_message|>"
     "<|message_model|><|content_invoke_tool_json|>{\"name\":\"now\",\"args\":{}}<|end_message|>",
     "R deep|T Well.|C now {}|"},
};

struct log {
    struct str text;
    enum part_kind last;
    bool open;
};

static sluice_status on_part(void *user, const struct part *part, sluice_error *err)
{
    static const char LETTERS[] = {
        [PART_CONTENT] = 'T', [PART_REASONING] = 'R', [PART_CALL] = 'C', [PART_MALFORMED] = 'X'};
    struct log *log = user;
    bool goes_on = log->open && log->last == part->kind && part->kind <= PART_REASONING;
    bool ok = goes_on || (!log->open || str_putc(&log->text, '|'));
    ok = ok && (goes_on || str_printf(&log->text, "%c ", LETTERS[part->kind]));
    ok = ok && (part->kind != PART_CALL || str_printf(&log->text, "%s ", part->name));
    ok = ok && str_append(&log->text, part->text, part->n);
    log->open = true;
    log->last = part->kind;
    return ok ? SLUICE_OK : err_memory(err, part->n, "the log");
}

/* Feed pieces that end at the cuts. */
static sluice_status run(size_t row, const json_t *tools, const size_t *cuts, size_t n_cuts, struct log *log)
{
    struct calls calls;
    const char *text = STREAMS[row].text;
    size_t at = 0;
    sluice_status status = SLUICE_OK;
    calls_open(&calls, dialect_named(STREAMS[row].dialect), tools, STREAMS[row].reasoning, on_part, log);
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
    if (!log.text.p || strcmp(log.text.p, STREAMS[row].events) != 0)
        fail_msg("stream %zu, %zu cuts (first %zu): [%s], not [%s]", row, n_cuts, n_cuts ? cuts[0] : 0,
                 log.text.p ? log.text.p : "", STREAMS[row].events);
    str_free(&log.text);
}

static json_t *tools_new(void)
{
    json_t *tools = NULL;
    assert_int_equal(json_parse(TOOLS, sizeof TOOLS - 1, "tools", &tools, NULL), SLUICE_OK);
    return tools;
}

static void test_streams(void **state)
{
    (void)state;
    json_t *tools = tools_new();
    for (size_t row = 0; row < sizeof STREAMS / sizeof *STREAMS; row++) {
        size_t n = strlen(STREAMS[row].text), *cuts = malloc(n * sizeof *cuts);
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

/* A limit that cuts a call is no fault of the model's; a call that never ends is bounded. */
static void test_cut(void **state)
{
    (void)state;
    json_t *tools = tools_new();
    struct log log = {0};
    struct calls calls;
    calls_open(&calls, dialect_named("tagged"), tools, false, on_part, &log);
    assert_int_equal(calls_feed(&calls, "a<tool_call>{", 13, NULL), SLUICE_OK);
    assert_int_equal(calls_finish(&calls, true, NULL), SLUICE_OK);
    assert_string_equal(log.text.p, "T a");
    assert_false(calls.malformed);
    calls_close(&calls);
    calls_open(&calls, dialect_named("tagged"), tools, false, on_part, &log);
    assert_int_equal(calls_feed(&calls, "<tool_call>", 11, NULL), SLUICE_OK);
    for (int i = 0; i < CALL_BYTES_MAX / 8 + 2 && !calls.malformed; i++)
        assert_int_equal(calls_feed(&calls, "xxxxxxxx", 8, NULL), SLUICE_OK);
    assert_true(calls.malformed);
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
    json_t *tools = tools_new();
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
    json_t *tools = tools_new();
    for (size_t row = 6; row < sizeof STREAMS / sizeof *STREAMS; row += scaled(1, 4)) {
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
            if (status == SLUICE_OK && !strchr(STREAMS[row].events, 'X'))
                fail_msg("stream %zu, allocation %u: no failure", row, (unsigned)n);
            assert_true(n < 5000);
        }
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_memory),
    };
    mem_hook_json();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
