/* Products with float activations on sixteen lanes: dense weights, and affine weights dequantized in
 * registers. Element k of an output goes to accumulator k mod 16, so a lane is an element; a tile of outputs
 * and rows of x shares what it loads. ref.c says what the bits are. */
#ifndef COMPUTE_CPU_LANE_FLOATS_H
#define COMPUTE_CPU_LANE_FLOATS_H

#include "compute/cpu/lane_rows.h"

/* ---- dense weights ---- */

INLINE void dense_tile(const struct mat *m, uint32_t o, uint32_t outputs, const float *x, uint32_t rows,
                       float *y, enum dtype dtype)
{
    const uint32_t cols = m->cols;
    const uint8_t *w[FLOAT_OUTPUTS];
    vf acc[FLOAT_OUTPUTS][MANY_ROWS];
    for (uint32_t i = 0; i < outputs; i++) {
        w[i] = (const uint8_t *)m->weight + (size_t)(o + i) * cols * dtype_bytes(dtype);
        for (uint32_t r = 0; r < rows; r++)
            acc[i][r] = vf_set(0.0f);
    }
    uint32_t k = 0;
    for (; k + LANES <= cols; k += LANES)
        for (uint32_t i = 0; i < outputs; i++) {
            const vf v = vf_stored(dtype, w[i], k);
            for (uint32_t r = 0; r < rows; r++)
                acc[i][r] = vf_fma(v, vf_load(x + (size_t)r * cols + k), acc[i][r]);
        }
    for (uint32_t i = 0; k < cols && i < outputs; i++) {
        const vf v = vf_stored_n(dtype, w[i], k, cols - k);
        for (uint32_t r = 0; r < rows; r++)
            acc[i][r] = vf_fma_n(v, vf_load_n(x + (size_t)r * cols + k, cols - k), acc[i][r], cols - k);
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < outputs; i++)
            y[(size_t)r * m->rows + o + i] = vf_sum(acc[i][r]);
}

/* ---- affine weights ---- */

/* The rows of weights of a tile, and the scales and biases of 16 of their groups. */
struct affine_rows {
    const uint8_t *packed[FLOAT_OUTPUTS];
    const uint16_t *stored_scales[FLOAT_OUTPUTS], *stored_biases[FLOAT_OUTPUTS];
    float scales[FLOAT_OUTPUTS][LANES], biases[FLOAT_OUTPUTS][LANES];
};

INLINE void widen_groups(struct affine_rows *w, uint32_t outputs, uint32_t g, uint32_t count)
{
    for (uint32_t i = 0; i < outputs; i++) {
        const uint16_t *s = w->stored_scales[i] + g, *b = w->stored_biases[i] + g;
        vf_store(w->scales[i], count == LANES ? vf_bf16(s) : vf_bf16_n(s, count));
        vf_store(w->biases[i], count == LANES ? vf_bf16(b) : vf_bf16_n(b, count));
    }
}

