#include "base/mem.h"
#include "text/tmpl_internal.h"

#include <string.h>

struct parser {
    struct tmpl_arena *arena;
    const struct tmpl_token *t; /* the next token; the last is TMPL_END */
    size_t depth, loops;
    sluice_error *err;
};

/* ---- tokens ---- */

static bool is_operator(const struct parser *p, const char *text)
{
    return p->t->kind == TMPL_OPERATOR && strcmp(p->t->p, text) == 0;
}

static bool is_name(const struct parser *p, const char *text)
{
    return p->t->kind == TMPL_NAME && strcmp(p->t->p, text) == 0;
}

static bool skip_operator(struct parser *p, const char *text)
{
    bool yes = is_operator(p, text);
    p->t += yes;
    return yes;
}

static bool skip_name(struct parser *p, const char *text)
{
    bool yes = is_name(p, text);
    p->t += yes;
    return yes;
}

static sluice_status fail(const struct parser *p, const char *what)
{
    static const char *const KINDS[] = {"text",     "{{",       "}}",       "{%",          "%}",     "a name",
                                        "a string", "a number", "a number", "an operator", "the end"};
    const struct tmpl_token *t = p->t;
    bool spelled = t->kind == TMPL_NAME || t->kind == TMPL_OPERATOR;
    return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: %s, not %s%.40s%s", t->line, what,
                   spelled ? "\"" : KINDS[t->kind], spelled ? t->p : "", spelled ? "\"" : "");
}

static sluice_status refuse(const struct parser *p, int line, const char *kind, const char *name)
{
    return err_set(p->err, SLUICE_E_UNSUPPORTED, TMPL_FILE " line %d: %s \"%.60s\" is not supported", line,
                   kind, name);
}

static sluice_status expect_operator(struct parser *p, const char *text)
{
    char what[24];
    if (skip_operator(p, text))
        return SLUICE_OK;
    (void)snprintf(what, sizeof what, "\"%s\" is expected", text);
    return fail(p, what);
}

static sluice_status expect_name(struct parser *p, const char **name)
{
    if (p->t->kind != TMPL_NAME)
        return fail(p, "a name is expected");
    *name = (p->t++)->p;
    return SLUICE_OK;
}

/* ---- nodes ---- */

static sluice_status new_node(struct parser *p, enum node_kind kind, struct node **out)
{
    *out = tmpl_take(p->arena, sizeof **out);
    if (!*out)
        return tmpl_refused(p->arena, p->err);
    (*out)->kind = kind;
    (*out)->line = p->t->line;
    (*out)->height = 1;
    return SLUICE_OK;
}

/* Evaluation recurses as deep as the tree is high. */
static sluice_status raise(const struct parser *p, struct node *node, const struct node *child)
{
    if (child && child->height >= node->height)
        node->height = child->height + 1;
    return node->height <= TMPL_DEPTH_MAX
               ? SLUICE_OK
               : err_set(p->err, SLUICE_E_UNSUPPORTED,
                         TMPL_FILE " line %d: an expression is deeper than %d levels", node->line,
                         TMPL_DEPTH_MAX);
}

/* Append to an arena array whose capacity is the next power of two. */
static sluice_status grow(struct parser *p, void **items, size_t n, size_t size)
{
    if (n & (n - 1))
        return SLUICE_OK; /* n is no power of two (nor 0): there is room */
    void *more = tmpl_take(p->arena, (n ? 2 * n : 1) * size);
    if (!more)
        return tmpl_refused(p->arena, p->err);
    if (n)
        memcpy(more, *items, n * size);
    *items = more;
    return SLUICE_OK;
}

static sluice_status add_item(struct parser *p, struct node *node, struct node *item)
{
    TRY(grow(p, (void **)&node->items, node->n_items, sizeof *node->items));
    node->items[node->n_items++] = item;
    return raise(p, node, item);
}

static sluice_status add_name(struct parser *p, struct node *node, const char *name)
{
    TRY(grow(p, (void **)&node->names, node->n_names, sizeof *node->names));
    node->names[node->n_names++] = name;
    return SLUICE_OK;
}

