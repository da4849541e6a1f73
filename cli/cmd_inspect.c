/* sluice inspect: what an install holds and what memory it would take. Weights are not read.
 *
 * The document of sluice_inspect() is shown as it is, so that a field added there appears here: scalars and
 * objects as lines, lists of objects as one line for each element. Lists of tensors are long and wait for
 * --tensors. */
#include "cli.h"
#include "engine.h"
#include "out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct inspect_options {
    const char *install;
    bool tensors, json, cpu;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct inspect_options, member, type)

static const struct flag rows[] = {
    {.name = "tensors",
     .kind = FLAG_BOOL,
     FIELD(tensors, bool),
     .help = "list every tensor, with type, shape and place",
     .excludes = "json"},
    {.name = "cpu",
     .kind = FLAG_BOOL,
     FIELD(cpu, bool),
     .help = "list the instruction sets of this build and which of them runs; needs no INSTALL",
     .excludes = "tensors,memory,context,prefill-chunk,expert-slots,expert-cache,kv"},
    {.name = "json",
     .kind = FLAG_BOOL,
     FIELD(json, bool),
     .help = "everything as one JSON object, tensors included"},
};

/* ---- the document as text ---- */

/* Lists with more elements than this are cut unless the whole list was asked for. */
enum { SHORT_LIST = 32 };

static void add_scalar(struct text *line, const json_t *value)
{
    if (json_is_string(value)) {
        text_add(line, json_string_value(value), json_string_length(value));
        return;
    }
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (dumped != NULL)
        text_add(line, dumped, strlen(dumped));
    free(dumped);
}

static bool is_leaf(const json_t *value)
{
    if (json_is_object(value))
        return false;
    /* A list of numbers or names fits a line. */
    return !json_is_array(value) ||
           !(json_is_object(json_array_get(value, 0)) || json_is_array(json_array_get(value, 0)));
}

/* "name value  name value" of an object's leaves; nested ones in brackets. */
static void add_members(struct text *line, const json_t *object)
{
    const char *key, *gap = "";
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        text_add(line, gap, strlen(gap));
        text_add(line, key, strlen(key));
        text_add(line, " ", 1);
        if (json_is_object(value)) {
            text_add(line, "(", 1);
            add_members(line, value);
            text_add(line, ")", 1);
        } else {
            add_scalar(line, value);
        }
        gap = "  ";
    }
}

static bool is_long_key(const char *key)
{
    return strstr(key, "tensor") != NULL || strstr(key, "parts") != NULL || strstr(key, "layers") != NULL;
}

static void print_value(const char *key, const json_t *value, int indent, bool all);

static void print_list(const char *key, const json_t *list, int indent, bool all)
{
    size_t n = json_is_array(list) ? json_array_size(list) : json_object_size(list);
    bool hide = !all && (is_long_key(key) || n > SHORT_LIST);
    out_print("%*s%s: %zu%s\n", indent, "", key, n, hide ? " (--tensors lists them)" : "");
    for (size_t i = 0; !hide && i < n; i++) {
        struct text line = {0};
        const json_t *element = json_array_get(list, i);
        if (json_is_object(element))
            add_members(&line, element);
        else
            add_scalar(&line, element);
        text_add(&line, "\n", 1);
        out_print("%*s", indent + 2, "");
        out_text(line.bytes, line.n);
        text_free(&line);
    }
}

static bool all_objects(const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_object(value))
            return false;
    }
    return json_object_size(object) > 0;
}

/* A table in object form, such as the files: one line for each member. */
static void print_named_rows(const json_t *object, int indent)
{
    const char *name;
    json_t *row;
    json_object_foreach((json_t *)object, name, row)
    {
        struct text line = {0};
        add_members(&line, row);
        text_add(&line, "\n", 1);
        out_print("%*s%-32s ", indent, "", name);
        out_text(line.bytes, line.n);
        text_free(&line);
    }
}

static void print_object(const char *key, const json_t *object, int indent, bool all)
{
    const char *name;
    json_t *value;
    bool table = all_objects(object);
    if (!all && table && (is_long_key(key) || json_object_size(object) > SHORT_LIST)) {
        out_print("%*s%s: %zu (--tensors lists them)\n", indent, "", key, json_object_size(object));
        return;
    }
    out_print("%*s%s\n", indent, "", key);
    if (table)
        print_named_rows(object, indent + 2);
    else
        json_object_foreach((json_t *)object, name, value) print_value(name, value, indent + 2, all);
}

