/* When to guess, and how far. */
#include "run/speculate.h"

static const double FRESH = 0.2, FRESH_ACCEPT = 0.05; /* weight of the newest measurement */
enum { REST_FIRST = 16, REST_MOST = 512, PLAIN_EVERY = 64, UNMEASURED_MOST = 4, SETTLED = 64 };

/* A pass that something else interrupted says little: it counts for twice the average at most. One that
 * became slower for good is believed after a few more. */
static void blend(double *average, double value, double weight)
{
    if (*average > 0 && value > 2 * *average)
        value = 2 * *average;
    *average = *average == 0 ? value : *average + weight * (value - *average);
}

void pace_plain(struct pace *p, double ns)
{
    blend(&p->plain_ns, ns, FRESH);
    p->since_plain = 0;
}

void pace_round(struct pace *p, uint32_t n, double ns)
{
    blend(&p->round_ns[n], ns, FRESH);
    p->since_plain++;
    p->since_rest++;
}

void pace_test(struct pace *p, bool hit)
{
    p->accept += FRESH_ACCEPT * ((hit ? 1.0 : 0.0) - p->accept);
}

/* Time of a round with n guesses: measured, or on the line through the plain pass and the nearest measured
 * one; 0: nothing is known. */
static double estimate(const struct pace *p, uint32_t n, uint32_t most)
{
    if (p->round_ns[n] > 0)
        return p->round_ns[n];
    for (uint32_t off = 1; off <= most; off++)
        for (int side = 0; side < 2; side++) {
            uint32_t m = side ? n + off : n > off ? n - off : 0;
            if (m == 0 || m > most || p->round_ns[m] == 0)
                continue;
            double slope = (p->round_ns[m] - p->plain_ns) / m;
            return p->plain_ns + (slope > 0 ? slope : 0) * n;
        }
    return 0;
}

uint32_t pace_choose(struct pace *p, uint32_t most)
{
    if (most == 0)
        return 0;
    if (p->rest > 0) {
        p->rest--;
        return 0;
    }
    if (p->plain_ns == 0 || p->since_plain >= PLAIN_EVERY)
        return 0;
    uint32_t best = 0;
    double best_rate = 1 / p->plain_ns, expected = 1, power = 1;
    bool known = false;
    for (uint32_t n = 1; n <= most; n++) {
        power *= p->accept;
        expected += power;
        double ns = estimate(p, n, most);
        known |= ns > 0;
        if (ns > 0 && expected / ns > best_rate) {
            best_rate = expected / ns;
            best = n;
        }
    }
    if (!known)
        return most < UNMEASURED_MOST ? most : UNMEASURED_MOST;
    if (best == 0) { /* it loses: try again later, with fresh eyes */
        p->next_rest = p->next_rest ? p->next_rest : REST_FIRST;
        p->rest = p->next_rest;
        p->next_rest = p->next_rest * 2 < REST_MOST ? p->next_rest * 2 : REST_MOST;
        for (uint32_t n = 0; n <= DRAFT_MAX; n++)
            p->round_ns[n] = 0;
        p->accept = p->accept > 0.5 ? p->accept : 0.5;
        p->since_rest = 0;
    } else if (p->since_rest > SETTLED) {
        p->next_rest = 0;
    }
    return best;
}
