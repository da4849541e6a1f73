/* Qwen's config.json: what it turns into, in either layout, and what is refused by name. */
#include "support/config.h"

#define MOE   "tests/golden/qwen36/q4/config.json"
#define DENSE "tests/golden/qwen38/original/config.json"
#define P     "language_model.model."
#define O     "model.language_model."

static struct model *open_model(const char *file)
{
    json_t *config = load_config(file);
    struct model *m;
    sluice_error err;
    if (model_open(config, &m, &err) != SLUICE_OK)
        fail_msg("%s: %s", file, err.detail);
    json_decref(config);
    return m;
}

static void expect_matrix(const struct model *m, const char *name, uint32_t rows, uint32_t cols, uint8_t bits)
{
    const struct tensor_spec *spec = find_spec(m, name);
    if (!spec || spec->shape[0] != rows || spec->shape[1] != cols || spec->bits != bits)
        fail_msg("%s is not [%u, %u] of %u bits", name, rows, cols, bits);
}

static void experts_and_both_kinds_of_layer(void **state)
{
    (void)state;
    struct model *m = open_model(MOE);
    assert_string_equal(m->family->name, "qwen36");
    assert_int_equal(m->n_layers, 8);
    assert_int_equal(m->top_k, 2);
    assert_false(m->drafts);
    /* Embedding, norm, head; 6 layers of 9 and 2 of 6 tensors to mix tokens; 5 and 2 norms in each. */
    assert_int_equal(m->n_resident, 3 + 6 * 9 + 2 * 6 + 8 * 7);
    assert_int_equal(m->n_specs, m->n_resident + 8 * 3);
    assert_string_equal(m->specs[0].name, P "embed_tokens.weight");
    assert_string_equal(m->specs[m->n_resident - 1].name, "language_model.lm_head.weight");
    expect_matrix(m, P "layers.3.self_attn.q_proj.weight", 2 * 4 * 32, 64, 4);
    expect_matrix(m, P "layers.0.linear_attn.in_proj_qkv.weight", 2 * 2 * 32 + 4 * 32, 64, 4);
    expect_matrix(m, P "layers.0.mlp.gate.weight", 8, 64, 8);
    expect_matrix(m, P "layers.7.mlp.shared_expert_gate.weight", 1, 64, 8);
    expect_matrix(m, P "layers.7.mlp.shared_expert.down_proj.weight", 64, 64, 4);
    assert_null(find_spec(m, P "layers.0.self_attn.q_proj.weight"));
    assert_null(find_spec(m, P "layers.3.linear_attn.conv1d.weight"));
    const struct tensor_spec *conv = find_spec(m, P "layers.1.linear_attn.conv1d.weight");
    assert_non_null(conv);
    assert_int_equal(conv->n_dims, 3);
    assert_int_equal(conv->shape[1], 4);
    assert_int_equal(m->kv[0].kv_heads, 0);
    assert_int_equal(m->kv[3].kv_heads, 2);
    assert_int_equal(m->recurrent[0].state_values, 4 * 32 * 32);
    assert_int_equal(m->recurrent[0].tail_rows, 3);
    assert_int_equal(m->recurrent[3].state_values, 0);
    json_t *arch, *quant;
    assert_int_equal(m->family->describe(m, &arch, &quant, NULL), SLUICE_OK);
    assert_int_equal(json_integer_value(json_object_get(arch, "linearNumVHeads")), 4);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(arch, "fullAttentionLayerMask"), 3)),
                     1);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(arch, "fullAttentionLayerMask"), 2)),
                     2);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(quant, "router"), "weightBits")), 8);
    json_decref(arch);
    json_decref(quant);
    model_close(m);
}

/* The names that a source has, NULL-ended. */
static bool listed(void *user, const char *name)
{
    for (const char *const *n = user; *n; n++)
        if (strcmp(*n, name) == 0)
            return true;
    return false;
}

static void names_choose_layout_and_drafting(void **state)
{
    (void)state;
    static const char *const NONE[] = {NULL}, *const ORIGINAL[] = {O "embed_tokens.weight", "mtp.fc.weight",
                                                                   NULL};
    static const char *const TEXT[] = {"model.embed_tokens.weight", NULL};
    struct model *m = open_model(DENSE);
    assert_string_equal(m->family->name, "qwen38");
    assert_int_equal(m->n_experts, 0);
    const size_t n = m->n_specs;
    assert_int_equal(m->family->arrange(m, listed, (void *)NONE, NULL), SLUICE_OK);
    assert_int_equal(m->n_specs, n);
    assert_string_equal(m->specs[0].name, P "embed_tokens.weight");

    assert_int_equal(m->family->arrange(m, listed, (void *)ORIGINAL, NULL), SLUICE_OK);
    assert_true(m->drafts);
    assert_int_equal(m->n_specs, n + 4 + 11);
    assert_string_equal(m->specs[0].name, O "embed_tokens.weight");
    assert_non_null(find_spec(m, "lm_head.weight"));
    assert_int_equal(find_spec(m, O "layers.0.linear_attn.conv1d.weight")->shape[1], 1);
    assert_int_equal(find_spec(m, "mtp.fc.weight")->shape[1], 128);
    assert_int_equal(find_spec(m, "mtp.layers.0.self_attn.q_proj.weight")->dtype, DTYPE_BF16);

    assert_int_equal(m->family->arrange(m, listed, (void *)TEXT, NULL), SLUICE_OK);
    assert_false(m->drafts);
    assert_string_equal(m->specs[0].name, "model.embed_tokens.weight");
    model_close(m);

    /* Experts have no drafting layer here, whatever there is. */
    m = open_model(MOE);
    assert_int_equal(m->family->arrange(m, listed, (void *)ORIGINAL, NULL), SLUICE_OK);
    assert_false(m->drafts);
    model_close(m);
}

