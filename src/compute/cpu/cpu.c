/* The CPU backend: cuts each operation into independent outputs, spreads them over the thread pool and calls
 * the primitives of a kernel table. Every output is computed whole by one primitive call, so neither the cut
 * nor the number of threads can change a bit. */
#include "compute/cpu/cpu.h"
#include "base/check.h"
#include "compute/math64.h"

#include <assert.h>
#include <string.h>

/* Below this many multiply-adds of int8 (or what takes their time) handing work to other threads costs more
 * than it saves: a round trip takes about a microsecond, and a core does some 30 of them in a nanosecond.
 * Above, half of the work is cut into one part for every thread, half of what is left again, and so on: a
 * thread that loses time to others gets fewer parts, and the last, which the others wait for, are small. */
enum { PARALLEL_WORK_MIN = 1 << 17, PART_WORK_MIN = 1 << 18, HALVINGS_MAX = 12 };
enum { OUTPUT_GRAIN = 16, ELEMENT_GRAIN = 1024 };
enum { GROUP_MIN = 32 };

/* ---- spreading work ---- */

struct span_run {
    struct cpu *cpu;
    span_fn fn;
    const void *job;
    size_t n, grain;
};

static void run_span(void *arg, uint32_t part, uint32_t parts)
{
    const struct span_run *run = arg;
    const uint32_t lanes = run->cpu->lanes, halvings = part / lanes;
    const size_t units = (run->n + run->grain - 1) / run->grain, from = units - (units >> halvings);
    const size_t to = part / lanes + 1 == parts / lanes ? units : units - (units >> (halvings + 1));
    size_t begin, end;
    pool_share(to - from, 1, part % lanes, lanes, &begin, &end);
    begin = (from + begin) * run->grain;
    end = (from + end) * run->grain;
    if (begin < end)
        run->fn(run->cpu, run->job, begin, end < run->n ? end : run->n);
}

void cpu_spread(struct cpu *cpu, size_t n, size_t grain, size_t work, span_fn fn, const void *job)
{
    if (n == 0)
        return;
    if (work < PARALLEL_WORK_MIN || n <= grain) {
        fn(cpu, job, 0, n);
        return;
    }
    struct span_run run = {cpu, fn, job, n, grain};
    uint32_t halvings = 0;
    while (halvings < HALVINGS_MAX && work >> (halvings + 1) >= (size_t)cpu->lanes * PART_WORK_MIN)
        halvings++;
    pool_run_parts(cpu->pool, cpu->lanes * (halvings + 1), run_span, &run);
}

/* ---- stored vectors ---- */

void cpu_widen_values(struct cpu *cpu, const struct mat *m, size_t first, size_t n, float *out)
{
    const unsigned char *values = m->weight;
    cpu->kernels.widen(m->dtype, values + first * dtype_bytes(m->dtype), n, out);
}

const float *cpu_decode_vector(struct cpu *cpu, const struct mat *m, uint32_t cols)
{
    if (!m)
        return NULL;
    assert(m->cols == cols && cols <= cpu->width);
    cpu_widen_values(cpu, m, 0, cols, cpu->vector);
    for (uint32_t i = 0; m->plus_one && i < cols; i++)
        cpu->vector[i] += 1.0f;
    return cpu->vector;
}

/* ---- embedding, rows ---- */

struct embed_job {
    const struct mat *table;
    const int32_t *ids;
    float scale;
    float *out;
};

static void embed_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct embed_job *job = arg;
    const struct mat *table = job->table;
    for (size_t r = begin; r < end; r++) {
        float *out = job->out + r * table->cols;
        const uint32_t id = (uint32_t)job->ids[r];
        assert(id < table->rows);
        if (table->dtype == DTYPE_AFFINE)
            cpu->kernels.dequantize_row(table, id, out);
        else
            cpu_widen_values(cpu, table, (size_t)id * table->cols, table->cols, out);
        cpu->kernels.scale(out, job->scale, table->cols);
    }
}

static void embed(struct backend *backend, const struct mat *table, const int32_t *ids, uint32_t n_rows,
                  float scale, float *out)
{
    struct embed_job job = {table, ids, scale, out};
    cpu_spread(cpu_of(backend), n_rows, 1, (size_t)n_rows * table->cols * COST_ELEMENT, embed_span, &job);
}

struct norm_job {
    const float *x, *weight;
    float *out;
    uint32_t cols;
    float eps;
};

