/* The stream: modes, marks, white space. */
#include "text/calls.h"

#include "base/ascii.h"
#include "base/mem.h"

#include <string.h>

void calls_open(struct calls *c, const struct dialect *dialect, const json_t *tools, bool reasoning,
                part_fn fn, void *user)
{
    *c = (struct calls){.dialect = dialect, .tools = tools, .fn = fn, .user = user};
    c->mode = reasoning && dialect->think_close ? MODE_REASONING : MODE_CONTENT;
    c->started = c->mode == MODE_CONTENT;
    c->in_header = c->started && dialect->header && tools;
}

void calls_close(struct calls *c)
{
    str_free(&c->held);
    str_free(&c->space);
    str_free(&c->body);
    call_reader_close(&c->reader);
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
    struct part part = {.kind = kind, .text = text, .n = n, .call = CALL_NONE};
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

enum mark_action { ACT_DROP, ACT_THINK, ACT_ANSWER, ACT_CALL };

struct mark {
    const char *text;
    enum mark_action action;
};

/* What is looked for in the current mode, calls apart. */
static size_t wanted(const struct calls *c, struct mark marks[CALL_DROPS_MAX + 3])
{
    const struct dialect *d = c->dialect;
    size_t n = 0;
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

/* What is new of the arguments; the call's beginning before it. */
static sluice_status tell_call(struct calls *c, sluice_error *err)
{
    struct call_reader *r = &c->reader;
    struct part part = {.kind = PART_CALL, .name = r->name, .call = c->n_calls};
    if (!r->begun || (!c->told && c->n_calls == CALLS_MAX))
        return SLUICE_OK;
    if (!c->told) {
        c->told = true;
        TRY(c->fn(c->user, &part, err));
        c->n_calls++;
    }
    if (r->given == r->args.len) /* before the first argument args.p may be NULL, which takes no offset */
        return SLUICE_OK;
    part = (struct part){PART_ARGUMENTS, r->args.p + r->given, r->args.len - r->given, NULL, c->n_calls - 1};
    r->given = r->args.len;
    return c->fn(c->user, &part, err);
}

/* The raw text of a call that is none. */
static sluice_status malformed(struct calls *c, sluice_error *err)
{
    struct part part = {PART_MALFORMED, c->body.p, c->body.len, NULL, c->told ? c->n_calls - 1 : CALL_NONE};
    c->malformed = true;
    sluice_status status = part.n ? c->fn(c->user, &part, err) : SLUICE_OK;
    str_clear(&c->body);
    return status;
}

/* One call has been read to its end. */
static sluice_status end_call(struct calls *c, sluice_error *err)
{
    struct call_reader *r = &c->reader;
    const char *body = c->body.p ? c->body.p : "";
    if (!c->told && c->n_calls == CALLS_MAX)
        r->bad = true;
    TRY(call_reader_end(r, body, c->body.len, err));
    TRY(tell_call(c, err));
    if (r->bad) {
        TRY(malformed(c, err));
    } else {
        struct part part = {.kind = PART_CALL_END, .call = c->n_calls - 1};
        c->n_complete++;
        TRY(c->fn(c->user, &part, err));
    }
    str_clear(&c->body);
    c->told = false;
    return SLUICE_OK;
}

static sluice_status take_byte(struct calls *c, char byte, sluice_error *err)
{
    if (!str_putc(&c->body, byte))
        return no_memory(err);
    if (c->too_long)
        return SLUICE_OK;
    if (c->body.len > CALL_BYTES_MAX) {
        c->too_long = c->reader.bad = true;
        c->reader.in_value = false;
        return SLUICE_OK;
    }
    TRY(call_reader_byte(&c->reader, byte, err));
    if (!c->reader.complete)
        return SLUICE_OK;
    TRY(end_call(c, err));
    call_reader_next(&c->reader);
    return SLUICE_OK;
}

/* What can be told between two feeds. */
static sluice_status tell(struct calls *c, sluice_error *err)
{
    TRY(tell_call(c, err));
    return c->too_long ? malformed(c, err) : SLUICE_OK;
}

static sluice_status close_body(struct calls *c, sluice_error *err)
{
    sluice_status status = c->too_long ? tell(c, err) : c->reader.between ? SLUICE_OK : end_call(c, err);
    str_clear(&c->body);
    enter(c, MODE_CONTENT);
    return status;
}

static void open_body(struct calls *c)
{
    enter(c, MODE_CALL);
    c->told = c->too_long = false;
    str_clear(&c->body);
    call_reader_start(&c->reader, c->dialect, c->tools);
}

/* ---- feeding ---- */

/* Bytes of what is held that were used. A closing mark inside a value is a part of it. */
static sluice_status look_in_call(struct calls *c, size_t *used, sluice_error *err)
{
    const char *close = c->dialect->call_close;
    size_t length = strlen(close);
    for (*used = 0; *used < c->held.len;) {
        const char *at = c->held.p + *used;
        size_t left = c->held.len - *used;
        if (!c->reader.in_value && memcmp(at, close, left < length ? left : length) == 0) {
            if (left < length)
                break;
            *used += length;
            return close_body(c, err);
        }
        TRY(take_byte(c, *at, err));
        ++*used;
    }
    return tell(c, err);
}

static void act(struct calls *c, const struct mark *mark)
{
    c->in_header = c->dialect->header && c->tools && strcmp(mark->text, c->dialect->header) == 0;
    switch (mark->action) {
    case ACT_DROP:
        break;
    case ACT_THINK:
        enter(c, MODE_REASONING);
        break;
    case ACT_ANSWER:
        enter(c, MODE_CONTENT);
        break;
    case ACT_CALL:
        open_body(c);
        break;
    }
}

/* Nothing but what the name of a tool may have. */
static bool is_header(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!ascii_is_alnum(text[i]) && text[i] != '_' && text[i] != '-')
            return false;
    return n <= CALL_NAME_BYTES_MAX;
}

static sluice_status look_in_text(struct calls *c, size_t *used, sluice_error *err)
{
    struct mark marks[CALL_DROPS_MAX + 3];
    size_t n = wanted(c, marks), at = 0, keep = 0;
    const struct mark *mark = find(marks, n, c->held.p, c->held.len, &at, &keep);
    size_t text = mark ? at : keep;
    c->in_header = c->in_header && is_header(c->held.p, text);
    if (c->in_header && !mark) { /* the mark behind it decides */
        *used = 0;
        return SLUICE_OK;
    }
    TRY(text_out(c, c->held.p, c->in_header ? 0 : text, err));
    *used = mark ? at + strlen(mark->text) : keep;
    if (mark)
        act(c, mark);
    return SLUICE_OK;
}

static sluice_status look(struct calls *c, sluice_error *err)
{
    size_t used = 1;
    while (c->held.len && used) {
        TRY(c->mode == MODE_CALL ? look_in_call(c, &used, err) : look_in_text(c, &used, err));
        if (used)
            memmove(c->held.p, c->held.p + used, c->held.len - used);
        c->held.len -= used;
    }
    return SLUICE_OK;
}

sluice_status calls_feed(struct calls *c, const char *text, size_t n, sluice_error *err)
{
    if (n == 0)
        return SLUICE_OK;
    if (!str_append(&c->held, text, n))
        return no_memory(err);
    return look(c, err);
}

/* The answer ends inside a call: what is held back belongs to it. */
static sluice_status finish_call(struct calls *c, bool cut, sluice_error *err)
{
    for (size_t i = 0; i < c->held.len; i++)
        TRY(take_byte(c, c->held.p[i], err));
    TRY(tell(c, err));
    return cut ? SLUICE_OK : malformed(c, err);
}

sluice_status calls_finish(struct calls *c, bool cut, sluice_error *err)
{
    if (c->mode == MODE_CALL)
        TRY(finish_call(c, cut, err));
    else if (!cut || !c->in_header)
        TRY(text_out(c, c->held.p, c->held.len, err));
    str_clear(&c->held);
    if (c->mode == MODE_CONTENT && c->n_calls == 0 && c->started)
        TRY(hand_out(c, PART_CONTENT, c->space.p, c->space.len, err));
    str_clear(&c->body);
    enter(c, MODE_CONTENT);
    return SLUICE_OK;
}
