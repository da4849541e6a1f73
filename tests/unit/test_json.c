/* base/json: caps, duplicate keys, and messages that name the field. */
#include "support/unit.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <sys/resource.h>
#include <sys/wait.h>

static json_t *parsed(const char *text)
{
    json_t *root;
    sluice_error err;
    assert_ok(json_parse(text, strlen(text), "test.json", &root, &err), err);
    return root;
}

static void check_refused(const char *text, size_t bytes, const char *words)
{
    json_t *root = (json_t *)&root;
    sluice_error err;
    assert_fails(json_parse(text, bytes, "test.json", &root, &err), SLUICE_E_FORMAT, err, words);
    assert_non_null(strstr(err.detail, "test.json"));
    assert_null(root);
}

static void any_value_may_stand_at_the_top(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"{}",    "[]",   "1",    "-1.5e3",
                                        "\"x\"", "true", "null", " { \"a\" : [ ] } \n"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        json_decref(parsed(TEXTS[i]));
}

static void integers_without_bound_are_read_where_asked_for(void **state)
{
    (void)state;
    static const char BIG[] =
        "{\"model_max_length\": 1000000000000000019884624838656, \"a\": 3, \"b\": \"x\"}";
    json_t *root;
    sluice_error err;
    check_refused(BIG, sizeof BIG - 1, "too big");
    assert_ok(json_parse_big(BIG, sizeof BIG - 1, "test.json", &root, &err), err);
    assert_true(json_real_value(json_object_get(root, "model_max_length")) == 1e30);
    assert_true(json_is_real(json_object_get(root, "a")));
    assert_string_equal(json_string_value(json_object_get(root, "b")), "x");
    json_decref(root);
    assert_ok(json_parse_big("[3]", 3, "test.json", &root, &err), err);
    assert_true(json_is_integer(json_array_get(root, 0)));
    json_decref(root);
    assert_fails(json_parse_big("[1e400]", 7, "test.json", &root, &err), SLUICE_E_FORMAT, err,
                 "not valid JSON");
    assert_null(root);
}

