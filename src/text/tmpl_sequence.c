/* Filters over sequences. */
#include "text/tmpl_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- what an item is looked at by ---- */

static sluice_status step_into(struct render *r, const struct value *v, const char *name, size_t n,
                               struct value *out)
{
    struct value key = value_string(name, n, true);
    bool digits = n > 0 && n < 10;
    int64_t index = 0;
    for (size_t i = 0; i < n && digits; i++) {
        digits = name[i] >= '0' && name[i] <= '9';
        index = index * 10 + (name[i] - '0');
    }
    if (digits)
        key = value_int(index, true);
    return tmpl_item(r, v, &key, out);
}

sluice_status tmpl_path(struct render *r, const struct value *v, const struct value *path, struct value *out)
{
    *out = *v;
    if (path->kind == VALUE_INT)
        return tmpl_item(r, v, path, out);
    if (path->kind != VALUE_STRING)
        return SLUICE_OK;
    const struct value_text *text = &path->as.text;
    for (size_t at = 0; at <= text->n;) {
        const char *dot = at < text->n ? memchr(text->p + at, '.', text->n - at) : NULL;
        size_t end = dot ? (size_t)(dot - text->p) : text->n;
        struct value from = *out;
        TRY(step_into(r, &from, text->p + at, end - at, out));
        at = end + 1;
    }
    return SLUICE_OK;
}

/* A name in an argument as C text. */
static sluice_status name_of(struct call *c, const struct value *v, char name[64])
{
    TRY(call_need_string(c, v, "the name of a filter or test"));
    if (v->as.text.n >= 64)
        return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "the name of a filter or test is too long");
    memcpy(name, v->as.text.p, v->as.text.n);
    name[v->as.text.n] = '\0';
    return SLUICE_OK;
}

/* ---- map, select and their like ---- */

/* The result comes one by one, once. */
static sluice_status generate(struct call *c)
{
    c->out->as.list->shape = SHAPE_GENERATOR;
    return SLUICE_OK;
}

/* What is none, or otherwise not true, is taken as empty. */
static sluice_status items_if_any(struct call *c, struct value_list **items)
{
    struct value empty;
    if (value_truth(c->self))
        return value_iterate(c->r, c->self, items);
    TRY(value_list_new(c->r, 0, &empty));
    *items = empty.as.list;
    return SLUICE_OK;
}

/* map(attribute=…, default=…) */
static sluice_status map_attribute(struct call *c, const struct value_list *items)
{
    const struct value *attribute = NULL, *fallback = NULL;
    for (size_t i = 0; i < c->n_args; i++) {
        if (c->keywords[i] && strcmp(c->keywords[i], "attribute") == 0)
            attribute = &c->args[i];
        else if (c->keywords[i] && strcmp(c->keywords[i], "default") == 0)
            fallback = &c->args[i];
        else
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "these arguments of \"map\" are not supported");
    }
    if (!attribute)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "\"map\" needs more arguments");
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        TRY(tmpl_path(c->r, &items->v[i], attribute, &v));
        TRY(value_list_add(c->r, c->out->as.list, v.kind == VALUE_UNDEFINED && fallback ? fallback : &v));
    }
    return SLUICE_OK;
}

static sluice_status map_filter(struct call *c, const struct value_list *items)
{
    char name[64];
    TRY(name_of(c, &c->args[0], name));
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        TRY(tmpl_call_named(c->r, CALL_FILTER, name, &items->v[i], c->args + 1, c->n_args - 1, &v));
        TRY(value_list_add(c->r, c->out->as.list, &v));
    }
    return SLUICE_OK;
}

static sluice_status filter_map(struct call *c)
{
    struct value_list *items = NULL;
    TRY(items_if_any(c, &items));
    TRY(value_list_new(c->r, items->n, c->out));
    TRY((c->n_args == 0 || c->keywords[0] ? map_attribute : map_filter)(c, items));
    return generate(c);
}

