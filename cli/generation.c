#include "generation.h"

#include "cli.h"
#include "interrupt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIELD(member, type) AT(struct generation_flags, member, type)

const struct flag generation_rows[GENERATION_ROWS] = {
    {.name = "max-tokens",
     .letter = 'n',
     .kind = FLAG_U32,
     .value = "N",
     FIELD(max_tokens, uint32_t),
     .min = 1,
     .max = 16777216,
     .preset = "1024",
     .help = "most tokens in an answer"},
    {.name = "temperature",
     .kind = FLAG_FLOAT,
     .value = "X",
     FIELD(sampling.temperature, float),
     .min = 0,
     .max = 2,
     .preset = "0.2",
     .help = "spread of the draw; 0 always takes the likeliest token"},
    {.name = "greedy",
     .kind = FLAG_BOOL,
     FIELD(greedy, bool),
     .help = "always take the likeliest token, the same as --temperature 0"},
    {.name = "top-k",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(sampling.top_k, uint32_t),
     .min = 0,
     .max = 16777216,
     .preset = "64",
     .help = "draw from the N likeliest tokens only; 0 for no limit"},
    {.name = "top-p",
     .kind = FLAG_FLOAT,
     .value = "P",
     FIELD(sampling.top_p, float),
     .min = 0,
     .above_min = true,
     .max = 1,
     .preset = "0.95",
     .help = "draw from the likeliest tokens that hold the share P together; 1 for no limit"},
    {.name = "min-p",
     .kind = FLAG_FLOAT,
     .value = "P",
     FIELD(sampling.min_p, float),
     .min = 0,
     .max = 1,
     .preset = "0",
     .help = "leave out tokens less likely than P times the likeliest one; 0 for no limit"},
    {.name = "repetition-penalty",
     .kind = FLAG_FLOAT,
     .value = "X",
     FIELD(sampling.repetition_penalty, float),
     .min = 0,
     .above_min = true,
     .max = 10,
     .preset = "1",
     .help = "divide the logits of tokens that have occurred by X (multiply negative ones); 1 for none"},
    {.name = "presence-penalty",
     .kind = FLAG_FLOAT,
     .value = "X",
     FIELD(sampling.presence_penalty, float),
     .min = -2,
     .max = 2,
     .preset = "0",
     .help = "subtract X from the logits of tokens that have occurred"},
    {.name = "frequency-penalty",
     .kind = FLAG_FLOAT,
     .value = "X",
     FIELD(sampling.frequency_penalty, float),
     .min = -2,
     .max = 2,
     .preset = "0",
     .help = "subtract X from a token's logit for each time it has occurred"},
    {.name = "seed",
     .kind = FLAG_U64,
     .value = "N",
     FIELD(sampling.seed, uint64_t),
     .otherwise = "random, told after the answer",
     .help = "makes a sampled answer repeatable"},
    {.name = "logit-bias",
     .kind = FLAG_BIASES,
     .value = "ID:BIAS",
     FIELD(biases, struct bias_list),
     .min = -100,
     .max = 100,
     .help = "add BIAS to the logit of token ID; may be repeated"},
    {.name = "stop",
     .kind = FLAG_STRINGS,
     .value = "TEXT",
     FIELD(stops, struct string_list),
     .min = 1,
     .help = "end the answer before TEXT; may be repeated"},
    {.name = "ignore-eos",
     .kind = FLAG_BOOL,
     FIELD(ignore_eos, bool),
     .help = "go on past the model's own end of an answer"},
    {.name = "show-special",
     .kind = FLAG_BOOL,
     FIELD(show_special, bool),
     .help = "print control tokens, which are silent otherwise"},
};

static const char *const only_sampling[] = {"top-k", "top-p", "min-p", "seed"};

static int check_greedy(struct generation_flags *flags, const struct parse *parse)
{
    if (flags->greedy) {
        if (flag_given(parse, "temperature") && flags->sampling.temperature > 0)
            return fail_usage("--greedy and --temperature %g cannot be given together; leave one out",
                              (double)flags->sampling.temperature);
        flags->sampling.temperature = 0;
    }
    if (flags->sampling.temperature > 0)
        return EXIT_DONE;
    for (size_t i = 0; i < sizeof only_sampling / sizeof *only_sampling; i++)
        if (flag_given(parse, only_sampling[i]))
            return fail_usage(
                "--%s has no effect on a greedy answer; leave it out, or give a --temperature above 0",
                only_sampling[i]);
    flags->sampling.top_k = 0;
    flags->sampling.top_p = flags->sampling.min_p = 0;
    return EXIT_DONE;
}

