/* Chats end to end on tiny models with random weights: what they write under a constraint is a random text of
 * it, so that everything behind the sampler is tried; and what they read is rendered by a template with
 * tools. */
#include "base/fault.h"
#include "base/mem.h"
#include "run/chat.h"
#include "support/run.h"

#include <sys/stat.h>

#define TURNS                                                                                                \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"   \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
#define NAMES "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}"
#define SWITCH                                                                                               \
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}"        \
    "{% else %}{{ '<think>\n' }}{% endif %}"

#define DSML                                                                                                 \
    "\xEF\xBD\x9C"                                                                                           \
    "DSML"                                                                                                   \
    "\xEF\xBD\x9C"
#define DEEPSEEK                                                                                             \
    "{% for m in messages %}{% for c in m.tool_calls or [] %}<" DSML                                         \
    "invoke name=\"{{ c.function.name }}\">{% endfor %}{% endfor %}"
#define INKLING                                                                                              \
    "{% for m in messages %}{{ '<|message_' + m.role + '|><|content_text|>' + m.content + "                  \
    "'<|end_message|>' }}{% endfor %}{% if add_generation_prompt %}<|message_model|>{% endif %}"

/* A model for each syntax; `think` models open their reasoning. The control tokens of `added`, from id 265
 * on, are no part of the source's tokenizer. */
static struct model_case {
    const char *name, *source, *template;
    bool thinks;
    const char *added[5];
    char install[PATH_BYTES];
    sluice_engine *engine;
} g_models[] = {
    {"xml",
     "tests/golden/qwen36/q4",
     NAMES "<tool_call>\n<function=NAME>\n</tool_call>{% endif %}" TURNS SWITCH "{% endif %}",
     true,
     {NULL},
     "",
     NULL},
    {"json",
     "tests/golden/qwen38/dense",
     NAMES "<tool_call>\n{\"name\": NAME}\n</tool_call>{% endif %}" TURNS "{% endif %}",
     false,
     {NULL},
     "",
     NULL},
    {"gemma",
     "tests/golden/gemma4/q4",
     NAMES "<|tool_call>call:NAME{}<tool_call|>{% endif %}" TURNS "{% endif %}",
     false,
     {NULL},
     "",
     NULL},
    {"deepseek",
     "tests/golden/qwen36/q4",
     NAMES "{% endif %}" DEEPSEEK TURNS SWITCH "{% endif %}",
     true,
     {NULL},
     "",
     NULL},
    {"inkling",
     "tests/golden/qwen36/q4",
     NAMES "<|content_invoke_tool_json|>{% endif %}" INKLING,
     false,
     {"<|message_model|>", "<|content_text|>", "<|content_thinking|>", "<|end_message|>",
      "<|content_invoke_tool_json|>"},
     "",
     NULL},
};
enum { N_MODELS = sizeof g_models / sizeof *g_models };

static char g_temp[PATH_BYTES];
static const char MESSAGES[] = "[{\"role\":\"user\",\"content\":\"hi\"}]";
static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"turn\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"way\":{\"type\":\"string\",\"enum\":[\"left\",\"right\"]},\"by\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":90}},\"required\":[\"way\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"wait\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"quiet\":{\"type\":\"boolean\"}},\"required\":["
    "\"quiet\"]}}}]";

/* ---- installs ---- */

static void copy_into(const char *source, const char *dir, const char *name)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    size_t n;
    unsigned char *data = file_load(path_join(from, source, name), &n);
    FILE *file = need(fopen(path_join(to, dir, name), "wb"));
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    free(data);
}

static void add_tokens(const struct model_case *model, const char *snapshot)
{
    char path[PATH_BYTES];
    json_t *root = need(json_load_file(path_join(path, snapshot, "tokenizer.json"), 0, NULL));
    json_t *list = json_object_get(root, "added_tokens");
    for (int i = 0; i < 5 && model->added[i]; i++)
        assert_int_equal(
            json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 265 + i,
                                                  "content", model->added[i], "special", 1, "single_word", 0,
                                                  "lstrip", 0, "rstrip", 0, "normalized", 0)),
            0);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

