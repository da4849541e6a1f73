/* NEON with dot product (Armv8.2 and later). */
#ifdef __aarch64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#include "compute/cpu/lanes_neon.h"

#include "compute/cpu/lane_fill.h"

void cpu_fill_neon(struct cpu_kernels *kernels)
{
    fill_all(kernels, "neon");
}

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
#include "compute/cpu/kernels.h"
#endif
