/* Calls: arguments to parameters, macros, functions, methods. */
#include "text/tmpl_internal.h"

#include <string.h>

/* ---- parameters ---- */

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

enum bind_problem tmpl_bind(const struct callable *callable, const char *const *keywords, size_t n,
                            size_t slots[TMPL_ARGS_MAX], size_t *n_slots, size_t *which)
{
    bool any = strcmp(callable->parameters, "*") == 0;
    unsigned required = 0, given = 0;
    size_t count = any ? TMPL_ARGS_MAX : parameter_count(callable->parameters, &required);
    *n_slots = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        *which = i;
        if (!any && keywords[i]) {
            int index = parameter_index(callable->parameters, keywords[i]);
            if (index < 0)
                return BIND_UNKNOWN;
            at = (size_t)index;
        }
        if (at >= count || (given >> at & 1))
            return BIND_TOO_MANY;
        given |= 1u << at;
        slots[i] = at;
        if (at >= *n_slots)
            *n_slots = at + 1;
    }
    return (required & ~given) == 0 ? BIND_OK : BIND_MISSING;
}

/* ---- rows of the tables ---- */

static sluice_status call_row(struct render *r, const struct callable *callable, const struct value *self,
                              const char **keywords, const struct value *given, size_t n, struct value *out)
{
    struct value args[TMPL_ARGS_MAX];
    size_t slots[TMPL_ARGS_MAX], n_slots, which = 0;
    switch (tmpl_bind(callable, keywords, n, slots, &n_slots, &which)) {
    case BIND_OK:
        break;
    case BIND_UNKNOWN:
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "argument \"%.40s\" of \"%.40s\" is not supported",
                         keywords[which], callable->name);
    case BIND_TOO_MANY:
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "these arguments of \"%.40s\" are not supported",
                         callable->name);
    case BIND_MISSING:
        return tmpl_fail(r, SLUICE_E_FORMAT, "\"%.40s\" needs more arguments", callable->name);
    }
    for (size_t i = 0; i < TMPL_ARGS_MAX; i++)
        args[i] = (struct value){.kind = VALUE_ABSENT};
    for (size_t i = 0; i < n; i++)
        args[slots[i]] = given[i];
    struct call c = {r, self, args, n_slots, keywords, out};
    return callable->call(&c);
}

sluice_status tmpl_call_named(struct render *r, enum callable_kind kind, const char *name,
                              const struct value *self, const struct value *args, size_t n_args,
                              struct value *out)
{
    static const char *const KINDS[] = {"filter", "test", "function"};
    const char *keywords[TMPL_ARGS_MAX] = {NULL};
    const struct callable *callable = tmpl_find_callable(kind, name);
    if (!callable || n_args > TMPL_ARGS_MAX)
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "%s \"%.40s\" is not supported", KINDS[kind], name);
    return call_row(r, callable, self, keywords, args, n_args, out);
}

/* ---- macros ---- */

/* The arguments' places among a macro's parameters. */
static sluice_status place_arguments(struct render *r, const struct node *macro, const char *const *keywords,
                                     const struct value *given, size_t n, struct value *caller,
                                     struct value args[TMPL_ARGS_MAX])
{
    for (size_t i = 0; i < macro->n_names; i++)
        args[i] = (struct value){.kind = VALUE_ABSENT};
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        if (keywords[i]) {
            for (at = 0; at < macro->n_names; at++)
                if (strcmp(macro->names[at], keywords[i]) == 0)
                    break;
            if (at == macro->n_names && strcmp(keywords[i], "caller") == 0) {
                *caller = given[i];
                continue;
            }
        }
        if (at >= macro->n_names || args[at].kind != VALUE_ABSENT)
            return tmpl_fail(r, SLUICE_E_FORMAT, "macro \"%.40s\" does not take these arguments",
                             macro->name);
        args[at] = given[i];
    }
    return SLUICE_OK;
}

static sluice_status run_macro(struct render *r, const struct node *macro, struct value *args,
                               const struct value *caller, struct value *out)
{
    if (caller->kind != VALUE_ABSENT)
        TRY(tmpl_assign(r, "caller", caller));
    for (size_t i = 0; i < macro->n_names; i++) {
        if (args[i].kind == VALUE_ABSENT) {
            args[i] = value_undefined(macro->names[i]);
            if (macro->items[i])
                TRY(tmpl_eval(r, macro->items[i], &args[i]));
        }
        TRY(tmpl_assign(r, macro->names[i], &args[i]));
    }
    return tmpl_capture(r, macro->b, out);
}

