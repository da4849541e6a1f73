/* Attention on sixteen lanes. ref.c says what the bits are: blocks of 64 positions, each computed on its own
 * and folded ascending.
 *
 * Keys and values are widened in registers, and shared by the queries of a tile. Scores of positions that one
 * query of a tile sees and another does not are computed for both and then left out; values are not, because
 * a term of 0 * v would turn -0 into +0. */
#ifndef COMPUTE_CPU_LANE_ATTEND_H
#define COMPUTE_CPU_LANE_ATTEND_H

#include "compute/cpu/lane_rows.h"

enum { POSITIONS = 4, COLUMNS = 4 }; /* rows of keys per step, registers of a row of values */

struct query_state {
    const float *q;
    float *out, *scores, *partial; /* scores: [ATTEND_BLOCK], by position mod 64, then e_j */
    float most, sum;
    uint32_t position, begin, end; /* of the block: [begin, end), empty when it sees none of it */
    bool started;
};

/* Where the rows of a block lie, by position mod 64; in bytes from the start of keys or values. */
struct block_rows {
    size_t at[ATTEND_BLOCK];
    uint32_t dim;
};

INLINE uint32_t first_seen(const struct attend *a, uint32_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

static void find_rows(const struct attend *a, uint32_t first, uint32_t last, struct block_rows *rows)
{
    const struct kv_view *kv = a->kv;
    const size_t head_bytes = (size_t)kv->head_dim * (kv->type == SLUICE_KV_F32 ? 4 : 2);
    const size_t stride = head_bytes * kv->kv_heads;
    uint32_t slot = first % kv->slots;
    rows->dim = kv->head_dim;
    for (uint32_t p = first; p <= last; p++) {
        rows->at[p % ATTEND_BLOCK] = slot * stride + a->kv_head * head_bytes;
        slot = slot + 1 == kv->slots ? 0 : slot + 1;
    }
}

/* ---- scores ---- */

/* The dots of n queries with four rows of keys. */
INLINE void dots_of_rows(const struct query_state *s, uint32_t n, const unsigned char *const keys[POSITIONS],
                         uint32_t dim, enum dtype type, float dots[ATTEND_TILE][POSITIONS])
{
    vf acc[ATTEND_TILE][POSITIONS];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t p = 0; p < POSITIONS; p++)
            acc[i][p] = vf_set(0.0f);
    uint32_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (uint32_t p = 0; p < POSITIONS; p++) {
            const vf k = vf_stored(type, keys[p], d);
            for (uint32_t i = 0; i < n; i++)
                acc[i][p] = vf_fma(vf_load(s[i].q + d), k, acc[i][p]);
        }
    for (uint32_t p = 0; d < dim && p < POSITIONS; p++) {
        const vf k = vf_stored_n(type, keys[p], d, dim - d);
        for (uint32_t i = 0; i < n; i++)
            acc[i][p] = vf_fma_n(vf_load_n(s[i].q + d, dim - d), k, acc[i][p], dim - d);
    }
    for (uint32_t i = 0; i < n; i++)
        vf_sum4(acc[i][0], acc[i][1], acc[i][2], acc[i][3], dots[i]);
}

INLINE void score_rows(const struct attend *a, const struct block_rows *rows, struct query_state *s,
                       uint32_t n, uint32_t begin, uint32_t end, enum dtype type)
{
    for (uint32_t j = begin; j < end; j += POSITIONS) {
        const unsigned char *keys[POSITIONS];
        float dots[ATTEND_TILE][POSITIONS];
        const uint32_t left = end - j < POSITIONS ? end - j : POSITIONS;
        for (uint32_t p = 0; p < POSITIONS; p++)
            keys[p] = (const unsigned char *)a->kv->k + rows->at[j + (p < left ? p : left - 1)];
        dots_of_rows(s, n, keys, rows->dim, type, dots);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t p = 0; p < left; p++)
                s[i].scores[j + p] = a->scale * dots[i][p];
    }
}

/* e_j, m_b and l_b of one query. Lanes of the first and last register that it does not see hold -infinity:
 * their e is 0, and adding 0 to a sum of positive terms changes nothing. */
