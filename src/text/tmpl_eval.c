#include "base/utf8.h"
#include "text/tmpl_internal.h"

#include <math.h>
#include <string.h>

/* ---- looking things up ---- */

struct value tmpl_lookup(const struct render *r, const char *name)
{
    for (const struct scope *scope = r->scope; scope; scope = scope->parent)
        for (const struct binding *b = scope->first; b; b = b->next)
            if (strcmp(b->name, name) == 0)
                return b->value;
    const struct callable *function = tmpl_find_callable(CALL_FUNCTION, name);
    if (function)
        return (struct value){.kind = VALUE_FUNCTION, .own = true, .as.callable = function};
    return value_undefined(name);
}

static sluice_status loop_attribute(struct render *r, const struct value_loop *loop, const char *name,
                                    struct value *out)
{
    int64_t index = (int64_t)loop->index, length = (int64_t)loop->items->n;
    const struct {
        const char *name;
        struct value value;
    } table[] = {
        {"index", value_int(index + 1, true)},
        {"index0", value_int(index, true)},
        {"revindex", value_int(length - index, true)},
        {"revindex0", value_int(length - index - 1, true)},
        {"first", value_bool(index == 0)},
        {"last", value_bool(index + 1 == length)},
        {"length", value_int(length, true)},
        {"depth", value_int((int64_t)loop->depth + 1, true)},
        {"depth0", value_int((int64_t)loop->depth, true)},
        {"previtem", index ? loop->items->v[index - 1] : value_undefined("loop.previtem")},
        {"nextitem", index + 1 < length ? loop->items->v[index + 1] : value_undefined("loop.nextitem")},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *out = table[i].value;
            return SLUICE_OK;
        }
    }
    return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "loop.%s is not supported", name);
}

sluice_status tmpl_attribute(struct render *r, const struct value *object, const char *name,
                             struct value *out)
{
    *out = value_undefined(name);
    if (object->kind == VALUE_LOOP)
        return loop_attribute(r, object->as.loop, name, out);
    if (object->kind == VALUE_UNDEFINED)
        return tmpl_fail(r, SLUICE_E_FORMAT, "\"%s\" is undefined, so it has no \"%s\"", object->as.name,
                         name);
    /* Python's attributes come before a dict's keys: d.items is the method. */
    const struct callable *method = tmpl_find_method(object->kind, name);
    if (method) {
        *out = (struct value){.kind = VALUE_FUNCTION, .own = true, .as.callable = method};
        return SLUICE_OK;
    }
    if (object->kind == VALUE_DICT || object->kind == VALUE_NAMESPACE) {
        struct value key = value_string(name, strlen(name), true), *found = NULL;
        TRY(value_dict_get(r, object->as.dict, &key, &found));
        if (found)
            *out = *found;
    }
    return SLUICE_OK;
}

/* Byte offsets of the code points of a text, the end included. */
static sluice_status offsets(struct render *r, const struct value_text *text, size_t **out, size_t *count)
{
    size_t n = 0;
    TRY(tmpl_step(r, text->n / 16));
    for (size_t i = 0; i < text->n; i++)
        n += ((unsigned char)text->p[i] & 0xC0) != 0x80;
    TRY(tmpl_alloc(r, (n + 1) * sizeof **out, out));
    *count = n;
    n = 0;
    for (size_t i = 0; i < text->n; i++)
        if (((unsigned char)text->p[i] & 0xC0) != 0x80)
            (*out)[n++] = i;
    (*out)[n] = text->n;
    return SLUICE_OK;
}

static struct value substring(const struct value *string, size_t at, size_t n)
{
    struct value v = *string;
    v.as.text.p += at;
    v.as.text.n = n;
    if (v.as.text.marks)
        v.as.text.marks += at;
    return v;
}

/* What has no item of this name may have an attribute. */
static sluice_status item_attribute(struct render *r, const struct value *object, const struct value *key,
                                    struct value *out)
{
    char name[64];
    if (key->kind != VALUE_STRING || key->as.text.n >= sizeof name)
        return SLUICE_OK;
    memcpy(name, key->as.text.p, key->as.text.n);
    name[key->as.text.n] = '\0';
    const struct callable *method = tmpl_find_method(object->kind, name);
    if (method)
        *out = (struct value){.kind = VALUE_FUNCTION, .own = true, .as.callable = method};
    else if (object->kind == VALUE_NAMESPACE || object->kind == VALUE_LOOP)
        return tmpl_attribute(r, object, name, out);
    return SLUICE_OK;
}

