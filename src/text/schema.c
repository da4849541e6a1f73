#include "text/schema.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

struct schema_rules {
    struct json_rules *j;
    struct schema_set set;
    struct known { /* rules of schemas that references name */
        const json_t *schema;
        uint32_t rule;
    } * known;
    size_t n_known, cap_known;
    int depth;
};

static void value(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to);

static bool good(const struct schema_rules *s)
{
    return s->j->b->status == SLUICE_OK;
}

static void refuse(struct schema_rules *s, const char *keyword, const char *why)
{
    (void)grammar_fail(s->j->b, SLUICE_E_UNSUPPORTED, "the schema's keyword \"%.60s\" %s", keyword, why);
}

static uint32_t text(struct schema_rules *s, uint32_t from, const char *literal)
{
    return grammar_text(s->j->b, from, literal, strlen(literal));
}

static uint32_t space(struct schema_rules *s, uint32_t from)
{
    uint32_t to = grammar_position(s->j->b);
    grammar_call(s->j->b, from, jrule_space(s->j), to);
    return to;
}

/* A schema as a rule of its own. */
static uint32_t rule_of(struct schema_rules *s, const json_t *schema)
{
    uint32_t rule = grammar_rule(s->j->b);
    value(s, schema, grammar_start(s->j->b, rule), grammar_end(s->j->b, rule));
    return rule;
}

/* ---- keywords ---- */

/* Which types a keyword speaks of; what is not listed here is refused. */
static const struct keyword {
    const char *name;
    unsigned types;
} KEYWORDS[] = {
    {"type", 0},
    {"enum", 0},
    {"const", 0},
    {"anyOf", 0},
    {"oneOf", 0},
    {"allOf", 0},
    {"$ref", 0},
    {"properties", SCHEMA_OBJECT},
    {"required", SCHEMA_OBJECT},
    {"additionalProperties", SCHEMA_OBJECT},
    {"minProperties", SCHEMA_OBJECT},
    {"items", SCHEMA_ARRAY},
    {"prefixItems", SCHEMA_ARRAY},
    {"minItems", SCHEMA_ARRAY},
    {"maxItems", SCHEMA_ARRAY},
    {"uniqueItems", SCHEMA_ARRAY},
    {"minLength", SCHEMA_STRING},
    {"maxLength", SCHEMA_STRING},
    {"pattern", SCHEMA_STRING},
    {"format", SCHEMA_STRING},
    {"minimum", SCHEMA_NUMBER | SCHEMA_INTEGER},
    {"maximum", SCHEMA_NUMBER | SCHEMA_INTEGER},
    {"exclusiveMinimum", SCHEMA_NUMBER | SCHEMA_INTEGER},
    {"exclusiveMaximum", SCHEMA_NUMBER | SCHEMA_INTEGER},
};

/* Every keyword must be known. *types: those that the keywords speak of; *constrained: some do. */
static void check_keywords(struct schema_rules *s, const json_t *schema, unsigned *types, bool *composed)
{
    const char *name;
    const json_t *member;
    *types = 0;
    *composed = false;
    json_object_foreach((json_t *)schema, name, member)
    {
        size_t i = 0;
        if (schema_is_annotation(name))
            continue;
        while (i < sizeof KEYWORDS / sizeof *KEYWORDS && strcmp(name, KEYWORDS[i].name) != 0)
            i++;
        if (i == sizeof KEYWORDS / sizeof *KEYWORDS) {
            refuse(s, name, "is not supported, and would be ignored; leave it out");
            return;
        }
        *types |= KEYWORDS[i].types;
        *composed |= strcmp(name, "anyOf") == 0 || strcmp(name, "oneOf") == 0 || strcmp(name, "allOf") == 0 ||
                     strcmp(name, "$ref") == 0;
    }
}

