#include "model/qwen.h"

#include "model/rope.h"

#include <math.h>
#include <string.h>

/* ---- bind ---- */

/* Discrete choices, decays, and as for Gemma 4 what attention reads and writes: their rounding costs the most
 * quality (docs/learned.md). The recurrence's own projections are two thirds of what a token reads, and stay
 * in the fast form. */
static const enum qwen_weight PRECISE[] = {QW_Q, QW_K, QW_V, QW_O, QW_ROUTER, QW_SHARED_GATE, QW_A, QW_B};

/* Norms that the original layout stores less 1. */
static const enum qwen_weight CENTRED[] = {QW_Q_NORM, QW_K_NORM, QW_NORM_IN, QW_NORM_POST};

static void bind_layer(struct model *m, struct qwen_layer *layer, bool original)
{
    for (size_t i = 0; i < sizeof PRECISE / sizeof *PRECISE; i++)
        if (layer->index[PRECISE[i]] != QWEN_NONE)
            m->mats[layer->index[PRECISE[i]]].precise = true;
    for (size_t i = 0; original && i < sizeof CENTRED / sizeof *CENTRED; i++)
        if (layer->index[CENTRED[i]] != QWEN_NONE)
            m->mats[layer->index[CENTRED[i]]].plus_one = true;
    for (int i = 0; i < QW_WEIGHTS; i++)
        layer->w[i] = layer->index[i] == QWEN_NONE ? NULL : &m->mats[layer->index[i]];
}

static sluice_status qwen_bind(struct model *m, sluice_error *err)
{
    struct qwen *g = (struct qwen *)m;
    const bool original = g->layout->original;
    for (uint32_t l = 0; l < m->n_layers; l++)
        bind_layer(m, &g->layers[l], original);
    m->mats[g->norm_index].plus_one = original;
    g->embed = &m->mats[g->embed_index];
    g->norm = &m->mats[g->norm_index];
    g->head = &m->mats[g->head_index];
    if (m->drafts) {
        bind_layer(m, &g->layers[m->n_layers], true);
        for (int i = 0; i < QD_WEIGHTS; i++) {
            struct mat *mat = &m->mats[g->draft_index[i]];
            mat->plus_one = i != QD_FC;
            g->draft[i] = mat;
        }
    }
    g->inv_freq = mem_calloc(g->rotated_pairs, sizeof *g->inv_freq);
    if (!g->inv_freq)
        return err_memory(err, g->rotated_pairs * sizeof *g->inv_freq, "rotary frequencies");
    for (uint32_t i = 0; i < g->rotated_pairs; i++)
        g->inv_freq[i] = rope_inv_freq(g->theta, 2 * i, 2 * g->rotated_pairs);
    return SLUICE_OK;
}

/* ---- scratch ---- */

static size_t scratch_layout(const struct qwen *g, uint32_t rows, struct qwen_scratch *s, struct arena *arena)
{
    const struct model *m = &g->base;
    const bool moe = m->n_experts > 0;
    uint32_t query = g->heads * g->head_dim, key = g->kv_heads * g->head_dim;
    uint32_t value_heads = g->delta.value_heads, value = value_heads * g->delta.value_dim;
    const struct {
        void *pointer;
        uint32_t cols;
    } parts[] = {
        {&s->h, m->hidden},
        {&s->x, m->hidden},
        {&s->qg, 2 * query},
        {&s->q, query},
        {&s->gate, query},
        {&s->k, key},
        {&s->v, key},
        {&s->u, g->conv_channels},
        {&s->c, g->conv_channels},
        {&s->z, value},
        {&s->a, value_heads},
        {&s->b, value_heads},
        {&s->o, query > value ? query : value},
        {&s->proj, m->hidden},
        {&s->inner, g->dense},
        {&s->up, g->dense},
        {&s->shared, moe ? m->hidden : 0},
        {&s->scaled, moe ? m->hidden : 0},
        {&s->share, moe},
        {&s->ones, moe},
        {&s->router, m->n_experts},
        {&s->pair, m->drafts ? 2 * m->hidden : 0},
        {&s->earlier, m->drafts ? m->hidden : 0},
        {&s->evens, g->heads},
        {&s->odds, g->heads},
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t bytes = (size_t)rows * parts[i].cols * sizeof(float);
        total += arena_cost(bytes);
        if (arena) {
            void *memory = arena_take(arena, bytes);
            memcpy(parts[i].pointer, &memory, sizeof memory);
        }
    }
    return total + (moe ? moe_bytes(rows, m->hidden, m->n_experts, m->top_k) : 0);
}

