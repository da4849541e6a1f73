#include "run/chat.h"

#include <string.h>

enum { ARGUMENTS_BYTES_MAX = 1024 };

/* ---- open ---- */

static sluice_status find_marks(sluice_chat *chat, sluice_error *err)
{
    const char *const *marks = chat->dialect->marks;
    for (; chat->n_marks < CALL_MARKS_MAX && marks[chat->n_marks]; chat->n_marks++) {
        int32_t id = tok_find(chat->tokenizer->tok, marks[chat->n_marks]);
        chat->mark_ids[chat->n_marks] = id >= 0 && tok_is_control(chat->tokenizer->tok, id) ? id : -1;
    }
    chat->words = tok_vocab(chat->tokenizer->tok) / 64 + 1;
    chat->only = mem_calloc(chat->words, sizeof *chat->only);
    return chat->only ? SLUICE_OK : err_memory(err, chat->words * sizeof *chat->only, "a chat");
}

/* </think> stands between line ends, as the models were trained. */
static sluice_status encode_closing(sluice_chat *chat, sluice_error *err)
{
    struct str text = {0};
    const char *close = chat->dialect->think_close;
    bool lines = strncmp(close, "</", 2) == 0;
    bool made = str_printf(&text, "%s%s%s", lines ? "\n" : "", close, lines ? "\n\n" : "");
    sluice_status status =
        made ? tok_encode(chat->tokenizer->tok, text.p, text.len, NULL, true, &chat->closing, err)
             : err_memory(err, 0, "a chat");
    str_free(&text);
    return status;
}

sluice_status sluice_chat_open(const sluice_tokenizer *tokenizer, const sluice_chat_request *request,
                               sluice_chat **out, sluice_error *err)
{
    sluice_status status;
    *out = NULL;
    if (!tokenizer->chat)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "this model has no chat template; use a raw prompt (run --prompt) instead");
    mem_hook_json();
    sluice_chat *chat = mem_calloc(1, sizeof *chat);
    if (!chat)
        return err_memory(err, sizeof *chat, "a chat");
    chat->tokenizer = tokenizer;
    chat->dialect = dialect_of(tokenizer->chat);
    chat->thinking_tokens = request->thinking_tokens;
    TRY_OUT(find_marks(chat, err));
    TRY_OUT(chat_render(chat, request, err));
    if (chat->thinking_tokens)
        TRY_OUT(encode_closing(chat, err));
    TRY_OUT(chat_shape(chat, request, err));
    chat_begin(chat);
    *out = chat;
    return SLUICE_OK;
out:
    sluice_chat_close(chat);
    return status;
}

void sluice_chat_close(sluice_chat *chat)
{
    if (!chat)
        return;
    calls_close(&chat->calls);
    sluice_constraint_close(chat->constraint);
    json_decref(chat->tools);
    str_free(&chat->text);
    str_free(&chat->pool);
    mem_free(chat->ids.v);
    mem_free(chat->closing.v);
    mem_free(chat->only);
    mem_free(chat->rows);
    mem_free(chat->deltas);
    mem_free(chat);
}

const int32_t *sluice_chat_ids(const sluice_chat *chat, size_t *n_ids)
{
    *n_ids = chat->ids.n;
    return chat->ids.v;
}

const char *sluice_chat_text(const sluice_chat *chat, size_t *text_bytes)
{
    *text_bytes = chat->text.len;
    return chat->text.p;
}

/* ---- one generation ---- */

static uint64_t hash_ids(const struct ids *ids)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < ids->n; i++)
        h = (h ^ (uint32_t)ids->v[i]) * 0x100000001B3u;
    return h;
}

/* Append to the pool, NUL-terminated; *at is where it starts. */
static bool keep(sluice_chat *chat, const char *text, size_t n, size_t *at)
{
    *at = chat->pool.len;
    return str_append(&chat->pool, text, n) && str_putc(&chat->pool, '\0');
}

static sluice_status add_row(sluice_chat *chat, struct delta_row row, sluice_error *err)
{
    if (!mem_grow((void **)&chat->rows, &chat->cap_rows, chat->n_rows + 1, sizeof *chat->rows))
        return err_memory(err, sizeof row, "an answer");
    chat->rows[chat->n_rows++] = row;
    return SLUICE_OK;
}

static sluice_status add_call(sluice_chat *chat, const struct part *part, sluice_error *err)
{
    char id[40];
    struct delta_row row = {.kind = SLUICE_DELTA_CALL, .call = (uint32_t)part->call};
    /* Of the prompt and the place, so that ids of a conversation differ and a repeated run gives the same. */
    (void)snprintf(id, sizeof id, "call_%016llx%02x", (unsigned long long)hash_ids(&chat->ids),
                   (unsigned)part->call);
    if (!keep(chat, id, strlen(id), &row.id_at) || !keep(chat, part->name, strlen(part->name), &row.name_at))
        return err_memory(err, 0, "an answer");
    return add_row(chat, row, err);
}

