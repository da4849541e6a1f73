/* Calls that are JSON: {"name": …, "arguments": {…}}. The arguments are passed on as the model writes them,
 * without the white space between. */
#include "text/calls_reader.h"

#include <string.h>

enum { MEMBER_OTHER = 1, MEMBER_NAME, MEMBER_ARGUMENTS };

static const char *arguments_key(const struct call_reader *r)
{
    return r->dialect->body == BODY_INKLING ? "args" : "arguments";
}

/* ---- arguments ---- */

/* Arguments as a text, as OpenAI writes them: handed out at their end, without white space. */
static sluice_status pass_on(struct call_reader *r, const char *text, size_t n, sluice_error *err)
{
    bool quoted = false, escaped = false;
    for (size_t i = 0; i < n; i++) {
        if (!quoted && call_space(text[i]))
            continue;
        if (text[i] == '"' && !escaped)
            quoted = !quoted;
        escaped = quoted && text[i] == '\\' && !escaped;
        TRY(call_emit_char(r, text[i], err));
    }
    return SLUICE_OK;
}

static sluice_status value_done(struct call_reader *r, sluice_error *err)
{
    json_t *text = NULL;
    if (r->member == MEMBER_OTHER || (r->member == MEMBER_ARGUMENTS && r->args.len))
        return SLUICE_OK;
    TRY(json_parse(r->word.p, r->word.len, "a tool call", &text, err));
    sluice_status status;
    if (!json_is_string(text))
        status = call_wrong(err, "its name is no text, or its arguments are no object");
    else if (r->member == MEMBER_NAME)
        status = call_begin(r, json_string_value(text), json_string_length(text), err);
    else
        status = pass_on(r, json_string_value(text), json_string_length(text), err);
    json_decref(text);
    return status;
}

/* ---- the object ---- */

static call_step member_step, value_step;

static sluice_status nothing(struct call_reader *r, sluice_error *err)
{
    (void)r;
    (void)err;
    return SLUICE_OK;
}

static sluice_status done_step(struct call_reader *r, char c, sluice_error *err)
{
    (void)r;
    return call_space(c) ? SLUICE_OK : call_wrong(err, "something stands behind it");
}

static sluice_status close_object(struct call_reader *r)
{
    call_go(r, done_step);
    r->end = nothing;
    return SLUICE_OK;
}

static sluice_status after_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    if (c == '}')
        return close_object(r);
    if (c != ',')
        return call_wrong(err, "\",\" or \"}\" is expected");
    call_go(r, member_step);
    return SLUICE_OK;
}

static sluice_status end_value(struct call_reader *r, sluice_error *err)
{
    TRY(value_done(r, err));
    call_go(r, after_step);
    return SLUICE_OK;
}

static sluice_status keep(struct call_reader *r, char c, sluice_error *err)
{
    bool arguments = r->member == MEMBER_ARGUMENTS && (r->args.len || (c == '{' && r->word.len == 0));
    if (arguments)
        return call_emit_char(r, c, err);
    return str_putc(&r->word, c) ? SLUICE_OK : call_no_memory(err);
}

static sluice_status string_byte(struct call_reader *r, char c, sluice_error *err)
{
    TRY(keep(r, c, err));
    r->quoted = c != '"' || r->escaped;
    r->escaped = c == '\\' && !r->escaped;
    r->in_value = r->quoted;
    return r->quoted || r->depth ? SLUICE_OK : end_value(r, err);
}

static sluice_status value_step(struct call_reader *r, char c, sluice_error *err)
{
    if (r->quoted)
        return string_byte(r, c, err);
    bool plain = r->depth == 0 && r->word.len; /* a number, true, false, null */
    if (plain && (call_space(c) || c == ',' || c == '}')) {
        TRY(end_value(r, err));
        return r->step(r, c, err);
    }
    if (call_space(c))
        return SLUICE_OK;
    if (c == '"')
        r->quoted = r->in_value = true;
    if (c == '{' || c == '[')
        r->depth++;
    if ((c == '}' || c == ']') && r->depth == 0)
        return call_wrong(err, "a value is expected");
    TRY(keep(r, c, err));
    if ((c == '}' || c == ']') && --r->depth == 0)
        return end_value(r, err);
    return SLUICE_OK;
}

static sluice_status colon_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    if (c != ':')
        return call_wrong(err, "\":\" is expected");
    call_go(r, value_step);
    return SLUICE_OK;
}

static bool is_key(const struct str *word, const char *key)
{
    return word->len == strlen(key) && memcmp(word->p, key, word->len) == 0;
}

static sluice_status key_step(struct call_reader *r, char c, sluice_error *err)
{
    if (c != '"' || r->escaped) {
        r->escaped = c == '\\' && !r->escaped;
        return str_putc(&r->word, c) ? SLUICE_OK : call_no_memory(err);
    }
    r->member = is_key(&r->word, "name")             ? MEMBER_NAME
                : is_key(&r->word, arguments_key(r)) ? MEMBER_ARGUMENTS
                                                     : MEMBER_OTHER;
    if (r->member == MEMBER_ARGUMENTS && r->args.len)
        return call_wrong(err, "it has arguments twice");
    call_go(r, colon_step);
    return SLUICE_OK;
}

static sluice_status member_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    if (c != '"')
        return call_wrong(err, "a member is expected");
    call_go(r, key_step);
    r->in_value = true;
    return SLUICE_OK;
}

sluice_status call_json_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    if (c != '{')
        return call_wrong(err, "\"{\" is expected");
    call_go(r, member_step);
    return SLUICE_OK;
}

/* ---- the end ---- */

sluice_status call_json_check(const struct call_reader *r, const char *body, size_t n,
                              const json_t *arguments, sluice_error *err)
{
    json_t *root = NULL, *inner = NULL;
    TRY(json_parse(body, n, "a tool call", &root, err));
    const json_t *given = json_object_get(root, arguments_key(r));
    const char *name = json_string_value(json_object_get(root, "name"));
    sluice_status status = SLUICE_OK;
    if (json_is_string(given)) {
        status = json_parse(json_string_value(given), json_string_length(given), "a tool call", &inner, err);
        given = inner;
    }
    if (status == SLUICE_OK && (!name || strcmp(name, r->name) != 0 || !json_equal(given, arguments)))
        status = call_wrong(err, "a name is spelled in more than one way");
    json_decref(inner);
    json_decref(root);
    return status;
}
