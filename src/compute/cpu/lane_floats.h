/* Products with float activations on sixteen lanes: dense weights, and affine weights dequantized in
 * registers. Element k of an output goes to accumulator k mod 16, so a lane is an element; a tile of outputs
 * and rows of x shares what it loads. ref.c says what the bits are. */
#ifndef COMPUTE_CPU_LANE_FLOATS_H
#define COMPUTE_CPU_LANE_FLOATS_H

#include "compute/cpu/lane_rows.h"

/* How a matrix is stored: a dtype, or a number of bits. */
struct stored_as {
    enum dtype dtype;
    uint32_t bits;
};

/* The rows of weights of a tile, at element k. */
struct weight_rows {
    const uint8_t *values[FLOAT_OUTPUTS];
    const uint16_t *scales[FLOAT_OUTPUTS], *biases[FLOAT_OUTPUTS];
};

INLINE float bf16_value(const uint16_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return math_from_bits((uint32_t)half << 16);
}

/* Elements [k, k + 16) of output i; group g holds them where the weights are affine. */
INLINE vf weight_lanes(const struct weight_rows *w, uint32_t i, uint32_t k, uint32_t g, struct stored_as as)
{
    if (as.dtype != DTYPE_AFFINE)
        return vf_stored(as.dtype, w->values[i], k);
    return vf_fma(vf_set(bf16_value(w->scales[i] + g)),
                  vf_codes(w->values[i] + (size_t)k / 8 * as.bits, as.bits),
                  vf_set(bf16_value(w->biases[i] + g)));
}

INLINE void float_tile(const struct mat *m, uint32_t o, uint32_t outputs, const float *x, uint32_t rows,
                       float *y, struct stored_as as)
{
    const uint32_t cols = m->cols, run = as.dtype == DTYPE_AFFINE ? m->group_size : cols / LANES * LANES;
    struct weight_rows w;
    vf acc[FLOAT_OUTPUTS][FLOAT_ROWS > 1 ? FLOAT_ROWS : 1];
    for (uint32_t i = 0; i < outputs; i++) {
        if (as.dtype == DTYPE_AFFINE) {
            const size_t groups = cols / m->group_size;
            w.values[i] = (const uint8_t *)m->weight + (size_t)(o + i) * (cols / 8) * as.bits;
            w.scales[i] = (const uint16_t *)m->scales + (o + i) * groups;
            w.biases[i] = (const uint16_t *)m->biases + (o + i) * groups;
        } else {
            w.values[i] = (const uint8_t *)m->weight + (size_t)(o + i) * cols * dtype_bytes(as.dtype);
        }
        for (uint32_t r = 0; r < rows; r++)
            acc[i][r] = vf_set(0.0f);
    }
    uint32_t k = 0;
    for (uint32_t g = 0; k + LANES <= cols; g++)
        for (const uint32_t stop = k + run; k < stop; k += LANES)
            for (uint32_t i = 0; i < outputs; i++) {
                const vf v = weight_lanes(&w, i, k, g, as);
                for (uint32_t r = 0; r < rows; r++)
                    acc[i][r] = vf_fma(v, vf_load(x + (size_t)r * cols + k), acc[i][r]);
            }
    for (uint32_t i = 0; as.dtype != DTYPE_AFFINE && k < cols && i < outputs; i++) {
        const vf v = vf_stored_n(as.dtype, w.values[i], k, cols - k);
        for (uint32_t r = 0; r < rows; r++)
            acc[i][r] = vf_fma_n(v, vf_load_n(x + (size_t)r * cols + k, cols - k), acc[i][r], cols - k);
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < outputs; i++)
            y[(size_t)r * m->rows + o + i] = vf_sum(acc[i][r]);
}

INLINE void float_outputs(const struct mat *m, uint32_t o, uint32_t outputs, const float *x, uint32_t n_rows,
                          float *y, struct stored_as as)
{
    uint32_t r = 0;
    for (; FLOAT_ROWS > 1 && r + FLOAT_ROWS <= n_rows; r += FLOAT_ROWS)
        float_tile(m, o, outputs, x + (size_t)r * m->cols, FLOAT_ROWS, y + (size_t)r * m->rows, as);
    for (; r < n_rows; r++)
        float_tile(m, o, outputs, x + (size_t)r * m->cols, 1, y + (size_t)r * m->rows, as);
}

INLINE void float_product(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                          float *y, struct stored_as as)
{
    uint32_t o = begin;
    for (; o + FLOAT_OUTPUTS <= end; o += FLOAT_OUTPUTS)
        float_outputs(m, o, FLOAT_OUTPUTS, x, n_rows, y, as);
    for (; o < end; o++)
        float_outputs(m, o, 1, x, n_rows, y, as);
}

static void affine_f32(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                       float *y)
{
    switch (m->bits) {
    case 2:
        float_product(m, begin, end, x, n_rows, y, (struct stored_as){DTYPE_AFFINE, 2});
        break;
    case 4:
        float_product(m, begin, end, x, n_rows, y, (struct stored_as){DTYPE_AFFINE, 4});
        break;
    default:
        float_product(m, begin, end, x, n_rows, y, (struct stored_as){DTYPE_AFFINE, 8});
    }
}

static void dense(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                  float *y)
{
    switch (m->dtype) {
    case DTYPE_BF16:
        float_product(m, begin, end, x, n_rows, y, (struct stored_as){.dtype = DTYPE_BF16});
        break;
    case DTYPE_F16:
        float_product(m, begin, end, x, n_rows, y, (struct stored_as){.dtype = DTYPE_F16});
        break;
    default:
        assert(m->dtype == DTYPE_F32);
        float_product(m, begin, end, x, n_rows, y, (struct stored_as){.dtype = DTYPE_F32});
    }
}

INLINE void dequantize_as(const struct mat *m, uint32_t row, float *out, uint32_t bits)
{
    const size_t groups = m->cols / m->group_size, first = row * groups;
    const uint8_t *packed = (const uint8_t *)m->weight + (size_t)row * (m->cols / 8) * bits;
    for (size_t g = 0; g < groups; g++) {
        const vf scale_lanes = vf_set(bf16_value((const uint16_t *)m->scales + first + g)),
                 bias_lanes = vf_set(bf16_value((const uint16_t *)m->biases + first + g));
        for (uint32_t k = 0; k < m->group_size; k += LANES, packed += 2 * bits, out += LANES)
            vf_store(out, vf_fma(scale_lanes, vf_codes(packed, bits), bias_lanes));
    }
}

static void dequantize_row(const struct mat *m, uint32_t row, float *out)
{
    assert(m->dtype == DTYPE_AFFINE && m->cols % m->group_size == 0);
    switch (m->bits) {
    case 2:
        dequantize_as(m, row, out, 2);
        break;
    case 4:
        dequantize_as(m, row, out, 4);
        break;
    default:
        dequantize_as(m, row, out, 8);
    }
}

#endif
