/* The builder: from edges to an immutable grammar. All passes are linear in the number of edges. */
#include "base/mem.h"
#include "base/utf8.h"
#include "text/grammar_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- collecting ---- */

void grammar_builder_open(struct grammar_builder *b, sluice_error *err)
{
    *b = (struct grammar_builder){.err = err};
}

void grammar_builder_close(struct grammar_builder *b)
{
    mem_free(b->edges);
    mem_free(b->rules);
    if (b->budget)
        budget_release(b->budget, b->charged_bytes);
    *b = (struct grammar_builder){.err = b->err, .status = b->status};
}

sluice_status grammar_fail(struct grammar_builder *b, sluice_status status, const char *format, ...)
{
    if (b->status != SLUICE_OK)
        return b->status;
    b->status = status;
    if (b->err) {
        va_list args;
        va_start(args, format);
        b->err->status = status;
        (void)vsnprintf(b->err->detail, sizeof b->err->detail, format, args);
        va_end(args);
    }
    return status;
}

sluice_status grammar_no_budget(const struct budget *budget, sluice_error *err)
{
    return err_set(err, SLUICE_E_BUDGET,
                   "a schema or grammar needs more than what is left of the %.1f MiB for grammars; make it "
                   "smaller or its repetitions shorter, or set more aside (--grammar-memory)",
                   (double)budget->limit_bytes / 1048576);
}

/* Room for what is built and for the passes of grammar_finish(), measured by the arrays of both: an edge lies
 * in the builder's array (which doubles), in the grammar and in two lists, a position in seven arrays. */
static bool charge(struct grammar_builder *b)
{
    static const uint64_t EDGE_BYTES = 72, POSITION_BYTES = 40, STEP_BYTES = 64 << 10;
    uint64_t need = b->n_edges * EDGE_BYTES + (b->n_positions + b->n_rules) * POSITION_BYTES;
    if (!b->budget || need <= b->charged_bytes)
        return true;
    uint64_t more = need - b->charged_bytes + STEP_BYTES;
    if (budget_charge(b->budget, more, "a grammar", NULL) != SLUICE_OK) {
        sluice_error why;
        (void)grammar_no_budget(b->budget, &why);
        (void)grammar_fail(b, SLUICE_E_BUDGET, "%s", why.detail);
        return false;
    }
    b->charged_bytes += more;
    return true;
}

static void too_large(struct grammar_builder *b)
{
    (void)grammar_fail(
        b, SLUICE_E_UNSUPPORTED,
        "the grammar needs more than %d states, the most that is built; make it smaller, or its "
        "repetitions shorter",
        GRAMMAR_POSITIONS_MAX);
}

uint32_t grammar_position(struct grammar_builder *b)
{
    if (b->status != SLUICE_OK)
        return 0;
    if (b->n_positions == GRAMMAR_POSITIONS_MAX) {
        too_large(b);
        return 0;
    }
    return charge(b) ? b->n_positions++ : 0;
}

uint32_t grammar_rule(struct grammar_builder *b)
{
    uint32_t start = grammar_position(b), end = grammar_position(b);
    if (b->status != SLUICE_OK)
        return 0;
    if (b->n_rules == GRAMMAR_RULES_MAX) {
        too_large(b);
        return 0;
    }
    if (!mem_grow((void **)&b->rules, &b->cap_rules, b->n_rules + 1, sizeof *b->rules)) {
        (void)grammar_fail(b, SLUICE_E_MEMORY, "not enough memory for a grammar");
        return 0;
    }
    b->rules[b->n_rules] = (struct grammar_rule){start, end};
    return (uint32_t)b->n_rules++;
}

static void add_edge(struct grammar_builder *b, struct grammar_edge edge)
{
    if (b->status != SLUICE_OK)
        return;
    if (b->n_edges == GRAMMAR_EDGES_MAX) {
        too_large(b);
        return;
    }
    if (!charge(b))
        return;
    if (!mem_grow((void **)&b->edges, &b->cap_edges, b->n_edges + 1, sizeof *b->edges)) {
        (void)grammar_fail(b, SLUICE_E_MEMORY, "not enough memory for a grammar");
        return;
    }
    b->edges[b->n_edges++] = edge;
}

void grammar_empty(struct grammar_builder *b, uint32_t from, uint32_t to)
{
    if (from != to)
        add_edge(b, (struct grammar_edge){from, to, EDGE_EMPTY, 0, 0});
}

