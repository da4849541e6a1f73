/* The float32 functions against the C library's float64 ones over every exponent, the float64 ones against
 * long double, and the half formats over every pattern. */
#include "compute/half.h"
#include "compute/math.h"
#include "compute/math64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* A prime, so that the walk over the 2^32 patterns meets every exponent with varied low bits. SLUICE_DENSE=1
 * in the environment walks them all. */
enum { STRIDE = 1009 };

static uint32_t stride(void)
{
    return getenv("SLUICE_DENSE") ? 1 : STRIDE;
}

static double sigmoid_ref(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double silu_ref(double x)
{
    return x < -700 ? -0.0 : x * sigmoid_ref(x);
}

static double gelu_ref(double x)
{
    if (x < -30)
        return -0.0;
    return x > 30 ? x : x * sigmoid_ref(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

static double rsqrt_ref(double x)
{
    return 1 / sqrt(x);
}

/* |got - want| in units of the last place of the float nearest to want. */
static double ulps(float got, double want)
{
    float nearest = (float)want;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : 1e9;
    if (isinf(nearest) || isinf(got))
        return got == nearest ? 0 : (fabs(want) > 3.4028234e38 && fabsf(got) > 3.402823e38f ? 1 : 1e9);
    int exponent;
    (void)frexp(want, &exponent);
    double unit = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
    return fabs((double)got - want) / unit;
}

struct function {
    const char *name;
    float (*ours)(float);
    double (*reference)(double);
    double limit_ulp;
};

static const struct function FUNCTIONS[] = {
    {"exp", math_exp, exp, 1},
    {"tanh", math_tanh, tanh, 2},
    {"log", math_log, log, 1},
    {"log1p", math_log1p, log1p, 2},
    {"sigmoid", math_sigmoid, sigmoid_ref, 2},
    {"silu", math_silu, silu_ref, 2},
    {"gelu_tanh", math_gelu_tanh, gelu_ref, 2},
    {"rsqrt", math_rsqrt, rsqrt_ref, 1.5},
};

static void test_float_functions(void **state)
{
    (void)state;
    const uint32_t step = stride();
    for (size_t f = 0; f < sizeof FUNCTIONS / sizeof *FUNCTIONS; f++) {
        const struct function *function = &FUNCTIONS[f];
        double worst = 0;
        float at = 0;
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
            float x = math_from_bits((uint32_t)bits);
            double u = ulps(function->ours(x), function->reference(x));
            if (u > worst) {
                worst = u;
                at = x;
            }
        }
        printf("%-10s %.3f ulp at %a\n", function->name, worst, (double)at);
        assert_true(worst <= function->limit_ulp);
    }
}

static void test_float_edges(void **state)
{
    (void)state;
    const float edges[] = {0.0f,      -0.0f,     1.0f,       -1.0f,     INFINITY,        -INFINITY,
                           NAN,       0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f,
                           88.72283f, 88.72284f, -103.97f,   -104.0f,   -112.0f,         112.0f,
                           0.625f};
    for (size_t f = 0; f < sizeof FUNCTIONS / sizeof *FUNCTIONS; f++)
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) {
            double want = FUNCTIONS[f].reference(edges[e]);
            double u = ulps(FUNCTIONS[f].ours(edges[e]), want);
            if (u > FUNCTIONS[f].limit_ulp)
                fail_msg("%s(%a): %g ulp", FUNCTIONS[f].name, (double)edges[e], u);
        }
    /* The softmax relies on this: the largest term of a row is exactly 1. */
    assert_true(math_exp(0.0f) == 1.0f && math_exp(-0.0f) == 1.0f);
    assert_int_equal(math_bits(math_tanh(-0.0f)), MATH_SIGN);
    assert_int_equal(math_bits(math_log1p(-0.0f)), MATH_SIGN);
    assert_int_equal(math_bits(math_gelu_tanh(-INFINITY)), MATH_SIGN);
    assert_int_equal(math_bits(math_silu(-INFINITY)), MATH_SIGN);
    assert_true(math_rint_int(126.5f) == 126 && math_rint_int(-127.5f) == -128 && math_rint_int(-0.5f) == 0);
    assert_true(math_rint(2.5f) == 2.0f && math_rint(-3.5f) == -4.0f && math_rint(126.50001f) == 127.0f);
}

/* Angles as rotary embeddings form them: float products of a position and a frequency, up to 1e6. */
static void test_float64_functions(void **state)
{
    (void)state;
    double trig = 0, absolute = 0, exp_error = 0, log_error = 0;
    for (uint32_t i = 0; i < 400000; i++) {
        float frequency = (float)math64_exp(-(double)(i % 128) / 128 * math64_log(1e6));
        double angle = i % 3 ? (double)((float)(i * 2654435761u % 1000001u) * frequency)
                             : (double)((float)i * (1e6f / 400000));
        if (i & 1)
            angle = -angle;
        double s, c;
        math64_sincos(angle, &s, &c);
        long double s_ref = sinl((long double)angle), c_ref = cosl((long double)angle);
        trig = fmax(trig, fmax(ulps((float)s, (double)s_ref), ulps((float)c, (double)c_ref)));
        absolute = fmax(absolute, (double)fmaxl(fabsl(s - s_ref), fabsl(c - c_ref)));
        double x = ((double)i - 200000) / 300;
        exp_error = fmax(exp_error, (double)fabsl(math64_exp(x) / expl((long double)x) - 1));
        double y = ldexp(1 + (double)(i % 1000) / 1000, (int)(i / 1000) - 200);
        long double l_ref = logl((long double)y);
        log_error = fmax(log_error, (double)(fabsl(math64_log(y) - l_ref) / fmaxl(fabsl(l_ref), 0x1p-10L)));
    }
    printf("sincos %.4f float ulp, %.2g absolute; exp64 %.2g, log64 %.2g relative\n", trig, absolute,
           exp_error, log_error);
    assert_true(trig <= 0.5001);
    assert_true(absolute <= 4e-16 && exp_error <= 1e-15 && log_error <= 1e-15);
    double s, c;
    math64_sincos(0.0, &s, &c);
    assert_true(s == 0 && c == 1);
    /* Positions go to 2^31, and a frequency may be 1. */
    const double largest = 0x1.fffffep30;
    math64_sincos(largest, &s, &c);
    assert_true(fabsl(s - sinl((long double)largest)) < 1e-15L);
    assert_true(fabsl(c - cosl((long double)largest)) < 1e-15L);
}

static uint32_t f16_reference_bits(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return (uint32_t)(h & 0x8000) << 16 | MATH_INF_BITS | (uint32_t)fraction << 13 |
               (fraction ? 0x400000u : 0);
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return math_bits((float)(h & 0x8000 ? -value : value));
}

static void test_half_widen(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        assert_int_equal(math_bits(half_from_f16((uint16_t)h)), f16_reference_bits((uint16_t)h));
        assert_int_equal(math_bits(half_from_bf16((uint16_t)h)), h << 16);
    }
}

