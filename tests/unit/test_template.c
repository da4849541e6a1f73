/* Chat templates: jinja2's renderings, who wrote which byte, what is refused, limits. */
#include "base/fault.h"
#include "base/mem.h"
#include "text/template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1764421200 /* the moment at which make_goldens.py renders */

static sluice_status render(const char *source, size_t bytes, const json_t *variables, struct str *text,
                            struct str *marks, sluice_error *err)
{
    static const char *const TRUSTED[] = {"bos_token", NULL};
    struct template *t = NULL;
    sluice_status status = template_open(source, bytes, &t, err);
    if (status == SLUICE_OK)
        status = template_render(t, &(struct template_input){variables, TRUSTED, NOW}, text, marks, err);
    template_close(t);
    return status;
}

static void test_goldens(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/golden/template/cases.json", 0, NULL), *row;
    json_t *cases = json_object_get(root, "cases"), *data = json_object_get(root, "DATA");
    size_t i;
    assert_true(json_array_size(cases) > 100);
    json_array_foreach(cases, i, row)
    {
        const json_t *source = json_object_get(row, "template"), *want = json_object_get(row, "text");
        json_t *variables = json_object_get(row, "variables");
        struct str text = {0}, marks = {0};
        sluice_error err = {0};
        sluice_status status = render(json_string_value(source), json_string_length(source),
                                      json_is_string(variables) ? data : variables, &text, &marks, &err);
        if (want && status != SLUICE_OK)
            fail_msg("%s: %s", json_string_value(source), err.detail);
        if (want && (text.len != json_string_length(want) || !text.p ||
                     memcmp(text.p, json_string_value(want), text.len) != 0))
            fail_msg("%s: [%s], not [%s]", json_string_value(source), text.p, json_string_value(want));
        if (!want && status == SLUICE_OK)
            fail_msg("%s: renders [%s], must fail", json_string_value(source), text.p);
        if (!want)
            assert_ptr_equal(strstr(err.detail, "chat_template.jinja line "), err.detail);
        assert_int_equal(marks.len, text.len);
        str_free(&text);
        str_free(&marks);
    }
    json_decref(root);
}

/* Expected marks: one character per byte, 'T' the template's own and '.' a message's. */
static void check_marks(const char *source, const char *want_text, const char *want_marks)
{
    json_t *variables =
        json_pack("{s:s, s:[{s:s, s:s}], s:{s:i, s:[s]}, s:s}", "bos_token", "<b>", "messages", "role",
                  "user", "content", " U<x>é ", "tool", "n", 7, "list", "v", "eos_token", "<e>");
    struct str text = {0}, marks = {0};
    sluice_error err = {0};
    sluice_status status = render(source, strlen(source), variables, &text, &marks, &err);
    if (status != SLUICE_OK)
        fail_msg("%s: %s", source, err.detail);
    assert_string_equal(text.p, want_text);
    for (size_t i = 0; i < marks.len; i++)
        if ((marks.p[i] == 1) != (want_marks[i] == 'T') || (unsigned char)marks.p[i] > 1)
            fail_msg("%s: byte %zu of [%s] is marked %d", source, i, text.p, marks.p[i]);
    assert_int_equal(strlen(want_marks), marks.len);
    str_free(&text);
    str_free(&marks);
    json_decref(variables);
}

