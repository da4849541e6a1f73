/* Gemma's calls: call:NAME{key:value,…}. */
#include "text/calls_reader.h"

#include "base/ascii.h"

#include <string.h>

static call_step key_step, value_start_step, after_step;

static bool bare(char c)
{
    return ascii_is_alnum(c) || (c && strchr("_-.$", c));
}

/* ---- nesting ---- */

static sluice_status nothing(struct call_reader *r, sluice_error *err)
{
    (void)r;
    (void)err;
    return SLUICE_OK;
}

static sluice_status done_step(struct call_reader *r, char c, sluice_error *err)
{
    (void)r;
    return call_space(c) ? SLUICE_OK : call_wrong(err, "something stands behind the closing brace");
}

static sluice_status open_nest(struct call_reader *r, char c, sluice_error *err)
{
    if (r->depth == CALL_DEPTH_MAX)
        return call_wrong(err, "values nest deeper than 64 levels");
    r->open[r->depth++] = c;
    r->first = true;
    call_go(r, c == '{' ? key_step : value_start_step);
    return call_emit_char(r, c, err);
}

static bool closes(const struct call_reader *r, char c)
{
    return c == (r->open[r->depth - 1] == '{' ? '}' : ']');
}

static sluice_status close_nest(struct call_reader *r, char c, sluice_error *err)
{
    r->depth--;
    call_go(r, r->depth ? after_step : done_step);
    if (r->depth == 0)
        r->end = nothing;
    return call_emit_char(r, c, err);
}

static sluice_status after_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    if (closes(r, c))
        return close_nest(r, c, err);
    if (c != ',')
        return call_wrong(err, "\",\" or a closing bracket is expected");
    r->first = false;
    call_go(r, r->open[r->depth - 1] == '{' ? key_step : value_start_step);
    return call_emit_char(r, c, err);
}

/* ---- values ---- */

static sluice_status after_value(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_go(r, after_step);
    return SLUICE_OK;
}

static sluice_status open_string(struct call_reader *r, sluice_error *err)
{
    call_value(r, CALLS_QUOTE, true, false, after_value);
    return call_emit_char(r, '"', err);
}

/* A number, true, false or null: what JSON reads. */
static sluice_status end_word(struct call_reader *r, sluice_error *err)
{
    json_t *value = NULL;
    TRY(json_parse(r->word.p ? r->word.p : "", r->word.len, "a value", &value, err));
    bool nested = json_is_object(value) || json_is_array(value);
    json_decref(value);
    if (nested)
        return call_wrong(err, "a value is neither text, number, true, false, null, list nor object");
    TRY(call_emit(r, r->word.p, r->word.len, err));
    return after_value(r, err);
}

static sluice_status word_step(struct call_reader *r, char c, sluice_error *err)
{
    if (c == ',' || c == '}' || c == ']' || call_space(c)) {
        TRY(end_word(r, err));
        return r->step(r, c, err);
    }
    return str_putc(&r->word, c) ? SLUICE_OK : call_no_memory(err);
}

static sluice_status value_start_step(struct call_reader *r, char c, sluice_error *err)
{
    static const struct call_choice STRING[] = {{CALLS_QUOTE, open_string}, {NULL, NULL}};
    if (call_space(c))
        return SLUICE_OK;
    if (c == ']' && r->first && r->open[r->depth - 1] == '[')
        return close_nest(r, c, err);
    if (c == '{' || c == '[')
        return open_nest(r, c, err);
    if (c == '<')
        call_expect(r, STRING);
    else
        call_go(r, word_step);
    return r->step(r, c, err);
}

/* ---- keys ---- */

static sluice_status colon_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    if (c != ':')
        return call_wrong(err, "\":\" is expected");
    r->first = false;
    call_go(r, value_start_step);
    return SLUICE_OK;
}

static sluice_status end_key(struct call_reader *r, sluice_error *err)
{
    TRY(call_emit_key(r, r->word.p ? r->word.p : "", r->word.len, err));
    call_go(r, colon_step);
    return SLUICE_OK;
}

static sluice_status bare_step(struct call_reader *r, char c, sluice_error *err)
{
    if (bare(c))
        return str_putc(&r->word, c) ? SLUICE_OK : call_no_memory(err);
    TRY(end_key(r, err));
    return r->step(r, c, err);
}

static sluice_status quoted_key(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, CALLS_QUOTE, end_key);
    r->in_value = true;
    return SLUICE_OK;
}

static sluice_status key_step(struct call_reader *r, char c, sluice_error *err)
{
    static const struct call_choice QUOTED[] = {{CALLS_QUOTE, quoted_key}, {NULL, NULL}};
    if (call_space(c))
        return SLUICE_OK;
    if (c == '}' && r->first)
        return close_nest(r, c, err);
    if (c == '<')
        call_expect(r, QUOTED);
    else if (bare(c))
        call_go(r, bare_step);
    else
        return call_wrong(err, "a key is expected");
    return r->step(r, c, err);
}

/* ---- the call ---- */

static sluice_status begin(struct call_reader *r, sluice_error *err)
{
    TRY(call_begin(r, r->word.p ? r->word.p : "", r->word.len, err));
    return open_nest(r, '{', err);
}

static sluice_status name(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, "{", begin);
    return SLUICE_OK;
}

sluice_status call_gemma_step(struct call_reader *r, char c, sluice_error *err)
{
    static const struct call_choice CALL[] = {{"call:", name}, {NULL, NULL}};
    call_expect(r, CALL);
    return r->step(r, c, err);
}
