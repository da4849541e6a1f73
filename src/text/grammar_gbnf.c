/* GBNF, the notation of llama.cpp: name ::= "text" [class] rule ( … ) | … with * + ? {m,n}. */
#include "base/ascii.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/grammar_internal.h"

#include <string.h>

enum {
    GBNF_DEPTH_MAX = 200, /* of groups inside each other */
    GBNF_BYTES_MAX = 1 << 20,
    NAME_BYTES_MAX = 64,
    CLASS_RANGES_MAX = 512,
};

struct gbnf {
    struct grammar_builder *b;
    const char *p;
    size_t n, at;
    int line, depth;
    struct named {
        char name[NAME_BYTES_MAX];
        uint32_t rule;
        bool defined;
    } * names;
    size_t n_names, cap_names;
};

static uint32_t alternatives(struct gbnf *g, uint32_t from);

static void fail(struct gbnf *g, const char *what)
{
    (void)grammar_fail(g->b, SLUICE_E_FORMAT, "the grammar, line %d: %s", g->line, what);
}

static bool good(const struct gbnf *g)
{
    return g->b->status == SLUICE_OK;
}

/* ---- characters ---- */

static char peek(const struct gbnf *g)
{
    return g->at < g->n ? g->p[g->at] : '\0';
}

/* White space and comments; line ends only inside groups and where a rule must go on. */
static void skip(struct gbnf *g, bool lines)
{
    while (g->at < g->n) {
        char c = g->p[g->at];
        if (c == '#') {
            while (g->at < g->n && g->p[g->at] != '\n' && g->p[g->at] != '\r')
                g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->line += c == '\n';
            g->at++;
        } else {
            return;
        }
    }
}

static bool in_name(char c)
{
    return ascii_is_alnum(c) || c == '-' || c == '_';
}

static bool read_name(struct gbnf *g, char name[NAME_BYTES_MAX])
{
    size_t n = 0;
    while (in_name(peek(g)) && n + 1 < NAME_BYTES_MAX)
        name[n++] = g->p[g->at++];
    name[n] = '\0';
    if (n == 0 || in_name(peek(g)))
        fail(g, n ? "a name has more than 63 characters" : "a rule's name is expected");
    return good(g);
}

/* One character of a literal or class, its escape undone. */
static uint32_t character(struct gbnf *g)
{
    static const struct {
        char letter, value;
    } ESCAPES[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'"', '"'},
                   {'[', '['},  {']', ']'},  {'-', '-'},  {'^', '^'}};
    uint32_t cp = 0;
    if (peek(g) != '\\') {
        if (g->at < g->n) {
            g->line += g->p[g->at] == '\n';
            g->at += utf8_decode(g->p + g->at, g->n - g->at, &cp, NULL);
        } else {
            fail(g, "a text or a class is not closed");
        }
        return cp;
    }
    g->at++;
    char letter = peek(g);
    for (size_t i = 0; i < sizeof ESCAPES / sizeof *ESCAPES; i++) {
        if (letter == ESCAPES[i].letter) {
            g->at++;
            return (unsigned char)ESCAPES[i].value;
        }
    }
    size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    g->at++;
    for (size_t i = 0; i < digits; i++, g->at++) {
        int digit = ascii_hex(peek(g));
        if (digit < 0 || cp > 0x10FFFF >> 4)
            digits = 0;
        else
            cp = cp << 4 | (uint32_t)digit;
    }
    if (digits == 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        fail(g, "an escape is wrong");
    return cp;
}

/* ---- elements ---- */

static void literal(struct gbnf *g, uint32_t from, uint32_t to)
{
    g->at++;
    while (good(g) && peek(g) != '"') {
        char bytes[4];
        uint32_t cp = character(g);
        if (good(g))
            from = grammar_text(g->b, from, bytes, utf8_encode(cp, bytes));
    }
    g->at++;
    grammar_empty(g->b, from, to);
}

