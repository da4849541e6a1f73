/* The shape of a subcommand. Each lives in its own cmd_NAME.c and exports one struct command; main.c lists
 * them. Flags, help, manual page and completion scripts all come from these tables. The program is single
 * threaded apart from the library; a signal handler only touches what interrupt.c owns. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "flags.h"

#include <stddef.h>

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

struct command {
    const char *name;
    const char *summary;  /* one line, no full stop */
    const char *about;    /* a paragraph or more, separated by blank lines */
    const char *examples; /* lines "command — what it does" for help and manual; may be NULL */
    const struct operand *operands;
    size_t n_operands;
    const struct flag_group *groups;
    size_t n_groups;
    size_t options_bytes; /* of the structure that the rows' offsets point into */
    /* Returns an exit_code. `options` is zeroed, then filled from presets and the command line. */
    int (*run)(void *options, const struct parse *parse);
};

extern const struct command cmd_bench, cmd_cache_sim, cmd_chat, cmd_check, cmd_demo, cmd_help, cmd_import,
    cmd_inspect, cmd_install, cmd_list, cmd_models, cmd_path, cmd_plan, cmd_probe, cmd_rm, cmd_run, cmd_synth,
    cmd_tokenize, cmd_trace, cmd_trace_diff, cmd_verify;

/* Every subcommand in the order of the help text. */
extern const struct command *const commands[];
extern const size_t n_commands;

/* NULL when there is none of that name. */
const struct command *command_find(const char *name);
/* The command whose name is nearest to a misspelt one, or NULL when none is near. */
const struct command *command_nearest(const char *name);

#endif
