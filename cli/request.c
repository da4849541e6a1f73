#include "request.h"

#include "cli.h"
#include "input.h"

static const char *const thinking_names[] = {
    [SLUICE_THINKING_DEFAULT] = "default", [SLUICE_THINKING_ON] = "on", [SLUICE_THINKING_OFF] = "off", NULL};
static const char *const view_names[] = {
    [REASONING_FOLD] = "fold", [REASONING_SHOW] = "show", [REASONING_HIDE] = "hide", NULL};

#define FIELD(member, type) AT(struct request_flags, member, type)

const struct flag request_rows[REQUEST_ROWS] = {
    {.name = "reasoning",
     .kind = FLAG_CHOICE,
     .value = "VIEW",
     FIELD(reasoning, enum reasoning_view),
     .choices = view_names,
     .preset = "fold",
     .help = "what is told of the reasoning, on standard error: one line, all of it, or nothing"},
    {.name = "thinking-tokens",
     .kind = FLAG_U32,
     .value = "N",
     FIELD(thinking_tokens, uint32_t),
     .min = 1,
     .max = 16777216,
     .otherwise = "no limit",
     .help = "end the reasoning after N tokens"},
    {.name = "thinking",
     .kind = FLAG_CHOICE,
     .value = "WHEN",
     FIELD(thinking, sluice_thinking),
     .choices = thinking_names,
     .preset = "default",
     .help = "let the model reason before it answers; default is what its chat template does"},
    {.name = "tools",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(tools, const char *),
     .min = 1,
     .help = "functions that the model may call: a JSON list as the OpenAI API has it; calls are printed, "
             "not run"},
    {.name = "tool-choice",
     .kind = FLAG_STRING,
     .value = "CHOICE",
     FIELD(tool_choice, const char *),
     .min = 1,
     .otherwise = "auto",
     .help = "auto, none, required, or the name of the function that must be called",
     .needs = "tools"},
    {.name = "json-schema",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(json_schema, const char *),
     .min = 1,
     .help =
         "answer with JSON that the JSON Schema in FILE accepts; a keyword that cannot be kept is refused",
     .excludes = "grammar,json-object,stop"},
    {.name = "grammar",
     .kind = FLAG_STRING,
     .value = "FILE",
     FIELD(grammar, const char *),
     .min = 1,
     .help = "answer with a text that the GBNF grammar in FILE accepts",
     .excludes = "json-object,stop"},
    {.name = "json-object",
     .kind = FLAG_BOOL,
     FIELD(json_object, bool),
     .help = "answer with a JSON object",
     .excludes = "stop"},
};

int request_read(const struct request_flags *flags, struct request *request)
{
    *request = (struct request){.chat = {.tool_choice = flags->tool_choice,
                                         .thinking = flags->thinking,
                                         .thinking_tokens = flags->thinking_tokens}};
    sluice_chat_request *chat = &request->chat;
    int code = EXIT_DONE;
    if (flags->tools != NULL) {
        code = input_read(flags->tools, &request->tools);
        chat->tools = request->tools.bytes;
        chat->tools_bytes = request->tools.n;
    }
    chat->format = flags->json_schema   ? SLUICE_FORMAT_SCHEMA
                   : flags->grammar     ? SLUICE_FORMAT_GBNF
                   : flags->json_object ? SLUICE_FORMAT_JSON
                                        : SLUICE_FORMAT_TEXT;
    if (code == EXIT_DONE && (flags->json_schema != NULL || flags->grammar != NULL)) {
        code = input_read(flags->json_schema ? flags->json_schema : flags->grammar, &request->shape);
        chat->shape = request->shape.bytes;
        chat->shape_bytes = request->shape.n;
    }
    if (code != EXIT_DONE)
        request_free(request);
    return code;
}

void request_free(struct request *request)
{
    text_free(&request->tools);
    text_free(&request->shape);
    *request = (struct request){0};
}