/* Items, or attributes of them, that pass a test (by default: are true). */
static sluice_status select_items(struct call *c, bool attribute, bool want)
{
    struct value_list *items = NULL;
    struct value all = {.kind = VALUE_NONE};
    size_t first = attribute ? 1 : 0;
    char name[64] = "";
    if (c->n_args < first)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "the name of an attribute is needed");
    if (c->n_args > first)
        TRY(name_of(c, &c->args[first], name));
    size_t n_args = c->n_args > first ? c->n_args - first - 1 : 0;
    TRY(items_if_any(c, &items));
    TRY(value_list_new(c->r, items->n, c->out));
    for (size_t i = 0; i < items->n; i++) {
        struct value v, verdict;
        TRY(tmpl_path(c->r, &items->v[i], attribute ? &c->args[0] : &all, &v));
        verdict = v;
        if (name[0])
            TRY(tmpl_call_named(c->r, CALL_TEST, name, &v, c->args + first + 1, n_args, &verdict));
        if (value_truth(&verdict) == want)
            TRY(value_list_add(c->r, c->out->as.list, &items->v[i]));
    }
    return generate(c);
}

static sluice_status filter_select(struct call *c)
{
    return select_items(c, false, true);
}

static sluice_status filter_reject(struct call *c)
{
    return select_items(c, false, false);
}

static sluice_status filter_selectattr(struct call *c)
{
    return select_items(c, true, true);
}

static sluice_status filter_rejectattr(struct call *c)
{
    return select_items(c, true, false);
}

/* ---- order ---- */

/* What is compared: the attribute, in lower case unless case counts. */
static sluice_status sort_key(struct call *c, const struct value *item, const struct value *path,
                              bool case_sensitive, struct value *key)
{
    TRY(tmpl_path(c->r, item, path, key));
    if (case_sensitive || key->kind != VALUE_STRING)
        return SLUICE_OK;
    struct value text = *key, *out = c->out;
    c->out = key;
    sluice_status status = call_change_case(c, &text, LOWER);
    c->out = out;
    return status;
}

/* Stable merge of [from, middle) and [middle, to); the steps count in value_order. */
static sluice_status merge(struct call *c, struct value *keys, struct value *items, struct value *spare,
                           size_t from, size_t middle, size_t to, bool reverse)
{
    size_t a = from, b = middle, n = to - from;
    for (size_t i = 0; i < n; i++) {
        int order = 0;
        TRY(tmpl_step(c->r, 1));
        if (a < middle && b < to)
            TRY(value_order(c->r, &keys[b], &keys[a], &order));
        bool second = a == middle || (b < to && (reverse ? order > 0 : order < 0));
        size_t at = second ? b++ : a++;
        spare[2 * i] = keys[at];
        spare[2 * i + 1] = items[at];
    }
    for (size_t i = 0; i < n; i++) {
        keys[from + i] = spare[2 * i];
        items[from + i] = spare[2 * i + 1];
    }
    return SLUICE_OK;
}

static sluice_status sort(struct call *c, struct value *keys, struct value *items, size_t n, bool reverse)
{
    struct value *spare = NULL;
    TRY(tmpl_alloc(c->r, (2 * n + 1) * sizeof *spare, &spare));
    for (size_t width = 1; width < n; width *= 2)
        for (size_t from = 0; from + width < n; from += 2 * width) {
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            TRY(merge(c, keys, items, spare, from, from + width, to, reverse));
        }
    return SLUICE_OK;
}

/* Items with their keys, sorted into c->out. */
static sluice_status sort_by(struct call *c, const struct value_list *items, const struct value *path,
                             bool case_sensitive, bool reverse)
{
    struct value keys;
    TRY(value_list_new(c->r, items->n, &keys));
    for (size_t i = 0; i < items->n; i++) {
        struct value key;
        TRY(sort_key(c, &items->v[i], path, case_sensitive, &key));
        TRY(value_list_add(c->r, keys.as.list, &key));
    }
    TRY(value_list_new(c->r, items->n, c->out));
    for (size_t i = 0; i < items->n; i++)
        TRY(value_list_add(c->r, c->out->as.list, &items->v[i]));
    return sort(c, keys.as.list->v, c->out->as.list->v, items->n, reverse);
}

static sluice_status filter_sort(struct call *c)
{
    struct value_list *items = NULL;
    TRY(value_iterate(c->r, c->self, &items));
    return sort_by(c, items, &c->args[2], value_truth(&c->args[1]), value_truth(&c->args[0]));
}

