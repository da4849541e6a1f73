#include "run/text.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "io/file.h"

#include <string.h>

#define CONFIG_BYTES_MAX   ((size_t)4 << 20)
#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)
#define MESSAGES_MAX       100000
#define GRAMMARS_BYTES     ((uint64_t)128 << 20) /* without an engine */

/* ---- open ---- */

/* An install keeps these files under tokenizer/, a snapshot beside the weights. */
static char *text_path(const char *dir, const char *name)
{
    char *inside = file_join(dir, "tokenizer");
    char *path = inside ? file_join(inside, name) : NULL;
    mem_free(inside);
    if (path && !file_exists(path)) {
        mem_free(path);
        path = file_join(dir, name);
    }
    return path;
}

static sluice_status load(const char *dir, const char *name, bool required, size_t max_bytes, char **text,
                          size_t *bytes, sluice_error *err)
{
    *text = NULL;
    *bytes = 0;
    char *path = text_path(dir, name);
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    sluice_status status = SLUICE_OK;
    if (required || file_exists(path))
        status = file_load(path, max_bytes, text, bytes, err);
    mem_free(path);
    return status;
}

/* A token in tokenizer_config.json is a string, or an object with "content". */
static sluice_status special_text(const json_t *config, const char *key, char **out, sluice_error *err)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    *out = NULL;
    if (!json_is_string(value))
        return SLUICE_OK;
    *out = mem_strdup(json_string_value(value));
    return *out ? SLUICE_OK : err_memory(err, json_string_length(value), key);
}

/* The template is a file of its own, or a member of tokenizer_config.json in older checkpoints. */
static sluice_status open_template(sluice_tokenizer *t, const char *dir, const json_t *config,
                                   sluice_error *err)
{
    char *source;
    size_t bytes;
    TRY(load(dir, "chat_template.jinja", false, TEMPLATE_BYTES_MAX, &source, &bytes, err));
    const json_t *inside = json_object_get(config, "chat_template");
    sluice_status status = SLUICE_OK;
    if (source)
        status = template_open(source, bytes, &t->chat, err);
    else if (json_is_string(inside))
        status = template_open(json_string_value(inside), json_string_length(inside), &t->chat, err);
    mem_free(source);
    return status;
}

static sluice_status open_parts(sluice_tokenizer *t, const char *dir, sluice_error *err)
{
    char *vocabulary = NULL, *config_text = NULL;
    size_t vocabulary_bytes, config_bytes;
    json_t *config = NULL;
    sluice_status status;
    TRY_OUT(load(dir, "tokenizer.json", true, TOKENIZER_JSON_BYTES_MAX, &vocabulary, &vocabulary_bytes, err));
    TRY_OUT(load(dir, "tokenizer_config.json", false, CONFIG_BYTES_MAX, &config_text, &config_bytes, err));
    TRY_OUT(tok_open(vocabulary, vocabulary_bytes, config_text, config_bytes, &t->tok, err));
    if (config_text)
        TRY_OUT(json_parse_big(config_text, config_bytes, "tokenizer_config.json", &config, err));
    TRY_OUT(special_text(config, "bos_token", &t->bos_text, err));
    TRY_OUT(special_text(config, "eos_token", &t->eos_text, err));
    TRY_OUT(open_template(t, dir, config, err));
out:
    json_decref(config);
    mem_free(vocabulary);
    mem_free(config_text);
    return status;
}

sluice_status sluice_tokenizer_open(const char *dir, sluice_tokenizer **tokenizer, sluice_error *err)
{
    *tokenizer = NULL;
    sluice_tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_memory(err, sizeof *t, "the tokenizer");
    (void)pthread_mutex_init(&t->lock, NULL);
    budget_init(&t->grammars, GRAMMARS_BYTES);
    sluice_status status = open_parts(t, dir, err);
    if (status != SLUICE_OK) {
        sluice_tokenizer_close(t);
        return status;
    }
    *tokenizer = t;
    return SLUICE_OK;
}

