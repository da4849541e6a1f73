/* exp, tanh, log and what is built from them, in float32: polynomials from +, *, fma and bit operations, so
 * that every instruction set (and a GPU) computes the same bits lane by lane. No tables, no branches: both
 * sides of a choice are computed and one is selected, which is a blend in a vector register.
 *
 * Errors are at most 2 ulp over all floats, subnormal arguments and results included (tests/unit/test_math.c
 * measures them). Where a NaN goes in, a NaN comes out; its payload is not defined.
 *
 * Choices are written as masks: a compiler moves a side of ?: into a branch, and then cannot vectorise a loop
 * around it, because the operations of that side might trap.
 *
 * Compile with contraction off, without flush-to-zero, with correctly rounded division and square root.
 * Coefficients are minimax fits in the relative error of the function, rounded to float32. */
#ifndef COMPUTE_MATH_H
#define COMPUTE_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define MATH_FN static __host__ __device__ inline
#else
#define MATH_FN static inline
#endif

#define MATH_SIGN     0x80000000u
#define MATH_INF_BITS 0x7f800000u

MATH_FN uint32_t math_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

MATH_FN float math_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

MATH_FN uint32_t math_select_bits(int condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - (uint32_t)(condition != 0);
    return (yes & mask) | (no & ~mask);
}

MATH_FN float math_select(int condition, float yes, float no)
{
    return math_from_bits(math_select_bits(condition, math_bits(yes), math_bits(no)));
}

MATH_FN float math_abs(float x)
{
    return math_from_bits(math_bits(x) & ~MATH_SIGN);
}

/* Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even, for |x| <= 2^22; the integer
 * itself is then the difference of the bit patterns. */
#define MATH_ROUNDER 0x1.8p23f

MATH_FN float math_rint(float x)
{
    return (x + MATH_ROUNDER) - MATH_ROUNDER;
}

MATH_FN int32_t math_rint_int(float x)
{
    return (int32_t)(math_bits(x + MATH_ROUNDER) - math_bits(MATH_ROUNDER));
}

/* x * 2^n for n in [-252, 254], rounded once: the first factor leaves a value near 1 normal. */
MATH_FN float math_scale2(float x, int32_t n)
{
    int32_t half = n >> 1;
    float first = math_from_bits(((uint32_t)half + 127u) << 23);
    float second = math_from_bits(((uint32_t)(n - half) + 127u) << 23);
    return x * first * second;
}

/* Correctly rounded twice, not the approximation of the hardware. */
MATH_FN float math_rsqrt(float x)
{
    return 1.0f / sqrtf(x);
}

/* e^(hi + lo) = (1 + excess) * 2^exponent, the excess within [-0.3, 0.42]; |hi| <= 112 or NaN, lo a
 * correction of less than an ulp of hi or so. Kept apart so that the caller rounds once. */
struct math_exp {
    float excess;
    int32_t exponent;
};

MATH_FN struct math_exp math_exp_parts(float hi, float lo)
{
    float shifted = fmaf(hi, 0x1.715476p+0f, MATH_ROUNDER); /* hi / ln 2 */
    float n = shifted - MATH_ROUNDER;
    float r = fmaf(n, -0x1.62e430p-1f, hi); /* exact; ln 2 = 0x1.62e430p-1 - 0x1.05c610p-29 */
    float c = fmaf(n, 0x1.05c610p-29f, lo); /* what r still lacks */
    float t = r + c;
    float q = fmaf(0x1.9f0898p-13f, t, 0x1.6d8d06p-10f);
    q = fmaf(q, t, 0x1.111270p-7f);
    q = fmaf(q, t, 0x1.55548ep-5f);
    q = fmaf(q, t, 0x1.555554p-3f);
    q = fmaf(q, t, 0.5f);
    struct math_exp e;
    e.excess = r + fmaf(q, t * t, c);
    e.exponent = (int32_t)(math_bits(shifted) - math_bits(MATH_ROUNDER));
    return e;
}

/* e^x; exactly 1 at 0. Below -104 the result is 0, above 88.73 infinite: the clamps are beyond both. */
MATH_FN float math_exp(float x)
{
    x = math_select(x > 112.0f, 112.0f, x);
    x = math_select(x < -112.0f, -112.0f, x);
    struct math_exp e = math_exp_parts(x, 0.0f);
    return math_scale2(1.0f + e.excess, e.exponent);
}

MATH_FN float math_tanh(float x)
{
    float a = math_abs(x), z = x * x;
    float p = fmaf(0x1.18e1dcp-9f, z, -0x1.0bf4fcp-7f);
    p = fmaf(p, z, 0x1.638b58p-6f);
    p = fmaf(p, z, -0x1.b9ee90p-5f);
    p = fmaf(p, z, 0x1.111066p-3f);
    p = fmaf(p, z, -0x1.555554p-2f);
    float near = fmaf(p, z * a, a);
    float far = 1.0f - 2.0f / (math_exp(2.0f * a) + 1.0f);
    float t = math_select(a < 0.625f, near, far);
    return math_from_bits(math_bits(t) | (math_bits(x) & MATH_SIGN));
}

