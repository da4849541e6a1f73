/* Where text goes: data to standard output, notices and errors to standard error. A failed write to standard
 * output is remembered, reported once, and makes the program exit with 1 (quietly when the reader has gone).
 */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include "sluice.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Name of the running subcommand, for messages; NULL before it is known. Borrowed. */
void out_set_command(const char *name);

/* Standard output. False: it cannot be written any more, and the reason has been kept. */
bool out_text(const char *text, size_t bytes);
bool out_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool out_flush(void);
/* Compact, one line. Takes the reference; NULL counts as out of memory. */
bool out_json(json_t *value);
/* Flush, and turn a failed write into EXIT_FAILED with a message. Otherwise returns `code`. */
int out_finish(int code);

/* Standard error: a line of its own. notice() says what happened, fail() why something did not. */
void notice(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A part of a longer text on standard error. */
void notice_text(const char *text, size_t bytes);
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As fail(), with a pointer to the command's help; returns EXIT_USAGE. */
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a message that ends with a suggestion of its own. */
int fail_suggest(const char *suggestion, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print a library error; returns the exit code that belongs to it. */
int fail_error(const sluice_error *error);

/* Memory that must be had: prints and exits with 1 when there is none. */
void *must_realloc(void *memory, size_t n, size_t size);
char *must_copy(const char *text);

/* A growing piece of text, always ended by a NUL. Zeroed is empty; release with text_free(). */
struct text {
    char *bytes;
    size_t n, cap;
};
void text_add(struct text *text, const char *bytes, size_t n);
void text_free(struct text *text);

#define HUMAN_BYTES 32

/* "17.5 MiB", "1.36 GiB", "512 B". */
const char *human_bytes(uint64_t bytes, char out[HUMAN_BYTES]);
/* "0.12 s", "4 min 20 s", "3 h 5 min". */
const char *human_time(double seconds, char out[HUMAN_BYTES]);
double seconds_of(uint64_t ns);
/* 0 when nothing or no time passed. */
double per_second(uint64_t n, uint64_t ns);

/* Text from the command line or a file, quoted for a message: control characters made visible, shortened. */
#define QUOTE_BYTES 96
const char *quote(const char *text, char out[QUOTE_BYTES]);

#endif
