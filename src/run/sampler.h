/* From logits to a token. Order of steps as sluice.h says. All arithmetic is our own (compute/math.h), in a
 * fixed order, so the same logits, seed and position draw the same token everywhere. */
#ifndef RUN_SAMPLER_H
#define RUN_SAMPLER_H

#include "base/mem.h"

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    uint32_t vocab;
    struct candidate *candidates; /* [vocab] */
    uint32_t *counts;             /* [vocab]: occurrences of each token, for penalties */
    const uint64_t *allowed;      /* one bit per token, at least one set; NULL: all. Not owned */
    uint32_t n;                   /* candidates that the running draw has */
};

size_t sampler_bytes(uint32_t vocab);
void sampler_open(struct sampler *sampler, uint32_t vocab, struct arena *arena);

/* Draw from the tokens that sampler->allowed has. `tokens` are those of the session, for penalties; the draw
 * depends on (seed, n_tokens). choice->logprob and `top` are of the model's own distribution: softmax of the
 * logits before any step. */
void sampler_draw(struct sampler *sampler, const float *logits, const int32_t *tokens, size_t n_tokens,
                  const sluice_sampling *sampling, sluice_token_logprob *choice, sluice_token_logprob *top,
                  size_t n_top);

#endif
