#include "compute/cpu/kernels.h"

static bool usable_always(void)
{
    return true;
}

#ifdef __x86_64__
static bool usable_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

const struct cpu_isa CPU_ISAS[] = {
    {"ref", usable_always, cpu_fill_ref},
#ifdef __x86_64__
    {"ref-fma", usable_fma, cpu_fill_ref_fma},
#endif
};
const uint32_t CPU_ISA_COUNT = sizeof CPU_ISAS / sizeof *CPU_ISAS;

void cpu_kernels_best(struct cpu_kernels *kernels)
{
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++)
        if (CPU_ISAS[i].usable())
            CPU_ISAS[i].fill(kernels);
}
