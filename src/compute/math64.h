/* exp, log, sin and cos in float64, for tables that are then rounded to float32 (rotary angles and their
 * frequencies). From +, *, / and fma alone, so that the tables have the same bits everywhere. The series are
 * Taylor's: at these reduced ranges their first omitted term is below 2^-54.
 *
 * sin and cos take |x| < 2^31: rotary angles are float32 products of a position, far inside that. Measured
 * against long double in tests/unit/test_math.c. Not for NaN, infinities or subnormal arguments. */
#ifndef COMPUTE_MATH64_H
#define COMPUTE_MATH64_H

#include "compute/math.h"

/* As MATH_ROUNDER, for |x| <= 2^51. */
#define MATH64_ROUNDER 0x1.8p52

/* 2^n for n in [-1022, 1023]. */
MATH_FN double math64_power2(int64_t n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* c[0] + c[1] z + ... + c[n - 1] z^(n - 1) */
MATH_FN double math64_polynomial(const double *c, int n, double z)
{
    double p = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        p = fma(p, z, c[i]);
    return p;
}

/* For |x| <= 700. */
MATH_FN double math64_exp(double x)
{
    const double terms[14] = {1.0,
                              1.0,
                              1.0 / 2,
                              1.0 / 6,
                              1.0 / 24,
                              1.0 / 120,
                              1.0 / 720,
                              1.0 / 5040,
                              1.0 / 40320,
                              1.0 / 362880,
                              1.0 / 3628800,
                              1.0 / 39916800,
                              1.0 / 479001600,
                              1.0 / 6227020800};
    double n = fma(x, 0x1.71547652b82fep+0, MATH64_ROUNDER) - MATH64_ROUNDER;
    double r = fma(n, -0x1.62e42fefa39efp-1, x);
    r = fma(n, -0x1.abc9e3b39803fp-56, r);
    return math64_polynomial(terms, 14, r) * math64_power2((int64_t)n);
}

/* For positive normal x: x = 2^k m, s = (m - 1) / (m + 1), log m = 2 (s + s^3/3 + s^5/5 + ...). */
MATH_FN double math64_log(double x)
{
    const double terms[12] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                              1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    const uint64_t root_half = 0x3fe6a09e667f3bcdu, one = 0x3ff0000000000000u;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += one - root_half;
    double k = (double)((int64_t)(bits >> 52) - 1023);
    bits = (bits & 0xfffffffffffffu) + root_half;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1.0) / (m + 1.0);
    double log_m = 2.0 * s * math64_polynomial(terms, 12, s * s);
    return fma(k, 0x1.62e42fefa39efp-1, fma(k, 0x1.abc9e3b39803fp-56, log_m));
}

/* Both at once: one reduction by multiples of pi/2. The first fma of the reduction is exact, because its
 * result is below 1 and a multiple of 2^-53 like its terms. */
MATH_FN void math64_sincos(double x, double *sine, double *cosine)
{
    const double sin_terms[8] = {1.0,          -1.0 / 6,        1.0 / 120,        -1.0 / 5040,
                                 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000};
    const double cos_terms[9] = {1.0,
                                 -1.0 / 2,
                                 1.0 / 24,
                                 -1.0 / 720,
                                 1.0 / 40320,
                                 -1.0 / 3628800,
                                 1.0 / 479001600,
                                 -1.0 / 87178291200,
                                 1.0 / 20922789888000};
    double n = fma(x, 0x1.45f306dc9c883p-1, MATH64_ROUNDER) - MATH64_ROUNDER;
    double r = fma(n, -0x1.921fb54442d18p+0, x);
    r = fma(n, -0x1.1a62633145c07p-54, r);
    double z = r * r;
    double s = r * math64_polynomial(sin_terms, 8, z);
    double c = math64_polynomial(cos_terms, 9, z);
    uint64_t quadrant = (uint64_t)(int64_t)n & 3u;
    double s_out = quadrant & 1u ? c : s, c_out = quadrant & 1u ? s : c;
    *sine = quadrant & 2u ? -s_out : s_out;
    *cosine = (quadrant + 1u) & 2u ? -c_out : c_out;
}

#endif
