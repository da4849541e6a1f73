/* The definition of the arithmetic, bit for bit (docs/design.md, section 4).
 *
 * Every sum has 16 accumulators that start at +0. Term i goes to accumulator i mod 16, in ascending order;
 * where the number of terms is not a multiple of 16 the other accumulators are left alone, which differs from
 * adding a zero term when an accumulator is -0. The 16 are then added 8 + 8, 4 + 4, 2 + 2, 1 + 1. Nothing is
 * fused but what is written fmaf. Inputs are expected finite; with others no operation misbehaves, but which
 * NaN comes out is not defined.
 *
 * The loops over 16 lanes are written so that a compiler turns each into vector instructions. */
#include "compute/cpu/kernels.h"

#include "compute/half.h"
#include "compute/math.h"

#include <assert.h>

enum { GROUP_MAX = 128 };

/* For functions whose constant arguments decide how their loops compile. */
#define INLINE static inline __attribute__((always_inline))

/* ---- sixteen lanes ---- */

static inline float add_lanes(float acc[LANES])
{
    for (int i = 0; i < 8; i++)
        acc[i] += acc[i + 8];
    for (int i = 0; i < 4; i++)
        acc[i] += acc[i + 4];
    return (acc[0] + acc[2]) + (acc[1] + acc[3]);
}

/* Elementwise work goes through whole registers: load and store the next 16 of `count` values, or what
 * is left of them, padded with zeros. */
static inline void load_lanes(float lanes[LANES], const float *values, size_t count)
{
    if (count >= LANES)
        for (size_t i = 0; i < LANES; i++)
            lanes[i] = values[i];
    else
        for (size_t i = 0; i < LANES; i++)
            lanes[i] = i < count ? values[i] : 0.0f;
}

static inline void store_lanes(const float lanes[LANES], float *values, size_t count)
{
    if (count >= LANES)
        for (size_t i = 0; i < LANES; i++)
            values[i] = lanes[i];
    else
        for (size_t i = 0; i < count; i++)
            values[i] = lanes[i];
}

/* Continue acc with a[k] * b[k]; k = 0 is a multiple of 16 in the whole sum. */
static inline void dot_into(float acc[LANES], const float *a, const float *b, size_t n)
{
    float sum[LANES];
    load_lanes(sum, acc, LANES);
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (size_t i = 0; i < LANES; i++)
            sum[i] = fmaf(a[k + i], b[k + i], sum[i]);
    for (size_t i = 0; k + i < n; i++)
        sum[i] = fmaf(a[k + i], b[k + i], sum[i]);
    store_lanes(sum, acc, LANES);
}

static inline float dot(const float *a, const float *b, size_t n)
{
    float acc[LANES] = {0};
    dot_into(acc, a, b, n);
    return add_lanes(acc);
}

/* ---- formats ---- */

static inline uint16_t load_u16(const void *values, size_t i)
{
    uint16_t v;
    memcpy(&v, (const unsigned char *)values + i * sizeof v, sizeof v);
    return v;
}

static inline float bf16_at(const void *values, size_t i)
{
    return half_from_bf16(load_u16(values, i));
}

