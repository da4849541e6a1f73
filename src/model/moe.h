/* Routed experts for any family: from the router's choices to the weighted sum.
 *
 *     moe_begin(…)    submits the first reads
 *     …the shared or dense branch computes meanwhile…
 *     moe_finish(…)   experts that are resident, then the missing ones as they land
 *
 * Each needed expert is fetched once per chunk, in tiles of an eighth of the slots where it needs more
 * than they hold; the next tiles' reads are under way while a tile computes, or while the shared branch does.
 * Behind them go those of the next layer, if this one needed most of its experts. Every expert's output is
 * kept apart and summed in router order, so neither hits, landing order nor tiling can change a bit. */
#ifndef MODEL_MOE_H
#define MODEL_MOE_H

#include "experts/cache.h"

struct forward;

#define MOE_GUESSES_MAX 32
#define MOE_LEASES      8 /* tiles under way */

struct moe {
    uint32_t rows, hidden, n_experts, top_k; /* rows: most in a chunk */
    uint16_t *ids;                           /* [rows][top_k], best first */
    float *weights;                          /* [rows][top_k] */
    float *outputs;                          /* [rows][top_k][hidden] */
    uint32_t *counts;                        /* [n_experts + 1]: prefix sums of rows per expert */
    uint32_t *row_of;                        /* [rows * top_k]: source row, grouped by expert */
    uint32_t *output_of;                     /* [rows * top_k]: row of `outputs` */
    uint16_t *wanted;                        /* [n_experts]: experts of this chunk, ascending */
    uint16_t *needed;                        /* [n_experts]: the same, residents first */
    uint32_t n_needed, n_missing;            /* of them, not here and not coming when they were sorted */
    uint32_t next;                           /* the next one to request */
    bool filled;                             /* the next layer is being read ahead */
    struct expert_call *calls;               /* [LEASE_EXPERTS_MAX] */
    struct lease leases[MOE_LEASES];         /* a ring: the oldest is computed next */
    uint32_t oldest, n_held;
    uint16_t guesses[MOE_GUESSES_MAX]; /* what the next layer may need; read once the drive is idle */
    uint32_t n_guesses;
};

/* Most routes that are computed together, for chunks of at most `rows`: the backend's limits.routes. */
uint32_t moe_routes(uint32_t rows, uint32_t top_k);
size_t moe_bytes(uint32_t rows, uint32_t hidden, uint32_t n_experts, uint32_t top_k);
void moe_open(struct moe *moe, uint32_t rows, uint32_t hidden, uint32_t n_experts, uint32_t top_k,
              struct arena *arena);

/* moe->ids and moe->weights hold f->n_rows rows. */
sluice_status moe_begin(struct moe *moe, struct forward *f, uint32_t layer, sluice_error *err);
/* out [n_rows][hidden] = sum over each row's experts of weight * expert(x). Releases what moe_begin took, on
 * failure too. */
sluice_status moe_finish(struct moe *moe, struct forward *f, uint32_t layer, enum activation act,
                         const float *x, float *out, sluice_error *err);
/* Release without finishing: when something between begin and finish failed. */
void moe_abandon(struct moe *moe, struct forward *f);

#endif
