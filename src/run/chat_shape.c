/* The constraint that a request asks for: an answer's shape, calls that must come, or either of them. */
#include "run/chat.h"

#include <string.h>

static sluice_status check_choice(const sluice_chat *chat, const sluice_chat_request *request, bool *forced,
                                  const char **only, sluice_error *err)
{
    const char *choice = request->tool_choice;
    *only = NULL;
    *forced = choice && strcmp(choice, "auto") != 0 && strcmp(choice, "none") != 0;
    if (!*forced)
        return SLUICE_OK;
    if (!chat->tools)
        return err_set(err, SLUICE_E_ARGUMENT, "tool_choice asks for a call, and there are no tools");
    if (strcmp(choice, "required") == 0)
        return SLUICE_OK;
    if (!tool_find(chat->tools, choice))
        return err_set(err, SLUICE_E_ARGUMENT, "tool_choice names \"%.64s\", which is none of the tools",
                       choice);
    *only = choice;
    return SLUICE_OK;
}

sluice_status chat_shape(sluice_chat *chat, const sluice_chat_request *request, sluice_error *err)
{
    struct grammar_builder b;
    struct grammar *grammar = NULL;
    bool forced, is_mark[CALL_MARKS_MAX] = {false};
    const char *only;
    TRY(check_choice(chat, request, &forced, &only, err));
    if (!forced && request->format == SLUICE_FORMAT_TEXT)
        return SLUICE_OK;
    for (size_t i = 0; i < chat->n_marks; i++)
        is_mark[i] = chat->mark_ids[i] >= 0;
    constraint_builder(&b, chat->tokenizer, err);
    uint32_t root = grammar_rule(&b), at = grammar_start(&b, root), end = grammar_end(&b, root);
    if (chat->reasoning) { /* line ends behind the reasoning are layout */
        uint32_t one = grammar_text(&b, at, "\n", 1), two = grammar_text(&b, one, "\n", 1);
        grammar_empty(&b, at, two);
        grammar_empty(&b, one, two);
        at = two;
    }
    if (chat->tools && (forced || request->format != SLUICE_FORMAT_TEXT))
        grammar_call(&b, at,
                     calls_rule(&b, chat->dialect, dialect_style(chat->tokenizer->chat), is_mark, chat->tools,
                                only, !only && !request->one_call),
                     end);
    if (!forced)
        grammar_call(&b, at, constraint_rule(&b, request->format, request->shape, request->shape_bytes), end);
    sluice_status status = grammar_finish(&b, root, forced ? "the tools" : "the schema or grammar", &grammar);
    grammar_builder_close(&b);
    TRY(status);
    return constraint_open(chat->tokenizer, grammar, chat->mark_ids, chat->n_marks, &chat->constraint, err);
}
