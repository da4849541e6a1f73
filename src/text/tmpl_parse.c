#include "base/mem.h"
#include "text/tmpl_internal.h"

#include <string.h>

/* ---- tokens ---- */

bool parse_is_operator(const struct parser *p, const char *text)
{
    return p->t->kind == TMPL_OPERATOR && strcmp(p->t->p, text) == 0;
}

bool parse_is_name(const struct parser *p, const char *text)
{
    return p->t->kind == TMPL_NAME && strcmp(p->t->p, text) == 0;
}

bool parse_skip_operator(struct parser *p, const char *text)
{
    bool yes = parse_is_operator(p, text);
    p->t += yes;
    return yes;
}

bool parse_skip_name(struct parser *p, const char *text)
{
    bool yes = parse_is_name(p, text);
    p->t += yes;
    return yes;
}

sluice_status parse_fail(const struct parser *p, const char *what)
{
    static const char *const KINDS[] = {"text",     "{{",       "}}",       "{%",          "%}",     "a name",
                                        "a string", "a number", "a number", "an operator", "the end"};
    const struct tmpl_token *t = p->t;
    bool spelled = t->kind == TMPL_NAME || t->kind == TMPL_OPERATOR;
    return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: %s, not %s%.40s%s", t->line, what,
                   spelled ? "\"" : KINDS[t->kind], spelled ? t->p : "", spelled ? "\"" : "");
}

sluice_status parse_refuse(const struct parser *p, int line, const char *kind, const char *name)
{
    return err_set(p->err, SLUICE_E_UNSUPPORTED, TMPL_FILE " line %d: %s \"%.60s\" is not supported", line,
                   kind, name);
}

sluice_status parse_expect_operator(struct parser *p, const char *text)
{
    char what[24];
    if (parse_skip_operator(p, text))
        return SLUICE_OK;
    (void)snprintf(what, sizeof what, "\"%s\" is expected", text);
    return parse_fail(p, what);
}

sluice_status parse_expect_name(struct parser *p, const char **name)
{
    if (p->t->kind != TMPL_NAME)
        return parse_fail(p, "a name is expected");
    *name = (p->t++)->p;
    return SLUICE_OK;
}

/* ---- nodes ---- */

struct node *parse_new_node(struct parser *p, enum node_kind kind)
{
    struct node *node = tmpl_take(p->arena, sizeof *node);
    if (!node)
        return NULL;
    node->kind = kind;
    node->line = p->t->line;
    node->height = 1;
    return node;
}

/* Evaluation recurses as deep as the tree is high. */
sluice_status parse_raise(const struct parser *p, struct node *node, const struct node *child)
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

sluice_status parse_add_item(struct parser *p, struct node *node, struct node *item)
{
    TRY(grow(p, (void **)&node->items, node->n_items, sizeof *node->items));
    node->items[node->n_items++] = item;
    return parse_raise(p, node, item);
}

sluice_status parse_add_name(struct parser *p, struct node *node, const char *name)
{
    TRY(grow(p, (void **)&node->names, node->n_names, sizeof *node->names));
    node->names[node->n_names++] = name;
    return SLUICE_OK;
}

static sluice_status unary(struct parser *p, bool with_filters, struct node **out);

sluice_status parse_enter(struct parser *p)
{
    if (++p->depth <= TMPL_PARSE_DEPTH)
        return SLUICE_OK;
    return err_set(p->err, SLUICE_E_UNSUPPORTED, TMPL_FILE " line %d: nesting deeper than %d levels",
                   p->t->line, TMPL_PARSE_DEPTH);
}

/* ---- calls ---- */

/* ( … ) behind what is called: items and, beside them, names for keywords. */
static sluice_status call_arguments(struct parser *p, struct node *node)
{
    TRY(parse_expect_operator(p, "("));
    while (!parse_skip_operator(p, ")")) {
        const char *keyword = NULL;
        struct node *value = NULL;
        if (node->n_items > 0) {
            TRY(parse_expect_operator(p, ","));
            if (parse_skip_operator(p, ")"))
                break;
        }
        if (parse_is_operator(p, "*") || parse_is_operator(p, "**"))
            return parse_refuse(p, p->t->line, "unpacking of arguments with", p->t->p);
        if (p->t->kind == TMPL_NAME && p->t[1].kind == TMPL_OPERATOR && strcmp(p->t[1].p, "=") == 0) {
            keyword = p->t->p;
            p->t += 2;
        }
        if (node->n_items == TMPL_ARGS_MAX)
            return err_set(p->err, SLUICE_E_UNSUPPORTED, TMPL_FILE " line %d: more than %d arguments",
                           node->line, TMPL_ARGS_MAX);
        TRY(parse_expression(p, &value));
        TRY(parse_add_item(p, node, value));
        TRY(parse_add_name(p, node, keyword));
    }
    return SLUICE_OK;
}

