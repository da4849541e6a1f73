#include "base/mem.h"
#include "text/schema.h"

#include <stdlib.h>
#include <string.h>

/* ---- the set ---- */

void schema_set_close(struct schema_set *set)
{
    for (size_t i = 0; i < set->n_made; i++)
        json_decref(set->made[i]);
    mem_free(set->made);
    set->made = NULL;
    set->n_made = set->cap_made = 0;
}

/* Results of jansson that must not be lost: a constraint that is left out would be ignored. */
static void need(struct schema_set *set, bool done)
{
    if (!done)
        (void)grammar_fail(set->b, SLUICE_E_MEMORY, "not enough memory for a schema");
}

json_t *schema_keep(struct schema_set *set, json_t *schema)
{
    if (!schema || set->b->status != SLUICE_OK)
        need(set, schema != NULL);
    else if (set->n_made == SCHEMA_MADE_MAX)
        (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED, "the schema combines more than %d parts",
                           SCHEMA_MADE_MAX);
    else if (!mem_grow((void **)&set->made, &set->cap_made, set->n_made + 1, sizeof *set->made))
        (void)grammar_fail(set->b, SLUICE_E_MEMORY, "not enough memory for a schema");
    else
        return set->made[set->n_made++] = schema;
    json_decref(schema);
    return NULL;
}

/* jansson's copy leaves members out where memory is short. */
json_t *schema_copy(struct schema_set *set, const json_t *value)
{
    json_t *copy = json_copy((json_t *)value);
    need(set, copy && json_object_size(copy) == json_object_size(value) &&
                  json_array_size(copy) == json_array_size(value));
    return copy;
}

void schema_put(struct schema_set *set, json_t *object, const char *name, const json_t *value)
{
    need(set, json_object_set(object, name, (json_t *)value) == 0);
}

bool schema_is_annotation(const char *keyword)
{
    static const char *const NAMES[] = {"title",      "description", "default",   "examples", "example",
                                        "$schema",    "$id",         "$comment",  "$defs",    "definitions",
                                        "deprecated", "readOnly",    "writeOnly", "$anchor",  "strict"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(keyword, NAMES[i]) == 0)
            return true;
    return false;
}

/* ---- references ---- */

/* One step of a JSON pointer: ~1 is /, ~0 is ~, %XX a byte. */
static bool pointer_step(const char **pointer, char *out, size_t room)
{
    size_t n = 0;
    const char *p = *pointer;
    for (; *p && *p != '/'; p++) {
        char c = *p;
        if (n + 1 >= room)
            return false;
        if (c == '~' && (p[1] == '0' || p[1] == '1')) {
            c = *++p == '1' ? '/' : '~';
        } else if (c == '%' && p[1] && p[2]) {
            char digits[3] = {p[1], p[2], '\0'}, *end;
            c = (char)strtoul(digits, &end, 16);
            if (*end || !c)
                return false;
            p += 2;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    *pointer = p;
    return true;
}

const json_t *schema_follow(struct schema_set *set, const char *reference)
{
    const json_t *at = set->root;
    const char *p = reference;
    char name[256], *end;
    if (*p++ != '#' || (*p && *p != '/')) {
        (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED,
                           "$ref \"%.80s\" is not supported; only \"#\" and \"#/…\" inside the schema are",
                           reference);
        return NULL;
    }
    while (at && *p == '/') {
        p++;
        if (!pointer_step(&p, name, sizeof name))
            at = NULL;
        else if (json_is_array(at))
            at = json_array_get(at, strtoul(name, &end, 10));
        else
            at = json_object_get(at, name);
    }
    if (!at || (!json_is_object(at) && !json_is_boolean(at))) {
        (void)grammar_fail(set->b, SLUICE_E_FORMAT, "$ref \"%.80s\" points at no schema", reference);
        return NULL;
    }
    return at;
}

/* A chain of references that are nothing else, to what they name. */
static const json_t *resolve(struct schema_set *set, const json_t *schema)
{
    for (int i = 0; schema && i < SCHEMA_DEPTH_MAX; i++) {
        const json_t *reference = json_object_get(schema, "$ref");
        if (!json_is_string(reference) || json_object_size(schema) != 1)
            return schema;
        schema = schema_follow(set, json_string_value(reference));
    }
    if (schema)
        (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED, "$ref: references go in a circle");
    return NULL;
}

/* ---- types ---- */

static const struct {
    const char *name;
    unsigned bits;
} TYPES[] = {{"null", SCHEMA_NULL},      {"boolean", SCHEMA_BOOLEAN},
             {"object", SCHEMA_OBJECT},  {"array", SCHEMA_ARRAY},
             {"string", SCHEMA_STRING},  {"number", SCHEMA_NUMBER | SCHEMA_INTEGER},
             {"integer", SCHEMA_INTEGER}};

static unsigned type_named(struct schema_set *set, const json_t *name)
{
    for (size_t i = 0; json_is_string(name) && i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(json_string_value(name), TYPES[i].name) == 0)
            return TYPES[i].bits;
    (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED, "type \"%.40s\" is not known",
                       json_is_string(name) ? json_string_value(name) : "…");
    return 0;
}

unsigned schema_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return SCHEMA_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return SCHEMA_BOOLEAN;
    case JSON_OBJECT:
        return SCHEMA_OBJECT;
    case JSON_ARRAY:
        return SCHEMA_ARRAY;
    case JSON_STRING:
        return SCHEMA_STRING;
    case JSON_INTEGER:
        return SCHEMA_INTEGER;
    case JSON_REAL:
        break;
    }
    return SCHEMA_NUMBER;
}

