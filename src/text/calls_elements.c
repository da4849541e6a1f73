/* Calls with one element for each argument: <function=…><parameter=…>, <arg_key>, DSML. Values that may be
 * strings are handed out as they come; of others the end decides what they are. */
#include "text/calls_reader.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

/* ---- arguments ---- */

/* The name of an argument that begins. */
static sluice_status open_argument(struct call_reader *r, sluice_error *err)
{
    if (r->args.len > 1)
        TRY(call_emit_char(r, ',', err));
    str_clear(&r->key);
    /* A NUL ends it for the look-up of its type alone; as a member's name it is refused at the end. */
    if (!str_append(&r->key, r->word.p ? r->word.p : "", r->word.len) || !str_reserve(&r->key, 1))
        return call_no_memory(err);
    r->key.p[r->key.len] = '\0';
    return call_emit_key(r, r->key.p, r->key.len, err);
}

static sluice_status emit_json(struct call_reader *r, const json_t *value, sluice_error *err)
{
    char *printed = NULL;
    TRY(json_print(value, JSON_COMPACT | JSON_ENCODE_ANY, "a value", &printed, err));
    sluice_status status = call_emit(r, printed, strlen(printed), err);
    mem_free(printed);
    return status;
}

/* A value of another type than text, in r->word. */
static sluice_status emit_typed(struct call_reader *r, sluice_error *err)
{
    const char *text = r->word.p ? r->word.p : "";
    json_t *value = NULL;
    if (utf8_valid_prefix(text, r->word.len) != r->word.len)
        return call_wrong(err, "a value is not UTF-8");
    value = tool_value(r->tools, r->name, r->key.p, text, r->word.len);
    if (!value)
        return call_no_memory(err);
    sluice_status status = emit_json(r, value, err);
    json_decref(value);
    return status;
}

static void argument(struct call_reader *r, const char *stop, bool peeled, call_then *then)
{
    bool text = tool_takes_text(r->tools, r->name, r->key.p);
    call_value(r, stop, text, peeled, then);
}

static sluice_status open_value(struct call_reader *r, sluice_error *err)
{
    return r->as_text ? call_emit_char(r, '"', err) : SLUICE_OK;
}

static sluice_status nothing(struct call_reader *r, sluice_error *err)
{
    (void)r;
    (void)err;
    return SLUICE_OK;
}

static sluice_status close_arguments(struct call_reader *r, sluice_error *err)
{
    return call_emit_char(r, '}', err);
}

/* ---- <function=NAME> <parameter=KEY> … </parameter> </function> ---- */

static call_then xml_key, xml_close;
static const struct call_choice XML_NEXT[] = {
    {"<parameter=", xml_key}, {"</function>", xml_close}, {NULL, NULL}};

static sluice_status xml_after_value(struct call_reader *r, sluice_error *err)
{
    if (!r->as_text)
        TRY(emit_typed(r, err));
    call_expect(r, XML_NEXT);
    return SLUICE_OK;
}

static sluice_status xml_value(struct call_reader *r, sluice_error *err)
{
    TRY(open_argument(r, err));
    argument(r, "</parameter>", true, xml_after_value);
    return open_value(r, err);
}

static sluice_status xml_key(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, ">", xml_value);
    return SLUICE_OK;
}

static sluice_status space_step(struct call_reader *r, char c, sluice_error *err)
{
    (void)r;
    return call_space(c) ? SLUICE_OK : call_wrong(err, "something stands behind </function>");
}

static sluice_status xml_close(struct call_reader *r, sluice_error *err)
{
    call_go(r, space_step);
    r->end = nothing;
    return close_arguments(r, err);
}

static sluice_status xml_begin(struct call_reader *r, sluice_error *err)
{
    TRY(call_begin(r, r->word.p, r->word.len, err));
    call_expect(r, XML_NEXT);
    return call_emit_char(r, '{', err);
}

static sluice_status xml_name(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, ">", xml_begin);
    return SLUICE_OK;
}

/* ---- NAME <arg_key>KEY</arg_key> <arg_value>…</arg_value> ---- */

static call_then pair_key, pair_value_mark;
static const struct call_choice PAIR_NEXT[] = {{"<arg_key>", pair_key}, {NULL, NULL}},
                                PAIR_VALUE[] = {{"<arg_value>", pair_value_mark}, {NULL, NULL}};

