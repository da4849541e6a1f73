#include "base/mem.h"
#include "text/tok_internal.h"

#include <string.h>

/* Only brackets and strings are followed here; what is read wrongly by that (in a text that is no JSON) is
 * found by the parser, which gets every byte in one part or another. */

enum { PART_BYTES = 1 << 18 };

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Behind the string that starts at `at`; n when it does not end. */
static size_t string_end(const char *p, size_t n, size_t at)
{
    for (at++; at < n; at++) {
        if (p[at] == '\\')
            at++;
        else if (p[at] == '"')
            return at + 1;
    }
    return n;
}

/* Behind the value that starts at `at`: a bracket, a string, or anything up to a comma or bracket. */
static size_t value_end(const char *p, size_t n, size_t at)
{
    size_t depth = 0;
    while (at < n) {
        char c = p[at];
        if (c == '"') {
            at = string_end(p, n, at);
            if (depth == 0)
                return at;
            continue;
        }
        if (c == ']' || c == '}' || (c == ',' && depth == 0)) {
            if (depth == 0)
                return at;
            if (c != ',' && --depth == 0)
                return at + 1;
        } else if (c == '[' || c == '{') {
            depth++;
        }
        at++;
    }
    return n;
}

static size_t skip_space(const char *p, size_t n, size_t at)
{
    while (at < n && is_space(p[at]))
        at++;
    return at;
}

/* Where the value of a member starts, in the object that starts at `at`; n: not found. */
static size_t find_member(const char *p, size_t n, size_t at, const char *key)
{
    size_t length = strlen(key);
    at = skip_space(p, n, at);
    if (at >= n || p[at] != '{')
        return n;
    for (at = skip_space(p, n, at + 1); at < n && p[at] == '"';) {
        size_t end = string_end(p, n, at);
        bool found = end - at == length + 2 && memcmp(p + at + 1, key, length) == 0;
        at = skip_space(p, n, end);
        if (at >= n || p[at] != ':')
            return n;
        at = skip_space(p, n, at + 1);
        if (found)
            return at;
        at = skip_space(p, n, value_end(p, n, at));
        if (at >= n || p[at] != ',')
            return n;
        at = skip_space(p, n, at + 1);
    }
    return n;
}

/* The elements between the brackets. False: not laid out as an array is. */
static bool count_elements(const char *p, size_t n, size_t *count)
{
    size_t at = skip_space(p, n, 0);
    *count = 0;
    while (at < n) {
        size_t end = value_end(p, n, at);
        if (end == at)
            return false;
        ++*count;
        at = skip_space(p, n, end);
        if (at == n)
            return true;
        if (p[at] != ',')
            return false;
        at = skip_space(p, n, at + 1);
        if (at == n)
            return false;
    }
    return true;
}

sluice_status tok_document_open(struct tok_document *d, const char *json, size_t bytes, sluice_error *err)
{
    size_t start = find_member(json, bytes, find_member(json, bytes, 0, "model"), "merges");
    size_t end = start < bytes && json[start] == '[' ? value_end(json, bytes, start) : start;
    memset(d, 0, sizeof *d);
    d->whole = end - start < 2;
    if (!d->whole) {
        d->merges = json + start + 1;
        d->merges_bytes = end - start - 2;
        d->whole = json[end - 1] != ']' || !count_elements(d->merges, d->merges_bytes, &d->n_merges);
    }
    if (d->whole)
        return json_parse(json, bytes, TOK_FILE, &d->root, err);
    struct str rest = {0};
    if (!str_append(&rest, json, start + 1) || !str_append(&rest, json + end - 1, bytes - end + 1)) {
        str_free(&rest);
        return err_memory(err, bytes, TOK_FILE);
    }
    sluice_status status = json_parse(rest.p, rest.len, TOK_FILE, &d->root, err);
    str_free(&rest);
    return status;
}

void tok_document_close(struct tok_document *d)
{
    json_decref(d->root);
    memset(d, 0, sizeof *d);
}

/* One part: elements from `at` on, up to about PART_BYTES. *next: where the next part starts. */
static sluice_status read_part(const struct tok_document *d, size_t at, size_t *next, struct str *text,
                               struct vocab *v, const unsigned char *flags, sluice_error *err)
{
    const char *p = d->merges;
    size_t n = d->merges_bytes, end = at;
    for (;; end++) { /* from comma to comma: count_elements() has seen them */
        end = skip_space(p, n, value_end(p, n, end));
        if (end >= n || end - at >= PART_BYTES)
            break;
    }
    *next = end < n ? end + 1 : n;
    json_t *part = NULL;
    str_clear(text);
    if (!str_putc(text, '[') || !str_append(text, p + at, end - at) || !str_putc(text, ']'))
        return err_memory(err, end - at, TOK_FILE);
    TRY(json_parse(text->p, text->len, TOK_FILE ": model.merges", &part, err));
    sluice_status status = vocab_add_merges(v, part, flags, err);
    json_decref(part);
    return status;
}

sluice_status tok_document_merges(const struct tok_document *d, struct vocab *v, const unsigned char *flags,
                                  sluice_error *err)
{
    const json_t *merges = json_object_get(json_object_get(d->root, "model"), "merges");
    if (d->whole) {
        TRY(vocab_reserve_merges(v, json_array_size(merges), err));
        return vocab_add_merges(v, merges, flags, err);
    }
    TRY(vocab_reserve_merges(v, d->n_merges, err));
    struct str text = {0};
    sluice_status status = SLUICE_OK;
    size_t at = skip_space(d->merges, d->merges_bytes, 0);
    while (at < d->merges_bytes && status == SLUICE_OK)
        status = read_part(d, at, &at, &text, v, flags, err);
    str_free(&text);
    return status;
}
