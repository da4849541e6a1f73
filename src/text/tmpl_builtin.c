#include "base/utf8.h"
#include "text/tmpl_internal.h"
#include "text/unicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- helpers ---- */

static sluice_status give(struct call *c, struct value v)
{
    *c->out = v;
    return SLUICE_OK;
}

/* The subject as text: what is not a string is printed first, as Jinja's string filters do. */
static sluice_status subject(struct call *c, struct value *text)
{
    return value_text_of(c->r, c->self, text);
}

static sluice_status need_string(struct call *c, const struct value *v, const char *what)
{
    if (v->kind == VALUE_STRING)
        return SLUICE_OK;
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s needs a string, not %s", what, value_type(v));
}

static struct value cut(const struct value *string, size_t at, size_t end)
{
    struct value v = *string;
    v.as.text.p += at;
    v.as.text.n = end - at;
    if (v.as.text.marks)
        v.as.text.marks += at;
    return v;
}

/* Python strips the white space of str.isspace(), which has four separators more than White_Space. */
static bool strips(uint32_t cp, const struct value *set)
{
    if (set->kind != VALUE_STRING)
        return uni_is_space(cp) || (cp >= 0x1C && cp <= 0x1F);
    char bytes[4];
    size_t n = utf8_encode(cp, bytes);
    return set->as.text.n && memmem(set->as.text.p, set->as.text.n, bytes, n) != NULL;
}

static sluice_status strip(struct call *c, const struct value *string, bool left, bool right)
{
    const struct value *set = &c->args[0];
    const struct value_text *text = &string->as.text;
    size_t at = 0, end = text->n;
    uint32_t cp;
    if (set->kind != VALUE_ABSENT && set->kind != VALUE_NONE)
        TRY(need_string(c, set, "stripping"));
    TRY(tmpl_step(c->r, text->n / 16));
    while (left && at < end) {
        size_t used = utf8_decode(text->p + at, end - at, &cp, NULL);
        if (!strips(cp, set))
            break;
        at += used;
    }
    while (right && end > at) {
        size_t start = end - 1;
        while (start > at && ((unsigned char)text->p[start] & 0xC0) == 0x80)
            start--;
        (void)utf8_decode(text->p + start, end - start, &cp, NULL);
        if (!strips(cp, set))
            break;
        end = start;
    }
    return give(c, cut(string, at, end));
}

enum letter_case { UPPER, LOWER, CAPITALIZE, TITLE };

/* Simple case mapping, and the one common letter that grows: ß becomes SS. */
static sluice_status change_case(struct call *c, enum letter_case how)
{
    struct value string;
    struct builder b = {.r = c->r};
    bool starts = true;
    TRY(subject(c, &string));
    const struct value_text *text = &string.as.text;
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
            memcpy(bytes, how == UPPER ? "SS" : "Ss", 2);
        }
        /* Marks of a character are equal byte by byte only when it is not cut; take the first one's. */
        bool own = text->marks ? text->marks[at] != 0 : string.own;
        TRY(builder_add(&b, bytes, NULL, own, made));
        /* Jinja starts a word behind white space, a hyphen or an opening bracket. */
        starts = how == TITLE && (uni_is_space(cp) || (cp < 0x80 && cp && strchr("-([{<", (char)cp)));
        at += used;
    }
    return give(c, builder_done(&b));
}

static sluice_status replace(struct call *c, const struct value *string)
{
    const struct value *old = &c->args[0], *with = &c->args[1];
    const struct value_text *text = &string->as.text;
    struct builder b = {.r = c->r};
    int64_t left = -1;
    TRY(need_string(c, old, "replace"));
    TRY(need_string(c, with, "replace"));
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
        struct value before = cut(string, done, start);
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
    struct value rest = cut(string, done, text->n);
    TRY(builder_value(&b, &rest));
    return give(c, builder_done(&b));
}

