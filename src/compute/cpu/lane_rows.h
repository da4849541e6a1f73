/* Formats, rows and elements on sixteen lanes; ref.c says what the bits are. */
#ifndef COMPUTE_CPU_LANE_ROWS_H
#define COMPUTE_CPU_LANE_ROWS_H

#include "compute/cpu/lane_math.h"
#include "compute/math.h"

#include <assert.h>

INLINE uint32_t lanes_left(size_t k, size_t n)
{
    return n - k < LANES ? (uint32_t)(n - k) : LANES;
}

/* A body for whole registers, and the same body for the `count` lanes that are left. `k` is a name and the
 * bodies are statements, which take no parentheses. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define FOR_LANES(k, n, whole, rest)                                                                         \
    do {                                                                                                     \
        size_t k = 0;                                                                                        \
        for (; k + LANES <= (n); k += LANES)                                                                 \
            whole;                                                                                           \
        if (k < (n)) {                                                                                       \
            const uint32_t count = lanes_left(k, n);                                                         \
            rest;                                                                                            \
        }                                                                                                    \
    } while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- formats ---- */

INLINE vf vf_stored(enum dtype dtype, const void *values, size_t k)
{
    switch (dtype) {
    case DTYPE_BF16:
        return vf_bf16((const uint16_t *)values + k);
    case DTYPE_F16:
        return vf_f16((const uint16_t *)values + k);
    default:
        return vf_load((const float *)values + k);
    }
}

INLINE vf vf_stored_n(enum dtype dtype, const void *values, size_t k, uint32_t count)
{
    switch (dtype) {
    case DTYPE_BF16:
        return vf_bf16_n((const uint16_t *)values + k, count);
    case DTYPE_F16:
        return vf_f16_n((const uint16_t *)values + k, count);
    default:
        return vf_load_n((const float *)values + k, count);
    }
}

INLINE void widen_as(enum dtype dtype, const void *values, size_t n, float *out)
{
    FOR_LANES(k, n, vf_store(out + k, vf_stored(dtype, values, k)),
              vf_store_n(out + k, vf_stored_n(dtype, values, k, count), count));
}

static void widen(enum dtype dtype, const void *values, size_t n, float *out)
{
    switch (dtype) {
    case DTYPE_F32:
        memcpy(out, values, n * sizeof *out);
        return;
    case DTYPE_BF16:
        widen_as(DTYPE_BF16, values, n, out);
        return;
    default:
        assert(dtype == DTYPE_F16);
        widen_as(DTYPE_F16, values, n, out);
    }
}

/* compute/half.h says why the hardware's own bf16 rounding will not do. */
INLINE void store_bf16(void *p, vf x)
{
    const vi bits = vf_bits(x), high = vi_right(bits, 16);
    vi rounded = vi_right(vi_add(bits, vi_add(vi_set(0x7fff), vi_and(high, vi_set(1)))), 16);
    vm nan = vi_greater(vi_and(bits, vi_set(0x7fffffff)), vi_set(0x7f800000));
    store_low_halves(p, vi_select(nan, vi_or(high, vi_set(0x40)), rounded));
}

INLINE void store_narrow(sluice_kv_type type, void *p, vf x)
{
    if (type == SLUICE_KV_F16)
        store_f16(p, x);
    else
        store_bf16(p, x);
}

INLINE void narrow_as(sluice_kv_type type, const float *values, size_t n, uint16_t *out)
{
    uint16_t last[LANES];
    FOR_LANES(k, n, store_narrow(type, out + k, vf_load(values + k)), {
        store_narrow(type, last, vf_load_n(values + k, count));
        memcpy(out + k, last, count * sizeof *last);
    });
}

static void narrow(sluice_kv_type type, const float *values, size_t n, void *out)
{
    if (type == SLUICE_KV_F32)
        memcpy(out, values, n * sizeof *values);
    else if (type == SLUICE_KV_F16)
        narrow_as(SLUICE_KV_F16, values, n, out);
    else
        narrow_as(SLUICE_KV_BF16, values, n, out);
}

/* ---- elements ---- */

static void add(const float *a, const float *b, size_t n, float *out)
{
    FOR_LANES(k, n, vf_store(out + k, vf_add(vf_load(a + k), vf_load(b + k))),
              vf_store_n(out + k, vf_add(vf_load_n(a + k, count), vf_load_n(b + k, count)), count));
}