void grammar_symbols(struct grammar_builder *b, uint32_t from, unsigned low, unsigned high, uint32_t to)
{
    add_edge(b, (struct grammar_edge){from, to, EDGE_SYMBOLS, low, high});
}

void grammar_call(struct grammar_builder *b, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(b, (struct grammar_edge){from, to, EDGE_CALL, rule, 0});
}

uint32_t grammar_text(struct grammar_builder *b, uint32_t from, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t to = grammar_position(b);
        grammar_symbols(b, from, (unsigned char)text[i], (unsigned char)text[i], to);
        from = to;
    }
    return from;
}

uint32_t grammar_repeat(struct grammar_builder *b, uint32_t from, uint32_t rule, uint32_t least,
                        uint32_t most)
{
    uint32_t end = grammar_position(b);
    if (least > GRAMMAR_REPEAT_MAX || (most != GRAMMAR_FOREVER && most > GRAMMAR_REPEAT_MAX)) {
        (void)grammar_fail(b, SLUICE_E_UNSUPPORTED, "a repetition of more than %d times is not supported",
                           GRAMMAR_REPEAT_MAX);
        return end;
    }
    for (uint32_t i = 0; i < least; i++) {
        uint32_t to = grammar_position(b);
        grammar_call(b, from, rule, to);
        from = to;
    }
    grammar_empty(b, from, end);
    if (most == GRAMMAR_FOREVER) {
        uint32_t loop = grammar_position(b);
        grammar_empty(b, from, loop);
        grammar_call(b, loop, rule, loop);
        grammar_empty(b, loop, end);
        return end;
    }
    for (uint32_t i = least; i < most; i++) {
        uint32_t to = grammar_position(b);
        grammar_call(b, from, rule, to);
        grammar_empty(b, to, end);
        from = to;
    }
    return end;
}

/* ---- UTF-8 ---- */

/* One range whose ends have the same length, as a chain of byte ranges that may branch at its ends. */
static void utf8_range(struct grammar_builder *b, uint32_t from, const unsigned char *low,
                       const unsigned char *high, size_t n, uint32_t to)
{
    if (n == 1) {
        grammar_symbols(b, from, low[0], high[0], to);
        return;
    }
    if (low[0] == high[0]) {
        uint32_t next = grammar_position(b);
        grammar_symbols(b, from, low[0], low[0], next);
        utf8_range(b, next, low + 1, high + 1, n - 1, to);
        return;
    }
    static const unsigned char LEAST[3] = {0x80, 0x80, 0x80}, MOST[3] = {0xBF, 0xBF, 0xBF};
    unsigned first = low[0], last = high[0];
    if (memcmp(low + 1, LEAST, n - 1) != 0) {
        uint32_t next = grammar_position(b);
        grammar_symbols(b, from, first, first, next);
        utf8_range(b, next, low + 1, MOST, n - 1, to);
        first++;
    }
    if (memcmp(high + 1, MOST, n - 1) != 0) {
        uint32_t next = grammar_position(b);
        grammar_symbols(b, from, last, last, next);
        utf8_range(b, next, LEAST, high + 1, n - 1, to);
        last--;
    }
    if (first <= last) {
        uint32_t next = grammar_position(b);
        grammar_symbols(b, from, first, last, next);
        utf8_range(b, next, LEAST, MOST, n - 1, to);
    }
}

void grammar_chars(struct grammar_builder *b, uint32_t from, const struct grammar_range *ranges, size_t n,
                   uint32_t to)
{
    /* The blocks of one length; surrogates are no characters. */
    static const struct grammar_range BLOCKS[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sizeof BLOCKS / sizeof *BLOCKS; k++) {
            uint32_t low = ranges[i].low > BLOCKS[k].low ? ranges[i].low : BLOCKS[k].low;
            uint32_t high = ranges[i].high < BLOCKS[k].high ? ranges[i].high : BLOCKS[k].high;
            char a[4], z[4];
            if (low > high)
                continue;
            size_t bytes = utf8_encode(low, a);
            (void)utf8_encode(high, z);
            utf8_range(b, from, (const unsigned char *)a, (const unsigned char *)z, bytes, to);
        }
    }
}

