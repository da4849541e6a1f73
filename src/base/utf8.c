#include "base/utf8.h"

/* Sequence length from the lead byte, and the allowed range of the second byte (Unicode table 3-7);
 * later bytes are always 80..BF. */
static size_t lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        return 2;
    if (c >= 0xE0 && c <= 0xEF) {
        if (c == 0xE0)
            *lo = 0xA0;
        if (c == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (c == 0xF0)
            *lo = 0x90;
        if (c == 0xF4)
            *hi = 0x8F;
        return 4;
    }
    return 0;
}

/* Bytes of the sequence at p that are valid so far; *want is its full length (0: invalid lead). */
static size_t matched(const char *p, size_t n, size_t *want)
{
    unsigned char lo, hi;
    *want = lead((unsigned char)p[0], &lo, &hi);
    if (*want == 0)
        return 0;
    size_t i = 1;
    for (; i < *want && i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c < lo || c > hi)
            break;
        lo = 0x80;
        hi = 0xBF;
    }
    return i;
}

size_t utf8_decode(const char *p, size_t n, uint32_t *cp, int *valid)
{
    size_t want, have = matched(p, n, &want);
    if (want == 0 || have < want) {
        *cp = UTF8_REPLACEMENT;
        if (valid)
            *valid = 0;
        return have ? have : 1;
    }
    static const unsigned char LEAD_MASK[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t value = (unsigned char)p[0] & LEAD_MASK[want];
    for (size_t i = 1; i < want; i++)
        value = value << 6 | ((unsigned char)p[i] & 0x3F);
    *cp = value;
    if (valid)
        *valid = 1;
    return want;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_complete_prefix(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t at = n - back, want;
        if (((unsigned char)p[at] & 0xC0) == 0x80)
            continue; /* a continuation byte: its lead is further left */
        size_t have = matched(p + at, back, &want);
        return want > back && have == back ? at : n;
    }
    return n;
}

size_t utf8_valid_prefix(const char *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t cp;
        int valid;
        size_t used = utf8_decode(p + at, n - at, &cp, &valid);
        if (!valid)
            break;
        at += used;
    }
    return at;
}