static void install_model(struct model_case *model, const char *root)
{
    static const char *const FILES[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char snapshot[PATH_BYTES], path[PATH_BYTES], name[64];
    (void)snprintf(name, sizeof name, "%s-snapshot", model->name);
    assert_int_equal(mkdir(path_join(snapshot, root, name), 0700), 0);
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        copy_into(model->source, snapshot, FILES[i]);
    add_tokens(model, snapshot);
    FILE *file = need(fopen(path_join(path, snapshot, "chat_template.jinja"), "wb"));
    assert_true(fputs(model->template, file) >= 0);
    assert_int_equal(fclose(file), 0);
    install_into(snapshot, root, model->name, model->install);
}

static sluice_engine *open_model(const struct model_case *model, uint64_t grammar_bytes)
{
    sluice_engine_options options = {.context_tokens = 512,
                                     .prefill_chunk_tokens = 128,
                                     .expert_slots = SLUICE_SLOTS_ALL,
                                     .threads = 1,
                                     .verification = SLUICE_VERIFY_RECEIPT,
                                     .grammar_bytes = grammar_bytes};
    if (strcmp(model->name, "json") == 0)
        options.expert_slots = 0;
    return engine_open(model->install, &options);
}

static int setup(void **state)
{
    (void)state;
    temp_make(g_temp);
    for (size_t i = 0; i < N_MODELS; i++) {
        install_model(&g_models[i], g_temp);
        g_models[i].engine = open_model(&g_models[i], 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++)
        sluice_engine_close(g_models[i].engine);
    temp_remove(g_temp);
    return 0;
}

/* ---- one answer, put together from its deltas ---- */

enum { CALLS_SEEN = 16 };

struct seen {
    struct str content, reasoning, malformed, text;
    struct {
        char id[40], name[65];
        struct str arguments;
        bool ended;
    } calls[CALLS_SEEN];
    uint32_t n_calls, reasoning_tokens, n_voided;
    bool endless; /* to be: the model's ends of a turn are passed over, and its likings count little */
};

static void seen_free(struct seen *seen)
{
    str_free(&seen->content);
    str_free(&seen->reasoning);
    str_free(&seen->malformed);
    str_free(&seen->text);
    for (size_t i = 0; i < CALLS_SEEN; i++)
        str_free(&seen->calls[i].arguments);
    memset(seen, 0, sizeof *seen);
}

/* The order that sluice.h promises: calls one after another, each begun, filled and ended. */
static void see(struct seen *seen, const sluice_delta *d)
{
    switch (d->kind) {
    case SLUICE_DELTA_CONTENT:
        assert_true(str_append(&seen->content, d->text, d->text_bytes));
        return;
    case SLUICE_DELTA_REASONING:
        assert_true(str_append(&seen->reasoning, d->text, d->text_bytes));
        return;
    case SLUICE_DELTA_MALFORMED:
        seen->n_voided += d->call != SLUICE_CALL_NONE;
        assert_true(str_append(&seen->malformed, d->text, d->text_bytes));
        return;
    case SLUICE_DELTA_CALL:
        assert_int_equal(d->call, seen->n_calls);
        assert_true(seen->n_calls < CALLS_SEEN);
        (void)snprintf(seen->calls[d->call].id, 40, "%s", d->id);
        (void)snprintf(seen->calls[d->call].name, 65, "%s", d->name);
        seen->n_calls++;
        return;
    case SLUICE_DELTA_ARGUMENTS:
    case SLUICE_DELTA_CALL_END:
        assert_int_equal(d->call + 1, seen->n_calls);
        assert_false(seen->calls[d->call].ended);
        seen->calls[d->call].ended = d->kind == SLUICE_DELTA_CALL_END;
        assert_true(str_append(&seen->calls[d->call].arguments, d->text, d->text_bytes));
        return;
    }
}

static bool on_piece(void *user, const sluice_piece *piece)
{
    struct seen *seen = user;
    size_t before = seen->reasoning.len;
    assert_true(str_append(&seen->text, piece->text, piece->text_bytes));
    for (size_t i = 0; i < piece->n_deltas; i++)
        see(seen, &piece->deltas[i]);
    seen->reasoning_tokens += seen->reasoning.len > before;
    return true;
}

static sluice_chat_request request(void)
{
    return (sluice_chat_request){.messages = MESSAGES, .messages_bytes = sizeof MESSAGES - 1};
}

static sluice_chat_request request_tools(const char *choice)
{
    sluice_chat_request r = request();
    r.tools = TOOLS;
    r.tools_bytes = sizeof TOOLS - 1;
    r.tool_choice = choice;
    return r;
}

static sluice_status generate(sluice_engine *engine, const sluice_chat_request *r, uint64_t seed,
                              uint32_t max_tokens, struct seen *seen, sluice_generated *result,
                              sluice_error *err)
{
    sluice_chat *chat = NULL;
    sluice_session *session = NULL;
    sluice_generate_options options = {
        .sampling = {.temperature = seen && seen->endless ? 10 : 1, .seed = seed},
        .max_tokens = max_tokens,
        .ignore_stop_ids = seen && seen->endless};
    size_t n;
    sluice_status status = sluice_session_open(engine, &session, err);
    if (status == SLUICE_OK)
        status = sluice_chat_open(sluice_engine_tokenizer(engine), r, &chat, err);
    if (status == SLUICE_OK) {
        const int32_t *ids = sluice_chat_ids(chat, &n);
        status = sluice_session_prefill(session, ids, n, err);
    }
    options.chat = chat;
    if (status == SLUICE_OK)
        status = sluice_generate(session, &options, seen ? on_piece : NULL, seen, result, err);
    sluice_chat_close(chat);
    sluice_session_close(session);
    return status;
}

static sluice_generated answer(sluice_engine *engine, const sluice_chat_request *r, uint64_t seed,
                               uint32_t max_tokens, struct seen *seen)
{
    sluice_generated result;
    sluice_error err = {0};
    EXPECT_OK(generate(engine, r, seed, max_tokens, seen, &result, &err));
    return result;
}

static json_t *parse(const struct str *text)
{
    json_error_t error;
    json_t *value =
        json_loadb(text->p ? text->p : "", text->len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!value)
        fail_msg("[%s] is no JSON: %s", text->p ? text->p : "", error.text);
    return value;
}

static unsigned rounds(unsigned full)
{
    return getenv("SLUICE_TEST_SHORT") ? (full + 7) / 8 : full;
}

/* ---- calls ---- */

static void check_call(const struct seen *seen, uint32_t i)
{
    json_t *arguments = parse(&seen->calls[i].arguments);
    bool turn = strcmp(seen->calls[i].name, "turn") == 0;
    assert_true(turn || strcmp(seen->calls[i].name, "wait") == 0);
    if (turn) {
        const char *way = json_string_value(json_object_get(arguments, "way"));
        const json_t *by = json_object_get(arguments, "by");
        assert_true(way && (strcmp(way, "left") == 0 || strcmp(way, "right") == 0));
        assert_true(!by || (json_integer_value(by) >= 1 && json_integer_value(by) <= 90));
    } else {
        assert_true(json_is_boolean(json_object_get(arguments, "quiet")));
    }
    json_decref(arguments);
}

static void check_calls(const struct seen *seen, sluice_finish finish)
{
    assert_int_equal(seen->malformed.len, 0);
    assert_int_equal(seen->content.len, 0);
    if (finish != SLUICE_FINISH_TOOL_CALLS) {
        assert_int_equal(finish, SLUICE_FINISH_LENGTH);
        return;
    }
    assert_true(seen->n_calls > 0);
    for (uint32_t i = 0; i < seen->n_calls; i++) {
        assert_true(seen->calls[i].ended);
        check_call(seen, i);
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(seen->calls[i].id, seen->calls[k].id);
    }
}

static void required_calls_come(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        unsigned ended = 0;
        for (uint64_t seed = 1; seed <= rounds(24); seed++) {
            sluice_chat_request r = request_tools("required");
            r.thinking = g_models[m].thinks ? SLUICE_THINKING_OFF : SLUICE_THINKING_DEFAULT;
            struct seen seen = {0};
            sluice_generated result = answer(g_models[m].engine, &r, seed, 250, &seen);
            check_calls(&seen, result.finish);
            ended += result.finish == SLUICE_FINISH_TOOL_CALLS;
            seen_free(&seen);
        }
        if (ended < rounds(24) / 3)
            fail_msg("%s: %u ended", g_models[m].name, ended);
    }
}

/* A model that does not end its turn goes on to the next call, unless one alone was asked for. */
static void several_calls_come(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        bool section = strcmp(g_models[m].name, "deepseek") == 0, several = false;
        for (uint64_t seed = 1; seed <= rounds(8); seed++) {
            sluice_chat_request r = request_tools("required");
            r.thinking = g_models[m].thinks ? SLUICE_THINKING_OFF : SLUICE_THINKING_DEFAULT;
            struct seen seen = {.endless = true};
            sluice_generated result = answer(g_models[m].engine, &r, seed, section ? 400 : 250, &seen);
            if (section) /* it has an end of its own */
                check_calls(&seen, result.finish);
            else
                assert_int_equal(result.finish, SLUICE_FINISH_LENGTH);
            assert_true(seen.n_calls >= (section ? 1 : 2));
            several |= seen.n_calls > 1;
            for (uint32_t i = 0; i + 1 < seen.n_calls; i++) {
                assert_true(seen.calls[i].ended);
                check_call(&seen, i);
                assert_string_not_equal(seen.calls[i].id, seen.calls[i + 1].id);
            }
            seen_free(&seen);
            seen.endless = r.one_call = true;
            result = answer(g_models[m].engine, &r, seed, 250, &seen);
            check_calls(&seen, result.finish);
            assert_true(seen.n_calls == 1);
            seen_free(&seen);
        }
        if (!several && !getenv("SLUICE_TEST_SHORT"))
            fail_msg("%s: never more than one", g_models[m].name);
    }
}

