/* Grammars: what GBNF and JSON Schemas accept, what is refused and how fast, masks against single tokens. */
#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/file.h"
#include "support/unit.h"
#include "text/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 1: accepted, 0: a beginning of something, -1: neither. */
static int verdict(struct grammar *g, const char *text)
{
    struct walker *w = NULL;
    uint32_t state;
    sluice_error err = {0};
    assert_int_equal(walker_open(g, NULL, NULL, 0, &w, &err), SLUICE_OK);
    assert_int_equal(walker_bytes(w, walker_start(w), text, strlen(text), &state, &err), SLUICE_OK);
    int v = state == WALKER_DEAD ? -1 : walker_accepts(w, state);
    walker_close(w);
    return v;
}

/* Texts apart by line ends; a tab starts one that is no beginning of anything accepted. */
static void check_texts(struct grammar *g, const char *what, const char *good, const char *bad)
{
    char line[512];
    for (int side = 0; side < 2; side++) {
        for (const char *p = side ? bad : good; p && *p;) {
            size_t n = strcspn(p, "\x01");
            assert_true(n < sizeof line);
            memcpy(line, p, n);
            line[n] = '\0';
            int v = verdict(g, line);
            if ((v == 1) == (side == 1))
                fail_msg("%s: [%s] is %saccepted", what, line, v == 1 ? "" : "not ");
            p += n + (p[n] == '\x01');
        }
    }
}

#define AND "\x01"

static const struct {
    const char *grammar, *good, *bad;
} GBNF[] = {
    {"root ::= \"a\" | \"bc\"", "a" AND "bc", "b" AND "ab" AND "bca"},
    {"root ::= [a-c]+ \"-\"? [^0-9]{2,3}\n", "axy" AND "abc-xyz" AND "c\xC3\xA9\xE2\x82\xAC" AND "caa",
     "a" AND "x" AND "a-1x"},
    {"# note\nroot ::= item (\", \" item)* # more\nitem ::= [0-9]{1,}\n", "1" AND "12, 3, 45",
     "," AND "1," AND "1, "},
    {"root ::= \"(\" root \")\" | \"\"", "()" AND "(())", "(" AND "())"},
    {"root ::= (\n \"a\" |\n \"b\"\n) \"c\"", "ac" AND "bc", "a" AND "cc"},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\\n\"", "A\xC3\xA9\xF0\x9F\x98\x80\"\\\n", "A"},
    {"root ::= . . \"!\"", "\xE6\x97\xA5x!", "x!" AND "\xE6!"},
    {"root ::= x{2} y{0,2}\nx ::= \"x\"\ny ::= \"y\"", "xx" AND "xxy" AND "xxyy", "x" AND "xxx" AND "xxyyy"},
    {"root ::= a b\na ::= \"\" | \"a\" a\nb ::= \"b\"*", "aab" AND "bb" AND "a", "ba"},
    {"root ::= [\\]\\-x]+", "]-x", "a"},
    {"root ::= ((\"a\"?)*)+ \"b\"", "b" AND "aaab", "a"},
};

