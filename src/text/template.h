/* chat_template.jinja: a Jinja engine with transformers' settings (trim_blocks, lstrip_blocks, loop controls,
 * its tojson, raise_exception, strftime_now and generation blocks). It knows which bytes of its output are
 * the template's own and which came from a message, so that only the former can become control tokens.
 * Statements, filters and tests that it lacks it refuses by name at open; functions and methods where they
 * are called, as Jinja does. Bounded in steps, depth, memory and output. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/json.h"
#include "base/str.h"

#include <stdint.h>

struct template;

sluice_status template_open(const char *source, size_t source_bytes, struct template **template,
                            sluice_error *err);
void template_close(struct template *template);

struct template_input {
    const json_t *variables;    /* an object; its members are the variables: messages, tools, … */
    const char *const *trusted; /* NULL-ended names of variables whose strings count as the template's own */
    int64_t now_seconds;        /* what strftime_now() tells, since 1970; 0: the clock's */
};

/* text gets the rendering; marks one byte per byte of it: 1 the template's own, 0 from a message. */
sluice_status template_render(const struct template *template, const struct template_input *input,
                              struct str *text, struct str *marks, sluice_error *err);

/* Whether the template names this variable anywhere. Tells what it can do: enable_thinking, tools, … */
bool template_mentions(const struct template *template, const char *name);

#endif
