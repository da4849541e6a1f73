/* sluice plan: the memory plan of an install, and the speed that its drive allows. */
#include "cli.h"
#include "engine.h"
#include "out.h"

#include <inttypes.h>
#include <stdio.h>

struct plan_options {
    const char *install;
    bool json;
    sluice_engine_options engine;
};

#define FIELD(member, type) AT(struct plan_options, member, type)
#define DRIVE_NS            500000000u

static const struct flag rows[] = {
    {.name = "json", .kind = FLAG_BOOL, FIELD(json, bool), .help = "print one JSON object"},
};

static void out_line(const char *line)
{
    out_print("%s\n", line);
}

/* ---- the speed to expect ---- */

/* A hit rate, and what a token then reads. The first is what an even use of all experts would give; routers
 * that were trained are less even, so it is the worst case. */
struct expectation {
    double hit_rate, read_bytes, tokens_per_second; /* 0: the drive sets no limit, or is not known */
};

enum { EXPECTATIONS = 5 };

static void expect(const sluice_plan *plan, double drive, struct expectation e[EXPECTATIONS])
{
    static const double RATES[EXPECTATIONS] = {0, 0.5, 0.8, 0.9, 0.95};
    for (int i = 0; i < EXPECTATIONS; i++) {
        e[i].hit_rate = i == 0 ? (double)plan->expert_slots / plan->experts_per_layer : RATES[i];
        double misses = (1 - e[i].hit_rate) * plan->expert_layers * plan->experts_per_token;
        e[i].read_bytes = misses * (double)plan->expert_bytes;
        e[i].tokens_per_second = e[i].read_bytes > 0 ? drive / e[i].read_bytes : 0;
    }
}

static void print_speed(const sluice_plan *plan, double drive)
{
    struct expectation e[EXPECTATIONS];
    char size[HUMAN_BYTES], rate[HUMAN_BYTES];
    out_print("speed to expect\n");
    if (plan->experts_per_layer == 0) {
        out_print("  the model has no routed experts: nothing is read while it runs\n");
        return;
    }
    out_print("  a token asks for %" PRIu32 " experts of %s\n", plan->expert_layers * plan->experts_per_token,
              human_bytes(plan->expert_bytes, size));
    if (plan->expert_slots == plan->experts_per_layer) {
        out_print("  all experts stay in memory once they were used: the drive sets no limit\n");
        return;
    }
    if (drive > 0)
        out_print("  the drive delivers them at %s/s (measured just now, at random places)\n",
                  human_bytes((uint64_t)drive, rate));
    expect(plan, drive, e);
    for (int i = 0; i < EXPECTATIONS; i++)
        out_print("  %3.0f %% from memory: %s per token, %.2f tokens/s at most%s\n", 100 * e[i].hit_rate,
                  human_bytes((uint64_t)e[i].read_bytes, size), e[i].tokens_per_second,
                  i == 0 ? " (if every expert were as likely as any other)" : "");
}

static json_t *speed_json(const sluice_plan *plan, double drive)
{
    struct expectation e[EXPECTATIONS];
    json_t *list = json_array();
    if (plan->experts_per_layer > 0) {
        expect(plan, drive, e);
        for (int i = 0; i < EXPECTATIONS; i++)
            json_array_append_new(list, json_pack("{s:f, s:f, s:f}", "hit_rate", e[i].hit_rate,
                                                  "read_bytes_per_token", e[i].read_bytes,
                                                  "tokens_per_second", e[i].tokens_per_second));
    }
    return json_pack("{s:f, s:o}", "drive_bytes_per_second", drive, "expectations", list);
}

/* ---- */

static int run(void *options, const struct parse *parse)
{
    struct plan_options *o = options;
    sluice_plan plan = {0};
    sluice_error error, drive_error;
    double drive = 0;
    (void)parse;
    sluice_status status = sluice_plan_install(o->install, &o->engine, &plan, &error);
    if (plan.n_items == 0)
        return fail_error(&error);
    if (status == SLUICE_OK && plan.expert_slots < plan.experts_per_layer &&
        sluice_measure_drive(o->install, &o->engine, DRIVE_NS, &drive, &drive_error) != SLUICE_OK)
        return fail_error(&drive_error);
    if (o->json) {
        json_t *object = plan_json(&plan, status == SLUICE_OK);
        if (status == SLUICE_OK)
            json_object_set_new(object, "speed", speed_json(&plan, drive));
        out_json(object);
    } else {
        out_print("memory plan\n");
        plan_print(&plan, out_line);
        if (status == SLUICE_OK)
            print_speed(&plan, drive);
    }
    return status == SLUICE_OK ? EXIT_DONE : fail_error(&error);
}

static const struct operand operands[] = {
    {.name = "INSTALL",
     .required = true,
     .offset = offsetof(struct plan_options, install),
     .help = "a .gturbo directory"},
};

static const struct flag_group groups[] = {
    {.title = "Plan", .rows = rows, .n = sizeof rows / sizeof *rows},
    /* The rows that change the plan: memory, and kv, which comes right after them; and threads. */
    {.title = "Engine",
     .rows = engine_flags,
     .n = ENGINE_MEMORY_ROWS + 1,
     .base = offsetof(struct plan_options, engine)},
    {.title = "Engine",
     .rows = engine_flags + ENGINE_MEMORY_ROWS + ENGINE_ARITHMETIC_ROWS,
     .n = 1,
     .base = offsetof(struct plan_options, engine)},
    HELP_GROUP,
};

const struct command cmd_plan = {
    .name = "plan",
    .summary = "show what memory a model takes here, and the speed to expect",
    .about =
        "Prints the memory plan for the given flags, item by item, and how many tokens per second the drive "
        "allows at several hit rates of the expert cache; the drive is measured for half a second. No weight "
        "is loaded. The exit code is 1 when the plan does not fit the memory.",
    .examples = "sluice plan gemma.gturbo --memory 4G --context 8192\n"
                "sluice plan gemma.gturbo --expert-slots all\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct plan_options),
    .run = run,
};
