/* The tokenizer against Hugging Face's results, and what only Sluice promises: trust, streams, refusals. */
#include "base/fault.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DEMO   "demo/dictionary-moe/tokenizer.json"
#define GOLDEN "tests/golden/tokenizer/"

static struct str read_file(const char *path)
{
    struct str text = {0};
    char buffer[65536];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    while ((n = fread(buffer, 1, sizeof buffer, file)) > 0)
        assert_true(str_append(&text, buffer, n));
    (void)fclose(file);
    return text;
}

static struct tokenizer *open_text(const char *json, size_t n, const char *what)
{
    struct tokenizer *t = NULL;
    sluice_error err = {0};
    if (tok_open(json, n, NULL, 0, &t, &err) != SLUICE_OK)
        fail_msg("%s: %s", what, err.detail);
    return t;
}

static struct tokenizer *open_file(const char *path)
{
    struct str json = read_file(path);
    struct tokenizer *t = open_text(json.p, json.len, path);
    str_free(&json);
    return t;
}

/* ---- goldens ---- */

static void check_ids(const struct tokenizer *t, const char *what, const json_t *text, bool special,
                      const json_t *want)
{
    struct ids ids = {0};
    sluice_error err = {0};
    const char *p = json_string_value(text);
    size_t n = json_string_length(text);
    if (tok_encode(t, p, n, NULL, special, &ids, &err) != SLUICE_OK)
        fail_msg("%s: [%s]: %s", what, p, err.detail);
    bool equal = ids.n == json_array_size(want);
    for (size_t i = 0; equal && i < ids.n; i++)
        equal = ids.v[i] == json_integer_value(json_array_get(want, i));
    if (!equal)
        fail_msg("%s: the ids of [%s] differ (%s)", what, p, special ? "special" : "plain");
    mem_free(ids.v);
}

static void check_text(const struct tokenizer *t, const char *what, const json_t *ids, bool show,
                       const json_t *want)
{
    struct tok_stream stream;
    const json_t *id;
    size_t i;
    tok_stream_open(&stream, t, show);
    json_array_foreach(ids, i, id)
        assert_int_equal(tok_stream_push(&stream, (int32_t)json_integer_value(id), NULL), SLUICE_OK);
    assert_int_equal(tok_stream_finish(&stream, NULL), SLUICE_OK);
    size_t n = json_string_length(want);
    if (stream.out.len != n || (n && memcmp(stream.out.p, json_string_value(want), n) != 0))
        fail_msg("%s: decoded [%s], not [%s]", what, stream.out.p ? stream.out.p : "",
                 json_string_value(want));
    tok_stream_close(&stream);
}

static void check_cases(const struct tokenizer *t, const char *what, const json_t *cases)
{
    const json_t *row;
    size_t i;
    assert_true(json_array_size(cases) > 10);
    json_array_foreach(cases, i, row)
    {
        const json_t *text = json_array_get(row, 0), *ids = json_array_get(row, 1);
        check_ids(t, what, text, true, ids);
        check_ids(t, what, text, false, json_array_get(row, 2));
        check_text(t, what, ids, false, json_array_get(row, 3));
        check_text(t, what, ids, true, json_array_get(row, 4));
    }
}

static void test_goldens(void **state)
{
    (void)state;
    static const char *const FILES[][2] = {{DEMO, GOLDEN "demo.cases.json"},
                                           {GOLDEN "qwen.json", GOLDEN "qwen.cases.json"},
                                           {GOLDEN "deepseek.json", GOLDEN "deepseek.cases.json"}};
    for (size_t i = 0; i < 3; i++) {
        struct tokenizer *t = open_file(FILES[i][0]);
        json_t *root = json_load_file(FILES[i][1], JSON_ALLOW_NUL, NULL);
        assert_non_null(root);
        check_cases(t, FILES[i][0], json_object_get(root, "cases"));
        json_decref(root);
        tok_close(t);
    }
}

