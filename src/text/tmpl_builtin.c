#include "base/utf8.h"
#include "text/tmpl_internal.h"
#include "text/unicode.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utf8proc.h>

/* ---- helpers ---- */

sluice_status call_give(struct call *c, struct value v)
{
    *c->out = v;
    return SLUICE_OK;
}

/* The subject as text: what is not a string is printed first, as Jinja's string filters do. */
sluice_status call_subject(struct call *c, struct value *text)
{
    return value_text_of(c->r, c->self, text);
}

sluice_status call_need_string(struct call *c, const struct value *v, const char *what)
{
    if (v->kind == VALUE_STRING)
        return SLUICE_OK;
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s needs a string, not %s", what, value_type(v));
}

sluice_status call_need_integer(struct call *c, size_t arg, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (c->args[arg].kind == VALUE_ABSENT || c->args[arg].kind == VALUE_NONE ||
        value_integer(&c->args[arg], out))
        return SLUICE_OK;
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "an integer is needed, not %s", value_type(&c->args[arg]));
}

struct value call_cut(const struct value *string, size_t at, size_t end)
{
    struct value v = *string;
    v.as.text.p += at;
    v.as.text.n = end - at;
    if (v.as.text.marks)
        v.as.text.marks += at;
    return v;
}

/* Python strips the white space of str.isspace(), which has four separators more than White_Space. */
bool call_strips(uint32_t cp, const struct value *set)
{
    if (set->kind != VALUE_STRING)
        return uni_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
    char bytes[4];
    size_t n = utf8_encode(cp, bytes);
    return set->as.text.n && memmem(set->as.text.p, set->as.text.n, bytes, n) != NULL;
}

sluice_status call_strip(struct call *c, const struct value *string, bool left, bool right)
{
    const struct value *set = &c->args[0];
    const struct value_text *text = &string->as.text;
    size_t at = 0, end = text->n;
    uint32_t cp;
    if (set->kind != VALUE_ABSENT && set->kind != VALUE_NONE)
        TRY(call_need_string(c, set, "stripping"));
    TRY(tmpl_step(c->r, text->n / 16));
    while (left && at < end) {
        size_t used = utf8_decode(text->p + at, end - at, &cp, NULL);
        if (!call_strips(cp, set))
            break;
        at += used;
    }
    while (right && end > at) {
        size_t start = end - 1;
        while (start > at && ((unsigned char)text->p[start] & 0xC0) == 0x80)
            start--;
        (void)utf8_decode(text->p + start, end - start, &cp, NULL);
        if (!call_strips(cp, set))
            break;
        end = start;
    }
    return call_give(c, call_cut(string, at, end));
}

/* Simple case mapping, and the one common letter that grows: ß becomes SS. */
sluice_status call_change_case(struct call *c, const struct value *string, enum letter_case how)
{
    struct builder b = {.r = c->r};
    bool starts = true;
    const struct value_text *text = &string->as.text;
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t at = 0; at < text->n;) {
        uint32_t cp, to;
        char bytes[8];
        size_t used = utf8_decode(text->p + at, text->n - at, &cp, NULL), made;
        bool upper = how == UPPER || (starts && how != LOWER);
        to = (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp)
                              : utf8proc_tolower((utf8proc_int32_t)cp));
        made = utf8_encode(to, bytes);
        if (upper && cp == 0xDF) {
            made = 2;
            bytes[0] = 'S';
            bytes[1] = how == UPPER ? 'S' : 's';
        }
        /* Marks of a character are equal byte by byte only when it is not cut; take the first one's. */
        bool own = text->marks ? text->marks[at] != 0 : string->own;
        TRY(builder_add(&b, bytes, NULL, own, made));
        /* Jinja starts a word behind white space, a hyphen or an opening bracket. */
        starts = how == TITLE && (uni_is_space(cp) || (cp < 0x80 && cp && strchr("-([{<", (char)cp)));
        at += used;
    }
    return call_give(c, builder_done(&b, string->safe));
}

