/* sluice apply-template: a conversation as the model gets it, with tools and thinking as for run. */
#include "cli.h"
#include "engine.h"
#include "prompt.h"
#include "request.h"

#include <inttypes.h>
#include <string.h>

struct template_options {
    const char *install, *messages_file, *system;
    bool no_generation_prompt, text, json;
    struct request_flags request;
};

#define FIELD(member, type) AT(struct template_options, member, type)

static const struct flag rows[] = {
    {.name = "system",
     .letter = 's',
     .kind = FLAG_STRING,
     .value = "TEXT",
     FIELD(system, const char *),
     .min = 1,
     .help = "system message of the conversation"},
    {.name = "no-generation-prompt",
     .kind = FLAG_BOOL,
     FIELD(no_generation_prompt, bool),
     .help = "do not open the assistant's turn at the end"},
    {.name = "text",
     .kind = FLAG_BOOL,
     FIELD(text, bool),
     .help = "print the rendered text only",
     .excludes = "json"},
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "print one JSON object"},
};

static json_t *token_list(const sluice_tokenizer *tokenizer, const struct prompt *prompt)
{
    json_t *list = json_array();
    for (size_t i = 0; i < prompt->n_ids; i++) {
        bool control;
        const char *spelling = sluice_token_text(tokenizer, prompt->ids[i], &control);
        json_array_append_new(list, json_pack("{s:i, s:s?, s:b}", "id", (int)prompt->ids[i], "token",
                                              spelling, "control", (int)control));
    }
    return list;
}

/* The text, then one token on a line; control tokens are marked with a star. */
static void print_tokens(const sluice_tokenizer *tokenizer, const struct prompt *prompt)
{
    for (size_t i = 0; i < prompt->n_ids; i++) {
        bool control;
        char shown[QUOTE_BYTES];
        const char *spelling = sluice_token_text(tokenizer, prompt->ids[i], &control);
        out_print("%8" PRId32 " %s %s\n", prompt->ids[i], control ? "*" : " ",
                  spelling != NULL ? quote(spelling, shown) : "(no token)");
    }
}

static void print(const struct template_options *o, const sluice_tokenizer *tokenizer,
                  const struct prompt *prompt)
{
    size_t n;
    const char *text = sluice_chat_text(prompt->chat, &n);
    if (o->json) {
        out_json(json_pack("{s:s%, s:o}", "text", text, n, "tokens", token_list(tokenizer, prompt)));
        return;
    }
    out_text(text, n);
    if (o->text)
        return;
    if (n == 0 || text[n - 1] != '\n')
        out_text("\n", 1);
    out_text("\n", 1);
    print_tokens(tokenizer, prompt);
}

static int run(void *options, const struct parse *parse)
{
    const struct template_options *o = options;
    sluice_tokenizer *tokenizer = NULL;
    struct request request;
    struct prompt prompt = {0};
    sluice_error error;
    (void)parse;
    int code = request_read(&o->request, &request);
    if (code != EXIT_DONE)
        return code;
    request.chat.no_generation_prompt = o->no_generation_prompt;
    if (sluice_tokenizer_open(o->install, &tokenizer, &error) != SLUICE_OK)
        code = fail_error(&error);
    else
        code = prompt_file(tokenizer, &request.chat, o->messages_file, o->system, &prompt);
    if (code == EXIT_DONE)
        print(o, tokenizer, &prompt);
    prompt_free(&prompt);
    request_free(&request);
    sluice_tokenizer_close(tokenizer);
    return code;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct template_options, install),
     .help = "a .gturbo or a snapshot directory"},
    {.name = "FILE",
     .required = true,
     .offset = offsetof(struct template_options, messages_file),
     .help = "conversation: a JSON list of messages as the OpenAI API has them; - reads standard input"},
};

static const struct flag_group groups[] = {
    {.title = "Template", .rows = rows, .n = sizeof rows / sizeof *rows},
    PROMPT_GROUP(struct template_options, request),
    HELP_GROUP,
};

const struct command cmd_apply_template = {
    .name = "apply-template",
    .summary = "show a conversation as the model gets it",
    .about =
        "Renders a conversation with the model's chat template and prints the text and its tokens; control "
        "tokens are marked with a star. Nothing in a message can become one. Tools, thinking and the "
        "answer's "
        "shape are checked as for run.",
    .examples =
        "sluice apply-template gemma.gturbo chat.json --tools tools.json\n"
        "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | sluice apply-template demo.gturbo - --text\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct template_options),
    .run = run,
};
