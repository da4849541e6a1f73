/* Routing traces made up with a stated reuse, for caches that a random model would not exercise as a trained
 * one does. */
#include "run/routes.h"

#include "base/mem.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generator {
    uint64_t state;
    struct routes *routes;
    double *cumulative; /* [experts]: of the popularity by rank; NULL for "reuse" */
    uint16_t *by_rank;  /* [layers][experts] */
    double keep;
};

/* "name:NUMBER" with a number from 0 to max. */
static bool read_spec(const char *spec, const char *name, double max, double *value)
{
    size_t n = strlen(name);
    char *end;
    if (strncmp(spec, name, n) != 0 || spec[n] != ':' || spec[n + 1] < '0' || spec[n + 1] > '9')
        return false;
    *value = strtod(spec + n + 1, &end);
    return *end == '\0' && *value >= 0 && *value <= max;
}

bool routes_is_spec(const char *spec)
{
    return strncmp(spec, "zipf:", 5) == 0 || strncmp(spec, "reuse:", 6) == 0;
}

static bool holds(const uint16_t *ids, uint32_t n, uint16_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static uint16_t draw_expert(struct generator *g, uint32_t layer)
{
    uint32_t experts = g->routes->experts, low = 0, high = experts - 1;
    if (!g->cumulative)
        return (uint16_t)(random_next(&g->state) % experts);
    double u = random_unit(&g->state) * g->cumulative[experts - 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (g->cumulative[middle] > u)
            high = middle;
        else
            low = middle + 1;
    }
    return g->by_rank[(size_t)layer * experts + low];
}

static void fill_layer(struct generator *g, uint32_t layer, const uint16_t *before, uint16_t *ids)
{
    uint32_t n = 0, top_k = g->routes->top_k;
    for (uint32_t i = 0; before && i < top_k; i++)
        if (random_unit(&g->state) < g->keep)
            ids[n++] = before[i];
    while (n < top_k) {
        uint16_t id = draw_expert(g, layer);
        if (!holds(ids, n, id))
            ids[n++] = id;
    }
}

/* Each layer has its own order of popularity. */
static void shuffle(struct generator *g)
{
    uint32_t experts = g->routes->experts;
    for (uint32_t l = 0; l < g->routes->layers; l++) {
        uint16_t *order = g->by_rank + (size_t)l * experts;
        for (uint32_t e = 0; e < experts; e++)
            order[e] = (uint16_t)e;
        for (uint32_t e = experts - 1; e > 0; e--) {
            uint32_t other = (uint32_t)(random_next(&g->state) % ((uint64_t)e + 1));
            uint16_t swap = order[e];
            order[e] = order[other];
            order[other] = swap;
        }
    }
}

static sluice_status prepare(struct generator *g, const char *spec, sluice_error *err)
{
    const struct routes *r = g->routes;
    double exponent;
    if (read_spec(spec, "reuse", 1.0, &g->keep))
        return SLUICE_OK;
    if (!read_spec(spec, "zipf", 10.0, &exponent))
        return err_set(err, SLUICE_E_ARGUMENT,
                       "\"%.60s\" is not a reuse: zipf:S takes S from 0 to 10, reuse:P takes P from 0 to 1",
                       spec);
    g->cumulative = mem_calloc(r->experts, sizeof *g->cumulative);
    g->by_rank = mem_calloc((size_t)r->layers * r->experts, sizeof *g->by_rank);
    if (!g->cumulative || !g->by_rank)
        return err_memory(err, (size_t)r->layers * r->experts * sizeof *g->by_rank, "a routing trace");
    double sum = 0;
    for (uint32_t e = 0; e < r->experts; e++)
        g->cumulative[e] = sum += pow((double)e + 1, -exponent);
    shuffle(g);
    return SLUICE_OK;
}

sluice_status routes_generate(const char *spec, uint32_t layers, uint32_t experts, uint32_t top_k,
                              size_t tokens, uint64_t seed, struct routes *r, sluice_error *err)
{
    *r = (struct routes){.layers = layers, .experts = experts, .top_k = top_k, .tokens = tokens};
    (void)snprintf(r->family, sizeof r->family, "made");
    struct generator g = {.state = seed, .routes = r};
    size_t row = (size_t)layers * top_k;
    sluice_status status = prepare(&g, spec, err);
    if (status == SLUICE_OK) {
        r->token = mem_calloc(tokens, sizeof *r->token);
        r->ids = mem_calloc(tokens * row, sizeof *r->ids);
        if (!r->token || !r->ids)
            status = err_memory(err, tokens * row * sizeof *r->ids, "a routing trace");
    }
    for (size_t t = 0; t < tokens && status == SLUICE_OK; t++) {
        r->token[t] = (struct route_token){.position = (uint32_t)t, .decode = true};
        for (uint32_t l = 0; l < layers; l++) {
            uint16_t *ids = r->ids + t * row + (size_t)l * top_k;
            fill_layer(&g, l, t && !g.cumulative ? ids - row : NULL, ids);
        }
    }
    mem_free(g.cumulative);
    mem_free(g.by_rank);
    return status;
}
