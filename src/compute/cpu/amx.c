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

/* For 16 rows of x, and groups of `dwords` in each plane. */
static void configure(uint32_t dwords)
{
    _Alignas(64) struct config c = {.palette = 1};
    for (int i = HIGH_EVEN; i <= PACKED; i++) {
        c.row_bytes[i] = (uint16_t)(i == CODES ? 4 * dwords : 64);
        c.rows[i] = (uint8_t)(i == PACKED ? dwords : BLOCK_ROWS);
    }
    publish(&c);
    _tile_loadconfig(&c);
}

typedef int32_t dots[2][BLOCK_ROWS][TILE]; /* of high codes and of low ones */

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

/* The dots of group g. */
INLINE void tile_group(const struct unpacked *u, const struct block *b, uint32_t g, bool odd, dots out,
                       uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t planes = 8 / bits, group_bytes = n * bits / 8;
    const size_t at = (size_t)g * group_bytes, low = b->stride, stride = low * (1u + wide);
    if (odd) {
        _tile_zero(HIGH_ODD);
        _tile_zero(LOW_ODD);
    } else {
        _tile_zero(HIGH_EVEN);
        _tile_zero(LOW_EVEN);
    }
    for (size_t from = at; from < at + group_bytes; from += UNIT) {
        const uint8_t *w = u->planes + from / UNIT * 1024 * planes + from % UNIT * TILE;
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
INLINE void add_dots(vf acc[BLOCK_ROWS], dots d, const struct unpacked *u, const struct block *b, uint32_t g,
                     bool wide)
{
    const vf scale = vf_load(u->scales[g]), bias = vf_load(u->biases[g]);
    const float *xs = b->scales + g, *sums = b->sums + g;
    for (uint32_t r = 0; r < BLOCK_ROWS; r++) {
        vi dot = _mm512_load_si512(d[0][r]);
        if (wide)
            dot = vi_add(vi_left(dot, 7), _mm512_load_si512(d[1][r]));
        const vf s = vf_mul(scale, vf_set(xs[r * b->group_stride]));
        acc[r] = vf_fma(bias, vf_set(sums[r * b->group_stride]), vf_fma(s, vi_float(dot), acc[r]));
    }
}

/* As product_of_rows. A group's dots are on their way while those before are added. */
INLINE void product_of_tile(const struct unpacked *u, const struct block *b, uint32_t groups, block_sums sums,
                            uint32_t bits, uint32_t n, bool wide)
{
    _Alignas(64) dots flying[2];
    bool odd = false;
    tile_group(u, b, 0, odd, flying[0], bits, n, wide);
    for (uint32_t slot = 0; slot < b->slots; slot++) {
        vf acc[BLOCK_ROWS];
        for (uint32_t r = 0; r < BLOCK_ROWS; r++)
            acc[r] = b->first ? vf_set(0.0f) : vf_load(sums[slot][r]);
        for (uint32_t g = slot; g < groups; g += LANES, odd = !odd) {
            const uint32_t next = g + LANES < groups ? g + LANES : slot + 1 < LANES ? slot + 1 : groups;
            if (next < groups && odd)
                tile_group(u, b, next, false, flying[0], bits, n, wide);
            else if (next < groups)
                tile_group(u, b, next, true, flying[1], bits, n, wide);
            add_dots(acc, flying[odd], u, b, g, wide);
        }
        for (uint32_t r = 0; r < BLOCK_ROWS; r++)
            vf_store(sums[slot][r], acc[r]);
    }
}

/* Fewer than 16 rows fill too little of a tile: below 12 it is slower. */
INLINE void tiles_product(struct unpacked *u, const struct block *b, uint32_t groups, block_sums sums,
                          uint32_t bits, uint32_t n, bool wide)
{
    const uint32_t group_bytes = n * bits / 8;
    if (b->rows < BLOCK_ROWS) {
        block_product(u, b, groups, sums, bits, n, wide);
        return;
    }
    publish(u);
    if (!u->configured)
        configure((group_bytes < UNIT ? group_bytes : UNIT) / 4);
    u->configured = true;
    product_of_tile(u, b, groups, sums, bits, n, wide);
}

#define AFFINE_PRODUCT tiles_product
#include "compute/cpu/lane_shapes.h"

static void affine_i8_tiles(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                            uint32_t n_rows, float *y)
{
    affine_i8(m, begin, end, x, n_rows, y);
    if (n_rows >= BLOCK_ROWS)
        _tile_release();
}

void cpu_fill_amx(struct cpu_kernels *kernels)
{
    cpu_fill_avx512(kernels);
    kernels->name = "amx";
    kernels->quantize_row = quantize_row;
    kernels->affine_i8 = affine_i8_tiles;
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
