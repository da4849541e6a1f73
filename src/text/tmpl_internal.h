/* What the files of the template engine share.
 *
 *     tmpl_lex.c        source to tokens, with Jinja's white-space rules
 *     tmpl_parse.c      tokens to a tree: expressions; unknown filters and tests are refused here, by name,
 * unless a condition stands before them tmpl_statement.c  tokens to a tree: statements tmpl_value.c values:
 * truth, equality, order tmpl_text.c       values as Python prints them, JSON in and out tmpl_eval.c
 * expressions tmpl_call.c       calls: arguments, macros, functions, methods tmpl_exec.c       statements and
 * output tmpl_builtin.c    the tables of filters, tests and functions tmpl_sequence.c   filters over
 * sequences (map, select, sort, …) tmpl_method.c     the table of methods
 *
 * To add a statement: a row in tmpl_statement.c's STATEMENTS and one in tmpl_exec.c's EXECUTE. To add a
 * filter, test, function or method: a row in its table.
 *
 * Memory: an arena for the tree, one for each rendering; nothing else is freed singly. */
#ifndef TEXT_TMPL_INTERNAL_H
#define TEXT_TMPL_INTERNAL_H

#include "text/template.h"

#define TMPL_FILE "chat_template.jinja"

enum {
    TMPL_DEPTH_MAX = 200,   /* of the tree, and of values being printed or compared */
    TMPL_PARSE_DEPTH = 100, /* of brackets and blocks inside each other */
    TMPL_NEST_MAX = 1000,   /* of evaluation, macros calling each other included */
    TMPL_STEPS_MAX = 5000000,
    TMPL_ARGS_MAX = 24,
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
static inline sluice_status tmpl_refused(const struct tmpl_arena *arena, sluice_error *err)
{
    if (arena->over)
        return err_set(err, SLUICE_E_UNSUPPORTED, TMPL_FILE " needs more than %zu MiB of memory",
                       TMPL_MEMORY_BYTES_MAX >> 20);
    return err_memory(err, arena->total, TMPL_FILE);
}

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
    VALUE_MACRO,
    VALUE_FUNCTION, /* a row of a table: a function, or a method as an attribute */
};

/* marks: one byte per byte of p, 1 for the template's own; NULL: struct value's `own` says it for all. */
struct value_text {
    const char *p;
    const unsigned char *marks;
    size_t n;
};

struct value {
    enum value_kind kind;
    bool own;  /* scalars and unmarked strings: the template's own */
    bool safe; /* of a string: HTML, as "safe" and "escape" make it; what is added to it is escaped */
    union {
        bool truth;
        int64_t integer;
        double number;
        struct value_text text;
        struct value_list *list;
        struct value_dict *dict;
        struct value_loop *loop;
        struct value_macro *macro;
        const struct callable *callable;
        const char *name; /* of what is undefined */
    } as;
};

/* What a list is in Python. Views and generators are no JSON, print in no useful way and have no items by
 * number; a generator is true even when it is empty, has no length, and what is taken from it is gone. */
enum list_shape { SHAPE_LIST, SHAPE_TUPLE, SHAPE_VIEW, SHAPE_GENERATOR };

struct value_list {
    struct value *v;
    size_t n, cap;
    enum list_shape shape;
};

struct value_dict {
    struct value *keys, *values; /* in order of insertion */
    size_t n, cap;
};

/* What a macro or a recursive loop sees around itself. Scopes live on the C stack, so a value that outlives
 * its scope must notice: the serial number tells. */
struct surroundings {
    struct scope *scope;
    uint64_t serial;
};

struct value_loop {
    const struct value_list *items;
    size_t index, depth;
    const struct node *node;
    struct surroundings around;
    struct value changed; /* what loop.changed() saw last */
};

struct value_macro {
    const struct node *node;
    struct surroundings around;
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
    NODE_FILTER,    /* a | callable */
    NODE_TEST,      /* a is callable */
    NODE_CALL,      /* a(…) */
    NODE_HOLE,      /* what a filter block or a set block with filters filters */
    /* statements */
    NODE_DATA,
    NODE_OUTPUT, /* a */
    NODE_IF,     /* items: condition, body, condition, body, …; b: else */
    NODE_FOR,    /* targets in a (if c): body b, else items[0]; flag: recursive */
    NODE_SET,    /* targets = a, or body b, which c may filter */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_BODY,         /* items */
    NODE_MACRO,        /* name; parameters names, their defaults items (NULL: none); body b */
    NODE_CALL_BLOCK,   /* a: the call; b: the macro "caller" */
    NODE_FILTER_BLOCK, /* body b, filtered by c */
    NODE_WITH,         /* names = items; body b */
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
    bool flag;
    /* of filters, tests and calls: items are the arguments as written, names their keywords or NULL */
    const struct callable *callable; /* NULL of a filter or test: not known */
};

