/* What the files of the CPU backend share: its state, and how work is spread over the threads. */
#ifndef COMPUTE_CPU_CPU_H
#define COMPUTE_CPU_CPU_H

#include "compute/cpu/kernels.h"

/* What an element, or a multiply-add, takes in multiply-adds of int8. */
enum {
    COST_ELEMENT = 2,
    COST_WIDE = 2,
    COST_FLOAT = 3,
    COST_QUANTIZE = 8,
    COST_EXP = 32,
    COST_SINCOS = 1024
};
enum { ROPE_TABLES = 2 }; /* a model with sliding and full attention has two kinds of rotation */

/* Cosines and sines of consecutive positions, shared by all heads, by q and k, and by all layers of a step.
 */
struct rope_table {
    float *inv_freq;        /* [head_dim / 2]: what the table was made for */
    float *cosines, *sines; /* [rows][pairs] */
    uint32_t pairs, position0, n_rows;
};

/* Of an expert call: its first row among those that its products read and among the hidden ones, and where
 * its outputs go. */
struct place {
    uint32_t input, hidden;
    float *y;
};

struct cpu {
    struct backend base;
    struct cpu_kernels kernels;
    struct pool *pool;
    sluice_activations activations;
    struct backend_limits limits;
    uint32_t lanes;
    uint32_t width;      /* widest row that is quantized or decoded */
    uint32_t rows;       /* most that are quantized at once, limits.rows or limits.routes */
    struct quant quant;  /* its buffers hold `rows` rows of `width` */
    float *vector;       /* [width]: a stored vector, decoded */
    float *taps;         /* [conv_values]: a convolution's weight, tap after tap */
    float *second;       /* [width]: another vector */
    float *lane_scratch; /* [lanes][ATTEND_SCRATCH_FLOATS] */
    /* of the experts, [routes] each */
    struct place *places;         /* of each call */
    uint32_t *row_of, *output_of; /* of the routes, numbered one call after another; of those in `moved` */
    float *gate, *up;             /* [inner] */
    float *moved;                 /* [hidden]: copies of x's rows, and later outputs to be moved */
    struct rope_table ropes[ROPE_TABLES];
    uint32_t next_rope;
};

static inline struct cpu *cpu_of(struct backend *backend)
{
    return (struct cpu *)backend;
}

typedef void (*span_fn)(struct cpu *cpu, const void *job, size_t begin, size_t end);

/* fn over [0, n), cut in units of `grain`, on all threads when the work is worth it. */
void cpu_spread(struct cpu *cpu, size_t n, size_t grain, size_t work, span_fn fn, const void *job);

/* n values of a dense matrix or vector from the first-th on, as floats. */
void cpu_widen_values(struct cpu *cpu, const struct mat *m, size_t first, size_t n, float *out);
/* A stored vector in cpu->vector; NULL for NULL. */
const float *cpu_decode_vector(struct cpu *cpu, const struct mat *m, uint32_t cols);

/* ---- recurrence.c ---- */

void cpu_short_conv(struct backend *backend, const struct mat *weight, float *tail, const float *x,
                    uint32_t n_rows, float *out);
void cpu_delta_rule(struct backend *backend, const struct delta_shape *shape, float *qkv, float *a, float *b,
                    const struct mat *a_log, const struct mat *dt_bias, uint32_t n_rows, float *state,
                    float *out);
void cpu_gated_norm(struct backend *backend, const float *x, const struct mat *weight, const float *gate,
                    uint32_t n_rows, uint32_t cols, float eps, float *out);

#endif
