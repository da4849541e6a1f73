#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <string.h>

/* ---- characters to symbols ---- */

static bool add_symbol(struct bpe_work *w, uint32_t id)
{
    if (!mem_grow((void **)&w->symbols, &w->cap, w->n + 1, sizeof *w->symbols))
        return false;
    w->symbols[w->n] = (struct bpe_symbol){id, (uint32_t)w->n - 1, (uint32_t)w->n + 1};
    w->n++;
    return true;
}

static uint32_t find_plain(const struct vocab *v, const unsigned char *flags, const char *p, size_t n)
{
    uint32_t id = vocab_find(v, p, n);
    bool usable = id != TOK_NONE && vocab_in_model(v, id) && !(flags[id] & TOK_CONTROL);
    return usable ? id : TOK_NONE;
}

static bool has_bytes(const struct vocab *v, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v->bytes[(unsigned char)p[i]] == TOK_NONE)
            return false;
    return true;
}

/* A pending unknown is written when the next known character comes, and not before bytes: the order of the
 * model that this follows. */
static bool add_symbols(const struct vocab *v, const struct bpe_options *o, const unsigned char *flags,
                        const char *text, size_t n, struct bpe_work *w)
{
    bool unknown = false;
    w->n = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t used = utf8_decode(text + at, n - at, &cp, NULL);
        uint32_t id = cp < TOK_DIRECT ? v->direct[cp] : find_plain(v, flags, text + at, used);
        if (id != TOK_NONE) {
            if (unknown && !add_symbol(w, o->unk))
                return false;
            unknown = false;
            if (!add_symbol(w, id))
                return false;
        } else if (o->byte_fallback && has_bytes(v, text + at, used)) {
            for (size_t i = 0; i < used; i++)
                if (!add_symbol(w, v->bytes[(unsigned char)text[at + i]]))
                    return false;
        } else if (o->unk != TOK_NONE) {
            if (unknown && !o->fuse_unk && !add_symbol(w, o->unk))
                return false;
            unknown = true;
        }
        at += used;
    }
    return !unknown || add_symbol(w, o->unk);
}

/* ---- merging a short piece ---- */

enum { SHORT_MAX = 32 };

/* Look for the lowest rank again after every merge: for a word that is faster than keeping order. */
static void merge_short(const struct vocab *v, struct bpe_work *w)
{
    struct bpe_symbol *s = w->symbols;
    uint32_t ranks[SHORT_MAX];
    size_t n = w->n;
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = vocab_merge(v, s[i].id, s[i + 1].id);
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (n < 2 || ranks[best] == TOK_NONE)
            break;
        s[best].id = v->merges[ranks[best]].merged;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            s[i].id = s[i + 1].id;
            ranks[i - 1] = ranks[i];
        }
        if (best > 0)
            ranks[best - 1] = vocab_merge(v, s[best - 1].id, s[best].id);
        if (best + 1 < n)
            ranks[best] = vocab_merge(v, s[best].id, s[best + 1].id);
    }
    w->n = n;
    for (size_t i = 0; i < n; i++)
        s[i].next = (uint32_t)i + 1;
}

/* ---- merging a long piece ---- */

/* The order is: lowest rank first, leftmost first. Each rank has a bucket of positions and a heap holds the
 * ranks whose bucket is not empty, so a long run of one pair costs the heap one entry. Merging one rank from
 * left to right fills other buckets mostly in order; one that is not is sorted when its turn comes. Nothing
 * is added to a bucket during its turn, since a pair that a merge makes is longer than the merged pair; so no
 * bucket is sorted twice for the same positions. */

static void sift_down(struct bpe_work *w)
{
    uint32_t *heap = w->heap, bucket = heap[0];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= w->n_heap)
            break;
        if (child + 1 < w->n_heap && w->buckets[heap[child + 1]].rank < w->buckets[heap[child]].rank)
            child++;
        if (w->buckets[heap[child]].rank >= w->buckets[bucket].rank)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = bucket;
}

