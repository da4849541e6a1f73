/* AVX-512 F, BW, DQ and VL. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))),    \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#include "compute/cpu/lanes_avx512.h"

#include "compute/cpu/lane_fill.h"

void cpu_fill_avx512(struct cpu_kernels *kernels)
{
    fill_all(kernels, "avx512");
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
