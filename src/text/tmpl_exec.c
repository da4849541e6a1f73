#include "base/mem.h"
#include "text/tmpl_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- arena ---- */

enum { BLOCK_BYTES = 16384 };

struct tmpl_block {
    struct tmpl_block *next;
    _Alignas(16) char bytes[];
};

void *tmpl_take(struct tmpl_arena *a, size_t bytes)
{
    if (bytes > TMPL_MEMORY_BYTES_MAX - a->total) {
        a->over = true;
        return NULL;
    }
    size_t need = (bytes + 15) / 16 * 16;
    if (!a->blocks || need > a->size - a->used) {
        size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        struct tmpl_block *block = mem_calloc(1, sizeof *block + size);
        if (!block)
            return NULL;
        block->next = a->blocks;
        a->blocks = block;
        a->used = 0;
        a->size = size;
    }
    char *p = a->blocks->bytes + a->used;
    a->used += need;
    a->total += bytes;
    return p;
}

void tmpl_arena_close(struct tmpl_arena *a)
{
    for (struct tmpl_block *block = a->blocks, *next; block; block = next) {
        next = block->next;
        mem_free(block);
    }
    memset(a, 0, sizeof *a);
}

/* ---- limits and errors ---- */

sluice_status tmpl_fail(struct render *r, sluice_status status, const char *format, ...)
{
    if (r->err) {
        sluice_error *err = r->err;
        va_list args;
        va_start(args, format);
        err->status = status;
        (void)vsnprintf(err->detail, sizeof err->detail, format, args);
        va_end(args);
        return err_prefix(err, status, TMPL_FILE " line %d", r->line);
    }
    return status;
}

sluice_status tmpl_step(struct render *r, uint64_t steps)
{
    r->steps += steps;
    if (r->steps <= TMPL_STEPS_MAX)
        return SLUICE_OK;
    return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "the template takes more than %d steps", TMPL_STEPS_MAX);
}

sluice_status tmpl_nest(struct render *r)
{
    if (++r->nest <= TMPL_NEST_MAX)
        return SLUICE_OK;
    return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "the template nests deeper than %d levels", TMPL_NEST_MAX);
}

sluice_status tmpl_alloc(struct render *r, size_t bytes, void *out)
{
    void *p = tmpl_take(&r->arena, bytes);
    if (!p)
        return tmpl_refused(&r->arena, r->err);
    memcpy(out, &p, sizeof p);
    return SLUICE_OK;
}

/* ---- output ---- */

static sluice_status emit(struct render *r, const struct value_text *text, bool own)
{
    if (text->n > TMPL_OUTPUT_BYTES_MAX - r->text->len)
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "the text is longer than %zu bytes", TMPL_OUTPUT_BYTES_MAX);
    TRY(tmpl_step(r, text->n / 64));
    /* Both or neither, so that the two stay of one length. */
    if (!str_reserve(r->text, text->n) || !str_reserve(r->marks, text->n))
        return err_memory(r->err, text->n, "the text of " TMPL_FILE);
    (void)str_append(r->text, text->p, text->n);
    if (text->marks) {
        (void)str_append(r->marks, (const char *)text->marks, text->n);
    } else {
        memset(r->marks->p + r->marks->len, own, text->n);
        r->marks->len += text->n;
    }
    return SLUICE_OK;
}

sluice_status tmpl_output(struct render *r, const struct value *value)
{
    struct value text;
    TRY(value_text_of(r, value, &text));
    return emit(r, &text.as.text, text.own);
}

/* ---- variables ---- */

sluice_status tmpl_assign(struct render *r, const char *name, const struct value *value)
{
    for (struct binding *b = r->scope->first; b; b = b->next) {
        if (strcmp(b->name, name) == 0) {
            b->value = *value;
            return SLUICE_OK;
        }
    }
    struct binding *b = r->free_bindings;
    if (b)
        r->free_bindings = b->next;
    else
        TRY(tmpl_alloc(r, sizeof *b, &b));
    *b = (struct binding){name, *value, r->scope->first};
    r->scope->first = b;
    return SLUICE_OK;
}

void tmpl_enter_scope(struct render *r, struct scope *scope, struct scope *parent)
{
    *scope = (struct scope){NULL, parent, r->scope, ++r->serial};
    r->scope = scope;
}

void tmpl_leave_scope(struct render *r)
{
    struct scope *scope = r->scope;
    while (scope->first) {
        struct binding *b = scope->first;
        scope->first = b->next;
        b->next = r->free_bindings;
        r->free_bindings = b;
    }
    r->scope = scope->below;
}

