#include "experts/cache.h"

#include "base/check.h"
#include "base/clock.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* How often a request that lacks slots looks again: a read that nobody waits for has landed only when
 * somebody has looked. */
enum { NO_SLOT = -1, WAIT_SLICE_NS = 2000000 };

/* LFU forgets: what a use counts is halved whenever every layer was asked so many times. Over 3,700 tokens of
 * the demo model that finds 0.1 to 1.5 % more of the experts in memory than counting for ever does, at every
 * size; 16 to 256 requests do about as well (sluice cache-sim). A use starts large enough to stay visible for
 * a while. */
enum { AGE_REQUESTS = 64, USE = 1 << 10 };

enum slot_state { SLOT_EMPTY, SLOT_READING, SLOT_RESIDENT, SLOT_FAILED };

/* The memory of one record and the read that fills it. A frame changes hands when a guess is taken over: the
 * slot gets the spare's frame and the spare the slot's. */
struct frame {
    unsigned char *record;
    struct read_request read;
    uint32_t copy;        /* which copy of the file the read goes to */
    bool direct;          /* that file's mode */
    struct frame *flying; /* list of reads that count as outstanding */
    bool counted;         /* in that list */
};

struct slot {
    struct frame *frame;
    uint32_t group; /* the layer that may evict what it holds */
    uint32_t layer; /* whose expert that is: the group's, but for what was read ahead */
    int32_t expert; /* -1 when empty */
    enum slot_state state;
    uint32_t pins;
    uint64_t last_use;
};

struct spare {
    struct frame *frame;
    enum slot_state state; /* EMPTY, READING or RESIDENT */
    uint32_t layer, expert;
    bool wanted;    /* its layer has not been requested since */
    uint64_t since; /* clock when it was guessed */
};

