/* sluice install: lay a checkpoint out as a .gturbo directory. */
#include "cli.h"
#include "engine.h"
#include "out.h"
#include "progress.h"

#include <inttypes.h>

struct install_options {
    const char *source, *output;
    bool dry_run, overwrite, resume, discard, json, quiet;
};

#define FIELD(member, type) AT(struct install_options, member, type)

static const struct flag rows[] = {
    {.name = "output",
     .letter = 'o',
     .kind = FLAG_STRING,
     .value = "X.gturbo",
     FIELD(output, const char *),
     .min = 1,
     .otherwise = "none: it must be given",
     .help = "directory to make; its parent must exist"},
    {.name = "dry-run",
     .kind = FLAG_BOOL,
     FIELD(dry_run, bool),
     .help = "check everything and report sizes, write nothing",
     .excludes = "overwrite,resume,discard"},
    {.name = "overwrite",
     .kind = FLAG_BOOL,
     FIELD(overwrite, bool),
     .help = "replace a finished install, in one step at the end"},
    {.name = "resume",
     .kind = FLAG_BOOL,
     FIELD(resume, bool),
     .help = "go on with an interrupted install",
     .excludes = "discard"},
    {.name = "discard",
     .kind = FLAG_BOOL,
     FIELD(discard, bool),
     .help = "delete what an interrupted install left, and start again"},
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "report as one JSON object"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "no progress and no report"},
};

static bool report_json(const struct install_options *o, const sluice_install_report *r)
{
    return out_json(json_pack(
        "{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "output", o->output, "family",
        r->family, "dry_run", o->dry_run, "source_bytes", (json_int_t)r->source_bytes, "output_bytes",
        (json_int_t)r->output_bytes, "reused_bytes", (json_int_t)r->reused_bytes, "stride_bytes",
        (json_int_t)r->stride_bytes, "ranges", (json_int_t)r->ranges, "resident_tensors",
        (json_int_t)r->resident_tensors, "skipped_tensors", (json_int_t)r->skipped_tensors, "expert_layers",
        (json_int_t)r->expert_layers, "experts_per_layer", (json_int_t)r->experts_per_layer));
}

static void report_text(const struct install_options *o, const sluice_install_report *r)
{
    char source[HUMAN_BYTES], output[HUMAN_BYTES], reused[HUMAN_BYTES], stride[HUMAN_BYTES];
    out_print("%s %s: family %s\n", o->dry_run ? "Would install" : "Installed", o->output, r->family);
    out_print("  source    %s in %" PRIu32 " ranges\n", human_bytes(r->source_bytes, source), r->ranges);
    out_print("  output    %s\n", human_bytes(r->output_bytes, output));
    if (r->reused_bytes > 0)
        out_print("  reused    %s of an interrupted install\n", human_bytes(r->reused_bytes, reused));
    out_print("  resident  %" PRIu32 " tensors, %" PRIu32 " of the source left out\n", r->resident_tensors,
              r->skipped_tensors);
    out_print("  experts   %" PRIu32 " layers of %" PRIu32 ", %s each\n", r->expert_layers,
              r->experts_per_layer, human_bytes(r->stride_bytes, stride));
}

static int run(void *options, const struct parse *parse)
{
    struct install_options *o = options;
    struct progress progress;
    sluice_install_report report = {0};
    sluice_error error;
    if (!flag_given(parse, "output"))
        return fail_usage("--output is missing: the directory to make, such as model.gturbo");
    const sluice_install_options wanted = {
        .source_dir = o->source,
        .output_dir = o->output,
        .dry_run = o->dry_run,
        .overwrite = o->overwrite,
        .resume = o->resume,
        .discard = o->discard,
        .watch = progress_watch(&progress, o->quiet),
    };
    sluice_status status = sluice_install(&wanted, &report, &error);
    progress_end(&progress);
    if (status == SLUICE_E_CANCELLED && !o->dry_run) {
        fail("interrupted; the same command with --resume goes on from here");
        return EXIT_INTERRUPTED;
    }
    if (status != SLUICE_OK)
        return fail_error(&error);
    if (o->json)
        report_json(o, &report);
    else if (!o->quiet)
        report_text(o, &report);
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "SOURCE",
     .required = true,
     .offset = offsetof(struct install_options, source),
     .help = "directory of a checkpoint: config.json, tokenizer.json, *.safetensors"},
};

static const struct flag_group groups[] = {
    {.title = "Install", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_install = {
    .name = "install",
    .summary = "lay a checkpoint out for streaming",
    .about = "Copies a checkpoint in Hugging Face's layout with MLX's 4-bit weights into a .gturbo "
             "directory, where each "
             "expert is one aligned record that is read at once. Values are copied, never quantized again. "
             "An install "
             "that is interrupted at any moment leaves nothing that looks finished, and can be resumed.",
    .examples = "sluice install ~/models/gemma-4-26b-a4b-it-4bit --output gemma.gturbo\n"
                "sluice install demo/dictionary-moe --output demo.gturbo --dry-run\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct install_options),
    .run = run,
};
