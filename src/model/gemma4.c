#include "model/gemma4.h"

#include "compute/mat.h"
#include "model/config.h"
#include "model/rope.h"

#include <math.h>
#include <string.h>

/* ---- tensors ---- */

/* Dimensions that a layer's tensors have. */
enum dim { DIM_NONE, DIM_ONE, DIM_HIDDEN, DIM_QUERY, DIM_KEY, DIM_HEAD, DIM_DENSE, DIM_EXPERTS, DIM_EXPERT };

/* Resident tensors of a layer, in the order of the resident index (format b1). */
enum weight {
    W_Q,
    W_K,
    W_V,
    W_O,
    W_Q_NORM,
    W_K_NORM,
    W_ROUTER,
    W_ROUTER_SCALE,
    W_EXPERT_SCALE,
    W_GATE,
    W_UP,
    W_DOWN,
    W_NORM_IN,
    W_NORM_ATTENTION,
    W_NORM_DENSE_IN,
    W_NORM_ROUTED_IN,
    W_NORM_OUT,
    W_NORM_DENSE_OUT,
    W_NORM_ROUTED_OUT,
    W_LAYER_SCALAR,
    WEIGHTS
};

/* `module` names a module whose weight may be quantized (name + ".weight"); vectors are never quantized and
 * carry their full name. */
static const struct weight_row {
    const char *name;
    bool module;
    enum dim rows, cols;
} WEIGHT_ROWS[WEIGHTS] = {
    [W_Q] = {"self_attn.q_proj", true, DIM_QUERY, DIM_HIDDEN},
    [W_K] = {"self_attn.k_proj", true, DIM_KEY, DIM_HIDDEN},
    [W_V] = {"self_attn.v_proj", true, DIM_KEY, DIM_HIDDEN},
    [W_O] = {"self_attn.o_proj", true, DIM_HIDDEN, DIM_QUERY},
    [W_Q_NORM] = {"self_attn.q_norm.weight", false, DIM_NONE, DIM_HEAD},
    [W_K_NORM] = {"self_attn.k_norm.weight", false, DIM_NONE, DIM_HEAD},
    [W_ROUTER] = {"router.proj", true, DIM_EXPERTS, DIM_HIDDEN},
    [W_ROUTER_SCALE] = {"router.scale", false, DIM_NONE, DIM_HIDDEN},
    [W_EXPERT_SCALE] = {"router.per_expert_scale", false, DIM_NONE, DIM_EXPERTS},
    [W_GATE] = {"mlp.gate_proj", true, DIM_DENSE, DIM_HIDDEN},
    [W_UP] = {"mlp.up_proj", true, DIM_DENSE, DIM_HIDDEN},
    [W_DOWN] = {"mlp.down_proj", true, DIM_HIDDEN, DIM_DENSE},
    [W_NORM_IN] = {"input_layernorm.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_NORM_ATTENTION] = {"post_attention_layernorm.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_NORM_DENSE_IN] = {"pre_feedforward_layernorm.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_NORM_ROUTED_IN] = {"pre_feedforward_layernorm_2.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_NORM_OUT] = {"post_feedforward_layernorm.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_NORM_DENSE_OUT] = {"post_feedforward_layernorm_1.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_NORM_ROUTED_OUT] = {"post_feedforward_layernorm_2.weight", false, DIM_NONE, DIM_HIDDEN},
    [W_LAYER_SCALAR] = {"layer_scalar", false, DIM_NONE, DIM_ONE},
};

static const struct {
    const char *name;
    enum tensor_role role;
    enum dim rows, cols;
} EXPERT_ROWS[] = {
    {"gate_proj", ROLE_EXPERT_GATE, DIM_EXPERT, DIM_HIDDEN},
    {"up_proj", ROLE_EXPERT_UP, DIM_EXPERT, DIM_HIDDEN},
    {"down_proj", ROLE_EXPERT_DOWN, DIM_HIDDEN, DIM_EXPERT},
};

#define PREFIX "language_model.model."

/* ---- the model ---- */

struct attention_kind { /* sliding or full */
    uint32_t kv_heads, head_dim, rotated_pairs, window;
    double theta;
    float *inv_freq; /* [rotated_pairs] */
};

struct layer {
    bool full;
    size_t index[WEIGHTS]; /* into mats; NONE when absent */
    const struct mat *w[WEIGHTS];
    float scalar;
};

#define NONE SIZE_MAX

