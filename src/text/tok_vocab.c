#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ x >> 32;
}

static uint32_t hash_text(const char *p, size_t n)
{
    uint64_t h = n;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = mix(h ^ word);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, n);
    return (uint32_t)mix(h ^ tail);
}

static uint32_t hash_pair(uint32_t left, uint32_t right)
{
    return (uint32_t)mix((uint64_t)left << 32 | right);
}

/* A power of two that stays at most half full. */
static sluice_status open_slots(uint32_t **slots, uint32_t *mask, size_t items, sluice_error *err)
{
    size_t count = 16;
    while (count < 2 * items)
        count *= 2;
    *slots = mem_alloc(count * sizeof **slots);
    if (!*slots)
        return err_memory(err, count * sizeof **slots, TOK_FILE);
    memset(*slots, 0xFF, count * sizeof **slots);
    *mask = (uint32_t)(count - 1);
    return SLUICE_OK;
}

/* ---- spellings ---- */

/* The slot of a spelling, or the free one where it belongs. */
static uint32_t find_slot(const struct vocab *v, const char *text, size_t n)
{
    for (uint32_t at = hash_text(text, n);; at++) {
        at &= v->slot_mask;
        uint32_t id = v->slots[at];
        size_t bytes;
        if (id == TOK_NONE)
            return at;
        const char *have = vocab_text(v, id, &bytes);
        if (have && bytes == n && memcmp(have, text, n) == 0)
            return at;
    }
}

uint32_t vocab_find(const struct vocab *v, const char *text, size_t n)
{
    return v->slots[find_slot(v, text, n)];
}

struct spelling {
    const char *text;
    size_t bytes;
    bool model;
};

/* Spellings by id, borrowed from the JSON tree. */
struct listing {
    struct spelling *v;
    size_t n, cap;
    size_t pool_bytes, count;
};

static sluice_status list_token(struct listing *list, json_int_t id, const char *text, size_t bytes,
                                bool model, sluice_error *err)
{
    if (id < 0 || id >= TOK_IDS_MAX)
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": token id %lld is not from 0 to %d", (long long)id,
                       TOK_IDS_MAX - 1);
    size_t at = (size_t)id;
    if (at >= list->n) {
        if (!mem_grow((void **)&list->v, &list->cap, at + 1, sizeof *list->v))
            return err_memory(err, (at + 1) * sizeof *list->v, TOK_FILE);
        memset(list->v + list->n, 0, (at + 1 - list->n) * sizeof *list->v);
        list->n = at + 1;
    }
    struct spelling *s = &list->v[at];
    if (s->text) {
        if (s->bytes == bytes && memcmp(s->text, text, bytes) == 0)
            return SLUICE_OK;
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": two tokens have the id %zu", at);
    }
    *s = (struct spelling){text, bytes, model};
    if (!size_add(list->pool_bytes, bytes + 1, &list->pool_bytes) || list->pool_bytes >= UINT32_MAX)
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": the spellings are longer than 4 GiB");
    list->count++;
    return SLUICE_OK;
}

static sluice_status list_all(struct listing *list, const json_t *model_vocab, const json_t *added,
                              sluice_error *err)
{
    const char *text;
    json_t *value;
    json_object_foreach((json_t *)model_vocab, text, value)
    {
        if (!json_is_integer(value))
            return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": the id of a token is not an integer");
        TRY(list_token(list, json_integer_value(value), text, strlen(text), true, err));
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        uint32_t id;
        TRY(json_need_u32(token, "id", 0, TOK_IDS_MAX - 1, &id, TOK_FILE, err));
        TRY(json_need_string(token, "content", &text, TOK_FILE, err));
        TRY(list_token(list, id, text, strlen(text), false, err));
    }
    return SLUICE_OK;
}

/* Spellings go to the pool; an equal one under two ids is an error, for text could not tell them apart. */
static sluice_status store(struct vocab *v, const struct listing *list, sluice_error *err)
{
    v->n_ids = (uint32_t)list->n;
    v->offset = mem_alloc((list->n + 1) * sizeof *v->offset);
    v->pool = mem_alloc(list->pool_bytes);
    v->in_model = mem_calloc(list->n / 8 + 1, 1);
    if (!v->offset || !v->pool || !v->in_model)
        return err_memory(err, list->pool_bytes, TOK_FILE);
    TRY(open_slots(&v->slots, &v->slot_mask, list->count, err));
    uint32_t at = 0;
    for (size_t id = 0; id < list->n; id++) {
        const struct spelling *s = &list->v[id];
        v->offset[id] = at;
        if (!s->text)
            continue;
        memcpy(v->pool + at, s->text, s->bytes);
        v->pool[at + s->bytes] = '\0';
        at += (uint32_t)s->bytes + 1;
        if (s->model)
            v->in_model[id / 8] |= (unsigned char)(1 << (id % 8));
    }
    v->offset[list->n] = at;
    for (uint32_t id = 0; id < v->n_ids; id++) {
        size_t n;
        const char *text = vocab_text(v, id, &n);
        if (!text)
            continue;
        uint32_t slot = find_slot(v, text, n);
        if (v->slots[slot] != TOK_NONE)
            return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": ids %u and %u have the same spelling",
                           v->slots[slot], id);
        v->slots[slot] = id;
    }
    return SLUICE_OK;
}

