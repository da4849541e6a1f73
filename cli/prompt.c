#include "prompt.h"

#include "cli.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

int prompt_raw(const sluice_tokenizer *tokenizer, const char *text, struct prompt *prompt)
{
    sluice_error error;
    sluice_status status = sluice_tokenize(tokenizer, text, strlen(text), SLUICE_TOKENIZE_BOS, &prompt->ids,
                                           &prompt->n_ids, &error);
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&error);
}

int prompt_chat(const sluice_tokenizer *tokenizer, const sluice_message *messages, size_t n_messages,
                struct prompt *prompt)
{
    sluice_error error;
    sluice_status status =
        sluice_chat_encode(tokenizer, messages, n_messages, true, &prompt->ids, &prompt->n_ids, NULL, &error);
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&error);
}

int prompt_file(const sluice_tokenizer *tokenizer, const char *path, const char *system,
                struct prompt *prompt)
{
    sluice_message *read, *all = NULL;
    size_t n;
    int code = input_messages(path, &read, &n);
    if (code != EXIT_DONE)
        return code;
    if (system == NULL) {
        code = prompt_chat(tokenizer, read, n, prompt);
    } else if (n > 0 && strcmp(read[0].role, "system") == 0) {
        code = fail_usage("--system is given and %s has a system message too; leave one out", path);
    } else {
        all = must_realloc(NULL, n + 1, sizeof *all);
        all[0] = (sluice_message){.role = "system", .content = system};
        memcpy(all + 1, read, n * sizeof *all);
        code = prompt_chat(tokenizer, all, n + 1, prompt);
    }
    free(all);
    sluice_free(read);
    return code;
}

int prompt_question(const sluice_tokenizer *tokenizer, const char *question, const char *system,
                    struct prompt *prompt)
{
    sluice_message messages[2];
    size_t n = 0;
    if (system != NULL)
        messages[n++] = (sluice_message){.role = "system", .content = system};
    messages[n++] = (sluice_message){.role = "user", .content = question};
    return prompt_chat(tokenizer, messages, n, prompt);
}

void prompt_free(struct prompt *prompt)
{
    sluice_free(prompt->ids);
    *prompt = (struct prompt){0};
}