struct gemma4 {
    struct model base;
    struct attention_kind sliding, full;
    uint32_t heads, dense, expert;
    float eps, softcap;
    bool k_eq_v; /* full layers use the raw keys as values */
    double partial_rotary;
    struct storage_map storage;
    struct storage described[5]; /* embedding, attention, router, dense, experts: for the manifest */
    struct layer *layers;
    size_t embed_index, norm_index;
    const struct mat *embed, *norm;
};

static const struct gemma4 *gemma4_of(const struct model *model)
{
    return (const struct gemma4 *)model; /* base is the first member */
}

static const struct attention_kind *kind_of(const struct gemma4 *g, uint32_t layer)
{
    return g->layers[layer].full ? &g->full : &g->sliding;
}

static uint32_t dim_of(const struct gemma4 *g, uint32_t layer, enum dim dim)
{
    const struct attention_kind *kind = kind_of(g, layer);
    switch (dim) {
    case DIM_NONE:
    case DIM_ONE:
        return 1;
    case DIM_HIDDEN:
        return g->base.hidden;
    case DIM_QUERY:
        return g->heads * kind->head_dim;
    case DIM_KEY:
        return kind->kv_heads * kind->head_dim;
    case DIM_HEAD:
        return kind->head_dim;
    case DIM_DENSE:
        return g->dense;
    case DIM_EXPERTS:
        return g->base.n_experts;
    case DIM_EXPERT:
        return g->expert;
    }
    return 0;
}

/* ---- config.json ---- */

enum { LAYERS_MAX = 512, WIDTH_MAX = 1 << 20, EXPERTS_MAX = 4096 };

static const char WHERE[] = "config.json text_config";

/* Features of the architecture that this graph does not have. */
static sluice_status refuse_unknown(const json_t *text, sluice_error *err)
{
    static const struct {
        const char *key;
        enum { ZERO, NO, YES } only;
    } ROWS[] = {
        {"hidden_size_per_layer_input", ZERO}, {"num_kv_shared_layers", ZERO}, {"attention_bias", NO},
        {"use_double_wide_mlp", NO},           {"enable_moe_block", YES},      {"tie_word_embeddings", YES},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (ROWS[i].only == ZERO)
            TRY(config_only_u64(text, ROWS[i].key, 0, err));
        else
            TRY(config_only_bool(text, ROWS[i].key, ROWS[i].only == YES, err));
    }
    return config_only_string(text, "hidden_activation", "gelu_pytorch_tanh", err);
}

static sluice_status read_rope(const json_t *text, struct gemma4 *g, sluice_error *err)
{
    json_t *rope, *sliding, *full;
    TRY(json_need_object(text, "rope_parameters", &rope, WHERE, err));
    TRY(json_need_object(rope, "sliding_attention", &sliding, WHERE, err));
    TRY(json_need_object(rope, "full_attention", &full, WHERE, err));
    TRY(config_only_string(sliding, "rope_type", "default", err));
    TRY(json_need_number(sliding, "rope_theta", &g->sliding.theta, WHERE, err));
    TRY(json_need_number(full, "rope_theta", &g->full.theta, WHERE, err));
    const char *type = "default";
    if (json_has(full, "rope_type"))
        TRY(json_need_string(full, "rope_type", &type, WHERE, err));
    g->partial_rotary = 1;
    if (strcmp(type, "proportional") == 0) {
        TRY(json_need_number(full, "partial_rotary_factor", &g->partial_rotary, WHERE, err));
    } else if (strcmp(type, "default") != 0) {
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "%s: rope_type \"%s\" of full_attention; default and proportional are supported",
                       WHERE, type);
    }
    if (!(g->partial_rotary > 0 && g->partial_rotary <= 1))
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: partial_rotary_factor is %g, it must be above 0 and at most 1", WHERE,
                       g->partial_rotary);
    if (!(g->sliding.theta > 1 && g->full.theta > 1))
        return err_set(err, SLUICE_E_FORMAT, "%s: a rope_theta is not above 1", WHERE);
    g->sliding.rotated_pairs = g->sliding.head_dim / 2;
    g->full.rotated_pairs = (uint32_t)(g->partial_rotary * g->full.head_dim / 2);
    return SLUICE_OK;
}