sluice_status vocab_open(struct vocab *v, const json_t *model_vocab, const json_t *added, sluice_error *err)
{
    struct listing list = {0};
    sluice_status status = list_all(&list, model_vocab, added, err);
    if (status == SLUICE_OK)
        status = store(v, &list, err);
    mem_free(list.v);
    return status;
}

void vocab_close(struct vocab *v)
{
    mem_free(v->pool);
    mem_free(v->offset);
    mem_free(v->slots);
    mem_free(v->in_model);
    mem_free(v->merges);
    mem_free(v->merge_slots);
}

void vocab_index(struct vocab *v, const unsigned char *flags)
{
    for (uint32_t cp = 0; cp < TOK_DIRECT; cp++) {
        char text[4];
        uint32_t id = vocab_find(v, text, utf8_encode(cp, text));
        v->direct[cp] = id != TOK_NONE && vocab_in_model(v, id) && !(flags[id] & TOK_CONTROL) ? id : TOK_NONE;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        uint32_t id = vocab_find(v, text, 6);
        v->bytes[byte] = id != TOK_NONE && vocab_in_model(v, id) ? id : TOK_NONE;
    }
}

/* ---- merges ---- */

static uint32_t pair_slot(const struct vocab *v, uint32_t left, uint32_t right)
{
    for (uint32_t at = hash_pair(left, right);; at++) {
        at &= v->merge_mask;
        uint32_t rank = v->merge_slots[at];
        if (rank == TOK_NONE || (v->merges[rank].left == left && v->merges[rank].right == right))
            return at;
    }
}

uint32_t vocab_merge(const struct vocab *v, uint32_t left, uint32_t right)
{
    return v->merge_slots[pair_slot(v, left, right)];
}

struct halves {
    const char *left, *right;
    size_t left_bytes, right_bytes;
};

/* ["a", "b"] or "a b". *skip: a comment line of the old spelling. */
static sluice_status read_merge(const json_t *item, size_t index, struct halves *h, bool *skip,
                                sluice_error *err)
{
    *skip = false;
    const json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
    if (json_array_size(item) == 2 && json_is_string(left) && json_is_string(right)) {
        *h = (struct halves){json_string_value(left), json_string_value(right), json_string_length(left),
                             json_string_length(right)};
        return SLUICE_OK;
    }
    const char *text = json_string_value(item);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (text && strncmp(text, "#version", 8) == 0) {
        *skip = true;
        return SLUICE_OK;
    }
    if (!space || strchr(space + 1, ' '))
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": merge %zu is neither \"a b\" nor [\"a\", \"b\"]",
                       index);
    *h = (struct halves){text, space + 1, (size_t)(space - text),
                         json_string_length(item) - (size_t)(space + 1 - text)};
    return SLUICE_OK;
}

static uint32_t find_model(const struct vocab *v, const char *text, size_t n)
{
    uint32_t id = vocab_find(v, text, n);
    return id != TOK_NONE && vocab_in_model(v, id) ? id : TOK_NONE;
}

sluice_status vocab_reserve_merges(struct vocab *v, size_t count, sluice_error *err)
{
    if (count > TOK_MERGES_MAX)
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE " has %zu merges, the limit is %d", count,
                       TOK_MERGES_MAX);
    v->merges = mem_alloc(count * sizeof *v->merges);
    if (!v->merges)
        return err_memory(err, count * sizeof *v->merges, TOK_FILE);
    v->cap_merges = (uint32_t)count;
    return open_slots(&v->merge_slots, &v->merge_mask, count, err);
}

static sluice_status add_merge(struct vocab *v, const struct halves *h, struct str *joined,
                               const unsigned char *flags, sluice_error *err)
{
    str_clear(joined);
    if (!str_append(joined, h->left, h->left_bytes) || !str_append(joined, h->right, h->right_bytes))
        return err_memory(err, h->left_bytes + h->right_bytes, TOK_FILE);
    struct merge m = {find_model(v, h->left, h->left_bytes), find_model(v, h->right, h->right_bytes),
                      find_model(v, joined->p, joined->len)};
    if (m.left == TOK_NONE || m.right == TOK_NONE || m.merged == TOK_NONE)
        return err_set(err, SLUICE_E_FORMAT, TOK_FILE ": merge %u names a token that is not there",
                       v->n_merges);
    uint32_t rank = v->n_merges++;
    v->merges[rank] = m;
    if (!(flags[m.merged] & TOK_CONTROL))
        v->merge_slots[pair_slot(v, m.left, m.right)] = rank;
    return SLUICE_OK;
}

sluice_status vocab_add_merges(struct vocab *v, const json_t *merges, const unsigned char *flags,
                               sluice_error *err)
{
    struct str joined = {0};
    sluice_status status = SLUICE_OK;
    size_t count = json_array_size(merges);
    assert(count <= v->cap_merges - v->n_merges);
    for (size_t i = 0; i < count && status == SLUICE_OK; i++) {
        struct halves h = {"", "", 0, 0};
        bool skip;
        status = read_merge(json_array_get(merges, i), v->n_merges, &h, &skip, err);
        if (status == SLUICE_OK && !skip)
            status = add_merge(v, &h, &joined, flags, err);
    }
    str_free(&joined);
    return status;
}
