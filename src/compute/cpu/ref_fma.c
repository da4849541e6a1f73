/* The reference once more, for x86-64 processors with AVX2 and FMA, where fmaf is an instruction and not a
 * call. The bits are the same: fmaf is correctly rounded either way, and nothing else is fused. */
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define REF_FILL cpu_fill_ref_fma
#define REF_NAME "ref-fma"
#include "compute/cpu/ref.c" /* NOLINT(bugprone-suspicious-include) */
#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
