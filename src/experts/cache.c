#include "experts/cache.h"

#include "base/check.h"
#include "base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { NO_SLOT = -1, WAIT_SLICE_NS = 100000000 };

/* LFU forgets: what a use counts is halved whenever every layer was asked so many times. Over 3,700 tokens of
 * the demo model that finds 0.1 to 1.5 % more of the experts in memory than counting for ever does, at every
 * size; 16 to 256 requests do about as well (sluice cache-sim). A use starts large enough to stay visible for
 * a while. */
enum { AGE_REQUESTS = 64, USE = 1 << 10 };

enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_RESIDENT, SLOT_FAILED };

struct slot {
    unsigned char *record;
    int32_t expert; /* -1 when empty */
    enum slot_state state;
    uint32_t pins;
    uint64_t last_use;
    struct read_request read;
};

struct expert_cache {
    struct gturbo *store;
    struct read_pool *reads;
    struct arena slab, tables;
    uint32_t slots; /* per layer */
    sluice_eviction eviction;
    pthread_mutex_t lock; /* everything below, except a slot's read results */
    pthread_cond_t released;
    struct slot *slot; /* [layers][slots] */
    int32_t *where;    /* [layers][experts]: slot of the group, or NO_SLOT */
    uint32_t *uses; /* [layers][experts], for LFU: counted for evicted experts too, so a popular one that was
                       pushed out is not the next victim when it comes back */
    uint64_t clock; /* a request is one tick */
};

static struct slot *slot_at(const struct expert_cache *cache, uint32_t layer, uint32_t i)
{
    return &cache->slot[(size_t)layer * cache->slots + i];
}

static size_t expert_index(const struct expert_cache *cache, uint32_t layer, uint32_t expert)
{
    return (size_t)layer * cache->store->n_experts + expert;
}

static size_t slab_bytes(const struct gturbo *store, uint32_t slots)
{
    size_t records, bytes;
    if (!size_mul(store->n_layers, slots, &records) ||
        !size_mul(records, (size_t)store->stride_bytes, &bytes))
        return SIZE_MAX;
    return bytes;
}

static size_t table_bytes(const struct gturbo *store, uint32_t slots)
{
    size_t n_slots = (size_t)store->n_layers * slots, n_experts = (size_t)store->n_layers * store->n_experts;
    return arena_cost(n_slots * sizeof(struct slot)) + arena_cost(n_experts * sizeof(int32_t)) +
           arena_cost(n_experts * sizeof(uint32_t));
}

uint64_t experts_bytes(const struct gturbo *store, uint32_t slots)
{
    size_t slab = slab_bytes(store, slots);
    return slab > SIZE_MAX / 2 ? UINT64_MAX : arena_charge(slab) + arena_charge(table_bytes(store, slots));
}

sluice_status experts_open(struct expert_cache **out, struct gturbo *store, struct read_pool *reads,
                           struct budget *budget, uint32_t slots, sluice_eviction eviction, sluice_error *err)
{
    *out = NULL;
    if (slots < 2 || slots > store->n_experts)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%u expert slots per layer were asked for; from 2 to %u are possible", slots,
                       store->n_experts);
    size_t n_slots = (size_t)store->n_layers * slots, n_experts = (size_t)store->n_layers * store->n_experts;
    struct expert_cache *cache = mem_calloc(1, sizeof *cache);
    if (!cache)
        return err_memory(err, sizeof *cache, "the expert cache");
    (void)pthread_mutex_init(&cache->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&cache->released, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    cache->store = store;
    cache->reads = reads;
    cache->slots = slots;
    cache->eviction = eviction;
    sluice_status status;
    TRY_OUT(arena_open(&cache->tables, budget, table_bytes(store, slots), "expert tables", err));
    TRY_OUT(arena_open(&cache->slab, budget, slab_bytes(store, slots), "expert slots", err));
    cache->slot = arena_take(&cache->tables, n_slots * sizeof *cache->slot);
    cache->where = arena_take(&cache->tables, n_experts * sizeof *cache->where);
    cache->uses = arena_take(&cache->tables, n_experts * sizeof *cache->uses);
    for (size_t i = 0; i < n_slots; i++) {
        cache->slot[i].record = arena_take(&cache->slab, (size_t)store->stride_bytes);
        cache->slot[i].expert = -1;
    }
    for (size_t i = 0; i < n_experts; i++)
        cache->where[i] = NO_SLOT;
    *out = cache;
    return SLUICE_OK;
out:
    experts_close(cache);
    return status;
}

void experts_close(struct expert_cache *cache)
{
    if (!cache)
        return;
    arena_close(&cache->slab);
    arena_close(&cache->tables);
    (void)pthread_cond_destroy(&cache->released);
    (void)pthread_mutex_destroy(&cache->lock);
    mem_free(cache);
}

uint32_t experts_slots(const struct expert_cache *cache)
{
    return cache->slots;
}

