/* AVX2 with FMA and F16C. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "compute/cpu/lanes_avx2.h"

#include "compute/cpu/lane_fill.h"

void cpu_fill_avx2(struct cpu_kernels *kernels)
{
    fill_all(kernels, "avx2");
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
