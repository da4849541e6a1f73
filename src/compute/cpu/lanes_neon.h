/* Sixteen lanes on NEON with the dot-product instructions: four registers. lanes.h says what every function
 * means. */
#ifndef COMPUTE_CPU_LANES_NEON_H
#define COMPUTE_CPU_LANES_NEON_H

#include "compute/cpu/lanes.h"

#include <arm_neon.h>

typedef struct {
    float32x4_t v[4];
} vf;

typedef struct {
    int32x4_t v[4];
} vi;

typedef struct {
    uint8x16_t v[4];
} vb;

typedef struct {
    uint32x4_t v[4];
} vm;

/* Accumulators of one tile: 32 registers hold 4 times four and what feeds them. */
enum { FLOAT_OUTPUTS = 4, MANY_OUTPUTS = 1, MANY_ROWS = 4, ATTEND_TILE = 1, DOT_ROWS = 4 };

/* Rows of x up to which taking turns is faster than unpacking weights for all (measured). */
enum { FEW = 4, FEW_WIDE = 3 };

/* A function that does the same to each of the four registers. */
#define LANES_4(type, name, args, each)                                                                      \
    INLINE type name args                                                                                    \
    {                                                                                                        \
        type out;                                                                                            \
        for (int i = 0; i < 4; i++)                                                                          \
            out.v[i] = each;                                                                                 \
        return out;                                                                                          \
    }

/* ---- floats ---- */

LANES_4(vf, vf_set, (float x), vdupq_n_f32(x))
LANES_4(vf, vf_load, (const float *p), vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p + 16 * i)))
LANES_4(vf, vf_add, (vf a, vf b), vaddq_f32(a.v[i], b.v[i]))
LANES_4(vf, vf_sub, (vf a, vf b), vsubq_f32(a.v[i], b.v[i]))
LANES_4(vf, vf_mul, (vf a, vf b), vmulq_f32(a.v[i], b.v[i]))
LANES_4(vf, vf_div, (vf a, vf b), vdivq_f32(a.v[i], b.v[i]))
LANES_4(vf, vf_fma, (vf a, vf b, vf c), vfmaq_f32(c.v[i], a.v[i], b.v[i]))
LANES_4(vf, vf_at_most, (vf x, vf limit), vbslq_f32(vcltq_f32(limit.v[i], x.v[i]), limit.v[i], x.v[i]))
LANES_4(vf, vf_at_least, (vf x, vf limit), vbslq_f32(vcgtq_f32(limit.v[i], x.v[i]), limit.v[i], x.v[i]))
LANES_4(vm, vf_less, (vf a, vf b), vcltq_f32(a.v[i], b.v[i]))
LANES_4(vf, vf_select, (vm m, vf yes, vf no), vbslq_f32(m.v[i], yes.v[i], no.v[i]))
LANES_4(vi, vf_bits, (vf x), vreinterpretq_s32_f32(x.v[i]))
LANES_4(vf, vf_from_bits, (vi x), vreinterpretq_f32_s32(x.v[i]))
LANES_4(vi, vf_rint, (vf x), vcvtnq_s32_f32(x.v[i]))

INLINE vf vf_load_n(const float *p, uint32_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, p, n * sizeof *lanes);
    return vf_load(lanes);
}

INLINE void vf_store(float *p, vf x)
{
    for (int i = 0; i < 4; i++)
        vst1q_u8((uint8_t *)p + 16 * i, vreinterpretq_u8_f32(x.v[i]));
}

INLINE void vf_store_n(float *p, vf x, uint32_t n)
{
    float lanes[16];
    vf_store(lanes, x);
    memcpy(p, lanes, n * sizeof *lanes);
}

