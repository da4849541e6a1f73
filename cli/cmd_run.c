/* sluice run: one prompt, one answer. */
#include "cli.h"
#include "engine.h"
#include "generation.h"
#include "input.h"
#include "interrupt.h"
#include "profile.h"
#include "prompt.h"
#include "shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct run_options {
    const char *install, *dash;
    const char *prompt, *messages_file, *system;
    uint32_t logprobs;
    bool json, quiet, profile;
    const char *routes;
    struct generation_flags generation;
    struct shape_flags shape;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct run_options, member, type)

static const struct flag prompt_rows[] = {
    {.name = "prompt",
     .letter = 'p',
     .kind = FLAG_STRING,
     .value = "TEXT",
     FIELD(prompt, const char *),
     .help = "text to complete, as it is, without the chat template",
     .excludes = "messages-file,system"},
    {.name = "messages-file",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(messages_file, const char *),
     .min = 1,
     .help = "conversation to answer: a JSON list of {\"role\", \"content\"}; - reads standard input"},
    {.name = "system",
     .letter = 's',
     .kind = FLAG_STRING,
     .value = "TEXT",
     FIELD(system, const char *),
     .min = 1,
     .help = "system message of the conversation"},
};

static const struct flag output_rows[] = {
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "print one JSON object at the end instead of text"},
    {.name = "logprobs",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(logprobs, uint32_t),
     .min = 0,
     .max = 20,
     .otherwise = "none",
     .help = "log-probability of each token and of the N likeliest ones at its place",
     .needs = "json"},
    {.name = "profile",
     .kind = FLAG_BOOL,
     FIELD(profile, bool),
     .help = "measure where the time goes and show it at the end"},
    {.name = "record-routes",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(routes, const char *),
     .min = 1,
     .otherwise = "none",
     .help = "add the experts that every token used to FILE, for bench and cache-sim"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG_BOOL,
     FIELD(quiet, bool),
     .help = "the answer only: no plan, progress or figures"},
};

/* Where the prompt comes from; a text from standard input is released by the caller. */
struct source {
    const char *raw, *file;
    struct text question;
};

static int choose_source(const struct run_options *o, struct source *source)
{
    char shown[QUOTE_BYTES];
    *source = (struct source){.raw = o->prompt, .file = o->messages_file};
    if (o->dash != NULL && strcmp(o->dash, "-") != 0)
        return fail_suggest("--prompt", "unexpected argument %s", quote(o->dash, shown));
    if (source->raw != NULL || source->file != NULL) {
        if (o->dash == NULL)
            return EXIT_DONE;
        return fail_usage("- and --%s cannot be given together",
                          source->raw != NULL ? "prompt" : "messages-file");
    }
    if (o->dash == NULL && isatty(STDIN_FILENO))
        return fail_usage(
            "nothing to answer: give --prompt, --messages-file, or a question on standard input");
    int code = input_read("-", &source->question);
    if (code != EXIT_DONE)
        return code;
    input_cut_line_end(&source->question);
    if (source->question.n == 0) {
        fail("standard input is empty; write a question there, or give --prompt or --messages-file");
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

static int encode(const struct run_options *o, const struct source *source, const sluice_tokenizer *tokenizer,
                  struct prompt *prompt)
{
    if (source->raw != NULL)
        return prompt_raw(tokenizer, source->raw, prompt);
    if (source->file != NULL)
        return prompt_file(tokenizer, source->file, o->system, prompt);
    return prompt_question(tokenizer, source->question.bytes, o->system, prompt);
}

/* ---- the JSON object ---- */

static json_t *json_timings(const sluice_session_stats *before, const sluice_session_stats *after)
{
    uint64_t prefill_ns = after->prefill_ns - before->prefill_ns;
    uint64_t decode_ns = after->decode_ns - before->decode_ns;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "prefill_seconds", seconds_of(prefill_ns), "decode_seconds",
                     seconds_of(decode_ns), "prefill_tokens_per_second",
                     per_second(after->prefill_tokens - before->prefill_tokens, prefill_ns),
                     "decode_tokens_per_second",
                     per_second(after->decode_tokens - before->decode_tokens, decode_ns), "wait_seconds",
                     seconds_of(after->wait_ns - before->wait_ns));
}

static json_t *json_stats(const sluice_session_stats *before, const sluice_session_stats *after)
{
    json_t *stats = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "prefill_tokens",
        (json_int_t)(after->prefill_tokens - before->prefill_tokens), "decode_tokens",
        (json_int_t)(after->decode_tokens - before->decode_tokens), "prefill_read_bytes",
        (json_int_t)(after->prefill_read_bytes - before->prefill_read_bytes), "decode_read_bytes",
        (json_int_t)(after->decode_read_bytes - before->decode_read_bytes), "decode_expert_requests",
        (json_int_t)(after->decode_expert_requests - before->decode_expert_requests), "decode_expert_hits",
        (json_int_t)(after->decode_expert_hits - before->decode_expert_hits), "peak_memory_bytes",
        (json_int_t)sluice_peak_memory_bytes());
    if (after->draft_rounds > before->draft_rounds)
        json_object_set_new(
            stats, "drafts",
            json_pack("{s:I, s:I, s:I, s:I}", "passes",
                      (json_int_t)(after->draft_rounds - before->draft_rounds), "guesses",
                      (json_int_t)(after->draft_guesses - before->draft_guesses), "right",
                      (json_int_t)(after->draft_accepted - before->draft_accepted), "expert_requests",
                      (json_int_t)(after->draft_expert_requests - before->draft_expert_requests)));
    return stats;
}