bool tmpl_is_live(const struct render *r, const struct surroundings *around)
{
    for (const struct scope *scope = r->scope; scope; scope = scope->below)
        if (scope == around->scope)
            return scope->serial == around->serial;
    return false;
}

static struct surroundings surroundings(const struct render *r)
{
    return (struct surroundings){r->scope, r->scope->serial};
}

/* One name takes the value, several take its items. */
static sluice_status assign_targets(struct render *r, const struct node *node, const struct value *value)
{
    if (node->n_names == 1)
        return tmpl_assign(r, node->names[0], value);
    struct value_list *items = NULL;
    TRY(value_iterate(r, value, &items));
    if (items->n != node->n_names)
        return tmpl_fail(r, SLUICE_E_FORMAT, "%zu values for %zu names", items->n, node->n_names);
    for (size_t i = 0; i < node->n_names; i++)
        TRY(tmpl_assign(r, node->names[i], &items->v[i]));
    return SLUICE_OK;
}

/* ---- statements ---- */

static sluice_status run_body(struct render *r, const struct node *node)
{
    for (size_t i = 0; i < node->n_items && r->flow == FLOW_ON; i++)
        TRY(tmpl_exec(r, node->items[i]));
    return SLUICE_OK;
}

static sluice_status run_data(struct render *r, const struct node *node)
{
    return emit(r, &node->constant.as.text, true);
}

static sluice_status run_output(struct render *r, const struct node *node)
{
    struct value v;
    TRY(tmpl_eval(r, node->a, &v));
    return tmpl_output(r, &v);
}

static sluice_status run_if(struct render *r, const struct node *node)
{
    for (size_t i = 0; i + 1 < node->n_items; i += 2) {
        struct value v;
        TRY(tmpl_eval(r, node->items[i], &v));
        if (value_truth(&v))
            return tmpl_exec(r, node->items[i + 1]);
    }
    return node->b ? tmpl_exec(r, node->b) : SLUICE_OK;
}

/* The items that pass the loop's condition; each is tried in a scope of its own. */
static sluice_status filter_items(struct render *r, const struct node *node, struct value_list **items)
{
    struct value kept;
    TRY(value_list_new(r, 0, &kept));
    for (size_t i = 0; i < (*items)->n; i++) {
        struct scope scope;
        struct value v;
        tmpl_enter_scope(r, &scope, r->scope);
        sluice_status status = assign_targets(r, node, &(*items)->v[i]);
        if (status == SLUICE_OK)
            status = tmpl_eval(r, node->c, &v);
        tmpl_leave_scope(r);
        TRY(status);
        if (value_truth(&v))
            TRY(value_list_add(r, kept.as.list, &(*items)->v[i]));
    }
    *items = kept.as.list;
    return SLUICE_OK;
}

/* The body for every item, or the else branch; scopes are inside the current one. */
static sluice_status run_loop(struct render *r, const struct node *node, const struct value *sequence,
                              size_t depth)
{
    struct value_list *items = NULL;
    TRY(value_iterate(r, sequence, &items));
    if (node->c)
        TRY(filter_items(r, node, &items));
    if (items->n == 0)
        return node->items[0] ? tmpl_exec(r, node->items[0]) : SLUICE_OK;
    struct value_loop *loop = NULL;
    TRY(tmpl_alloc(r, sizeof *loop, &loop));
    *loop = (struct value_loop){.items = items, .depth = depth, .node = node, .around = surroundings(r)};
    struct value handle = {.kind = VALUE_LOOP, .own = true, .as.loop = loop};
    for (size_t i = 0; i < items->n; i++) {
        struct scope scope;
        loop->index = i;
        tmpl_enter_scope(r, &scope, r->scope);
        sluice_status status = tmpl_assign(r, "loop", &handle);
        if (status == SLUICE_OK)
            status = assign_targets(r, node, &items->v[i]);
        if (status == SLUICE_OK)
            status = tmpl_exec(r, node->b);
        tmpl_leave_scope(r);
        TRY(status);
        bool stop = r->flow == FLOW_BREAK;
        r->flow = FLOW_ON;
        if (stop)
            break;
    }
    return SLUICE_OK;
}

static sluice_status run_for(struct render *r, const struct node *node)
{
    struct value sequence;
    TRY(tmpl_eval(r, node->a, &sequence));
    return run_loop(r, node, &sequence, 0);
}

