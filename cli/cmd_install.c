/* sluice install: lay a checkpoint out as a .gturbo directory. */
#include "cli.h"
#include "engine.h"
#include "hub.h"
#include "models.h"
#include "out.h"
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum quantize { QUANTIZE_NO, QUANTIZE_4, QUANTIZE_8 };

struct install_options {
    const char *source, *output, *revision, *base_url;
    uint32_t connections;
    enum quantize quantize;
    bool dry_run, overwrite, resume, discard, status, json, quiet;
};

#define FIELD(member, type) AT(struct install_options, member, type)

static const char *const quantize_names[] = {"no", "4", "8", NULL};

static const struct flag rows[] = {
    {.name = "output",
     .letter = 'o',
     .kind = FLAG_STRING,
     .value = "X.gturbo",
     FIELD(output, const char *),
     .min = 1,
     .otherwise = "from a hub, NAME.gturbo in the models directory; else it must be given",
     .help = "directory to make; its parent must exist"},
    {.name = "quantize",
     .kind = FLAG_CHOICE,
     .value = "BITS",
     FIELD(quantize, enum quantize),
     .choices = quantize_names,
     .preset = "no",
     .help = "quantize an unquantized checkpoint, routers at 8 bits; loses precision"},
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
    {.name = "status",
     .kind = FLAG_BOOL,
     FIELD(status, bool),
     .help = "only say how far an install has come",
     .excludes = "dry-run,overwrite,resume,discard"},
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "report as one JSON object, progress as lines of JSON on standard error"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "no progress and no report"},
};

static const struct flag hub_rows[] = {
    {.name = "revision",
     .kind = FLAG_STRING,
     .value = "REV",
     FIELD(revision, const char *),
     .min = 1,
     .otherwise = "the registry's, or main",
     .help = "commit, tag or branch of the repository"},
    {.name = "base-url",
     .kind = FLAG_STRING,
     .value = "URL",
     FIELD(base_url, const char *),
     .min = 1,
     .otherwise = "the model hub's",
     .help = "a mirror that answers the hub's addresses"},
    {.name = "connections",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(connections, uint32_t),
     .min = 1,
     .max = 32,
     .otherwise = "4",
     .help = "requests in flight at once"},
};

/* ---- reporting ---- */

static bool report_json(const struct install_options *o, const sluice_install_report *r)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "output", o->output, "family",
        r->family, "dry_run", o->dry_run, "source_bytes", (json_int_t)r->source_bytes, "output_bytes",
        (json_int_t)r->output_bytes, "reused_bytes", (json_int_t)r->reused_bytes, "stride_bytes",
        (json_int_t)r->stride_bytes, "ranges", (json_int_t)r->ranges, "resident_tensors",
        (json_int_t)r->resident_tensors, "skipped_tensors", (json_int_t)r->skipped_tensors, "expert_layers",
        (json_int_t)r->expert_layers, "experts_per_layer", (json_int_t)r->experts_per_layer);
    if (r->revision[0] != '\0') {
        json_object_set_new(object, "revision", json_string(r->revision));
        json_object_set_new(object, "pinned", json_boolean(r->pinned));
    }
    return out_json(object);
}

static void report_text(const struct install_options *o, const sluice_install_report *r)
{
    char source[HUMAN_BYTES], output[HUMAN_BYTES], reused[HUMAN_BYTES], stride[HUMAN_BYTES];
    out_print("%s %s: family %s\n", o->dry_run ? "Would install" : "Installed", o->output, r->family);
    if (r->revision[0] != '\0')
        out_print("  revision  %s, %s\n", r->revision, r->pinned ? "as pinned" : "trusted on first use");
    out_print("  source    %s in %" PRIu32 " ranges\n", human_bytes(r->source_bytes, source), r->ranges);
    out_print("  output    %s\n", human_bytes(r->output_bytes, output));
    if (r->reused_bytes > 0)
        out_print("  reused    %s of an interrupted install\n", human_bytes(r->reused_bytes, reused));
    out_print("  resident  %" PRIu32 " tensors, %" PRIu32 " of the source left out\n", r->resident_tensors,
              r->skipped_tensors);
    out_print("  experts   %" PRIu32 " layers of %" PRIu32 ", %s each\n", r->expert_layers,
              r->experts_per_layer, human_bytes(r->stride_bytes, stride));
}

