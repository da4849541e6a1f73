#include "engine.h"

#include "cli.h"
#include "out.h"
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const kv_names[] = {
    [SLUICE_KV_F16] = "f16", [SLUICE_KV_BF16] = "bf16", [SLUICE_KV_F32] = "f32", NULL};
static const char *const activation_names[] = {
    [SLUICE_ACTIVATIONS_INT8] = "int8", [SLUICE_ACTIVATIONS_F32] = "f32", NULL};
static const char *const eviction_names[] = {[SLUICE_EVICT_LFU] = "lfu", [SLUICE_EVICT_LRU] = "lru", NULL};
static const char *const io_names[] = {
    [SLUICE_IO_AUTO] = "auto", [SLUICE_IO_URING] = "uring", [SLUICE_IO_THREADS] = "threads", NULL};
static const char *const verification_names[] = {
    [SLUICE_VERIFY_FULL] = "full", [SLUICE_VERIFY_RECEIPT] = "receipt", NULL};

static const char *const draft_names[] = {
    [SLUICE_DRAFT_OFF] = "off", [SLUICE_DRAFT_LOOKUP] = "lookup", [SLUICE_DRAFT_MTP] = "mtp", NULL};

static const char *const log_names[] = {
    [SLUICE_LOG_OFF] = "off",   [SLUICE_LOG_ERROR] = "error", [SLUICE_LOG_WARNING] = "warning",
    [SLUICE_LOG_INFO] = "info", [SLUICE_LOG_DEBUG] = "debug", NULL};

#define OPTION(member, type) AT(sluice_engine_options, member, type)