static size_t qwen_scratch_bytes(const struct model *m, uint32_t rows)
{
    struct qwen_scratch unused;
    return arena_cost(sizeof unused) + scratch_layout(qwen_of(m), rows, &unused, NULL);
}

static void *qwen_scratch_open(const struct model *m, uint32_t rows, struct arena *arena)
{
    const struct qwen *g = qwen_of(m);
    struct qwen_scratch *s = arena_take(arena, sizeof *s);
    (void)scratch_layout(g, rows, s, arena);
    for (uint32_t i = 0; i < rows * g->heads; i++) {
        s->evens[i] = 2 * i;
        s->odds[i] = 2 * i + 1;
    }
    for (uint32_t r = 0; m->n_experts && r < rows; r++)
        s->ones[r] = 1.0f;
    if (m->n_experts)
        moe_open(&s->moe, rows, m->hidden, m->n_experts, m->top_k, arena);
    return s;
}

/* ---- token mixing ---- */

void qwen_attend(const struct qwen *g, struct forward *f, struct qwen_scratch *s,
                 const struct qwen_layer *layer, uint32_t kv)
{
    const struct backend_ops *ops = f->backend->ops;
    struct backend *be = f->backend;
    const uint32_t n = f->n_rows, hidden = g->base.hidden, hd = g->head_dim, query = g->heads * hd;
    const int32_t l = (int32_t)kv;

    phase_enter(f->clock, PHASE_PROJECTIONS);
    ops->norm(be, s->h, layer->w[QW_NORM_IN], n, hidden, g->eps, s->x);
    const struct mat *mats[] = {layer->w[QW_Q], layer->w[QW_K], layer->w[QW_V]};
    float *ys[] = {s->qg, s->k, s->v};
    ops->linear(be, mats, 3, s->x, n, ys);
    ops->gather(be, s->qg, s->evens, n * g->heads, hd, s->q);
    ops->gather(be, s->qg, s->odds, n * g->heads, hd, s->gate);

    ops->norm(be, s->q, layer->w[QW_Q_NORM], n * g->heads, hd, g->eps, s->q);
    ops->norm(be, s->k, layer->w[QW_K_NORM], n * g->kv_heads, hd, g->eps, s->k);
    const struct rope rope = {g->rotated_pairs, g->rotated_pairs, g->inv_freq};
    ops->rope(be, s->q, n, g->heads, hd, &rope, f->position0);
    ops->rope(be, s->k, n, g->kv_heads, hd, &rope, f->position0);
    trace_f32(f, l, "attention.q", s->q, n, query);
    trace_f32(f, l, "attention.k", s->k, n, g->kv_heads * hd);
    trace_f32(f, l, "attention.v", s->v, n, g->kv_heads * hd);

    phase_enter(f->clock, PHASE_ATTENTION);
    const struct kv_view *view = &f->kv->views[kv];
    ops->kv_store(be, view, s->k, s->v, n, f->position0);
    const struct attention attention = {.heads = g->heads, .scale = 1.0f / sqrtf((float)hd)};
    ops->attention(be, &attention, view, s->q, n, f->position0, s->o);
    ops->gated(be, ACT_SIGMOID, s->gate, s->o, (size_t)n * query, s->o);
    trace_f32(f, l, "attention.out", s->o, n, query);

    phase_enter(f->clock, PHASE_PROJECTIONS);
    ops->linear(be, &layer->w[QW_O], 1, s->o, n, &s->proj);
    ops->add(be, s->h, s->proj, (size_t)n * hidden, s->h);
    trace_f32(f, l, "attention.residual", s->h, n, hidden);
}

/* The part of a DeltaNet layer that has a state: rows [from, to) of u, a and b through `view`, outputs to
 * s->o. */
static void recur(const struct qwen *g, struct forward *f, struct qwen_scratch *s,
                  const struct qwen_layer *layer, const struct recurrent_view *view, uint32_t from,
                  uint32_t to)
{
    const struct backend_ops *ops = f->backend->ops;
    const size_t heads = g->delta.value_heads, channels = g->conv_channels;
    float *c = s->c + from * channels;
    if (from == to)
        return;
    ops->short_conv(f->backend, layer->w[QW_CONV], view->tail, s->u + from * channels, to - from, c);
    ops->delta_rule(f->backend, &g->delta, c, s->a + from * heads, s->b + from * heads, layer->w[QW_A_LOG],
                    layer->w[QW_DT_BIAS], to - from, view->state, s->o + from * heads * g->delta.value_dim);
}

