/* Sixteen lanes on AVX-512 (F, BW, DQ, VL): one register each. lanes.h says what every function means. */
#ifndef COMPUTE_CPU_LANES_AVX512_H
#define COMPUTE_CPU_LANES_AVX512_H

#include "compute/cpu/lanes.h"

#include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi, vb;
typedef __mmask16 vm;

/* Accumulators of one tile: 32 registers hold 4 x 4 and what feeds them. */
enum { FLOAT_OUTPUTS = 4, MANY_OUTPUTS = 4, MANY_ROWS = 4, ATTEND_TILE = 4, DOT_ROWS = 8 };

/* Rows of x up to which taking turns is faster than unpacking weights for all (measured). */
enum { FEW = 3, FEW_WIDE = 2 };

INLINE vm first_lanes(uint32_t n)
{
    return (vm)((1u << n) - 1u);
}

/* ---- floats ---- */

INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

INLINE void vf_store_n(float *p, vf x, uint32_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
}

INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vf vf_fma_n(vf a, vf b, vf c, uint32_t n)
{
    return _mm512_mask3_fmadd_ps(a, b, c, first_lanes(n));
}

INLINE vf vf_at_most(vf x, vf limit)
{
    return _mm512_min_ps(limit, x);
}

INLINE vf vf_at_least(vf x, vf limit)
{
    return _mm512_max_ps(limit, x);
}

INLINE vm vf_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

INLINE vf vf_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

INLINE vi vf_bits(vf x)
{
    return _mm512_castps_si512(x);
}

INLINE vf vf_from_bits(vi x)
{
    return _mm512_castsi512_ps(x);
}

/* Lane pairs 8 apart, 4 apart, 2 apart, 1 apart: the fixed tree. */
INLINE void vf_sum4(vf a, vf b, vf c, vf d, float sums[4])
{
    vf ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    vf cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    vf s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
    const vi firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, s)));
}

INLINE float vf_sum(vf x)
{
    __m256 e = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* Lanes i and i + distance of each run of 2 * distance lanes, for the runs that short rows leave. */
INLINE vf vf_fold(vf x, uint32_t distance)
{
    if (distance == 4)
        return _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
    return _mm512_add_ps(x, distance == 2 ? _mm512_permute_ps(x, 0x4e) : _mm512_permute_ps(x, 0xb1));
}

/* ---- integers ---- */

INLINE vi vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

INLINE vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

INLINE vi vi_left(vi x, int n)
{
    return _mm512_slli_epi32(x, (unsigned)n);
}

INLINE vi vi_half(vi x)
{
    return _mm512_srai_epi32(x, 1);
}

INLINE vm vi_greater(vi a, vi b)
{
    return _mm512_cmpgt_epi32_mask(a, b);
}

INLINE vi vi_select(vm m, vi yes, vi no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}

INLINE vf vi_float(vi x)
{
    return _mm512_cvtepi32_ps(x);
}

INLINE vi vf_rint(vf x)
{
    return _mm512_cvtps_epi32(x);
}

INLINE int32_t vi_total(vi x)
{
    return _mm512_reduce_add_epi32(x);
}

INLINE int32_t vi_most(vi x)
{
    return _mm512_reduce_max_epi32(x);
}

INLINE void vi_store_bytes(int8_t *p, vi x)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}

INLINE vi vi_pairs(vi a, vi b)
{
    const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vi odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b), _mm512_permutex2var_epi32(a, odd, b));
}

/* ---- stored values ---- */

INLINE vf vf_bf16(const void *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

INLINE vf vf_bf16_n(const void *p, uint32_t n)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

INLINE vf vf_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

INLINE vf vf_f16_n(const void *p, uint32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

INLINE void store_f16(void *p, vf x)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE void store_low_halves(void *p, vi x)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(x));
}

INLINE vi vi_right(vi x, int n)
{
    return _mm512_srli_epi32(x, (unsigned)n);
}

/* A look-up in a register of 16 weights: it takes the low 4 bits of an index, so that codes need only be
 * shifted down. Widths below 4 bits repeat the table. */
typedef struct {
    vf a, b; /* the table; of 8 bits the scale and the bias */
} lut;

INLINE lut lut_make(float scale, float bias, uint32_t bits)
{
    vi codes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (bits == 8)
        return (lut){vf_set(scale), vf_set(bias)};
    if (bits == 2)
        codes = vi_and(codes, vi_set(3));
    return (lut){vf_fma(vf_set(scale), vi_float(codes), vf_set(bias)), vf_set(0.0f)};
}

/* 4 bits: 8 bytes in every pair of lanes, even lanes hold codes 0-7 and odd lanes 8-15. */
INLINE vf lut_weights(lut t, const uint8_t *p, uint32_t bits)
{
    if (bits == 8) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        return vf_fma(t.a, vi_float(_mm512_cvtepu8_epi32(bytes)), t.b);
    }
    if (bits == 4) {
        const vi shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
        int64_t packed;
        memcpy(&packed, p, sizeof packed);
        return _mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_set1_epi64(packed), shifts), t.a);
    }
    const vi shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    int32_t packed;
    memcpy(&packed, p, sizeof packed);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(vi_set(packed), shifts), t.a);
}

INLINE vf lut_order(vf x, uint32_t bits)
{
    const vi from = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return bits == 4 ? _mm512_permutexvar_ps(from, x) : x;
}

INLINE vf lut_natural(vf x, uint32_t bits)
{
    const vi from = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return bits == 4 ? _mm512_permutexvar_ps(from, x) : x;
}

/* ---- 64 bytes ---- */

INLINE vb vb_load(const void *p)
{
    return _mm512_loadu_si512(p);
}