static void class(struct gbnf *g, uint32_t from, uint32_t to)
{
    struct grammar_range ranges[CLASS_RANGES_MAX], outside[CLASS_RANGES_MAX + 1];
    size_t n = 0;
    g->at++;
    bool negate = peek(g) == '^';
    g->at += negate;
    while (good(g) && peek(g) != ']') {
        uint32_t low = character(g), high = low;
        if (peek(g) == '-' && g->at + 1 < g->n && g->p[g->at + 1] != ']') {
            g->at++;
            high = character(g);
        }
        if (n == CLASS_RANGES_MAX || high < low)
            fail(g, high < low ? "a range of a class goes backwards" : "a class has more than 512 ranges");
        else
            ranges[n++] = (struct grammar_range){low, high};
    }
    g->at++;
    n = ranges_normalize(ranges, n);
    if (negate) {
        n = ranges_negate(ranges, n, outside);
        memcpy(ranges, outside, (n < CLASS_RANGES_MAX ? n : CLASS_RANGES_MAX) * sizeof *ranges);
    }
    if (n == 0)
        fail(g, "a class is empty");
    grammar_chars(g->b, from, negate ? outside : ranges, n, to);
}

/* The rule of a name, made when first mentioned. */
static uint32_t rule_named(struct gbnf *g, const char *name, struct named **out)
{
    for (size_t i = 0; i < g->n_names; i++) {
        if (strcmp(g->names[i].name, name) == 0) {
            *out = &g->names[i];
            return g->names[i].rule;
        }
    }
    if (!mem_grow((void **)&g->names, &g->cap_names, g->n_names + 1, sizeof *g->names)) {
        (void)grammar_fail(g->b, SLUICE_E_MEMORY, "not enough memory for a grammar");
        return 0;
    }
    *out = &g->names[g->n_names++];
    memset(*out, 0, sizeof **out);
    memcpy((*out)->name, name, strlen(name));
    (*out)->rule = grammar_rule(g->b);
    return (*out)->rule;
}

static bool number(struct gbnf *g, uint32_t *out)
{
    *out = 0;
    if (peek(g) < '0' || peek(g) > '9')
        return false;
    while (peek(g) >= '0' && peek(g) <= '9') {
        *out = *out > GRAMMAR_REPEAT_MAX ? *out : *out * 10 + (uint32_t)(peek(g) - '0');
        g->at++;
    }
    return true;
}

/* * + ? {m} {m,} {m,n}; false: none is there. */
static bool quantifier(struct gbnf *g, uint32_t *least, uint32_t *most)
{
    static const struct {
        char c;
        uint32_t least, most;
    } SIGNS[] = {{'*', 0, GRAMMAR_FOREVER}, {'+', 1, GRAMMAR_FOREVER}, {'?', 0, 1}};
    for (size_t i = 0; i < sizeof SIGNS / sizeof *SIGNS; i++) {
        if (peek(g) == SIGNS[i].c) {
            *least = SIGNS[i].least;
            *most = SIGNS[i].most;
            g->at++;
            return true;
        }
    }
    if (peek(g) != '{')
        return false;
    g->at++;
    skip(g, false);
    bool has_least = number(g, least);
    skip(g, false);
    *most = *least;
    if (peek(g) == ',') {
        g->at++;
        skip(g, false);
        if (!number(g, most))
            *most = GRAMMAR_FOREVER;
        has_least = true;
        skip(g, false);
    }
    if (!has_least || peek(g) != '}' || *most < *least)
        fail(g, "a repetition in braces is wrong");
    g->at++;
    return true;
}

static bool element(struct gbnf *g, uint32_t from, uint32_t to)
{
    static const struct grammar_range ANY = {0, 0x10FFFF};
    char c = peek(g), name[NAME_BYTES_MAX];
    struct named *named;
    if (c == '"') {
        literal(g, from, to);
    } else if (c == '[') {
        class(g, from, to);
    } else if (c == '.') {
        g->at++;
        grammar_chars(g->b, from, &ANY, 1, to);
    } else if (c == '(') {
        if (++g->depth > GBNF_DEPTH_MAX)
            (void)grammar_fail(g->b, SLUICE_E_UNSUPPORTED,
                               "the grammar, line %d: groups are nested deeper than %d levels", g->line,
                               GBNF_DEPTH_MAX);
        g->at++;
        skip(g, true);
        uint32_t end = good(g) ? alternatives(g, from) : from;
        if (good(g) && peek(g) != ')')
            fail(g, "\")\" is expected");
        g->at++;
        g->depth--;
        grammar_empty(g->b, end, to);
    } else if (in_name(c)) {
        if (read_name(g, name))
            grammar_call(g->b, from, rule_named(g, name, &named), to);
    } else {
        return false;
    }
    return true;
}

