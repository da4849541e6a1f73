#include "base/ascii.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tok_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- flags ---- */

#define FULLWIDTH_BAR "\xEF\xBD\x9C" /* U+FF5C, DeepSeek's bracket */

static bool has_letter(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ascii_is_letter(p[i]))
            return true;
    return false;
}

/* Checkpoints list <think>, <｜User｜>, <tool_call> or <dsml: as ordinary added tokens, and still give them a
 * meaning that the writer of a message must not reach. */
static bool looks_like_markup(const char *p, size_t n)
{
    if (n < 2)
        return false;
    if ((p[0] == '<' && p[n - 1] == '>') || (p[0] == '[' && p[n - 1] == ']'))
        return true;
    bool opens = p[0] == '<' || (n >= 3 && memcmp(p, FULLWIDTH_BAR, 3) == 0);
    return opens && has_letter(p, n);
}

sluice_status added_flags(const struct vocab *v, const json_t *added, unsigned char *flags, sluice_error *err)
{
    static const struct {
        const char *key;
        unsigned char flag;
    } KEYS[] = {{"special", TOK_SPECIAL},
                {"lstrip", TOK_LSTRIP},
                {"rstrip", TOK_RSTRIP},
                {"single_word", TOK_SINGLE_WORD},
                {"normalized", TOK_NORMALIZED}};
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        json_int_t id = json_integer_value(json_object_get(token, "id"));
        unsigned flag = TOK_ADDED;
        for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
            bool set;
            TRY(tok_bool(token, KEYS[k].key, false, &set, err));
            if (set)
                flag |= KEYS[k].flag;
        }
        size_t n = 0;
        const char *text = vocab_text(v, (uint32_t)id, &n);
        if (n > TOK_ADDED_BYTES_MAX)
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           TOK_FILE ": added token %lld has %zu bytes, the limit is %d", (long long)id, n,
                           TOK_ADDED_BYTES_MAX);
        if ((flag & TOK_SPECIAL) || looks_like_markup(text, n))
            flag |= TOK_CONTROL;
        flags[id] = (unsigned char)flag;
    }
    return SLUICE_OK;
}

/* ---- the sorted set ---- */

static int by_text(const void *a, const void *b)
{
    const struct added_entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (order)
        return order;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Tokens with `normalized` are looked for as the normalizers spell them. */
static sluice_status normalize_entries(struct added_set *set, const struct norm_chain *norm,
                                       sluice_error *err)
{
    struct regex_run run = {0};
    struct marked_text text = {0}, spare = {0};
    struct str owned = {0};
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < set->n; i++) {
        str_clear(&text.text);
        if (!str_append(&text.text, set->v[i].text, set->v[i].bytes)) {
            status = err_memory(err, set->v[i].bytes, TOK_FILE);
            goto out;
        }
        TRY_OUT(norm_apply(norm, &run, &text, &spare, false, err));
        set->v[i].bytes = (uint32_t)text.text.len;
        if (!str_append(&owned, text.text.p, text.text.len)) {
            status = err_memory(err, owned.len, TOK_FILE);
            goto out;
        }
    }
    set->owned = str_take(&owned);
    if (!set->owned) {
        status = err_memory(err, 1, TOK_FILE);
        goto out;
    }
    size_t at = 0;
    for (size_t i = 0; i < set->n; at += set->v[i++].bytes)
        set->v[i].text = set->owned + at;
out:
    regex_run_close(&run);
    str_free(&text.text);
    str_free(&spare.text);
    str_free(&owned);
    return status;
}