/* A whole number from 0; false: absent. */
static bool count_of(struct schema_rules *s, const json_t *schema, const char *keyword, uint32_t *out)
{
    const json_t *member = json_object_get(schema, keyword);
    double n = json_number_value(member);
    if (!member)
        return false;
    if (!json_is_number(member) || n < 0 || n != floor(n))
        refuse(s, keyword, "must be a whole number from 0");
    else if (n > GRAMMAR_REPEAT_MAX)
        (void)grammar_fail(s->j->b, SLUICE_E_UNSUPPORTED,
                           "the schema's keyword \"%s\" is %.0f, more than %d is not supported", keyword, n,
                           GRAMMAR_REPEAT_MAX);
    *out = good(s) ? (uint32_t)n : 0;
    return true;
}

/* ---- strings ---- */

#define DAY                                                                                                  \
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"             \
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
#define BYTE  "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

static const struct {
    const char *name, *pattern;
} FORMATS[] = {
    {"date", "^" DAY "$"},
    {"time", "^" CLOCK "$"},
    {"date-time", "^" DAY "T" CLOCK "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
    {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,6}$"},
    {"email", "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,16}){0,2}@" LABEL "(\\." LABEL "){1,4}$"},
    {"uri", "^https?://" LABEL "(\\." LABEL "){0,6}(/[A-Za-z0-9_.~-]{0,64}){0,8}$"},
};

static void string(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to)
{
    struct grammar_builder *b = s->j->b;
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    uint32_t least = 0, most = GRAMMAR_FOREVER, open = text(s, from, "\""), end = grammar_position(b);
    bool sized = count_of(s, schema, "minLength", &least);
    sized |= count_of(s, schema, "maxLength", &most);
    if ((pattern || format) && (sized || (pattern && format))) {
        refuse(s, sized ? "minLength or maxLength" : "format",
               "together with pattern or format is not supported");
    } else if (pattern) {
        if (!json_is_string(pattern))
            refuse(s, "pattern", "must be a string");
        else
            grammar_pattern(b, json_string_value(pattern), json_string_length(pattern),
                            "the schema's keyword \"pattern\"", true, open, end);
    } else if (format) {
        size_t i = 0;
        const char *name = json_is_string(format) ? json_string_value(format) : "";
        while (i < sizeof FORMATS / sizeof *FORMATS && strcmp(FORMATS[i].name, name) != 0)
            i++;
        if (i == sizeof FORMATS / sizeof *FORMATS)
            (void)grammar_fail(b, SLUICE_E_UNSUPPORTED,
                               "the schema's keyword \"format\" with \"%.40s\" is not "
                               "supported",
                               name);
        else
            grammar_pattern(b, FORMATS[i].pattern, strlen(FORMATS[i].pattern), "format", true, open, end);
    } else if (least > most) {
        refuse(s, "maxLength", "is less than minLength");
    } else {
        grammar_empty(b, grammar_repeat(b, open, jrule_character(s->j), least, most), end);
    }
    grammar_symbols(b, end, '"', '"', to);
}

/* ---- numbers ---- */

/* The tighter of a bound and its exclusive form; false: neither. */
static bool bound(struct schema_rules *s, const json_t *schema, const char *names[2], int sign,
                  struct jrule_bound *out)
{
    bool any = false;
    for (int i = 0; i < 2; i++) {
        const json_t *member = json_object_get(schema, names[i]);
        double v = json_number_value(member);
        if (!member)
            continue;
        if (!json_is_number(member)) {
            refuse(s, names[i], "must be a number");
            return false;
        }
        if (!any || sign * v > sign * out->value || (v == out->value && i == 1))
            *out = (struct jrule_bound){v, i == 1};
        any = true;
    }
    return any;
}

static void number(struct schema_rules *s, const json_t *schema, bool integer, uint32_t from, uint32_t to)
{
    static const char *LOWS[2] = {"minimum", "exclusiveMinimum"}, *HIGHS[2] = {"maximum", "exclusiveMaximum"};
    struct jrule_bound low, high;
    bool has_low = bound(s, schema, LOWS, 1, &low), has_high = bound(s, schema, HIGHS, -1, &high);
    uint32_t rule = !has_low && !has_high
                        ? integer ? jrule_integer(s->j) : jrule_number(s->j)
                        : jrule_bounded(s->j->b, has_low ? &low : NULL, has_high ? &high : NULL, integer,
                                        has_low ? "minimum" : "maximum");
    grammar_call(s->j->b, from, rule, to);
}

/* ---- arrays ---- */

/* Items from `index` on are `rest`; those before have schemas of their own. */
static void array(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to)
{
    struct grammar_builder *b = s->j->b;
    const json_t *prefix = json_object_get(schema, "prefixItems"), *items = json_object_get(schema, "items");
    uint32_t least = 0, most = GRAMMAR_FOREVER, item = 0;
    (void)count_of(s, schema, "minItems", &least);
    (void)count_of(s, schema, "maxItems", &most);
    if (json_is_array(items)) {
        refuse(s, "items", "as a list is the old form of prefixItems; use that");
        return;
    }
    if (json_is_true(json_object_get(schema, "uniqueItems")) && most > 1)
        refuse(s, "uniqueItems", "cannot be kept while writing");
    size_t fixed = json_array_size(prefix);
    bool more = !json_is_false(items) && (items || !prefix);
    if (least > most || (least > fixed && !more)) {
        refuse(s, "minItems", "asks for more items than there can be");
        return;
    }
    if (more && most > fixed)
        item = items ? rule_of(s, items) : jrule_any(s->j);
    uint32_t at = space(s, text(s, from, "[")), close = grammar_position(b), spaced = grammar_position(b);
    if (least == 0)
        grammar_empty(b, at, close);
    size_t last = most == GRAMMAR_FOREVER ? (least > fixed ? least : fixed) + 1 : most;
    if (!more && last > fixed)
        last = fixed;
    for (size_t i = 0; i < last && good(s); i++) {
        uint32_t one = i < fixed ? rule_of(s, json_array_get(prefix, i)) : item, next = grammar_position(b);
        bool loop = most == GRAMMAR_FOREVER && more && i + 1 == last;
        grammar_call(b, at, one, next);
        if (i + 1 >= least)
            grammar_empty(b, next, spaced);
        at = space(s, text(s, next, ","));
        if (loop)
            grammar_call(b, at, item, next);
    }
    grammar_call(b, spaced, jrule_space(s->j), close);
    grammar_symbols(b, close, ']', ']', to);
}

/* ---- objects ---- */

/* Keys other than the declared ones: a tree over characters, left at the first that leads away. Keys are
 * written without escapes, so that no declared one can be spelled another way. */
struct key_tree {
    uint32_t at;
    const char **keys; /* rest of each declared key that has come this far */
    size_t n;
};

static void other_key(struct schema_rules *s, struct key_tree tree, uint32_t free_at, uint32_t close)
{
    static const struct grammar_range BARRED[] = {{0, 0x1F}, {0x22, 0x22}, {0x5C, 0x5C}};
    struct grammar_builder *b = s->j->b;
    bool ends = false;
    size_t n = 0;
    struct grammar_range *taken = mem_alloc((tree.n + 3) * sizeof *taken);
    struct grammar_range *left = mem_alloc((tree.n + 5) * sizeof *left);
    const char **next = mem_alloc((tree.n + 1) * sizeof *next);
    if (!taken || !left || !next) {
        (void)grammar_fail(b, SLUICE_E_MEMORY, "not enough memory for a schema");
        mem_free(taken);
        mem_free(left);
        mem_free(next);
        return;
    }
    memcpy(taken, BARRED, sizeof BARRED);
    n = 3;
    for (size_t i = 0; i < tree.n && good(s); i++) {
        uint32_t cp;
        if (!*tree.keys[i]) {
            ends = true;
            continue;
        }
        size_t used = utf8_decode(tree.keys[i], strlen(tree.keys[i]), &cp, NULL);
        struct key_tree child = {grammar_position(b), next, 0};
        bool seen = cp < 0x20 || cp == '"' || cp == '\\';
        for (size_t k = 3; k < n; k++)
            seen |= taken[k].low == cp;
        if (seen)
            continue;
        taken[n++] = (struct grammar_range){cp, cp};
        for (size_t k = i; k < tree.n; k++)
            if (*tree.keys[k] && strncmp(tree.keys[k], tree.keys[i], used) == 0)
                next[child.n++] = tree.keys[k] + used;
        grammar_chars(b, tree.at, &taken[n - 1], 1, child.at);
        other_key(s, child, free_at, close);
    }
    if (good(s)) {
        n = ranges_normalize(taken, n);
        grammar_chars(b, tree.at, left, ranges_negate(taken, n, left), free_at);
        if (!ends)
            grammar_symbols(b, tree.at, '"', '"', close);
    }
    mem_free(taken);
    mem_free(left);
    mem_free(next);
}

/* "key" : value, the key none of the declared. Returns a rule. */
static uint32_t other_member(struct schema_rules *s, const json_t *properties, uint32_t value_rule)
{
    static const struct grammar_range PLAIN[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    struct grammar_builder *b = s->j->b;
    uint32_t rule = grammar_rule(b), free_at = grammar_position(b), close = grammar_position(b);
    const char *name, **keys = mem_alloc((json_object_size(properties) + 1) * sizeof *keys);
    const json_t *member;
    struct key_tree tree = {text(s, grammar_start(b, rule), "\""), keys, 0};
    if (!keys) {
        (void)grammar_fail(b, SLUICE_E_MEMORY, "not enough memory for a schema");
        return rule;
    }
    json_object_foreach((json_t *)properties, name, member)
    {
        if (strlen(name) > 200)
            refuse(s, "additionalProperties",
                   "beside a property whose name is longer than 200 bytes is not "
                   "supported");
        keys[tree.n++] = name;
    }
    grammar_chars(b, free_at, PLAIN, 3, free_at);
    grammar_symbols(b, free_at, '"', '"', close);
    if (good(s))
        other_key(s, tree, free_at, close);
    mem_free(keys);
    grammar_call(b, space(s, text(s, close, ":")), value_rule, grammar_end(b, rule));
    return rule;
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *one = json_array_get(required, i);
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0)
            return true;
    }
    return false;
}