static sluice_status read_sizes(const json_t *text, struct gemma4 *g, sluice_error *err)
{
    struct model *m = &g->base;
    const struct {
        const char *key;
        uint32_t max;
        uint32_t *out;
    } ROWS[] = {
        {"hidden_size", WIDTH_MAX, &m->hidden},
        {"num_hidden_layers", LAYERS_MAX, &m->n_layers},
        {"vocab_size", 1 << 24, &m->vocab},
        {"num_attention_heads", 4096, &g->heads},
        {"num_key_value_heads", 4096, &g->sliding.kv_heads},
        {"head_dim", 4096, &g->sliding.head_dim},
        {"global_head_dim", 4096, &g->full.head_dim},
        {"sliding_window", 1 << 24, &g->sliding.window},
        {"intermediate_size", WIDTH_MAX, &g->dense},
        {"moe_intermediate_size", WIDTH_MAX, &g->expert},
        {"num_experts", EXPERTS_MAX, &m->n_experts},
        {"top_k_experts", LEASE_EXPERTS_MAX, &m->top_k},
        {"max_position_embeddings", 1 << 30, &m->max_context},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        TRY(json_need_u32(text, ROWS[i].key, 1, ROWS[i].max, ROWS[i].out, WHERE, err));
    g->full.kv_heads = g->sliding.kv_heads;
    if (json_has(text, "num_global_key_value_heads"))
        TRY(json_need_u32(text, "num_global_key_value_heads", 1, 4096, &g->full.kv_heads, WHERE, err));
    if (json_has(text, "attention_k_eq_v"))
        TRY(json_need_bool(text, "attention_k_eq_v", &g->k_eq_v, WHERE, err));
    /* transformers uses the global key-value heads only together with K = V. */
    if (!g->k_eq_v)
        g->full.kv_heads = g->sliding.kv_heads;
    double eps, cap = 0;
    TRY(json_need_number(text, "rms_norm_eps", &eps, WHERE, err));
    if (json_has(text, "final_logit_softcapping"))
        TRY(json_need_number(text, "final_logit_softcapping", &cap, WHERE, err));
    if (!(eps > 0 && eps < 1) || !(cap >= 0 && cap < 1e6))
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: rms_norm_eps %g or final_logit_softcapping %g is out of range", WHERE, eps, cap);
    g->eps = (float)eps;
    g->softcap = (float)cap;
    if (m->top_k > m->n_experts)
        return err_set(err, SLUICE_E_FORMAT, "%s: top_k_experts %u is more than num_experts %u", WHERE,
                       m->top_k, m->n_experts);
    if (m->n_experts < 2)
        return err_set(err, SLUICE_E_UNSUPPORTED, "%s: num_experts is 1; 2 or more are supported", WHERE);
    for (const struct attention_kind *k = &g->sliding;; k = &g->full) {
        if (g->heads % k->kv_heads != 0 || k->head_dim % 2 != 0)
            return err_set(
                err, SLUICE_E_FORMAT,
                "%s: %u query heads do not divide among %u key-value heads, or head size %u is odd", WHERE,
                g->heads, k->kv_heads, k->head_dim);
        if (k == &g->full)
            break;
    }
    return SLUICE_OK;
}

static sluice_status read_layers(const json_t *text, struct gemma4 *g, sluice_error *err)
{
    json_t *types;
    TRY(json_need_array(text, "layer_types", &types, WHERE, err));
    uint32_t n = g->base.n_layers;
    if (json_array_size(types) != n)
        return err_set(err, SLUICE_E_FORMAT, "%s: layer_types has %zu entries, num_hidden_layers is %u",
                       WHERE, json_array_size(types), n);
    g->layers = mem_calloc(n, sizeof *g->layers);
    g->base.kv = mem_calloc(n, sizeof *g->base.kv);
    if (!g->layers || !g->base.kv)
        return err_memory(err, n * sizeof *g->layers, "the layer table");
    for (uint32_t i = 0; i < n; i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || (strcmp(type, "sliding_attention") != 0 && strcmp(type, "full_attention") != 0))
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           "%s: layer_types[%u] is %s; sliding_attention and full_attention are supported",
                           WHERE, i, type ? type : "not a string");
        g->layers[i].full = strcmp(type, "full_attention") == 0;
        const struct attention_kind *kind = kind_of(g, i);
        g->base.kv[i] = (struct kv_shape){kind->kv_heads, kind->head_dim, kind->window};
    }
    return SLUICE_OK;
}