void sluice_tokenizer_close(sluice_tokenizer *t)
{
    if (!t)
        return;
    grammar_vocab_close(t->vocab);
    (void)pthread_mutex_destroy(&t->lock);
    tok_close(t->tok);
    template_close(t->chat);
    mem_free(t->bos_text);
    mem_free(t->eos_text);
    mem_free(t);
}

sluice_status text_vocab(sluice_tokenizer *t, const struct grammar_vocab **vocab, sluice_error *err)
{
    sluice_status status = SLUICE_OK;
    (void)pthread_mutex_lock(&t->lock);
    if (!t->vocab) {
        uint64_t bytes = grammar_vocab_bytes(tok_vocab(t->tok));
        status = budget_charge(&t->grammars, bytes, "the vocabulary of grammars", err);
        if (status == SLUICE_OK)
            status = grammar_vocab_open(t->tok, &t->vocab, err);
        if (status != SLUICE_OK && status != SLUICE_E_BUDGET)
            budget_release(&t->grammars, bytes);
    }
    *vocab = t->vocab;
    (void)pthread_mutex_unlock(&t->lock);
    return status;
}

/* ---- ids ---- */

sluice_status sluice_tokenize(const sluice_tokenizer *t, const char *text, size_t text_bytes, unsigned flags,
                              int32_t **ids, size_t *n_ids, sluice_error *err)
{
    struct ids out = {0};
    *ids = NULL;
    *n_ids = 0;
    sluice_status status = SLUICE_OK;
    if ((flags & SLUICE_TOKENIZE_BOS) && tok_bos(t->tok) >= 0) {
        out.v = mem_alloc(16 * sizeof *out.v);
        if (!out.v)
            return err_memory(err, 64, "token ids");
        out.cap = 16;
        out.v[out.n++] = tok_bos(t->tok);
    }
    status = tok_encode(t->tok, text, text_bytes, NULL, flags & SLUICE_TOKENIZE_SPECIAL, &out, err);
    if (status != SLUICE_OK) {
        mem_free(out.v);
        return status;
    }
    *ids = out.v;
    *n_ids = out.n;
    return SLUICE_OK;
}

const char *sluice_token_text(const sluice_tokenizer *t, int32_t id, bool *is_control)
{
    const char *text = tok_text(t->tok, id);
    if (is_control)
        *is_control = text && tok_is_control(t->tok, id);
    return text;
}

/* ---- streaming ---- */

struct sluice_detokenizer {
    struct tok_stream stream;
};

sluice_status sluice_detokenizer_open(const sluice_tokenizer *t, bool show_control, sluice_detokenizer **out,
                                      sluice_error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return err_memory(err, sizeof **out, "a decoder");
    tok_stream_open(&(*out)->stream, t->tok, show_control);
    return SLUICE_OK;
}

static void hand_out(sluice_detokenizer *d, const char **text, size_t *text_bytes)
{
    *text = d->stream.out.p ? d->stream.out.p : "";
    *text_bytes = d->stream.out.len;
}

sluice_status sluice_detokenizer_push(sluice_detokenizer *d, int32_t id, const char **text,
                                      size_t *text_bytes, sluice_error *err)
{
    str_clear(&d->stream.out);
    TRY(tok_stream_push(&d->stream, id, err));
    hand_out(d, text, text_bytes);
    return SLUICE_OK;
}

sluice_status sluice_detokenizer_finish(sluice_detokenizer *d, const char **text, size_t *text_bytes,
                                        sluice_error *err)
{
    str_clear(&d->stream.out);
    TRY(tok_stream_finish(&d->stream, err));
    hand_out(d, text, text_bytes);
    return SLUICE_OK;
}

void sluice_detokenizer_close(sluice_detokenizer *d)
{
    if (!d)
        return;
    tok_stream_close(&d->stream);
    mem_free(d);
}

/* ---- chat ---- */

static bool is_utf8(const char *text)
{
    size_t n = strlen(text);
    return utf8_valid_prefix(text, n) == n;
}