/* One row of the log: u, a, b. */
static void log_rows(const struct qwen *g, const struct forward *f, const struct qwen_scratch *s, float *log)
{
    const uint32_t heads = g->delta.value_heads, channels = g->conv_channels;
    for (uint32_t r = 0; r < f->n_rows; r++, log += channels + 2 * heads) {
        memcpy(log, s->u + (size_t)r * channels, channels * sizeof *log);
        memcpy(log + channels, s->a + (size_t)r * heads, heads * sizeof *log);
        memcpy(log + channels + heads, s->b + (size_t)r * heads, heads * sizeof *log);
    }
}

static void unlog_rows(const struct qwen *g, const struct forward *f, struct qwen_scratch *s,
                       const float *log)
{
    const uint32_t heads = g->delta.value_heads, channels = g->conv_channels;
    for (uint32_t r = 0; r < f->n_rows; r++, log += channels + 2 * heads) {
        memcpy(s->u + (size_t)r * channels, log, channels * sizeof *log);
        memcpy(s->a + (size_t)r * heads, log + channels, heads * sizeof *log);
        memcpy(s->b + (size_t)r * heads, log + channels + heads, heads * sizeof *log);
    }
}

/* h += out(gated_norm(recurrence(norm(h)))) */
static void delta(const struct qwen *g, struct forward *f, struct qwen_scratch *s, uint32_t l)
{
    const struct qwen_layer *layer = &g->layers[l];
    const struct backend_ops *ops = f->backend->ops;
    struct backend *be = f->backend;
    const uint32_t n = f->n_rows, hidden = g->base.hidden, heads = g->delta.value_heads;

    phase_enter(f->clock, PHASE_PROJECTIONS);
    ops->norm(be, s->h, layer->w[QW_NORM_IN], n, hidden, g->eps, s->x);
    const struct mat *mats[] = {layer->w[QW_QKV], layer->w[QW_Z], layer->w[QW_A], layer->w[QW_B]};
    float *ys[] = {s->u, s->z, s->a, s->b};
    ops->linear(be, mats, 4, s->x, n, ys);
    trace_f32(f, (int32_t)l, "delta.in", s->u, n, g->conv_channels);
    trace_f32(f, (int32_t)l, "delta.a", s->a, n, heads);
    trace_f32(f, (int32_t)l, "delta.b", s->b, n, heads);

    phase_enter(f->clock, PHASE_ATTENTION);
    const struct recurrent_view view = recurrent_begin(f->recurrent, l, f->trial);
    if (f->trial)
        log_rows(g, f, s, view.log);
    recur(g, f, s, layer, &view, 0, f->mark);
    if (f->mark)
        recurrent_mark(f->recurrent, l);
    recur(g, f, s, layer, &view, f->mark, n);
    trace_f32(f, (int32_t)l, "delta.out", s->o, n, heads * g->delta.value_dim);

    phase_enter(f->clock, PHASE_PROJECTIONS);
    ops->gated_norm(be, s->o, layer->w[QW_DELTA_NORM], s->z, n * heads, g->delta.value_dim, g->eps, s->o);
    ops->linear(be, &layer->w[QW_OUT], 1, s->o, n, &s->proj);
    ops->add(be, s->h, s->proj, (size_t)n * hidden, s->h);
    trace_f32(f, (int32_t)l, "attention.residual", s->h, n, hidden);
}

/* ---- feed-forward ---- */

/* out = down(silu(gate x) * up x) of the dense part or the shared expert. */
static void dense_part(const struct qwen *g, struct forward *f, struct qwen_scratch *s,
                       const struct qwen_layer *layer, float *out)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct mat *mats[] = {layer->w[QW_GATE], layer->w[QW_UP]};
    float *ys[] = {s->inner, s->up};
    ops->linear(f->backend, mats, 2, s->x, f->n_rows, ys);
    ops->gated(f->backend, ACT_SILU, s->inner, s->up, (size_t)f->n_rows * g->dense, s->inner);
    ops->linear(f->backend, &layer->w[QW_DOWN], 1, s->inner, f->n_rows, &out);
}

