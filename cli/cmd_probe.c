/* sluice probe: how fast the drive under an install delivers experts, and which way of reading is best. */
#include "cli.h"
#include "engine.h"
#include "out.h"
#include "progress.h"

#include <inttypes.h>

struct probe_options {
    const char *directory;
    bool json, quiet;
};

#define FIELD(member, type) AT(struct probe_options, member, type)

static const struct flag rows[] = {
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "report as one JSON object"},
    {.name = "quiet", .letter = 'q', .kind = FLAG_BOOL, FIELD(quiet, bool), .help = "no progress"},
};

static const char *engine_name(const sluice_probe_row *row)
{
    return row->engine == SLUICE_IO_URING ? "uring" : "threads";
}

static json_t *row_json(const sluice_probe_row *row)
{
    return json_pack("{s:s, s:b, s:i, s:I, s:f, s:f}", "engine", engine_name(row), "direct", row->direct,
                     "depth", (int)row->depth, "block_bytes", (json_int_t)row->block_bytes, "bytes_per_s",
                     row->bytes_per_s, "cpu_s_per_gb", row->cpu_s_per_gb);
}

static void print_json(const char *directory, const sluice_probe_report *report)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list != NULL && i < report->n_rows; i++)
        (void)json_array_append_new(list, row_json(&report->rows[i]));
    out_json(json_pack("{s:s, s:s, s:I, s:b, s:b, s:o, s:o}", "directory", directory, "file", report->file,
                       "file_bytes", (json_int_t)report->file_bytes, "temporary", report->temporary,
                       "remembered", report->remembered, "best", row_json(&report->rows[report->best]),
                       "rows", list));
}

static void print_row(const sluice_probe_row *row, const char *mark)
{
    char block[HUMAN_BYTES];
    out_print("%-8s %-9s %5" PRIu32 " %10s %8.2f %10.3f%s\n", engine_name(row),
              row->direct ? "direct" : "buffered", row->depth, human_bytes(row->block_bytes, block),
              row->bytes_per_s / 1e9, row->cpu_s_per_gb, mark);
}

static int run(void *options, const struct parse *parse)
{
    struct probe_options *o = options;
    struct progress progress;
    sluice_probe_report report;
    sluice_error error = {0};
    (void)parse;
    sluice_watch watch = progress_watch(&progress, o->quiet);
    watch.progress = NULL; /* it counts rows, not bytes; the whole takes seconds */
    sluice_status status = sluice_probe(o->directory, &watch, &report, &error);
    progress_end();
    if (status != SLUICE_OK)
        return fail_error(&error);
    if (!o->quiet && report.why_not[0] != '\0')
        notice("The result is not remembered: %s", report.why_not);
    if (o->json) {
        print_json(o->directory, &report);
        return EXIT_DONE;
    }
    out_print("%-8s %-9s %5s %10s %8s %10s\n", "engine", "mode", "depth", "block", "GB/s", "CPU s/GB");
    for (uint32_t i = 0; i < report.n_rows; i++)
        print_row(&report.rows[i], i == report.best ? "  <- best" : "");
    if (report.remembered)
        out_print("Remembered beside the install; --io auto follows it.\n");
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "DIR",
     .required = true,
     .offset = offsetof(struct probe_options, directory),
     .help = "a .gturbo directory, or any directory on the drive in question"},
};

static const struct flag_group groups[] = {
    {.title = "Probe", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_probe = {
    .name = "probe",
    .summary = "measure the drive and find the best way to read experts",
    .about =
        "Reads blocks at random offsets for a few seconds: through an io_uring and by threads, direct and "
        "through the page cache, one to 32 at a time, in blocks of an install's expert size and others. "
        "Where the directory holds no file of 256 MiB, one is written and deleted afterwards.\n\n"
        "For an install the best way is remembered in INSTALL.probe.json beside it, and --io auto follows "
        "it as long as the install lies on the same device and file system.",
    .examples = "sluice probe gemma.gturbo\nsluice probe /mnt/nvme --json\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct probe_options),
    .run = run,
};
