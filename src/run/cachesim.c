#include "run/cachesim.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX

/* What leaves first, and which slots compete. */
static const struct policy {
    const char *name;
    enum { BY_RECENCY, BY_FREQUENCY, BY_FUTURE } order;
    bool pooled;
    uint32_t half_life_tokens; /* of a use; 0: uses count for ever */
} POLICIES[SLUICE_CACHE_POLICIES] = {
    [SLUICE_CACHE_LRU] = {"lru", BY_RECENCY, false, 0},
    [SLUICE_CACHE_LFU] = {"lfu", BY_FREQUENCY, false, 0},
    [SLUICE_CACHE_LFU_DECAY_64] = {"lfu-decay-64", BY_FREQUENCY, false, 64},
    [SLUICE_CACHE_LFU_DECAY_256] = {"lfu-decay-256", BY_FREQUENCY, false, 256},
    [SLUICE_CACHE_LFU_DECAY_1024] = {"lfu-decay-1024", BY_FREQUENCY, false, 1024},
    [SLUICE_CACHE_POOL_LRU] = {"pool-lru", BY_RECENCY, true, 0},
    [SLUICE_CACHE_POOL_LFU] = {"pool-lfu", BY_FREQUENCY, true, 0},
    [SLUICE_CACHE_POOL_LFU_DECAY_256] = {"pool-lfu-decay-256", BY_FREQUENCY, true, 256},
    [SLUICE_CACHE_BELADY] = {"belady", BY_FUTURE, false, 0},
    [SLUICE_CACHE_POOL_BELADY] = {"pool-belady", BY_FUTURE, true, 0},
};

/* A set of slots that compete: one layer's, or all. */
struct group {
    uint32_t slots, used;
    uint32_t *key; /* [slots]: layer * experts + expert */
};

struct sim {
    const struct routes *r;
    const struct policy *policy;
    struct group *groups;
    size_t n_groups;
    uint32_t *where;    /* [keys]: slot + 1 in its group, 0 when absent */
    uint64_t *last;     /* [keys]: tick of the last use */
    double *uses;       /* [keys]: how often used, decayed */
    uint64_t *decayed;  /* [keys]: tick to which `uses` is decayed */
    uint64_t *pinned;   /* [keys]: request that holds it */
    uint64_t *next_use; /* Belady: [requests in all]: tick of the key's next use after this one */
    uint64_t *next_of;  /* Belady: [keys]: the same, of the last use so far */
    size_t n_keys, cursor;
    uint64_t tick;
    double half_life; /* in ticks; 0: none */
};

/* ---- the order of requests ---- */

/* Distinct keys of one layer over rows [first, first + rows), in the order of their ids. */
static uint32_t gather(const struct routes *r, uint32_t layer, size_t first, uint32_t rows, bool *seen,
                       uint32_t *keys)
{
    uint32_t n = 0;
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t k = 0; k < r->top_k; k++) {
            uint16_t id = r->ids[((first + row) * r->layers + layer) * r->top_k + k];
            if (id != ROUTES_NONE)
                seen[id] = true;
        }
    for (uint32_t e = 0; e < r->experts; e++)
        if (seen[e]) {
            keys[n++] = layer * r->experts + e;
            seen[e] = false;
        }
    return n;
}

typedef void (*request_fn)(struct sim *s, uint32_t layer, const uint32_t *keys, uint32_t n, bool decode,
                           struct cachesim_count *count);

static sluice_status each_request(struct sim *s, request_fn fn, struct cachesim_count *count,
                                  sluice_error *err)
{
    const struct routes *r = s->r;
    bool *seen = mem_calloc(r->experts, sizeof *seen);
    uint32_t *keys = mem_calloc(r->experts, sizeof *keys);
    sluice_status status =
        seen && keys ? SLUICE_OK : err_memory(err, r->experts * sizeof *keys, "the simulation");
    for (size_t t = 0; t < r->tokens && status == SLUICE_OK;) {
        uint32_t rows = r->token[t].rows_left + 1u; /* checked by routes_parse() */
        for (uint32_t l = 0; l < r->layers; l++) {
            uint32_t n = gather(r, l, t, rows, seen, keys);
            if (n)
                fn(s, l, keys, n, r->token[t].decode, count);
        }
        t += rows;
    }
    mem_free(seen);
    mem_free(keys);
    return status;
}

/* ---- looking ahead ---- */

static void count_keys(struct sim *s, uint32_t layer, const uint32_t *keys, uint32_t n, bool decode,
                       struct cachesim_count *count)
{
    (void)layer;
    (void)keys;
    (void)decode;
    (void)count;
    s->cursor += n;
}