/* Filters and tests are known when the template is read, and so is whether their arguments fit. */
static sluice_status check_arguments(const struct parser *p, const struct node *node)
{
    size_t slots[TMPL_ARGS_MAX], n_slots, which;
    if (!node->callable)
        return SLUICE_OK;
    switch (tmpl_bind(node->callable, node->names, node->n_items, slots, &n_slots, &which)) {
    case BIND_OK:
        break;
    case BIND_UNKNOWN:
        return err_set(p->err, SLUICE_E_UNSUPPORTED,
                       TMPL_FILE " line %d: argument \"%.40s\" of \"%.40s\" is not supported", node->line,
                       node->names[which], node->callable->name);
    case BIND_TOO_MANY:
        return err_set(p->err, SLUICE_E_UNSUPPORTED,
                       TMPL_FILE " line %d: these arguments of \"%.40s\" are not supported", node->line,
                       node->callable->name);
    case BIND_MISSING:
        return err_set(p->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: \"%.40s\" needs more arguments",
                       node->line, node->callable->name);
    }
    return SLUICE_OK;
}

static void find_callable(struct parser *p, struct node *node, enum callable_kind kind, const char *name)
{
    node->name = name;
    node->callable = tmpl_find_callable(kind, name);
    if (!node->callable && !p->conditional && !p->unknown)
        p->unknown = node;
}

static sluice_status filter(struct parser *p, struct node **out)
{
    struct node *node = NULL;
    const char *name = NULL;
    NEW_NODE(p, NODE_FILTER, &node);
    TRY(parse_expect_name(p, &name));
    find_callable(p, node, CALL_FILTER, name);
    node->a = *out;
    TRY(parse_raise(p, node, *out));
    *out = node;
    if (parse_is_operator(p, "("))
        TRY(call_arguments(p, node));
    return check_arguments(p, node);
}

/* A test's single argument may stand without parentheses: "is divisibleby 3". */
static bool bare_argument(const struct parser *p)
{
    static const char *const NOT[] = {"else", "or", "and", "if", "is", "in", "not"};
    enum tmpl_token_kind kind = p->t->kind;
    if (kind == TMPL_NAME) {
        for (size_t i = 0; i < sizeof NOT / sizeof *NOT; i++)
            if (parse_is_name(p, NOT[i]))
                return false;
        return true;
    }
    return kind == TMPL_STRING || kind == TMPL_INTEGER || kind == TMPL_FLOAT || parse_is_operator(p, "[") ||
           parse_is_operator(p, "{");
}

static sluice_status test(struct parser *p, struct node **out)
{
    struct node *node = NULL, *outer = NULL;
    const char *name = NULL;
    bool negated = parse_skip_name(p, "not");
    NEW_NODE(p, NODE_TEST, &node);
    TRY(parse_expect_name(p, &name));
    find_callable(p, node, CALL_TEST, name);
    node->a = *out;
    TRY(parse_raise(p, node, *out));
    if (parse_is_operator(p, "(")) {
        TRY(call_arguments(p, node));
    } else if ((!node->callable || node->callable->parameters[0]) && bare_argument(p)) {
        struct node *value = NULL;
        TRY(parse_primary(p, &value));
        TRY(parse_postfix(p, &value));
        TRY(parse_add_item(p, node, value));
        TRY(parse_add_name(p, node, NULL));
    }
    TRY(check_arguments(p, node));
    *out = node;
    if (!negated)
        return SLUICE_OK;
    NEW_NODE(p, NODE_UNARY, &outer);
    outer->name = "not";
    outer->a = node;
    *out = outer;
    return parse_raise(p, outer, node);
}

/* ---- postfix: .name [item] (call) ---- */

static sluice_status subscript(struct parser *p, struct node **out)
{
    struct node *node = NULL, *parts[3] = {NULL};
    size_t n = 0;
    bool slice = false;
    NEW_NODE(p, NODE_ITEM, &node);
    for (;;) {
        if (!parse_is_operator(p, ":") && !parse_is_operator(p, "]"))
            TRY(parse_expression(p, &parts[n]));
        if (n == 2 || !parse_skip_operator(p, ":"))
            break;
        slice = true;
        n++;
    }
    TRY(parse_expect_operator(p, "]"));
    node->a = *out;
    TRY(parse_raise(p, node, *out));
    if (slice) {
        node->kind = NODE_SLICE;
        for (size_t i = 0; i < 3; i++)
            TRY(parse_add_item(p, node, parts[i]));
    } else {
        if (!parts[0])
            return parse_fail(p, "an index is expected");
        node->b = parts[0];
        TRY(parse_raise(p, node, parts[0]));
    }
    *out = node;
    return SLUICE_OK;
}