INLINE void affine_tile(const struct mat *m, uint32_t o, uint32_t outputs, const float *x, uint32_t rows,
                        float *y, uint32_t bits)
{
    const uint32_t cols = m->cols, n = m->group_size, groups = cols / n;
    struct affine_rows w;
    vf acc[FLOAT_OUTPUTS][MANY_ROWS];
    for (uint32_t i = 0; i < outputs; i++) {
        w.packed[i] = (const uint8_t *)m->weight + (size_t)(o + i) * (cols / 8) * bits;
        w.stored_scales[i] = (const uint16_t *)m->scales + (size_t)(o + i) * groups;
        w.stored_biases[i] = (const uint16_t *)m->biases + (size_t)(o + i) * groups;
        for (uint32_t r = 0; r < rows; r++)
            acc[i][r] = vf_set(0.0f);
    }
    for (uint32_t g = 0; g < groups; g++) {
        if (g % LANES == 0)
            widen_groups(&w, outputs, g, groups - g < LANES ? groups - g : LANES);
        lut table[FLOAT_OUTPUTS];
        for (uint32_t i = 0; i < outputs; i++)
            table[i] = lut_make(w.scales[i][g % LANES], w.biases[i][g % LANES], bits);
        for (uint32_t k = g * n; k < (g + 1) * n; k += LANES) {
            vf lanes[MANY_ROWS];
            for (uint32_t r = 0; r < rows; r++)
                lanes[r] = lut_order(vf_load(x + (size_t)r * cols + k), bits);
            for (uint32_t i = 0; i < outputs; i++) {
                const vf v = lut_weights(table[i], w.packed[i] + (size_t)k / 8 * bits, bits);
                for (uint32_t r = 0; r < rows; r++)
                    acc[i][r] = vf_fma(v, lanes[r], acc[i][r]);
            }
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < outputs; i++)
            y[(size_t)r * m->rows + o + i] = vf_sum(lut_natural(acc[i][r], bits));
}

/* ---- both ---- */

/* bits 0: dense, of this dtype. */
INLINE void float_tile(const struct mat *m, uint32_t o, uint32_t outputs, const float *x, uint32_t rows,
                       float *y, enum dtype dtype, uint32_t bits)
{
    if (bits)
        affine_tile(m, o, outputs, x, rows, y, bits);
    else
        dense_tile(m, o, outputs, x, rows, y, dtype);
}

/* Rows in tiles of MANY_ROWS, with as many outputs as leave room for them; rows that are left in tiles of one
 * row and FLOAT_OUTPUTS. */
INLINE void float_span(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t rows,
                       uint32_t outputs, float *y, enum dtype dtype, uint32_t bits)
{
    uint32_t o = begin;
    for (; o + outputs <= end; o += outputs)
        float_tile(m, o, outputs, x, rows, y, dtype, bits);
    for (; outputs > 1 && o < end; o++)
        float_tile(m, o, 1, x, rows, y, dtype, bits);
}

INLINE void float_product(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                          float *y, enum dtype dtype, uint32_t bits)
{
    enum { SPAN = 32 }; /* outputs whose weights stay in a near cache while the rows pass */
    for (uint32_t o = begin; o < end; o += SPAN) {
        const uint32_t stop = end - o < SPAN ? end : o + SPAN;
        uint32_t r = 0;
        for (; r + MANY_ROWS <= n_rows; r += MANY_ROWS)
            float_span(m, o, stop, x + (size_t)r * m->cols, MANY_ROWS, MANY_OUTPUTS, y + (size_t)r * m->rows,
                       dtype, bits);
        for (; r < n_rows; r++)
            float_span(m, o, stop, x + (size_t)r * m->cols, 1, FLOAT_OUTPUTS, y + (size_t)r * m->rows, dtype,
                       bits);
    }
}

static void affine_f32(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                       float *y)
{
    switch (m->bits) {
    case 2:
        float_product(m, begin, end, x, n_rows, y, DTYPE_AFFINE, 2);
        break;
    case 4:
        float_product(m, begin, end, x, n_rows, y, DTYPE_AFFINE, 4);
        break;
    default:
        float_product(m, begin, end, x, n_rows, y, DTYPE_AFFINE, 8);
    }
}

static void dense(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                  float *y)
{
    switch (m->dtype) {
    case DTYPE_BF16:
        float_product(m, begin, end, x, n_rows, y, DTYPE_BF16, 0);
        break;
    case DTYPE_F16:
        float_product(m, begin, end, x, n_rows, y, DTYPE_F16, 0);
        break;
    default:
        assert(m->dtype == DTYPE_F32);
        float_product(m, begin, end, x, n_rows, y, DTYPE_F32, 0);
    }
}

/* ---- decoding ---- */

INLINE float bf16_value(const uint16_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return math_from_bits((uint32_t)half << 16);
}

INLINE void dequantize_as(const struct mat *m, uint32_t row, float *out, uint32_t bits)
{
    const size_t groups = m->cols / m->group_size, first = row * groups;
    const uint8_t *packed = (const uint8_t *)m->weight + (size_t)row * (m->cols / 8) * bits;
    for (size_t g = 0; g < groups; g++) {
        const lut t = lut_make(bf16_value((const uint16_t *)m->scales + first + g),
                               bf16_value((const uint16_t *)m->biases + first + g), bits);
        for (uint32_t k = 0; k < m->group_size; k += LANES, packed += (size_t)2 * bits, out += LANES)
            vf_store(out, lut_natural(lut_weights(t, packed, bits), bits));
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