static sluice_status filter_dictsort(struct call *c)
{
    struct value pairs, path = value_int(0, true), *out = c->out;
    if (c->args[1].kind == VALUE_STRING) {
        bool key = c->args[1].as.text.n == 3 && memcmp(c->args[1].as.text.p, "key", 3) == 0;
        bool value = c->args[1].as.text.n == 5 && memcmp(c->args[1].as.text.p, "value", 5) == 0;
        if (!key && !value)
            return tmpl_fail(c->r, SLUICE_E_FORMAT, "dictsort is by \"key\" or by \"value\"");
        path.as.integer = value;
    }
    if (c->self->kind != VALUE_DICT)
        return tmpl_fail(c->r, SLUICE_E_FORMAT, "dictsort needs a dict, not %s", value_type(c->self));
    c->out = &pairs;
    TRY(call_pairs(c));
    c->out = out;
    return sort_by(c, pairs.as.list, &path, value_truth(&c->args[0]), value_truth(&c->args[2]));
}

static sluice_status extreme(struct call *c, int want)
{
    struct value_list *items = NULL;
    struct value best_key = {.kind = VALUE_NONE};
    TRY(value_iterate(c->r, c->self, &items));
    *c->out = value_undefined("an item of an empty sequence");
    for (size_t i = 0; i < items->n; i++) {
        struct value key;
        int order = want;
        TRY(sort_key(c, &items->v[i], &c->args[1], value_truth(&c->args[0]), &key));
        if (i)
            TRY(value_order(c->r, &key, &best_key, &order));
        if (order != want)
            continue;
        best_key = key;
        *c->out = items->v[i];
    }
    return SLUICE_OK;
}

static sluice_status filter_min(struct call *c)
{
    return extreme(c, -1);
}

static sluice_status filter_max(struct call *c)
{
    return extreme(c, 1);
}

static sluice_status filter_reverse(struct call *c)
{
    struct value_list *items = NULL;
    struct builder b = {.r = c->r};
    bool made = c->self->kind == VALUE_LIST && c->self->as.list->shape == SHAPE_GENERATOR;
    TRY(value_iterate(c->r, c->self, &items));
    if (c->self->kind == VALUE_STRING) {
        TRY(builder_add(&b, "", NULL, true, 0));
        for (size_t i = items->n; i-- > 0;)
            TRY(builder_value(&b, &items->v[i]));
        return call_give(c, builder_done(&b, c->self->safe));
    }
    TRY(value_list_new(c->r, items->n, c->out));
    for (size_t i = items->n; i-- > 0;)
        TRY(value_list_add(c->r, c->out->as.list, &items->v[i]));
    return made ? SLUICE_OK : generate(c); /* what cannot be read backwards becomes a list */
}

/* ---- sets, groups, sums ---- */

static sluice_status filter_unique(struct call *c)
{
    struct value_list *items = NULL;
    struct value seen;
    TRY(value_iterate(c->r, c->self, &items));
    TRY(value_list_new(c->r, items->n, c->out));
    TRY(value_list_new(c->r, items->n, &seen));
    for (size_t i = 0; i < items->n; i++) {
        struct value key;
        bool found = false;
        TRY(sort_key(c, &items->v[i], &c->args[1], value_truth(&c->args[0]), &key));
        TRY(value_contains(c->r, &seen, &key, &found));
        if (found)
            continue;
        TRY(value_list_add(c->r, seen.as.list, &key));
        TRY(value_list_add(c->r, c->out->as.list, &items->v[i]));
    }
    return generate(c);
}

static sluice_status filter_sum(struct call *c)
{
    struct value_list *items = NULL;
    int64_t whole = 0;
    double real = 0;
    bool is_real = false;
    const struct value *start = &c->args[1];
    TRY(value_iterate(c->r, c->self, &items));
    for (size_t i = 0; i <= items->n; i++) {
        struct value v = *start;
        int64_t integer;
        if (i == items->n && start->kind == VALUE_ABSENT)
            break;
        if (i < items->n)
            TRY(tmpl_path(c->r, &items->v[i], &c->args[0], &v));
        if (!value_is_number(&v))
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "sum of %s", value_type(&v));
        if (value_integer(&v, &integer) && __builtin_add_overflow(whole, integer, &whole))
            return tmpl_fail(c->r, SLUICE_E_UNSUPPORTED, "an integer does not fit 64 bits");
        is_real |= v.kind == VALUE_FLOAT;
        real += value_number(&v);
    }
    if (!is_real)
        return call_give(c, value_int(whole, false));
    return call_give(c, (struct value){.kind = VALUE_FLOAT, .as.number = real});
}