sluice_status added_open(struct added_set *set, const struct vocab *v, const unsigned char *flags,
                         bool normalized, const struct norm_chain *norm, sluice_error *err)
{
    size_t cap = 0;
    for (uint32_t id = 0; id < v->n_ids; id++) {
        size_t n = 0;
        const char *text = vocab_text(v, id, &n);
        bool wanted = (flags[id] & TOK_ADDED) && n > 0 && !(flags[id] & TOK_NORMALIZED) == !normalized;
        if (!text || !wanted)
            continue;
        if (!mem_grow((void **)&set->v, &cap, set->n + 1, sizeof *set->v))
            return err_memory(err, (set->n + 1) * sizeof *set->v, TOK_FILE);
        set->v[set->n++] = (struct added_entry){id, (uint32_t)n, text};
    }
    if (normalized && norm->n && set->n)
        TRY(normalize_entries(set, norm, err));
    if (set->n)
        qsort(set->v, set->n, sizeof *set->v, by_text);
    size_t at = 0;
    while (at < set->n && set->v[at].bytes == 0) /* normalized to nothing: cannot be found */
        at++;
    for (unsigned byte = 0; byte < 256; byte++) {
        set->first[byte] = (uint32_t)at;
        while (at < set->n && (unsigned char)set->v[at].text[0] == byte)
            at++;
    }
    set->first[256] = (uint32_t)at;
    return SLUICE_OK;
}

void added_close(struct added_set *set)
{
    mem_free(set->v);
    mem_free(set->owned);
}

/* ---- searching ---- */

static bool may_match(unsigned char flag, const unsigned char *trusted, bool special, size_t n)
{
    if (!(flag & TOK_CONTROL))
        return true;
    if (!trusted)
        return special;
    for (size_t i = 0; i < n; i++)
        if (!trusted[i])
            return false;
    return true;
}

/* First entry of [lo, hi) whose byte at `depth` is at least `byte`; all are longer than depth. */
static size_t lower_bound(const struct added_set *set, size_t lo, size_t hi, size_t depth, unsigned byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)set->v[mid].text[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest entry that starts at p and may match there, or NULL. */
static const struct added_entry *longest(const struct added_set *set, const unsigned char *flags,
                                         const char *p, size_t n, const unsigned char *trusted, bool special)
{
    const struct added_entry *best = NULL;
    unsigned byte = (unsigned char)p[0];
    size_t lo = set->first[byte], hi = set->first[byte + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        for (; lo < hi && set->v[lo].bytes == depth; lo++)
            if ((!best || best->bytes < depth) && may_match(flags[set->v[lo].id], trusted, special, depth))
                best = &set->v[lo];
        if (depth == n)
            break;
        byte = (unsigned char)p[depth];
        lo = lower_bound(set, lo, hi, depth, byte);
        hi = lower_bound(set, lo, hi, depth, byte + 1);
    }
    return best;
}

static bool stands_alone(const char *text, size_t n, size_t start, size_t end)
{
    uint32_t cp;
    if (start > 0 && uni_is_word(uni_last(text, start)))
        return false;
    if (end == n)
        return true;
    (void)utf8_decode(text + end, n - end, &cp, NULL);
    return !uni_is_word(cp);
}

bool added_next(const struct added_set *set, const unsigned char *flags, const char *text, size_t n,
                const unsigned char *trusted, bool special, struct added_walk *walk,
                struct added_match *match)
{
    if (set->n == 0)
        return false;
    while (walk->at < n) {
        size_t at = walk->at;
        unsigned byte = (unsigned char)text[at];
        const struct added_entry *hit = NULL;
        if (set->first[byte] != set->first[byte + 1])
            hit = longest(set, flags, text + at, n - at, trusted ? trusted + at : NULL, special);
        if (!hit) {
            walk->at++;
            continue;
        }
        size_t end = at + hit->bytes;
        unsigned char flag = flags[hit->id];
        walk->at = end;
        if ((flag & TOK_SINGLE_WORD) && !stands_alone(text, n, at, end))
            continue;
        match->id = hit->id;
        match->start = at;
        if (flag & TOK_LSTRIP) {
            size_t start = at - uni_space_suffix(text, at);
            match->start = start > walk->taken ? start : walk->taken;
        }
        match->end = flag & TOK_RSTRIP ? end + uni_space_prefix(text + end, n - end) : end;
        return true;
    }
    return false;
}
