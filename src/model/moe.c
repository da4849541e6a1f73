#include "model/moe.h"

#include "model/family.h"

#include <string.h>

/* Up to so many rows, each expert gets so few that all of them must be computed together to be worth the
 * threads; of a longer chunk, one expert may get every row. */
enum { FEW_ROWS = 16 };

uint32_t moe_routes(uint32_t rows, uint32_t top_k)
{
    const uint64_t few = (uint64_t)FEW_ROWS * top_k, all = (uint64_t)rows * top_k;
    const uint64_t most = few > rows ? few : rows;
    return (uint32_t)(most < all ? most : all);
}

/* Lays the buffers out in `arena`, or only adds up their cost when it is NULL. */
static size_t layout(struct moe *m, struct arena *arena)
{
    size_t routes = (size_t)m->rows * m->top_k, row = m->hidden * sizeof(float), total = 0;
    struct {
        void *pointer;
        size_t bytes;
    } parts[] = {
        {&m->ids, routes * sizeof *m->ids},
        {&m->weights, routes * sizeof *m->weights},
        {&m->outputs, routes * row},
        {&m->counts, (m->n_experts + 1) * sizeof *m->counts},
        {&m->row_of, routes * sizeof *m->row_of},
        {&m->output_of, routes * sizeof *m->output_of},
        {&m->wanted, m->n_experts * sizeof *m->wanted},
        {&m->needed, m->n_experts * sizeof *m->needed},
        {&m->calls, LEASE_EXPERTS_MAX * sizeof *m->calls},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        total += arena_cost(parts[i].bytes);
        if (arena) {
            void *memory = arena_take(arena, parts[i].bytes);
            memcpy(parts[i].pointer, &memory, sizeof memory);
        }
    }
    return total;
}

size_t moe_bytes(uint32_t rows, uint32_t hidden, uint32_t n_experts, uint32_t top_k)
{
    struct moe shape = {.rows = rows, .hidden = hidden, .n_experts = n_experts, .top_k = top_k};
    return layout(&shape, NULL);
}

void moe_open(struct moe *moe, uint32_t rows, uint32_t hidden, uint32_t n_experts, uint32_t top_k,
              struct arena *arena)
{
    *moe = (struct moe){.rows = rows, .hidden = hidden, .n_experts = n_experts, .top_k = top_k};
    (void)layout(moe, arena);
}

/* Group the routes by expert (a counting sort) and list the experts: residents first, because the misses'
 * reads could otherwise evict them before their turn. */
static void group(struct moe *m, struct forward *f, uint32_t layer)
{
    size_t routes = (size_t)f->n_rows * m->top_k;
    memset(m->counts, 0, (m->n_experts + 1) * sizeof *m->counts);
    for (size_t i = 0; i < routes; i++)
        m->counts[m->ids[i] + 1]++;
    m->n_needed = 0;
    for (uint32_t e = 0; e < m->n_experts; e++)
        if (m->counts[e + 1])
            m->wanted[m->n_needed++] = (uint16_t)e;
    m->n_missing = experts_sort(f->experts, layer, m->wanted, m->n_needed, m->needed);
    for (uint32_t e = 0; e < m->n_experts; e++)
        m->counts[e + 1] += m->counts[e];
    /* Fill from the back of each group, so that counts[e] ends as its start. */
    for (size_t i = routes; i-- > 0;) {
        uint32_t at = --m->counts[m->ids[i] + 1];
        m->row_of[at] = (uint32_t)(i / m->top_k);
        m->output_of[at] = (uint32_t)i;
    }
    /* counts[e + 1] is now the start of group e: shift so that counts[e] is, with an end sentinel. */
    memmove(m->counts, m->counts + 1, m->n_experts * sizeof *m->counts);
    m->counts[m->n_experts] = (uint32_t)routes;
    m->next = 0;
    m->filled = false;
}

/* Where the slots hold all that a chunk needs, it is requested at once. Otherwise in small tiles: those under
 * way are served side by side and land together, and what a tile leaves is read into at once. With two large
 * ones the drive rested a third of the time. */
static uint32_t tile_size(const struct moe *m, const struct forward *f)
{
    uint32_t slots = experts_slots(f->experts);
    uint32_t tile = m->n_needed <= slots ? slots : (slots + MOE_LEASES - 1) / MOE_LEASES;
    return tile < LEASE_EXPERTS_MAX ? tile : LEASE_EXPERTS_MAX;
}

/* As many tiles as there are slots for. Holding a lease, only try: another session may hold the slots. */
static sluice_status request_more(struct moe *m, struct forward *f, uint32_t layer, sluice_error *err)
{
    const uint32_t tile = tile_size(m, f);
    while (m->next < m->n_needed && m->n_held < MOE_LEASES) {
        phase_enter(f->clock, PHASE_REQUEST);
        struct lease *lease = &m->leases[(m->oldest + m->n_held) % MOE_LEASES];
        uint32_t left = m->n_needed - m->next, n = left < tile ? left : tile;
        TRY(experts_request(f->experts, layer, m->needed + m->next, n, m->n_held ? EXPERTS_TRY : EXPERTS_WAIT,
                            lease, f->stats, f->cancel, err));
        if (!lease->held)
            break;
        m->next += n;
        m->n_held++;
    }
    return SLUICE_OK;
}

static void release_oldest(struct moe *m, struct forward *f)
{
    experts_release(f->experts, &m->leases[m->oldest]);
    m->oldest = (m->oldest + 1) % MOE_LEASES;
    m->n_held--;
}