/* Every component in some arrangement, on a small vocabulary. */
static void test_variations(void **state)
{
    (void)state;
    json_t *root = json_load_file(GOLDEN "variations.json", JSON_ALLOW_NUL, NULL), *row;
    const json_t *base = json_object_get(root, "base");
    size_t i;
    assert_true(json_array_size(json_object_get(root, "variations")) > 30);
    json_array_foreach(json_object_get(root, "variations"), i, row)
    {
        json_t *doc = json_deep_copy(base);
        assert_int_equal(json_object_update(doc, json_object_get(row, "members")), 0);
        assert_int_equal(json_object_update(json_object_get(doc, "model"), json_object_get(row, "model")), 0);
        char *json = json_dumps(doc, JSON_COMPACT);
        const char *name = json_string_value(json_object_get(row, "name"));
        struct tokenizer *t = open_text(json, strlen(json), name);
        check_cases(t, name, json_object_get(row, "cases"));
        tok_close(t);
        mem_free(json);
        json_decref(doc);
    }
    json_decref(root);
}

/* ---- a vocabulary small enough to reason about ---- */

#define SMALL_BPE(options)                                                                                   \
    "\"model\":{\"type\":\"BPE\"," options                                                                   \
    "\"vocab\":{\"<unk>\":0,\"<bos>\":1,\"<t>\":2,\"a\":3,\"b\":4,\"<\":5,\">\":6,\"t\":7,\"\\u2581\":8,"    \
    "\"ab\":9,\"<0xC3>\":10,\"<0xA9>\":11,\"<0xE2>\":12,\"t>\":13,\"aa\":14,\"[x]\":15,\"[\":16,\"x\":17,"   \
    "\"]\":18,\"x]\":19},\"merges\":[\"a b\",[\"a\",\"a\"],\"t >\",\"< t>\",\"x ]\",\"[ x]\"]}"
#define SMALL_ADDED                                                                                          \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"                                   \
    "{\"id\":1,\"content\":\"<bos>\",\"special\":true},{\"id\":2,\"content\":\"<t>\",\"special\":false},"    \
    "{\"id\":15,\"content\":\"[x]\",\"special\":false,\"normalized\":true},"                                 \
    "{\"id\":20,\"content\":\"bb\",\"special\":false}],"
#define SMALL_CHAINS                                                                                         \
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"},"          \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"        \
    "\"\\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
#define SMALL                                                                                                \
    "{" SMALL_ADDED SMALL_CHAINS SMALL_BPE(                                                                  \
        "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,") "}"

static struct tokenizer *open_small(void)
{
    return open_text(SMALL, strlen(SMALL), "small");
}

/* want: ids with spaces between. trusted: one '1' or '0' per byte, or NULL for `special` of all. */
static void check(const struct tokenizer *t, const char *text, const char *trusted, bool special,
                  const char *want)
{
    unsigned char marks[64];
    struct ids ids = {0};
    struct str got = {0};
    size_t n = strlen(text);
    for (size_t i = 0; trusted && i < n; i++)
        marks[i] = trusted[i] == '1';
    assert_int_equal(tok_encode(t, text, n, trusted ? marks : NULL, special, &ids, NULL), SLUICE_OK);
    for (size_t i = 0; i < ids.n; i++)
        assert_true(str_printf(&got, "%s%d", i ? " " : "", ids.v[i]));
    if (strcmp(got.p ? got.p : "", want) != 0)
        fail_msg("[%s] trusted [%s]: [%s], not [%s]", text, trusted ? trusted : "", got.p ? got.p : "", want);
    str_free(&got);
    mem_free(ids.v);
}

