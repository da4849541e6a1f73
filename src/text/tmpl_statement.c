/* Statements of the template language: one parse function each, and the table that lists them. */
#include "text/tmpl_internal.h"

#include <string.h>

static sluice_status body(struct parser *p, const char *const *ends, struct node **out);
static sluice_status statements(struct parser *p, const char *const *ends, struct node **out);

static sluice_status end_block(struct parser *p)
{
    if (p->t->kind != TMPL_BLOCK_END)
        return parse_fail(p, "\"%}\" is expected");
    p->t++;
    return SLUICE_OK;
}

static sluice_status parse_if(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"elif", "else", "endif", NULL}, *const LAST[] = {"endif", NULL};
    bool conditional = p->conditional;
    NEW_NODE(p, NODE_IF, out);
    p->conditional = true;
    do {
        struct node *condition = NULL, *then = NULL;
        TRY(parse_tuple(p, &condition));
        TRY(end_block(p));
        TRY(statements(p, ENDS, &then));
        TRY(parse_add_item(p, *out, condition));
        TRY(parse_add_item(p, *out, then));
    } while (parse_skip_name(p, "elif"));
    if (parse_skip_name(p, "else")) {
        TRY(end_block(p));
        TRY(statements(p, LAST, &(*out)->b));
        TRY(parse_raise(p, *out, (*out)->b));
    }
    p->conditional = conditional;
    p->t++; /* endif */
    return end_block(p);
}

/* a, b — in parentheses or not */
static sluice_status targets(struct parser *p, struct node *node)
{
    bool bracket = parse_skip_operator(p, "(");
    do {
        const char *name = NULL;
        TRY(parse_expect_name(p, &name));
        TRY(parse_add_name(p, node, name));
    } while (parse_skip_operator(p, ","));
    return bracket ? parse_expect_operator(p, ")") : SLUICE_OK;
}

static sluice_status parse_for(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"else", "endfor", NULL}, *const LAST[] = {"endfor", NULL};
    NEW_NODE(p, NODE_FOR, out);
    struct node *node = *out, *otherwise = NULL;
    TRY(targets(p, node));
    if (!parse_skip_name(p, "in"))
        return parse_fail(p, "\"in\" is expected");
    /* "in a if b" filters, so the condition is not part of a's expression. */
    TRY(parse_enter(p));
    TRY(parse_disjunction(p, &node->a));
    p->depth--;
    if (parse_skip_name(p, "if"))
        TRY(parse_expression(p, &node->c));
    node->flag = parse_skip_name(p, "recursive");
    TRY(end_block(p));
    p->loops++;
    TRY(body(p, ENDS, &node->b));
    p->loops--;
    if (parse_skip_name(p, "else")) {
        TRY(end_block(p));
        TRY(body(p, LAST, &otherwise));
    }
    TRY(parse_add_item(p, node, otherwise));
    TRY(parse_raise(p, node, node->a));
    TRY(parse_raise(p, node, node->b));
    TRY(parse_raise(p, node, node->c));
    p->t++; /* endfor */
    return end_block(p);
}

/* Filters of what a body prints: node->c is the chain over a hole. */
static sluice_status captured_filters(struct parser *p, struct node *node)
{
    NEW_NODE(p, NODE_HOLE, &node->c);
    TRY(parse_filter_chain(p, &node->c));
    return parse_raise(p, node, node->c);
}

static sluice_status parse_set(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endset", NULL};
    NEW_NODE(p, NODE_SET, out);
    struct node *node = *out;
    TRY(targets(p, node));
    if (node->n_names == 1 && parse_skip_operator(p, "."))
        TRY(parse_expect_name(p, &node->name)); /* a member of a namespace */
    if (parse_skip_operator(p, "=")) {
        TRY(parse_tuple(p, &node->a));
        TRY(parse_raise(p, node, node->a));
        return end_block(p);
    }
    if (parse_skip_operator(p, "|"))
        TRY(captured_filters(p, node));
    TRY(end_block(p));
    TRY(body(p, ENDS, &node->b));
    TRY(parse_raise(p, node, node->b));
    p->t++; /* endset */
    return end_block(p);
}

/* (a, b=1) of a macro or a call block */
static sluice_status parameters(struct parser *p, struct node *node)
{
    TRY(parse_expect_operator(p, "("));
    while (!parse_skip_operator(p, ")")) {
        const char *name = NULL;
        struct node *otherwise = NULL;
        if (node->n_names)
            TRY(parse_expect_operator(p, ","));
        if (node->n_names == TMPL_ARGS_MAX)
            return err_set(p->err, SLUICE_E_UNSUPPORTED, TMPL_FILE " line %d: more than %d parameters",
                           node->line, TMPL_ARGS_MAX);
        TRY(parse_expect_name(p, &name));
        if (parse_skip_operator(p, "="))
            TRY(parse_expression(p, &otherwise));
        TRY(parse_add_name(p, node, name));
        TRY(parse_add_item(p, node, otherwise));
    }
    return SLUICE_OK;
}

/* The body of a macro is no part of the loops around it. */
static sluice_status macro_body(struct parser *p, const char *const *ends, struct node *node)
{
    size_t loops = p->loops;
    p->loops = 0;
    TRY(end_block(p));
    TRY(body(p, ends, &node->b));
    p->loops = loops;
    TRY(parse_raise(p, node, node->b));
    p->t++; /* the end's name */
    return SLUICE_OK;
}

static sluice_status parse_macro(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endmacro", NULL};
    NEW_NODE(p, NODE_MACRO, out);
    TRY(parse_expect_name(p, &(*out)->name));
    TRY(parameters(p, *out));
    TRY(macro_body(p, ENDS, *out));
    return end_block(p);
}