static sluice_status expression(struct parser *p, struct node **out);
static sluice_status unary(struct parser *p, bool with_filters, struct node **out);
static sluice_status primary(struct parser *p, struct node **out);
static sluice_status postfix(struct parser *p, struct node **out);

static sluice_status enter(struct parser *p)
{
    if (++p->depth <= TMPL_PARSE_DEPTH)
        return SLUICE_OK;
    return err_set(p->err, SLUICE_E_UNSUPPORTED, TMPL_FILE " line %d: nesting deeper than %d levels",
                   p->t->line, TMPL_PARSE_DEPTH);
}

/* ---- calls ---- */

/* The index of a parameter in "sep,attribute!", or -1. */
static int parameter_index(const char *parameters, const char *name)
{
    size_t n = strlen(name);
    for (int i = 0;; i++) {
        size_t length = strcspn(parameters, ",!");
        if (length == n && memcmp(parameters, name, n) == 0)
            return i;
        parameters += length + strspn(parameters + length, "!");
        if (*parameters++ != ',')
            return -1;
    }
}

/* How many there are, and which must be given. */
static size_t parameter_count(const char *parameters, unsigned *required)
{
    size_t count = 0;
    *required = 0;
    while (*parameters) {
        size_t length = strcspn(parameters, ",");
        if (parameters[length - 1] == '!')
            *required |= 1u << count;
        count++;
        parameters += length + (parameters[length] == ',');
    }
    return count;
}

static sluice_status put_argument(struct parser *p, struct node *node, const char *keyword, size_t position,
                                  struct node *value)
{
    const struct callable *callable = node->callable;
    bool any = strcmp(callable->parameters, "*") == 0;
    unsigned required;
    size_t at = position, limit = any ? TMPL_ARGS_MAX : parameter_count(callable->parameters, &required);
    if (keyword && !any) {
        int index = parameter_index(callable->parameters, keyword);
        if (index < 0)
            return err_set(p->err, SLUICE_E_UNSUPPORTED,
                           TMPL_FILE " line %d: argument \"%.40s\" of \"%.40s\" is not supported", node->line,
                           keyword, callable->name);
        at = (size_t)index;
    }
    if (at >= limit || node->arguments[at])
        return err_set(p->err, SLUICE_E_UNSUPPORTED,
                       TMPL_FILE " line %d: these arguments of \"%.40s\" are not supported", node->line,
                       callable->name);
    node->arguments[at] = value;
    if (at >= node->n_arguments)
        node->n_arguments = at + 1;
    if (any)
        TRY(add_name(p, node, keyword));
    return raise(p, node, value);
}

static sluice_status check_arguments(struct parser *p, const struct node *node)
{
    unsigned required = 0;
    if (strcmp(node->callable->parameters, "*") != 0)
        (void)parameter_count(node->callable->parameters, &required);
    for (size_t i = 0; i < TMPL_ARGS_MAX; i++)
        if ((required >> i & 1) && !node->arguments[i])
            return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: \"%.40s\" needs more arguments",
                           node->line, node->callable->name);
    return SLUICE_OK;
}

/* ( … ) behind the name of a callable. */
static sluice_status call_arguments(struct parser *p, struct node *node)
{
    TRY(expect_operator(p, "("));
    for (size_t position = 0; !skip_operator(p, ")"); position++) {
        const char *keyword = NULL;
        struct node *value = NULL;
        if (position > 0) {
            TRY(expect_operator(p, ","));
            if (skip_operator(p, ")"))
                break;
        }
        if (is_operator(p, "*") || is_operator(p, "**"))
            return refuse(p, p->t->line, "unpacking of arguments with", p->t->p);
        if (p->t->kind == TMPL_NAME && p->t[1].kind == TMPL_OPERATOR && strcmp(p->t[1].p, "=") == 0) {
            keyword = p->t->p;
            p->t += 2;
        }
        TRY(expression(p, &value));
        TRY(put_argument(p, node, keyword, position, value));
    }
    return check_arguments(p, node);
}

static sluice_status find_callable(struct parser *p, struct node *node, enum callable_kind kind,
                                   const char *name)
{
    static const char *const KINDS[] = {"filter", "test", "function", "method"};
    node->name = name;
    node->callable = tmpl_find_callable(kind, name);
    return node->callable ? SLUICE_OK : refuse(p, node->line, KINDS[kind], name);
}