sluice_status tmpl_item(struct render *r, const struct value *object, const struct value *key,
                        struct value *out)
{
    int64_t index;
    *out = value_undefined("an item");
    if (object->kind == VALUE_UNDEFINED)
        return tmpl_fail(r, SLUICE_E_FORMAT, "\"%s\" is undefined, so it has no items", object->as.name);
    if (object->kind == VALUE_DICT) {
        struct value *found = NULL;
        TRY(value_dict_get(r, object->as.dict, key, &found));
        if (found)
            *out = *found;
        else
            return item_attribute(r, object, key, out);
        return SLUICE_OK;
    }
    if (!value_integer(key, &index))
        return item_attribute(r, object, key, out);
    if (value_has_items(object)) {
        int64_t n = (int64_t)object->as.list->n;
        index += index < 0 ? n : 0;
        if (index >= 0 && index < n)
            *out = object->as.list->v[index];
    } else if (object->kind == VALUE_STRING) {
        size_t *at = NULL, n;
        TRY(offsets(r, &object->as.text, &at, &n));
        index += index < 0 ? (int64_t)n : 0;
        if (index >= 0 && index < (int64_t)n)
            *out = substring(object, at[index], at[index + 1] - at[index]);
    }
    return SLUICE_OK;
}

/* ---- slices ---- */

/* Python's rules: where a slice of n items starts and ends, step not 0. */
static void slice_range(int64_t n, const int64_t given[3], const bool has[3], int64_t *start, int64_t *stop,
                        int64_t *step)
{
    *step = has[2] ? given[2] : 1;
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    int64_t bounds[2] = {*step < 0 ? high : low, *step < 0 ? low : high};
    for (int i = 0; i < 2; i++) {
        if (!has[i])
            continue;
        int64_t at = given[i] < 0 ? given[i] + n : given[i];
        bounds[i] = at < low ? low : at > high ? high : at;
    }
    *start = bounds[0];
    *stop = bounds[1];
}

static sluice_status slice(struct render *r, const struct node *node, struct value *out)
{
    struct value object, part;
    int64_t given[3] = {0}, start, stop, step;
    bool has[3] = {false};
    TRY(tmpl_eval(r, node->a, &object));
    for (size_t i = 0; i < 3; i++) {
        if (!node->items[i])
            continue;
        TRY(tmpl_eval(r, node->items[i], &part));
        if (part.kind == VALUE_NONE)
            continue;
        has[i] = value_integer(&part, &given[i]);
        if (!has[i] || (i == 2 && given[i] == 0) || given[i] < -INT32_MAX || given[i] > INT32_MAX)
            return tmpl_fail(r, SLUICE_E_FORMAT, "a slice needs integers (and no step 0), not %s",
                             value_type(&part));
    }
    if (object.kind == VALUE_LIST) {
        if (!value_has_items(&object))
            return tmpl_fail(r, SLUICE_E_FORMAT, "%s has no items", value_type(&object));
        slice_range((int64_t)object.as.list->n, given, has, &start, &stop, &step);
        TRY(value_list_new(r, 0, out));
        out->as.list->shape = object.as.list->shape;
        for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
            TRY(value_list_add(r, out->as.list, &object.as.list->v[i]));
        return SLUICE_OK;
    }
    if (object.kind == VALUE_STRING) {
        size_t *at = NULL, n;
        struct builder b = {.r = r};
        TRY(offsets(r, &object.as.text, &at, &n));
        slice_range((int64_t)n, given, has, &start, &stop, &step);
        for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
            struct value c = substring(&object, at[i], at[i + 1] - at[i]);
            TRY(builder_value(&b, &c));
        }
        *out = builder_done(&b, object.safe);
        return SLUICE_OK;
    }
    return tmpl_fail(r, SLUICE_E_FORMAT, "%s cannot be sliced", value_type(&object));
}

/* ---- arithmetic ---- */

static sluice_status too_large(struct render *r)
{
    return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "an integer does not fit 64 bits");
}