static void norm_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct norm_job *job = arg;
    for (size_t r = begin; r < end; r++)
        cpu->kernels.norm_row(job->x + r * job->cols, job->weight, job->cols, job->eps,
                              job->out + r * job->cols);
}

static void norm(struct backend *backend, const float *x, const struct mat *weight, uint32_t n_rows,
                 uint32_t cols, float eps, float *out)
{
    struct cpu *cpu = cpu_of(backend);
    struct norm_job job = {x, cpu_decode_vector(cpu, weight, cols), out, cols, eps};
    cpu_spread(cpu, n_rows, 1, (size_t)n_rows * cols * COST_ELEMENT, norm_span, &job);
}

struct scale_cols_job {
    float *x;
    const float *vec;
    float s;
    uint32_t cols;
};

static void scale_cols_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct scale_cols_job *job = arg;
    for (size_t r = begin; r < end; r++)
        cpu->kernels.scale_cols(job->x + r * job->cols, job->vec, job->s, job->cols);
}

static void scale_cols(struct backend *backend, float *x, const struct mat *vec, float s, uint32_t n_rows,
                       uint32_t cols)
{
    struct cpu *cpu = cpu_of(backend);
    struct scale_cols_job job = {x, cpu_decode_vector(cpu, vec, cols), s, cols};
    cpu_spread(cpu, n_rows, 1, (size_t)n_rows * cols * COST_ELEMENT, scale_cols_span, &job);
}

/* ---- elements ---- */

struct element_job {
    const float *a, *b;
    float *out;
    float s;
    enum activation act;
};

static void add_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct element_job *job = arg;
    cpu->kernels.add(job->a + begin, job->b + begin, end - begin, job->out + begin);
}

static void add(struct backend *backend, const float *a, const float *b, size_t n, float *out)
{
    struct element_job job = {.a = a, .b = b, .out = out};
    cpu_spread(cpu_of(backend), n, ELEMENT_GRAIN, n * COST_ELEMENT, add_span, &job);
}

static void scale_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct element_job *job = arg;
    cpu->kernels.scale(job->out + begin, job->s, end - begin);
}

static void scale(struct backend *backend, float *x, float s, size_t n)
{
    struct element_job job = {.out = x, .s = s};
    cpu_spread(cpu_of(backend), n, ELEMENT_GRAIN, n * COST_ELEMENT, scale_span, &job);
}

static void gated_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct element_job *job = arg;
    cpu->kernels.gated(job->act, job->a + begin, job->b + begin, end - begin, job->out + begin);
}

static void gated(struct backend *backend, enum activation act, const float *gate, const float *up, size_t n,
                  float *out)
{
    struct element_job job = {.a = gate, .b = up, .out = out, .act = act};
    cpu_spread(cpu_of(backend), n, ELEMENT_GRAIN, n * COST_EXP, gated_span, &job);
}

static void softcap_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct element_job *job = arg;
    cpu->kernels.softcap(job->out + begin, job->s, end - begin);
}

static void softcap(struct backend *backend, float *x, float cap, size_t n)
{
    struct element_job job = {.out = x, .s = cap};
    cpu_spread(cpu_of(backend), n, ELEMENT_GRAIN, n * COST_EXP, softcap_span, &job);
}

static bool finite_all(struct backend *backend, const float *x, size_t n)
{
    return cpu_of(backend)->kernels.finite(x, n);
}

/* ---- moving rows ---- */

struct move_job {
    const float *x;
    const uint32_t *index;
    size_t cols;
    float *out;
};

static void gather_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    (void)cpu;
    const struct move_job *job = arg;
    for (size_t r = begin; r < end; r++)
        memcpy(job->out + r * job->cols, job->x + job->index[r] * job->cols, job->cols * sizeof *job->x);
}

static void gather(struct backend *backend, const float *x, const uint32_t *index, uint32_t n_rows,
                   uint32_t cols, float *out)
{
    struct move_job job = {x, index, cols, out};
    cpu_spread(cpu_of(backend), n_rows, 1, (size_t)n_rows * cols * COST_ELEMENT, gather_span, &job);
}

static void scatter_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    (void)cpu;
    const struct move_job *job = arg;
    for (size_t r = begin; r < end; r++)
        memcpy(job->out + job->index[r] * job->cols, job->x + r * job->cols, job->cols * sizeof *job->x);
}

/* ---- linear ---- */

static bool quantizes(const struct cpu *cpu, const struct mat *m)
{
    return m->dtype == DTYPE_AFFINE && cpu->activations == SLUICE_ACTIVATIONS_INT8;
}