/* Elements up to | ) or the end of the rule. */
static uint32_t sequence(struct gbnf *g, uint32_t from)
{
    while (good(g)) {
        uint32_t rule, least, most;
        size_t before = g->at;
        rule = grammar_rule(g->b);
        if (!element(g, grammar_start(g->b, rule), grammar_end(g->b, rule))) {
            if (peek(g) && strchr("*+?{", peek(g)))
                fail(g, "a repetition has nothing to repeat");
            return from;
        }
        if (!good(g))
            return from;
        skip(g, g->depth > 0);
        least = most = 1;
        if (quantifier(g, &least, &most))
            skip(g, g->depth > 0);
        from = grammar_repeat(g->b, from, rule, least, most);
        if (g->at == before)
            return from;
    }
    return from;
}

static uint32_t alternatives(struct gbnf *g, uint32_t from)
{
    uint32_t end = grammar_position(g->b);
    for (;;) {
        uint32_t branch = grammar_position(g->b);
        grammar_empty(g->b, from, branch);
        grammar_empty(g->b, sequence(g, branch), end);
        if (!good(g) || peek(g) != '|')
            return end;
        g->at++;
        skip(g, true);
    }
}

static void definition(struct gbnf *g)
{
    char name[NAME_BYTES_MAX];
    struct named *named = NULL;
    if (!read_name(g, name))
        return;
    skip(g, false);
    if (g->n - g->at < 3 || memcmp(g->p + g->at, "::=", 3) != 0) {
        fail(g, "\"::=\" is expected");
        return;
    }
    g->at += 3;
    skip(g, true);
    uint32_t rule = rule_named(g, name, &named);
    if (!good(g) || !named)
        return;
    if (named->defined)
        (void)grammar_fail(g->b, SLUICE_E_FORMAT, "the grammar, line %d: rule \"%s\" is defined twice",
                           g->line, name);
    named->defined = true;
    grammar_empty(g->b, alternatives(g, grammar_start(g->b, rule)), grammar_end(g->b, rule));
    if (good(g) && peek(g) != '\n' && peek(g) != '\r' && g->at < g->n)
        fail(g, "the end of the line is expected");
}

uint32_t grammar_gbnf_rule(struct grammar_builder *b, const char *text, size_t n)
{
    struct gbnf g = {.b = b, .p = text, .n = n, .line = 1};
    struct named *named = NULL;
    if (n > GBNF_BYTES_MAX)
        (void)grammar_fail(b, SLUICE_E_FORMAT, "the grammar has %zu bytes, the limit is %d", n,
                           GBNF_BYTES_MAX);
    else if (utf8_valid_prefix(text, n) != n)
        (void)grammar_fail(b, SLUICE_E_FORMAT, "the grammar is not UTF-8");
    for (skip(&g, true); good(&g) && g.at < g.n; skip(&g, true))
        definition(&g);
    uint32_t root = good(&g) ? rule_named(&g, "root", &named) : 0;
    for (size_t i = 0; i < g.n_names; i++)
        if (!g.names[i].defined)
            (void)grammar_fail(b, SLUICE_E_FORMAT, "the grammar has no rule \"%s\"", g.names[i].name);
    mem_free(g.names);
    return root;
}

sluice_status grammar_from_gbnf(const char *text, size_t n, struct grammar **grammar, sluice_error *err)
{
    struct grammar_builder b;
    grammar_builder_open(&b, err);
    uint32_t root = grammar_gbnf_rule(&b, text, n);
    sluice_status status = grammar_finish(&b, root, "the grammar", grammar);
    grammar_builder_close(&b);
    return status;
}