sluice_status call_replace(struct call *c, const struct value *string)
{
    const struct value *old = &c->args[0], *with = &c->args[1];
    const struct value_text *text = &string->as.text;
    struct builder b = {.r = c->r};
    int64_t left = -1;
    TRY(call_need_string(c, old, "replace"));
    TRY(call_need_string(c, with, "replace"));
    if (c->args[2].kind != VALUE_ABSENT && c->args[2].kind != VALUE_NONE &&
        !value_integer(&c->args[2], &left))
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "replace needs an integer as count");
    size_t done = 0, n = old->as.text.n, at = 0;
    TRY(builder_add(&b, "", NULL, true, 0));
    TRY(tmpl_step(c->r, text->n / 16));
    while (left != 0 && at <= text->n) {
        const char *hit = n && at < text->n ? memmem(text->p + at, text->n - at, old->as.text.p, n) : NULL;
        size_t start = n == 0 ? at : hit ? (size_t)(hit - text->p) : text->n + 1;
        if (start > text->n)
            break;
        struct value before = call_cut(string, done, start);
        TRY(builder_value(&b, &before));
        TRY(builder_value(&b, with));
        TRY(tmpl_step(c->r, 1));
        done = start + n;
        uint32_t cp;
        at = n                 ? done
             : start < text->n ? start + utf8_decode(text->p + start, text->n - start, &cp, NULL)
                               : text->n + 1;
        left -= left > 0;
    }
    struct value rest = call_cut(string, done, text->n);
    TRY(builder_value(&b, &rest));
    return call_give(c, builder_done(&b, false));
}

static sluice_status length(struct call *c)
{
    const struct value *v = c->self;
    size_t n = 0;
    if (v->kind == VALUE_LIST && v->as.list->shape != SHAPE_GENERATOR) {
        n = v->as.list->n;
    } else if (v->kind == VALUE_DICT) {
        n = v->as.dict->n;
    } else if (v->kind == VALUE_STRING) {
        for (size_t i = 0; i < v->as.text.n; i++)
            n += ((unsigned char)v->as.text.p[i] & 0xC0) != 0x80;
        TRY(tmpl_step(c->r, v->as.text.n / 16));
    } else if (v->kind != VALUE_UNDEFINED) {
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s has no length", value_type(v));
    }
    return call_give(c, value_int((int64_t)n, false));
}

/* ---- filters ---- */

static sluice_status filter_trim(struct call *c)
{
    struct value string;
    TRY(call_subject(c, &string));
    return call_strip(c, &string, true, true);
}

static sluice_status filter_upper(struct call *c)
{
    struct value string;
    TRY(call_subject(c, &string));
    return call_change_case(c, &string, UPPER);
}

static sluice_status filter_lower(struct call *c)
{
    struct value string;
    TRY(call_subject(c, &string));
    return call_change_case(c, &string, LOWER);
}

static sluice_status filter_capitalize(struct call *c)
{
    struct value string;
    TRY(call_subject(c, &string));
    return call_change_case(c, &string, CAPITALIZE);
}

static sluice_status filter_title(struct call *c)
{
    struct value string;
    TRY(call_subject(c, &string));
    string.safe = false; /* Jinja joins it of parts */
    return call_change_case(c, &string, TITLE);
}

static sluice_status filter_replace(struct call *c)
{
    struct value string;
    TRY(call_subject(c, &string));
    return call_replace(c, &string);
}

static sluice_status filter_string(struct call *c)
{
    return call_subject(c, c->out);
}

static sluice_status filter_default(struct call *c)
{
    bool missing = c->self->kind == VALUE_UNDEFINED || (value_truth(&c->args[1]) && !value_truth(c->self));
    if (!missing)
        return call_give(c, *c->self);
    return call_give(c, c->args[0].kind == VALUE_ABSENT ? value_string("", 0, true) : c->args[0]);
}

static sluice_status filter_join(struct call *c)
{
    struct value_list *items = NULL;
    struct value separator = value_string("", 0, true);
    struct builder b = {.r = c->r};
    if (c->args[0].kind != VALUE_ABSENT)
        TRY(value_text_of(c->r, &c->args[0], &separator));
    TRY(value_iterate(c->r, c->self, &items));
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t i = 0; i < items->n; i++) {
        struct value text, item;
        if (i)
            TRY(builder_value(&b, &separator));
        TRY(tmpl_path(c->r, &items->v[i], &c->args[1], &item));
        TRY(value_text_of(c->r, &item, &text));
        TRY(builder_value(&b, &text));
    }
    return call_give(c, builder_done(&b, false));
}

sluice_status call_list(struct call *c)
{
    struct value_list *items = NULL;
    TRY(value_iterate(c->r, c->self, &items));
    TRY(value_list_new(c->r, items->n, c->out));
    for (size_t i = 0; i < items->n; i++)
        TRY(value_list_add(c->r, c->out->as.list, &items->v[i]));
    return SLUICE_OK;
}