static void test_trust(void **state)
{
    (void)state;
    struct tokenizer *t = open_small();
    check(t, "a<bos>b", NULL, true, "3 1 4");
    check(t, "<t>", NULL, true, "2");
    check(t, "[x]", NULL, true, "15");
    /* Neither as an added token nor through the merges that spell one. */
    check(t, "<t>", NULL, false, "5 13");
    check(t, "[x]", NULL, false, "16 19");
    check(t, "<t>", "111", false, "2");
    check(t, "<t>", "110", true, "5 13");
    check(t, "<t><t>", "111000", false, "2 5 13");
    check(t, "[x][x]", "000111", true, "16 19 15");
    check(t, "[x]", "101", true, "16 19");
    /* Ordinary added tokens need no trust; plain text is one text whoever wrote it. */
    check(t, "abba", "0000", false, "3 20 3");
    check(t, "ab", "10", false, "9");
    check(t, "ab", "01", true, "9");
    check(t, "a [x]", "11111", false, "3 8 15");
    check(t, "[x] [x]", "0000111", true, "16 19 8 15");
    /* U+FFFD stands in for invalid bytes, with their trust. */
    check(t, "\xFF<t>\xC3", "01110", false, "0 2 0");
    assert_true(tok_is_control(t, 1) && tok_is_control(t, 2) && tok_is_control(t, 15));
    assert_false(tok_is_control(t, 20) || tok_is_control(t, 3) || tok_is_control(t, -1) ||
                 tok_is_control(t, 99));
    tok_close(t);
}

/* No text of the demo's control tokens becomes one, alone or joined. */
static void test_no_control_from_text(void **state)
{
    (void)state;
    static const char *const FILES[] = {DEMO, GOLDEN "qwen.json", GOLDEN "deepseek.json"};
    for (size_t f = 0; f < 3; f++) {
        struct tokenizer *t = open_file(FILES[f]);
        struct ids ids = {0};
        struct str all = {0};
        for (int32_t id = 0; id < (int32_t)tok_vocab(t); id++) {
            if (!tok_is_control(t, id))
                continue;
            const char *text = tok_text(t, id);
            assert_true(str_puts(&all, text) && str_puts(&all, "a"));
            assert_int_equal(tok_encode(t, text, strlen(text), NULL, false, &ids, NULL), SLUICE_OK);
            size_t before = ids.n;
            assert_int_equal(tok_encode(t, text, strlen(text), NULL, true, &ids, NULL), SLUICE_OK);
            assert_int_equal(ids.n, before + 1);
            assert_int_equal(ids.v[before], id);
            ids.n = before;
        }
        assert_true(all.len > 0);
        assert_int_equal(tok_encode(t, all.p, all.len, NULL, false, &ids, NULL), SLUICE_OK);
        for (size_t i = 0; i < ids.n; i++)
            if (tok_is_control(t, ids.v[i]))
                fail_msg("%s: text became %s", FILES[f], tok_text(t, ids.v[i]));
        mem_free(ids.v);
        str_free(&all);
        tok_close(t);
    }
}

/* ---- streams ---- */

static void stream_check(const struct tokenizer *t, bool show, const int32_t *ids, size_t n,
                         const char *const *want)
{
    struct tok_stream stream;
    tok_stream_open(&stream, t, show);
    for (size_t i = 0; i <= n; i++) {
        str_clear(&stream.out);
        assert_int_equal(i < n ? tok_stream_push(&stream, ids[i], NULL) : tok_stream_finish(&stream, NULL),
                         SLUICE_OK);
        const char *got = stream.out.p ? stream.out.p : "";
        if (strcmp(got, want[i]) != 0)
            fail_msg("after %zu tokens [%s], not [%s]", i, got, want[i]);
    }
    tok_stream_close(&stream);
}

