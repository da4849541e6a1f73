/* From a request to the prompt: messages and tools are checked and brought to the form that templates expect,
 * then rendered. Only the template's own text can become control tokens. */
#include "run/chat.h"

#include <string.h>

enum { MESSAGES_MAX = 100000, TOOLS_MAX = 1024 };

/* ---- messages ---- */

/* A list of text parts becomes their text: this engine reads text only. */
static sluice_status join_parts(json_t *message, size_t index, sluice_error *err)
{
    const json_t *parts = json_object_get(message, "content");
    struct str text = {0};
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *one = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(one))
            TRY_OUT(err_set(err, SLUICE_E_UNSUPPORTED,
                            "message %zu has a part of type \"%.40s\"; only text is supported", index + 1,
                            type ? type : "…"));
        if (!str_append(&text, json_string_value(one), json_string_length(one)))
            TRY_OUT(err_memory(err, text.len, "the messages"));
    }
    json_t *joined = json_stringn(text.p ? text.p : "", text.len);
    if (!joined || json_object_set_new(message, "content", joined) != 0)
        status = err_memory(err, text.len, "the messages");
out:
    str_free(&text);
    return status;
}

/* Arguments come as text from API clients, and templates expect the object. */
static sluice_status open_arguments(json_t *message, size_t index, sluice_error *err)
{
    const json_t *list = json_object_get(message, "tool_calls");
    if (list && !json_is_array(list) && !json_is_null(list))
        return err_set(err, SLUICE_E_FORMAT, "the tool_calls of message %zu are no list", index + 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *function = json_object_get(json_array_get(list, i), "function"), *read = NULL;
        const json_t *arguments = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")))
            return err_set(err, SLUICE_E_FORMAT, "tool call %zu of message %zu names no function", i + 1,
                           index + 1);
        if (!json_is_string(arguments))
            continue;
        sluice_status status = json_parse(json_string_value(arguments), json_string_length(arguments),
                                          "the arguments", &read, err);
        if (status == SLUICE_E_MEMORY)
            return status;
        if (status != SLUICE_OK || !json_is_object(read)) {
            json_decref(read);
            return err_set(err, SLUICE_E_FORMAT,
                           "the arguments of tool call %zu of message %zu are no JSON object", i + 1,
                           index + 1);
        }
        if (json_object_set_new(function, "arguments", read) != 0)
            return err_memory(err, 0, "the messages");
    }
    return SLUICE_OK;
}

static sluice_status check_message(const sluice_chat *chat, json_t *message, size_t index, sluice_error *err)
{
    const json_t *content = json_object_get(message, "content");
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!json_is_object(message) || !role || !role[0])
        return err_set(err, SLUICE_E_FORMAT, "message %zu is no object with a role", index + 1);
    if (!content && !json_object_get(message, "tool_calls"))
        return err_set(err, SLUICE_E_FORMAT, "message %zu has no content", index + 1);
    if (json_is_array(content))
        TRY(join_parts(message, index, err));
    else if (!content || json_is_null(content)) {
        if (json_object_set_new(message, "content", json_stringn("", 0)) != 0)
            return err_memory(err, 0, "the messages");
    } else if (!json_is_string(content)) {
        return err_set(err, SLUICE_E_FORMAT, "the content of message %zu is neither text nor a list of parts",
                       index + 1);
    }
    if (strcmp(role, "developer") == 0 && !template_contains(chat->tokenizer->chat, "developer") &&
        json_object_set_new(message, "role", json_string("system")) != 0)
        return err_memory(err, 0, "the messages");
    return open_arguments(message, index, err);
}

static sluice_status read_messages(const sluice_chat *chat, const sluice_chat_request *request, json_t **out,
                                   sluice_error *err)
{
    if (!request->messages)
        return err_set(err, SLUICE_E_ARGUMENT, "a chat needs messages");
    TRY(json_parse(request->messages, request->messages_bytes, "the messages", out, err));
    size_t n = json_array_size(*out);
    if (!json_is_array(*out) || n == 0)
        return err_set(
            err, SLUICE_E_FORMAT,
            "the messages must be a list of {\"role\": …, \"content\": …} with at least one entry");
    if (n > MESSAGES_MAX)
        return err_set(err, SLUICE_E_FORMAT, "there are %zu messages, at most %d are accepted", n,
                       MESSAGES_MAX);
    for (size_t i = 0; i < n; i++)
        TRY(check_message(chat, json_array_get(*out, i), i, err));
    return SLUICE_OK;
}

/* ---- tools ---- */

static bool is_tool_name(const char *name)
{
    size_t n = name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") : 0;
    return n > 0 && n <= 64 && name[n] == '\0';
}

static sluice_status read_tools(sluice_chat *chat, const sluice_chat_request *request, sluice_error *err)
{
    json_t *tools = NULL;
    if (!request->tools || (request->tool_choice && strcmp(request->tool_choice, "none") == 0))
        return SLUICE_OK;
    TRY(json_parse(request->tools, request->tools_bytes, "the tools", &tools, err));
    chat->tools = tools;
    if (!json_is_array(tools) || json_array_size(tools) > TOOLS_MAX)
        return err_set(err, SLUICE_E_FORMAT, "the tools must be a list of at most %d functions", TOOLS_MAX);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        const char *type = json_string_value(json_object_get(tool, "type"));
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!type || strcmp(type, "function") != 0)
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           "tool %zu is of type \"%.40s\"; only functions are supported", i + 1,
                           type ? type : "…");
        if (!is_tool_name(name))
            return err_set(err, SLUICE_E_FORMAT,
                           "tool %zu needs a name of 1 to 64 letters, digits, \"_\" and \"-\"", i + 1);
        const json_t *parameters = json_object_get(function, "parameters");
        if (parameters && !json_is_object(parameters))
            return err_set(err, SLUICE_E_FORMAT, "the parameters of tool \"%s\" are no schema", name);
    }
    if (json_array_size(tools) == 0) {
        json_decref(tools);
        chat->tools = NULL;
    } else if (!chat->dialect->call_open || !template_mentions(chat->tokenizer->chat, "tools")) {
        return err_set(err, SLUICE_E_UNSUPPORTED, "this model's chat template has no place for tools");
    }
    return SLUICE_OK;
}