static void a_named_call_comes_alone(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++)
        for (uint64_t seed = 1; seed <= rounds(8); seed++) {
            sluice_chat_request r = request_tools("wait");
            r.thinking = g_models[m].thinks ? SLUICE_THINKING_OFF : SLUICE_THINKING_DEFAULT;
            struct seen seen = {0};
            sluice_generated result = answer(g_models[m].engine, &r, seed, 250, &seen);
            check_calls(&seen, result.finish);
            assert_int_equal(result.finish, SLUICE_FINISH_TOOL_CALLS);
            assert_int_equal(seen.n_calls, 1);
            assert_string_equal(seen.calls[0].name, "wait");
            seen_free(&seen);
        }
}

/* A limit inside a call: it began, and never ends. */
static void a_cut_call_does_not_end(void **state)
{
    (void)state;
    struct seen seen = {0};
    sluice_chat_request r = request_tools("turn");
    sluice_generated result = answer(g_models[2].engine, &r, 3, 24, &seen);
    assert_int_equal(result.finish, SLUICE_FINISH_LENGTH);
    assert_int_equal(seen.n_calls, 1);
    assert_false(seen.calls[0].ended);
    assert_int_equal(seen.malformed.len, 0);
    assert_true(seen.calls[0].arguments.len > 0);
    seen_free(&seen);
}

