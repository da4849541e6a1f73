/* JSON Schema: what the files that turn it into grammar rules share.
 *
 *     schema.c        schemas to rules: types, objects, arrays, strings
 *     schema_merge.c  two schemas that both hold as one; when two exclude each other
 *
 * The language of the grammar may be smaller than the schema's (objects close where the schema only leaves
 * them open, numbers have at most 15 digits), never larger: a keyword that cannot be honoured is refused. */
#ifndef TEXT_SCHEMA_H
#define TEXT_SCHEMA_H

#include "text/grammar_internal.h"

enum { SCHEMA_DEPTH_MAX = 64, SCHEMA_MADE_MAX = 4096 };

enum {
    SCHEMA_NULL = 1,
    SCHEMA_BOOLEAN = 2,
    SCHEMA_OBJECT = 4,
    SCHEMA_ARRAY = 8,
    SCHEMA_STRING = 16,
    SCHEMA_NUMBER = 32,
    SCHEMA_INTEGER = 64,
    SCHEMA_ALL = 127,
};

/* Where references point, and the schemas made on the way. */
struct schema_set {
    struct grammar_builder *b;
    const json_t *root;
    json_t **made;
    size_t n_made, cap_made;
};

void schema_set_close(struct schema_set *set);
/* Owned by the set from now on; NULL goes through. */
json_t *schema_keep(struct schema_set *set, json_t *schema);
/* A shallow copy; new reference. */
json_t *schema_copy(struct schema_set *set, const json_t *value);
/* Set a member; a lack of memory is the builder's problem. */
void schema_put(struct schema_set *set, json_t *object, const char *name, const json_t *value);
/* Follow "#/…"; NULL after a problem. */
const json_t *schema_follow(struct schema_set *set, const char *reference);
/* A schema that holds where both hold; NULL after a problem, which names the keyword. */
const json_t *schema_merge(struct schema_set *set, const json_t *a, const json_t *b, int depth);
/* Bits of the types that a schema allows, from "type", "enum" and "const"; 0 after a problem. */
unsigned schema_types(struct schema_set *set, const json_t *schema);
unsigned schema_type_of(const json_t *value);
/* No value can satisfy both. False also when that is not known. */
bool schema_exclude(struct schema_set *set, const json_t *a, const json_t *b, int depth);
/* Keywords that say nothing about validity. */
bool schema_is_annotation(const char *keyword);

#endif