static void test_marks(void **state)
{
    (void)state;
    check_marks("{% set c = messages[0].content %}<t>{{ c }}", "<t> U<x>é ", "TTT........");
    check_marks("{{ bos_token }}{{ eos_token }}", "<b><e>", "TTT...");
    check_marks("{% set c = messages[0].content %}{{ '<t>' + c | trim + '</t>' }}", "<t>U<x>é</t>",
                "TTT......TTTT");
    check_marks("{% set c = messages[0].content %}{{ ('<' ~ c ~ '>') | upper }}", "< U<X>É >", "T........T");
    check_marks("{{ messages[0].content | replace('U', '<t>') }}", " <t><x>é ", ".TTT......");
    check_marks("{{ 'a-b' | replace('-', messages[0].role) }}", "auserb", "T....T");
    check_marks("{{ ['<', messages[0].role, '>'] | join('|') }}", "<|user|>", "TT....TT");
    check_marks("{{ ['<', '>'] | join(messages[0].role) }}", "<user>", "T....T");
    check_marks("{{ messages[0].content[1:4] }}{{ 'abc'[::-1] }}", "U<xcba", "...TTT");
    check_marks("{{ messages[0].content.split('<')[1] }}{{ 'a<b'.split('<')[1] }}", "x>é b", ".....T");
    check_marks("{% for c in messages[0].role %}{{ c }}.{% endfor %}", "u.s.e.r.", ".T.T.T.T");
    check_marks("{% set b %}<{{ messages[0].role }}>{% endset %}{{ b }}{{ b | length }}", "<user>6",
                "T....T.");
    check_marks("{% set ns = namespace(x='<t>') %}{{ ns.x }}{% set ns.x = messages[0].role %}{{ ns.x }}",
                "<t>user", "TTT....");
    check_marks("{{ tool.n }}{{ 1 + 1 }}{{ tool.n + 1 }}{{ true }}", "728True", ".T.TTTT");
    check_marks("{{ tool | tojson }}", "{\"n\": 7, \"list\": [\"v\"]}", ".......................");
    check_marks("{{ tool.list }}{% for k in tool %}{{ k }}{% endfor %}", "['v']nlist", "..........");
    check_marks("{{ messages[0].role * 2 }}{{ messages[0].role | default('<t>') }}", "useruseruser",
                "............");
    check_marks("{{ missing | default('<t>') }}{{ messages[0].role | capitalize }}", "<t>User", "TTT....");
    check_marks("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].role) }}", "<user>", "T....T");
    check_marks(
        "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}{{ messages[0].role }}!{% endcall %}",
        "[user!]", "T....TT");
    check_marks("{% filter upper %}<{{ messages[0].role }}>{% endfilter %}", "<USER>", "T....T");
    check_marks("{{ [messages[0].role, '<t>'] | map('upper') | sort | join }}", "<T>USER", "TTT....");
    check_marks("{{ '%s|{}' % messages[0].role }}{{ '<{}>'.format(tool.n) }}", "user|{}<7>", "....TTTT.T");
    check_marks("{{ messages[0].role | indent(2, first=true) }}{{ messages[0].role.title() }}", "  userUser",
                "TT........");
    check_marks("{{ '<' | escape }}{% raw %}{{ x }}{% endraw %}", "&lt;{{ x }}", "....TTTTTTT");
    check_marks("{% for m in messages %}{{ loop.index }}{% endfor %}{{ range(2) | list | first }}", "10",
                "TT");
}