static void scale(float *x, float s, size_t n)
{
    const vf by = vf_set(s);
    FOR_LANES(k, n, vf_store(x + k, vf_mul(vf_load(x + k), by)),
              vf_store_n(x + k, vf_mul(vf_load_n(x + k, count), by), count));
}

static void scale_cols(float *x, const float *vec, float s, uint32_t cols)
{
    const vf by = vf_set(s);
    FOR_LANES(
        k, cols, vf_store(x + k, vf_mul(vf_mul(vf_load(x + k), vf_load(vec + k)), by)),
        vf_store_n(x + k, vf_mul(vf_mul(vf_load_n(x + k, count), vf_load_n(vec + k, count)), by), count));
}

INLINE vf activate(enum activation act, vf x)
{
    return act == ACT_GELU_TANH ? vf_gelu_tanh(x) : act == ACT_SILU ? vf_silu(x) : vf_sigmoid(x);
}

INLINE void gated_as(enum activation act, const float *gate, const float *up, size_t n, float *out)
{
    FOR_LANES(k, n, vf_store(out + k, vf_mul(activate(act, vf_load(gate + k)), vf_load(up + k))),
              vf_store_n(out + k, vf_mul(activate(act, vf_load_n(gate + k, count)), vf_load_n(up + k, count)),
                         count));
}

static void gated(enum activation act, const float *gate, const float *up, size_t n, float *out)
{
    if (act == ACT_GELU_TANH)
        gated_as(ACT_GELU_TANH, gate, up, n, out);
    else if (act == ACT_SILU)
        gated_as(ACT_SILU, gate, up, n, out);
    else
        gated_as(ACT_SIGMOID, gate, up, n, out);
}

static void softcap(float *x, float cap, size_t n)
{
    const vf c = vf_set(cap);
    FOR_LANES(k, n, vf_store(x + k, vf_mul(c, vf_tanh(vf_div(vf_load(x + k), c)))),
              vf_store_n(x + k, vf_mul(c, vf_tanh(vf_div(vf_load_n(x + k, count), c))), count));
}

static void exp_all(const float *x, float shift, size_t n, float *out)
{
    const vf by = vf_set(shift);
    FOR_LANES(k, n, vf_store(out + k, vf_exp(vf_sub(vf_load(x + k), by))),
              vf_store_n(out + k, vf_exp(vf_sub(vf_load_n(x + k, count), by)), count));
}

INLINE float largest_lane(vf x)
{
    float lanes[LANES], most;
    vf_store(lanes, x);
    most = lanes[0];
    for (uint32_t i = 1; i < LANES; i++)
        most = lanes[i] > most ? lanes[i] : most;
    return most;
}

/* Four maxima at once: each waits for its last. */
static float largest(const float *x, size_t n)
{
    vf most[4];
    for (uint32_t i = 0; i < 4; i++)
        most[i] = vf_set(x[0]);
    size_t k = 0;
    for (; k + 4 * LANES <= n; k += 4 * LANES)
        for (uint32_t i = 0; i < 4; i++)
            most[i] = vf_at_least(vf_load(x + k + i * LANES), most[i]);
    float best = largest_lane(vf_at_least(vf_at_least(most[0], most[1]), vf_at_least(most[2], most[3])));
    for (; k < n; k++)
        best = x[k] > best ? x[k] : best;
    return best;
}

static bool finite_all(const float *x, size_t n)
{
    const vi mask = vi_set(0x7fffffff);
    vi most = vi_set(0);
    FOR_LANES(k, n, most = vi_max(most, vi_and(vf_bits(vf_load(x + k)), mask)),
              most = vi_max(most, vi_and(vf_bits(vf_load_n(x + k, count)), mask)));
    return vi_most(most) < 0x7f800000;
}

/* ---- rows ---- */

INLINE float dot_row(const float *a, const float *b, size_t n)
{
    vf acc = vf_set(0.0f);
    FOR_LANES(k, n, acc = vf_fma(vf_load(a + k), vf_load(b + k), acc),
              acc = vf_fma_n(vf_load_n(a + k, count), vf_load_n(b + k, count), acc, count));
    return vf_sum(acc);
}

