/* The manual page, in troff, from the tables. */
#include "help.h"
#include "out.h"

#include <stdio.h>
#include <string.h>

/* Text with troff's own characters made harmless. */
static void troff(const char *text)
{
    bool line_start = true;
    for (const char *p = text; *p != '\0'; p++) {
        if (line_start && (*p == '.' || *p == '\''))
            out_text("\\&", 2);
        line_start = *p == '\n';
        if (*p == '\\')
            out_text("\\e", 2);
        else if (*p == '-')
            out_text("\\-", 2);
        else if (*p == '\'')
            out_text("\\(aq", 4);
        else
            out_text(p, 1);
    }
}

static void paragraphs(const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        char line[1200];
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        troff(line);
        text += n;
        text += strspn(text, "\n");
        out_print(*text != '\0' ? "\n.PP\n" : "\n");
    }
}

static void manual_row(const struct flag *row)
{
    char takes[160], preset[256];
    out_print(".TP\n");
    if (row->letter != '\0')
        out_print("\\fB\\-%c\\fR, ", row->letter);
    out_print("\\fB\\-\\-");
    troff(row->name);
    out_print("\\fR");
    if (row->value != NULL) {
        out_print(" \\fI");
        troff(row->value);
        out_print("\\fR");
    }
    out_text("\n", 1);
    troff(row->help);
    if (flag_takes_value(row) && row->kind != FLAG_STRING && row->kind != FLAG_STRINGS &&
        row->kind != FLAG_PATHS) {
        flag_describe(row, takes, sizeof takes);
        out_print("; takes ");
        troff(takes);
    }
    help_default(row, preset, sizeof preset);
    if (preset[0] != '\0') {
        out_print(" (");
        troff(preset);
        out_text(")", 1);
    }
    out_print(".\n");
}

static void manual_command(const struct command *command)
{
    out_print(".SS \"sluice ");
    troff(command->name);
    for (size_t i = 0; i < command->n_operands; i++)
        out_print(command->operands[i].required ? " %s" : " [%s]", command->operands[i].name);
    out_print("\"\n");
    paragraphs(command->about);
    for (size_t i = 0; i < command->n_operands; i++) {
        out_print(".TP\n\\fI");
        troff(command->operands[i].name);
        out_print("\\fR\n");
        char help[256];
        operand_help(&command->operands[i], help, sizeof help);
        troff(help);
        out_print(".\n");
    }
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return;
        manual_row(row);
    }
}

static void manual_examples(void)
{
    out_print(".SH EXAMPLES\n");
    for (size_t c = 0; c < n_commands; c++) {
        const char *line = commands[c]->examples;
        for (; line != NULL && *line != '\0'; line += strcspn(line, "\n") + 1) {
            char text[256];
            snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
            out_print(".PP\n.EX\n");
            troff(text);
            out_print("\n.EE\n");
        }
    }
}

void help_manual(void)
{
    out_print(".TH SLUICE 1 \"\" \"Sluice %s\" \"User Commands\"\n"
              ".SH NAME\nsluice \\- run Mixture\\-of\\-Experts language models larger than memory\n"
              ".SH SYNOPSIS\n\\fBsluice\\fR \\fICOMMAND\\fR [arguments] [flags]\n"
              ".SH DESCRIPTION\n"
              "The weights that every token needs stay in memory; experts are read from disk as the model "
              "chooses them, "
              "into a cache of bounded size. Placement changes the speed and never the output.\n.PP\n"
              "A flag's value follows it or an equals sign: \\fB\\-\\-context 8192\\fR, "
              "\\fB\\-\\-context=8192\\fR. \\fB\\-\\-\\fR ends the flags. Sizes take the suffixes K, M, G "
              "and T, powers "
              "of 1024. Data goes to standard output, everything else to standard error.\n"
              ".SH COMMANDS\n",
              SLUICE_VERSION);
    for (size_t c = 0; c < n_commands; c++)
        manual_command(commands[c]);
    out_print(
        ".SH EXIT STATUS\n"
        ".TP\n0\nDone.\n.TP\n1\nFailed: the reason is on standard error. Also a check that did not pass, and "
        "traces that differ.\n.TP\n2\nThe command line makes no sense.\n.TP\n130\nInterrupted by Ctrl\\-C.\n"
        ".SH FILES\n"
        ".TP\n\\fI$XDG_STATE_HOME/sluice/chat_history\\fR\nWhat was typed in chats; "
        "\\fI~/.local/state\\fR stands for the directory when the variable is not set.\n"
        ".TP\n\\fI~/.editrc\\fR\nKeys for editing lines in chats, see \\fBeditrc\\fR(5).\n");
    manual_examples();
}
