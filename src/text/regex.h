/* Regular expressions of tokenizer.json. They are written for Oniguruma; this turns them into PCRE2's
 * dialect, with the character classes spelled out where the two disagree, and refuses by name what has no
 * equal. Matching is bounded in backtracking steps and memory. A compiled expression is immutable and
 * shareable; a struct regex_run belongs to one thread. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include "base/err.h"
#include "base/str.h"

struct regex;

#define REGEX_BYTES_MAX 65536

/* `where` names the expression in messages. */
sluice_status regex_open(struct regex **regex, const char *pattern, size_t n, const char *where,
                         sluice_error *err);
void regex_close(struct regex *regex); /* NULL is fine */

/* Oniguruma to PCRE2; appended to out. */
sluice_status regex_translate(const char *pattern, size_t n, const char *where, struct str *out,
                              sluice_error *err);

/* What matching needs besides the expression. Zero it to start. */
struct regex_run {
    void *general, *match, *data, *stack; /* PCRE2's contexts, match data and JIT stack */
};
void regex_run_close(struct regex_run *run);

/* Find the first match at or after `at` in valid UTF-8. *found tells; start and end are then byte offsets.
 * SLUICE_E_UNSUPPORTED: the limits were reached. */
sluice_status regex_find(const struct regex *regex, struct regex_run *run, const char *text, size_t n,
                         size_t at, bool *found, size_t *start, size_t *end, sluice_error *err);

#endif
