/* What a constraint costs in decoding:
 *
 *     bench_constrained INSTALL [tokens per run] [pairs] [threads]
 *
 * Runs of free and of constrained decoding in turn, of as many tokens each, past any stop: first under a
 * grammar that accepts every text, then under a JSON Schema of nested objects in an array without end. A
 * constraint is opened anew for each run and works out all it needs within it, as a server's would. Prints
 * the medians of decode time per token and of the ratio of each pair, by the clock and in time on the
 * processor (of all threads; other work on the machine disturbs it less), and the time of opening a
 * constraint. */
#include "sluice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAIRS_MAX = 512, BIASES_MAX = 256 };

/* A grammar bars control tokens: so that free text goes the same way, it may not have them either. */
static sluice_logit_bias g_biases[BIASES_MAX];
static size_t g_n_biases;

static void bar_control(const sluice_engine *engine)
{
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    for (int32_t id = 0; (uint32_t)id < info.vocab_tokens && g_n_biases < BIASES_MAX; id++) {
        bool control = false;
        if (sluice_token_text(sluice_engine_tokenizer(engine), id, &control) && control)
            g_biases[g_n_biases++] = (sluice_logit_bias){id, -100};
    }
}

static const struct shape {
    const char *name;
    sluice_format format;
    const char *text;
} SHAPES[] = {
    {"a grammar that accepts everything", SLUICE_FORMAT_GBNF, "root ::= [^\\x00]*"},
    {"a JSON Schema", SLUICE_FORMAT_SCHEMA,
     "{\"type\":\"array\",\"minItems\":10000,\"items\":{\"type\":\"object\",\"properties\":{\"word\":{"
     "\"type\":"
     "\"string\"},\"length\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":40},\"kind\":{\"enum\":["
     "\"noun\","
     "\"verb\",\"adjective\"]},\"senses\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":"
     "["
     "\"word\",\"length\",\"kind\"]}}"},
};

static void check(sluice_status status, const sluice_error *err)
{
    if (status == SLUICE_OK)
        return;
    (void)fprintf(stderr, "bench_constrained: %s\n", err->detail);
    exit(1);
}

static double now(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Seconds per token. */
struct cost {
    double clock, processor;
};

static struct cost run(sluice_session *session, sluice_constraint *constraint, uint32_t tokens, uint64_t seed)
{
    const int32_t prompt[] = {2, 10, 20, 30};
    sluice_generate_options options = {
        .max_tokens = tokens,
        .ignore_stop_ids = true,
        .sampling = {.temperature = 0.8F,
                     .top_p = 0.95F,
                     .top_k = 64,
                     .seed = seed,
                     .biases = g_biases,
                     .n_biases = g_n_biases},
        .constraint = constraint,
    };
    sluice_generated result;
    sluice_session_stats before, after;
    sluice_error err;
    check(sluice_session_rewind(session, 0, &err), &err);
    check(sluice_session_prefill(session, prompt, 4, &err), &err);
    sluice_session_stats_get(session, &before);
    double from = now(CLOCK_PROCESS_CPUTIME_ID);
    check(sluice_generate(session, &options, NULL, NULL, &result, &err), &err);
    double processor = now(CLOCK_PROCESS_CPUTIME_ID) - from;
    sluice_session_stats_get(session, &after);
    if (result.tokens != tokens) {
        (void)fprintf(stderr, "bench_constrained: a run ended after %u of %u tokens\n", result.tokens,
                      tokens);
        exit(1);
    }
    return (struct cost){(double)(after.decode_ns - before.decode_ns) / 1e9 / tokens, processor / tokens};
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void compare_shape(sluice_engine *engine, sluice_session *session, const struct shape *shape,
                          uint32_t tokens, uint32_t pairs)
{
    static double free_s[PAIRS_MAX], shaped_s[PAIRS_MAX], ratio[PAIRS_MAX], cpu_ratio[PAIRS_MAX],
        opening[PAIRS_MAX];
    for (uint32_t i = 0; i < pairs; i++) {
        sluice_constraint *constraint;
        sluice_error err;
        struct cost plain = {0}, shaped;
        double from = now(CLOCK_MONOTONIC);
        check(sluice_constraint_open(sluice_engine_tokenizer(engine), shape->format, shape->text,
                                     strlen(shape->text), &constraint, &err),
              &err);
        opening[i] = now(CLOCK_MONOTONIC) - from;
        if (i % 2) /* neither is always the first */
            plain = run(session, NULL, tokens, i);
        shaped = run(session, constraint, tokens, i);
        if (i % 2 == 0)
            plain = run(session, NULL, tokens, i);
        free_s[i] = plain.clock;
        shaped_s[i] = shaped.clock;
        ratio[i] = shaped.clock / plain.clock;
        cpu_ratio[i] = shaped.processor / plain.processor;
        sluice_constraint_close(constraint);
    }
    double part = median(ratio, pairs), low = ratio[pairs / 10], high = ratio[pairs - 1 - pairs / 10];
    printf("%s: free %.1f us, constrained %.1f us per token; ratio %.4f (median of %u pairs; 10 to 90 %%: "
           "%.3f to %.3f), of processor time %.4f; opened in %.2f ms\n",
           shape->name, 1e6 * median(free_s, pairs), 1e6 * median(shaped_s, pairs), part, pairs, low, high,
           median(cpu_ratio, pairs), 1e3 * median(opening, pairs));
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_constrained INSTALL [tokens per run] [pairs] [threads]\n");
        return 2;
    }
    const uint32_t tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 500;
    uint32_t pairs = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 20;
    pairs = pairs < 1 ? 1 : pairs > PAIRS_MAX ? PAIRS_MAX : pairs;
    sluice_engine_options options = {
        .expert_slots = SLUICE_SLOTS_ALL, .context_tokens = 4096, .verification = SLUICE_VERIFY_RECEIPT};
    options.threads = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0;
    sluice_engine *engine;
    sluice_session *session;
    sluice_error err;
    check(sluice_engine_open(argv[1], &options, &engine, &err), &err);
    check(sluice_session_open(engine, &session, &err), &err);
    bar_control(engine);
    (void)run(session, NULL, tokens, 0); /* experts are read, caches fill */
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        compare_shape(engine, session, &SHAPES[i], tokens, pairs);
    sluice_session_close(session);
    sluice_engine_close(engine);
    return 0;
}