static const struct {
    const char *source, *message;
    sluice_status status;
} REFUSED[] = {
    {"a\nb\n{{ x | urlize }}", "chat_template.jinja line 3: filter \"urlize\" is not supported",
     SLUICE_E_UNSUPPORTED},
    {"{% include 'x' %}", "line 1: statement \"include\"", SLUICE_E_UNSUPPORTED},
    {"{% do x %}", "statement \"do\"", SLUICE_E_UNSUPPORTED},
    {"{{ x is escaped }}", "test \"escaped\"", SLUICE_E_UNSUPPORTED},
    {"{{ x | join(by='n') }}", "argument \"by\"", SLUICE_E_UNSUPPORTED},
    {"{{ x | join(1, 2, 3) }}", "arguments of \"join\"", SLUICE_E_UNSUPPORTED},
    {"{{ x | replace('a') }}", "needs more arguments", SLUICE_E_FORMAT},
    {"{% raw %}{% endfor %}", "a raw block is not closed", SLUICE_E_FORMAT},
    {"{% macro f(1) %}{% endmacro %}", "a name is expected", SLUICE_E_FORMAT},
    {"{% macro f() %}{% break %}{% endmacro %}", "outside of a loop", SLUICE_E_FORMAT},
    {"{% call x %}{% endcall %}", "a call is expected", SLUICE_E_FORMAT},
    {"{% if x %}", "the end of a block is missing", SLUICE_E_FORMAT},
    {"{% endif %}", "without its beginning", SLUICE_E_FORMAT},
    {"{% break %}", "outside of a loop", SLUICE_E_FORMAT},
    {"{{ 'a }}", "a string is not closed", SLUICE_E_FORMAT},
    {"{# a", "a comment is not closed", SLUICE_E_FORMAT},
    {"{{ a", "not closed", SLUICE_E_FORMAT},
    {"{{ (1] }}", "is expected", SLUICE_E_FORMAT},
    {"{{ ) }}", "closed that was not opened", SLUICE_E_FORMAT},
    {"{{ a b }}", "not \"b\"", SLUICE_E_FORMAT},
    {"{{ 99999999999999999999 }}", "a number is too large", SLUICE_E_FORMAT},
    {"{{ '\\N{DASH}' }}", "escape", SLUICE_E_FORMAT},
    {"{{ a ? b }}", "not part of the language", SLUICE_E_FORMAT},
    {"{{ f(*x) }}", "not supported", SLUICE_E_UNSUPPORTED},
    {"\xC3(", "not UTF-8", SLUICE_E_FORMAT},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct template *t = NULL;
        sluice_error err = {0};
        sluice_status status = template_open(REFUSED[i].source, strlen(REFUSED[i].source), &t, &err);
        if (status != REFUSED[i].status || !strstr(err.detail, REFUSED[i].message))
            fail_msg("%s: status %d, \"%s\"", REFUSED[i].source, status, err.detail);
        assert_null(t);
    }
}

