#include "compute/cpu/kernels.h"

#include <stdio.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static bool usable_always(void)
{
    return true;
}

#ifdef __x86_64__

/* clang 14's __builtin_cpu_supports does not know it. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

/* __builtin_cpu_supports asks the processor, and by XGETBV whether the system saves the registers. */
static bool usable_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool usable_avx512(void)
{
    return usable_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool usable_avx512vnni(void)
{
    return usable_avx512() && __builtin_cpu_supports("avx512vnni");
}

/* Clang 14 does not know the name: leaf 7, subleaf 1, EAX bit 4. */
static bool usable_avxvnni(void)
{
    unsigned a, b, c, d;
    return usable_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1u);
}

/* Leaf 7, EDX: bit 24 is AMX's tiles, bit 25 their products of bytes. The system saves tiles only for a
 * process that asked for it. */
static bool usable_amx(void)
{
    enum { ASK = 0x1023 /* ARCH_REQ_XCOMP_PERM, which older headers lack */, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return usable_avx512vnni() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 3u) == 3u &&
           syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}

#endif
#ifdef __aarch64__
static bool usable_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
#endif

const struct cpu_isa CPU_ISAS[] = {
    {"ref", "portable C, the definition of the arithmetic", usable_always, cpu_fill_ref},
#ifdef __x86_64__
    {"avx2", "AVX2, FMA, F16C", usable_avx2, cpu_fill_avx2},
    {"avxvnni", "AVX2 with AVX-VNNI", usable_avxvnni, cpu_fill_avxvnni},
    {"avx512", "AVX-512 F, BW, DQ, VL", usable_avx512, cpu_fill_avx512},
    {"avx512vnni", "AVX-512 with VNNI", usable_avx512vnni, cpu_fill_avx512vnni},
    {"amx", "AVX-512 with VNNI and AMX", usable_amx, cpu_fill_amx},
#endif
#ifdef __aarch64__
    {"neon", "NEON with dot product", usable_dotprod, cpu_fill_neon},
#endif
};
const uint32_t CPU_ISA_COUNT = sizeof CPU_ISAS / sizeof *CPU_ISAS;

const struct cpu_isa *cpu_isa_best(void)
{
    const struct cpu_isa *best = &CPU_ISAS[0];
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++)
        if (CPU_ISAS[i].usable())
            best = &CPU_ISAS[i];
    return best;
}

static void list_isas(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < CPU_ISA_COUNT && used < bytes; i++)
        if (CPU_ISAS[i].usable())
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", CPU_ISAS[i].name);
}

sluice_status cpu_isa_find(const char *name, const struct cpu_isa **isa, sluice_error *err)
{
    char usable[160];
    *isa = cpu_isa_best();
    if (!name || strcmp(name, "auto") == 0)
        return SLUICE_OK;
    list_isas(usable, sizeof usable);
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++) {
        if (strcmp(CPU_ISAS[i].name, name) != 0)
            continue;
        *isa = &CPU_ISAS[i];
        if (CPU_ISAS[i].usable())
            return SLUICE_OK;
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "this processor does not have the instruction set %s (%s); it has: %s", name,
                       CPU_ISAS[i].about, usable);
    }
    return err_set(err, SLUICE_E_ARGUMENT,
                   "there is no instruction set \"%s\" in this build; this processor can use: auto, %s", name,
                   usable);
}

sluice_status cpu_isa_resolve(const char **isa, sluice_error *err)
{
    const struct cpu_isa *found;
    TRY(cpu_isa_find(*isa, &found, err));
    *isa = found->name;
    return SLUICE_OK;
}

size_t sluice_cpu_isas(sluice_cpu_isa *isas, size_t n)
{
    for (uint32_t i = 0; i < CPU_ISA_COUNT && i < n; i++) {
        const struct cpu_isa *isa = &CPU_ISAS[i];
        isas[i] = (sluice_cpu_isa){isa->name, isa->about, isa->usable(), isa == cpu_isa_best()};
    }
    return CPU_ISA_COUNT;
}

void cpu_kernels_best(struct cpu_kernels *kernels)
{
    cpu_isa_best()->fill(kernels);
}