/* Declared members in their order. `none` and `some` are where no member, or some, has been written; both are
 * moved on. */
static void members(struct schema_rules *s, const json_t *schema, const json_t *properties, uint32_t *none,
                    uint32_t *some)
{
    struct grammar_builder *b = s->j->b;
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)properties, name, member)
    {
        uint32_t key = grammar_position(b), after = grammar_position(b), still = grammar_position(b);
        json_t *spelled = json_string(name);
        if (!spelled)
            (void)grammar_fail(b, SLUICE_E_MEMORY, "not enough memory for a schema");
        if (!good(s)) {
            json_decref(spelled);
            return;
        }
        grammar_empty(b, *none, key);
        grammar_empty(b, space(s, text(s, *some, ",")), key);
        uint32_t colon = text(s, jrule_literal(b, key, spelled), ":");
        json_decref(spelled);
        value(s, member, space(s, colon), after);
        if (!is_required(schema, name)) {
            grammar_empty(b, *none, still);
            grammar_empty(b, *some, after);
        }
        *none = still;
        *some = after;
    }
}

/* Properties, with what is required and not among them. */
static const json_t *all_properties(struct schema_rules *s, const json_t *schema, const json_t *additional)
{
    const json_t *properties = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    json_t *all = NULL;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name)
            refuse(s, "required", "must list names");
        if (!name || json_object_get(properties, name) || json_object_get(all, name))
            continue;
        if (!all)
            all = schema_keep(&s->set, properties ? schema_copy(&s->set, properties) : json_object());
        if (all && additional)
            schema_put(&s->set, all, name, additional);
        else if (all)
            schema_put(&s->set, all, name, json_true());
    }
    return all ? all : properties;
}