static void test_streams(void **state)
{
    (void)state;
    struct tokenizer *t = open_small();
    static const int32_t WHOLE[] = {3, 10, 11, 8, 1, 2, 20};
    static const char *const HIDDEN[] = {"a", "", "é", " ", "", "<t>", "bb", ""};
    static const char *const SHOWN[] = {"a", "", "é", " ", "<bos>", "<t>", "bb", ""};
    stream_check(t, false, WHOLE, 7, HIDDEN);
    stream_check(t, true, WHOLE, 7, SHOWN);
    /* Incomplete, then text; alone; at the end; unknown ids. */
    static const int32_t BROKEN[] = {10, 3, 11, 12, 10, 11, 9999, -1, 12};
    static const char *const MENDED[] = {"",
                                         "\xEF\xBF\xBD"
                                         "a",
                                         "\xEF\xBF\xBD",
                                         "",
                                         "\xEF\xBF\xBD",
                                         "é",
                                         "",
                                         "",
                                         "",
                                         "\xEF\xBF\xBD"};
    stream_check(t, false, BROKEN, 9, MENDED);
    /* A hidden token inside a character does not break it. */
    static const int32_t INSIDE[] = {10, 1, 11};
    static const char *const JOINED[] = {"", "", "é", ""};
    stream_check(t, false, INSIDE, 3, JOINED);
    tok_close(t);
}

/* ---- BOS ---- */

static void check_bos(const char *post, const char *config, int32_t bos, bool adds)
{
    struct str json = {0};
    struct tokenizer *t = NULL;
    sluice_error err = {0};
    assert_true(str_printf(&json, "{%s%s%s}", post, SMALL_ADDED SMALL_CHAINS, SMALL_BPE("")));
    if (tok_open(json.p, json.len, config, config ? strlen(config) : 0, &t, &err) != SLUICE_OK)
        fail_msg("%s: %s", config ? config : "", err.detail);
    assert_int_equal(tok_bos(t), bos);
    assert_int_equal(tok_adds_bos(t), adds);
    tok_close(t);
    str_free(&json);
}

static void test_bos(void **state)
{
    (void)state;
#define TEMPLATE                                                                                             \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<bos>\","   \
    "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},"
    check_bos("", NULL, -1, false);
    check_bos("", "{\"bos_token\":\"<bos>\"}", 1, false);
    check_bos("", "{\"bos_token\":{\"content\":\"<bos>\"},\"add_bos_token\":true}", 1, true);
    check_bos(TEMPLATE, NULL, 1, true);
    check_bos(TEMPLATE, "{\"bos_token\":null,\"add_bos_token\":false}", 1, false);
    check_bos("\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]},", NULL,
              -1, false);
}

/* ---- refusals ---- */

static const struct {
    const char *json, *message;
    sluice_status status;
} REFUSED[] = {
    {"[]", "not a JSON object", SLUICE_E_FORMAT},
    {"{", "not valid JSON", SLUICE_E_FORMAT},
    {"{}", "no \"model\"", SLUICE_E_FORMAT},
    {"{\"model\":{\"type\":\"Unigram\"}}", "type \"Unigram\"", SLUICE_E_UNSUPPORTED},
    {"{\"model\":{\"dropout\":0.1}}", "\"dropout\"", SLUICE_E_UNSUPPORTED},
    {"{\"model\":{\"end_of_word_suffix\":\"</w>\"}}", "\"end_of_word_suffix\"", SLUICE_E_UNSUPPORTED},
    {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "token id -1", SLUICE_E_FORMAT},
    {"{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}", "token id 99999999", SLUICE_E_FORMAT},
    {"{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", "two tokens have the id 1", SLUICE_E_FORMAT},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"a b\"]}}", "merge 0 names a token", SLUICE_E_FORMAT},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"ab\"]}}", "merge 0 is neither", SLUICE_E_FORMAT},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"a b c\"]}}", "merge 0 is neither", SLUICE_E_FORMAT},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[],\"unk_token\":\"u\"}}", "unk_token \"u\"",
     SLUICE_E_FORMAT},
    {"{\"added_tokens\":[{\"id\":2,\"content\":\"a\"}],\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}",
     "same spelling", SLUICE_E_FORMAT},
