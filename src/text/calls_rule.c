/* Rules that write calls in a family's own syntax, for tool_choice "required" and named functions. */
#include "text/calls_reader.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/grammar_internal.h"

#include <string.h>

struct writer {
    struct grammar_builder *b;
    struct json_rules json;
    const struct dialect *dialect;
    const bool *is_mark;
};

/* ---- text with marks in it ---- */

/* A literal; what is a control token here becomes its mark. */
static uint32_t text(struct writer *w, uint32_t from, const char *literal)
{
    while (*literal) {
        size_t mark = 0, n = 0;
        for (size_t i = 0; i < CALL_MARKS_MAX && w->dialect->marks[i]; i++) {
            size_t length = strlen(w->dialect->marks[i]);
            if (w->is_mark[i] && length > n && strncmp(literal, w->dialect->marks[i], length) == 0) {
                mark = i;
                n = length;
            }
        }
        uint32_t to = grammar_position(w->b);
        if (n)
            grammar_mark(w->b, from, (unsigned)mark, to);
        else
            grammar_symbols(w->b, from, (unsigned char)*literal, (unsigned char)*literal, to);
        literal += n ? n : 1;
        from = to;
    }
    return from;
}

/* Any text that does not contain `end`, then `end` itself. Positions count the characters of `end` that the
 * text ends with; inside `end` its first character comes again at most as its last, so nothing shorter can
 * begin there. */
static uint32_t text_until(struct writer *w, uint32_t from, const char *end)
{
    struct grammar_builder *b = w->b;
    size_t n = strlen(end), used;
    uint32_t start = grammar_position(b), second = grammar_position(b), at = start, first, cp;
    grammar_empty(b, from, start);
    (void)utf8_decode(end, n, &first, NULL);
    for (size_t i = 0; i < n; i += used) {
        used = utf8_decode(end + i, n - i, &cp, NULL);
        uint32_t next = i == 0 ? second : grammar_position(b);
        struct grammar_range two[2] = {{first, first}, {cp, cp}}, one = {cp, cp}, others[3];
        size_t n_others = ranges_negate(two, ranges_normalize(two, 2), others);
        grammar_chars(b, at, others, n_others, start);
        grammar_chars(b, at, &one, 1, next);
        if (cp != first)
            grammar_chars(b, at, &(struct grammar_range){first, first}, 1, second);
        at = next;
    }
    return at;
}

/* ---- schemas of arguments ---- */

static const json_t *parameters_of(const json_t *function)
{
    return json_object_get(function, "parameters");
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *one = json_string_value(json_array_get(required, i));
        if (one && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

/* A string and nothing else, that may be any. */
static bool is_free_string(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    static const char *const LIMITS[] = {"enum", "const", "pattern", "format", "minLength", "maxLength"};
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++)
        if (json_object_get(schema, LIMITS[i]))
            return false;
    return type && strcmp(type, "string") == 0;
}

/* ---- JSON bodies ---- */

static void json_call(struct writer *w, const json_t *function, const char *arguments_key, uint32_t from,
                      uint32_t to)
{
    const json_t *parameters = parameters_of(function);
    json_t *name = json_object_get(function, "name");
    uint32_t at = jrule_literal(w->b, text(w, from, "{\"name\": "), name);
    at = text(w, text(w, text(w, at, ", \""), arguments_key), "\": ");
    uint32_t end = grammar_position(w->b);
    if (parameters)
        grammar_call(w->b, at, schema_rule(&w->json, parameters, parameters), end);
    else
        grammar_empty(w->b, text(w, at, "{}"), end);
    grammar_empty(w->b, text(w, end, "}"), to);
}

/* ---- bodies with one element for each argument ---- */

struct element {
    const char *before, *behind_key;
    const char *lead, *end, *tail; /* behind a value; free text goes on to the first `end` */
};

/* Arguments in the order of the schema. What is not plain text is JSON; a string with limits goes without its
 * quotes only as one of a list. */
static void elements(struct writer *w, const json_t *schema, const struct element *e, uint32_t *at)
{
    const char *name;
    json_t *property;
    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        uint32_t after = grammar_position(w->b), value;
        const json_t *list = json_object_get(property, "enum");
        if (!is_required(schema, name))
            grammar_empty(w->b, *at, after);
        value = text(w, text(w, text(w, *at, e->before), name), e->behind_key);
        if (is_free_string(property)) {
            grammar_empty(w->b, text(w, text_until(w, value, e->end), e->tail), after);
        } else {
            uint32_t done = grammar_position(w->b);
            if (!list || !json_is_string(json_array_get(list, 0)))
                grammar_call(w->b, value, schema_rule(&w->json, schema, property), done);
            for (size_t i = 0; i < json_array_size(list); i++)
                if (json_is_string(json_array_get(list, i)))
                    grammar_empty(w->b, text(w, value, json_string_value(json_array_get(list, i))), done);
            grammar_empty(w->b, text(w, text(w, text(w, done, e->lead), e->end), e->tail), after);
        }
        *at = after;
    }
}