static sluice_status add_layer(struct gemma4 *g, struct spec_list *list, uint32_t l, sluice_error *err)
{
    struct layer *layer = &g->layers[l];
    for (int i = 0; i < WEIGHTS; i++) {
        const struct weight_row *row = &WEIGHT_ROWS[i];
        layer->index[i] = NONE;
        if (i == W_V && layer->full && g->k_eq_v)
            continue;
        struct tensor_spec spec = {.layer = (int32_t)l, .dtype = g->storage.plain, .n_dims = 1};
        spec.shape[0] = dim_of(g, l, row->cols);
        if (!row->module) {
            TRY(specs_add(list, &spec, &layer->index[i], err, PREFIX "layers.%u.%s", l, row->name));
            continue;
        }
        char path[TENSOR_NAME_BYTES_MAX];
        (void)snprintf(path, sizeof path, PREFIX "layers.%u.%s", l, row->name);
        spec.n_dims = 2;
        spec.shape[1] = spec.shape[0];
        spec.shape[0] = dim_of(g, l, row->rows);
        struct storage storage;
        TRY(specs_add_matrix(list, &g->storage, spec, path, &storage, &layer->index[i], err));
        if (i == W_Q)
            g->described[1] = storage;
        else if (i == W_ROUTER)
            g->described[2] = storage;
        else if (i == W_GATE)
            g->described[3] = storage;
    }
    return SLUICE_OK;
}

static sluice_status add_experts(struct gemma4 *g, struct spec_list *list, uint32_t l, sluice_error *err)
{
    for (size_t i = 0; i < sizeof EXPERT_ROWS / sizeof *EXPERT_ROWS; i++) {
        struct tensor_spec spec = {.role = EXPERT_ROWS[i].role, .layer = (int32_t)l, .n_dims = 3};
        spec.shape[0] = g->base.n_experts;
        spec.shape[1] = dim_of(g, l, EXPERT_ROWS[i].rows);
        spec.shape[2] = dim_of(g, l, EXPERT_ROWS[i].cols);
        char path[TENSOR_NAME_BYTES_MAX];
        (void)snprintf(path, sizeof path, PREFIX "layers.%u.experts.switch_glu.%s", l, EXPERT_ROWS[i].name);
        TRY(specs_add_matrix(list, &g->storage, spec, path, &g->described[4], NULL, err));
    }
    return SLUICE_OK;
}

static sluice_status build_specs(struct gemma4 *g, sluice_error *err)
{
    struct model *m = &g->base;
    struct spec_list list = {0};
    sluice_status status;
    struct tensor_spec embed = {.layer = -1, .n_dims = 2, .shape = {m->vocab, m->hidden}};
    TRY_OUT(specs_add_matrix(&list, &g->storage, embed, PREFIX "embed_tokens", &g->described[0],
                             &g->embed_index, err));
    for (uint32_t l = 0; l < m->n_layers; l++)
        TRY_OUT(add_layer(g, &list, l, err));
    struct tensor_spec norm = {.layer = -1, .dtype = g->storage.plain, .n_dims = 1, .shape = {m->hidden}};
    TRY_OUT(specs_add(&list, &norm, &g->norm_index, err, PREFIX "norm.weight"));
    m->n_resident = list.n;
    for (uint32_t l = 0; l < m->n_layers; l++)
        TRY_OUT(add_experts(g, &list, l, err));
out:
    m->specs = list.v;
    m->n_specs = list.n;
    return status;
}

static void set_limits(struct gemma4 *g)
{
    struct backend_limits *limits = &g->base.limits;
    uint32_t head = g->sliding.head_dim > g->full.head_dim ? g->sliding.head_dim : g->full.head_dim;
    uint32_t widths[] = {g->base.hidden, g->dense, g->expert, g->heads * head};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (limits->cols < widths[i])
            limits->cols = widths[i];
    limits->inner = g->dense > g->expert ? g->dense : g->expert;
    limits->heads = g->heads;
    limits->head_dim = head;
}

static sluice_status gemma4_parse(const json_t *config, struct gemma4 *g, sluice_error *err)
{
    json_t *text;
    TRY(json_need_object(config, "text_config", &text, "config.json", err));
    TRY(refuse_unknown(text, err));
    TRY(config_only_bool(config, "tie_word_embeddings", true, err));
    TRY(read_sizes(text, g, err));
    TRY(read_rope(text, g, err));
    TRY(read_layers(text, g, err));
    const json_t *stops = json_has(config, "eos_token_id") ? config : text;
    TRY(config_stop_ids(stops, g->base.stop_ids, &g->base.n_stop_ids, 16, err));
    TRY(storage_map_open(&g->storage, config, err));
    TRY(build_specs(g, err));
    g->storage.quantization = NULL; /* borrowed from config, which ends with this call */
    set_limits(g);
    return SLUICE_OK;
}

