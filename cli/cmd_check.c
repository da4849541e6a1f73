/* sluice check: how far the default arithmetic is from the reference arithmetic, and whether that is allowed.
 */
#include "cli.h"
#include "engine.h"
#include "input.h"
#include "progress.h"
#include "prompt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct check_options {
    const char *install, *prompts;
    struct string_list messages_files;
    bool json, quiet, all_positions;
    uint32_t answer_tokens;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct check_options, member, type)

/* The gate that the default arithmetic must pass (docs/design.md, section 8). */
#define MEAN_KL_MAX        1e-3
#define TOP1_AGREEMENT_MIN 0.99

/* Every chat model answers these, the demo included: where a model was never taught to answer, what it
 * guesses is arbitrary (of eight general questions the demo's answers miss the gate by ten times), and a
 * verdict on that says nothing about the arithmetic. */
static const char *const default_prompts[] = {
    "What does lighthouse mean?",      "What kind of thing is a violin?",  "What is the opposite of hot?",
    "What is another word for happy?", "What does photosynthesis mean?",   "What kind of thing is a whale?",
    "What does republic mean?",        "What is the opposite of victory?", "What kind of thing is chess?",
    "What is another word for quick?", "What does algebra mean?",          "What does gravity mean?",
};

static const struct flag rows[] = {
    {.name = "messages-file",
     .kind = FLAG_STRINGS,
     .value = "FILE",
     FIELD(messages_files, struct string_list),
     .min = 1,
     .help = "conversation to check: a JSON list of {\"role\", \"content\"}; may be repeated"},
    {.name = "prompts",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(prompts, const char *),
     .min = 1,
     .otherwise = "twelve questions about words, when there is no --messages-file either",
     .help = "questions to check, one a line"},
    {.name = "answer-tokens",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(answer_tokens, uint32_t),
     .max = 4096,
     .preset = "64",
     .help = "let the reference answer so many tokens and compare along its answer"},
    {.name = "all-positions",
     .kind = FLAG_BOOL,
     FIELD(all_positions, bool),
     .help = "compare inside the questions too, not only where the model writes"},
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "report as one JSON object"},
    {.name = "quiet", .letter = 'q', .kind = FLAG_BOOL, FIELD(quiet, bool), .help = "no progress"},
};

struct prompts {
    sluice_prompt *items; /* ids are owned */
    size_t n;
};

/* Takes the ids over. Compared from position `first` on, unless all are asked for. */
static void add(struct prompts *prompts, const struct check_options *o, const struct prompt *prompt,
                size_t first, uint32_t answer_tokens)
{
    prompts->items = must_realloc(prompts->items, prompts->n + 1, sizeof *prompts->items);
    prompts->items[prompts->n++] = (sluice_prompt){.ids = prompt->ids,
                                                   .n_ids = prompt->n_ids,
                                                   .first = o->all_positions ? 0 : first,
                                                   .answer_tokens = answer_tokens};
    sluice_chat_close(prompt->chat); /* the ids are taken over */
}

static void release(struct prompts *prompts)
{
    for (size_t i = 0; i < prompts->n; i++)
        sluice_free((void *)prompts->items[i].ids);
    free(prompts->items);
}

static int add_question(struct prompts *prompts, const struct check_options *o,
                        const sluice_tokenizer *tokenizer, const char *question)
{
    struct prompt prompt = {0};
    int code = prompt_question(tokenizer, &(sluice_chat_request){0}, question, NULL, &prompt);
    if (code == EXIT_DONE)
        add(prompts, o, &prompt, prompt.n_ids - 1, o->answer_tokens);
    return code;
}

/* A conversation that ends with an answer is judged on that answer; otherwise the reference writes one. */
static int add_conversation(struct prompts *prompts, const struct check_options *o,
                            const sluice_tokenizer *tokenizer, const char *path)
{
    struct prompt prompt = {0}, before = {0};
    struct text text;
    sluice_message *messages = NULL;
    size_t n = 0;
    sluice_error error;
    int code = input_read(path, &text);
    if (code != EXIT_DONE)
        return code;
    if (sluice_messages_parse(text.bytes, text.n, &messages, &n, &error) != SLUICE_OK) {
        code = fail_error(&error);
    } else if (strcmp(messages[n - 1].role, "assistant") != 0) {
        code = prompt_chat(tokenizer, &(sluice_chat_request){0}, messages, n, &prompt);
        if (code == EXIT_DONE)
            add(prompts, o, &prompt, prompt.n_ids - 1, o->answer_tokens);
    } else {
        code = prompt_chat(tokenizer, &(sluice_chat_request){0}, messages, n - 1, &before);
        if (code == EXIT_DONE && sluice_chat_encode(tokenizer, messages, n, false, &prompt.ids, &prompt.n_ids,
                                                    NULL, &error) != SLUICE_OK)
            code = fail_error(&error);
        if (code == EXIT_DONE)
            add(prompts, o, &prompt, before.n_ids < prompt.n_ids ? before.n_ids - 1 : 0, 0);
    }
    prompt_free(&before);
    sluice_free(messages);
    text_free(&text);
    return code;
}

static int add_lines(struct prompts *prompts, const struct check_options *o,
                     const sluice_tokenizer *tokenizer, const char *path)
{
    struct text text;
    char *place = NULL;
    int code = input_read(path, &text);
    if (code != EXIT_DONE)
        return code;
    for (char *line = strtok_r(text.bytes, "\r\n", &place); line != NULL && code == EXIT_DONE;
         line = strtok_r(NULL, "\r\n", &place))
        if (line[strspn(line, " \t")] != '\0')
            code = add_question(prompts, o, tokenizer, line);
    text_free(&text);
    if (code == EXIT_DONE && prompts->n == 0) {
        fail("%s holds no question; write one on each line", path);
        code = EXIT_FAILED;
    }
    return code;
}

