/* Texts from files and standard input, with a cap on their size. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "out.h"

#include <jansson.h>

/* Prompts are at most some hundred thousand tokens; anything larger is a mistake in the path. */
#define INPUT_MAX_BYTES ((size_t)64 << 20)

/* Read a whole file, or standard input when path is "-". Text with a NUL byte is refused: it would end there
 * unnoticed. Returns an exit code; on EXIT_DONE release text with text_free(). */
int input_read(const char *path, struct text *text);
/* Cut one line end off, as echo and editors put there. */
void input_cut_line_end(struct text *text);

/* A JSON file, or "-". *root is a new reference. */
int input_json(const char *path, json_t **root);

/* Messages in the JSON form of sluice_messages_parse(), from a file or "-". Free with sluice_free(). */
int input_messages(const char *path, sluice_message **messages, size_t *n_messages);

#endif
