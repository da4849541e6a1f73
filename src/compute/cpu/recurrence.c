/* The operations of recurrent layers: short convolution, gated delta rule and the norm behind it. */
#include "compute/cpu/cpu.h"
#include "compute/math.h"

#include <assert.h>
#include <string.h>

enum { CHANNEL_GRAIN = 16, DELTA_GRAIN = 8 };
static const float DELTA_EPS = 1e-6f;

struct conv_job {
    const struct mat *weight;
    const float *tail, *x;
    float *out;
    uint32_t n_taps, channels, n_rows;
};

enum { TAPS_TOGETHER = 64 }; /* channels whose taps are widened in one call */

/* The taps of channels [begin, end) to cpu->taps, tap after tap. */
static void widen_taps(struct cpu *cpu, const struct conv_job *job, size_t begin, size_t end)
{
    float taps[TAPS_TOGETHER * CONV_TAPS_MAX];
    for (size_t c = begin; c < end; c += TAPS_TOGETHER) {
        const size_t n = end - c < TAPS_TOGETHER ? end - c : TAPS_TOGETHER;
        cpu_widen_values(cpu, job->weight, c * job->n_taps, n * job->n_taps, taps);
        for (uint32_t j = 0; j < job->n_taps; j++)
            for (size_t i = 0; i < n; i++)
                cpu->taps[j * (size_t)job->channels + c + i] = taps[i * job->n_taps + j];
    }
}

static void conv_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct conv_job *job = arg;
    widen_taps(cpu, job, begin, end);
    cpu->kernels.conv_channels(cpu->taps, job->n_taps, job->channels, (uint32_t)begin, (uint32_t)end,
                               job->tail, job->x, job->n_rows, job->out);
}

/* Keep the last n_taps - 1 of tail's rows and x's; the new ones may be some of the old. */
static void shift_tail(float *tail, const float *x, uint32_t n_taps, size_t channels, uint32_t n_rows)
{
    const uint32_t keep = n_taps - 1, old = n_rows < keep ? keep - n_rows : 0;
    memmove(tail, tail + (keep - old) * channels, old * channels * sizeof *tail);
    memcpy(tail + old * channels, x + (size_t)(n_rows - (keep - old)) * channels,
           (keep - old) * channels * sizeof *tail);
}

void cpu_short_conv(struct backend *backend, const struct mat *weight, float *tail, const float *x,
                    uint32_t n_rows, float *out)
{
    struct cpu *cpu = cpu_of(backend);
    const uint32_t channels = weight->rows, n_taps = weight->cols;
    assert((size_t)channels * n_taps <= cpu->limits.conv_values);
    struct conv_job job = {weight, tail, x, out, n_taps, channels, n_rows};
    cpu_spread(cpu, channels, CHANNEL_GRAIN, (size_t)n_rows * channels * (n_taps * COST_ELEMENT + COST_EXP),
               conv_span, &job);
    shift_tail(tail, x, n_taps, channels, n_rows);
}

struct delta_job {
    const struct delta_shape *shape;
    float *qkv, *a, *b;
    const float *a_log, *dt_bias;
    uint32_t n_rows;
    float *state, *out;
};

static size_t qkv_width(const struct delta_shape *s)
{
    return 2 * (size_t)s->key_heads * s->key_dim + (size_t)s->value_heads * s->value_dim;
}

/* log(1 + e^x) without overflow. */
static float softplus(float x)
{
    return math_select(x > 0.0f, x, 0.0f) + math_log1p(math_exp(-math_abs(x)));
}