static sluice_status filter(struct parser *p, struct node **out)
{
    struct node *node = NULL;
    const char *name = NULL;
    TRY(new_node(p, NODE_FILTER, &node));
    TRY(expect_name(p, &name));
    TRY(find_callable(p, node, CALL_FILTER, name));
    node->a = *out;
    TRY(raise(p, node, *out));
    *out = node;
    return is_operator(p, "(") ? call_arguments(p, node) : check_arguments(p, node);
}

/* A test's single argument may stand without parentheses: "is divisibleby 3". */
static bool bare_argument(const struct parser *p)
{
    static const char *const NOT[] = {"else", "or", "and", "if", "is", "in", "not"};
    enum tmpl_token_kind kind = p->t->kind;
    if (kind == TMPL_NAME) {
        for (size_t i = 0; i < sizeof NOT / sizeof *NOT; i++)
            if (is_name(p, NOT[i]))
                return false;
        return true;
    }
    return kind == TMPL_STRING || kind == TMPL_INTEGER || kind == TMPL_FLOAT || is_operator(p, "[") ||
           is_operator(p, "{");
}

static sluice_status test(struct parser *p, struct node **out)
{
    struct node *node = NULL, *outer = NULL;
    const char *name = NULL;
    bool negated = skip_name(p, "not");
    TRY(new_node(p, NODE_TEST, &node));
    TRY(expect_name(p, &name));
    TRY(find_callable(p, node, CALL_TEST, name));
    node->a = *out;
    TRY(raise(p, node, *out));
    if (is_operator(p, "(")) {
        TRY(call_arguments(p, node));
    } else {
        if (node->callable->parameters[0] && bare_argument(p)) {
            struct node *value = NULL;
            TRY(primary(p, &value));
            TRY(postfix(p, &value));
            TRY(put_argument(p, node, NULL, 0, value));
        }
        TRY(check_arguments(p, node));
    }
    *out = node;
    if (!negated)
        return SLUICE_OK;
    TRY(new_node(p, NODE_UNARY, &outer));
    outer->name = "not";
    outer->a = node;
    *out = outer;
    return raise(p, outer, node);
}

/* ---- postfix: .name [item] (call) ---- */

static sluice_status subscript(struct parser *p, struct node **out)
{
    struct node *node = NULL, *parts[3] = {NULL};
    size_t n = 0;
    bool slice = false;
    TRY(new_node(p, NODE_ITEM, &node));
    for (;;) {
        if (!is_operator(p, ":") && !is_operator(p, "]"))
            TRY(expression(p, &parts[n]));
        if (n == 2 || !skip_operator(p, ":"))
            break;
        slice = true;
        n++;
    }
    TRY(expect_operator(p, "]"));
    node->a = *out;
    TRY(raise(p, node, *out));
    if (slice) {
        node->kind = NODE_SLICE;
        for (size_t i = 0; i < 3; i++)
            TRY(add_item(p, node, parts[i]));
    } else {
        if (!parts[0])
            return fail(p, "an index is expected");
        node->b = parts[0];
        TRY(raise(p, node, parts[0]));
    }
    *out = node;
    return SLUICE_OK;
}

static sluice_status call(struct parser *p, struct node **out)
{
    struct node *callee = *out, *node = NULL;
    if (callee->kind == NODE_NAME) {
        TRY(new_node(p, NODE_FUNCTION, &node));
        TRY(find_callable(p, node, CALL_FUNCTION, callee->name));
    } else if (callee->kind == NODE_ATTRIBUTE) {
        TRY(new_node(p, NODE_METHOD, &node));
        TRY(find_callable(p, node, CALL_METHOD, callee->name));
        node->a = callee->a;
        TRY(raise(p, node, callee->a));
    } else {
        return fail(p, "something is called that is no function");
    }
    *out = node;
    return call_arguments(p, node);
}