/* Texts that no constraint shaped, through the chat as a generation feeds it. */
static void wrong_calls_fail_closed(void **state)
{
    (void)state;
    static const struct {
        enum { JSON = 1, DEEPSEEK_MODEL = 3, INKLING_MODEL = 4 } model;
        const char *text;
        uint32_t n_calls, n_ended, n_voided;
        sluice_finish finish;
        const char *malformed;
    } ROWS[] = {
        {JSON, "<tool_call>{\"name\":\"wait\",\"arguments\":{\"quiet\":true}}</tool_call>", 1, 1, 0,
         SLUICE_FINISH_TOOL_CALLS, ""},
        {JSON, "<tool_call>{\"name\":\"wait\",\"arguments\":{\"quiet\":tru}}</tool_call>", 1, 0, 1,
         SLUICE_FINISH_MALFORMED_CALL, "{\"name\":\"wait\",\"arguments\":{\"quiet\":tru}}"},
        {JSON, "<tool_call>{\"name\":\"fly\",\"arguments\":{}}</tool_call>", 0, 0, 0,
         SLUICE_FINISH_MALFORMED_CALL, "{\"name\":\"fly\",\"arguments\":{}}"},
        {JSON, "<tool_call>{\"name\":\"wait\",\"arguments\":{}}</tool_call><tool_call>x", 1, 1, 0,
         SLUICE_FINISH_MALFORMED_CALL, "x"},
        {JSON, "No call.", 0, 0, 0, SLUICE_FINISH_STOP, ""},
        {DEEPSEEK_MODEL,
         "A</think>B\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"wait\">\n<" DSML
         "parameter name=\"quiet\" string=\"false\">true</" DSML "parameter>\n</" DSML "invoke>\n</" DSML
         "tool_calls>",
         1, 1, 0, SLUICE_FINISH_TOOL_CALLS, ""},
        {DEEPSEEK_MODEL, "<" DSML "tool_calls><" DSML "invoke name=\"wait\">tru</" DSML "tool_calls>", 1, 0,
         1, SLUICE_FINISH_MALFORMED_CALL, "<" DSML "invoke name=\"wait\">tru"},
        {INKLING_MODEL,
         "<|content_thinking|>A<|end_message|><|message_model|>wait<|content_invoke_tool_json|>{\"name\":"
         "\"wait\",\"args\":{\"quiet\":true}}<|end_message|>",
         1, 1, 0, SLUICE_FINISH_TOOL_CALLS, ""},
        {INKLING_MODEL, "wait<|content_invoke_tool_json|>{\"name\":\"wait\",\"args\":1}<|end_message|>", 1, 0,
         1, SLUICE_FINISH_MALFORMED_CALL, "{\"name\":\"wait\",\"args\":1}"},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        sluice_chat_request r = request_tools(NULL);
        sluice_chat *chat;
        struct seen seen = {0};
        const sluice_delta *deltas;
        size_t n;
        uint32_t ended = 0;
        sluice_error err;
        EXPECT_OK(sluice_chat_open(sluice_engine_tokenizer(g_models[ROWS[i].model].engine), &r, &chat, &err));
        for (const char *at = ROWS[i].text; *at; at++) {
            EXPECT_OK(chat_feed(chat, at, 1, &err));
            EXPECT_OK(chat_deltas(chat, &deltas, &n, &err));
            for (size_t k = 0; k < n; k++)
                see(&seen, &deltas[k]);
        }
        EXPECT_OK(chat_finish(chat, false, &err));
        EXPECT_OK(chat_deltas(chat, &deltas, &n, &err));
        for (size_t k = 0; k < n; k++)
            see(&seen, &deltas[k]);
        for (uint32_t k = 0; k < seen.n_calls; k++)
            ended += seen.calls[k].ended;
        assert_int_equal(chat_finish_reason(chat, SLUICE_FINISH_STOP), ROWS[i].finish);
        assert_int_equal(chat_finish_reason(chat, SLUICE_FINISH_LENGTH), SLUICE_FINISH_LENGTH);
        assert_int_equal(seen.n_calls, ROWS[i].n_calls);
        assert_int_equal(ended, ROWS[i].n_ended);
        assert_int_equal(seen.n_voided, ROWS[i].n_voided);
        assert_string_equal(seen.malformed.p ? seen.malformed.p : "", ROWS[i].malformed);
        seen_free(&seen);
        sluice_chat_close(chat);
    }
}

