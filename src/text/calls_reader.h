/* What the readers of the syntaxes share: states that several of them have, and how arguments are written.
 *
 *     calls_reader.c    the shared states, the end of a call
 *     calls_json.c      {"name": …, "arguments": {…}}
 *     calls_elements.c  one element for each argument: <parameter=…>, <arg_key>, DSML
 *     calls_gemma.c     call:NAME{key:value,…}
 */
#ifndef TEXT_CALLS_READER_H
#define TEXT_CALLS_READER_H

#include "text/calls.h"

#define CALLS_DSML                                                                                           \
    "\xEF\xBD\x9C"                                                                                           \
    "DSML"                                                                                                   \
    "\xEF\xBD\x9C"
#define CALLS_QUOTE "<|\"|>" /* around Gemma's strings */

/* The first state of each syntax; a tagged body is told apart by its first byte. */
call_step call_tagged_step, call_json_step, call_gemma_step, call_dsml_step, call_elements_step;

static inline bool call_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

sluice_status call_wrong(sluice_error *err, const char *what);
sluice_status call_no_memory(sluice_error *err);

/* The next byte is `step`'s, in a state with nothing read and no end. */
void call_go(struct call_reader *r, call_step *step);

/* One of the texts (the last is NULL) comes, behind white space; none of them begins another. */
struct call_choice {
    const char *text;
    call_then *then;
};
void call_expect(struct call_reader *r, const struct call_choice *choices);
/* Everything up to `stop` becomes r->word. The first byte of `stop` occurs in it once. */
void call_collect(struct call_reader *r, const char *stop, call_then *then);
/* Everything up to `stop` is a value: handed out as a JSON string as it comes (as_text), or kept as r->word
 * for `then`. peeled: one line end at each side is layout. The first byte of `stop` occurs in it once. */
void call_value(struct call_reader *r, const char *stop, bool as_text, bool peeled, call_then *then);

/* The function's name is known. */
sluice_status call_begin(struct call_reader *r, const char *name, size_t n, sluice_error *err);
/* Append to the arguments: as it is; as a part of a JSON string; as a member's name. */
sluice_status call_emit(struct call_reader *r, const char *text, size_t n, sluice_error *err);
sluice_status call_emit_char(struct call_reader *r, char c, sluice_error *err);
sluice_status call_emit_string(struct call_reader *r, const char *text, size_t n, sluice_error *err);
sluice_status call_emit_key(struct call_reader *r, const char *key, size_t n, sluice_error *err);

/* A JSON body as a whole is right, and says what was handed out. */
sluice_status call_json_check(const struct call_reader *r, const char *body, size_t n,
                              const json_t *arguments, sluice_error *err);

#endif
