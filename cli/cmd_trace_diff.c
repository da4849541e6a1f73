/* sluice trace-diff: where two traces part. */
#include "cli.h"
#include "engine.h"
#include "out.h"

#include <inttypes.h>

struct trace_diff_options {
    const char *a, *b;
    bool json;
};

static const struct flag rows[] = {
    {.name = "json",
     .kind = FLAG_BOOL,
     AT(struct trace_diff_options, json, bool),
     .help = "report as one JSON object"},
};

static void report_json(const sluice_trace_difference *d)
{
    json_t *object = json_pack("{s:b, s:I}", "equal", d->equal, "tensors", (json_int_t)d->tensors);
    if (!d->equal) {
        json_t *where = json_pack("{s:s, s:I, s:s, s:s, s:I}", "name", d->name, "element",
                                  (json_int_t)d->element, "a", d->a, "b", d->b, "ulps", (json_int_t)d->ulps);
        json_object_set_new(object, "difference", where);
    }
    out_json(object);
}

static int run(void *options, const struct parse *parse)
{
    struct trace_diff_options *o = options;
    sluice_trace_difference difference = {0};
    sluice_error error;
    (void)parse;
    if (sluice_trace_diff(o->a, o->b, &difference, &error) != SLUICE_OK)
        return fail_error(&error);
    if (o->json)
        report_json(&difference);
    else if (difference.equal)
        out_print("Equal: %" PRIu32 " tensors\n", difference.tensors);
    else
        out_print("Differ in %s at element %" PRIu64 ": %s and %s, %" PRIu64 " ulps apart; %" PRIu32
                  " tensors compared\n",
                  difference.name, difference.element, difference.a, difference.b, difference.ulps,
                  difference.tensors);
    return difference.equal ? EXIT_DONE : EXIT_FAILED;
}

static const struct operand operands[] = {
    {.name = "A",
     .required = true,
     .offset = offsetof(struct trace_diff_options, a),
     .help = "a directory that sluice trace made"},
    {.name = "B", .required = true, .offset = offsetof(struct trace_diff_options, b), .help = "another one"},
};

static const struct flag_group groups[] = {
    {.title = "Trace-diff", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_trace_diff = {
    .name = "trace-diff",
    .summary = "find the first value in which two traces differ",
    .about =
        "Compares two traces in the order of computation. The exit code is 0 when they are equal and 1 when "
        "they "
        "differ; then the first differing element is shown, with its distance in units in the last place.",
    .examples = "sluice trace-diff a.trace b.trace\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct trace_diff_options),
    .run = run,
};
