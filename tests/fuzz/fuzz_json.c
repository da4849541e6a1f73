/* base/json on any bytes: parsing, then every getter on every member. A text that was accepted must survive
 * being written and read again. */
#include "base/json.h"
#include "base/mem.h"
#include "require.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t depth_of(const json_t *value)
{
    size_t most = 0, i;
    const char *key;
    json_t *child;
    if (json_is_array(value)) {
        json_array_foreach(value, i, child)
        {
            size_t depth = depth_of(child);
            most = depth > most ? depth : most;
        }
        return most + 1;
    }
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, child)
        {
            size_t depth = depth_of(child);
            most = depth > most ? depth : most;
        }
        return most + 1;
    }
    return 0;
}

/* Each getter either hands out the right type, or fails with a sentence. */
static void get(const json_t *object, const char *key)
{
    sluice_error err = {0};
    uint64_t u = 0;
    uint32_t v;
    double d;
    bool b;
    const char *text = NULL;
    json_t *child = NULL;
    sluice_status status = json_need_u64(object, key, 3, 1000, &u, "fuzz", &err);
    assert(status == SLUICE_OK ? u >= 3 && u <= 1000 : err.detail[0] != '\0');
    (void)json_need_u32(object, key, 0, UINT32_MAX, &v, "fuzz", &err);
    (void)json_need_number(object, key, &d, "fuzz", &err);
    (void)json_need_bool(object, key, &b, "fuzz", &err);
    if (json_need_string(object, key, &text, "fuzz", &err) == SLUICE_OK)
        assert(strlen(text) == json_string_length(json_object_get(object, key)));
    if (json_need_object(object, key, &child, "fuzz", &err) == SLUICE_OK)
        assert(json_is_object(child));
    if (json_need_array(object, key, &child, "fuzz", &err) == SLUICE_OK)
        assert(json_is_array(child));
    const json_t *value = json_object_get(object, key);
    assert(json_has(object, key) == (value && !json_is_null(value)));
    (void)value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root, *again;
    sluice_error err = {0};
    if (json_parse((const char *)data, size, "fuzz", &root, &err) != SLUICE_OK) {
        assert(!root && err.status == SLUICE_E_FORMAT && err.detail[0] != '\0');
        return 0;
    }
    assert(depth_of(root) <= JSON_DEPTH_MAX);
    if (json_is_object(root)) {
        const char *key;
        json_t *child;
        json_object_foreach(root, key, child) get(root, key);
        get(root, "absent");
    }
    char *text = json_dumps(root, JSON_ENCODE_ANY | JSON_COMPACT);
    assert(text);
    sluice_status status = json_parse(text, strlen(text), "fuzz", &again, &err);
    assert(status == SLUICE_OK && json_equal(root, again));
    (void)status;
    mem_free(text);
    json_decref(again);
    json_decref(root);
    return 0;
}
