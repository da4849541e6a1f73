/* sluice bench: speed over prompts, slots, threads and chunks, against limits measured in the same run. */
#include "cli.h"
#include "engine.h"
#include "interrupt.h"
#include "out.h"
#include "profile.h"
#include "progress.h"

#include <inttypes.h>

struct bench_options {
    const char *install, *routes;
    float guess_accuracy;
    struct number_list prompts, threads, slots, chunks;
    uint32_t generated, repetitions;
    uint64_t seed;
    bool cold, profile, json, csv, quiet;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct bench_options, member, type)

static const struct flag rows[] = {
    {.name = "prompt-tokens",
     .kind = FLAG_NUMBERS,
     .value = "N,...",
     FIELD(prompts, struct number_list),
     .min = 1,
     .max = 16777216,
     .otherwise = "128",
     .help = "lengths of the prompt"},
    {.name = "generate",
     .letter = 'n',
     .kind = FLAG_U32,
     .value = "N",
     FIELD(generated, uint32_t),
     .min = 1,
     .max = 1048576,
     .preset = "32",
     .help = "tokens that are generated after each prompt"},
    {.name = "repetitions",
     .letter = 'r',
     .kind = FLAG_U32,
     .value = "N",
     FIELD(repetitions, uint32_t),
     .min = 1,
     .max = 100,
     .preset = "3",
     .help = "times that each row is measured; medians are shown"},
    {.name = "sweep-threads",
     .kind = FLAG_NUMBERS,
     .value = "N,...",
     FIELD(threads, struct number_list),
     .min = 1,
     .max = 1024,
     .otherwise = "--threads",
     .help = "numbers of threads to measure",
     .excludes = "threads"},
    {.name = "sweep-slots",
     .kind = FLAG_NUMBERS,
     .most = "all",
     .value = "N|all,...",
     FIELD(slots, struct number_list),
     .min = 1,
     .max = 65536,
     .otherwise = "--expert-slots",
     .help = "experts per layer in memory to measure",
     .excludes = "expert-slots,expert-cache"},
    {.name = "sweep-chunks",
     .kind = FLAG_NUMBERS,
     .value = "N,...",
     FIELD(chunks, struct number_list),
     .min = 1,
     .max = 65536,
     .otherwise = "--prefill-chunk",
     .help = "prefill chunks to measure",
     .excludes = "prefill-chunk"},
    {.name = "cold",
     .kind = FLAG_BOOL,
     FIELD(cold, bool),
     .help = "start every repetition with an empty expert cache, and drop the page cache where that is "
             "allowed"},
    {.name = "route-trace",
     .kind = FLAG_STRING,
     .value = "FILE|zipf:S|reuse:P",
     FIELD(routes, const char *),
     .min = 1,
     .otherwise = "none: the router decides",
     .help = "take the experts of each token from a recording (run --record-routes), or draw them with a "
             "popularity of 1/rank^S, or keep each from the token before with probability P"},
    {.name = "guess-accuracy",
     .kind = FLAG_FLOAT,
     .value = "P",
     FIELD(guess_accuracy, float),
     .min = 0,
     .above_min = true,
     .max = 1,
     .preset = "0.65",
     .needs = "route-trace",
     .help = "how often a guess of --lookahead is right; the preset is what the demo model's guesses of the "
             "likelier half of a layer's experts were, counting those that were not in memory"},
    {.name = "seed",
     .kind = FLAG_U64,
     .value = "N",
     FIELD(seed, uint64_t),
     .otherwise = "0",
     .help = "of the prompts and of drawn experts"},
    {.name = "profile", .kind = FLAG_BOOL, FIELD(profile, bool), .help = "show where the time goes"},
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "print one JSON object",
     .excludes = "csv"},
    {.name = "csv", .kind = FLAG_BOOL, FIELD(csv, bool), .help = "print comma-separated values"},
    {.name = "quiet", .letter = 'q', .kind = FLAG_BOOL, FIELD(quiet, bool), .help = "no progress"},
};

/* ---- a row, in three forms ---- */

struct printer {
    const struct bench_options *o;
    json_t *list;
    uint32_t printed;
};

static const char *page_cache_name(const sluice_bench_row *r)
{
    static const char *const NAMES[] = {[SLUICE_PAGE_CACHE_KEPT] = "kept",
                                        [SLUICE_PAGE_CACHE_FILES] = "files dropped",
                                        [SLUICE_PAGE_CACHE_ALL_DROPPED] = "dropped"};
    return NAMES[r->page_cache];
}