unsigned schema_types(struct schema_set *set, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned bits = 0;
    if (!type)
        return SCHEMA_ALL;
    if (!json_is_array(type))
        return type_named(set, type);
    for (size_t i = 0; i < json_array_size(type); i++)
        bits |= type_named(set, json_array_get(type, i));
    return bits;
}

/* ---- merging ---- */

static bool equal_values(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) != 0;
}

static bool list_has(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (equal_values(json_array_get(list, i), value))
            return true;
    return false;
}

/* Values of "enum" or "const"; NULL: neither. New reference. */
static json_t *values_of(struct schema_set *set, const json_t *schema)
{
    json_t *constant = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    if (constant) {
        json_t *one = json_array();
        need(set, one && json_array_append(one, constant) == 0);
        return one;
    }
    return json_is_array(list) ? json_incref(list) : NULL;
}

static json_t *merge_types(struct schema_set *set, const json_t *a, const json_t *b)
{
    unsigned bits = schema_types(set, a) & schema_types(set, b);
    json_t *list = json_array();
    for (size_t i = 0; list && i < sizeof TYPES / sizeof *TYPES; i++)
        if ((bits & TYPES[i].bits) == TYPES[i].bits && TYPES[i].bits &&
            !(TYPES[i].bits == SCHEMA_INTEGER && (bits & SCHEMA_NUMBER)))
            need(set, json_array_append_new(list, json_string(TYPES[i].name)) == 0);
    need(set, list != NULL);
    if (bits == 0)
        (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED, "allOf: the types exclude each other");
    return list;
}

static json_t *merge_required(struct schema_set *set, const json_t *a, const json_t *b)
{
    json_t *list = schema_copy(set, a);
    for (size_t i = 0; list && i < json_array_size(b); i++)
        if (!list_has(list, json_array_get(b, i)))
            need(set, json_array_append(list, json_array_get(b, i)) == 0);
    return list;
}

static json_t *merge_properties(struct schema_set *set, const json_t *a, const json_t *b, int depth)
{
    json_t *all = schema_copy(set, a), *value;
    const char *name;
    json_object_foreach((json_t *)b, name, value)
    {
        const json_t *other = json_object_get(a, name);
        const json_t *both = other ? schema_merge(set, other, value, depth + 1) : value;
        if (both)
            schema_put(set, all, name, both);
    }
    return all;
}

static const struct {
    const char *name;
    int larger; /* 1: the larger bound counts, -1: the smaller */
} BOUNDS[] = {{"minimum", 1},       {"exclusiveMinimum", 1}, {"minLength", 1},         {"minItems", 1},
              {"minProperties", 1}, {"maximum", -1},         {"exclusiveMaximum", -1}, {"maxLength", -1},
              {"maxItems", -1},     {"maxProperties", -1}};

static json_t *merge_bound(const char *name, const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < sizeof BOUNDS / sizeof *BOUNDS; i++)
        if (strcmp(name, BOUNDS[i].name) == 0 && json_is_number(a) && json_is_number(b))
            return json_incref(
                (json_t *)((json_number_value(a) > json_number_value(b)) == (BOUNDS[i].larger > 0) ? a : b));
    return NULL;
}

/* One keyword that both have. New reference; NULL after a problem. */
static json_t *merge_keyword(struct schema_set *set, const char *name, const json_t *a, const json_t *b,
                             int depth)
{
    const json_t *x = json_object_get(a, name), *y = json_object_get(b, name);
    json_t *bound = merge_bound(name, x, y);
    if (bound)
        return bound;
    if (equal_values(x, y) || schema_is_annotation(name))
        return json_incref((json_t *)x);
    if (strcmp(name, "type") == 0)
        return merge_types(set, a, b);
    if (strcmp(name, "required") == 0)
        return merge_required(set, x, y);
    if (strcmp(name, "properties") == 0 && json_is_object(x) && json_is_object(y))
        return merge_properties(set, x, y, depth);
    if (strcmp(name, "items") == 0) {
        const json_t *both = schema_merge(set, x, y, depth + 1);
        return both ? json_incref((json_t *)both) : NULL;
    }
    (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED,
                       "two different \"%.40s\" that must both hold (allOf, or beside $ref or anyOf) are not "
                       "supported",
                       name);
    return NULL;
}

