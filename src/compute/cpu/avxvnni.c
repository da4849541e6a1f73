/* AVX2 with VNNI in 256 bits: integer products of four bytes in one instruction. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avxvnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avxvnni")
#endif
#define LANES_VNNI
#include "compute/cpu/lanes_avx2.h"

#include "compute/cpu/lane_shapes.h"

void cpu_fill_avxvnni(struct cpu_kernels *kernels)
{
    cpu_fill_avx2(kernels);
    kernels->name = "avxvnni";
    kernels->quantize_row = quantize_row;
    kernels->affine_i8 = affine_i8;
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