static void element_call(struct writer *w, const json_t *function, enum call_style style, uint32_t from,
                         uint32_t to)
{
    static const struct element XML = {"<parameter=", ">\n", "\n", "</parameter>", "\n"},
                                KEYS = {"<arg_key>", "</arg_key>\n<arg_value>", "", "</arg_value>", "\n"};
    const char *name = json_string_value(json_object_get(function, "name"));
    bool xml = style == STYLE_XML;
    uint32_t at = text(w, text(w, text(w, from, xml ? "<function=" : ""), name), xml ? ">\n" : "\n");
    elements(w, parameters_of(function), xml ? &XML : &KEYS, &at);
    grammar_empty(w->b, text(w, at, xml ? "</function>" : ""), to);
}

/* ---- Gemma ---- */

static void gemma_value(struct writer *w, const json_t *root, const json_t *schema, int depth, uint32_t from,
                        uint32_t to);

#define QUOTE CALLS_QUOTE

static uint32_t gemma_quoted(struct writer *w, uint32_t from, const char *words)
{
    static const struct grammar_range ANY = {0, 0x10FFFF};
    uint32_t open = text(w, from, QUOTE), loop;
    if (words)
        return text(w, text(w, open, words), QUOTE);
    /* The quote is a token of its own, so any characters may stand inside; spelled out it may not. */
    if (!w->is_mark[4])
        return text_until(w, open, QUOTE);
    loop = grammar_position(w->b);
    grammar_empty(w->b, open, loop);
    grammar_chars(w->b, loop, &ANY, 1, loop);
    return text(w, loop, QUOTE);
}

static void gemma_object(struct writer *w, const json_t *root, const json_t *schema, int depth, uint32_t from,
                         uint32_t to)
{
    uint32_t none = text(w, from, "{"), some = grammar_position(w->b), close = grammar_position(w->b);
    const char *name;
    json_t *property;
    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        uint32_t key = grammar_position(w->b), after = grammar_position(w->b), still = grammar_position(w->b);
        grammar_empty(w->b, none, key);
        grammar_empty(w->b, text(w, some, ","), key);
        gemma_value(w, root, property, depth + 1, text(w, text(w, key, name), ":"), after);
        if (!is_required(schema, name)) {
            grammar_empty(w->b, none, still);
            grammar_empty(w->b, some, after);
        }
        none = still;
        some = after;
    }
    grammar_empty(w->b, none, close);
    grammar_empty(w->b, some, close);
    grammar_empty(w->b, text(w, close, "}"), to);
}

static void gemma_array(struct writer *w, const json_t *root, const json_t *schema, int depth, uint32_t from,
                        uint32_t to)
{
    const json_t *items = json_object_get(schema, "items");
    uint32_t open = text(w, from, "["), some = grammar_position(w->b), rule = grammar_rule(w->b);
    gemma_value(w, root, items, depth + 1, grammar_start(w->b, rule), grammar_end(w->b, rule));
    grammar_call(w->b, open, rule, some);
    grammar_call(w->b, text(w, some, ","), rule, some);
    grammar_empty(w->b, text(w, open, "]"), to);
    grammar_empty(w->b, text(w, some, "]"), to);
}

static void gemma_value(struct writer *w, const json_t *root, const json_t *schema, int depth, uint32_t from,
                        uint32_t to)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *list = json_object_get(schema, "enum");
    bool strings = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        strings &= json_is_string(json_array_get(list, i));
    if (depth > 32) {
        (void)grammar_fail(w->b, SLUICE_E_UNSUPPORTED, "a tool's parameters nest deeper than 32 levels");
    } else if (strings) {
        for (size_t i = 0; i < json_array_size(list); i++)
            grammar_empty(w->b, gemma_quoted(w, from, json_string_value(json_array_get(list, i))), to);
    } else if (is_free_string(schema)) {
        grammar_empty(w->b, gemma_quoted(w, from, NULL), to);
    } else if (type && strcmp(type, "object") == 0 && json_object_get(schema, "properties")) {
        gemma_object(w, root, schema, depth, from, to);
    } else if (type && strcmp(type, "array") == 0 && json_object_get(schema, "items")) {
        gemma_array(w, root, schema, depth, from, to);
    } else if (type && strcmp(type, "string") != 0 && strcmp(type, "object") != 0 &&
               strcmp(type, "array") != 0) {
        grammar_call(w->b, from, schema_rule(&w->json, root, schema), to);
    } else {
        (void)grammar_fail(
            w->b, SLUICE_E_UNSUPPORTED,
            "a call that is forced needs a \"type\" for every parameter, with \"properties\" or "
            "\"items\", and strings without limits; this tool has another");
    }
}