static sluice_status call(struct parser *p, struct node **out)
{
    struct node *node = NULL;
    NEW_NODE(p, NODE_CALL, &node);
    node->a = *out;
    TRY(parse_raise(p, node, *out));
    *out = node;
    return call_arguments(p, node);
}

sluice_status parse_postfix(struct parser *p, struct node **out)
{
    for (;;) {
        if (parse_is_operator(p, "(")) {
            TRY(call(p, out));
        } else if (parse_skip_operator(p, "[")) {
            TRY(subscript(p, out));
        } else if (parse_skip_operator(p, ".")) {
            struct node *node = NULL;
            NEW_NODE(p, NODE_ATTRIBUTE, &node);
            if (p->t->kind == TMPL_INTEGER) { /* a.0 is a[0] */
                struct node *index = NULL;
                TRY(parse_primary(p, &index));
                node->kind = NODE_ITEM;
                node->b = index;
            } else {
                TRY(parse_expect_name(p, &node->name));
            }
            node->a = *out;
            TRY(parse_raise(p, node, *out));
            *out = node;
        } else {
            return SLUICE_OK;
        }
    }
}

static sluice_status filters(struct parser *p, struct node **out)
{
    for (;;) {
        if (parse_skip_operator(p, "|"))
            TRY(filter(p, out));
        else if (parse_skip_name(p, "is"))
            TRY(test(p, out));
        else if (parse_is_operator(p, "("))
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
    NEW_NODE(p, NODE_NAME, out);
    (*out)->name = p->t->p;
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        if (!parse_is_name(p, WORDS[i].name))
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
    NEW_NODE(p, NODE_CONSTANT, out);
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
    NEW_NODE(p, NODE_CONSTANT, out);
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
    while (!parse_skip_operator(p, close)) {
        struct node *item = NULL;
        if (node->n_items && !*commas)
            return parse_expect_operator(p, close);
        TRY(parse_expression(p, &item));
        TRY(parse_add_item(p, node, item));
        bool comma = parse_skip_operator(p, ",");
        *commas |= comma;
        if (!comma)
            return parse_expect_operator(p, close);
    }
    return SLUICE_OK;
}

static sluice_status dict_items(struct parser *p, struct node *node)
{
    while (!parse_skip_operator(p, "}")) {
        struct node *key = NULL, *value = NULL;
        if (node->n_items) {
            TRY(parse_expect_operator(p, ","));
            if (parse_skip_operator(p, "}"))
                break;
        }
        TRY(parse_expression(p, &key));
        TRY(parse_expect_operator(p, ":"));
        TRY(parse_expression(p, &value));
        TRY(parse_add_item(p, node, key));
        TRY(parse_add_item(p, node, value));
    }
    return SLUICE_OK;
}

sluice_status parse_primary(struct parser *p, struct node **out)
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
    if (parse_skip_operator(p, "(")) {
        NEW_NODE(p, NODE_LIST, out);
        (*out)->flag = true;
        TRY(list_items(p, *out, ")", &commas));
        if ((*out)->n_items == 1 && !commas)
            *out = (*out)->items[0];
        return SLUICE_OK;
    }
    if (parse_skip_operator(p, "[")) {
        NEW_NODE(p, NODE_LIST, out);
        return list_items(p, *out, "]", &commas);
    }
    if (parse_skip_operator(p, "{")) {
        NEW_NODE(p, NODE_DICT, out);
        return dict_items(p, *out);
    }
    return parse_fail(p, "an expression is expected");
}

/* ---- operators, loosest last ---- */

