/* The bodies of calls: what stands between a family's marks. */
#include "text/calls.h"

#include "base/ascii.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

struct body {
    const char *p;
    size_t n, at;
    sluice_error *err;
};

static sluice_status wrong(struct body *b, const char *what)
{
    return err_set(b->err, SLUICE_E_FORMAT, "a tool call is malformed: %s", what);
}

static bool skip(struct body *b, const char *text)
{
    size_t n = strlen(text);
    if (b->n - b->at < n || memcmp(b->p + b->at, text, n) != 0)
        return false;
    b->at += n;
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void space(struct body *b)
{
    while (b->at < b->n && is_space(b->p[b->at]))
        b->at++;
}

/* Text up to `end`, which is passed. */
static bool until(struct body *b, const char *end, const char **text, size_t *n)
{
    const char *hit = memmem(b->p + b->at, b->n - b->at, end, strlen(end));
    if (!hit)
        return false;
    *text = b->p + b->at;
    *n = (size_t)(hit - *text);
    b->at += *n + strlen(end);
    return true;
}

/* One line end at each side belongs to the layout. */
static void peel(const char **text, size_t *n)
{
    if (*n && **text == '\n') {
        ++*text;
        --*n;
    }
    if (*n && (*text)[*n - 1] == '\n')
        --*n;
}

static void trim(const char **text, size_t *n)
{
    while (*n && is_space(**text)) {
        ++*text;
        --*n;
    }
    while (*n && is_space((*text)[*n - 1]))
        --*n;
}

/* Set a member once. Takes the value over. */
static sluice_status set_once(struct body *b, json_t *object, const char *key, size_t n, json_t *value)
{
    char *name = mem_strndup(key, n);
    sluice_status status = SLUICE_OK;
    if (name && value && object && !json_object_get(object, name) && !memchr(key, '\0', n) &&
        utf8_valid_prefix(key, n) == n)
        status = json_object_set(object, name, value) == 0 ? SLUICE_OK : SLUICE_E_MEMORY;
    else if (name && value && object)
        status = wrong(b, "a key comes twice, or is not text");
    else
        status = SLUICE_E_MEMORY;
    if (status == SLUICE_E_MEMORY)
        status = err_memory(b->err, n, "a tool call");
    json_decref(value);
    mem_free(name);
    return status;
}

/* ---- <tool_call>: <function=…>, JSON, or name and <arg_key>s ---- */

static sluice_status typed_member(struct body *b, json_t *object, const json_t *tools, const char *function,
                                  size_t function_bytes, const char *key, size_t key_bytes, const char *value,
                                  size_t n)
{
    char *name = mem_strndup(key, key_bytes);
    if (!name)
        return err_memory(b->err, key_bytes, "a tool call");
    json_t *typed =
        utf8_valid_prefix(value, n) == n ? call_typed(tools, function, function_bytes, name, value, n) : NULL;
    mem_free(name);
    if (!typed && utf8_valid_prefix(value, n) != n)
        return wrong(b, "a value is not UTF-8");
    return set_once(b, object, key, key_bytes, typed);
}

static sluice_status xml_parameters(struct body *b, const char *function, size_t n, const json_t *tools,
                                    json_t *arguments)
{
    for (;;) {
        const char *key, *value;
        size_t key_bytes, bytes;
        space(b);
        if (skip(b, "</function>"))
            return SLUICE_OK;
        if (!skip(b, "<parameter=") || !until(b, ">", &key, &key_bytes) ||
            !until(b, "</parameter>", &value, &bytes))
            return wrong(b, "<parameter=…> or </function> is expected");
        peel(&value, &bytes);
        TRY(typed_member(b, arguments, tools, function, n, key, key_bytes, value, bytes));
    }
}

static sluice_status read_xml(struct body *b, const json_t *tools, json_t *list)
{
    const char *name;
    size_t n;
    json_t *arguments = json_object();
    sluice_status status = arguments ? SLUICE_OK : err_memory(b->err, 0, "a tool call");
    if (status == SLUICE_OK && !until(b, ">", &name, &n))
        status = wrong(b, "<function=…> is not closed");
    if (status == SLUICE_OK)
        status = xml_parameters(b, name, n, tools, arguments);
    if (status == SLUICE_OK) {
        space(b);
        if (b->at == b->n)
            return call_add(list, name, n, arguments, tools, b->err);
        status = wrong(b, "something stands behind </function>");
    }
    json_decref(arguments);
    return status;
}

static sluice_status read_json(struct body *b, const char *arguments_key, const json_t *tools, json_t *list)
{
    json_t *root = NULL;
    const char *name;
    TRY(json_parse(b->p + b->at, b->n - b->at, "a tool call", &root, b->err));
    sluice_status status = json_need_string(root, "name", &name, "a tool call", b->err);
    json_t *arguments = json_object_get(root, arguments_key);
    if (status == SLUICE_OK && !arguments)
        status = wrong(b, "it has no arguments");
    if (status == SLUICE_OK && json_is_string(arguments)) { /* arguments as text, as OpenAI writes them */
        json_t *inner = NULL;
        status = json_parse(json_string_value(arguments), json_string_length(arguments), "a tool call",
                            &inner, b->err);
        if (status == SLUICE_OK)
            status = call_add(list, name, strlen(name), inner, tools, b->err);
    } else if (status == SLUICE_OK) {
        status = call_add(list, name, strlen(name), json_incref(arguments), tools, b->err);
    }
    json_decref(root);
    return status;
}

static sluice_status read_arg_keys(struct body *b, const json_t *tools, json_t *list)
{
    const char *key_at = memmem(b->p, b->n, "<arg_key>", 9), *name = b->p, *key, *value;
    size_t n = key_at ? (size_t)(key_at - b->p) : b->n, key_bytes, bytes;
    json_t *arguments = json_object();
    sluice_status status = arguments ? SLUICE_OK : err_memory(b->err, 0, "a tool call");
    b->at = n;
    trim(&name, &n);
    for (space(b); status == SLUICE_OK && b->at < b->n; space(b)) {
        if (!skip(b, "<arg_key>") || !until(b, "</arg_key>", &key, &key_bytes)) {
            status = wrong(b, "<arg_key> is expected");
            break;
        }
        space(b);
        if (!skip(b, "<arg_value>") || !until(b, "</arg_value>", &value, &bytes))
            status = wrong(b, "<arg_value> is expected");
        else
            status = typed_member(b, arguments, tools, name, n, key, key_bytes, value, bytes);
    }
    if (status == SLUICE_OK)
        return call_add(list, name, n, arguments, tools, b->err);
    json_decref(arguments);
    return status;
}

sluice_status call_read_tagged(const char *body, size_t n, const json_t *tools, json_t *list,
                               sluice_error *err)
{
    trim(&body, &n);
    struct body b = {body, n, 0, err};
    if (skip(&b, "<function="))
        return read_xml(&b, tools, list);
    if (n && body[0] == '{')
        return read_json(&b, "arguments", tools, list);
    return read_arg_keys(&b, tools, list);
}

sluice_status call_read_inkling(const char *body, size_t n, const json_t *tools, json_t *list,
                                sluice_error *err)
{
    struct body b = {body, n, 0, err};
    return read_json(&b, "args", tools, list);
}

/* ---- DSML: a section of invocations ---- */

#define DSML                                                                                                 \
    "\xEF\xBD\x9C"                                                                                           \
    "DSML"                                                                                                   \
    "\xEF\xBD\x9C"

static sluice_status dsml_parameters(struct body *b, json_t *arguments)
{
    for (;;) {
        const char *key, *value;
        size_t key_bytes, n;
        json_t *read = NULL;
        space(b);
        if (skip(b, "</" DSML "invoke>"))
            return SLUICE_OK;
        if (!skip(b, "<" DSML "parameter name=\"") || !until(b, "\"", &key, &key_bytes))
            return wrong(b, "a parameter is expected");
        bool text = skip(b, " string=\"true\">");
        if (!text && !skip(b, " string=\"false\">"))
            return wrong(b, "a parameter does not say whether it is a string");
        if (!until(b, "</" DSML "parameter>", &value, &n))
            return wrong(b, "a parameter is not closed");
        if (utf8_valid_prefix(value, n) != n)
            return wrong(b, "a value is not UTF-8");
        if (text)
            read = json_stringn(value, n);
        else
            TRY(json_parse(value, n, "a parameter", &read, b->err));
        TRY(set_once(b, arguments, key, key_bytes, read));
    }
}

sluice_status call_read_dsml(const char *body, size_t n, const json_t *tools, json_t *list, sluice_error *err)
{
    struct body b = {body, n, 0, err};
    for (space(&b); b.at < b.n; space(&b)) {
        const char *name;
        size_t name_bytes;
        if (!skip(&b, "<" DSML "invoke name=\"") || !until(&b, "\">", &name, &name_bytes))
            return wrong(&b, "an invocation is expected");
        json_t *arguments = json_object();
        sluice_status status = arguments ? dsml_parameters(&b, arguments) : err_memory(err, 0, "a tool call");
        if (status != SLUICE_OK) {
            json_decref(arguments);
            return status;
        }
        TRY(call_add(list, name, name_bytes, arguments, tools, err));
    }
    return SLUICE_OK;
}

/* ---- Gemma: call:NAME{key:value,…} ---- */

enum { GEMMA_DEPTH_MAX = 64 };
#define QUOTE "<|\"|>"

static sluice_status gemma_value(struct body *b, int depth, json_t **out);

static bool bare(char c)
{
    return ascii_is_alnum(c) || (c && strchr("_-.$", c));
}

static sluice_status gemma_text(struct body *b, const char **text, size_t *n)
{
    if (!until(b, QUOTE, text, n))
        return wrong(b, "a string is not closed");
    return utf8_valid_prefix(*text, *n) == *n ? SLUICE_OK : wrong(b, "a string is not UTF-8");
}

static sluice_status gemma_key(struct body *b, const char **key, size_t *n)
{
    if (skip(b, QUOTE))
        return gemma_text(b, key, n);
    *key = b->p + b->at;
    while (b->at < b->n && bare(b->p[b->at]))
        b->at++;
    *n = (size_t)(b->p + b->at - *key);
    return *n ? SLUICE_OK : wrong(b, "a key is expected");
}

/* Members up to the closing brace. */
static sluice_status gemma_members(struct body *b, int depth, json_t *object)
{
    space(b);
    if (skip(b, "}"))
        return SLUICE_OK;
    for (;;) {
        const char *key;
        size_t n;
        json_t *value = NULL;
        space(b);
        TRY(gemma_key(b, &key, &n));
        space(b);
        if (!skip(b, ":"))
            return wrong(b, "\":\" is expected");
        TRY(gemma_value(b, depth + 1, &value));
        TRY(set_once(b, object, key, n, value));
        space(b);
        if (skip(b, "}"))
            return SLUICE_OK;
        if (!skip(b, ","))
            return wrong(b, "\",\" or \"}\" is expected");
    }
}

static sluice_status gemma_items(struct body *b, int depth, json_t *array)
{
    space(b);
    if (skip(b, "]"))
        return SLUICE_OK;
    for (;;) {
        json_t *value = NULL;
        TRY(gemma_value(b, depth + 1, &value));
        if (json_array_append_new(array, value) != 0)
            return err_memory(b->err, 0, "a tool call");
        space(b);
        if (skip(b, "]"))
            return SLUICE_OK;
        if (!skip(b, ","))
            return wrong(b, "\",\" or \"]\" is expected");
    }
}

/* A number, true, false or null: what JSON reads. */
static sluice_status gemma_word(struct body *b, json_t **out)
{
    size_t start = b->at;
    while (b->at < b->n && !strchr(",}] \n\t\r", b->p[b->at]) && b->p[b->at])
        b->at++;
    sluice_status status = json_parse(b->p + start, b->at - start, "a value", out, b->err);
    if (status == SLUICE_E_MEMORY)
        return status;
    if (status != SLUICE_OK || json_is_object(*out) || json_is_array(*out)) {
        json_decref(*out);
        *out = NULL;
        return wrong(b, "a value is neither text, number, true, false, null, list nor object");
    }
    return SLUICE_OK;
}

static sluice_status gemma_value(struct body *b, int depth, json_t **out)
{
    sluice_status status;
    const char *text;
    size_t n;
    *out = NULL;
    if (depth > GEMMA_DEPTH_MAX)
        return wrong(b, "values nest deeper than 64 levels");
    space(b);
    if (skip(b, QUOTE)) {
        TRY(gemma_text(b, &text, &n));
        *out = json_stringn(text, n);
        return *out ? SLUICE_OK : err_memory(b->err, n, "a tool call");
    }
    bool object = skip(b, "{"), array = !object && skip(b, "[");
    if (!object && !array)
        return gemma_word(b, out);
    *out = object ? json_object() : json_array();
    if (!*out)
        return err_memory(b->err, 0, "a tool call");
    status = object ? gemma_members(b, depth, *out) : gemma_items(b, depth, *out);
    if (status != SLUICE_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

sluice_status call_read_gemma(const char *body, size_t n, const json_t *tools, json_t *list,
                              sluice_error *err)
{
    const char *name;
    size_t name_bytes;
    trim(&body, &n);
    struct body b = {body, n, 0, err};
    if (!skip(&b, "call:") || !until(&b, "{", &name, &name_bytes))
        return wrong(&b, "call:NAME{ is expected");
    json_t *arguments = json_object();
    sluice_status status = arguments ? gemma_members(&b, 0, arguments) : err_memory(err, 0, "a tool call");
    if (status == SLUICE_OK && b.at != b.n)
        status = wrong(&b, "something stands behind the closing brace");
    if (status == SLUICE_OK)
        return call_add(list, name, name_bytes, arguments, tools, err);
    json_decref(arguments);
    return status;
}