static sluice_status filter_first(struct call *c)
{
    struct value_list *items = NULL, *own = c->self->kind == VALUE_LIST ? c->self->as.list : NULL;
    TRY(value_iterate(c->r, c->self, &items));
    if (items->n == 0)
        return call_give(c, value_undefined("an item of an empty sequence"));
    if (own && own != items) { /* a generator goes on behind it */
        own->v = items->v + 1;
        own->n = own->cap = items->n - 1;
    }
    return call_give(c, items->v[0]);
}

static sluice_status filter_last(struct call *c)
{
    struct value_list *items = NULL;
    if (c->self->kind == VALUE_LIST && c->self->as.list->shape == SHAPE_GENERATOR)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s has no last item", value_type(c->self));
    TRY(value_iterate(c->r, c->self, &items));
    if (items->n == 0)
        return call_give(c, value_undefined("an item of an empty sequence"));
    return call_give(c, items->v[items->n - 1]);
}

/* separators=(item, key) */
static sluice_status read_separators(struct call *c, const struct value *v, char texts[2][16],
                                     struct json_style *style)
{
    if (v->kind != VALUE_LIST || v->as.list->n != 2)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "tojson's separators must be two strings");
    for (size_t i = 0; i < 2; i++) {
        const struct value *text = &v->as.list->v[i];
        if (text->kind != VALUE_STRING || text->as.text.n >= 16)
            return tmpl_fail(c->r, SLUICE_E_FORMAT, "tojson's separators must be two short strings");
        memcpy(texts[i], text->as.text.p, text->as.text.n);
        texts[i][text->as.text.n] = '\0';
    }
    style->item_separator = texts[0];
    style->key_separator = texts[1];
    return SLUICE_OK;
}

/* json.dumps as transformers sets it: not escaped for HTML, nor to ASCII. */
static sluice_status filter_tojson(struct call *c)
{
    struct json_style style = {-1, false, false, ", ", ": "};
    char texts[2][16];
    int64_t indent = -1;
    const struct value *separators = &c->args[2];
    if (c->args[1].kind != VALUE_ABSENT && c->args[1].kind != VALUE_NONE) {
        if (!value_integer(&c->args[1], &indent) || indent < 0 || indent > 16)
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "tojson's indent must be an integer from 0 to 16");
        style.indent = (int)indent;
        style.item_separator = ",";
    }
    if (separators->kind != VALUE_ABSENT && separators->kind != VALUE_NONE)
        TRY(read_separators(c, separators, texts, &style));
    style.ascii = value_truth(&c->args[0]);
    style.sort_keys = value_truth(&c->args[3]);
    return value_to_json(c->r, c->self, &style, c->out);
}

/* ---- numbers ---- */

/* Python's int() and float() of a string: the whole text, white space around it aside. */
static bool read_number(const struct value *v, bool whole, int base, int64_t *integer, double *number)
{
    char text[64], *end;
    struct value space = {.kind = VALUE_ABSENT};
    const struct value_text *t = &v->as.text;
    size_t at = 0, n = t->n;
    while (at < n && call_strips((unsigned char)t->p[at], &space))
        at++;
    while (n > at && call_strips((unsigned char)t->p[n - 1], &space))
        n--;
    if (n == at || n - at >= sizeof text)
        return false;
    memcpy(text, t->p + at, n - at);
    text[n - at] = '\0';
    if (strpbrk(text, "xXpP") && base == 10)
        return false;
    errno = 0;
    if (whole)
        *integer = strtoll(text, &end, base);
    else
        *number = strtod(text, &end);
    return *end == '\0' && errno == 0;
}

static sluice_status filter_int(struct call *c)
{
    const struct value *v = c->self;
    int64_t integer = 0, base;
    double number = 0;
    TRY(call_need_integer(c, 1, 10, &base));
    if (base < 2 || base > 36)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "int needs a base from 2 to 36");
    bool good = value_integer(v, &integer);
    if (!good && v->kind == VALUE_STRING)
        good = read_number(v, true, (int)base, &integer, NULL);
    if (!good &&
        ((v->kind == VALUE_STRING && read_number(v, false, 10, NULL, &number)) || v->kind == VALUE_FLOAT)) {
        number = v->kind == VALUE_FLOAT ? v->as.number : number;
        good = number > -9e18 && number < 9e18;
        integer = good ? (int64_t)number : 0;
    }
    if (!good && c->args[0].kind != VALUE_ABSENT)
        return call_give(c, c->args[0]);
    return call_give(c, value_int(good ? integer : 0, v->own));
}

