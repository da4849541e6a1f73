/* Throughput of the CPU primitives, one thread, per instruction set:
 *
 *     bench_compute [seconds per line]
 *
 * Times are those of the thread, best of many. Matrix products report the bytes of weights (codes, scales,
 * biases) read per second of one row, and multiply-adds per second of 64 rows. The matrices are larger than a
 * second-level cache. */
#include "compute/cpu/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { OUTPUTS = 2048, COLS = 2816, ROWS = 64, GROUP = 64, DIM = 256, POSITIONS = 4096 };

static double seconds = 0.3;

static void *filled(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        (void)fprintf(stderr, "bench_compute: %zu bytes were refused\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (unsigned char)(i * 2654435761u >> 13);
    return memory;
}

static float *filled_floats(size_t n)
{
    float *x = filled(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)(uint32_t)(i * 2654435761u) * 0x1p-31f;
    return x;
}

/* Small bfloat16 values, so that sums stay finite. */
static void *filled_bf16(size_t n)
{
    uint16_t *h = filled(n * sizeof *h);
    for (size_t i = 0; i < n; i++)
        h[i] = (uint16_t)(0x3c00 + (i * 37 & 127));
    return h;
}

struct work {
    const struct cpu_kernels *kernels;
    struct mat mat;
    struct quant quant;
    float *x, *y, *scratch;
    struct kv_view kv;
    uint32_t rows;
};

typedef void work_fn(const struct work *work);

static void affine_i8(const struct work *w)
{
    w->kernels->affine_i8(&w->mat, 0, OUTPUTS, &w->quant, w->rows, w->y);
}

static void affine_f32(const struct work *w)
{
    w->kernels->affine_f32(&w->mat, 0, OUTPUTS, w->x, w->rows, w->y);
}

static void quantize(const struct work *w)
{
    for (uint32_t r = 0; r < ROWS; r++)
        w->kernels->quantize_row(&w->quant, r, w->x + (size_t)r * COLS);
}

static void gated(const struct work *w)
{
    w->kernels->gated(ACT_GELU_TANH, w->x, w->x, (size_t)ROWS * COLS, w->y);
}

static void softcap(const struct work *w)
{
    w->kernels->softcap(w->y, 30, (size_t)ROWS * COLS);
}

static void attend(const struct work *w)
{
    const struct attend a = {&w->kv, 0, 0, 0.1f};
    struct attend_query queries[ATTEND_QUERIES];
    for (uint32_t i = 0; i < w->rows; i++)
        queries[i] = (struct attend_query){w->x + i * DIM, w->y + i * DIM, POSITIONS - 1};
    w->kernels->attend(&a, queries, w->rows, w->scratch);
}

/* Processor time of this thread: a busy machine then disturbs less. */
static uint64_t used_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The best run: what the code can do where nobody else is running. */
static double time_of(work_fn *fn, const struct work *work)
{
    const uint64_t start = used_ns();
    uint64_t before = start, best = UINT64_MAX;
    do {
        fn(work);
        uint64_t now = used_ns();
        best = now - before < best ? now - before : best;
        before = now;
    } while ((double)(before - start) < seconds * 1e9);
    return (double)best / 1e9;
}

static void bench_linear(struct work *w)
{
    for (uint32_t bits = 2; bits <= 8; bits *= 2) {
        const double values = (double)OUTPUTS * COLS, bytes = values * bits / 8 + values / GROUP * 4;
        const struct {
            const char *name;
            work_fn *fn;
            bool wide;
        } KINDS[] = {{"8 bits", affine_i8, false}, {"15 bits", affine_i8, true}, {"f32", affine_f32, false}};
        w->mat.bits = w->quant.bits = (uint8_t)bits;
        printf("  %u-bit weights;", bits);
        for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
            w->quant.wide = KINDS[i].wide;
            quantize(w);
            w->rows = 1;
            printf(" activations of %s: %5.2f GB/s", KINDS[i].name, bytes / time_of(KINDS[i].fn, w) / 1e9);
            w->rows = ROWS;
            printf(", %5.1f G/s;", values * ROWS / time_of(KINDS[i].fn, w) / 1e9);
        }
        printf("\n");
    }
}

static void bench_isa(struct work *w)
{
    printf("%s\n", w->kernels->name);
    bench_linear(w);
    const double elements = (double)ROWS * COLS;
    printf("  quantize %.2f, gelu %.2f, softcap %.2f ns/element\n", time_of(quantize, w) / elements * 1e9,
           time_of(gated, w) / elements * 1e9, time_of(softcap, w) / elements * 1e9);
    for (uint32_t n = 1; n <= 8; n *= 8) {
        w->rows = n;
        double t = time_of(attend, w);
        printf("  attention, f16, %u quer%s of %d over %d positions: %.1f us, %.2f GB/s\n", n,
               n == 1 ? "y" : "ies", DIM, POSITIONS, t * 1e6, 4.0 * DIM * POSITIONS / t / 1e9);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = strtod(argv[1], NULL);
    const size_t groups = (size_t)OUTPUTS * COLS / GROUP;
    uint32_t group_stride = (COLS / GROUP + LANES - 1) / LANES * LANES;
    struct work w = {
        .mat = {.dtype = DTYPE_AFFINE,
                .bits = 4,
                .group_size = GROUP,
                .rows = OUTPUTS,
                .cols = COLS,
                .weight = filled((size_t)OUTPUTS * COLS),
                .scales = filled_bf16(groups),
                .biases = filled_bf16(groups)},
        .quant = {filled((size_t)2 * ROWS * COLS), filled_floats((size_t)ROWS * group_stride),
                  filled_floats((size_t)ROWS * group_stride), COLS, GROUP, COLS, group_stride, 4, false},
        .x = filled_floats((size_t)ROWS * COLS),
        .y = filled_floats((size_t)ROWS * COLS),
        .scratch = filled_floats(ATTEND_SCRATCH_FLOATS(DIM)),
        .kv = {SLUICE_KV_F16, POSITIONS, 1, DIM, filled_bf16((size_t)POSITIONS * DIM),
               filled_bf16((size_t)POSITIONS * DIM)},
    };
    for (uint32_t i = 0; i < CPU_ISA_COUNT; i++) {
        if (!CPU_ISAS[i].usable())
            continue;
        struct cpu_kernels kernels;
        cpu_fill_ref(&kernels);
        CPU_ISAS[i].fill(&kernels);
        kernels.name = CPU_ISAS[i].name;
        w.kernels = &kernels;
        bench_isa(&w);
    }
    return 0;
}