static sluice_status length(struct call *c)
{
    const struct value *v = c->self;
    size_t n = 0;
    if (v->kind == VALUE_LIST) {
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
    return give(c, value_int((int64_t)n, false));
}

/* ---- filters ---- */

static sluice_status filter_trim(struct call *c)
{
    struct value string;
    TRY(subject(c, &string));
    return strip(c, &string, true, true);
}

static sluice_status filter_upper(struct call *c)
{
    return change_case(c, UPPER);
}

static sluice_status filter_lower(struct call *c)
{
    return change_case(c, LOWER);
}

static sluice_status filter_capitalize(struct call *c)
{
    return change_case(c, CAPITALIZE);
}

static sluice_status filter_title(struct call *c)
{
    return change_case(c, TITLE);
}

static sluice_status filter_replace(struct call *c)
{
    struct value string;
    TRY(subject(c, &string));
    return replace(c, &string);
}

static sluice_status filter_string(struct call *c)
{
    return subject(c, c->out);
}

static sluice_status filter_default(struct call *c)
{
    bool missing = c->self->kind == VALUE_UNDEFINED || (value_truth(&c->args[1]) && !value_truth(c->self));
    if (!missing)
        return give(c, *c->self);
    return give(c, c->args[0].kind == VALUE_ABSENT ? value_string("", 0, true) : c->args[0]);
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
        struct value text;
        if (i)
            TRY(builder_value(&b, &separator));
        TRY(value_text_of(c->r, &items->v[i], &text));
        TRY(builder_value(&b, &text));
    }
    return give(c, builder_done(&b));
}

static sluice_status filter_list(struct call *c)
{
    struct value_list *items = NULL;
    TRY(value_iterate(c->r, c->self, &items));
    TRY(value_list_new(c->r, items->n, c->out));
    for (size_t i = 0; i < items->n; i++)
        TRY(value_list_add(c->r, c->out->as.list, &items->v[i]));
    return SLUICE_OK;
}

static sluice_status end_item(struct call *c, bool first)
{
    struct value_list *items = NULL;
    TRY(value_iterate(c->r, c->self, &items));
    if (items->n == 0)
        return give(c, value_undefined("an item of an empty sequence"));
    return give(c, items->v[first ? 0 : items->n - 1]);
}

static sluice_status filter_first(struct call *c)
{
    return end_item(c, true);
}

static sluice_status filter_last(struct call *c)
{
    return end_item(c, false);
}

/* json.dumps as transformers sets it: not escaped for HTML, nor to ASCII. */
static sluice_status filter_tojson(struct call *c)
{
    struct json_style style = {-1, false, ", ", ": "};
    int64_t indent = -1;
    if (c->args[0].kind != VALUE_ABSENT && c->args[0].kind != VALUE_NONE) {
        if (!value_integer(&c->args[0], &indent) || indent < 0 || indent > 16)
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "tojson's indent must be an integer from 0 to 16");
        style.indent = (int)indent;
        style.item_separator = ",";
    }
    style.sort_keys = value_truth(&c->args[1]);
    return value_to_json(c->r, c->self, &style, c->out);
}

/* ---- pairs of a dict ---- */

static sluice_status pairs(struct call *c)
{
    if (c->self->kind == VALUE_UNDEFINED)
        return value_list_new(c->r, 0, c->out);
    if (c->self->kind != VALUE_DICT)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s has no items", value_type(c->self));
    const struct value_dict *dict = c->self->as.dict;
    TRY(value_list_new(c->r, dict->n, c->out));
    for (size_t i = 0; i < dict->n; i++) {
        struct value pair;
        TRY(value_list_new(c->r, 2, &pair));
        TRY(value_list_add(c->r, pair.as.list, &dict->keys[i]));
        TRY(value_list_add(c->r, pair.as.list, &dict->values[i]));
        TRY(value_list_add(c->r, c->out->as.list, &pair));
    }
    return SLUICE_OK;
}

/* ---- tests ---- */

#define TEST(name, condition)                                                                                \
    static sluice_status name(struct call *c)                                                                \
    {                                                                                                        \
        const struct value *v = c->self;                                                                     \
        return give(c, value_bool(condition));                                                               \
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
     v->kind == VALUE_LIST || v->kind == VALUE_STRING || v->kind == VALUE_DICT || v->kind == VALUE_UNDEFINED)
TEST(test_iterable, v->kind == VALUE_LIST || v->kind == VALUE_STRING || v->kind == VALUE_DICT ||
                        v->kind == VALUE_UNDEFINED || v->kind == VALUE_LOOP)