static void widen(enum dtype dtype, const void *values, size_t n, float *out)
{
    if (dtype == DTYPE_F32) {
        memcpy(out, values, n * sizeof *out);
        return;
    }
    assert(dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    for (size_t k = 0; k < n; k += LANES) {
        size_t count = n - k < LANES ? n - k : LANES;
        uint16_t h[LANES] = {0};
        float f[LANES];
        if (count == LANES)
            memcpy(h, (const unsigned char *)values + 2 * k, sizeof h);
        else
            memcpy(h, (const unsigned char *)values + 2 * k, 2 * count);
        if (dtype == DTYPE_BF16)
            for (int i = 0; i < LANES; i++)
                f[i] = half_from_bf16(h[i]);
        else
            for (int i = 0; i < LANES; i++)
                f[i] = half_from_f16(h[i]);
        store_lanes(f, out + k, count);
    }
}

static void narrow(sluice_kv_type type, const float *values, size_t n, void *out)
{
    if (type == SLUICE_KV_F32) {
        memcpy(out, values, n * sizeof *values);
        return;
    }
    for (size_t k = 0; k < n; k += LANES) {
        float f[LANES];
        uint16_t h[LANES];
        load_lanes(f, values + k, n - k);
        if (type == SLUICE_KV_F16)
            for (int i = 0; i < LANES; i++)
                h[i] = half_to_f16(f[i]);
        else
            for (int i = 0; i < LANES; i++)
                h[i] = half_to_bf16(f[i]);
        memcpy((uint16_t *)out + k, h, (n - k < LANES ? n - k : LANES) * sizeof *h);
    }
}

static inline const uint8_t *packed_row(const struct mat *m, uint32_t row)
{
    return (const uint8_t *)m->weight + (size_t)row * m->cols / 8 * m->bits;
}

static inline size_t groups_of(const struct mat *m)
{
    return m->cols / m->group_size;
}

/* The values of 32 codes, in their own order: fmaf(scale, code, bias). */
enum { DEQUANTIZE_STEP = 32 };

INLINE void dequantize_step(const uint8_t *packed, uint32_t bits, float scale, float bias, float *out)
{
    const uint32_t per_byte = 8 / bits, mask = (1u << bits) - 1;
    uint8_t codes[DEQUANTIZE_STEP];
    for (uint32_t b = 0; b < DEQUANTIZE_STEP / per_byte; b++)
        for (uint32_t p = 0; p < per_byte; p++)
            codes[b * per_byte + p] = (uint8_t)(packed[b] >> (p * bits) & mask);
    for (uint32_t k = 0; k < DEQUANTIZE_STEP; k++)
        out[k] = fmaf(scale, (float)codes[k], bias);
}

static inline void dequantize_group(const uint8_t *packed, uint32_t bits, uint32_t n, float scale, float bias,
                                    float *out)
{
    for (uint32_t k = 0; k < n; k += DEQUANTIZE_STEP, packed += DEQUANTIZE_STEP / 8 * bits)
        switch (bits) {
        case 2:
            dequantize_step(packed, 2, scale, bias, out + k);
            break;
        case 4:
            dequantize_step(packed, 4, scale, bias, out + k);
            break;
        default:
            dequantize_step(packed, 8, scale, bias, out + k);
        }
}

static void dequantize_row(const struct mat *m, uint32_t row, float *out)
{
    assert(m->dtype == DTYPE_AFFINE && m->cols % m->group_size == 0);
    const uint8_t *packed = packed_row(m, row);
    const size_t first = (size_t)row * groups_of(m), group_bytes = (size_t)m->group_size * m->bits / 8;
    for (size_t g = 0; g < groups_of(m); g++)
        dequantize_group(packed + g * group_bytes, m->bits, m->group_size, bf16_at(m->scales, first + g),
                         bf16_at(m->biases, first + g), out + g * m->group_size);
}

/* ---- int8 activations ---- */

/* Plane p of a group holds the elements k with k mod (8 / bits) = p: those in bits p * bits of each byte.
 * Codes and quantized activations are kept plane after plane, so that unpacking is a shift and a mask per
 * plane. */
INLINE void unpack_plane(const uint8_t *packed, uint32_t bytes, uint32_t shift, uint32_t mask, uint8_t *codes)
{
    for (uint32_t i = 0; i < bytes; i++)
        codes[i] = (uint8_t)(packed[i] >> shift & mask);
}

INLINE void unpack_planes(const uint8_t *packed, uint32_t bits, uint32_t n, uint8_t *codes)
{
    const uint32_t bytes = n * bits / 8;
    switch (bits) {
    case 2:
        unpack_plane(packed, bytes, 0, 3, codes);
        unpack_plane(packed, bytes, 2, 3, codes + bytes);
        unpack_plane(packed, bytes, 4, 3, codes + 2 * bytes);
        unpack_plane(packed, bytes, 6, 3, codes + 3 * bytes);
        break;
    case 4:
        unpack_plane(packed, bytes, 0, 15, codes);
        unpack_plane(packed, bytes, 4, 15, codes + bytes);
        break;
    default:
        memcpy(codes, packed, bytes);
    }
}

/* Per group: s = absmax / 127 and q = rint(x / s), within +-127; wide: 16256 in place of 127. The absolute
 * maximum is that of the bit patterns, so that a NaN or an infinity wins and ends in s. Where s is 0 (all x
 * are 0, or so small that the quotient underflows) or not finite every q is 0. The clamp matters only for
 * subnormal s. */
static uint32_t absolute_maximum(const float *x, size_t n)
{
    uint32_t lanes[LANES] = {0}, most = 0;
    size_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (size_t i = 0; i < LANES; i++) {
            uint32_t magnitude = math_bits(x[k + i]) & ~MATH_SIGN;
            lanes[i] = magnitude > lanes[i] ? magnitude : lanes[i];
        }
    for (size_t i = 0; k + i < n; i++) {
        uint32_t magnitude = math_bits(x[k + i]) & ~MATH_SIGN;
        lanes[i] = magnitude > lanes[i] ? magnitude : lanes[i];
    }
    for (size_t i = 0; i < LANES; i++)
        most = lanes[i] > most ? lanes[i] : most;
    return most;
}

static int32_t round_group(const float *x, uint32_t n, float s, float most, int32_t *q)
{
    int32_t sum = 0;
    for (size_t k = 0; k < n; k++) {
        float v = x[k] / s;
        v = math_select(v > most, most, v);
        v = math_select(v < -most, -most, v);
        q[k] = math_rint_int(v);
        sum += q[k];
    }
    return sum;
}

static void store_planes(const int32_t *q, uint32_t n, uint32_t planes, int8_t *codes)
{
    const uint32_t bytes = n / planes;
    for (uint32_t plane = 0; plane < planes; plane++)
        for (uint32_t i = 0; i < bytes; i++)
            codes[plane * bytes + i] = (int8_t)q[i * planes + plane];
}

/* The code is the nearest multiple of 128, kept as how many of them, and what is left. */
static void store_wide(int32_t *q, uint32_t n, uint32_t planes, int8_t *high, int8_t *low)
{
    int32_t rest[GROUP_MAX];
    for (uint32_t k = 0; k < n; k++) {
        int32_t h = ((q[k] + 64 + 128 * 128) >> 7) - 128;
        rest[k] = q[k] - 128 * h;
        q[k] = h;
    }
    store_planes(q, n, planes, high);
    store_planes(rest, n, planes, low);
}

static void quantize_row(const struct quant *quant, uint32_t row, const float *x)
{
    const float limit = quant->wide ? QUANT_WIDE_MAX : QUANT_NARROW_MAX;
    int8_t *codes = quant->codes + (size_t)row * (1u + quant->wide) * quant->code_stride;
    const uint32_t n = quant->group_size, planes = 8u / quant->bits;
    size_t at = (size_t)row * quant->group_stride;
    for (uint32_t g = 0; g < quant->cols / n; g++, x += n, codes += n, at++) {
        uint32_t most = absolute_maximum(x, n);
        float s = math_from_bits(most) / limit;
        int32_t sum = 0, q[GROUP_MAX] = {0};
        if (s > 0.0f && most < MATH_INF_BITS)
            sum = round_group(x, n, s, limit, q);
        if (quant->wide)
            store_wide(q, n, planes, codes, codes + quant->code_stride);
        else
            store_planes(q, n, planes, codes);
        quant->scales[at] = s;
        quant->sums[at] = s * (float)sum;
    }
}

/* Exact in any order, so as many lanes as suit the loads. A 16-bit lane holds its part of the sum for codes
 * of up to 4 bits: 4 * 15 * 127 < 2^15. */
enum { DOT_LANES = 32 };

INLINE int32_t dot_narrow(const uint8_t *codes, const int8_t *q, uint32_t n)
{
    int16_t acc[DOT_LANES] = {0};
    for (size_t k = 0; k < n; k += DOT_LANES)
        for (size_t i = 0; i < DOT_LANES; i++)
            acc[i] = (int16_t)(acc[i] + codes[k + i] * q[k + i]);
    int32_t sum = 0;
    for (size_t i = 0; i < DOT_LANES; i++)
        sum += acc[i];
    return sum;
}

INLINE int32_t dot_wide(const uint8_t *codes, const int8_t *q, uint32_t n)
{
    int32_t sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += codes[k] * q[k];
    return sum;
}

INLINE int32_t group_dot(const uint8_t *codes, const int8_t *q, uint32_t bits, uint32_t n)
{
    return bits <= 4 ? dot_narrow(codes, q, n) : dot_wide(codes, q, n);
}

/* Rows of x and outputs that are worked on together, so that weights are unpacked once and both stay in the
 * first-level cache. */
enum { TILE_ROWS = 8, TILE_OUTPUTS = 16 };

/* Group g of an output: acc[g mod 16] = fmaf(scale_w * s, dot, acc), then fmaf(bias_w, s * sum(q), acc). The
 * bias meets the sum of the quantized activations, not of the exact ones: both terms then belong to the same
 * approximation of x, and its error is not counted twice with different signs. */
INLINE void affine_i8_tile(const struct mat *m, uint32_t o, const struct quant *x, uint32_t r0,
                           uint32_t n_rows, float *y, uint32_t bits, uint32_t n)
{
    float acc[TILE_ROWS][LANES] = {{0}};
    uint8_t codes[GROUP_MAX] = {0};
    const uint8_t *packed = packed_row(m, o);
    const size_t groups = m->cols / n, first = o * groups;
    for (size_t g = 0; g < groups; g++, packed += n * bits / 8) {
        float scale = bf16_at(m->scales, first + g), bias = bf16_at(m->biases, first + g);
        unpack_planes(packed, bits, n, codes);
        for (uint32_t r = 0; r < n_rows; r++) {
            const int8_t *q = x->codes + (size_t)(r0 + r) * (1u + x->wide) * x->code_stride + g * n;
            const size_t at = (size_t)(r0 + r) * x->group_stride + g;
            int32_t sum = group_dot(codes, q, bits, n);
            if (x->wide)
                sum = 128 * sum + group_dot(codes, q + x->code_stride, bits, n);
            float *a = &acc[r][g % LANES];
            *a = fmaf(scale * x->scales[at], (float)sum, *a);
            *a = fmaf(bias, x->sums[at], *a);
        }
    }
    for (uint32_t r = 0; r < n_rows; r++)
        y[(size_t)(r0 + r) * m->rows + o] = add_lanes(acc[r]);
}

static inline uint32_t tile_count(uint32_t at, uint32_t end, uint32_t tile)
{
    return end - at < tile ? end - at : tile;
}

INLINE void affine_i8_range(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                            uint32_t n_rows, float *y, uint32_t bits, uint32_t n)
{
    for (uint32_t o0 = begin; o0 < end; o0 += TILE_OUTPUTS)
        for (uint32_t r0 = 0; r0 < n_rows; r0 += TILE_ROWS)
            for (uint32_t o = o0; o < o0 + tile_count(o0, end, TILE_OUTPUTS); o++)
                affine_i8_tile(m, o, x, r0, tile_count(r0, n_rows, TILE_ROWS), y, bits, n);
}

/* One copy of the loops per format, so that their bounds are constants. */
#define AFFINE_I8(bits, n)                                                                                   \
    static void affine_i8_##bits##_##n(const struct mat *m, uint32_t begin, uint32_t end,                    \
                                       const struct quant *x, uint32_t n_rows, float *y)                     \
    {                                                                                                        \
        affine_i8_range(m, begin, end, x, n_rows, y, bits, n);                                               \
    }