/* additionalProperties looks at the properties beside it only, so it must not meet others. */
static void check_additional(struct schema_set *set, const json_t *a, const json_t *b)
{
    const json_t *additional = json_object_get(a, "additionalProperties"), *value;
    const char *name;
    if (!additional || json_is_true(additional))
        return;
    json_object_foreach(json_object_get(b, "properties"), name, value)
    {
        if (!json_object_get(json_object_get(a, "properties"), name))
            (void)grammar_fail(
                set->b, SLUICE_E_UNSUPPORTED,
                "additionalProperties beside other parts' properties (allOf, $ref or anyOf) is "
                "not supported");
    }
}

/* "enum" and "const" of both become one list. */
static bool merge_values(struct schema_set *set, const json_t *a, const json_t *b, json_t *out)
{
    json_t *x = values_of(set, a), *y = values_of(set, b), *list = json_array();
    need(set, list != NULL);
    for (size_t i = 0; x && y && i < json_array_size(x); i++)
        if (list_has(y, json_array_get(x, i)))
            need(set, json_array_append(list, json_array_get(x, i)) == 0);
    bool both = x && y;
    if (both) {
        if (json_array_size(list) == 0)
            (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED, "allOf: the enums exclude each other");
        schema_put(set, out, "enum", list);
        (void)json_object_del(out, "const");
    }
    json_decref(x);
    json_decref(y);
    json_decref(list);
    return both;
}

const json_t *schema_merge(struct schema_set *set, const json_t *a, const json_t *b, int depth)
{
    const char *name;
    json_t *value;
    a = resolve(set, a);
    b = resolve(set, b);
    if (!a || !b || set->b->status != SLUICE_OK)
        return NULL;
    if (json_is_true(a) || json_is_false(b))
        return b;
    if (json_is_true(b) || json_is_false(a))
        return a;
    if (depth > SCHEMA_DEPTH_MAX) {
        (void)grammar_fail(set->b, SLUICE_E_UNSUPPORTED, "allOf: schemas nest deeper than %d levels",
                           SCHEMA_DEPTH_MAX);
        return NULL;
    }
    check_additional(set, a, b);
    check_additional(set, b, a);
    json_t *out = schema_keep(set, schema_copy(set, a));
    if (!out)
        return NULL;
    bool values = merge_values(set, a, b, out);
    json_object_foreach((json_t *)b, name, value)
    {
        bool listed = values && (strcmp(name, "enum") == 0 || strcmp(name, "const") == 0);
        if (listed)
            continue;
        json_t *both = json_object_get(a, name) ? merge_keyword(set, name, a, b, depth) : json_incref(value);
        if (!both)
            return NULL;
        schema_put(set, out, name, both);
        json_decref(both);
    }
    return set->b->status == SLUICE_OK ? out : NULL;
}

/* ---- exclusion, for oneOf ---- */

static unsigned narrowed_types(struct schema_set *set, const json_t *schema)
{
    unsigned bits = schema_types(set, schema), of_values = 0;
    json_t *values = values_of(set, schema);
    for (size_t i = 0; i < json_array_size(values); i++) {
        unsigned type = schema_type_of(json_array_get(values, i));
        of_values |= type | (type == SCHEMA_NUMBER ? SCHEMA_INTEGER : 0);
    }
    bits &= values ? of_values : SCHEMA_ALL;
    json_decref(values);
    return bits;
}

bool schema_exclude(struct schema_set *set, const json_t *a, const json_t *b, int depth)
{
    a = resolve(set, a);
    b = resolve(set, b);
    if (!json_is_object(a) || !json_is_object(b) || depth > 8)
        return false;
    unsigned types = narrowed_types(set, a) & narrowed_types(set, b);
    if (types == 0)
        return true;
    json_t *x = values_of(set, a), *y = values_of(set, b);
    bool apart = x && y;
    for (size_t i = 0; i < json_array_size(x) && apart; i++)
        apart = !list_has(y, json_array_get(x, i));
    json_decref(x);
    json_decref(y);
    if (apart)
        return true;
    if (types != SCHEMA_OBJECT)
        return false;
    /* Objects: a member that both need, with values that exclude each other. */
    const json_t *required = json_object_get(a, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);
        const char *key = json_string_value(name);
        if (key && list_has(json_object_get(b, "required"), name) &&
            schema_exclude(set, json_object_get(json_object_get(a, "properties"), key),
                           json_object_get(json_object_get(b, "properties"), key), depth + 1))
            return true;
    }
    return false;
}
