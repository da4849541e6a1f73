/* What an install holds, as JSON, from its headers: the part of `sluice inspect` that needs no family. */
#include "base/mem.h"
#include "base/utf8.h"
#include "store/gturbo_private.h"
#include "store/receipt.h"

#include <string.h>

static const char *const DTYPE_NAMES[DTYPE_COUNT] = {
    [DTYPE_AFFINE] = "affine", [DTYPE_BF16] = "BF16", [DTYPE_F16] = "F16",
    [DTYPE_F32] = "F32",       [DTYPE_I64] = "I64",   [DTYPE_I32] = "I32",
};

/* Set a new member; true on success. An allocation failure anywhere makes the whole description NULL. */
static bool put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

static bool put_u64(json_t *object, const char *key, uint64_t value)
{
    return put(object, key, json_integer((json_int_t)value));
}

static json_t *keep(json_t *value, bool ok)
{
    if (ok)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *describe_shape(const uint32_t *shape)
{
    json_t *array = json_array();
    bool ok = array != NULL;
    for (int i = 0; ok && i < TENSOR_DIMS_MAX && shape[i]; i++)
        ok = json_array_append_new(array, json_integer(shape[i])) == 0;
    return keep(array, ok);
}

static json_t *describe_tensor(const struct stored_tensor *t)
{
    json_t *object = json_object();
    uint32_t bits, group;
    bool ok = put(object, "name", json_string(t->name)) &&
              put(object, "type", json_string(DTYPE_NAMES[t->dtype])) &&
              put(object, "shape", describe_shape(t->shape)) && put_u64(object, "offset", t->offset) &&
              put_u64(object, "bytes", t->bytes + t->scale_bytes + t->bias_bytes);
    if (ok && t->dtype == DTYPE_AFFINE && resident_affine(t, &bits, &group))
        ok = put_u64(object, "bits", bits) && put_u64(object, "groupSize", group);
    return keep(object, ok);
}

static json_t *describe_tensors(const struct gturbo *store)
{
    json_t *array = json_array();
    bool ok = array != NULL;
    for (size_t i = 0; ok && i < store->n_tensors; i++)
        ok = json_array_append_new(array, describe_tensor(&store->tensors[i])) == 0;
    return keep(array, ok);
}

static json_t *describe_part(const struct expert_part *part)
{
    const uint32_t shape[TENSOR_DIMS_MAX] = {part->rows, part->cols};
    json_t *object = json_object();
    bool ok = put_u64(object, "offset", part->offset) && put_u64(object, "bytes", part->bytes) &&
              put(object, "shape", describe_shape(shape));
    if (ok && part->bits)
        ok = put_u64(object, "bits", part->bits) && put_u64(object, "groupSize", part->group_size);
    return keep(object, ok);
}

static json_t *describe_layer(const struct gturbo *store, uint32_t layer)
{
    const struct expert_layer *l = &store->layers[layer];
    json_t *object = json_object();
    bool ok = put_u64(object, "layer", layer);
    if (ok && l->present) {
        json_t *parts = json_object();
        for (int kind = 0; ok && kind < PART_KINDS; kind++)
            ok = put(parts, LAYOUT_PART_NAMES[kind], describe_part(&l->parts[kind]));
        ok &= put(object, "file", json_string(store->private->layer_files[layer].file->path));
        ok &= put(object, "parts", parts);
    }
    return keep(object, ok);
}

static json_t *describe_experts(const struct gturbo *store)
{
    json_t *object = json_object(), *layers = json_array();
    bool ok = layers != NULL;
    for (uint32_t i = 0; ok && i < store->n_layers; i++)
        ok = json_array_append_new(layers, describe_layer(store, i)) == 0;
    ok &= put_u64(object, "expertsPerLayer", store->n_experts);
    ok &= put_u64(object, "strideBytes", store->stride_bytes);
    ok &= put(object, "layers", layers);
    return keep(object, ok);
}

static json_t *describe_receipt(const struct gturbo *store)
{
    sluice_error why;
    json_t *object = json_object(), *receipt;
    sluice_status status = receipt_load(store->dir, &receipt, &why);
    if (status == SLUICE_OK)
        status = receipt_check(store->dir, &store->private->manifest, &why);
    bool ok = status != SLUICE_E_MEMORY && put(object, "present", json_boolean(receipt != NULL)) &&
              put(object, "fits", json_boolean(status == SLUICE_OK));
    if (ok && status != SLUICE_OK) {
        size_t n = utf8_valid_prefix(why.detail, strlen(why.detail)); /* a long path may have been cut */
        ok = put(object, "reason", json_stringn(why.detail, n));
    }
    static const char *const KEYS[] = {"verificationTimestamp", "toolVersion", "sourceRepoID",
                                       "sourceRevision"};
    for (size_t i = 0; ok && i < sizeof KEYS / sizeof *KEYS; i++)
        if (json_has(receipt, KEYS[i]))
            ok = json_object_set(object, KEYS[i], json_object_get(receipt, KEYS[i])) == 0;
    json_decref(receipt);
    return keep(object, ok);
}

json_t *gturbo_describe(const struct gturbo *store)
{
    mem_hook_json();
    const struct gturbo_private *p = store->private;
    json_t *root = json_object();
    static const char *const KEYS[] = {"versionMajor",       "versionMinor", "flags", "modelID",
                                       "sourceSnapshotHash", "arch",         "quant", "files",
                                       "flashHead"};
    bool ok = root != NULL;
    for (size_t i = 0; ok && i < sizeof KEYS / sizeof *KEYS; i++)
        if (json_has(p->manifest.root, KEYS[i]))
            ok = json_object_set(root, KEYS[i], json_object_get(p->manifest.root, KEYS[i])) == 0;
    ok = ok && put_u64(root, "numLayers", store->n_layers);
    ok = ok && put_u64(root, "residentBytes", store->resident_bytes);
    ok = ok && put(root, "tensors", describe_tensors(store));
    ok = ok && put(root, "experts", describe_experts(store));
    ok = ok && put(root, "receipt", describe_receipt(store));
    return keep(root, ok);
}