struct expert_cache {
    struct gturbo *store;
    struct reads *reads;
    struct arena slab, tables;
    uint32_t slots; /* per layer */
    uint32_t spares;
    sluice_eviction eviction;
    pthread_mutex_t lock; /* everything below, except a read's results */
    pthread_cond_t released;
    struct slot *slot; /* [layers][slots] */
    struct spare *spare;
    struct frame *frame; /* [layers * slots + spares] */
    int32_t *where;      /* [layers][experts]: slot, or NO_SLOT */
    uint32_t *uses; /* [layers][experts], for LFU: counted for evicted experts too, so a popular one that was
                       pushed out is not the next victim when it comes back */
    struct layer_sources *sources; /* [layers]: as of the layer's last request; n 0: none yet */
    uint32_t *file;                /* [layers][GTURBO_COPIES_MAX]: of reads_add_file, 0: not added */
    uint64_t outstanding[GTURBO_COPIES_MAX]; /* bytes */
    struct frame *flying;
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

/* Where the expert is or comes; NULL when it is not here. */
static struct slot *slot_with(const struct expert_cache *cache, uint32_t layer, uint32_t expert)
{
    const int32_t at = cache->where[expert_index(cache, layer, expert)];
    return at == NO_SLOT ? NULL : &cache->slot[at];
}

static size_t slab_bytes(const struct gturbo *store, uint32_t slots, uint32_t spares)
{
    size_t records, bytes;
    if (!size_mul(store->n_layers, slots, &records) || !size_add(records, spares, &records) ||
        !size_mul(records, (size_t)store->stride_bytes, &bytes))
        return SIZE_MAX;
    return bytes;
}

/* Lays a cache's tables out in its arena, or only adds up their cost when there is none. */
static size_t lay_out(struct expert_cache *cache, const struct gturbo *store, uint32_t slots, uint32_t spares)
{
    size_t layers = store->n_layers, n_slots = layers * slots, n_experts = layers * store->n_experts;
    const struct {
        size_t member, bytes;
    } PARTS[] = {
        {offsetof(struct expert_cache, slot), n_slots * sizeof(struct slot)},
        {offsetof(struct expert_cache, spare), spares * sizeof(struct spare)},
        {offsetof(struct expert_cache, frame), (n_slots + spares) * sizeof(struct frame)},
        {offsetof(struct expert_cache, where), n_experts * sizeof(int32_t)},
        {offsetof(struct expert_cache, uses), n_experts * sizeof(uint32_t)},
        {offsetof(struct expert_cache, sources), layers * sizeof(struct layer_sources)},
        {offsetof(struct expert_cache, file), layers * GTURBO_COPIES_MAX * sizeof(uint32_t)},
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        total += arena_cost(PARTS[i].bytes);
        if (cache) {
            void *memory = arena_take(&cache->tables, PARTS[i].bytes);
            memcpy((char *)cache + PARTS[i].member, &memory, sizeof memory);
        }
    }
    return total;
}

uint64_t experts_bytes(const struct gturbo *store, uint32_t slots, uint32_t spares)
{
    size_t slab = slab_bytes(store, slots, spares);
    return slab > SIZE_MAX / 2 ? UINT64_MAX
                               : arena_charge(slab) + arena_charge(lay_out(NULL, store, slots, spares));
}

static void fill_tables(struct expert_cache *cache)
{
    size_t n_slots = (size_t)cache->store->n_layers * cache->slots;
    size_t stride = (size_t)cache->store->stride_bytes;
    for (size_t i = 0; i < n_slots + cache->spares; i++) {
        cache->frame[i].record = arena_take(&cache->slab, stride);
        cache->frame[i].read = (struct read_request){
            .buffer = cache->frame[i].record, .bytes = stride, .buffer_id = (uint32_t)i + 1};
    }
    for (size_t i = 0; i < n_slots; i++)
        cache->slot[i] =
            (struct slot){.frame = &cache->frame[i], .group = (uint32_t)(i / cache->slots), .expert = -1};
    for (uint32_t i = 0; i < cache->spares; i++)
        cache->spare[i].frame = &cache->frame[n_slots + i];
    for (size_t i = 0; i < (size_t)cache->store->n_layers * cache->store->n_experts; i++)
        cache->where[i] = NO_SLOT;
}

sluice_status experts_open(struct expert_cache **out, struct gturbo *store, struct reads *reads,
                           struct budget *budget, uint32_t slots, uint32_t spares, sluice_eviction eviction,
                           sluice_error *err)
{
    *out = NULL;
    if (slots < 2 || slots > store->n_experts)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%u expert slots per layer were asked for; from 2 to %u are possible", slots,
                       store->n_experts);
    if (spares > SPARES_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u spare expert slots were asked for, the most is %d", spares,
                       SPARES_MAX);
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
    cache->spares = spares;
    cache->eviction = eviction;
    sluice_status status;
    TRY_OUT(arena_open(&cache->tables, budget, lay_out(NULL, store, slots, spares), "expert tables", err));
    TRY_OUT(arena_open(&cache->slab, budget, slab_bytes(store, slots, spares), "expert slots", err));
    (void)lay_out(cache, store, slots, spares);
    fill_tables(cache);
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

size_t experts_records(struct expert_cache *cache, const unsigned char **records, size_t most)
{
    const size_t slots = (size_t)cache->store->n_layers * cache->slots;
    size_t n = 0;
    (void)pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < slots && n < most; i++)
        if (cache->slot[i].state == SLOT_RESIDENT)
            records[n++] = cache->slot[i].frame->record;
    (void)pthread_mutex_unlock(&cache->lock);
    return n;
}

/* ---- reads; the lock is held ---- */

static bool whole(const struct read_request *read)
{
    return read->errnum == 0 && read->got == read->bytes;
}

/* Forget reads that have landed. They are looked at only when a copy must be chosen. */
static void count_outstanding(struct expert_cache *cache)
{
    for (struct frame **link = &cache->flying; *link;) {
        struct frame *frame = *link;
        if (!reads_done(&frame->read)) {
            link = &frame->flying;
            continue;
        }
        *link = frame->flying;
        frame->counted = false;
        cache->outstanding[frame->copy] -= frame->read.bytes;
    }
}

