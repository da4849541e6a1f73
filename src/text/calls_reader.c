/* States that several syntaxes have, and the end of a call. */
#include "text/calls_reader.h"

#include "base/mem.h"

#include <string.h>

sluice_status call_wrong(sluice_error *err, const char *what)
{
    return err_set(err, SLUICE_E_FORMAT, "a tool call is malformed: %s", what);
}

sluice_status call_no_memory(sluice_error *err)
{
    return err_memory(err, 0, "a tool call");
}

/* ---- writing arguments ---- */

sluice_status call_emit(struct call_reader *r, const char *text, size_t n, sluice_error *err)
{
    return str_append(&r->args, text, n) ? SLUICE_OK : call_no_memory(err);
}

sluice_status call_emit_char(struct call_reader *r, char c, sluice_error *err)
{
    return str_putc(&r->args, c) ? SLUICE_OK : call_no_memory(err);
}

sluice_status call_emit_string(struct call_reader *r, const char *text, size_t n, sluice_error *err)
{
    static const char LETTERS[32] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            ok = str_printf(&r->args, "\\%c", c);
        else if (c < 32)
            ok = LETTERS[c] ? str_printf(&r->args, "\\%c", LETTERS[c]) : str_printf(&r->args, "\\u%04x", c);
        else
            ok = str_putc(&r->args, (char)c);
    }
    return ok ? SLUICE_OK : call_no_memory(err);
}

sluice_status call_emit_key(struct call_reader *r, const char *key, size_t n, sluice_error *err)
{
    TRY(call_emit_char(r, '"', err));
    TRY(call_emit_string(r, key, n, err));
    return call_emit(r, "\":", 2, err);
}

sluice_status call_begin(struct call_reader *r, const char *name, size_t n, sluice_error *err)
{
    if (r->begun || n == 0 || n > CALL_NAME_BYTES_MAX || memchr(name, '\0', n))
        return call_wrong(err, "it names no function, or two, or one longer than 64 bytes");
    memcpy(r->name, name, n);
    r->name[n] = '\0';
    if (!tool_find(r->tools, r->name))
        return err_set(err, SLUICE_E_FORMAT, "the call names \"%s\", which is none of the tools", r->name);
    r->begun = true;
    return SLUICE_OK;
}

/* ---- shared states ---- */

void call_go(struct call_reader *r, call_step *step)
{
    r->step = step;
    r->end = NULL;
    r->in_value = false;
    r->matched = 0;
    str_clear(&r->word);
}

static sluice_status expect_step(struct call_reader *r, char c, sluice_error *err)
{
    bool open = false;
    if (r->word.len == 0 && call_space(c))
        return SLUICE_OK;
    r->end = NULL;
    r->between = false;
    if (!str_putc(&r->word, c))
        return call_no_memory(err);
    for (const struct call_choice *one = r->choices; one->text; one++) {
        if (strncmp(one->text, r->word.p, r->word.len) != 0)
            continue;
        if (one->text[r->word.len] == '\0')
            return one->then(r, err);
        open = true;
    }
    return open ? SLUICE_OK : call_wrong(err, "another mark is expected");
}

void call_expect(struct call_reader *r, const struct call_choice *choices)
{
    call_go(r, expect_step);
    r->choices = choices;
}

static sluice_status collect_step(struct call_reader *r, char c, sluice_error *err)
{
    size_t n = strlen(r->stop);
    if (!str_putc(&r->word, c))
        return call_no_memory(err);
    if (r->word.len < n || memcmp(r->word.p + r->word.len - n, r->stop, n) != 0)
        return SLUICE_OK;
    r->word.len -= n;
    return r->then(r, err);
}

void call_collect(struct call_reader *r, const char *stop, call_then *then)
{
    call_go(r, collect_step);
    r->stop = stop;
    r->then = then;
}

