/* Qwen 3.6 35B-A3B and Qwen 3.8 27B as mlx-community publishes them in 4 bits: docs/models/qwen36.md and
 * qwen38.md, sections 2 and 3. The random tokenizer is of the common kind (run/synth_text.c): as large as
 * theirs, with the control tokens first instead of last. */
#include "model/qwen.h"

/* What both have in common. */
#define TEXT_CONFIG                                                                                          \
    " \"attention_bias\": false, \"attn_output_gate\": true, \"head_dim\": 256, \"hidden_act\": \"silu\","   \
    " \"layer_types\": [\"linear_attention\", \"linear_attention\", \"linear_attention\", "                  \
    "\"full_attention\"],"                                                                                   \
    " \"linear_conv_kernel_dim\": 4, \"linear_key_head_dim\": 128, \"linear_num_key_heads\": 16,"            \
    " \"linear_value_head_dim\": 128, \"mamba_ssm_dtype\": \"float32\", \"max_position_embeddings\": "       \
    "262144,"                                                                                                \
    " \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": "      \
    "10000000,"                                                                                              \
    " \"rope_type\": \"default\"}, \"tie_word_embeddings\": false, \"vocab_size\": 248320"

static const char CONFIG36[] =
    "{\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"], \"model_type\": \"qwen3_5_moe\","
    " \"eos_token_id\": [2, 0], \"tie_word_embeddings\": false,"
    " \"quantization\": {\"bits\": 4, \"group_size\": 64, \"mode\": \"affine\"},"
    " \"text_config\": {\"model_type\": \"qwen3_5_moe_text\", \"hidden_size\": 2048, \"num_hidden_layers\": "
    "40,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"linear_num_value_heads\": 32,"
    " \"num_experts\": 256, \"num_experts_per_tok\": 8, \"norm_topk_prob\": true, \"moe_intermediate_size\": "
    "512,"
    " \"shared_expert_intermediate_size\": 512," TEXT_CONFIG "}}";

static const char CONFIG38[] =
    "{\"architectures\": [\"Qwen3_5ForConditionalGeneration\"], \"model_type\": \"qwen3_5\","
    " \"eos_token_id\": [2, 0], \"tie_word_embeddings\": false,"
    " \"quantization\": {\"bits\": 4, \"group_size\": 64, \"mode\": \"affine\"},"
    " \"text_config\": {\"model_type\": \"qwen3_5_text\", \"hidden_size\": 5120, \"num_hidden_layers\": 64,"
    " \"num_attention_heads\": 24, \"num_key_value_heads\": 4, \"linear_num_value_heads\": 48,"
    " \"intermediate_size\": 17408," TEXT_CONFIG "}}";

static const struct full_override OVERRIDES36[] = {
    {"language_model.model.layers.%u.mlp.gate", 8, 64},
    {"language_model.model.layers.%u.mlp.shared_expert_gate", 8, 64},
    {NULL, 0, 0},
};

static const struct full_control CONTROL[] = {
    {"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2},   {"<unk>", 3}, {"<think>", 4},
    {"</think>", 5},      {"<tool_call>", 6},  {"</tool_call>", 7}, {NULL, 0},
};

const struct full_size QWEN36_FULL_SIZE = {
    .config = CONFIG36,
    .overrides = OVERRIDES36,
    .control = CONTROL,
    .control_ids = 8,
    .eos = "<|im_end|>",
};

const struct full_size QWEN38_FULL_SIZE = {
    .config = CONFIG38,
    .control = CONTROL,
    .control_ids = 8,
    .eos = "<|im_end|>",
};
