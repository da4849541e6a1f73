#include "base/check.h"
#include "base/utf8.h"
#include "text/tmpl_internal.h"

#include <assert.h>
#include <string.h>

/* ---- making ---- */

struct value value_bool(bool truth)
{
    return (struct value){.kind = VALUE_BOOL, .own = true, .as.truth = truth};
}

struct value value_int(int64_t integer, bool own)
{
    return (struct value){.kind = VALUE_INT, .own = own, .as.integer = integer};
}

struct value value_string(const char *p, size_t n, bool own)
{
    return (struct value){.kind = VALUE_STRING, .own = own, .as.text = {p, NULL, n}};
}

struct value value_undefined(const char *name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .own = true, .as.name = name};
}

const char *value_type(const struct value *v)
{
    static const char *const NAMES[] = {"nothing",  "undefined", "none",      "a boolean", "an integer",
                                        "a float",  "a string",  "a list",    "a dict",    "a namespace",
                                        "the loop", "a macro",   "a function"};
    static const char *const SHAPES[] = {"a list", "a tuple", "a view of a dict", "a generator"};
    return v->kind == VALUE_LIST ? SHAPES[v->as.list->shape] : NAMES[v->kind];
}

/* ---- numbers and truth ---- */

bool value_is_number(const struct value *v)
{
    return v->kind == VALUE_BOOL || v->kind == VALUE_INT || v->kind == VALUE_FLOAT;
}

double value_number(const struct value *v)
{
    if (v->kind == VALUE_FLOAT)
        return v->as.number;
    return v->kind == VALUE_INT ? (double)v->as.integer : (double)v->as.truth;
}

bool value_integer(const struct value *v, int64_t *out)
{
    if (v->kind != VALUE_INT && v->kind != VALUE_BOOL)
        return false;
    *out = v->kind == VALUE_INT ? v->as.integer : v->as.truth;
    return true;
}

bool value_truth(const struct value *v)
{
    switch (v->kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v->as.truth;
    case VALUE_INT:
        return v->as.integer != 0;
    case VALUE_FLOAT:
        return v->as.number != 0.0;
    case VALUE_STRING:
        return v->as.text.n != 0;
    case VALUE_LIST:
        return v->as.list->n != 0 || v->as.list->shape == SHAPE_GENERATOR;
    case VALUE_DICT:
        return v->as.dict->n != 0;
    case VALUE_NAMESPACE:
    case VALUE_LOOP:
    case VALUE_MACRO:
    case VALUE_FUNCTION:
        break;
    }
    return true;
}

/* ---- comparing ---- */

static sluice_status equal_at(struct render *r, const struct value *a, const struct value *b, int depth,
                              bool *equal);

static sluice_status equal_lists(struct render *r, const struct value_list *a, const struct value_list *b,
                                 int depth, bool *equal)
{
    *equal = a == b || (a->n == b->n && a->shape == b->shape && a->shape != SHAPE_GENERATOR);
    for (size_t i = 0; i < a->n && *equal; i++)
        TRY(equal_at(r, &a->v[i], &b->v[i], depth + 1, equal));
    return SLUICE_OK;
}

static sluice_status equal_dicts(struct render *r, const struct value_dict *a, const struct value_dict *b,
                                 int depth, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        struct value *other = NULL;
        TRY(value_dict_get(r, b, &a->keys[i], &other));
        *equal = other != NULL;
        if (other)
            TRY(equal_at(r, &a->values[i], other, depth + 1, equal));
    }
    return SLUICE_OK;
}

static sluice_status equal_at(struct render *r, const struct value *a, const struct value *b, int depth,
                              bool *equal)
{
    TRY(tmpl_step(r, 1));
    if (depth > TMPL_DEPTH_MAX)
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "values are nested deeper than %d levels", TMPL_DEPTH_MAX);
    if (value_is_number(a) && value_is_number(b)) {
        int64_t x, y;
        *equal = value_integer(a, &x) && value_integer(b, &y) ? x == y : value_number(a) == value_number(b);
        return SLUICE_OK;
    }
    *equal = false;
    if (a->kind != b->kind)
        return SLUICE_OK;
    switch (a->kind) {
    case VALUE_STRING:
        *equal = a->as.text.n == b->as.text.n && memcmp(a->as.text.p, b->as.text.p, a->as.text.n) == 0;
        return tmpl_step(r, a->as.text.n / 64);
    case VALUE_LIST:
        return equal_lists(r, a->as.list, b->as.list, depth, equal);
    case VALUE_DICT:
        return equal_dicts(r, a->as.dict, b->as.dict, depth, equal);
    case VALUE_NAMESPACE:
        *equal = a->as.dict == b->as.dict;
        return SLUICE_OK;
    case VALUE_LOOP:
        *equal = a->as.loop == b->as.loop;
        return SLUICE_OK;
    case VALUE_MACRO:
        *equal = a->as.macro == b->as.macro;
        return SLUICE_OK;
    case VALUE_FUNCTION:
        *equal = a->as.callable == b->as.callable;
        return SLUICE_OK;
    default:
        *equal = true; /* none and none, undefined and undefined */
        return SLUICE_OK;
    }
}