static void soften(const struct query_state *s, float *most, float *sum)
{
    const uint32_t first = s->begin / LANES * LANES, last = (s->end + LANES - 1) / LANES * LANES;
    for (uint32_t j = first; j < s->begin; j++)
        s->scores[j] = -INFINITY;
    for (uint32_t j = s->end; j < last; j++)
        s->scores[j] = -INFINITY;
    vf top = vf_load(s->scores + first);
    for (uint32_t j = first + LANES; j < last; j += LANES)
        top = vf_at_least(vf_load(s->scores + j), top);
    const float m = largest_lane(top);
    vf acc = vf_set(0.0f);
    for (uint32_t j = first; j < last; j += LANES) {
        const vf e = vf_exp(vf_sub(vf_load(s->scores + j), vf_set(m)));
        vf_store(s->scores + j, e);
        acc = vf_add(acc, e);
    }
    *most = m;
    *sum = vf_sum(acc);
}

/* ---- values ---- */

INLINE void weigh_rows(const struct attend *a, const struct block_rows *rows, const struct query_state *s,
                       uint32_t n, uint32_t begin, uint32_t end, uint32_t d, uint32_t columns,
                       enum dtype type, vf o[ATTEND_TILE][COLUMNS])
{
    for (uint32_t j = begin; j < end; j++) {
        const unsigned char *values = (const unsigned char *)a->kv->v + rows->at[j];
        vf v[COLUMNS];
        for (uint32_t c = 0; c < columns; c++)
            v[c] = vf_stored(type, values, d + c * LANES);
        for (uint32_t i = 0; i < n; i++) {
            const vf e = vf_set(s[i].scores[j]);
            for (uint32_t c = 0; c < columns; c++)
                o[i][c] = vf_fma(e, v[c], o[i][c]);
        }
    }
}

/* Columns [d, d + 16 * columns) of o_b. Positions that all n queries see are taken together, those before and
 * after by each on its own. */
INLINE void weigh_columns(const struct attend *a, const struct block_rows *rows, const struct query_state *s,
                          uint32_t n, uint32_t d, uint32_t columns, enum dtype type)
{
    vf o[ATTEND_TILE][COLUMNS];
    uint32_t low = 0, high = ATTEND_BLOCK;
    for (uint32_t i = 0; i < n; i++) {
        low = s[i].begin > low ? s[i].begin : low;
        high = s[i].end < high ? s[i].end : high;
        for (uint32_t c = 0; c < columns; c++)
            o[i][c] = vf_set(0.0f);
    }
    high = high > low ? high : low;
    for (uint32_t i = 0; n > 1 && i < n; i++)
        weigh_rows(a, rows, s + i, 1, s[i].begin, low < s[i].end ? low : s[i].end, d, columns, type, o + i);
    weigh_rows(a, rows, s, n, low, high, d, columns, type, o);
    for (uint32_t i = 0; i < n; i++) {
        if (n > 1)
            weigh_rows(a, rows, s + i, 1, high, s[i].end, d, columns, type, o + i);
        for (uint32_t c = 0; c < columns; c++)
            vf_store(s[i].partial + d + c * LANES, o[i][c]);
    }
}

INLINE void weigh_tail(const struct attend *a, const struct block_rows *rows, const struct query_state *s,
                       uint32_t d, uint32_t count, enum dtype type)
{
    vf o = vf_set(0.0f);
    for (uint32_t j = s->begin; j < s->end; j++) {
        const unsigned char *values = (const unsigned char *)a->kv->v + rows->at[j];
        o = vf_fma(vf_set(s->scores[j]), vf_stored_n(type, values, d, count), o);
    }
    vf_store_n(s->partial + d, o, count);
}

INLINE void weigh_block(const struct attend *a, const struct block_rows *rows, const struct query_state *s,
                        uint32_t n, enum dtype type)
{
    uint32_t d = 0;
    for (; d + COLUMNS * LANES <= rows->dim; d += COLUMNS * LANES)
        weigh_columns(a, rows, s, n, d, COLUMNS, type);
    for (; d + LANES <= rows->dim; d += LANES)
        weigh_columns(a, rows, s, n, d, 1, type);
    for (uint32_t i = 0; d < rows->dim && i < n; i++)
        weigh_tail(a, rows, s + i, d, rows->dim - d, type);
}

/* ---- blocks ---- */