/* Every figure by name, in the order of the CSV. */
static const struct column {
    const char *name;
    enum { COLUMN_U32, COLUMN_U64, COLUMN_DOUBLE } kind;
    size_t offset;
} columns[] = {
#define COLUMN(kind, member)                                                                                 \
    {                                                                                                        \
#member, kind, offsetof(sluice_bench_row, member)                                                    \
    }
    COLUMN(COLUMN_U32, prompt_tokens),
    COLUMN(COLUMN_U32, generated_tokens),
    COLUMN(COLUMN_U32, threads),
    COLUMN(COLUMN_U32, expert_slots),
    COLUMN(COLUMN_U32, experts_per_layer),
    COLUMN(COLUMN_U32, prefill_chunk_tokens),
    COLUMN(COLUMN_U32, repetitions),
    COLUMN(COLUMN_DOUBLE, prefill_tokens_per_second),
    COLUMN(COLUMN_DOUBLE, decode_tokens_per_second),
    COLUMN(COLUMN_DOUBLE, prefill_seconds),
    COLUMN(COLUMN_DOUBLE, decode_step_seconds),
    COLUMN(COLUMN_DOUBLE, prefill_read_bytes),
    COLUMN(COLUMN_DOUBLE, prefill_used_bytes),
    COLUMN(COLUMN_DOUBLE, decode_read_bytes_per_token),
    COLUMN(COLUMN_DOUBLE, hit_rate),
    COLUMN(COLUMN_DOUBLE, prefill_wait_seconds),
    COLUMN(COLUMN_DOUBLE, decode_wait_seconds_per_token),
    COLUMN(COLUMN_DOUBLE, memory_bytes_per_second),
    COLUMN(COLUMN_DOUBLE, experts_bytes_per_second),
    COLUMN(COLUMN_DOUBLE, drive_bytes_per_second),
    COLUMN(COLUMN_DOUBLE, decode_touched_bytes_per_token),
    COLUMN(COLUMN_DOUBLE, decode_memory_ratio),
    COLUMN(COLUMN_DOUBLE, decode_reading_ratio),
    COLUMN(COLUMN_DOUBLE, decode_drive_ratio),
    COLUMN(COLUMN_U64, peak_bytes),
    COLUMN(COLUMN_U64, plan_bytes),
#undef COLUMN
};

static const size_t n_columns = sizeof columns / sizeof *columns;

static double value_of(const sluice_bench_row *r, const struct column *c)
{
    const char *at = (const char *)r + c->offset;
    if (c->kind == COLUMN_U32)
        return *(const uint32_t *)(const void *)at;
    return c->kind == COLUMN_U64 ? (double)*(const uint64_t *)(const void *)at
                                 : *(const double *)(const void *)at;
}

static json_t *row_json(const struct bench_options *o, const sluice_bench_row *r)
{
    json_t *object = json_object();
    for (size_t i = 0; i < n_columns; i++) {
        double value = value_of(r, &columns[i]);
        json_object_set_new(object, columns[i].name,
                            columns[i].kind == COLUMN_DOUBLE ? json_real(value)
                                                             : json_integer((json_int_t)value));
    }
    json_object_set_new(object, "cold", json_boolean(r->cold));
    json_object_set_new(object, "page_cache", json_string(page_cache_name(r)));
    if (o->profile)
        json_object_set_new(object, "profile", profile_json(&r->profile));
    return object;
}

static void row_csv(struct printer *p, const sluice_bench_row *r)
{
    if (p->printed++ == 0) {
        for (size_t i = 0; i < n_columns; i++)
            out_print("%s,", columns[i].name);
        out_print("cold,page_cache\n");
    }
    for (size_t i = 0; i < n_columns; i++)
        out_print(columns[i].kind == COLUMN_DOUBLE ? "%.6g," : "%.0f,", value_of(r, &columns[i]));
    out_print("%d,%s\n", r->cold, page_cache_name(r));
}

