/* Regular expressions of JSON Schema ("pattern") as automata. What ECMA-262 and Python read differently is
 * narrowed to what both accept: \d, \w, \s and their opposites mean ASCII, and "." no line end at all. */
#include "base/ascii.h"
#include "base/utf8.h"
#include "text/grammar_internal.h"

#include <string.h>

enum { PATTERN_DEPTH_MAX = 100, PATTERN_BYTES_MAX = 65536, RANGES_MAX = 256 };

struct pattern {
    struct grammar_builder *b;
    const char *p, *keyword;
    size_t n, at;
    int depth;
    bool json;
};

static void branch(struct pattern *r, uint32_t from, uint32_t to);

static void refuse(struct pattern *r, const char *what)
{
    (void)grammar_fail(r->b, SLUICE_E_UNSUPPORTED, "%s: %s is not supported in a pattern", r->keyword, what);
}

static bool good(const struct pattern *r)
{
    return r->b->status == SLUICE_OK;
}

static char peek(const struct pattern *r)
{
    return r->at < r->n ? r->p[r->at] : '\0';
}

static bool skip(struct pattern *r, const char *text)
{
    size_t n = strlen(text);
    if (r->n - r->at < n || memcmp(r->p + r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

static void put(struct pattern *r, uint32_t from, const struct grammar_range *ranges, size_t n, uint32_t to)
{
    if (r->json)
        jrule_chars(r->b, from, ranges, n, to);
    else
        grammar_chars(r->b, from, ranges, n, to);
}

/* ---- classes ---- */

struct set {
    struct grammar_range v[RANGES_MAX];
    size_t n;
    bool ascii; /* holds a class whose opposite is not the same everywhere */
};

static void set_add(struct pattern *r, struct set *s, uint32_t low, uint32_t high)
{
    if (s->n == RANGES_MAX || high < low)
        refuse(r, high < low ? "a range that goes backwards" : "a class of more than 256 ranges");
    else
        s->v[s->n++] = (struct grammar_range){low, high};
}

static const struct shorthand {
    char letter;
    bool negate;
    size_t n;
    struct grammar_range v[4];
} SHORTHANDS[] = {
    {'d', false, 1, {{'0', '9'}}},
    {'D', true, 1, {{'0', '9'}}},
    {'w', false, 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {'W', true, 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {'s', false, 2, {{'\t', '\r'}, {' ', ' '}}},
    {'S', true, 2, {{'\t', '\r'}, {' ', ' '}}},
};

/* \d and its like; the letter is next. */
static bool shorthand(struct pattern *r, struct set *s)
{
    for (size_t i = 0; i < sizeof SHORTHANDS / sizeof *SHORTHANDS; i++) {
        const struct shorthand *row = &SHORTHANDS[i];
        struct grammar_range outside[8];
        const struct grammar_range *v = row->v;
        size_t n = row->n;
        if (peek(r) != row->letter)
            continue;
        r->at++;
        s->ascii = true;
        if (row->negate) {
            n = ranges_negate(row->v, row->n, outside);
            v = outside;
        }
        for (size_t k = 0; k < n; k++)
            if (v[k].low <= 0x7F)
                set_add(r, s, v[k].low, v[k].high > 0x7F ? 0x7F : v[k].high);
        return true;
    }
    return false;
}

static uint32_t hex_digits(struct pattern *r, size_t n)
{
    uint32_t cp = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = ascii_hex(peek(r));
        if (digit < 0)
            refuse(r, "this escape");
        cp = cp << 4 | ((uint32_t)digit & 15);
        r->at++;
    }
    return cp;
}

/* Behind a backslash: one character. */
static uint32_t escape(struct pattern *r)
{
    static const struct {
        char letter, value;
    } ROWS[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'f', '\f'}, {'v', '\v'}};
    char c = peek(r);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (c == ROWS[i].letter) {
            r->at++;
            return (unsigned char)ROWS[i].value;
        }
    }
    if (skip(r, "x"))
        return hex_digits(r, 2);
    if (skip(r, "u")) {
        uint32_t cp = hex_digits(r, 4);
        if (cp >= 0xD800 && cp < 0xE000)
            refuse(r, "half of a surrogate pair");
        return cp;
    }
    if (ascii_is_alnum(c) || !c || (unsigned char)c >= 0x80) {
        refuse(r, c >= '1' && c <= '9' ? "a reference to a group" : "this escape");
        return 0;
    }
    r->at++;
    return (unsigned char)c;
}

static uint32_t plain(struct pattern *r)
{
    uint32_t cp = 0;
    r->at += utf8_decode(r->p + r->at, r->n - r->at, &cp, NULL);
    return cp;
}

/* One item of a class; true: it was a single character, *cp. */
static bool class_item(struct pattern *r, struct set *s, uint32_t *cp)
{
    if (peek(r) != '\\') {
        *cp = plain(r);
        return true;
    }
    r->at++;
    if (shorthand(r, s))
        return false;
    if (peek(r) == 'b') {
        r->at++;
        *cp = '\b';
        return true;
    }
    *cp = peek(r) == '-' ? plain(r) : escape(r);
    return true;
}

static void class(struct pattern *r, uint32_t from, uint32_t to)
{
    struct set s = {.n = 0};
    struct grammar_range outside[RANGES_MAX + 1];
    bool negate = skip(r, "^");
    while (good(r) && r->at < r->n && peek(r) != ']') {
        uint32_t low, high;
        if (!class_item(r, &s, &low))
            continue;
        high = low;
        if (peek(r) == '-' && r->at + 1 < r->n && r->p[r->at + 1] != ']') {
            r->at++;
            if (!class_item(r, &s, &high))
                refuse(r, "a range that ends in a class");
        }
        if (good(r))
            set_add(r, &s, low, high);
    }
    if (!skip(r, "]"))
        refuse(r, "a class that is not closed");
    size_t n = ranges_normalize(s.v, s.n);
    const struct grammar_range *v = s.v;
    if (negate) {
        n = ranges_negate(s.v, n, outside);
        v = outside;
        for (size_t i = 0; i < n && s.ascii; i++) {
            if (outside[i].low > 0x7F)
                n = i;
            else if (outside[i].high > 0x7F)
                outside[i].high = 0x7F;
        }
    }
    put(r, from, v, n, to);
}

/* ---- atoms ---- */

static void group(struct pattern *r, uint32_t from, uint32_t to)
{
    if (++r->depth > PATTERN_DEPTH_MAX) {
        (void)grammar_fail(r->b, SLUICE_E_UNSUPPORTED,
                           "%s: groups nested deeper than %d levels are not supported", r->keyword,
                           PATTERN_DEPTH_MAX);
        return;
    }
    if (peek(r) == '?' && !skip(r, "?:")) {
        bool name = skip(r, "?P<") || skip(r, "?<");
        if (!name || peek(r) == '=' || peek(r) == '!') {
            refuse(r, "looking ahead or behind");
            return;
        }
        while (r->at < r->n && peek(r) != '>')
            r->at++;
        r->at++;
    }
    do
        branch(r, from, to);
    while (good(r) && skip(r, "|"));
    if (good(r) && !skip(r, ")"))
        refuse(r, "a group that is not closed");
    r->depth--;
}

/* One atom; false: there is none. */
static bool atom(struct pattern *r, uint32_t from, uint32_t to)
{
    static const struct grammar_range DOT[] = {{0, 9}, {0x0B, 0x0C}, {0x0E, 0x2027}, {0x202A, 0x10FFFF}};
    struct set s = {.n = 0};
    struct grammar_range one;
    char c = peek(r);
    if (r->at >= r->n || c == '|' || c == ')')
        return false;
    if (c == '^' || c == '$') {
        refuse(r, "an anchor inside");
        return false;
    }
    if (strchr("*+?{", c) && c) {
        refuse(r, "a repetition of nothing");
        return false;
    }
    if (skip(r, "(")) {
        group(r, from, to);
    } else if (skip(r, "[")) {
        class(r, from, to);
    } else if (skip(r, ".")) {
        put(r, from, DOT, 4, to);
    } else if (skip(r, "\\")) {
        if (peek(r) == 'b' || peek(r) == 'B') {
            refuse(r, "a word boundary");
        } else if (shorthand(r, &s)) {
            put(r, from, s.v, ranges_normalize(s.v, s.n), to);
        } else {
            one.low = one.high = escape(r);
            put(r, from, &one, 1, to);
        }
    } else {
        one.low = one.high = plain(r);
        put(r, from, &one, 1, to);
    }
    return true;
}

static uint32_t number(struct pattern *r)
{
    uint32_t n = 0;
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
        n = n > GRAMMAR_REPEAT_MAX ? n : n * 10 + (uint32_t)(peek(r) - '0');
    return n;
}

static bool quantifier(struct pattern *r, uint32_t *least, uint32_t *most)
{
    *least = 0;
    *most = GRAMMAR_FOREVER;
    if (skip(r, "+")) {
        *least = 1;
    } else if (skip(r, "?")) {
        *most = 1;
    } else if (skip(r, "{")) {
        bool digits = peek(r) >= '0' && peek(r) <= '9';
        *least = *most = number(r);
        if (skip(r, ","))
            *most = peek(r) == '}' ? GRAMMAR_FOREVER : number(r);
        if (!digits || !skip(r, "}") || *most < *least)
            refuse(r, "this repetition");
    } else if (!skip(r, "*")) {
        return false;
    }
    (void)skip(r, "?"); /* lazy: the same texts */
    if (peek(r) && strchr("*+?{", peek(r)))
        refuse(r, "a repetition of a repetition");
    return true;
}

static void branch(struct pattern *r, uint32_t from, uint32_t to)
{
    while (good(r)) {
        uint32_t least, most, rule;
        rule = grammar_rule(r->b);
        bool anchor = r->depth == 0 && peek(r) == '$' && (r->at + 1 == r->n || r->p[r->at + 1] == '|');
        if (anchor || !atom(r, grammar_start(r->b, rule), grammar_end(r->b, rule)))
            break;
        if (!quantifier(r, &least, &most))
            least = most = 1;
        from = grammar_repeat(r->b, from, rule, least, most);
    }
    grammar_empty(r->b, from, to);
}

void grammar_pattern(struct grammar_builder *b, const char *pattern, size_t n, const char *keyword, bool json,
                     uint32_t from, uint32_t to)
{
    static const struct grammar_range ANY = {0, 0x10FFFF};
    struct pattern r = {.b = b, .p = pattern, .keyword = keyword, .n = n, .json = json};
    if (n > PATTERN_BYTES_MAX) {
        (void)grammar_fail(b, SLUICE_E_UNSUPPORTED,
                           "%s: a pattern of %zu bytes is longer than the limit of %d", keyword, n,
                           PATTERN_BYTES_MAX);
        return;
    }
    uint32_t any = grammar_rule(b);
    put(&r, grammar_start(b, any), &ANY, 1, grammar_end(b, any));
    do {
        uint32_t at = from, end = grammar_position(b);
        if (!skip(&r, "^"))
            at = grammar_repeat(b, at, any, 0, GRAMMAR_FOREVER);
        branch(&r, at, end);
        if (!skip(&r, "$"))
            end = grammar_repeat(b, end, any, 0, GRAMMAR_FOREVER);
        grammar_empty(b, end, to);
    } while (good(&r) && skip(&r, "|"));
    if (good(&r) && r.at < r.n)
        refuse(&r, "a bracket that was not opened");
}