#define WITH(part) "{" part ",\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}"
    {WITH("\"normalizer\":{\"type\":\"Precompiled\"}"), "normalizer \"Precompiled\"", SLUICE_E_UNSUPPORTED},
    {WITH("\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}"), "pre_tokenizer \"BertPreTokenizer\"",
     SLUICE_E_UNSUPPORTED},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Odd\"}"), "behavior \"Odd\"",
     SLUICE_E_UNSUPPORTED},
    {WITH("\"post_processor\":{\"type\":\"BertProcessing\"}"), "post_processor \"BertProcessing\"",
     SLUICE_E_UNSUPPORTED},
    {WITH("\"decoder\":{\"type\":\"WordPiece\"}"), "decoder \"WordPiece\"", SLUICE_E_UNSUPPORTED},
#define SPLIT(regex)                                                                                         \
    WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"" regex   \
         "\"}}")
    {SPLIT("a(?=b"), "was refused", SLUICE_E_UNSUPPORTED},
    {SPLIT("[a&&b]"), "&& in a class", SLUICE_E_UNSUPPORTED},
    {SPLIT("[a[b]]"), "a class inside a class", SLUICE_E_UNSUPPORTED},
    {SPLIT("\\\\K"), "\\K in a regular expression", SLUICE_E_UNSUPPORTED},
    {SPLIT("(a)\\\\1"), "\\1 in a regular expression", SLUICE_E_UNSUPPORTED},
    {SPLIT("(*UCP)a"), "(*…)", SLUICE_E_UNSUPPORTED},
    {SPLIT("(?i:strasse)"), "ligature", SLUICE_E_UNSUPPORTED},
    {SPLIT("a{2}+"), "modifier behind {n}", SLUICE_E_UNSUPPORTED},
    {SPLIT("\\\\p{Nonsense}"), "was refused", SLUICE_E_UNSUPPORTED},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct tokenizer *t = NULL;
        sluice_error err = {0};
        sluice_status status = tok_open(REFUSED[i].json, strlen(REFUSED[i].json), NULL, 0, &t, &err);
        if (status != REFUSED[i].status || !strstr(err.detail, REFUSED[i].message))
            fail_msg("%s: status %d, \"%s\"", REFUSED[i].json, status, err.detail);
        assert_null(t);
    }
    struct tokenizer *t = NULL;
    sluice_error err = {0};
    const char *config = "{\"bos_token\":\"<none>\",\"add_bos_token\":true}";
    assert_int_equal(tok_open(SMALL, strlen(SMALL), config, strlen(config), &t, &err), SLUICE_E_FORMAT);
    assert_non_null(strstr(err.detail, "<none>"));
}

/* A pattern that backtracks without end gives up, and says so. */
static void test_runaway_pattern(void **state)
{
    (void)state;
    static const char JSON[] = SPLIT("(?:a+)+$");
    struct tokenizer *t = open_text(JSON, sizeof JSON - 1, "runaway");
    char text[64];
    struct ids ids = {0};
    sluice_error err = {0};
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    sluice_status status = tok_encode(t, text, sizeof text, NULL, false, &ids, &err);
    assert_int_equal(status, SLUICE_E_UNSUPPORTED);
    assert_non_null(strstr(err.detail, "gave up"));
    assert_int_equal(ids.n, 0);
    mem_free(ids.v);
    tok_close(t);
}

