/* Every primitive of every instruction set that this processor has, against the reference, byte for byte. An
 * instruction set is tested with the slots it fills on top of the reference. */
#include "compute_fixture.h"
#include "support/unit.h"

#include <float.h>

static struct cpu_kernels ref;

typedef void compare_fn(const struct cpu_kernels *isa);

static void assert_same(const char *isa, const char *what, const void *got, const void *want, size_t bytes)
{
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s: %s differs from the reference", isa, what);
}

/* Ordinary values, with zeros of both signs, subnormals and large ones among them. */
static float *mixed_floats(size_t n)
{
    static const float RARE[] = {0.0f,   -0.0f, 0x1p-149f, -0x1p-130f, 1e30f,
                                 -1e30f, 88.5f, -104.0f,   -20.0f,     0.625f};
    float *x = random_floats(n, 8);
    for (size_t i = 0; i < n; i++)
        if (random_bits() % 8 == 0)
            x[i] = RARE[random_bits() % (sizeof RARE / sizeof *RARE)];
    return x;
}

static void compare_quantized(const struct cpu_kernels *isa, uint32_t bits, uint32_t group, uint32_t groups,
                              uint32_t rows, bool extreme, bool wide)
{
    /* One row of x takes four runs of 16 rows of weights at once, where there are as many. */
    const uint32_t cols = group * groups, outputs = rows == 1 ? 83 : 19;
    struct stored m = random_affine(outputs, cols, bits, group);
    float *x = extreme ? mixed_floats((size_t)rows * cols) : random_floats((size_t)rows * cols, 3);
    memset(x, 0, group * sizeof *x);
    float *y[2];
    for (int i = 0; i < 2; i++) {
        const struct cpu_kernels *k = i ? isa : &ref;
        struct quant q = {.cols = cols,
                          .group_size = group,
                          .bits = (uint8_t)bits,
                          .wide = wide,
                          .code_stride = (cols + CODE_UNIT - 1) / CODE_UNIT * CODE_UNIT,
                          .group_stride = (groups + 15) / 16 * 16};
        q.codes = aligned_alloc(64, (size_t)rows * 2 * q.code_stride);
        q.scales = aligned_alloc(64, (size_t)rows * q.group_stride * 4);
        q.sums = aligned_alloc(64, (size_t)rows * q.group_stride * 4);
        y[i] = new_floats((size_t)rows * outputs);
        for (uint32_t r = 0; r < rows; r++)
            k->quantize_row(&q, r, x + (size_t)r * cols);
        k->affine_i8(&m.mat, 0, 7, &q, rows, y[i]);
        k->affine_i8(&m.mat, 7, outputs, &q, rows, y[i]);
        free(q.codes);
        free(q.scales);
        free(q.sums);
    }
    assert_same(isa->name, "affine_i8", y[1], y[0], (size_t)rows * outputs * sizeof(float));
    for (int i = 0; i < 2; i++)
        (i ? isa : &ref)->affine_f32(&m.mat, 0, outputs, x, rows, y[i]);
    assert_same(isa->name, "affine_f32", y[1], y[0], (size_t)rows * outputs * sizeof(float));
    float *values = new_floats(2 * (size_t)cols);
    ref.dequantize_row(&m.mat, 3, values);
    isa->dequantize_row(&m.mat, 3, values + cols);
    assert_same(isa->name, "dequantize_row", values + cols, values, cols * sizeof *values);
    test_free(values);
    test_free(y[0]);
    test_free(y[1]);
    test_free(x);
    free_stored(&m);
}

static void compare_affine(const struct cpu_kernels *isa)
{
    const uint32_t bits[] = {2, 4, 8}, sizes[] = {32, 64, 128}, counts[] = {1, 3, 15, 16, 17, 44},
                   rows[] = {1, 4, 6, 7, 37};
    for (size_t b = 0; b < 3; b++)
        for (size_t s = 0; s < 3; s++)
            for (size_t c = 0; c < 6; c++)
                for (size_t r = 0; r < 4; r++)
                    for (int extreme = 0; extreme < 2; extreme++)
                        for (int wide = 0; wide < 2; wide++)
                            compare_quantized(isa, bits[b], sizes[s], counts[c], rows[r], extreme, wide);
}