/* Take over the result of a finished read. The lock is held. */
static void settle(struct expert_cache *cache, uint32_t layer, struct slot *slot)
{
    if (slot->state != SLOT_READING || !reads_done(&slot->read))
        return;
    if (slot->read.errnum == 0 && slot->read.got == slot->read.bytes) {
        slot->state = SLOT_RESIDENT;
    } else {
        slot->state = SLOT_FAILED;
        cache->where[expert_index(cache, layer, (uint32_t)slot->expert)] = NO_SLOT;
    }
}

static bool evictable(struct expert_cache *cache, uint32_t layer, struct slot *slot)
{
    settle(cache, layer, slot);
    return slot->pins == 0 && slot->state != SLOT_READING;
}

/* True when a is the better victim. */
static bool colder(const struct expert_cache *cache, uint32_t layer, const struct slot *a,
                   const struct slot *b)
{
    bool a_free = a->state != SLOT_RESIDENT, b_free = b->state != SLOT_RESIDENT;
    if (a_free != b_free)
        return a_free;
    if (a_free)
        return false;
    if (cache->eviction == SLUICE_EVICT_LFU) {
        uint32_t a_uses = cache->uses[expert_index(cache, layer, (uint32_t)a->expert)];
        uint32_t b_uses = cache->uses[expert_index(cache, layer, (uint32_t)b->expert)];
        if (a_uses != b_uses)
            return a_uses < b_uses;
    }
    return a->last_use < b->last_use;
}

static struct slot *victim(struct expert_cache *cache, uint32_t layer)
{
    struct slot *best = NULL;
    for (uint32_t i = 0; i < cache->slots; i++) {
        struct slot *slot = slot_at(cache, layer, i);
        if (evictable(cache, layer, slot) && (!best || colder(cache, layer, slot, best)))
            best = slot;
    }
    return best;
}

/* Whether the whole request can be satisfied now: its misses need as many slots as can be evicted, beside
 * those that the request itself will pin. The lock is held. */
static bool satisfiable(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n)
{
    uint32_t misses = 0, available = 0;
    for (uint32_t i = 0; i < cache->slots; i++)
        available += evictable(cache, layer, slot_at(cache, layer, i));
    for (uint32_t i = 0; i < n; i++) {
        int32_t at = cache->where[expert_index(cache, layer, experts[i])];
        if (at == NO_SLOT)
            misses++;
        else if (evictable(cache, layer, slot_at(cache, layer, (uint32_t)at)))
            available--;
    }
    return misses <= available;
}

static void evict(struct expert_cache *cache, uint32_t layer, struct slot *slot)
{
    if (slot->state == SLOT_RESIDENT)
        cache->where[expert_index(cache, layer, (uint32_t)slot->expert)] = NO_SLOT;
    slot->expert = -1;
    slot->state = SLOT_EMPTY;
}

static void begin_read(struct expert_cache *cache, uint32_t layer, uint32_t expert, int fd, struct slot *slot)
{
    slot->expert = (int32_t)expert;
    slot->state = SLOT_READING;
    /* The slot's earlier read is done; before this one is submitted settle() must not take it for this one.
     */
    atomic_store(&slot->read.state, READ_IDLE);
    slot->read.fd = fd;
    slot->read.buffer = slot->record;
    slot->read.bytes = (size_t)cache->store->stride_bytes;
    slot->read.offset = expert * cache->store->stride_bytes;
    cache->where[expert_index(cache, layer, expert)] = (int32_t)(slot - slot_at(cache, layer, 0));
}

static sluice_status await_slots(struct expert_cache *cache, uint32_t layer, const uint16_t *experts,
                                 uint32_t n, const atomic_bool *cancel, sluice_error *err)
{
    while (!satisfiable(cache, layer, experts, n)) {
        if (cancel && atomic_load(cancel))
            return err_set(err, SLUICE_E_CANCELLED, "cancelled");
        uint64_t until = clock_ns() + WAIT_SLICE_NS;
        struct timespec deadline = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        (void)pthread_cond_timedwait(&cache->released, &cache->lock, &deadline);
    }
    return SLUICE_OK;
}

static void age(struct expert_cache *cache)
{
    size_t n = (size_t)cache->store->n_layers * cache->store->n_experts;
    for (size_t i = 0; i < n; i++)
        cache->uses[i] /= 2;
}

/* Pin what is there, then give the misses the coldest slots and submit their reads together. Residents are
 * pinned first so that no miss of this request evicts one of them. The lock is held. */
static void grant(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n, int fd,
                  struct lease *lease, struct lease_stats *stats)
{
    struct read_request *batch[LEASE_EXPERTS_MAX];
    size_t n_batch = 0;
    if (++cache->clock % ((uint64_t)AGE_REQUESTS * cache->store->n_layers) == 0)
        age(cache);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            size_t e = expert_index(cache, layer, experts[i]);
            struct slot *slot;
            if (pass == 0) {
                if (cache->uses[e] < UINT32_MAX - USE)
                    cache->uses[e] += USE;
                if (cache->where[e] == NO_SLOT)
                    continue;
                slot = slot_at(cache, layer, (uint32_t)cache->where[e]);
                lease->hits[i] = slot->state == SLOT_RESIDENT;
            } else {
                if (cache->where[e] != NO_SLOT)
                    continue;
                slot = victim(cache, layer);
                assert(slot); /* satisfiable() counted */
                evict(cache, layer, slot);
                begin_read(cache, layer, experts[i], fd, slot);
                batch[n_batch++] = &slot->read;
                lease->hits[i] = false;
            }
            slot->pins++;
            slot->last_use = cache->clock;
            lease->slots[i] = (uint32_t)(slot - slot_at(cache, layer, 0));
            stats->hits += lease->hits[i];
        }
    }
    stats->requests += n;
    stats->read_bytes += n_batch * cache->store->stride_bytes;
    reads_submit(cache->reads, batch, n_batch);
}

