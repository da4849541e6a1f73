/* Attention against a float64 softmax, and its independence from ring, chunk and neighbours, byte for byte.
 */
#include "compute_fixture.h"

#include <float.h>

enum { DIM_MAX = 128, HEADS_MAX = 16 };

static const struct backend_limits LIMITS = {.rows = 256,
                                             .cols = HEADS_MAX * DIM_MAX,
                                             .inner = 64,
                                             .context = 1024,
                                             .heads = HEADS_MAX,
                                             .head_dim = DIM_MAX};

struct cache {
    struct kv_view view;
};

static struct cache new_cache(sluice_kv_type type, uint32_t slots, uint32_t kv_heads, uint32_t head_dim)
{
    const size_t bytes = (size_t)slots * kv_heads * head_dim * 4;
    struct cache c = {{type, slots, kv_heads, head_dim, test_malloc(bytes), test_malloc(bytes)}};
    /* Rows that nothing stored are NaN: a position that is not visible must not be read into a sum. */
    memset(c.view.k, 0xff, bytes);
    memset(c.view.v, 0xff, bytes);
    return c;
}

static void free_cache(struct cache *c)
{
    test_free(c->view.k);
    test_free(c->view.v);
}

static double stored_at(const struct kv_view *kv, const void *rows, uint32_t p, uint32_t h, uint32_t d)
{
    size_t i = ((size_t)(p % kv->slots) * kv->kv_heads + h) * kv->head_dim + d;
    if (kv->type == SLUICE_KV_F32)
        return (double)((const float *)rows)[i];
    uint16_t v = ((const uint16_t *)rows)[i];
    return (double)(kv->type == SLUICE_KV_F16 ? half_from_f16(v) : half_from_bf16(v));
}

struct shape {
    sluice_kv_type type;
    uint32_t heads, kv_heads, head_dim, window;
    float scale;
};

/* One head at one position, in float64, and a bound of the float32 error: a score's error times every term.
 */
static void check_head(const struct shape *s, const struct kv_view *kv, uint32_t head, uint32_t position,
                       const float *q, const float *out)
{
    const uint32_t first = s->window && position >= s->window ? position - s->window + 1 : 0;
    const uint32_t kv_head = head / (s->heads / s->kv_heads), n = position - first + 1;
    double *scores = test_malloc(n * sizeof *scores), most = -INFINITY, sum = 0, score_error = 0;
    for (uint32_t j = 0; j < n; j++) {
        double dot = 0, terms = 0;
        for (uint32_t d = 0; d < s->head_dim; d++) {
            double term = (double)q[d] * stored_at(kv, kv->k, first + j, kv_head, d);
            dot += term;
            terms += fabs(term);
        }
        scores[j] = (double)s->scale * dot;
        score_error = fmax(score_error, fabs((double)s->scale) * terms * 16 * (double)FLT_EPSILON);
        most = fmax(most, scores[j]);
    }
    for (uint32_t j = 0; j < n; j++) {
        scores[j] = exp(scores[j] - most);
        sum += scores[j];
    }
    for (uint32_t d = 0; d < s->head_dim; d++) {
        double want = 0, terms = 0;
        for (uint32_t j = 0; j < n; j++) {
            double term = scores[j] / sum * stored_at(kv, kv->v, first + j, kv_head, d);
            want += term;
            terms += fabs(term);
        }
        double relative = 2 * score_error + 40 * (double)FLT_EPSILON;
        assert_close((double)out[d], want, terms * relative, "attention");
    }
    test_free(scores);
}

static void check_shape(const struct opened *b, const struct shape *s, uint32_t position0, uint32_t rows)
{
    const uint32_t total = position0 + rows;
    const size_t kv_cols = (size_t)s->kv_heads * s->head_dim, q_cols = (size_t)s->heads * s->head_dim;
    struct cache c = new_cache(s->type, total, s->kv_heads, s->head_dim);
    float *k = random_floats(total * kv_cols, 2), *v = random_floats(total * kv_cols, 2);
    float *q = random_floats(rows * q_cols, 2), *out = new_floats(rows * q_cols);
    const struct backend_ops *ops = b->backend->ops;
    for (uint32_t p = 0; p < total; p += LIMITS.rows)
        ops->kv_store(b->backend, &c.view, k + p * kv_cols, v + p * kv_cols,
                      total - p < LIMITS.rows ? total - p : LIMITS.rows, p);
    struct attention a = {s->heads, s->scale, s->window};
    ops->attention(b->backend, &a, &c.view, q, rows, position0, out);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t h = 0; h < s->heads; h++)
            check_head(s, &c.view, h, position0 + r, q + r * q_cols + (size_t)h * s->head_dim,
                       out + r * q_cols + (size_t)h * s->head_dim);
    free_cache(&c);
    test_free(k);
    test_free(v);
    test_free(q);
    test_free(out);
}

static void test_against_float64(void **state)
{
    (void)state;
    struct opened b = open_backend(2, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    static const struct shape SHAPES[] = {
        {SLUICE_KV_F32, 4, 2, 32, 0, 0.2f},   {SLUICE_KV_F16, 4, 4, 32, 0, 0.2f},
        {SLUICE_KV_BF16, 16, 2, 64, 0, 0.1f}, {SLUICE_KV_F16, 4, 2, 64, 5, 0.1f},
        {SLUICE_KV_F16, 4, 1, 128, 64, 0.1f}, {SLUICE_KV_F32, 2, 1, 32, 100, 1.0f},
        {SLUICE_KV_F16, 3, 1, 20, 33, 1.0f}, /* a head that does not fill 16 lanes */
    };
    const uint32_t positions[] = {0, 1, 63, 64, 65, 127, 300};
    for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
        for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
            check_shape(&b, &SHAPES[s], positions[p], 1);
            check_shape(&b, &SHAPES[s], positions[p], 23);
        }
    check_shape(&b, &SHAPES[0], 0, 200);
    close_opened(&b);
}

