/* Completion scripts for bash and zsh, from the tables. */
#include "help.h"
#include "out.h"

#include <string.h>

static void flag_words(const struct command *command, const char *gap)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return;
        if (!row->hidden)
            out_print("%s--%s", i > 0 ? gap : "", row->name);
    }
}

static void command_words(void)
{
    for (size_t c = 0; c < n_commands; c++)
        out_print("%s%s", c > 0 ? " " : "", commands[c]->name);
}

static void choice_words(const struct flag *row)
{
    for (size_t i = 0; row->choices[i] != NULL; i++)
        out_print("%s%s", i > 0 ? " " : "", row->choices[i]);
}

/* Whether files are worth offering for a value. */
static bool takes_path(const struct flag *row)
{
    static const char *const values[] = {"FILE", "DIR", "X.gturbo"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (row->value != NULL && strcmp(row->value, values[i]) == 0)
            return true;
    return false;
}

/* A line "--kv) words ;;" for each kind of value, once for each flag name. */
static void bash_values(const struct command *command)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return;
        if (row->hidden || !flag_takes_value(row))
            continue;
        out_print("        %s:--%s) ", command->name, row->name);
        if (row->kind == FLAG_CHOICE) {
            out_print("COMPREPLY=($(compgen -W \"");
            choice_words(row);
            out_print("\" -- \"$word\"))");
        } else if (takes_path(row)) {
            out_print("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"))");
        } else {
            out_print("COMPREPLY=()");
        }
        out_print("; return ;;\n");
    }
}

void help_completion_bash(void)
{
    out_print("# bash completion for sluice; made by \"sluice help --completion bash\".\n"
              "_sluice()\n{\n"
              "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
              "command=${COMP_WORDS[1]}\n"
              "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
              "        COMPREPLY=($(compgen -W \"");
    command_words();
    out_print(" --help --version\" -- \"$word\"))\n        return\n    fi\n"
              "    if [ \"$command\" = help ] && [[ $word != -* ]]; then\n"
              "        COMPREPLY=($(compgen -W \"");
    command_words();
    out_print("\" -- \"$word\"))\n        return\n    fi\n"
              "    case $command:$before in\n");
    for (size_t c = 0; c < n_commands; c++)
        bash_values(commands[c]);
    out_print("    esac\n"
              "    if [[ $word != -* ]]; then\n"
              "        compopt -o filenames\n        COMPREPLY=($(compgen -f -- \"$word\"))\n        "
              "return\n    fi\n"
              "    case $command in\n");
    for (size_t c = 0; c < n_commands; c++) {
        out_print("        %s) COMPREPLY=($(compgen -W \"", commands[c]->name);
        flag_words(commands[c], " ");
        out_print("\" -- \"$word\")) ;;\n");
    }
    out_print("    esac\n}\ncomplete -F _sluice sluice\n");
}

/* Inside single quotes of a zsh specification: quotes, brackets and colons have meanings there. */
static void zsh_text(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'')
            out_print("'\\''");
        else if (strchr("[]:\\", *p) != NULL)
            out_print("\\%c", *p);
        else
            out_text(p, 1);
    }
}

static void zsh_row(const struct flag *row)
{
    out_print("                '%s--%s%s[", flag_repeats(row) ? "*" : "", row->name,
              flag_takes_value(row) ? "=" : "");
    zsh_text(row->help);
    out_print("]");
    if (flag_takes_value(row)) {
        out_print(":");
        zsh_text(row->value);
        out_print(":");
        if (row->kind == FLAG_CHOICE) {
            out_print("(");
            choice_words(row);
            out_print(")");
        } else if (takes_path(row)) {
            out_print("_files");
        }
    }
    out_print("' \\\n");
}

void help_completion_zsh(void)
{
    out_print("#compdef sluice\n# zsh completion for sluice; made by \"sluice help --completion zsh\".\n"
              "_sluice()\n{\n    local -a commands\n    commands=(\n");
    for (size_t c = 0; c < n_commands; c++) {
        out_print("        '%s:", commands[c]->name);
        zsh_text(commands[c]->summary);
        out_print("'\n");
    }
    out_print("    )\n"
              "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
              "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
              "    case $command in\n");
    for (size_t c = 0; c < n_commands; c++) {
        const struct command *command = commands[c];
        out_print("        %s)\n            _arguments \\\n", command->name);
        for (size_t i = 0;; i++) {
            const struct flag *row = flags_at(command, i, NULL);
            if (row == NULL)
                break;
            if (!row->hidden)
                zsh_row(row);
        }
        out_print(strcmp(command->name, "help") == 0 ? "                '1:command:("
                                                     : "                '*:file:_files'\n");
        if (strcmp(command->name, "help") == 0) {
            command_words();
            out_print(")'\n");
        }
        out_print("            ;;\n");
    }
    out_print("    esac\n}\n_sluice \"$@\"\n");
}
