/* The operations of the CPU backend: right against float64, and the same bytes for every number of threads
 * and whether rows and matrices are computed together or alone. */
#include "compute/math64.h"
#include "compute_fixture.h"

#include <float.h>

enum { ROWS = 12, COLS = 256, INNER = 96, OUTPUTS = 150, DIM = 64, HEADS = 4, EXPERTS = 64, TOP = 6 };

static const struct backend_limits LIMITS = {.rows = ROWS,
                                             .cols = COLS,
                                             .inner = INNER,
                                             .context = 128,
                                             .heads = HEADS,
                                             .head_dim = DIM,
                                             .routes = ROWS,
                                             .hidden = COLS};

/* ---- open ---- */

static void test_open(void **state)
{
    (void)state;
    struct pool *pool;
    struct arena arena;
    struct backend *backend;
    sluice_error err;
    assert_int_equal(pool_open(&pool, 3, &err), SLUICE_OK);
    const size_t bytes = cpu_backend_bytes(&LIMITS, 3);
    assert_int_equal(arena_open(&arena, NULL, bytes, "scratch", &err), SLUICE_OK);
    assert_int_equal(cpu_backend_open(pool, NULL, SLUICE_ACTIVATIONS_INT8, &LIMITS, &arena, &backend, &err),
                     SLUICE_OK);
    assert_int_equal(arena.used_bytes, bytes); /* planned to the byte */
    backend->ops->close(backend);
    /* The arena is used up: a second backend is refused, and says what it needs. */
    assert_int_equal(cpu_backend_open(pool, NULL, SLUICE_ACTIVATIONS_INT8, &LIMITS, &arena, &backend, &err),
                     SLUICE_E_BUDGET);
    assert_null(backend);
    assert_non_null(strstr(err.detail, "0 left"));
    arena_close(&arena);
    struct backend_limits none = LIMITS;
    none.rows = 0;
    assert_int_equal(arena_open(&arena, NULL, bytes, "scratch", &err), SLUICE_OK);
    assert_int_equal(cpu_backend_open(pool, NULL, SLUICE_ACTIVATIONS_INT8, &none, &arena, &backend, &err),
                     SLUICE_E_ARGUMENT);
    arena_close(&arena);
    pool_close(pool);
    /* Sizes that do not fit saturate instead of wrapping. */
    struct backend_limits vast = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 1,         UINT32_MAX,
                                  UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    assert_int_equal(cpu_backend_bytes(&vast, 256), SIZE_MAX);
}

/* ---- one run of everything ---- */

/* Weights, inputs and the outputs of every operation; `rows` at a time. */
struct world {
    struct stored q4, q8, q2, f16, f32, norm, gate, up, up8, down, scale;
    float *x, *logits;
    int32_t ids[ROWS];
    uint32_t index[ROWS];
    float inv_freq[DIM / 2];
};

static struct world new_world(void)
{
    struct world w = {
        .q4 = random_affine(OUTPUTS, COLS, 4, 64),
        .q8 = random_affine(77, COLS, 8, 64),
        .q2 = random_affine(OUTPUTS, COLS, 2, 32),
        .f16 = random_dense(90, COLS, DTYPE_F16),
        .f32 = random_dense(33, COLS, DTYPE_F32),
        .norm = random_dense(1, COLS, DTYPE_BF16),
        .gate = random_affine(INNER, COLS, 4, 64),
        .up = random_affine(INNER, COLS, 4, 64),
        .up8 = random_affine(INNER, COLS, 8, 32),
        .down = random_affine(COLS, INNER, 4, 32),
        .scale = random_dense(1, EXPERTS, DTYPE_BF16),
        .x = random_floats(ROWS * COLS, 2),
        .logits = random_floats(ROWS * EXPERTS, 5),
    };
    for (uint32_t r = 0; r < ROWS; r++) {
        w.ids[r] = (int32_t)(random_bits() % OUTPUTS);
        w.index[r] = (r * 7 + 3) % ROWS;
    }
    for (uint32_t i = 0; i < DIM / 2; i++)
        w.inv_freq[i] = (float)math64_exp(-(double)(2 * i) / DIM * math64_log(10000));
    return w;
}

static void free_world(struct world *w)
{
    struct stored *all[] = {&w->q4,   &w->q8, &w->q2,  &w->f16,  &w->f32,   &w->norm,
                            &w->gate, &w->up, &w->up8, &w->down, &w->scale, NULL};
    for (struct stored **m = all; *m; m++)
        free_stored(*m);
    test_free(w->x);
    test_free(w->logits);
}

