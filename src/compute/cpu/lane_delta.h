/* The gated delta rule's parts on sixteen lanes; ref.c says what the bits are. */
#ifndef COMPUTE_CPU_LANE_DELTA_H
#define COMPUTE_CPU_LANE_DELTA_H

#include "compute/cpu/lane_rows.h"

static void gated_norm_row(const float *x, const float *weight, const float *gate, uint32_t cols, float eps,
                           float *out)
{
    const vf by = vf_set(math_rsqrt(dot_row(x, x, cols) / (float)cols + eps));
    FOR_LANES(k, cols,
              vf_store(out + k, vf_mul(vf_mul(vf_mul(vf_load(x + k), by), vf_load(weight + k)),
                                       vf_silu(vf_load(gate + k)))),
              vf_store_n(out + k,
                         vf_mul(vf_mul(vf_mul(vf_load_n(x + k, count), by), vf_load_n(weight + k, count)),
                                vf_silu(vf_load_n(gate + k, count))),
                         count));
}

static void unit_row(float *x, uint32_t cols, float eps, float s)
{
    const vf by = vf_set(math_rsqrt(dot_row(x, x, cols) + eps)), scale_by = vf_set(s);
    FOR_LANES(k, cols, vf_store(x + k, vf_mul(vf_mul(vf_load(x + k), by), scale_by)),
              vf_store_n(x + k, vf_mul(vf_mul(vf_load_n(x + k, count), by), scale_by), count));
}

static void conv_channels(const float *taps, uint32_t n_taps, uint32_t channels, uint32_t begin, uint32_t end,
                          const float *tail, const float *x, uint32_t n_rows, float *out)
{
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *rows[CONV_TAPS_MAX];
        for (uint32_t j = 0; j < n_taps; j++) {
            const size_t row = (size_t)r + j;
            rows[j] = row < n_taps - 1 ? tail + row * channels : x + (row - n_taps + 1) * channels;
        }
        float *to = out + (size_t)r * channels;
        for (uint32_t c = begin; c < end; c += LANES) {
            const uint32_t count = lanes_left(c, end);
            const bool whole = count == LANES;
            vf sum = vf_set(0.0f);
            for (uint32_t j = 0; j < n_taps; j++) {
                const float *w = taps + (size_t)j * channels + c, *u = rows[j] + c;
                sum = whole ? vf_fma(vf_load(w), vf_load(u), sum)
                            : vf_fma(vf_load_n(w, count), vf_load_n(u, count), sum);
            }
            sum = vf_silu(sum);
            if (whole)
                vf_store(to + c, sum);
            else
                vf_store_n(to + c, sum, count);
        }
    }
}

/* Rows of the state that go through the rows of a call together: their sums hide each other's latency, and
 * they stay in the first-level cache. */
enum { DELTA_ROWS = 4, DELTA_AHEAD = 1024 }; /* floats: two such steps, asked for by the first row of x */

INLINE void delta_step(const struct delta_head *h, uint32_t o, uint32_t n, uint32_t r)
{
    const float *q = h->q + r * h->qkv_stride, *k = h->k + r * h->qkv_stride;
    const float *v = h->v + r * h->qkv_stride + o;
    float *state = h->state + (size_t)o * h->key_dim;
    const vf decay = vf_set(h->decay[r * h->gate_stride]);
    const float beta = h->beta[r * h->gate_stride];
    vf acc[DELTA_ROWS], by[DELTA_ROWS];
    float sums[DELTA_ROWS];
    for (uint32_t i = 0; i < DELTA_ROWS; i++)
        acc[i] = vf_set(0.0f);
    for (uint32_t at = 0; at < h->key_dim; at += LANES) {
        const vf key = vf_load(k + at);
        for (uint32_t i = 0; i < n; i++) {
            float *s = state + (size_t)i * h->key_dim + at;
            if (r == 0)
                __builtin_prefetch(s + DELTA_AHEAD, 1);
            const vf faded = vf_mul(vf_load(s), decay);
            vf_store(s, faded);
            acc[i] = vf_fma(faded, key, acc[i]);
        }
    }
    vf_sum4(acc[0], acc[1], acc[2], acc[3], sums);
    for (uint32_t i = 0; i < n; i++) {
        by[i] = vf_set(beta * (v[i] - sums[i]));
        acc[i] = vf_set(0.0f);
    }
    for (uint32_t at = 0; at < h->key_dim; at += LANES) {
        const vf key = vf_load(k + at), query = vf_load(q + at);
        for (uint32_t i = 0; i < n; i++) {
            float *s = state + (size_t)i * h->key_dim + at;
            const vf grown = vf_fma(by[i], key, vf_load(s));
            vf_store(s, grown);
            acc[i] = vf_fma(grown, query, acc[i]);
        }
    }
    vf_sum4(acc[0], acc[1], acc[2], acc[3], sums);
    for (uint32_t i = 0; i < n; i++)
        h->out[r * h->out_stride + o + i] = sums[i];
}

static void delta_values(const struct delta_head *h, uint32_t begin, uint32_t end)
{
    assert(h->key_dim % LANES == 0);
    uint32_t o = begin;
    for (; o + DELTA_ROWS <= end; o += DELTA_ROWS)
        for (uint32_t r = 0; r < h->n_rows; r++)
            delta_step(h, o, DELTA_ROWS, r);
    for (; o < end; o++)
        for (uint32_t r = 0; r < h->n_rows; r++)
            delta_step(h, o, 1, r);
}

#endif
