/* What a model writes, taken apart as it comes: reasoning, the answer, tool calls in the model's own syntax.
 *
 * Families differ in their marks and in how a call is spelled; a table in calls_dialect.c lists them, and a
 * family is recognised by what its chat template contains. The result does not depend on how the text is cut
 * into pieces: what may be the beginning of a mark is held back. A call is handed out when it is complete and
 * right, never before; a wrong one is never handed out, but kept as raw text. */
#ifndef TEXT_CALLS_H
#define TEXT_CALLS_H

#include "base/json.h"
#include "base/str.h"
#include "text/grammar.h"
#include "text/template.h"

enum {
    CALL_BYTES_MAX = 256 << 10, /* of one call */
    CALLS_MAX = 128,            /* in one answer */
    CALL_MARKS_MAX = 16,
    CALL_DROPS_MAX = 6,
};

enum call_body { BODY_TAGGED, BODY_GEMMA, BODY_DSML, BODY_INKLING };
/* How a tagged body is asked for, when calls are forced; all three are read. */
enum call_style { STYLE_JSON, STYLE_XML, STYLE_ARG_KEYS };

struct dialect {
    const char *name;
    const char *sign;                     /* a template that contains this speaks it */
    const char *think_open, *think_close; /* NULL: no reasoning */
    const char *call_open, *call_close;   /* around one call, or a section of them; NULL: no calls */
    enum call_body body;
    const char *drop[CALL_DROPS_MAX];  /* marks that mean nothing to a reader; NULL-ended */
    const char *marks[CALL_MARKS_MAX]; /* all spellings that may be control tokens; NULL-ended */
};

/* Never NULL: a template with no signs speaks the last row, which has reasoning in <think> alone. */
const struct dialect *dialect_of(const struct template *chat);
const struct dialect *dialect_named(const char *name); /* NULL: there is none */
enum call_style dialect_style(const struct template *chat);

/* ---- one call ---- */

/* The function of a list of OpenAI tools, or NULL. */
const json_t *tool_find(const json_t *tools, const char *name);
/* Read bodies of a call or a section: appends {"name", "arguments": "JSON"} to list. SLUICE_E_FORMAT: it is
 * wrong, or names a function that `tools` (when not NULL) does not have. */
sluice_status calls_read(const struct dialect *dialect, const char *body, size_t n, const json_t *tools,
                         json_t *list, sluice_error *err);
/* The bodies; see calls_read. */
sluice_status call_read_tagged(const char *body, size_t n, const json_t *tools, json_t *list,
                               sluice_error *err);
sluice_status call_read_gemma(const char *body, size_t n, const json_t *tools, json_t *list,
                              sluice_error *err);
sluice_status call_read_dsml(const char *body, size_t n, const json_t *tools, json_t *list,
                             sluice_error *err);
sluice_status call_read_inkling(const char *body, size_t n, const json_t *tools, json_t *list,
                                sluice_error *err);
/* Append a call; the name and the argument object are checked against the tools. Takes `arguments` over. */
sluice_status call_add(json_t *list, const char *name, size_t name_bytes, json_t *arguments,
                       const json_t *tools, sluice_error *err);
/* A raw value as the parameter's schema means it: a string, unless the schema says otherwise and it is JSON.
 */
json_t *call_typed(const json_t *tools, const char *function, size_t function_bytes, const char *parameter,
                   const char *value, size_t n);

/* ---- the stream ---- */

enum part_kind { PART_CONTENT, PART_REASONING, PART_CALL, PART_MALFORMED };

/* Text of one kind; a call's name and arguments (JSON). Everything lives until the next feed. */
struct part {
    enum part_kind kind;
    const char *text; /* PART_CALL: the arguments */
    size_t n;
    const char *name;
};

typedef sluice_status (*part_fn)(void *user, const struct part *part, sluice_error *err);

struct calls {
    const struct dialect *dialect;
    const json_t *tools; /* borrowed; NULL: no call is looked for */
    part_fn fn;
    void *user;
    enum calls_mode { MODE_CONTENT, MODE_REASONING, MODE_CALL } mode;
    struct str held;  /* not looked at to its end */
    struct str space; /* white space that counts only when text follows */
    struct str body;  /* of the call */
    bool started;     /* some text of this mode has been handed out */
    size_t n_calls;
    bool malformed;
};

/* reasoning: the prompt has opened it already. */
void calls_open(struct calls *calls, const struct dialect *dialect, const json_t *tools, bool reasoning,
                part_fn fn, void *user);
void calls_close(struct calls *calls);
sluice_status calls_feed(struct calls *calls, const char *text, size_t n, sluice_error *err);
/* The end of the text: what is held back is text; a call that is not complete is not handed out.
 * cut: a limit ended it, so an open call is no fault of the model's. */
sluice_status calls_finish(struct calls *calls, bool cut, sluice_error *err);

/* ---- forcing calls ---- */

/* A rule that writes calls of these tools in the dialect: one, or several when `many`; `only` (may be NULL)
 * is the function that must be called. marks[i] of the dialect is mark i of the grammar where is_mark[i]. */
uint32_t calls_rule(struct grammar_builder *b, const struct dialect *dialect, enum call_style style,
                    const bool *is_mark, const json_t *tools, const char *only, bool many);

#endif