AFFINE_I8(2, 32)
AFFINE_I8(2, 64)
AFFINE_I8(2, 128)
AFFINE_I8(4, 32)
AFFINE_I8(4, 64)
AFFINE_I8(4, 128)
AFFINE_I8(8, 32)
AFFINE_I8(8, 64)
AFFINE_I8(8, 128)

static void affine_i8(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y)
{
    static const struct {
        uint32_t bits, group_size;
        void (*run)(const struct mat *, uint32_t, uint32_t, const struct quant *, uint32_t, float *);
    } FORMATS[] = {{2, 32, affine_i8_2_32}, {2, 64, affine_i8_2_64}, {2, 128, affine_i8_2_128},
                   {4, 32, affine_i8_4_32}, {4, 64, affine_i8_4_64}, {4, 128, affine_i8_4_128},
                   {8, 32, affine_i8_8_32}, {8, 64, affine_i8_8_64}, {8, 128, affine_i8_8_128}};
    assert(m->dtype == DTYPE_AFFINE && m->group_size == x->group_size && m->bits == x->bits);
    for (size_t f = 0; f < sizeof FORMATS / sizeof *FORMATS; f++)
        if (FORMATS[f].bits == m->bits && FORMATS[f].group_size == m->group_size) {
            FORMATS[f].run(m, begin, end, x, n_rows, y);
            return;
        }
    assert(false && "a format that the store accepts");
}