/* A byte of a value; a line end waits, for it may be the last. */
static sluice_status value_text(struct call_reader *r, char c, sluice_error *err)
{
    bool first = r->first_byte;
    r->first_byte = false;
    if (r->peeled && first && c == '\n')
        return SLUICE_OK;
    if (r->line_end) {
        if (r->as_text)
            TRY(call_emit_string(r, "\n", 1, err));
        else if (!str_putc(&r->word, '\n'))
            return call_no_memory(err);
    }
    r->line_end = r->peeled && c == '\n';
    if (r->line_end)
        return SLUICE_OK;
    if (r->as_text)
        return call_emit_string(r, &c, 1, err);
    return str_putc(&r->word, c) ? SLUICE_OK : call_no_memory(err);
}

static sluice_status value_step(struct call_reader *r, char c, sluice_error *err)
{
    if (c == r->stop[r->matched]) {
        if (r->stop[++r->matched])
            return SLUICE_OK;
        if (r->as_text)
            TRY(call_emit_char(r, '"', err));
        return r->then(r, err);
    }
    size_t n = r->matched;
    r->matched = 0;
    for (size_t i = 0; i < n; i++)
        TRY(value_text(r, r->stop[i], err));
    if (c != r->stop[0])
        return value_text(r, c, err);
    r->matched = 1;
    return SLUICE_OK;
}

void call_value(struct call_reader *r, const char *stop, bool as_text, bool peeled, call_then *then)
{
    call_go(r, value_step);
    r->in_value = true;
    r->stop = stop;
    r->as_text = as_text;
    r->peeled = peeled;
    r->first_byte = true;
    r->line_end = false;
    r->then = then;
}

/* ---- one body ---- */

void call_reader_next(struct call_reader *r)
{
    r->bad = r->begun = r->complete = false;
    r->given = r->depth = 0;
    r->first = r->quoted = r->escaped = false;
    r->between = true;
    r->member = 0;
    str_clear(&r->args);
    str_clear(&r->key);
}

void call_reader_start(struct call_reader *r, const struct dialect *dialect, const json_t *tools)
{
    static call_step *const FIRST[] = {
        [BODY_TAGGED] = call_tagged_step,
        [BODY_GEMMA] = call_gemma_step,
        [BODY_DSML] = call_dsml_step,
        [BODY_INKLING] = call_json_step,
    };
    r->dialect = dialect;
    r->tools = tools;
    call_reader_next(r);
    r->between = false;
    call_go(r, FIRST[dialect->body]);
}

void call_reader_close(struct call_reader *r)
{
    str_free(&r->args);
    str_free(&r->word);
    str_free(&r->key);
}

/* What is wrong is remembered; what is short of memory is not the call's fault. */
static sluice_status judge(struct call_reader *r, sluice_status status, sluice_error *err)
{
    if (status == SLUICE_E_MEMORY)
        return call_no_memory(err);
    if (status != SLUICE_OK) {
        r->bad = true;
        r->in_value = false;
    }
    return SLUICE_OK;
}

sluice_status call_reader_byte(struct call_reader *r, char c, sluice_error *err)
{
    return r->bad ? SLUICE_OK : judge(r, r->step(r, c, NULL), err);
}

/* The arguments are what was handed out: one JSON object with no name twice, in valid UTF-8. */
static sluice_status check(const struct call_reader *r, const char *body, size_t n)
{
    json_t *arguments = NULL;
    if (!r->begun || r->args.len == 0)
        return SLUICE_E_FORMAT;
    sluice_status status = json_parse(r->args.p, r->args.len, "the arguments", &arguments, NULL);
    if (status == SLUICE_OK && !json_is_object(arguments))
        status = SLUICE_E_FORMAT;
    if (status == SLUICE_OK && r->member)
        status = call_json_check(r, body, n, arguments, NULL);
    json_decref(arguments);
    return status;
}

sluice_status call_reader_end(struct call_reader *r, const char *body, size_t n, sluice_error *err)
{
    if (!r->bad && !r->complete)
        TRY(judge(r, r->end ? r->end(r, NULL) : SLUICE_E_FORMAT, err));
    return r->bad ? SLUICE_OK : judge(r, check(r, body, n), err);
}

/* ---- <tool_call>: JSON, <function=…>, or a name and <arg_key>s ---- */

sluice_status call_tagged_step(struct call_reader *r, char c, sluice_error *err)
{
    if (call_space(c))
        return SLUICE_OK;
    call_go(r, c == '{' ? call_json_step : call_elements_step);
    return r->step(r, c, err);
}