/* Runs of `linecount` items. */
static sluice_status filter_batch(struct call *c)
{
    struct value_list *items = NULL;
    int64_t size;
    TRY(call_need_integer(c, 0, 1, &size));
    TRY(value_iterate(c->r, c->self, &items));
    TRY(value_list_new(c->r, 0, c->out));
    for (size_t at = 0; at < items->n && size > 0;) {
        struct value run;
        TRY(value_list_new(c->r, 0, &run));
        for (int64_t i = 0; i < size && (at < items->n || c->args[1].kind > VALUE_NONE); i++) {
            TRY(value_list_add(c->r, run.as.list, at < items->n ? &items->v[at] : &c->args[1]));
            at++;
        }
        TRY(value_list_add(c->r, c->out->as.list, &run));
    }
    return generate(c);
}

/* (grouper, list) for every value of the attribute, in order. */
static sluice_status filter_groupby(struct call *c)
{
    struct value_list *items = NULL;
    struct value sorted, *out = c->out;
    TRY(value_iterate(c->r, c->self, &items));
    c->out = &sorted;
    TRY(sort_by(c, items, &c->args[0], value_truth(&c->args[2]), false));
    c->out = out;
    TRY(value_list_new(c->r, 0, out));
    struct value last_key = {.kind = VALUE_ABSENT}, group = {.kind = VALUE_ABSENT};
    for (size_t i = 0; i < sorted.as.list->n; i++) {
        struct value shown, key, pair;
        bool equal = false;
        TRY(tmpl_path(c->r, &sorted.as.list->v[i], &c->args[0], &shown));
        if (shown.kind == VALUE_UNDEFINED && c->args[1].kind != VALUE_ABSENT)
            shown = c->args[1];
        TRY(sort_key(c, &sorted.as.list->v[i], &c->args[0], value_truth(&c->args[2]), &key));
        if (i)
            TRY(value_equal(c->r, &key, &last_key, &equal));
        if (!equal) {
            TRY(value_list_new(c->r, 0, &group));
            TRY(value_pair(c->r, &shown, &group, &pair));
            TRY(value_list_add(c->r, out->as.list, &pair));
        }
        last_key = key;
        TRY(value_list_add(c->r, group.as.list, &sorted.as.list->v[i]));
    }
    return SLUICE_OK;
}

static sluice_status filter_attr(struct call *c)
{
    char name[64];
    TRY(name_of(c, &c->args[0], name));
    const struct callable *method = tmpl_find_method(c->self->kind, name);
    if (method)
        return call_give(c, (struct value){.kind = VALUE_FUNCTION, .own = true, .as.callable = method});
    if (c->self->kind == VALUE_NAMESPACE)
        return tmpl_attribute(c->r, c->self, name, c->out);
    return call_give(c, value_undefined("an attribute"));
}

const struct callable tmpl_sequence_filters[] = {
    {"map", "*", filter_map, 0},
    {"select", "*", filter_select, 0},
    {"reject", "*", filter_reject, 0},
    {"selectattr", "*", filter_selectattr, 0},
    {"rejectattr", "*", filter_rejectattr, 0},
    {"sort", "reverse,case_sensitive,attribute", filter_sort, 0},
    {"dictsort", "case_sensitive,by,reverse", filter_dictsort, 0},
    {"min", "case_sensitive,attribute", filter_min, 0},
    {"max", "case_sensitive,attribute", filter_max, 0},
    {"reverse", "", filter_reverse, 0},
    {"unique", "case_sensitive,attribute", filter_unique, 0},
    {"sum", "attribute,start", filter_sum, 0},
    {"batch", "linecount!,fill_with", filter_batch, 0},
    {"groupby", "attribute!,default,case_sensitive", filter_groupby, 0},
    {"attr", "name!", filter_attr, 0},
    {NULL, NULL, NULL, 0},
};