/* ---- float activations ---- */

/* Weights of one output are made floats in runs of this many, a multiple of 16 and of every group size. */
enum { RUN_MAX = 128 };

static inline void widen_run(const struct mat *m, uint32_t o, uint32_t k, uint32_t count, float *run)
{
    if (m->dtype != DTYPE_AFFINE) {
        size_t at = ((size_t)o * m->cols + k) * dtype_bytes(m->dtype);
        widen(m->dtype, (const unsigned char *)m->weight + at, count, run);
        return;
    }
    const uint8_t *packed = packed_row(m, o);
    const uint32_t n = m->group_size;
    for (uint32_t i = 0; i < count; i += n) {
        size_t at = o * groups_of(m) + (k + i) / n;
        dequantize_group(packed + (size_t)(k + i) * m->bits / 8, m->bits, n, bf16_at(m->scales, at),
                         bf16_at(m->biases, at), run + i);
    }
}

static void float_tile(const struct mat *m, uint32_t o, const float *x, uint32_t n_rows, float *y)
{
    float acc[TILE_ROWS][LANES] = {{0}};
    float run[RUN_MAX];
    for (uint32_t k = 0; k < m->cols; k += RUN_MAX) {
        uint32_t count = tile_count(k, m->cols, RUN_MAX);
        widen_run(m, o, k, count, run);
        for (uint32_t r = 0; r < n_rows; r++)
            dot_into(acc[r], run, x + (size_t)r * m->cols + k, count);
    }
    for (uint32_t r = 0; r < n_rows; r++)
        y[(size_t)r * m->rows + o] = add_lanes(acc[r]);
}

/* Element k of an output: acc[k mod 16] = fmaf(w[k], x[k], acc). An affine weight is first fmaf(scale, code,
 * bias). */
