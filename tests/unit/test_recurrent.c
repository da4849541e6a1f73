/* The gated delta rule, the short convolution and the gated norm: against plain double arithmetic, and row by
 * row against all at once; and the state that a session keeps of them (model/recurrent.h). */
#include "compute_fixture.h"

#include "model/recurrent.h"

enum { KEY_HEADS = 2, VALUE_HEADS = 6, KEY_DIM = 32, VALUE_DIM = 20, TAPS = 4, ROWS = 23 };
enum { KEYS = KEY_HEADS * KEY_DIM, VALUES = VALUE_HEADS * VALUE_DIM, CHANNELS = 2 * KEYS + VALUES };
enum { STATE = VALUE_HEADS * VALUE_DIM * KEY_DIM };

static const struct delta_shape SHAPE = {KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM};
static const struct backend_limits LIMITS = {.rows = ROWS,
                                             .cols = VALUES,
                                             .inner = VALUES,
                                             .context = 64,
                                             .heads = 1,
                                             .head_dim = 64,
                                             .conv_values = CHANNELS * TAPS};

struct world {
    struct stored conv, a_log, dt_bias, norm;
    float *u, *a, *b, *z;
};

/* What comes out of a run over all rows: convolution, recurrence, gated norm, and the state at the end. */
struct result {
    float c[ROWS * CHANNELS], y[ROWS * VALUES], normed[ROWS * VALUES], state[STATE],
        tail[(TAPS - 1) * CHANNELS];
};

static struct world g_world;

static int make_world(void **state)
{
    (void)state;
    g_world = (struct world){
        .conv = random_dense(CHANNELS, TAPS, DTYPE_BF16),
        .a_log = random_dense(1, VALUE_HEADS, DTYPE_F32),
        .dt_bias = random_dense(1, VALUE_HEADS, DTYPE_BF16),
        .norm = random_dense(1, VALUE_DIM, DTYPE_F16),
        .u = random_floats(ROWS * CHANNELS, 2),
        .a = random_floats(ROWS * VALUE_HEADS, 4),
        .b = random_floats(ROWS * VALUE_HEADS, 4),
        .z = random_floats(ROWS * VALUES, 3),
    };
    g_world.a[0] = 95.0f; /* softplus(x) = x; its exponential overflows */
    g_world.a[1] = -95.0f;
    return 0;
}

static int free_world(void **state)
{
    (void)state;
    free_stored(&g_world.conv);
    free_stored(&g_world.a_log);
    free_stored(&g_world.dt_bias);
    free_stored(&g_world.norm);
    test_free(g_world.u);
    test_free(g_world.a);
    test_free(g_world.b);
    test_free(g_world.z);
    return 0;
}

static struct result *run(const struct cpu_kernels *kernels, uint32_t threads, uint32_t chunk)
{
    struct opened b = open_backend(threads, SLUICE_ACTIVATIONS_F32, &LIMITS, kernels);
    const struct backend_ops *ops = b.backend->ops;
    struct result *r = test_calloc(1, sizeof *r);
    float *c = new_floats(ROWS * CHANNELS), *gates = new_floats(2 * ROWS * VALUE_HEADS);
    for (uint32_t at = 0; at < ROWS; at += chunk) {
        const uint32_t n = ROWS - at < chunk ? ROWS - at : chunk;
        float *a = gates, *beta = gates + (size_t)n * VALUE_HEADS;
        ops->short_conv(b.backend, &g_world.conv.mat, r->tail, g_world.u + (size_t)at * CHANNELS, n,
                        r->c + (size_t)at * CHANNELS);
        memcpy(c, r->c + (size_t)at * CHANNELS, n * CHANNELS * sizeof *c);
        memcpy(a, g_world.a + (size_t)at * VALUE_HEADS, n * VALUE_HEADS * sizeof *a);
        memcpy(beta, g_world.b + (size_t)at * VALUE_HEADS, n * VALUE_HEADS * sizeof *beta);
        ops->delta_rule(b.backend, &SHAPE, c, a, beta, &g_world.a_log.mat, &g_world.dt_bias.mat, n, r->state,
                        r->y + (size_t)at * VALUES);
        ops->gated_norm(b.backend, r->y + (size_t)at * VALUES, &g_world.norm.mat,
                        g_world.z + (size_t)at * VALUES, n * VALUE_HEADS, VALUE_DIM, 1e-6f,
                        r->normed + (size_t)at * VALUES);
    }
    test_free(c);
    test_free(gates);
    close_opened(&b);
    return r;
}