static sluice_status remainder_is(struct call *c, int64_t divisor, int64_t want)
{
    int64_t n;
    if (!value_integer(c->self, &n) || divisor == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s is not divisible", value_type(c->self));
    int64_t rest = divisor == -1 ? 0 : n % divisor;
    return give(c, value_bool((rest < 0 ? rest + 2 : rest) == want));
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
    return give(c, value_bool(divisor == -1 || n % divisor == 0));
}

static sluice_status test_equal(struct call *c)
{
    bool equal = false;
    TRY(value_equal(c->r, c->self, &c->args[0], &equal));
    return give(c, value_bool(equal));
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
    return give(c, value_bool(found));
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
    int64_t given[3], start = 0, stop, step = 1;
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

/* ---- methods ---- */

static sluice_status method_strip(struct call *c)
{
    TRY(need_string(c, c->self, "strip"));
    return strip(c, c->self, true, true);
}

static sluice_status method_lstrip(struct call *c)
{
    TRY(need_string(c, c->self, "lstrip"));
    return strip(c, c->self, true, false);
}

static sluice_status method_rstrip(struct call *c)
{
    TRY(need_string(c, c->self, "rstrip"));
    return strip(c, c->self, false, true);
}

static sluice_status method_upper(struct call *c)
{
    TRY(need_string(c, c->self, "upper"));
    return change_case(c, UPPER);
}

static sluice_status method_lower(struct call *c)
{
    TRY(need_string(c, c->self, "lower"));
    return change_case(c, LOWER);
}

static sluice_status method_capitalize(struct call *c)
{
    TRY(need_string(c, c->self, "capitalize"));
    return change_case(c, CAPITALIZE);
}

static sluice_status method_replace(struct call *c)
{
    TRY(need_string(c, c->self, "replace"));
    return replace(c, c->self);
}

/* A string or any of a tuple of strings. */
static sluice_status affix(struct call *c, bool start)
{
    TRY(need_string(c, c->self, start ? "startswith" : "endswith"));
    const struct value_text *text = &c->self->as.text;
    const struct value *list = &c->args[0], *one = list;
    size_t n = 1;
    bool found = false;
    if (list->kind == VALUE_LIST) {
        one = list->as.list->v;
        n = list->as.list->n;
    }
    for (size_t i = 0; i < n && !found; i++) {
        TRY(need_string(c, &one[i], start ? "startswith" : "endswith"));
        const struct value_text *part = &one[i].as.text;
        size_t at = start || part->n > text->n ? 0 : text->n - part->n;
        found = part->n <= text->n && (part->n == 0 || memcmp(text->p + at, part->p, part->n) == 0);
    }
    return give(c, value_bool(found));
}

static sluice_status method_startswith(struct call *c)
{
    return affix(c, true);
}

static sluice_status method_endswith(struct call *c)
{
    return affix(c, false);
}

/* Runs of white space separate, and none at the ends. */
static sluice_status split_space(struct call *c, int64_t left)
{
    const struct value_text *text = &c->self->as.text;
    struct value space = {.kind = VALUE_ABSENT};
    for (size_t at = 0; at < text->n;) {
        size_t start = at, end;
        uint32_t cp;
        while (start < text->n) {
            size_t used = utf8_decode(text->p + start, text->n - start, &cp, NULL);
            if (!strips(cp, &space))
                break;
            start += used;
        }
        for (end = start; end < text->n && left != 0;) {
            size_t used = utf8_decode(text->p + end, text->n - end, &cp, NULL);
            if (strips(cp, &space))
                break;
            end += used;
        }
        if (left == 0) /* the rest, with the white space behind it */
            end = text->n;
        struct value part = cut(c->self, start, end);
        if (end > start)
            TRY(value_list_add(c->r, c->out->as.list, &part));
        left -= left > 0;
        at = end > start ? end : text->n;
    }
    return SLUICE_OK;
}

static sluice_status method_split(struct call *c)
{
    int64_t left = -1;
    TRY(need_string(c, c->self, "split"));
    TRY(value_list_new(c->r, 0, c->out));
    TRY(tmpl_step(c->r, c->self->as.text.n / 16));
    if (c->args[1].kind != VALUE_ABSENT && !value_integer(&c->args[1], &left))
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "split needs an integer as maxsplit");
    if (c->args[0].kind == VALUE_ABSENT || c->args[0].kind == VALUE_NONE)
        return split_space(c, left);
    TRY(need_string(c, &c->args[0], "split"));
    const struct value_text *text = &c->self->as.text, *separator = &c->args[0].as.text;
    if (separator->n == 0)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "split needs a separator that is not empty");
    size_t at = 0;
    for (;;) {
        const char *hit =
            left != 0 && at < text->n ? memmem(text->p + at, text->n - at, separator->p, separator->n) : NULL;
        size_t end = hit ? (size_t)(hit - text->p) : text->n;
        struct value part = cut(c->self, at, end);
        TRY(value_list_add(c->r, c->out->as.list, &part));
        if (!hit)
            return SLUICE_OK;
        at = end + separator->n;
        left -= left > 0;
    }
}

