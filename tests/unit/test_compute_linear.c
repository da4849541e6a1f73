/* Matrix products of the reference against float64 sums, for every format, group, tail and kind of value. */
#include "compute_fixture.h"

#include <float.h>

static struct cpu_kernels kernels;

static struct quant new_quant(uint32_t rows, uint32_t cols, uint32_t group, uint32_t bits, bool wide)
{
    struct quant q = {.cols = cols, .group_size = group, .bits = (uint8_t)bits, .wide = wide};
    q.code_stride = (cols + CODE_UNIT - 1) / CODE_UNIT * CODE_UNIT;
    q.group_stride = (cols / group + 15) / 16 * 16;
    q.codes = test_malloc((size_t)rows * (1u + wide) * q.code_stride);
    q.scales = new_floats((size_t)rows * q.group_stride);
    q.sums = new_floats((size_t)rows * q.group_stride);
    return q;
}

static void free_quant(struct quant *q)
{
    test_free(q->codes);
    test_free(q->scales);
    test_free(q->sums);
}

static void multiply_i8(const struct mat *m, const float *x, uint32_t rows, bool wide, float *y)
{
    struct quant q = new_quant(rows, m->cols, m->group_size, m->bits, wide);
    for (uint32_t r = 0; r < rows; r++)
        kernels.quantize_row(&q, r, x + (size_t)r * m->cols);
    kernels.affine_i8(m, 0, m->rows, &q, rows, y);
    free_quant(&q);
}

/* The quantized activation k of a row, from its definition: float32 scale, nearest even, clamped. */
static double quantized(const float *x, uint32_t k, uint32_t group, bool wide)
{
    const float limit = wide ? QUANT_WIDE_MAX : QUANT_NARROW_MAX;
    const float *g = x + k / group * group;
    float most = 0;
    for (uint32_t i = 0; i < group; i++)
        most = fmaxf(most, fabsf(g[i]));
    float s = most / limit;
    if (s == 0)
        return 0;
    float q = nearbyintf(x[k] / s);
    return (double)s * (double)fminf(fmaxf(q, -limit), limit);
}

/* Relative rounding errors of at most this many float32 steps per term, of the sum of the terms' magnitudes:
 * a product, two fmas and the tree of four. */
#define STEPS (8 * (double)FLT_EPSILON)

static void check_affine(uint32_t rows, uint32_t outputs, uint32_t cols, uint32_t bits, uint32_t group,
                         float magnitude, bool wide)
{
    struct stored m = random_affine(outputs, cols, bits, group);
    float *x = random_floats((size_t)rows * cols, magnitude);
    float *y8 = new_floats((size_t)rows * outputs), *y32 = new_floats((size_t)rows * outputs);
    multiply_i8(&m.mat, x, rows, wide, y8);
    kernels.affine_f32(&m.mat, 0, outputs, x, rows, y32);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t o = 0; o < outputs; o++) {
            double exact = 0, quant = 0, terms = 0, quant_terms = 0, error = 0;
            const float *row = x + (size_t)r * cols;
            for (uint32_t k = 0; k < cols; k++) {
                uint32_t g = k / group;
                double w = weight_at(&m.mat, o, k), q = quantized(row, k, group, wide);
                double split = fabs((double)scale_at(&m.mat, m.mat.scales, o, g)) * code_at(&m.mat, o, k) +
                               fabs((double)scale_at(&m.mat, m.mat.biases, o, g));
                exact += w * (double)row[k];
                quant += w * q;
                terms += split * fabs((double)row[k]);
                quant_terms += split * fabs(q);
                error += fabs(w) * fabs(q - (double)row[k]);
            }
            size_t at = (size_t)r * outputs + o;
            assert_close((double)y32[at], exact, terms * STEPS + DBL_MIN, "f32 activations");
            assert_close((double)y8[at], quant, quant_terms * STEPS + DBL_MIN, "integer activations");
            assert_close((double)y8[at], exact, error + (terms + quant_terms) * STEPS,
                         "integer against exact");
        }
    free_stored(&m);
    test_free(x);
    test_free(y8);
    test_free(y32);
}