static sluice_status filter_float(struct call *c)
{
    struct value v = {.kind = VALUE_FLOAT, .own = c->self->own};
    if (value_is_number(c->self))
        v.as.number = value_number(c->self);
    else if (c->self->kind != VALUE_STRING || !read_number(c->self, false, 10, NULL, &v.as.number))
        v.as.number = c->args[0].kind != VALUE_ABSENT ? value_number(&c->args[0]) : 0.0;
    return call_give(c, v);
}

static sluice_status need_number(struct call *c, const char *what)
{
    if (value_is_number(c->self))
        return SLUICE_OK;
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s needs a number, not %s", what, value_type(c->self));
}

static sluice_status filter_abs(struct call *c)
{
    int64_t integer;
    struct value v = *c->self;
    TRY(need_number(c, "abs"));
    if (!value_integer(&v, &integer)) {
        v.as.number = fabs(v.as.number);
        return call_give(c, v);
    }
    if (integer == INT64_MIN)
        return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "an integer does not fit 64 bits");
    return call_give(c, value_int(integer < 0 ? -integer : integer, v.own));
}

/* To decimals as Python rounds: the nearest decimal of the exact value, ties to even. */
static sluice_status filter_round(struct call *c)
{
    char text[400], method[8] = "common";
    int64_t precision;
    TRY(need_number(c, "round"));
    TRY(call_need_integer(c, 0, 0, &precision));
    if (precision < 0 || precision > 20 || fabs(value_number(c->self)) > 1e300)
        return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "round's precision must be from 0 to 20");
    if (c->args[1].kind == VALUE_STRING && c->args[1].as.text.n < sizeof method) {
        memcpy(method, c->args[1].as.text.p, c->args[1].as.text.n);
        method[c->args[1].as.text.n] = '\0';
    }
    double number = value_number(c->self), scale = pow(10, (double)precision);
    struct value v = {.kind = VALUE_FLOAT, .own = c->self->own};
    if (strcmp(method, "ceil") == 0) {
        v.as.number = ceil(number * scale) / scale;
    } else if (strcmp(method, "floor") == 0) {
        v.as.number = floor(number * scale) / scale;
    } else if (c->self->kind != VALUE_FLOAT) {
        return call_give(c, *c->self);
    } else {
        (void)snprintf(text, sizeof text, "%.*f", (int)precision, number);
        v.as.number = strtod(text, NULL);
    }
    return call_give(c, v);
}

/* ---- text ---- */

static sluice_status filter_escape(struct call *c)
{
    return value_escape(c->r, c->self, c->out);
}

static sluice_status filter_indent(struct call *c)
{
    struct value string, width = value_string("    ", 4, true), lines;
    struct builder b = {.r = c->r};
    int64_t n;
    bool first = value_truth(&c->args[1]), blank = value_truth(&c->args[2]);
    TRY(call_subject(c, &string));
    if (c->args[0].kind == VALUE_STRING) {
        width = c->args[0];
    } else {
        static const char SPACES[] = "                                                                ";
        TRY(call_need_integer(c, 0, 4, &n));
        if (n < 0 || n >= (int64_t)sizeof SPACES)
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "indent's width must be from 0 to 64");
        width = value_string(SPACES, (size_t)n, true);
    }
    bool safe = string.safe;
    TRY(builder_value(&b, &string));
    TRY(builder_add(&b, "\n", NULL, true, 1));
    string = builder_done(&b, false);
    TRY(tmpl_lines(c->r, &string, false, &lines));
    b = (struct builder){.r = c->r};
    TRY(builder_add(&b, "", NULL, true, 0));
    for (size_t i = 0; i < lines.as.list->n; i++) {
        if (i)
            TRY(builder_add(&b, "\n", NULL, true, 1));
        if (i ? blank || lines.as.list->v[i].as.text.n : first)
            TRY(builder_value(&b, &width));
        TRY(builder_value(&b, &lines.as.list->v[i]));
    }
    return call_give(c, builder_done(&b, safe));
}

static sluice_status filter_format(struct call *c)
{
    TRY(call_need_string(c, c->self, "format"));
    return call_format(c, c->self, c->args, c->n_args, c->out);
}