static sluice_status integer_power(struct render *r, int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    if (exponent > 64 && base != 0 && base != 1 && base != -1)
        return too_large(r);
    if (exponent > 64) /* only its parity matters */
        exponent = 2 + (exponent & 1);
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(*out, base, out))
            return too_large(r);
    return SLUICE_OK;
}

/* Integer operands; division rounds down, as Python's does. */
static sluice_status integer_binary(struct render *r, const char *op, int64_t a, int64_t b, int64_t *out)
{
    bool overflow = false;
    switch (op[0]) {
    case '+':
        overflow = __builtin_add_overflow(a, b, out);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, out);
        break;
    case '*':
        if (op[1] == '*')
            return integer_power(r, a, b, out);
        overflow = __builtin_mul_overflow(a, b, out);
        break;
    default: /* // and % */
        if (b == 0)
            return tmpl_fail(r, SLUICE_E_FORMAT, "division by zero");
        if (b == -1) {
            overflow = op[0] == '/' && __builtin_sub_overflow((int64_t)0, a, out);
            *out = op[0] == '/' ? *out : 0;
            break;
        }
        bool down = a % b != 0 && (a % b < 0) != (b < 0);
        *out = op[0] == '/' ? a / b - down : a % b + (down ? b : 0);
        break;
    }
    return overflow ? too_large(r) : SLUICE_OK;
}

static sluice_status float_binary(struct render *r, const char *op, double a, double b, double *out)
{
    switch (op[0]) {
    case '+':
        *out = a + b;
        return SLUICE_OK;
    case '-':
        *out = a - b;
        return SLUICE_OK;
    case '*':
        *out = op[1] == '*' ? pow(a, b) : a * b;
        return SLUICE_OK;
    default:
        break;
    }
    if (b == 0.0)
        return tmpl_fail(r, SLUICE_E_FORMAT, "division by zero");
    if (op[0] == '/')
        *out = op[1] == '/' ? floor(a / b) : a / b;
    else
        *out = a - b * floor(a / b);
    return SLUICE_OK;
}

static sluice_status join_lists(struct render *r, const struct value *a, const struct value *b,
                                struct value *out)
{
    if (a->as.list->shape != b->as.list->shape || !value_has_items(a))
        return tmpl_fail(r, SLUICE_E_FORMAT, "%s and %s cannot be joined", value_type(a), value_type(b));
    TRY(value_list_new(r, 0, out));
    out->as.list->shape = a->as.list->shape;
    for (size_t i = 0; i < a->as.list->n; i++)
        TRY(value_list_add(r, out->as.list, &a->as.list->v[i]));
    for (size_t i = 0; i < b->as.list->n; i++)
        TRY(value_list_add(r, out->as.list, &b->as.list->v[i]));
    return SLUICE_OK;
}

static sluice_status join_strings(struct render *r, const struct value *a, const struct value *b,
                                  struct value *out)
{
    struct builder builder = {.r = r};
    struct value parts[2] = {*a, *b};
    bool safe = a->safe || b->safe;
    for (size_t i = 0; i < 2; i++) {
        if (safe)
            TRY(value_escape(r, i ? b : a, &parts[i]));
        TRY(builder_value(&builder, &parts[i]));
    }
    *out = builder_done(&builder, safe);
    return SLUICE_OK;
}

static sluice_status repeat(struct render *r, const struct value *string, int64_t times, struct value *out)
{
    struct builder b = {.r = r};
    TRY(builder_add(&b, "", NULL, true, 0));
    for (; times > 0 && string->as.text.n; times--) {
        TRY(tmpl_step(r, 1));
        TRY(builder_value(&b, string));
    }
    *out = builder_done(&b, string->safe);
    return SLUICE_OK;
}

static sluice_status repeat_list(struct render *r, const struct value *list, int64_t times, struct value *out)
{
    TRY(value_list_new(r, 0, out));
    out->as.list->shape = list->as.list->shape;
    for (; times > 0 && list->as.list->n; times--)
        for (size_t i = 0; i < list->as.list->n; i++)
            TRY(value_list_add(r, out->as.list, &list->as.list->v[i]));
    return SLUICE_OK;
}