static sluice_status postfix(struct parser *p, struct node **out)
{
    for (;;) {
        if (is_operator(p, "(")) {
            TRY(call(p, out));
        } else if (skip_operator(p, "[")) {
            TRY(subscript(p, out));
        } else if (skip_operator(p, ".")) {
            struct node *node = NULL;
            TRY(new_node(p, NODE_ATTRIBUTE, &node));
            if (p->t->kind == TMPL_INTEGER) { /* a.0 is a[0] */
                struct node *index = NULL;
                TRY(primary(p, &index));
                node->kind = NODE_ITEM;
                node->b = index;
            } else {
                TRY(expect_name(p, &node->name));
            }
            node->a = *out;
            TRY(raise(p, node, *out));
            *out = node;
        } else {
            return SLUICE_OK;
        }
    }
}

static sluice_status filters(struct parser *p, struct node **out)
{
    for (;;) {
        if (skip_operator(p, "|"))
            TRY(filter(p, out));
        else if (skip_name(p, "is"))
            TRY(test(p, out));
        else if (is_operator(p, "("))
            TRY(call(p, out));
        else
            return SLUICE_OK;
    }
}

/* ---- primaries ---- */

static const struct {
    const char *name;
    enum value_kind kind;
    bool truth;
} WORDS[] = {{"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true},  {"false", VALUE_BOOL, false},
             {"False", VALUE_BOOL, false}, {"none", VALUE_NONE, false}, {"None", VALUE_NONE, false}};

static sluice_status word(struct parser *p, struct node **out)
{
    TRY(new_node(p, NODE_NAME, out));
    (*out)->name = p->t->p;
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        if (!is_name(p, WORDS[i].name))
            continue;
        (*out)->kind = NODE_CONSTANT;
        (*out)->constant.kind = WORDS[i].kind;
        (*out)->constant.own = true;
        (*out)->constant.as.truth = WORDS[i].truth;
    }
    p->t++;
    return SLUICE_OK;
}

/* Strings that follow each other are one. */
static sluice_status string(struct parser *p, struct node **out)
{
    size_t n = 0;
    TRY(new_node(p, NODE_CONSTANT, out));
    for (const struct tmpl_token *t = p->t; t->kind == TMPL_STRING; t++)
        n += t->n;
    char *text = tmpl_take(p->arena, n + 1);
    if (!text)
        return tmpl_refused(p->arena, p->err);
    n = 0;
    for (; p->t->kind == TMPL_STRING; n += (p->t++)->n)
        memcpy(text + n, p->t->p, p->t->n);
    (*out)->constant = value_string(text, n, true);
    return SLUICE_OK;
}

static sluice_status number(struct parser *p, struct node **out)
{
    TRY(new_node(p, NODE_CONSTANT, out));
    struct value *v = &(*out)->constant;
    if (p->t->kind == TMPL_INTEGER) {
        *v = value_int(p->t->integer, true);
    } else {
        v->kind = VALUE_FLOAT;
        v->own = true;
        v->as.number = p->t->number;
    }
    p->t++;
    return SLUICE_OK;
}

/* Expressions up to `close`; *commas tells a tuple from parentheses. */
static sluice_status list_items(struct parser *p, struct node *node, const char *close, bool *commas)
{
    *commas = false;
    while (!skip_operator(p, close)) {
        struct node *item = NULL;
        if (node->n_items && !*commas)
            return expect_operator(p, close);
        TRY(expression(p, &item));
        TRY(add_item(p, node, item));
        bool comma = skip_operator(p, ",");
        *commas |= comma;
        if (!comma)
            return expect_operator(p, close);
    }
    return SLUICE_OK;
}

static sluice_status dict_items(struct parser *p, struct node *node)
{
    while (!skip_operator(p, "}")) {
        struct node *key = NULL, *value = NULL;
        if (node->n_items) {
            TRY(expect_operator(p, ","));
            if (skip_operator(p, "}"))
                break;
        }
        TRY(expression(p, &key));
        TRY(expect_operator(p, ":"));
        TRY(expression(p, &value));
        TRY(add_item(p, node, key));
        TRY(add_item(p, node, value));
    }
    return SLUICE_OK;
}