static void bad_texts_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } CASES[] = {
        {"", "line 1"},
        {"{", "line 1"},
        {"{\"a\": 1,}", "line 1"},
        {"[1, 2\n 3]", "line 2"},
        {"{} {}", "end of file expected"},
        {"{\"a\": 1, \"b\": 2, \"a\": 3}", "duplicate object key \"a\""},
        {"{\"model.layers.0.self_attn.q_proj.weight\": 1, \"model.layers.0.self_attn.q_proj.weight\" : 3}",
         "duplicate object key \"model.layers.0.self_attn.q_proj.weight\""},
        {"{\"a\\\"b\": 1, \"a\\\"b\": 3}", "duplicate object key \"a\\\"b\""},
        {"{\"o\": {\"k\": 1, \"k\": 1}}", "duplicate"},
        {"'a'", "not valid JSON"},
        {"[01]", "not valid JSON"},
        {"[1e400]", "not valid JSON"},
        {"[9223372036854775808]", "too big"},
        {"[NaN]", "not valid JSON"},
        {"\"\xFF\"", "byte 0xff"},
        {"\"\xED\xA0\x80\"", "byte 0xed"},
        {"\"\\ud800\"", "not valid JSON"},
        {"\"a\nb\"", "not valid JSON"},
        {"{\"\\u0000\": 1}", "NUL"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        check_refused(CASES[i].text, strlen(CASES[i].text), CASES[i].words);
    check_refused("[1]\0[", 5, "not valid JSON"); /* a raw NUL does not end the text */
    check_refused("\"a\0b\"", 5, "not valid JSON");
}

static void nest(struct str *s, const char *open, const char *close, size_t depth)
{
    str_clear(s);
    for (size_t i = 0; i < depth; i++)
        assert_true(str_puts(s, open));
    assert_true(str_puts(s, "1"));
    for (size_t i = 0; i < depth; i++)
        assert_true(str_puts(s, close));
}

static void depth_is_capped(void **state)
{
    (void)state;
    struct str s = {0};
    nest(&s, "[", "]", JSON_DEPTH_MAX);
    json_decref(parsed(s.p));
    nest(&s, "{\"k\":", "}", JSON_DEPTH_MAX);
    json_decref(parsed(s.p));
    nest(&s, "[", "]", JSON_DEPTH_MAX + 1);
    check_refused(s.p, s.len, "nests deeper than 64 levels");
    nest(&s, "{\"k\":", "}", JSON_DEPTH_MAX + 1);
    check_refused(s.p, s.len, "nests deeper than 64 levels");
    nest(&s, "[", "]", 1000000);
    check_refused(s.p, s.len, "nests deeper than 64 levels");

    /* Brackets inside strings, escaped quotes among them, are not depth. */
    str_clear(&s);
    assert_true(str_puts(&s, "[\"\\\"\\\\"));
    for (int i = 0; i < 500; i++)
        assert_true(str_putc(&s, '['));
    assert_true(str_puts(&s, "\\\\\"]"));
    json_decref(parsed(s.p));
    /* Neither are closed siblings. */
    str_clear(&s);
    assert_true(str_puts(&s, "["));
    for (int i = 0; i < 500; i++)
        assert_true(str_puts(&s, "[{}],"));
    assert_true(str_puts(&s, "0]"));
    json_decref(parsed(s.p));
    str_free(&s);
}

static const char DOCUMENT[] =
    "{\"n\": 7, \"zero\": 0, \"minus\": -1, \"real\": 1.5, \"whole\": 2.0, \"text\": \"hi\","
    " \"nul\": \"a\\u0000b\", \"yes\": true, \"no\": false, \"none\": null, \"o\": {}, \"a\": [],"
    " \"big\": 9223372036854775807, \"u32\": 4294967295, \"over\": 4294967296}";

static void getters_return_what_is_there(void **state)
{
    (void)state;
    json_t *root = parsed(DOCUMENT), *child = NULL;
    sluice_error err;
    uint64_t u = 0;
    uint32_t v = 0;
    double d = 0;
    const char *text = NULL;
    bool b = false;
    assert_ok(json_need_u64(root, "n", 7, 7, &u, "d", &err), err);
    assert_int_equal(u, 7);
    assert_ok(json_need_u64(root, "big", 0, UINT64_MAX, &u, "d", &err), err);
    assert_true(u == INT64_MAX);
    assert_ok(json_need_u64(root, "zero", 0, 0, &u, "d", &err), err);
    assert_int_equal(u, 0);
    assert_ok(json_need_u32(root, "u32", 0, UINT32_MAX, &v, "d", &err), err);
    assert_true(v == UINT32_MAX);
    assert_ok(json_need_number(root, "real", &d, "d", &err), err);
    assert_true(d == 1.5);
    assert_ok(json_need_number(root, "minus", &d, "d", &err), err);
    assert_true(d == -1);
    assert_ok(json_need_string(root, "text", &text, "d", &err), err);
    assert_string_equal(text, "hi");
    assert_ok(json_need_bool(root, "yes", &b, "d", &err), err);
    assert_true(b);
    assert_ok(json_need_bool(root, "no", &b, "d", &err), err);
    assert_false(b);
    assert_ok(json_need_object(root, "o", &child, "d", &err), err);
    assert_true(json_is_object(child));
    assert_ok(json_need_array(root, "a", &child, "d", &err), err);
    assert_true(json_is_array(child));
    assert_true(json_has(root, "n"));
    assert_true(json_has(root, "no"));
    assert_false(json_has(root, "none"));
    assert_false(json_has(root, "absent"));
    assert_false(json_has(NULL, "n"));
    assert_false(json_has(child, "n"));
    json_decref(root);
}

/* Calls the getter of `kind` and returns what it says. */
static sluice_status need_of(const char *kind, const json_t *parent, const char *key, sluice_error *err)
{
    uint64_t u;
    uint32_t v;
    double d;
    const char *text;
    bool b;
    json_t *child;
    if (strcmp(kind, "u64") == 0)
        return json_need_u64(parent, key, 1, 100, &u, "d.json", err);
    if (strcmp(kind, "u32") == 0)
        return json_need_u32(parent, key, 0, UINT32_MAX, &v, "d.json", err);
    if (strcmp(kind, "number") == 0)
        return json_need_number(parent, key, &d, "d.json", err);
    if (strcmp(kind, "string") == 0)
        return json_need_string(parent, key, &text, "d.json", err);
    if (strcmp(kind, "bool") == 0)
        return json_need_bool(parent, key, &b, "d.json", err);
    if (strcmp(kind, "object") == 0)
        return json_need_object(parent, key, &child, "d.json", err);
    assert_string_equal(kind, "array");
    return json_need_array(parent, key, &child, "d.json", err);
}

static void wrong_fields_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *key, *words;
    } CASES[] = {
        {"u64", "absent", "d.json has no \"absent\" (an integer)"},
        {"u64", "real", "d.json: \"real\" must be an integer"},
        {"u64", "whole", "d.json: \"whole\" must be an integer"},
        {"u64", "text", "d.json: \"text\" must be an integer"},
        {"u64", "none", "d.json: \"none\" must be an integer"},
        {"u64", "zero", "d.json: \"zero\" is 0, it must be from 1 to 100"},
        {"u64", "minus", "d.json: \"minus\" is -1, it must be from 1 to 100"},
        {"u64", "big", "d.json: \"big\" is 9223372036854775807, it must be from 1 to 100"},
        {"u32", "over", "d.json: \"over\" is 4294967296, it must be from 0 to 4294967295"},
        {"number", "absent", "has no \"absent\" (a number)"},
        {"number", "text", "\"text\" must be a number"},
        {"string", "absent", "has no \"absent\" (a string)"},
        {"string", "n", "\"n\" must be a string without NUL"},
        {"string", "nul", "\"nul\" must be a string without NUL"},
        {"bool", "absent", "has no \"absent\" (true or false)"},
        {"bool", "n", "\"n\" must be true or false"},
        {"object", "absent", "has no \"absent\" (an object)"},
        {"object", "a", "\"a\" must be an object"},
        {"array", "absent", "has no \"absent\" (an array)"},
        {"array", "o", "\"o\" must be an array"},
    };
    json_t *root = parsed(DOCUMENT), *list = parsed("[1]");
    sluice_error err;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        assert_fails(need_of(CASES[i].kind, root, CASES[i].key, &err), SLUICE_E_FORMAT, err, CASES[i].words);
        assert_int_equal(need_of(CASES[i].kind, root, CASES[i].key, NULL), SLUICE_E_FORMAT);
        assert_fails(need_of(CASES[i].kind, NULL, CASES[i].key, &err), SLUICE_E_FORMAT, err, CASES[i].key);
        assert_fails(need_of(CASES[i].kind, list, CASES[i].key, &err), SLUICE_E_FORMAT, err, "not an object");
    }
    json_decref(root);
    json_decref(list);
}