static int by_low(const void *a, const void *b)
{
    const struct grammar_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

size_t ranges_normalize(struct grammar_range *ranges, size_t n)
{
    size_t made = 0;
    if (n)
        qsort(ranges, n, sizeof *ranges, by_low);
    for (size_t i = 0; i < n; i++) {
        if (made && ranges[i].low <= ranges[made - 1].high + 1) {
            if (ranges[i].high > ranges[made - 1].high)
                ranges[made - 1].high = ranges[i].high;
        } else {
            ranges[made++] = ranges[i];
        }
    }
    return made;
}

size_t ranges_negate(const struct grammar_range *ranges, size_t n, struct grammar_range *out)
{
    uint32_t from = 0;
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        if (ranges[i].low > from)
            out[made++] = (struct grammar_range){from, ranges[i].low - 1};
        from = ranges[i].high + 1;
    }
    if (from <= 0x10FFFF)
        out[made++] = (struct grammar_range){from, 0x10FFFF};
    return made;
}

/* ---- what can be finished ---- */

struct finish {
    struct grammar_builder *b;
    unsigned char *live;       /* by position: an end of its rule can be reached */
    unsigned char *nullable;   /* by position: … reading nothing */
    uint32_t *into, *calls;    /* edges by target, and call edges by rule: offsets … */
    uint32_t *into_v, *call_v; /* … and edges */
    uint32_t *queue;
};