static void gemma4_close(struct model *model)
{
    struct gemma4 *g = (struct gemma4 *)model;
    mem_free(g->layers);
    mem_free(g->sliding.inv_freq);
    mem_free(g->full.inv_freq);
    mem_free(model->specs);
    mem_free(model->kv);
    mem_free(model->mats);
    mem_free(g);
}

static sluice_status gemma4_open(const json_t *config, struct model **out, sluice_error *err)
{
    struct gemma4 *g = mem_calloc(1, sizeof *g);
    if (!g)
        return err_memory(err, sizeof *g, "the model");
    g->base.family = &GEMMA4;
    sluice_status status = gemma4_parse(config, g, err);
    if (status != SLUICE_OK) {
        gemma4_close(&g->base);
        return status;
    }
    *out = &g->base;
    return SLUICE_OK;
}

static sluice_status gemma4_describe(const struct model *m, json_t **arch, json_t **quant, sluice_error *err)
{
    static const char *const QUANT[5] = {"embedding", "attention", "router", "sharedExpert", "routedExpert"};
    const struct gemma4 *g = gemma4_of(m);
    json_t *mask = json_array();
    bool ok = mask != NULL;
    for (uint32_t l = 0; ok && l < m->n_layers; l++)
        ok = json_array_append_new(mask, json_integer(g->layers[l].full)) == 0;
    if (!ok) {
        json_decref(mask);
        return err_memory(err, m->n_layers * sizeof(json_t *), "the manifest");
    }
    *arch = json_pack("{s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i s:f s:f s:f s:f s:i s:i s:i s:b s:b s:s s:o}",
                      "hiddenSize", (int)m->hidden, "ffnIntermediate", (int)g->dense, "moeIntermediateSize",
                      (int)g->expert, "numHeads", (int)g->heads, "numKVHeads", (int)g->sliding.kv_heads,
                      "numFullKVHeads", (int)g->full.kv_heads, "headDim", (int)g->sliding.head_dim,
                      "fullHeadDim", (int)g->full.head_dim, "vocabSize", (int)m->vocab, "slidingWindow",
                      (int)g->sliding.window, "finalLogitSoftcap", (double)g->softcap, "ropeTheta",
                      g->sliding.theta, "fullRopeTheta", g->full.theta, "partialRotaryFactor",
                      g->partial_rotary, "numLayers", (int)m->n_layers, "numExperts", (int)m->n_experts,
                      "topKExperts", (int)m->top_k, "tieWordEmbeddings", 1, "attentionKEqV", (int)g->k_eq_v,
                      "hiddenActivation", "gelu_pytorch_tanh", "fullAttentionLayerMask", mask);
    *quant = json_object();
    ok = *arch && *quant;
    for (int i = 0; ok && i < 5; i++)
        ok = json_object_set_new(*quant, QUANT[i], storage_describe(&g->described[i])) == 0;
    if (ok)
        return SLUICE_OK;
    json_decref(*arch);
    json_decref(*quant);
    *arch = *quant = NULL;
    return err_memory(err, 4096, "the manifest");
}

/* ---- bind ---- */

static sluice_status bind_rope(struct attention_kind *kind, sluice_error *err)
{
    kind->inv_freq = mem_calloc(kind->rotated_pairs, sizeof *kind->inv_freq);
    if (!kind->inv_freq)
        return err_memory(err, kind->rotated_pairs * sizeof *kind->inv_freq, "rotary frequencies");
    /* theta^(-2i / head_dim); the full layers' "proportional" kind divides by the whole head size too. */
    for (uint32_t i = 0; i < kind->rotated_pairs; i++)
        kind->inv_freq[i] = rope_inv_freq(kind->theta, 2 * i, kind->head_dim);
    return SLUICE_OK;
}

/* The router's choices are discrete, and rounding what attention reads and writes costs the most quality: on
 * 60 held-out questions the mean KL divergence is 1.5e-3 with everything in int8, 0.5e-3 with attention alone
 * in f32, and 0.35e-3 with these in 15 bits; the gate is 1e-3 (docs/learned.md). */
static const enum weight PRECISE[] = {W_Q, W_K, W_V, W_O, W_ROUTER};