/* Parts of a bounded size, that end between characters. */
static sluice_status add_arguments(sluice_chat *chat, const struct part *part, sluice_error *err)
{
    for (size_t at = 0; at < part->n;) {
        size_t n = part->n - at < ARGUMENTS_BYTES_MAX ? part->n - at : ARGUMENTS_BYTES_MAX;
        while (at + n < part->n && ((unsigned char)part->text[at + n] & 0xC0) == 0x80)
            n--;
        struct delta_row row = {.kind = SLUICE_DELTA_ARGUMENTS, .n = n, .call = (uint32_t)part->call};
        if (!keep(chat, part->text + at, n, &row.at))
            return err_memory(err, n, "an answer");
        TRY(add_row(chat, row, err));
        at += n;
    }
    return SLUICE_OK;
}

static sluice_status on_part(void *user, const struct part *part, sluice_error *err)
{
    static const sluice_delta_kind KINDS[] = {[PART_CONTENT] = SLUICE_DELTA_CONTENT,
                                              [PART_REASONING] = SLUICE_DELTA_REASONING,
                                              [PART_CALL_END] = SLUICE_DELTA_CALL_END,
                                              [PART_MALFORMED] = SLUICE_DELTA_MALFORMED};
    sluice_chat *chat = user;
    if (part->kind == PART_CALL)
        return add_call(chat, part, err);
    if (part->kind == PART_ARGUMENTS)
        return add_arguments(chat, part, err);
    struct delta_row row = {.kind = KINDS[part->kind],
                            .n = part->n,
                            .call = part->call == CALL_NONE ? SLUICE_CALL_NONE : (uint32_t)part->call};
    if (!keep(chat, part->text ? part->text : "", part->n, &row.at))
        return err_memory(err, part->n, "an answer");
    return add_row(chat, row, err);
}

void chat_begin(sluice_chat *chat)
{
    calls_close(&chat->calls);
    calls_open(&chat->calls, chat->dialect, chat->tools, chat->reasoning, on_part, chat);
    chat->reasoned_tokens = 0;
    chat->closed = chat->n_rows = 0;
    str_clear(&chat->pool);
    if (chat->constraint)
        constraint_restart(chat->constraint);
}

bool chat_shows(const sluice_chat *chat, int32_t id)
{
    for (size_t i = 0; i < chat->n_marks; i++)
        if (chat->mark_ids[i] == id)
            return true;
    return false;
}

sluice_constraint *chat_constraint(const sluice_chat *chat)
{
    return chat->calls.mode == MODE_REASONING ? NULL : chat->constraint;
}

const uint64_t *chat_forced(sluice_chat *chat)
{
    bool spent = chat->thinking_tokens && chat->calls.mode == MODE_REASONING &&
                 chat->reasoned_tokens >= chat->thinking_tokens;
    if ((!spent && !chat->closed) || chat->closed >= chat->closing.n)
        return NULL;
    int32_t id = chat->closing.v[chat->closed++];
    memset(chat->only, 0, chat->words * sizeof *chat->only);
    chat->only[id / 64] |= (uint64_t)1 << (id % 64);
    return chat->only;
}

void chat_count(sluice_chat *chat)
{
    chat->reasoned_tokens += chat->calls.mode == MODE_REASONING;
}

sluice_status chat_feed(sluice_chat *chat, const char *text, size_t n, sluice_error *err)
{
    return calls_feed(&chat->calls, text, n, err);
}

sluice_status chat_finish(sluice_chat *chat, bool cut, sluice_error *err)
{
    return calls_finish(&chat->calls, cut, err);
}

sluice_status chat_deltas(sluice_chat *chat, const sluice_delta **deltas, size_t *n, sluice_error *err)
{
    *n = chat->n_rows;
    if (chat->n_rows &&
        !mem_grow((void **)&chat->deltas, &chat->cap_deltas, chat->n_rows, sizeof *chat->deltas))
        return err_memory(err, chat->n_rows * sizeof *chat->deltas, "an answer");
    for (size_t i = 0; i < chat->n_rows; i++) {
        const struct delta_row *row = &chat->rows[i];
        bool call = row->kind == SLUICE_DELTA_CALL, text = !call && row->kind != SLUICE_DELTA_CALL_END;
        chat->deltas[i] = (sluice_delta){.kind = row->kind,
                                         .text = text ? chat->pool.p + row->at : NULL,
                                         .text_bytes = row->n,
                                         .call = row->call,
                                         .id = call ? chat->pool.p + row->id_at : NULL,
                                         .name = call ? chat->pool.p + row->name_at : NULL};
    }
    *deltas = chat->deltas;
    chat->n_rows = 0;
    chat->pool.len = 0;
    return SLUICE_OK;
}

sluice_finish chat_finish_reason(const sluice_chat *chat, sluice_finish finish)
{
    if (finish != SLUICE_FINISH_STOP)
        return finish;
    if (chat->calls.malformed)
        return SLUICE_FINISH_MALFORMED_CALL;
    return chat->calls.n_complete ? SLUICE_FINISH_TOOL_CALLS : finish;
}