const struct flag engine_flags[ENGINE_ROWS] = {
    {.name = "memory",
     .letter = 'm',
     .kind = FLAG_SIZE,
     .value = "SIZE",
     OPTION(memory_bytes, uint64_t),
     .min = 1,
     .max = 9007199254740992.0,
     .otherwise = "what is available now, less a reserve",
     .help = "most memory that the process may hold, weights and caches included"},
    {.name = "context",
     .letter = 'c',
     .kind = FLAG_U32,
     .value = "N",
     OPTION(context_tokens, uint32_t),
     .min = 1,
     .max = 16777216,
     .otherwise = "4096, or the model's maximum when that is smaller",
     .help = "tokens that prompt and answers may take together"},
    {.name = "prefill-chunk",
     .kind = FLAG_U32,
     .value = "N|auto",
     OPTION(prefill_chunk_tokens, uint32_t),
     .min = 1,
     .max = 65536,
     .zero = "auto",
     .preset = "auto",
     .help = "tokens of the prompt that are computed together; changes speed and memory, never the output"},
    {.name = "expert-slots",
     .kind = FLAG_U32,
     .value = "N|all",
     OPTION(expert_slots, uint32_t),
     .min = 1,
     .max = 65536,
     .most = "all",
     .otherwise = "what the memory allows",
     .help = "experts of each layer that are kept in memory",
     .excludes = "expert-cache"},
    {.name = "expert-cache",
     .kind = FLAG_SIZE,
     .value = "SIZE",
     OPTION(expert_cache_bytes, uint64_t),
     .min = 1,
     .max = 9007199254740992.0,
     .otherwise = "what the memory allows",
     .help = "memory for experts, another way to choose --expert-slots"},
    {.name = "grammar-memory",
     .kind = FLAG_SIZE,
     .value = "SIZE",
     OPTION(grammar_bytes, uint64_t),
     .min = 1,
     .max = 9007199254740992.0,
     .otherwise = "4 to 16 MiB, by the budget",
     .help = "memory that JSON Schemas and grammars may take while they shape answers"},
    {.name = "kv",
     .kind = FLAG_CHOICE,
     .value = "TYPE",
     OPTION(kv, sluice_kv_type),
     .choices = kv_names,
     .preset = "f16",
     .help = "how keys and values of the context are stored"},
    {.name = "activations",
     .kind = FLAG_CHOICE,
     .value = "TYPE",
     OPTION(activations, sluice_activations),
     .choices = activation_names,
     .preset = "int8",
     .help =
         "arithmetic of the quantized products; f32 is slower and is the mode compared with other programs"},
    {.name = "threads",
     .letter = 't',
     .kind = FLAG_U32,
     .value = "N",
     OPTION(threads, uint32_t),
     .min = 1,
     .max = 1024,
     .otherwise = "one for each available core",
     .help = "threads that compute; never changes the output"},
    {.name = "isa",
     .kind = FLAG_STRING,
     .value = "NAME",
     OPTION(isa, const char *),
     .min = 1,
     .otherwise = "auto, the best that this processor has",
     .help =
         "instruction set that computes, as \"sluice inspect --cpu\" lists them; never changes the output"},
    {.name = "read-threads",
     .kind = FLAG_U32,
     .value = "N",
     OPTION(read_threads, uint32_t),
     .min = 1,
     .max = 256,
     .otherwise = "64, or 8 with --io threads",
     .help = "expert reads in flight at once"},
    {.name = "io",
     .kind = FLAG_CHOICE,
     .value = "ENGINE",
     OPTION(io, sluice_io),
     .choices = io_names,
     .preset = "auto",
     .help = "how experts are read: through an io_uring or by threads; auto takes what sluice probe found "
             "best, else the ring, or threads where the kernel refuses it"},
    {.name = "mirror",
     .kind = FLAG_PATHS,
     .value = "DIR",
     OPTION(mirrors, sluice_paths),
     .min = 1,
     .help = "a directory with another copy of packed_experts/layer_NN.bin, all or some of them, on another "
             "drive; reads are spread over the copies (may be repeated)"},
    {.name = "lookahead",
     .kind = FLAG_U32,
     .value = "N|auto|off",
     OPTION(lookahead_experts, uint32_t),
     .min = 1,
     .max = 32,
     .zero = "auto",
     .most = "off",
     .preset = "auto",
     .help =
         "experts of the next layer to guess, and to read into spare memory while the drive is idle; auto "
         "is what pays for the family, where experts are streamed"},
    {.name = "eviction",
     .kind = FLAG_CHOICE,
     .value = "POLICY",
     OPTION(eviction, sluice_eviction),
     .choices = eviction_names,
     .preset = "lfu",
     .help = "which expert leaves a full cache: the least frequently used one, where old uses fade, or the "
             "least recently used one"},
    {.name = "verify",
     .kind = FLAG_CHOICE,
     .value = "HOW",
     OPTION(verification, sluice_verification),
     .choices = verification_names,
     .preset = "full",
     .help = "hash every file before its bytes are used, or trust the receipt of an earlier verification"},
    {.name = "log-level",
     .kind = FLAG_CHOICE,
     .value = "LEVEL",
     OPTION(log.level, sluice_log_level),
     .choices = log_names,
     .preset = "warning",
     .help = "what is told on standard error of how the model runs; info tells kernels, threads, memory and "
             "how experts are read, and why, debug also each file and prompt",
     .excludes = "quiet"},
};

const struct flag draft_flags[DRAFT_ROWS] = {
    {.name = "draft",
     .kind = FLAG_CHOICE,
     .value = "HOW",
     OPTION(draft, sluice_draft),
     .choices = draft_names,
     .preset = "off",
     .help = "guess tokens ahead and check several in one pass: with the model's own layer for it, or from "
             "the text; never changes the output, and rests where it does not pay"},
    {.name = "draft-max",
     .kind = FLAG_U32,
     .value = "N",
     OPTION(draft_max, uint32_t),
     .min = 1,
     .max = 16,
     .otherwise = "15 by lookup, 4 by mtp",
     .help = "most tokens to guess at once",
     .needs = "draft"},
};

const struct flag help_flag = {
    .name = "help", .letter = 'h', .kind = FLAG_HELP, .help = "show this help and end"};

