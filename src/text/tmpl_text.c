/* Values as text: strings in pieces, Python's str() and repr(), JSON in and out. */
#include "base/check.h"
#include "base/utf8.h"
#include "text/tmpl_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- building strings ---- */

sluice_status builder_add(struct builder *b, const char *p, const unsigned char *marks, bool own, size_t n)
{
    size_t need;
    if (!size_add(b->n, n, &need))
        need = SIZE_MAX / 2;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap *= 2;
        char *more = NULL;
        TRY(tmpl_alloc(b->r, 2 * cap, &more));
        if (b->n) {
            memcpy(more, b->p, b->n);
            memcpy(more + cap, b->marks, b->n);
        }
        b->p = more;
        b->marks = (unsigned char *)more + cap;
        b->cap = cap;
    }
    if (n == 0)
        return SLUICE_OK;
    assert(b->p && b->marks);
    TRY(tmpl_step(b->r, n / 64));
    memcpy(b->p + b->n, p, n);
    if (marks)
        memcpy(b->marks + b->n, marks, n);
    else
        memset(b->marks + b->n, own, n);
    b->n += n;
    return SLUICE_OK;
}

sluice_status builder_value(struct builder *b, const struct value *string)
{
    const struct value_text *text = &string->as.text;
    return builder_add(b, text->p, text->marks, string->own, text->n);
}

struct value builder_done(const struct builder *b, bool safe)
{
    struct value v = value_string(b->p ? b->p : "", b->n, true);
    v.as.text.marks = b->marks;
    v.safe = safe;
    return v;
}

static sluice_status put(struct builder *b, const char *text, bool own)
{
    return builder_add(b, text, NULL, own, strlen(text));
}

/* ---- values as text ---- */