static void test_affine(void **state)
{
    (void)state;
    const uint32_t bits[] = {2, 4, 8}, groups[] = {32, 64, 128}, counts[] = {1, 2, 15, 16, 17, 33};
    for (size_t b = 0; b < 3; b++)
        for (size_t g = 0; g < 3; g++)
            for (size_t c = 0; c < 6; c++) {
                for (int wide = 0; wide < 2; wide++) {
                    check_affine(1, 5, groups[g] * counts[c], bits[b], groups[g], 1, wide);
                    check_affine(11, 3, groups[g] * counts[c], bits[b], groups[g], 30, wide);
                }
            }
    for (int wide = 0; wide < 2; wide++) {
        check_affine(3, 37, 704, 4, 64, 1e-20f, wide);
        check_affine(3, 37, 704, 4, 64, 1e20f, wide);
    }
}

/* Every row of codes at its largest, activations at theirs: the integer sums reach their bounds. */
static void test_affine_bounds(void **state)
{
    (void)state;
    const uint32_t bits[] = {2, 4, 8}, groups[] = {32, 64, 128};
    for (size_t b = 0; b < 3; b++)
        for (size_t g = 0; g < 3; g++)
            for (int sign = -1; sign <= 1; sign += 2) {
                const uint32_t cols = groups[g] * 3;
                struct stored m = random_affine(2, cols, bits[b], groups[g]);
                memset((unsigned char *)m.memory[0] + 2, 0xff, (size_t)2 * cols / 8 * bits[b]);
                for (uint32_t i = 0; i < 6; i++) {
                    put_u16((unsigned char *)m.memory[1] + 2, i, half_to_bf16(0.5f));
                    put_u16((unsigned char *)m.memory[2] + 2, i, half_to_bf16(-1.0f));
                }
                float *x = new_floats(cols), y[2], y32[2];
                for (int wide = 0; wide < 2; wide++) {
                    const float most = wide ? QUANT_WIDE_MAX : QUANT_NARROW_MAX;
                    for (uint32_t k = 0; k < cols; k++)
                        x[k] = (float)sign * most;
                    multiply_i8(&m.mat, x, 1, wide, y);
                    kernels.affine_f32(&m.mat, 0, 2, x, 1, y32);
                    /* Small integers and halves are exact; wide sums are rounded to float32's 24 bits. */
                    double want = sign * (double)most * cols * (0.5 * ((1 << bits[b]) - 1) - 1);
                    double near = wide ? fabs(want) * STEPS : 0;
                    for (int i = 0; i < 2; i++) {
                        assert_close((double)y[i], want, near, "integer activations at their bounds");
                        assert_close((double)y32[i], want, near, "f32 activations");
                    }
                }
                test_free(x);
                free_stored(&m);
            }
}

/* Values at the edges of float32 in one group must neither misbehave nor leak into others. */
static void test_quantize_edges(void **state)
{
    (void)state;
    static const struct {
        float first, second, scale;
        int code_first, code_second;
    } CASES[] = {
        {0, 0, 0, 0, 0},
        {-0.0f, 0, 0, 0, 0},
        {FLT_MAX, -FLT_MAX, FLT_MAX / 127, 127, -127},
        {0x1p-149f, 0, 0, 0, 0},      /* 1/127 of the least subnormal rounds to 0 */
        {0x1p-149f * 63, 0, 0, 0, 0}, /* still */
        {0x1p-149f * 64, 0x1p-149f, 0x1p-149f, 64, 1},
        {0x1p-149f * 190, -0x1p-149f * 190, 0x1p-149f, 127, -127}, /* 190 / 1, clamped */
        {127, 2.5f, 1, 127, 2},
        {-127, -3.5f, 1, -127, -4},
    };
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        float x[64] = {CASES[c].first, CASES[c].second};
        struct quant q = new_quant(1, 64, 32, 8, false); /* 8 bits: codes in their own order */
        x[40] = 1;
        kernels.quantize_row(&q, 0, x);
        assert_true(q.scales[0] == CASES[c].scale && q.scales[1] == 1 / 127.0f);
        assert_int_equal(q.codes[0], CASES[c].code_first);
        assert_int_equal(q.codes[1], CASES[c].code_second);
        assert_int_equal(q.codes[40], 127);
        assert_true(q.sums[0] == CASES[c].scale * (float)(CASES[c].code_first + CASES[c].code_second));
        free_quant(&q);
    }
}

static void test_quantize_not_finite(void **state)
{
    (void)state;
    const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
    const uint32_t bits[] = {2, 4, 8};
    for (size_t v = 0; v < 4; v++)
        for (size_t b = 0; b < 3; b++) {
            struct stored m = random_affine(3, 128, bits[b], 64);
            float *x = random_floats(128, 1), y[3];
            x[77] = values[v];
            multiply_i8(&m.mat, x, 1, false, y);
            for (int o = 0; o < 3; o++)
                assert_false(kernels.finite(y + o, 1)); /* seen, not hidden */
            free_stored(&m);
            test_free(x);
        }
}