static sluice_status parse_call_block(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endcall", NULL};
    struct node *caller = NULL;
    NEW_NODE(p, NODE_CALL_BLOCK, out);
    NEW_NODE(p, NODE_MACRO, &caller);
    caller->name = "caller";
    (*out)->b = caller;
    if (parse_is_operator(p, "("))
        TRY(parameters(p, caller));
    TRY(parse_expression(p, &(*out)->a));
    if ((*out)->a->kind != NODE_CALL)
        return parse_fail(p, "a call is expected");
    TRY(parse_raise(p, *out, (*out)->a));
    TRY(macro_body(p, ENDS, caller));
    TRY(parse_raise(p, *out, caller));
    return end_block(p);
}

static sluice_status parse_filter_block(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endfilter", NULL};
    NEW_NODE(p, NODE_FILTER_BLOCK, out);
    TRY(captured_filters(p, *out));
    TRY(end_block(p));
    TRY(body(p, ENDS, &(*out)->b));
    TRY(parse_raise(p, *out, (*out)->b));
    p->t++; /* endfilter */
    return end_block(p);
}

static sluice_status scoped_body(struct parser *p, const char *const *ends, struct node *node)
{
    TRY(end_block(p));
    TRY(body(p, ends, &node->b));
    TRY(parse_raise(p, node, node->b));
    p->t++; /* the end's name */
    return end_block(p);
}

static sluice_status parse_with(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endwith", NULL};
    NEW_NODE(p, NODE_WITH, out);
    while (p->t->kind != TMPL_BLOCK_END) {
        const char *name = NULL;
        struct node *value = NULL;
        if ((*out)->n_names)
            TRY(parse_expect_operator(p, ","));
        TRY(parse_expect_name(p, &name));
        TRY(parse_expect_operator(p, "="));
        TRY(parse_expression(p, &value));
        TRY(parse_add_name(p, *out, name));
        TRY(parse_add_item(p, *out, value));
    }
    return scoped_body(p, ENDS, *out);
}

/* Transformers marks what the assistant wrote with it; the text is the same. */
static sluice_status parse_generation(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endgeneration", NULL};
    NEW_NODE(p, NODE_WITH, out);
    return scoped_body(p, ENDS, *out);
}

static sluice_status parse_jump(struct parser *p, enum node_kind kind, struct node **out)
{
    if (!p->loops)
        return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: break or continue outside of a loop",
                       p->t->line);
    NEW_NODE(p, kind, out);
    return end_block(p);
}

static sluice_status parse_break(struct parser *p, struct node **out)
{
    return parse_jump(p, NODE_BREAK, out);
}

static sluice_status parse_continue(struct parser *p, struct node **out)
{
    return parse_jump(p, NODE_CONTINUE, out);
}

static const struct {
    const char *name;
    sluice_status (*parse)(struct parser *p, struct node **out);
} STATEMENTS[] = {{"if", parse_if},           {"for", parse_for},
                  {"set", parse_set},         {"macro", parse_macro},
                  {"call", parse_call_block}, {"filter", parse_filter_block},
                  {"with", parse_with},       {"generation", parse_generation},
                  {"break", parse_break},     {"continue", parse_continue}};

static sluice_status statement(struct parser *p, struct node **out)
{
    const char *name = NULL;
    int line = p->t->line;
    TRY(parse_expect_name(p, &name));
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof *STATEMENTS; i++)
        if (strcmp(name, STATEMENTS[i].name) == 0)
            return STATEMENTS[i].parse(p, out);
    if (strncmp(name, "end", 3) == 0 || strncmp(name, "el", 2) == 0)
        return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: \"%.40s\" without its beginning", line,
                       name);
    return parse_refuse(p, line, "statement", name);
}

static sluice_status one(struct parser *p, struct node **out)
{
    const struct tmpl_token *t = p->t;
    if (t->kind == TMPL_BLOCK_BEGIN) {
        p->t++;
        return statement(p, out);
    }
    p->t++;
    if (t->kind == TMPL_DATA) {
        NEW_NODE(p, NODE_DATA, out);
        (*out)->constant = value_string(t->p, t->n, true);
        return SLUICE_OK;
    }
    NEW_NODE(p, NODE_OUTPUT, out);
    TRY(parse_tuple(p, &(*out)->a));
    TRY(parse_raise(p, *out, (*out)->a));
    if (p->t->kind != TMPL_OUTPUT_END)
        return parse_fail(p, "\"}}\" is expected");
    p->t++;
    return SLUICE_OK;
}

/* Statements until one of `ends` comes ({% and the name are read up to the name), or the end (ends NULL). */
static sluice_status statements(struct parser *p, const char *const *ends, struct node **out)
{
    TRY(parse_enter(p));
    NEW_NODE(p, NODE_BODY, out);
    for (;;) {
        if (p->t->kind == TMPL_END) {
            p->depth--;
            return ends ? parse_fail(p, "the end of a block is missing") : SLUICE_OK;
        }
        for (size_t i = 0; ends && ends[i]; i++) {
            if (p->t->kind == TMPL_BLOCK_BEGIN && p->t[1].kind == TMPL_NAME &&
                strcmp(p->t[1].p, ends[i]) == 0) {
                p->t++;
                p->depth--;
                return SLUICE_OK;
            }
        }
        struct node *node = NULL;
        TRY(one(p, &node));
        TRY(parse_add_item(p, *out, node));
    }
}

/* The body of anything but a condition is looked at as a whole again. */
static sluice_status body(struct parser *p, const char *const *ends, struct node **out)
{
    bool conditional = p->conditional;
    p->conditional = false;
    TRY(statements(p, ends, out));
    p->conditional = conditional;
    return SLUICE_OK;
}

sluice_status parse_statements(struct parser *p, struct node **out)
{
    return body(p, NULL, out);
}