static void note_uses(struct sim *s, uint32_t layer, const uint32_t *keys, uint32_t n, bool decode,
                      struct cachesim_count *count)
{
    (void)layer;
    (void)decode;
    (void)count;
    s->tick++;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t before = s->next_of[keys[i]]; /* where the last use is noted */
        if (before != NEVER)
            s->next_use[before] = s->tick;
        s->next_of[keys[i]] = s->cursor;
        s->next_use[s->cursor++] = NEVER;
    }
}

static sluice_status look_ahead(struct sim *s, sluice_error *err)
{
    TRY(each_request(s, count_keys, NULL, err));
    s->next_use = mem_calloc(s->cursor, sizeof *s->next_use);
    s->next_of = mem_alloc(s->n_keys * sizeof *s->next_of);
    if (!s->next_use || !s->next_of)
        return err_memory(err, s->cursor * sizeof *s->next_use, "the simulation");
    memset(s->next_of, 0xFF, s->n_keys * sizeof *s->next_of);
    s->cursor = 0;
    TRY(each_request(s, note_uses, NULL, err));
    s->cursor = 0;
    s->tick = 0;
    return SLUICE_OK;
}

/* ---- policies ---- */

static double uses_now(struct sim *s, uint32_t key)
{
    if (s->half_life > 0 && s->decayed[key] != s->tick) {
        s->uses[key] *= exp2(-(double)(s->tick - s->decayed[key]) / s->half_life);
        s->decayed[key] = s->tick;
    }
    return s->uses[key];
}

/* True when a is the better victim. */
static bool colder(struct sim *s, uint32_t a, uint32_t b)
{
    if (s->policy->order == BY_FUTURE)
        return s->next_of[a] != s->next_of[b] ? s->next_of[a] > s->next_of[b] : a < b;
    if (s->policy->order == BY_FREQUENCY) {
        double x = uses_now(s, a), y = uses_now(s, b);
        if (x < y || x > y)
            return x < y;
    }
    return s->last[a] < s->last[b];
}

static void touch(struct sim *s, uint32_t key)
{
    (void)uses_now(s, key);
    s->uses[key] += 1;
    s->decayed[key] = s->tick;
    s->last[key] = s->tick;
    if (s->next_of)
        s->next_of[key] = s->next_use[s->cursor++];
}

static void insert(struct sim *s, struct group *g, uint32_t key)
{
    uint32_t slot = g->used;
    if (g->used < g->slots) {
        g->used++;
    } else {
        slot = g->slots;
        for (uint32_t i = 0; i < g->slots; i++)
            if (s->pinned[g->key[i]] != s->tick && (slot == g->slots || colder(s, g->key[i], g->key[slot])))
                slot = i;
        if (slot == g->slots)
            return; /* the request is larger than the cache: passed through */
        s->where[g->key[slot]] = 0;
    }
    g->key[slot] = key;
    s->where[key] = slot + 1;
}

