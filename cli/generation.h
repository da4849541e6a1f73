/* Flags of sampling and generation, and one generated answer: streamed, collected, or both. */
#ifndef CLI_GENERATION_H
#define CLI_GENERATION_H

#include "flags.h"
#include "out.h"
#include "request.h"

struct generation_flags {
    sluice_sampling sampling;
    bool greedy, ignore_eos, show_special;
    uint32_t max_tokens;
    struct bias_list biases;
    struct string_list stops;
};

enum { GENERATION_ROWS = 14 };
extern const struct flag generation_rows[GENERATION_ROWS];

#define GENERATION_GROUP(structure, member)                                                                  \
    {                                                                                                        \
        .title = "Generation", .rows = generation_rows, .n = GENERATION_ROWS,                                \
        .base = offsetof(structure, member)                                                                  \
    }

/* Check the flags against each other and fill the library's structure, which borrows from `flags`. Draws a
 * random seed when sampling without --seed. Returns an exit code. */
int generation_options(struct generation_flags *flags, const struct parse *parse,
                       sluice_generate_options *options);
/* Refuse biases for ids that the model does not have. */
int generation_check_model(const struct generation_flags *flags, const sluice_engine *engine);

/* One answer. Set stream, collect and the tokenizer, zero the rest; release with answer_free(). */
struct answer {
    bool stream;  /* write the text to standard output as it comes */
    bool collect; /* keep ids and, when asked for, log-probabilities */
    bool with_logprobs;
    bool raw; /* with a chat: show the text as the model wrote it, marks and all */
    enum reasoning_view reasoning;
    const sluice_tokenizer *tokenizer; /* spells the tokens of log-probabilities */
    struct text text;                  /* as the model wrote it */
    struct text content, thoughts;     /* with a chat: the answer, and the reasoning before it */
    json_t *calls;         /* with a chat: complete tool calls as the OpenAI API has them, or NULL */
    json_t *call;          /* that has begun and not ended, or NULL */
    struct text arguments; /* of it */
    bool has_chat, in_thoughts, showed;
    json_t *ids, *logprobs;
    sluice_generated generated;
    sluice_session_stats before, after; /* of the session, around prompt and answer */
};

/* Generate from the session's logits. The caller has taken answer->before ahead of the prefill. Ends the
 * streamed text with a line end. Returns EXIT_DONE, EXIT_INTERRUPTED (generated.finish is cancelled) or
 * EXIT_FAILED. */
int answer_generate(sluice_session *session, const sluice_generate_options *options, struct answer *answer);
void answer_free(struct answer *answer);
/* The answer without reasoning and calls. */
const struct text *answer_text(const struct answer *answer);
/* Add "reasoning_content", "tool_calls" and "raw" where there are such. */
void answer_json(const struct answer *answer, json_t *object);

/* "stop", "length", "cancelled", "tool_calls" or "malformed_call". */
const char *finish_name(sluice_finish finish);
/* When the answer ended at a limit, say at which and how to raise it. */
void answer_explain_length(const struct answer *answer, const sluice_generate_options *options,
                           const sluice_engine *engine);
/* One line: how it ended, rates, peak memory, bytes read per token, hit rate, and the seed when sampling. */
void answer_footer(const struct answer *answer, const sluice_sampling *sampling);

#endif
