/* Flags that shape an answer: a JSON Schema, a grammar, or any JSON object. */
#ifndef CLI_SHAPE_H
#define CLI_SHAPE_H

#include "flags.h"
#include "out.h"

struct shape_flags {
    const char *json_schema, *grammar;
    bool json_object;
};

enum { SHAPE_ROWS = 3 };
extern const struct flag shape_rows[SHAPE_ROWS];

#define SHAPE_GROUP(structure, member)                                                                       \
    {                                                                                                        \
        .title = "Structured output", .rows = shape_rows, .n = SHAPE_ROWS,                                   \
        .base = offsetof(structure, member)                                                                  \
    }

/* What the flags ask for, its text read from the file. Returns an exit code; release text with text_free(). */
int shape_read(const struct shape_flags *flags, sluice_format *format, struct text *text);

#endif