static int check_biases(const struct bias_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        for (size_t j = 0; j < i; j++)
            if (list->items[i].id == list->items[j].id)
                return fail_usage("--logit-bias is given twice for token %" PRId32, list->items[i].id);
    return EXIT_DONE;
}

int generation_options(struct generation_flags *flags, const struct parse *parse,
                       sluice_generate_options *options)
{
    sluice_error error;
    int code = check_greedy(flags, parse);
    if (code == EXIT_DONE)
        code = check_biases(&flags->biases);
    if (code != EXIT_DONE)
        return code;
    flags->sampling.biases = flags->biases.items;
    flags->sampling.n_biases = flags->biases.n;
    if (flags->sampling.temperature > 0 && !flag_given(parse, "seed")) {
        uint32_t drawn; /* short enough to be typed again */
        if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
            fail("cannot draw a random seed: %s; choose one with --seed", strerror(errno));
            return EXIT_FAILED;
        }
        flags->sampling.seed = drawn;
    }
    if (sluice_sampling_check(&flags->sampling, &error) != SLUICE_OK)
        return fail_error(&error);
    *options = (sluice_generate_options){
        .sampling = flags->sampling,
        .max_tokens = flags->max_tokens,
        .stops = flags->stops.items,
        .n_stops = flags->stops.n,
        .ignore_stop_ids = flags->ignore_eos,
        .show_control = flags->show_special,
    };
    return EXIT_DONE;
}

int generation_check_model(const struct generation_flags *flags, const sluice_engine *engine)
{
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    for (size_t i = 0; i < flags->biases.n; i++)
        if ((uint32_t)flags->biases.items[i].id >= info.vocab_tokens)
            return fail_usage("--logit-bias names token %" PRId32 ", and the model has tokens 0 to %" PRIu32,
                              flags->biases.items[i].id, info.vocab_tokens - 1);
    return EXIT_DONE;
}

/* ---- one answer ---- */

static json_t *json_token(const sluice_tokenizer *tokenizer, const sluice_token_logprob *token)
{
    const char *spelling = sluice_token_text(tokenizer, token->id, NULL);
    return json_pack("{s:i, s:s?, s:f}", "id", (int)token->id, "token", spelling, "logprob",
                     (double)token->logprob);
}

static void collect_token(struct answer *answer, const sluice_piece *piece)
{
    json_array_append_new(answer->ids, json_integer(piece->token.id));
    if (!answer->with_logprobs)
        return;
    json_t *entry = json_token(answer->tokenizer, &piece->token), *top = json_array();
    for (uint32_t i = 0; i < piece->n_top; i++)
        json_array_append_new(top, json_token(answer->tokenizer, &piece->top[i]));
    json_object_set_new(entry, "top", top);
    json_array_append_new(answer->logprobs, entry);
}

/* ---- what a chat takes apart ---- */

static bool show(struct answer *answer, const char *text, size_t n)
{
    answer->showed |= n > 0;
    return !answer->stream || n == 0 || (out_text(text, n) && out_flush());
}

/* The reasoning ends: told in one line when it is folded. */
static void end_thoughts(struct answer *answer)
{
    if (!answer->in_thoughts)
        return;
    answer->in_thoughts = false;
    if (answer->reasoning == REASONING_SHOW)
        notice_text("\n", 1);
    else if (answer->reasoning == REASONING_FOLD)
        notice("[thought: %zu characters; --reasoning show tells them]", answer->thoughts.n);
}

static void begin_call(struct answer *answer, const sluice_delta *delta)
{
    answer->arguments.n = 0;
    json_decref(answer->call);
    answer->call = json_pack("{s:s, s:s, s:{s:s}}", "id", delta->id, "type", "function", "function", "name",
                             delta->name);
}