static sluice_status primary(struct parser *p, struct node **out)
{
    bool commas;
    switch (p->t->kind) {
    case TMPL_NAME:
        return word(p, out);
    case TMPL_STRING:
        return string(p, out);
    case TMPL_INTEGER:
    case TMPL_FLOAT:
        return number(p, out);
    default:
        break;
    }
    if (skip_operator(p, "(")) {
        TRY(new_node(p, NODE_LIST, out));
        TRY(list_items(p, *out, ")", &commas));
        if ((*out)->n_items == 1 && !commas)
            *out = (*out)->items[0];
        return SLUICE_OK;
    }
    if (skip_operator(p, "[")) {
        TRY(new_node(p, NODE_LIST, out));
        return list_items(p, *out, "]", &commas);
    }
    if (skip_operator(p, "{")) {
        TRY(new_node(p, NODE_DICT, out));
        return dict_items(p, *out);
    }
    return fail(p, "an expression is expected");
}

/* ---- operators, loosest last ---- */

static sluice_status unary(struct parser *p, bool with_filters, struct node **out)
{
    if (is_operator(p, "-") || is_operator(p, "+")) {
        struct node *operand = NULL;
        TRY(new_node(p, NODE_UNARY, out));
        (*out)->name = (p->t++)->p;
        TRY(enter(p));
        TRY(unary(p, false, &operand));
        p->depth--;
        (*out)->a = operand;
        TRY(raise(p, *out, operand));
    } else {
        TRY(primary(p, out));
    }
    TRY(postfix(p, out));
    return with_filters ? filters(p, out) : SLUICE_OK;
}

static sluice_status with_filters(struct parser *p, struct node **out)
{
    return unary(p, true, out);
}

typedef sluice_status (*level_fn)(struct parser *p, struct node **out);

/* left-associative binary operators over operands of the tighter level */
static sluice_status binary(struct parser *p, const char *const *operators, level_fn tighter,
                            struct node **out)
{
    TRY(tighter(p, out));
    for (;;) {
        const char *found = NULL;
        for (size_t i = 0; operators[i] && !found; i++)
            if (is_operator(p, operators[i]))
                found = operators[i];
        if (!found)
            return SLUICE_OK;
        struct node *node = NULL, *right = NULL;
        TRY(new_node(p, NODE_BINARY, &node));
        p->t++;
        TRY(tighter(p, &right));
        node->name = found;
        node->a = *out;
        node->b = right;
        TRY(raise(p, node, *out));
        TRY(raise(p, node, right));
        *out = node;
    }
}

static sluice_status power(struct parser *p, struct node **out)
{
    static const char *const OPERATORS[] = {"**", NULL};
    return binary(p, OPERATORS, with_filters, out);
}

static sluice_status product(struct parser *p, struct node **out)
{
    static const char *const OPERATORS[] = {"*", "/", "//", "%", NULL};
    return binary(p, OPERATORS, power, out);
}

static sluice_status concat(struct parser *p, struct node **out)
{
    TRY(product(p, out));
    if (!is_operator(p, "~"))
        return SLUICE_OK;
    struct node *node = NULL;
    TRY(new_node(p, NODE_CONCAT, &node));
    TRY(add_item(p, node, *out));
    while (skip_operator(p, "~")) {
        TRY(product(p, out));
        TRY(add_item(p, node, *out));
    }
    *out = node;
    return SLUICE_OK;
}

static sluice_status sum(struct parser *p, struct node **out)
{
    static const char *const OPERATORS[] = {"+", "-", NULL};
    return binary(p, OPERATORS, concat, out);
}

static const char *comparison(struct parser *p)
{
    static const char *const OPERATORS[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++)
        if (skip_operator(p, OPERATORS[i]))
            return OPERATORS[i];
    if (skip_name(p, "in"))
        return "in";
    if (is_name(p, "not") && p->t[1].kind == TMPL_NAME && strcmp(p->t[1].p, "in") == 0) {
        p->t += 2;
        return "not in";
    }
    return NULL;
}

static sluice_status compare(struct parser *p, struct node **out)
{
    TRY(sum(p, out));
    struct node *node = NULL;
    for (const char *name; (name = comparison(p));) {
        struct node *right = NULL;
        if (!node) {
            TRY(new_node(p, NODE_COMPARE, &node));
            TRY(add_item(p, node, *out));
        }
        TRY(sum(p, &right));
        TRY(add_name(p, node, name));
        TRY(add_item(p, node, right));
        *out = node;
    }
    return SLUICE_OK;
}

