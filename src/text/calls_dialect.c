/* The table of dialects. */
#include "text/calls_reader.h"

#include <string.h>

#define DSML CALLS_DSML

/* The first row whose sign a template contains is taken. Qwen 3.6 and 3.8, Qwen-Coder, Hermes, Maple, GLM and
 * Ling all write <tool_call>; what stands inside tells them apart. */
static const struct dialect DIALECTS[] = {
    {
        .name = "gemma4",
        .sign = "<|tool_call>",
        .think_open = "<|channel>thought\n",
        .think_close = "<channel|>",
        .call_open = "<|tool_call>",
        .call_close = "<tool_call|>",
        .body = BODY_GEMMA,
        .drop = {"<channel|>", "<|channel>final\n", "<|channel>answer\n", "<|tool_response>"},
        .marks = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", CALLS_QUOTE,
                  "<|tool_response>"},
    },
    {
        .name = "deepseek",
        .sign = DSML,
        .think_open = "<think>",
        .think_close = "</think>",
        .call_open = "<" DSML "tool_calls>",
        .call_close = "</" DSML "tool_calls>",
        .body = BODY_DSML,
        .drop = {"</think>"},
        .marks = {"<think>", "</think>"},
    },
    {
        .name = "inkling",
        .sign = "<|content_invoke_tool_json|>",
        .think_open = "<|content_thinking|>",
        .think_close = "<|end_message|>",
        .call_open = "<|content_invoke_tool_json|>",
        .call_close = "<|end_message|>",
        .header = "<|message_model|>",
        .body = BODY_INKLING,
        .drop = {"<|message_model|>", "<|content_text|>", "<|end_message|>"},
        .marks = {"<|message_model|>", "<|content_text|>", "<|content_thinking|>", "<|end_message|>",
                  "<|content_invoke_tool_json|>"},
    },
    {
        .name = "tagged",
        .sign = "<tool_call>",
        .think_open = "<think>",
        .think_close = "</think>",
        .call_open = "<tool_call>",
        .call_close = "</tool_call>",
        .body = BODY_TAGGED,
        .drop = {"</think>"},
        .marks = {"<think>", "</think>", "<tool_call>", "</tool_call>"},
    },
    {
        .name = "plain",
        .sign = "",
        .think_open = "<think>",
        .think_close = "</think>",
        .marks = {"<think>", "</think>"},
    },
};

enum { N_DIALECTS = sizeof DIALECTS / sizeof *DIALECTS };

const struct dialect *dialect_of(const struct template *chat)
{
    for (size_t i = 0; chat && i < N_DIALECTS; i++)
        if (template_contains(chat, DIALECTS[i].sign))
            return &DIALECTS[i];
    return &DIALECTS[N_DIALECTS - 1];
}

const struct dialect *dialect_named(const char *name)
{
    for (size_t i = 0; i < N_DIALECTS; i++)
        if (strcmp(DIALECTS[i].name, name) == 0)
            return &DIALECTS[i];
    return NULL;
}

enum call_style dialect_style(const struct template *chat)
{
    if (template_contains(chat, "<function="))
        return STYLE_XML;
    return template_contains(chat, "<arg_key>") ? STYLE_ARG_KEYS : STYLE_JSON;
}

/* ---- tools ---- */

const json_t *tool_find(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *one = json_string_value(json_object_get(function, "name"));
        if (one && strcmp(one, name) == 0)
            return function;
    }
    return NULL;
}

/* The types that a schema names, itself or as alternatives. */
static bool allows(const json_t *schema, const char *type, int depth)
{
    static const char *const CHOICES[] = {"anyOf", "oneOf"};
    const json_t *types = json_object_get(schema, "type");
    if (json_is_string(types))
        return strcmp(json_string_value(types), type) == 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *one = json_string_value(json_array_get(types, i));
        if (one && strcmp(one, type) == 0)
            return true;
    }
    for (size_t k = 0; k < 2 && depth < 4 && !types; k++) {
        const json_t *list = json_object_get(schema, CHOICES[k]);
        for (size_t i = 0; i < json_array_size(list); i++)
            if (allows(json_array_get(list, i), type, depth + 1))
                return true;
    }
    return false;
}

static const json_t *parameter_of(const json_t *tools, const char *function, const char *parameter)
{
    const json_t *parameters = json_object_get(tool_find(tools, function), "parameters");
    return json_object_get(json_object_get(parameters, "properties"), parameter);
}

bool tool_takes_text(const json_t *tools, const char *function, const char *parameter)
{
    const json_t *schema = parameter_of(tools, function, parameter);
    return allows(schema, "string", 0) && !allows(schema, "null", 0);
}

json_t *tool_value(const json_t *tools, const char *function, const char *parameter, const char *value,
                   size_t n)
{
    const json_t *schema = parameter_of(tools, function, parameter);
    json_t *read = NULL;
    if (allows(schema, "string", 0))
        return n == 4 && memcmp(value, "null", 4) == 0 ? json_null() : json_stringn(value, n);
    sluice_status status = json_parse(value, n, "a value", &read, NULL);
    if (status == SLUICE_E_MEMORY)
        return NULL;
    if (status == SLUICE_OK) {
        /* Untyped text in quotes is text; only what cannot be text is taken as JSON. */
        if (!json_is_string(read) || json_is_object(schema))
            return read;
        json_decref(read);
    }
    return json_stringn(value, n);
}