/* Whether both take the same form of x. */
static bool same_input(const struct cpu *cpu, const struct mat *a, const struct mat *b)
{
    if (!quantizes(cpu, a) || !quantizes(cpu, b))
        return quantizes(cpu, a) == quantizes(cpu, b);
    return a->group_size == b->group_size && a->bits == b->bits && a->precise == b->precise;
}

/* Of a multiply-add, in those of int8. */
static size_t cost_of(const struct cpu *cpu, const struct mat *m)
{
    return !quantizes(cpu, m) ? COST_FLOAT : m->precise ? COST_WIDE : 1;
}

struct quantize_job {
    const float *x;
    const uint32_t *index; /* of x's rows; NULL: in order */
};

static void quantize_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct quantize_job *job = arg;
    for (size_t r = begin; r < end; r++)
        cpu->kernels.quantize_row(&cpu->quant, (uint32_t)r,
                                  job->x + (job->index ? job->index[r] : r) * cpu->quant.cols);
}

/* Rows index[0..n_rows) of x one after another; x itself where index is NULL. */
static const float *in_order(struct cpu *cpu, const float *x, const uint32_t *index, uint32_t n_rows,
                             uint32_t cols)
{
    if (!index)
        return x;
    assert(cols <= cpu->limits.hidden && n_rows <= cpu->limits.routes);
    gather(&cpu->base, x, index, n_rows, cols, cpu->moved);
    return cpu->moved;
}

/* Make of rows index[0..n_rows) of x (NULL: the first ones) what m needs: quantized rows in cpu->quant, or
 * floats one after another, which are returned for multiply(). */
static const float *prepare(struct cpu *cpu, const struct mat *m, const float *x, const uint32_t *index,
                            uint32_t n_rows)
{
    assert(m->cols <= cpu->width && n_rows <= cpu->rows);
    if (!quantizes(cpu, m))
        return in_order(cpu, x, index, n_rows, m->cols);
    struct quant *quant = &cpu->quant;
    assert(m->cols % m->group_size == 0 && (m->bits == 2 || m->bits == 4 || m->bits == 8));
    quant->cols = m->cols;
    quant->bits = m->bits;
    quant->group_size = m->group_size;
    quant->wide = m->precise;
    quant->code_stride = (m->cols + CODE_UNIT - 1) / CODE_UNIT * CODE_UNIT;
    quant->group_stride = (m->cols / m->group_size + LANES - 1) / LANES * LANES;
    const struct quantize_job job = {x, index};
    cpu_spread(cpu, n_rows, 1, (size_t)n_rows * m->cols * COST_QUANTIZE, quantize_span, &job);
    return x;
}

struct share {
    size_t begin, end;
};

/* Of n units, numbered from `start` on, those in [begin, end): counted from `start`, and begin >= end where
 * there are none. `start` is below `end`. */
static struct share share_of(size_t begin, size_t end, size_t start, size_t n)
{
    return (struct share){begin > start ? begin - start : 0, end - start < n ? end - start : n};
}

/* For n_rows of the rows that prepare() made or returned, from `first` on. */
static void multiply(struct cpu *cpu, const struct mat *m, struct share outputs, const float *x,
                     uint32_t first, uint32_t n_rows, float *y)
{
    const uint32_t b = (uint32_t)outputs.begin, e = (uint32_t)outputs.end;
    const float *rows = x + (size_t)first * m->cols;
    if (quantizes(cpu, m)) {
        const struct quant quant = quant_from(&cpu->quant, first);
        cpu->kernels.affine_i8(m, b, e, &quant, n_rows, y);
    } else if (m->dtype == DTYPE_AFFINE) {
        cpu->kernels.affine_f32(m, b, e, rows, n_rows, y);
    } else {
        cpu->kernels.dense(m, b, e, rows, n_rows, y);
    }
}

/* Those of the matrices from mats[first] on that take the same input as it, outputs numbered one matrix after
 * another. */
struct linear_job {
    const struct mat *const *mats;
    uint32_t first, n_mats, n_rows;
    const float *x;
    float *const *ys;
};

static void linear_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct linear_job *job = arg;
    size_t start = 0;
    for (uint32_t m = job->first; m < job->n_mats && start < end; m++) {
        const struct mat *mat = job->mats[m];
        if (!same_input(cpu, job->mats[job->first], mat))
            continue;
        const struct share share = share_of(begin, end, start, mat->rows);
        if (share.begin < share.end)
            multiply(cpu, mat, share, job->x, 0, job->n_rows, job->ys[m]);
        start += mat->rows;
    }
}