static sluice_status negation(struct parser *p, struct node **out)
{
    if (!is_name(p, "not"))
        return compare(p, out);
    struct node *operand = NULL;
    TRY(new_node(p, NODE_UNARY, out));
    (*out)->name = "not";
    p->t++;
    TRY(enter(p));
    TRY(negation(p, &operand));
    p->depth--;
    (*out)->a = operand;
    return raise(p, *out, operand);
}

static sluice_status logical(struct parser *p, const char *name, level_fn tighter, struct node **out)
{
    TRY(tighter(p, out));
    while (skip_name(p, name)) {
        struct node *node = NULL, *right = NULL;
        TRY(new_node(p, NODE_BINARY, &node));
        TRY(tighter(p, &right));
        node->name = name;
        node->a = *out;
        node->b = right;
        TRY(raise(p, node, *out));
        TRY(raise(p, node, right));
        *out = node;
    }
    return SLUICE_OK;
}

static sluice_status conjunction(struct parser *p, struct node **out)
{
    return logical(p, "and", negation, out);
}

static sluice_status disjunction(struct parser *p, struct node **out)
{
    return logical(p, "or", conjunction, out);
}

/* a if b else c */
static sluice_status expression(struct parser *p, struct node **out)
{
    TRY(enter(p));
    TRY(disjunction(p, out));
    while (skip_name(p, "if")) {
        struct node *node = NULL, *condition = NULL, *otherwise = NULL;
        TRY(new_node(p, NODE_CONDITION, &node));
        TRY(disjunction(p, &condition));
        if (skip_name(p, "else"))
            TRY(expression(p, &otherwise));
        TRY(add_item(p, node, *out));
        TRY(add_item(p, node, condition));
        TRY(add_item(p, node, otherwise));
        *out = node;
    }
    p->depth--;
    return SLUICE_OK;
}

/* An expression, or several with commas between: a tuple. */
static sluice_status tuple(struct parser *p, struct node **out)
{
    TRY(expression(p, out));
    if (!is_operator(p, ","))
        return SLUICE_OK;
    struct node *node = NULL;
    TRY(new_node(p, NODE_LIST, &node));
    TRY(add_item(p, node, *out));
    while (skip_operator(p, ",")) {
        if (p->t->kind == TMPL_BLOCK_END || p->t->kind == TMPL_OUTPUT_END)
            break;
        TRY(expression(p, out));
        TRY(add_item(p, node, *out));
    }
    *out = node;
    return SLUICE_OK;
}

/* ---- statements ---- */

static sluice_status body(struct parser *p, const char *const *ends, struct node **out);

static sluice_status end_block(struct parser *p)
{
    if (p->t->kind != TMPL_BLOCK_END)
        return fail(p, "\"%}\" is expected");
    p->t++;
    return SLUICE_OK;
}

static sluice_status parse_if(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"elif", "else", "endif", NULL}, *const LAST[] = {"endif", NULL};
    TRY(new_node(p, NODE_IF, out));
    do {
        struct node *condition = NULL, *then = NULL;
        TRY(tuple(p, &condition));
        TRY(end_block(p));
        TRY(body(p, ENDS, &then));
        TRY(add_item(p, *out, condition));
        TRY(add_item(p, *out, then));
    } while (skip_name(p, "elif"));
    if (skip_name(p, "else")) {
        TRY(end_block(p));
        TRY(body(p, LAST, &(*out)->b));
        TRY(raise(p, *out, (*out)->b));
    }
    p->t++; /* endif */
    return end_block(p);
}

/* a, b — in parentheses or not */
static sluice_status targets(struct parser *p, struct node *node)
{
    bool bracket = skip_operator(p, "(");
    do {
        const char *name = NULL;
        TRY(expect_name(p, &name));
        TRY(add_name(p, node, name));
    } while (skip_operator(p, ","));
    return bracket ? expect_operator(p, ")") : SLUICE_OK;
}

