/* Sixteen lanes on AVX2, FMA and F16C: two registers. lanes.h says what every function means. */
#ifndef COMPUTE_CPU_LANES_AVX2_H
#define COMPUTE_CPU_LANES_AVX2_H

#include "compute/cpu/lanes.h"

#include <immintrin.h>

typedef struct {
    __m256 a, b;
} vf;

typedef struct {
    __m256i a, b;
} vi;

typedef vi vb;
typedef vf vm; /* all bits of a lane set, or none */

/* Accumulators of one tile: 16 registers hold 4 pairs and what feeds them. */
enum { FLOAT_OUTPUTS = 4, MANY_OUTPUTS = 1, MANY_ROWS = 4, ATTEND_TILE = 1, DOT_ROWS = 4 };

/* Rows of x up to which taking turns is faster than unpacking weights for all (measured). */
enum { FEW = 4, FEW_WIDE = 3 };

/* Eight ones from first_lanes + 8 - n on, then zeros. */
INLINE __m256i first_lanes(uint32_t n)
{
    static const int32_t ONES[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(ONES + 8 - (n < 8 ? n : 8)));
}

INLINE uint32_t beyond_8(uint32_t n)
{
    return n > 8 ? n - 8 : 0;
}

/* ---- floats ---- */

#define LANES_2(type, name, op)                                                                              \
    INLINE type name(type x, type y)                                                                         \
    {                                                                                                        \
        return (type){op(x.a, y.a), op(x.b, y.b)};                                                           \
    }

LANES_2(vf, vf_add, _mm256_add_ps)
LANES_2(vf, vf_sub, _mm256_sub_ps)
LANES_2(vf, vf_mul, _mm256_mul_ps)
LANES_2(vf, vf_div, _mm256_div_ps)

INLINE vf vf_set(float x)
{
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

INLINE vf vf_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return (vf){_mm256_maskload_ps(p, first_lanes(n)), _mm256_maskload_ps(p + 8, first_lanes(beyond_8(n)))};
}

INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

INLINE void vf_store_n(float *p, vf x, uint32_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), x.a);
    _mm256_maskstore_ps(p + 8, first_lanes(beyond_8(n)), x.b);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return (vf){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}

INLINE vf vf_at_most(vf x, vf limit)
{
    return (vf){_mm256_min_ps(limit.a, x.a), _mm256_min_ps(limit.b, x.b)};
}

INLINE vf vf_at_least(vf x, vf limit)
{
    return (vf){_mm256_max_ps(limit.a, x.a), _mm256_max_ps(limit.b, x.b)};
}

INLINE vm vf_less(vf x, vf y)
{
    return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}