/* ---- variables ---- */

static sluice_status set(json_t *variables, const char *name, json_t *value, sluice_error *err)
{
    return value && json_object_set_new(variables, name, value) == 0
               ? SLUICE_OK
               : err_memory(err, 0, "the variables of the chat template");
}

/* Templates call the switch by either name. */
static sluice_status set_thinking(const sluice_chat *chat, const sluice_chat_request *request,
                                  json_t *variables, sluice_error *err)
{
    static const char *const NAMES[] = {"enable_thinking", "thinking"};
    bool on = request->thinking == SLUICE_THINKING_ON, known = false;
    if (request->thinking == SLUICE_THINKING_DEFAULT)
        return SLUICE_OK;
    for (size_t i = 0; i < 2; i++) {
        if (!template_mentions(chat->tokenizer->chat, NAMES[i]))
            continue;
        known = true;
        TRY(set(variables, NAMES[i], json_boolean(on), err));
    }
    bool thinks = known || template_contains(chat->tokenizer->chat, "<think>");
    if (!known && (on || thinks))
        return err_set(err, SLUICE_E_UNSUPPORTED, "this model's chat template has no switch for thinking");
    return SLUICE_OK;
}

static sluice_status make_variables(sluice_chat *chat, const sluice_chat_request *request, json_t *variables,
                                    sluice_error *err)
{
    const sluice_tokenizer *t = chat->tokenizer;
    json_t *messages = NULL, *more = NULL;
    sluice_status status;
    TRY_OUT(read_messages(chat, request, &messages, err));
    TRY_OUT(read_tools(chat, request, err));
    if (request->variables) {
        TRY_OUT(
            json_parse(request->variables, request->variables_bytes, "the template's variables", &more, err));
        if (!json_is_object(more))
            TRY_OUT(err_set(err, SLUICE_E_FORMAT, "the template's variables must be a JSON object"));
        if (json_object_update(variables, more) != 0)
            TRY_OUT(err_memory(err, 0, "the template's variables"));
    }
    TRY_OUT(set(variables, "messages", json_incref(messages), err));
    TRY_OUT(set(variables, "tools", chat->tools ? json_incref(chat->tools) : json_null(), err));
    TRY_OUT(set(variables, "add_generation_prompt", json_boolean(!request->no_generation_prompt), err));
    TRY_OUT(set(variables, "bos_token", json_string(t->bos_text ? t->bos_text : ""), err));
    TRY_OUT(set(variables, "eos_token", json_string(t->eos_text ? t->eos_text : ""), err));
    status = set_thinking(chat, request, variables, err);
out:
    json_decref(messages);
    json_decref(more);
    return status;
}

/* ---- rendering ---- */

/* Does the prompt end inside reasoning? White space may stand behind the mark. */
static bool ends_with(const struct str *text, const char *mark)
{
    size_t n = strlen(mark), end = text->len;
    while (n && mark[n - 1] == '\n')
        n--;
    while (end && strchr(" \n\t", text->p[end - 1]))
        end--;
    return end >= n && memcmp(text->p + end - n, mark, n) == 0;
}

/* An answer of a given shape begins behind the reasoning: so that where that begins is known, it is opened.
 */
static sluice_status open_reasoning(sluice_chat *chat, struct str *marks, sluice_error *err)
{
    const char *open = chat->dialect->think_open;
    size_t n = strlen(open);
    if (!str_append(&chat->text, open, n) || !str_reserve(marks, n))
        return err_memory(err, n, "the prompt");
    memset(marks->p + marks->len, 1, n);
    marks->len += n;
    chat->reasoning = true;
    return SLUICE_OK;
}

sluice_status chat_render(sluice_chat *chat, const sluice_chat_request *request, sluice_error *err)
{
    static const char *const TRUSTED[] = {"bos_token", "eos_token", NULL};
    struct str marks = {0};
    json_t *variables = json_object();
    sluice_status status;
    if (!variables)
        return err_memory(err, 0, "the variables of the chat template");
    TRY_OUT(make_variables(chat, request, variables, err));
    struct template_input input = {.variables = variables, .trusted = TRUSTED};
    TRY_OUT(template_render(chat->tokenizer->chat, &input, &chat->text, &marks, err));
    bool free_text = request->format == SLUICE_FORMAT_TEXT &&
                     (!request->tool_choice || strcmp(request->tool_choice, "auto") == 0);
    if (!request->no_generation_prompt && chat->dialect->think_open) {
        chat->reasoning = ends_with(&chat->text, chat->dialect->think_open);
        if (!chat->reasoning && !free_text && request->thinking == SLUICE_THINKING_ON)
            TRY_OUT(open_reasoning(chat, &marks, err));
    }
    status = tok_encode(chat->tokenizer->tok, chat->text.p, chat->text.len, (const unsigned char *)marks.p,
                        true, &chat->ids, err);
out:
    json_decref(variables);
    str_free(&marks);
    return status;
}
