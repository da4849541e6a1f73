/* The flags of every command that opens an engine, and the opening itself: plan first, shown before a weight
 * is read, then load with progress. The rows write straight into sluice_engine_options. */
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H

#include "flags.h"

#include <jansson.h>

/* In this order, so that a command can take a part of the table. */
enum engine_rows {
    ENGINE_MEMORY_ROWS = 6, /* memory, context, prefill-chunk, expert-slots, expert-cache, grammar-memory */
    ENGINE_ARITHMETIC_ROWS = 2, /* kv, activations */
    ENGINE_RUNNING_ROWS = 8,    /* threads, isa, read-threads, io, mirror, lookahead, eviction, verify */
    ENGINE_LOG_ROWS = 1,        /* log-level: of commands that open an engine; excludes their --quiet */
    ENGINE_ROWS = ENGINE_MEMORY_ROWS + ENGINE_ARITHMETIC_ROWS + ENGINE_RUNNING_ROWS + ENGINE_LOG_ROWS,
};

extern const struct flag engine_flags[ENGINE_ROWS];

/* Of commands that generate. */
enum { DRAFT_ROWS = 2 };
extern const struct flag draft_flags[DRAFT_ROWS];

#define DRAFT_GROUP(structure, member)                                                                       \
    {                                                                                                        \
        .title = "Drafting", .rows = draft_flags, .n = DRAFT_ROWS, .base = offsetof(structure, member)       \
    }

/* All of them, for an options structure with a sluice_engine_options member. */
#define ENGINE_GROUP(structure, member)                                                                      \
    {                                                                                                        \
        .title = "Engine", .rows = engine_flags, .n = ENGINE_ROWS, .base = offsetof(structure, member)       \
    }

/* --help and, where the command has notices to silence, --quiet. */
extern const struct flag help_flag;
#define HELP_GROUP                                                                                           \
    {                                                                                                        \
        .title = "General", .rows = &help_flag, .n = 1, .base = 0                                            \
    }

/* Where the engine's log goes: standard error, with the level that was asked for; nowhere when quiet. */
void engine_log(sluice_engine_options *options, bool quiet);

/* Plan, show the plan unless quiet, open. Returns an exit code; on EXIT_DONE the caller closes *engine. A
 * budget that is too small prints the itemised plan. */
int engine_open(const char *install, sluice_engine_options *options, bool quiet, sluice_engine **engine);

/* The itemised plan, a line each, through `line` (notice-like or stdout). */
typedef void (*plan_line_fn)(const char *line);
void plan_print(const sluice_plan *plan, plan_line_fn line);
json_t *plan_json(const sluice_plan *plan, bool fits);

#endif
