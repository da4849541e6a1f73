#include "help.h"

#include "out.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, FLAG_COLUMN = 30 };

void help_default(const struct flag *row, char *out, size_t out_bytes)
{
    const char *text = row->preset != NULL ? row->preset : row->otherwise;
    if (text == NULL)
        out[0] = '\0';
    else
        snprintf(out, out_bytes, "default: %s", text);
}

void operand_help(const struct operand *operand, char *out, size_t out_bytes)
{
    bool install = strcmp(operand->name, OPERAND_INSTALL) == 0;
    snprintf(out, out_bytes, "%s%s", operand->help, install ? ", or an installed model's name" : "");
}

/* Words of text from column `at` on, new lines at `indent`. Blank lines in the text are kept. */
static void wrap(const char *text, int at, int indent)
{
    while (*text != '\0') {
        if (*text == '\n') {
            out_print("\n\n%*s", indent, "");
            text += strspn(text, "\n");
            at = indent;
            continue;
        }
        int word = (int)strcspn(text, " \n");
        if (at > indent && at + 1 + word > WIDTH) {
            out_print("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            out_text(" ", 1);
            at++;
        }
        out_text(text, (size_t)word);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    out_text("\n", 1);
}

static void print_row(const struct flag *row)
{
    char left[80], letter[8] = "    ", more[256], whole[768];
    if (row->letter != '\0')
        snprintf(letter, sizeof letter, "-%c, ", row->letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, row->name, row->value ? " " : "",
                     row->value ? row->value : "");
    out_print("%s", left);
    if (n >= FLAG_COLUMN - 1)
        out_print("\n%*s", FLAG_COLUMN, "");
    else
        out_print("%*s", FLAG_COLUMN - n, "");
    help_default(row, more, sizeof more);
    if (row->kind == FLAG_CHOICE) {
        char choices[128];
        flag_describe(row, choices, sizeof choices);
        snprintf(whole, sizeof whole, "%s: %s (%s)", row->help, choices, more);
    } else if (more[0] != '\0') {
        snprintf(whole, sizeof whole, "%s (%s)", row->help, more);
    } else {
        snprintf(whole, sizeof whole, "%s", row->help);
    }
    wrap(whole, FLAG_COLUMN, FLAG_COLUMN);
}

static void print_groups(const struct command *command)
{
    const char *title = "";
    for (size_t g = 0; g < command->n_groups; g++) {
        const struct flag_group *group = &command->groups[g];
        if (strcmp(title, group->title) != 0)
            out_print("\n%s:\n", group->title);
        title = group->title;
        for (size_t i = 0; i < group->n; i++)
            if (!group->rows[i].hidden)
                print_row(&group->rows[i]);
    }
}

static void print_usage(const struct command *command)
{
    out_print("Usage: sluice %s", command->name);
    for (size_t i = 0; i < command->n_operands; i++)
        out_print(command->operands[i].required ? " %s" : " [%s]", command->operands[i].name);
    out_print(" [flags]\n\n");
}

void help_command(const struct command *command)
{
    print_usage(command);
    wrap(command->about, 0, 0);
    if (command->n_operands > 0)
        out_text("\n", 1);
    for (size_t i = 0; i < command->n_operands; i++) {
        int n = (int)strlen(command->operands[i].name) + 2;
        out_print("  %s%*s", command->operands[i].name, FLAG_COLUMN - n, "");
        char help[256];
        operand_help(&command->operands[i], help, sizeof help);
        wrap(help, FLAG_COLUMN, FLAG_COLUMN);
    }
    print_groups(command);
    if (command->examples == NULL)
        return;
    out_print("\nExamples:\n");
    for (const char *line = command->examples; *line != '\0'; line += strcspn(line, "\n") + 1)
        out_print("  %.*s\n", (int)strcspn(line, "\n"), line);
}

void help_program(void)
{
    out_print("Usage: sluice COMMAND [arguments] [flags]\n\n"
              "Runs Mixture-of-Experts language models larger than memory.\n\n");
    for (size_t i = 0; i < n_commands; i++)
        out_print("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    out_print("\n\"sluice help COMMAND\" tells more. \"sluice --version\" prints the version.\n"
              "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n");
}

/* Whether more than one command takes this very row. */
static bool is_shared(const struct flag *row)
{
    size_t takers = 0;
    for (size_t c = 0; c < n_commands; c++)
        for (size_t i = 0; flags_at(commands[c], i, NULL) != NULL; i++)
            takers += flags_at(commands[c], i, NULL) == row;
    return takers > 1;
}

void help_tables(void)
{
    for (size_t c = 0; c < n_commands; c++)
        for (size_t i = 0;; i++) {
            char takes[160];
            const struct flag *row = flags_at(commands[c], i, NULL);
            if (row == NULL)
                break;
            const char *shared = is_shared(row) ? "shared" : "own";
            flag_describe(row, takes, sizeof takes);
            out_print("%s\t%s\t%c\t%s\t%s\t%s\t%s\t%s\t%s\n", commands[c]->name, row->name,
                      row->letter ? row->letter : '-', flag_kind_name(row),
                      flag_repeats(row) ? "repeats" : "once", flag_takes_value(row) ? takes : "-",
                      row->excludes ? row->excludes : "-", row->needs ? row->needs : "-", shared);
        }
}