/* Only a call that is complete and right counts. */
static void end_call(struct answer *answer)
{
    if (answer->calls == NULL)
        answer->calls = json_array();
    json_object_set_new(json_object_get(answer->call, "function"), "arguments",
                        json_stringn(answer->arguments.bytes, answer->arguments.n));
    json_array_append_new(answer->calls, answer->call);
    answer->call = NULL;
}

static bool on_delta(struct answer *answer, const sluice_delta *delta)
{
    if (delta->kind != SLUICE_DELTA_REASONING)
        end_thoughts(answer);
    switch (delta->kind) {
    case SLUICE_DELTA_CONTENT:
        text_add(&answer->content, delta->text, delta->text_bytes);
        return answer->raw || show(answer, delta->text, delta->text_bytes);
    case SLUICE_DELTA_REASONING:
        answer->in_thoughts = true;
        text_add(&answer->thoughts, delta->text, delta->text_bytes);
        if (answer->stream && answer->reasoning == REASONING_SHOW)
            notice_text(delta->text, delta->text_bytes);
        break;
    case SLUICE_DELTA_CALL:
        begin_call(answer, delta);
        break;
    case SLUICE_DELTA_ARGUMENTS:
        text_add(&answer->arguments, delta->text, delta->text_bytes);
        break;
    case SLUICE_DELTA_CALL_END:
        end_call(answer);
        break;
    case SLUICE_DELTA_MALFORMED: /* told by the finish; the text is among "raw" */
        break;
    }
    return true;
}

static bool on_piece(void *user, const sluice_piece *piece)
{
    struct answer *answer = user;
    bool go_on = true;
    text_add(&answer->text, piece->text, piece->text_bytes);
    if (answer->collect && piece->token.id >= 0)
        collect_token(answer, piece);
    for (size_t i = 0; i < piece->n_deltas; i++)
        go_on &= on_delta(answer, &piece->deltas[i]);
    if (!answer->has_chat || answer->raw)
        go_on &= show(answer, piece->text, piece->text_bytes);
    return go_on;
}

/* Calls go to standard output, one JSON object on a line each. */
static void print_calls(struct answer *answer)
{
    for (size_t i = 0; i < json_array_size(answer->calls) && answer->stream; i++) {
        char *line = json_dumps(json_array_get(answer->calls, i), JSON_COMPACT);
        if (line != NULL)
            out_print("%s\n", line);
        free(line);
    }
}

const struct text *answer_text(const struct answer *answer)
{
    return answer->has_chat ? &answer->content : &answer->text;
}

void answer_json(const struct answer *answer, json_t *object)
{
    const struct text *content = answer_text(answer);
    if (answer->thoughts.n > 0)
        json_object_set_new(object, "reasoning_content",
                            json_stringn(answer->thoughts.bytes, answer->thoughts.n));
    if (answer->calls != NULL)
        json_object_set(object, "tool_calls", answer->calls);
    if (content->n != answer->text.n)
        json_object_set_new(object, "raw", json_stringn(answer->text.bytes, answer->text.n));
}

int answer_generate(sluice_session *session, const sluice_generate_options *options, struct answer *answer)
{
    sluice_error error;
    answer->has_chat = options->chat != NULL;
    answer->raw = options->show_control;
    if (answer->collect) {
        answer->ids = json_array();
        answer->logprobs = json_array();
    }
    sluice_status status = sluice_generate(session, options, on_piece, answer, &answer->generated, &error);
    sluice_session_stats_get(session, &answer->after);
    end_thoughts(answer);
    text_add(&answer->text, "", 0);
    text_add(&answer->content, "", 0);
    const struct text *shown = answer->raw ? &answer->text : answer_text(answer);
    bool calls_only = shown->n == 0 && answer->calls != NULL;
    if (answer->stream && !calls_only && (shown->n == 0 || shown->bytes[shown->n - 1] != '\n'))
        out_text("\n", 1);
    print_calls(answer);
    if (answer->stream)
        out_flush();
    if (status != SLUICE_OK)
        return fail_error(&error);
    if (answer->generated.finish == SLUICE_FINISH_MALFORMED_CALL)
        notice("The model began a tool call that is none; --json tells its raw text");
    return answer->generated.finish == SLUICE_FINISH_CANCELLED ? EXIT_INTERRUPTED : EXIT_DONE;
}