sluice_status value_equal(struct render *r, const struct value *a, const struct value *b, bool *equal)
{
    return equal_at(r, a, b, 0, equal);
}

/* Lists by their first items that differ. */
static sluice_status order_lists(struct render *r, const struct value_list *a, const struct value_list *b,
                                 int *order)
{
    *order = 0;
    TRY(tmpl_nest(r));
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool equal = false;
        TRY(value_equal(r, &a->v[i], &b->v[i], &equal));
        if (!equal) {
            sluice_status status = value_order(r, &a->v[i], &b->v[i], order);
            r->nest--;
            return status;
        }
    }
    r->nest--;
    *order = a->n < b->n ? -1 : a->n > b->n;
    return SLUICE_OK;
}

sluice_status value_order(struct render *r, const struct value *a, const struct value *b, int *order)
{
    if (value_is_number(a) && value_is_number(b)) {
        int64_t x, y;
        if (value_integer(a, &x) && value_integer(b, &y))
            *order = x < y ? -1 : x > y;
        else
            *order = value_number(a) < value_number(b) ? -1 : value_number(a) > value_number(b);
        return SLUICE_OK;
    }
    if (a->kind == VALUE_LIST && b->kind == VALUE_LIST && a->as.list->shape == b->as.list->shape &&
        value_has_items(a))
        return order_lists(r, a->as.list, b->as.list, order);
    if (a->kind != VALUE_STRING || b->kind != VALUE_STRING)
        return tmpl_fail(r, SLUICE_E_FORMAT, "%s and %s have no order", value_type(a), value_type(b));
    /* The order of UTF-8 bytes is the order of code points. */
    size_t n = a->as.text.n < b->as.text.n ? a->as.text.n : b->as.text.n;
    int difference = n ? memcmp(a->as.text.p, b->as.text.p, n) : 0;
    if (difference == 0)
        *order = a->as.text.n < b->as.text.n ? -1 : a->as.text.n > b->as.text.n;
    else
        *order = difference < 0 ? -1 : 1;
    return tmpl_step(r, n / 64);
}

sluice_status value_contains(struct render *r, const struct value *container, const struct value *item,
                             bool *found)
{
    *found = false;
    if (container->kind == VALUE_STRING) {
        const struct value_text *text = &container->as.text, *part = &item->as.text;
        if (item->kind != VALUE_STRING)
            return tmpl_fail(r, SLUICE_E_FORMAT, "only a string can be in a string, not %s",
                             value_type(item));
        TRY(tmpl_step(r, text->n / 16));
        *found = part->n == 0 || memmem(text->p, text->n, part->p, part->n) != NULL;
        return SLUICE_OK;
    }
    if (container->kind == VALUE_DICT) {
        struct value *value = NULL;
        TRY(value_dict_get(r, container->as.dict, item, &value));
        *found = value != NULL;
        return SLUICE_OK;
    }
    struct value_list *list = NULL;
    size_t i = 0;
    TRY(value_iterate(r, container, &list));
    while (i < list->n && !*found)
        TRY(value_equal(r, &list->v[i++], item, found));
    if (container->kind == VALUE_LIST && list != container->as.list) { /* the generator goes on behind it */
        container->as.list->v = list->v + i;
        container->as.list->n = container->as.list->cap = list->n - i;
    }
    return SLUICE_OK;
}

bool value_has_items(const struct value *v)
{
    return v->kind == VALUE_LIST && v->as.list->shape <= SHAPE_TUPLE;
}

/* ---- lists and dicts ---- */

sluice_status value_list_new(struct render *r, size_t cap, struct value *out)
{
    struct value_list *list = NULL;
    size_t bytes;
    *out = (struct value){.kind = VALUE_LIST, .own = true};
    if (!size_mul(cap, sizeof *list->v, &bytes))
        bytes = SIZE_MAX;
    TRY(tmpl_alloc(r, sizeof *list, &list));
    if (cap)
        TRY(tmpl_alloc(r, bytes, &list->v));
    list->cap = cap;
    out->as.list = list;
    return SLUICE_OK;
}