static void linear_float(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                         float *y)
{
    assert(m->dtype != DTYPE_AFFINE || m->cols % m->group_size == 0);
    for (uint32_t o0 = begin; o0 < end; o0 += TILE_OUTPUTS)
        for (uint32_t r0 = 0; r0 < n_rows; r0 += TILE_ROWS)
            for (uint32_t o = o0; o < o0 + tile_count(o0, end, TILE_OUTPUTS); o++)
                float_tile(m, o, x + (size_t)r0 * m->cols, tile_count(r0, n_rows, TILE_ROWS),
                           y + (size_t)r0 * m->rows);
}

/* ---- rows ---- */

/* (x * (1 / sqrt(mean(x^2) + eps))) * weight. */
static void norm_row(const float *x, const float *weight, uint32_t cols, float eps, float *out)
{
    float inverse = math_rsqrt(dot(x, x, cols) / (float)cols + eps);
    for (uint32_t k = 0; k < cols; k += LANES) {
        float v[LANES], w[LANES];
        load_lanes(v, x + k, cols - k);
        for (int i = 0; i < LANES; i++)
            v[i] *= inverse;
        if (weight) {
            load_lanes(w, weight + k, cols - k);
            for (int i = 0; i < LANES; i++)
                v[i] *= w[i];
        }
        store_lanes(v, out + k, cols - k);
    }
}

/* ((x * (1 / sqrt(mean(x^2) + eps))) * weight) * silu(gate). */
static void gated_norm_row(const float *x, const float *weight, const float *gate, uint32_t cols, float eps,
                           float *out)
{
    float inverse = math_rsqrt(dot(x, x, cols) / (float)cols + eps);
    for (uint32_t k = 0; k < cols; k += LANES) {
        float v[LANES], w[LANES], g[LANES];
        load_lanes(v, x + k, cols - k);
        load_lanes(w, weight + k, cols - k);
        load_lanes(g, gate + k, cols - k);
        for (int i = 0; i < LANES; i++)
            v[i] = v[i] * inverse * w[i] * math_silu(g[i]);
        store_lanes(v, out + k, cols - k);
    }
}

/* (x * (1 / sqrt(sum(x^2) + eps))) * s. */
static void unit_row(float *x, uint32_t cols, float eps, float s)
{
    float inverse = math_rsqrt(dot(x, x, cols) + eps);
    for (uint32_t k = 0; k < cols; k += LANES) {
        float v[LANES];
        load_lanes(v, x + k, cols - k);
        for (int i = 0; i < LANES; i++)
            v[i] = v[i] * inverse * s;
        store_lanes(v, x + k, cols - k);
    }
}

/* Two rounded products and a rounded sum, as Hugging Face's x * cos + rotate_half(x) * sin. */
static void rope_row(float *x, uint32_t heads, uint32_t head_dim, uint32_t pairs, uint32_t half,
                     const float *cosines, const float *sines)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim)
        for (uint32_t k = 0; k < pairs; k += LANES) {
            uint32_t count = pairs - k;
            float a[LANES], b[LANES], c[LANES], s[LANES], a_out[LANES], b_out[LANES];
            load_lanes(a, x + k, count);
            load_lanes(b, x + half + k, count);
            load_lanes(c, cosines + k, count);
            load_lanes(s, sines + k, count);
            for (int i = 0; i < LANES; i++) {
                a_out[i] = a[i] * c[i] - b[i] * s[i];
                b_out[i] = b[i] * c[i] + a[i] * s[i];
            }
            store_lanes(a_out, x + k, count);
            store_lanes(b_out, x + half + k, count);
        }
}

/* The k largest, ties to the lower index, best first; a NaN counts as -infinity. Then e_j = exp(l_j - l_0),
 * their sum in 16 accumulators by j mod 16, weight = e_j / sum. */
static void route_row(const float *logits, uint32_t n, uint32_t k, uint16_t *ids, float *weights)
{
    assert(k > 0 && k <= n && n <= UINT16_MAX + 1u);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        float v = logits[i] == logits[i] ? logits[i] : -INFINITY;
        uint32_t at = kept;
        while (at > 0 && v > weights[at - 1])
            at--;
        if (at == k)
            continue;
        kept += kept < k;
        for (uint32_t j = kept - 1; j > at; j--) {
            ids[j] = ids[j - 1];
            weights[j] = weights[j - 1];
        }
        ids[at] = (uint16_t)i;
        weights[at] = v;
    }
    float acc[LANES] = {0};
    const float most = weights[0];
    for (uint32_t j = 0; j < k; j++) {
        weights[j] = math_exp(weights[j] - most);
        acc[j % LANES] += weights[j];
    }
    const float sum = add_lanes(acc);
    for (uint32_t j = 0; j < k; j++)
        weights[j] /= sum;
}