/* What is printed while `run` runs becomes a string. */
static sluice_status capture(struct render *r, sluice_status (*run)(struct render *r, const void *what),
                             const void *what, struct value *out)
{
    struct str text = {0}, marks = {0}, *outer_text = r->text, *outer_marks = r->marks;
    struct builder b = {.r = r};
    r->text = &text;
    r->marks = &marks;
    sluice_status status = run(r, what);
    r->text = outer_text;
    r->marks = outer_marks;
    if (status == SLUICE_OK)
        status = builder_add(&b, text.p, (const unsigned char *)marks.p, true, text.len);
    str_free(&text);
    str_free(&marks);
    TRY(status);
    *out = builder_done(&b, false);
    return SLUICE_OK;
}

static sluice_status capture_node(struct render *r, const void *what)
{
    return tmpl_exec(r, what);
}

sluice_status tmpl_capture(struct render *r, const struct node *node, struct value *out)
{
    return capture(r, capture_node, node, out);
}

struct again {
    const struct value_loop *loop;
    const struct value *sequence;
};

static sluice_status capture_loop(struct render *r, const void *what)
{
    const struct again *again = what;
    return run_loop(r, again->loop->node, again->sequence, again->loop->depth + 1);
}

sluice_status tmpl_loop_again(struct render *r, const struct value_loop *loop, const struct value *sequence,
                              struct value *out)
{
    if (!loop->node->flag)
        return tmpl_fail(r, SLUICE_E_FORMAT, "loop() needs a loop that is \"recursive\"");
    if (!tmpl_is_live(r, &loop->around))
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "loop() is called outside of its loop");
    struct again again = {loop, sequence};
    struct scope scope;
    tmpl_enter_scope(r, &scope, loop->around.scope);
    sluice_status status = capture(r, capture_loop, &again, out);
    tmpl_leave_scope(r);
    return status;
}

/* A body's output through the filters of node->c. */
static sluice_status capture_filtered(struct render *r, const struct node *node, struct value *out)
{
    struct value text;
    const struct value *outer = r->hole;
    TRY(tmpl_capture(r, node->b, &text));
    if (!node->c) {
        *out = text;
        return SLUICE_OK;
    }
    r->hole = &text;
    sluice_status status = tmpl_eval(r, node->c, out);
    r->hole = outer;
    return status;
}

static sluice_status run_set(struct render *r, const struct node *node)
{
    struct value v;
    TRY(node->a ? tmpl_eval(r, node->a, &v) : capture_filtered(r, node, &v));
    r->line = node->line;
    if (!node->name)
        return assign_targets(r, node, &v);
    struct value space = tmpl_lookup(r, node->names[0]);
    if (space.kind != VALUE_NAMESPACE)
        return tmpl_fail(r, SLUICE_E_FORMAT, "\"%.60s\" is %s, only a namespace's members can be set",
                         node->names[0], value_type(&space));
    struct value key = value_string(node->name, strlen(node->name), true);
    return value_dict_set(r, space.as.dict, &key, &v);
}

static sluice_status make_macro(struct render *r, const struct node *node, struct value *out)
{
    struct value_macro *macro = NULL;
    TRY(tmpl_alloc(r, sizeof *macro, &macro));
    *macro = (struct value_macro){node, surroundings(r)};
    *out = (struct value){.kind = VALUE_MACRO, .own = true, .as.macro = macro};
    return SLUICE_OK;
}

static sluice_status run_macro(struct render *r, const struct node *node)
{
    struct value macro;
    TRY(make_macro(r, node, &macro));
    return tmpl_assign(r, node->name, &macro);
}

/* The call, with one keyword argument more. The node is the tree's, so the longer one is a copy. */
static sluice_status run_call_block(struct render *r, const struct node *node)
{
    struct value caller, v;
    size_t n = node->a->n_items;
    TRY(make_macro(r, node->b, &caller));
    if (n == TMPL_ARGS_MAX)
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "a call block with more than %d arguments",
                         TMPL_ARGS_MAX - 1);
    struct node constant = {.kind = NODE_CONSTANT, .line = node->line, .constant = caller};
    struct node *items[TMPL_ARGS_MAX];
    const char *names[TMPL_ARGS_MAX];
    for (size_t i = 0; i < n; i++) {
        items[i] = node->a->items[i];
        names[i] = node->a->names[i];
    }
    items[n] = &constant;
    names[n] = "caller";
    struct node call = *node->a;
    call.items = items;
    call.names = names;
    call.n_items = call.n_names = n + 1;
    TRY(tmpl_eval(r, &call, &v));
    return tmpl_output(r, &v);
}

static sluice_status run_filter_block(struct render *r, const struct node *node)
{
    struct value v;
    TRY(capture_filtered(r, node, &v));
    return tmpl_output(r, &v);
}

