/* float16 and bfloat16 from and to float32, rounding to nearest even, in software and without branches.
 *
 * float16 equals what F16C and arm64 do, subnormals, overflow to infinity and quieted NaNs included. bfloat16
 * keeps subnormals; the AVX512-BF16 instruction flushes them, so it must not be used for narrowing. */
#ifndef COMPUTE_HALF_H
#define COMPUTE_HALF_H

#include "compute/math.h"

MATH_FN float half_from_bf16(uint16_t h)
{
    return math_from_bits((uint32_t)h << 16);
}

MATH_FN uint16_t half_to_bf16(float x)
{
    uint32_t bits = math_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)math_select_bits((bits & ~MATH_SIGN) > MATH_INF_BITS, quiet, rounded);
}

/* A float16 pattern shifted into place is the value times 2^-112, also for subnormals. */
MATH_FN float half_from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t finite = math_bits(math_from_bits(magnitude) * 0x1p112f);
    uint32_t special = magnitude | MATH_INF_BITS | (uint32_t)(magnitude > 0x0f800000u) << 22; /* quiet */
    uint32_t bits = math_select_bits(magnitude < 0x0f800000u, finite, special);
    return math_from_bits(bits | (uint32_t)(h & 0x8000u) << 16);
}

/* Below 2^-14 adding 0.5 leaves the subnormal's bits, rounded, at the low end of the sum. */
MATH_FN uint16_t half_to_f16(float x)
{
    uint32_t bits = math_bits(x), sign = bits >> 16 & 0x8000u, magnitude = bits & ~MATH_SIGN;
    uint32_t subnormal = math_bits(math_from_bits(magnitude) + 0.5f) - math_bits(0.5f);
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    uint32_t h = math_select_bits(magnitude < 0x38800000u, subnormal, normal);
    h = math_select_bits(magnitude >= 0x477ff000u, 0x7c00u, h); /* 65520 and above round to infinity */
    h = math_select_bits(magnitude > MATH_INF_BITS, 0x7e00u | (magnitude >> 13 & 0x3ffu), h);
    return (uint16_t)(h | sign);
}

#endif