static void fold_block(struct query_state *s, float most, float sum, uint32_t dim)
{
    if (!s->started) {
        memcpy(s->out, s->partial, dim * sizeof *s->out);
        s->most = most;
        s->sum = sum;
        s->started = true;
        return;
    }
    const float m = most > s->most ? most : s->most;
    const float old_part = math_exp(s->most - m), new_part = math_exp(most - m);
    const vf a = vf_set(old_part), b = vf_set(new_part);
    FOR_LANES(d, dim,
              vf_store(s->out + d, vf_fma(vf_load(s->partial + d), b, vf_mul(vf_load(s->out + d), a))),
              vf_store_n(s->out + d,
                         vf_fma(vf_load_n(s->partial + d, count), b, vf_mul(vf_load_n(s->out + d, count), a)),
                         count));
    s->sum = fmaf(sum, new_part, s->sum * old_part);
    s->most = m;
}

/* One block for n queries, all of which see some of it. */
INLINE void attend_tile(const struct attend *a, const struct block_rows *rows, struct query_state *s,
                        uint32_t n, enum dtype type)
{
    float most[ATTEND_TILE], sum[ATTEND_TILE];
    uint32_t begin = ATTEND_BLOCK, end = 0;
    for (uint32_t i = 0; i < n; i++) {
        begin = s[i].begin < begin ? s[i].begin : begin;
        end = s[i].end > end ? s[i].end : end;
    }
    score_rows(a, rows, s, n, begin, end, type);
    for (uint32_t i = 0; i < n; i++)
        soften(s + i, &most[i], &sum[i]);
    weigh_block(a, rows, s, n, type);
    for (uint32_t i = 0; i < n; i++)
        fold_block(s + i, most[i], sum[i], rows->dim);
}

INLINE void attend_block(const struct attend *a, const struct block_rows *rows, struct query_state *s,
                         uint32_t n, enum dtype type)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t together = 0;
        while (together < ATTEND_TILE && i + together < n && s[i + together].begin < s[i + together].end)
            together++;
        if (together == ATTEND_TILE)
            attend_tile(a, rows, s + i, ATTEND_TILE, type);
        else if (together)
            attend_tile(a, rows, s + i, together = 1, type);
        i += together ? together : 1;
    }
}

/* Which part of block b each query sees. */
static void see_block(const struct attend *a, uint32_t b, struct query_state *s, uint32_t n)
{
    const uint32_t start = b * ATTEND_BLOCK, stop = start + ATTEND_BLOCK;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t from = first_seen(a, s[i].position), to = s[i].position + 1;
        const uint32_t lo = from > start ? from : start, hi = to < stop ? to : stop;
        s[i].begin = lo < hi ? lo - start : 0;
        s[i].end = lo < hi ? hi - start : 0;
    }
}

static void attend(const struct attend *a, const struct attend_query *queries, uint32_t n_queries,
                   float *scratch)
{
    assert(n_queries > 0 && n_queries <= ATTEND_QUERIES);
    const uint32_t dim = a->kv->head_dim;
    struct query_state states[ATTEND_QUERIES];
    uint32_t first = UINT32_MAX, last = 0;
    float *free = scratch;
    for (uint32_t i = 0; i < n_queries; i++, free += ATTEND_BLOCK + dim) {
        const uint32_t position = queries[i].position, from = first_seen(a, position);
        states[i] = (struct query_state){.q = queries[i].q,
                                         .out = queries[i].out,
                                         .scores = free,
                                         .partial = free + ATTEND_BLOCK,
                                         .position = position};
        first = from < first ? from : first;
        last = position > last ? position : last;
    }
    for (uint32_t b = first / ATTEND_BLOCK; b <= last / ATTEND_BLOCK; b++) {
        const uint32_t start = b * ATTEND_BLOCK, stop = start + (ATTEND_BLOCK - 1);
        struct block_rows rows;
        find_rows(a, first > start ? first : start, last < stop ? last : stop, &rows);
        see_block(a, b, states, n_queries);
        switch (a->kv->type) {
        case SLUICE_KV_F16:
            attend_block(a, &rows, states, n_queries, DTYPE_F16);
            break;
        case SLUICE_KV_BF16:
            attend_block(a, &rows, states, n_queries, DTYPE_BF16);
            break;
        default:
            attend_block(a, &rows, states, n_queries, DTYPE_F32);
        }
    }
    for (uint32_t i = 0; i < n_queries; i++)
        scale(states[i].out, 1.0f / states[i].sum, dim);
}

#endif
