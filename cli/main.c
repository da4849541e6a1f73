/* sluice: the table of subcommands, and what happens around each of them. */
#include "cli.h"
#include "help.h"
#include "interrupt.h"
#include "models.h"
#include "out.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

const struct command *const commands[] = {
    &cmd_demo,   &cmd_models,  &cmd_install,    &cmd_list,  &cmd_path,      &cmd_rm,    &cmd_import,
    &cmd_verify, &cmd_inspect, &cmd_plan,       &cmd_probe, &cmd_run,       &cmd_chat,  &cmd_tokenize,
    &cmd_check,  &cmd_trace,   &cmd_trace_diff, &cmd_bench, &cmd_cache_sim, &cmd_synth, &cmd_help,
};
const size_t n_commands = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

const struct command *command_nearest(const char *name)
{
    const struct command *best = NULL;
    size_t best_distance = 2 + strlen(name) / 4;
    for (size_t i = 0; i < n_commands; i++) {
        size_t distance = edit_distance(name, commands[i]->name);
        if (distance < best_distance) {
            best = commands[i];
            best_distance = distance;
        }
    }
    return best;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    struct parse parse;
    int code = EXIT_USAGE;
    const char *unknown;
    char shown[QUOTE_BYTES];
    void *options = must_realloc(NULL, 1, command->options_bytes);
    memset(options, 0, command->options_bytes);
    out_set_command(command->name);
    switch (flags_parse(command, argc, argv, options, &parse)) {
    case FLAGS_OK:
        unknown = models_resolve(command, options);
        code = command->run(options, &parse);
        if (code == EXIT_FAILED && unknown != NULL)
            notice("No installed model is called %s; \"sluice list\" shows which there are.",
                   quote(unknown, shown));
        break;
    case FLAGS_SHOW_HELP:
        help_command(command);
        code = EXIT_DONE;
        break;
    case FLAGS_BAD:
        break;
    }
    flags_release(command, options);
    free(options);
    return code;
}

static int dispatch(int argc, char **argv)
{
    char shown[QUOTE_BYTES];
    if (argc < 2)
        return fail_usage("no command is given");
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        out_print("sluice %s\n", SLUICE_VERSION);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help_program();
        return EXIT_DONE;
    }
    const struct command *command = command_find(argv[1]);
    if (command != NULL)
        return run_command(command, argc - 2, argv + 2);
    if (argv[1][0] == '-')
        return fail_usage("unknown flag %s before the command", quote(argv[1], shown));
    const struct command *near = command_nearest(argv[1]);
    return near != NULL ? fail_suggest(near->name, "there is no command %s", quote(argv[1], shown))
                        : fail_usage("there is no command %s", quote(argv[1], shown));
}

int main(int argc, char **argv)
{
    /* A reader that goes away shows as EPIPE, which out_finish() turns into a quiet exit. */
    signal(SIGPIPE, SIG_IGN);
    interrupt_catch();
    /* An allocator's arena per thread, and a threshold that grows, keep memory that no plan knows of. */
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
    return out_finish(dispatch(argc, argv));
}