/* ---- against double ---- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void check_conv(const struct result *r)
{
    for (int row = 0; row < ROWS; row++)
        for (uint32_t c = 0; c < CHANNELS; c++) {
            double sum = 0;
            for (int j = 0; j < TAPS; j++)
                if (row - (TAPS - 1) + j >= 0)
                    sum += weight_at(&g_world.conv.mat, c, (uint32_t)j) *
                           (double)g_world.u[(size_t)(row - (TAPS - 1) + j) * CHANNELS + c];
            assert_close((double)r->c[(size_t)row * CHANNELS + c], silu(sum), 2e-6, "convolution");
        }
}

static void unit(const float *x, double scale, double *out)
{
    double sum = 1e-6;
    for (int i = 0; i < KEY_DIM; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < KEY_DIM; i++)
        out[i] = (double)x[i] / sqrt(sum) * scale;
}

static void check_norm(const struct result *r, size_t at)
{
    double mean = 0;
    for (uint32_t i = 0; i < VALUE_DIM; i++)
        mean += (double)r->y[at + i] * (double)r->y[at + i] / VALUE_DIM;
    for (uint32_t i = 0; i < VALUE_DIM; i++) {
        double want = (double)r->y[at + i] / sqrt(mean + 1e-6) * weight_at(&g_world.norm.mat, 0, i) *
                      silu((double)g_world.z[at + i]);
        assert_close((double)r->normed[at + i], want, 1e-5, "gated norm");
    }
}

static void check_head(const struct result *r, uint32_t head)
{
    static double s[VALUE_DIM][KEY_DIM];
    const uint32_t key_head = head / (VALUE_HEADS / KEY_HEADS);
    memset(s, 0, sizeof s);
    for (uint32_t row = 0; row < ROWS; row++) {
        const float *c = r->c + (size_t)row * CHANNELS;
        double q[KEY_DIM], k[KEY_DIM];
        unit(c + key_head * KEY_DIM, 1 / sqrt(KEY_DIM), q);
        unit(c + KEYS + key_head * KEY_DIM, 1, k);
        double a = (double)g_world.a[row * VALUE_HEADS + head] + weight_at(&g_world.dt_bias.mat, 0, head);
        double decay = exp(-exp(weight_at(&g_world.a_log.mat, 0, head)) * (a > 40 ? a : log1p(exp(a))));
        double beta = 1 / (1 + exp(-(double)g_world.b[row * VALUE_HEADS + head]));
        for (uint32_t o = 0; o < VALUE_DIM; o++) {
            double read = 0, out = 0;
            for (int i = 0; i < KEY_DIM; i++) {
                s[o][i] *= decay;
                read += s[o][i] * k[i];
            }
            const double v = (double)c[2 * KEYS + head * VALUE_DIM + o];
            for (int i = 0; i < KEY_DIM; i++) {
                s[o][i] += beta * (v - read) * k[i];
                out += s[o][i] * q[i];
            }
            assert_close((double)r->y[(size_t)row * VALUES + head * VALUE_DIM + o], out, 5e-6, "output");
        }
        check_norm(r, (size_t)row * VALUES + (size_t)head * VALUE_DIM);
    }
    for (uint32_t o = 0; o < VALUE_DIM; o++)
        for (uint32_t i = 0; i < KEY_DIM; i++)
            assert_close((double)r->state[((size_t)head * VALUE_DIM + o) * KEY_DIM + i], s[o][i], 5e-6,
                         "state");
}

static void the_equations_hold(void **state)
{
    (void)state;
    struct result *r = run(NULL, 2, ROWS);
    check_conv(r);
    for (uint32_t h = 0; h < VALUE_HEADS; h++)
        check_head(r, h);
    for (uint32_t j = 0; j < TAPS - 1; j++)
        assert_memory_equal(r->tail + (size_t)j * CHANNELS,
                            g_world.u + (size_t)(ROWS - (TAPS - 1) + (int)j) * CHANNELS,
                            CHANNELS * sizeof(float));
    test_free(r);
}

/* ---- bits ---- */

static void chunks_threads_and_instruction_sets_give_the_same_bits(void **state)
{
    (void)state;
    struct cpu_kernels kernels;
    cpu_fill_ref(&kernels);
    struct result *want = run(&kernels, 1, ROWS);
    static const uint32_t CHUNKS[] = {1, 2, 3, 7, ROWS};
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++) {
        if (!CPU_ISAS[i].usable())
            continue;
        CPU_ISAS[i].fill(&kernels);
        for (size_t c = 0; c < sizeof CHUNKS / sizeof *CHUNKS; c++) {
            struct result *got = run(&kernels, 1 + (uint32_t)(c % 3), CHUNKS[c]);
            const struct {
                const char *what;
                const float *got, *want;
                size_t n;
            } PARTS[] = {{"convolution", got->c, want->c, sizeof got->c},
                         {"output", got->y, want->y, sizeof got->y},
                         {"gated norm", got->normed, want->normed, sizeof got->normed},
                         {"state", got->state, want->state, sizeof got->state},
                         {"tail", got->tail, want->tail, sizeof got->tail}};
            for (size_t p = 0; p < sizeof PARTS / sizeof *PARTS; p++)
                if (memcmp(PARTS[p].got, PARTS[p].want, PARTS[p].n) != 0)
                    fail_msg("%s in chunks of %u: %s differs from the reference in one chunk",
                             CPU_ISAS[i].name, CHUNKS[c], PARTS[p].what);
            test_free(got);
        }
    }
    test_free(want);
}