static void norm_row(const float *x, const float *weight, uint32_t cols, float eps, float *out)
{
    const vf by = vf_set(math_rsqrt(dot_row(x, x, cols) / (float)cols + eps));
    if (!weight)
        FOR_LANES(k, cols, vf_store(out + k, vf_mul(vf_load(x + k), by)),
                  vf_store_n(out + k, vf_mul(vf_load_n(x + k, count), by), count));
    else
        FOR_LANES(k, cols, vf_store(out + k, vf_mul(vf_mul(vf_load(x + k), by), vf_load(weight + k))),
                  vf_store_n(out + k,
                             vf_mul(vf_mul(vf_load_n(x + k, count), by), vf_load_n(weight + k, count)),
                             count));
}

INLINE void rotate(float *a, float *b, const float *cosines, const float *sines, uint32_t count)
{
    const bool whole = count >= LANES;
    const vf u = whole ? vf_load(a) : vf_load_n(a, count), v = whole ? vf_load(b) : vf_load_n(b, count);
    const vf c = whole ? vf_load(cosines) : vf_load_n(cosines, count),
             s = whole ? vf_load(sines) : vf_load_n(sines, count);
    const vf a_out = vf_sub(vf_mul(u, c), vf_mul(v, s)), b_out = vf_add(vf_mul(v, c), vf_mul(u, s));
    if (whole) {
        vf_store(a, a_out);
        vf_store(b, b_out);
    } else {
        vf_store_n(a, a_out, count);
        vf_store_n(b, b_out, count);
    }
}

static void rope_row(float *x, uint32_t heads, uint32_t head_dim, uint32_t pairs, uint32_t half,
                     const float *cosines, const float *sines)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim)
        for (uint32_t k = 0; k < pairs; k += LANES)
            rotate(x + k, x + half + k, cosines + k, sines + k, pairs - k);
}

static void weighted_sum_row(const float *ys, const float *weights, uint32_t k, uint32_t cols, float *out)
{
    for (uint32_t c = 0; c < cols; c += LANES) {
        const uint32_t count = lanes_left(c, cols);
        const float *y = ys + c;
        vf sum;
        if (count == LANES) {
            sum = vf_mul(vf_set(weights[0]), vf_load(y));
            for (uint32_t j = 1; j < k; j++)
                sum = vf_fma(vf_set(weights[j]), vf_load(y + (size_t)j * cols), sum);
            vf_store(out + c, sum);
        } else {
            sum = vf_mul(vf_set(weights[0]), vf_load_n(y, count));
            for (uint32_t j = 1; j < k; j++)
                sum = vf_fma(vf_set(weights[j]), vf_load_n(y + (size_t)j * cols, count), sum);
            vf_store_n(out + c, sum, count);
        }
    }
}

/* The k largest by insertion: most logits fail the first comparison with the worst that is kept. */
static void route_row(const float *logits, uint32_t n, uint32_t k, uint16_t *ids, float *weights)
{
    assert(k > 0 && k <= n && n <= UINT16_MAX + 1u);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const float v = logits[i] == logits[i] ? logits[i] : -INFINITY;
        if (kept == k && !(v > weights[k - 1]))
            continue;
        uint32_t at = kept < k ? kept++ : k - 1;
        for (; at > 0 && v > weights[at - 1]; at--) {
            weights[at] = weights[at - 1];
            ids[at] = ids[at - 1];
        }
        weights[at] = v;
        ids[at] = (uint16_t)i;
    }
    const vf most = vf_set(weights[0]);
    vf acc = vf_set(0.0f);
    for (uint32_t j = 0; j < k; j += LANES) {
        const uint32_t count = lanes_left(j, k);
        const vf e = vf_exp(vf_sub(vf_load_n(weights + j, count), most)), zero = vf_set(0.0f);
        vf_store_n(weights + j, e, count);
        acc = vf_add(acc, count == LANES ? e : vf_fma_n(e, vf_set(1.0f), zero, count));
    }
    const vf sum = vf_set(vf_sum(acc));
    for (uint32_t j = 0; j < k; j += LANES) {
        const uint32_t count = lanes_left(j, k);
        vf_store_n(weights + j, vf_div(vf_load_n(weights + j, count), sum), count);
    }
}

#endif
