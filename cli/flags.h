/* Table-driven flags. A row says everything about a flag: spelling, kind, range, default, help, and where its
 * value goes. Nothing else parses the command line, and the help text, the manual page and the completion
 * scripts are printed from the same rows, so they cannot disagree.
 *
 * Values are written into one options structure per command, at the group's base plus the row's offset; AT()
 * checks the field's type at compile time. Lists are released by flags_release(). */
#ifndef CLI_FLAGS_H
#define CLI_FLAGS_H

#include "sluice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command;

enum flag_kind {
    FLAG_BOOL,    /* bool */
    FLAG_U32,     /* uint32_t */
    FLAG_U64,     /* uint64_t */
    FLAG_SIZE,    /* uint64_t in bytes: 4096, 512M, 1.5GiB */
    FLAG_FLOAT,   /* float */
    FLAG_CHOICE,  /* an int-sized enum: the index into choices */
    FLAG_STRING,  /* const char * */
    FLAG_STRINGS, /* struct string_list; may be repeated */
    FLAG_PATHS,   /* sluice_paths; may be repeated */
    FLAG_BIASES,  /* struct bias_list: ID:BIAS; may be repeated */
    FLAG_NUMBERS, /* struct number_list: uint32_t values, comma separated */
    FLAG_HELP,    /* ends parsing and prints the command's help */
    FLAG_KINDS
};

struct string_list {
    const char **items;
    size_t n;
};

struct number_list {
    uint32_t *items;
    size_t n;
};

struct bias_list {
    sluice_logit_bias *items;
    size_t n;
};

struct flag {
    const char *name; /* without dashes */
    char letter;      /* short form, or 0 */
    bool above_min;   /* the range of a FLAG_FLOAT excludes min */
    bool hidden;      /* in the manual page only */
    bool has_offset;  /* false: parse->given is all there is to know */
    enum flag_kind kind;
    const char *value; /* the value's name in help; NULL without one */
    size_t offset;
    double min, max; /* numbers; both 0: whatever the type holds. Strings: min is the least length */
    const char *const *choices; /* FLAG_CHOICE, NULL-ended, in the order of the enum */
    /* FLAG_U32, FLAG_NUMBERS: words that mean 0 and UINT32_MAX, which the range leaves out */
    const char *zero, *most;
    const char *preset;    /* parsed first, as if given, and shown as the default */
    const char *otherwise; /* shown as the default when there is no preset */
    const char *help;      /* a clause: lower case, no full stop */
    const char *excludes;  /* names, comma separated, that cannot be given as well */
    const char *needs;     /* names, comma separated, one of which must be given as well */
};

/* The offset of a member, if its type is the one that the row's kind writes. A type cannot stand in
 * parentheses there. */
// NOLINTBEGIN(bugprone-macro-parentheses)
#define AT(structure, member, type)                                                                          \
    .has_offset = true, .offset = _Generic(((structure *)0)->member, type : offsetof(structure, member))
// NOLINTEND(bugprone-macro-parentheses)

struct flag_group {
    const char *title; /* heading in help; consecutive groups of one title are shown together */
    const struct flag *rows;
    size_t n;
    size_t base; /* added to every row's offset */
};

/* An operand of this name is an install: its value may be a path, or a name of the models directory, which
 * main() replaces by the path before the command runs. */
#define OPERAND_INSTALL "INSTALL"

struct operand {
    const char *name; /* in help: "INSTALL" */
    bool required;
    size_t offset; /* of a const char * */
    const char *help;
};

#define FLAGS_MAX 64

/* Which flags were on the command line. */
struct parse {
    const struct command *command;
    bool given[FLAGS_MAX]; /* by position over the groups */
};

/* The i-th flag over all groups of a command, or NULL past the end. `base` may be NULL. */
const struct flag *flags_at(const struct command *command, size_t i, size_t *base);

enum flags_outcome { FLAGS_OK, FLAGS_SHOW_HELP, FLAGS_BAD };

/* Apply presets, then argv[0..argc) (which starts after the subcommand's name). On FLAGS_BAD one sentence has
 * been printed. */
enum flags_outcome flags_parse(const struct command *command, int argc, char **argv, void *options,
                               struct parse *parse);
/* Release the lists in options. */
void flags_release(const struct command *command, void *options);

/* Whether a flag of this command was given; the name must be in the tables. */
bool flag_given(const struct parse *parse, const char *name);

/* What values a row takes, for people: "a whole number from 1 to 64". */
void flag_describe(const struct flag *row, char *out, size_t out_bytes);
bool flag_takes_value(const struct flag *row);
bool flag_repeats(const struct flag *row);
/* The kind in one word ("size"), for the table dump. */
const char *flag_kind_name(const struct flag *row);

/* Edits (insert, delete, replace, swap neighbours) between two names. */
size_t edit_distance(const char *a, const char *b);

#endif