static void weighted_sum_row(const float *ys, const float *weights, uint32_t k, uint32_t cols, float *out)
{
    for (uint32_t c = 0; c < cols; c += LANES) {
        uint32_t count = cols - c;
        float sum[LANES], y[LANES];
        load_lanes(y, ys + c, count);
        for (int i = 0; i < LANES; i++)
            sum[i] = weights[0] * y[i];
        for (uint32_t j = 1; j < k; j++) {
            load_lanes(y, ys + (size_t)j * cols + c, count);
            for (int i = 0; i < LANES; i++)
                sum[i] = fmaf(weights[j], y[i], sum[i]);
        }
        store_lanes(sum, out + c, count);
    }
}

/* ---- elements ---- */

static void add(const float *a, const float *b, size_t n, float *out)
{
    for (size_t k = 0; k < n; k += LANES) {
        float u[LANES], v[LANES];
        load_lanes(u, a + k, n - k);
        load_lanes(v, b + k, n - k);
        for (int i = 0; i < LANES; i++)
            u[i] += v[i];
        store_lanes(u, out + k, n - k);
    }
}

static void scale(float *x, float s, size_t n)
{
    for (size_t k = 0; k < n; k += LANES) {
        float v[LANES];
        load_lanes(v, x + k, n - k);
        for (int i = 0; i < LANES; i++)
            v[i] *= s;
        store_lanes(v, x + k, n - k);
    }
}

static void scale_cols(float *x, const float *vec, float s, uint32_t cols)
{
    for (uint32_t k = 0; k < cols; k += LANES) {
        float v[LANES], w[LANES];
        load_lanes(v, x + k, cols - k);
        load_lanes(w, vec + k, cols - k);
        for (int i = 0; i < LANES; i++)
            v[i] = v[i] * w[i] * s;
        store_lanes(v, x + k, cols - k);
    }
}

static void gated(enum activation act, const float *gate, const float *up, size_t n, float *out)
{
    for (size_t k = 0; k < n; k += LANES) {
        float g[LANES], u[LANES];
        load_lanes(g, gate + k, n - k);
        load_lanes(u, up + k, n - k);
        if (act == ACT_GELU_TANH)
            for (int i = 0; i < LANES; i++)
                g[i] = math_gelu_tanh(g[i]) * u[i];
        else if (act == ACT_SILU)
            for (int i = 0; i < LANES; i++)
                g[i] = math_silu(g[i]) * u[i];
        else
            for (int i = 0; i < LANES; i++)
                g[i] = math_sigmoid(g[i]) * u[i];
        store_lanes(g, out + k, n - k);
    }
}

static void softcap(float *x, float cap, size_t n)
{
    for (size_t k = 0; k < n; k += LANES) {
        float v[LANES];
        load_lanes(v, x + k, n - k);
        for (int i = 0; i < LANES; i++)
            v[i] = cap * math_tanh(v[i] / cap);
        store_lanes(v, x + k, n - k);
    }
}

static void exp_all(const float *x, float shift, size_t n, float *out)
{
    for (size_t k = 0; k < n; k++)
        out[k] = math_exp(x[k] - shift);
}

static float largest(const float *x, size_t n)
{
    float most = x[0];
    for (size_t k = 1; k < n; k++)
        most = x[k] > most ? x[k] : most;
    return most;
}

static bool finite_all(const float *x, size_t n)
{
    return absolute_maximum(x, n) < MATH_INF_BITS;
}

/* ---- recurrence ---- */

/* One fmaf after another from +0, oldest row first, then SiLU. */
static void conv_channels(const float *taps, uint32_t n_taps, uint32_t channels, uint32_t begin, uint32_t end,
                          const float *tail, const float *x, uint32_t n_rows, float *out)
{
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t c = begin; c < end; c += LANES) {
            const uint32_t count = end - c;
            float sum[LANES] = {0}, w[LANES], u[LANES];
            for (uint32_t j = 0; j < n_taps; j++) {
                const size_t row = (size_t)r + j;
                const float *from =
                    row < n_taps - 1 ? tail + row * channels : x + (row - n_taps + 1) * channels;
                load_lanes(w, taps + (size_t)j * channels + c, count);
                load_lanes(u, from + c, count);
                for (int i = 0; i < LANES; i++)
                    sum[i] = fmaf(w[i], u[i], sum[i]);
            }
            for (int i = 0; i < LANES; i++)
                sum[i] = math_silu(sum[i]);
            store_lanes(sum, out + (size_t)r * channels + c, count);
        }
}

/* A row s of the state meets the rows of the call one after another, on its own:
 *   s = decay * s                         rounded
 *   d = beta * (v - sum_i s[i] k[i])      16 accumulators by i mod 16
 *   s[i] = fmaf(d, k[i], s[i])
 *   out = sum_i s[i] q[i]                 16 accumulators by i mod 16 */
