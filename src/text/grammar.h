/* Grammars that say which text may be generated, as automata over bytes.
 *
 * A grammar is a set of rules; a rule is a small automaton whose edges read symbols (bytes, or marks: control
 * tokens that have no bytes of their own here), read nothing, or call another rule. Sources (GBNF, JSON
 * Schema, tool-call syntax) become rules through a builder; grammar_finish() takes out what can never be
 * finished, so that every beginning the walker allows has an end, and refuses left recursion. A grammar is
 * immutable and may be shared.
 *
 * A walker runs one grammar over one vocabulary. Its states are numbered sets of (place, return stack), made
 * when they are first reached and never twice; a state's mask of allowed tokens is made once and kept while
 * there is room. Numbers stay valid as long as the walker, so drafted tokens can be tried and taken back by
 * remembering a number. A walker belongs to one thread at a time. */
#ifndef TEXT_GRAMMAR_H
#define TEXT_GRAMMAR_H

#include "base/mem.h"
#include "text/tokenizer.h"

#include <stdint.h>

enum {
    GRAMMAR_MARKS_MAX = 24,
    GRAMMAR_SYMBOLS = 256 + GRAMMAR_MARKS_MAX,
    GRAMMAR_POSITIONS_MAX = 1 << 19,
    GRAMMAR_EDGES_MAX = 1 << 20,
    GRAMMAR_RULES_MAX = 1 << 17,
    GRAMMAR_REPEAT_MAX = 10000, /* of {m,n}, minLength, maxItems and their like */
};

struct grammar;

/* ---- building ---- */

/* Problems are kept, and everything after the first does nothing: only grammar_finish() needs a check. */
struct grammar_builder {
    struct grammar_edge *edges;
    size_t n_edges, cap_edges;
    struct grammar_rule {
        uint32_t start, end;
    } * rules;
    size_t n_rules, cap_rules;
    uint32_t n_positions;
    /* What the building, the grammar and its walkers are charged to; NULL after grammar_builder_open():
     * nothing. Must outlive all of them. */
    struct budget *budget;
    uint64_t charged_bytes;
    sluice_status status;
    sluice_error *err;
};

#define GRAMMAR_FOREVER UINT32_MAX /* as a greatest number of repetitions */

struct grammar_range {
    uint32_t low, high; /* code points, both included */
};

void grammar_builder_open(struct grammar_builder *b, sluice_error *err);
void grammar_builder_close(struct grammar_builder *b);
/* Keep the first problem; returns its status. */
sluice_status grammar_fail(struct grammar_builder *b, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t grammar_position(struct grammar_builder *b);
uint32_t grammar_rule(struct grammar_builder *b);
static inline uint32_t grammar_start(const struct grammar_builder *b, uint32_t rule)
{
    return rule < b->n_rules ? b->rules[rule].start : 0;
}
static inline uint32_t grammar_end(const struct grammar_builder *b, uint32_t rule)
{
    return rule < b->n_rules ? b->rules[rule].end : 0;
}
void grammar_empty(struct grammar_builder *b, uint32_t from, uint32_t to);
void grammar_symbols(struct grammar_builder *b, uint32_t from, unsigned low, unsigned high, uint32_t to);
static inline void grammar_mark(struct grammar_builder *b, uint32_t from, unsigned mark, uint32_t to)
{
    grammar_symbols(b, from, 256 + mark, 256 + mark, to);
}
void grammar_call(struct grammar_builder *b, uint32_t from, uint32_t rule, uint32_t to);
/* The bytes of a text; returns where they end. */
uint32_t grammar_text(struct grammar_builder *b, uint32_t from, const char *text, size_t n);
/* One character of the ranges (ascending, apart), as UTF-8; surrogates are left out. */
void grammar_chars(struct grammar_builder *b, uint32_t from, const struct grammar_range *ranges, size_t n,
                   uint32_t to);
/* Calls in a row: at least `least`, at most `most`. Returns where they end. */
uint32_t grammar_repeat(struct grammar_builder *b, uint32_t from, uint32_t rule, uint32_t least,
                        uint32_t most);
/* SLUICE_E_UNSUPPORTED: too large, left-recursive, or nothing matches; `what` names the grammar in messages.
 * SLUICE_E_BUDGET: too large for b->budget. */
sluice_status grammar_finish(struct grammar_builder *b, uint32_t root, const char *what,
                             struct grammar **grammar);
void grammar_close(struct grammar *grammar);

/* ---- matching ---- */

/* Every token's bytes in sorted order: walked together, common beginnings are walked once. */
struct grammar_vocab;
size_t grammar_vocab_bytes(uint32_t vocab_tokens); /* that it takes */
sluice_status grammar_vocab_open(const struct tokenizer *tokenizer, struct grammar_vocab **vocab,
                                 sluice_error *err);
void grammar_vocab_close(struct grammar_vocab *vocab);

struct walker;
#define WALKER_DEAD UINT32_MAX

/* mark_ids[i] is the token that mark i stands for, or -1. Grammar and vocabulary must outlive the walker. */
sluice_status walker_open(const struct grammar *grammar, const struct grammar_vocab *vocab,
                          const int32_t *mark_ids, size_t n_marks, struct walker **walker, sluice_error *err);
void walker_close(struct walker *walker);
uint32_t walker_start(const struct walker *walker);
/* The state behind a symbol, bytes or a token: WALKER_DEAD when they do not fit. */
sluice_status walker_symbol(struct walker *walker, uint32_t state, unsigned symbol, uint32_t *next,
                            sluice_error *err);
sluice_status walker_bytes(struct walker *walker, uint32_t state, const char *bytes, size_t n, uint32_t *next,
                           sluice_error *err);
sluice_status walker_token(struct walker *walker, uint32_t state, int32_t id, uint32_t *next,
                           sluice_error *err);
/* May the text end here? Must it, for nothing can follow? */
bool walker_accepts(const struct walker *walker, uint32_t state);
bool walker_complete(const struct walker *walker, uint32_t state);
/* One bit per token id, lives until the next call; *any: some bit is set. */
sluice_status walker_mask(struct walker *walker, uint32_t state, const uint64_t **bits, bool *any,
                          sluice_error *err);
/* Bytes that the walker holds now. Where its grammar's budget is short it forgets what it can work out again,
 * and fails only when that is not enough: SLUICE_E_BUDGET. */
size_t walker_memory(const struct walker *walker);

/* ---- sources ---- */

/* The same as rules of a builder, for grammars with parts of several kinds. */
uint32_t grammar_gbnf_rule(struct grammar_builder *b, const char *text, size_t n);
uint32_t grammar_schema_rule(struct grammar_builder *b, const char *schema, size_t n);

/* GBNF: rules "name ::= …" with literals, classes, groups, * + ? {m,n}; the first is `root`. */
sluice_status grammar_from_gbnf(const char *text, size_t n, struct grammar **grammar, sluice_error *err);
/* A JSON value that the schema (a JSON text) accepts. `schema` NULL: any object. A keyword that cannot be
 * honoured is refused by name: SLUICE_E_UNSUPPORTED. */
sluice_status grammar_from_schema(const char *schema, size_t n, struct grammar **grammar, sluice_error *err);

#endif
