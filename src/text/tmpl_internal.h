/* What the files of the template engine share.
 *
 *     tmpl_lex.c      source to tokens, with Jinja's white-space rules
 *     tmpl_parse.c    tokens to a tree; everything that is not known is refused here, by name
 *     tmpl_value.c    values: truth, equality, text, JSON in and out
 *     tmpl_eval.c     expressions
 *     tmpl_exec.c     statements and output
 *     tmpl_builtin.c  the tables of filters, tests, functions and methods
 *
 * To add a statement: a row in tmpl_parse.c's STATEMENTS and one in tmpl_exec.c's EXECUTE. To add a filter,
 * test, function or method: a row in its table.
 *
 * Memory: an arena for the tree, one for each rendering; nothing else is freed singly. */
#ifndef TEXT_TMPL_INTERNAL_H
#define TEXT_TMPL_INTERNAL_H

#include "text/template.h"

#include <stdint.h>

#define TMPL_FILE "chat_template.jinja"

enum {
    TMPL_DEPTH_MAX = 200,   /* of the tree, and of values being printed or compared */
    TMPL_PARSE_DEPTH = 100, /* of brackets and blocks inside each other */
    TMPL_STEPS_MAX = 20000000,
    TMPL_ARGS_MAX = 8,
};
#define TMPL_SOURCE_BYTES_MAX ((size_t)1 << 20)
#define TMPL_OUTPUT_BYTES_MAX ((size_t)64 << 20)
#define TMPL_MEMORY_BYTES_MAX ((size_t)256 << 20) /* of one rendering, or of one tree */

/* ---- arena ---- */

struct tmpl_arena {
    struct tmpl_block *blocks; /* newest first */
    size_t used, size;         /* of the newest */
    size_t total;
    bool over; /* the limit was reached, rather than the machine's memory */
};

/* Zeroed; NULL when refused. */
void *tmpl_take(struct tmpl_arena *arena, size_t bytes);
void tmpl_arena_close(struct tmpl_arena *arena);
/* The error for a refused tmpl_take. */
sluice_status tmpl_refused(const struct tmpl_arena *arena, sluice_error *err);

/* ---- tokens ---- */

enum tmpl_token_kind {
    TMPL_DATA,
    TMPL_OUTPUT_BEGIN, /* {{ */
    TMPL_OUTPUT_END,
    TMPL_BLOCK_BEGIN, /* {% */
    TMPL_BLOCK_END,
    TMPL_NAME,
    TMPL_STRING,
    TMPL_INTEGER,
    TMPL_FLOAT,
    TMPL_OPERATOR,
    TMPL_END,
};

struct tmpl_token {
    enum tmpl_token_kind kind;
    int line;
    const char *p; /* data, name, operator, or the string with its escapes undone; NUL-terminated */
    size_t n;
    int64_t integer;
    double number;
};

sluice_status tmpl_lex(struct tmpl_arena *arena, const char *source, size_t n, struct tmpl_token **tokens,
                       size_t *n_tokens, sluice_error *err);

/* ---- values ---- */

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE, /* a dict whose members templates may set */
    VALUE_LOOP,
};

/* marks: one byte per byte of p, 1 for the template's own; NULL: struct value's `own` says it for all. */
struct value_text {
    const char *p;
    const unsigned char *marks;
    size_t n;
};

struct value {
    enum value_kind kind;
    bool own; /* scalars and unmarked strings: the template's own */
    union {
        bool truth;
        int64_t integer;
        double number;
        struct value_text text;
        struct value_list *list;
        struct value_dict *dict;
        struct value_loop *loop;
        const char *name; /* of what is undefined */
    } as;
};

struct value_list {
    struct value *v;
    size_t n, cap;
};

struct value_dict {
    struct value *keys, *values; /* in order of insertion */
    size_t n, cap;
};

struct value_loop {
    const struct value_list *items;
    size_t index;
};

/* ---- tree ---- */

enum node_kind {
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,      /* items */
    NODE_DICT,      /* items: key, value, … */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[items[0]:items[1]:items[2]]; NULL: left out */
    NODE_UNARY,     /* name: "-", "+", "not" */
    NODE_BINARY,    /* name: the operator */
    NODE_CONCAT,    /* items, joined by ~ */
    NODE_COMPARE,   /* items[0], then by name[i] with items[i + 1] */
    NODE_CONDITION, /* items: then, if, else (or NULL) */
    NODE_FILTER,    /* a | call */
    NODE_TEST,      /* a is call */
    NODE_FUNCTION,
    NODE_METHOD, /* a.call() */
    /* statements */
    NODE_DATA,
    NODE_OUTPUT, /* a */
    NODE_IF,     /* items: condition, body, condition, body, …; b: else */
    NODE_FOR,    /* targets in a (if c): body b, else items[0] */
    NODE_SET,    /* targets = a, or body b */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_BODY, /* items */
};

struct callable; /* a row of tmpl_builtin.c */