void qwen_dense(const struct qwen *g, struct forward *f, struct qwen_scratch *s,
                const struct qwen_layer *layer)
{
    const struct backend_ops *ops = f->backend->ops;
    const uint32_t n = f->n_rows, hidden = g->base.hidden;
    phase_enter(f->clock, PHASE_DENSE);
    ops->norm(f->backend, s->h, layer->w[QW_NORM_POST], n, hidden, g->eps, s->x);
    dense_part(g, f, s, layer, s->proj);
    ops->add(f->backend, s->h, s->proj, (size_t)n * hidden, s->h);
    phase_enter(f->clock, PHASE_OTHER);
}

static void route(const struct qwen *g, struct forward *f, struct qwen_scratch *s, uint32_t l)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct model *m = &g->base;
    const uint32_t n = f->n_rows;
    ops->linear(f->backend, &g->layers[l].w[QW_ROUTER], 1, s->x, n, &s->router);
    ops->route(f->backend, s->router, n, m->n_experts, m->top_k, NULL, s->moe.ids, s->moe.weights);
    trace_f32(f, (int32_t)l, "router.logits", s->router, n, m->n_experts);
    trace_u16(f, (int32_t)l, "router.ids", s->moe.ids, n, m->top_k);
    trace_f32(f, (int32_t)l, "router.weights", s->moe.weights, n, m->top_k);
}

/* The next layer's router on this layer's stream, which lacks only this layer's feed-forward and the next
 * layer's mixing. proj is free until moe_finish(), and x is not. */
static uint32_t qwen_guess(const struct model *m, struct forward *f, uint32_t l, uint32_t n, uint16_t *ids)
{
    const struct qwen *g = qwen_of(m);
    const struct backend_ops *ops = f->backend->ops;
    struct qwen_scratch *s = f->scratch;
    float weights[MOE_GUESSES_MAX];
    ops->norm(f->backend, s->h, g->layers[l].w[QW_NORM_POST], 1, m->hidden, g->eps, s->proj);
    ops->linear(f->backend, &g->layers[l].w[QW_ROUTER], 1, s->proj, 1, &s->router);
    ops->route(f->backend, s->router, 1, m->n_experts, n, NULL, ids, weights);
    return n;
}

/* scaled = sigmoid(share(x)) * shared(x) */
static void shared_part(const struct qwen *g, struct forward *f, struct qwen_scratch *s, uint32_t l)
{
    const struct qwen_layer *layer = &g->layers[l];
    const struct backend_ops *ops = f->backend->ops;
    const uint32_t n = f->n_rows, hidden = g->base.hidden;
    dense_part(g, f, s, layer, s->shared);
    ops->linear(f->backend, &layer->w[QW_SHARED_GATE], 1, s->x, n, &s->share);
    ops->gated(f->backend, ACT_SIGMOID, s->share, s->ones, n, s->share);
    ops->weighted_sum(f->backend, s->shared, s->share, n, 1, hidden, s->scaled);
    trace_f32(f, (int32_t)l, "shared.out", s->scaled, n, hidden);
}

static sluice_status mixture(const struct qwen *g, struct forward *f, struct qwen_scratch *s, uint32_t l,
                             sluice_error *err)
{
    const struct backend_ops *ops = f->backend->ops;
    const uint32_t n = f->n_rows, hidden = g->base.hidden;
    const size_t values = (size_t)n * hidden;
    phase_enter(f->clock, PHASE_ROUTER);
    ops->norm(f->backend, s->h, g->layers[l].w[QW_NORM_POST], n, hidden, g->eps, s->x);
    route(g, f, s, l);
    TRY(moe_begin(&s->moe, f, l, err));
    phase_enter(f->clock, PHASE_DENSE);
    shared_part(g, f, s, l);
    phase_enter(f->clock, PHASE_EXPERTS);
    TRY(moe_finish(&s->moe, f, l, ACT_SILU, s->x, s->proj, err));
    phase_enter(f->clock, PHASE_OTHER);
    trace_f32(f, (int32_t)l, "routed.out", s->proj, n, hidden);
    ops->add(f->backend, s->proj, s->scaled, values, s->proj);
    ops->add(f->backend, s->h, s->proj, values, s->h);
    return SLUICE_OK;
}

/* ---- forward ---- */