/* Parts of arguments are bounded, end between characters, and are all of them together. */
static void long_arguments_come_in_parts(void **state)
{
    (void)state;
    static const char SHEN[] = "\xE7\xA5\x9E";
    sluice_chat_request r = request_tools(NULL);
    sluice_chat *chat;
    struct str text = {0}, all = {0};
    const sluice_delta *deltas;
    size_t n, parts = 0;
    sluice_error err;
    EXPECT_OK(sluice_chat_open(sluice_engine_tokenizer(g_models[1].engine), &r, &chat, &err));
    assert_true(str_puts(&text, "<tool_call>{\"name\":\"wait\",\"arguments\":{\"note\":\""));
    for (int i = 0; i < 2000; i++)
        assert_true(str_puts(&text, SHEN));
    assert_true(str_puts(&text, "\"}}</tool_call>"));
    EXPECT_OK(chat_feed(chat, text.p, text.len, &err));
    EXPECT_OK(chat_deltas(chat, &deltas, &n, &err));
    for (size_t i = 0; i < n; i++) {
        if (deltas[i].kind != SLUICE_DELTA_ARGUMENTS)
            continue;
        parts++;
        assert_true(deltas[i].text_bytes <= 1024);
        assert_true(((unsigned char)deltas[i].text[0] & 0xC0) != 0x80);
        assert_true(str_append(&all, deltas[i].text, deltas[i].text_bytes));
    }
    assert_true(parts >= 6);
    assert_int_equal(all.len, 2000 * 3 + strlen("{\"note\":\"\"}"));
    str_free(&text);
    str_free(&all);
    sluice_chat_close(chat);
}

/* ---- shapes ---- */

