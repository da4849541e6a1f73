/* Expert caches without experts: which requests of a routing trace each policy would have answered from
 * memory.
 *
 * A request is what the engine asks for at once: the distinct experts of one layer that a chunk of rows
 * needs, one row in a decode step. Slots of the request itself are never evicted by it. Sizes are in experts
 * per layer; the pooled policy has layers times as many slots in one set, the same bytes. */
#ifndef RUN_CACHESIM_H
#define RUN_CACHESIM_H

#include "run/routes.h"

struct cachesim_count {
    uint64_t requests, hits;               /* all */
    uint64_t decode_requests, decode_hits; /* of decode steps */
};

/* SLUICE_E_ARGUMENT: fewer slots than the largest request that the engine could not split, top_k. A request
 * of more experts than slots is served in tiles, as the engine does. */
sluice_status cachesim_run(const struct routes *routes, sluice_cache_policy policy, uint32_t slots,
                           struct cachesim_count *count, sluice_error *err);

#endif