static void print_json(const struct answer *answer, const struct prompt *prompt,
                       const sluice_generate_options *options, const sluice_model_info *info,
                       const sluice_profile *profile)
{
    char seed[24];
    const sluice_generated *g = &answer->generated;
    json_t *object = json_pack(
        "{s:s, s:s%, s:O, s:s, s:{s:I, s:I, s:I}, s:o, s:o}", "model", info->model_id, "text",
        answer->text.bytes, answer->text.n, "ids", answer->ids, "finish_reason", finish_name(g->finish),
        "usage", "prompt_tokens", (json_int_t)prompt->n_ids, "completion_tokens", (json_int_t)g->tokens,
        "total_tokens", (json_int_t)prompt->n_ids + (json_int_t)g->tokens, "timings",
        json_timings(&answer->before, &answer->after), "stats", json_stats(&answer->before, &answer->after));
    if (g->stop_id >= 0)
        json_object_set_new(object, "stop_id", json_integer(g->stop_id));
    if (g->stop_string >= 0)
        json_object_set_new(object, "stop", json_string(options->stops[g->stop_string]));
    /* As a string: JSON readers that keep numbers as doubles would round it. */
    if (options->sampling.temperature > 0) {
        snprintf(seed, sizeof seed, "%" PRIu64, options->sampling.seed);
        json_object_set_new(object, "seed", json_string(seed));
    }
    if (answer->with_logprobs)
        json_object_set(object, "logprobs", answer->logprobs);
    if (profile != NULL)
        json_object_set_new(object, "profile", profile_json(profile));
    out_json(object);
}

/* ---- */

/* The end of a recording is where its failure shows. */
static int end_recording(const struct run_options *o, sluice_session *session, int code)
{
    sluice_error error;
    if (o->routes == NULL || sluice_session_record_routes(session, NULL, &error) == SLUICE_OK)
        return code;
    int failure = fail_error(&error);
    return code == EXIT_DONE ? failure : code;
}

static int generate(const struct run_options *o, const sluice_generate_options *options,
                    sluice_engine *engine, sluice_session *session, const struct prompt *prompt,
                    bool with_logprobs)
{
    sluice_error error;
    sluice_model_info info;
    struct answer answer = {.stream = !o->json,
                            .collect = o->json,
                            .with_logprobs = with_logprobs,
                            .tokenizer = sluice_engine_tokenizer(engine)};
    sluice_profile profile;
    if (o->routes != NULL && sluice_session_record_routes(session, o->routes, &error) != SLUICE_OK)
        return fail_error(&error);
    sluice_session_profile(session, o->profile);
    sluice_session_stats_get(session, &answer.before);
    if (sluice_session_prefill(session, prompt->ids, prompt->n_ids, &error) != SLUICE_OK)
        return fail_error(&error);
    int code = answer_generate(session, options, &answer);
    if (code != EXIT_FAILED && code != EXIT_USAGE) {
        sluice_engine_info(engine, &info);
        sluice_session_profile_get(session, &profile);
        if (o->json)
            print_json(&answer, prompt, options, &info, o->profile ? &profile : NULL);
        out_flush();
        if (!o->quiet) {
            answer_explain_length(&answer, options, engine);
            answer_footer(&answer, &options->sampling);
        }
        if (o->profile && !o->json)
            profile_notice(&profile, answer.after.prefill_tokens, answer.after.decode_tokens);
    }
    answer_free(&answer);
    return end_recording(o, session, code);
}

