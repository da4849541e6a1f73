/* jansson with caps: every JSON text from outside is bounded in size and depth before it is parsed, duplicate
 * keys are refused, and getters name the field that is wrong. `where` names the document in messages
 * ("config.json"). Getters with a `parent` accept NULL or a non-object and then fail by name. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/err.h"

#include <jansson.h>

#define JSON_DEPTH_MAX 64

/* Parse; *root is a new reference. The top level may be any value. */
sluice_status json_parse(const char *text, size_t bytes, const char *where, json_t **root, sluice_error *err);
/* As json_parse(), for files of programs whose integers have no bound (transformers writes 10^30 into
 * tokenizer_config.json for "no limit"): where one does not fit 64 bits, every integer of the text is a real.
 */
sluice_status json_parse_big(const char *text, size_t bytes, const char *where, json_t **root,
                             sluice_error *err);

/* Print with json_dumps' flags; free *text with mem_free. Use this and not json_dumps(), which leaves things
 * out where memory is short. */
sluice_status json_print(const json_t *value, size_t flags, const char *where, char **text,
                         sluice_error *err);

/* Required members. Integers must be JSON integers in [min, max]. */
sluice_status json_need_u64(const json_t *parent, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                            const char *where, sluice_error *err);
sluice_status json_need_u32(const json_t *parent, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                            const char *where, sluice_error *err);
sluice_status json_need_number(const json_t *parent, const char *key, double *out, const char *where,
                               sluice_error *err);
sluice_status json_need_string(const json_t *parent, const char *key, const char **out, const char *where,
                               sluice_error *err);
sluice_status json_need_bool(const json_t *parent, const char *key, bool *out, const char *where,
                             sluice_error *err);
sluice_status json_need_object(const json_t *parent, const char *key, json_t **out, const char *where,
                               sluice_error *err);
sluice_status json_need_array(const json_t *parent, const char *key, json_t **out, const char *where,
                              sluice_error *err);

/* True when the member is there and not null. */
bool json_has(const json_t *parent, const char *key);

#endif
