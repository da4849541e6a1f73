/* Keys and values of a session: one store per layer, linear to the context's end, or a ring for layers with a
 * sliding window.
 *
 * A ring has window + chunk rows, so that storing a chunk of rows before its attention never overwrites a row
 * that the chunk's first query still sees. One thread at a time. */
#ifndef MODEL_KV_H
#define MODEL_KV_H

#include "compute/backend.h"

/* kv_heads 0: the layer keeps no keys and values. */
struct kv_shape {
    uint32_t kv_heads, head_dim;
    uint32_t window; /* 0: all positions */
};

struct kv_cache {
    const struct kv_shape *shapes; /* borrowed */
    struct kv_view *views;
    uint32_t n_layers, context;
    uint32_t length; /* positions that count */
    uint32_t high;   /* highest position ever written, plus 1: what rings may have overwritten */
};

/* Bytes that kv_open takes from its arena. */
size_t kv_bytes(const struct kv_shape *shapes, uint32_t n_layers, uint32_t context, uint32_t chunk,
                sluice_kv_type type);
void kv_open(struct kv_cache *kv, const struct kv_shape *shapes, uint32_t n_layers, uint32_t context,
             uint32_t chunk, sluice_kv_type type, struct arena *arena);

/* Call before rows are stored at positions up to `end`, whether or not they will count. */
void kv_reach(struct kv_cache *kv, uint32_t end);

/* Whether the rows that a query at position `length` needs are all still there. */
bool kv_can_rewind(const struct kv_cache *kv, uint32_t length);
void kv_rewind(struct kv_cache *kv, uint32_t length);

/* Copy the state out and back. `out` has kv_snapshot_bytes(kv); a snapshot fits caches of the same shape. */
size_t kv_snapshot_bytes(const struct kv_cache *kv);
void kv_save(const struct kv_cache *kv, void *out);
void kv_restore(struct kv_cache *kv, const void *in);

#endif