static void uncount(struct expert_cache *cache, struct frame *frame)
{
    for (struct frame **link = &cache->flying; frame->counted; link = &(*link)->flying) {
        if (*link != frame)
            continue;
        *link = frame->flying;
        frame->counted = false;
        cache->outstanding[frame->copy] -= frame->read.bytes;
        return;
    }
}

/* Point a frame's read at the copy with the fewest outstanding bytes. It may be submitted then. */
static void aim(struct expert_cache *cache, uint32_t layer, uint32_t expert, struct frame *frame)
{
    const struct layer_sources *sources = &cache->sources[layer];
    const struct layer_source *best = &sources->at[0];
    uncount(cache, frame);
    for (uint32_t i = 1; i < sources->n; i++)
        if (cache->outstanding[sources->at[i].copy] < cache->outstanding[best->copy])
            best = &sources->at[i];
    uint32_t *file = &cache->file[layer * GTURBO_COPIES_MAX + best->copy];
    if (*file == 0)
        *file = reads_add_file(cache->reads, best->fd);
    frame->copy = best->copy;
    frame->direct = best->direct;
    /* The frame's earlier read is done; before this one is submitted settle() must not take it for this one.
     */
    atomic_store(&frame->read.state, READ_IDLE);
    frame->read.fd = best->fd;
    frame->read.file = *file;
    frame->read.offset = expert * cache->store->stride_bytes;
    if (sources->n > 1) {
        frame->counted = true;
        frame->flying = cache->flying;
        cache->flying = frame;
        cache->outstanding[frame->copy] += frame->read.bytes;
    }
}

/* Where the layer can be read now. May hash its file, so not under the lock; every caller stores the same
 * sources, or a later caller more of them. */
static sluice_status find_sources(struct expert_cache *cache, uint32_t layer, sluice_error *err)
{
    struct layer_sources sources;
    TRY(gturbo_layer_sources(cache->store, layer, &sources, err));
    (void)pthread_mutex_lock(&cache->lock);
    cache->sources[layer] = sources;
    return SLUICE_OK;
}

/* A mirror failed: from here on everything is read without it, this record at once. */
static void read_original(struct expert_cache *cache, uint32_t layer, uint32_t expert, struct frame *frame)
{
    char why[160];
    int errnum = frame->read.errnum;
    (void)snprintf(why, sizeof why, "reading expert %u of layer %u: %s", expert, layer,
                   !errnum                   ? "its file ends early"
                   : strerrordesc_np(errnum) ? strerrordesc_np(errnum)
                                             : "unknown error");
    gturbo_drop_mirror(cache->store, frame->copy, why);
    for (uint32_t l = 0; l < cache->store->n_layers; l++) {
        struct layer_sources *sources = &cache->sources[l];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < sources->n; i++)
            if (sources->at[i].copy != frame->copy)
                sources->at[kept++] = sources->at[i];
        sources->n = kept;
    }
    struct read_request *again = &frame->read;
    aim(cache, layer, expert, frame);
    reads_submit(cache->reads, &again, 1);
}

/* Take over the result of a finished read. */
static void settle(struct expert_cache *cache, struct slot *slot)
{
    struct read_request *read = &slot->frame->read;
    if (slot->state != SLOT_READING || !reads_done(read))
        return;
    if (whole(read)) {
        slot->state = SLOT_RESIDENT;
        /* The slot is the cache; a second copy of the record would be charged to the budget as well. */
        if (!slot->frame->direct)
            (void)posix_fadvise(read->fd, (off_t)read->offset, (off_t)read->bytes, POSIX_FADV_DONTNEED);
    } else if (slot->frame->copy != 0) {
        read_original(cache, slot->layer, (uint32_t)slot->expert, slot->frame);
    } else {
        slot->state = SLOT_FAILED;
        cache->where[expert_index(cache, slot->layer, (uint32_t)slot->expert)] = NO_SLOT;
    }
}