static sluice_status filter_safe(struct call *c)
{
    TRY(call_subject(c, c->out));
    c->out->safe = true;
    return SLUICE_OK;
}

/* ---- pairs of a dict ---- */

sluice_status call_pairs(struct call *c)
{
    if (c->self->kind == VALUE_UNDEFINED)
        return value_list_new(c->r, 0, c->out);
    if (c->self->kind != VALUE_DICT)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s has no items", value_type(c->self));
    const struct value_dict *dict = c->self->as.dict;
    TRY(value_list_new(c->r, dict->n, c->out));
    for (size_t i = 0; i < dict->n; i++) {
        struct value pair;
        TRY(value_pair(c->r, &dict->keys[i], &dict->values[i], &pair));
        TRY(value_list_add(c->r, c->out->as.list, &pair));
    }
    return SLUICE_OK;
}

static sluice_status filter_items(struct call *c)
{
    TRY(call_pairs(c));
    c->out->as.list->shape = SHAPE_GENERATOR;
    return SLUICE_OK;
}

/* ---- tests ---- */

#define TEST(name, condition)                                                                                \
    static sluice_status name(struct call *c)                                                                \
    {                                                                                                        \
        const struct value *v = c->self;                                                                     \
        return call_give(c, value_bool(condition));                                                          \
    }

TEST(test_defined, v->kind != VALUE_UNDEFINED)
TEST(test_undefined, v->kind == VALUE_UNDEFINED)
TEST(test_none, v->kind == VALUE_NONE)
TEST(test_string, v->kind == VALUE_STRING)
TEST(test_number, value_is_number(v))
TEST(test_integer, v->kind == VALUE_INT)
TEST(test_float, v->kind == VALUE_FLOAT)
TEST(test_boolean, v->kind == VALUE_BOOL)
TEST(test_true, v->kind == VALUE_BOOL && v->as.truth)
TEST(test_false, v->kind == VALUE_BOOL && !v->as.truth)
TEST(test_mapping, v->kind == VALUE_DICT)
TEST(test_sequence,
     value_has_items(v) || v->kind == VALUE_STRING || v->kind == VALUE_DICT || v->kind == VALUE_UNDEFINED)
TEST(test_iterable, v->kind == VALUE_LIST || v->kind == VALUE_STRING || v->kind == VALUE_DICT ||
                        v->kind == VALUE_UNDEFINED || v->kind == VALUE_LOOP)

TEST(test_callable, v->kind == VALUE_MACRO || v->kind == VALUE_FUNCTION)

static sluice_status test_same(struct call *c)
{
    const struct value *a = c->self, *b = &c->args[0];
    bool same = a->kind == b->kind;
    if (same && a->kind == VALUE_LIST)
        same = a->as.list == b->as.list;
    else if (same && a->kind == VALUE_DICT)
        same = a->as.dict == b->as.dict;
    else if (same)
        TRY(value_equal(c->r, a, b, &same));
    return call_give(c, value_bool(same));
}

/* str(value).islower() or isupper(): some letter, and none of the other case. */
static sluice_status test_case(struct call *c, bool upper)
{
    struct value string;
    bool some = false, other = false;
    TRY(call_subject(c, &string));
    for (size_t at = 0; at < string.as.text.n;) {
        uint32_t cp;
        at += utf8_decode(string.as.text.p + at, string.as.text.n - at, &cp, NULL);
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
        bool is_upper = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
        some |= upper ? is_upper : category == UTF8PROC_CATEGORY_LL;
        other |= upper ? category == UTF8PROC_CATEGORY_LL : is_upper;
    }
    return call_give(c, value_bool(some && !other));
}

static sluice_status test_lower(struct call *c)
{
    return test_case(c, false);
}

static sluice_status test_upper(struct call *c)
{
    return test_case(c, true);
}

static sluice_status test_order(struct call *c, int want, bool or_equal)
{
    int order = 0;
    TRY(value_order(c->r, c->self, &c->args[0], &order));
    return call_give(c, value_bool(order == want || (or_equal && order == 0)));
}

static sluice_status test_less(struct call *c)
{
    return test_order(c, -1, false);
}

static sluice_status test_less_equal(struct call *c)
{
    return test_order(c, -1, true);
}

static sluice_status test_greater(struct call *c)
{
    return test_order(c, 1, false);
}

