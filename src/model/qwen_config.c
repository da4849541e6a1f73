/* Qwen's config.json, the tensors that follow from it, and what the manifest says about them. */
#include "model/qwen.h"

#include "model/rope.h"

#include <math.h>
#include <string.h>

/* ---- tensors ---- */

enum dim {
    DIM_ONE,
    DIM_HIDDEN,
    DIM_QUERY,
    DIM_QUERY_GATED,
    DIM_KEY,
    DIM_HEAD,
    DIM_CHANNELS,
    DIM_VALUE,
    DIM_VALUE_HEADS,
    DIM_VALUE_HEAD,
    DIM_DENSE,
    DIM_EXPERTS,
    DIM_EXPERT
};

/* Which layers have a tensor. */
enum { FULL = 1, LINEAR = 2, MOE = 4, DENSE = 8, ANY = FULL | LINEAR };

/* A module's weight may be quantized; a norm is a vector that the original layout stores less 1. */
enum form { MODULE, VECTOR, NORM, CONVOLUTION };

static const struct weight_row {
    const char *name; /* NULL: as in moe_name */
    enum form form;
    unsigned layers;
    enum dim rows, cols;
    const char *moe_name; /* where routed experts make it the shared one's; NULL: the same */
} WEIGHT_ROWS[QW_WEIGHTS] = {
    [QW_Q] = {"self_attn.q_proj", MODULE, FULL, DIM_QUERY_GATED, DIM_HIDDEN, NULL},
    [QW_K] = {"self_attn.k_proj", MODULE, FULL, DIM_KEY, DIM_HIDDEN, NULL},
    [QW_V] = {"self_attn.v_proj", MODULE, FULL, DIM_KEY, DIM_HIDDEN, NULL},
    [QW_O] = {"self_attn.o_proj", MODULE, FULL, DIM_HIDDEN, DIM_QUERY, NULL},
    [QW_Q_NORM] = {"self_attn.q_norm", NORM, FULL, DIM_ONE, DIM_HEAD, NULL},
    [QW_K_NORM] = {"self_attn.k_norm", NORM, FULL, DIM_ONE, DIM_HEAD, NULL},
    [QW_QKV] = {"linear_attn.in_proj_qkv", MODULE, LINEAR, DIM_CHANNELS, DIM_HIDDEN, NULL},
    [QW_Z] = {"linear_attn.in_proj_z", MODULE, LINEAR, DIM_VALUE, DIM_HIDDEN, NULL},
    [QW_A] = {"linear_attn.in_proj_a", MODULE, LINEAR, DIM_VALUE_HEADS, DIM_HIDDEN, NULL},
    [QW_B] = {"linear_attn.in_proj_b", MODULE, LINEAR, DIM_VALUE_HEADS, DIM_HIDDEN, NULL},
    [QW_CONV] = {"linear_attn.conv1d.weight", CONVOLUTION, LINEAR, DIM_ONE, DIM_CHANNELS, NULL},
    [QW_A_LOG] = {"linear_attn.A_log", VECTOR, LINEAR, DIM_ONE, DIM_VALUE_HEADS, NULL},
    [QW_DT_BIAS] = {"linear_attn.dt_bias", VECTOR, LINEAR, DIM_ONE, DIM_VALUE_HEADS, NULL},
    [QW_DELTA_NORM] = {"linear_attn.norm.weight", VECTOR, LINEAR, DIM_ONE, DIM_VALUE_HEAD, NULL},
    [QW_OUT] = {"linear_attn.out_proj", MODULE, LINEAR, DIM_HIDDEN, DIM_VALUE, NULL},
    [QW_ROUTER] = {"mlp.gate", MODULE, ANY | MOE, DIM_EXPERTS, DIM_HIDDEN, NULL},
    [QW_SHARED_GATE] = {"mlp.shared_expert_gate", MODULE, ANY | MOE, DIM_ONE, DIM_HIDDEN, NULL},
    [QW_GATE] = {"mlp.gate_proj", MODULE, ANY | MOE | DENSE, DIM_DENSE, DIM_HIDDEN,
                 "mlp.shared_expert.gate_proj"},
    [QW_UP] = {"mlp.up_proj", MODULE, ANY | MOE | DENSE, DIM_DENSE, DIM_HIDDEN, "mlp.shared_expert.up_proj"},
    [QW_DOWN] = {"mlp.down_proj", MODULE, ANY | MOE | DENSE, DIM_HIDDEN, DIM_DENSE,
                 "mlp.shared_expert.down_proj"},
    [QW_NORM_IN] = {"input_layernorm", NORM, ANY, DIM_ONE, DIM_HIDDEN, NULL},
    [QW_NORM_POST] = {"post_attention_layernorm", NORM, ANY, DIM_ONE, DIM_HIDDEN, NULL},
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

/* The first is assumed until the names are known. */
static const struct qwen_layout LAYOUTS[] = {
    {"language_model.model.", "language_model.lm_head", false},
    {"model.language_model.", "lm_head", true},
    {"model.", "lm_head", true},
};

/* Of the drafting layer; its tensors exist in the original layout only. */
#define DRAFT_PREFIX "mtp."
static const struct {
    const char *name;
    enum form form;
} DRAFT_ROWS[QD_WEIGHTS] = {
    [QD_FC] = {DRAFT_PREFIX "fc", MODULE},
    [QD_NORM_EMBEDDING] = {DRAFT_PREFIX "pre_fc_norm_embedding", NORM},
    [QD_NORM_HIDDEN] = {DRAFT_PREFIX "pre_fc_norm_hidden", NORM},
    [QD_NORM] = {DRAFT_PREFIX "norm", NORM},
};

static uint32_t dim_of(const struct qwen *g, enum dim dim)
{
    const uint32_t query = g->heads * g->head_dim;
    switch (dim) {
    case DIM_ONE:
        return 1;
    case DIM_HIDDEN:
        return g->base.hidden;
    case DIM_QUERY:
        return query;
    case DIM_QUERY_GATED:
        return 2 * query;
    case DIM_KEY:
        return g->kv_heads * g->head_dim;
    case DIM_HEAD:
        return g->head_dim;
    case DIM_CHANNELS:
        return g->conv_channels;
    case DIM_VALUE:
        return g->delta.value_heads * g->delta.value_dim;
    case DIM_VALUE_HEADS:
        return g->delta.value_heads;
    case DIM_VALUE_HEAD:
        return g->delta.value_dim;
    case DIM_DENSE:
        return g->dense;
    case DIM_EXPERTS:
        return g->base.n_experts;
    case DIM_EXPERT:
        return g->expert;
    }
    return 0;
}

/* A norm's or another vector's spec. */
static sluice_status add_vector(const struct qwen *g, struct spec_list *list, int32_t layer, enum form form,
                                uint32_t n, const char *prefix, const char *name, size_t *index,
                                sluice_error *err)
{
    struct tensor_spec spec = {.layer = layer, .dtype = g->storage.plain, .any_float = true, .n_dims = 1};
    spec.shape[0] = n;
    if (form == CONVOLUTION) {
        spec.n_dims = 3;
        spec.shape[1] = g->layout->original ? 1 : g->conv_taps;
        spec.shape[2] = g->layout->original ? g->conv_taps : 1;
    }
    return specs_add(list, &spec, index, err, "%s%s%s", prefix, name, form == NORM ? ".weight" : "");
}

static void describe_weight(struct qwen *g, int weight, const struct storage *storage)
{
    static const struct {
        int weight, place;
    } PLACES[] = {{QW_Q, 1}, {QW_ROUTER, 2}, {QW_GATE, 3}};
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
        if (PLACES[i].weight == weight)
            g->described[PLACES[i].place] = *storage;
}

/* The tensors of a layer whose names start with `prefix`; `draft` is the storage of the drafting layer's
 * matrices, NULL for the model's own layers. */
static sluice_status add_layer(struct qwen *g, struct spec_list *list, struct qwen_layer *layer, int32_t l,
                               const char *prefix, const struct storage_map *map, sluice_error *err)
{
    const bool moe = g->base.n_experts > 0;
    for (int i = 0; i < QW_WEIGHTS; i++) {
        const struct weight_row *row = &WEIGHT_ROWS[i];
        layer->index[i] = QWEN_NONE;
        if (!(row->layers & (layer->full ? FULL : LINEAR)) ||
            ((row->layers & (MOE | DENSE)) && !(row->layers & (moe ? MOE : DENSE))))
            continue;
        const char *name = moe && row->moe_name ? row->moe_name : row->name;
        if (row->form != MODULE) {
            TRY(add_vector(g, list, l, row->form, dim_of(g, row->cols), prefix, name, &layer->index[i], err));
            continue;
        }
        char path[TENSOR_NAME_BYTES_MAX];
        (void)snprintf(path, sizeof path, "%s%s", prefix, name);
        struct tensor_spec spec = {.layer = l, .n_dims = 2};
        spec.shape[0] = dim_of(g, row->rows);
        spec.shape[1] = dim_of(g, row->cols);
        struct storage storage;
        TRY(specs_add_matrix(list, map, spec, path, &storage, &layer->index[i], err));
        if (l >= 0)
            describe_weight(g, i, &storage);
    }
    return SLUICE_OK;
}

static sluice_status add_experts(struct qwen *g, struct spec_list *list, uint32_t l, sluice_error *err)
{
    for (size_t i = 0; i < sizeof EXPERT_ROWS / sizeof *EXPERT_ROWS; i++) {
        struct tensor_spec spec = {.role = EXPERT_ROWS[i].role, .layer = (int32_t)l, .n_dims = 3};
        spec.shape[0] = g->base.n_experts;
        spec.shape[1] = dim_of(g, EXPERT_ROWS[i].rows);
        spec.shape[2] = dim_of(g, EXPERT_ROWS[i].cols);
        char path[TENSOR_NAME_BYTES_MAX];
        (void)snprintf(path, sizeof path, "%slayers.%u.mlp.switch_mlp.%s", g->layout->prefix, l,
                       EXPERT_ROWS[i].name);
        TRY(specs_add_matrix(list, &g->storage, spec, path, &g->described[4], NULL, err));
    }
    return SLUICE_OK;
}

/* `quantized`: the drafting layer's matrices are stored as config.json says; otherwise as they were
 * published. */
static sluice_status add_draft(struct qwen *g, struct spec_list *list, bool quantized, sluice_error *err)
{
    struct storage_map map = g->storage;
    if (!quantized) {
        map.quantization = NULL;
        map.standard = (struct storage){.dtype = map.plain};
    }
    for (int i = 0; i < QD_WEIGHTS; i++) {
        if (DRAFT_ROWS[i].form == NORM) {
            TRY(add_vector(g, list, -1, NORM, g->base.hidden, "", DRAFT_ROWS[i].name, &g->draft_index[i],
                           err));
            continue;
        }
        struct tensor_spec spec = {.layer = -1, .n_dims = 2, .shape = {g->base.hidden, 2 * g->base.hidden}};
        struct storage storage;
        TRY(specs_add_matrix(list, &map, spec, DRAFT_ROWS[i].name, &storage, &g->draft_index[i], err));
    }
    struct qwen_layer *layer = &g->layers[g->base.n_layers];
    layer->full = true;
    return add_layer(g, list, layer, -1, DRAFT_PREFIX "layers.0.", &map, err);
}

static sluice_status build_specs(struct qwen *g, bool quantized_draft, sluice_error *err)
{
    struct model *m = &g->base;
    struct spec_list list = {0};
    sluice_status status;
    char path[TENSOR_NAME_BYTES_MAX];
    const struct tensor_spec table = {.layer = -1, .n_dims = 2, .shape = {m->vocab, m->hidden}};
    struct storage head;
    (void)snprintf(path, sizeof path, "%sembed_tokens", g->layout->prefix);
    TRY_OUT(specs_add_matrix(&list, &g->storage, table, path, &g->described[0], &g->embed_index, err));
    for (uint32_t l = 0; l < m->n_layers; l++) {
        (void)snprintf(path, sizeof path, "%slayers.%u.", g->layout->prefix, l);
        TRY_OUT(add_layer(g, &list, &g->layers[l], (int32_t)l, path, &g->storage, err));
    }
    TRY_OUT(add_vector(g, &list, -1, NORM, m->hidden, g->layout->prefix, "norm", &g->norm_index, err));
    TRY_OUT(specs_add_matrix(&list, &g->storage, table, g->layout->head, &head, &g->head_index, err));
    if (m->drafts)
        TRY_OUT(add_draft(g, &list, quantized_draft, err));
    m->n_resident = list.n;
    for (uint32_t l = 0; l < m->n_layers && m->n_experts; l++)
        TRY_OUT(add_experts(g, &list, l, err));
out:
    mem_free(m->specs);
    m->specs = list.v;
    m->n_specs = list.n;
    return status;
}

/* ---- config.json ---- */

enum { LAYERS_MAX = 512, WIDTH_MAX = 1 << 20, EXPERTS_MAX = 4096 };

static const char WHERE[] = "config.json text_config";

/* Features of the architecture that this graph does not have. */
static sluice_status refuse_unknown(const json_t *text, sluice_error *err)
{
    static const struct {
        const char *key;
        bool only;
    } ROWS[] = {
        {"attention_bias", false},
        {"attn_output_gate", true},
        {"norm_topk_prob", true},
        {"tie_word_embeddings", false},
        {"mtp_use_dedicated_embeddings", false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        TRY(config_only_bool(text, ROWS[i].key, ROWS[i].only, err));
    TRY(config_only_u64(text, "decoder_sparse_step", 1, err));
    TRY(config_only_string(text, "mamba_ssm_dtype", "float32", err));
    if (json_array_size(json_object_get(text, "mlp_only_layers")) > 0)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "%s: \"mlp_only_layers\" is not empty; all layers must have the same kind of "
                       "feed-forward part",
                       WHERE);
    return config_only_string(text, "hidden_act", "silu", err);
}

/* rope_parameters, or its members one level up as older files have them. */
static sluice_status read_rope(const json_t *text, struct qwen *g, sluice_error *err)
{
    const json_t *rope = json_object_get(text, "rope_parameters");
    if (!json_is_object(rope))
        rope = text;
    TRY(json_need_number(rope, "rope_theta", &g->theta, WHERE, err));
    TRY(config_only_string(rope, "rope_type", "default", err));
    if (rope != text)
        TRY(config_only_string(rope, "type", "default", err));
    g->partial_rotary = 0.25; /* what transformers and mlx-lm assume */
    if (json_has(rope, "partial_rotary_factor"))
        TRY(json_need_number(rope, "partial_rotary_factor", &g->partial_rotary, WHERE, err));
    if (!(g->partial_rotary > 0 && g->partial_rotary <= 1))
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: partial_rotary_factor is %g, it must be above 0 and at most 1", WHERE,
                       g->partial_rotary);
    if (!(g->theta > 1))
        return err_set(err, SLUICE_E_FORMAT, "%s: rope_theta is %g, it must be above 1", WHERE, g->theta);
    uint32_t rotated = (uint32_t)(g->partial_rotary * g->head_dim);
    if (rotated < 2 || rotated % 2 != 0)
        return err_set(
            err, SLUICE_E_FORMAT,
            "%s: partial_rotary_factor %g of head_dim %u rotates %u dimensions, it must be an even "
            "number",
            WHERE, g->partial_rotary, g->head_dim, rotated);
    g->rotated_pairs = rotated / 2;
    return SLUICE_OK;
}

static sluice_status read_experts(const json_t *text, struct qwen *g, sluice_error *err)
{
    struct model *m = &g->base;
    TRY(json_need_u32(text, "num_experts", 2, EXPERTS_MAX, &m->n_experts, WHERE, err));
    TRY(json_need_u32(text, "num_experts_per_tok", 1, LEASE_EXPERTS_MAX, &m->top_k, WHERE, err));
    TRY(json_need_u32(text, "moe_intermediate_size", 1, WIDTH_MAX, &g->expert, WHERE, err));
    TRY(json_need_u32(text, "shared_expert_intermediate_size", 1, WIDTH_MAX, &g->dense, WHERE, err));
    if (m->top_k > m->n_experts)
        return err_set(err, SLUICE_E_FORMAT, "%s: num_experts_per_tok %u is more than num_experts %u", WHERE,
                       m->top_k, m->n_experts);
    return SLUICE_OK;
}

static sluice_status check_sizes(const struct qwen *g, sluice_error *err)
{
    if (g->heads % g->kv_heads != 0)
        return err_set(err, SLUICE_E_FORMAT, "%s: %u query heads do not divide among %u key-value heads",
                       WHERE, g->heads, g->kv_heads);
    if (g->delta.value_heads % g->delta.key_heads != 0)
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: linear_num_value_heads %u is not a multiple of linear_num_key_heads %u", WHERE,
                       g->delta.value_heads, g->delta.key_heads);
    if (g->delta.key_dim % 16 != 0)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "%s: linear_key_head_dim is %u; multiples of 16 are supported", WHERE,
                       g->delta.key_dim);
    return SLUICE_OK;
}

