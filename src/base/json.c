#include "base/json.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

/* jansson recurses per level; its own cap (2048) is compiled in and far above ours. */
static bool depth_ok(const char *text, size_t bytes)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return false;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return true;
}

/* The parser stops right behind a key that came before, and tells short ones only: tensors' names are not. */
static void name_key(const char *text, size_t bytes, json_error_t *detail)
{
    size_t end = detail->position > 0 ? (size_t)detail->position - 1 : 0, begin = end;
    if (end >= bytes || text[end] != '"')
        return;
    while (begin > 0 && (text[begin - 1] != '"' || (begin > 1 && text[begin - 2] == '\\')))
        begin--;
    const size_t shown = end - begin < 120 ? end - begin : utf8_complete_prefix(text + begin, 120);
    (void)snprintf(detail->text, sizeof detail->text, "duplicate object key \"%.*s\"", (int)shown,
                   text + begin);
}

/* jansson's string buffer ignores a refused allocation (2.14): the lexer drops a character, so that another
 * text is read, or loses the closing quote and runs past its buffer; the printer leaves out what it had to
 * append. So neither ever sees a refusal: mem_guard_json() jumps out, and what was half built is leaked,
 * where there is no memory anyway. For the fault hook each of the two is one allocation. */
static sluice_status parse(const char *text, size_t bytes, size_t flags, const char *where, json_t **root,
                           bool *too_big, sluice_error *err)
{
    mem_hook_json();
    *root = NULL;
    *too_big = false;
    if (!depth_ok(text, bytes))
        return err_set(err, SLUICE_E_FORMAT, "%s nests deeper than %d levels", where, JSON_DEPTH_MAX);
    jmp_buf way_out;
    if (fault_hit(FAULT_ALLOC))
        return err_memory(err, bytes, where);
    if (setjmp(way_out)) {
        mem_guard_json(NULL);
        return err_memory(err, bytes, where);
    }
    json_error_t detail;
    mem_guard_json(&way_out);
    *root =
        json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL | flags, &detail);
    mem_guard_json(NULL);
    if (*root)
        return SLUICE_OK;
    *too_big = json_error_code(&detail) == json_error_numeric_overflow;
    if (json_error_code(&detail) == json_error_duplicate_key)
        name_key(text, bytes, &detail);
    return err_set(err, SLUICE_E_FORMAT, "%s is not valid JSON: %s (line %d, column %d)", where, detail.text,
                   detail.line, detail.column);
}

sluice_status json_parse(const char *text, size_t bytes, const char *where, json_t **root, sluice_error *err)
{
    bool too_big;
    return parse(text, bytes, 0, where, root, &too_big, err);
}

sluice_status json_parse_big(const char *text, size_t bytes, const char *where, json_t **root,
                             sluice_error *err)
{
    bool too_big;
    sluice_status status = parse(text, bytes, 0, where, root, &too_big, err);
    return too_big ? parse(text, bytes, JSON_DECODE_INT_AS_REAL, where, root, &too_big, err) : status;
}

sluice_status json_print(const json_t *value, size_t flags, const char *where, char **text, sluice_error *err)
{
    mem_hook_json();
    *text = NULL;
    jmp_buf way_out;
    if (fault_hit(FAULT_ALLOC))
        return err_memory(err, 0, where);
    if (setjmp(way_out)) {
        mem_guard_json(NULL);
        return err_memory(err, 0, where);
    }
    mem_guard_json(&way_out);
    *text = json_dumps(value, flags);
    mem_guard_json(NULL);
    return *text ? SLUICE_OK : err_set(err, SLUICE_E_ARGUMENT, "%s cannot be written as JSON", where);
}

static sluice_status need(const json_t *parent, const char *key, const char *what, json_t **out,
                          const char *where, sluice_error *err)
{
    if (!json_is_object(parent))
        return err_set(err, SLUICE_E_FORMAT, "%s: \"%s\" is looked for in something that is not an object",
                       where, key);
    *out = json_object_get(parent, key);
    if (!*out)
        return err_set(err, SLUICE_E_FORMAT, "%s has no \"%s\" (%s)", where, key, what);
    return SLUICE_OK;
}

static sluice_status wrong(const char *key, const char *what, const char *where, sluice_error *err)
{
    return err_set(err, SLUICE_E_FORMAT, "%s: \"%s\" must be %s", where, key, what);
}

sluice_status json_need_u64(const json_t *parent, const char *key, uint64_t min, uint64_t max, uint64_t *out,
                            const char *where, sluice_error *err)
{
    json_t *value;
    TRY(need(parent, key, "an integer", &value, where, err));
    if (!json_is_integer(value))
        return wrong(key, "an integer", where, err);
    json_int_t n = json_integer_value(value);
    if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
        return err_set(err, SLUICE_E_FORMAT, "%s: \"%s\" is %lld, it must be from %llu to %llu", where, key,
                       (long long)n, (unsigned long long)min, (unsigned long long)max);
    *out = (uint64_t)n;
    return SLUICE_OK;
}

sluice_status json_need_u32(const json_t *parent, const char *key, uint32_t min, uint32_t max, uint32_t *out,
                            const char *where, sluice_error *err)
{
    uint64_t value;
    TRY(json_need_u64(parent, key, min, max, &value, where, err));
    *out = (uint32_t)value;
    return SLUICE_OK;
}

sluice_status json_need_number(const json_t *parent, const char *key, double *out, const char *where,
                               sluice_error *err)
{
    json_t *value;
    TRY(need(parent, key, "a number", &value, where, err));
    if (!json_is_number(value))
        return wrong(key, "a number", where, err);
    *out = json_number_value(value);
    return SLUICE_OK;
}

sluice_status json_need_string(const json_t *parent, const char *key, const char **out, const char *where,
                               sluice_error *err)
{
    json_t *value;
    TRY(need(parent, key, "a string", &value, where, err));
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return wrong(key, "a string without NUL characters", where, err);
    *out = json_string_value(value);
    return SLUICE_OK;
}

sluice_status json_need_bool(const json_t *parent, const char *key, bool *out, const char *where,
                             sluice_error *err)
{
    json_t *value;
    TRY(need(parent, key, "true or false", &value, where, err));
    if (!json_is_boolean(value))
        return wrong(key, "true or false", where, err);
    *out = json_is_true(value);
    return SLUICE_OK;
}

sluice_status json_need_object(const json_t *parent, const char *key, json_t **out, const char *where,
                               sluice_error *err)
{
    TRY(need(parent, key, "an object", out, where, err));
    return json_is_object(*out) ? SLUICE_OK : wrong(key, "an object", where, err);
}

sluice_status json_need_array(const json_t *parent, const char *key, json_t **out, const char *where,
                              sluice_error *err)
{
    TRY(need(parent, key, "an array", out, where, err));
    return json_is_array(*out) ? SLUICE_OK : wrong(key, "an array", where, err);
}

bool json_has(const json_t *parent, const char *key)
{
    const json_t *value = json_is_object(parent) ? json_object_get(parent, key) : NULL;
    return value && !json_is_null(value);
}
