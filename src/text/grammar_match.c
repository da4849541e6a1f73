/* Running a grammar: states, transitions, masks. */
#include "base/check.h"
#include "base/mem.h"
#include "text/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    STACK_DEPTH_MAX = 4000,      /* returns that wait: nesting of the text, a few for each level */
    CONFIGS_MAX = 20000,         /* places that one state may stand for */
    STATES_BYTES_MAX = 64 << 20, /* of all states with their transitions */
    MASKS_BYTES_MAX = 16 << 20,
    TOKEN_BYTES_MAX = 512, /* longer tokens are never allowed */
};

#define UNKNOWN (UINT32_MAX - 1)
#define ACCEPT  UINT32_MAX /* as a place: the whole text may end */

/* A place in the grammar, and where to go on when its rule ends. */
struct config {
    uint32_t at, stack;
};

struct frame {
    uint32_t back, parent, depth;
};

struct state {
    uint32_t configs, n; /* of walker.configs */
    uint32_t *next;      /* [GRAMMAR_SYMBOLS], when it was first asked for */
    uint32_t mask;       /* its place among the masks, or UINT32_MAX */
};

struct mask {
    uint64_t *bits;
    uint32_t state;
    bool any;
};

/* Open addressing from a hash to a number; 0 is free, n + 1 is n. */
struct index {
    uint32_t *slots;
    size_t cap, n;
};

struct walker {
    const struct grammar *grammar;
    const struct grammar_vocab *vocab;
    int32_t mark_ids[GRAMMAR_MARKS_MAX];
    size_t n_marks;
    struct frame *frames; /* frame 0: the empty stack */
    size_t n_frames, cap_frames;
    struct index frame_index;
    struct config *configs;
    size_t n_configs, cap_configs;
    struct state *states;
    size_t n_states, cap_states;
    struct index state_index;
    struct config *work; /* of the closure that is computed: all places seen */
    size_t n_work, cap_work;
    struct index work_index;
    struct config *kept; /* those that read, or accept */
    size_t n_kept, cap_kept;
    struct mask *masks;
    size_t n_masks, cap_masks, next_mask, words;
    size_t next_bytes, mask_bytes;
    uint64_t charged_bytes; /* of the grammar's budget */
    uint32_t start;
};

/* ---- vocabulary ---- */

struct grammar_vocab {
    const struct tokenizer *tokenizer;
    struct sorted {
        const char *bytes;
        int32_t id;
        uint16_t n, common; /* bytes that it shares with the one before */
    } * v;
    size_t n;
    uint32_t n_ids;
};

static int by_bytes(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order)
        return order;
    return x->n != y->n ? (int)x->n - (int)y->n : x->id < y->id ? -1 : 1;
}

size_t grammar_vocab_bytes(uint32_t vocab_tokens)
{
    return sizeof(struct grammar_vocab) + ((size_t)vocab_tokens + 1) * sizeof(struct sorted);
}

sluice_status grammar_vocab_open(const struct tokenizer *tokenizer, struct grammar_vocab **out,
                                 sluice_error *err)
{
    uint32_t n_ids = tok_vocab(tokenizer);
    struct grammar_vocab *vocab = mem_calloc(1, sizeof *vocab);
    *out = NULL;
    if (vocab)
        vocab->v = mem_alloc(((size_t)n_ids + 1) * sizeof *vocab->v);
    if (!vocab || !vocab->v) {
        grammar_vocab_close(vocab);
        return err_memory(err, n_ids * sizeof *vocab->v, "the vocabulary of grammars");
    }
    vocab->tokenizer = tokenizer;
    vocab->n_ids = n_ids;
    for (uint32_t id = 0; id < n_ids; id++) {
        size_t n;
        const char *bytes = tok_bytes(tokenizer, (int32_t)id, &n);
        if (bytes && n && n <= TOKEN_BYTES_MAX && !tok_is_control(tokenizer, (int32_t)id))
            vocab->v[vocab->n++] = (struct sorted){bytes, (int32_t)id, (uint16_t)n, 0};
    }
    if (vocab->n)
        qsort(vocab->v, vocab->n, sizeof *vocab->v, by_bytes);
    for (size_t i = 1; i < vocab->n; i++) {
        struct sorted *a = &vocab->v[i - 1], *b = &vocab->v[i];
        while (b->common < a->n && b->common < b->n && a->bytes[b->common] == b->bytes[b->common])
            b->common++;
    }
    *out = vocab;
    return SLUICE_OK;
}