static sluice_status unary(struct parser *p, bool with_filters, struct node **out)
{
    if (parse_is_operator(p, "-") || parse_is_operator(p, "+")) {
        struct node *operand = NULL;
        NEW_NODE(p, NODE_UNARY, out);
        (*out)->name = (p->t++)->p;
        TRY(parse_enter(p));
        TRY(unary(p, false, &operand));
        p->depth--;
        (*out)->a = operand;
        TRY(parse_raise(p, *out, operand));
    } else {
        TRY(parse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
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
            if (parse_is_operator(p, operators[i]))
                found = operators[i];
        if (!found)
            return SLUICE_OK;
        struct node *node = NULL, *right = NULL;
        NEW_NODE(p, NODE_BINARY, &node);
        p->t++;
        TRY(tighter(p, &right));
        node->name = found;
        node->a = *out;
        node->b = right;
        TRY(parse_raise(p, node, *out));
        TRY(parse_raise(p, node, right));
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
    if (!parse_is_operator(p, "~"))
        return SLUICE_OK;
    struct node *node = NULL;
    NEW_NODE(p, NODE_CONCAT, &node);
    TRY(parse_add_item(p, node, *out));
    while (parse_skip_operator(p, "~")) {
        TRY(product(p, out));
        TRY(parse_add_item(p, node, *out));
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
        if (parse_skip_operator(p, OPERATORS[i]))
            return OPERATORS[i];
    if (parse_skip_name(p, "in"))
        return "in";
    if (parse_is_name(p, "not") && p->t[1].kind == TMPL_NAME && strcmp(p->t[1].p, "in") == 0) {
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
            NEW_NODE(p, NODE_COMPARE, &node);
            TRY(parse_add_item(p, node, *out));
        }
        TRY(sum(p, &right));
        TRY(parse_add_name(p, node, name));
        TRY(parse_add_item(p, node, right));
        *out = node;
    }
    return SLUICE_OK;
}

static sluice_status negation(struct parser *p, struct node **out)
{
    if (!parse_is_name(p, "not"))
        return compare(p, out);
    struct node *operand = NULL;
    NEW_NODE(p, NODE_UNARY, out);
    (*out)->name = "not";
    p->t++;
    TRY(parse_enter(p));
    TRY(negation(p, &operand));
    p->depth--;
    (*out)->a = operand;
    return parse_raise(p, *out, operand);
}

static sluice_status logical(struct parser *p, const char *name, level_fn tighter, struct node **out)
{
    TRY(tighter(p, out));
    while (parse_skip_name(p, name)) {
        struct node *node = NULL, *right = NULL;
        NEW_NODE(p, NODE_BINARY, &node);
        TRY(tighter(p, &right));
        node->name = name;
        node->a = *out;
        node->b = right;
        TRY(parse_raise(p, node, *out));
        TRY(parse_raise(p, node, right));
        *out = node;
    }
    return SLUICE_OK;
}

static sluice_status conjunction(struct parser *p, struct node **out)
{
    return logical(p, "and", negation, out);
}

sluice_status parse_disjunction(struct parser *p, struct node **out)
{
    return logical(p, "or", conjunction, out);
}

/* a if b else c */
sluice_status parse_expression(struct parser *p, struct node **out)
{
    const struct node *unknown = p->unknown;
    bool conditional = p->conditional;
    TRY(parse_enter(p));
    TRY(parse_disjunction(p, out));
    while (parse_skip_name(p, "if")) {
        struct node *node = NULL, *condition = NULL, *otherwise = NULL;
        p->unknown = unknown; /* the condition comes behind what it decides about */
        p->conditional = true;
        NEW_NODE(p, NODE_CONDITION, &node);
        TRY(parse_disjunction(p, &condition));
        if (parse_skip_name(p, "else"))
            TRY(parse_expression(p, &otherwise));
        TRY(parse_add_item(p, node, *out));
        TRY(parse_add_item(p, node, condition));
        TRY(parse_add_item(p, node, otherwise));
        *out = node;
    }
    p->conditional = conditional;
    p->depth--;
    return SLUICE_OK;
}

/* An expression, or several with commas between: a tuple. */
sluice_status parse_tuple(struct parser *p, struct node **out)
{
    TRY(parse_expression(p, out));
    if (!parse_is_operator(p, ","))
        return SLUICE_OK;
    struct node *node = NULL;
    NEW_NODE(p, NODE_LIST, &node);
    node->flag = true;
    TRY(parse_add_item(p, node, *out));
    while (parse_skip_operator(p, ",")) {
        if (p->t->kind == TMPL_BLOCK_END || p->t->kind == TMPL_OUTPUT_END)
            break;
        TRY(parse_expression(p, out));
        TRY(parse_add_item(p, node, *out));
    }
    *out = node;
    return SLUICE_OK;
}

sluice_status parse_filter_chain(struct parser *p, struct node **out)
{
    do
        TRY(filter(p, out));
    while (parse_skip_operator(p, "|"));
    return SLUICE_OK;
}

sluice_status tmpl_parse(struct tmpl_arena *arena, const struct tmpl_token *tokens, struct node **out,
                         sluice_error *err)
{
    struct parser p = {.arena = arena, .t = tokens, .err = err};
    TRY(parse_statements(&p, out));
    if (!p.unknown)
        return SLUICE_OK;
    return parse_refuse(&p, p.unknown->line, p.unknown->kind == NODE_TEST ? "test" : "filter",
                        p.unknown->name);
}