static sluice_status parse_for(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"else", "endfor", NULL}, *const LAST[] = {"endfor", NULL};
    TRY(new_node(p, NODE_FOR, out));
    struct node *node = *out, *otherwise = NULL;
    TRY(targets(p, node));
    if (!skip_name(p, "in"))
        return fail(p, "\"in\" is expected");
    /* "in a if b" filters, so the condition is not part of a's expression. */
    TRY(enter(p));
    TRY(disjunction(p, &node->a));
    p->depth--;
    if (skip_name(p, "if"))
        TRY(expression(p, &node->c));
    if (is_name(p, "recursive"))
        return refuse(p, p->t->line, "a for loop that is", "recursive");
    TRY(end_block(p));
    p->loops++;
    TRY(body(p, ENDS, &node->b));
    p->loops--;
    if (skip_name(p, "else")) {
        TRY(end_block(p));
        TRY(body(p, LAST, &otherwise));
    }
    TRY(add_item(p, node, otherwise));
    TRY(raise(p, node, node->a));
    TRY(raise(p, node, node->b));
    TRY(raise(p, node, node->c));
    p->t++; /* endfor */
    return end_block(p);
}

static sluice_status parse_set(struct parser *p, struct node **out)
{
    static const char *const ENDS[] = {"endset", NULL};
    TRY(new_node(p, NODE_SET, out));
    struct node *node = *out;
    TRY(targets(p, node));
    if (node->n_names == 1 && skip_operator(p, "."))
        TRY(expect_name(p, &node->name)); /* a member of a namespace */
    if (skip_operator(p, "=")) {
        TRY(tuple(p, &node->a));
        TRY(raise(p, node, node->a));
        return end_block(p);
    }
    if (is_operator(p, "|"))
        return refuse(p, p->t->line, "a set block with", "|");
    TRY(end_block(p));
    TRY(body(p, ENDS, &node->b));
    TRY(raise(p, node, node->b));
    p->t++; /* endset */
    return end_block(p);
}

static sluice_status parse_jump(struct parser *p, enum node_kind kind, struct node **out)
{
    if (!p->loops)
        return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: break or continue outside of a loop",
                       p->t->line);
    TRY(new_node(p, kind, out));
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
} STATEMENTS[] = {{"if", parse_if},
                  {"for", parse_for},
                  {"set", parse_set},
                  {"break", parse_break},
                  {"continue", parse_continue}};

static sluice_status statement(struct parser *p, struct node **out)
{
    const char *name = NULL;
    int line = p->t->line;
    TRY(expect_name(p, &name));
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof *STATEMENTS; i++)
        if (strcmp(name, STATEMENTS[i].name) == 0)
            return STATEMENTS[i].parse(p, out);
    if (strncmp(name, "end", 3) == 0 || strncmp(name, "el", 2) == 0)
        return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: \"%.40s\" without its beginning", line,
                       name);
    return refuse(p, line, "statement", name);
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
        TRY(new_node(p, NODE_DATA, out));
        (*out)->constant = value_string(t->p, t->n, true);
        return SLUICE_OK;
    }
    TRY(new_node(p, NODE_OUTPUT, out));
    TRY(tuple(p, &(*out)->a));
    TRY(raise(p, *out, (*out)->a));
    if (p->t->kind != TMPL_OUTPUT_END)
        return fail(p, "\"}}\" is expected");
    p->t++;
    return SLUICE_OK;
}

/* Statements until one of `ends` comes ({% and the name are read up to the name), or the end (ends NULL). */
static sluice_status body(struct parser *p, const char *const *ends, struct node **out)
{
    TRY(enter(p));
    TRY(new_node(p, NODE_BODY, out));
    for (;;) {
        if (p->t->kind == TMPL_END) {
            p->depth--;
            return ends ? fail(p, "the end of a block is missing") : SLUICE_OK;
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
        TRY(add_item(p, *out, node));
    }
}

sluice_status tmpl_parse(struct tmpl_arena *arena, const struct tmpl_token *tokens, struct node **out,
                         sluice_error *err)
{
    struct parser p = {.arena = arena, .t = tokens, .err = err};
    return body(&p, NULL, out);
}
