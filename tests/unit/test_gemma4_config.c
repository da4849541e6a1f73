/* Gemma 4's config.json: what it turns into, and what is refused by name. */
#include "support/config.h"

#define CONFIG "demo/dictionary-moe/config.json"

static void demo_becomes_the_right_tensors(void **state)
{
    (void)state;
    json_t *config = load_config(CONFIG);
    struct model *m;
    sluice_error err;
    assert_int_equal(model_open(config, &m, &err), SLUICE_OK);
    assert_int_equal(m->n_layers, 8);
    assert_int_equal(m->n_experts, 64);
    assert_int_equal(m->top_k, 4);
    assert_int_equal(m->n_stop_ids, 3);
    /* 8 layers of 20, less v_proj on the two full ones, with embedding and final norm; 3 expert stacks each.
     */
    assert_int_equal(m->n_resident, 8 * 20 - 2 + 2);
    assert_int_equal(m->n_specs, m->n_resident + 24);
    assert_string_equal(m->specs[0].name, "language_model.model.embed_tokens.weight");
    assert_string_equal(m->specs[1].name, "language_model.model.layers.0.self_attn.q_proj.weight");
    assert_string_equal(m->specs[m->n_resident - 1].name, "language_model.model.norm.weight");
    const struct tensor_spec *router = find_spec(m, "language_model.model.layers.3.router.proj.weight");
    assert_non_null(router);
    assert_int_equal(router->bits, 8);
    assert_int_equal(router->shape[0], 64);
    assert_int_equal(router->shape[1], 256);
    const struct tensor_spec *q = find_spec(m, "language_model.model.layers.3.self_attn.q_proj.weight");
    assert_int_equal(q->bits, 4);
    assert_int_equal(q->shape[0], 4 * 128); /* full attention: heads of 128 */
    assert_null(find_spec(m, "language_model.model.layers.3.self_attn.v_proj.weight"));
    assert_non_null(find_spec(m, "language_model.model.layers.2.self_attn.v_proj.weight"));
    const struct tensor_spec *scalar = find_spec(m, "language_model.model.layers.0.layer_scalar");
    assert_int_equal(scalar->dtype, DTYPE_BF16);
    assert_int_equal(scalar->shape[0], 1);
    assert_int_equal(m->kv[0].window, 128);
    assert_int_equal(m->kv[3].window, 0);
    assert_int_equal(m->kv[3].kv_heads, 1);
    json_t *arch, *quant;
    assert_int_equal(m->family->describe(m, &arch, &quant, &err), SLUICE_OK);
    assert_int_equal(json_integer_value(json_object_get(arch, "fullHeadDim")), 128);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(arch, "fullAttentionLayerMask"), 3)),
                     1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(quant, "router"), "weightBits")), 8);
    json_decref(arch);
    json_decref(quant);
    model_close(m);
    json_decref(config);
}

static void unsupported_values_are_named(void **state)
{
    (void)state;
    static const struct refused ROWS[] = {
        {"model_type", "\"gpt2\"", "supported are: gemma4", SLUICE_E_UNSUPPORTED},
        {"model_type", "", "model_type", SLUICE_E_FORMAT},
        {"text_config", "", "text_config", SLUICE_E_FORMAT},
        {"text_config", "3", "text_config", SLUICE_E_FORMAT},
        {"text_config/hidden_size", "0", "hidden_size", SLUICE_E_FORMAT},
        {"text_config/hidden_size", "-5", "hidden_size", SLUICE_E_FORMAT},
        {"text_config/hidden_size", "1e3", "hidden_size", SLUICE_E_FORMAT},
        {"text_config/hidden_size", "100", "group size 64", SLUICE_E_FORMAT},
        {"text_config/num_hidden_layers", "7", "layer_types has 8", SLUICE_E_FORMAT},
        {"text_config/layer_types", "[]", "layer_types", SLUICE_E_FORMAT},
        {"text_config/top_k_experts", "65", "top_k_experts", SLUICE_E_FORMAT},
        {"text_config/num_experts", "3", "top_k_experts 4", SLUICE_E_FORMAT},
        {"text_config/num_attention_heads", "3", "do not divide", SLUICE_E_FORMAT},
        {"text_config/head_dim", "63", "odd", SLUICE_E_FORMAT},
        {"text_config/hidden_size_per_layer_input", "256", "hidden_size_per_layer_input",
         SLUICE_E_UNSUPPORTED},
        {"text_config/num_kv_shared_layers", "2", "num_kv_shared_layers", SLUICE_E_UNSUPPORTED},
        {"text_config/enable_moe_block", "false", "enable_moe_block", SLUICE_E_UNSUPPORTED},
        {"text_config/attention_bias", "true", "attention_bias", SLUICE_E_UNSUPPORTED},
        {"text_config/hidden_activation", "\"silu\"", "hidden_activation", SLUICE_E_UNSUPPORTED},
        {"text_config/rope_parameters", "", "rope_parameters", SLUICE_E_FORMAT},
        {"text_config/rope_parameters/full_attention/rope_type", "\"yarn\"", "yarn", SLUICE_E_UNSUPPORTED},
        {"text_config/rope_parameters/full_attention/partial_rotary_factor", "2", "partial_rotary_factor",
         SLUICE_E_FORMAT},
        {"text_config/rope_parameters/sliding_attention/rope_theta", "0.5", "rope_theta", SLUICE_E_FORMAT},
        {"text_config/rms_norm_eps", "-1", "rms_norm_eps", SLUICE_E_FORMAT},
        {"tie_word_embeddings", "false", "tie_word_embeddings", SLUICE_E_UNSUPPORTED},
        {"eos_token_id", "\"x\"", "eos_token_id", SLUICE_E_FORMAT},
        {"quantization/bits", "3", "3 bits", SLUICE_E_UNSUPPORTED},
        {"quantization/group_size", "48", "group size 48", SLUICE_E_UNSUPPORTED},
        {"quantization/mode", "\"mxfp4\"", "mode", SLUICE_E_UNSUPPORTED},
        {"quantization/language_model.model.layers.0.router.proj", "{\"bits\": 5, \"group_size\": 64}",
         "layers.0.router.proj", SLUICE_E_UNSUPPORTED},
        {"quantization/language_model.model.layers.1.experts.switch_glu.up_proj", "false", "is not quantized",
         SLUICE_E_UNSUPPORTED},
        {"dtype", "\"int4\"", "int4", SLUICE_E_UNSUPPORTED},
    };
    expect_refused(CONFIG, ROWS, sizeof ROWS / sizeof *ROWS);
}

static void overrides_choose_the_storage(void **state)
{
    (void)state;
    json_t *config = load_config(CONFIG);
    change(config, "quantization/language_model.model.embed_tokens", "false");
    change(config, "quantization/language_model.model.layers.0.mlp.gate_proj",
           "{\"bits\": 2, \"group_size\": 128}");
    struct model *m;
    assert_int_equal(model_open(config, &m, NULL), SLUICE_OK);
    assert_int_equal(m->specs[0].dtype, DTYPE_BF16);
    const struct tensor_spec *gate = find_spec(m, "language_model.model.layers.0.mlp.gate_proj.weight");
    assert_int_equal(gate->bits, 2);
    assert_int_equal(gate->group_size, 128);
    model_close(m);
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_becomes_the_right_tensors),
        cmocka_unit_test(unsupported_values_are_named),
        cmocka_unit_test(overrides_choose_the_storage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