/* Python's repr of a float: the shortest digits that read back the same. */
static void float_text(double value, char out[40])
{
    char digits[32];
    int precision = 0;
    if (isnan(value) || isinf(value)) {
        (void)snprintf(out, 40, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    do
        (void)snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (strtod(digits, NULL) != value && precision++ < 17);
    const char *mark = strchr(digits, 'e');
    long exponent = mark ? strtol(mark + 1, NULL, 10) : 0;
    if (exponent < -4 || exponent >= 16) {
        int mantissa = (int)(mark - digits);
        (void)snprintf(out, 40, "%.*se%c%02ld", mantissa, digits, exponent < 0 ? '-' : '+', labs(exponent));
        return;
    }
    int decimals = precision - (int)exponent;
    (void)snprintf(out, 40, "%.*f", decimals > 1 ? decimals : 1, value);
}

static sluice_status put_scalar(struct builder *b, const struct value *v)
{
    char text[48];
    switch (v->kind) {
    case VALUE_NONE:
        return put(b, "None", v->own);
    case VALUE_BOOL:
        return put(b, v->as.truth ? "True" : "False", v->own);
    case VALUE_INT:
        (void)snprintf(text, sizeof text, "%lld", (long long)v->as.integer);
        return put(b, text, v->own);
    case VALUE_FLOAT:
        float_text(v->as.number, text);
        return put(b, text, v->own);
    default:
        return SLUICE_OK; /* undefined prints nothing */
    }
}

/* Python prints what is neither a control nor white space beyond the space. */
static bool printable(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return cp == ' ' || !(category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_ZS);
}

/* Python's repr of a string. */
static sluice_status put_repr(struct builder *b, const struct value *v)
{
    const struct value_text *text = &v->as.text;
    bool single = text->n && memchr(text->p, '\'', text->n), twice = text->n && memchr(text->p, '"', text->n);
    char quote = single && !twice ? '"' : '\'';
    TRY(builder_add(b, &quote, NULL, false, 1));
    for (size_t at = 0; at < text->n;) {
        uint32_t cp;
        char escape[16] = "";
        size_t used = utf8_decode(text->p + at, text->n - at, &cp, NULL);
        if (cp == (unsigned char)quote || cp == '\\')
            (void)snprintf(escape, sizeof escape, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            (void)snprintf(escape, sizeof escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (!printable(cp))
            (void)snprintf(escape, sizeof escape,
                           cp < 0x100     ? "\\x%02x"
                           : cp < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                           cp);
        if (escape[0])
            TRY(put(b, escape, false));
        else
            TRY(builder_add(b, text->p + at, text->marks ? text->marks + at : NULL, v->own, used));
        at += used;
    }
    return builder_add(b, &quote, NULL, false, 1);
}

/* Python's text of a list or dict; brackets count as foreign, for what is inside decides where they come. */
static sluice_status put_python(struct builder *b, const struct value *v, int depth)
{
    TRY(tmpl_step(b->r, 1));
    if (depth > TMPL_DEPTH_MAX)
        return tmpl_fail(b->r, SLUICE_E_UNSUPPORTED, "values are nested deeper than %d levels",
                         TMPL_DEPTH_MAX);
    if (v->kind == VALUE_STRING)
        return put_repr(b, v);
    if (v->kind == VALUE_UNDEFINED)
        return put(b, "Undefined", false);
    if (v->kind == VALUE_LIST) {
        bool tuple = v->as.list->shape == SHAPE_TUPLE;
        if (!value_has_items(v))
            return tmpl_fail(b->r, SLUICE_E_UNSUPPORTED, "%s has no text", value_type(v));
        TRY(put(b, tuple ? "(" : "[", false));
        for (size_t i = 0; i < v->as.list->n; i++) {
            TRY(put(b, i ? ", " : "", false));
            TRY(put_python(b, &v->as.list->v[i], depth + 1));
        }
        if (tuple && v->as.list->n == 1)
            TRY(put(b, ",", false));
        return put(b, tuple ? ")" : "]", false);
    }
    if (v->kind == VALUE_DICT) {
        TRY(put(b, "{", false));
        for (size_t i = 0; i < v->as.dict->n; i++) {
            TRY(put(b, i ? ", " : "", false));
            TRY(put_python(b, &v->as.dict->keys[i], depth + 1));
            TRY(put(b, ": ", false));
            TRY(put_python(b, &v->as.dict->values[i], depth + 1));
        }
        return put(b, "}", false);
    }
    if (v->kind >= VALUE_NAMESPACE)
        return tmpl_fail(b->r, SLUICE_E_FORMAT, "%s has no text", value_type(v));
    return put_scalar(b, v);
}

sluice_status value_text_of(struct render *r, const struct value *v, struct value *out)
{
    struct builder b = {.r = r};
    if (v->kind == VALUE_STRING) {
        *out = *v;
        return SLUICE_OK;
    }
    if (v->kind == VALUE_UNDEFINED)
        TRY(builder_add(&b, "", NULL, true, 0));
    else
        TRY(put_python(&b, v, 0));
    *out = builder_done(&b, false);
    return SLUICE_OK;
}

sluice_status value_escape(struct render *r, const struct value *v, struct value *out)
{
    static const struct {
        char c;
        const char *with;
    } ROWS[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    struct value string;
    struct builder b = {.r = r};
    TRY(value_text_of(r, v, &string));
    if (string.safe) {
        *out = string;
        return SLUICE_OK;
    }
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t i = 0; i < string.as.text.n; i++) {
        struct value one = call_cut(&string, i, i + 1);
        const char *with = NULL;
        for (size_t k = 0; k < sizeof ROWS / sizeof *ROWS; k++)
            if (string.as.text.p[i] == ROWS[k].c)
                with = ROWS[k].with;
        if (with)
            TRY(builder_add(&b, with, NULL, false, strlen(with)));
        else
            TRY(builder_value(&b, &one));
    }
    *out = builder_done(&b, true);
    return SLUICE_OK;
}

/* ---- JSON ---- */

sluice_status value_from_json(struct render *r, const json_t *json, bool own, struct value *out)
{
    TRY(tmpl_step(r, 1));
    *out = (struct value){.kind = VALUE_NONE, .own = own};
    switch (json_typeof(json)) {
    case JSON_STRING:
        *out = value_string(json_string_value(json), json_string_length(json), own);
        return SLUICE_OK;
    case JSON_INTEGER:
        *out = value_int(json_integer_value(json), own);
        return SLUICE_OK;
    case JSON_REAL:
        out->kind = VALUE_FLOAT;
        out->as.number = json_real_value(json);
        return SLUICE_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        out->kind = VALUE_BOOL;
        out->as.truth = json_is_true(json);
        return SLUICE_OK;
    case JSON_NULL:
        return SLUICE_OK;
    case JSON_ARRAY:
        TRY(value_list_new(r, json_array_size(json), out));
        for (size_t i = 0; i < json_array_size(json); i++) {
            struct value item;
            TRY(value_from_json(r, json_array_get(json, i), own, &item));
            TRY(value_list_add(r, out->as.list, &item));
        }
        return SLUICE_OK;
    case JSON_OBJECT:
        break;
    }
    const char *key;
    json_t *member;
    TRY(value_dict_new(r, out));
    json_object_foreach((json_t *)json, key, member)
    {
        struct value item, name = value_string(key, strlen(key), own);
        TRY(value_from_json(r, member, own, &item));
        TRY(value_dict_append(r, out->as.dict, &name, &item));
    }
    return SLUICE_OK;
}

struct json_writer {
    struct builder b;
    const struct json_style *style;
};

/* One character that is no printable ASCII as \u escapes, beyond the first plane as a pair; returns its
 * bytes. */
static size_t ascii_escape(const char *p, size_t n, char escape[16])
{
    uint32_t cp;
    size_t used = utf8_decode(p, n, &cp, NULL);
    if (cp < 0x10000)
        (void)snprintf(escape, 16, "\\u%04x", cp);
    else
        (void)snprintf(escape, 16, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                       0xDC00 + ((cp - 0x10000) & 0x3FF));
    return used;
}

static sluice_status json_string_out(struct json_writer *w, const struct value *v)
{
    static const char LETTERS[] = "btnvfr"; /* from backspace on; JSON has no \v */
    const struct value_text *text = &v->as.text;
    size_t plain = 0;
    TRY(put(&w->b, "\"", false));
    for (size_t at = 0; at <= text->n; at++) {
        char c = at < text->n ? text->p[at] : '\0', escape[16] = "";
        bool wide = w->style->ascii && (unsigned char)c >= 0x7F;
        if (at < text->n && (unsigned char)c >= 0x20 && c != '"' && c != '\\' && !wide)
            continue;
        TRY(builder_add(&w->b, text->p + plain, text->marks ? text->marks + plain : NULL, v->own,
                        at - plain));
        if (at == text->n)
            break;
        if (c == '"' || c == '\\')
            (void)snprintf(escape, sizeof escape, "\\%c", c);
        else if (c >= '\b' && c <= '\r' && c != '\v')
            (void)snprintf(escape, sizeof escape, "\\%c", LETTERS[c - '\b']);
        else if (wide)
            at += ascii_escape(text->p + at, text->n - at, escape) - 1;
        else
            (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)c);
        plain = at + 1;
        TRY(put(&w->b, escape, false));
    }
    return put(&w->b, "\"", false);
}

static sluice_status json_break(struct json_writer *w, int depth)
{
    if (w->style->indent < 0)
        return SLUICE_OK;
    TRY(put(&w->b, "\n", false));
    for (int i = 0; i < depth * w->style->indent; i++)
        TRY(put(&w->b, " ", false));
    return SLUICE_OK;
}

static sluice_status json_out(struct json_writer *w, const struct value *v, int depth);

static int by_key(const void *a, const void *b)
{
    const struct value *x = *(const struct value *const *)a, *y = *(const struct value *const *)b;
    size_t n = x->as.text.n < y->as.text.n ? x->as.text.n : y->as.text.n;
    int order = n ? memcmp(x->as.text.p, y->as.text.p, n) : 0;
    return order ? order : x->as.text.n < y->as.text.n ? -1 : x->as.text.n > y->as.text.n;
}

static sluice_status json_dict_out(struct json_writer *w, const struct value_dict *dict, int depth)
{
    const struct value **order = NULL;
    TRY(tmpl_alloc(w->b.r, (dict->n + 1) * sizeof *order, &order));
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = &dict->keys[i];
        if (order[i]->kind != VALUE_STRING)
            return tmpl_fail(w->b.r, SLUICE_E_UNSUPPORTED, "tojson of a dict with a key that is %s",
                             value_type(order[i]));
    }
    if (w->style->sort_keys && dict->n)
        qsort(order, dict->n, sizeof *order, by_key);
    TRY(put(&w->b, "{", false));
    for (size_t i = 0; i < dict->n; i++) {
        TRY(put(&w->b, i ? w->style->item_separator : "", false));
        TRY(json_break(w, depth + 1));
        TRY(json_string_out(w, order[i]));
        TRY(put(&w->b, w->style->key_separator, false));
        TRY(json_out(w, &dict->values[order[i] - dict->keys], depth + 1));
    }
    if (dict->n)
        TRY(json_break(w, depth));
    return put(&w->b, "}", false);
}

static sluice_status json_out(struct json_writer *w, const struct value *v, int depth)
{
    TRY(tmpl_step(w->b.r, 1));
    if (depth > TMPL_DEPTH_MAX)
        return tmpl_fail(w->b.r, SLUICE_E_UNSUPPORTED, "values are nested deeper than %d levels",
                         TMPL_DEPTH_MAX);
    switch (v->kind) {
    case VALUE_STRING:
        return json_string_out(w, v);
    case VALUE_NONE:
        return put(&w->b, "null", v->own);
    case VALUE_BOOL:
        return put(&w->b, v->as.truth ? "true" : "false", v->own);
    case VALUE_INT:
    case VALUE_FLOAT:
        return put_scalar(&w->b, v);
    case VALUE_DICT:
        return json_dict_out(w, v->as.dict, depth);
    case VALUE_LIST:
        if (value_has_items(v))
            break;
        return tmpl_fail(w->b.r, SLUICE_E_FORMAT, "tojson of %s", value_type(v));
    default:
        return tmpl_fail(w->b.r, SLUICE_E_FORMAT, "tojson of something that is %s", value_type(v));
    }
    TRY(put(&w->b, "[", false));
    for (size_t i = 0; i < v->as.list->n; i++) {
        TRY(put(&w->b, i ? w->style->item_separator : "", false));
        TRY(json_break(w, depth + 1));
        TRY(json_out(w, &v->as.list->v[i], depth + 1));
    }
    if (v->as.list->n)
        TRY(json_break(w, depth));
    return put(&w->b, "]", false);
}

sluice_status value_to_json(struct render *r, const struct value *v, const struct json_style *style,
                            struct value *out)
{
    struct json_writer w = {{.r = r}, style};
    TRY(json_out(&w, v, 0));
    *out = builder_done(&w.b, false);
    return SLUICE_OK;
}