static void linear(struct backend *backend, const struct mat *const *mats, uint32_t n_mats, const float *x,
                   uint32_t n_rows, float *const *ys)
{
    struct cpu *cpu = cpu_of(backend);
    for (uint32_t first = 0; first < n_mats; first++) {
        bool done = false;
        for (uint32_t m = 0; m < first; m++)
            done |= same_input(cpu, mats[m], mats[first]);
        if (done)
            continue;
        size_t outputs = 0;
        for (uint32_t m = first; m < n_mats; m++) {
            assert(mats[m]->cols == mats[first]->cols);
            outputs += same_input(cpu, mats[m], mats[first]) ? mats[m]->rows : 0;
        }
        const float *rows = prepare(cpu, mats[first], x, NULL, n_rows);
        const struct linear_job job = {mats, first, n_mats, n_rows, rows, ys};
        cpu_spread(cpu, outputs, OUTPUT_GRAIN,
                   outputs * mats[first]->cols * n_rows * cost_of(cpu, mats[first]), linear_span, &job);
    }
}

/* ---- experts' feed-forward ---- */

/* The calls' hidden units, and then their outputs, are numbered one call after another and spread as one
 * piece of work: a barrier for each expert took a fifth of their time. Rows likewise: those of a call are
 * side by side from quantization to output. */
struct experts_job {
    const struct expert_call *calls;
    enum activation act;
    const float *x; /* of the first product, as multiply() takes it */
};

/* Hidden units [begin, end) of all calls, from both matrices, through the activation. */
static void hidden_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct experts_job *job = arg;
    const size_t inner = job->calls->mats.gate.rows;
    for (size_t c = begin / inner; c * inner < end; c++) {
        const struct expert_call *call = &job->calls[c];
        const struct place *place = &cpu->places[c];
        const struct share share = share_of(begin, end, c * inner, inner);
        float *gate = cpu->gate + place->hidden * inner, *up = cpu->up + place->hidden * inner;
        multiply(cpu, &call->mats.gate, share, job->x, place->input, call->n_rows, gate);
        multiply(cpu, &call->mats.up, share, job->x, place->input, call->n_rows, up);
        for (size_t at = share.begin, r = 0; r < call->n_rows; r++, at += inner)
            cpu->kernels.gated(job->act, gate + at, up + at, share.end - share.begin, gate + at);
    }
}

static void down_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct experts_job *job = arg;
    const size_t outputs = job->calls->mats.down.rows;
    for (size_t c = begin / outputs; c * outputs < end; c++) {
        const struct expert_call *call = &job->calls[c];
        const struct place *place = &cpu->places[c];
        multiply(cpu, &call->mats.down, share_of(begin, end, c * outputs, outputs), cpu->gate, place->hidden,
                 call->n_rows, place->y);
    }
}

/* Gate and up take x in different forms: matrix after matrix. */
static void hidden_apart(struct cpu *cpu, const struct experts_job *job, size_t n_calls)
{
    for (size_t c = 0; c < n_calls; c++) {
        const struct expert_call *call = &job->calls[c];
        const struct mat *gate = &call->mats.gate, *up = &call->mats.up;
        const size_t at = (size_t)cpu->places[c].hidden * gate->rows, n = (size_t)call->n_rows * gate->rows;
        linear(&cpu->base, (const struct mat *[]){gate, up}, 2,
               job->x + (size_t)cpu->places[c].input * gate->cols, call->n_rows,
               (float *[]){cpu->gate + at, cpu->up + at});
        gated(&cpu->base, job->act, cpu->gate + at, cpu->up + at, n, cpu->gate + at);
    }
}

struct placed {
    uint32_t routes, moved;
};

/* Fills cpu->places and the lists of routes. A call of one row writes its output where it belongs, one of
 * more to rows of cpu->moved, side by side as products are written. */
static struct placed place_calls(struct cpu *cpu, const struct expert_call *calls, uint32_t n_calls,
                                 uint32_t n_rows, const uint32_t *row_of, const uint32_t *output_of,
                                 float *out)
{
    const size_t outputs = calls->mats.down.rows;
    struct placed placed = {0};
    for (uint32_t c = 0; c < n_calls; c++) {
        const uint32_t first = calls[c].first, n = calls[c].n_rows;
        assert(n > 0 && n <= n_rows && n <= cpu->limits.routes - placed.routes);
        struct place *place = &cpu->places[c];
        *place = (struct place){.input = n_rows == 1 ? 0 : placed.routes,
                                .hidden = placed.routes,
                                .y = out + output_of[first] * outputs};
        memcpy(cpu->row_of + placed.routes, row_of + first, n * sizeof *row_of);
        placed.routes += n;
        if (n == 1)
            continue;
        place->y = cpu->moved + placed.moved * outputs;
        memcpy(cpu->output_of + placed.moved, output_of + first, n * sizeof *output_of);
        placed.moved += n;
    }
    return placed;
}

