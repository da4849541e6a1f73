/* sluice synth: an install of a model's full size with random weights, for measuring. */
#include "cli.h"
#include "engine.h"
#include "out.h"
#include "progress.h"

#include <inttypes.h>
#include <time.h>

struct synth_options {
    const char *family, *output;
    uint32_t layers;
    uint64_t seed;
    bool dry_run, overwrite, resume, discard, json, quiet;
};

#define FIELD(member, type) AT(struct synth_options, member, type)

static const struct flag rows[] = {
    {.name = "output",
     .letter = 'o',
     .kind = FLAG_STRING,
     .value = "X.gturbo",
     FIELD(output, const char *),
     .min = 1,
     .otherwise = "none: it must be given",
     .help = "directory to make; its parent must exist"},
    {.name = "layers",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(layers, uint32_t),
     .min = 1,
     .max = 512,
     .otherwise = "as many as the published model has",
     .help = "layers of the model"},
    {.name = "seed",
     .kind = FLAG_U64,
     .value = "N",
     FIELD(seed, uint64_t),
     .otherwise = "0",
     .help = "of the random values; the same seed gives the same bytes"},
    {.name = "dry-run",
     .kind = FLAG_BOOL,
     FIELD(dry_run, bool),
     .help = "report sizes, write nothing",
     .excludes = "overwrite,resume,discard"},
    {.name = "overwrite",
     .kind = FLAG_BOOL,
     FIELD(overwrite, bool),
     .help = "replace a finished install, in one step at the end"},
    {.name = "resume",
     .kind = FLAG_BOOL,
     FIELD(resume, bool),
     .help = "write into what an interrupted run left",
     .excludes = "discard"},
    {.name = "discard",
     .kind = FLAG_BOOL,
     FIELD(discard, bool),
     .help = "delete what an interrupted run left, and start again"},
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "report as one JSON object"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "no progress and no report"},
};

static void report_text(const struct synth_options *o, const sluice_install_report *r, double seconds)
{
    char output[HUMAN_BYTES], stride[HUMAN_BYTES], rate[HUMAN_BYTES];
    out_print("%s %s: random %s, %" PRIu32 " layers of %" PRIu32 " experts of %s, %s",
              o->dry_run ? "Would write" : "Wrote", o->output, r->family, r->expert_layers,
              r->experts_per_layer, human_bytes(r->stride_bytes, stride),
              human_bytes(r->output_bytes, output));
    if (!o->dry_run)
        out_print(" in %.1f s, %s/s", seconds,
                  human_bytes((uint64_t)((double)r->output_bytes / seconds), rate));
    out_print("\n");
}

static int run(void *options, const struct parse *parse)
{
    struct synth_options *o = options;
    struct progress progress;
    struct timespec from, to;
    sluice_install_report report = {0};
    sluice_error error;
    if (!flag_given(parse, "output"))
        return fail_usage("--output is missing: the directory to make, such as random.gturbo");
    const sluice_synth_options wanted = {
        .family = o->family,
        .output_dir = o->output,
        .layers = o->layers,
        .seed = o->seed,
        .dry_run = o->dry_run,
        .overwrite = o->overwrite,
        .resume = o->resume,
        .discard = o->discard,
        .watch = progress_watch(&progress, o->quiet),
    };
    clock_gettime(CLOCK_MONOTONIC, &from);
    sluice_status status = sluice_synth(&wanted, &report, &error);
    clock_gettime(CLOCK_MONOTONIC, &to);
    progress_end();
    if (status == SLUICE_E_CANCELLED) {
        fail("interrupted; the same command with --discard starts again");
        return EXIT_INTERRUPTED;
    }
    if (status != SLUICE_OK)
        return fail_error(&error);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    if (o->json)
        out_json(json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:f}", "output", o->output, "family",
                           report.family, "dry_run", o->dry_run, "output_bytes",
                           (json_int_t)report.output_bytes, "stride_bytes", (json_int_t)report.stride_bytes,
                           "expert_layers", (json_int_t)report.expert_layers, "experts_per_layer",
                           (json_int_t)report.experts_per_layer, "seconds", seconds));
    else if (!o->quiet)
        report_text(o, &report, seconds);
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "FAMILY",
     .required = true,
     .offset = offsetof(struct synth_options, family),
     .help = "a model family whose published size is known, such as gemma4"},
};

static const struct flag_group groups[] = {
    {.title = "Synth", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_synth = {
    .name = "synth",
    .summary = "write an install of a model's full size with random weights, to measure with",
    .about = "Writes a .gturbo directory in the exact shape of a family's published checkpoint, with random "
             "weights and a tokenizer of the right size, so that speed and memory can be measured without "
             "the checkpoint. It passes every check, and talks nonsense. A run that is interrupted leaves "
             "nothing that looks finished.",
    .examples = "sluice synth gemma4 --output random.gturbo\n"
                "sluice synth gemma4 --layers 6 --output small.gturbo --seed 7\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct synth_options),
    .run = run,
};