void answer_free(struct answer *answer)
{
    text_free(&answer->text);
    text_free(&answer->content);
    text_free(&answer->thoughts);
    text_free(&answer->arguments);
    json_decref(answer->ids);
    json_decref(answer->logprobs);
    json_decref(answer->calls);
    json_decref(answer->call);
    answer->ids = answer->logprobs = answer->calls = answer->call = NULL;
}

const char *finish_name(sluice_finish finish)
{
    static const char *const names[] = {[SLUICE_FINISH_STOP] = "stop",
                                        [SLUICE_FINISH_LENGTH] = "length",
                                        [SLUICE_FINISH_CANCELLED] = "cancelled",
                                        [SLUICE_FINISH_TOOL_CALLS] = "tool_calls",
                                        [SLUICE_FINISH_MALFORMED_CALL] = "malformed_call"};
    return names[finish];
}

void answer_explain_length(const struct answer *answer, const sluice_generate_options *options,
                           const sluice_engine *engine)
{
    if (answer->generated.finish != SLUICE_FINISH_LENGTH)
        return;
    if (options->max_tokens > 0 && answer->generated.tokens >= options->max_tokens)
        notice("The answer was cut after %" PRIu32 " tokens; --max-tokens allows more", options->max_tokens);
    else
        notice("The answer was cut because the context of %" PRIu32
               " tokens is full; a larger --context allows more",
               sluice_engine_plan(engine)->context_tokens);
}

/* "; drafts: 12 passes, 31 of 48 guesses, 3.6 tokens a pass", or nothing where none were made. */
static void describe_drafts(const sluice_session_stats *before, const sluice_session_stats *after,
                            uint64_t decode, char *text, size_t bytes)
{
    const uint64_t rounds = after->draft_rounds - before->draft_rounds;
    const uint64_t accepted = after->draft_accepted - before->draft_accepted;
    const uint64_t experts = after->draft_expert_requests - before->draft_expert_requests;
    if (rounds == 0)
        return;
    int n =
        snprintf(text, bytes,
                 "; drafts: %" PRIu64 " passes, %" PRIu64 " of %" PRIu64 " guesses right, %.2f tokens a pass",
                 rounds, accepted, after->draft_guesses - before->draft_guesses,
                 decode > accepted ? (double)decode / (double)(decode - accepted) : 1.0);
    if (experts > 0 && n > 0 && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, ", %.1f experts", (double)experts / (double)rounds);
}

void answer_footer(const struct answer *answer, const sluice_sampling *sampling)
{
    const sluice_session_stats *before = &answer->before, *after = &answer->after;
    char prefill_time[HUMAN_BYTES], decode_time[HUMAN_BYTES], peak[HUMAN_BYTES], read[HUMAN_BYTES];
    char hits[48] = "", seed[48] = "", drafts[128] = "";
    uint64_t prefill = after->prefill_tokens - before->prefill_tokens;
    uint64_t prefill_ns = after->prefill_ns - before->prefill_ns;
    uint64_t decode = after->decode_tokens - before->decode_tokens;
    uint64_t decode_ns = after->decode_ns - before->decode_ns;
    uint64_t requests = after->decode_expert_requests - before->decode_expert_requests;
    uint64_t read_bytes = after->decode_read_bytes - before->decode_read_bytes;
    if (requests > 0)
        snprintf(hits, sizeof hits, ", expert hits %.1f %%",
                 100.0 * (double)(after->decode_expert_hits - before->decode_expert_hits) / (double)requests);
    describe_drafts(before, after, decode, drafts, sizeof drafts);
    if (sampling->temperature > 0)
        snprintf(seed, sizeof seed, ", seed %" PRIu64, sampling->seed);
    notice("[%s; prefill %" PRIu64 " tokens in %s, %.1f tok/s; decode %" PRIu64
           " tokens in %s, %.2f tok/s; peak memory %s, read %s per token%s%s%s]",
           finish_name(answer->generated.finish), prefill, human_time(seconds_of(prefill_ns), prefill_time),
           per_second(prefill, prefill_ns), decode, human_time(seconds_of(decode_ns), decode_time),
           per_second(decode, decode_ns), human_bytes(sluice_peak_memory_bytes(), peak),
           human_bytes(decode > 0 ? read_bytes / decode : 0, read), hits, drafts, seed);
}