static void test_dense(void **state)
{
    (void)state;
    const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    const uint32_t cols[] = {1, 2, 15, 16, 17, 100, 128, 129, 300};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cols / sizeof *cols; c++) {
            const uint32_t rows = 9, outputs = 5, n = cols[c];
            struct stored m = random_dense(outputs, n, types[t]);
            float *x = random_floats((size_t)rows * n, 3), *y = new_floats((size_t)rows * outputs);
            kernels.dense(&m.mat, 0, outputs, x, rows, y);
            for (uint32_t r = 0; r < rows; r++)
                for (uint32_t o = 0; o < outputs; o++) {
                    double want = 0, terms = 0;
                    for (uint32_t k = 0; k < n; k++) {
                        double term = weight_at(&m.mat, o, k) * (double)x[(size_t)r * n + k];
                        want += term;
                        terms += fabs(term);
                    }
                    assert_close((double)y[r * outputs + o], want,
                                 terms * n / 16 * FLT_EPSILON + terms * STEPS, "dense");
                }
            free_stored(&m);
            test_free(x);
            test_free(y);
        }
}

/* The shape of a sum, term by term and without vectors: what section 4 of the design says. */
static void test_sum_shape(void **state)
{
    (void)state;
    const uint32_t n = 77;
    struct stored m = random_dense(1, n, DTYPE_F32);
    float *x = random_floats(n, 1), y, lanes[16] = {0};
    kernels.dense(&m.mat, 0, 1, x, 1, &y);
    for (uint32_t k = 0; k < n; k++)
        lanes[k % 16] = fmaf((float)weight_at(&m.mat, 0, k), x[k], lanes[k % 16]);
    for (uint32_t width = 8; width; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            lanes[i] = lanes[i] + lanes[i + width];
    assert_memory_equal(&y, &lanes[0], sizeof y);
    free_stored(&m);
    test_free(x);

    struct stored a = random_affine(1, 32 * 40, 4, 32);
    x = random_floats(a.mat.cols, 1);
    memset(lanes, 0, sizeof lanes);
    multiply_i8(&a.mat, x, 1, false, &y);
    for (uint32_t g = 0; g < 40; g++) {
        const float *at = x + g * 32;
        float most = 0, *lane = &lanes[g % 16];
        for (uint32_t k = 0; k < 32; k++)
            most = fmaxf(most, fabsf(at[k]));
        float s = most / 127.0f;
        int dot = 0, sum = 0;
        for (uint32_t k = 0; k < 32; k++) {
            int q = (int)nearbyintf(at[k] / s);
            dot += q * (int)code_at(&a.mat, 0, g * 32 + k);
            sum += q;
        }
        *lane = fmaf(scale_at(&a.mat, a.mat.scales, 0, g) * s, (float)dot, *lane);
        *lane = fmaf(scale_at(&a.mat, a.mat.biases, 0, g), s * (float)sum, *lane);
    }
    for (uint32_t width = 8; width; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            lanes[i] = lanes[i] + lanes[i + width];
    assert_memory_equal(&y, &lanes[0], sizeof y);
    free_stored(&a);
    test_free(x);
}

static void test_dequantize(void **state)
{
    (void)state;
    const uint32_t bits[] = {2, 4, 8}, groups[] = {32, 64, 128};
    for (size_t b = 0; b < 3; b++)
        for (size_t g = 0; g < 3; g++) {
            struct stored m = random_affine(3, 256, bits[b], groups[g]);
            float row[256];
            for (uint32_t o = 0; o < 3; o++) {
                kernels.dequantize_row(&m.mat, o, row);
                for (uint32_t k = 0; k < 256; k++)
                    assert_true(row[k] == (float)weight_at(&m.mat, o, k)); /* exact sum, rounded once */
            }
            free_stored(&m);
        }
}

static int use_reference(void **state)
{
    (void)state;
    cpu_fill_ref(&kernels);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine),         cmocka_unit_test(test_affine_bounds),
        cmocka_unit_test(test_quantize_edges), cmocka_unit_test(test_quantize_not_finite),
        cmocka_unit_test(test_dense),          cmocka_unit_test(test_sum_shape),
        cmocka_unit_test(test_dequantize),
    };
    return cmocka_run_group_tests_name("compute_linear", tests, use_reference, NULL);
}