static void json_answers_parse(void **state)
{
    (void)state;
    static const char SCHEMA[] =
        "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":99},"
        "\"c\":{"
        "\"enum\":[\"red\",\"blue\"]}},\"required\":[\"n\",\"c\"],\"additionalProperties\":false}";
    for (size_t m = 0; m < N_MODELS; m++) {
        for (uint64_t seed = 1; seed <= rounds(16); seed++) {
            sluice_chat_request r = request();
            bool schema = seed % 2;
            r.format = schema ? SLUICE_FORMAT_SCHEMA : SLUICE_FORMAT_JSON;
            r.shape = schema ? SCHEMA : NULL;
            r.shape_bytes = schema ? sizeof SCHEMA - 1 : 0;
            r.thinking = g_models[m].thinks ? SLUICE_THINKING_OFF : SLUICE_THINKING_DEFAULT;
            struct seen seen = {0};
            sluice_generated result = answer(g_models[m].engine, &r, seed, 120, &seen);
            if (schema)
                assert_int_equal(result.finish, SLUICE_FINISH_STOP);
            if (result.finish == SLUICE_FINISH_STOP) {
                json_t *value = parse(&seen.content);
                assert_true(json_is_object(value));
                if (schema)
                    assert_in_range(json_integer_value(json_object_get(value, "n")), 0, 99);
                json_decref(value);
            } else {
                assert_int_equal(result.finish, SLUICE_FINISH_LENGTH);
            }
            seen_free(&seen);
            /* A limit inside the object is told as one. */
            result = answer(g_models[m].engine, &r, seed, 3, &seen);
            if (schema)
                assert_int_equal(result.finish, SLUICE_FINISH_LENGTH);
            seen_free(&seen);
        }
    }
}

/* ---- reasoning ---- */

static void reasoning_has_a_switch_and_a_budget(void **state)
{
    (void)state;
    static const char SCHEMA[] = "{\"enum\":[\"yes\",\"no\"]}";
    sluice_engine *engine = g_models[0].engine;
    for (uint64_t seed = 1; seed <= rounds(8); seed++) {
        sluice_chat_request r = request();
        r.thinking = SLUICE_THINKING_ON;
        r.thinking_tokens = 5;
        r.format = SLUICE_FORMAT_SCHEMA;
        r.shape = SCHEMA;
        r.shape_bytes = sizeof SCHEMA - 1;
        struct seen seen = {0};
        sluice_generated result = answer(engine, &r, seed, 64, &seen);
        assert_int_equal(result.finish, SLUICE_FINISH_STOP);
        assert_true(seen.reasoning_tokens <=
                    6); /* the last may be the end of a character that began in time */
        assert_null(seen.reasoning.p ? strstr(seen.reasoning.p, "</think>") : NULL);
        assert_true(strcmp(seen.content.p, "\"yes\"") == 0 || strcmp(seen.content.p, "\"no\"") == 0);
        seen_free(&seen);
    }
    size_t n;
    for (int on = 0; on < 2; on++) {
        sluice_chat *chat;
        sluice_error err;
        sluice_chat_request r = request();
        r.thinking = on ? SLUICE_THINKING_ON : SLUICE_THINKING_OFF;
        EXPECT_OK(sluice_chat_open(sluice_engine_tokenizer(engine), &r, &chat, &err));
        const char *text = sluice_chat_text(chat, &n), *end = on ? "assistant\n<think>\n" : "</think>\n\n";
        assert_true(n > strlen(end) && memcmp(text + n - strlen(end), end, strlen(end)) == 0);
        assert_int_equal(chat->reasoning, on);
        sluice_chat_close(chat);
    }
}

/* ---- refusals ---- */

static void refused(sluice_engine *engine, const sluice_chat_request *r, sluice_status wanted,
                    const char *words)
{
    sluice_chat *chat;
    sluice_error err = {0};
    assert_int_equal(sluice_chat_open(sluice_engine_tokenizer(engine), r, &chat, &err), wanted);
    assert_null(chat);
    if (!strstr(err.detail, words))
        fail_msg("\"%s\" does not contain \"%s\"", err.detail, words);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    sluice_engine *engine = g_models[1].engine;
    sluice_chat_request r = request();
    r.tool_choice = "required";
    refused(engine, &r, SLUICE_E_ARGUMENT, "there are no tools");
    r = request_tools("fly");
    refused(engine, &r, SLUICE_E_ARGUMENT, "\"fly\", which is none of the tools");
    r = request();
    r.thinking = SLUICE_THINKING_ON;
    refused(engine, &r, SLUICE_E_UNSUPPORTED, "no switch for thinking");
    r = request();
    r.format = SLUICE_FORMAT_SCHEMA;
    r.shape = "{\"contains\": {}}";
    r.shape_bytes = strlen(r.shape);
    refused(engine, &r, SLUICE_E_UNSUPPORTED, "contains");
    r = request();
    r.messages = "[{\"role\":\"user\"}]";
    r.messages_bytes = strlen(r.messages);
    refused(engine, &r, SLUICE_E_FORMAT, "message 1 has no content");
}