static bool push_heap(struct bpe_work *w, uint32_t bucket)
{
    if (!mem_grow((void **)&w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap))
        return false;
    size_t at = w->n_heap++;
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (w->buckets[w->heap[parent]].rank <= w->buckets[bucket].rank)
            break;
        w->heap[at] = w->heap[parent];
        at = parent;
    }
    w->heap[at] = bucket;
    return true;
}

static size_t slot_of(const struct bpe_work *w, uint32_t rank)
{
    size_t at = (rank * 2654435761u) & (w->n_slots - 1);
    while (w->slots[at] != TOK_NONE && w->buckets[w->slots[at]].rank != rank)
        at = (at + 1) & (w->n_slots - 1);
    return at;
}

static bool grow_slots(struct bpe_work *w)
{
    size_t count = w->n_slots ? 2 * w->n_slots : 256;
    uint32_t *slots = mem_alloc(count * sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0xFF, count * sizeof *slots);
    mem_free(w->slots);
    w->slots = slots;
    w->n_slots = count;
    for (uint32_t i = 0; i < w->n_buckets; i++)
        w->slots[slot_of(w, w->buckets[i].rank)] = i;
    return true;
}

static bool find_bucket(struct bpe_work *w, uint32_t rank, uint32_t *bucket)
{
    if (2 * (w->n_buckets + 1) > w->n_slots && !grow_slots(w))
        return false;
    size_t slot = slot_of(w, rank);
    if (w->slots[slot] == TOK_NONE) {
        if (!mem_grow((void **)&w->buckets, &w->cap_buckets, w->n_buckets + 1, sizeof *w->buckets))
            return false;
        w->buckets[w->n_buckets] = (struct bpe_bucket){rank, TOK_NONE, TOK_NONE, true};
        w->slots[slot] = (uint32_t)w->n_buckets++;
    }
    *bucket = w->slots[slot];
    return true;
}

/* The symbols at `at` and behind it may merge. */
static bool offer(const struct vocab *v, struct bpe_work *w, uint32_t at, uint32_t next)
{
    uint32_t rank = vocab_merge(v, w->symbols[at].id, w->symbols[next].id), bucket;
    if (rank == TOK_NONE)
        return true;
    if (!find_bucket(w, rank, &bucket))
        return false;
    uint32_t node = w->free_node;
    if (node != TOK_NONE) {
        w->free_node = w->nodes[node].next;
    } else {
        if (!mem_grow((void **)&w->nodes, &w->cap_nodes, w->n_nodes + 1, sizeof *w->nodes))
            return false;
        node = (uint32_t)w->n_nodes++;
    }
    w->nodes[node] = (struct bpe_node){at, TOK_NONE};
    struct bpe_bucket *b = &w->buckets[bucket];
    if (b->head == TOK_NONE) {
        b->head = b->tail = node;
        b->sorted = true;
        return push_heap(w, bucket);
    }
    b->sorted &= w->nodes[b->tail].at <= at;
    w->nodes[b->tail].next = node;
    b->tail = node;
    return true;
}

static uint32_t merge_lists(struct bpe_node *nodes, uint32_t a, uint32_t b)
{
    uint32_t head = TOK_NONE, *link = &head;
    while (a != TOK_NONE && b != TOK_NONE) {
        uint32_t *least = nodes[a].at <= nodes[b].at ? &a : &b;
        *link = *least;
        link = &nodes[*least].next;
        *least = *link;
    }
    *link = a != TOK_NONE ? a : b;
    return head;
}

/* Merge sort of the bucket's list: lists[k] has 2^k nodes or none. */
static void sort_bucket(struct bpe_node *nodes, struct bpe_bucket *b)
{
    uint32_t lists[33], node = b->head;
    memset(lists, 0xFF, sizeof lists);
    while (node != TOK_NONE) {
        uint32_t rest = nodes[node].next, list = node;
        size_t k = 0;
        nodes[node].next = TOK_NONE;
        for (; lists[k] != TOK_NONE; k++) {
            list = merge_lists(nodes, lists[k], list);
            lists[k] = TOK_NONE;
        }
        lists[k] = list;
        node = rest;
    }
    uint32_t all = TOK_NONE;
    for (size_t k = 0; k < 33; k++)
        all = merge_lists(nodes, lists[k], all);
    b->head = b->tail = all;
    while (nodes[b->tail].next != TOK_NONE)
        b->tail = nodes[b->tail].next;
    b->sorted = true;
}