static sluice_status read_sizes(const json_t *text, struct qwen *g, bool moe, sluice_error *err)
{
    struct model *m = &g->base;
    const struct {
        const char *key;
        uint32_t min, max;
        uint32_t *out;
    } ROWS[] = {
        {"hidden_size", 1, WIDTH_MAX, &m->hidden},
        {"num_hidden_layers", 1, LAYERS_MAX, &m->n_layers},
        {"vocab_size", 1, 1 << 24, &m->vocab},
        {"num_attention_heads", 1, 1024, &g->heads},
        {"num_key_value_heads", 1, 1024, &g->kv_heads},
        {"head_dim", 2, 1024, &g->head_dim},
        {"linear_num_key_heads", 1, 1024, &g->delta.key_heads},
        {"linear_num_value_heads", 1, 1024, &g->delta.value_heads},
        {"linear_key_head_dim", 1, 1024, &g->delta.key_dim},
        {"linear_value_head_dim", 1, 1024, &g->delta.value_dim},
        {"linear_conv_kernel_dim", 2, CONV_TAPS_MAX, &g->conv_taps},
        {"max_position_embeddings", 1, 1 << 30, &m->max_context},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        TRY(json_need_u32(text, ROWS[i].key, ROWS[i].min, ROWS[i].max, ROWS[i].out, WHERE, err));
    if (moe)
        TRY(read_experts(text, g, err));
    else
        TRY(json_need_u32(text, "intermediate_size", 1, WIDTH_MAX, &g->dense, WHERE, err));
    uint32_t drafting; /* tensors of a second drafting layer would be left out without a word */
    if (!moe && json_has(text, "mtp_num_hidden_layers"))
        TRY(json_need_u32(text, "mtp_num_hidden_layers", 0, 1, &drafting, WHERE, err));
    double eps;
    TRY(json_need_number(text, "rms_norm_eps", &eps, WHERE, err));
    if (!(eps > 0 && eps < 1))
        return err_set(err, SLUICE_E_FORMAT, "%s: rms_norm_eps %g is out of range", WHERE, eps);
    g->eps = (float)eps;
    TRY(check_sizes(g, err));
    g->conv_channels = 2 * g->delta.key_heads * g->delta.key_dim + g->delta.value_heads * g->delta.value_dim;
    return SLUICE_OK;
}

/* layer_types, or full attention at every so many layers. */
static sluice_status read_layers(const json_t *text, struct qwen *g, sluice_error *err)
{
    const uint32_t n = g->base.n_layers;
    uint32_t interval = 4;
    json_t *types = NULL;
    if (json_has(text, "layer_types"))
        TRY(json_need_array(text, "layer_types", &types, WHERE, err));
    else if (json_has(text, "full_attention_interval"))
        TRY(json_need_u32(text, "full_attention_interval", 1, LAYERS_MAX, &interval, WHERE, err));
    if (types && json_array_size(types) != n)
        return err_set(err, SLUICE_E_FORMAT, "%s: layer_types has %zu entries, num_hidden_layers is %u",
                       WHERE, json_array_size(types), n);
    g->layers = mem_calloc(n + 1, sizeof *g->layers);
    g->base.kv = mem_calloc(n + 1, sizeof *g->base.kv);
    g->base.recurrent = mem_calloc(n + 1, sizeof *g->base.recurrent);
    if (!g->layers || !g->base.kv || !g->base.recurrent)
        return err_memory(err, n * sizeof *g->layers, "the layer table");
    for (uint32_t i = 0; i < n; i++) {
        if (!types) {
            g->layers[i].full = (i + 1) % interval == 0;
            continue;
        }
        const char *type = json_string_value(json_array_get(types, i));
        if (!type || (strcmp(type, "linear_attention") != 0 && strcmp(type, "full_attention") != 0))
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           "%s: layer_types[%u] is %s; linear_attention and full_attention are supported",
                           WHERE, i, type ? type : "not a string");
        g->layers[i].full = strcmp(type, "full_attention") == 0;
    }
    return SLUICE_OK;
}