static sluice_status run_with(struct render *r, const struct node *node)
{
    struct scope scope;
    sluice_status status = SLUICE_OK;
    tmpl_enter_scope(r, &scope, r->scope);
    for (size_t i = 0; i < node->n_names && status == SLUICE_OK; i++) {
        struct value v;
        status = tmpl_eval(r, node->items[i], &v);
        if (status == SLUICE_OK)
            status = tmpl_assign(r, node->names[i], &v);
    }
    if (status == SLUICE_OK)
        status = tmpl_exec(r, node->b);
    tmpl_leave_scope(r);
    return status;
}

static sluice_status run_break(struct render *r, const struct node *node)
{
    (void)node;
    r->flow = FLOW_BREAK;
    return SLUICE_OK;
}

static sluice_status run_continue(struct render *r, const struct node *node)
{
    (void)node;
    r->flow = FLOW_CONTINUE;
    return SLUICE_OK;
}

static sluice_status (*const EXECUTE[])(struct render *r, const struct node *node) = {
    [NODE_DATA] = run_data,
    [NODE_OUTPUT] = run_output,
    [NODE_IF] = run_if,
    [NODE_FOR] = run_for,
    [NODE_SET] = run_set,
    [NODE_BREAK] = run_break,
    [NODE_BODY] = run_body,
    [NODE_CONTINUE] = run_continue,
    [NODE_MACRO] = run_macro,
    [NODE_CALL_BLOCK] = run_call_block,
    [NODE_FILTER_BLOCK] = run_filter_block,
    [NODE_WITH] = run_with,
};

sluice_status tmpl_exec(struct render *r, const struct node *node)
{
    r->line = node->line;
    TRY(tmpl_step(r, 1));
    TRY(tmpl_nest(r));
    sluice_status status = EXECUTE[node->kind](r, node);
    r->nest--;
    return status;
}

/* ---- the whole ---- */

sluice_status template_open(const char *source, size_t source_bytes, struct template **out, sluice_error *err)
{
    struct tmpl_token *tokens = NULL;
    size_t n_tokens = 0;
    *out = NULL;
    struct template *t = mem_calloc(1, sizeof *t);
    if (!t)
        return err_memory(err, sizeof *t, TMPL_FILE);
    sluice_status status = tmpl_lex(&t->arena, source, source_bytes, &tokens, &n_tokens, err);
    if (status == SLUICE_OK)
        status = tmpl_parse(&t->arena, tokens, &t->body, err);
    if (status != SLUICE_OK) {
        template_close(t);
        return status;
    }
    t->tokens = tokens;
    *out = t;
    return SLUICE_OK;
}

void template_close(struct template *t)
{
    if (!t)
        return;
    tmpl_arena_close(&t->arena);
    mem_free(t);
}

static bool is_trusted(const char *name, const char *const *trusted)
{
    for (size_t i = 0; trusted && trusted[i]; i++)
        if (strcmp(name, trusted[i]) == 0)
            return true;
    return false;
}

static sluice_status bind_variables(struct render *r, const json_t *variables, const char *const *trusted)
{
    const char *name;
    json_t *member;
    json_object_foreach((json_t *)variables, name, member)
    {
        struct value v;
        TRY(value_from_json(r, member, is_trusted(name, trusted), &v));
        TRY(tmpl_assign(r, name, &v));
    }
    return SLUICE_OK;
}

sluice_status template_render(const struct template *t, const struct template_input *input, struct str *text,
                              struct str *marks, sluice_error *err)
{
    size_t text_before = text->len, marks_before = marks->len;
    struct scope globals = {0};
    struct render r = {.scope = &globals,
                       .text = text,
                       .marks = marks,
                       .line = 1,
                       .now_seconds = input->now_seconds,
                       .err = err};
    sluice_status status = SLUICE_OK;
    if (!str_reserve(text, 0) || !str_reserve(marks, 0)) /* also an empty text is one */
        status = err_memory(err, 1, "the text of " TMPL_FILE);
    if (status == SLUICE_OK)
        status = bind_variables(&r, input->variables, input->trusted);
    if (status == SLUICE_OK)
        status = tmpl_exec(&r, t->body);
    tmpl_arena_close(&r.arena);
    if (status != SLUICE_OK) {
        text->len = text_before;
        marks->len = marks_before;
    }
    return status;
}

bool template_mentions(const struct template *t, const char *name)
{
    for (const struct tmpl_token *token = t->tokens; token->kind != TMPL_END; token++)
        if (token->kind == TMPL_NAME && strcmp(token->p, name) == 0)
            return true;
    return false;
}

bool template_contains(const struct template *t, const char *text)
{
    for (const struct tmpl_token *token = t->tokens; token->kind != TMPL_END; token++)
        if ((token->kind == TMPL_DATA || token->kind == TMPL_STRING) && strstr(token->p, text))
            return true;
    return false;
}
