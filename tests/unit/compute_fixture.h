/* What the compute tests share: reproducible random numbers, stored matrices at 2-byte alignment, backends.
 */
#ifndef TESTS_COMPUTE_FIXTURE_H
#define TESTS_COMPUTE_FIXTURE_H

#include "compute/cpu/kernels.h"
#include "compute/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static inline uint32_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* Uniform in (-1, 1), with a full mantissa. */
static inline float random_unit(void)
{
    return (float)((double)(int32_t)random_bits() / 2147483648.0);
}

static inline void fill_random(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = random_unit() * scale;
}

static inline float *new_floats(size_t n)
{
    float *x = test_calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static inline float *random_floats(size_t n, float scale)
{
    float *x = new_floats(n);
    fill_random(x, n, scale);
    return x;
}

/* Bytes that begin 2 past an 8-byte boundary, as file bytes may. The allocation is *memory. */
static inline unsigned char *misaligned_bytes(size_t bytes, void **memory)
{
    *memory = test_calloc(1, bytes + 2);
    assert_non_null(*memory);
    return (unsigned char *)*memory + 2;
}

struct stored {
    struct mat mat;
    void *memory[3];
};

static inline void free_stored(struct stored *m)
{
    for (int i = 0; i < 3; i++)
        if (m->memory[i])
            test_free(m->memory[i]);
}

static inline void put_u16(void *at, size_t i, uint16_t v)
{
    memcpy((unsigned char *)at + 2 * i, &v, sizeof v);
}

static inline uint16_t get_u16(const void *at, size_t i)
{
    uint16_t v;
    memcpy(&v, (const unsigned char *)at + 2 * i, sizeof v);
    return v;
}

static inline struct stored random_affine(uint32_t rows, uint32_t cols, uint32_t bits, uint32_t group)
{
    struct stored m = {.mat = {.dtype = DTYPE_AFFINE,
                               .bits = (uint8_t)bits,
                               .group_size = (uint16_t)group,
                               .rows = rows,
                               .cols = cols}};
    const size_t bytes = (size_t)rows * cols / 8 * bits, groups = (size_t)rows * (cols / group);
    unsigned char *weight = misaligned_bytes(bytes, &m.memory[0]);
    unsigned char *scales = misaligned_bytes(2 * groups, &m.memory[1]);
    unsigned char *biases = misaligned_bytes(2 * groups, &m.memory[2]);
    for (size_t i = 0; i < bytes; i++)
        weight[i] = (unsigned char)random_bits();
    for (size_t i = 0; i < groups; i++) {
        put_u16(scales, i, half_to_bf16(random_unit() * 0.02f));
        put_u16(biases, i, half_to_bf16(random_unit() * 0.2f));
    }
    m.mat.weight = weight;
    m.mat.scales = scales;
    m.mat.biases = biases;
    return m;
}

static inline struct stored random_dense(uint32_t rows, uint32_t cols, enum dtype dtype)
{
    struct stored m = {.mat = {.dtype = dtype, .rows = rows, .cols = cols}};
    unsigned char *weight = misaligned_bytes((size_t)rows * cols * dtype_bytes(dtype), &m.memory[0]);
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        float v = random_unit();
        if (dtype == DTYPE_F32)
            memcpy(weight + 4 * i, &v, 4);
        else
            put_u16(weight, i, dtype == DTYPE_BF16 ? half_to_bf16(v) : half_to_f16(v));
    }
    m.mat.weight = weight;
    return m;
}

/* Code k of row o, by the format's definition on 32-bit little-endian words. */
static inline uint32_t code_at(const struct mat *m, uint32_t o, uint32_t k)
{
    size_t bit = ((size_t)o * m->cols + k) * m->bits;
    uint32_t word;
    memcpy(&word, (const unsigned char *)m->weight + bit / 32 * 4, sizeof word);
    return word >> (bit % 32) & ((1u << m->bits) - 1);
}

static inline float scale_at(const struct mat *m, const void *values, uint32_t o, uint32_t g)
{
    return half_from_bf16(get_u16(values, (size_t)o * (m->cols / m->group_size) + g));
}

static inline double weight_at(const struct mat *m, uint32_t o, uint32_t k)
{
    if (m->dtype == DTYPE_AFFINE) {
        uint32_t g = k / m->group_size;
        return (double)scale_at(m, m->scales, o, g) * code_at(m, o, k) + (double)scale_at(m, m->biases, o, g);
    }
    size_t i = (size_t)o * m->cols + k;
    if (m->dtype == DTYPE_F32) {
        float v;
        memcpy(&v, (const unsigned char *)m->weight + 4 * i, sizeof v);
        return (double)v;
    }
    uint16_t h = get_u16(m->weight, i);
    return (double)(m->dtype == DTYPE_BF16 ? half_from_bf16(h) : half_from_f16(h));
}

static inline void assert_close(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: got %.9g, want %.9g, tolerance %.3g", what, got, want, tolerance);
}

struct opened {
    struct pool *pool;
    struct arena arena;
    struct backend *backend;
};

static inline struct opened open_backend(uint32_t threads, sluice_activations activations,
                                         const struct backend_limits *limits,
                                         const struct cpu_kernels *kernels)
{
    struct opened b;
    sluice_error err;
    struct cpu_kernels best;
    cpu_kernels_best(&best);
    assert_int_equal(pool_open(&b.pool, threads, &err), SLUICE_OK);
    const size_t bytes = cpu_backend_bytes(limits, pool_lanes(b.pool));
    assert_int_equal(arena_open(&b.arena, NULL, bytes, "scratch", &err), SLUICE_OK);
    assert_int_equal(cpu_backend_open_kernels(b.pool, activations, limits, &b.arena,
                                              kernels ? kernels : &best, &b.backend, &err),
                     SLUICE_OK);
    return b;
}

static inline void close_opened(struct opened *b)
{
    b->backend->ops->close(b->backend);
    arena_close(&b->arena);
    pool_close(b->pool);
}

#endif