static sluice_status test_greater_equal(struct call *c)
{
    return test_order(c, 1, true);
}

static sluice_status remainder_is(struct call *c, int64_t divisor, int64_t want)
{
    int64_t n;
    if (!value_integer(c->self, &n) || divisor == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s is not divisible", value_type(c->self));
    int64_t rest = divisor == -1 ? 0 : n % divisor;
    return call_give(c, value_bool((rest < 0 ? rest + 2 : rest) == want));
}

static sluice_status test_odd(struct call *c)
{
    return remainder_is(c, 2, 1);
}

static sluice_status test_even(struct call *c)
{
    return remainder_is(c, 2, 0);
}

static sluice_status test_divisible(struct call *c)
{
    int64_t divisor, n;
    if (!value_integer(&c->args[0], &divisor) || !value_integer(c->self, &n) || divisor == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "divisibleby needs integers, not 0");
    return call_give(c, value_bool(divisor == -1 || n % divisor == 0));
}

static sluice_status test_equal(struct call *c)
{
    bool equal = false;
    TRY(value_equal(c->r, c->self, &c->args[0], &equal));
    return call_give(c, value_bool(equal));
}

static sluice_status test_unequal(struct call *c)
{
    TRY(test_equal(c));
    c->out->as.truth = !c->out->as.truth;
    return SLUICE_OK;
}

static sluice_status test_in(struct call *c)
{
    bool found = false;
    TRY(value_contains(c->r, &c->args[0], c->self, &found));
    return call_give(c, value_bool(found));
}

/* ---- functions ---- */

static sluice_status function_raise(struct call *c)
{
    struct value text;
    TRY(value_text_of(c->r, &c->args[0], &text));
    int n = text.as.text.n > 400 ? 400 : (int)text.as.text.n;
    return tmpl_fail(c->r, SLUICE_E_ARGUMENT, "%.*s", n, text.as.text.p);
}

static sluice_status function_range(struct call *c)
{
    int64_t given[3] = {0}, start = 0, stop, step = 1;
    for (size_t i = 0; i < 3; i++)
        if (c->args[i].kind != VALUE_ABSENT && !value_integer(&c->args[i], &given[i]))
            return tmpl_fail(c->r, SLUICE_E_FORMAT, "range needs integers, not %s", value_type(&c->args[i]));
    stop = given[0];
    if (c->args[1].kind != VALUE_ABSENT) {
        start = given[0];
        stop = given[1];
    }
    if (c->args[2].kind != VALUE_ABSENT)
        step = given[2];
    if (step == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "range needs a step that is not 0");
    TRY(value_list_new(c->r, 0, c->out));
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        struct value v = value_int(i, true);
        TRY(value_list_add(c->r, c->out->as.list, &v));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return SLUICE_OK;
}

/* The local time, as transformers has it. */
static sluice_status function_strftime(struct call *c)
{
    char format[256], text[1024];
    struct tm local;
    time_t now = c->r->now_seconds ? (time_t)c->r->now_seconds : time(NULL);
    TRY(call_need_string(c, &c->args[0], "strftime_now"));
    const struct value_text *given = &c->args[0].as.text;
    if (given->n == 0 || given->n >= sizeof format || memchr(given->p, '\0', given->n))
        return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "strftime_now's format must have 1 to 255 characters");
    memcpy(format, given->p, given->n);
    format[given->n] = '\0';
    if (!localtime_r(&now, &local))
        return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "the time is not known");
    size_t n = strftime(text, sizeof text, format, &local);
    if (n == 0)
        return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "strftime_now's format is not supported");
    char *copy = NULL;
    TRY(tmpl_alloc(c->r, n + 1, &copy));
    memcpy(copy, text, n);
    return call_give(c, value_string(copy, n, true));
}

static sluice_status keyword_dict(struct call *c)
{
    TRY(value_dict_new(c->r, c->out));
    struct value_dict *dict = c->out->as.dict;
    for (size_t i = 0; i < c->n_args; i++) {
        if (!c->keywords[i]) {
            if (c->args[i].kind != VALUE_DICT)
                return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED,
                                 "dict and namespace take keyword arguments or a dict");
            for (size_t k = 0; k < c->args[i].as.dict->n; k++)
                TRY(value_dict_set(c->r, dict, &c->args[i].as.dict->keys[k], &c->args[i].as.dict->values[k]));
            continue;
        }
        struct value key = value_string(c->keywords[i], strlen(c->keywords[i]), true);
        TRY(value_dict_set(c->r, dict, &key, &c->args[i]));
    }
    return SLUICE_OK;
}