static void object(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to)
{
    struct grammar_builder *b = s->j->b;
    const json_t *additional = json_object_get(schema, "additionalProperties");
    const json_t *properties = all_properties(s, schema, additional);
    uint32_t least = 0;
    if (count_of(s, schema, "minProperties", &least) &&
        least > json_array_size(json_object_get(schema, "required")))
        refuse(s, "minProperties", "beyond the number of required properties is not supported");
    if (!properties && !additional) {
        grammar_call(b, from, jrule_any_object(s->j), to);
        return;
    }
    uint32_t none = space(s, text(s, from, "{")), some = grammar_position(b), close = grammar_position(b);
    members(s, schema, properties, &none, &some);
    if (additional && !json_is_false(additional) && good(s)) {
        uint32_t one = json_is_true(additional) ? jrule_any(s->j) : rule_of(s, additional);
        uint32_t rule = other_member(s, properties, one), again = grammar_position(b);
        grammar_call(b, none, rule, again);
        grammar_empty(b, some, again);
        grammar_call(b, space(s, text(s, again, ",")), rule, again);
        some = again;
    }
    grammar_empty(b, none, close);
    grammar_call(b, some, jrule_space(s->j), close);
    grammar_symbols(b, close, '}', '}', to);
}

/* ---- values ---- */

