/* AVX-512 with VNNI and AMX: integer products of 16 outputs and 16 rows of x in one instruction. Only
 * products of many rows differ from avx512vnni.c, and their bits do not: a tile holds the dots of one group,
 * which are exact, and what is done with them is the reference's.
 *
 * A call unpacks 16 rows of weights once, into the order that the tile unit reads, and meets all rows of x
 * with them. A quarter of a processor's time goes into the dots and the rest into turning them into floats.
 */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(                                                                                \
    __attribute__((                                                                                          \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512vnni,amx-tile,amx-int8"))),           \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512vnni,amx-tile,amx-int8")
#endif
#define LANES_VNNI
#include "compute/cpu/lanes_avx512.h"

#include "compute/cpu/lane_affine.h"

/* Longer rows are left to VNNI; the weights of 16 rows are unpacked on the stack. A few rows of
 * x fill too little of a tile. */
enum { COLS_MOST = 8192, GROUPS_MOST = COLS_MOST / 32, BLOCK = 16 };

/* Numbers of tile registers: dots of high and of low codes, for every other group; codes of x, weights. */
#define HIGH_EVEN 0
#define HIGH_ODD  1
#define LOW_EVEN  2
#define LOW_ODD   3
#define CODES     4
#define PACKED    5

/* GCC 12's intrinsics that load do not say that they read memory: without this the stores before them may be
 * dropped or come later. */
INLINE void publish(const void *written)
{
    __asm__ volatile("" ::"r"(written) : "memory");
}

struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* For `rows` rows of x (1 to 16), and groups of `dwords` in each plane. */
static void configure(uint32_t rows, uint32_t dwords)
{
    _Alignas(64) struct config c = {.palette = 1};
    for (int i = HIGH_EVEN; i <= LOW_ODD; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = (uint8_t)rows;
    }
    c.row_bytes[CODES] = (uint16_t)(4 * dwords);
    c.rows[CODES] = (uint8_t)rows;
    c.row_bytes[PACKED] = 64;
    c.rows[PACKED] = (uint8_t)dwords;
    publish(&c);
    _tile_loadconfig(&c);
}

/* Sixteen rows of weights, unpacked. */
struct unpacked {
    uint8_t planes[16 * COLS_MOST]; /* [unit][plane][dword][output][4] */
    float scales[GROUPS_MOST][TILE], biases[GROUPS_MOST][TILE];
};

static void unpack(const struct mat *m, uint32_t o, uint32_t outputs, uint32_t bits, uint32_t n,
                   struct unpacked *u)
{
    const uint8_t *packed[TILE], *scales[TILE], *biases[TILE];
    const uint32_t groups = m->cols / n, planes = 8 / bits;
    const size_t bytes = (size_t)m->cols / 8 * bits;
    for (uint32_t i = 0; i < TILE; i++) {
        const size_t row = o + (i < outputs ? i : outputs - 1);
        packed[i] = (const uint8_t *)m->weight + row * bytes;
        scales[i] = (const uint8_t *)m->scales + row * groups * 2;
        biases[i] = (const uint8_t *)m->biases + row * groups * 2;
    }
    for (size_t at = 0; at < bytes; at += UNIT)
        unpack_unit(packed, at, bytes - at < UNIT ? (uint32_t)(bytes - at) : UNIT, bits,
                    u->planes + at / UNIT * 1024 * planes);
    for (uint32_t g = 0; g < groups; g += GROUPS) {
        const uint32_t count = groups - g < GROUPS ? groups - g : GROUPS;
        widen_transposed(scales, count, u->scales + g);
        widen_transposed(biases, count, u->biases + g);
        for (uint32_t i = 0; i < TILE; i++) {
            scales[i] += 2 * GROUPS;
            biases[i] += 2 * GROUPS;
        }
    }
}

typedef int32_t dots[2][BLOCK][TILE]; /* of high codes and of low ones */

/* Products of high codes and low ones, into the tiles of even groups or of odd ones. */
#define ADD_PRODUCTS(high, low_tile)                                                                         \
    do {                                                                                                     \
        _tile_loadd(PACKED, w, 64);                                                                          \
        _tile_loadd(CODES, x, stride);                                                                       \
        _tile_dpbsud(high, CODES, PACKED);                                                                   \
        if (wide) {                                                                                          \
            _tile_loadd(CODES, x + low, stride);                                                             \
            _tile_dpbsud(low_tile, CODES, PACKED);                                                           \
        }                                                                                                    \
    } while (0)

/* Codes of a block of rows of x, `stride` apart, their low parts `low` further on. */
struct block {
    const int8_t *q;
    size_t stride, low;
    const float *scales, *sums;
    size_t group_stride;
    uint32_t rows;
};

/* The dots of group g. */
INLINE void group_dots(const struct unpacked *u, const struct block *b, uint32_t g, bool odd, uint32_t bits,
                       uint32_t n, bool wide, dots out)
{
    const uint32_t planes = 8 / bits, group_bytes = n * bits / 8;
    const size_t at = (size_t)g * group_bytes, stride = b->stride, low = b->low;
    if (odd) {
        _tile_zero(HIGH_ODD);
        _tile_zero(LOW_ODD);
    } else {
        _tile_zero(HIGH_EVEN);
        _tile_zero(LOW_EVEN);
    }
    for (size_t from = at; from < at + group_bytes; from += UNIT) {
        const uint8_t *w = u->planes + from / UNIT * 1024 * planes + from % UNIT * 16;
        const int8_t *x = b->q + from / UNIT * UNIT * planes + from % UNIT;
        for (uint32_t p = 0; p < planes; p++, w += 1024, x += UNIT)
            if (odd)
                ADD_PRODUCTS(HIGH_ODD, LOW_ODD);
            else
                ADD_PRODUCTS(HIGH_EVEN, LOW_EVEN);
    }
    if (odd) {
        _tile_stored(HIGH_ODD, out[0], 64);
        if (wide)
            _tile_stored(LOW_ODD, out[1], 64);
    } else {
        _tile_stored(HIGH_EVEN, out[0], 64);
        if (wide)
            _tile_stored(LOW_EVEN, out[1], 64);
    }
}

/* acc = fmaf(scale * s, dot, acc), then fmaf(bias, sum, acc), of all rows; lanes are outputs. */
INLINE void add_dots(vf acc[BLOCK], dots d, const struct unpacked *u, const struct block *b, uint32_t g,
                     uint32_t rows, bool wide)
{
    const vf scale = vf_load(u->scales[g]), bias = vf_load(u->biases[g]);
    const float *xs = b->scales + g, *sums = b->sums + g;
    for (uint32_t r = 0; r < rows; r++) {
        vi dot = _mm512_load_si512(d[0][r]);
        if (wide)
            dot = vi_add(vi_left(dot, 7), _mm512_load_si512(d[1][r]));
        const vf s = vf_mul(scale, vf_set(xs[r * b->group_stride]));
        acc[r] = vf_fma(bias, vf_set(sums[r * b->group_stride]), vf_fma(s, vi_float(dot), acc[r]));
    }
}

/* Groups in the order of their accumulators, 0, 16, 32, ..., 1, 17, ...: an accumulator of every row then
 * stays in a register until its groups end. A group's dots are on their way while those before are added. */
INLINE void block_product(const struct unpacked *u, const struct block *b, uint32_t groups, uint32_t bits,
                          uint32_t n, uint32_t rows, bool wide, float sums[LANES][TILE_ROWS][TILE])
{
    _Alignas(64) dots flying[2];
    bool odd = false;
    group_dots(u, b, 0, odd, bits, n, wide, flying[0]);
    for (uint32_t slot = 0; slot < LANES; slot++) {
        vf acc[BLOCK];
        for (uint32_t r = 0; r < rows; r++)
            acc[r] = vf_set(0.0f);
        for (uint32_t g = slot; g < groups; g += LANES, odd = !odd) {
            const uint32_t next = g + LANES < groups ? g + LANES : slot + 1 < LANES ? slot + 1 : groups;
            if (next < groups && odd)
                group_dots(u, b, next, false, bits, n, wide, flying[0]);
            else if (next < groups)
                group_dots(u, b, next, true, bits, n, wide, flying[1]);
            add_dots(acc, flying[odd], u, b, g, rows, wide);
        }
        for (uint32_t r = 0; r < rows; r++)
            vf_store(sums[slot][r], acc[r]);
    }
}

INLINE void amx_shape(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y, uint32_t bits, uint32_t n, bool wide)
{
    _Alignas(64) struct unpacked u;
    _Alignas(64) float sums[LANES][TILE_ROWS][TILE];
    const uint32_t group_bytes = n * bits / 8, dwords = (group_bytes < UNIT ? group_bytes : UNIT) / 4;
    const uint32_t groups = m->cols / n, full = n_rows / BLOCK * BLOCK;
    const size_t stride = (size_t)x->code_stride * (1u + wide);
    for (uint32_t o = begin; o < end; o += TILE) {
        const uint32_t outputs = end - o < TILE ? end - o : TILE;
        unpack(m, o, outputs, bits, n, &u);
        publish(&u);
        configure(BLOCK, dwords);
        for (uint32_t r = 0; r < n_rows; r += BLOCK) {
            const struct block b = {x->codes + r * stride,
                                    stride,
                                    x->code_stride,
                                    x->scales + (size_t)r * x->group_stride,
                                    x->sums + (size_t)r * x->group_stride,
                                    x->group_stride,
                                    r < full ? BLOCK : n_rows - full};
            if (r < full) {
                block_product(&u, &b, groups, bits, n, BLOCK, wide, sums);
            } else {
                configure(b.rows, dwords);
                block_product(&u, &b, groups, bits, n, b.rows, wide, sums);
            }
            finish_tile(sums, b.rows, outputs, m->rows, y + (size_t)r * m->rows + o);
        }
    }
    _tile_release();
}

#define AMX_SHAPE(bits, n)                                                                                   \
    static void amx_##bits##_##n(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,   \
                                 uint32_t n_rows, float *y)                                                  \
    {                                                                                                        \
        if (x->wide)                                                                                         \
            amx_shape(m, begin, end, x, n_rows, y, bits, n, true);                                           \
        else                                                                                                 \
            amx_shape(m, begin, end, x, n_rows, y, bits, n, false);                                          \
    }

AMX_SHAPE(2, 32)
AMX_SHAPE(2, 64)
AMX_SHAPE(2, 128)
AMX_SHAPE(4, 32)
AMX_SHAPE(4, 64)
AMX_SHAPE(4, 128)
AMX_SHAPE(8, 32)
AMX_SHAPE(8, 64)
AMX_SHAPE(8, 128)

static void amx_affine_i8(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                          uint32_t n_rows, float *y)
{
    static shape_fn *const SHAPES[3][3] = {
        {amx_2_32, amx_2_64, amx_2_128},
        {amx_4_32, amx_4_64, amx_4_128},
        {amx_8_32, amx_8_64, amx_8_128},
    };
    if (n_rows <= (x->wide ? FEW_WIDE : FEW) || m->cols > COLS_MOST)
        affine_i8(m, begin, end, x, n_rows, y);
    else
        SHAPES[m->bits / 4u][m->group_size / 64u](m, begin, end, x, n_rows, y);
}

void cpu_fill_amx(struct cpu_kernels *kernels)
{
    cpu_fill_avx512(kernels);
    kernels->name = "amx";
    kernels->quantize_row = quantize_row;
    kernels->affine_i8 = amx_affine_i8;
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
