/* chat_template.jinja: a small Jinja engine with transformers' settings (trim_blocks, lstrip_blocks). It
 * knows which bytes of its output are the template's own and which came from a message, so that only the
 * former can become control tokens. What it lacks it refuses by name at open. Bounded in steps, depth and
 * output. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/json.h"
#include "base/str.h"

struct template;

sluice_status template_open(const char *source, size_t source_bytes, struct template **template,
                            sluice_error *err);
void template_close(struct template *template);

/* Variables are the members of the JSON object `variables` (messages, add_generation_prompt, …); `trusted`
 * names top-level variables whose strings count as the template's own (bos_token, eos_token), NULL-ended.
 * text gets the rendering; marks one byte per byte of it: 1 the template's own, 0 from a message. */
sluice_status template_render(const struct template *template, const json_t *variables,
                              const char *const *trusted, struct str *text, struct str *marks,
                              sluice_error *err);

#endif