/* ---- victims; the lock is held ---- */

static bool evictable(struct expert_cache *cache, struct slot *slot)
{
    settle(cache, slot);
    return slot->pins == 0 && slot->state != SLOT_READING;
}

/* True when a is the better victim for its group's layer: what was read ahead for another has had its use. */
static bool colder(const struct expert_cache *cache, const struct slot *a, const struct slot *b)
{
    bool a_free = a->state != SLOT_RESIDENT, b_free = b->state != SLOT_RESIDENT;
    if (a_free != b_free)
        return a_free;
    if (a_free)
        return false;
    bool a_strange = a->layer != a->group, b_strange = b->layer != b->group;
    if (a_strange != b_strange)
        return a_strange;
    if (cache->eviction == SLUICE_EVICT_LFU) {
        uint32_t a_uses = cache->uses[expert_index(cache, a->layer, (uint32_t)a->expert)];
        uint32_t b_uses = cache->uses[expert_index(cache, b->layer, (uint32_t)b->expert)];
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
        if (evictable(cache, slot) && (!best || colder(cache, slot, best)))
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
        available += evictable(cache, slot_at(cache, layer, i));
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slot_with(cache, layer, experts[i]);
        if (!slot)
            misses++;
        else if (slot->group == layer && evictable(cache, slot))
            available--;
    }
    return misses <= available;
}

static void evict(struct expert_cache *cache, struct slot *slot)
{
    if (slot->state == SLOT_RESIDENT)
        cache->where[expert_index(cache, slot->layer, (uint32_t)slot->expert)] = NO_SLOT;
    slot->expert = -1;
    slot->state = SLOT_EMPTY;
}

/* ---- guesses; the lock is held ---- */

static void settle_spare(struct spare *spare)
{
    if (spare->state == SLOT_READING && reads_done(&spare->frame->read))
        spare->state = whole(&spare->frame->read) ? SLOT_RESIDENT : SLOT_EMPTY;
}

static struct spare *find_spare(struct expert_cache *cache, uint32_t layer, uint32_t expert)
{
    for (uint32_t i = 0; i < cache->spares; i++) {
        struct spare *spare = &cache->spare[i];
        settle_spare(spare);
        if (spare->state != SLOT_EMPTY && spare->layer == layer && spare->expert == expert)
            return spare;
    }
    return NULL;
}

/* One that may be filled: empty, or of a layer that has had its request, or guessed long ago and landed. */
static struct spare *free_spare(struct expert_cache *cache)
{
    struct spare *best = NULL;
    for (uint32_t i = 0; i < cache->spares; i++) {
        struct spare *spare = &cache->spare[i];
        settle_spare(spare);
        if (spare->state == SLOT_READING)
            continue;
        if (spare->state == SLOT_EMPTY)
            return spare;
        bool better = !best || (spare->wanted != best->wanted ? !spare->wanted : spare->since < best->since);
        if (better)
            best = spare;
    }
    /* A guess of the last few requests may still be wanted by its session. */
    return best && best->wanted && cache->clock - best->since < 2 * (uint64_t)cache->store->n_layers ? NULL
                                                                                                     : best;
}

static void waste(struct expert_cache *cache, struct spare *spare, struct lease_stats *stats)
{
    if (spare->state != SLOT_EMPTY && spare->wanted) {
        spare->wanted = false;
        stats->wasted_bytes += cache->store->stride_bytes;
    }
}

