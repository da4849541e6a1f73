#include "text/stops.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

/* Knuth, Morris and Pratt: how much of the string is still matched when the next byte does not fit. */
static unsigned short *failures(const char *p, size_t n)
{
    unsigned short *table = mem_alloc(n * sizeof *table);
    if (!table)
        return NULL;
    table[0] = 0;
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k && p[i] != p[k])
            k = table[k - 1];
        k += p[i] == p[k];
        table[i] = (unsigned short)k;
    }
    return table;
}

sluice_status stops_open(struct stops *stops, const char *const *texts, size_t n, sluice_error *err)
{
    memset(stops, 0, sizeof *stops);
    if (n > STOPS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%zu stop strings are too many, the limit is %d", n,
                       STOPS_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(texts[i]);
        sluice_status status = SLUICE_OK;
        if (bytes == 0 || bytes > STOP_BYTES_MAX)
            status = err_set(err, SLUICE_E_ARGUMENT, "stop string %zu has %zu bytes, it must have 1 to %d",
                             i + 1, bytes, STOP_BYTES_MAX);
        else if (utf8_valid_prefix(texts[i], bytes) != bytes)
            status = err_set(err, SLUICE_E_ARGUMENT, "stop string %zu is not UTF-8", i + 1);
        else if (!str_append(&stops->texts[i], texts[i], bytes) ||
                 !(stops->failure[i] = failures(texts[i], bytes)))
            status = err_memory(err, bytes, "a stop string");
        stops->n = i + 1;
        if (status != SLUICE_OK) {
            stops_close(stops);
            return status;
        }
    }
    return SLUICE_OK;
}

void stops_close(struct stops *stops)
{
    for (size_t i = 0; i < stops->n; i++) {
        str_free(&stops->texts[i]);
        mem_free(stops->failure[i]);
    }
    str_free(&stops->held);
    memset(stops, 0, sizeof *stops);
}

/* Take one byte of the text; the completed stop string or -1. *keep: bytes at the end that may grow into one.
 */
static int step(struct stops *stops, char c, size_t *keep)
{
    int hit = -1;
    *keep = 0;
    for (size_t i = 0; i < stops->n; i++) {
        const struct str *text = &stops->texts[i];
        size_t k = stops->matched[i];
        while (k && c != text->p[k])
            k = stops->failure[i][k - 1];
        k += c == text->p[k];
        if (k == text->len && (hit < 0 || text->len > stops->texts[hit].len))
            hit = (int)i;
        stops->matched[i] = k;
        if (k > *keep)
            *keep = k;
    }
    return hit;
}

sluice_status stops_feed(struct stops *stops, const char *text, size_t n, struct str *out, int *hit,
                         sluice_error *err)
{
    struct str *held = &stops->held;
    *hit = -1;
    /* All memory first: a refused feed has changed nothing. */
    if (!str_reserve(held, n) || !str_reserve(out, held->len + n))
        return err_memory(err, n, "text before a stop string");
    size_t keep = 0;
    for (size_t i = 0; i < n && *hit < 0; i++) {
        *hit = step(stops, text[i], &keep);
        held->p[held->len++] = text[i];
    }
    if (n == 0)
        return SLUICE_OK;
    if (*hit >= 0)
        keep = stops->texts[*hit].len;
    size_t final = held->len - keep;
    (void)str_append(out, held->p, final);
    memmove(held->p, held->p + final, keep);
    held->len = *hit >= 0 ? 0 : keep;
    held->p[held->len] = '\0';
    return SLUICE_OK;
}

sluice_status stops_finish(struct stops *stops, struct str *out, sluice_error *err)
{
    if (!str_append(out, stops->held.p, stops->held.len))
        return err_memory(err, stops->held.len, "text before a stop string");
    str_clear(&stops->held);
    memset(stops->matched, 0, sizeof stops->matched);
    return SLUICE_OK;
}
