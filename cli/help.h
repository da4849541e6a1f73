/* Everything that is printed from the tables of commands and flags: help, manual page, completion scripts,
 * and a dump of the tables for the tests. All of it goes to standard output. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli.h"

void help_program(void);
void help_command(const struct command *command);
/* troff, for `man`. */
void help_manual(void);
void help_completion_bash(void);
void help_completion_zsh(void);
/* One line for each flag: command, flag, letter, kind, once or repeats, values, excludes, needs, shared
 * or own; tab separated, - for none. */
void help_tables(void);

/* What an operand is, in words. */
void operand_help(const struct operand *operand, char *out, size_t out_bytes);
/* "default: ..." of a row, or an empty text. */
void help_default(const struct flag *row, char *out, size_t out_bytes);

#endif