static sluice_status pair_next(struct call_reader *r, sluice_error *err)
{
    if (!r->as_text)
        TRY(emit_typed(r, err));
    call_expect(r, PAIR_NEXT);
    r->end = close_arguments;
    return SLUICE_OK;
}

static sluice_status pair_value_mark(struct call_reader *r, sluice_error *err)
{
    argument(r, "</arg_value>", false, pair_next);
    return open_value(r, err);
}

static sluice_status pair_value(struct call_reader *r, sluice_error *err)
{
    TRY(open_argument(r, err));
    call_expect(r, PAIR_VALUE);
    return SLUICE_OK;
}

static sluice_status pair_key(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, "</arg_key>", pair_value);
    return SLUICE_OK;
}

static sluice_status pair_begin(struct call_reader *r, sluice_error *err)
{
    size_t n = r->word.len;
    while (n && call_space(r->word.p[n - 1]))
        n--;
    TRY(call_begin(r, r->word.p, n, err));
    return call_emit_char(r, '{', err);
}

static sluice_status pair_first(struct call_reader *r, sluice_error *err)
{
    TRY(pair_begin(r, err));
    return pair_key(r, err);
}

/* Nothing but a name. */
static sluice_status pair_alone(struct call_reader *r, sluice_error *err)
{
    TRY(pair_begin(r, err));
    return close_arguments(r, err);
}

/* Which of the two: the first byte says it. */
sluice_status call_elements_step(struct call_reader *r, char c, sluice_error *err)
{
    static const struct call_choice FUNCTION[] = {{"<function=", xml_name}, {NULL, NULL}};
    if (c == '<') {
        call_expect(r, FUNCTION);
    } else {
        call_collect(r, "<arg_key>", pair_first);
        r->end = pair_alone;
    }
    return r->step(r, c, err);
}

/* ---- DSML: a section of invocations ---- */

static call_then dsml_name, dsml_key, dsml_text, dsml_json, dsml_close;
static const struct call_choice DSML_CALL[] = {{"<" CALLS_DSML "invoke name=\"", dsml_name}, {NULL, NULL}},
                                DSML_NEXT[] = {{"<" CALLS_DSML "parameter name=\"", dsml_key},
                                               {"</" CALLS_DSML "invoke>", dsml_close},
                                               {NULL, NULL}},
                                DSML_TYPE[] = {{"string=\"true\">", dsml_text},
                                               {"string=\"false\">", dsml_json},
                                               {NULL, NULL}};

static sluice_status dsml_after_text(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_expect(r, DSML_NEXT);
    return SLUICE_OK;
}

static sluice_status dsml_text(struct call_reader *r, sluice_error *err)
{
    call_value(r, "</" CALLS_DSML "parameter>", true, false, dsml_after_text);
    return open_value(r, err);
}

static sluice_status dsml_after_json(struct call_reader *r, sluice_error *err)
{
    json_t *value = NULL;
    TRY(json_parse(r->word.p ? r->word.p : "", r->word.len, "a parameter", &value, err));
    sluice_status status = emit_json(r, value, err);
    json_decref(value);
    TRY(status);
    return dsml_after_text(r, err);
}

static sluice_status dsml_json(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_value(r, "</" CALLS_DSML "parameter>", false, false, dsml_after_json);
    return SLUICE_OK;
}

static sluice_status dsml_type(struct call_reader *r, sluice_error *err)
{
    TRY(open_argument(r, err));
    call_expect(r, DSML_TYPE);
    return SLUICE_OK;
}

static sluice_status dsml_key(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, "\"", dsml_type);
    return SLUICE_OK;
}

static sluice_status dsml_close(struct call_reader *r, sluice_error *err)
{
    TRY(close_arguments(r, err));
    r->complete = true;
    call_expect(r, DSML_CALL);
    return SLUICE_OK;
}

static sluice_status dsml_begin(struct call_reader *r, sluice_error *err)
{
    TRY(call_begin(r, r->word.p, r->word.len, err));
    call_expect(r, DSML_NEXT);
    return call_emit_char(r, '{', err);
}

static sluice_status dsml_name(struct call_reader *r, sluice_error *err)
{
    (void)err;
    call_collect(r, "\">", dsml_begin);
    return SLUICE_OK;
}

sluice_status call_dsml_step(struct call_reader *r, char c, sluice_error *err)
{
    call_expect(r, DSML_CALL);
    return r->step(r, c, err);
}