/* Before the first byte, of an install from a hub: what it will take. */
static void on_planned(void *user, const sluice_install_report *r)
{
    char source[HUMAN_BYTES], output[HUMAN_BYTES], slow[HUMAN_BYTES], fast[HUMAN_BYTES];
    const struct progress *p = user;
    if (p->quiet || p->json || r->revision[0] == '\0')
        return;
    notice("Reading %s, writing %s: about %s at 10 MB/s, %s at 100 MB/s.",
           human_bytes(r->source_bytes, source), human_bytes(r->output_bytes, output),
           human_time((double)r->source_bytes / 10e6, slow),
           human_time((double)r->source_bytes / 100e6, fast));
    if (!r->pinned)
        notice("Revision %s is not in the registry: what it holds is trusted on first use.", r->revision);
}

/* ---- status ---- */

static int show_status(const struct install_options *o)
{
    char total[HUMAN_BYTES], done[HUMAN_BYTES];
    sluice_install_state s;
    sluice_error error;
    if (sluice_install_examine(o->output, &s, &error) != SLUICE_OK)
        return fail_error(&error);
    static const char *const WORDS[] = {[SLUICE_INSTALL_ABSENT] = "absent",
                                        [SLUICE_INSTALL_PARTIAL] = "interrupted",
                                        [SLUICE_INSTALL_COMPLETE] = "complete"};
    const char *word = s.busy ? "installing" : WORDS[s.condition];
    if (o->json)
        out_json(json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I}", "output", o->output, "state", word, "model",
                           s.model_id, "revision", s.revision, "verified", s.verified, "bytes",
                           (json_int_t)s.bytes, "done_bytes", (json_int_t)s.done_bytes));
    else if (s.condition == SLUICE_INSTALL_PARTIAL)
        out_print("%s: %s, %s of %s; go on with --resume, or drop it with \"sluice rm\"\n", o->output, word,
                  human_bytes(s.done_bytes, done), human_bytes(s.bytes, total));
    else
        out_print("%s: %s%s%s\n", o->output, word, s.condition == SLUICE_INSTALL_COMPLETE ? ", " : "",
                  s.condition == SLUICE_INSTALL_COMPLETE ? human_bytes(s.bytes, total) : "");
    return EXIT_DONE;
}

/* ---- running ---- */

/* Where the install goes when nobody said: a repository's into the models directory. */
static int choose_output(struct install_options *o, const char *repo, const struct parse *parse)
{
    char dir[PATH_MAX], path[PATH_MAX];
    sluice_model model;
    if (flag_given(parse, "output"))
        return EXIT_DONE;
    if (repo == NULL)
        return fail_usage("--output is missing: the directory to make, such as model.gturbo");
    if (o->status || o->dry_run ? !models_dir(dir) : !models_make_dir(dir))
        return EXIT_FAILED;
    if (!models_path(sluice_model_find(repo, &model) ? model.name : repo, path))
        return fail_usage("%s gives no name for the install; give --output", repo);
    o->output = models_keep(path);
    /* A dry run looks at the parent too. */
    if (o->dry_run && !models_make_dir(dir))
        return EXIT_FAILED;
    return EXIT_DONE;
}

