/* Texts and conversations as token ids. */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include "sluice.h"

#include <stddef.h>

struct prompt {
    int32_t *ids; /* free with sluice_free() */
    size_t n_ids;
    sluice_chat *chat; /* of a conversation: takes the answer apart; NULL for plain text */
};

/* Plain text behind the beginning-of-sequence token; nothing in it can become a control token. Returns an
 * exit code; release with prompt_free(). */
int prompt_raw(const sluice_tokenizer *tokenizer, const char *text, struct prompt *prompt);
/* A conversation in the model's chat template, with the assistant's turn opened; `request` holds all but the
 * messages. */
int prompt_chat(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                const sluice_message *messages, size_t n_messages, struct prompt *prompt);
/* The conversation in a JSON file, or "-"; `system` (may be NULL) goes first, and is refused when the file
 * starts with a system message of its own. */
int prompt_file(const sluice_tokenizer *tokenizer, const sluice_chat_request *request, const char *path,
                const char *system, struct prompt *prompt);
/* One question, after `system` when that is not NULL. */
int prompt_question(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                    const char *question, const char *system, struct prompt *prompt);
void prompt_free(struct prompt *prompt);

#endif