/* What a session keeps per layer. The drafting layer, last, has keys and values, and remembers the hidden
 * state that it goes on from: a tail of one row. */
static void set_state(struct qwen *g)
{
    struct model *m = &g->base;
    const struct kv_shape kv = {g->kv_heads, g->head_dim, 0};
    const struct recurrent_shape recurrent = {
        .state_values = g->delta.value_heads * g->delta.value_dim * g->delta.key_dim,
        .tail_rows = g->conv_taps - 1,
        .channels = g->conv_channels,
        .log_values = g->conv_channels + 2 * g->delta.value_heads,
    };
    for (uint32_t i = 0; i < m->n_layers; i++) {
        m->kv[i] = g->layers[i].full ? kv : (struct kv_shape){0};
        m->recurrent[i] = g->layers[i].full ? (struct recurrent_shape){0} : recurrent;
    }
    m->kv[m->n_layers] = kv;
    m->recurrent[m->n_layers] =
        (struct recurrent_shape){.tail_rows = 1, .channels = m->hidden, .log_values = m->hidden};
}

static void set_limits(struct qwen *g)
{
    struct backend_limits *limits = &g->base.limits;
    const uint32_t widths[] = {
        g->base.hidden,       g->dense,          g->expert, g->heads * g->head_dim, dim_of(g, DIM_VALUE),
        g->delta.value_heads, 2 * g->base.hidden};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (limits->cols < widths[i])
            limits->cols = widths[i];
    limits->inner = g->dense > g->expert ? g->dense : g->expert;
    limits->heads = g->heads;
    limits->head_dim = g->head_dim;
    limits->conv_values = g->conv_channels * g->conv_taps;
}