INLINE vm first_lanes(uint32_t n)
{
    static const uint32_t INDEX[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vm m;
    for (int i = 0; i < 4; i++)
        m.v[i] = vcltq_u32(vld1q_u32(INDEX + 4 * i), vdupq_n_u32(n));
    return m;
}

INLINE vf vf_fma_n(vf a, vf b, vf c, uint32_t n)
{
    return vf_select(first_lanes(n), vf_fma(a, b, c), c);
}

INLINE float32x4_t four_sums(vf x)
{
    return vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
}

INLINE float vf_sum(vf x)
{
    const float32x4_t q = four_sums(x);
    const float32x2_t d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}

INLINE void vf_sum4(vf a, vf b, vf c, vf d, float sums[4])
{
    sums[0] = vf_sum(a);
    sums[1] = vf_sum(b);
    sums[2] = vf_sum(c);
    sums[3] = vf_sum(d);
}

INLINE float32x4_t fold_4(float32x4_t x, uint32_t distance)
{
    return vaddq_f32(x, distance == 2 ? vextq_f32(x, x, 2) : vrev64q_f32(x));
}

INLINE vf vf_fold(vf x, uint32_t distance)
{
    vf out;
    if (distance == 4)
        for (int i = 0; i < 4; i++)
            out.v[i] = vaddq_f32(x.v[i], x.v[i ^ 1]);
    else
        for (int i = 0; i < 4; i++)
            out.v[i] = fold_4(x.v[i], distance);
    return out;
}

/* ---- integers ---- */

LANES_4(vi, vi_set, (int32_t x), vdupq_n_s32(x))
LANES_4(vi, vi_add, (vi a, vi b), vaddq_s32(a.v[i], b.v[i]))
LANES_4(vi, vi_sub, (vi a, vi b), vsubq_s32(a.v[i], b.v[i]))
LANES_4(vi, vi_and, (vi a, vi b), vandq_s32(a.v[i], b.v[i]))
LANES_4(vi, vi_or, (vi a, vi b), vorrq_s32(a.v[i], b.v[i]))
LANES_4(vi, vi_max, (vi a, vi b), vmaxq_s32(a.v[i], b.v[i]))
LANES_4(vi, vi_left, (vi x, int n), vshlq_s32(x.v[i], vdupq_n_s32(n)))
LANES_4(vi, vi_half, (vi x), vshrq_n_s32(x.v[i], 1))
LANES_4(vm, vi_greater, (vi a, vi b), vcgtq_s32(a.v[i], b.v[i]))
LANES_4(vi, vi_select, (vm m, vi yes, vi no), vbslq_s32(m.v[i], yes.v[i], no.v[i]))
LANES_4(vf, vi_float, (vi x), vcvtq_f32_s32(x.v[i]))
LANES_4(vi, vi_right, (vi x, int n),
        vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x.v[i]), vdupq_n_s32(-n))))

INLINE int32_t vi_total(vi x)
{
    return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3])));
}

INLINE int32_t vi_most(vi x)
{
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.v[0], x.v[1]), vmaxq_s32(x.v[2], x.v[3])));
}

INLINE void vi_store_bytes(int8_t *p, vi x)
{
    const int16x8_t low = vcombine_s16(vmovn_s32(x.v[0]), vmovn_s32(x.v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(x.v[2]), vmovn_s32(x.v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

INLINE vi vi_pairs(vi a, vi b)
{
    return (vi){{vpaddq_s32(a.v[0], a.v[1]), vpaddq_s32(a.v[2], a.v[3]), vpaddq_s32(b.v[0], b.v[1]),
                 vpaddq_s32(b.v[2], b.v[3])}};
}

/* ---- stored values ---- */

INLINE uint16x4_t load_halves(const void *p, int i)
{
    return vreinterpret_u16_u8(vld1_u8((const uint8_t *)p + 8 * i));
}

LANES_4(vf, vf_bf16, (const void *p), vreinterpretq_f32_u32(vshll_n_u16(load_halves(p, i), 16)))
LANES_4(vf, vf_f16, (const void *p), vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p, i))))

INLINE vf vf_bf16_n(const void *p, uint32_t n)
{
    uint16_t halves[16] = {0};
    memcpy(halves, p, n * sizeof *halves);
    return vf_bf16(halves);
}

INLINE vf vf_f16_n(const void *p, uint32_t n)
{
    uint16_t halves[16] = {0};
    memcpy(halves, p, n * sizeof *halves);
    return vf_f16(halves);
}

INLINE void store_f16(void *p, vf x)
{
    for (int i = 0; i < 4; i++)
        vst1_u8((uint8_t *)p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(x.v[i])));
}

INLINE void store_low_halves(void *p, vi x)
{
    for (int i = 0; i < 4; i++)
        vst1_u8((uint8_t *)p + 8 * i, vreinterpret_u8_s16(vmovn_s32(x.v[i])));
}

