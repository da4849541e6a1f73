/* sluice tokenize: text or a conversation as token ids. */
#include "cli.h"
#include "engine.h"
#include "input.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct tokenize_options {
    const char *install, *text, *messages_file;
    bool special, bos, no_generation_prompt, ids, count, json;
};

#define FIELD(member, type) AT(struct tokenize_options, member, type)

static const struct flag rows[] = {
    {.name = "special",
     .kind = FLAG_BOOL,
     FIELD(special, bool),
     .help = "spellings of control tokens in the text become those tokens",
     .excludes = "messages-file"},
    {.name = "bos",
     .kind = FLAG_BOOL,
     FIELD(bos, bool),
     .help = "put the beginning-of-sequence token first",
     .excludes = "messages-file"},
    {.name = "messages-file",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(messages_file, const char *),
     .min = 1,
     .help = "render a conversation with the chat template: a JSON list of {\"role\", \"content\"}; - reads "
             "standard input"},
    {.name = "no-generation-prompt",
     .kind = FLAG_BOOL,
     FIELD(no_generation_prompt, bool),
     .help = "do not open the assistant's turn at the end",
     .needs = "messages-file"},
    {.name = "ids",
     .kind = FLAG_BOOL,
     FIELD(ids, bool),
     .help = "print the ids only, on one line",
     .excludes = "count,json"},
    {.name = "count",
     .kind = FLAG_BOOL,
     FIELD(count, bool),
     .help = "print the number of tokens only",
     .excludes = "json"},
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "print one JSON object, with the rendered text of a conversation"},
};

struct tokens {
    int32_t *ids;
    size_t n;
    char *rendered; /* of a conversation */
};

static int encode_messages(const struct tokenize_options *o, const sluice_tokenizer *tokenizer,
                           struct tokens *tokens)
{
    sluice_message *messages;
    size_t n_messages;
    sluice_error error;
    int code = input_messages(o->messages_file, &messages, &n_messages);
    if (code != EXIT_DONE)
        return code;
    if (sluice_chat_encode(tokenizer, messages, n_messages, !o->no_generation_prompt, &tokens->ids,
                           &tokens->n, &tokens->rendered, &error) != SLUICE_OK)
        code = fail_error(&error);
    sluice_free(messages);
    return code;
}

static int encode_text(const struct tokenize_options *o, const sluice_tokenizer *tokenizer,
                       struct tokens *tokens)
{
    struct text input = {0};
    sluice_error error;
    const char *text = o->text;
    int code = EXIT_DONE;
    if (text == NULL || strcmp(text, "-") == 0) {
        /* Every byte counts, a line end at the end too. */
        if ((code = input_read("-", &input)) != EXIT_DONE)
            return code;
        text = input.bytes;
    }
    unsigned flags = (o->special ? SLUICE_TOKENIZE_SPECIAL : 0u) | (o->bos ? SLUICE_TOKENIZE_BOS : 0u);
    if (sluice_tokenize(tokenizer, text, strlen(text), flags, &tokens->ids, &tokens->n, &error) != SLUICE_OK)
        code = fail_error(&error);
    text_free(&input);
    return code;
}

/* ---- output ---- */

/* A spelling on one line: control characters and the backslash that shows them are escaped. */
static void print_spelling(const char *spelling)
{
    for (const char *p = spelling; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\n')
            out_text("\\n", 2);
        else if (c == '\t')
            out_text("\\t", 2);
        else if (c == '\\')
            out_text("\\\\", 2);
        else if (c < 0x20 || c == 0x7F)
            out_print("\\x%02X", c);
        else
            out_text(p, 1);
    }
}

static void print_lines(const sluice_tokenizer *tokenizer, const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++) {
        const char *spelling = sluice_token_text(tokenizer, tokens->ids[i], NULL);
        out_print("%" PRId32 "\t", tokens->ids[i]);
        print_spelling(spelling != NULL ? spelling : "");
        out_text("\n", 1);
    }
}

static void print_ids(const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n; i++)
        out_print("%s%" PRId32, i > 0 ? " " : "", tokens->ids[i]);
    out_text("\n", 1);
}

static void print_json(const sluice_tokenizer *tokenizer, const struct tokens *tokens)
{
    json_t *ids = json_array(), *list = json_array();
    for (size_t i = 0; i < tokens->n; i++) {
        bool control = false;
        const char *spelling = sluice_token_text(tokenizer, tokens->ids[i], &control);
        json_array_append_new(ids, json_integer(tokens->ids[i]));
        json_array_append_new(list, json_pack("{s:i, s:s?, s:b}", "id", (int)tokens->ids[i], "token",
                                              spelling, "control", control));
    }
    out_json(json_pack("{s:I, s:o, s:o, s:s*}", "count", (json_int_t)tokens->n, "ids", ids, "tokens", list,
                       "text", tokens->rendered));
}

static int run(void *options, const struct parse *parse)
{
    struct tokenize_options *o = options;
    sluice_tokenizer *tokenizer = NULL;
    struct tokens tokens = {0};
    sluice_error error;
    (void)parse;
    if (o->messages_file != NULL && o->text != NULL)
        return fail_usage("TEXT and --messages-file cannot be given together");
    if (o->messages_file == NULL && o->text == NULL && isatty(STDIN_FILENO))
        return fail_usage("nothing to tokenize: give TEXT, --messages-file, or text on standard input");
    if (sluice_tokenizer_open(o->install, &tokenizer, &error) != SLUICE_OK)
        return fail_error(&error);
    int code = o->messages_file != NULL ? encode_messages(o, tokenizer, &tokens)
                                        : encode_text(o, tokenizer, &tokens);
    if (code == EXIT_DONE) {
        if (o->json)
            print_json(tokenizer, &tokens);
        else if (o->count)
            out_print("%zu\n", tokens.n);
        else if (o->ids)
            print_ids(&tokens);
        else
            print_lines(tokenizer, &tokens);
    }
    sluice_free(tokens.ids);
    sluice_free(tokens.rendered);
    sluice_tokenizer_close(tokenizer);
    return code;
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct tokenize_options, install),
     .help = "a .gturbo directory, or the directory of a checkpoint"},
    {.name = "TEXT",
     .offset = offsetof(struct tokenize_options, text),
     .help = "the text; - or none reads standard input"},
};

static const struct flag_group groups[] = {
    {.title = "Tokenize", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_tokenize = {
    .name = "tokenize",
    .summary = "show a text or a conversation as tokens",
    .about = "Prints id and spelling of each token, one a line; line ends, tabs and backslashes in a "
             "spelling are shown as "
             "\\n, \\t and \\\\.",
    .examples = "sluice tokenize gemma.gturbo 'Hello there'\n"
                "sluice tokenize gemma.gturbo --messages-file chat.json --count\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct tokenize_options),
    .run = run,
};