struct template
{
    struct tmpl_arena arena;
    const struct tmpl_token *tokens; /* the last is TMPL_END */
    struct node *body;
};

sluice_status tmpl_parse(struct tmpl_arena *arena, const struct tmpl_token *tokens, struct node **body,
                         sluice_error *err);

/* ---- parsing, shared by tmpl_parse.c and tmpl_statement.c ---- */

struct parser {
    struct tmpl_arena *arena;
    const struct tmpl_token *t; /* the next token; the last is TMPL_END */
    size_t depth, loops;
    /* Behind a condition, what is not known fails when it is reached, as in Jinja; elsewhere the template is
     * refused: this is the first such node. */
    bool conditional;
    const struct node *unknown;
    sluice_error *err;
};

bool parse_is_operator(const struct parser *p, const char *text);
bool parse_is_name(const struct parser *p, const char *text);
bool parse_skip_operator(struct parser *p, const char *text);
bool parse_skip_name(struct parser *p, const char *text);
/* "line 3: WHAT, not …" */
sluice_status parse_fail(const struct parser *p, const char *what);
sluice_status parse_refuse(const struct parser *p, int line, const char *kind, const char *name);
sluice_status parse_expect_operator(struct parser *p, const char *text);
sluice_status parse_expect_name(struct parser *p, const char **name);
struct node *parse_new_node(struct parser *p, enum node_kind kind);
/* Evaluation recurses as deep as the tree is high. */
sluice_status parse_raise(const struct parser *p, struct node *node, const struct node *child);
sluice_status parse_add_item(struct parser *p, struct node *node, struct node *item);
sluice_status parse_add_name(struct parser *p, struct node *node, const char *name);
sluice_status parse_enter(struct parser *p);
sluice_status parse_expression(struct parser *p, struct node **out);
sluice_status parse_disjunction(struct parser *p, struct node **out); /* without "a if b else c" */
sluice_status parse_postfix(struct parser *p, struct node **out);
sluice_status parse_primary(struct parser *p, struct node **out);
/* name(…) | name(…) … behind *out, the first "|" is read already */
sluice_status parse_filter_chain(struct parser *p, struct node **out);
/* An expression, or several with commas between: a tuple. */
sluice_status parse_tuple(struct parser *p, struct node **out);
/* Statements up to the end. */
sluice_status parse_statements(struct parser *p, struct node **out);

/* Make a node or return from the calling function. */
#define NEW_NODE(p, kind, out)                                                                               \
    do {                                                                                                     \
        if (!(*(out) = parse_new_node((p), (kind))))                                                         \
            return tmpl_refused((p)->arena, (p)->err);                                                       \
    } while (0)

/* ---- rendering ---- */

struct binding {
    const char *name;
    struct value value;
    struct binding *next;
};

