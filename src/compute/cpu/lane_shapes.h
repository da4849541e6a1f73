/* The product with affine weights, from what lane_affine.h has: which way a number of rows goes, and a
 * function for each width and group size. AFFINE_PRODUCT is the block_fn of an instruction set that has a
 * better one. */
#ifndef COMPUTE_CPU_LANE_SHAPES_H
#define COMPUTE_CPU_LANE_SHAPES_H

#include "compute/cpu/lane_affine.h"

#ifndef AFFINE_PRODUCT
#define AFFINE_PRODUCT block_product
#endif

INLINE void one_row(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x, float *y,
                    uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t groups = m->cols / n;
    if (groups <= 8 && (groups & (groups - 1)) == 0)
        short_rows(m, begin, end, x, y, bits, n, wide);
    else if (groups < GROUPS)
        run_rows(m, begin, end, x, y, bits, n, wide);
    else
        long_rows(m, begin, end, x, y, bits, n, wide);
}

/* So few rows of x, as drafting has them, cost less one after another than a tile's unpacking does: a block
 * of weights stays in the first-level cache meanwhile. */
INLINE void few_rows(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                     uint32_t n_rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t row_bytes = m->cols / 8 * bits, fit = FEW_BYTES / row_bytes;
    const uint32_t block = n_rows == 1 ? end - begin : fit < TILE ? TILE : fit;
    for (uint32_t o = begin; o < end; o += block)
        for (uint32_t r = 0; r < n_rows; r++) {
            const struct quant row = quant_from(x, r);
            one_row(m, o, end - o < block ? end : o + block, &row, y + (size_t)r * m->rows, bits, n, wide);
        }
}

INLINE void affine_shape(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                         uint32_t n_rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    if (n_rows <= (wide ? FEW_WIDE : FEW))
        few_rows(m, begin, end, x, n_rows, y, bits, n, wide);
    else
        many_rows(m, begin, end, x, n_rows, y, AFFINE_PRODUCT, bits, n, wide);
}

/* Functions for each width and group size: their constants decide how the loops above compile. */
#define AFFINE_SHAPE(bits, n)                                                                                \
    static void affine_##bits##_##n(const struct mat *m, uint32_t begin, uint32_t end,                       \
                                    const struct quant *x, uint32_t n_rows, float *y)                        \
    {                                                                                                        \
        if (x->wide)                                                                                         \
            affine_shape(m, begin, end, x, n_rows, y, bits, n, true);                                        \
        else                                                                                                 \
            affine_shape(m, begin, end, x, n_rows, y, bits, n, false);                                       \
    }

AFFINE_SHAPE(2, 32)
AFFINE_SHAPE(2, 64)
AFFINE_SHAPE(2, 128)
AFFINE_SHAPE(4, 32)
AFFINE_SHAPE(4, 64)
AFFINE_SHAPE(4, 128)
AFFINE_SHAPE(8, 32)
AFFINE_SHAPE(8, 64)
AFFINE_SHAPE(8, 128)

typedef void shape_fn(const struct mat *, uint32_t, uint32_t, const struct quant *, uint32_t, float *);

static void affine_i8(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y)
{
    static shape_fn *const SHAPES[3][3] = {
        {affine_2_32, affine_2_64, affine_2_128},
        {affine_4_32, affine_4_64, affine_4_128},
        {affine_8_32, affine_8_64, affine_8_128},
    };
    /* 2, 4, 8 -> 0, 1, 2 and 32, 64, 128 -> 0, 1, 2 */
    SHAPES[m->bits / 4u][m->group_size / 64u](m, begin, end, x, n_rows, y);
}

#endif
