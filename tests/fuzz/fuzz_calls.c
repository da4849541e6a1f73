/* An answer in one of the dialects: the first byte chooses it, the second where the text is cut. However it
 * is cut, the parts are the same. */
#include "base/mem.h"
#include "require.h"
#include "text/calls.h"

#include <stdlib.h>
#include <string.h>

struct log {
    struct str text, arguments;
    int last;
    size_t n_calls;
    bool open; /* a call has begun, and has neither ended nor failed */
};

static void check_arguments(const struct log *log)
{
    json_t *arguments = NULL;
    require(json_parse(log->arguments.p, log->arguments.len, "arguments", &arguments, NULL) == SLUICE_OK);
    require(json_is_object(arguments));
    json_decref(arguments);
}

static sluice_status on_part(void *user, const struct part *part, sluice_error *err)
{
    struct log *log = user;
    (void)err;
    if (log->last != (int)part->kind || part->kind == PART_CALL)
        require(str_printf(&log->text, "\n[%d] ", (int)part->kind));
    log->last = (int)part->kind;
    switch (part->kind) {
    case PART_CALL:
        require(!log->open && part->name[0] && part->call == log->n_calls++);
        require(str_puts(&log->text, part->name));
        str_clear(&log->arguments);
        log->open = true;
        return SLUICE_OK;
    case PART_ARGUMENTS:
        require(log->open && part->n && str_append(&log->arguments, part->text, part->n));
        break;
    case PART_CALL_END:
        require(log->open && part->call == log->n_calls - 1);
        check_arguments(log);
        log->open = false;
        return SLUICE_OK;
    case PART_MALFORMED:
        require(part->call == log->n_calls - 1 || (part->call == CALL_NONE && !log->open));
        log->open = false;
        break;
    case PART_CONTENT:
    case PART_REASONING:
        break;
    }
    require(str_append(&log->text, part->text, part->n));
    return SLUICE_OK;
}

static void run(const struct dialect *dialect, bool reasoning, const json_t *tools, const char *text,
                size_t n, size_t step, struct log *log)
{
    struct calls calls;
    calls_open(&calls, dialect, tools, reasoning, on_part, log);
    for (size_t at = 0; at < n; at += step)
        require(calls_feed(&calls, text + at, n - at < step ? n - at : step, NULL) == SLUICE_OK);
    require(calls_finish(&calls, false, NULL) == SLUICE_OK);
    require(calls.n_calls == log->n_calls && calls.n_complete <= calls.n_calls);
    calls_close(&calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const NAMES[] = {"gemma4", "deepseek", "inkling", "tagged", "plain"};
    static const char TOOLS[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}}]";
    if (size < 2)
        return 0;
    const struct dialect *dialect = dialect_named(NAMES[data[0] % 5]);
    const char *text = (const char *)data + 2;
    size_t n = size - 2, step = 1 + data[1] % 7;
    struct log whole = {.last = -1}, cut = {.last = -1};
    json_t *tools = NULL;
    mem_hook_json();
    require(json_parse(TOOLS, sizeof TOOLS - 1, "tools", &tools, NULL) == SLUICE_OK);
    run(dialect, data[0] & 128, tools, text, n, n ? n : 1, &whole);
    run(dialect, data[0] & 128, tools, text, n, step, &cut);
    require(whole.text.len == cut.text.len &&
            (whole.text.len == 0 || memcmp(whole.text.p, cut.text.p, whole.text.len) == 0));
    str_free(&whole.text);
    str_free(&whole.arguments);
    str_free(&cut.text);
    str_free(&cut.arguments);
    json_decref(tools);
    return 0;
}