static sluice_status parse(const json_t *config, struct qwen *g, bool moe, sluice_error *err)
{
    json_t *text = json_object_get(config, "text_config");
    if (text)
        TRY(json_need_object(config, "text_config", &text, "config.json", err));
    const json_t *t = text ? text : config;
    TRY(refuse_unknown(t, err));
    TRY(config_only_bool(config, "tie_word_embeddings", false, err));
    TRY(read_sizes(t, g, moe, err));
    TRY(read_rope(t, g, err));
    TRY(read_layers(t, g, err));
    const json_t *stops = json_has(config, "eos_token_id") ? config : t;
    TRY(config_stop_ids(stops, g->base.stop_ids, &g->base.n_stop_ids, 16, err));
    TRY(storage_map_open(&g->storage, config, err));
    g->layout = &LAYOUTS[0];
    set_state(g);
    set_limits(g);
    return build_specs(g, false, err);
}

sluice_status qwen_open(const struct family *family, const json_t *config, struct model **out,
                        sluice_error *err)
{
    struct qwen *g = mem_calloc(1, sizeof *g);
    if (!g)
        return err_memory(err, sizeof *g, "the model");
    g->base.family = family;
    g->config = json_incref((json_t *)config);
    sluice_status status = parse(config, g, family == &QWEN36, err);
    if (status != SLUICE_OK) {
        qwen_close(&g->base);
        return status;
    }
    *out = &g->base;
    return SLUICE_OK;
}