/* Outputs of all operations, each [ROWS][...], in one block so that runs compare with one memcmp. */
struct outputs {
    float q4[ROWS * OUTPUTS], q8[ROWS * 77], q2[ROWS * OUTPUTS], f16[ROWS * 90], f32[ROWS * 33];
    float embed[ROWS * COLS], embed_dense[ROWS * COLS], norm[ROWS * COLS], norm_plain[ROWS * COLS];
    float expert[ROWS * COLS], expert_silu[ROWS * COLS], expert_mixed[ROWS * COLS];
    float rope[ROWS * COLS], scale_cols[ROWS * COLS], mixed[ROWS / 4 * COLS];
    float add[ROWS * COLS], scale[ROWS * COLS], gated[ROWS * COLS], softcap[ROWS * COLS];
    float route_weights[ROWS * TOP], gather[ROWS * COLS];
    uint16_t route_ids[ROWS * TOP];
};

static const float *rows_of(const float *x, uint32_t r, uint32_t cols)
{
    return x + (size_t)r * cols;
}

static void run_rows(struct backend *b, struct world *w, struct outputs *o, uint32_t r, uint32_t n,
                     bool together)
{
    const struct backend_ops *ops = b->ops;
    const float *x = rows_of(w->x, r, COLS);
    const struct mat *mats[] = {&w->q4.mat, &w->f16.mat, &w->q8.mat, &w->q2.mat, &w->f32.mat};
    float *ys[] = {o->q4 + r * OUTPUTS, o->f16 + r * 90, o->q8 + r * 77, o->q2 + r * OUTPUTS,
                   o->f32 + r * 33};
    if (together)
        ops->linear(b, mats, 5, x, n, ys);
    for (uint32_t m = 0; !together && m < 5; m++)
        ops->linear(b, &mats[m], 1, x, n, &ys[m]);
    const size_t at = (size_t)r * COLS, count = (size_t)n * COLS;
    ops->embed(b, &w->q4.mat, w->ids + r, n, 3.7f, o->embed + at);
    for (uint32_t i = r; i < r + n; i++) {
        int32_t id = w->ids[i] % 90;
        ops->embed(b, &w->f16.mat, &id, 1, 0.3f, o->embed_dense + i * COLS);
    }
    ops->norm(b, x, &w->norm.mat, n, COLS, 1e-6f, o->norm + at);
    ops->norm(b, x, NULL, n * HEADS, COLS / HEADS, 1e-6f, o->norm_plain + at);
    struct expert_call e = {{w->gate.mat, w->up.mat, w->down.mat}, r, n};
    ops->experts(b, &e, 1, ACT_GELU_TANH, w->x, ROWS, w->index, w->index, o->expert);
    ops->experts(b, &e, 1, ACT_SILU, w->x, ROWS, w->index, w->index, o->expert_silu);
    e.mats.up = w->up8.mat;
    ops->experts(b, &e, 1, ACT_SILU, w->x, ROWS, w->index, w->index, o->expert_mixed);
    memcpy(o->rope + at, x, count * sizeof *x);
    ops->rope(b, o->rope + at, n, HEADS, DIM, &(struct rope){DIM / 2, DIM / 2, w->inv_freq}, 1000 + r);
    memcpy(o->scale_cols + at, x, count * sizeof *x);
    ops->scale_cols(b, o->scale_cols + at, &w->norm.mat, 0.7f, n, COLS);
    ops->add(b, x, o->norm + at, count, o->add + at);
    memcpy(o->scale + at, x, count * sizeof *x);
    ops->scale(b, o->scale + at, 1.3f, count);
    ops->gated(b, ACT_GELU_TANH, x, o->norm + at, count, o->gated + at);
    memcpy(o->softcap + at, x, count * sizeof *x);
    ops->softcap(b, o->softcap + at, 1.5f, count);
    ops->route(b, rows_of(w->logits, r, EXPERTS), n, EXPERTS, TOP, &w->scale.mat, o->route_ids + r * TOP,
               o->route_weights + r * TOP);
    ops->gather(b, w->x, w->index + r, n, COLS, o->gather + at);
}

