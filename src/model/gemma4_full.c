/* Gemma 4 26B-A4B as mlx-community/gemma-4-26b-a4b-it-4bit publishes it: docs/models/gemma4.md, sections 2, 3
 * and 6. */
#include "model/gemma4.h"

static const char CONFIG[] =
    "{\"architectures\": [\"Gemma4ForConditionalGeneration\"], \"model_type\": \"gemma4\","
    " \"eos_token_id\": [1, 106, 50], \"tie_word_embeddings\": true,"
    " \"quantization\": {\"bits\": 4, \"group_size\": 64, \"mode\": \"affine\"},"
    " \"text_config\": {\"model_type\": \"gemma4_text\", \"attention_bias\": false, \"attention_k_eq_v\": "
    "true,"
    " \"enable_moe_block\": true, \"final_logit_softcapping\": 30.0, \"global_head_dim\": 512,"
    " \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": 2816,"
    " \"hidden_size_per_layer_input\": 0, \"intermediate_size\": 2112,"
    " \"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"sliding_attention\","
    " \"sliding_attention\", \"sliding_attention\", \"full_attention\"],"
    " \"max_position_embeddings\": 262144, \"moe_intermediate_size\": 704, \"num_attention_heads\": 16,"
    " \"num_experts\": 128, \"num_global_key_value_heads\": 2, \"num_hidden_layers\": 30,"
    " \"num_key_value_heads\": 8, \"num_kv_shared_layers\": 0, \"rms_norm_eps\": 1e-06,"
    " \"rope_parameters\": {\"full_attention\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": 1000000.0,"
    " \"rope_type\": \"proportional\"}, \"sliding_attention\": {\"rope_theta\": 10000.0,"
    " \"rope_type\": \"default\"}}, \"sliding_window\": 1024, \"tie_word_embeddings\": true,"
    " \"top_k_experts\": 8, \"use_double_wide_mlp\": false, \"vocab_size\": 262144}}";

static const struct full_override OVERRIDES[] = {
    {"language_model.model.layers.%u.router.proj", 8, 64},
    {NULL, 0, 0},
};

static const struct full_control CONTROL[] = {
    {"<pad>", 0},
    {"<eos>", 1},
    {"<bos>", 2},
    {"<unk>", 3},
    {"<mask>", 4},
    {"<|tool>", 46},
    {"<tool|>", 47},
    {"<|tool_call>", 48},
    {"<tool_call|>", 49},
    {"<|tool_response>", 50},
    {"<tool_response|>", 51},
    {"<|\"|>", 52},
    {"<|think|>", 98},
    {"<|channel>", 100},
    {"<channel|>", 101},
    {"<|turn>", 105},
    {"<turn|>", 106},
    {NULL, 0},
};

static const struct full_gain GAINS[] = {
    /* The router's input is scaled by 1/sqrt(2816): logits shall spread by 1 all the same. */
    {".router.proj.", 53.0f},
    /* Embeddings are the head too: larger ones would make every token predict itself. */
    {".embed_tokens.", 0.1f},
    {NULL, 0},
};

const struct full_size GEMMA4_FULL_SIZE = {
    .config = CONFIG,
    .overrides = OVERRIDES,
    .gains = GAINS,
    .control = CONTROL,
    .control_ids = 107,
    .bos = "<bos>",
    .eos = "<eos>",
};