void grammar_vocab_close(struct grammar_vocab *vocab)
{
    if (!vocab)
        return;
    mem_free(vocab->v);
    mem_free(vocab);
}

/* ---- hashing ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

/* The slot of an item that `same` recognises, or a free one. False: no memory. */
static bool index_room(struct index *index, uint64_t (*hash)(const void *owner, uint32_t item),
                       const void *owner)
{
    if (index->cap && index->n * 2 < index->cap)
        return true;
    size_t cap = index->cap ? 2 * index->cap : 64;
    uint32_t *slots = mem_calloc(cap, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < index->cap; i++) {
        if (!index->slots[i])
            continue;
        size_t at = hash(owner, index->slots[i] - 1) & (cap - 1);
        while (slots[at])
            at = (at + 1) & (cap - 1);
        slots[at] = index->slots[i];
    }
    mem_free(index->slots);
    index->slots = slots;
    index->cap = cap;
    return true;
}

static uint64_t hash_frame(const void *owner, uint32_t i)
{
    const struct walker *m = owner;
    return mix(m->frames[i].back, m->frames[i].parent);
}

static uint64_t hash_configs(const struct config *c, size_t n)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = mix(h, (uint64_t)c[i].at << 32 | c[i].stack);
    return h;
}

static uint64_t hash_state(const void *owner, uint32_t i)
{
    const struct walker *m = owner;
    return hash_configs(m->configs + m->states[i].configs, m->states[i].n);
}

static uint64_t hash_work(const void *owner, uint32_t i)
{
    const struct walker *m = owner;
    return hash_configs(&m->work[i], 1);
}

/* ---- stacks ---- */

static sluice_status no_memory(sluice_error *err)
{
    return err_memory(err, 0, "the states of a grammar");
}

size_t walker_memory(const struct walker *m)
{
    return m->cap_frames * sizeof *m->frames + m->cap_configs * sizeof *m->configs +
           m->cap_states * sizeof *m->states + m->cap_work * sizeof *m->work + m->cap_kept * sizeof *m->kept +
           (m->frame_index.cap + m->state_index.cap + m->work_index.cap) * sizeof(uint32_t) + m->next_bytes +
           m->mask_bytes;
}

/* Charge what the walker holds and `more` to the budget, in steps. */
static bool charge(struct walker *m, size_t more)
{
    static const uint64_t STEP_BYTES = 16 << 10;
    uint64_t need = walker_memory(m) + more;
    if (!m->grammar->budget || need <= m->charged_bytes)
        return true;
    need += STEP_BYTES - m->charged_bytes;
    if (budget_charge(m->grammar->budget, need, "a grammar's states", NULL) != SLUICE_OK)
        return false;
    m->charged_bytes += need;
    return true;
}

/* Transitions are most of what a walker holds, and can be worked out again. */
static void forget_transitions(struct walker *m)
{
    for (size_t i = 0; i < m->n_states; i++) {
        mem_free(m->states[i].next);
        m->states[i].next = NULL;
    }
    m->next_bytes = 0;
}

