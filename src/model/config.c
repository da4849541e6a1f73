#include "model/config.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char WHERE[] = "config.json";

static sluice_status read_storage(const json_t *object, const char *what, struct storage *out,
                                  sluice_error *err)
{
    uint32_t bits, group;
    TRY(json_need_u32(object, "bits", 1, 32, &bits, what, err));
    TRY(json_need_u32(object, "group_size", 1, 1024, &group, what, err));
    if (bits != 2 && bits != 4 && bits != 8)
        return err_set(err, SLUICE_E_UNSUPPORTED, "%s: %u bits per weight; 2, 4 and 8 are supported", what,
                       bits);
    if (group != 32 && group != 64 && group != 128)
        return err_set(err, SLUICE_E_UNSUPPORTED, "%s: group size %u; 32, 64 and 128 are supported", what,
                       group);
    *out = (struct storage){DTYPE_AFFINE, (uint8_t)bits, (uint16_t)group};
    return SLUICE_OK;
}

static sluice_status read_dtype(const json_t *config, enum dtype *out, sluice_error *err)
{
    static const struct {
        const char *name;
        enum dtype dtype;
    } NAMES[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    *out = DTYPE_BF16;
    const char *key = json_has(config, "dtype") ? "dtype" : "torch_dtype", *name;
    if (!json_has(config, key))
        return SLUICE_OK;
    TRY(json_need_string(config, key, &name, WHERE, err));
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(name, NAMES[i].name) == 0) {
            *out = NAMES[i].dtype;
            return SLUICE_OK;
        }
    }
    return err_set(err, SLUICE_E_UNSUPPORTED, "%s: %s \"%s\"; bfloat16, float16 and float32 are supported",
                   WHERE, key, name);
}

sluice_status storage_map_open(struct storage_map *map, const json_t *config, sluice_error *err)
{
    *map = (struct storage_map){0};
    TRY(read_dtype(config, &map->plain, err));
    map->standard = (struct storage){.dtype = map->plain};
    const char *key = json_has(config, "quantization") ? "quantization" : "quantization_config";
    if (!json_has(config, key))
        return SLUICE_OK;
    json_t *quantization;
    TRY(json_need_object(config, key, &quantization, WHERE, err));
    TRY(config_only_string(quantization, "mode", "affine", err));
    TRY(read_storage(quantization, "config.json quantization", &map->standard, err));
    map->quantization = quantization;
    const char *name;
    json_t *value;
    json_object_foreach(quantization, name, value) map->overrides +=
        json_is_object(value) || json_is_boolean(value);
    return SLUICE_OK;
}

sluice_status storage_of(const struct storage_map *map, const char *path, struct storage *out,
                         sluice_error *err)
{
    *out = map->standard;
    const json_t *override = map->quantization ? json_object_get(map->quantization, path) : NULL;
    if (!override || json_is_true(override))
        return SLUICE_OK;
    if (json_is_false(override)) {
        *out = (struct storage){.dtype = map->plain};
        return SLUICE_OK;
    }
    return read_storage(override, path, out, err);
}

sluice_status config_stop_ids(const json_t *config, int32_t *ids, uint32_t *n, uint32_t max,
                              sluice_error *err)
{
    *n = 0;
    if (!json_has(config, "eos_token_id"))
        return SLUICE_OK;
    const json_t *value = json_object_get(config, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > max)
        return err_set(err, SLUICE_E_FORMAT, "%s: \"eos_token_id\" lists %zu ids, at most %u are accepted",
                       WHERE, count, max);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        json_int_t number = json_integer_value(id);
        if (!json_is_integer(id) || number < 0 || number > INT32_MAX)
            return err_set(err, SLUICE_E_FORMAT, "%s: \"eos_token_id\" must be a token id or a list of them",
                           WHERE);
        ids[(*n)++] = (int32_t)number;
    }
    return SLUICE_OK;
}

