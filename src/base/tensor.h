/* The vocabulary that the store and the models share: element types, and how a family describes its tensors
 * to the installer. Codes of enum dtype are those of the .gturbo resident index. */
#ifndef BASE_TENSOR_H
#define BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_AFFINE = 0, /* MLX affine: U32 words of packed codes, with BF16 scales and biases */
    DTYPE_BF16 = 1,
    DTYPE_F16 = 2,
    DTYPE_F32 = 3,
    DTYPE_I64 = 4,
    DTYPE_I32 = 5,
    DTYPE_COUNT
};

/* Bytes per element; 0 for DTYPE_AFFINE. */
static inline size_t dtype_bytes(enum dtype dtype)
{
    static const unsigned char BYTES[DTYPE_COUNT] = {0, 2, 2, 4, 8, 4};
    return BYTES[dtype];
}

static inline bool dtype_is_float(enum dtype dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F16 || dtype == DTYPE_F32;
}

enum tensor_role {
    ROLE_RESIDENT = 0, /* one matrix or vector that every token may need */
    ROLE_EXPERT_GATE,  /* a stack [experts, rows, cols]: expert-major */
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
};

#define TENSOR_DIMS_MAX       4
#define TENSOR_NAME_BYTES_MAX 160

/* One tensor that a family needs. `name` is the source's name of the weight itself ("….q_proj.weight");
 * an affine tensor's scales and biases carry the same name with ".scales" and ".biases" in place of
 * ".weight". `shape` is logical: an affine matrix [rows, cols] counts values, not words. */
struct tensor_spec {
    char name[TENSOR_NAME_BYTES_MAX];
    enum tensor_role role;
    enum dtype dtype;
    uint8_t bits;        /* affine: 2, 4 or 8 */
    bool any_float;      /* BF16, F16 and F32 are all taken as they come; dtype is the usual one */
    uint16_t group_size; /* affine: 32, 64 or 128 */
    int32_t layer;       /* -1: not in a layer */
    uint32_t n_dims;
    uint32_t shape[TENSOR_DIMS_MAX];
};

/* What a tensor is called in a checkpoint that Hugging Face's library wrote, where that differs: `from`
 * inside the name becomes `to`. The rules of a table apply in order, each once. */
struct tensor_alias {
    const char *from, *to;
    /* 0: the whole tensor. 1, 2: its expert-major stack interleaves two, [experts, 2 * rows, cols], and this
     * is the first or the second. */
    int half;
};

#endif