static sluice_status arithmetic(struct render *r, const char *op, const struct value *a,
                                const struct value *b, struct value *out)
{
    int64_t x, y;
    bool whole = value_integer(a, &x) && value_integer(b, &y);
    if (whole && strcmp(op, "/") != 0 && !(strcmp(op, "**") == 0 && y < 0)) {
        *out = value_int(0, a->own && b->own);
        return integer_binary(r, op, x, y, &out->as.integer);
    }
    if (value_is_number(a) && value_is_number(b)) {
        *out = (struct value){.kind = VALUE_FLOAT, .own = a->own && b->own};
        return float_binary(r, op, value_number(a), value_number(b), &out->as.number);
    }
    if (op[0] == '+' && a->kind == VALUE_STRING && b->kind == VALUE_STRING) {
        return join_strings(r, a, b, out);
    }
    if (op[0] == '+' && a->kind == VALUE_LIST && b->kind == VALUE_LIST)
        return join_lists(r, a, b, out);
    if (strcmp(op, "*") == 0 && a->kind == VALUE_STRING && value_integer(b, &y))
        return repeat(r, a, y, out);
    if (strcmp(op, "*") == 0 && b->kind == VALUE_STRING && value_integer(a, &x))
        return repeat(r, b, x, out);
    if (strcmp(op, "*") == 0 && value_has_items(a) && value_integer(b, &y))
        return repeat_list(r, a, y, out);
    if (strcmp(op, "%") == 0 && a->kind == VALUE_STRING) {
        struct call c = {.r = r};
        bool many = b->kind == VALUE_LIST && b->as.list->shape == SHAPE_TUPLE;
        return call_format(&c, a, many ? b->as.list->v : b, many ? b->as.list->n : 1, out);
    }
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return tmpl_fail(r, SLUICE_E_FORMAT, "\"%.60s\" is undefined",
                         a->kind == VALUE_UNDEFINED ? a->as.name : b->as.name);
    return tmpl_fail(r, SLUICE_E_FORMAT, "%s %s %s is not supported", value_type(a), op, value_type(b));
}

static sluice_status binary(struct render *r, const struct node *node, struct value *out)
{
    struct value a, b;
    TRY(tmpl_eval(r, node->a, &a));
    bool is_and = strcmp(node->name, "and") == 0;
    if (is_and || strcmp(node->name, "or") == 0) {
        if (value_truth(&a) != is_and) {
            *out = a;
            return SLUICE_OK;
        }
        return tmpl_eval(r, node->b, out);
    }
    TRY(tmpl_eval(r, node->b, &b));
    r->line = node->line;
    return arithmetic(r, node->name, &a, &b, out);
}

static sluice_status unary(struct render *r, const struct node *node, struct value *out)
{
    struct value a;
    TRY(tmpl_eval(r, node->a, &a));
    if (strcmp(node->name, "not") == 0) {
        *out = value_bool(!value_truth(&a));
        return SLUICE_OK;
    }
    if (!value_is_number(&a))
        return tmpl_fail(r, SLUICE_E_FORMAT, "%s has no sign", value_type(&a));
    struct value zero = value_int(0, true);
    if (a.kind == VALUE_FLOAT && node->name[0] == '-') { /* 0 - 0.0 would lose the sign */
        *out = a;
        out->as.number = -a.as.number;
        return SLUICE_OK;
    }
    return arithmetic(r, node->name, &zero, &a, out);
}

/* ---- comparisons ---- */

static sluice_status compare_one(struct render *r, const char *op, const struct value *a,
                                 const struct value *b, bool *truth)
{
    int order = 0;
    if (op[0] == 'i' || op[0] == 'n') { /* in, not in */
        TRY(value_contains(r, b, a, truth));
        *truth ^= op[0] == 'n';
        return SLUICE_OK;
    }
    if (op[0] == '=' || op[0] == '!') {
        TRY(value_equal(r, a, b, truth));
        *truth ^= op[0] == '!';
        return SLUICE_OK;
    }
    TRY(value_order(r, a, b, &order));
    bool equal_too = op[1] == '=';
    *truth = (op[0] == '<' ? order < 0 : order > 0) || (equal_too && order == 0);
    return SLUICE_OK;
}

static sluice_status compare(struct render *r, const struct node *node, struct value *out)
{
    struct value left, right;
    bool truth = true;
    TRY(tmpl_eval(r, node->items[0], &left));
    for (size_t i = 0; i < node->n_names && truth; i++) {
        TRY(tmpl_eval(r, node->items[i + 1], &right));
        r->line = node->line;
        TRY(compare_one(r, node->names[i], &left, &right, &truth));
        left = right;
    }
    *out = value_bool(truth);
    return SLUICE_OK;
}