static int gather(const struct check_options *o, const sluice_tokenizer *tokenizer, struct prompts *prompts)
{
    int code = EXIT_DONE;
    if (o->prompts != NULL)
        code = add_lines(prompts, o, tokenizer, o->prompts);
    for (size_t i = 0; i < o->messages_files.n && code == EXIT_DONE; i++)
        code = add_conversation(prompts, o, tokenizer, o->messages_files.items[i]);
    if (o->prompts == NULL && o->messages_files.n == 0)
        for (size_t i = 0; i < sizeof default_prompts / sizeof *default_prompts && code == EXIT_DONE; i++)
            code = add_question(prompts, o, tokenizer, default_prompts[i]);
    return code;
}

static void report_json(const sluice_check_report *r, size_t n_prompts, const char *worst, bool pass)
{
    out_json(json_pack("{s:b, s:I, s:I, s:f, s:f, s:f, s:{s:i, s:s?, s:I, s:I}, s:{s:f, s:f}}", "pass", pass,
                       "prompts", (json_int_t)n_prompts, "positions", (json_int_t)r->positions, "mean_kl",
                       r->mean_kl, "max_kl", r->max_kl, "top1_agreement", r->top1_agreement, "worst", "id",
                       (int)r->worst_token, "token", worst, "prompt", (json_int_t)r->worst_prompt, "position",
                       (json_int_t)r->worst_position, "gate", "mean_kl_max", MEAN_KL_MAX,
                       "top1_agreement_min", TOP1_AGREEMENT_MIN));
}

static void report_text(const sluice_check_report *r, size_t n_prompts, const char *worst, bool pass)
{
    char shown[QUOTE_BYTES];
    out_print("positions         %" PRIu64 " in %zu prompts\n", r->positions, n_prompts);
    out_print("mean KL           %.3g nats, at most %g allowed\n", r->mean_kl, MEAN_KL_MAX);
    out_print("max KL            %.3g nats\n", r->max_kl);
    out_print("top-1 agreement   %.2f %%, at least %.0f %% required\n", 100 * r->top1_agreement,
              100 * TOP1_AGREEMENT_MIN);
    out_print("worst token       %" PRId32 " %s, at position %" PRIu32 " of prompt %" PRIu32 "\n",
              r->worst_token, quote(worst != NULL ? worst : "", shown), r->worst_position, r->worst_prompt);
    out_print("gate              %s\n", pass ? "passed" : "failed");
}

static int check(struct check_options *o, const sluice_tokenizer *tokenizer, const struct prompts *prompts)
{
    sluice_check_report report = {0};
    struct progress progress;
    sluice_error error;
    engine_log(&o->engine, o->quiet);
    o->engine.watch = progress_watch(&progress, o->quiet);
    sluice_status status = sluice_check(o->install, &o->engine, prompts->items, prompts->n, &report, &error);
    progress_end();
    if (status != SLUICE_OK)
        return fail_error(&error);
    /* Written so that a NaN fails. */
    bool pass = report.mean_kl <= MEAN_KL_MAX && report.top1_agreement >= TOP1_AGREEMENT_MIN;
    const char *worst = sluice_token_text(tokenizer, report.worst_token, NULL);
    if (o->json)
        report_json(&report, prompts->n, worst, pass);
    else
        report_text(&report, prompts->n, worst, pass);
    return pass ? EXIT_DONE : EXIT_FAILED;
}

static int run(void *options, const struct parse *parse)
{
    struct check_options *o = options;
    sluice_tokenizer *tokenizer = NULL;
    struct prompts prompts = {0};
    sluice_error error;
    (void)parse;
    if (sluice_tokenizer_open(o->install, &tokenizer, &error) != SLUICE_OK)
        return fail_error(&error);
    int code = gather(o, tokenizer, &prompts);
    if (code == EXIT_DONE)
        code = check(o, tokenizer, &prompts);
    release(&prompts);
    sluice_tokenizer_close(tokenizer);
    return code;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct check_options, install),
     .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Check", .rows = rows, .n = sizeof rows / sizeof *rows},
    /* Without kv and activations: those are what is compared. */
    {.title = "Engine",
     .rows = engine_flags,
     .n = ENGINE_MEMORY_ROWS,
     .base = offsetof(struct check_options, engine)},
    {.title = "Engine",
     .rows = engine_flags + ENGINE_MEMORY_ROWS + ENGINE_ARITHMETIC_ROWS,
     .n = ENGINE_RUNNING_ROWS + ENGINE_LOG_ROWS,
     .base = offsetof(struct check_options, engine)},
    HELP_GROUP,
};

const struct command cmd_check = {
    .name = "check",
    .summary = "measure the default arithmetic against the reference",
    .about =
        "Runs prompts in the default arithmetic (int8 activations, f16 keys and values) and beside it "
        "in f32, and compares the distributions where the model writes: along the answer that the "
        "reference gives, or the answer that a conversation ends with. Kullback-Leibler divergence in "
        "nats, and how often the likeliest token is the same. The exit code is 1 when the mean divergence is "
        "above 0.001 or the agreement below 99 %. Give questions that the model was made to answer: "
        "elsewhere its guesses are arbitrary, and their comparison is too.",
    .examples = "sluice check gemma.gturbo\n"
                "sluice check gemma.gturbo --prompts questions.txt --json\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct check_options),
    .run = run,
};