static void experts(struct backend *backend, const struct expert_call *calls, uint32_t n_calls,
                    enum activation act, const float *x, uint32_t n_rows, const uint32_t *row_of,
                    const uint32_t *output_of, float *out)
{
    struct cpu *cpu = cpu_of(backend);
    const struct mat *gate = &calls->mats.gate, *up = &calls->mats.up, *down = &calls->mats.down;
    const size_t inner = gate->rows, outputs = down->rows;
    assert(up->rows == inner && up->cols == gate->cols && down->cols == inner && inner <= cpu->limits.inner);
    assert(gate->cols <= cpu->limits.hidden && outputs <= cpu->limits.hidden);
    const struct placed placed = place_calls(cpu, calls, n_calls, n_rows, row_of, output_of, out);
    /* The only row of x is prepared once for all. */
    const uint32_t *index = n_rows == 1 ? NULL : cpu->row_of, inputs = n_rows == 1 ? 1 : placed.routes;
    struct experts_job job = {.calls = calls, .act = act};
    if (same_input(cpu, gate, up)) {
        job.x = prepare(cpu, gate, x, index, inputs);
        cpu_spread(cpu, n_calls * inner, OUTPUT_GRAIN,
                   2 * inner * gate->cols * placed.routes * cost_of(cpu, gate), hidden_span, &job);
    } else {
        job.x = in_order(cpu, x, index, inputs, gate->cols);
        hidden_apart(cpu, &job, n_calls);
    }
    prepare(cpu, down, cpu->gate, NULL, placed.routes);
    cpu_spread(cpu, n_calls * outputs, OUTPUT_GRAIN, outputs * inner * placed.routes * cost_of(cpu, down),
               down_span, &job);
    const struct move_job back = {cpu->moved, cpu->output_of, outputs, out};
    cpu_spread(cpu, placed.moved, 1, placed.moved * outputs * COST_ELEMENT, scatter_span, &back);
}

/* ---- rotary embedding ---- */

static void rope_table_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    (void)cpu;
    const struct rope_table *table = arg;
    for (size_t r = begin; r < end; r++)
        for (uint32_t i = 0; i < table->pairs; i++) {
            /* The product in float32, as Hugging Face forms it. */
            float angle = (float)(table->position0 + (uint32_t)r) * table->inv_freq[i];
            double s, c;
            math64_sincos((double)angle, &s, &c);
            table->cosines[r * table->pairs + i] = (float)c;
            table->sines[r * table->pairs + i] = (float)s;
        }
}

static const struct rope_table *rope_table(struct cpu *cpu, const struct rope *rope, uint32_t n_rows,
                                           uint32_t position0)
{
    const size_t bytes = rope->pairs * sizeof *rope->inv_freq;
    for (uint32_t t = 0; t < ROPE_TABLES; t++) {
        const struct rope_table *table = &cpu->ropes[t];
        if (table->n_rows >= n_rows && table->position0 == position0 && table->pairs == rope->pairs &&
            memcmp(table->inv_freq, rope->inv_freq, bytes) == 0)
            return table;
    }
    struct rope_table *table = &cpu->ropes[cpu->next_rope];
    cpu->next_rope = (cpu->next_rope + 1) % ROPE_TABLES;
    assert(rope->pairs <= cpu->limits.head_dim / 2 && n_rows <= cpu->limits.rows);
    memcpy(table->inv_freq, rope->inv_freq, bytes);
    table->pairs = rope->pairs;
    table->position0 = position0;
    table->n_rows = n_rows;
    cpu_spread(cpu, n_rows, 1, (size_t)n_rows * rope->pairs * COST_SINCOS, rope_table_span, table);
    return table;
}

struct rope_job {
    const struct rope_table *table;
    float *x;
    uint32_t heads, head_dim, half;
};