static int constrain(const struct run_options *o, const sluice_tokenizer *tokenizer,
                     sluice_generate_options *options)
{
    sluice_format format;
    struct text text;
    sluice_error error;
    int code = shape_read(&o->shape, &format, &text);
    if (code != EXIT_DONE || format == SLUICE_FORMAT_TEXT)
        return code;
    if (sluice_constraint_open(tokenizer, format, text.bytes, text.n, &options->constraint, &error) !=
        SLUICE_OK)
        code = fail_error(&error);
    text_free(&text);
    return code;
}

static int answer_prompt(struct run_options *o, const struct source *source,
                         sluice_generate_options *options, bool with_logprobs)
{
    sluice_engine *engine = NULL;
    sluice_session *session = NULL;
    struct prompt prompt = {0};
    sluice_error error;
    int code = engine_open(o->install, &o->engine, o->quiet, &engine);
    if (code != EXIT_DONE)
        return code;
    if ((code = generation_check_model(&o->generation, engine)) != EXIT_DONE ||
        (code = encode(o, source, sluice_engine_tokenizer(engine), &prompt)) != EXIT_DONE ||
        (code = constrain(o, sluice_engine_tokenizer(engine), options)) != EXIT_DONE)
        goto out;
    if (prompt.n_ids == 0) {
        code = fail_usage("the prompt is empty");
        goto out;
    }
    if (sluice_session_open(engine, &session, &error) != SLUICE_OK) {
        code = fail_error(&error);
        goto out;
    }
    interrupt_session(session);
    code = generate(o, options, engine, session, &prompt, with_logprobs);
    interrupt_session(NULL);
out:
    sluice_session_close(session);
    sluice_constraint_close(options->constraint);
    prompt_free(&prompt);
    sluice_engine_close(engine);
    return code;
}

static int run(void *options, const struct parse *parse)
{
    struct run_options *o = options;
    struct source source;
    sluice_generate_options generate_options;
    int code = generation_options(&o->generation, parse, &generate_options);
    if (code != EXIT_DONE)
        return code;
    generate_options.top_logprobs = o->logprobs;
    code = choose_source(o, &source);
    if (code == EXIT_DONE)
        code = answer_prompt(o, &source, &generate_options, flag_given(parse, "logprobs"));
    text_free(&source.question);
    return code;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct run_options, install),
     .help = "a .gturbo directory"},
    {.name = "-",
     .offset = offsetof(struct run_options, dash),
     .help = "read the question from standard input, as is done anyway when that is no terminal"},
};

static const struct flag_group groups[] = {
    {.title = "Prompt", .rows = prompt_rows, .n = sizeof prompt_rows / sizeof *prompt_rows},
    GENERATION_GROUP(struct run_options, generation),
    SHAPE_GROUP(struct run_options, shape),
    {.title = "Output", .rows = output_rows, .n = sizeof output_rows / sizeof *output_rows},
    ENGINE_GROUP(struct run_options, engine),
    DRAFT_GROUP(struct run_options, engine),
    HELP_GROUP,
};

const struct command cmd_run = {
    .name = "run",
    .summary = "answer one prompt",
    .about = "Completes a text (--prompt), answers a conversation (--messages-file), or answers a question "
             "read from "
             "standard input. The answer goes to standard output as it is made; plan and figures go to "
             "standard error. "
             "Ctrl-C ends the answer with exit code 130, a second one the program.",
    .examples = "echo 'What does lighthouse mean?' | sluice run demo.gturbo --greedy\n"
                "sluice run gemma.gturbo --memory 4G --prompt 'Once upon a time' --max-tokens 200\n"
                "sluice run gemma.gturbo --messages-file chat.json --json --logprobs 5 | jq -r .text\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct run_options),
    .run = run,
};