/* Residents are pinned before anything is evicted, as the engine does. */
static void request(struct sim *s, uint32_t layer, const uint32_t *keys, uint32_t n, bool decode,
                    struct cachesim_count *count)
{
    struct group *g = &s->groups[s->policy->pooled ? 0 : layer];
    uint32_t hits = 0;
    s->tick++;
    for (uint32_t i = 0; i < n; i++) {
        hits += s->where[keys[i]] != 0;
        if (s->where[keys[i]])
            s->pinned[keys[i]] = s->tick;
        touch(s, keys[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!s->where[keys[i]]) {
            insert(s, g, keys[i]);
            s->pinned[keys[i]] = s->tick;
        }
    count->requests += n;
    count->hits += hits;
    count->decode_requests += decode ? n : 0;
    count->decode_hits += decode ? hits : 0;
}

/* ---- running ---- */

static sluice_status open_sim(struct sim *s, uint32_t slots, sluice_error *err)
{
    const struct routes *r = s->r;
    s->n_keys = (size_t)r->layers * r->experts;
    s->n_groups = s->policy->pooled ? 1 : r->layers;
    s->groups = mem_calloc(s->n_groups, sizeof *s->groups);
    s->where = mem_calloc(s->n_keys, sizeof *s->where);
    s->last = mem_calloc(s->n_keys, sizeof *s->last);
    s->uses = mem_calloc(s->n_keys, sizeof *s->uses);
    s->decayed = mem_calloc(s->n_keys, sizeof *s->decayed);
    s->pinned = mem_calloc(s->n_keys, sizeof *s->pinned);
    bool ok = s->groups && s->where && s->last && s->uses && s->decayed && s->pinned;
    for (size_t i = 0; ok && i < s->n_groups; i++) {
        s->groups[i].slots = s->policy->pooled ? slots * r->layers : slots;
        s->groups[i].key = mem_calloc(s->groups[i].slots, sizeof *s->groups[i].key);
        ok = s->groups[i].key != NULL;
    }
    if (!ok)
        return err_memory(err, s->n_keys * sizeof *s->uses, "the simulation");
    return s->policy->order == BY_FUTURE ? look_ahead(s, err) : SLUICE_OK;
}

static void close_sim(struct sim *s)
{
    for (size_t i = 0; s->groups && i < s->n_groups; i++)
        mem_free(s->groups[i].key);
    mem_free(s->groups);
    mem_free(s->where);
    mem_free(s->last);
    mem_free(s->uses);
    mem_free(s->decayed);
    mem_free(s->pinned);
    mem_free(s->next_use);
    mem_free(s->next_of);
}

sluice_status cachesim_run(const struct routes *routes, sluice_cache_policy policy, uint32_t slots,
                           struct cachesim_count *count, sluice_error *err)
{
    *count = (struct cachesim_count){0};
    if (slots < routes->top_k || slots > routes->experts)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%u slots per layer were asked for; from %u to %u are possible", slots, routes->top_k,
                       routes->experts);
    struct sim s = {.r = routes, .policy = &POLICIES[policy]};
    /* Every layer's request of a token is a tick. */
    s.half_life = (double)s.policy->half_life_tokens * routes->layers;
    sluice_status status = open_sim(&s, slots, err);
    if (status == SLUICE_OK)
        status = each_request(&s, request, count, err);
    close_sim(&s);
    return status;
}

/* ---- the public call ---- */

const char *sluice_cache_policy_name(sluice_cache_policy policy)
{
    return POLICIES[policy].name;
}

static sluice_status open_trace(const sluice_cache_sim_options *o, struct routes *routes, sluice_error *err)
{
    *routes = (struct routes){0};
    if (!routes_is_spec(o->trace))
        return routes_load(o->trace, routes, err);
    if (o->layers == 0 || o->experts < 2 || o->top_k == 0 || o->top_k > o->experts || o->layers > 1024 ||
        o->experts >= ROUTES_NONE || o->top_k > LEASE_EXPERTS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "a made trace needs a shape: layers, experts, and experts per token up to %d",
                       LEASE_EXPERTS_MAX);
    return routes_generate(o->trace, o->layers, o->experts, o->top_k, o->tokens ? o->tokens : 2048, o->seed,
                           routes, err);
}

/* top_k, then doubling, up to every expert. */
static uint32_t default_sizes(const struct routes *r, uint32_t sizes[32])
{
    uint32_t n = 0;
    for (uint32_t slots = r->top_k; slots < r->experts; slots *= 2)
        sizes[n++] = slots;
    sizes[n++] = r->experts;
    return n;
}

sluice_status sluice_cache_sim(const sluice_cache_sim_options *o, sluice_cache_sim_fn fn, void *user,
                               sluice_error *err)
{
    struct routes routes;
    uint32_t doubling[32];
    sluice_status status = open_trace(o, &routes, err);
    size_t n = o->n_slots;
    const uint32_t *slots = o->slots;
    if (status == SLUICE_OK && n == 0) {
        n = default_sizes(&routes, doubling);
        slots = doubling;
    }
    for (size_t i = 0; i < n && status == SLUICE_OK; i++) {
        sluice_cache_sim_row row = {.slots = slots[i], .experts = routes.experts, .tokens = routes.tokens};
        if (row.slots == SLUICE_SLOTS_ALL)
            row.slots = routes.experts;
        for (int p = 0; p < SLUICE_CACHE_POLICIES && status == SLUICE_OK; p++) {
            struct cachesim_count count;
            status = cachesim_run(&routes, (sluice_cache_policy)p, row.slots, &count, err);
            row.hit_rate[p] = count.requests ? (double)count.hits / (double)count.requests : 0;
            row.decode_hit_rate[p] =
                count.decode_requests ? (double)count.decode_hits / (double)count.decode_requests : 0;
            row.requests = count.requests;
            row.decode_requests = count.decode_requests;
        }
        if (status == SLUICE_OK)
            fn(user, &row);
    }
    routes_free(&routes);
    return status;
}