static void rope_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct rope_job *job = arg;
    const uint32_t pairs = job->table->pairs;
    for (size_t r = begin; r < end; r++)
        cpu->kernels.rope_row(job->x + r * job->heads * job->head_dim, job->heads, job->head_dim, pairs,
                              job->half, job->table->cosines + r * pairs, job->table->sines + r * pairs);
}

static void rope(struct backend *backend, float *x, uint32_t n_rows, uint32_t heads, uint32_t head_dim,
                 const struct rope *rope, uint32_t position0)
{
    struct cpu *cpu = cpu_of(backend);
    assert(rope->pairs <= rope->half && 2 * rope->half <= head_dim);
    if (n_rows == 0 || rope->pairs == 0)
        return;
    struct rope_job job = {rope_table(cpu, rope, n_rows, position0), x, heads, head_dim, rope->half};
    cpu_spread(cpu, n_rows, 1, (size_t)n_rows * heads * head_dim * COST_ELEMENT, rope_span, &job);
}

/* ---- keys, values, attention ---- */

static size_t kv_bytes(sluice_kv_type type)
{
    return type == SLUICE_KV_F32 ? 4 : 2;
}

struct kv_job {
    const struct kv_view *kv;
    const float *k, *v;
    uint32_t position0;
};

static void kv_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct kv_job *job = arg;
    const struct kv_view *kv = job->kv;
    const size_t cols = (size_t)kv->kv_heads * kv->head_dim, row_bytes = cols * kv_bytes(kv->type);
    for (size_t r = begin; r < end; r++) {
        size_t at = (job->position0 + r) % kv->slots * row_bytes;
        cpu->kernels.narrow(kv->type, job->k + r * cols, cols, (unsigned char *)kv->k + at);
        cpu->kernels.narrow(kv->type, job->v + r * cols, cols, (unsigned char *)kv->v + at);
    }
}

static void kv_store(struct backend *backend, const struct kv_view *kv, const float *k, const float *v,
                     uint32_t n_rows, uint32_t position0)
{
    /* Rows that later ones of the same call would overwrite are left out: rows are stored in any order. */
    const uint32_t skip = n_rows > kv->slots ? n_rows - kv->slots : 0;
    const size_t cols = (size_t)kv->kv_heads * kv->head_dim;
    struct kv_job job = {kv, k + skip * cols, v + skip * cols, position0 + skip};
    cpu_spread(cpu_of(backend), n_rows - skip, 1, 2 * cols * (n_rows - skip) * COST_ELEMENT, kv_span, &job);
}

/* Queries are numbered kv head, row, head of the group, and taken `batch` at a time, so that the queries of a
 * batch read the same keys. Batches go to the threads in turn: later rows see more positions. */
struct attention_job {
    struct cpu *cpu;
    const struct attention *attention;
    const struct kv_view *kv;
    const float *q;
    float *out;
    uint32_t n_rows, position0, group, batch;
};

static void attend_batch(const struct attention_job *job, uint32_t kv_head, uint32_t begin, uint32_t end,
                         float *scratch)
{
    const struct attend shared = {job->kv, kv_head, job->attention->window, job->attention->scale};
    struct attend_query queries[ATTEND_QUERIES];
    for (uint32_t i = begin; i < end; i++) {
        uint32_t row = i / job->group, head = kv_head * job->group + i % job->group;
        size_t at = ((size_t)row * job->attention->heads + head) * job->kv->head_dim;
        queries[i - begin] = (struct attend_query){job->q + at, job->out + at, job->position0 + row};
    }
    job->cpu->kernels.attend(&shared, queries, end - begin, scratch);
}

static void attention_lane(void *arg, uint32_t lane, uint32_t lanes)
{
    const struct attention_job *job = arg;
    float *scratch = job->cpu->lane_scratch + lane * ATTEND_SCRATCH_FLOATS(job->cpu->limits.head_dim);
    const uint32_t per_head = job->n_rows * job->group;
    const uint32_t batches = (per_head + job->batch - 1) / job->batch;
    for (uint32_t b = lane; b < batches * job->kv->kv_heads; b += lanes) {
        uint32_t begin = b % batches * job->batch;
        uint32_t end = per_head - begin < job->batch ? per_head : begin + job->batch;
        attend_batch(job, b / batches, begin, end, scratch);
    }
}

