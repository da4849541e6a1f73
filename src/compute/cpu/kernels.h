/* The primitives of the CPU backend: what an instruction set implements in its own way, with the same bits.
 *
 * ref.c defines every primitive, and a file per instruction set fills the table with its own; cpu.c cuts
 * operations into primitives and spreads them over the threads. A primitive is called from many threads at
 * once, on disjoint outputs, and keeps no state. Weight pointers have 2-byte alignment, float rows that of
 * float, struct quant's arrays 64 bytes. */
#ifndef COMPUTE_CPU_KERNELS_H
#define COMPUTE_CPU_KERNELS_H

#include "compute/backend.h"

#include <stdbool.h>

/* Accumulators of every reduction: element (or group, or position) i goes to accumulator i mod 16. */
#define LANES 16

/* code_stride of struct quant: kernels read whole units of up to this many codes. */
#define CODE_UNIT 256

/* Rows of x quantized for weights of one group size and one width. Codes are of 8 bits, within +-127; or,
 * where `wide`, of 15 bits, within +-16256 = 128 * 127, and kept as two rows for each row of x: high = (q +
 * 64) >> 7 within +-127, and low = q - 128 * high within -64..63. */
struct quant {
    int8_t *codes; /* [rows][wide ? 2 : 1][code_stride]; their order is private to an instruction set */
    float *scales; /* [rows][group_stride]: s = absmax / 127 of each group, or absmax / 16256 */
    float *sums;   /* [rows][group_stride]: s * sum of the group's codes */
    uint32_t cols, group_size;
    uint32_t code_stride, group_stride; /* cols and groups rounded up to 256 and 16; the padding may be set */
    uint8_t bits;                       /* of the weights */
    bool wide;
};

/* The rows from `first` on. */
static inline struct quant quant_from(const struct quant *quant, uint32_t first)
{
    struct quant rows = *quant;
    rows.codes += (size_t)first * (1u + quant->wide) * quant->code_stride;
    rows.scales += (size_t)first * quant->group_stride;
    rows.sums += (size_t)first * quant->group_stride;
    return rows;
}

#define QUANT_NARROW_MAX 127
#define QUANT_WIDE_MAX   16256

/* Positions per block of attention, and the most queries that one call of `attend` takes. */
#define ATTEND_BLOCK   64
#define ATTEND_QUERIES 16

/* One query head at one position; out is [head_dim]. */
struct attend_query {
    const float *q;
    float *out;
    uint32_t position;
};

/* What the queries of a call share. */
struct attend {
    const struct kv_view *kv;
    uint32_t kv_head, window;
    float scale;
};

/* Floats of scratch that `attend` may use: a block of rows, and per query a block of scores and a row. */
#define ATTEND_SCRATCH_FLOATS(head_dim)                                                                      \
    ((size_t)ATTEND_BLOCK * (head_dim) + (size_t)ATTEND_QUERIES * ((head_dim) + ATTEND_BLOCK))

/* One value head over the rows of a call: vectors of row r lie r * stride floats on. */
struct delta_head {
    const float *q, *k, *v;    /* normalized; stride qkv_stride */
    const float *decay, *beta; /* stride gate_stride */
    float *state;              /* [value_dim][key_dim] */
    float *out;                /* [value_dim]; stride out_stride */
    size_t qkv_stride, gate_stride, out_stride;
    uint32_t n_rows, key_dim;
};

/* Computes outputs [begin, end) of matrix m for n_rows rows: y[r * m->rows + o]. */
typedef void linear_kernel(const struct mat *m, uint32_t begin, uint32_t end, const float *x, uint32_t n_rows,
                           float *y);

struct cpu_kernels {
    const char *name; /* of the instruction set */

    /* ---- formats ---- */
    void (*widen)(enum dtype dtype, const void *values, size_t n, float *out);     /* bf16, f16, f32 */
    void (*narrow)(sluice_kv_type type, const float *values, size_t n, void *out); /* nearest even */
    void (*dequantize_row)(const struct mat *m, uint32_t row, float *out);         /* affine */
    void (*quantize_row)(const struct quant *quant, uint32_t row, const float *x);