static sluice_status check_size(struct walker *m, sluice_error *err)
{
    if (!charge(m, 0))
        return grammar_no_budget(m->grammar->budget, err);
    if (walker_memory(m) - m->mask_bytes <= STATES_BYTES_MAX)
        return SLUICE_OK;
    return err_set(err, SLUICE_E_UNSUPPORTED,
                   "the text has brought the grammar to more states than %d MiB hold; use a simpler grammar",
                   STATES_BYTES_MAX >> 20);
}

static sluice_status push(struct walker *m, uint32_t back, uint32_t parent, uint32_t *out, sluice_error *err)
{
    if (!index_room(&m->frame_index, hash_frame, m) ||
        !mem_grow((void **)&m->frames, &m->cap_frames, m->n_frames + 1, sizeof *m->frames))
        return no_memory(err);
    size_t at = mix(back, parent) & (m->frame_index.cap - 1);
    for (; m->frame_index.slots[at]; at = (at + 1) & (m->frame_index.cap - 1)) {
        *out = m->frame_index.slots[at] - 1;
        if (m->frames[*out].back == back && m->frames[*out].parent == parent)
            return SLUICE_OK;
    }
    if (m->frames[parent].depth == STACK_DEPTH_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED, "the text nests deeper than the grammar is followed (%d)",
                       STACK_DEPTH_MAX);
    *out = (uint32_t)m->n_frames;
    m->frames[m->n_frames++] = (struct frame){back, parent, m->frames[parent].depth + 1};
    m->frame_index.slots[at] = *out + 1;
    m->frame_index.n++;
    return check_size(m, err);
}

/* ---- closures ---- */

/* Add a place to those of the closure, once. */
static sluice_status add_work(struct walker *m, uint32_t at, uint32_t stack, sluice_error *err)
{
    struct config c = {at, stack};
    if (!index_room(&m->work_index, hash_work, m) ||
        !mem_grow((void **)&m->work, &m->cap_work, m->n_work + 1, sizeof *m->work))
        return no_memory(err);
    size_t slot = hash_configs(&c, 1) & (m->work_index.cap - 1);
    for (; m->work_index.slots[slot]; slot = (slot + 1) & (m->work_index.cap - 1)) {
        const struct config *w = &m->work[m->work_index.slots[slot] - 1];
        if (w->at == at && w->stack == stack)
            return SLUICE_OK;
    }
    if (m->n_work == CONFIGS_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "the grammar can be read in more than %d ways at one place; make it less ambiguous",
                       CONFIGS_MAX);
    m->work[m->n_work++] = c;
    m->work_index.slots[slot] = (uint32_t)m->n_work;
    m->work_index.n++;
    return SLUICE_OK;
}

static void clear_work(struct walker *m)
{
    if (m->n_work * 4 > m->work_index.cap || m->work_index.cap <= 256) {
        if (m->work_index.slots)
            memset(m->work_index.slots, 0, m->work_index.cap * sizeof *m->work_index.slots);
    } else {
        for (size_t i = 0; i < m->n_work; i++) { /* few in a large table: empty their runs */
            size_t slot = hash_work(m, (uint32_t)i) & (m->work_index.cap - 1);
            for (; m->work_index.slots[slot]; slot = (slot + 1) & (m->work_index.cap - 1))
                m->work_index.slots[slot] = 0;
        }
    }
    m->n_work = m->work_index.n = m->n_kept = 0;
}

static sluice_status keep(struct walker *m, struct config c, sluice_error *err)
{
    if (!mem_grow((void **)&m->kept, &m->cap_kept, m->n_kept + 1, sizeof *m->kept))
        return no_memory(err);
    m->kept[m->n_kept++] = c;
    return SLUICE_OK;
}

