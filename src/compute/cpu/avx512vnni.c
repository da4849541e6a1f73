/* AVX-512 with VNNI: integer products of four bytes in one instruction. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(                                                                                \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512vnni"))),                  \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,avx512vnni")
#endif
#define LANES_VNNI
#include "compute/cpu/lanes_avx512.h"

#include "compute/cpu/lane_shapes.h"

void cpu_fill_avx512vnni(struct cpu_kernels *kernels)
{
    cpu_fill_avx512(kernels);
    kernels->name = "avx512vnni";
    kernels->quantize_row = quantize_row;
    kernels->affine_i8 = affine_i8;
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