static void attention(struct backend *backend, const struct attention *attention, const struct kv_view *kv,
                      const float *q, uint32_t n_rows, uint32_t position0, float *out)
{
    struct cpu *cpu = cpu_of(backend);
    assert(attention->heads % kv->kv_heads == 0 && kv->head_dim <= cpu->limits.head_dim);
    if (n_rows == 0)
        return;
    /* Positions of the last row, and those of the whole call, which the ring must still hold. */
    const uint32_t seen = position0 + n_rows, window = attention->window;
    const uint32_t span = window && window < seen ? window : seen;
    assert((size_t)span + n_rows - 1 <= kv->slots || seen <= kv->slots);
    const uint32_t share = (n_rows * attention->heads + cpu->lanes - 1) / cpu->lanes;
    struct attention_job job = {.cpu = cpu,
                                .attention = attention,
                                .kv = kv,
                                .q = q,
                                .out = out,
                                .n_rows = n_rows,
                                .position0 = position0,
                                .group = attention->heads / kv->kv_heads,
                                .batch = share < ATTEND_QUERIES ? share : ATTEND_QUERIES};
    if ((size_t)n_rows * attention->heads * span * kv->head_dim * 2 * COST_FLOAT < PARALLEL_WORK_MIN)
        attention_lane(&job, 0, 1);
    else
        pool_run(cpu->pool, attention_lane, &job);
}

/* ---- routing and the parts of a mixture ---- */

struct route_job {
    const float *logits;
    const struct mat *expert_scale;
    uint32_t n, k;
    uint16_t *ids;
    float *weights;
};

static void route_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct route_job *job = arg;
    for (size_t r = begin; r < end; r++) {
        uint16_t *ids = job->ids + r * job->k;
        float *weights = job->weights + r * job->k;
        cpu->kernels.route_row(job->logits + r * job->n, job->n, job->k, ids, weights);
        for (uint32_t j = 0; job->expert_scale && j < job->k; j++) {
            float s;
            cpu_widen_values(cpu, job->expert_scale, ids[j], 1, &s);
            weights[j] *= s;
        }
    }
}

static void route(struct backend *backend, const float *logits, uint32_t n_rows, uint32_t n, uint32_t k,
                  const struct mat *expert_scale, uint16_t *ids, float *weights)
{
    assert(!expert_scale || expert_scale->cols == n);
    struct route_job job = {logits, expert_scale, n, k, ids, weights};
    cpu_spread(cpu_of(backend), n_rows, 1, (size_t)n_rows * n * COST_EXP, route_span, &job);
}

struct weighted_sum_job {
    const float *ys, *weights;
    uint32_t k, cols;
    float *out;
};

static void weighted_sum_span(struct cpu *cpu, const void *arg, size_t begin, size_t end)
{
    const struct weighted_sum_job *job = arg;
    for (size_t r = begin; r < end; r++)
        cpu->kernels.weighted_sum_row(job->ys + r * job->k * job->cols, job->weights + r * job->k, job->k,
                                      job->cols, job->out + r * job->cols);
}

static void weighted_sum(struct backend *backend, const float *ys, const float *weights, uint32_t n_rows,
                         uint32_t k, uint32_t cols, float *out)
{
    struct weighted_sum_job job = {ys, weights, k, cols, out};
    cpu_spread(cpu_of(backend), n_rows, 1, (size_t)n_rows * k * cols * COST_ELEMENT, weighted_sum_span, &job);
}

/* ---- open ---- */

/* Memory belongs to the arena. */
static void close_backend(struct backend *backend)
{
    (void)backend;
}

static const struct backend_ops CPU_OPS = {
    .embed = embed,
    .linear = linear,
    .norm = norm,
    .add = add,
    .scale = scale,
    .scale_cols = scale_cols,
    .rope = rope,
    .kv_store = kv_store,
    .attention = attention,
    .gated = gated,
    .softcap = softcap,
    .route = route,
    .experts = experts,
    .gather = gather,
    .weighted_sum = weighted_sum,
    .short_conv = cpu_short_conv,
    .delta_rule = cpu_delta_rule,
    .gated_norm = cpu_gated_norm,
    .finite = finite_all,
    .close = close_backend,
};

/* One walk over everything that is taken from the arena: without an arena it only counts. A product that does
 * not fit makes the count SIZE_MAX, which no budget grants. */
struct taker {
    struct arena *arena;
    size_t total_bytes;
};

static void *take(struct taker *taker, size_t count, size_t each, size_t size)
{
    size_t bytes;
    if (!size_mul(count, each, &bytes) || !size_mul(bytes, size, &bytes) || bytes > SIZE_MAX - ARENA_ALIGN ||
        !size_add(taker->total_bytes, arena_cost(bytes), &taker->total_bytes)) {
        taker->total_bytes = SIZE_MAX;
        return NULL;
    }
    return taker->arena ? arena_take(taker->arena, bytes) : NULL;
}

