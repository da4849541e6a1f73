/* The stream: modes, marks, white space. */
#include "text/calls.h"

#include "base/mem.h"

#include <string.h>

void calls_open(struct calls *c, const struct dialect *dialect, const json_t *tools, bool reasoning,
                part_fn fn, void *user)
{
    *c = (struct calls){.dialect = dialect, .tools = tools, .fn = fn, .user = user};
    c->mode = reasoning && dialect->think_close ? MODE_REASONING : MODE_CONTENT;
    c->started = c->mode == MODE_CONTENT;
}

void calls_close(struct calls *c)
{
    str_free(&c->held);
    str_free(&c->space);
    str_free(&c->body);
}

static sluice_status no_memory(sluice_error *err)
{
    return err_memory(err, 0, "the answer's text");
}

/* ---- text ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static sluice_status hand_out(struct calls *c, enum part_kind kind, const char *text, size_t n,
                              sluice_error *err)
{
    struct part part = {kind, text, n, NULL};
    return n ? c->fn(c->user, &part, err) : SLUICE_OK;
}

/* Text of the mode. White space waits: at the beginning of a part (behind a mark) it is layout, at its end
 * too. An answer that began without any mark keeps its beginning. */
static sluice_status text_out(struct calls *c, const char *text, size_t n, sluice_error *err)
{
    enum part_kind kind = c->mode == MODE_REASONING ? PART_REASONING : PART_CONTENT;
    size_t end = n, at = 0;
    while (end > 0 && is_space(text[end - 1]))
        end--;
    if (!c->started)
        while (at < end && is_space(text[at]))
            at++;
    if (end > at) {
        if (c->started)
            TRY(hand_out(c, kind, c->space.p, c->space.len, err));
        str_clear(&c->space);
        c->started = true;
        TRY(hand_out(c, kind, text + at, end - at, err));
        at = end;
    }
    if (c->started && n > at && !str_append(&c->space, text + at, n - at))
        return no_memory(err);
    return SLUICE_OK;
}

static void enter(struct calls *c, enum calls_mode mode)
{
    c->mode = mode;
    c->started = false;
    str_clear(&c->space);
}

/* ---- marks ---- */

enum mark_action { ACT_DROP, ACT_THINK, ACT_ANSWER, ACT_CALL, ACT_END_CALL };

struct mark {
    const char *text;
    enum mark_action action;
};

/* What is looked for in the current mode. */
static size_t wanted(const struct calls *c, struct mark marks[CALL_DROPS_MAX + 4])
{
    const struct dialect *d = c->dialect;
    size_t n = 0;
    if (c->mode == MODE_CALL) {
        marks[n++] = (struct mark){d->call_close, ACT_END_CALL};
        return n;
    }
    /* A call may come before reasoning is closed: it ends it. */
    if (d->call_open && c->tools)
        marks[n++] = (struct mark){d->call_open, ACT_CALL};
    if (d->think_close && c->mode == MODE_REASONING)
        marks[n++] = (struct mark){d->think_close, ACT_ANSWER};
    if (d->think_open && c->mode == MODE_CONTENT)
        marks[n++] = (struct mark){d->think_open, ACT_THINK};
    for (size_t i = 0; i < CALL_DROPS_MAX && d->drop[i]; i++)
        marks[n++] = (struct mark){d->drop[i], ACT_DROP};
    return n;
}

/* The first mark in text; *keep: bytes from where on a longer text could hold one that starts here. */
static const struct mark *find(const struct mark *marks, size_t n_marks, const char *text, size_t n,
                               size_t *at, size_t *keep)
{
    for (*at = 0; *at < n; ++*at) {
        const struct mark *best = NULL;
        bool open = false;
        for (size_t i = 0; i < n_marks; i++) {
            size_t length = strlen(marks[i].text), left = n - *at;
            if (text[*at] != marks[i].text[0])
                continue;
            if (left >= length && memcmp(text + *at, marks[i].text, length) == 0 &&
                (!best || length > strlen(best->text)))
                best = &marks[i];
            open |= left < length && memcmp(text + *at, marks[i].text, left) == 0;
        }
        if (open) { /* also when a shorter one is complete: the longer would win */
            *keep = *at;
            return NULL;
        }
        if (best)
            return best;
    }
    *keep = n;
    return NULL;
}