static const struct {
    const char *schema, *good, *bad;
} SCHEMAS[] = {
    {"true", "1" AND "\"x\"" AND "{\"a\": [1, {}]}" AND "null" AND "-1.5e+10",
     "01" AND "{\"a\"}" AND "[1,]" AND "tru"},
    {"{\"type\":\"string\"}", "\"\"" AND "\"a\\n\\u00e9\"" AND "\"\\ud83d\\ude00\"" AND "\"\xC3\xA9\"",
     "\"\n\"" AND "\"\\x\"" AND "\"\\ud83d\"" AND "\"\\u0000\"" AND "\"\xC3\"" AND "a"},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"" AND "\"\xC3\xA9\\n\xF0\x9F\x98\x80\"",
     "\"a\"" AND "\"abcd\""},
    {"{\"type\":\"string\",\"pattern\":\"^a[0-9]{2}$\"}", "\"a12\"", "\"a1\"" AND "\"xa12\"" AND "\"a123\""},
    {"{\"type\":\"string\",\"pattern\":\"b+\"}", "\"b\"" AND "\"abbx\"", "\"a\"" AND "\"\""},
    {"{\"type\":\"string\",\"pattern\":\"^(?:x|y\\\\.)*$|^\\\\d\\\\w\\\\s$\"}",
     "\"\"" AND "\"xy.x\"" AND "\"1_ \"", "\"y\"" AND "\"1_\""},
    {"{\"type\":\"string\",\"pattern\":\"^[^\\\"\\\\\\\\]\\\"$\"}", "\"a\\\"\"",
     "\"\\\"\\\"\"" AND "\"a\"\""},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-28\"" AND "\"1999-12-31\"",
     "\"2024-02-30\"" AND "\"2024-13-01\"" AND "\"0000-01-01\""},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"127.0.0.1\"" AND "\"255.249.10.0\"",
     "\"256.1.1.1\"" AND "\"1.1.1\"" AND "\"01.1.1.1\""},
    {"{\"type\":\"string\",\"format\":\"date-time\"}",
     "\"2024-02-28T23:59:59.5Z\"" AND "\"2024-02-28T00:00:00+01:00\"",
     "\"2024-02-28\"" AND "\"2024-02-28T24:00:00Z\""},
    {"{\"type\":\"integer\"}", "0" AND "-5" AND "123456789012345",
     "1.0" AND "01" AND "1234567890123456" AND "+1"},
    {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12}", "-3" AND "-1" AND "0" AND "7" AND "10" AND "12",
     "-4" AND "13" AND "-0" AND "00" AND "20" AND "-10"},
    {"{\"type\":\"integer\",\"minimum\":98,\"exclusiveMaximum\":1001}",
     "98" AND "99" AND "100" AND "999" AND "1000", "97" AND "9" AND "1001" AND "10000"},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":-1.5}", "-1" AND "0" AND "100000", "-2" AND "-10"},
    {"{\"type\":\"integer\",\"maximum\":-12}", "-12" AND "-13" AND "-20" AND "-100",
     "-11" AND "0" AND "5" AND "-1"},
    {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}", "0" AND "0.5" AND "1" AND "1.0" AND "0.000001",
     "1.1" AND "-0.1" AND "1.000001" AND "2" AND "1e5"},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"exclusiveMaximum\":0.5}",
     "0.26" AND "0.250001" AND "0.4999", "0.25" AND "0.5" AND "0.50" AND "0.250" AND "0" AND "1"},
    {"{\"type\":\"number\",\"minimum\":-2.5,\"maximum\":10.75}",
     "-2.5" AND "-2" AND "-0.75" AND "0" AND "9.99" AND "10.75" AND "10.7" AND "10",
     "-2.51" AND "-3" AND "10.76" AND "11"},
    {"{\"enum\":[\"a\",1,null,[1],{\"k\":\"v\"}]}", "\"a\"" AND "1" AND "null" AND "[1]" AND "{\"k\": \"v\"}",
     "2" AND "\"b\""},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", "\"a\"", "1"},
    {"{\"const\":\"x\\\"y\"}", "\"x\\\"y\"", "\"x\""},
    {"{\"type\":[\"string\",\"null\"]}", "\"a\"" AND "null", "1" AND "true"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
     "[true]" AND "[false, true]" AND "[\n  true,\n  false\n]", "[]" AND "[true,true,true]" AND "[1]"},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2}", "[1,2]" AND "[1,2,3,4]",
     "[]" AND "[1]" AND "[1,2,]"},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}",
     "[]" AND "[1]" AND "[1,\"a\"]", "[\"a\"]" AND "[1,\"a\",2]"},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"}],\"items\":{\"type\":\"null\"},"
     "\"minItems\":1}",
     "[1]" AND "[1,null,null]", "[]" AND "[null]" AND "[1,1]"},
    {"{\"type\":\"array\",\"maxItems\":0}", "[]", "[1]"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"},\"c\":{"
     "\"type\":\"null\"}},\"required\":[\"b\"]}",
     "{\"b\":\"\"}" AND "{\"a\": 1, \"b\": \"x\"}" AND "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": null\n}" AND
     "{\"b\":\"x\",\"c\":null}",
     "{}" AND "{\"a\":1}" AND "{\"b\":1}" AND "{\"b\":\"x\",\"a\":1}" AND "{\"b\":\"x\",\"d\":1}" AND
     "{,\"b\":\"\"}" AND "{\"a\":1\"b\":\"\"}"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{}}}", "{}" AND "{\"a\": [1]}", "{\"b\":1}"},
    {"{\"type\":\"object\"}", "{}" AND "{\"x\": {\"y\": 1}}", "[]" AND "1"},
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "{}" AND "{\"x\":1,\"y\":2}",
     "{\"x\":\"a\"}"},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"},\"ac\":{\"type\":\"null\"}},"
     "\"additionalProperties\":{\"type\":\"integer\"}}",
     "{\"ab\":null,\"x\":1}" AND "{\"a\":1}" AND "{\"abc\":1,\"\":2}" AND "{\"\xC3\xA9\":1}" AND "{\"ad\":1}",
     "{\"ab\":1}" AND "{\"x\":1,\"ac\":2}" AND "{\"x\":null}" AND "{\"\\u0061b\":1}"},
    {"{\"type\":\"object\",\"required\":[\"q\"]}", "{\"q\":1}", "{}"},
    {"{\"required\":[\"x\"],\"properties\":{\"x\":{\"const\":1},\"y\":false}}", "{\"x\":1}",
     "{\"x\":1,\"y\":1}" AND "1"},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "1" AND "null", "\"a\""},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}",
     "\"a\"" AND "[\"a\"]", "1" AND "[1]"},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"integer\"}},"
     "\"required\":[\"k\"]},"
     "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
     "{\"k\":\"a\",\"v\":1}" AND "{\"k\":\"b\"}", "{\"k\":\"c\"}" AND "{}"},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{"
     "\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}]}",
     "{\"a\":1,\"b\":2}", "{\"a\":1}" AND "{\"b\":2}"},
    {"{\"allOf\":[{\"type\":\"number\",\"minimum\":1},{\"type\":\"integer\",\"maximum\":3,\"minimum\":2}]}",
     "2" AND "3", "1" AND "4" AND "2.5"},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{"
     "\"anyOf\":[{\"$ref\":\"#/$defs/"
     "n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
     "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}", "{\"v\":1,\"next\":{}}" AND "{\"v\":1}"},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "[]" AND "[[],[[]]]", "[1]"},
    {"{\"definitions\":{\"a/b\":{\"type\":\"null\"}},\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#/"
     "definitions/a~1b\"}},\"required\":[\"x\"]}",
     "{\"x\":null}", "{\"x\":1}"},
    {"{\"minimum\":5,\"type\":[\"integer\",\"string\"],\"title\":\"t\",\"description\":\"d\"}",
     "5" AND "\"x\"", "4"},
};

