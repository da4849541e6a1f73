#include "shape.h"

#include "cli.h"
#include "input.h"

#define FIELD(member, type) AT(struct shape_flags, member, type)

const struct flag shape_rows[SHAPE_ROWS] = {
    {.name = "json-schema",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(json_schema, const char *),
     .min = 1,
     .help = "answer with JSON that the JSON Schema in FILE accepts; a keyword that cannot be kept is refused",
     .excludes = "grammar,json-object,stop"},
    {.name = "grammar",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(grammar, const char *),
     .min = 1,
     .help = "answer with a text that the GBNF grammar in FILE accepts",
     .excludes = "json-object,stop"},
    {.name = "json-object",
     .kind = FLAG_BOOL,
     FIELD(json_object, bool),
     .help = "answer with a JSON object",
     .excludes = "stop"},
};

int shape_read(const struct shape_flags *flags, sluice_format *format, struct text *text)
{
    *text = (struct text){0};
    *format = flags->json_schema   ? SLUICE_FORMAT_SCHEMA
              : flags->grammar     ? SLUICE_FORMAT_GBNF
              : flags->json_object ? SLUICE_FORMAT_JSON
                                   : SLUICE_FORMAT_TEXT;
    if (*format != SLUICE_FORMAT_SCHEMA && *format != SLUICE_FORMAT_GBNF)
        return EXIT_DONE;
    return input_read(flags->json_schema ? flags->json_schema : flags->grammar, text);
}