    /* ---- linear ---- */
    void (*affine_i8)(const struct mat *m, uint32_t begin, uint32_t end, const struct quant *x,
                      uint32_t n_rows, float *y);
    linear_kernel *affine_f32;
    linear_kernel *dense; /* bf16, f16, f32 weights */

    /* ---- rows ---- */
    void (*norm_row)(const float *x, const float *weight, uint32_t cols, float eps, float *out);
    void (*rope_row)(float *x, uint32_t heads, uint32_t head_dim, uint32_t pairs, uint32_t half,
                     const float *cosines, const float *sines);
    void (*attend)(const struct attend *a, const struct attend_query *queries, uint32_t n_queries,
                   float *scratch);
    void (*route_row)(const float *logits, uint32_t n, uint32_t k, uint16_t *ids, float *weights);
    void (*weighted_sum_row)(const float *ys, const float *weights, uint32_t k, uint32_t cols, float *out);

    void (*gated_norm_row)(const float *x, const float *weight, const float *gate, uint32_t cols, float eps,
                           float *out);
    /* x / sqrt(sum(x^2) + eps) * s, in place. */
    void (*unit_row)(float *x, uint32_t cols, float eps, float s);

    /* ---- recurrence ---- */
    /* Channels [begin, end) of all rows: out[r][c] = silu(sum_j taps[j][c] * rows[r + j][c]), where rows is
     * tail's (n_taps - 1) rows and then x's. The stride of every row is `channels`. */
    void (*conv_channels)(const float *taps, uint32_t n_taps, uint32_t channels, uint32_t begin, uint32_t end,
                          const float *tail, const float *x, uint32_t n_rows, float *out);
    /* Value rows [begin, end) of a head's state through all rows of the call. */
    void (*delta_values)(const struct delta_head *head, uint32_t begin, uint32_t end);

    /* ---- elements ---- */
    void (*add)(const float *a, const float *b, size_t n, float *out);
    void (*scale)(float *x, float s, size_t n);
    void (*scale_cols)(float *x, const float *vec, float s, uint32_t cols); /* one row */
    void (*gated)(enum activation act, const float *gate, const float *up, size_t n, float *out);
    void (*softcap)(float *x, float cap, size_t n);
    bool (*finite)(const float *x, size_t n);
    void (*exp)(const float *x, float shift, size_t n, float *out); /* of x - shift */
    float (*largest)(const float *x, size_t n);                     /* of n >= 1 finite values */
};

/* Instruction sets, each better than those before it where it is usable; the first is the reference, which is
 * usable everywhere. `fill` sets every slot. */
struct cpu_isa {
    const char *name, *about;
    bool (*usable)(void); /* by this processor and system */
    void (*fill)(struct cpu_kernels *kernels);
};

extern const struct cpu_isa CPU_ISAS[];
extern const uint32_t CPU_ISA_COUNT;

void cpu_fill_ref(struct cpu_kernels *kernels);
#ifdef __x86_64__
void cpu_fill_avx2(struct cpu_kernels *kernels);
void cpu_fill_avxvnni(struct cpu_kernels *kernels);
void cpu_fill_avx512(struct cpu_kernels *kernels);
void cpu_fill_avx512vnni(struct cpu_kernels *kernels);
void cpu_fill_amx(struct cpu_kernels *kernels);
#endif
#ifdef __aarch64__
void cpu_fill_neon(struct cpu_kernels *kernels);
#endif

/* The best instruction set that is usable here. */
const struct cpu_isa *cpu_isa_best(void);
/* The one called `name`; NULL or "auto": the best. SLUICE_E_ARGUMENT: there is none of that name;
 * SLUICE_E_UNSUPPORTED: this processor cannot run it. */
sluice_status cpu_isa_find(const char *name, const struct cpu_isa **isa, sluice_error *err);
void cpu_kernels_best(struct cpu_kernels *kernels);

/* cpu_backend_open with these kernels, which are copied. */
sluice_status cpu_backend_open_kernels(struct pool *pool, sluice_activations activations,
                                       const struct backend_limits *limits, struct arena *arena,
                                       const struct cpu_kernels *kernels, struct backend **backend,
                                       sluice_error *err);

#endif