/* ---- the session's state ---- */

static const struct recurrent_shape SHAPES[] = {{12, 3, 5, 9}, {0, 0, 0, 0}, {0, 1, 7, 7}};
enum { LAYERS = 3, FLOATS = 12 + 3 * 5 + 7 };

struct fixture {
    struct arena arena;
    struct recurrent r;
};

static void open_fixture(struct fixture *f, uint32_t log_rows)
{
    size_t bytes = recurrent_bytes(SHAPES, LAYERS, log_rows);
    assert_int_equal(arena_open(&f->arena, NULL, bytes, "test", NULL), SLUICE_OK);
    recurrent_open(&f->r, SHAPES, LAYERS, log_rows, &f->arena);
    assert_int_equal(f->arena.used_bytes, bytes); /* planned to the byte */
    assert_int_equal(f->r.n_values, FLOATS);
}

/* As if `position` tokens had gone through. */
static void pretend(struct recurrent *r, uint32_t position)
{
    for (size_t i = 0; i < FLOATS; i++)
        r->values[i] = (float)(1000 * position + i);
    r->position = position;
}

/* As the session does it, layer by layer. */
static void mark(struct recurrent *r)
{
    for (uint32_t l = 0; l < LAYERS; l++)
        recurrent_mark(r, l);
    r->checkpoint_at = r->position;
}

static void expect(const struct recurrent *r, uint32_t position)
{
    assert_int_equal(r->position, position);
    for (size_t i = 0; i < FLOATS; i++)
        assert_true(r->values[i] == (position ? (float)(1000 * position + i) : 0.0f));
}

static void going_back_finds_the_latest_copy(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0);
    expect(&f.r, 0);
    pretend(&f.r, 10);
    mark(&f.r);
    pretend(&f.r, 20);
    assert_int_equal(recurrent_rewind(&f.r, 20), 20);
    expect(&f.r, 20);
    assert_int_equal(recurrent_rewind(&f.r, 15), 10);
    expect(&f.r, 10);
    pretend(&f.r, 20);
    assert_int_equal(recurrent_recover(&f.r), 10);
    assert_int_equal(recurrent_rewind(&f.r, 9), 0); /* what the checkpoint saw is gone */
    expect(&f.r, 0);
    pretend(&f.r, 12);
    assert_int_equal(recurrent_recover(&f.r), 0);
    expect(&f.r, 0);
    arena_close(&f.arena);
}

static void snapshots_hold_every_byte(void **state)
{
    (void)state;
    struct fixture f, other;
    open_fixture(&f, 0);
    open_fixture(&other, 0);
    pretend(&f.r, 7);
    void *bytes = test_malloc(recurrent_snapshot_bytes(&f.r));
    recurrent_save(&f.r, bytes);
    pretend(&other.r, 3);
    mark(&other.r);
    recurrent_restore(&other.r, bytes);
    expect(&other.r, 7);
    assert_int_equal(recurrent_rewind(&other.r, 5), 0); /* its checkpoint was of another timeline */
    test_free(bytes);
    arena_close(&f.arena);
    arena_close(&other.arena);
}

static void a_trial_leaves_the_state_alone(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 4);
    pretend(&f.r, 2);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct recurrent_shape *shape = &SHAPES[l];
        struct recurrent_view real = recurrent_begin(&f.r, l, false), trial = recurrent_begin(&f.r, l, true);
        const size_t tail = (size_t)shape->tail_rows * shape->channels;
        assert_memory_equal(trial.state, real.state, shape->state_values * sizeof(float));
        assert_memory_equal(trial.tail, real.tail, tail * sizeof(float));
        memset(trial.state, 0xff, shape->state_values * sizeof(float));
        memset(trial.tail, 0xff, tail * sizeof(float));
        memset(trial.log, 0xff, 4 * (size_t)shape->log_values * sizeof(float));
    }
    expect(&f.r, 2);
    arena_close(&f.arena);
}

static void no_layers_cost_nothing(void **state)
{
    (void)state;
    struct recurrent r;
    assert_int_equal(recurrent_bytes(NULL, 0, 8), 0);
    recurrent_open(&r, NULL, 0, 8, NULL);
    assert_int_equal(recurrent_snapshot_bytes(&r), 0);
    recurrent_save(&r, NULL);
    recurrent_restore(&r, NULL);
    assert_int_equal(recurrent_rewind(&r, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_equations_hold),
        cmocka_unit_test(chunks_threads_and_instruction_sets_give_the_same_bits),
        cmocka_unit_test(going_back_finds_the_latest_copy),
        cmocka_unit_test(snapshots_hold_every_byte),
        cmocka_unit_test(a_trial_leaves_the_state_alone),
        cmocka_unit_test(no_layers_cost_nothing),
    };
    return cmocka_run_group_tests_name("recurrent", tests, make_world, free_world);
}