static void compare_dense(const struct cpu_kernels *isa)
{
    const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    const uint32_t widths[] = {1, 7, 16, 31, 33, 129, 256, 700}, rows[] = {1, 5, 17};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof widths / sizeof *widths; c++)
            for (size_t r = 0; r < 3; r++) {
                struct stored m = random_dense(11, widths[c], types[t]);
                const size_t n = (size_t)rows[r] * 11;
                float *x = mixed_floats((size_t)rows[r] * widths[c]), *y = new_floats(2 * n);
                ref.dense(&m.mat, 0, 11, x, rows[r], y);
                isa->dense(&m.mat, 0, 4, x, rows[r], y + n);
                isa->dense(&m.mat, 4, 11, x, rows[r], y + n);
                assert_same(isa->name, "dense", y + n, y, n * sizeof *y);
                test_free(x);
                test_free(y);
                free_stored(&m);
            }
}

static void compare_formats(const struct cpu_kernels *isa)
{
    enum { ALL = 65536 };
    uint16_t *h = test_malloc(2 * ALL * sizeof *h);
    float *f = new_floats(2 * ALL);
    for (uint32_t i = 0; i < ALL; i++)
        h[i] = (uint16_t)i;
    const enum dtype types[] = {DTYPE_BF16, DTYPE_F16};
    for (int t = 0; t < 2; t++) {
        ref.widen(types[t], h, ALL, f);
        isa->widen(types[t], h, ALL, f + ALL);
        assert_same(isa->name, "widen", f + ALL, f, ALL * sizeof *f);
    }
    const sluice_kv_type kinds[] = {SLUICE_KV_F16, SLUICE_KV_BF16, SLUICE_KV_F32};
    for (uint32_t round = 0, rounds = (uint32_t)scaled(64, 4); round < rounds; round++) {
        for (uint32_t i = 0; i < ALL; i++) /* every exponent and sign, every pattern of 16 high bits */
            f[i] = math_from_bits(i << 16 | (random_bits() >> 16 & (round & 1 ? 0xffffu : 0x9000u)));
        for (int t = 0; t < 3; t++) {
            const size_t n = ALL / 2 - 5, size = t == 2 ? 4 : 2;
            unsigned char *out = (unsigned char *)(f + ALL);
            ref.narrow(kinds[t], f + (round & 3), n, h);
            isa->narrow(kinds[t], f + (round & 3), n, out);
            assert_same(isa->name, "narrow", out, h, n * size);
        }
    }
    test_free(h);
    test_free(f);
}

static void compare_rows(const struct cpu_kernels *isa)
{
    const uint32_t widths[] = {1, 15, 16, 17, 64, 100, 256, 2816};
    for (size_t c = 0; c < sizeof widths / sizeof *widths; c++) {
        const uint32_t n = widths[c];
        const size_t bytes = n * sizeof(float);
        float *x = mixed_floats(4 * (size_t)n), *w = random_floats(n, 1), *y = new_floats(2 * (size_t)n);
        for (int weighted = 0; weighted < 2; weighted++) {
            float *ordinary = random_floats(n, 3);
            ref.norm_row(ordinary, weighted ? w : NULL, n, 1e-6f, y);
            isa->norm_row(ordinary, weighted ? w : NULL, n, 1e-6f, y + n);
            assert_same(isa->name, "norm_row", y + n, y, bytes);
            test_free(ordinary);
        }
        ref.weighted_sum_row(x, w, n < 4 ? 1 : 4, n, y);
        isa->weighted_sum_row(x, w, n < 4 ? 1 : 4, n, y + n);
        assert_same(isa->name, "weighted_sum_row", y + n, y, bytes);
        if (n >= 2) {
            uint16_t ids[2][16] = {{0}};
            float weights[2][16] = {{0}};
            const uint32_t k = n < 12 ? n : 12;
            for (uint32_t i = 0; i < n; i++)
                x[i] = (float)(int32_t)(random_bits() % 9) - 4; /* many ties */
            ref.route_row(x, n, k, ids[0], weights[0]);
            isa->route_row(x, n, k, ids[1], weights[1]);
            assert_same(isa->name, "route_row ids", ids[1], ids[0], sizeof ids[0]);
            assert_same(isa->name, "route_row weights", weights[1], weights[0], sizeof weights[0]);
        }
        test_free(x);
        test_free(w);
        test_free(y);
    }
}

