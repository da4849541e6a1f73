/* The expert cache: a bounded set of slots that hold expert records read from disk.
 *
 * Slots are in groups; what layer L misses goes to group L (`slots` records per layer of one slab). A lease
 * is the right to use some experts of one layer:
 *   - request pins one slot per expert. Residents are usable at once; all misses are submitted in one batch,
 *     one aligned read per expert, and become usable as they land.
 *   - a pinned slot is never evicted; a slot that is being read is never evicted either; two reads never
 *     target one slot; a slot is visible to others as resident only after its read ended and was checked.
 *   - an expert that another session is already reading is joined, not read again.
 *   - release unpins. A lease may be released while its reads are in flight (a cancel): they land in the
 * cache.
 *   - a read goes to the copy of the layer's file (the install's, or a mirror's) that has the fewest bytes
 *     outstanding; one that a mirror fails is read again from the install.
 *   - guesses are read into spare slots, which belong to no layer, while the drive is idle. A request that
 * needs one takes it over; a guess never evicts anything.
 *   - before a layer is requested that needs nearly all of its experts, they may be read ahead: into slots
 * that hold nothing, and into those of layers that are done for now. A group may so hold experts of another
 *     layer; these are its first victims.
 *   - a request that holds nothing may wait for slots; one that holds a lease must not (EXPERTS_TRY), so two
 *     sessions cannot wait for each other.
 * Thread-safe. Nothing allocates after open. */
#ifndef EXPERTS_CACHE_H
#define EXPERTS_CACHE_H

#include "base/mem.h"
#include "compute/backend.h"
#include "io/reads.h"
#include "store/gturbo.h"

#include <stdatomic.h>

#define LEASE_EXPERTS_MAX 64
#define SPARES_MAX        64

struct expert_cache;

struct lease {
    uint32_t layer, n;
    bool held;
    uint32_t slots[LEASE_EXPERTS_MAX];
    bool hits[LEASE_EXPERTS_MAX]; /* resident when requested */
};

struct lease_stats {
    uint64_t requests, hits, read_bytes, wait_ns;
    uint64_t guesses, useful_guesses; /* read ahead, and of these needed by the request they were for */
    uint64_t wasted_bytes;            /* of the others; read_bytes counts them too */
};

enum experts_mode { EXPERTS_WAIT, EXPERTS_TRY };

/* What experts_open charges for so many slots per layer and spares; UINT64_MAX when it overflows. */
uint64_t experts_bytes(const struct gturbo *store, uint32_t slots, uint32_t spares);

/* `slots` per layer, from 2 to the number of experts, and `spares` for guesses, at most SPARES_MAX. Store and
 * reads are borrowed; the slab and tables are charged to `budget`. */
sluice_status experts_open(struct expert_cache **cache, struct gturbo *store, struct reads *reads,
                           struct budget *budget, uint32_t slots, uint32_t spares, sluice_eviction eviction,
                           sluice_error *err);
/* No lease may be held; the reads must be closed first, so that no read is in flight. NULL is fine. */
void experts_close(struct expert_cache *cache);

uint32_t experts_slots(const struct expert_cache *cache);
bool experts_resident(struct expert_cache *cache, uint32_t layer, uint32_t expert);
/* Where the records of resident experts lie, at most `most` of them; returns how many. They can be read until
 * experts are requested again. */
size_t experts_records(struct expert_cache *cache, const unsigned char **records, size_t most);
/* Write the n experts of `from` to `to`: those that are resident, those that are being read, the others; each
 * part in the order of `from`. Returns how many the others are. */
uint32_t experts_sort(struct expert_cache *cache, uint32_t layer, const uint16_t *from, uint32_t n,
                      uint16_t *to);

/* Lease n distinct experts (at most the slots per layer, and LEASE_EXPERTS_MAX). EXPERTS_TRY with too few
 * free slots: SLUICE_OK with lease->held false. `stats` is added to. SLUICE_E_CORRUPT: the layer's file does
 * not match its digest. */
sluice_status experts_request(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n,
                              enum experts_mode mode, struct lease *lease, struct lease_stats *stats,
                              const atomic_bool *cancel, sluice_error *err);
/* True when item i can be used without waiting. */
bool experts_ready(struct expert_cache *cache, const struct lease *lease, uint32_t i);
/* Wait for item i. SLUICE_E_IO / SLUICE_E_FORMAT: its read failed; SLUICE_E_CANCELLED. */
sluice_status experts_wait(struct expert_cache *cache, const struct lease *lease, uint32_t i,
                           struct lease_stats *stats, const atomic_bool *cancel, sluice_error *err);
/* The matrices of item i, which must be ready; valid until the lease is released. */
void experts_mats(const struct expert_cache *cache, const struct lease *lease, uint32_t i,
                  struct expert_mats *mats);
/* The layer may soon need these: read those that are not here into spare slots. False when the drive is busy:
 * nothing was done, ask again later. Never waits and never fails: a guess that cannot be read is forgotten.
 */
bool experts_guess(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n,
                   struct lease_stats *stats);
/* A chunk of many rows will need nearly every expert of the layer, once the layer before it is computed: read
 * those that are not here into slots that hold nothing, and into those of layers whose turn is far away.
 * Evicts nothing of this layer, the one before and those that follow, never waits for a slot, and never
 * fails: the request that follows meets the error. It may hash the layer's file, as a first request does. */
void experts_fill(struct expert_cache *cache, uint32_t layer, struct lease_stats *stats);
/* A lease that is not held is fine. */
void experts_release(struct expert_cache *cache, struct lease *lease);

#endif