static void run_all(uint32_t threads, sluice_activations activations, struct world *w, uint32_t chunk,
                    bool together, struct outputs *o)
{
    struct opened b = open_backend(threads, activations, &LIMITS, NULL);
    memset(o, 0, sizeof *o);
    for (uint32_t r = 0; r < ROWS; r += chunk)
        run_rows(b.backend, w, o, r, chunk < ROWS - r ? chunk : ROWS - r, together);
    for (uint32_t r = 0; r < ROWS / 4; r++) /* four rows of x as the outputs of four experts */
        if (chunk == 1)
            b.backend->ops->weighted_sum(b.backend, w->x + (size_t)r * 4 * COLS, w->logits + r * 4, 1, 4,
                                         COLS, o->mixed + (size_t)r * COLS);
    if (chunk != 1)
        b.backend->ops->weighted_sum(b.backend, w->x, w->logits, ROWS / 4, 4, COLS, o->mixed);
    close_opened(&b);
}

static void test_invariance(void **state)
{
    (void)state;
    struct world w = new_world();
    struct outputs *want = test_malloc(sizeof *want), *got = test_malloc(sizeof *got);
    for (int a = 0; a < 2; a++) {
        const sluice_activations activations = a ? SLUICE_ACTIVATIONS_F32 : SLUICE_ACTIVATIONS_INT8;
        run_all(1, activations, &w, 1, false, want);
        for (uint32_t threads = 1; threads <= 4; threads *= 2) {
            const uint32_t chunks[] = {1, 2, 7, ROWS};
            for (size_t c = 0; c < 4; c++) {
                run_all(threads, activations, &w, chunks[c], true, got);
                assert_memory_equal(got, want, sizeof *got);
            }
        }
    }
    test_free(want);
    test_free(got);
    free_world(&w);
}

/* ---- against float64 ---- */

static void test_norm_and_elements(void **state)
{
    (void)state;
    struct world w = new_world();
    struct outputs *o = test_malloc(sizeof *o);
    run_all(2, SLUICE_ACTIVATIONS_F32, &w, ROWS, true, o);
    for (size_t r = 0; r < ROWS; r++) {
        double squares = 0;
        for (size_t k = 0; k < COLS; k++)
            squares += (double)w.x[r * COLS + k] * (double)w.x[r * COLS + k];
        for (size_t k = 0; k < COLS; k++) {
            const size_t at = r * COLS + k;
            const double x = (double)w.x[at], weight = weight_at(&w.norm.mat, 0, (uint32_t)k);
            const double normed = x / sqrt(squares / COLS + 1e-6) * weight;
            const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
            const double gelu = x / (1 + exp(-2 * u)) * (double)o->norm[at];
            assert_close((double)o->norm[at], normed, fabs(normed) * 8 * (double)FLT_EPSILON, "norm");
            assert_close((double)o->gated[at], gelu, fabs(gelu) * 4 * (double)FLT_EPSILON, "gated");
            assert_close((double)o->softcap[at], 1.5 * tanh(x / 1.5), 4e-7, "softcap");
            assert_true(o->add[at] == w.x[at] + o->norm[at]);
            assert_true(o->scale[at] == w.x[at] * 1.3f);
            assert_true(o->scale_cols[at] == w.x[at] * (float)weight * 0.7f);
            assert_true(o->gather[at] == w.x[w.index[r] * COLS + k]);
            const float row = (float)weight_at(&w.q4.mat, (uint32_t)w.ids[r], (uint32_t)k);
            assert_true(o->embed[at] == row * 3.7f);
            const float dense = (float)weight_at(&w.f16.mat, (uint32_t)w.ids[r] % 90, (uint32_t)k);
            assert_true(o->embed_dense[at] == dense * 0.3f);
        }
    }
    for (size_t r = 0; r < ROWS / 4; r++)
        for (size_t k = 0; k < COLS; k++) {
            double want = 0, terms = 0;
            for (size_t j = 0; j < 4; j++) {
                double term = (double)w.logits[r * 4 + j] * (double)w.x[(r * 4 + j) * COLS + k];
                want += term;
                terms += fabs(term);
            }
            assert_close((double)o->mixed[r * COLS + k], want, terms * 3 * (double)FLT_EPSILON,
                         "weighted sum");
        }
    test_free(o);
    free_world(&w);
}