bool experts_guess(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n,
                   struct lease_stats *stats)
{
    struct read_request *batch[SPARES_MAX];
    size_t n_batch = 0;
    if (reads_busy(cache->reads) > 0)
        return false;
    (void)pthread_mutex_lock(&cache->lock);
    /* A layer that was never requested has no proven file yet, and proving takes time. */
    for (uint32_t i = 0; i < n && cache->sources[layer].n > 0; i++) {
        struct spare *spare;
        if (slot_with(cache, layer, experts[i]) || find_spare(cache, layer, experts[i]))
            continue;
        if (!(spare = free_spare(cache)))
            break;
        waste(cache, spare, stats);
        spare->layer = layer;
        spare->expert = experts[i];
        spare->state = SLOT_READING;
        spare->wanted = true;
        spare->since = cache->clock;
        aim(cache, layer, experts[i], spare->frame);
        batch[n_batch++] = &spare->frame->read;
    }
    stats->guesses += n_batch;
    stats->read_bytes += n_batch * cache->store->stride_bytes;
    reads_submit(cache->reads, batch, n_batch);
    (void)pthread_mutex_unlock(&cache->lock);
    return true;
}

/* Give the slot what was guessed: frames change hands, so nothing is copied and a read in flight goes on. */
static void take_over(struct slot *slot, struct spare *spare, struct lease_stats *stats)
{
    struct frame *frame = slot->frame;
    slot->frame = spare->frame;
    slot->state = spare->state;
    spare->frame = frame;
    spare->state = SLOT_EMPTY;
    stats->useful_guesses += spare->wanted;
}

/* ---- requests ---- */

/* The slot is evicted. True when a read must be submitted. */
static bool fill_slot(struct expert_cache *cache, uint32_t layer, uint32_t expert, struct slot *slot,
                      struct lease_stats *stats)
{
    slot->layer = layer;
    slot->expert = (int32_t)expert;
    cache->where[expert_index(cache, layer, expert)] = (int32_t)(slot - cache->slot);
    struct spare *spare = find_spare(cache, layer, expert);
    if (spare) {
        take_over(slot, spare, stats);
        return false;
    }
    slot->state = SLOT_READING;
    aim(cache, layer, expert, slot->frame);
    return true;
}

static sluice_status await_slots(struct expert_cache *cache, uint32_t layer, const uint16_t *experts,
                                 uint32_t n, const atomic_bool *cancel, sluice_error *err)
{
    for (reads_look(cache->reads); !satisfiable(cache, layer, experts, n); reads_look(cache->reads)) {
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
static void grant(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n,
                  struct lease *lease, struct lease_stats *stats)
{
    struct read_request *batch[LEASE_EXPERTS_MAX];
    size_t n_batch = 0;
    if (++cache->clock % ((uint64_t)AGE_REQUESTS * cache->store->n_layers) == 0)
        age(cache);
    count_outstanding(cache);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            size_t e = expert_index(cache, layer, experts[i]);
            struct slot *slot;
            if (pass == 0) {
                if (cache->uses[e] < UINT32_MAX - USE)
                    cache->uses[e] += USE;
                if (cache->where[e] == NO_SLOT)
                    continue;
                slot = &cache->slot[cache->where[e]];
            } else {
                if (cache->where[e] != NO_SLOT)
                    continue;
                slot = victim(cache, layer);
                assert(slot); /* satisfiable() counted */
                evict(cache, slot);
                if (fill_slot(cache, layer, experts[i], slot, stats))
                    batch[n_batch++] = &slot->frame->read;
            }
            slot->pins++;
            slot->last_use = cache->clock;
            lease->slots[i] = (uint32_t)(slot - cache->slot);
            lease->hits[i] = slot->state == SLOT_RESIDENT;
            stats->hits += lease->hits[i];
        }
    }
    for (uint32_t i = 0; i < cache->spares; i++)
        if (cache->spare[i].layer == layer)
            waste(cache, &cache->spare[i], stats); /* guessed for this request, and not what it needs */
    stats->requests += n;
    stats->read_bytes += n_batch * cache->store->stride_bytes;
    reads_submit(cache->reads, batch, n_batch);
}

