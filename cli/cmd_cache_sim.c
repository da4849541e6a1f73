/* sluice cache-sim: hit rates of cache policies over a routing trace. */
#include "cli.h"
#include "engine.h"
#include "out.h"

#include <inttypes.h>

struct sim_options {
    const char *trace;
    struct number_list slots;
    uint32_t layers, experts, top_k, tokens;
    uint64_t seed;
    bool decode, json, csv;
};

#define FIELD(member, type) AT(struct sim_options, member, type)

static const struct flag rows[] = {
    {.name = "slots",
     .kind = FLAG_NUMBERS,
     .most = "all",
     .value = "N|all,...",
     FIELD(slots, struct number_list),
     .min = 1,
     .max = 65536,
     .otherwise = "experts per token, and doubling up to all",
     .help = "experts per layer in memory"},
    {.name = "decode",
     .kind = FLAG_BOOL,
     FIELD(decode, bool),
     .help = "rates of decode steps only; prefill still fills the cache"},
    {.name = "layers",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(layers, uint32_t),
     .min = 1,
     .max = 1024,
     .preset = "30",
     .help = "of a drawn trace"},
    {.name = "experts",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(experts, uint32_t),
     .min = 1,
     .max = 65534,
     .preset = "128",
     .help = "per layer, of a drawn trace"},
    {.name = "experts-per-token",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(top_k, uint32_t),
     .min = 1,
     .max = 64,
     .preset = "8",
     .help = "of a drawn trace"},
    {.name = "tokens",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(tokens, uint32_t),
     .min = 1,
     .max = 1048576,
     .preset = "2048",
     .help = "of a drawn trace"},
    {.name = "seed",
     .kind = FLAG_U64,
     .value = "N",
     FIELD(seed, uint64_t),
     .otherwise = "0",
     .help = "of a drawn trace"},
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "print one JSON object",
     .excludes = "csv"},
    {.name = "csv", .kind = FLAG_BOOL, FIELD(csv, bool), .help = "print comma-separated values"},
};

struct printer {
    const struct sim_options *o;
    json_t *list;
    uint32_t printed;
};

static const double *rates(const struct printer *p, const sluice_cache_sim_row *row)
{
    return p->o->decode ? row->decode_hit_rate : row->hit_rate;
}

static void row_json(struct printer *p, const sluice_cache_sim_row *row)
{
    json_t *all = json_object(), *decode = json_object();
    for (int i = 0; i < SLUICE_CACHE_POLICIES; i++) {
        const char *name = sluice_cache_policy_name((sluice_cache_policy)i);
        json_object_set_new(all, name, json_real(row->hit_rate[i]));
        json_object_set_new(decode, name, json_real(row->decode_hit_rate[i]));
    }
    json_array_append_new(
        p->list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "slots", (json_int_t)row->slots, "experts",
                           (json_int_t)row->experts, "tokens", (json_int_t)row->tokens, "requests",
                           (json_int_t)row->requests, "decode_requests", (json_int_t)row->decode_requests,
                           "hit_rate", all, "decode_hit_rate", decode));
}

static void row_csv(struct printer *p, const sluice_cache_sim_row *row)
{
    if (p->printed++ == 0) {
        out_print("slots");
        for (int i = 0; i < SLUICE_CACHE_POLICIES; i++)
            out_print(",%s", sluice_cache_policy_name((sluice_cache_policy)i));
        out_print("\n");
    }
    out_print("%" PRIu32, row->slots);
    for (int i = 0; i < SLUICE_CACHE_POLICIES; i++)
        out_print(",%.6f", rates(p, row)[i]);
    out_print("\n");
}

/* A column per size would be too wide: sizes go down, policies across in two lines of names. */
static void row_text(struct printer *p, const sluice_cache_sim_row *row)
{
    if (p->printed++ == 0)
        out_print("%" PRIu64 " tokens, %" PRIu64 " expert requests; hits in percent\n", row->tokens,
                  p->o->decode ? row->decode_requests : row->requests);
    out_print("%" PRIu32 " of %" PRIu32 " experts per layer\n", row->slots, row->experts);
    for (int i = 0; i < SLUICE_CACHE_POLICIES; i++)
        out_print("  %-20s %6.2f\n", sluice_cache_policy_name((sluice_cache_policy)i),
                  100 * rates(p, row)[i]);
}

static void on_row(void *user, const sluice_cache_sim_row *row)
{
    struct printer *p = user;
    if (p->o->json)
        row_json(p, row);
    else if (p->o->csv)
        row_csv(p, row);
    else
        row_text(p, row);
    out_flush();
}

static int run(void *options, const struct parse *parse)
{
    struct sim_options *o = options;
    struct printer printer = {.o = o};
    sluice_error error;
    (void)parse;
    const sluice_cache_sim_options sim = {
        .trace = o->trace,
        .layers = o->layers,
        .experts = o->experts,
        .top_k = o->top_k,
        .tokens = o->tokens,
        .seed = o->seed,
        .slots = o->slots.items,
        .n_slots = o->slots.n,
    };
    if (o->json)
        printer.list = json_array();
    if (sluice_cache_sim(&sim, on_row, &printer, &error) != SLUICE_OK) {
        json_decref(printer.list);
        return fail_error(&error);
    }
    if (o->json)
        out_json(json_pack("{s:s, s:o}", "trace", o->trace, "rows", printer.list));
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "TRACE",
     .required = true,
     .offset = offsetof(struct sim_options, trace),
     .help = "a recording of run --record-routes, or zipf:S or reuse:P for a drawn one (see bench)"},
};

static const struct flag_group groups[] = {
    {.title = "Simulation", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_cache_sim = {
    .name = "cache-sim",
    .summary = "compare expert cache policies over a recorded routing trace",
    .about =
        "Replays the expert choices of a recording through cache policies of many sizes and prints how many "
        "requests each would have answered from memory: least recently and least frequently used per layer, "
        "frequencies that halve every 64, 256 or 1024 tokens, the same number of bytes in one pool for all "
        "layers, and Belady's order, which knows the future and is the limit.",
    .examples =
        "sluice run demo.gturbo --prompt 'light' --record-routes routes.bin && sluice cache-sim routes.bin\n"
        "sluice cache-sim zipf:1.1 --slots 16,32,64 --csv\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct sim_options),
    .run = run,
};
