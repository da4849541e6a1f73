/* The limits that a benchmark is compared with, measured in the same process: how fast memory and drive
 * deliver when nothing else is asked of them. And the bytes that a token cannot do without. */
#ifndef RUN_LIMITS_H
#define RUN_LIMITS_H

#include "run/engine.h"

/* Whole expert records at random places of random layers, through the engine's own reader with `depth` in
 * flight, for about `ns`. The store must be open; its page cache is bypassed where the engine bypasses it.
 * Takes depth records of memory meanwhile. */
sluice_status limits_drive(struct gturbo *store, struct reads *reads, uint32_t depth, uint64_t ns,
                           double *bytes_per_second, sluice_error *err);

/* A streaming read of `bytes` at `memory` by every lane, a share each, for about `ns`. */
double limits_memory(struct pool *pool, const unsigned char *memory, size_t bytes, uint64_t ns);

/* The same for `bytes` at each of n >= 1 records drawn at random, every lane one after another of its own:
 * what experts that a router chose can be read at. Out of many gigabytes that is less than a stream. */
double limits_records(struct pool *pool, const unsigned char *const *records, size_t n, size_t bytes,
                      uint64_t ns);

/* Bytes of the experts that one decoded token reads: top_k of every layer that has some. */
uint64_t limits_routed_bytes(const struct gturbo *store, const struct model *model);
/* These, and the residents (of an embedding that is no head, one row). */
uint64_t limits_weight_bytes(const struct gturbo *store, const struct model *model);
/* Bytes of keys and values that a token reads after `position` others. */
uint64_t limits_kv_bytes(const struct model *model, sluice_kv_type kv, uint32_t position);
/* Recurrent state that a token reads and writes again. */
uint64_t limits_state_bytes(const struct model *model);
/* Bytes of an expert without its padding, averaged over the layers. */
double limits_expert_bytes(const struct gturbo *store);

#endif