static void layers_may_follow_from_an_interval(void **state)
{
    (void)state;
    json_t *config = load_config(MOE);
    struct model *m;
    change(config, "text_config/layer_types", "");
    change(config, "text_config/full_attention_interval", "2");
    assert_int_equal(model_open(config, &m, NULL), SLUICE_OK);
    for (uint32_t l = 0; l < m->n_layers; l++)
        assert_int_equal(m->kv[l].kv_heads > 0, l % 2);
    model_close(m);
    json_decref(config);
}

static void unsupported_values_are_named(void **state)
{
    (void)state;
    static const struct refused ROWS[] = {
        {"model_type", "\"qwen9\"", "qwen3_5_moe", SLUICE_E_UNSUPPORTED},
        {"text_config", "3", "text_config", SLUICE_E_FORMAT},
        {"text_config/hidden_size", "0", "hidden_size", SLUICE_E_FORMAT},
        {"text_config/hidden_size", "100", "group size 64", SLUICE_E_FORMAT},
        {"text_config/num_hidden_layers", "7", "layer_types has 8", SLUICE_E_FORMAT},
        {"text_config/layer_types", "[1, 2, 3, 4, 5, 6, 7, 8]", "layer_types[0] is not a string",
         SLUICE_E_UNSUPPORTED},
        {"text_config/num_attention_heads", "3", "do not divide", SLUICE_E_FORMAT},
        {"text_config/linear_num_value_heads", "3", "linear_num_value_heads 3", SLUICE_E_FORMAT},
        {"text_config/linear_key_head_dim", "24", "linear_key_head_dim is 24", SLUICE_E_UNSUPPORTED},
        {"text_config/linear_conv_kernel_dim", "9", "linear_conv_kernel_dim", SLUICE_E_FORMAT},
        {"text_config/linear_value_head_dim", "", "linear_value_head_dim", SLUICE_E_FORMAT},
        {"text_config/num_experts", "1", "num_experts", SLUICE_E_FORMAT},
        {"text_config/num_experts_per_tok", "9", "num_experts_per_tok 9", SLUICE_E_FORMAT},
        {"text_config/moe_intermediate_size", "", "moe_intermediate_size", SLUICE_E_FORMAT},
        {"text_config/shared_expert_intermediate_size", "", "shared_expert_intermediate_size",
         SLUICE_E_FORMAT},
        {"text_config/norm_topk_prob", "false", "norm_topk_prob", SLUICE_E_UNSUPPORTED},
        {"text_config/attn_output_gate", "false", "attn_output_gate", SLUICE_E_UNSUPPORTED},
        {"text_config/attention_bias", "true", "attention_bias", SLUICE_E_UNSUPPORTED},
        {"text_config/tie_word_embeddings", "true", "tie_word_embeddings", SLUICE_E_UNSUPPORTED},
        {"tie_word_embeddings", "true", "tie_word_embeddings", SLUICE_E_UNSUPPORTED},
        {"text_config/hidden_act", "\"gelu\"", "hidden_act", SLUICE_E_UNSUPPORTED},
        {"text_config/mamba_ssm_dtype", "\"bfloat16\"", "mamba_ssm_dtype", SLUICE_E_UNSUPPORTED},
        {"text_config/decoder_sparse_step", "2", "decoder_sparse_step", SLUICE_E_UNSUPPORTED},
        {"text_config/mlp_only_layers", "[0]", "mlp_only_layers", SLUICE_E_UNSUPPORTED},
        {"text_config/rope_parameters/rope_theta", "0.5", "rope_theta", SLUICE_E_FORMAT},
        {"text_config/rope_parameters/rope_type", "\"yarn\"", "yarn", SLUICE_E_UNSUPPORTED},
        {"text_config/rope_parameters/partial_rotary_factor", "1.5", "partial_rotary_factor",
         SLUICE_E_FORMAT},
        {"text_config/rope_parameters/partial_rotary_factor", "0.1", "rotates 3 dimensions", SLUICE_E_FORMAT},
        {"text_config/rope_parameters", "", "rope_theta", SLUICE_E_FORMAT},
        {"text_config/rms_norm_eps", "2", "rms_norm_eps", SLUICE_E_FORMAT},
        {"text_config/max_position_embeddings", "", "max_position_embeddings", SLUICE_E_FORMAT},
        {"quantization/bits", "3", "3 bits", SLUICE_E_UNSUPPORTED},
        {"quantization/" P "layers.1.mlp.switch_mlp.up_proj", "false", "is not quantized",
         SLUICE_E_UNSUPPORTED},
    };
    expect_refused(MOE, ROWS, sizeof ROWS / sizeof *ROWS);
    static const struct refused DENSE_ROWS[] = {
        {"text_config/intermediate_size", "", "intermediate_size", SLUICE_E_FORMAT},
        {"text_config/mtp_num_hidden_layers", "2", "mtp_num_hidden_layers", SLUICE_E_FORMAT},
    };
    expect_refused(DENSE, DENSE_ROWS, sizeof DENSE_ROWS / sizeof *DENSE_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_and_both_kinds_of_layer),
        cmocka_unit_test(names_choose_layout_and_drafting),
        cmocka_unit_test(layers_may_follow_from_an_interval),
        cmocka_unit_test(unsupported_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
