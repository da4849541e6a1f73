/* MLX's affine quantization of float weights, group by group: the values of `mx.quantize` on a bfloat16
 * array, bit for bit (tests/oracle/quantize makes the goldens). float16 and float32 weights are rounded to
 * bfloat16 first, because the format's scales and biases are bfloat16. */
#ifndef STORE_QUANTIZE_H
#define STORE_QUANTIZE_H

#include "base/err.h"
#include "base/tensor.h"

/* A part of a copy is cut here and nowhere else: 128 float32, the largest group. */
#define QUANTIZE_GRAIN_BYTES 512u

/* Quantize n_groups groups of `group` values at `source` (little-endian, of type `from`: DTYPE_BF16,
 * DTYPE_F16 or DTYPE_F32; 2-byte aligned). codes: group * bits / 8 bytes a group, low bits first; scales and
 * biases: one bfloat16 a group. bits: 2, 4 or 8. False when a value is not finite. */
bool quantize_groups(const void *source, enum dtype from, size_t n_groups, unsigned group, unsigned bits,
                     unsigned char *codes, uint16_t *scales, uint16_t *biases);

#endif