static sluice_status need_dict(struct call *c, const char *what)
{
    if (c->self->kind == VALUE_DICT)
        return SLUICE_OK;
    return tmpl_fail(c->r, SLUICE_E_FORMAT, "%s needs a dict, not %s", what, value_type(c->self));
}

static sluice_status method_items(struct call *c)
{
    TRY(need_dict(c, "items"));
    return pairs(c);
}

static sluice_status method_keys(struct call *c)
{
    TRY(need_dict(c, "keys"));
    return filter_list(c);
}

static sluice_status method_values(struct call *c)
{
    TRY(need_dict(c, "values"));
    const struct value_dict *dict = c->self->as.dict;
    TRY(value_list_new(c->r, dict->n, c->out));
    for (size_t i = 0; i < dict->n; i++)
        TRY(value_list_add(c->r, c->out->as.list, &dict->values[i]));
    return SLUICE_OK;
}

static sluice_status method_get(struct call *c)
{
    struct value *found = NULL;
    TRY(need_dict(c, "get"));
    TRY(value_dict_get(c->r, c->self->as.dict, &c->args[0], &found));
    if (found)
        return give(c, *found);
    return give(c, c->args[1].kind != VALUE_ABSENT ? c->args[1]
                                                   : (struct value){.kind = VALUE_NONE, .own = true});
}

/* ---- tables ---- */

static const struct callable FILTERS[] = {
    {"trim", "chars", filter_trim},
    {"upper", "", filter_upper},
    {"lower", "", filter_lower},
    {"capitalize", "", filter_capitalize},
    {"title", "", filter_title},
    {"length", "", length},
    {"count", "", length},
    {"default", "default_value,boolean", filter_default},
    {"d", "default_value,boolean", filter_default},
    {"join", "d", filter_join},
    {"replace", "old!,new!,count", filter_replace},
    {"string", "", filter_string},
    {"list", "", filter_list},
    {"first", "", filter_first},
    {"last", "", filter_last},
    {"items", "", pairs},
    {"tojson", "indent,sort_keys", filter_tojson},
};

static const struct callable TESTS[] = {
    {"defined", "", test_defined},     {"undefined", "", test_undefined},
    {"none", "", test_none},           {"string", "", test_string},
    {"number", "", test_number},       {"integer", "", test_integer},
    {"float", "", test_float},         {"boolean", "", test_boolean},
    {"true", "", test_true},           {"false", "", test_false},
    {"mapping", "", test_mapping},     {"sequence", "", test_sequence},
    {"iterable", "", test_iterable},   {"odd", "", test_odd},
    {"even", "", test_even},           {"divisibleby", "num!", test_divisible},
    {"equalto", "other!", test_equal}, {"eq", "other!", test_equal},
    {"ne", "other!", test_unequal},    {"in", "seq!", test_in},
};

static const struct callable FUNCTIONS[] = {
    {"raise_exception", "message!", function_raise},
    {"range", "start!,stop,step", function_range},
    {"dict", "*", keyword_dict},
    {"namespace", "*", function_namespace},
};

static const struct callable METHODS[] = {
    {"strip", "chars", method_strip},
    {"lstrip", "chars", method_lstrip},
    {"rstrip", "chars", method_rstrip},
    {"upper", "", method_upper},
    {"lower", "", method_lower},
    {"capitalize", "", method_capitalize},
    {"replace", "old!,new!,count", method_replace},
    {"startswith", "prefix!", method_startswith},
    {"endswith", "suffix!", method_endswith},
    {"split", "sep,maxsplit", method_split},
    {"items", "", method_items},
    {"keys", "", method_keys},
    {"values", "", method_values},
    {"get", "key!,default", method_get},
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
        [CALL_METHOD] = {ROWS(METHODS)},
    };
    for (size_t i = 0; i < TABLES[kind].n; i++)
        if (strcmp(TABLES[kind].rows[i].name, name) == 0)
            return &TABLES[kind].rows[i];
    return NULL;
}