sluice_status experts_request(struct expert_cache *cache, uint32_t layer, const uint16_t *experts, uint32_t n,
                              enum experts_mode mode, struct lease *lease, struct lease_stats *stats,
                              const atomic_bool *cancel, sluice_error *err)
{
    assert(n <= LEASE_EXPERTS_MAX && n <= cache->slots && !lease->held);
    reads_look(cache->reads);             /* nobody waits for what was read ahead: what has landed is a hit */
    TRY(find_sources(cache, layer, err)); /* takes the lock */
    sluice_status status = SLUICE_OK;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = slot_with(cache, layer, experts[i]);
        if (slot)
            settle(cache, slot);
    }
    if (mode == EXPERTS_WAIT)
        status = await_slots(cache, layer, experts, n, cancel, err);
    if (status == SLUICE_OK && (mode == EXPERTS_WAIT || satisfiable(cache, layer, experts, n))) {
        grant(cache, layer, experts, n, lease, stats);
        lease->layer = layer;
        lease->n = n;
        lease->held = true;
    }
    (void)pthread_mutex_unlock(&cache->lock);
    return status;
}

/* ---- reading a layer ahead; the lock is held ---- */

/* Slots for the experts of a layer whose request comes next, the best first: what was read ahead for a layer
 * that is done; slots that hold nothing, the group's own first; residents of layers that are done, the one
 * whose turn comes last first. The layers that are half a turn or more away are done. The one before is not:
 * it is being computed. */
enum donor_kind { DONOR_STRANGE, DONOR_EMPTY, DONOR_DONE, DONOR_KINDS };

struct donors {
    uint32_t layer;
    enum donor_kind kind;
    uint32_t at; /* of layers * slots, group after group, backwards from `layer` */
};

static bool done_with(const struct expert_cache *cache, uint32_t layer, uint32_t next)
{
    const uint32_t n = cache->store->n_layers, away = (layer + n - next) % n;
    return away >= n / 2 && away + 1 < n;
}

static bool donates(struct expert_cache *cache, struct slot *slot, const struct donors *d)
{
    if (!evictable(cache, slot))
        return false;
    if (slot->state != SLOT_RESIDENT)
        return d->kind == DONOR_EMPTY;
    return d->kind == (slot->layer == slot->group ? DONOR_DONE : DONOR_STRANGE) &&
           done_with(cache, slot->layer, d->layer);
}

static struct slot *next_donor(struct expert_cache *cache, struct donors *d)
{
    const uint32_t layers = cache->store->n_layers, all = layers * cache->slots;
    for (; d->kind < DONOR_KINDS; d->kind++, d->at = 0)
        while (d->at < all) {
            const uint32_t group = (d->layer + layers - d->at / cache->slots) % layers;
            struct slot *slot = slot_at(cache, group, d->at++ % cache->slots);
            if (donates(cache, slot, d))
                return slot;
        }
    return NULL;
}

void experts_fill(struct expert_cache *cache, uint32_t layer, struct lease_stats *stats)
{
    struct read_request *batch[LEASE_EXPERTS_MAX];
    size_t n_batch = 0;
    struct donors donors = {.layer = layer};
    sluice_error ignored; /* the request that follows meets it again */
    reads_look(cache->reads);
    if (find_sources(cache, layer, &ignored) != SLUICE_OK)
        return;
    for (uint32_t expert = 0; expert < cache->store->n_experts; expert++) {
        if (slot_with(cache, layer, expert))
            continue;
        struct slot *slot = next_donor(cache, &donors);
        if (!slot)
            break;
        evict(cache, slot);
        slot->last_use = cache->clock;
        if (!fill_slot(cache, layer, expert, slot, stats))
            continue;
        batch[n_batch++] = &slot->frame->read;
        stats->read_bytes += cache->store->stride_bytes;
        if (n_batch == LEASE_EXPERTS_MAX) {
            reads_submit(cache->reads, batch, n_batch);
            n_batch = 0;
        }
    }
    reads_submit(cache->reads, batch, n_batch);
    (void)pthread_mutex_unlock(&cache->lock);
}