INLINE vb vb_load_n(const void *p, uint32_t bytes)
{
    return _mm512_maskz_loadu_epi8(bytes >= 64 ? ~0ull : (1ull << bytes) - 1, p);
}

INLINE void vb_store(void *p, vb x)
{
    _mm512_storeu_si512(p, x);
}

INLINE vb vb_plane(vb x, uint32_t shift, uint32_t mask)
{
    vb down = shift ? _mm512_srli_epi16(x, (unsigned char)shift) : x;
    return _mm512_and_si512(down, _mm512_set1_epi8((char)mask));
}

INLINE void split_bytes(const int8_t *in, int8_t *even, int8_t *odd)
{
    for (int i = 0; i < 2; i++) {
        __m512i x = _mm512_loadu_si512(in + 64 * i);
        _mm256_storeu_si256((__m256i *)(even + 32 * i), _mm512_cvtepi16_epi8(x));
        _mm256_storeu_si256((__m256i *)(odd + 32 * i), _mm512_cvtepi16_epi8(_mm512_srli_epi16(x, 8)));
    }
}

/* 16 bytes of each of four rows. */
INLINE __m512i quarters(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)a));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)b), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)c), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)d), 3);
}

/* Loads put rows 4 apart side by side; two rounds of 2 x 2 blocks remain. */
INLINE void transpose16(const uint8_t *const rows[16], vb out[16])
{
    for (int j = 0; j < 4; j++) {
        __m512i t[4];
        for (int i = 0; i < 4; i++)
            t[i] =
                quarters(rows[i] + 16 * j, rows[4 + i] + 16 * j, rows[8 + i] + 16 * j, rows[12 + i] + 16 * j);
        const __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpackhi_epi32(t[0], t[1]);
        const __m512i c = _mm512_unpacklo_epi32(t[2], t[3]), d = _mm512_unpackhi_epi32(t[2], t[3]);
        out[4 * j] = _mm512_unpacklo_epi64(a, c);
        out[4 * j + 1] = _mm512_unpackhi_epi64(a, c);
        out[4 * j + 2] = _mm512_unpacklo_epi64(b, d);
        out[4 * j + 3] = _mm512_unpackhi_epi64(b, d);
    }
}

/* ---- integer products ---- */

#ifdef LANES_VNNI

/* dpbusd sums four products of a lane into 32 bits, without saturating. */
INLINE vi dot_step(vi acc, vb codes, vb q, uint32_t bits)
{
    (void)bits;
    return _mm512_dpbusd_epi32(acc, codes, q);
}

INLINE vi unit_dot(const vb *codes, const int8_t *q, uint32_t bits)
{
    vi acc = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        acc = dot_step(acc, codes[p], vb_load(q + 64 * p), bits);
    return acc;
}

INLINE void tile_dots(const uint8_t *w, const int8_t *q, size_t stride, uint32_t dwords, uint32_t bits,
                      uint32_t rows, vi *dots)
{
    for (uint32_t r = 0; r < rows; r++)
        dots[r] = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        for (uint32_t d = 0; d < dwords; d++) {
            vb codes = vb_load(w + (size_t)1024 * p + (size_t)64 * d);
            for (uint32_t r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, q + r * stride + (size_t)64 * p + (size_t)4 * d, sizeof four);
                dots[r] = dot_step(dots[r], codes, vi_set(four), bits);
            }
        }
}

#else

/* maddubs sums two products into 16 bits and saturates: with codes below 128 they stay below 2^15. The top
 * bit of an 8-bit code is therefore multiplied on its own and counts 128. */
INLINE vi dot_step(vi acc, vb codes, vb q, uint32_t bits)
{
    const vi ones = _mm512_set1_epi16(1);
    if (bits < 8)
        return vi_add(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, q), ones));
    vb low = vb_plane(codes, 0, 127), top = vb_plane(codes, 7, 1);
    acc = vi_add(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(low, q), ones));
    return vi_add(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(top, q), _mm512_set1_epi16(128)));
}

/* Up to 8 products of a 16-bit lane fit: 8 * 2 * 15 * 127 < 2^15. */
INLINE vi unit_dot(const vb *codes, const int8_t *q, uint32_t bits)
{
    if (bits == 8)
        return dot_step(vi_set(0), codes[0], vb_load(q), bits);
    vi acc = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        acc = _mm512_add_epi16(acc, _mm512_maddubs_epi16(codes[p], vb_load(q + 64 * p)));
    return _mm512_madd_epi16(acc, _mm512_set1_epi16(1));
}

INLINE void tile_dots(const uint8_t *w, const int8_t *q, size_t stride, uint32_t dwords, uint32_t bits,
                      uint32_t rows, vi *dots)
{
    const vi ones = _mm512_set1_epi16(1);
    vi narrow[DOT_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        dots[r] = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        for (uint32_t d0 = 0; d0 < dwords; d0 += 8) {
            for (uint32_t r = 0; r < rows; r++)
                narrow[r] = vi_set(0);
            for (uint32_t d = d0; d < (dwords < d0 + 8 ? dwords : d0 + 8); d++) {
                vb codes = vb_load(w + (size_t)1024 * p + (size_t)64 * d);
                for (uint32_t r = 0; r < rows; r++) {
                    int32_t four;
                    memcpy(&four, q + r * stride + (size_t)64 * p + (size_t)4 * d, sizeof four);
                    if (bits == 8)
                        dots[r] = dot_step(dots[r], codes, vi_set(four), bits);
                    else
                        narrow[r] = _mm512_add_epi16(narrow[r], _mm512_maddubs_epi16(codes, vi_set(four)));
                }
            }
            for (uint32_t r = 0; r < rows && bits < 8; r++)
                dots[r] = vi_add(dots[r], _mm512_madd_epi16(narrow[r], ones));
        }
}

#endif
#endif