static sluice_status expand(struct walker *m, struct config c, sluice_error *err)
{
    const struct grammar *g = m->grammar;
    if (c.at == ACCEPT)
        return keep(m, c, err);
    if (g->flags[c.at] & POSITION_READS)
        TRY(keep(m, c, err));
    if (g->flags[c.at] & POSITION_END) {
        if (c.stack == 0)
            TRY(add_work(m, ACCEPT, 0, err));
        else
            TRY(add_work(m, m->frames[c.stack].back, m->frames[c.stack].parent, err));
    }
    if (g->flags[c.at] & POSITION_TAIL)
        return SLUICE_OK;
    for (uint32_t k = g->first[c.at]; k < g->first[c.at + 1]; k++) {
        const struct grammar_edge *e = &g->edges[k];
        uint32_t stack = c.stack;
        if (e->kind == EDGE_EMPTY) {
            TRY(add_work(m, e->to, stack, err));
        } else if (e->kind == EDGE_CALL) {
            /* A call at the very end of a rule returns to where the rule returns. */
            if (!(g->flags[e->to] & POSITION_TAIL))
                TRY(push(m, e->to, c.stack, &stack, err));
            TRY(add_work(m, g->starts[e->low], stack, err));
        }
    }
    return SLUICE_OK;
}