static void compare_rope(const struct cpu_kernels *isa)
{
    const struct {
        uint32_t heads, dim, pairs, half;
    } shapes[] = {{3, 64, 32, 32}, {2, 64, 5, 32}, {2, 20, 10, 10}, {1, 512, 64, 256}, {2, 64, 20, 20}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t n = (size_t)shapes[s].heads * shapes[s].dim;
        float *x = random_floats(2 * n, 3), *t = random_floats(2 * (size_t)shapes[s].pairs, 1);
        memcpy(x + n, x, n * sizeof *x);
        ref.rope_row(x, shapes[s].heads, shapes[s].dim, shapes[s].pairs, shapes[s].half, t,
                     t + shapes[s].pairs);
        isa->rope_row(x + n, shapes[s].heads, shapes[s].dim, shapes[s].pairs, shapes[s].half, t,
                      t + shapes[s].pairs);
        assert_same(isa->name, "rope_row", x + n, x, n * sizeof *x);
        test_free(x);
        test_free(t);
    }
}

static void compare_elements(const struct cpu_kernels *isa)
{
    const size_t counts[] = {0, 1, 15, 16, 17, 31, 1000, 65539};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const size_t n = counts[c], bytes = n * sizeof(float);
        float *a = mixed_floats(n), *b = mixed_floats(n), *y = new_floats(n), *z = new_floats(n);
        for (int act = ACT_GELU_TANH; act <= ACT_SIGMOID; act++) {
            ref.gated((enum activation)act, a, b, n, y);
            isa->gated((enum activation)act, a, b, n, z);
            assert_same(isa->name, "gated", z, y, bytes);
        }
        ref.add(a, b, n, y);
        isa->add(a, b, n, z);
        assert_same(isa->name, "add", z, y, bytes);
        ref.scale(y, 1.7f, n);
        isa->scale(z, 1.7f, n);
        assert_same(isa->name, "scale", z, y, bytes);
        ref.scale_cols(y, a, 0.3f, (uint32_t)n);
        isa->scale_cols(z, a, 0.3f, (uint32_t)n);
        assert_same(isa->name, "scale_cols", z, y, bytes);
        memcpy(y, a, bytes);
        memcpy(z, a, bytes);
        ref.softcap(y, 30.0f, n);
        isa->softcap(z, 30.0f, n);
        assert_same(isa->name, "softcap", z, y, bytes);
        ref.exp(a, 2.5f, n, y);
        isa->exp(a, 2.5f, n, z);
        assert_same(isa->name, "exp", z, y, bytes);
        if (n) {
            const float most[2] = {ref.largest(a, n), isa->largest(a, n)};
            assert_same(isa->name, "largest", &most[1], &most[0], sizeof *most);
        }
        for (int bad = 0; bad < 2; bad++) {
            assert_int_equal(isa->finite(z, n), ref.finite(y, n));
            if (n)
                y[n - 1] = z[n - 1] = bad ? INFINITY : NAN;
        }
        test_free(a);
        test_free(b);
        test_free(y);
        test_free(z);
    }
}

static void compare_norms(const struct cpu_kernels *isa, uint32_t n)
{
    const size_t bytes = n * sizeof(float);
    float *x = random_floats(n, 3), *w = random_floats(n, 1), *g = mixed_floats(n),
          *y = new_floats(2 * (size_t)n);
    ref.gated_norm_row(x, w, g, n, 1e-6f, y);
    isa->gated_norm_row(x, w, g, n, 1e-6f, y + n);
    assert_same(isa->name, "gated_norm_row", y + n, y, bytes);
    memcpy(y, x, bytes);
    memcpy(y + n, x, bytes);
    ref.unit_row(y, n, 1e-6f, 0.3f);
    isa->unit_row(y + n, n, 1e-6f, 0.3f);
    assert_same(isa->name, "unit_row", y + n, y, bytes);
    test_free(x);
    test_free(w);
    test_free(g);
    test_free(y);
}

