#include "text/unicode.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

bool uni_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F ||
           cp == 0x3000;
}

bool uni_is_numeric(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

bool uni_is_word(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* Join_Control, and the circled and squared letters: symbols with the property Other_Alphabetic. */
        return cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) ||
               (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
               (cp >= 0x1F170 && cp <= 0x1F189);
    }
}

bool uni_is_punct(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 0x21 && cp <= 0x2F) || (cp >= 0x3A && cp <= 0x40) || (cp >= 0x5B && cp <= 0x60) ||
               (cp >= 0x7B && cp <= 0x7E);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)cp);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

size_t uni_space_prefix(const char *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t cp;
        size_t used = utf8_decode(p + at, n - at, &cp, NULL);
        if (!uni_is_space(cp))
            break;
        at += used;
    }
    return at;
}

static size_t last_start(const char *p, size_t n)
{
    size_t at = n - 1;
    while (at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80)
        at--;
    return at;
}

uint32_t uni_last(const char *p, size_t n)
{
    uint32_t cp;
    size_t at = last_start(p, n);
    (void)utf8_decode(p + at, n - at, &cp, NULL);
    return cp;
}

size_t uni_space_suffix(const char *p, size_t n)
{
    size_t end = n;
    while (end > 0 && uni_is_space(uni_last(p, end)))
        end = last_start(p, end);
    return n - end;
}

size_t uni_lower(uint32_t cp, uint32_t out[2])
{
    if (cp == 0x130) { /* the one code point whose lower case is two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}

/* ---- normal forms ---- */

/* utf8proc_decompose() orders combining marks by insertion, which is quadratic in the length of a run; a
 * foreign text may be one long run. So the pieces are called one by one: decompose a code point, sort each
 * run of marks by class with a stable merge, compose. */

/* The crate that Hugging Face normalizes with has the tables of Unicode 9; utf8proc has newer ones. These
 * code points were given a combining class or a decomposition since, and are left alone. */
static const struct range {
    uint32_t first, last;
} NEWER[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

static bool is_newer(uint32_t cp)
{
    size_t low = 0, high = sizeof NEWER / sizeof *NEWER;
    if (cp < NEWER[0].first)
        return false;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (NEWER[mid].first <= cp)
            low = mid;
        else
            high = mid;
    }
    return cp <= NEWER[low].last;
}

struct marked {
    uint32_t cp;
    uint32_t class;
};

struct buffer {
    struct marked *v, *spare;
    size_t n, cap, spare_cap;
};

/* The longest decomposition of one code point is 18 (U+FDFA). */
enum { DECOMPOSED_MAX = 32 };

static bool decompose(enum uni_form form, const char *p, size_t n, struct buffer *b)
{
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == UNI_NFKC || form == UNI_NFKD)
        options |= UTF8PROC_COMPAT;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        at += utf8_decode(p + at, n - at, &cp, NULL);
        utf8proc_int32_t parts[DECOMPOSED_MAX];
        int boundclass = 0;
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)cp, parts, DECOMPOSED_MAX, options, &boundclass);
        bool newer = is_newer(cp);
        if (newer || count < 0 || count > DECOMPOSED_MAX) {
            parts[0] = (utf8proc_int32_t)cp;
            count = 1;
        }
        if (!mem_grow((void **)&b->v, &b->cap, b->n + (size_t)count, sizeof *b->v))
            return false;
        for (utf8proc_ssize_t i = 0; i < count; i++) {
            const utf8proc_property_t *property = utf8proc_get_property(parts[i]);
            b->v[b->n++] =
                (struct marked){(uint32_t)parts[i], newer ? 0 : (uint32_t)property->combining_class};
        }
    }
    return true;
}

static void merge_sort(struct marked *v, struct marked *spare, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            size_t mid = at + width < n ? at + width : n, end = at + 2 * width < n ? at + 2 * width : n;
            size_t left = at, right = mid;
            for (size_t k = at; k < end; k++) {
                bool take_left = left < mid && (right >= end || v[left].class <= v[right].class);
                spare[k] = take_left ? v[left++] : v[right++];
            }
        }
        memcpy(v, spare, n * sizeof *v);
    }
}

static bool order_marks(struct buffer *b)
{
    for (size_t at = 0; at < b->n;) {
        size_t end = at;
        bool sorted = true;
        for (; end < b->n && b->v[end].class != 0; end++)
            if (end > at && b->v[end].class < b->v[end - 1].class)
                sorted = false;
        if (!sorted) {
            if (!mem_grow((void **)&b->spare, &b->spare_cap, end - at, sizeof *b->spare))
                return false;
            merge_sort(b->v + at, b->spare, end - at);
        }
        at = end + 1;
    }
    return true;
}

/* Compose points[0..n) in place and append them. Nothing composes over a point that is left alone. */
static bool put_composed(utf8proc_int32_t *points, size_t n, bool compose, struct str *out)
{
    for (size_t at = 0; at < n;) {
        size_t end = at, count;
        while (end < n && !is_newer((uint32_t)points[end]))
            end++;
        count = end - at;
        if (compose && count) {
            utf8proc_ssize_t composed = utf8proc_normalize_utf32(points + at, (utf8proc_ssize_t)count,
                                                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE);
            count = composed < 0 ? count : (size_t)composed;
        }
        for (size_t i = at; i < at + count + (end < n); i++) {
            char bytes[4];
            uint32_t cp = (uint32_t)points[i < at + count ? i : end];
            if (!str_append(out, bytes, utf8_encode(cp, bytes)))
                return false;
        }
        at = end + 1;
    }
    return true;
}

bool uni_normalize(enum uni_form form, const char *p, size_t n, struct str *out)
{
    struct buffer b = {0};
    utf8proc_int32_t *points = NULL;
    bool ok = decompose(form, p, n, &b) && order_marks(&b);
    /* utf8proc wants room for one more. */
    if (ok)
        ok = (points = mem_alloc((b.n + 1) * sizeof *points)) != NULL;
    if (ok) {
        for (size_t i = 0; i < b.n; i++)
            points[i] = (utf8proc_int32_t)b.v[i].cp;
        ok = put_composed(points, b.n, form == UNI_NFC || form == UNI_NFKC, out);
    }
    mem_free(points);
    mem_free(b.v);
    mem_free(b.spare);
    return ok;
}