static void delta_values(const struct delta_head *h, uint32_t begin, uint32_t end)
{
    assert(h->key_dim % LANES == 0);
    for (uint32_t o = begin; o < end; o++) {
        float *s = h->state + (size_t)o * h->key_dim;
        for (uint32_t r = 0; r < h->n_rows; r++) {
            const float *q = h->q + r * h->qkv_stride, *k = h->k + r * h->qkv_stride;
            const float decay = h->decay[r * h->gate_stride], beta = h->beta[r * h->gate_stride];
            float read[LANES] = {0}, sum[LANES] = {0};
            for (uint32_t at = 0; at < h->key_dim; at += LANES)
                for (int i = 0; i < LANES; i++) {
                    s[at + (uint32_t)i] *= decay;
                    read[i] = fmaf(s[at + (uint32_t)i], k[at + (uint32_t)i], read[i]);
                }
            const float d = beta * (h->v[r * h->qkv_stride + o] - add_lanes(read));
            for (uint32_t at = 0; at < h->key_dim; at += LANES)
                for (int i = 0; i < LANES; i++) {
                    s[at + (uint32_t)i] = fmaf(d, k[at + (uint32_t)i], s[at + (uint32_t)i]);
                    sum[i] = fmaf(s[at + (uint32_t)i], q[at + (uint32_t)i], sum[i]);
                }
            h->out[r * h->out_stride + o] = add_lanes(sum);
        }
    }
}

/* ---- attention ---- */

/* For one query head at position p the visible positions are those from max(0, p - window + 1), or from 0
 * when window is 0, to p. They are cut into blocks by absolute position (block = position / 64), so that the
 * result depends on the query, the stored rows and the window, not on where rows are kept nor on what else is
 * computed. Positions that are not visible take no part: no term is added for them.
 *
 * Each block stands on its own, and may be computed anywhere:
 *   score_j = scale * sum_d q[d] k_j[d]           16 accumulators by d mod 16
 *   m_b = max_j score_j,  e_j = exp(score_j - m_b)
 *   l_b = sum_j e_j                               16 accumulators by position mod 16
 *   o_b[d] = sum_j e_j v_j[d]                     one fmaf after another from +0, positions ascending
 * The blocks are folded ascending. The first one's m, l and o are taken as they are; then
 *   m' = max(m, m_b),  a = exp(m - m'),  b = exp(m_b - m')
 *   l = fmaf(l_b, b, l * a),  o[d] = fmaf(o_b[d], b, o[d] * a),  m = m'
 * and out[d] = o[d] * (1 / l). One of a and b is exactly 1. */

struct attend_state {
    float *scores;  /* [ATTEND_BLOCK], by position mod 64; then e_j */
    float *partial; /* [head_dim] */
    float most, sum;
    bool started;
};

static inline uint32_t first_visible(const struct attend *a, uint32_t position)
{
    return a->window && position >= a->window ? position - a->window + 1 : 0;
}

/* Rows of positions [first, last] of the stored keys or values, as floats. */
static void load_block(const struct attend *a, const void *stored, uint32_t first, uint32_t last,
                       float *block)
{
    static const enum dtype TYPES[] = {
        [SLUICE_KV_F16] = DTYPE_F16, [SLUICE_KV_BF16] = DTYPE_BF16, [SLUICE_KV_F32] = DTYPE_F32};
    const struct kv_view *kv = a->kv;
    const enum dtype type = TYPES[kv->type];
    for (uint32_t p = first; p <= last; p++) {
        size_t row = (size_t)(p % kv->slots) * kv->kv_heads + a->kv_head;
        const unsigned char *values = (const unsigned char *)stored + row * kv->head_dim * dtype_bytes(type);
        widen(type, values, kv->head_dim, block + (size_t)(p % ATTEND_BLOCK) * kv->head_dim);
    }
}

/* Scores of one query against positions [lo, hi] of a block, then e_j; returns m_b and l_b. */
static void score_block(const struct attend *a, const float *q, const float *keys, uint32_t lo, uint32_t hi,
                        float *scores, float *most, float *sum)
{
    const uint32_t dim = a->kv->head_dim, begin = lo % ATTEND_BLOCK, end = hi % ATTEND_BLOCK + 1;
    for (uint32_t j = begin; j < end; j++)
        scores[j] = a->scale * dot(q, keys + (size_t)j * dim, dim);
    float m = scores[begin];
    for (uint32_t j = begin + 1; j < end; j++)
        m = scores[j] > m ? scores[j] : m;
    float acc[LANES] = {0};
    for (uint32_t j = begin; j < end; j++) {
        scores[j] = math_exp(scores[j] - m);
        acc[j % LANES] += scores[j];
    }
    *most = m;
    *sum = add_lanes(acc);
}