void plan_print(const sluice_plan *plan, plan_line_fn line)
{
    char text[160], size[HUMAN_BYTES], total[HUMAN_BYTES], limit[HUMAN_BYTES], least[HUMAN_BYTES];
    for (uint32_t i = 0; i < plan->n_items; i++) {
        snprintf(text, sizeof text, "  %-22s %12s", plan->items[i].name,
                 human_bytes(plan->items[i].bytes, size));
        line(text);
    }
    snprintf(text, sizeof text, "  %-22s %12s of %s (%s); the least that works is %s", "total",
             human_bytes(plan->total_bytes, total), human_bytes(plan->limit_bytes, limit), plan->limit_source,
             human_bytes(plan->minimum_bytes, least));
    line(text);
    snprintf(text, sizeof text,
             "  context %" PRIu32 " tokens, prefill chunk %" PRIu32 " tokens, %" PRIu32 " of %" PRIu32
             " experts per layer in memory",
             plan->context_tokens, plan->prefill_chunk_tokens, plan->expert_slots, plan->experts_per_layer);
    line(text);
}

json_t *plan_json(const sluice_plan *plan, bool fits)
{
    json_t *items = json_array();
    for (uint32_t i = 0; i < plan->n_items; i++)
        json_array_append_new(items, json_pack("{s:s, s:I}", "name", plan->items[i].name, "bytes",
                                               (json_int_t)plan->items[i].bytes));
    return json_pack("{s:b, s:o, s:I, s:I, s:I, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "fits", fits,
                     "items", items, "total_bytes", (json_int_t)plan->total_bytes, "limit_bytes",
                     (json_int_t)plan->limit_bytes, "minimum_bytes", (json_int_t)plan->minimum_bytes,
                     "limit_source", plan->limit_source, "context_tokens", (json_int_t)plan->context_tokens,
                     "prefill_chunk_tokens", (json_int_t)plan->prefill_chunk_tokens, "expert_slots",
                     (json_int_t)plan->expert_slots, "experts_per_layer", (json_int_t)plan->experts_per_layer,
                     "expert_layers", (json_int_t)plan->expert_layers, "experts_per_token",
                     (json_int_t)plan->experts_per_token, "expert_bytes", (json_int_t)plan->expert_bytes);
}

static void log_record(void *user, sluice_log_level level, const char *record)
{
    static const char *const titles[] = {[SLUICE_LOG_ERROR] = "Error",
                                         [SLUICE_LOG_WARNING] = "Notice",
                                         [SLUICE_LOG_INFO] = "Info",
                                         [SLUICE_LOG_DEBUG] = "Debug"};
    (void)user;
    progress_end();
    notice("%s: %s", titles[level], record);
}

void engine_log(sluice_engine_options *options, bool quiet)
{
    options->log.write = log_record;
    if (quiet)
        options->log.level = SLUICE_LOG_OFF;
}

static void notice_line(const char *line)
{
    notice("%s", line);
}

static void show_plan(const sluice_plan *plan)
{
    char total[HUMAN_BYTES], limit[HUMAN_BYTES];
    notice("Memory plan: %s of %s (%s), context %" PRIu32 " tokens, %" PRIu32 " of %" PRIu32
           " experts per layer in memory",
           human_bytes(plan->total_bytes, total), human_bytes(plan->limit_bytes, limit), plan->limit_source,
           plan->context_tokens, plan->expert_slots, plan->experts_per_layer);
}

int engine_open(const char *install, sluice_engine_options *options, bool quiet, sluice_engine **engine)
{
    struct progress progress;
    sluice_plan plan = {0};
    sluice_error error;
    sluice_status status = sluice_plan_install(install, options, &plan, &error);
    if (status == SLUICE_OK) {
        if (!quiet)
            show_plan(&plan);
        options->watch = progress_watch(&progress, quiet);
        engine_log(options, quiet);
        status = sluice_engine_open(install, options, engine, &error);
        progress_end();
        options->watch = (sluice_watch){0};
    }
    if (status == SLUICE_OK)
        return EXIT_DONE;
    int code = fail_error(&error);
    if (status == SLUICE_E_BUDGET && plan.n_items > 0) {
        notice("The plan was:");
        plan_print(&plan, notice_line);
    }
    return code;
}
