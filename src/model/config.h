/* What every family reads from config.json in the same way: element types, the quantization dictionary with
 * its per-module overrides, stop ids; and building the list of tensor specs. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "base/json.h"
#include "base/tensor.h"

/* How one module's weight is stored. */
struct storage {
    enum dtype dtype;
    uint8_t bits;        /* affine */
    uint16_t group_size; /* affine */
};

struct storage_map {
    const json_t *quantization; /* borrowed; NULL: nothing is quantized */
    struct storage standard;    /* for modules without an override */
    enum dtype plain;           /* of unquantized weights: config's "dtype", BF16 when absent */
    uint32_t overrides;
};

/* Read "quantization" (or "quantization_config") and "dtype". Modes other than affine, and bits or group
 * sizes that have no kernel, are refused by name. */
sluice_status storage_map_open(struct storage_map *map, const json_t *config, sluice_error *err);
/* The storage of module `path` ("language_model.model.layers.0.router.proj"). */
sluice_status storage_of(const struct storage_map *map, const char *path, struct storage *out,
                         sluice_error *err);

/* "eos_token_id": an integer, a list, or absent. */
sluice_status config_stop_ids(const json_t *config, int32_t *ids, uint32_t *n, uint32_t max,
                              sluice_error *err);

/* Fails, naming the key, unless the member is absent, null, or equal to what is supported. */
sluice_status config_only_u64(const json_t *config, const char *key, uint64_t supported, sluice_error *err);
sluice_status config_only_bool(const json_t *config, const char *key, bool supported, sluice_error *err);
sluice_status config_only_string(const json_t *config, const char *key, const char *supported,
                                 sluice_error *err);

/* ---- specs ---- */

struct spec_list {
    struct tensor_spec *v; /* mem_alloc */
    size_t n, cap;
};

/* Append a tensor; *index (may be NULL) gets its place. The name is printf-like. */
sluice_status specs_add(struct spec_list *list, const struct tensor_spec *shape, size_t *index,
                        sluice_error *err, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Append the weight of the module `path`, which may be quantized: `spec` has role, layer and shape. *storage
 * gets how config.json says that it is stored; its groups must fill the rows exactly. */
sluice_status specs_add_matrix(struct spec_list *list, const struct storage_map *map, struct tensor_spec spec,
                               const char *path, struct storage *storage, size_t *index, sluice_error *err);

/* A manifest "quant" entry (format b3). New reference; NULL when out of memory. */
json_t *storage_describe(const struct storage *storage);

#endif