static void weigh_block(const float *e, const float *values, uint32_t dim, uint32_t lo, uint32_t hi,
                        float *out)
{
    const uint32_t begin = lo % ATTEND_BLOCK, end = hi % ATTEND_BLOCK + 1;
    for (uint32_t d = 0; d < dim; d += LANES) {
        uint32_t count = dim - d;
        float o[LANES] = {0}, v[LANES];
        for (uint32_t j = begin; j < end; j++) {
            load_lanes(v, values + (size_t)j * dim + d, count);
            for (int i = 0; i < LANES; i++)
                o[i] = fmaf(e[j], v[i], o[i]);
        }
        store_lanes(o, out + d, count);
    }
}

static void fold_block(struct attend_state *state, float most, float sum, uint32_t dim, float *out)
{
    if (!state->started) {
        memcpy(out, state->partial, dim * sizeof *out);
        state->most = most;
        state->sum = sum;
        state->started = true;
        return;
    }
    float m = most > state->most ? most : state->most;
    float old = math_exp(state->most - m), new = math_exp(most - m);
    for (uint32_t d = 0; d < dim; d += LANES) {
        float o[LANES], p[LANES];
        load_lanes(o, out + d, dim - d);
        load_lanes(p, state->partial + d, dim - d);
        for (int i = 0; i < LANES; i++)
            o[i] = fmaf(p[i], new, o[i] * old);
        store_lanes(o, out + d, dim - d);
    }
    state->sum = fmaf(sum, new, state->sum * old);
    state->most = m;
}

static void attend(const struct attend *a, const struct attend_query *queries, uint32_t n_queries,
                   float *scratch)
{
    assert(n_queries > 0 && n_queries <= ATTEND_QUERIES);
    const uint32_t dim = a->kv->head_dim;
    struct attend_state states[ATTEND_QUERIES];
    uint32_t first = UINT32_MAX, last = 0;
    float *block = scratch, *free = scratch + (size_t)ATTEND_BLOCK * dim;
    for (uint32_t i = 0; i < n_queries; i++, free += ATTEND_BLOCK + dim) {
        states[i] = (struct attend_state){.scores = free, .partial = free + ATTEND_BLOCK};
        uint32_t from = first_visible(a, queries[i].position);
        first = from < first ? from : first;
        last = queries[i].position > last ? queries[i].position : last;
    }
    for (uint32_t b = first / ATTEND_BLOCK; b <= last / ATTEND_BLOCK; b++) {
        const uint32_t start = b * ATTEND_BLOCK, stop = start + (ATTEND_BLOCK - 1);
        const uint32_t block_lo = first > start ? first : start, block_hi = last < stop ? last : stop;
        uint32_t lo[ATTEND_QUERIES], hi[ATTEND_QUERIES];
        float most[ATTEND_QUERIES], sum[ATTEND_QUERIES];
        load_block(a, a->kv->k, block_lo, block_hi, block);
        for (uint32_t i = 0; i < n_queries; i++) {
            uint32_t from = first_visible(a, queries[i].position), to = queries[i].position;
            lo[i] = from > start ? from : start;
            hi[i] = to < stop ? to : stop;
            if (lo[i] <= hi[i])
                score_block(a, queries[i].q, block, lo[i], hi[i], states[i].scores, &most[i], &sum[i]);
        }
        load_block(a, a->kv->v, block_lo, block_hi, block);
        for (uint32_t i = 0; i < n_queries; i++)
            if (lo[i] <= hi[i]) {
                weigh_block(states[i].scores, block, dim, lo[i], hi[i], states[i].partial);
                fold_block(&states[i], most[i], sum[i], dim, queries[i].out);
            }
    }
    for (uint32_t i = 0; i < n_queries; i++) {
        scale(queries[i].out, 1.0f / states[i].sum, dim);
    }
}

void cpu_fill_ref(struct cpu_kernels *kernels)
{
    *kernels = (struct cpu_kernels){
        .name = "ref",
        .widen = widen,
        .narrow = narrow,
        .dequantize_row = dequantize_row,
        .quantize_row = quantize_row,
        .affine_i8 = affine_i8,
        .affine_f32 = linear_float,
        .dense = linear_float,
        .norm_row = norm_row,
        .rope_row = rope_row,
        .attend = attend,
        .route_row = route_row,
        .gated_norm_row = gated_norm_row,
        .unit_row = unit_row,
        .conv_channels = conv_channels,
        .delta_values = delta_values,
        .weighted_sum_row = weighted_sum_row,
        .add = add,
        .scale = scale,
        .scale_cols = scale_cols,
        .gated = gated,
        .softcap = softcap,
        .finite = finite_all,
        .exp = exp_all,
        .largest = largest,
    };
}