struct scope {
    struct binding *first;
    struct scope *parent; /* where names are looked up next */
    struct scope *below;  /* the one that was current before */
    uint64_t serial;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

struct render {
    struct tmpl_arena arena;
    struct scope *scope;
    struct binding *free_bindings; /* of scopes that ended */
    struct str *text, *marks;      /* where output goes */
    const struct value *hole;      /* of the filter block that is evaluated */
    uint64_t steps, serial;
    int64_t now_seconds;
    int line; /* of the node that is evaluated */
    int nest;
    enum flow flow;
    sluice_error *err;
};

/* "chat_template.jinja line 3: …" */
sluice_status tmpl_fail(struct render *r, sluice_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Count work; fails when there was too much. */
sluice_status tmpl_step(struct render *r, uint64_t steps);
sluice_status tmpl_alloc(struct render *r, size_t bytes, void *out);
/* One level deeper; leave with r->nest--. */
sluice_status tmpl_nest(struct render *r);

sluice_status tmpl_eval(struct render *r, const struct node *node, struct value *out);
sluice_status tmpl_exec(struct render *r, const struct node *node);
/* Append a value as {{ }} prints it. */
sluice_status tmpl_output(struct render *r, const struct value *value);
/* The variable, or the function of this name, or undefined. */
struct value tmpl_lookup(const struct render *r, const char *name);
/* object.name as Jinja sees it. */
sluice_status tmpl_attribute(struct render *r, const struct value *object, const char *name,
                             struct value *out);
/* object[key] */
sluice_status tmpl_item(struct render *r, const struct value *object, const struct value *key,
                        struct value *out);
sluice_status tmpl_assign(struct render *r, const char *name, const struct value *value);
/* A new scope inside `parent`; leave in reverse order. */
void tmpl_enter_scope(struct render *r, struct scope *scope, struct scope *parent);
void tmpl_leave_scope(struct render *r);
bool tmpl_is_live(const struct render *r, const struct surroundings *around);
/* The output of a node as a string. */
sluice_status tmpl_capture(struct render *r, const struct node *node, struct value *out);
/* The body of a recursive loop over other items. */
sluice_status tmpl_loop_again(struct render *r, const struct value_loop *loop, const struct value *sequence,
                              struct value *out);
/* NODE_FILTER, NODE_TEST, NODE_CALL. */
sluice_status tmpl_call_node(struct render *r, const struct node *node, struct value *out);

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
/* A pair, as a tuple. */
sluice_status value_pair(struct render *r, const struct value *a, const struct value *b, struct value *out);
sluice_status value_dict_new(struct render *r, struct value *out);
sluice_status value_dict_set(struct render *r, struct value_dict *dict, const struct value *key,
                             const struct value *value);
/* The key is known to be new. */
sluice_status value_dict_append(struct render *r, struct value_dict *dict, const struct value *key,
                                const struct value *value);
/* NULL: not there. */
sluice_status value_dict_get(struct render *r, const struct value_dict *dict, const struct value *key,
                             struct value **found);
/* What {% for %} walks over: list, dict's keys, string's characters, nothing for undefined. A generator is
 * empty afterwards. */
sluice_status value_iterate(struct render *r, const struct value *v, struct value_list **items);
/* A list or a tuple. */
bool value_has_items(const struct value *v);
/* The text of v as HTML; what is safe stays as it is. */
sluice_status value_escape(struct render *r, const struct value *v, struct value *out);
/* str(v) as a string value. */
sluice_status value_text_of(struct render *r, const struct value *v, struct value *out);
sluice_status value_from_json(struct render *r, const json_t *json, bool own, struct value *out);
struct json_style {
    int indent; /* -1: one line */
    bool sort_keys, ascii;
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
/* safe: it is HTML, into which other text comes escaped. */
struct value builder_done(const struct builder *b, bool safe);

/* ---- callables ---- */

struct call {
    struct render *r;
    const struct value *self; /* the filtered or tested value, the method's object; NULL for a function */
    struct value *args;       /* in the callable's order, VALUE_ABSENT where not given */
    size_t n_args;
    const char **keywords; /* of functions that take any: names of args, NULL for positional ones */
    struct value *out;
};

enum callable_kind { CALL_FILTER, CALL_TEST, CALL_FUNCTION, CALL_KINDS };

struct callable {
    const char *name;
    const char *parameters; /* "sep,attribute"; required ones end in "!"; "*": any keyword arguments */
    sluice_status (*call)(struct call *c);
    unsigned kinds; /* of a method: the kinds of value that have it, as bits */
};

/* NULL: there is none. */
const struct callable *tmpl_find_callable(enum callable_kind kind, const char *name);
const struct callable *tmpl_find_method(enum value_kind kind, const char *name);
extern const struct callable tmpl_sequence_filters[]; /* the last has no name */

enum bind_problem { BIND_OK, BIND_UNKNOWN, BIND_TOO_MANY, BIND_MISSING };
/* Where each of n arguments (keywords[i] NULL: positional) belongs: slots[i] is its index in the callable's
 * order. *which: the argument that has no place. */
enum bind_problem tmpl_bind(const struct callable *callable, const char *const *keywords, size_t n,
                            size_t slots[TMPL_ARGS_MAX], size_t *n_slots, size_t *which);
/* Call a filter or test by its name, as map() and select() do; args are positional. */
sluice_status tmpl_call_named(struct render *r, enum callable_kind kind, const char *name,
                              const struct value *self, const struct value *args, size_t n_args,
                              struct value *out);

/* Helpers of the tables. */
sluice_status call_give(struct call *c, struct value v);
sluice_status call_subject(struct call *c, struct value *text); /* self as Jinja's string filters see it */
sluice_status call_need_string(struct call *c, const struct value *v, const char *what);
sluice_status call_need_integer(struct call *c, size_t arg, int64_t fallback, int64_t *out);
struct value call_cut(const struct value *string, size_t at, size_t end);
bool call_strips(uint32_t cp, const struct value *set);
sluice_status call_strip(struct call *c, const struct value *string, bool left, bool right);
enum letter_case { UPPER, LOWER, CAPITALIZE, TITLE };
sluice_status call_change_case(struct call *c, const struct value *string, enum letter_case how);
sluice_status call_replace(struct call *c, const struct value *string);
/* Python's splitlines(), as a list. */
sluice_status tmpl_lines(struct render *r, const struct value *string, bool keep_ends, struct value *out);
/* What "a.b.0" names in v; v itself where the path is absent or none. */
sluice_status tmpl_path(struct render *r, const struct value *v, const struct value *path, struct value *out);
sluice_status call_list(struct call *c);
sluice_status call_pairs(struct call *c);
/* str % args (style '%') and str.format(args) (style '{'). */
sluice_status call_format(struct call *c, const struct value *format, const struct value *args, size_t n,
                          struct value *out);

#endif
