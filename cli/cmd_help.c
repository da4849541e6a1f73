/* sluice help: the program's or a command's help, and what else is made from the tables. */
#include "help.h"

#include "engine.h"
#include "out.h"

struct help_options {
    const char *command;
    bool manual, tables;
    int shell;
};

#define FIELD(member, type) AT(struct help_options, member, type)

/* In the order of the functions below. */
static const char *const shells[] = {"bash", "zsh", NULL};
static void (*const completions[])(void) = {help_completion_bash, help_completion_zsh};

static const struct flag rows[] = {
    {.name = "man",
     .kind = FLAG_BOOL,
     .hidden = true,
     FIELD(manual, bool),
     .help = "print the manual page in troff",
     .excludes = "completion,tables"},
    {.name = "completion",
     .kind = FLAG_CHOICE,
     .hidden = true,
     .value = "SHELL",
     FIELD(shell, int),
     .choices = shells,
     .help = "print a completion script",
     .excludes = "tables"},
    {.name = "tables",
     .kind = FLAG_BOOL,
     .hidden = true,
     FIELD(tables, bool),
     .help = "print every flag of every command with what it takes, tab separated, for tests"},
};

static int run(void *options, const struct parse *parse)
{
    const struct help_options *o = options;
    char shown[QUOTE_BYTES];
    bool made = o->manual || o->tables || flag_given(parse, "completion");
    if (o->command != NULL && made)
        return fail_usage("unexpected argument %s", quote(o->command, shown));
    const struct command *command = o->command != NULL ? command_find(o->command) : NULL;
    if (o->command != NULL && command == NULL) {
        const struct command *near = command_nearest(o->command);
        return near != NULL ? fail_suggest(near->name, "there is no command %s", quote(o->command, shown))
                            : fail_usage("there is no command %s", quote(o->command, shown));
    }
    if (o->manual)
        help_manual();
    else if (o->tables)
        help_tables();
    else if (made)
        completions[o->shell]();
    else if (command != NULL)
        help_command(command);
    else
        help_program();
    return EXIT_DONE;
}

static const struct operand operands[] = {
    {.name = "COMMAND", .offset = offsetof(struct help_options, command), .help = "the command to explain"},
};

static const struct flag_group groups[] = {
    {.title = "Help", .rows = rows, .n = sizeof rows / sizeof *rows},
    HELP_GROUP,
};

const struct command cmd_help = {
    .name = "help",
    .summary = "explain a command",
    .about = "Lists the commands, or explains one of them.",
    .examples = "sluice help run\n",
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .options_bytes = sizeof(struct help_options),
    .run = run,
};