static sluice_status gemma4_bind(struct model *m, sluice_error *err)
{
    struct gemma4 *g = (struct gemma4 *)m;
    for (uint32_t l = 0; l < m->n_layers; l++)
        for (size_t i = 0; i < sizeof PRECISE / sizeof *PRECISE; i++)
            if (g->layers[l].index[PRECISE[i]] != NONE)
                m->mats[g->layers[l].index[PRECISE[i]]].precise = true;
    g->embed = &m->mats[g->embed_index];
    g->norm = &m->mats[g->norm_index];
    for (uint32_t l = 0; l < m->n_layers; l++) {
        struct layer *layer = &g->layers[l];
        for (int i = 0; i < WEIGHTS; i++)
            layer->w[i] = layer->index[i] == NONE ? NULL : &m->mats[layer->index[i]];
        layer->scalar = mat_scalar(layer->w[W_LAYER_SCALAR]);
    }
    TRY(bind_rope(&g->sliding, err));
    return bind_rope(&g->full, err);
}

/* ---- forward ---- */

/* Activations of one chunk. Comments give the shape per row. */
struct scratch {
    float *h;         /* hidden: the residual stream */
    float *x;         /* hidden: normed input of a branch */
    float *q, *o;     /* heads * head_dim */
    float *k, *v;     /* kv_heads * head_dim */
    float *proj;      /* hidden: output of a branch */
    float *dense;     /* hidden: the dense branch, kept until the routed one ends */
    float *gate, *up; /* dense */
    float *router;    /* experts */
    struct moe moe;
};

static size_t scratch_layout(const struct gemma4 *g, uint32_t rows, struct scratch *s, struct arena *arena)
{
    const struct model *m = &g->base;
    uint32_t query = g->heads * m->limits.head_dim;
    uint32_t sliding_key = g->sliding.kv_heads * g->sliding.head_dim,
             full_key = g->full.kv_heads * g->full.head_dim;
    uint32_t key = sliding_key > full_key ? sliding_key : full_key;
    struct {
        float **pointer;
        uint32_t cols;
    } parts[] = {
        {&s->h, m->hidden},
        {&s->x, m->hidden},
        {&s->q, query},
        {&s->o, query},
        {&s->k, key},
        {&s->v, key},
        {&s->proj, m->hidden},
        {&s->dense, m->hidden},
        {&s->gate, g->dense},
        {&s->up, g->dense},
        {&s->router, m->n_experts},
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t bytes = (size_t)rows * parts[i].cols * sizeof(float);
        total += arena_cost(bytes);
        if (arena)
            *parts[i].pointer = arena_take(arena, bytes);
    }
    return total + moe_bytes(rows, m->hidden, m->n_experts, m->top_k);
}

static size_t gemma4_scratch_bytes(const struct model *m, uint32_t rows)
{
    struct scratch unused;
    return arena_cost(sizeof unused) + scratch_layout(gemma4_of(m), rows, &unused, NULL);
}

static void *gemma4_scratch_open(const struct model *m, uint32_t rows, struct arena *arena)
{
    struct scratch *s = arena_take(arena, sizeof *s);
    (void)scratch_layout(gemma4_of(m), rows, s, arena);
    moe_open(&s->moe, rows, m->hidden, m->n_experts, m->top_k, arena);
    return s;
}

/* h += norm(o_proj(attention(x))) */
static void attend(const struct gemma4 *g, struct forward *f, struct scratch *s, uint32_t l)
{
    const struct layer *layer = &g->layers[l];
    const struct attention_kind *kind = kind_of(g, l);
    const struct backend_ops *ops = f->backend->ops;
    struct backend *be = f->backend;
    uint32_t n = f->n_rows, hidden = g->base.hidden, hd = kind->head_dim;
    size_t key = (size_t)kind->kv_heads * hd;

    phase_enter(f->clock, PHASE_PROJECTIONS);
    ops->norm(be, s->h, layer->w[W_NORM_IN], n, hidden, g->eps, s->x);
    bool own_v = layer->w[W_V] != NULL;
    const struct mat *mats[] = {layer->w[W_Q], layer->w[W_K], layer->w[W_V]};
    float *ys[] = {s->q, s->k, s->v};
    ops->linear(be, mats, own_v ? 3 : 2, s->x, n, ys);

    /* Values are the raw keys, before norm and rope, where the layer has no v_proj. */
    ops->norm(be, own_v ? s->v : s->k, NULL, n * kind->kv_heads, hd, g->eps, s->v);
    ops->norm(be, s->q, layer->w[W_Q_NORM], n * g->heads, hd, g->eps, s->q);
    ops->norm(be, s->k, layer->w[W_K_NORM], n * kind->kv_heads, hd, g->eps, s->k);
    struct rope rope = {kind->rotated_pairs, hd / 2, kind->inv_freq};
    ops->rope(be, s->q, n, g->heads, hd, &rope, f->position0);
    ops->rope(be, s->k, n, kind->kv_heads, hd, &rope, f->position0);
    trace_f32(f, (int32_t)l, "attention.q", s->q, n, g->heads * hd);
    trace_f32(f, (int32_t)l, "attention.k", s->k, n, (uint32_t)key);
    trace_f32(f, (int32_t)l, "attention.v", s->v, n, (uint32_t)key);

    phase_enter(f->clock, PHASE_ATTENTION);
    const struct kv_view *view = &f->kv->views[l];
    ops->kv_store(be, view, s->k, s->v, n, f->position0);
    struct attention attention = {.heads = g->heads, .scale = 1.0f, .window = kind->window};
    ops->attention(be, &attention, view, s->q, n, f->position0, s->o);
    trace_f32(f, (int32_t)l, "attention.out", s->o, n, g->heads * hd);

    phase_enter(f->clock, PHASE_PROJECTIONS);
    ops->linear(be, &layer->w[W_O], 1, s->o, n, &s->proj);
    ops->norm(be, s->proj, layer->w[W_NORM_ATTENTION], n, hidden, g->eps, s->proj);
    ops->add(be, s->h, s->proj, (size_t)n * hidden, s->h);
    trace_f32(f, (int32_t)l, "attention.residual", s->h, n, hidden);
}