static int by_config(const void *a, const void *b)
{
    const struct config *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* The state of all places in m->work and what follows from them without reading. */
static sluice_status close_state(struct walker *m, uint32_t *out, sluice_error *err)
{
    for (size_t i = 0; i < m->n_work; i++)
        TRY(expand(m, m->work[i], err));
    *out = WALKER_DEAD;
    if (m->n_kept == 0)
        return SLUICE_OK;
    qsort(m->kept, m->n_kept, sizeof *m->kept, by_config);
    if (!index_room(&m->state_index, hash_state, m))
        return no_memory(err);
    size_t at = hash_configs(m->kept, m->n_kept) & (m->state_index.cap - 1);
    for (; m->state_index.slots[at]; at = (at + 1) & (m->state_index.cap - 1)) {
        *out = m->state_index.slots[at] - 1;
        const struct state *s = &m->states[*out];
        if (s->n == m->n_kept && memcmp(m->configs + s->configs, m->kept, m->n_kept * sizeof *m->kept) == 0)
            return SLUICE_OK;
    }
    if (!mem_grow((void **)&m->states, &m->cap_states, m->n_states + 1, sizeof *m->states) ||
        !mem_grow((void **)&m->configs, &m->cap_configs, m->n_configs + m->n_kept, sizeof *m->configs))
        return no_memory(err);
    memcpy(m->configs + m->n_configs, m->kept, m->n_kept * sizeof *m->kept);
    *out = (uint32_t)m->n_states;
    m->states[m->n_states++] = (struct state){(uint32_t)m->n_configs, (uint32_t)m->n_kept, NULL, UINT32_MAX};
    m->n_configs += m->n_kept;
    m->state_index.slots[at] = *out + 1;
    m->state_index.n++;
    return check_size(m, err);
}

/* ---- transitions ---- */

static sluice_status step(struct walker *m, uint32_t state, unsigned symbol, uint32_t *next,
                          sluice_error *err)
{
    const struct grammar *g = m->grammar;
    *next = WALKER_DEAD;
    if (!m->states[state].next) {
        uint32_t *table;
        if (!charge(m, GRAMMAR_SYMBOLS * sizeof *table)) {
            forget_transitions(m);
            if (!charge(m, GRAMMAR_SYMBOLS * sizeof *table))
                return grammar_no_budget(m->grammar->budget, err);
        }
        table = mem_alloc(GRAMMAR_SYMBOLS * sizeof *table);
        if (!table)
            return no_memory(err);
        for (size_t i = 0; i < GRAMMAR_SYMBOLS; i++)
            table[i] = UNKNOWN;
        m->states[state].next = table;
        m->next_bytes += GRAMMAR_SYMBOLS * sizeof *table;
    }
    if (m->states[state].next[symbol] != UNKNOWN) {
        *next = m->states[state].next[symbol];
        return SLUICE_OK;
    }
    clear_work(m);
    for (uint32_t i = 0; i < m->states[state].n; i++) {
        struct config c = m->configs[m->states[state].configs + i];
        if (c.at == ACCEPT)
            continue;
        for (uint32_t k = g->first[c.at]; k < g->first[c.at + 1]; k++) {
            const struct grammar_edge *e = &g->edges[k];
            if (e->kind != EDGE_SYMBOLS || e->low > symbol)
                break; /* symbols come first, in order */
            if (symbol <= e->high)
                TRY(add_work(m, e->to, c.stack, err));
        }
    }
    TRY(close_state(m, next, err));
    m->states[state].next[symbol] = *next;
    return SLUICE_OK;
}

sluice_status walker_symbol(struct walker *m, uint32_t state, unsigned symbol, uint32_t *next,
                            sluice_error *err)
{
    *next = WALKER_DEAD;
    return state == WALKER_DEAD ? SLUICE_OK : step(m, state, symbol, next, err);
}

sluice_status walker_bytes(struct walker *m, uint32_t state, const char *bytes, size_t n, uint32_t *next,
                           sluice_error *err)
{
    *next = state;
    for (size_t i = 0; i < n && *next != WALKER_DEAD; i++)
        TRY(step(m, *next, (unsigned char)bytes[i], next, err));
    return SLUICE_OK;
}

sluice_status walker_token(struct walker *m, uint32_t state, int32_t id, uint32_t *next, sluice_error *err)
{
    size_t n = 0;
    *next = WALKER_DEAD;
    for (size_t i = 0; i < m->n_marks; i++)
        if (m->mark_ids[i] == id)
            return walker_symbol(m, state, (unsigned)(256 + i), next, err);
    const char *bytes = tok_bytes(m->vocab->tokenizer, id, &n);
    if (!bytes || n == 0 || n > TOKEN_BYTES_MAX || tok_is_control(m->vocab->tokenizer, id))
        return SLUICE_OK;
    return walker_bytes(m, state, bytes, n, next, err);
}

bool walker_accepts(const struct walker *m, uint32_t state)
{
    /* ACCEPT is the greatest place, so it is the last. */
    return state != WALKER_DEAD && m->configs[m->states[state].configs + m->states[state].n - 1].at == ACCEPT;
}

bool walker_complete(const struct walker *m, uint32_t state)
{
    return walker_accepts(m, state) && m->states[state].n == 1;
}

/* ---- masks ---- */

static sluice_status fill_mask(struct walker *m, uint32_t state, uint64_t *bits, bool *any, sluice_error *err)
{
    const struct grammar_vocab *vocab = m->vocab;
    uint32_t path[TOKEN_BYTES_MAX + 1], next = WALKER_DEAD;
    path[0] = state;
    *any = false;
    for (size_t i = 0; i < vocab->n;) {
        const struct sorted *t = &vocab->v[i++];
        size_t depth = t->common;
        for (; depth < t->n; depth++) {
            const struct state *from = &m->states[path[depth]];
            unsigned symbol = (unsigned char)t->bytes[depth];
            if (from->next && from->next[symbol] != UNKNOWN)
                next = from->next[symbol];
            else
                TRY(step(m, path[depth], symbol, &next, err));
            if (next == WALKER_DEAD)
                break;
            path[depth + 1] = next;
        }
        if (depth < t->n) { /* so do all that share this beginning */
            while (i < vocab->n && vocab->v[i].common > depth)
                i++;
            continue;
        }
        bits[t->id / 64] |= (uint64_t)1 << (t->id % 64);
        *any = true;
    }
    for (size_t i = 0; i < m->n_marks; i++) {
        if (m->mark_ids[i] < 0)
            continue;
        TRY(step(m, state, (unsigned)(256 + i), &next, err));
        if (next != WALKER_DEAD) {
            bits[m->mark_ids[i] / 64] |= (uint64_t)1 << (m->mark_ids[i] % 64);
            *any = true;
        }
    }
    return SLUICE_OK;
}

/* A mask to fill: a new one while there is room, then the oldest. */
static sluice_status take_mask(struct walker *m, uint32_t *out, sluice_error *err)
{
    size_t bytes = (m->words + 1) * sizeof(uint64_t);
    bool room = m->mask_bytes + bytes <= MASKS_BYTES_MAX && charge(m, bytes);
    if (m->n_masks == 0 && !room)
        return grammar_no_budget(m->grammar->budget, err);
    if (room) {
        if (!mem_grow((void **)&m->masks, &m->cap_masks, m->n_masks + 1, sizeof *m->masks))
            return no_memory(err);
        uint64_t *bits = mem_calloc(1, bytes);
        if (!bits)
            return no_memory(err);
        m->mask_bytes += bytes;
        *out = (uint32_t)m->n_masks;
        m->masks[m->n_masks++] = (struct mask){bits, WALKER_DEAD, false};
        return SLUICE_OK;
    }
    *out = (uint32_t)(m->next_mask++ % m->n_masks);
    if (m->masks[*out].state != WALKER_DEAD)
        m->states[m->masks[*out].state].mask = UINT32_MAX;
    m->masks[*out].state = WALKER_DEAD;
    memset(m->masks[*out].bits, 0, bytes);
    return SLUICE_OK;
}

sluice_status walker_mask(struct walker *m, uint32_t state, const uint64_t **bits, bool *any,
                          sluice_error *err)
{
    if (m->states[state].mask == UINT32_MAX) {
        uint32_t place = 0;
        TRY(take_mask(m, &place, err));
        TRY(fill_mask(m, state, m->masks[place].bits, &m->masks[place].any, err));
        m->masks[place].state = state;
        m->states[state].mask = place;
    }
    const struct mask *mask = &m->masks[m->states[state].mask];
    *bits = mask->bits;
    *any = mask->any;
    return SLUICE_OK;
}

/* ---- open and close ---- */

sluice_status walker_open(const struct grammar *grammar, const struct grammar_vocab *vocab,
                          const int32_t *mark_ids, size_t n_marks, struct walker **out, sluice_error *err)
{
    struct walker *m = mem_calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return no_memory(err);
    m->grammar = grammar;
    m->vocab = vocab;
    m->n_marks = n_marks < GRAMMAR_MARKS_MAX ? n_marks : GRAMMAR_MARKS_MAX;
    for (size_t i = 0; i < m->n_marks; i++)
        m->mark_ids[i] = mark_ids[i];
    m->words = vocab ? vocab->n_ids / 64 + 1 : 1;
    sluice_status status = SLUICE_OK;
    if (mem_grow((void **)&m->frames, &m->cap_frames, 1, sizeof *m->frames))
        m->frames[m->n_frames++] = (struct frame){UINT32_MAX, 0, 0};
    else
        status = no_memory(err);
    if (status == SLUICE_OK)
        status = add_work(m, grammar->starts[grammar->root], 0, err);
    if (status == SLUICE_OK)
        status = close_state(m, &m->start, err);
    if (status != SLUICE_OK) {
        walker_close(m);
        return status;
    }
    *out = m;
    return SLUICE_OK;
}

void walker_close(struct walker *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_states; i++)
        mem_free(m->states[i].next);
    for (size_t i = 0; i < m->n_masks; i++)
        mem_free(m->masks[i].bits);
    mem_free(m->frames);
    mem_free(m->frame_index.slots);
    mem_free(m->configs);
    mem_free(m->states);
    mem_free(m->state_index.slots);
    mem_free(m->work);
    mem_free(m->work_index.slots);
    mem_free(m->kept);
    mem_free(m->masks);
    if (m->grammar->budget)
        budget_release(m->grammar->budget, m->charged_bytes);
    mem_free(m);
}

uint32_t walker_start(const struct walker *m)
{
    return m->start;
}
