#include "prompt.h"

#include "cli.h"
#include "input.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int prompt_raw(const sluice_tokenizer *tokenizer, const char *text, struct prompt *prompt)
{
    sluice_error error;
    sluice_status status = sluice_tokenize(tokenizer, text, strlen(text), SLUICE_TOKENIZE_BOS, &prompt->ids,
                                           &prompt->n_ids, &error);
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&error);
}

/* `where` (may be NULL) names the file in messages. */
static int open_chat(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                     const json_t *messages, const char *where, struct prompt *prompt)
{
    sluice_chat_request full = *request;
    sluice_error error;
    char *text = json_dumps(messages, JSON_COMPACT);
    if (text == NULL) {
        fail("not enough memory for the messages");
        return EXIT_FAILED;
    }
    full.messages = text;
    full.messages_bytes = strlen(text);
    sluice_status status = sluice_chat_open(tokenizer, &full, &prompt->chat, &error);
    free(text);
    if (status == SLUICE_OK) {
        const int32_t *ids = sluice_chat_ids(prompt->chat, &prompt->n_ids);
        prompt->ids = must_realloc(NULL, prompt->n_ids + 1, sizeof *ids);
        memcpy(prompt->ids, ids, prompt->n_ids * sizeof *ids);
        return EXIT_DONE;
    }
    if (where == NULL || status != SLUICE_E_FORMAT)
        return fail_error(&error);
    fail("%s: %s", where, error.detail);
    return EXIT_FAILED;
}

int prompt_chat(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                const sluice_message *messages, size_t n_messages, struct prompt *prompt)
{
    json_t *list = json_array();
    int code = EXIT_DONE;
    for (size_t i = 0; i < n_messages && code == EXIT_DONE; i++) {
        json_t *message = json_pack("{s:s, s:s}", "role", messages[i].role, "content", messages[i].content);
        if (json_array_append_new(list, message) == 0)
            continue;
        fail("message %zu is not valid UTF-8", i + 1);
        code = EXIT_FAILED;
    }
    if (code == EXIT_DONE)
        code = open_chat(tokenizer, request, list, NULL, prompt);
    json_decref(list);
    return code;
}

int prompt_file(const sluice_tokenizer *tokenizer, const sluice_chat_request *request, const char *path,
                const char *system, struct prompt *prompt)
{
    json_t *list;
    int code = input_json(path, &list);
    if (code != EXIT_DONE)
        return code;
    const char *role = json_string_value(json_object_get(json_array_get(list, 0), "role"));
    if (system != NULL && role != NULL && strcmp(role, "system") == 0) {
        json_decref(list);
        return fail_usage("--system is given and %s has a system message too; leave one out", path);
    }
    if (system != NULL && json_is_array(list))
        json_array_insert_new(list, 0, json_pack("{s:s, s:s}", "role", "system", "content", system));
    code = open_chat(tokenizer, request, list, strcmp(path, "-") == 0 ? "standard input" : path, prompt);
    json_decref(list);
    return code;
}

int prompt_question(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                    const char *question, const char *system, struct prompt *prompt)
{
    sluice_message messages[2];
    size_t n = 0;
    if (system != NULL)
        messages[n++] = (sluice_message){.role = "system", .content = system};
    messages[n++] = (sluice_message){.role = "user", .content = question};
    return prompt_chat(tokenizer, request, messages, n, prompt);
}

void prompt_free(struct prompt *prompt)
{
    sluice_free(prompt->ids);
    sluice_chat_close(prompt->chat);
    *prompt = (struct prompt){0};
}
