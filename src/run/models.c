/* The registry: the checkpoints that are known, pinned to a commit and to the digest of their shard index. */
#include "model/family.h"

#include <string.h>

#define GB(x) ((uint64_t)((x)*1e9))

/* Sizes in bytes are those of the repository and of a finished install; round ones are what its authors
 * state. Memory: resident weights, keys and values of 4096 tokens, scratch, and one token's experts of each
 * layer. */
struct entry {
    sluice_model model;
    bool extras; /* it is more than its model_type: adapters or predictors that this build does not have */
};

static const struct entry MODELS[] = {
    {.model = {.name = "gemma4",
               .title = "Gemma 4 26B-A4B, instruction tuned",
               .repo = "mlx-community/gemma-4-26b-a4b-it-4bit",
               .revision = "0d77464eeb233a2da68ebf9d7dc4edaac7db956d",
               .index_sha256 = "bf198c9f5ea6462addca1966e5dd669c407537a876e82cf06db9084c5c850b13",
               .model_type = "gemma4",
               .quantization = "4 bits, groups of 64",
               .licence = "see the repository",
               .download_bytes = 14620479420,
               .install_bytes = 14291921884,
               .memory_bytes = GB(2.65),
               .token_bytes = GB(0.81)}},
    {.model = {.name = "qwen36",
               .title = "Qwen 3.6 35B-A3B",
               .repo = "mlx-community/Qwen3.6-35B-A3B-4bit",
               .revision = "38740b847e4cb78f352aba30aa41c76e08e6eb46",
               .index_sha256 = "0b28df60e33753a14e816d3b31577ae2c93884c58430a4a6de6ae9ea483842ea",
               .model_type = "qwen3_5_moe",
               .quantization = "4 bits, groups of 64",
               .licence = "see the repository",
               .download_bytes = 19529025048,
               .install_bytes = 19546491213,
               .memory_bytes = GB(2.3),
               .token_bytes = GB(0.57)}},
    {.model = {.name = "qwen38",
               .title = "Qwen 3.8 27B, dense",
               .repo = "mlx-community/Qwen3.8-27B-4bit",
               .revision = "3e6447f082e89cc7f0bc6e5441afd38dfce760ff",
               .index_sha256 = "13b840162b4cb35c66fef7df072f7dbb4717908204364f5e5d9f9655a2758fa8",
               .model_type = "qwen3_5",
               .quantization = "4 bits, groups of 64",
               .licence = "see the repository",
               .download_bytes = GB(15.2),
               .install_bytes = GB(15.4),
               .memory_bytes = GB(16.2)}},
    {.model = {.name = "deepseek-v4-flash",
               .title = "DeepSeek V4 Flash 284B-A13B",
               .repo = "mlx-community/DeepSeek-V4-Flash-2bit-DQ",
               .revision = "722bf559b7de93575b2320973cf2002e05bfe6c9",
               .index_sha256 = "d1c2d929ab0a35be32cf18026bb31d6f99dad58d6c93a5a2abbe43791f9d6c30",
               .model_type = "deepseek_v4",
               .quantization = "2 bits, groups of 64 and 32",
               .licence = "MIT",
               .download_bytes = GB(97.0),
               .install_bytes = 96689373952,
               .memory_bytes = GB(6.8),
               .token_bytes = GB(2.16)}},
    {.model = {.name = "inkling-small",
               .title = "Inkling-Small 276B-A12B",
               .repo = "pipenetwork/Inkling-Small-MLX-4bit",
               .revision = "9d6e4720ab7002af25d6129c88ccea6cd9f19372",
               .index_sha256 = "fe16aec3cef12438f1d0ff657f7e785781b61271528a66b3b7160fcf1aaca30c",
               .model_type = "inkling_mm_model",
               .quantization = "4 bits, groups of 64",
               .licence = "see the repository",
               .download_bytes = 148441426867,
               .install_bytes = 148421176040,
               .memory_bytes = GB(7.4),
               .token_bytes = GB(3.40)}},
    {.model = {.name = "maple",
               .title = "Maple Preview 20B-A1B, ternary",
               .repo = "deepgrove/maple-preview-2bit-mlx",
               .revision = "361db5da5e74ff6fcdd852d478e1f266ce11013a",
               .index_sha256 = "56000110535c5023b43209a5c142035e12c1cde7b1118759cc9f86335d46ef95",
               .model_type = "maple",
               .quantization = "2 bits, ternary",
               .licence = "none declared",
               .download_bytes = GB(5.33),
               .install_bytes = GB(6.65),
               .memory_bytes = GB(1.0),
               .token_bytes = GB(0.19)}},
    {.model = {.name = "qwen38-flash-next",
               .title = "Qwen 3.8 Flash-Next, about 125B with an n-gram table of 51B",
               .repo = "Sawfwair/Qwen3.8-Flash-Next-MLX-4bit",
               .revision = "6cc9bbc0fae9ce26b7670b3ed1e26d557c154506",
               .model_type = "qwen4_exp",
               .quantization = "4 bits, groups of 64 and 32",
               .licence = "qwen-community-1.0",
               .download_bytes = GB(104.0),
               .install_bytes = GB(104.0),
               .memory_bytes = GB(8.0)}},
    {.model = {.name = "edge0-35b",
               .title = "Edge0 35B-A3B preview",
               .repo = "Edge0/Edge0-35B-A3B-preview",
               .revision = "main",
               .model_type = "qwen3_5_moe",
               .quantization = "4 bits, groups of 64",
               .licence = "Apache-2.0",
               .download_bytes = GB(23.0),
               .install_bytes = GB(23.0),
               .memory_bytes = GB(2.3),
               .token_bytes = GB(0.57)},
     .extras = true},
    {.model = {.name = "edge0-8b",
               .title = "Edge0 8B-A1B preview",
               .repo = "Edge0/Edge0-8B-A1B-preview",
               .revision = "main",
               .model_type = "bailing_hybrid",
               .quantization = "4 bits, groups of 64",
               .licence = "Apache-2.0",
               .download_bytes = GB(4.2),
               .install_bytes = GB(4.2),
               .memory_bytes = GB(1.0)},
     .extras = true},
};

enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

static bool is_supported(const char *model_type)
{
    for (size_t i = 0; FAMILIES[i]; i++)
        for (size_t j = 0; FAMILIES[i]->model_types[j]; j++)
            if (strcmp(FAMILIES[i]->model_types[j], model_type) == 0)
                return true;
    return false;
}

static sluice_model row(size_t i)
{
    sluice_model model = MODELS[i].model;
    model.runnable = !MODELS[i].extras && is_supported(model.model_type);
    return model;
}

size_t sluice_models(sluice_model *models, size_t n)
{
    for (size_t i = 0; i < N_MODELS && i < n; i++)
        models[i] = row(i);
    return N_MODELS;
}

bool sluice_model_find(const char *name_or_repo, sluice_model *model)
{
    for (size_t i = 0; i < N_MODELS; i++)
        if (strcmp(MODELS[i].model.name, name_or_repo) == 0 ||
            strcmp(MODELS[i].model.repo, name_or_repo) == 0) {
            *model = row(i);
            return true;
        }
    return false;
}