static void check_expert(const struct world *w, const float *x, const struct mat *up, enum activation act,
                         const float *got)
{
    double hidden[INNER];
    for (uint32_t i = 0; i < INNER; i++) {
        double g = 0, u = 0;
        for (uint32_t k = 0; k < COLS; k++) {
            g += weight_at(&w->gate.mat, i, k) * (double)x[k];
            u += weight_at(up, i, k) * (double)x[k];
        }
        double t = act == ACT_SILU ? g : 2 * 0.79788456080286535588 * (g + 0.044715 * g * g * g);
        hidden[i] = g / (1 + exp(-t)) * u;
    }
    for (uint32_t c = 0; c < COLS; c++) {
        double want = 0, terms = 0;
        for (uint32_t i = 0; i < INNER; i++) {
            want += weight_at(&w->down.mat, c, i) * hidden[i];
            terms += fabs(weight_at(&w->down.mat, c, i) * hidden[i]);
        }
        assert_close((double)got[c], want, terms * 2e-5, "expert");
    }
}

static void test_expert(void **state)
{
    (void)state;
    struct world w = new_world();
    struct outputs *o = test_malloc(sizeof *o);
    run_all(1, SLUICE_ACTIVATIONS_F32, &w, ROWS, true, o);
    for (uint32_t r = 0; r < ROWS; r++) {
        const float *x = rows_of(w.x, r, COLS);
        check_expert(&w, x, &w.up.mat, ACT_GELU_TANH, o->expert + r * COLS);
        check_expert(&w, x, &w.up.mat, ACT_SILU, o->expert_silu + r * COLS);
        check_expert(&w, x, &w.up8.mat, ACT_SILU, o->expert_mixed + r * COLS);
    }
    test_free(o);
    free_world(&w);
}

/* Experts that are computed together. Their lists of routes begin at LEAD, and not in the order of the calls;
 * a row of x goes to several experts, and an output in three is nobody's. */
enum {
    JOINT = 6,
    JOINT_ROWS = 48,
    JOINT_ROUTES = 1 + 40 + 2 + 5 + 1 + 40,
    LEAD = 3,
    JOINT_LIST = LEAD + JOINT_ROUTES,
    JOINT_OUTPUTS = JOINT_LIST * 3 / 2
};
static const uint32_t JOINT_FIRST[JOINT] = {LEAD + 48, LEAD, LEAD + 46, LEAD + 40, LEAD + 45, LEAD + 49};
static const uint32_t JOINT_N[JOINT] = {1, 40, 2, 5, 1, 40};

static const struct backend_limits JOINT_LIMITS = {.rows = JOINT_ROWS,
                                                   .cols = COLS,
                                                   .inner = INNER,
                                                   .context = 1,
                                                   .heads = HEADS,
                                                   .head_dim = DIM,
                                                   .routes = JOINT_ROUTES,
                                                   .hidden = COLS};

struct joint {
    struct stored gate, up[3], dense_gate, down;
};

/* Gate and up that take x in one form, or in two; or that take it as it is, whatever the activations. */
static struct expert_mats mats_of(const struct joint *e, uint32_t kind)
{
    return (struct expert_mats){kind == 2 ? e->dense_gate.mat : e->gate.mat, e->up[kind].mat, e->down.mat};
}

static struct joint new_joint(void)
{
    return (struct joint){
        .gate = random_affine(INNER, COLS, 4, 64),
        .up = {random_affine(INNER, COLS, 4, 64), random_affine(INNER, COLS, 8, 32),
               random_dense(INNER, COLS, DTYPE_F16)},
        .dense_gate = random_dense(INNER, COLS, DTYPE_F16),
        .down = random_affine(COLS, INNER, 4, 32),
    };
}