sluice_status config_only_u64(const json_t *config, const char *key, uint64_t supported, sluice_error *err)
{
    if (!json_has(config, key))
        return SLUICE_OK;
    uint64_t value;
    TRY(json_need_u64(config, key, 0, INT64_MAX, &value, WHERE, err));
    if (value == supported)
        return SLUICE_OK;
    return err_set(err, SLUICE_E_UNSUPPORTED, "%s: \"%s\" is %llu; only %llu is supported", WHERE, key,
                   (unsigned long long)value, (unsigned long long)supported);
}

sluice_status config_only_bool(const json_t *config, const char *key, bool supported, sluice_error *err)
{
    if (!json_has(config, key))
        return SLUICE_OK;
    bool value;
    TRY(json_need_bool(config, key, &value, WHERE, err));
    if (value == supported)
        return SLUICE_OK;
    return err_set(err, SLUICE_E_UNSUPPORTED, "%s: \"%s\" is %s; only %s is supported", WHERE, key,
                   value ? "true" : "false", supported ? "true" : "false");
}

sluice_status config_only_string(const json_t *config, const char *key, const char *supported,
                                 sluice_error *err)
{
    if (!json_has(config, key))
        return SLUICE_OK;
    const char *value;
    TRY(json_need_string(config, key, &value, WHERE, err));
    if (strcmp(value, supported) == 0)
        return SLUICE_OK;
    return err_set(err, SLUICE_E_UNSUPPORTED, "%s: \"%s\" is \"%s\"; only \"%s\" is supported", WHERE, key,
                   value, supported);
}

sluice_status specs_add(struct spec_list *list, const struct tensor_spec *shape, size_t *index,
                        sluice_error *err, const char *format, ...)
{
    void *items = list->v;
    if (!mem_grow(&items, &list->cap, list->n + 1, sizeof *list->v))
        return err_memory(err, (list->n + 1) * sizeof *list->v, "the tensor list");
    list->v = items;
    struct tensor_spec *spec = &list->v[list->n];
    *spec = *shape;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(spec->name, sizeof spec->name, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof spec->name)
        return err_set(err, SLUICE_E_UNSUPPORTED, "a tensor name is longer than %zu bytes: %s",
                       sizeof spec->name - 1, spec->name);
    if (index)
        *index = list->n;
    list->n++;
    return SLUICE_OK;
}

sluice_status specs_add_matrix(struct spec_list *list, const struct storage_map *map, struct tensor_spec spec,
                               const char *path, struct storage *storage, size_t *index, sluice_error *err)
{
    uint32_t cols = spec.shape[spec.n_dims - 1];
    TRY(storage_of(map, path, storage, err));
    if (spec.role != ROLE_RESIDENT && storage->dtype != DTYPE_AFFINE)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "%s is not quantized; routed experts must be 2, 4 or 8 bits to be streamed", path);
    if (storage->dtype == DTYPE_AFFINE && cols % storage->group_size != 0)
        return err_set(err, SLUICE_E_FORMAT, "%s has %u columns, not a multiple of its group size %u", path,
                       cols, storage->group_size);
    spec.dtype = storage->dtype;
    spec.bits = storage->bits;
    spec.group_size = storage->group_size;
    return specs_add(list, &spec, index, err, "%s.weight", path);
}

json_t *storage_describe(const struct storage *storage)
{
    if (storage->dtype == DTYPE_AFFINE)
        return json_pack("{s:i, s:s, s:s, s:s, s:i}", "weightBits", (int)storage->bits, "scheme", "affine",
                         "scaleType", "BF16", "biasType", "BF16", "groupSize", (int)storage->group_size);
    return json_pack("{s:i, s:s, s:s, s:s, s:i}", "weightBits", (int)(8 * dtype_bytes(storage->dtype)),
                     "scheme", "unquantized", "scaleType", "none", "biasType", "none", "groupSize", 0);
}
