/* A chat request at work on one generation: what sluice_chat is. */
#ifndef RUN_CHAT_H
#define RUN_CHAT_H

#include "run/constraint.h"
#include "text/calls.h"

struct sluice_chat {
    const sluice_tokenizer *tokenizer;
    const struct dialect *dialect;
    json_t *tools; /* NULL: none */
    struct ids ids;
    struct str text;
    bool reasoning; /* the prompt ends inside reasoning */
    uint32_t thinking_tokens;
    int32_t mark_ids[CALL_MARKS_MAX]; /* of the dialect's marks, or -1 */
    size_t n_marks;
    sluice_constraint *constraint; /* NULL: free */
    struct ids closing;            /* what ends reasoning when its budget is spent */

    /* of one generation */
    struct calls calls;
    uint32_t reasoned_tokens;
    size_t closed;  /* tokens of `closing` that were written; 0 while the budget lasts */
    uint64_t *only; /* [words]: a mask for one token */
    size_t words;
    struct str pool; /* texts of the deltas, whose pointers are offsets until chat_deltas() */
    struct delta_row {
        sluice_delta_kind kind;
        size_t at, n, id_at, name_at;
        uint32_t call;
    } * rows;
    size_t n_rows, cap_rows;
    sluice_delta *deltas;
    size_t cap_deltas;
};

/* chat_render.c: variables of the template from a request, and the rendering. */
sluice_status chat_render(sluice_chat *chat, const sluice_chat_request *request, sluice_error *err);
/* chat_shape.c: the constraint, when the request asks for one. */
sluice_status chat_shape(sluice_chat *chat, const sluice_chat_request *request, sluice_error *err);

/* A new answer to the same prompt. */
void chat_begin(sluice_chat *chat);
/* Whether this control token is part of the text that is taken apart. */
bool chat_shows(const sluice_chat *chat, int32_t id);
/* The constraint of the next token, or NULL; reasoning is free. */
sluice_constraint *chat_constraint(const sluice_chat *chat);
/* The one token that must come next, as a mask, or NULL. */
const uint64_t *chat_forced(sluice_chat *chat);
/* A token was drawn; text became final. */
void chat_count(sluice_chat *chat);
sluice_status chat_feed(sluice_chat *chat, const char *text, size_t n, sluice_error *err);
sluice_status chat_finish(sluice_chat *chat, bool cut, sluice_error *err);
/* What the feeds since the last call made; lives until the next feed. */
sluice_status chat_deltas(sluice_chat *chat, const sluice_delta **deltas, size_t *n, sluice_error *err);
/* STOP becomes what the answer was. */
sluice_finish chat_finish_reason(const sluice_chat *chat, sluice_finish finish);

#endif