/* ---- calls ---- */

static sluice_status malformed(struct calls *c, sluice_error *err)
{
    c->malformed = true;
    return hand_out(c, PART_MALFORMED, c->body.p, c->body.len, err);
}

static sluice_status read_calls(struct calls *c, json_t *list, sluice_error *err)
{
    sluice_error why = {0};
    sluice_status status =
        calls_read(c->dialect, c->body.p ? c->body.p : "", c->body.len, c->tools, list, &why);
    if (status == SLUICE_E_MEMORY)
        return no_memory(err);
    if (status != SLUICE_OK || json_array_size(list) == 0 || c->n_calls + json_array_size(list) > CALLS_MAX)
        return malformed(c, err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *call = json_array_get(list, i), *arguments = json_object_get(call, "arguments");
        struct part part = {PART_CALL, json_string_value(arguments), json_string_length(arguments),
                            json_string_value(json_object_get(call, "name"))};
        c->n_calls++;
        TRY(c->fn(c->user, &part, err));
    }
    return SLUICE_OK;
}

static sluice_status end_call(struct calls *c, sluice_error *err)
{
    json_t *list = json_array();
    sluice_status status = list ? read_calls(c, list, err) : no_memory(err);
    json_decref(list);
    str_clear(&c->body);
    enter(c, MODE_CONTENT);
    return status;
}

/* ---- feeding ---- */

static sluice_status plain(struct calls *c, const char *text, size_t n, sluice_error *err)
{
    if (c->mode != MODE_CALL)
        return text_out(c, text, n, err);
    if (c->body.len + n > CALL_BYTES_MAX) {
        TRY(malformed(c, err));
        str_clear(&c->body);
        enter(c, MODE_CONTENT);
        return SLUICE_OK;
    }
    return str_append(&c->body, text, n) ? SLUICE_OK : no_memory(err);
}

static sluice_status act(struct calls *c, const struct mark *mark, sluice_error *err)
{
    switch (mark->action) {
    case ACT_DROP:
        return SLUICE_OK;
    case ACT_THINK:
        enter(c, MODE_REASONING);
        return SLUICE_OK;
    case ACT_ANSWER:
        enter(c, MODE_CONTENT);
        return SLUICE_OK;
    case ACT_CALL:
        enter(c, MODE_CALL);
        return SLUICE_OK;
    case ACT_END_CALL:
        return end_call(c, err);
    }
    return SLUICE_OK;
}

static sluice_status look(struct calls *c, sluice_error *err)
{
    for (;;) {
        struct mark marks[CALL_DROPS_MAX + 4];
        size_t n = wanted(c, marks), at = 0, keep = 0, used;
        const struct mark *mark = find(marks, n, c->held.p, c->held.len, &at, &keep);
        TRY(plain(c, c->held.p, mark ? at : keep, err));
        used = mark ? at + strlen(mark->text) : keep;
        if (used)
            memmove(c->held.p, c->held.p + used, c->held.len - used);
        c->held.len -= used;
        if (!mark)
            return SLUICE_OK;
        TRY(act(c, mark, err));
        if (c->held.len == 0)
            return SLUICE_OK;
    }
}

sluice_status calls_feed(struct calls *c, const char *text, size_t n, sluice_error *err)
{
    if (n == 0)
        return SLUICE_OK;
    if (!str_append(&c->held, text, n))
        return no_memory(err);
    return look(c, err);
}

sluice_status calls_finish(struct calls *c, bool cut, sluice_error *err)
{
    if (c->held.len)
        TRY(plain(c, c->held.p, c->held.len, err));
    str_clear(&c->held);
    if (c->mode == MODE_CALL && !cut)
        TRY(malformed(c, err));
    else if (c->mode == MODE_CONTENT && c->n_calls == 0 && c->started)
        TRY(hand_out(c, PART_CONTENT, c->space.p, c->space.len, err));
    str_clear(&c->body);
    enter(c, MODE_CONTENT);
    return SLUICE_OK;
}
