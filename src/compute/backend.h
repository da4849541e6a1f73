/* The operations that model graphs are written against. A graph never touches a weight's bytes: it names
 * stored matrices and rows of float32 activations, and a backend computes.
 *
 * The arithmetic of every operation is defined bit for bit by compute/cpu/ref.c (docs/design.md, section 4):
 * sums have 16 accumulators, added in the fixed tree 8+8, 4+4, 2+2, 1+1; no result depends on how many rows
 * are computed together or on how many threads.
 *
 * A struct backend belongs to one session (it owns scratch sized by struct backend_limits); the thread pool
 * behind it may be shared. All pointers are to rows in row-major order; `out` may equal an input where "in
 * place" is said, otherwise they must not overlap. */
#ifndef COMPUTE_BACKEND_H
#define COMPUTE_BACKEND_H

#include "base/err.h"
#include "base/mem.h"
#include "base/tensor.h"
#include "base/thread.h"

/* A stored matrix [rows, cols], or a vector as rows = 1. Pointers are to file bytes: only 2-byte alignment
 * may be assumed. affine: `weight` holds rows * cols * bits / 8 bytes, low bits first; `scales` and `biases`
 * BF16 [rows, cols / group_size]; value = scale * code + bias. Others: `weight` holds the values. */
struct mat {
    enum dtype dtype;
    bool precise;  /* 15-bit activations in int8 mode, where rounding to 8 bits costs too much quality */
    bool plus_one; /* a vector whose values are those stored, plus 1 */
    uint8_t bits;
    uint16_t group_size;
    uint32_t rows, cols;
    const void *weight, *scales, *biases;
};

enum activation { ACT_GELU_TANH, ACT_SILU, ACT_SIGMOID };

/* Rotary embedding: pairs (i, i + half) for i < pairs, angle = position * inv_freq[i]. `half` is half the
 * rotated span (head_dim / 2 for a "proportional" or full rotation). */
struct rope {
    uint32_t pairs, half;
    const float *inv_freq;
};

/* Keys and values of one layer. Position p lives in row p % slots: a ring when slots is smaller than the
 * context. Row layout [kv_heads][head_dim] of `type`. */
struct kv_view {
    sluice_kv_type type;
    uint32_t slots, kv_heads, head_dim;
    void *k, *v;
};

struct attention {
    uint32_t heads; /* query heads; head h uses kv head h / (heads / kv_heads) */
    float scale;
    uint32_t window; /* a query sees itself and the window - 1 positions before it; 0: all */
};

/* Most taps of a short convolution. */
#define CONV_TAPS_MAX 8

/* Shape of a gated delta rule (Yang et al., arXiv:2412.06464). Value head h reads key head
 * h / (value_heads / key_heads); key_dim is a multiple of 16. */
struct delta_shape {
    uint32_t key_heads, value_heads, key_dim, value_dim;
};

struct expert_mats {
    struct mat gate, up, down;
};

/* One expert's routes, [first, first + n_rows) of two lists: row row_of[i] of x through the expert becomes
 * row output_of[i] of the outputs. It takes a row of x at most once. */
struct expert_call {
    struct expert_mats mats;
    uint32_t first, n_rows;
};

struct backend_limits {
    uint32_t rows;    /* most rows in one call */
    uint32_t cols;    /* widest matrix input */
    uint32_t inner;   /* widest expert or dense hidden part (gate/up outputs) */
    uint32_t context; /* longest attention span, in positions */
    uint32_t heads, head_dim;
    uint32_t conv_values; /* channels * taps of the widest short convolution; 0: there is none */
    uint32_t routes;      /* most of all experts of one call together; 0: there are no experts */
    uint32_t hidden;      /* width of experts' inputs and outputs */
};

struct backend;

