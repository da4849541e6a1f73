/* Decode speed of a whole model, everything but the terminal:
 *
 *     bench_decode INSTALL [tokens per run] [rounds]
 *
 * Opens the install with every expert in memory, generates greedily past any stop, and prints tokens per
 * second for 1 thread and for one per core, best and median of the rounds, taken in turn. */
#include "sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 64 };

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(sluice_status status, const sluice_error *err)
{
    if (status == SLUICE_OK)
        return;
    (void)fprintf(stderr, "bench_decode: %s\n", err->detail);
    exit(1);
}

struct bench {
    sluice_engine *engine;
    sluice_session *session;
    const char *name;
    double speeds[ROUNDS_MAX];
};

static void open_bench(struct bench *b, const char *install, const char *name, uint32_t threads)
{
    sluice_error err;
    sluice_engine_options options = {.threads = threads,
                                     .expert_slots = SLUICE_SLOTS_ALL,
                                     .context_tokens = 2048,
                                     .verification = SLUICE_VERIFY_RECEIPT};
    b->name = name;
    check(sluice_engine_open(install, &options, &b->engine, &err), &err);
    check(sluice_session_open(b->engine, &b->session, &err), &err);
}

static double run(struct bench *b, uint32_t tokens)
{
    const int32_t prompt[] = {2, 10, 20, 30};
    sluice_generate_options options = {.max_tokens = tokens, .ignore_stop_ids = true};
    sluice_generated result;
    sluice_session_stats before, after;
    sluice_error err;
    check(sluice_session_rewind(b->session, 0, &err), &err);
    check(sluice_session_prefill(b->session, prompt, 4, &err), &err);
    sluice_session_stats_get(b->session, &before);
    check(sluice_generate(b->session, &options, NULL, NULL, &result, &err), &err);
    sluice_session_stats_get(b->session, &after);
    return result.tokens / ((double)(after.decode_ns - before.decode_ns) / 1e9);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_decode INSTALL [tokens per run] [rounds]\n");
        return 2;
    }
    const uint32_t tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 200;
    uint32_t rounds = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 10;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    struct bench benches[2] = {{0}};
    open_bench(&benches[0], argv[1], "1 thread", 1);
    open_bench(&benches[1], argv[1], "a thread per core", 0);
    for (int i = 0; i < 2; i++)
        (void)run(&benches[i], tokens); /* experts are read, caches fill */
    for (uint32_t r = 0; r < rounds; r++)
        for (int i = 0; i < 2; i++)
            benches[i].speeds[r] = run(&benches[i], tokens);
    for (int i = 0; i < 2; i++) {
        struct bench *b = &benches[i];
        qsort(b->speeds, rounds, sizeof *b->speeds, compare);
        printf("%-18s %8.0f tok/s best, %8.0f median of %u\n", b->name, b->speeds[rounds - 1],
               b->speeds[rounds / 2], rounds);
        sluice_session_close(b->session);
        sluice_engine_close(b->engine);
    }
    return 0;
}