void qwen_close(struct model *model)
{
    struct qwen *g = (struct qwen *)model;
    json_decref(g->config);
    mem_free(g->layers);
    mem_free(g->inv_freq);
    mem_free(model->specs);
    mem_free(model->kv);
    mem_free(model->recurrent);
    mem_free(model->mats);
    mem_free(g);
}

/* The layout whose embedding is there, and the drafting layer when its first matrix is. */
sluice_status qwen_arrange(struct model *model, model_has_fn has, void *user, sluice_error *err)
{
    struct qwen *g = (struct qwen *)model;
    char name[TENSOR_NAME_BYTES_MAX];
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof *LAYOUTS; i++) {
        (void)snprintf(name, sizeof name, "%sembed_tokens.weight", LAYOUTS[i].prefix);
        if (has(user, name)) {
            g->layout = &LAYOUTS[i];
            break;
        }
    }
    model->drafts = model->n_experts == 0 && has(user, DRAFT_PREFIX "fc.weight");
    return build_specs(g, has(user, DRAFT_PREFIX "fc.scales"), err);
}

/* ---- the manifest ---- */

static json_t *describe_arch(const struct qwen *g, json_t *mask)
{
    const struct model *m = &g->base;
    const bool moe = m->n_experts > 0;
    json_t *arch = json_pack(
        "{s:s s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i s:f s:f s:f s:f s:i s:i s:i s:b s:b s:s s:o}", "family",
        m->family->name, "hiddenSize", (int)m->hidden, "ffnIntermediate", (int)g->dense,
        "moeIntermediateSize", (int)g->expert, "numHeads", (int)g->heads, "numKVHeads", (int)g->kv_heads,
        "numFullKVHeads", (int)g->kv_heads, "headDim", (int)g->head_dim, "fullHeadDim", (int)g->head_dim,
        "vocabSize", (int)m->vocab, "slidingWindow", 0, "finalLogitSoftcap", 0.0, "ropeTheta", g->theta,
        "fullRopeTheta", g->theta, "partialRotaryFactor", g->partial_rotary, "numLayers", (int)m->n_layers,
        "numExperts", (int)m->n_experts, "topKExperts", (int)m->top_k, "tieWordEmbeddings", 0,
        "attentionKEqV", 0, "hiddenActivation", "silu", "fullAttentionLayerMask", mask);
    json_t *more =
        json_pack("{s:b s:f s:b s:b s:b s:b s:b s:i s:i s:i s:i s:i}", "attnOutputGate", 1, "attentionScale",
                  1.0 / sqrt((double)g->head_dim), "embeddingScaledBySqrtHidden", 0, "routerScaled", 0,
                  "ffnSandwichNorms", 0, "sharedExpertGated", (int)moe, "ropeNeoxSubdim", 1,
                  "linearNumKHeads", (int)g->delta.key_heads, "linearNumVHeads", (int)g->delta.value_heads,
                  "linearKeyHeadDim", (int)g->delta.key_dim, "linearValueHeadDim", (int)g->delta.value_dim,
                  "linearConvKernelSize", (int)g->conv_taps);
    bool ok = arch && more && json_object_update(arch, more) == 0;
    if (ok && !moe)
        ok = json_object_set_new(arch, "numSharedExperts", json_integer(0)) == 0 &&
             json_object_set_new(arch, "numDenseLayers", json_integer((json_int_t)m->n_layers)) == 0 &&
             json_object_set_new(arch, "denseIntermediateSize", json_integer((json_int_t)g->dense)) == 0;
    json_decref(more);
    if (ok)
        return arch;
    json_decref(arch);
    return NULL;
}

sluice_status qwen_describe(const struct model *m, json_t **arch, json_t **quant, sluice_error *err)
{
    static const char *const QUANT[5] = {"embedding", "attention", "router", "sharedExpert", "routedExpert"};
    const struct qwen *g = qwen_of(m);
    json_t *mask = json_array();
    bool ok = mask != NULL;
    for (uint32_t l = 0; ok && l < m->n_layers; l++)
        ok = json_array_append_new(mask, json_integer(g->layers[l].full ? 1 : 2)) == 0;
    *arch = ok ? describe_arch(g, mask) : NULL; /* takes the mask over */
    if (!ok)
        json_decref(mask);
    *quant = json_object();
    ok = *arch && *quant;
    for (int i = 0; ok && i < 5; i++)
        if ((i != 2 && i != 4) || m->n_experts)
            ok = json_object_set_new(*quant, QUANT[i], storage_describe(&g->described[i])) == 0;
    if (ok)
        return SLUICE_OK;
    json_decref(*arch);
    json_decref(*quant);
    *arch = *quant = NULL;
    return err_memory(err, 4096, "the manifest");
}