INLINE vf vf_select(vm m, vf yes, vf no)
{
    return (vf){_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}

INLINE vf vf_fma_n(vf a, vf b, vf c, uint32_t n)
{
    const vm first = {_mm256_castsi256_ps(first_lanes(n)), _mm256_castsi256_ps(first_lanes(beyond_8(n)))};
    return vf_select(first, vf_fma(a, b, c), c);
}

INLINE vi vf_bits(vf x)
{
    return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}

INLINE vf vf_from_bits(vi x)
{
    return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}

INLINE __m128 four_sums(vf x)
{
    __m256 e = _mm256_add_ps(x.a, x.b);
    return _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
}

INLINE float vf_sum(vf x)
{
    __m128 q = four_sums(x);
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

INLINE void vf_sum4(vf a, vf b, vf c, vf d, float sums[4])
{
    __m128 qa = four_sums(a), qb = four_sums(b), qc = four_sums(c), qd = four_sums(d);
    _MM_TRANSPOSE4_PS(qa, qb, qc, qd);
    _mm_storeu_ps(sums, _mm_add_ps(_mm_add_ps(qa, qc), _mm_add_ps(qb, qd)));
}

INLINE __m256 fold_8(__m256 x, uint32_t distance)
{
    if (distance == 4)
        return _mm256_add_ps(x, _mm256_permute2f128_ps(x, x, 1));
    return _mm256_add_ps(x, distance == 2 ? _mm256_permute_ps(x, 0x4e) : _mm256_permute_ps(x, 0xb1));
}

INLINE vf vf_fold(vf x, uint32_t distance)
{
    return (vf){fold_8(x.a, distance), fold_8(x.b, distance)};
}

/* ---- integers ---- */

LANES_2(vi, vi_add, _mm256_add_epi32)
LANES_2(vi, vi_sub, _mm256_sub_epi32)
LANES_2(vi, vi_and, _mm256_and_si256)
LANES_2(vi, vi_or, _mm256_or_si256)
LANES_2(vi, vi_max, _mm256_max_epi32)

INLINE vi vi_set(int32_t x)
{
    return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

INLINE vi vi_left(vi x, int n)
{
    return (vi){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}

INLINE vi vi_right(vi x, int n)
{
    return (vi){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)};
}

INLINE vi vi_half(vi x)
{
    return (vi){_mm256_srai_epi32(x.a, 1), _mm256_srai_epi32(x.b, 1)};
}

INLINE vm vi_greater(vi x, vi y)
{
    return vf_from_bits((vi){_mm256_cmpgt_epi32(x.a, y.a), _mm256_cmpgt_epi32(x.b, y.b)});
}

INLINE vi vi_select(vm m, vi yes, vi no)
{
    return vf_bits(vf_select(m, vf_from_bits(yes), vf_from_bits(no)));
}

INLINE vf vi_float(vi x)
{
    return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}

INLINE vi vf_rint(vf x)
{
    return (vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}

INLINE int32_t vi_total(vi x)
{
    __m256i e = _mm256_add_epi32(x.a, x.b);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

INLINE int32_t vi_most(vi x)
{
    __m256i e = _mm256_max_epi32(x.a, x.b);
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

/* Packing works within halves of a register: dwords come out as 0-3 of a, of b, 4-7 of a, of b. */
INLINE __m256i in_order(__m256i x)
{
    return _mm256_permute4x64_epi64(x, 0xd8);
}

INLINE void vi_store_bytes(int8_t *p, vi x)
{
    __m256i words = in_order(_mm256_packs_epi32(x.a, x.b));
    _mm_storeu_si128((__m128i *)p,
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

INLINE vi vi_pairs(vi x, vi y)
{
    return (vi){in_order(_mm256_hadd_epi32(x.a, x.b)), in_order(_mm256_hadd_epi32(y.a, y.b))};
}

/* ---- stored values ---- */

INLINE vf widen_bf16(__m128i low, __m128i high)
{
    vi wide = {_mm256_cvtepu16_epi32(low), _mm256_cvtepu16_epi32(high)};
    return vf_from_bits(vi_left(wide, 16));
}

INLINE vf widen_f16(__m128i low, __m128i high)
{
    return (vf){_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
}

INLINE void load_halves(const void *p, __m128i h[2])
{
    h[0] = _mm_loadu_si128((const __m128i *)p);
    h[1] = _mm_loadu_si128((const __m128i *)p + 1);
}

INLINE void load_halves_n(const void *p, uint32_t n, __m128i h[2])
{
    uint16_t values[16] = {0};
    memcpy(values, p, n * sizeof *values);
    load_halves(values, h);
}

INLINE vf vf_bf16(const void *p)
{
    __m128i h[2];
    load_halves(p, h);
    return widen_bf16(h[0], h[1]);
}

INLINE vf vf_bf16_n(const void *p, uint32_t n)
{
    __m128i h[2];
    load_halves_n(p, n, h);
    return widen_bf16(h[0], h[1]);
}

INLINE vf vf_f16(const void *p)
{
    __m128i h[2];
    load_halves(p, h);
    return widen_f16(h[0], h[1]);
}

INLINE vf vf_f16_n(const void *p, uint32_t n)
{
    __m128i h[2];
    load_halves_n(p, n, h);
    return widen_f16(h[0], h[1]);
}

INLINE void store_f16(void *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)p + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INLINE void store_low_halves(void *p, vi x)
{
    vi low = vi_and(x, vi_set(0xffff));
    _mm256_storeu_si256(p, in_order(_mm256_packus_epi32(low.a, low.b)));
}

/* 16 codes as floats. Eight of 4 bits come in one word, which every lane gets and shifts by its own amount.
 */
INLINE vf codes_of(const uint8_t *p, uint32_t bits)
{
    if (bits == 8) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
        return vi_float((vi){_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))});
    }
    int32_t low, high;
    memcpy(&low, p, sizeof low);
    if (bits == 4) {
        const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
        memcpy(&high, p + 4, sizeof high);
        const vi codes = {_mm256_srlv_epi32(_mm256_set1_epi32(low), shifts),
                          _mm256_srlv_epi32(_mm256_set1_epi32(high), shifts)};
        return vi_float(vi_and(codes, vi_set(15)));
    }
    const __m256i shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), w = _mm256_set1_epi32(low);
    const vi codes = {_mm256_srlv_epi32(w, shifts), _mm256_srlv_epi32(_mm256_srli_epi32(w, 16), shifts)};
    return vi_float(vi_and(codes, vi_set(3)));
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

INLINE vb vb_load(const void *p)
{
    return (vb){_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *)p + 1)};
}

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
    _mm256_storeu_si256(p, x.a);
    _mm256_storeu_si256((__m256i *)p + 1, x.b);
}

INLINE vb vb_plane(vb x, uint32_t shift, uint32_t mask)
{
    const __m256i m = _mm256_set1_epi8((char)mask);
    if (shift)
        x = (vb){_mm256_srli_epi16(x.a, (int)shift), _mm256_srli_epi16(x.b, (int)shift)};
    return (vb){_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}

INLINE void split_bytes(const int8_t *in, int8_t *even, int8_t *odd)
{
    const __m256i low = _mm256_set1_epi16(0xff);
    for (int i = 0; i < 2; i++) {
        vb x = vb_load(in + 64 * i);
        __m256i e = _mm256_packus_epi16(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
        __m256i o = _mm256_packus_epi16(_mm256_srli_epi16(x.a, 8), _mm256_srli_epi16(x.b, 8));
        _mm256_storeu_si256((__m256i *)(even + 32 * i), in_order(e));
        _mm256_storeu_si256((__m256i *)(odd + 32 * i), in_order(o));
    }
}

/* 16 bytes of each of two rows. */
INLINE __m256i halves(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                   _mm_loadu_si128((const __m128i *)b), 1);
}

/* 8 rows by 4 values. Loads put rows 4 apart side by side; two rounds of 2 x 2 blocks remain. */
INLINE void transpose8(const uint8_t *const rows[8], int j, __m256i out[4])
{
    __m256i t[4];
    for (int i = 0; i < 4; i++)
        t[i] = halves(rows[i] + 16 * j, rows[4 + i] + 16 * j);
    const __m256i a = _mm256_unpacklo_epi32(t[0], t[1]), b = _mm256_unpackhi_epi32(t[0], t[1]);
    const __m256i c = _mm256_unpacklo_epi32(t[2], t[3]), d = _mm256_unpackhi_epi32(t[2], t[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}

INLINE void transpose16(const uint8_t *const rows[16], vb out[16])
{
    for (int j = 0; j < 4; j++) {
        __m256i low[4], high[4];
        transpose8(rows, j, low);
        transpose8(rows + 8, j, high);
        for (int k = 0; k < 4; k++)
            out[4 * j + k] = (vb){low[k], high[k]};
    }
}

/* ---- integer products ---- */

#ifdef LANES_VNNI

/* dpbusd sums four products of a lane into 32 bits, without saturating. */
INLINE vi dot_step(vi acc, vb codes, vb q)
{
    return (vi){_mm256_dpbusd_avx_epi32(acc.a, codes.a, q.a), _mm256_dpbusd_avx_epi32(acc.b, codes.b, q.b)};
}

INLINE vi unit_dot(const vb *codes, const int8_t *q, uint32_t bits)
{
    vi acc = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        acc = dot_step(acc, codes[p], vb_load(q + (size_t)64 * p));
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
                dots[r] = dot_step(dots[r], codes, vi_set(four));
            }
        }
}

#else

LANES_2(vi, add_words, _mm256_add_epi16)
LANES_2(vi, word_pairs, _mm256_madd_epi16)
LANES_2(vi, byte_pairs, _mm256_maddubs_epi16)

INLINE vi words_of(int16_t x)
{
    return (vi){_mm256_set1_epi16(x), _mm256_set1_epi16(x)};
}

/* maddubs sums two products into 16 bits and saturates: with codes below 128 they stay below 2^15. The top
 * bit of an 8-bit code is therefore multiplied on its own and counts 128. */
INLINE vi dot_wide(vi acc, vb codes, vb q)
{
    vb low = vb_plane(codes, 0, 127), top = vb_plane(codes, 7, 1);
    acc = vi_add(acc, word_pairs(byte_pairs(low, q), words_of(1)));
    return vi_add(acc, word_pairs(byte_pairs(top, q), words_of(128)));
}

/* Up to 8 products of a 16-bit lane fit: 8 * 2 * 15 * 127 < 2^15. */
INLINE vi unit_dot(const vb *codes, const int8_t *q, uint32_t bits)
{
    if (bits == 8)
        return dot_wide(vi_set(0), codes[0], vb_load(q));
    vi acc = vi_set(0);
    for (uint32_t p = 0; p < 8 / bits; p++)
        acc = add_words(acc, byte_pairs(codes[p], vb_load(q + (size_t)64 * p)));
    return word_pairs(acc, words_of(1));
}

INLINE void tile_dots(const uint8_t *w, const int8_t *q, size_t stride, uint32_t dwords, uint32_t bits,
                      uint32_t rows, vi *dots)
{
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
                        dots[r] = dot_wide(dots[r], codes, vi_set(four));
                    else
                        narrow[r] = add_words(narrow[r], byte_pairs(codes, vi_set(four)));
                }
            }
            for (uint32_t r = 0; r < rows && bits < 8; r++)
                dots[r] = vi_add(dots[r], word_pairs(narrow[r], words_of(1)));
        }
}

#endif
#endif
