/* What the files of the grammar engine share. */
#ifndef TEXT_GRAMMAR_INTERNAL_H
#define TEXT_GRAMMAR_INTERNAL_H

#include "base/json.h"
#include "text/grammar.h"

enum edge_kind { EDGE_SYMBOLS, EDGE_EMPTY, EDGE_CALL };

struct grammar_edge {
    uint32_t from, to;
    enum edge_kind kind;
    uint32_t low, high; /* symbols; or low is the rule that is called */
};

/* Edges lie in the order of where they start: edges[first[p] .. first[p + 1]). */
struct grammar {
    struct grammar_edge *edges;
    uint32_t *first;
    unsigned char *flags; /* of each position */
    uint32_t *starts;     /* of each rule */
    uint32_t n_positions, n_rules, root;
    struct budget *budget;
    uint64_t charged_bytes;
};

/* What a grammar that finds no room in its budget is told. */
sluice_status grammar_no_budget(const struct budget *budget, sluice_error *err);

enum position_flag {
    POSITION_END = 1,  /* the rule may end here */
    POSITION_TAIL = 2, /* and nothing else may happen */
    POSITION_READS = 4 /* has an edge that reads a symbol */
};

/* ---- pieces that several sources use ---- */

/* A pattern as ECMA-262 writes it, restricted to what is regular: the whole text it may match, anchored where
 * the pattern is. `keyword` names it in messages. Adds a path from `from` to `to`, of characters inside a
 * JSON string (escaped where JSON needs it) when `json`. */
void grammar_pattern(struct grammar_builder *b, const char *pattern, size_t n, const char *keyword, bool json,
                     uint32_t from, uint32_t to);

/* Character classes: `ranges` is sorted and joined; complemented when `negate`. Returns the new number. */
size_t ranges_normalize(struct grammar_range *ranges, size_t n);
size_t ranges_negate(const struct grammar_range *ranges, size_t n, struct grammar_range *out);

/* ---- JSON ---- */

/* Rules of JSON's grammar, made when first asked for. */
struct json_rules {
    struct grammar_builder *b;
    uint32_t space, string, character, number, integer, value, object, array;
    bool has_space, has_string, has_character, has_number, has_integer, has_value;
};

uint32_t jrule_space(struct json_rules *j);     /* nothing, a space, or a line end and indentation */
uint32_t jrule_string(struct json_rules *j);    /* with its quotes */
uint32_t jrule_character(struct json_rules *j); /* one character of a string */
uint32_t jrule_number(struct json_rules *j);
uint32_t jrule_integer(struct json_rules *j);
uint32_t jrule_any(struct json_rules *j);        /* any value, nested JSON_RULE_DEPTH levels at most */
uint32_t jrule_any_object(struct json_rules *j); /* the same, an object */
/* A code point of a string's content, as JSON writes it. */
void jrule_chars(struct grammar_builder *b, uint32_t from, const struct grammar_range *ranges, size_t n,
                 uint32_t to);
/* A value, spelled as json.dumps does, with its escapes. Returns where it ends. */
uint32_t jrule_literal(struct grammar_builder *b, uint32_t from, const json_t *value);
/* A decimal from low to high; either may be NULL. Returns a rule. */
struct jrule_bound {
    double value;
    bool exclusive;
};
uint32_t jrule_bounded(struct grammar_builder *b, const struct jrule_bound *low,
                       const struct jrule_bound *high, bool integer, const char *where);

/* The value of a schema, as a rule of the builder; problems are the builder's. `root` holds definitions. */
uint32_t schema_rule(struct json_rules *j, const json_t *root, const json_t *schema);

#endif