/* Functions and methods are looked for where they are called, as Jinja does. */
static void test_calls_refused(void **state)
{
    (void)state;
    static const struct {
        const char *source, *message;
    } ROWS[] = {
        {"{{ lipsum() }}", "function \"lipsum\" is not defined"},
        {"{{ [1].append(2) }}", "method \"append\" of a list is not supported"},
        {"{{ 'a'.encode() }}", "method \"encode\" of a string is not supported"},
        {"{{ dict(a=1).pop('a') }}", "method \"pop\" of a dict is not supported"},
        {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "does not take these arguments"},
        {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "does not take these arguments"},
        {"{% set n = namespace() %}{% for i in [1] %}{% macro f() %}{% endmacro %}{% set n.f = f %}{% endfor "
         "%}"
         "{{ n.f() }}",
         "outside of where it was made"},
        {"{% set n = namespace() %}{% for o in [1] %}{% for i in [1] recursive %}{% set n.l = loop %}{% "
         "endfor %}{% endfor %}"
         "{% set g = n.l %}{{ g([1]) }}",
         "outside of its loop"},
        {"{% for i in [1] %}{{ loop([1]) }}{% endfor %}", "needs a loop that is \"recursive\""},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nests deeper than"},
        {"{% for i in [[]] recursive %}{{ loop([i]) }}{% endfor %}", "nests deeper than"},
        {"{{ 1() }}", "an integer cannot be called"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct str text = {0}, marks = {0};
        sluice_error err = {0};
        json_t *variables = json_object();
        sluice_status status = render(ROWS[i].source, strlen(ROWS[i].source), variables, &text, &marks, &err);
        if (status == SLUICE_OK || !strstr(err.detail, ROWS[i].message))
            fail_msg("%s: status %d, \"%s\"", ROWS[i].source, status, err.detail);
        str_free(&text);
        str_free(&marks);
        json_decref(variables);
    }
}

static void test_mentions(void **state)
{
    (void)state;
    static const char SOURCE[] = "{% if enable_thinking %}{{ 'tools' }}{% endif %} messages";
    struct template *t = NULL;
    assert_int_equal(template_open(SOURCE, strlen(SOURCE), &t, NULL), SLUICE_OK);
    assert_true(template_mentions(t, "enable_thinking"));
    assert_false(template_mentions(t, "tools"));
    assert_false(template_mentions(t, "messages"));
    template_close(t);
}

/* What a template asks for without end is ended, by name. */
static void check_limit(const char *source, const char *message)
{
    struct str text = {0}, marks = {0};
    sluice_error err = {0};
    json_t *variables = json_object();
    sluice_status status = render(source, strlen(source), variables, &text, &marks, &err);
    if (status != SLUICE_E_UNSUPPORTED || !strstr(err.detail, message))
        fail_msg("%.80s: status %d, \"%s\"", source, status, err.detail);
    assert_int_equal(text.len, 0);
    assert_int_equal(marks.len, 0);
    str_free(&text);
    str_free(&marks);
    json_decref(variables);
}

/* open, then `left` 20,000 times, middle, `right` as often, close */
static void check_deep(const char *open, const char *left, const char *middle, const char *right,
                       const char *close, const char *message)
{
    struct str source = {0};
    bool ok = str_puts(&source, open);
    for (int i = 0; i < 20000; i++)
        ok = ok && str_puts(&source, left);
    ok = ok && str_puts(&source, middle);
    for (int i = 0; i < 20000; i++)
        ok = ok && str_puts(&source, right);
    assert_true(ok && str_puts(&source, close));
    check_limit(source.p, message);
    str_free(&source);
}

static void test_limits(void **state)
{
    (void)state;
    check_limit("{% for i in range(1000000000) %}x{% endfor %}", "chat_template.jinja");
    check_limit("{% set r = range(10000) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
                "steps");
    check_limit("{% set s = 'x' * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}", "longer than");
    check_limit("{{ 'abcdefgh' * 1000000000 }}", "chat_template.jinja");
    check_limit("{{ 10 ** 30 }}", "64 bits");
    check_deep("{{", "(", "1", ")", "}}", "nesting deeper");
    check_deep("{{", "[", "1", "]", "}}", "nesting deeper");
    check_deep("{{", "{1:", "1", "}", "}}", "nesting deeper");
    check_deep("{{", "-", "1", "", "}}", "nesting deeper");
    check_deep("{{", "not ", "1", "", "}}", "nesting deeper");
    check_deep("{{", "1 if 1 else ", "1", "", "}}", "nesting deeper");
    check_deep("{{ 1", "+1", "", "", "}}", "deeper than");
    check_deep("{{ 1", " and 1", "", "", "}}", "deeper than");
    check_deep("{{ x", ".a", "", "", "}}", "deeper than");
    check_deep("{{ x", "|trim", "", "", "}}", "deeper than");
    check_deep("", "{% if 1 %}", "", "{% endif %}", "", "nesting deeper");
    check_deep("", "{% for a in b %}", "", "{% endfor %}", "", "nesting deeper");
}

#define CHAT                                                                                                 \
    "{{ bos_token }}{% for m in messages if m.role != 'x' %}{% set ns = namespace(r=m['role']) %}"           \
    "{{ '<t>' + ns.r ~ '\\n' + m['content'] | trim | replace('a', 'b') }}{{ m | tojson }}{{ m.items() | "    \
    "list }}"                                                                                                \
    "{% set b %}[{{ loop.index }}]{% endset %}{{ b | upper }}{% endfor %}"

static void test_memory(void **state)
{
    (void)state;
    json_t *variables = json_pack("{s:s, s:[{s:s, s:s}, {s:s, s:s}]}", "bos_token", "<bos>", "messages",
                                  "role", "user", "content", " banana ", "role", "assistant", "content", "é");
    for (uint64_t n = 1;; n++) {
        struct str text = {0}, marks = {0};
        sluice_error err = {0};
        fault_arm(FAULT_ALLOC, n);
        sluice_status status = render(CHAT, strlen(CHAT), variables, &text, &marks, &err);
        bool fired = fault_fired(FAULT_ALLOC);
        fault_arm(FAULT_ALLOC, 0);
        if (status != (fired ? SLUICE_E_MEMORY : SLUICE_OK))
            fail_msg("allocation %u: status %d, \"%s\"", (unsigned)n, status, err.detail);
        assert_int_equal(text.len, marks.len);
        str_free(&text);
        str_free(&marks);
        if (!fired)
            break;
        assert_true(n < 10000);
    }
    json_decref(variables);
}

int main(void)
{
    mem_hook_json();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),       cmocka_unit_test(test_marks),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_calls_refused), cmocka_unit_test(test_mentions), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