static void constants(struct schema_rules *s, const json_t *schema, unsigned spoken, uint32_t from,
                      uint32_t to)
{
    const json_t *list = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    unsigned types = schema_types(&s->set, schema);
    size_t n = constant ? 1 : json_array_size(list);
    if (spoken)
        refuse(s, constant ? "const" : "enum", "together with other constraints is not supported");
    if (constant && list)
        refuse(s, "const", "together with enum is not supported");
    for (size_t i = 0; i < n && good(s); i++) {
        const json_t *one = constant ? constant : json_array_get(list, i);
        if (schema_type_of(one) & types)
            grammar_empty(s->j->b, jrule_literal(s->j->b, from, one), to);
    }
}

static void by_type(struct schema_rules *s, const json_t *schema, unsigned types, uint32_t from, uint32_t to)
{
    struct grammar_builder *b = s->j->b;
    if (types & SCHEMA_NULL)
        grammar_empty(b, text(s, from, "null"), to);
    if (types & SCHEMA_BOOLEAN) {
        grammar_empty(b, text(s, from, "true"), to);
        grammar_empty(b, text(s, from, "false"), to);
    }
    if (types & SCHEMA_STRING)
        string(s, schema, from, to);
    if (types & (SCHEMA_NUMBER | SCHEMA_INTEGER))
        number(s, schema, !(types & SCHEMA_NUMBER), from, to);
    if (types & SCHEMA_ARRAY)
        array(s, schema, from, to);
    if (types & SCHEMA_OBJECT)
        object(s, schema, from, to);
}

/* The schema without one keyword; NULL after a problem. */
static const json_t *without(struct schema_rules *s, const json_t *schema, const char *keyword)
{
    json_t *rest = schema_keep(&s->set, schema_copy(&s->set, schema));
    if (rest)
        (void)json_object_del(rest, keyword);
    return rest;
}

static bool says_something(const json_t *schema)
{
    const char *name;
    const json_t *member;
    json_object_foreach((json_t *)schema, name, member)
    {
        if (!schema_is_annotation(name))
            return true;
    }
    return false;
}

/* anyOf and oneOf: each branch, with what stands beside it. */
static void branches(struct schema_rules *s, const json_t *schema, const char *keyword, uint32_t from,
                     uint32_t to)
{
    const json_t *list = json_object_get(schema, keyword), *rest = without(s, schema, keyword);
    size_t n = json_array_size(list);
    if (n == 0)
        refuse(s, keyword, "must be a list of schemas");
    for (size_t i = 0; i < n && good(s) && strcmp(keyword, "oneOf") == 0; i++)
        for (size_t k = 0; k < i && good(s); k++)
            if (!schema_exclude(&s->set, json_array_get(list, i), json_array_get(list, k), 0))
                refuse(s, "oneOf",
                       "has branches that are not known to exclude each other; use anyOf, or give each a "
                       "required property with a const of its own");
    for (size_t i = 0; i < n && good(s); i++) {
        const json_t *one = json_array_get(list, i);
        if (says_something(rest))
            one = schema_merge(&s->set, rest, one, 0);
        if (one)
            value(s, one, from, to);
    }
}

