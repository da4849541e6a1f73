/* A tokenizer with its chat template: what sluice_tokenizer is. */
#ifndef RUN_TEXT_H
#define RUN_TEXT_H

#include "text/grammar.h"
#include "text/template.h"
#include "text/tokenizer.h"

#include <pthread.h>

struct sluice_tokenizer {
    struct tokenizer *tok;
    struct template *chat;     /* NULL: the model has no chat template */
    char *bos_text, *eos_text; /* NULL: none */
    struct budget grammars;    /* what schemas and grammars may take; an engine's plan says how much */
    pthread_mutex_t lock;
    struct grammar_vocab *vocab; /* made when a grammar first asks; under the lock */
};

/* The vocabulary as grammars walk it. Thread-safe. */
sluice_status text_vocab(sluice_tokenizer *tokenizer, const struct grammar_vocab **vocab, sluice_error *err);

#endif
