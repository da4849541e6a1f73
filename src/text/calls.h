/* What a model writes, taken apart as it comes: reasoning, the answer, tool calls in the model's own syntax.
 *
 * Families differ in their marks and in how a call is spelled; a table in calls_dialect.c lists them, and a
 * family is recognised by what its chat template contains. The result does not depend on how the text is cut
 * into pieces: what may be the beginning of a mark is held back. A call's arguments are handed out as they
 * become certain, as the JSON text that OpenAI's clients expect; whether the call is right is known at its
 * end only, and until that is told nobody may act on it. What is wrong is also there as raw text. */
#ifndef TEXT_CALLS_H
#define TEXT_CALLS_H

#include "base/json.h"
#include "base/str.h"
#include "text/grammar.h"
#include "text/template.h"

enum {
    CALL_BYTES_MAX = 256 << 10, /* of one call, as the model writes it */
    CALL_NAME_BYTES_MAX = 64,
    CALL_DEPTH_MAX = 64, /* as JSON_DEPTH_MAX */
    CALLS_MAX = 128,     /* in one answer */
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
    /* Behind this mark, and where an answer begins, a name may stand before the next mark: it says what the
     * message is for, and is no text. NULL: there is no such mark. */
    const char *header;
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
/* The parameter is a string, or of another type but null: its text is taken as a string, whatever it looks
 * like. Where it may be null too, the text "null" is that. */
bool tool_takes_text(const json_t *tools, const char *function, const char *parameter);
/* A value of any other parameter: JSON if it is, else a string. New reference; NULL: no memory. */
json_t *tool_value(const json_t *tools, const char *function, const char *parameter, const char *value,
                   size_t n);

/* Reads the text between a call's marks byte by byte (calls_reader.c). What a byte means is the function
 * `step`; `end`, when not NULL, is what the end of the body means. SLUICE_E_FORMAT: the call is wrong. */
struct call_reader;
typedef sluice_status call_step(struct call_reader *r, char c, sluice_error *err);
typedef sluice_status call_then(struct call_reader *r, sluice_error *err);

struct call_reader {
    const struct dialect *dialect;
    const json_t *tools;
    call_step *step;
    call_then *end;
    bool in_value; /* a closing mark would be part of a value */
    bool bad;      /* nothing that follows can mend it */
    bool begun;    /* the name is known, and is one of the tools */
    bool complete; /* one call of a section has ended */
    bool between;  /* and nothing has begun since: the section may end */
    char name[CALL_NAME_BYTES_MAX + 1];
    struct str args; /* as JSON */
    size_t given;    /* bytes of args that were handed out */
    struct str word; /* what is read now and not passed on at once */
    struct str key;
    /* of states that several syntaxes use */
    const struct call_choice *choices;          /* texts of which one must come */
    const char *stop;                           /* the text that ends `word`, or a value */
    call_then *then;                            /* what follows it */
    size_t matched;                             /* bytes of `stop` that came */
    bool as_text, peeled, first_byte, line_end; /* of a value */
    /* nesting */
    unsigned depth;
    char open[CALL_DEPTH_MAX];
    bool first;           /* member or item */
    bool quoted, escaped; /* inside a JSON string */
    int member;           /* of a JSON call: which one is read */
};

/* Begin a body. */
void call_reader_start(struct call_reader *r, const struct dialect *dialect, const json_t *tools);
void call_reader_close(struct call_reader *r);
/* After `complete`: the next call of the section. */
void call_reader_next(struct call_reader *r);
/* Only a lack of memory is an error: what is wrong makes r->bad. */
sluice_status call_reader_byte(struct call_reader *r, char c, sluice_error *err);
/* The body (all its bytes) has ended. Not r->bad: the call is right, and r->args its arguments. */
sluice_status call_reader_end(struct call_reader *r, const char *body, size_t n, sluice_error *err);

/* ---- the stream ---- */

/* A call begins, gets its arguments in pieces, and ends; or what began is none. */
enum part_kind { PART_CONTENT, PART_REASONING, PART_CALL, PART_ARGUMENTS, PART_CALL_END, PART_MALFORMED };

#define CALL_NONE SIZE_MAX

/* Text of one kind. Everything lives until the next feed. */
struct part {
    enum part_kind kind;
    const char *text; /* of arguments: JSON. Of PART_MALFORMED: as the model wrote it */
    size_t n;
    const char *name; /* of PART_CALL */
    size_t call;      /* index; of PART_MALFORMED: of the call that had begun, or CALL_NONE */
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
    struct call_reader reader;
    bool told;         /* that the call has begun */
    bool too_long;     /* the call: its bytes go on as raw text */
    bool started;      /* some text of this mode has been handed out */
    size_t n_calls;    /* that have begun */
    size_t n_complete; /* and were right to their end */
    bool malformed;
    bool in_header; /* what is held may be a header */
};

/* reasoning: the prompt has opened it already. */
void calls_open(struct calls *calls, const struct dialect *dialect, const json_t *tools, bool reasoning,
                part_fn fn, void *user);
void calls_close(struct calls *calls);
sluice_status calls_feed(struct calls *calls, const char *text, size_t n, sluice_error *err);
/* The end of the text: what is held back is text; an open call never ends.
 * cut: a limit ended it, so that is no fault of the model's. */
sluice_status calls_finish(struct calls *calls, bool cut, sluice_error *err);

/* ---- forcing calls ---- */

/* A rule that writes calls of these tools in the dialect: one, or several when `many`; `only` (may be NULL)
 * is the function that must be called. marks[i] of the dialect is mark i of the grammar where is_mark[i]. */
uint32_t calls_rule(struct grammar_builder *b, const struct dialect *dialect, enum call_style style,
                    const bool *is_mark, const json_t *tools, const char *only, bool many);

#endif