/* For the fault hook a parse is one allocation: out of memory must not be called bad syntax. */
static void refused_memory_is_named(void **state)
{
    (void)state;
    json_t *root = (json_t *)&root;
    sluice_error err;
    fault_arm(FAULT_ALLOC, 1);
    assert_fails(json_parse("{\"a\": [1, \"x\"]}", 15, "test.json", &root, &err), SLUICE_E_MEMORY, err,
                 "test.json");
    assert_true(fault_fired(FAULT_ALLOC));
    assert_null(root);
    check_refused("[", 1, "not valid JSON"); /* the next bad text is again called bad */
}

/* A child whose address space ends in the middle of a parse, where jansson's lexer would go on without the
 * memory and lose characters. Exit code 0: refused by name, and small texts can be read afterwards. */
static int parse_without_memory(const char *text, size_t bytes)
{
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    char line[64] = "";
    if (!statm || !fgets(line, sizeof line, statm))
        return 2;
    (void)fclose(statm);
    pages = strtol(line, NULL, 10);
    rlim_t now = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit = {.rlim_cur = now + (8 << 20), .rlim_max = now + (8 << 20)};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 3;
    json_t *root;
    sluice_error err = {0};
    if (json_parse(text, bytes, "large.json", &root, &err) != SLUICE_E_MEMORY || root)
        return 4;
    if (!strstr(err.detail, "large.json"))
        return 5;
    return json_parse("[\"small\"]", 9, "small.json", &root, &err) == SLUICE_OK ? 0 : 6;
}

static void running_out_of_memory_ends_a_parse(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their address space has no useful limit */
#endif
    if (getenv("SLUICE_TEST_SHORT"))
        skip(); /* the limit would hit valgrind or the emulator instead */
    struct str s = {0};
    assert_true(str_puts(&s, "["));
    for (int i = 0; i < 1000000; i++)
        assert_true(str_puts(&s, "\"a string\","));
    assert_true(str_puts(&s, "0]"));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(parse_without_memory(s.p, s.len));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_value_may_stand_at_the_top),
        cmocka_unit_test(integers_without_bound_are_read_where_asked_for),
        cmocka_unit_test(bad_texts_are_refused_with_their_place),
        cmocka_unit_test(depth_is_capped),
        cmocka_unit_test(getters_return_what_is_there),
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(refused_memory_is_named),
        cmocka_unit_test(running_out_of_memory_ends_a_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