static void print_value(const char *key, const json_t *value, int indent, bool all)
{
    struct text line = {0};
    /* Deeper than any document of ours: the indent is the depth. */
    if (indent > 32)
        return;
    if (json_is_object(value)) {
        print_object(key, value, indent, all);
    } else if (!is_leaf(value)) {
        print_list(key, value, indent, all);
    } else {
        add_scalar(&line, value);
        text_add(&line, "", 0);
        out_print("%*s%-24s %s\n", indent, "", key, line.bytes);
        text_free(&line);
    }
}

/* ---- the processor ---- */

enum { ISAS_MAX = 16 };

static int show_cpu(bool json)
{
    sluice_cpu_isa isas[ISAS_MAX];
    size_t n = sluice_cpu_isas(isas, ISAS_MAX);
    json_t *list = json ? json_array() : NULL;
    for (size_t i = 0; i < n && i < ISAS_MAX; i++) {
        const sluice_cpu_isa *isa = &isas[i];
        if (json)
            json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:b}", "name", isa->name, "about",
                                                  isa->about, "usable", isa->usable, "chosen", isa->best));
        else
            out_print("%-12s %-48s %s\n", isa->name, isa->about,
                      isa->best     ? "chosen"
                      : isa->usable ? "usable"
                                    : "this processor lacks it");
    }
    if (json)
        out_json(json_pack("{s:o}", "isas", list));
    return EXIT_DONE;
}

static void out_line(const char *line)
{
    out_print("%s\n", line);
}

static int run(void *options, const struct parse *parse)
{
    struct inspect_options *o = options;
    sluice_plan plan = {0};
    sluice_error error, plan_error;
    char *json = NULL;
    (void)parse;
    if (o->cpu && o->install != NULL)
        return fail_usage("--cpu looks at this machine, not at %s; leave one of them out", o->install);
    if (o->cpu)
        return show_cpu(o->json);
    if (o->install == NULL)
        return fail_usage("INSTALL is missing (a .gturbo directory), or --cpu");
    if (sluice_inspect(o->install, &json, &error) != SLUICE_OK)
        return fail_error(&error);
    json_error_t where;
    json_t *document = json_loads(json, 0, &where);
    sluice_free(json);
    if (document == NULL) {
        fail("the description of %s is not JSON: %s", o->install, where.text);
        return EXIT_FAILED;
    }
    sluice_status status = sluice_plan_install(o->install, &o->engine, &plan, &plan_error);
    bool planned = status == SLUICE_OK || (status == SLUICE_E_BUDGET && plan.n_items > 0);
    if (o->json) {
        if (planned)
            json_object_set_new(document, "plan", plan_json(&plan, status == SLUICE_OK));
        out_json(document);
    } else {
        const char *key;
        json_t *value;
        json_object_foreach(document, key, value) print_value(key, value, 0, o->tensors);
        json_decref(document);
        if (planned) {
            out_print("memory plan\n");
            plan_print(&plan, out_line);
        }
    }
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&plan_error);
}

static const struct operand operands[] = {
    {.name = "INSTALL", .offset = offsetof(struct inspect_options, install), .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Inspect", .rows = rows, .n = sizeof rows / sizeof *rows},
    /* The rows that change the plan: memory, and kv, which comes right after them. */
    {.title = "Plan",
     .rows = engine_flags,
     .n = ENGINE_MEMORY_ROWS + 1,
     .base = offsetof(struct inspect_options, engine)},
    HELP_GROUP,
};

const struct command cmd_inspect = {
    .name = "inspect",
    .summary = "show what an install holds and the memory it needs",
    .about = "Prints architecture, quantization, files and expert layout of an install, and the memory plan "
             "for the "
             "given flags. Only headers are read. The exit code is 1 when the plan does not fit the memory.",
    .examples = "sluice inspect gemma.gturbo --memory 4G\n"
                "sluice inspect --cpu\n"
                "sluice inspect gemma.gturbo --json | jq .plan\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct inspect_options),
    .run = run,
};