/* The magnitude of a float16 pattern without sign, in float64; infinity counts as the step after 65504. */
static double f16_magnitude(int32_t h)
{
    if (h < 0)
        return -1;
    return h >= 0x7c00 ? 65536 : (double)half_from_f16((uint16_t)h);
}

/* Nearest, ties to even: no neighbour is closer, and at equal distance the chosen one is even. */
static bool f16_is_nearest(double magnitude, int32_t h)
{
    double error = fabs(magnitude - f16_magnitude(h));
    double below = magnitude - f16_magnitude(h - 1), above = f16_magnitude(h + 1) - magnitude;
    if (h == 0x7c00)
        return magnitude >= 65520;
    return (error < below || (error == below && !(h & 1))) && (error < above || (error == above && !(h & 1)));
}

static void check_narrow(uint32_t bits)
{
    float x = math_from_bits(bits);
    uint32_t f16 = half_to_f16(x), bf16 = half_to_bf16(x), sign = bits >> 16 & 0x8000u;
    bool good;
    if (isnan(x)) {
        good = f16 == (sign | 0x7e00u | (bits >> 13 & 0x3ffu)) && bf16 == (bits >> 16 | 0x40u);
    } else {
        uint32_t low = bits & 0xffffu, up = low > 0x8000u || (low == 0x8000u && (bits >> 16 & 1u));
        good = (f16 & 0x8000u) == sign && f16_is_nearest(fabs((double)x), (int32_t)(f16 & 0x7fffu)) &&
               bf16 == (bits >> 16) + up;
    }
    if (!good)
        fail_msg("%a (%08x) became f16 %04x, bf16 %04x", (double)x, bits, f16, bf16);
}

static void test_half_narrow(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = half_from_f16((uint16_t)h);
        if (!isnan(f))
            assert_int_equal(half_to_f16(f), h);
        /* Every 16-bit value, every midpoint between two of them, and their float neighbours. */
        for (uint32_t offset = 0; offset < 0x2000u; offset += 0x1000u)
            for (uint32_t near = 0; near <= 2; near++) {
                check_narrow(math_bits(f) + offset + near - 1);
                check_narrow((h << 16) + (offset << 3) + near - 1);
            }
        if ((h & 0x7fffu) < 0x0400u) /* the midpoints of subnormals lie at lower bits */
            check_narrow(math_bits((float)(((double)(h & 0x3ffu) + 0.5) * 0x1p-24)));
    }
    const uint32_t step = stride();
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step)
        check_narrow((uint32_t)bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_functions),   cmocka_unit_test(test_float_edges),
        cmocka_unit_test(test_float64_functions), cmocka_unit_test(test_half_widen),
        cmocka_unit_test(test_half_narrow),
    };
    return cmocka_run_group_tests_name("math", tests, NULL, NULL);
}