static void row_text(struct printer *p, const sluice_bench_row *r)
{
    char read[HUMAN_BYTES], touched[HUMAN_BYTES], peak[HUMAN_BYTES], memory[HUMAN_BYTES], drive[HUMAN_BYTES];
    if (p->printed++ == 0)
        out_print("%7s %7s %6s %6s %6s %10s %10s %12s %6s %9s %7s %7s %10s\n", "prompt", "tokens", "thread",
                  "slots", "chunk", "prefill/s", "decode/s", "read/token", "hits", "wait ms", "memory",
                  "drive", "peak");
    out_print("%7" PRIu32 " %7" PRIu32 " %6" PRIu32 " %6" PRIu32 " %6" PRIu32
              " %10.2f %10.2f %12s %5.1f%% %9.2f %6.1f%% %6.1f%% %10s\n",
              r->prompt_tokens, r->generated_tokens, r->threads, r->expert_slots, r->prefill_chunk_tokens,
              r->prefill_tokens_per_second, r->decode_tokens_per_second,
              human_bytes((uint64_t)r->decode_read_bytes_per_token, read), 100 * r->hit_rate,
              1000 * r->decode_wait_seconds_per_token, 100 * r->decode_memory_ratio,
              100 * r->decode_drive_ratio, human_bytes(r->peak_bytes, peak));
    if (!p->o->quiet)
        notice("  limits: memory %s/s, %s touched per token; drive %s/s; page cache %s",
               human_bytes((uint64_t)r->memory_bytes_per_second, memory),
               human_bytes((uint64_t)r->decode_touched_bytes_per_token, touched),
               human_bytes((uint64_t)r->drive_bytes_per_second, drive), page_cache_name(r));
    if (!p->o->quiet && r->experts_bytes_per_second > 0)
        notice("  experts drawn at random come from memory at %s/s: only to read what a token touches would "
               "take %.1f%% of decode's time",
               human_bytes((uint64_t)r->experts_bytes_per_second, memory), 100 * r->decode_reading_ratio);
    if (p->o->profile)
        profile_notice(&r->profile, (uint64_t)r->prompt_tokens * r->repetitions,
                       (uint64_t)r->generated_tokens * r->repetitions);
}

static void on_row(void *user, const sluice_bench_row *row)
{
    struct printer *p = user;
    if (p->o->json)
        json_array_append_new(p->list, row_json(p->o, row));
    else if (p->o->csv)
        row_csv(p, row);
    else
        row_text(p, row);
    out_flush();
    if (row->cold && row->page_cache == SLUICE_PAGE_CACHE_KEPT)
        notice("The page cache could not be dropped: reads may have come from memory");
}

/* ---- */

static int run(void *options, const struct parse *parse)
{
    struct bench_options *o = options;
    struct progress progress;
    struct printer printer = {.o = o};
    sluice_error error;
    (void)parse;
    const sluice_bench_options bench = {
        .prompt_tokens = o->prompts.items,
        .n_prompt_tokens = o->prompts.n,
        .threads = o->threads.items,
        .n_threads = o->threads.n,
        .expert_slots = o->slots.items,
        .n_expert_slots = o->slots.n,
        .prefill_chunks = o->chunks.items,
        .n_prefill_chunks = o->chunks.n,
        .generated_tokens = o->generated,
        .repetitions = o->repetitions,
        .cold = o->cold,
        .route_trace = o->routes,
        .guess_accuracy = (double)o->guess_accuracy,
        .profile = o->profile,
        .seed = o->seed,
        .watch = progress_watch(&progress, o->quiet),
    };
    if (o->json)
        printer.list = json_array();
    engine_log(&o->engine, o->quiet);
    sluice_status status = sluice_bench(o->install, &o->engine, &bench, on_row, &printer, &error);
    progress_end();
    if (status != SLUICE_OK) {
        json_decref(printer.list);
        return fail_error(&error);
    }
    if (o->json)
        out_json(json_pack("{s:s, s:o}", "install", o->install, "rows", printer.list));
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct bench_options, install),
     .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Benchmark", .rows = rows, .n = sizeof rows / sizeof *rows},
    ENGINE_GROUP(struct bench_options, engine),
    HELP_GROUP,
};

const struct command cmd_bench = {
    .name = "bench",
    .summary = "measure speed against the limits of this machine",
    .about =
        "Measures prefill and decode for every combination of the values given, and beside them what the "
        "machine allows: how fast memory streams with the same threads, and how fast the drive delivers "
        "experts at random places through the same reader. \"memory\" is decode's speed in percent of memory "
        "rate divided by the bytes a token touches; \"drive\" in percent of drive rate divided by the bytes "
        "read. Where every expert is in memory, it also measures how fast experts drawn at random can be "
        "read there, which out of many gigabytes is slower than a stream.\n\n"
        "With --verify full the install is verified once, before anything is measured. With --route-trace "
        "the experts are those of the trace instead of the router's, so that random weights are read like "
        "trained ones; the answer is nonsense and is not shown.",
    .examples =
        "sluice bench demo.gturbo --sweep-slots 4,8,16,all\n"
        "sluice bench gemma.gturbo --memory 4G --cold --route-trace routes.bin --prompt-tokens 128,512\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct bench_options),
    .run = run,
};
