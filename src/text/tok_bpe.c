#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <string.h>

/* ---- a four-way heap of keys, smallest first ---- */

enum { WAYS = 4 };

static void sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t key = heap[at];
    for (;;) {
        size_t child = at * WAYS + 1;
        if (child >= n)
            break;
        size_t end = child + WAYS < n ? child + WAYS : n, least = child;
        for (size_t i = child + 1; i < end; i++)
            if (heap[i] < heap[least])
                least = i;
        if (heap[least] >= key)
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = key;
}

static uint64_t pop(struct bpe_work *w)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap)
        sift_down(w->heap, w->n_heap, 0);
    return top;
}

static bool grow_heap(struct bpe_work *w)
{
    return mem_grow((void **)&w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap);
}

static void push(struct bpe_work *w, uint64_t key)
{
    size_t at = w->n_heap++;
    while (at > 0) {
        size_t parent = (at - 1) / WAYS;
        if (w->heap[parent] <= key)
            break;
        w->heap[at] = w->heap[parent];
        at = parent;
    }
    w->heap[at] = key;
}

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

/* ---- merging ---- */

static bool offer(const struct vocab *v, struct bpe_work *w, uint32_t at, uint32_t next)
{
    uint32_t rank = vocab_merge(v, w->symbols[at].id, w->symbols[next].id);
    if (rank == TOK_NONE)
        return true;
    if (!grow_heap(w))
        return false;
    push(w, (uint64_t)rank << 32 | at);
    return true;
}

static bool fill_heap(const struct vocab *v, struct bpe_work *w)
{
    w->n_heap = 0;
    for (uint32_t i = 0; i + 1 < w->n; i++) {
        uint32_t rank = vocab_merge(v, w->symbols[i].id, w->symbols[i + 1].id);
        if (rank == TOK_NONE)
            continue;
        if (!grow_heap(w))
            return false;
        w->heap[w->n_heap++] = (uint64_t)rank << 32 | i;
    }
    if (w->n_heap > 1)
        for (size_t i = (w->n_heap - 2) / WAYS + 1; i-- > 0;)
            sift_down(w->heap, w->n_heap, i);
    return true;
}

/* Lowest rank first, leftmost first. An entry whose pair has changed since has another rank by now, for a
 * pair has one rank and a position's text only grows. */
static bool merge_all(const struct vocab *v, struct bpe_work *w)
{
    if (!fill_heap(v, w))
        return false;
    struct bpe_symbol *s = w->symbols;
    uint32_t n = (uint32_t)w->n;
    while (w->n_heap) {
        uint64_t key = pop(w);
        uint32_t rank = (uint32_t)(key >> 32), at = (uint32_t)key;
        uint32_t right = s[at].next;
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
    mem_free(w->heap);
    memset(w, 0, sizeof *w);
}