static void take_scratch(struct taker *taker, const struct backend_limits *limits, uint32_t lanes,
                         struct cpu *cpu)
{
    cpu->rows = limits->rows > limits->routes ? limits->rows : limits->routes;
    const size_t rows = cpu->rows, routes = limits->routes,
                 heads_width = (size_t)limits->heads * limits->head_dim;
    size_t width = limits->cols > limits->inner ? limits->cols : limits->inner;
    width = width > heads_width ? width : heads_width;
    cpu->width = width > UINT32_MAX ? UINT32_MAX : (uint32_t)width;
    const size_t group_stride = (width / GROUP_MIN + LANES) / LANES * LANES;
    cpu->quant.codes = take(taker, rows, (width + CODE_UNIT - 1) / CODE_UNIT * CODE_UNIT, 2);
    cpu->quant.scales = take(taker, rows, group_stride, sizeof(float));
    cpu->quant.sums = take(taker, rows, group_stride, sizeof(float));
    cpu->vector = take(taker, 1, width, sizeof(float));
    cpu->second = take(taker, 1, width, sizeof(float));
    cpu->taps = take(taker, 1, limits->conv_values, sizeof(float));
    cpu->lane_scratch = take(taker, lanes, ATTEND_SCRATCH_FLOATS(limits->head_dim), sizeof(float));
    cpu->places = take(taker, routes, 1, sizeof *cpu->places);
    cpu->row_of = take(taker, routes, 1, sizeof *cpu->row_of);
    cpu->output_of = take(taker, routes, 1, sizeof *cpu->output_of);
    cpu->gate = take(taker, routes, limits->inner, sizeof(float));
    cpu->up = take(taker, routes, limits->inner, sizeof(float));
    cpu->moved = take(taker, routes, limits->hidden, sizeof(float));
    for (uint32_t t = 0; t < ROPE_TABLES; t++) {
        const size_t pairs = limits->head_dim / 2;
        cpu->ropes[t].inv_freq = take(taker, 1, pairs, sizeof(float));
        cpu->ropes[t].cosines = take(taker, limits->rows, pairs, sizeof(float));
        cpu->ropes[t].sines = take(taker, limits->rows, pairs, sizeof(float));
    }
}

size_t cpu_backend_bytes(const struct backend_limits *limits, uint32_t lanes)
{
    struct taker taker = {0};
    struct cpu counted = {0};
    (void)take(&taker, 1, sizeof(struct cpu), 1);
    take_scratch(&taker, limits, lanes, &counted);
    return taker.total_bytes;
}

sluice_status cpu_backend_open_kernels(struct pool *pool, sluice_activations activations,
                                       const struct backend_limits *limits, struct arena *arena,
                                       const struct cpu_kernels *kernels, struct backend **backend,
                                       sluice_error *err)
{
    *backend = NULL;
    const uint32_t lanes = pool_lanes(pool);
    const size_t bytes = cpu_backend_bytes(limits, lanes);
    if (limits->rows == 0)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "the backend was opened for chunks of 0 rows; give at least 1");
    if (bytes > arena->cap_bytes - arena->used_bytes)
        return err_set(err, SLUICE_E_BUDGET,
                       "the backend needs %zu bytes of scratch, the plan has %zu left; plan with "
                       "cpu_backend_bytes and the same limits",
                       bytes, arena->cap_bytes - arena->used_bytes);
    struct taker taker = {.arena = arena};
    struct cpu *cpu = take(&taker, 1, sizeof *cpu, 1);
    *cpu = (struct cpu){.base = {&CPU_OPS},
                        .kernels = *kernels,
                        .pool = pool,
                        .activations = activations,
                        .limits = *limits,
                        .lanes = lanes};
    take_scratch(&taker, limits, lanes, cpu);
    assert(taker.total_bytes == bytes);
    *backend = &cpu->base;
    return SLUICE_OK;
}

sluice_status cpu_backend_open(struct pool *pool, const char *isa, sluice_activations activations,
                               const struct backend_limits *limits, struct arena *arena,
                               struct backend **backend, sluice_error *err)
{
    const struct cpu_isa *found;
    struct cpu_kernels kernels;
    *backend = NULL;
    TRY(cpu_isa_find(isa, &found, err));
    found->fill(&kernels);
    return cpu_backend_open_kernels(pool, activations, limits, arena, &kernels, backend, err);
}
