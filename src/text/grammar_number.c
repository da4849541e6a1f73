/* Decimals between two bounds, as automata that compare digit by digit. */
#include "text/grammar_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE_MAX = 15, FRACTION_MAX = 6, DECIMAL_WHOLE_MAX = 9 };

/* A magnitude: digits before and behind the point, without zeros that mean nothing. */
struct decimal {
    char whole[WHOLE_MAX + 2], fraction[FRACTION_MAX + 2];
    size_t n_whole, n_fraction;
};

/* The range of one sign; NULL ends are open. */
struct magnitudes {
    struct grammar_builder *b;
    const struct decimal *low, *high;
    bool above_low, below_high; /* the bounds themselves are left out */
    bool integer;
    size_t whole_max;
    uint32_t to;
    /* Places of the fraction that were made: by digits read, and by which bounds all digits so far equal. */
    uint32_t places[FRACTION_MAX + 1][2][2];
};

/* False: it has more digits than are compared. */
static bool to_decimal(double value, struct decimal *d)
{
    char text[64];
    value = fabs(value);
    if (!(value < 1e15))
        return false;
    (void)snprintf(text, sizeof text, "%.*f", FRACTION_MAX, value);
    if (strtod(text, NULL) != value)
        return false;
    char *point = strchr(text, '.');
    *point = '\0';
    d->n_whole = strlen(text);
    d->n_fraction = strlen(point + 1);
    while (d->n_fraction && point[d->n_fraction] == '0')
        d->n_fraction--;
    memcpy(d->whole, text, d->n_whole + 1);
    memcpy(d->fraction, point + 1, d->n_fraction);
    d->fraction[d->n_fraction] = '\0';
    return true;
}

/* May the number end when `digits` of the fraction are read? */
static bool may_end(const struct magnitudes *m, size_t digits, bool at_low, bool at_high)
{
    if (at_low && (digits < m->low->n_fraction || m->above_low))
        return false;
    return !(at_high && digits >= m->high->n_fraction && m->below_high);
}

static uint32_t fraction(struct magnitudes *m, size_t digits, bool at_low, bool at_high)
{
    uint32_t *place = &m->places[digits][at_low][at_high];
    if (*place || m->b->status != SLUICE_OK)
        return *place;
    uint32_t at = *place = grammar_position(m->b);
    if (digits && may_end(m, digits, at_low, at_high))
        grammar_empty(m->b, at, m->to);
    if (digits == FRACTION_MAX)
        return at;
    int low = at_low && digits < m->low->n_fraction ? m->low->fraction[digits] - '0' : 0;
    int high = !at_high ? 9 : digits < m->high->n_fraction ? m->high->fraction[digits] - '0' : 0;
    for (int d = low; d <= high; d++)
        grammar_symbols(m->b, at, (unsigned)('0' + d), (unsigned)('0' + d),
                        fraction(m, digits + 1, at_low && d == low, at_high && d == high));
    return at;
}

/* Digits before the point, `length` in all. */
static uint32_t whole(struct magnitudes *m, size_t length, size_t read, bool at_low, bool at_high)
{
    uint32_t at = grammar_position(m->b);
    if (m->b->status != SLUICE_OK)
        return at; /* every place is 0 now, and none would be found again */
    if (read == length) {
        if (may_end(m, 0, at_low, at_high))
            grammar_empty(m->b, at, m->to);
        if (!m->integer)
            grammar_symbols(m->b, at, '.', '.', fraction(m, 0, at_low, at_high));
        return at;
    }
    int low = at_low ? m->low->whole[read] - '0' : 0, high = at_high ? m->high->whole[read] - '0' : 9;
    uint32_t between = 0;
    for (int d = low; d <= high; d++) {
        bool edge_low = at_low && d == low, edge_high = at_high && d == high;
        if (read == 0 && length > 1 && d == 0)
            continue;
        uint32_t next = edge_low || edge_high ? whole(m, length, read + 1, edge_low, edge_high)
                        : between             ? between
                                              : (between = whole(m, length, read + 1, false, false));
        grammar_symbols(m->b, at, (unsigned)('0' + d), (unsigned)('0' + d), next);
    }
    return at;
}

static void magnitudes(struct magnitudes *m, uint32_t from)
{
    size_t shortest = m->low ? m->low->n_whole : 1;
    size_t longest = m->high ? m->high->n_whole : m->whole_max;
    for (size_t n = shortest; n <= longest; n++)
        grammar_empty(m->b, from,
                      whole(m, n, 0, m->low && n == m->low->n_whole, m->high && n == m->high->n_whole));
}

uint32_t jrule_bounded(struct grammar_builder *b, const struct jrule_bound *low,
                       const struct jrule_bound *high, bool integer, const char *where)
{
    static const struct decimal ZERO = {"0", "", 1, 0};
    uint32_t rule = grammar_rule(b);
    struct decimal low_digits, high_digits;
    struct jrule_bound lows, highs;
    if (integer && low) { /* bounds of integers are integers, and count themselves */
        double up = ceil(low->value);
        lows = (struct jrule_bound){low->exclusive && up == low->value ? up + 1 : up, false};
        low = &lows;
    }
    if (integer && high) {
        double down = floor(high->value);
        highs = (struct jrule_bound){high->exclusive && down == high->value ? down - 1 : down, false};
        high = &highs;
    }
    if ((low && !to_decimal(low->value, &low_digits)) || (high && !to_decimal(high->value, &high_digits))) {
        (void)grammar_fail(
            b, SLUICE_E_UNSUPPORTED,
            "%s: bounds with more than %d digits before or %d behind the point are not supported", where,
            WHOLE_MAX, FRACTION_MAX);
        return rule;
    }
    size_t whole_max = integer ? WHOLE_MAX : DECIMAL_WHOLE_MAX;
    if ((low && low_digits.n_whole > whole_max) || (high && high_digits.n_whole > whole_max)) {
        (void)grammar_fail(b, SLUICE_E_UNSUPPORTED,
                           "%s: bounds of a number beyond %zu digits are not supported", where, whole_max);
        return rule;
    }
    struct magnitudes plus = {.b = b, .integer = integer, .whole_max = whole_max, .to = grammar_end(b, rule)};
    struct magnitudes minus = plus;
    bool none_below = low && low->value >= 0, none_above = high && high->value < 0;
    if (!none_above) {
        plus.low = low && low->value >= 0 ? &low_digits : NULL;
        plus.above_low = plus.low && low->exclusive;
        plus.high = high ? &high_digits : NULL;
        plus.below_high = high && high->exclusive;
        magnitudes(&plus, grammar_start(b, rule));
    }
    if (!none_below) {
        uint32_t sign = grammar_position(b);
        grammar_symbols(b, grammar_start(b, rule), '-', '-', sign);
        minus.low = none_above ? &high_digits : &ZERO;
        minus.above_low = none_above ? high->exclusive : true;
        minus.high = low ? &low_digits : NULL;
        minus.below_high = low && low->exclusive;
        magnitudes(&minus, sign);
    }
    return rule;
}