struct backend_ops {
    /* out[r] = row ids[r] of table, dequantized, times scale. */
    void (*embed)(struct backend *, const struct mat *table, const int32_t *ids, uint32_t n_rows, float scale,
                  float *out);
    /* For each matrix m: ys[m][r][o] = sum_k mats[m][o][k] * x[r][k]. All matrices share x and its width,
     * which is quantized once per group size in int8 mode. */
    void (*linear)(struct backend *, const struct mat *const *mats, uint32_t n_mats, const float *x,
                   uint32_t n_rows, float *const *ys);
    /* out = x / sqrt(mean(x^2) + eps) * weight, per row; weight NULL: without it. In place allowed. */
    void (*norm)(struct backend *, const float *x, const struct mat *weight, uint32_t n_rows, uint32_t cols,
                 float eps, float *out);
    /* out = a + b. In place allowed. */
    void (*add)(struct backend *, const float *a, const float *b, size_t n, float *out);
    /* x = x * s. */
    void (*scale)(struct backend *, float *x, float s, size_t n);
    /* x[r][c] = (x[r][c] * vec[c]) * s. */
    void (*scale_cols)(struct backend *, float *x, const struct mat *vec, float s, uint32_t n_rows,
                       uint32_t cols);
    /* Rotate x [n_rows][heads][head_dim] in place; row r is at position0 + r. */
    void (*rope)(struct backend *, float *x, uint32_t n_rows, uint32_t heads, uint32_t head_dim,
                 const struct rope *rope, uint32_t position0);
    /* Store rows of k and v [n_rows][kv_heads][head_dim] at positions position0..; rounds to nearest even. */
    void (*kv_store)(struct backend *, const struct kv_view *kv, const float *k, const float *v,
                     uint32_t n_rows, uint32_t position0);
    /* Causal attention of q [n_rows][heads][head_dim] at positions position0.. over the stored rows (its own
     * included), folding blocks of 64 positions (block = position / 64) in ascending order. */
    void (*attention)(struct backend *, const struct attention *, const struct kv_view *kv, const float *q,
                      uint32_t n_rows, uint32_t position0, float *out);
    /* out = act(gate) * up. In place allowed. */
    void (*gated)(struct backend *, enum activation act, const float *gate, const float *up, size_t n,
                  float *out);
    /* x = cap * tanh(x / cap). */
    void (*softcap)(struct backend *, float *x, float cap, size_t n);
    /* Per row of logits [n_rows][n]: the k largest (ties to the lower index), best first, and the softmax
     * over those k; weights are then multiplied by expert_scale[id] when it is not NULL. */
    void (*route)(struct backend *, const float *logits, uint32_t n_rows, uint32_t n, uint32_t k,
                  const struct mat *expert_scale, uint16_t *ids, float *weights);
    /* For each route i of each call: out[output_of[i]] = down(act(gate x[row_of[i]]) * up x[row_of[i]]). x
     * has n_rows rows; all experts are of one shape and format; the calls have at most limits.routes routes
     * together. */
    void (*experts)(struct backend *, const struct expert_call *calls, uint32_t n_calls, enum activation act,
                    const float *x, uint32_t n_rows, const uint32_t *row_of, const uint32_t *output_of,
                    float *out);
    /* out[r] = x[index[r]]. */
    void (*gather)(struct backend *, const float *x, const uint32_t *index, uint32_t n_rows, uint32_t cols,
                   float *out);
    /* out[r] = sum_j weights[r][j] * ys[r][j], j ascending: weights[r][0] * ys[r][0], then fmaf. */
    void (*weighted_sum)(struct backend *, const float *ys, const float *weights, uint32_t n_rows, uint32_t k,
                         uint32_t cols, float *out);
    /* Causal convolution of each channel over rows, then SiLU: out[r][c] = silu(sum_j weight[c][j] *
     * x[r - taps + 1 + j][c]), j ascending. weight [channels, taps]; tail [taps - 1][channels] holds the rows
     * before the first, oldest first, and afterwards those before the next. Not in place. */
    void (*short_conv)(struct backend *, const struct mat *weight, float *tail, const float *x,
                       uint32_t n_rows, float *out);
    /* The gated delta rule, row after row. qkv [n_rows][2 * key_heads * key_dim + value_heads * value_dim]:
     * q, k, v; q and k are brought to length 1 (eps 1e-6 in the sum of squares), q then divided by
     * sqrt(key_dim). a, b [n_rows][value_heads]; per value head g = exp(-exp(a_log) * softplus(a + dt_bias))
     * and beta = sigmoid(b). For S = state[h] [value_dim][key_dim]: S = g S;  S = S + beta (v - S k) k^T; out
     * = S q qkv, a and b are overwritten. out [n_rows][value_heads][value_dim]. */
    void (*delta_rule)(struct backend *, const struct delta_shape *, float *qkv, float *a, float *b,
                       const struct mat *a_log, const struct mat *dt_bias, uint32_t n_rows, float *state,
                       float *out);
    /* out = x / sqrt(mean(x^2) + eps) * weight * silu(gate), per row. In place allowed. */
    void (*gated_norm)(struct backend *, const float *x, const struct mat *weight, const float *gate,
                       uint32_t n_rows, uint32_t cols, float eps, float *out);
    /* True when all n values are finite. */
    bool (*finite)(struct backend *, const float *x, size_t n);
    void (*close)(struct backend *);
};

struct backend {
    const struct backend_ops *ops;
};

/* Scratch bytes that cpu_backend_open takes from its arena for these limits. */
size_t cpu_backend_bytes(const struct backend_limits *limits, uint32_t lanes);

/* *isa becomes the name, in static storage, of the instruction set that it asks for; NULL and "auto" ask for
 * the best. SLUICE_E_ARGUMENT: this build has no kernels for it; SLUICE_E_UNSUPPORTED: this processor cannot
 * run them. */
sluice_status cpu_isa_resolve(const char **isa, sluice_error *err);

/* The CPU backend with the kernels of `isa` (NULL: the best). `pool` is borrowed; scratch comes from `arena`
 * and lives as long. */
sluice_status cpu_backend_open(struct pool *pool, const char *isa, sluice_activations activations,
                               const struct backend_limits *limits, struct arena *arena,
                               struct backend **backend, sluice_error *err);

#endif