static sluice_status qwen_forward(const struct model *m, struct forward *f, sluice_error *err)
{
    const struct qwen *g = qwen_of(m);
    struct qwen_scratch *s = f->scratch;
    const struct backend_ops *ops = f->backend->ops;
    ops->embed(f->backend, g->embed, f->ids, f->n_rows, 1.0f, s->h);
    trace_f32(f, -1, "embedding", s->h, f->n_rows, m->hidden);
    for (uint32_t l = 0; l < m->n_layers; l++) {
        if (f->cancel && atomic_load(f->cancel))
            return err_set(err, SLUICE_E_CANCELLED, "cancelled");
        if (g->layers[l].full)
            qwen_attend(g, f, s, &g->layers[l], l);
        else
            delta(g, f, s, l);
        if (m->n_experts)
            TRY(mixture(g, f, s, l, err));
        else
            qwen_dense(g, f, s, &g->layers[l]);
        trace_f32(f, (int32_t)l, "out", s->h, f->n_rows, m->hidden);
    }
    if (f->mode == LOGITS_NONE && !f->drafting)
        return SLUICE_OK;
    phase_enter(f->clock, PHASE_HEAD);
    ops->norm(f->backend, s->h, g->norm, f->n_rows, m->hidden, g->eps, s->x);
    TRY(forward_logits(m, f, g->head, 0, s->x, err));
    if (f->drafting)
        qwen_draft_follow(g, f, s);
    return SLUICE_OK;
}

/* The rows that count go through the states again, from what the trial logged. */
static void qwen_settle(const struct model *m, struct forward *f)
{
    const struct qwen *g = qwen_of(m);
    struct qwen_scratch *s = f->scratch;
    for (uint32_t l = 0; l < m->n_layers; l++) {
        if (g->layers[l].full)
            continue;
        const struct recurrent_view view = recurrent_begin(f->recurrent, l, false);
        unlog_rows(g, f, s, view.log);
        recur(g, f, s, &g->layers[l], &view, 0, f->n_rows);
    }
    if (f->drafting)
        qwen_draft_settle(g, f);
}

/* ---- the families ---- */

static sluice_status qwen36_open(const json_t *config, struct model **model, sluice_error *err)
{
    return qwen_open(&QWEN36, config, model, err);
}

static sluice_status qwen38_open(const json_t *config, struct model **model, sluice_error *err)
{
    return qwen_open(&QWEN38, config, model, err);
}

static const char *const QWEN36_TYPES[] = {"qwen3_5_moe", "qwen3_5_moe_text", NULL};
static const char *const QWEN38_TYPES[] = {"qwen3_5", "qwen3_5_text", NULL};
static const char *const SKIP[] = {"vision_tower.", "model.visual.", "mtp.", NULL};
/* The rest of the names is a matter of the layout. */
static const struct tensor_alias ALIASES[] = {
    {"mlp.switch_mlp.gate_proj.weight", "mlp.experts.gate_up_proj", 1},
    {"mlp.switch_mlp.up_proj.weight", "mlp.experts.gate_up_proj", 2},
    {"mlp.switch_mlp.down_proj.weight", "mlp.experts.down_proj", 0},
    {NULL, NULL, 0},
};
static const char *const KEEP_8_BITS[] = {"mlp.gate.", "mlp.shared_expert_gate.", NULL};
static const char *const STOPS[] = {"<|im_end|>", "<|endoftext|>", NULL};

#define QWEN_FAMILY                                                                                          \
    .skip = SKIP, .aliases = ALIASES, .keep_8_bits = KEEP_8_BITS, .stop_spellings = STOPS,                   \
    .close = qwen_close, .arrange = qwen_arrange, .describe = qwen_describe, .bind = qwen_bind,              \
    .scratch_bytes = qwen_scratch_bytes, .scratch_open = qwen_scratch_open, .forward = qwen_forward,         \
    .settle = qwen_settle

const struct family QWEN36 = {
    .name = "qwen36",
    .full_size = &QWEN36_FULL_SIZE,
    .model_types = QWEN36_TYPES,
    .open = qwen36_open,
    .guess = qwen_guess,
    QWEN_FAMILY,
};

const struct family QWEN38 = {
    .name = "qwen38",
    .full_size = &QWEN38_FULL_SIZE,
    .model_types = QWEN38_TYPES,
    .open = qwen38_open,
    .extra_file = "mtp.safetensors",
    .extra_prefix = "mtp.",
    .draft = qwen_draft,
    QWEN_FAMILY,
};