/* 16 codes as floats. */
INLINE vf codes_of(const uint8_t *p, uint32_t bits)
{
    uint8x16_t bytes;
    if (bits == 8) {
        bytes = vld1q_u8(p);
    } else if (bits == 4) {
        const uint8x8_t packed = vld1_u8(p);
        const uint8x8x2_t codes = vzip_u8(vand_u8(packed, vdup_n_u8(15)), vshr_n_u8(packed, 4));
        bytes = vcombine_u8(codes.val[0], codes.val[1]);
    } else {
        static const int8_t SHIFTS[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
        static const uint8_t BYTES[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
        uint32_t word;
        memcpy(&word, p, sizeof word);
        bytes = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(word)), vld1q_u8(BYTES));
        bytes = vandq_u8(vshlq_u8(bytes, vld1q_s8(SHIFTS)), vdupq_n_u8(3));
    }
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
    return (vf){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
                 vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
                 vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
}

typedef struct {
    vf scale, bias;
} lut;

INLINE lut lut_make(float scale, float bias, uint32_t bits)
{
    (void)bits;
    return (lut){vf_set(scale), vf_set(bias)};
}

INLINE vf lut_weights(lut t, const uint8_t *p, uint32_t bits)
{
    return vf_fma(t.scale, codes_of(p, bits), t.bias);
}

INLINE vf lut_order(vf x, uint32_t bits)
{
    (void)bits;
    return x;
}

INLINE vf lut_natural(vf x, uint32_t bits)
{
    (void)bits;
    return x;
}

/* ---- 64 bytes ---- */

LANES_4(vb, vb_load, (const void *p), vld1q_u8((const uint8_t *)p + 16 * i))

INLINE vb vb_load_n(const void *p, uint32_t bytes)
{
    uint8_t values[64] = {0};
    if (bytes >= 64)
        return vb_load(p);
    memcpy(values, p, bytes);
    return vb_load(values);
}

INLINE void vb_store(void *p, vb x)
{
    for (int i = 0; i < 4; i++)
        vst1q_u8((uint8_t *)p + 16 * i, x.v[i]);
}

LANES_4(vb, vb_plane, (vb x, uint32_t shift, uint32_t mask),
        vandq_u8(vshlq_u8(x.v[i], vdupq_n_s8((int8_t) - (int)shift)), vdupq_n_u8((uint8_t)mask)))

INLINE void split_bytes(const int8_t *in, int8_t *even, int8_t *odd)
{
    for (int i = 0; i < 4; i++) {
        const int8x16x2_t x = vld2q_s8(in + 32 * i);
        vst1q_s8(even + 16 * i, x.val[0]);
        vst1q_s8(odd + 16 * i, x.val[1]);
    }
}

INLINE uint32x4_t low_pairs(uint32x4_t a, uint32x4_t b)
{
    return vreinterpretq_u32_u64(vzip1q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

INLINE uint32x4_t high_pairs(uint32x4_t a, uint32x4_t b)
{
    return vreinterpretq_u32_u64(vzip2q_u64(vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b)));
}

INLINE void transpose16(const uint8_t *const rows[16], vb out[16])
{
    for (int i = 0; i < 4; i++) {
        const vb a = vb_load(rows[4 * i]), b = vb_load(rows[4 * i + 1]), c = vb_load(rows[4 * i + 2]),
                 d = vb_load(rows[4 * i + 3]);
        for (int j = 0; j < 4; j++) {
            const uint32x4x2_t ab = vzipq_u32(vreinterpretq_u32_u8(a.v[j]), vreinterpretq_u32_u8(b.v[j]));
            const uint32x4x2_t cd = vzipq_u32(vreinterpretq_u32_u8(c.v[j]), vreinterpretq_u32_u8(d.v[j]));
            out[4 * j].v[i] = vreinterpretq_u8_u32(low_pairs(ab.val[0], cd.val[0]));
            out[4 * j + 1].v[i] = vreinterpretq_u8_u32(high_pairs(ab.val[0], cd.val[0]));
            out[4 * j + 2].v[i] = vreinterpretq_u8_u32(low_pairs(ab.val[1], cd.val[1]));
            out[4 * j + 3].v[i] = vreinterpretq_u8_u32(high_pairs(ab.val[1], cd.val[1]));
        }
    }
}

/* ---- integer products ---- */

/* Both factors are signed: an 8-bit code c counts as (c - 128) * q + 128 * q, with q * 128 = q * 64 * 2. */
INLINE int32x4_t dot_4(int32x4_t acc, uint8x16_t codes, int8x16_t q, uint32_t bits)
{
    if (bits < 8)
        return vdotq_s32(acc, vreinterpretq_s8_u8(codes), q);
    const int8x16_t half = vdupq_n_s8(64);
    acc = vdotq_s32(acc, vreinterpretq_s8_u8(veorq_u8(codes, vdupq_n_u8(128))), q);
    return vdotq_s32(vdotq_s32(acc, half, q), half, q);
}

INLINE vi unit_dot(const vb *codes, const int8_t *q, uint32_t bits)
{
    vi acc = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        for (uint32_t i = 0; i < 4; i++)
            acc.v[i] = dot_4(acc.v[i], codes[p].v[i], vld1q_s8(q + (size_t)64 * p + (size_t)16 * i), bits);
    return acc;
}

INLINE void tile_dots(const uint8_t *w, const int8_t *q, size_t stride, uint32_t dwords, uint32_t bits,
                      uint32_t rows, vi *dots)
{
    for (uint32_t r = 0; r < rows; r++)
        dots[r] = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        for (uint32_t d = 0; d < dwords; d++) {
            const vb codes = vb_load(w + (size_t)1024 * p + (size_t)64 * d);
            for (uint32_t r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, q + r * stride + (size_t)64 * p + (size_t)4 * d, sizeof four);
                const int8x16_t same = vreinterpretq_s8_s32(vdupq_n_s32(four));
                for (uint32_t i = 0; i < 4; i++)
                    dots[r].v[i] = dot_4(dots[r].v[i], codes.v[i], same, bits);
            }
        }
}

#endif