struct node {
    enum node_kind kind;
    int line, height;
    struct node *a, *b, *c;
    struct node **items;
    size_t n_items;
    const char *name;
    const char **names; /* targets; comparison operators */
    size_t n_names;
    struct value constant; /* of NODE_CONSTANT; the text of NODE_DATA */
    const struct callable *callable;
    struct node *arguments[TMPL_ARGS_MAX]; /* in the callable's order; NULL: not given */
    size_t n_arguments;                    /* given ones may be more for a callable that takes any number */
};

struct template
{
    struct tmpl_arena arena;
    struct node *body;
};

sluice_status tmpl_parse(struct tmpl_arena *arena, const struct tmpl_token *tokens, struct node **body,
                         sluice_error *err);

/* ---- rendering ---- */

struct binding {
    const char *name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct binding *first;
    struct scope *parent;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    struct tmpl_arena arena;
    struct scope *scope;
    struct binding *free_bindings; /* of scopes that ended */
    struct str *text, *marks;      /* where output goes */
    uint64_t steps;
    int line; /* of the node that is evaluated */
    enum flow flow;
    sluice_error *err;
};

/* "chat_template.jinja line 3: …" */
sluice_status tmpl_fail(struct render *r, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Count work; fails when there was too much. */
sluice_status tmpl_step(struct render *r, uint64_t steps);
sluice_status tmpl_alloc(struct render *r, size_t bytes, void *out);

sluice_status tmpl_eval(struct render *r, const struct node *node, struct value *out);
sluice_status tmpl_exec(struct render *r, const struct node *node);
/* Append a value as {{ }} prints it. */
sluice_status tmpl_output(struct render *r, const struct value *value);
/* The variable, or undefined. */
struct value tmpl_lookup(const struct render *r, const char *name);

/* ---- operations on values ---- */

struct value value_bool(bool truth);
struct value value_int(int64_t integer, bool own);
struct value value_string(const char *p, size_t n, bool own);
struct value value_undefined(const char *name);
const char *value_type(const struct value *v); /* "string", … for messages */
bool value_truth(const struct value *v);
bool value_is_number(const struct value *v); /* bool included, as in Python */
double value_number(const struct value *v);
/* Integers and bools; false: neither. */
bool value_integer(const struct value *v, int64_t *out);
sluice_status value_equal(struct render *r, const struct value *a, const struct value *b, bool *equal);
/* -1, 0, 1; fails for what has no order. */
sluice_status value_order(struct render *r, const struct value *a, const struct value *b, int *order);
sluice_status value_contains(struct render *r, const struct value *container, const struct value *item,
                             bool *found);
sluice_status value_list_new(struct render *r, size_t cap, struct value *out);
sluice_status value_list_add(struct render *r, struct value_list *list, const struct value *item);
sluice_status value_dict_new(struct render *r, struct value *out);
sluice_status value_dict_set(struct render *r, struct value_dict *dict, const struct value *key,
                             const struct value *value);
/* NULL: not there. */
sluice_status value_dict_get(struct render *r, const struct value_dict *dict, const struct value *key,
                             struct value **found);
/* What {% for %} walks over: list, dict's keys, string's characters, nothing for undefined. */
sluice_status value_iterate(struct render *r, const struct value *v, struct value_list **items);
/* str(v) as a string value. */
sluice_status value_text_of(struct render *r, const struct value *v, struct value *out);
sluice_status value_from_json(struct render *r, const json_t *json, bool own, struct value *out);
struct json_style {
    int indent; /* -1: one line */
    bool sort_keys;
    const char *item_separator, *key_separator;
};
sluice_status value_to_json(struct render *r, const struct value *v, const struct json_style *style,
                            struct value *out);

/* ---- building a string piece by piece ---- */

struct builder {
    struct render *r;
    char *p;
    unsigned char *marks;
    size_t n, cap;
};

sluice_status builder_add(struct builder *b, const char *p, const unsigned char *marks, bool own, size_t n);
sluice_status builder_value(struct builder *b, const struct value *string); /* a VALUE_STRING */
struct value builder_done(const struct builder *b);

/* ---- callables ---- */

struct call {
    struct render *r;
    const struct value *self; /* the filtered or tested value, the method's object; NULL for a function */
    struct value *args;       /* in the callable's order, VALUE_ABSENT where not given */
    size_t n_args;
    const char **keywords; /* of functions that take any: names of args, NULL for positional ones */
    struct value *out;
};

enum callable_kind { CALL_FILTER, CALL_TEST, CALL_FUNCTION, CALL_METHOD, CALL_KINDS };

struct callable {
    const char *name;
    const char *parameters; /* "sep,attribute"; required ones end in "!"; "*": any keyword arguments */
    sluice_status (*call)(struct call *c);
};

/* NULL: there is none. */
const struct callable *tmpl_find_callable(enum callable_kind kind, const char *name);

#endif