/* The router reads the residual stream itself, through a norm without weight. */
static void route(const struct gemma4 *g, struct forward *f, struct scratch *s, uint32_t l)
{
    const struct layer *layer = &g->layers[l];
    const struct backend_ops *ops = f->backend->ops;
    uint32_t n = f->n_rows, hidden = g->base.hidden;
    phase_enter(f->clock, PHASE_ROUTER);
    ops->norm(f->backend, s->h, NULL, n, hidden, g->eps, s->x);
    ops->scale_cols(f->backend, s->x, layer->w[W_ROUTER_SCALE], 1.0f / sqrtf((float)hidden), n, hidden);
    ops->linear(f->backend, &layer->w[W_ROUTER], 1, s->x, n, &s->router);
    ops->route(f->backend, s->router, n, g->base.n_experts, g->base.top_k, layer->w[W_EXPERT_SCALE],
               s->moe.ids, s->moe.weights);
    trace_f32(f, (int32_t)l, "router.logits", s->router, n, g->base.n_experts);
    trace_u16(f, (int32_t)l, "router.ids", s->moe.ids, n, g->base.top_k);
    trace_f32(f, (int32_t)l, "router.weights", s->moe.weights, n, g->base.top_k);
}

/* The next layer's router on this layer's stream, which lacks only this layer's feed-forward and the next
 * layer's attention. x and router are free: the dense branch has not begun. */
static uint32_t gemma4_guess(const struct model *m, struct forward *f, uint32_t l, uint32_t n, uint16_t *ids)
{
    const struct gemma4 *g = gemma4_of(m);
    const struct layer *layer = &g->layers[l];
    const struct backend_ops *ops = f->backend->ops;
    struct scratch *s = f->scratch;
    float weights[MOE_GUESSES_MAX];
    ops->norm(f->backend, s->h, NULL, 1, m->hidden, g->eps, s->x);
    ops->scale_cols(f->backend, s->x, layer->w[W_ROUTER_SCALE], 1.0f / sqrtf((float)m->hidden), 1, m->hidden);
    ops->linear(f->backend, &layer->w[W_ROUTER], 1, s->x, 1, &s->router);
    ops->route(f->backend, s->router, 1, m->n_experts, n, layer->w[W_EXPERT_SCALE], ids, weights);
    return n;
}

static void dense_branch(const struct gemma4 *g, struct forward *f, struct scratch *s, uint32_t l)
{
    const struct layer *layer = &g->layers[l];
    const struct backend_ops *ops = f->backend->ops;
    uint32_t n = f->n_rows, hidden = g->base.hidden;
    phase_enter(f->clock, PHASE_DENSE);
    ops->norm(f->backend, s->h, layer->w[W_NORM_DENSE_IN], n, hidden, g->eps, s->x);
    const struct mat *mats[] = {layer->w[W_GATE], layer->w[W_UP]};
    float *ys[] = {s->gate, s->up};
    ops->linear(f->backend, mats, 2, s->x, n, ys);
    ops->gated(f->backend, ACT_GELU_TANH, s->gate, s->up, (size_t)n * g->dense, s->gate);
    ops->linear(f->backend, &layer->w[W_DOWN], 1, s->gate, n, &s->dense);
    ops->norm(f->backend, s->dense, layer->w[W_NORM_DENSE_OUT], n, hidden, g->eps, s->dense);
    trace_f32(f, (int32_t)l, "dense.out", s->dense, n, hidden);
}