/* Long runs end (a quadratic merge would take minutes) and are merged as short ones are. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const FILES[] = {DEMO, GOLDEN "qwen.json", GOLDEN "deepseek.json"};
    static const char *const UNITS[] = {"a", " ", "the", "\xCC\x81\xCC\xA3", "\xF0\x9F\x98\x80", "\n"};
    enum { BYTES = 300000 };
    char *text = mem_alloc(BYTES);
    assert_non_null(text);
    for (size_t f = 0; f < 3; f++) {
        struct tokenizer *t = open_file(FILES[f]);
        for (size_t u = 0; u < sizeof UNITS / sizeof *UNITS; u++) {
            size_t unit = strlen(UNITS[u]);
            for (size_t i = 0; i < BYTES; i++)
                text[i] = UNITS[u][i % unit];
            struct ids ids = {0};
            assert_int_equal(tok_encode(t, text, BYTES, NULL, false, &ids, NULL), SLUICE_OK);
            assert_true(ids.n >= BYTES / 64 / 4);
            mem_free(ids.v);
        }
        tok_close(t);
    }
    mem_free(text);
}

/* ---- memory ---- */

/* Many components at once: every allocation of opening and encoding is refused in turn. */
#define EVERYTHING                                                                                           \
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<t>\",\"special\":true,\"normalized\":true}],"               \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"},"    \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"q+\"},\"content\":\"a\"}]},"                             \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"          \
    "\"Regex\":"                                                                                             \
    "\"\\\\s+|\\\\w+\"},\"behavior\":\"Isolated\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"},"          \
    "{\"type\":\"FixedLength\",\"length\":100}]},"                                                           \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"_\"},"  \
    "\"content\":\" \"},{\"type\":\"Fuse\"}]},"                                                              \
    "\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"_\":2,\"ab\":3,\"\\u00e9\":5},\"merges\":[\"a b\"]}}"

static sluice_status whole_run(sluice_error *err)
{
    static const char TEXT[] =
        "AB e\xCC\x81\xCC\xA3 ababababababababababababababababababababababababababab qq\xFF<t>";
    static const char CONFIG[] = "{\"bos_token\":\"<t>\",\"add_bos_token\":true}";
    unsigned char trusted[sizeof TEXT];
    struct tokenizer *t = NULL;
    struct ids ids = {0};
    memset(trusted, 1, sizeof trusted);
    sluice_status status = tok_open(EVERYTHING, strlen(EVERYTHING), CONFIG, sizeof CONFIG - 1, &t, err);
    if (status == SLUICE_OK) {
        status = tok_encode(t, TEXT, sizeof TEXT - 1, trusted, false, &ids, err);
        assert_true(status != SLUICE_OK || (ids.n > 30 && ids.v[ids.n - 1] == 4));
        assert_true(status == SLUICE_OK || ids.n == 0);
    }
    if (status == SLUICE_OK) {
        struct tok_stream stream;
        tok_stream_open(&stream, t, false);
        for (size_t i = 0; i < ids.n && status == SLUICE_OK; i++)
            status = tok_stream_push(&stream, ids.v[i], err);
        if (status == SLUICE_OK)
            status = tok_stream_finish(&stream, err);
        tok_stream_close(&stream);
    }
    mem_free(ids.v);
    tok_close(t);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    size_t survived = 0;
    for (uint64_t n = 1;; n++) {
        sluice_error err = {0};
        fault_arm(FAULT_ALLOC, n);
        sluice_status status = whole_run(&err);
        bool fired = fault_fired(FAULT_ALLOC);
        fault_arm(FAULT_ALLOC, 0);
        if (!fired) {
            assert_int_equal(status, SLUICE_OK);
            break;
        }
        /* Without memory for its machine code an expression is interpreted: that is no failure. */
        if (status == SLUICE_OK)
            survived++;
        else if (status != SLUICE_E_MEMORY)
            fail_msg("allocation %u: status %d, \"%s\"", (unsigned)n, status, err.detail);
        assert_true(n < 20000);
    }
    assert_true(survived < 40);
}

int main(void)
{
    mem_hook_json();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),   cmocka_unit_test(test_variations),
        cmocka_unit_test(test_trust),     cmocka_unit_test(test_no_control_from_text),
        cmocka_unit_test(test_streams),   cmocka_unit_test(test_bos),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_runaway_pattern),
        cmocka_unit_test(test_long_runs), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