static void free_joint(struct joint *e)
{
    struct stored *all[] = {&e->gate, &e->up[0], &e->up[1], &e->up[2], &e->dense_gate, &e->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free_stored(all[i]);
}

/* Each route of a call by itself, by the reference's kernels. */
static void compute_alone(const struct expert_call *call, sluice_activations activations, const float *x,
                          const uint32_t *row_of, const uint32_t *output_of, float *out)
{
    struct cpu_kernels ref;
    cpu_fill_ref(&ref);
    struct opened b = open_backend(1, activations, &JOINT_LIMITS, &ref);
    const struct expert_call alone = {call->mats, 0, 1};
    const uint32_t zero = 0;
    for (uint32_t i = call->first; i < call->first + call->n_rows; i++)
        b.backend->ops->experts(b.backend, &alone, 1, ACT_SILU, rows_of(x, row_of[i], COLS), 1, &zero, &zero,
                                out + (size_t)output_of[i] * COLS);
    close_opened(&b);
}

/* The first n of the calls, for every n, on x of n_rows rows. */
static void check_joint(const struct expert_call *calls, sluice_activations activations, uint32_t threads,
                        const float *x, uint32_t n_rows, const uint32_t *row_of, const uint32_t *output_of)
{
    struct opened b = open_backend(threads, activations, &JOINT_LIMITS, NULL);
    const size_t n_floats = (size_t)JOINT_OUTPUTS * COLS;
    float *want = random_floats(n_floats, 1), *got = new_floats(n_floats);
    for (uint32_t n = 1; n <= JOINT; n++) {
        memcpy(got, want, n_floats * sizeof *got);
        compute_alone(&calls[n - 1], activations, x, row_of, output_of, want);
        for (uint32_t c = 0; c < n; c++)
            for (uint32_t i = calls[c].first; i < calls[c].first + calls[c].n_rows; i++)
                memset(got + (size_t)output_of[i] * COLS, 0, COLS * sizeof *got);
        b.backend->ops->experts(b.backend, calls, n, ACT_SILU, x, n_rows, row_of, output_of, got);
        assert_memory_equal(got, want, n_floats * sizeof *got);
    }
    test_free(want);
    test_free(got);
    close_opened(&b);
}

static void test_experts_together(void **state)
{
    (void)state;
    struct joint experts[JOINT];
    struct expert_call many[JOINT], one[JOINT];
    uint32_t row_of[JOINT_LIST], first_row[JOINT_LIST] = {0}, output_of[JOINT_LIST];
    float *x = random_floats((size_t)JOINT_ROWS * COLS, 2);
    for (uint32_t i = 0; i < JOINT_LIST; i++) {
        row_of[i] = i * 11 % JOINT_ROWS; /* distinct in any 48 that follow one another */
        output_of[i] = i * 35 % JOINT_LIST * 3 / 2;
    }
    for (size_t e = 0; e < JOINT; e++)
        experts[e] = new_joint();
    for (uint32_t run = 0; run < 3 * 2 * 2; run++) {
        for (uint32_t e = 0; e < JOINT; e++) {
            const struct expert_mats mats = mats_of(&experts[e], run % 3);
            many[e] = (struct expert_call){mats, JOINT_FIRST[e], JOINT_N[e]};
            one[e] = (struct expert_call){mats, JOINT_FIRST[e], 1};
        }
        const sluice_activations activations = run / 3 % 2 ? SLUICE_ACTIVATIONS_F32 : SLUICE_ACTIVATIONS_INT8;
        const uint32_t threads = run / 6 ? 3 : 1;
        check_joint(many, activations, threads, x, JOINT_ROWS, row_of, output_of);
        check_joint(one, activations, threads, x, 1, first_row, output_of);
    }
    for (size_t e = 0; e < JOINT; e++)
        free_joint(&experts[e]);
    test_free(x);
}

static void test_rope(void **state)
{
    (void)state;
    struct opened b = open_backend(2, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    struct world w = new_world();
    /* Full, and "proportional": a few pairs, at the distance of the whole head. Both tables stay in use. */
    const struct rope ropes[] = {{DIM / 2, DIM / 2, w.inv_freq}, {7, DIM / 2, w.inv_freq}};
    const uint32_t positions[] = {0, 1, 4095, 4095, 262143, 4095};
    float *x = new_floats(ROWS * COLS);
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++)
        for (size_t kind = 0; kind < 2; kind++) {
            const struct rope *rope = &ropes[kind];
            memcpy(x, w.x, sizeof(float) * ROWS * COLS);
            b.backend->ops->rope(b.backend, x, ROWS, HEADS, DIM, rope, positions[p]);
            for (uint32_t r = 0; r < ROWS; r++)
                for (uint32_t d = 0; d < COLS; d++) {
                    const uint32_t at = r * COLS + d, i = d % DIM % rope->half;
                    if (i >= rope->pairs) {
                        assert_true(x[at] == w.x[at]);
                        continue;
                    }
                    const bool high = d % DIM >= rope->half;
                    const long double angle = (long double)((float)(positions[p] + r) * w.inv_freq[i]);
                    const double c = (double)cosl(angle), s = (double)sinl(angle);
                    const double self = (double)w.x[at];
                    const double other = (double)w.x[high ? at - rope->half : at + rope->half];
                    const double want = high ? self * c + other * s : self * c - other * s;
                    assert_close((double)x[at], want, (fabs(self) + fabs(other)) * 1.5e-7, "rope");
                }
        }
    test_free(x);
    free_world(&w);
    close_opened(&b);
}

/* ---- routing ---- */

static void test_route(void **state)
{
    (void)state;
    struct opened b = open_backend(1, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    const struct backend_ops *ops = b.backend->ops;
    const float ties[8] = {1, 3, 3, -2, 3, 1, NAN, 1};
    uint16_t ids[8];
    float weights[8];
    ops->route(b.backend, ties, 1, 8, 5, NULL, ids, weights);
    const uint16_t want[5] = {1, 2, 4, 0, 5};
    assert_memory_equal(ids, want, sizeof want);
    assert_true(weights[0] == weights[1] && weights[1] == weights[2] && weights[3] == weights[4]);
    const double sum = 3 + 2 * exp(-2);
    assert_close((double)weights[0], 1 / sum, 1e-7, "route");
    assert_close((double)weights[3], exp(-2) / sum, 1e-7, "route");
    ops->route(b.backend, ties, 1, 8, 1, NULL, ids, weights);
    assert_true(ids[0] == 1 && weights[0] == 1.0f);
    /* Not finite: ids stay distinct and in range, whatever the weights are. */
    const float broken[4] = {NAN, -INFINITY, NAN, -INFINITY};
    ops->route(b.backend, broken, 1, 4, 4, NULL, ids, weights);
    for (uint16_t j = 0; j < 4; j++)
        assert_int_equal(ids[j], j);
    assert_false(ops->finite(b.backend, weights, 4));
    struct world w = new_world();
    for (uint32_t r = 0; r < ROWS; r++) {
        const float *logits = rows_of(w.logits, r, EXPERTS);
        float scaled[TOP];
        uint16_t chosen[TOP];
        ops->route(b.backend, logits, 1, EXPERTS, TOP, &w.scale.mat, chosen, scaled);
        double total = 0;
        for (uint32_t j = 0; j < TOP; j++) {
            uint32_t better = 0; /* those that must come before it */
            for (uint32_t i = 0; i < EXPERTS; i++)
                better += logits[i] > logits[chosen[j]] || (logits[i] == logits[chosen[j]] && i < chosen[j]);
            assert_int_equal(better, j);
            total += exp((double)logits[chosen[j]]);
        }
        for (uint32_t j = 0; j < TOP; j++) {
            double weight = exp((double)logits[chosen[j]]) / total * weight_at(&w.scale.mat, 0, chosen[j]);
            assert_close((double)scaled[j], weight, 1e-6, "scaled route");
        }
    }
    free_world(&w);
    close_opened(&b);
}

static void test_finite(void **state)
{
    (void)state;
    struct opened b = open_backend(1, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    float x[37] = {FLT_MAX, -FLT_MAX, 0x1p-149f};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t n = 0; n <= 37; n++) {
        assert_true(b.backend->ops->finite(b.backend, x, n));
        for (size_t i = 0; i < n; i++) {
            float kept = x[i];
            x[i] = bad[(n + i) % 4];
            assert_false(b.backend->ops->finite(b.backend, x, n));
            x[i] = kept;
        }
    }
    close_opened(&b);
}

/* A backend that is used in place where the header allows it. */
static void test_in_place(void **state)
{
    (void)state;
    struct opened b = open_backend(2, SLUICE_ACTIVATIONS_F32, &LIMITS, NULL);
    const struct backend_ops *ops = b.backend->ops;
    struct world w = new_world();
    const size_t n = ROWS * COLS;
    float *apart = new_floats(n), *same = new_floats(n);
    ops->norm(b.backend, w.x, &w.norm.mat, ROWS, COLS, 1e-6f, apart);
    memcpy(same, w.x, n * sizeof *same);
    ops->norm(b.backend, same, &w.norm.mat, ROWS, COLS, 1e-6f, same);
    assert_memory_equal(same, apart, n * sizeof *same);
    ops->add(b.backend, w.x, apart, n, same);
    ops->add(b.backend, apart, w.x, n, apart);
    assert_memory_equal(same, apart, n * sizeof *same);
    ops->gated(b.backend, ACT_SILU, w.x, apart, n, same);
    ops->gated(b.backend, ACT_SILU, w.x, apart, n, apart);
    assert_memory_equal(same, apart, n * sizeof *same);
    test_free(apart);
    test_free(same);
    free_world(&w);
    close_opened(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_invariance),
        cmocka_unit_test(test_norm_and_elements),
        cmocka_unit_test(test_expert),
        cmocka_unit_test(test_experts_together),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_finite),
        cmocka_unit_test(test_in_place),
    };
    return cmocka_run_group_tests_name("compute", tests, NULL, NULL);
}
