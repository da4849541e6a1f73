/* packed_experts/layout.json: where each expert of each layer lies, and the parts inside its record. The file
 * repeats the same nine part offsets for every expert (92,160 times in a 40-layer, 256-expert model), so it
 * is parsed one layer at a time and kept once per layer; a layer whose experts differ is refused. */
#ifndef STORE_LAYOUT_H
#define STORE_LAYOUT_H

#include "base/sha256.h"
#include "store/gturbo.h"

#define LAYOUT_BYTES_MAX (64u << 20)

struct layout {
    uint64_t stride_bytes;
    uint32_t n_layers, n_experts;
    struct expert_layer *layers; /* n_layers */
    char **files;                /* n_layers; a name inside packed_experts/, NULL for a dense layer */
};

/* The names of the parts in layout.json: "gate", "gate_scales", … */
extern const char *const LAYOUT_PART_NAMES[PART_KINDS];

/* *layout needs layout_free() whatever is returned. */
sluice_status layout_parse(const char *text, size_t bytes, struct layout *layout, sluice_error *err);
void layout_free(struct layout *layout);

/* Write the file for a layout and sync it; it is created or replaced in place. */
sluice_status layout_write(const char *path, const struct layout *layout, sluice_error *err);

#endif