/* ---- memory ---- */

static uint64_t used(const sluice_engine *engine)
{
    return atomic_load(&sluice_engine_tokenizer(engine)->grammars.used_bytes);
}

static void grammars_stay_within_their_plan(void **state)
{
    (void)state;
    static const char LONG[] = "{\"type\":\"string\",\"maxLength\":9000}",
                      SMALL[] =
                          "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{"
                          "\"type\":\"integer\"},\"b\":{\"type\":\"string\"}},\"required\":[\"a\",\"b\"]}}";
    struct seen wide = {0}, tight = {0};
    sluice_chat_request r = request();
    sluice_error err = {0};
    r.format = SLUICE_FORMAT_SCHEMA;
    r.shape = LONG;
    r.shape_bytes = sizeof LONG - 1;
    sluice_engine *engine = open_model(&g_models[2], 224 << 10);
    const sluice_plan *plan = sluice_engine_plan(engine);
    assert_true(plan->grammar_bytes >= 224 << 10 && plan->grammar_bytes < 256 << 10);
    refused(engine, &r, SLUICE_E_BUDGET, "--grammar-memory");
    assert_int_equal(used(engine), 0);
    r.shape = SMALL;
    r.shape_bytes = sizeof SMALL - 1;
    /* Where little is set aside, more is worked out again, and the answer is the same. */
    for (uint64_t seed = 1; seed <= rounds(4); seed++) {
        (void)answer(g_models[2].engine, &r, seed, 200, &wide);
        (void)answer(engine, &r, seed, 200, &tight);
        assert_string_equal(wide.text.p, tight.text.p);
        assert_true(atomic_load(&sluice_engine_tokenizer(engine)->grammars.peak_bytes) <=
                    plan->grammar_bytes);
        seen_free(&wide);
        seen_free(&tight);
    }
    uint64_t vocabulary = used(engine);
    sluice_constraint *constraint;
    EXPECT_OK(sluice_constraint_open(sluice_engine_tokenizer(engine), SLUICE_FORMAT_JSON, NULL, 0,
                                     &constraint, &err));
    assert_true(used(engine) > vocabulary);
    sluice_constraint_close(constraint);
    assert_int_equal(used(engine), vocabulary);
    sluice_engine_close(engine);
}

static void every_refused_allocation_is_told(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m += 2) { /* one of the element syntaxes is enough */
        sluice_chat_request r = request_tools("required");
        r.thinking = g_models[m].thinks ? SLUICE_THINKING_ON : SLUICE_THINKING_DEFAULT;
        r.thinking_tokens = g_models[m].thinks ? 3 : 0;
        for (uint64_t n = 1;; n += 1 + n / rounds(64)) {
            sluice_generated result;
            sluice_error err = {0};
            fault_arm(FAULT_ALLOC, n);
            sluice_status status = generate(g_models[m].engine, &r, 1, 40, NULL, &result, &err);
            bool fired = fault_fired(FAULT_ALLOC);
            fault_arm(FAULT_ALLOC, 0);
            if (!fired) {
                assert_int_equal(status, SLUICE_OK);
                break;
            }
            if (status != SLUICE_E_MEMORY || !err.detail[0])
                fail_msg("%s, allocation %u: %s, \"%s\"", g_models[m].name, (unsigned)n,
                         sluice_status_text(status), err.detail);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(required_calls_come),
        cmocka_unit_test(several_calls_come),
        cmocka_unit_test(a_named_call_comes_alone),
        cmocka_unit_test(a_cut_call_does_not_end),
        cmocka_unit_test(wrong_calls_fail_closed),
        cmocka_unit_test(long_arguments_come_in_parts),
        cmocka_unit_test(json_answers_parse),
        cmocka_unit_test(reasoning_has_a_switch_and_a_budget),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(grammars_stay_within_their_plan),
        cmocka_unit_test(every_refused_allocation_is_told),
    };
    mem_hook_json();
    return cmocka_run_group_tests(tests, setup, teardown);
}
