/* Structured output: a grammar at work on one generation. Before a token is drawn, constraint_allow() hands
 * the sampler the tokens that may come; constraint_take() follows the one that was drawn. Drafted tokens
 * compose with it: remember constraint->state, take them one by one, and set it back to reject them. */
#ifndef RUN_CONSTRAINT_H
#define RUN_CONSTRAINT_H

#include "run/sampler.h"
#include "run/text.h"
#include "text/grammar.h"

struct sluice_constraint {
    const sluice_tokenizer *tokenizer;
    struct grammar *grammar;
    struct walker *walker;
    uint32_t state;
    uint64_t *bits; /* [words]: a mask with the stop ids in it */
    size_t words;
};

/* A builder whose grammar is charged to what the tokenizer's engine has set aside. */
void constraint_builder(struct grammar_builder *b, const sluice_tokenizer *tokenizer, sluice_error *err);
/* The rule of a format that is not free text. */
uint32_t constraint_rule(struct grammar_builder *b, sluice_format format, const char *text, size_t n);
/* Take a grammar over. mark_ids as walker_open. */
sluice_status constraint_open(const sluice_tokenizer *tokenizer, struct grammar *grammar,
                              const int32_t *mark_ids, size_t n_marks, sluice_constraint **constraint,
                              sluice_error *err);
/* Back to the beginning. */
void constraint_restart(sluice_constraint *constraint);
/* Set sampler->allowed for the next draw. Stop ids are allowed where the text may end. */
sluice_status constraint_allow(sluice_constraint *constraint, struct sampler *sampler,
                               const int32_t *stop_ids, size_t n_stop_ids, sluice_error *err);
/* The token that was drawn. *complete: nothing can follow, the text is finished. */
sluice_status constraint_take(sluice_constraint *constraint, int32_t id, bool *complete, sluice_error *err);

#endif