sluice_status experts_request(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n,
                              enum experts_mode mode, struct lease *lease, struct lease_stats *stats,
                              const atomic_bool *cancel, sluice_error *err)
{
    assert(n <= LEASE_EXPERTS_MAX && n <= cache->slots && !lease->held);
    int fd;
    TRY(gturbo_layer_fd(cache->store, layer, &fd, err));
    sluice_status status = SLUICE_OK;
    (void)pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < n; i++) {
        int32_t at = cache->where[expert_index(cache, layer, experts[i])];
        if (at != NO_SLOT)
            settle(cache, layer, slot_at(cache, layer, (uint32_t)at));
    }
    if (mode == EXPERTS_WAIT)
        status = await_slots(cache, layer, experts, n, cancel, err);
    if (status == SLUICE_OK && (mode == EXPERTS_WAIT || satisfiable(cache, layer, experts, n))) {
        grant(cache, layer, experts, n, fd, lease, stats);
        lease->layer = layer;
        lease->n = n;
        lease->held = true;
    }
    (void)pthread_mutex_unlock(&cache->lock);
    return status;
}

bool experts_resident(struct expert_cache *cache, uint32_t layer, uint32_t expert)
{
    (void)pthread_mutex_lock(&cache->lock);
    int32_t at = cache->where[expert_index(cache, layer, expert)];
    bool resident = at != NO_SLOT && slot_at(cache, layer, (uint32_t)at)->state == SLOT_RESIDENT;
    (void)pthread_mutex_unlock(&cache->lock);
    return resident;
}

bool experts_ready(struct expert_cache *cache, const struct lease *lease, uint32_t i)
{
    /* A pinned slot that was resident stays so; otherwise the read's own state tells. */
    return lease->hits[i] || reads_done(&slot_at(cache, lease->layer, lease->slots[i])->read);
}

sluice_status experts_wait(struct expert_cache *cache, const struct lease *lease, uint32_t i,
                           struct lease_stats *stats, const atomic_bool *cancel, sluice_error *err)
{
    if (lease->hits[i])
        return SLUICE_OK;
    struct slot *slot = slot_at(cache, lease->layer, lease->slots[i]);
    if (!reads_done(&slot->read)) {
        uint64_t from = clock_ns();
        bool done = reads_wait(cache->reads, &slot->read, cancel);
        stats->wait_ns += clock_ns() - from;
        if (!done)
            return err_set(err, SLUICE_E_CANCELLED, "cancelled");
    }
    (void)pthread_mutex_lock(&cache->lock);
    settle(cache, lease->layer, slot);
    bool failed = slot->state == SLOT_FAILED;
    int32_t expert = slot->expert;
    (void)pthread_mutex_unlock(&cache->lock);
    if (!failed)
        return SLUICE_OK;
    if (slot->read.errnum)
        return err_errno(err, slot->read.errnum, "reading expert %d of layer %u", expert, lease->layer);
    return err_set(
        err, SLUICE_E_FORMAT,
        "the expert file of layer %u ends early: expert %d has %zu of %zu bytes; run sluice verify",
        lease->layer, expert, slot->read.got, slot->read.bytes);
}

static struct mat part_mat(const struct expert_part parts[PART_KINDS], enum expert_part_kind weight,
                           const unsigned char *record)
{
    const struct expert_part *w = &parts[weight];
    return (struct mat){
        .dtype = DTYPE_AFFINE,
        .bits = w->bits,
        .group_size = w->group_size,
        .rows = w->rows,
        .cols = w->cols,
        .weight = record + w->offset,
        .scales = record + parts[weight + 1].offset,
        .biases = record + parts[weight + 2].offset,
    };
}

void experts_mats(const struct expert_cache *cache, const struct lease *lease, uint32_t i,
                  struct expert_mats *mats)
{
    const struct expert_part *parts = cache->store->layers[lease->layer].parts;
    const unsigned char *record = slot_at(cache, lease->layer, lease->slots[i])->record;
    mats->gate = part_mat(parts, PART_GATE, record);
    mats->up = part_mat(parts, PART_UP, record);
    mats->down = part_mat(parts, PART_DOWN, record);
}

void experts_release(struct expert_cache *cache, struct lease *lease)
{
    if (!lease->held)
        return;
    (void)pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < lease->n; i++) {
        struct slot *slot = slot_at(cache, lease->layer, lease->slots[i]);
        assert(slot->pins > 0);
        slot->pins--;
    }
    (void)pthread_cond_broadcast(&cache->released);
    (void)pthread_mutex_unlock(&cache->lock);
    lease->held = false;
}