static int install(const struct install_options *o, const struct hub_source *hub)
{
    static const uint32_t BITS[] = {[QUANTIZE_NO] = 0, [QUANTIZE_4] = 4, [QUANTIZE_8] = 8};
    struct progress progress;
    sluice_install_report report = {0};
    sluice_error error;
    const sluice_install_options wanted = {
        .source_dir = hub->repo == NULL ? o->source : NULL,
        .repo = hub->repo,
        .revision = o->revision,
        .base_url = o->base_url,
        .token = hub->token,
        .ca_file = hub->ca_file,
        .connections = o->connections,
        .quantize_bits = BITS[o->quantize],
        .output_dir = o->output,
        .dry_run = o->dry_run,
        .overwrite = o->overwrite,
        .resume = o->resume,
        .discard = o->discard,
        .planned = on_planned,
        .watch = o->json ? progress_watch_json(&progress, o->quiet) : progress_watch(&progress, o->quiet),
    };
    sluice_status status = sluice_install(&wanted, &report, &error);
    progress_end();
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

static int run(void *options, const struct parse *parse)
{
    struct install_options *o = options;
    struct hub_source hub = {0};
    if (o->source == NULL && !(o->status && flag_given(parse, "output")))
        return fail_usage("SOURCE is missing (%s)", parse->command->operands[0].help);
    if (o->source != NULL && o->source[0] == '\0')
        return fail_usage("SOURCE is empty");
    if (o->source != NULL)
        hub.repo = hub_repo_of(o->source);
    if (hub.repo == NULL &&
        (flag_given(parse, "revision") || flag_given(parse, "base-url") || flag_given(parse, "connections")))
        return fail_usage(
            "--revision, --base-url and --connections belong to a hub's repository, and %s is a "
            "directory",
            o->source != NULL ? o->source : "there");
    int code = choose_output(o, hub.repo, parse);
    if (code != EXIT_DONE)
        return code;
    if (o->status)
        return show_status(o);
    if (o->quantize != QUANTIZE_NO && !o->quiet)
        notice("Quantizing: the install's values are rounded, and differ from the checkpoint's.");
    if (hub.repo != NULL)
        hub_read_environment(&hub);
    code = install(o, &hub);
    hub_release(&hub);
    return code;
}

static const struct operand operands[] = {
    {.name = "SOURCE",
     .offset = offsetof(struct install_options, source),
     .help = "directory of a checkpoint: config.json, tokenizer.json, *.safetensors; or a name that \"sluice "
             "models\" lists; or OWNER/NAME on the hub"},
};

static const struct flag_group groups[] = {
    {.title = "Install", .rows = rows, .n = sizeof rows / sizeof *rows},
    {.title = "From a hub", .rows = hub_rows, .n = sizeof hub_rows / sizeof *hub_rows},
    HELP_GROUP,
};

const struct command cmd_install = {
    .name = "install",
    .summary = "lay a checkpoint out for streaming",
    .about =
        "Copies a checkpoint in Hugging Face's layout with MLX's 4-bit weights into a .gturbo "
        "directory, where each "
        "expert is one aligned record that is read at once. Values are copied, never quantized again. "
        "An install "
        "that is interrupted at any moment leaves nothing that looks finished, and can be resumed."
        "\n\n"
        "From a model hub it reads byte ranges straight into their places: nothing is stored twice, and "
        "memory "
        "stays below 64 MiB. A directory of that name here comes before a repository; hub:OWNER/NAME is "
        "always "
        "one. Private and gated repositories need a token in HF_TOKEN, or in the hub's own token file; "
        "it goes "
        "to the hub over https and never to another host. Proxies are taken from the environment, and "
        "the certificates to trust from SSL_CERT_FILE, CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE or SSL_CERT_DIR.",
    .examples = "sluice install gemma4\n"
                "sluice install ~/models/gemma-4-26b-a4b-it-4bit --output gemma.gturbo\n"
                "sluice install demo/dictionary-moe --output demo.gturbo --dry-run\n"
                "sluice install google/gemma-4-26b-a4b-it --quantize 4\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct install_options),
    .run = run,
};
