/* sluice verify: hash every file of an install and compare with its manifest. */
#include "cli.h"
#include "engine.h"
#include "out.h"
#include "progress.h"

#include <inttypes.h>

struct verify_options {
    const char *install;
    bool json, quiet;
};

#define FIELD(member, type) AT(struct verify_options, member, type)

static const struct flag rows[] = {
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "report as one JSON object, damage included"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "no progress and no report"},
};

static int run(void *options, const struct parse *parse)
{
    struct verify_options *o = options;
    struct progress progress;
    sluice_verify_report report = {0};
    sluice_error error = {0};
    char size[HUMAN_BYTES];
    (void)parse;
    sluice_watch watch = progress_watch(&progress, o->quiet);
    sluice_status status = sluice_verify(o->install, &watch, &report, &error);
    progress_end();
    if (o->json && status != SLUICE_E_CANCELLED)
        out_json(json_pack("{s:s, s:b, s:I, s:I, s:b, s:s*}", "install", o->install, "ok",
                           status == SLUICE_OK, "files", (json_int_t)report.files, "bytes",
                           (json_int_t)report.bytes, "receipt_renewed", report.receipt_renewed, "error",
                           status == SLUICE_OK ? NULL : error.detail));
    if (status != SLUICE_OK)
        return fail_error(&error);
    if (!o->json && !o->quiet)
        out_print("%s: %" PRIu32 " files, %s, every digest as in the manifest%s\n", o->install, report.files,
                  human_bytes(report.bytes, size), report.receipt_renewed ? "; receipt renewed" : "");
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct verify_options, install),
     .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Verify", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_verify = {
    .name = "verify",
    .summary = "compare every file of an install with its digest",
    .about = "Reads the whole install and compares each file's SHA-256 with the manifest. When all are equal "
             "the receipt "
             "is renewed, which --verify receipt of other commands trusts. The first file that differs is "
             "named and "
             "the exit code is 1.",
    .examples = "sluice verify gemma.gturbo\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct verify_options),
    .run = run,
};