/* Resident, once its read's result has been taken over. The lock is held. */
static bool is_resident(struct expert_cache *cache, uint32_t layer, uint32_t expert)
{
    struct slot *slot = slot_with(cache, layer, expert);
    if (!slot)
        return false;
    settle(cache, slot);
    return slot->state == SLOT_RESIDENT;
}

bool experts_resident(struct expert_cache *cache, uint32_t layer, uint32_t expert)
{
    (void)pthread_mutex_lock(&cache->lock);
    bool resident = is_resident(cache, layer, expert);
    (void)pthread_mutex_unlock(&cache->lock);
    return resident;
}

uint32_t experts_sort(struct expert_cache *cache, uint32_t layer, const uint16_t *from, uint32_t n,
                      uint16_t *to)
{
    enum { HERE, COMING, MISSING, KINDS };
    uint32_t at = 0, missing = 0;
    reads_look(cache->reads);
    (void)pthread_mutex_lock(&cache->lock);
    /* Once: a read may land at any time, and nothing may change its kind below. */
    for (uint32_t i = 0; i < n; i++)
        (void)is_resident(cache, layer, from[i]);
    for (int wanted = HERE; wanted < KINDS; wanted++)
        for (uint32_t i = 0; i < n; i++) {
            const struct slot *slot = slot_with(cache, layer, from[i]);
            const int kind = !slot ? MISSING : slot->state == SLOT_RESIDENT ? HERE : COMING;
            if (kind != wanted)
                continue;
            to[at++] = from[i];
            missing += kind == MISSING;
        }
    (void)pthread_mutex_unlock(&cache->lock);
    return missing;
}

bool experts_ready(struct expert_cache *cache, const struct lease *lease, uint32_t i)
{
    /* A pinned slot that was resident stays so; otherwise the read's own state tells. */
    return lease->hits[i] || reads_ready(cache->reads, &cache->slot[lease->slots[i]].frame->read);
}

/* Take the result of a landed read over; false while the slot is being read again (a mirror failed). */
static bool conclude(struct expert_cache *cache, struct slot *slot, bool *failed)
{
    (void)pthread_mutex_lock(&cache->lock);
    settle(cache, slot);
    bool ended = slot->state != SLOT_READING;
    *failed = slot->state == SLOT_FAILED;
    (void)pthread_mutex_unlock(&cache->lock);
    return ended;
}

sluice_status experts_wait(struct expert_cache *cache, const struct lease *lease, uint32_t i,
                           struct lease_stats *stats, const atomic_bool *cancel, sluice_error *err)
{
    if (lease->hits[i])
        return SLUICE_OK;
    struct slot *slot = &cache->slot[lease->slots[i]];
    struct read_request *read = &slot->frame->read; /* pinned: the frame stays */
    bool failed = false;
    do {
        if (!reads_done(read)) {
            uint64_t from = clock_ns();
            bool done = reads_wait(cache->reads, read, cancel);
            stats->wait_ns += clock_ns() - from;
            if (!done)
                return err_set(err, SLUICE_E_CANCELLED, "cancelled");
        }
    } while (!conclude(cache, slot, &failed));
    if (!failed)
        return SLUICE_OK;
    if (read->errnum)
        return err_errno(err, read->errnum, "reading expert %d of layer %u", slot->expert, lease->layer);
    return err_set(
        err, SLUICE_E_FORMAT,
        "the expert file of layer %u ends early: expert %d has %zu of %zu bytes; run sluice verify",
        lease->layer, slot->expert, read->got, read->bytes);
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
    const unsigned char *record = cache->slot[lease->slots[i]].frame->record;
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
        struct slot *slot = &cache->slot[lease->slots[i]];
        assert(slot->pins > 0);
        slot->pins--;
    }
    (void)pthread_cond_broadcast(&cache->released);
    (void)pthread_mutex_unlock(&cache->lock);
    lease->held = false;
}