static void test_gbnf(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GBNF / sizeof *GBNF; i++) {
        struct grammar *g = NULL;
        sluice_error err = {0};
        if (grammar_from_gbnf(GBNF[i].grammar, strlen(GBNF[i].grammar), &g, &err) != SLUICE_OK)
            fail_msg("%s: %s", GBNF[i].grammar, err.detail);
        check_texts(g, GBNF[i].grammar, GBNF[i].good, GBNF[i].bad);
        grammar_close(g);
    }
}

static void test_schemas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SCHEMAS / sizeof *SCHEMAS; i++) {
        struct grammar *g = NULL;
        sluice_error err = {0};
        if (grammar_from_schema(SCHEMAS[i].schema, strlen(SCHEMAS[i].schema), &g, &err) != SLUICE_OK)
            fail_msg("%s: %s", SCHEMAS[i].schema, err.detail);
        check_texts(g, SCHEMAS[i].schema, SCHEMAS[i].good, SCHEMAS[i].bad);
        grammar_close(g);
    }
}

/* ---- refusals ---- */

static const struct {
    bool schema;
    const char *text, *message;
} REFUSED[] = {
    {false, "root ::= root \"a\" | \"b\"", "left-recursive"},
    {false, "root ::= a\na ::= \"x\"? b\nb ::= root | \"y\"", "left-recursive"},
    {false, "root ::= a", "no rule \"a\""},
    {false, "x ::= \"a\"", "no rule \"root\""},
    {false, "root ::= \"a\"\nroot ::= \"b\"", "defined twice"},
    {false, "root ::= \"a", "not closed"},
    {false, "root ::= (\"a\"", "\")\" is expected"},
    {false, "root ::= [z-a]", "backwards"},
    {false, "root ::= []", "empty"},
    {false, "root ::= *", "nothing to repeat"},
    {false, "root ::= \"a\"{3,2}", "braces"},
    {false, "root ::= \"a\"{1,99999}", "more than 10000"},
    {false, "root = \"a\"", "\"::=\" is expected"},
    {false, "root ::= \"\\q\"", "an escape"},
    {false, "root ::= \"(\" root \")\"", "matches no text"},
    {false, "", "no rule \"root\""},
    {true, "{\"type\":\"objekt\"}", "type \"objekt\""},
    {true, "{\"if\":{}}", "\"if\""},
    {true, "{\"not\":{}}", "\"not\""},
    {true, "{\"type\":\"object\",\"patternProperties\":{}}", "\"patternProperties\""},
    {true, "{\"type\":\"object\",\"propertyNames\":{}}", "\"propertyNames\""},
    {true, "{\"type\":\"object\",\"dependentRequired\":{}}", "\"dependentRequired\""},
    {true, "{\"type\":\"object\",\"minProperties\":2}", "\"minProperties\""},
    {true, "{\"type\":\"array\",\"contains\":{}}", "\"contains\""},
    {true, "{\"type\":\"array\",\"uniqueItems\":true}", "\"uniqueItems\""},
    {true, "{\"type\":\"array\",\"items\":[{}]}", "\"items\""},
    {true, "{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "\"minItems\""},
    {true, "{\"type\":\"integer\",\"multipleOf\":3}", "\"multipleOf\""},
    {true, "{\"type\":\"number\",\"minimum\":1e300}", "bounds"},
    {true, "{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "matches no text"},
    {true, "{\"type\":\"string\",\"format\":\"regex\"}", "\"regex\""},
    {true, "{\"type\":\"string\",\"pattern\":\"^+[a-z]$\"}", "a repetition of nothing"},
    {true, "{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "looking ahead"},
    {true, "{\"type\":\"string\",\"pattern\":\"(a)\\\\1\"}", "a reference to a group"},
    {true, "{\"type\":\"string\",\"pattern\":\"\\\\bx\"}", "word boundary"},
    {true, "{\"type\":\"string\",\"pattern\":\"\\\\p{L}\"}", "this escape"},
    {true, "{\"type\":\"string\",\"pattern\":\"(^a)\"}", "an anchor inside"},
    {true, "{\"type\":\"string\",\"pattern\":\"a**\"}", "a repetition of a repetition"},
    {true, "{\"type\":\"string\",\"pattern\":\"[b-a]\"}", "backwards"},
    {true, "{\"type\":\"string\",\"pattern\":\"(a\"}", "not closed"},
    {true, "{\"type\":\"string\",\"pattern\":\"a)\"}", "not opened"},
    {true, "{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":3}", "maxLength"},
    {true, "{\"type\":\"string\",\"maxLength\":1000000000}", "maxLength"},
    {true, "{\"type\":\"string\",\"minLength\":-1}", "minLength"},
    {true, "{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}", "maxLength"},
    {true, "{\"enum\":[1,2],\"minimum\":1}", "\"enum\""},
    {true, "{\"$ref\":\"http://x/y\"}", "$ref"},
    {true, "{\"$ref\":\"#/$defs/none\"}", "points at no schema"},
    {true, "{\"$ref\":\"#\"}", "matches no text"},
    {true, "{\"type\":\"object\",\"properties\":{\"x\":{\"$ref\":\"#\"}},\"required\":[\"x\"]}",
     "matches no text"},
    {true, "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "\"oneOf\""},
    {true, "{\"anyOf\":[]}", "\"anyOf\""},
    {true, "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "exclude each other"},
    {true, "{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "\"pattern\""},
    {true,
     "{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}},\"additionalProperties\":false}]}",
     "additionalProperties"},
    {true, "false", "matches no text"},
    {true, "3", "no object"},
    {true, "{", "the schema"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct grammar *g = NULL;
        sluice_error err = {0};
        const char *text = REFUSED[i].text;
        sluice_status status = REFUSED[i].schema ? grammar_from_schema(text, strlen(text), &g, &err)
                                                 : grammar_from_gbnf(text, strlen(text), &g, &err);
        if (status == SLUICE_OK || g || !strstr(err.detail, REFUSED[i].message))
            fail_msg("%s: status %d, \"%s\"", text, status, err.detail);
    }
}

/* `open` a great many times, a middle, and the closing: refused, not followed. */
static void check_heap(bool schema, const char *before, const char *open, size_t times, const char *middle,
                       const char *close, const char *after)
{
    struct grammar *g = NULL;
    sluice_error err = {0};
    struct str text = {0};
    assert_true(str_puts(&text, before));
    for (size_t i = 0; i < times; i++)
        assert_true(str_puts(&text, open));
    assert_true(str_puts(&text, middle));
    for (size_t i = 0; i < times; i++)
        assert_true(str_puts(&text, close));
    assert_true(str_puts(&text, after));
    sluice_status status = schema ? grammar_from_schema(text.p, text.len, &g, &err)
                                  : grammar_from_gbnf(text.p, text.len, &g, &err);
    if (status == SLUICE_OK || !err.detail[0])
        fail_msg("%s%s… is not refused", before, open);
    str_free(&text);
}

static void test_heaps(void **state)
{
    (void)state;
    check_heap(false, "root ::= ", "(", 60000, "\"a\"", ")", "");
    check_heap(true, "{\"type\":\"string\",\"pattern\":\"", "(", 60000, "a", ")", "\"}");
    check_heap(true, "{\"type\":\"string\",\"pattern\":\"", "(?:a|", 20000, "a", ")", "\"}");
    check_heap(true, "", "{\"type\":\"array\",\"items\":", 60000, "{}", "}", "");
    check_heap(true, "", "{\"anyOf\":[", 60, "{}", "]}", "");
    check_heap(true, "{\"type\":\"string\",\"pattern\":\"^", "(a|b){1,9000}", 60, "x", "", "$\"}");
}

/* ---- ambiguity is bounded where it is met ---- */

static void test_bounded_walk(void **state)
{
    (void)state;
    static const char *const GRAMMARS[] = {
        "root ::= ((\"a\"? \"a\"?){0,300}){0,300} \"b\"",
        "root ::= (\"a\" | \"a\" root \"b\"?)* \"c\"",
        "root ::= \"(\" root | \"x\"",
    };
    for (size_t i = 0; i < sizeof GRAMMARS / sizeof *GRAMMARS; i++) {
        struct grammar *g = NULL;
        struct walker *w = NULL;
        uint32_t at = 0;
        sluice_status status = grammar_from_gbnf(GRAMMARS[i], strlen(GRAMMARS[i]), &g, NULL);
        if (status == SLUICE_OK)
            status = walker_open(g, NULL, NULL, 0, &w, NULL);
        for (int k = 0; k < 20000 && status == SLUICE_OK && at != WALKER_DEAD; k++) {
            uint32_t from = k ? at : walker_start(w);
            status = walker_symbol(w, from, i == 2 ? '(' : 'a', &at, NULL);
        }
        if (w)
            assert_true(walker_memory(w) < (size_t)100 << 20);
        walker_close(w);
        grammar_close(g);
    }
}

/* ---- masks, and random walks over the demo's vocabulary ---- */

static struct tokenizer *open_tokenizer(void)
{
    struct tokenizer *t = NULL;
    char *text;
    size_t n;
    sluice_error err = {0};
    assert_int_equal(file_load("demo/dictionary-moe/tokenizer.json", (size_t)4 << 20, &text, &n, &err),
                     SLUICE_OK);
    assert_int_equal(tok_open(text, n, NULL, 0, &t, &err), SLUICE_OK);
    mem_free(text);
    return t;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Walk at random by the masks until the text ends; every mask is compared with what single tokens do. */
static void walk(struct walker *w, const struct tokenizer *t, uint64_t seed, bool compare, struct str *text)
{
    uint32_t at = walker_start(w), n_ids = tok_vocab(t);
    for (int step = 0; step < 60; step++) {
        const uint64_t *bits;
        bool any;
        assert_int_equal(walker_mask(w, at, &bits, &any, NULL), SLUICE_OK);
        uint32_t count = 0, chosen = 0, next;
        for (uint32_t id = 0; id < n_ids; id++)
            count += (uint32_t)(bits[id / 64] >> (id % 64) & 1);
        assert_int_equal(any, count > 0);
        assert_true(count > 0 || walker_accepts(w, at));
        for (uint32_t id = 0; id < n_ids && compare; id++) {
            assert_int_equal(walker_token(w, at, (int32_t)id, &next, NULL), SLUICE_OK);
            if ((next != WALKER_DEAD) != (bits[id / 64] >> (id % 64) & 1))
                fail_msg("token %u: mask and token do not agree", id);
        }
        if (count == 0 || (walker_accepts(w, at) && next_random(&seed) % 2))
            return;
        uint32_t pick = (uint32_t)(next_random(&seed) % count);
        for (uint32_t id = 0; id < n_ids; id++)
            if ((bits[id / 64] >> (id % 64) & 1) && pick-- == 0) {
                chosen = id;
                break;
            }
        size_t n;
        const char *bytes = tok_bytes(t, (int32_t)chosen, &n);
        assert_true(str_append(text, bytes, n));
        assert_int_equal(walker_token(w, at, (int32_t)chosen, &next, NULL), SLUICE_OK);
        at = next;
    }
    str_clear(text); /* not finished: nothing to check */
}

static void test_masks(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer();
    struct grammar_vocab *vocab = NULL;
    assert_int_equal(grammar_vocab_open(t, &vocab, NULL), SLUICE_OK);
    size_t finished = 0, every = scaled(1, 6);
    for (size_t i = 0; i < sizeof SCHEMAS / sizeof *SCHEMAS; i += every) {
        struct grammar *g = NULL;
        struct walker *w = NULL;
        assert_int_equal(grammar_from_schema(SCHEMAS[i].schema, strlen(SCHEMAS[i].schema), &g, NULL),
                         SLUICE_OK);
        assert_int_equal(walker_open(g, vocab, NULL, 0, &w, NULL), SLUICE_OK);
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct str text = {0};
            walk(w, t, 1 + 97 * i + seed, seed == 0, &text);
            if (text.len) {
                json_t *root = NULL;
                sluice_error err = {0};
                uint32_t end;
                assert_int_equal(walker_bytes(w, walker_start(w), text.p, text.len, &end, NULL), SLUICE_OK);
                assert_true(walker_accepts(w, end));
                /* Random keys may repeat, which our reader refuses and JSON does not. */
                if (json_parse(text.p, text.len, "the text", &root, &err) != SLUICE_OK &&
                    !strstr(err.detail, "duplicate"))
                    fail_msg("%s: [%s]: %s", SCHEMAS[i].schema, text.p, err.detail);
                json_decref(root);
                finished++;
            }
            str_free(&text);
        }
        walker_close(w);
        grammar_close(g);
    }
    assert_true(finished > scaled(40, 3));
    grammar_vocab_close(vocab);
    tok_close(t);
}

/* ---- memory ---- */

static sluice_status build_and_walk(const char *schema)
{
    struct grammar *g = NULL;
    struct walker *w = NULL;
    uint32_t at;
    sluice_error err = {0};
    sluice_status status = grammar_from_schema(schema, strlen(schema), &g, &err);
    if (status == SLUICE_OK)
        status = walker_open(g, NULL, NULL, 0, &w, &err);
    if (status == SLUICE_OK)
        status = walker_bytes(w, walker_start(w), "{\"a\": [1, {\"x\": 2}]}", 20, &at, &err);
    walker_close(w);
    grammar_close(g);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    static const char SCHEMA[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"allOf\":[{\"type\":\"array\"},"
        "{\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/v\"}}]}},\"additionalProperties\":"
        "{\"type\":\"integer\",\"minimum\":3},\"$defs\":{\"v\":{\"anyOf\":[{\"type\":"
        "\"integer\"},{\"type\":\"object\",\"required\":[\"x\"]}]}}}";
    uint64_t n = 1;
    for (bool fired = true; fired && n < 20000; n += scaled(1, 13)) {
        fault_arm(FAULT_ALLOC, n);
        sluice_status status = build_and_walk(SCHEMA);
        fired = fault_fired(FAULT_ALLOC);
        fault_arm(FAULT_ALLOC, 0);
        assert_int_equal(status, fired ? SLUICE_E_MEMORY : SLUICE_OK);
    }
    assert_true(n > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf),   cmocka_unit_test(test_schemas),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_heaps),  cmocka_unit_test(test_bounded_walk), cmocka_unit_test(test_masks),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