/* Whole, and in two parts, which differ in what is left of a register. */
static void compare_conv(const struct cpu_kernels *isa, uint32_t channels, uint32_t taps, uint32_t rows)
{
    const size_t n = (size_t)rows * channels, kept = (size_t)(taps - 1) * channels;
    float *w = random_floats((size_t)taps * channels, 1), *tail = random_floats(kept, 2),
          *x = mixed_floats(n);
    float *y = new_floats(2 * n);
    ref.conv_channels(w, taps, channels, 0, channels, tail, x, rows, y);
    isa->conv_channels(w, taps, channels, 0, channels / 3, tail, x, rows, y + n);
    isa->conv_channels(w, taps, channels, channels / 3, channels, tail, x, rows, y + n);
    assert_same(isa->name, "conv_channels", y + n, y, n * sizeof *y);
    test_free(w);
    test_free(tail);
    test_free(x);
    test_free(y);
}

static void compare_delta_shape(const struct cpu_kernels *isa, uint32_t key_dim, uint32_t values,
                                uint32_t rows)
{
    const size_t qkv = 2 * (size_t)key_dim + values, state = (size_t)values * key_dim,
                 out = (size_t)rows * values;
    float *x = random_floats(rows * qkv, 1), *gates = random_floats(2 * (size_t)rows, 1);
    float *s = new_floats(2 * state), *y = new_floats(2 * out);
    fill_random(s, state, 1);
    memcpy(s + state, s, state * sizeof *s);
    for (int i = 0; i < 2; i++) {
        const struct delta_head head = {.q = x,
                                        .k = x + key_dim,
                                        .v = x + 2 * (size_t)key_dim,
                                        .decay = gates,
                                        .beta = gates + 1,
                                        .state = s + (i ? state : 0),
                                        .out = y + (i ? out : 0),
                                        .qkv_stride = qkv,
                                        .gate_stride = 2,
                                        .out_stride = values,
                                        .n_rows = rows,
                                        .key_dim = key_dim};
        const struct cpu_kernels *k = i ? isa : &ref;
        k->delta_values(&head, 0, i ? values / 2 : values);
        if (i)
            k->delta_values(&head, values / 2, values);
    }
    assert_same(isa->name, "delta_values", y + out, y, out * sizeof *y);
    assert_same(isa->name, "delta_values' state", s + state, s, state * sizeof *s);
    test_free(x);
    test_free(gates);
    test_free(s);
    test_free(y);
}

static void compare_recurrence(const struct cpu_kernels *isa)
{
    const uint32_t widths[] = {1, 15, 16, 33, 128, 300}, rows[] = {1, 2, 9}, keys[] = {16, 48, 128};
    for (size_t c = 0; c < sizeof widths / sizeof *widths; c++) {
        compare_norms(isa, widths[c]);
        for (size_t r = 0; r < 3; r++) {
            for (uint32_t taps = 2; taps <= CONV_TAPS_MAX; taps += 2)
                compare_conv(isa, widths[c], taps, rows[r]);
            for (size_t k = 0; k < 3; k++)
                compare_delta_shape(isa, keys[k], widths[c], rows[r]);
        }
    }
}

static void compare_attend_shape(const struct cpu_kernels *isa, sluice_kv_type type, uint32_t dim,
                                 uint32_t window, uint32_t position, uint32_t n_queries)
{
    const uint32_t slots = position + n_queries + 3, kv_heads = 2;
    const size_t values = (size_t)slots * kv_heads * dim;
    struct kv_view kv = {type, slots, kv_heads, dim, test_malloc(values * 4), test_malloc(values * 4)};
    float *k = random_floats(values, 2), *v = random_floats(values, 2),
          *q = random_floats(n_queries * dim, 2);
    float *out[2] = {new_floats(n_queries * dim), new_floats(n_queries * dim)};
    ref.narrow(type, k, values, kv.k);
    ref.narrow(type, v, values, kv.v);
    const struct attend a = {&kv, 1, window, 0.3f};
    float *scratch = aligned_alloc(64, (ATTEND_SCRATCH_FLOATS(dim) * sizeof *scratch + 63) / 64 * 64);
    for (int i = 0; i < 2; i++) {
        struct attend_query queries[ATTEND_QUERIES];
        for (uint32_t j = 0; j < n_queries; j++)
            queries[j] = (struct attend_query){q + j * dim, out[i] + j * dim, position + j};
        (i ? isa : &ref)->attend(&a, queries, n_queries, scratch);
    }
    assert_same(isa->name, "attend", out[1], out[0], n_queries * dim * sizeof(float));
    free(scratch);
    test_free(k);
    test_free(v);
    test_free(q);
    test_free(out[0]);
    test_free(out[1]);
    test_free(kv.k);
    test_free(kv.v);
}