static sluice_status call_macro(struct render *r, const struct value_macro *macro,
                                const char *const *keywords, const struct value *given, size_t n,
                                struct value *out)
{
    struct value args[TMPL_ARGS_MAX], caller = {.kind = VALUE_ABSENT};
    struct scope scope;
    if (!tmpl_is_live(r, &macro->around))
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "macro \"%.40s\" is called outside of where it was made",
                         macro->node->name);
    TRY(place_arguments(r, macro->node, keywords, given, n, &caller, args));
    tmpl_enter_scope(r, &scope, macro->around.scope);
    sluice_status status = run_macro(r, macro->node, args, &caller, out);
    tmpl_leave_scope(r);
    return status;
}

/* ---- methods of the loop ---- */

static sluice_status loop_method(struct render *r, struct value_loop *loop, const char *name,
                                 const struct value *given, size_t n, struct value *out)
{
    if (strcmp(name, "cycle") == 0 && n > 0) {
        *out = given[loop->index % n];
        return SLUICE_OK;
    }
    if (strcmp(name, "changed") == 0) {
        struct value now;
        bool same = false;
        TRY(value_list_new(r, n, &now));
        for (size_t i = 0; i < n; i++)
            TRY(value_list_add(r, now.as.list, &given[i]));
        if (loop->changed.kind == VALUE_LIST)
            TRY(value_equal(r, &loop->changed, &now, &same));
        loop->changed = now;
        *out = value_bool(!same);
        return SLUICE_OK;
    }
    return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "loop.%.40s() is not supported", name);
}

/* ---- the node ---- */

static sluice_status call_value(struct render *r, const struct value *callee, const char **keywords,
                                const struct value *given, size_t n, struct value *out)
{
    switch (callee->kind) {
    case VALUE_MACRO:
        return call_macro(r, callee->as.macro, keywords, given, n, out);
    case VALUE_FUNCTION:
        return call_row(r, callee->as.callable, NULL, keywords, given, n, out);
    case VALUE_LOOP:
        if (n != 1 || keywords[0])
            return tmpl_fail(r, SLUICE_E_FORMAT, "loop() takes one sequence");
        return tmpl_loop_again(r, callee->as.loop, &given[0], out);
    case VALUE_UNDEFINED:
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "function \"%.60s\" is not defined, nor supported",
                         callee->as.name);
    default:
        return tmpl_fail(r, SLUICE_E_FORMAT, "%s cannot be called", value_type(callee));
    }
}

static sluice_status call_method(struct render *r, const struct value *self, const char *name,
                                 const char **keywords, const struct value *given, size_t n,
                                 struct value *out)
{
    if (self->kind == VALUE_LOOP)
        return loop_method(r, self->as.loop, name, given, n, out);
    const struct callable *method = tmpl_find_method(self->kind, name);
    if (method)
        return call_row(r, method, self, keywords, given, n, out);
    struct value member; /* a macro in a namespace */
    TRY(tmpl_attribute(r, self, name, &member));
    if (member.kind == VALUE_UNDEFINED)
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "method \"%.60s\" of %s is not supported", name,
                         value_type(self));
    return call_value(r, &member, keywords, given, n, out);
}

sluice_status tmpl_call_node(struct render *r, const struct node *node, struct value *out)
{
    struct value self, given[TMPL_ARGS_MAX];
    bool method = node->kind == NODE_CALL && node->a->kind == NODE_ATTRIBUTE;
    TRY(tmpl_eval(r, method ? node->a->a : node->a, &self));
    for (size_t i = 0; i < node->n_items; i++)
        TRY(tmpl_eval(r, node->items[i], &given[i]));
    r->line = node->line;
    if (node->kind != NODE_CALL && !node->callable)
        return tmpl_fail(r, SLUICE_E_UNSUPPORTED, "%s \"%.60s\" is not supported",
                         node->kind == NODE_TEST ? "test" : "filter", node->name);
    if (node->kind != NODE_CALL)
        return call_row(r, node->callable, &self, node->names, given, node->n_items, out);
    if (method)
        return call_method(r, &self, node->a->name, node->names, given, node->n_items, out);
    return call_value(r, &self, node->names, given, node->n_items, out);
}
