/* sluice trace: record every layer's tensors of one prompt, so that two runs can be compared value by value.
 */
#include "cli.h"
#include "engine.h"
#include "out.h"
#include "prompt.h"

struct trace_options {
    const char *install, *prompt, *messages_file, *output;
    bool quiet;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct trace_options, member, type)

static const struct flag rows[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = FLAG_STRING,
     .value = "TEXT",
     FIELD(prompt, const char *),
     .help = "text to run, as it is, without the chat template",
     .excludes = "messages-file"},
    {.name = "messages-file",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(messages_file, const char *),
     .min = 1,
     .help = "conversation to run: a JSON list of {\"role\", \"content\"}; - reads standard input"},
    {.name = "output",
     .letter = 'o',
     .kind = FLAG_STRING,
     .value = "DIR",
     FIELD(output, const char *),
     .min = 1,
     .otherwise = "none: it must be given",
     .help = "directory to make for the trace"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "the digest only: no plan, no progress"},
};

static int run(void *options, const struct parse *parse)
{
    struct trace_options *o = options;
    sluice_engine *engine = NULL;
    struct prompt prompt = {0};
    char digest[SLUICE_DIGEST_TEXT_BYTES];
    sluice_error error;
    if (!flag_given(parse, "output"))
        return fail_usage("--output is missing: the directory to make for the trace");
    if (o->prompt == NULL && o->messages_file == NULL)
        return fail_usage("nothing to run: give --prompt or --messages-file");
    int code = engine_open(o->install, &o->engine, o->quiet, &engine);
    if (code != EXIT_DONE)
        return code;
    const sluice_tokenizer *tokenizer = sluice_engine_tokenizer(engine);
    code = o->prompt != NULL
               ? prompt_raw(tokenizer, o->prompt, &prompt)
               : prompt_file(tokenizer, &(sluice_chat_request){0}, o->messages_file, NULL, &prompt);
    if (code == EXIT_DONE && prompt.n_ids == 0)
        code = fail_usage("the prompt is empty");
    if (code == EXIT_DONE) {
        if (sluice_trace_record(engine, prompt.ids, prompt.n_ids, o->output, digest, &error) == SLUICE_OK)
            out_print("%s\n", digest);
        else
            code = fail_error(&error);
    }
    prompt_free(&prompt);
    sluice_engine_close(engine);
    return code;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct trace_options, install),
     .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Trace", .rows = rows, .n = sizeof rows / sizeof *rows},
    ENGINE_GROUP(struct trace_options, engine),
    HELP_GROUP,
};

const struct command cmd_trace = {
    .name = "trace",
    .summary = "record every layer's values for one prompt",
    .about = "Runs a prompt and writes each layer's tensors and the experts chosen to a new directory, and "
             "prints a digest "
             "over all of them. Equal digests mean equal bits.",
    .examples = "sluice trace demo.gturbo --prompt 'a tower with a light' --output a.trace\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct trace_options),
    .run = run,
};