sluice_status value_list_add(struct render *r, struct value_list *list, const struct value *item)
{
    TRY(tmpl_step(r, 1));
    if (list->n == list->cap) {
        struct value *more = NULL;
        size_t cap = list->cap ? 2 * list->cap : 8;
        TRY(tmpl_alloc(r, cap * sizeof *more, &more));
        if (list->n)
            memcpy(more, list->v, list->n * sizeof *more);
        list->v = more;
        list->cap = cap;
    }
    list->v[list->n++] = *item;
    return SLUICE_OK;
}

sluice_status value_pair(struct render *r, const struct value *a, const struct value *b, struct value *out)
{
    TRY(value_list_new(r, 2, out));
    out->as.list->shape = SHAPE_TUPLE;
    TRY(value_list_add(r, out->as.list, a));
    return value_list_add(r, out->as.list, b);
}

sluice_status value_dict_new(struct render *r, struct value *out)
{
    *out = (struct value){.kind = VALUE_DICT, .own = true};
    return tmpl_alloc(r, sizeof *out->as.dict, &out->as.dict);
}

sluice_status value_dict_get(struct render *r, const struct value_dict *dict, const struct value *key,
                             struct value **found)
{
    *found = NULL;
    for (size_t i = 0; i < dict->n && !*found; i++) {
        bool equal = false;
        TRY(value_equal(r, &dict->keys[i], key, &equal));
        if (equal)
            *found = &dict->values[i];
    }
    return SLUICE_OK;
}

sluice_status value_dict_append(struct render *r, struct value_dict *dict, const struct value *key,
                                const struct value *value)
{
    if (dict->n == dict->cap) {
        size_t cap = dict->cap ? 2 * dict->cap : 8;
        struct value *keys = NULL, *values = NULL;
        TRY(tmpl_alloc(r, cap * sizeof *keys, &keys));
        TRY(tmpl_alloc(r, cap * sizeof *values, &values));
        if (dict->keys && dict->values) {
            memcpy(keys, dict->keys, dict->n * sizeof *keys);
            memcpy(values, dict->values, dict->n * sizeof *values);
        }
        dict->keys = keys;
        dict->values = values;
        dict->cap = cap;
    }
    assert(dict->keys && dict->values);
    dict->keys[dict->n] = *key;
    dict->values[dict->n++] = *value;
    return SLUICE_OK;
}

sluice_status value_dict_set(struct render *r, struct value_dict *dict, const struct value *key,
                             const struct value *value)
{
    struct value *old = NULL;
    if (key->kind == VALUE_LIST || key->kind == VALUE_DICT)
        return tmpl_fail(r, SLUICE_E_FORMAT, "%s cannot be the key of a dict", value_type(key));
    TRY(value_dict_get(r, dict, key, &old));
    if (!old)
        return value_dict_append(r, dict, key, value);
    *old = *value;
    return SLUICE_OK;
}

sluice_status value_iterate(struct render *r, const struct value *v, struct value_list **items)
{
    struct value list = {0};
    *items = NULL;
    if (v->kind == VALUE_LIST && v->as.list->shape != SHAPE_GENERATOR) {
        *items = v->as.list;
        return SLUICE_OK;
    }
    TRY(value_list_new(r, 0, &list));
    *items = list.as.list;
    if (v->kind == VALUE_LIST) {
        **items = *v->as.list;
        (*items)->shape = SHAPE_LIST;
        v->as.list->n = v->as.list->cap = 0;
        return SLUICE_OK;
    }
    if (v->kind == VALUE_DICT) {
        for (size_t i = 0; i < v->as.dict->n; i++)
            TRY(value_list_add(r, *items, &v->as.dict->keys[i]));
        return SLUICE_OK;
    }
    if (v->kind == VALUE_STRING) {
        const struct value_text *text = &v->as.text;
        for (size_t at = 0; at < text->n;) {
            uint32_t cp;
            size_t used = utf8_decode(text->p + at, text->n - at, &cp, NULL);
            struct value item = value_string(text->p + at, used, v->own);
            item.as.text.marks = text->marks ? text->marks + at : NULL;
            TRY(value_list_add(r, *items, &item));
            at += used;
        }
        return SLUICE_OK;
    }
    if (v->kind == VALUE_UNDEFINED)
        return SLUICE_OK;
    return tmpl_fail(r, SLUICE_E_FORMAT, "%s cannot be walked over", value_type(v));
}