static sluice_status function_namespace(struct call *c)
{
    TRY(keyword_dict(c));
    c->out->kind = VALUE_NAMESPACE;
    return SLUICE_OK;
}

/* ---- tables ---- */

static const struct callable FILTERS[] = {
    {"trim", "chars", filter_trim, 0},
    {"upper", "", filter_upper, 0},
    {"lower", "", filter_lower, 0},
    {"capitalize", "", filter_capitalize, 0},
    {"title", "", filter_title, 0},
    {"length", "", length, 0},
    {"count", "", length, 0},
    {"default", "default_value,boolean", filter_default, 0},
    {"d", "default_value,boolean", filter_default, 0},
    {"join", "d,attribute", filter_join, 0},
    {"replace", "old!,new!,count", filter_replace, 0},
    {"string", "", filter_string, 0},
    {"safe", "", filter_safe, 0},
    {"escape", "", filter_escape, 0},
    {"e", "", filter_escape, 0},
    {"indent", "width,first,blank", filter_indent, 0},
    {"format", "*", filter_format, 0},
    {"int", "default,base", filter_int, 0},
    {"float", "default", filter_float, 0},
    {"abs", "", filter_abs, 0},
    {"round", "precision,method", filter_round, 0},
    {"list", "", call_list, 0},
    {"first", "", filter_first, 0},
    {"last", "", filter_last, 0},
    {"items", "", filter_items, 0},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", filter_tojson, 0},
};

static const struct callable TESTS[] = {
    {"defined", "", test_defined, 0},
    {"undefined", "", test_undefined, 0},
    {"none", "", test_none, 0},
    {"string", "", test_string, 0},
    {"number", "", test_number, 0},
    {"integer", "", test_integer, 0},
    {"float", "", test_float, 0},
    {"boolean", "", test_boolean, 0},
    {"true", "", test_true, 0},
    {"false", "", test_false, 0},
    {"mapping", "", test_mapping, 0},
    {"sequence", "", test_sequence, 0},
    {"iterable", "", test_iterable, 0},
    {"odd", "", test_odd, 0},
    {"even", "", test_even, 0},
    {"divisibleby", "num!", test_divisible, 0},
    {"equalto", "other!", test_equal, 0},
    {"eq", "other!", test_equal, 0},
    {"ne", "other!", test_unequal, 0},
    {"in", "seq!", test_in, 0},
    {"==", "other!", test_equal, 0},
    {"!=", "other!", test_unequal, 0},
    {"lt", "other!", test_less, 0},
    {"<", "other!", test_less, 0},
    {"lessthan", "other!", test_less, 0},
    {"le", "other!", test_less_equal, 0},
    {"<=", "other!", test_less_equal, 0},
    {"gt", "other!", test_greater, 0},
    {">", "other!", test_greater, 0},
    {"greaterthan", "other!", test_greater, 0},
    {"ge", "other!", test_greater_equal, 0},
    {">=", "other!", test_greater_equal, 0},
    {"callable", "", test_callable, 0},
    {"sameas", "other!", test_same, 0},
    {"lower", "", test_lower, 0},
    {"upper", "", test_upper, 0},
};

static const struct callable FUNCTIONS[] = {
    {"raise_exception", "message!", function_raise, 0},
    {"range", "start!,stop,step", function_range, 0},
    {"dict", "*", keyword_dict, 0},
    {"namespace", "*", function_namespace, 0},
    {"strftime_now", "format!", function_strftime, 0},
};

#define ROWS(table) (table), sizeof(table) / sizeof *(table)

const struct callable *tmpl_find_callable(enum callable_kind kind, const char *name)
{
    static const struct {
        const struct callable *rows;
        size_t n;
    } TABLES[CALL_KINDS] = {
        [CALL_FILTER] = {ROWS(FILTERS)},
        [CALL_TEST] = {ROWS(TESTS)},
        [CALL_FUNCTION] = {ROWS(FUNCTIONS)},
    };
    for (size_t i = 0; i < TABLES[kind].n; i++)
        if (strcmp(TABLES[kind].rows[i].name, name) == 0)
            return &TABLES[kind].rows[i];
    for (const struct callable *c = tmpl_sequence_filters; kind == CALL_FILTER && c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}