/* One row only: a chunk needs most of the next layer's experts anyway, and its reads keep the drive busy. */
static void guess_next(struct moe *m, struct forward *f, uint32_t layer)
{
    const struct model *model = f->model;
    m->n_guesses = 0;
    if (f->lookahead == 0 || f->n_rows != 1 || layer + 1 >= model->n_layers || !model->family->guess)
        return;
    uint32_t n = f->lookahead < MOE_GUESSES_MAX ? f->lookahead : MOE_GUESSES_MAX;
    m->n_guesses = model->family->guess(model, f, layer + 1, n < m->n_experts ? n : m->n_experts, m->guesses);
    if (f->override) /* the family's own guesses cost what they cost, and are of experts that nobody will ask
                        for */
        f->override->guess(f->override->user, layer + 1, f->position0, m->n_guesses, m->guesses);
}

/* Called whenever reads may have landed: the first time that none is in flight, the guesses are sent. */
static void send_guesses(struct moe *m, struct forward *f, uint32_t layer)
{
    if (m->n_guesses && experts_guess(f->experts, layer + 1, m->guesses, m->n_guesses, f->stats))
        m->n_guesses = 0;
}

/* Once this layer's last reads are under way, the drive would rest until the next layer's router has chosen:
 * more than half of a streamed prompt's time. A layer that needed most of its experts says that the next one
 * will too. */
static void fill_next(struct moe *m, struct forward *f, uint32_t layer)
{
    const bool most = 4 * (uint64_t)m->n_needed >= 3 * (uint64_t)m->n_experts;
    const bool under_way = m->n_missing == 0 || m->next == m->n_needed;
    if (m->filled || !under_way || !most || layer + 1 >= f->model->n_layers)
        return;
    m->filled = true;
    phase_enter(f->clock, PHASE_REQUEST);
    experts_fill(f->experts, layer + 1, f->stats);
}

sluice_status moe_begin(struct moe *m, struct forward *f, uint32_t layer, sluice_error *err)
{
    if (f->override)
        f->override->route(f->override->user, layer, f->position0, f->n_rows, m->top_k, m->ids);
    if (f->watch)
        f->watch->routed(f->watch->user, layer, f->position0, f->n_rows, m->top_k, m->ids);
    group(m, f, layer);
    sluice_status status = request_more(m, f, layer, err);
    if (status != SLUICE_OK) {
        moe_abandon(m, f);
        return status;
    }
    fill_next(m, f, layer);
    guess_next(m, f, layer);
    send_guesses(m, f, layer);
    return SLUICE_OK;
}

void moe_abandon(struct moe *m, struct forward *f)
{
    while (m->n_held)
        release_oldest(m, f);
}

static void compute_calls(struct moe *m, struct forward *f, uint32_t n, enum activation act, const float *x)
{
    f->backend->ops->experts(f->backend, m->calls, n, act, x, f->n_rows, m->row_of, m->output_of, m->outputs);
}

/* Items ready[0..n) of the lease, as many together as the backend takes. */
static void compute_ready(struct moe *m, struct forward *f, const struct lease *lease,
                          const uint16_t *experts, const uint32_t *ready, uint32_t n, enum activation act,
                          const float *x)
{
    const uint32_t most = moe_routes(m->rows, m->top_k);
    uint32_t n_calls = 0, routes = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t first = m->counts[experts[ready[i]]], rows = m->counts[experts[ready[i]] + 1] - first;
        if (rows > most - routes) {
            compute_calls(m, f, n_calls, act, x);
            n_calls = routes = 0;
        }
        struct expert_call *call = &m->calls[n_calls++];
        *call = (struct expert_call){.first = first, .n_rows = rows};
        experts_mats(f->experts, lease, ready[i], &call->mats);
        routes += rows;
    }
    compute_calls(m, f, n_calls, act, x);
}

/* Whatever is ready first; when nothing is, wait for the oldest. */
static sluice_status compute_tile(struct moe *m, struct forward *f, const struct lease *lease,
                                  const uint16_t *experts, enum activation act, const float *x,
                                  sluice_error *err)
{
    bool done[LEASE_EXPERTS_MAX] = {false};
    uint32_t ready[LEASE_EXPERTS_MAX], oldest = 0; /* not done */
    for (uint32_t left = lease->n; left > 0;) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < lease->n; i++) {
            if (done[i] || !experts_ready(f->experts, lease, i))
                continue;
            TRY(experts_wait(f->experts, lease, i, f->stats, f->cancel, err)); /* its read may have failed */
            done[i] = true;
            ready[n++] = i;
        }
        while (oldest < lease->n && done[oldest])
            oldest++;
        if (n > 0) {
            send_guesses(m, f, lease->layer);
            compute_ready(m, f, lease, experts, ready, n, act, x);
            left -= n;
        } else {
            phase_enter(f->clock, PHASE_WAIT);
            TRY(experts_wait(f->experts, lease, oldest, f->stats, f->cancel, err));
            phase_enter(f->clock, PHASE_EXPERTS);
        }
    }
    return SLUICE_OK;
}

sluice_status moe_finish(struct moe *m, struct forward *f, uint32_t layer, enum activation act,
                         const float *x, float *out, sluice_error *err)
{
    sluice_status status = SLUICE_OK;
    uint32_t first = 0; /* of the oldest tile */
    while (first < m->n_needed) {
        TRY_OUT(request_more(m, f, layer, err));
        fill_next(m, f, layer);
        const struct lease *now = &m->leases[m->oldest];
        phase_enter(f->clock, PHASE_EXPERTS);
        TRY_OUT(compute_tile(m, f, now, m->needed + first, act, x, err));
        first += now->n;
        release_oldest(m, f);
    }
    f->backend->ops->weighted_sum(f->backend, m->outputs, m->weights, f->n_rows, m->top_k, m->hidden, out);
out:
    moe_abandon(m, f);
    return status;
}