static sluice_status feed_forward(const struct gemma4 *g, struct forward *f, struct scratch *s, uint32_t l,
                                  sluice_error *err)
{
    const struct layer *layer = &g->layers[l];
    const struct backend_ops *ops = f->backend->ops;
    uint32_t n = f->n_rows, hidden = g->base.hidden;
    size_t values = (size_t)n * hidden;

    route(g, f, s, l);
    TRY(moe_begin(&s->moe, f, l, err));
    dense_branch(g, f, s, l);
    phase_enter(f->clock, PHASE_EXPERTS);
    ops->norm(f->backend, s->h, layer->w[W_NORM_ROUTED_IN], n, hidden, g->eps, s->x);
    TRY(moe_finish(&s->moe, f, l, ACT_GELU_TANH, s->x, s->proj, err));
    phase_enter(f->clock, PHASE_OTHER);
    ops->norm(f->backend, s->proj, layer->w[W_NORM_ROUTED_OUT], n, hidden, g->eps, s->proj);
    trace_f32(f, (int32_t)l, "routed.out", s->proj, n, hidden);

    ops->add(f->backend, s->dense, s->proj, values, s->proj);
    ops->norm(f->backend, s->proj, layer->w[W_NORM_OUT], n, hidden, g->eps, s->proj);
    ops->add(f->backend, s->h, s->proj, values, s->h);
    ops->scale(f->backend, s->h, layer->scalar, values);
    trace_f32(f, (int32_t)l, "out", s->h, n, hidden);
    return SLUICE_OK;
}

static sluice_status gemma4_forward(const struct model *m, struct forward *f, sluice_error *err)
{
    const struct gemma4 *g = gemma4_of(m);
    struct scratch *s = f->scratch;
    const struct backend_ops *ops = f->backend->ops;
    ops->embed(f->backend, g->embed, f->ids, f->n_rows, sqrtf((float)m->hidden), s->h);
    trace_f32(f, -1, "embedding", s->h, f->n_rows, m->hidden);
    for (uint32_t l = 0; l < m->n_layers; l++) {
        if (f->cancel && atomic_load(f->cancel))
            return err_set(err, SLUICE_E_CANCELLED, "cancelled");
        attend(g, f, s, l);
        TRY(feed_forward(g, f, s, l, err));
    }
    if (f->mode == LOGITS_NONE)
        return SLUICE_OK;
    phase_enter(f->clock, PHASE_HEAD);
    ops->norm(f->backend, s->h, g->norm, f->n_rows, m->hidden, g->eps, s->x);
    return forward_logits(m, f, g->embed, g->softcap, s->x, err);
}

/* ---- the family ---- */

static const char *const MODEL_TYPES[] = {"gemma4", NULL};
static const char *const SKIP[] = {"vision_tower.", "embed_vision.", "audio_tower.", "embed_audio.", NULL};
/* Of a checkpoint that transformers wrote: gate and up of all experts are one stack there. */
static const struct tensor_alias ALIASES[] = {
    {"language_model.model.", "model.language_model.", 0},
    {"experts.switch_glu.gate_proj.weight", "experts.gate_up_proj", 1},
    {"experts.switch_glu.up_proj.weight", "experts.gate_up_proj", 2},
    {"experts.switch_glu.down_proj.weight", "experts.down_proj", 0},
    {NULL, NULL, 0},
};
static const char *const KEEP_8_BITS[] = {"router.proj.", NULL};
static const char *const STOPS[] = {"<eos>", "<turn|>", "<|tool_response>", NULL};

const struct family GEMMA4 = {
    .name = "gemma4",
    .full_size = &GEMMA4_FULL_SIZE,
    .model_types = MODEL_TYPES,
    .skip = SKIP,
    .aliases = ALIASES,
    .keep_8_bits = KEEP_8_BITS,
    .stop_spellings = STOPS,
    .open = gemma4_open,
    .close = gemma4_close,
    .describe = gemma4_describe,
    .bind = gemma4_bind,
    .scratch_bytes = gemma4_scratch_bytes,
    .scratch_open = gemma4_scratch_open,
    .forward = gemma4_forward,
    .guess = gemma4_guess,
    .lookahead = 2,
};