/* num / (1 + e^-(hi + lo)). With e^-t = (1 + f) 2^n this is num / (1 + (1 + f) 2^n) for n <= 0, and
 * num / (1 + (f + 2^-n)) * 2^-n for n > 0: the quotient stays normal where e^-t would overflow, a subnormal
 * result rounds once, and 1 + f is not rounded on its own where that would count twice. */
MATH_FN float math_times_sigmoid(float num, float hi, float lo)
{
    float t = math_select(hi > 112.0f, 112.0f, hi);
    t = math_select(t < -112.0f, -112.0f, t);
    struct math_exp e = math_exp_parts(-t, -lo);
    int32_t n = e.exponent, m = n > 0 ? n : 0;
    float grows = e.excess + math_scale2(1.0f, -m);
    float fades = math_scale2(1.0f + e.excess, n - m);
    float down = 1.0f + math_select(n > 0, grows, fades);
    return math_scale2(num / down, -m);
}

MATH_FN float math_sigmoid(float x)
{
    return math_times_sigmoid(1.0f, x, 0.0f);
}

/* x * sigmoid(x). Below -112 the result rounds to 0, and the clamp keeps -infinity * 0 away. */
MATH_FN float math_silu(float x)
{
    float num = math_select(x < -112.0f, -112.0f, x);
    return math_times_sigmoid(num, x, 0.0f);
}

/* 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), as x * sigmoid(2u): 1 + tanh(u) would cancel for
 * negative u. An error of one ulp in 2u = 80 is 80 ulp in e^2u, so 2u is carried as hi + lo. */
MATH_FN float math_gelu_tanh(float x)
{
    const float a_hi = 0x1.988454p+0f, a_lo = -0x1.857936p-25f; /* 2 sqrt(2/pi) */
    const float b_hi = 0x1.2444f2p-4f, b_lo = 0x1.49b16ap-29f;  /* 2 sqrt(2/pi) * 0.044715 */
    float num = math_select(x < -16.0f, -16.0f, x);             /* 2u(-16) = -317: the result is -0 */
    float c = math_select(num > 16.0f, 16.0f, num);
    float z = c * c, z_lo = fmaf(c, c, -z);
    float bz = b_hi * z, bz_lo = fmaf(b_hi, z, -bz);
    float w = a_hi + bz, back = w - a_hi;
    float w_lo = (a_hi - (w - back)) + (bz - back);
    w_lo += bz_lo + (a_lo + fmaf(b_hi, z_lo, b_lo * z));
    float hi = c * w;
    float lo = fmaf(c, w, -hi) + c * w_lo;
    return math_times_sigmoid(num, hi, lo);
}

/* log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], plus k ln 2, plus a correction `low` of the sum. */
MATH_FN float math_log_core(float f, float k, float low)
{
    float r = fmaf(0x1.1457b8p-4f, f, -0x1.de3c1cp-4f);
    r = fmaf(r, f, 0x1.e6f066p-4f);
    r = fmaf(r, f, -0x1.fc2206p-4f);
    r = fmaf(r, f, 0x1.233768p-3f);
    r = fmaf(r, f, -0x1.555c4ep-3f);
    r = fmaf(r, f, 0x1.99a4b6p-3f);
    r = fmaf(r, f, -0x1.000006p-2f);
    r = fmaf(r, f, 0x1.555548p-2f);
    float square = f * f;
    float tail = fmaf(r, square * f, low);
    tail = fmaf(k, -0x1.05c610p-29f, tail);
    tail = fmaf(square, -0.5f, tail);
    return fmaf(k, 0x1.62e430p-1f, f + tail);
}

/* x = 2^k * m with m in [sqrt(1/2), sqrt(2)), for positive normal x. */
MATH_FN int32_t math_log_split(float x, float *m)
{
    uint32_t bits = math_bits(x) + (0x3f800000u - 0x3f3504f3u);
    *m = math_from_bits((bits & 0x7fffffu) + 0x3f3504f3u);
    return (int32_t)(bits >> 23) - 127;
}

/* log of 0, of negative numbers, of infinity and of NaN, or `r` for the others. */
MATH_FN float math_log_edges(float x, float r)
{
    const float infinity = math_from_bits(MATH_INF_BITS);
    r = math_select(x < infinity, r, x);
    r = math_select(x == 0.0f, -infinity, r);
    return math_select(x < 0.0f, math_from_bits(0x7fc00000u), r);
}

MATH_FN float math_log(float x)
{
    int small = x < 0x1p-126f;
    float m, scaled = math_select(small, x * 0x1p23f, x);
    int32_t k = math_log_split(scaled, &m) - 23 * small;
    return math_log_edges(x, math_log_core(m - 1.0f, (float)k, 0.0f));
}

/* log(1 + x) through u = 1 + x and what that rounding lost. */
MATH_FN float math_log1p(float x)
{
    float u = 1.0f + x;
    float lost = math_select(x < 1.0f, x - (u - 1.0f), 1.0f - (u - x));
    float m;
    int32_t k = math_log_split(u, &m);
    float r = math_log_core(m - 1.0f, (float)k, lost / u);
    r = math_select(math_abs(x) < 0x1p-24f, x, r); /* keeps -0 and the subnormals */
    return math_log_edges(u, r);
}

#endif