static void reference(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to)
{
    const json_t *name = json_object_get(schema, "$ref"), *rest = without(s, schema, "$ref");
    const json_t *target = json_is_string(name) ? schema_follow(&s->set, json_string_value(name)) : NULL;
    if (!json_is_string(name))
        refuse(s, "$ref", "must be a string");
    if (!target || !rest || !good(s))
        return;
    if (says_something(rest)) {
        const json_t *both = schema_merge(&s->set, target, rest, 0);
        if (both)
            value(s, both, from, to);
        return;
    }
    for (size_t i = 0; i < s->n_known; i++) {
        if (s->known[i].schema == target) {
            grammar_call(s->j->b, from, s->known[i].rule, to);
            return;
        }
    }
    if (!mem_grow((void **)&s->known, &s->cap_known, s->n_known + 1, sizeof *s->known)) {
        (void)grammar_fail(s->j->b, SLUICE_E_MEMORY, "not enough memory for a schema");
        return;
    }
    uint32_t rule = grammar_rule(s->j->b);
    s->known[s->n_known++] = (struct known){target, rule};
    value(s, target, grammar_start(s->j->b, rule), grammar_end(s->j->b, rule));
    grammar_call(s->j->b, from, rule, to);
}

static void composed(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to)
{
    const json_t *all = json_object_get(schema, "allOf");
    if (all) {
        const json_t *both = without(s, schema, "allOf");
        if (json_array_size(all) == 0)
            refuse(s, "allOf", "must be a list of schemas");
        for (size_t i = 0; i < json_array_size(all) && both; i++)
            both = schema_merge(&s->set, both, json_array_get(all, i), 0);
        if (both)
            value(s, both, from, to);
    } else if (json_object_get(schema, "$ref")) {
        reference(s, schema, from, to);
    } else {
        branches(s, schema, json_object_get(schema, "anyOf") ? "anyOf" : "oneOf", from, to);
    }
}

static void value(struct schema_rules *s, const json_t *schema, uint32_t from, uint32_t to)
{
    unsigned spoken, types;
    bool compound;
    if (!good(s) || json_is_false(schema)) /* what matches nothing is taken out in the end */
        return;
    if (++s->depth > SCHEMA_DEPTH_MAX) {
        (void)grammar_fail(s->j->b, SLUICE_E_UNSUPPORTED, "the schema nests deeper than %d levels",
                           SCHEMA_DEPTH_MAX);
        return;
    }
    if (json_is_true(schema) || (json_is_object(schema) && !says_something(schema))) {
        grammar_call(s->j->b, from, jrule_any(s->j), to);
    } else if (!json_is_object(schema)) {
        (void)grammar_fail(s->j->b, SLUICE_E_FORMAT, "the schema has a part that is no object");
    } else {
        check_keywords(s, schema, &spoken, &compound);
        types = schema_types(&s->set, schema);
        if (!good(s))
            return;
        if (compound)
            composed(s, schema, from, to);
        else if (json_object_get(schema, "enum") || json_object_get(schema, "const"))
            constants(s, schema, spoken & ~(unsigned)(spoken & types ? 0 : spoken), from, to);
        else
            /* Without a type, the keywords tell what is meant. */
            by_type(s, schema, json_object_get(schema, "type") || !spoken ? types : spoken, from, to);
    }
    s->depth--;
}

uint32_t schema_rule(struct json_rules *j, const json_t *root, const json_t *schema)
{
    struct schema_rules s = {.j = j, .set = {.b = j->b, .root = root}};
    uint32_t rule = rule_of(&s, schema);
    schema_set_close(&s.set);
    mem_free(s.known);
    return rule;
}

uint32_t grammar_schema_rule(struct grammar_builder *b, const char *schema, size_t n)
{
    struct json_rules j = {.b = b};
    json_t *root = NULL;
    mem_hook_json();
    if (!schema)
        return jrule_any_object(&j);
    if (b->status == SLUICE_OK)
        b->status = json_parse(schema, n, "the schema", &root, b->err);
    uint32_t rule = b->status == SLUICE_OK ? schema_rule(&j, root, root) : 0;
    json_decref(root);
    return rule;
}

sluice_status grammar_from_schema(const char *schema, size_t n, struct grammar **grammar, sluice_error *err)
{
    struct grammar_builder b;
    grammar_builder_open(&b, err);
    uint32_t rule = grammar_schema_rule(&b, schema, n);
    sluice_status status = grammar_finish(&b, rule, schema ? "the schema" : "a JSON object", grammar);
    grammar_builder_close(&b);
    return status;
}
