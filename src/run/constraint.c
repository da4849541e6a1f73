#include "run/constraint.h"

#include <string.h>

void constraint_builder(struct grammar_builder *b, const sluice_tokenizer *t, sluice_error *err)
{
    grammar_builder_open(b, err);
    b->budget = &((sluice_tokenizer *)t)->grammars;
}

sluice_status constraint_open(const sluice_tokenizer *t, struct grammar *grammar, const int32_t *mark_ids,
                              size_t n_marks, sluice_constraint **out, sluice_error *err)
{
    const struct grammar_vocab *vocab;
    sluice_constraint *c = mem_calloc(1, sizeof *c);
    sluice_status status;
    *out = NULL;
    if (!c) {
        grammar_close(grammar);
        return err_memory(err, sizeof *c, "a grammar");
    }
    c->tokenizer = t;
    c->grammar = grammar;
    c->words = tok_vocab(t->tok) / 64 + 1;
    c->bits = mem_calloc(c->words, sizeof *c->bits);
    if (!c->bits)
        TRY_OUT(err_memory(err, c->words * sizeof *c->bits, "a grammar"));
    TRY_OUT(text_vocab((sluice_tokenizer *)t, &vocab, err));
    TRY_OUT(walker_open(grammar, vocab, mark_ids, n_marks, &c->walker, err));
    c->state = walker_start(c->walker);
    *out = c;
    return SLUICE_OK;
out:
    sluice_constraint_close(c);
    return status;
}

uint32_t constraint_rule(struct grammar_builder *b, sluice_format format, const char *text, size_t n)
{
    if (format == SLUICE_FORMAT_GBNF)
        return grammar_gbnf_rule(b, text ? text : "", n);
    return grammar_schema_rule(b, format == SLUICE_FORMAT_SCHEMA ? text : NULL, n);
}

sluice_status sluice_constraint_open(const sluice_tokenizer *t, sluice_format format, const char *text,
                                     size_t text_bytes, sluice_constraint **constraint, sluice_error *err)
{
    struct grammar_builder b;
    struct grammar *grammar = NULL;
    *constraint = NULL;
    if (format == SLUICE_FORMAT_TEXT)
        return err_set(err, SLUICE_E_ARGUMENT, "free text needs no constraint");
    constraint_builder(&b, t, err);
    uint32_t root = constraint_rule(&b, format, text, text_bytes);
    sluice_status status = grammar_finish(&b, root, "the schema or grammar", &grammar);
    grammar_builder_close(&b);
    TRY(status);
    return constraint_open(t, grammar, NULL, 0, constraint, err);
}

void sluice_constraint_close(sluice_constraint *c)
{
    if (!c)
        return;
    walker_close(c->walker);
    grammar_close(c->grammar);
    mem_free(c->bits);
    mem_free(c);
}

void constraint_restart(sluice_constraint *c)
{
    c->state = walker_start(c->walker);
}

sluice_status constraint_allow(sluice_constraint *c, struct sampler *sampler, const int32_t *stop_ids,
                               size_t n_stop_ids, sluice_error *err)
{
    const uint64_t *mask;
    bool any, stops = false;
    TRY(walker_mask(c->walker, c->state, &mask, &any, err));
    memcpy(c->bits, mask, c->words * sizeof *c->bits);
    for (size_t i = 0; i < n_stop_ids && walker_accepts(c->walker, c->state); i++) {
        if (stop_ids[i] >= 0 && (size_t)stop_ids[i] / 64 < c->words) {
            c->bits[stop_ids[i] / 64] |= (uint64_t)1 << (stop_ids[i] % 64);
            stops = true;
        }
    }
    if (!any && !stops)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "no token of the vocabulary goes on with what the grammar asks for here");
    sampler->allowed = c->bits;
    return SLUICE_OK;
}

sluice_status constraint_take(sluice_constraint *c, int32_t id, bool *complete, sluice_error *err)
{
    uint32_t next;
    *complete = false;
    TRY(walker_token(c->walker, c->state, id, &next, err));
    if (next == WALKER_DEAD)
        return err_set(err, SLUICE_E_ARGUMENT, "token %d does not fit the grammar here", id);
    c->state = next;
    *complete = walker_complete(c->walker, next);
    return SLUICE_OK;
}