/* ---- the others ---- */

static sluice_status list(struct render *r, const struct node *node, struct value *out)
{
    TRY(value_list_new(r, node->n_items, out));
    out->as.list->shape = node->flag ? SHAPE_TUPLE : SHAPE_LIST;
    for (size_t i = 0; i < node->n_items; i++) {
        struct value v;
        TRY(tmpl_eval(r, node->items[i], &v));
        TRY(value_list_add(r, out->as.list, &v));
    }
    return SLUICE_OK;
}

static sluice_status dict(struct render *r, const struct node *node, struct value *out)
{
    TRY(value_dict_new(r, out));
    for (size_t i = 0; i + 1 < node->n_items; i += 2) {
        struct value key, v;
        TRY(tmpl_eval(r, node->items[i], &key));
        TRY(tmpl_eval(r, node->items[i + 1], &v));
        TRY(value_dict_set(r, out->as.dict, &key, &v));
    }
    return SLUICE_OK;
}

static sluice_status concat(struct render *r, const struct node *node, struct value *out)
{
    struct builder b = {.r = r};
    for (size_t i = 0; i < node->n_items; i++) {
        struct value v, text;
        TRY(tmpl_eval(r, node->items[i], &v));
        TRY(value_text_of(r, &v, &text));
        TRY(builder_value(&b, &text));
    }
    *out = builder_done(&b, false);
    return SLUICE_OK;
}

static sluice_status condition(struct render *r, const struct node *node, struct value *out)
{
    struct value v;
    TRY(tmpl_eval(r, node->items[1], &v));
    const struct node *branch = node->items[value_truth(&v) ? 0 : 2];
    if (branch)
        return tmpl_eval(r, branch, out);
    *out = value_undefined("the value of an if without else");
    return SLUICE_OK;
}

static sluice_status name(struct render *r, const struct node *node, struct value *out)
{
    *out = tmpl_lookup(r, node->name);
    return SLUICE_OK;
}

static sluice_status constant(struct render *r, const struct node *node, struct value *out)
{
    (void)r;
    *out = node->constant;
    return SLUICE_OK;
}

static sluice_status hole(struct render *r, const struct node *node, struct value *out)
{
    (void)node;
    *out = *r->hole;
    return SLUICE_OK;
}

static sluice_status get_attribute(struct render *r, const struct node *node, struct value *out)
{
    struct value object;
    TRY(tmpl_eval(r, node->a, &object));
    r->line = node->line;
    return tmpl_attribute(r, &object, node->name, out);
}

static sluice_status get_item(struct render *r, const struct node *node, struct value *out)
{
    struct value object, key;
    TRY(tmpl_eval(r, node->a, &object));
    TRY(tmpl_eval(r, node->b, &key));
    r->line = node->line;
    return tmpl_item(r, &object, &key, out);
}

static sluice_status (*const EVALUATE[])(struct render *r, const struct node *node, struct value *out) = {
    [NODE_CONSTANT] = constant,
    [NODE_NAME] = name,
    [NODE_LIST] = list,
    [NODE_DICT] = dict,
    [NODE_ATTRIBUTE] = get_attribute,
    [NODE_ITEM] = get_item,
    [NODE_SLICE] = slice,
    [NODE_UNARY] = unary,
    [NODE_BINARY] = binary,
    [NODE_CONCAT] = concat,
    [NODE_COMPARE] = compare,
    [NODE_CONDITION] = condition,
    [NODE_FILTER] = tmpl_call_node,
    [NODE_TEST] = tmpl_call_node,
    [NODE_CALL] = tmpl_call_node,
    [NODE_HOLE] = hole,
};

/* Recursion is bounded by the height of the tree and, where macros call each other, by TMPL_NEST_MAX. */
sluice_status tmpl_eval(struct render *r, const struct node *node, struct value *out)
{
    r->line = node->line;
    TRY(tmpl_step(r, 1));
    TRY(tmpl_nest(r));
    sluice_status status = EVALUATE[node->kind](r, node, out);
    r->nest--;
    return status;
}