/* Scores far apart: the running maximum rises and falls over blocks, and small terms vanish without NaN. */
static void test_large_scores(void **state)
{
    (void)state;
    struct opened b = open_backend(1, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    const uint32_t dim = 16, total = 400;
    struct cache c = new_cache(SLUICE_KV_F32, total, 1, dim);
    float *k = new_floats((size_t)total * dim), *v = new_floats((size_t)total * dim), q[16] = {1}, out[16];
    for (uint32_t p = 0; p < total; p++) {
        k[p * dim] = (p == 130 ? 4000.0f : (float)(p % 64) * -50.0f - (p < 64 ? 3000.0f : 0.0f));
        v[p * dim] = (float)p;
    }
    b.backend->ops->kv_store(b.backend, &c.view, k, v, 200, 0);
    b.backend->ops->kv_store(b.backend, &c.view, k + 200 * dim, v + 200 * dim, 200, 200);
    struct attention a = {1, 1.0f, 0};
    b.backend->ops->attention(b.backend, &a, &c.view, q, 1, total - 1, out);
    assert_true(out[0] == 130.0f); /* every other weight is below the least float */
    a.window = 200;                /* 130 is out of sight; positions 256, 320, 384 share the largest score */
    b.backend->ops->attention(b.backend, &a, &c.view, q, 1, total - 1, out);
    assert_close((double)out[0], (256 + 320 + 384) / 3.0, 1e-4, "three equal scores");
    free_cache(&c);
    test_free(k);
    test_free(v);
    close_opened(&b);
}

/* A timeline of `total` positions stored and attended in chunks; out is [total][heads * head_dim]. */
static void run_chunks(const struct opened *b, const struct shape *s, uint32_t slots, uint32_t chunk,
                       uint32_t total, const float *q, const float *k, const float *v, float *out)
{
    const size_t kv_cols = (size_t)s->kv_heads * s->head_dim, q_cols = (size_t)s->heads * s->head_dim;
    struct cache c = new_cache(s->type, slots, s->kv_heads, s->head_dim);
    struct attention a = {s->heads, s->scale, s->window};
    for (uint32_t p = 0; p < total; p += chunk) {
        uint32_t rows = total - p < chunk ? total - p : chunk;
        b->backend->ops->kv_store(b->backend, &c.view, k + p * kv_cols, v + p * kv_cols, rows, p);
        b->backend->ops->attention(b->backend, &a, &c.view, q + p * q_cols, rows, p, out + p * q_cols);
    }
    free_cache(&c);
}

static void test_invariance(void **state)
{
    (void)state;
    const uint32_t total = 150;
    static const struct shape SHAPES[] = {{SLUICE_KV_F16, 4, 2, 48, 70, 0.1f},
                                          {SLUICE_KV_F32, 2, 2, 32, 0, 0.2f}};
    for (size_t i = 0; i < 2; i++) {
        const struct shape *s = &SHAPES[i];
        const size_t kv_cols = (size_t)s->kv_heads * s->head_dim, q_cols = (size_t)s->heads * s->head_dim;
        float *k = random_floats(total * kv_cols, 2), *v = random_floats(total * kv_cols, 2);
        float *q = random_floats(total * q_cols, 2);
        float *want = new_floats(total * q_cols), *got = new_floats(total * q_cols);
        struct opened one = open_backend(1, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
        run_chunks(&one, s, total, 1, total, q, k, v, want);
        close_opened(&one);
        for (uint32_t threads = 1; threads <= 4; threads *= 2) {
            struct opened b = open_backend(threads, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
            const uint32_t chunks[] = {1, 17, 150};
            for (size_t n = 0; n < sizeof chunks / sizeof *chunks; n++) {
                /* Linear, and the smallest ring, whose length shares no factor with a block. */
                const uint32_t ring = s->window ? s->window + chunks[n] - 1 : total;
                const uint32_t slots[] = {total, ring < total ? ring : total, 997};
                for (int r = 0; r < 3; r++) {
                    memset(got, 0, total * q_cols * sizeof *got);
                    run_chunks(&b, s, slots[r], chunks[n], total, q, k, v, got);
                    assert_memory_equal(got, want, total * q_cols * sizeof *got);
                }
            }
            close_opened(&b);
        }
        test_free(k);
        test_free(v);
        test_free(q);
        test_free(want);
        test_free(got);
    }
}

/* More rows than the ring has: the last ones win, whatever the order of the threads. */
static void test_store_wraps(void **state)
{
    (void)state;
    struct opened b = open_backend(4, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    const uint32_t slots = 100, rows = 250, dim = 128;
    struct cache c = new_cache(SLUICE_KV_BF16, slots, 2, dim);
    float *k = random_floats((size_t)rows * 2 * dim, 1), *v = random_floats((size_t)rows * 2 * dim, 1);
    b.backend->ops->kv_store(b.backend, &c.view, k, v, rows, 7);
    for (uint32_t r = rows - slots; r < rows; r++)
        for (uint32_t d = 0; d < 2 * dim; d++) {
            size_t at = (size_t)((7 + r) % slots) * 2 * dim + d, from = (size_t)r * 2 * dim + d;
            assert_int_equal(((uint16_t *)c.view.k)[at], half_to_bf16(k[from]));
            assert_int_equal(((uint16_t *)c.view.v)[at], half_to_bf16(v[from]));
        }
    free_cache(&c);
    test_free(k);
    test_free(v);
    close_opened(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_float64),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_store_wraps),
    };
    return cmocka_run_group_tests_name("compute_attention", tests, NULL, NULL);
}
