/* A tokenizer with its chat template: what sluice_tokenizer is. */
#ifndef RUN_TEXT_H
#define RUN_TEXT_H

#include "text/template.h"
#include "text/tokenizer.h"

struct sluice_tokenizer {
    struct tokenizer *tok;
    struct template *chat;     /* NULL: the model has no chat template */
    char *bos_text, *eos_text; /* NULL: none */
};

#endif