/* The leftmost position of the lowest rank. */
static uint32_t take(struct bpe_work *w, uint32_t *rank)
{
    struct bpe_bucket *b = &w->buckets[w->heap[0]];
    if (!b->sorted)
        sort_bucket(w->nodes, b);
    uint32_t node = b->head, at = w->nodes[node].at;
    *rank = b->rank;
    b->head = w->nodes[node].next;
    w->nodes[node].next = w->free_node;
    w->free_node = node;
    if (b->head == TOK_NONE) {
        w->heap[0] = w->heap[--w->n_heap];
        if (w->n_heap)
            sift_down(w);
    }
    return at;
}

/* Empty the table by its entries: it may have grown for a far longer piece. */
static void reset(struct bpe_work *w)
{
    for (size_t i = w->n_buckets; i-- > 0;)
        w->slots[slot_of(w, w->buckets[i].rank)] = TOK_NONE;
    w->n_buckets = w->n_nodes = w->n_heap = 0;
    w->free_node = TOK_NONE;
}

/* An entry whose pair has changed since has another rank by now, for a pair has one rank and the text of a
 * position only grows. */
static bool merge_long(const struct vocab *v, struct bpe_work *w)
{
    struct bpe_symbol *s = w->symbols;
    uint32_t n = (uint32_t)w->n;
    reset(w);
    for (uint32_t i = 0; i + 1 < n; i++)
        if (!offer(v, w, i, i + 1))
            return false;
    while (w->n_heap) {
        uint32_t rank, at = take(w, &rank), right = s[at].next;
        if (s[at].id == TOK_NONE || right >= n || vocab_merge(v, s[at].id, s[right].id) != rank)
            continue;
        s[at].id = v->merges[rank].merged;
        s[at].next = s[right].next;
        s[right].id = TOK_NONE;
        if (s[at].next < n)
            s[s[at].next].previous = at;
        if (s[at].previous < n && !offer(v, w, s[at].previous, at))
            return false;
        if (s[at].next < n && !offer(v, w, at, s[at].next))
            return false;
    }
    return true;
}

static bool merge_all(const struct vocab *v, struct bpe_work *w)
{
    if (w->n <= SHORT_MAX) {
        merge_short(v, w);
        return true;
    }
    return merge_long(v, w);
}

static bool add_id(struct ids *ids, uint32_t id)
{
    if (!mem_grow((void **)&ids->v, &ids->cap, ids->n + 1, sizeof *ids->v))
        return false;
    ids->v[ids->n++] = (int32_t)id;
    return true;
}

sluice_status bpe_encode(const struct vocab *v, const struct bpe_options *o, const unsigned char *flags,
                         const char *text, size_t n, struct bpe_work *w, struct ids *ids, sluice_error *err)
{
    uint32_t whole = o->ignore_merges ? find_plain(v, flags, text, n) : TOK_NONE;
    if (whole != TOK_NONE)
        return add_id(ids, whole) ? SLUICE_OK : err_memory(err, n, "the tokens of a text");
    if (!add_symbols(v, o, flags, text, n, w) || !merge_all(v, w))
        return err_memory(err, n, "the tokens of a text");
    for (uint32_t i = 0; i < w->n; i = w->symbols[i].next)
        if (!add_id(ids, w->symbols[i].id))
            return err_memory(err, n, "the tokens of a text");
    return SLUICE_OK;
}

void bpe_work_close(struct bpe_work *w)
{
    mem_free(w->symbols);
    mem_free(w->nodes);
    mem_free(w->buckets);
    mem_free(w->slots);
    mem_free(w->heap);
    memset(w, 0, sizeof *w);
}