static json_t *variables_of(const sluice_tokenizer *t, const sluice_message *messages, size_t n,
                            bool add_generation_prompt)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *message = json_pack("{s:s, s:s}", "role", messages[i].role, "content", messages[i].content);
        if (!message || json_array_append_new(list, message) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    if (!list)
        return NULL;
    return json_pack("{s:o, s:b, s:s, s:s}", "messages", list, "add_generation_prompt",
                     (int)add_generation_prompt, "bos_token", t->bos_text ? t->bos_text : "", "eos_token",
                     t->eos_text ? t->eos_text : "");
}

sluice_status sluice_chat_encode(const sluice_tokenizer *t, const sluice_message *messages, size_t n_messages,
                                 bool add_generation_prompt, int32_t **ids, size_t *n_ids, char **text,
                                 sluice_error *err)
{
    static const char *const TRUSTED[] = {"bos_token", "eos_token", NULL};
    *ids = NULL;
    *n_ids = 0;
    if (text)
        *text = NULL;
    if (!t->chat)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "this model has no chat template; use a raw prompt (run --prompt) instead");
    mem_hook_json();
    for (size_t i = 0; i < n_messages; i++)
        if (!is_utf8(messages[i].role) || !is_utf8(messages[i].content))
            return err_set(err, SLUICE_E_ARGUMENT, "message %zu is not valid UTF-8", i + 1);
    json_t *variables = variables_of(t, messages, n_messages, add_generation_prompt);
    if (!variables)
        return err_memory(err, n_messages * sizeof *messages, "the messages");
    struct str rendered = {0}, marks = {0};
    struct ids out = {0};
    sluice_status status;
    struct template_input input = {.variables = variables, .trusted = TRUSTED};
    TRY_OUT(template_render(t->chat, &input, &rendered, &marks, err));
    TRY_OUT(tok_encode(t->tok, rendered.p ? rendered.p : "", rendered.len, (const unsigned char *)marks.p,
                       true, &out, err));
    if (text) {
        *text = str_take(&rendered);
        if (!*text)
            TRY_OUT(err_memory(err, 1, "the rendered text"));
    }
    *ids = out.v;
    *n_ids = out.n;
    out.v = NULL;
out:
    json_decref(variables);
    str_free(&rendered);
    str_free(&marks);
    mem_free(out.v);
    return status;
}

/* Copies every string behind the array, so that one sluice_free releases all. */
static sluice_status pack_messages(const json_t *list, sluice_message **out, sluice_error *err)
{
    size_t n = json_array_size(list), bytes = n * sizeof(sluice_message) + 1, i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *role, *content;
        TRY(json_need_string(item, "role", &role, "the messages", err));
        TRY(json_need_string(item, "content", &content, "the messages", err));
        bytes += strlen(role) + strlen(content) + 2;
    }
    sluice_message *messages = mem_alloc(bytes);
    if (!messages)
        return err_memory(err, bytes, "the messages");
    char *at = (char *)(messages + n);
    json_array_foreach(list, i, item)
    {
        const char *texts[2] = {json_string_value(json_object_get(item, "role")),
                                json_string_value(json_object_get(item, "content"))};
        char *copies[2];
        for (int k = 0; k < 2; k++) {
            size_t length = strlen(texts[k]) + 1;
            copies[k] = memcpy(at, texts[k], length);
            at += length;
        }
        messages[i] = (sluice_message){copies[0], copies[1]};
    }
    *out = messages;
    return SLUICE_OK;
}

sluice_status sluice_messages_parse(const char *json, size_t json_bytes, sluice_message **messages,
                                    size_t *n_messages, sluice_error *err)
{
    json_t *root;
    *messages = NULL;
    *n_messages = 0;
    TRY(json_parse(json, json_bytes, "the messages", &root, err));
    sluice_status status;
    size_t n = json_array_size(root);
    if (!json_is_array(root) || n == 0)
        status =
            err_set(err, SLUICE_E_FORMAT,
                    "the messages must be a list of {\"role\": …, \"content\": …} with at least one entry");
    else if (n > MESSAGES_MAX)
        status =
            err_set(err, SLUICE_E_FORMAT, "there are %zu messages, at most %d are accepted", n, MESSAGES_MAX);
    else
        status = pack_messages(root, messages, err);
    if (status == SLUICE_OK)
        *n_messages = n;
    json_decref(root);
    return status;
}