/* Offsets and lists of edges by a key below n; edges for which key gives UINT32_MAX are left out. */
static bool group_edges(const struct grammar_builder *b, uint32_t (*key)(const struct grammar_edge *e),
                        uint32_t n, uint32_t **offsets, uint32_t **list)
{
    *offsets = mem_calloc((size_t)n + 2, sizeof **offsets);
    *list = mem_calloc(b->n_edges + 1, sizeof **list);
    if (!*offsets || !*list)
        return false;
    for (size_t i = 0; i < b->n_edges; i++)
        if (key(&b->edges[i]) != UINT32_MAX)
            (*offsets)[key(&b->edges[i]) + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        (*offsets)[i] += (*offsets)[i - 1];
    for (size_t i = 0; i < b->n_edges; i++)
        if (key(&b->edges[i]) != UINT32_MAX)
            (*list)[(*offsets)[key(&b->edges[i]) + 1]++] = (uint32_t)i;
    return true;
}

static uint32_t key_target(const struct grammar_edge *e)
{
    return e->to;
}

static uint32_t key_called(const struct grammar_edge *e)
{
    return e->kind == EDGE_CALL ? e->low : UINT32_MAX;
}

/* Mark positions from which their rule's end can be reached, backwards from the ends. rule_of_start finds the
 * calls that come to life when a rule does. */
static void spread(struct finish *f, unsigned char *marks, bool symbols, const uint32_t *rule_of_start)
{
    const struct grammar_builder *b = f->b;
    size_t head = 0, tail = 0;
    for (size_t i = 0; i < b->n_rules; i++) {
        if (!marks[b->rules[i].end]) {
            marks[b->rules[i].end] = 1;
            f->queue[tail++] = b->rules[i].end;
        }
    }
    while (head < tail) {
        uint32_t at = f->queue[head++], rule = rule_of_start[at];
        for (uint32_t k = f->into[at]; k < f->into[at + 1]; k++) {
            const struct grammar_edge *e = &b->edges[f->into_v[k]];
            bool passes = e->kind == EDGE_EMPTY || (e->kind == EDGE_SYMBOLS && symbols) ||
                          (e->kind == EDGE_CALL && marks[b->rules[e->low].start]);
            if (passes && !marks[e->from]) {
                marks[e->from] = 1;
                f->queue[tail++] = e->from;
            }
        }
        for (uint32_t k = rule == UINT32_MAX ? 0 : f->calls[rule];
             rule != UINT32_MAX && k < f->calls[rule + 1]; k++) {
            const struct grammar_edge *e = &b->edges[f->call_v[k]];
            if (marks[e->to] && !marks[e->from]) {
                marks[e->from] = 1;
                f->queue[tail++] = e->from;
            }
        }
    }
}

/* ---- left recursion ---- */

/* A rule that calls itself before reading anything. Depth-first over positions: entering a call's rule, and
 * passing a call whose rule may be empty. An edge back into a rule that is still open closes the circle. */
struct visit {
    uint32_t at, edge, rule; /* rule: whose visit this frame opened, or UINT32_MAX */
};

static bool left_recursive(const struct grammar *g, const unsigned char *nullable_start, struct visit *stack,
                           unsigned char *seen, unsigned char *open)
{
    for (uint32_t r = 0; r < g->n_rules; r++) {
        size_t n = 0;
        if (seen[g->starts[r]])
            continue;
        seen[g->starts[r]] = open[r] = 1;
        stack[n++] = (struct visit){g->starts[r], g->first[g->starts[r]], r};
        while (n) {
            struct visit *v = &stack[n - 1];
            if (v->edge == g->first[v->at + 1]) {
                if (v->rule != UINT32_MAX)
                    open[v->rule] = 0;
                n--;
                continue;
            }
            const struct grammar_edge *e = &g->edges[v->edge++];
            if (e->kind == EDGE_CALL) {
                if (open[e->low])
                    return true;
                /* The callee first; the edge comes again to pass over it when it may be empty. */
                if (!seen[g->starts[e->low]]) {
                    seen[g->starts[e->low]] = open[e->low] = 1;
                    v->edge--;
                    stack[n++] = (struct visit){g->starts[e->low], g->first[g->starts[e->low]], e->low};
                    continue;
                }
            }
            bool passes = e->kind == EDGE_EMPTY || (e->kind == EDGE_CALL && nullable_start[e->low]);
            if (passes && !seen[e->to]) {
                seen[e->to] = 1;
                stack[n++] = (struct visit){e->to, g->first[e->to], UINT32_MAX};
            }
        }
    }
    return false;
}

/* ---- the grammar ---- */

static int by_from(const void *a, const void *b)
{
    const struct grammar_edge *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->kind != y->kind ? (int)x->kind - (int)y->kind : x->low < y->low ? -1 : x->low > y->low;
}

static void set_flags(struct grammar *g, const struct grammar_builder *b)
{
    for (size_t i = 0; i < b->n_rules; i++)
        g->flags[b->rules[i].end] |= POSITION_END;
    for (uint32_t p = 0; p < g->n_positions; p++) {
        if ((g->flags[p] & POSITION_END) && g->first[p] == g->first[p + 1])
            g->flags[p] |= POSITION_TAIL;
        if (g->first[p] < g->first[p + 1] && g->edges[g->first[p]].kind == EDGE_SYMBOLS)
            g->flags[p] |= POSITION_READS;
    }
    /* A position that only leads on to a tail is one; chains are short where it matters. */
    for (int round = 0; round < 4; round++)
        for (uint32_t p = 0; p < g->n_positions; p++)
            if (g->first[p] + 1 == g->first[p + 1] && g->edges[g->first[p]].kind == EDGE_EMPTY &&
                (g->flags[g->edges[g->first[p]].to] & POSITION_TAIL))
                g->flags[p] |= POSITION_END | POSITION_TAIL;
}

/* Copy what is live. */
static sluice_status assemble(struct finish *f, uint32_t root, struct grammar *g)
{
    const struct grammar_builder *b = f->b;
    size_t n = 0;
    g->n_positions = b->n_positions;
    g->n_rules = (uint32_t)b->n_rules;
    g->root = root;
    g->edges = mem_alloc((b->n_edges + 1) * sizeof *g->edges);
    g->first = mem_calloc((size_t)b->n_positions + 1, sizeof *g->first);
    g->flags = mem_calloc((size_t)b->n_positions + 1, 1);
    g->starts = mem_alloc((b->n_rules + 1) * sizeof *g->starts);
    if (!g->edges || !g->first || !g->flags || !g->starts)
        return err_memory(b->err, b->n_edges * sizeof *g->edges, "a grammar");
    for (size_t i = 0; i < b->n_rules; i++)
        g->starts[i] = b->rules[i].start;
    for (size_t i = 0; i < b->n_edges; i++) {
        const struct grammar_edge *e = &b->edges[i];
        if (f->live[e->from] && f->live[e->to] && (e->kind != EDGE_CALL || f->live[g->starts[e->low]]))
            g->edges[n++] = *e;
    }
    if (n)
        qsort(g->edges, n, sizeof *g->edges, by_from);
    for (size_t i = n; i-- > 0;)
        g->first[g->edges[i].from] = (uint32_t)i;
    for (uint32_t p = b->n_positions, next = (uint32_t)n; p-- > 0;) {
        if (g->first[p] == 0 && !(n && g->edges[0].from == p))
            g->first[p] = next;
        next = g->first[p];
    }
    g->first[b->n_positions] = (uint32_t)n;
    set_flags(g, b);
    return SLUICE_OK;
}

static sluice_status check_recursion(const struct finish *f, const struct grammar *g, const char *what)
{
    const struct grammar_builder *b = f->b;
    struct visit *stack = mem_alloc(((size_t)g->n_positions + 1) * sizeof *stack);
    unsigned char *seen = mem_calloc((size_t)g->n_positions + 1, 1),
                  *open = mem_calloc((size_t)g->n_rules + 1, 1);
    unsigned char *empty = mem_calloc((size_t)g->n_rules + 1, 1);
    sluice_status status = SLUICE_OK;
    if (!stack || !seen || !open || !empty) {
        status = err_memory(b->err, g->n_positions * sizeof *stack, what);
    } else {
        for (uint32_t r = 0; r < g->n_rules; r++)
            empty[r] = f->nullable[g->starts[r]];
        if (left_recursive(g, empty, stack, seen, open))
            status = err_set(b->err, SLUICE_E_UNSUPPORTED,
                             "%s is left-recursive: a rule calls itself before it reads anything; write it "
                             "with a repetition",
                             what);
    }
    mem_free(stack);
    mem_free(seen);
    mem_free(open);
    mem_free(empty);
    return status;
}

static sluice_status finish(struct finish *f, uint32_t root, const char *what, struct grammar *g,
                            uint32_t *rule_of_start)
{
    struct grammar_builder *b = f->b;
    for (uint32_t p = 0; p < b->n_positions; p++)
        rule_of_start[p] = UINT32_MAX;
    for (size_t i = 0; i < b->n_rules; i++)
        rule_of_start[b->rules[i].start] = (uint32_t)i;
    spread(f, f->live, true, rule_of_start);
    spread(f, f->nullable, false, rule_of_start);
    if (!f->live[b->rules[root].start])
        return err_set(b->err, SLUICE_E_UNSUPPORTED, "%s matches no text at all, so nothing could be written",
                       what);
    TRY(assemble(f, root, g));
    return check_recursion(f, g, what);
}

sluice_status grammar_finish(struct grammar_builder *b, uint32_t root, const char *what,
                             struct grammar **grammar)
{
    *grammar = NULL;
    if (b->status != SLUICE_OK)
        return b->status;
    struct finish f = {.b = b};
    struct grammar *g = mem_calloc(1, sizeof *g);
    uint32_t *rule_of_start = mem_alloc(((size_t)b->n_positions + 1) * sizeof *rule_of_start);
    sluice_status status;
    f.live = mem_calloc((size_t)b->n_positions + 1, 1);
    f.nullable = mem_calloc((size_t)b->n_positions + 1, 1);
    f.queue = mem_alloc(((size_t)b->n_positions + 1) * sizeof *f.queue);
    if (!g || !rule_of_start || !f.live || !f.nullable || !f.queue ||
        !group_edges(b, key_target, b->n_positions, &f.into, &f.into_v) ||
        !group_edges(b, key_called, (uint32_t)b->n_rules, &f.calls, &f.call_v))
        status = err_memory(b->err, b->n_edges * sizeof *b->edges, what);
    else
        status = finish(&f, root, what, g, rule_of_start);
    mem_free(rule_of_start);
    mem_free(f.live);
    mem_free(f.nullable);
    mem_free(f.queue);
    mem_free(f.into);
    mem_free(f.into_v);
    mem_free(f.calls);
    mem_free(f.call_v);
    if (status != SLUICE_OK) {
        grammar_close(g);
        return status;
    }
    if (b->budget) {
        g->budget = b->budget;
        g->charged_bytes = (b->n_edges + 1) * sizeof *g->edges + (b->n_positions + 1) * 5ull +
                           (b->n_rules + 1) * sizeof *g->starts + sizeof *g;
        if (budget_charge(g->budget, g->charged_bytes, what, NULL) != SLUICE_OK) {
            g->budget = NULL;
            status = grammar_no_budget(b->budget, b->err);
            grammar_close(g);
            return status;
        }
    }
    *grammar = g;
    return SLUICE_OK;
}

void grammar_close(struct grammar *g)
{
    if (!g)
        return;
    mem_free(g->edges);
    mem_free(g->first);
    mem_free(g->flags);
    mem_free(g->starts);
    if (g->budget)
        budget_release(g->budget, g->charged_bytes);
    mem_free(g);
}