/* Of rows [begin, end): q and k to unit length; a and b to decay and beta. */
static void delta_prepare_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct delta_job *job = arg;
    const struct delta_shape *s = job->shape;
    const float q_scale = 1.0f / sqrtf((float)s->key_dim);
    for (size_t r = begin; r < end; r++) {
        float *q = job->qkv + r * qkv_width(s), *a = job->a + r * s->value_heads,
              *b = job->b + r * s->value_heads;
        for (uint32_t h = 0; h < 2 * s->key_heads; h++)
            cpu->kernels.unit_row(q + (size_t)h * s->key_dim, s->key_dim, DELTA_EPS,
                                  h < s->key_heads ? q_scale : 1.0f);
        for (uint32_t h = 0; h < s->value_heads; h++) {
            a[h] = math_exp(-(math_exp(job->a_log[h]) * softplus(a[h] + job->dt_bias[h])));
            b[h] = math_sigmoid(b[h]);
        }
    }
}

/* Value rows are numbered head after head. */
static void delta_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct delta_job *job = arg;
    const struct delta_shape *s = job->shape;
    const size_t keys = (size_t)s->key_heads * s->key_dim, values = (size_t)s->value_heads * s->value_dim;
    while (begin < end) {
        const size_t head = begin / s->value_dim, first = head * s->value_dim;
        const size_t stop = end - first < s->value_dim ? end - first : s->value_dim;
        const size_t key_head = head / (s->value_heads / s->key_heads);
        const struct delta_head h = {
            .q = job->qkv + key_head * s->key_dim,
            .k = job->qkv + keys + key_head * s->key_dim,
            .v = job->qkv + 2 * keys + first,
            .decay = job->a + head,
            .beta = job->b + head,
            .state = job->state + first * s->key_dim,
            .out = job->out + first,
            .qkv_stride = qkv_width(s),
            .gate_stride = s->value_heads,
            .out_stride = values,
            .n_rows = job->n_rows,
            .key_dim = s->key_dim,
        };
        cpu->kernels.delta_values(&h, (uint32_t)(begin - first), (uint32_t)stop);
        begin = first + stop;
    }
}

void cpu_delta_rule(struct backend *backend, const struct delta_shape *shape, float *qkv, float *a, float *b,
                    const struct mat *a_log, const struct mat *dt_bias, uint32_t n_rows, float *state,
                    float *out)
{
    struct cpu *cpu = cpu_of(backend);
    assert(shape->key_dim % LANES == 0 && shape->value_heads % shape->key_heads == 0);
    assert(a_log->cols == shape->value_heads && dt_bias->cols == shape->value_heads);
    assert(shape->value_heads <= cpu->width);
    cpu_widen_values(cpu, a_log, 0, shape->value_heads, cpu->vector);
    cpu_widen_values(cpu, dt_bias, 0, shape->value_heads, cpu->second);
    struct delta_job job = {shape, qkv, a, b, cpu->vector, cpu->second, n_rows, state, out};
    cpu_spread(cpu, n_rows, 1,
               (size_t)n_rows * (2 * (size_t)shape->key_heads * shape->key_dim * COST_ELEMENT +
                                 (size_t)shape->value_heads * 3 * COST_EXP),
               delta_prepare_span, &job);
    const size_t rows = (size_t)shape->value_heads * shape->value_dim;
    cpu_spread(cpu, rows, DELTA_GRAIN, rows * shape->key_dim * n_rows * 4 * COST_ELEMENT, delta_span, &job);
}

struct gated_norm_job {
    const float *x, *weight, *gate;
    float *out;
    uint32_t cols;
    float eps;
};

static void gated_norm_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct gated_norm_job *job = arg;
    for (size_t r = begin; r < end; r++)
        cpu->kernels.gated_norm_row(job->x + r * job->cols, job->weight, job->gate + r * job->cols, job->cols,
                                    job->eps, job->out + r * job->cols);
}

void cpu_gated_norm(struct backend *backend, const float *x, const struct mat *weight, const float *gate,
                    uint32_t n_rows, uint32_t cols, float eps, float *out)
{
    struct cpu *cpu = cpu_of(backend);
    struct gated_norm_job job = {x, cpu_decode_vector(cpu, weight, cols), gate, out, cols, eps};
    cpu_spread(cpu, n_rows, 1, (size_t)n_rows * cols * COST_EXP, gated_norm_span, &job);
}
