/* The table of dialects. */
#include "text/calls.h"

#include "base/mem.h"

#include <string.h>

#define DSML                                                                                                 \
    "\xEF\xBD\x9C"                                                                                           \
    "DSML"                                                                                                   \
    "\xEF\xBD\x9C"

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
        .marks = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>", "<|tool_response>"},
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

sluice_status calls_read(const struct dialect *dialect, const char *body, size_t n, const json_t *tools,
                         json_t *list, sluice_error *err)
{
    static sluice_status (*const READERS[])(const char *body, size_t n, const json_t *tools, json_t *list,
                                            sluice_error *err) = {
        [BODY_TAGGED] = call_read_tagged,
        [BODY_GEMMA] = call_read_gemma,
        [BODY_DSML] = call_read_dsml,
        [BODY_INKLING] = call_read_inkling,
    };
    return READERS[dialect->body](body, n, tools, list, err);
}

sluice_status call_add(json_t *list, const char *name, size_t name_bytes, json_t *arguments,
                       const json_t *tools, sluice_error *err)
{
    char text[65], *printed = NULL;
    sluice_status status = SLUICE_OK;
    json_t *call = NULL;
    if (!arguments)
        return err_memory(err, 0, "a tool call");
    if (name_bytes == 0 || name_bytes >= sizeof text || memchr(name, '\0', name_bytes))
        TRY_OUT(err_set(err, SLUICE_E_FORMAT, "the call names no function, or one longer than 64 bytes"));
    memcpy(text, name, name_bytes);
    text[name_bytes] = '\0';
    if (tools && !tool_find(tools, text))
        TRY_OUT(err_set(err, SLUICE_E_FORMAT, "the call names \"%s\", which is none of the tools", text));
    if (!json_is_object(arguments))
        TRY_OUT(err_set(err, SLUICE_E_FORMAT, "the arguments of the call to \"%s\" are no object", text));
    TRY_OUT(json_print(arguments, JSON_COMPACT, "the arguments", &printed, err));
    call = json_pack("{s:s, s:s}", "name", text, "arguments", printed);
    if (!call || json_array_append(list, call) != 0)
        status = err_memory(err, 0, "a tool call");
out:
    json_decref(call);
    json_decref(arguments);
    mem_free(printed);
    return status;
}

/* The types that a schema names directly. */
static bool allows(const json_t *schema, const char *type)
{
    const json_t *types = json_object_get(schema, "type");
    if (json_is_string(types))
        return strcmp(json_string_value(types), type) == 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *one = json_string_value(json_array_get(types, i));
        if (one && strcmp(one, type) == 0)
            return true;
    }
    return false;
}

json_t *call_typed(const json_t *tools, const char *function, size_t function_bytes, const char *parameter,
                   const char *value, size_t n)
{
    char name[65] = "";
    json_t *read = NULL;
    if (function_bytes < sizeof name)
        memcpy(name, function, function_bytes);
    const json_t *parameters = json_object_get(tool_find(tools, name), "parameters");
    const json_t *schema = json_object_get(json_object_get(parameters, "properties"), parameter);
    sluice_status status =
        allows(schema, "string") ? SLUICE_E_FORMAT : json_parse(value, n, "a value", &read, NULL);
    if (status == SLUICE_E_MEMORY)
        return NULL;
    if (status == SLUICE_OK) {
        /* Untyped text in quotes is text; only what cannot be text is taken as JSON. */
        if (!json_is_string(read) || json_is_object(schema))
            return read;
        json_decref(read);
    } else if (allows(schema, "null") && n == 4 && memcmp(value, "null", 4) == 0) {
        return json_null();
    }
    return json_stringn(value, n);
}