static void compare_attend(const struct cpu_kernels *isa)
{
    const uint32_t dims[] = {20, 64, 256}, windows[] = {0, 1, 50, 64, 130}, positions[] = {0, 5, 63, 64, 200};
    const uint32_t step = (uint32_t)scaled(5, ATTEND_QUERIES);
    for (int type = SLUICE_KV_F16; type <= SLUICE_KV_F32; type++)
        for (size_t d = 0; d < 3; d++)
            for (size_t w = 0; w < 5; w++)
                for (size_t p = 0; p < 5; p++)
                    for (uint32_t n = 1; n <= ATTEND_QUERIES; n += step)
                        compare_attend_shape(isa, (sluice_kv_type)type, dims[d], windows[w], positions[p], n);
}

static void test_isas(void **state)
{
    (void)state;
    static compare_fn *const COMPARES[] = {compare_affine, compare_dense,     compare_formats,
                                           compare_rows,   compare_rope,      compare_elements,
                                           compare_attend, compare_recurrence};
    cpu_fill_ref(&ref);
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++) {
        if (!CPU_ISAS[i].usable()) {
            printf("%s: SKIPPED, this processor lacks it\n", CPU_ISAS[i].name);
            continue;
        }
        struct cpu_kernels isa;
        cpu_fill_ref(&isa);
        CPU_ISAS[i].fill(&isa);
        isa.name = CPU_ISAS[i].name;
        printf("%s\n", isa.name);
        for (size_t c = 0; c < sizeof COMPARES / sizeof *COMPARES; c++)
            COMPARES[c](&isa);
    }
}

/* The best table is complete, and the reference alone is usable everywhere. */
static void test_best(void **state)
{
    (void)state;
    assert_true(CPU_ISA_COUNT >= 1 && CPU_ISAS[0].usable());
    struct cpu_kernels best;
    memset(&best, 0, sizeof best);
    cpu_kernels_best(&best);
    void *slots[sizeof best / sizeof(void *)];
    memcpy(slots, &best, sizeof best);
    for (size_t i = 0; i < sizeof best / sizeof(void *); i++)
        assert_non_null(slots[i]);
}

static void test_find(void **state)
{
    (void)state;
    sluice_error err;
    const struct cpu_isa *isa = NULL;
    assert_int_equal(cpu_isa_find(NULL, &isa, &err), SLUICE_OK);
    assert_ptr_equal(isa, cpu_isa_best());
    assert_int_equal(cpu_isa_find("auto", &isa, &err), SLUICE_OK);
    assert_ptr_equal(isa, cpu_isa_best());
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++) {
        sluice_status want = CPU_ISAS[i].usable() ? SLUICE_OK : SLUICE_E_UNSUPPORTED;
        assert_int_equal(cpu_isa_find(CPU_ISAS[i].name, &isa, &err), want);
        struct cpu_kernels kernels;
        CPU_ISAS[i].fill(&kernels);
        assert_string_equal(kernels.name, CPU_ISAS[i].name);
    }
    assert_int_equal(cpu_isa_find("mmx", &isa, &err), SLUICE_E_ARGUMENT);
    assert_non_null(strstr(err.detail, "mmx"));
    assert_non_null(strstr(err.detail, "ref"));
}

/* What a user sees: every row, one of them the best, which is usable. */
static void test_list(void **state)
{
    (void)state;
    sluice_cpu_isa isas[16];
    const size_t n = sluice_cpu_isas(isas, 16);
    size_t best = 0;
    assert_true(n >= 1 && n <= 16);
    for (size_t i = 0; i < n; i++) {
        assert_true(isas[i].usable || !isas[i].best);
        best += isas[i].best;
    }
    assert_int_equal(best, 1);
    memset(isas, 0, sizeof isas);
    assert_int_equal(sluice_cpu_isas(isas, 0), n);
    assert_null(isas[0].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_isas), cmocka_unit_test(test_best),
                                       cmocka_unit_test(test_find), cmocka_unit_test(test_list)};
    return cmocka_run_group_tests_name("compute_isa", tests, NULL, NULL);
}