static void gemma_call(struct writer *w, const json_t *function, uint32_t from, uint32_t to)
{
    const json_t *parameters = parameters_of(function);
    const char *name = json_string_value(json_object_get(function, "name"));
    gemma_object(w, parameters, parameters, 0, text(w, text(w, from, "call:"), name), to);
}

/* ---- DSML ---- */

#define DSML CALLS_DSML

static void dsml_call(struct writer *w, const json_t *function, uint32_t from, uint32_t to)
{
    const json_t *schema = parameters_of(function);
    const char *name = json_string_value(json_object_get(function, "name"));
    json_t *property;
    uint32_t at = text(w, text(w, text(w, from, "<" DSML "invoke name=\""), name), "\">\n");
    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        uint32_t after = grammar_position(w->b), value, done = grammar_position(w->b);
        if (!is_required(schema, name))
            grammar_empty(w->b, at, after);
        value = text(w, text(w, text(w, at, "<" DSML "parameter name=\""), name), "\" string=\"");
        if (is_free_string(property)) {
            done = text_until(w, text(w, value, "true\">"), "</" DSML "parameter>");
            grammar_empty(w->b, text(w, done, "\n"), after);
        } else {
            grammar_call(w->b, text(w, value, "false\">"), schema_rule(&w->json, schema, property), done);
            grammar_empty(w->b, text(w, done, "</" DSML "parameter>\n"), after);
        }
        at = after;
    }
    grammar_empty(w->b, text(w, at, "</" DSML "invoke>\n"), to);
}

/* ---- the whole ---- */

/* One function's call, without the marks around. */
static void body(struct writer *w, enum call_style style, const json_t *function, uint32_t from, uint32_t to)
{
    switch (w->dialect->body) {
    case BODY_GEMMA:
        gemma_call(w, function, from, to);
        return;
    case BODY_DSML:
        dsml_call(w, function, from, to);
        return;
    case BODY_INKLING:
        from = text(w, from, json_string_value(json_object_get(function, "name")));
        json_call(w, function, "args", text(w, from, w->dialect->call_open), to);
        return;
    case BODY_TAGGED:
        break;
    }
    uint32_t at = text(w, from, "\n"), end = grammar_position(w->b);
    if (style == STYLE_JSON)
        json_call(w, function, "arguments", at, end);
    else
        element_call(w, function, style, style == STYLE_XML ? at : from, end);
    grammar_empty(w->b, text(w, end, style == STYLE_ARG_KEYS ? "" : "\n"), to);
}

uint32_t calls_rule(struct grammar_builder *b, const struct dialect *dialect, enum call_style style,
                    const bool *is_mark, const json_t *tools, const char *only, bool many)
{
    struct writer w = {.b = b, .json = {.b = b}, .dialect = dialect, .is_mark = is_mark};
    uint32_t rule = grammar_rule(b), at = grammar_start(b, rule), again = grammar_position(b);
    bool section = dialect->body == BODY_DSML; /* its marks are around all calls */
    grammar_empty(b, section ? text(&w, text(&w, at, dialect->call_open), "\n") : at, again);
    if (dialect->header) /* the prompt may have written it already */
        grammar_empty(b, text(&w, at, dialect->header), again);
    bool named = dialect->body == BODY_INKLING; /* before the mark, too */
    uint32_t open = section || named ? again : text(&w, again, dialect->call_open),
             close = grammar_position(b);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!only || strcmp(only, name) == 0)
            body(&w, style, function, open, close);
    }
    if (section) {
        if (many)
            grammar_empty(b, close, again);
        grammar_empty(b, text(&w, close, dialect->call_close), grammar_end(b, rule));
        return rule;
    }
    uint32_t done = text(&w, close, dialect->call_close);
    grammar_empty(b, done, grammar_end(b, rule));
    const char *between = dialect->header ? dialect->header : dialect->body == BODY_TAGGED ? "\n" : "";
    if (many)
        grammar_empty(b, text(&w, done, between), again);
    return rule;
}
