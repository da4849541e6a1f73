#include "flags.h"

#include "cli.h"
#include "out.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 64

/* ---- kinds ---- */

/* Read a value into dest; false when it is not what flag_describe() says. */
typedef bool (*value_fn)(const struct flag *row, const char *text, void *dest);

static bool has_range(const struct flag *row)
{
    return row->min < 0 || row->max > 0;
}

static bool in_range(const struct flag *row, double value)
{
    if (!has_range(row))
        return true;
    return (row->above_min ? value > row->min : value >= row->min) && value <= row->max;
}

/* Digits only: strtoull would take signs and spaces. */
static bool read_u64(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || number > max)
        return false;
    *value = number;
    return true;
}

static bool value_u64(const struct flag *row, const char *text, void *dest)
{
    uint64_t number;
    if (!read_u64(text, UINT64_MAX, &number) || !in_range(row, (double)number))
        return false;
    *(uint64_t *)dest = number;
    return true;
}

static bool value_u32(const struct flag *row, const char *text, void *dest)
{
    uint64_t number;
    if (!read_u64(text, UINT32_MAX, &number) || !in_range(row, (double)number))
        return false;
    *(uint32_t *)dest = (uint32_t)number;
    return true;
}

static bool value_u32_or_word(const struct flag *row, const char *text, void *dest)
{
    bool zero = row->zero && strcmp(text, row->zero) == 0;
    if (!zero && (row->most == NULL || strcmp(text, row->most) != 0))
        return value_u32(row, text, dest);
    *(uint32_t *)dest = zero ? 0 : UINT32_MAX;
    return true;
}

/* Decimal notation only: no hexadecimal, infinity or NaN, which strtod would take. */
static bool read_decimal(const char *text, double *value, const char **rest)
{
    char *end;
    const char *digits = text + (*text == '-' || *text == '+');
    if (!isdigit((unsigned char)*digits) && *digits != '.')
        return false;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return false;
    *value = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*value);
}

static bool value_float(const struct flag *row, const char *text, void *dest)
{
    double number;
    const char *rest;
    if (!read_decimal(text, &number, &rest) || *rest != '\0' || fabs(number) > (double)FLT_MAX ||
        !in_range(row, number))
        return false;
    *(float *)dest = (float)number;
    return true;
}

static bool value_size(const struct flag *row, const char *text, void *dest)
{
    static const char suffixes[] = "KMGT";
    double number;
    const char *rest;
    if (!isdigit((unsigned char)text[0]) || !read_decimal(text, &number, &rest))
        return false;
    unsigned shift = 0;
    if (*rest != '\0' && *rest != 'B') {
        const char *found = strchr(suffixes, toupper((unsigned char)*rest));
        if (found == NULL)
            return false;
        shift = 10 * ((unsigned)(found - suffixes) + 1);
        rest++;
        if (*rest == 'i')
            rest++;
    }
    if (*rest == 'B')
        rest++;
    number *= (double)((uint64_t)1 << shift);
    /* 2^63: far above any memory, and exact as a double. */
    if (*rest != '\0' || number >= 9223372036854775808.0 || !in_range(row, number))
        return false;
    *(uint64_t *)dest = (uint64_t)number;
    return true;
}

static bool value_choice(const struct flag *row, const char *text, void *dest)
{
    for (int i = 0; row->choices[i] != NULL; i++)
        if (strcmp(row->choices[i], text) == 0) {
            memcpy(dest, &i, sizeof i);
            return true;
        }
    return false;
}

static bool value_string(const struct flag *row, const char *text, void *dest)
{
    if (strlen(text) < (size_t)row->min)
        return false;
    *(const char **)dest = text;
    return true;
}

static bool value_strings(const struct flag *row, const char *text, void *dest)
{
    struct string_list *list = dest;
    if (strlen(text) < (size_t)row->min)
        return false;
    list->items = must_realloc(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = text;
    return true;
}

static bool value_paths(const struct flag *row, const char *text, void *dest)
{
    sluice_paths *paths = dest;
    if (strlen(text) < (size_t)row->min)
        return false;
    paths->items = must_realloc(paths->items, paths->n + 1, sizeof *paths->items);
    paths->items[paths->n++] = text;
    return true;
}

static bool value_bias(const struct flag *row, const char *text, void *dest)
{
    struct bias_list *list = dest;
    char id_text[16];
    uint64_t id;
    sluice_logit_bias bias;
    const char *colon = strchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof id_text)
        return false;
    memcpy(id_text, text, (size_t)(colon - text));
    id_text[colon - text] = '\0';
    if (!read_u64(id_text, INT32_MAX, &id) || !value_float(row, colon + 1, &bias.bias))
        return false;
    bias.id = (int32_t)id;
    list->items = must_realloc(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = bias;
    return true;
}

/* Comma-separated values, each of which `read` takes. */
static bool read_list(const struct flag *row, const char *text, struct number_list *list, value_fn read)
{
    char item[24];
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ",");
        if (n == 0 || n >= sizeof item)
            return false;
        memcpy(item, p, n);
        item[n] = '\0';
        list->items = must_realloc(list->items, list->n + 1, sizeof *list->items);
        if (!read(row, item, &list->items[list->n]))
            return false;
        list->n++;
        p += n;
        if (*p == '\0')
            return true;
    }
}

static bool value_numbers(const struct flag *row, const char *text, void *dest)
{
    return read_list(row, text, dest, value_u32_or_word);
}

static bool value_true(const struct flag *row, const char *text, void *dest)
{
    (void)row;
    (void)text;
    *(bool *)dest = true;
    return true;
}

static const struct kind {
    const char *name;
    value_fn read;
    bool takes_value, repeats;
} kinds[FLAG_KINDS] = {
    [FLAG_BOOL] = {"bool", value_true, false, false},
    [FLAG_U32] = {"u32", value_u32_or_word, true, false},
    [FLAG_U64] = {"u64", value_u64, true, false},
    [FLAG_SIZE] = {"size", value_size, true, false},
    [FLAG_FLOAT] = {"float", value_float, true, false},
    [FLAG_CHOICE] = {"choice", value_choice, true, false},
    [FLAG_STRING] = {"string", value_string, true, false},
    [FLAG_STRINGS] = {"strings", value_strings, true, true},
    [FLAG_PATHS] = {"paths", value_paths, true, true},
    [FLAG_BIASES] = {"biases", value_bias, true, true},
    [FLAG_NUMBERS] = {"numbers", value_numbers, true, false},
    [FLAG_HELP] = {"help", value_true, false, true},
};

_Static_assert(sizeof(sluice_kv_type) == sizeof(int), "FLAG_CHOICE writes an int");

bool flag_takes_value(const struct flag *row)
{
    return kinds[row->kind].takes_value;
}

bool flag_repeats(const struct flag *row)
{
    return kinds[row->kind].repeats;
}

const char *flag_kind_name(const struct flag *row)
{
    return kinds[row->kind].name;
}

/* ---- what a row takes, in words ---- */

static void describe_range(const struct flag *row, char *out, size_t out_bytes)
{
    if (!has_range(row))
        out[0] = '\0';
    else if (row->above_min)
        snprintf(out, out_bytes, " above %.15g and at most %.15g", row->min, row->max);
    else
        snprintf(out, out_bytes, " from %.15g to %.15g", row->min, row->max);
}

/* ", auto or off": what may stand in a number's place. */
static void describe_words(const struct flag *row, char *out, size_t out_bytes)
{
    const char *first = row->zero ? row->zero : row->most, *second = row->zero ? row->most : NULL;
    snprintf(out, out_bytes, "%s%s%s%s", first ? second ? ", " : ", or " : "", first ? first : "",
             second ? " or " : "", second ? second : "");
}

static void describe_choices(const struct flag *row, char *out, size_t out_bytes)
{
    size_t n = 0;
    for (size_t i = 0; row->choices[i] != NULL; i++) {
        const char *joint = i == 0 ? "" : row->choices[i + 1] == NULL ? " or " : ", ";
        int wrote = snprintf(out + n, out_bytes - n, "%s%s", joint, row->choices[i]);
        if (wrote < 0 || (size_t)wrote >= out_bytes - n)
            return;
        n += (size_t)wrote;
    }
}

void flag_describe(const struct flag *row, char *out, size_t out_bytes)
{
    char range[80], words[80];
    describe_range(row, range, sizeof range);
    describe_words(row, words, sizeof words);
    switch (row->kind) {
    case FLAG_CHOICE:
        describe_choices(row, out, out_bytes);
        break;
    case FLAG_FLOAT:
        snprintf(out, out_bytes, "a number%s", range);
        break;
    case FLAG_NUMBERS:
        snprintf(out, out_bytes, "whole numbers%s%s, separated by commas", range, words);
        break;
    case FLAG_SIZE:
        snprintf(out, out_bytes, "a size such as 512M or 4G");
        break;
    case FLAG_BIASES:
        snprintf(out, out_bytes, "a token id, a colon and a number%s", range);
        break;
    case FLAG_STRING:
    case FLAG_STRINGS:
    case FLAG_PATHS:
        snprintf(out, out_bytes, row->min > 0 ? "a text that is not empty" : "a text");
        break;
    default:
        snprintf(out, out_bytes, "a whole number%s%s", range, words);
        break;
    }
}

/* ---- suggestions ---- */

static size_t least(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    size_t rows[3][NAME_MAX_BYTES + 1];
    if (n > NAME_MAX_BYTES || m > NAME_MAX_BYTES)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(before[j] + 1, now[j - 1] + 1, before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_before[j - 2] + 1 < now[j])
                now[j] = two_before[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

static const struct flag *nearest_flag(const struct command *command, const char *name)
{
    const struct flag *best = NULL;
    size_t best_distance = 1 + strlen(name) / 3;
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return best;
        size_t distance = edit_distance(name, row->name);
        /* "--temp" is near to --temperature although seven letters are missing. */
        if (strlen(name) >= 3 && strncmp(name, row->name, strlen(name)) == 0)
            distance = 1;
        if (distance < best_distance || (best == NULL && distance == best_distance)) {
            best = row;
            best_distance = distance;
        }
    }
}

/* ---- parsing ---- */

const struct flag *flags_at(const struct command *command, size_t i, size_t *base)
{
    for (size_t g = 0; g < command->n_groups; g++) {
        const struct flag_group *group = &command->groups[g];
        if (i < group->n) {
            if (base != NULL)
                *base = group->base;
            return &group->rows[i];
        }
        i -= group->n;
    }
    return NULL;
}

/* Position of a flag over the groups, or FLAGS_MAX. name need not end at n. */
static size_t find_flag(const struct command *command, const char *name, size_t n)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return FLAGS_MAX;
        if (strlen(row->name) == n && memcmp(row->name, name, n) == 0)
            return i;
    }
}

static size_t find_letter(const struct command *command, char letter)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return FLAGS_MAX;
        if (row->letter == letter)
            return i;
    }
}

bool flag_given(const struct parse *parse, const char *name)
{
    size_t i = find_flag(parse->command, name, strlen(name));
    assert(i < FLAGS_MAX);
    return parse->given[i];
}

static void *destination(const struct command *command, size_t i, void *options)
{
    size_t base;
    const struct flag *row = flags_at(command, i, &base);
    return (char *)options + base + row->offset;
}

static bool reject_unknown(const struct command *command, const char *argument)
{
    char shown[QUOTE_BYTES], name[NAME_MAX_BYTES + 1], suggestion[NAME_MAX_BYTES + 3];
    const char *start = argument + strspn(argument, "-");
    size_t n = strcspn(start, "=");
    if (n > NAME_MAX_BYTES)
        n = NAME_MAX_BYTES;
    memcpy(name, start, n);
    name[n] = '\0';
    const struct flag *near = nearest_flag(command, name);
    if (near == NULL) {
        fail_usage("unknown flag %s", quote(argument, shown));
        return false;
    }
    snprintf(suggestion, sizeof suggestion, "--%s", near->name);
    fail_suggest(suggestion, "unknown flag %s", quote(argument, shown));
    return false;
}

static bool take_value(const struct command *command, size_t i, const char *value, void *options,
                       struct parse *parse)
{
    const struct flag *row = flags_at(command, i, NULL);
    char shown[QUOTE_BYTES], takes[160];
    if (parse->given[i] && !kinds[row->kind].repeats) {
        fail_usage("--%s is given more than once", row->name);
        return false;
    }
    parse->given[i] = true;
    if (row->has_offset && !kinds[row->kind].read(row, value, destination(command, i, options))) {
        flag_describe(row, takes, sizeof takes);
        fail_usage("--%s takes %s, not %s", row->name, takes, quote(value, shown));
        return false;
    }
    return true;
}

/* Whether an argument looks like one of this command's flags: then it is no value. */
static bool is_known_flag(const struct command *command, const char *argument)
{
    return strncmp(argument, "--", 2) == 0 && argument[2] != '\0' &&
           find_flag(command, argument + 2, strcspn(argument + 2, "=")) < FLAGS_MAX;
}

/* One flag with its value. *used gets 1, or 2 when the value is the next argument. */
static enum flags_outcome parse_flag(const struct command *command, int argc, char **argv, void *options,
                                     struct parse *parse, int *used)
{
    const char *argument = argv[0], *value = NULL;
    size_t i;
    *used = 1;
    if (argument[1] == '-') {
        size_t n = strcspn(argument + 2, "=");
        i = find_flag(command, argument + 2, n);
        if (argument[2 + n] == '=')
            value = argument + 2 + n + 1;
    } else {
        i = find_letter(command, argument[1]);
        if (argument[2] != '\0')
            value = argument + 2 + (argument[2] == '=');
    }
    if (i == FLAGS_MAX)
        return reject_unknown(command, argument) ? FLAGS_OK : FLAGS_BAD;
    const struct flag *row = flags_at(command, i, NULL);
    if (row->kind == FLAG_HELP)
        return FLAGS_SHOW_HELP;
    if (!kinds[row->kind].takes_value) {
        if (value == NULL)
            return take_value(command, i, "", options, parse) ? FLAGS_OK : FLAGS_BAD;
        fail_usage("--%s takes no value", row->name);
        return FLAGS_BAD;
    }
    if (value == NULL) {
        if (argc < 2 || is_known_flag(command, argv[1])) {
            fail_usage("--%s needs a value: --%s %s", row->name, row->name, row->value);
            return FLAGS_BAD;
        }
        value = argv[1];
        *used = 2;
    }
    return take_value(command, i, value, options, parse) ? FLAGS_OK : FLAGS_BAD;
}

/* The first name in a comma-separated list that was given, or NULL. */
static const struct flag *first_given(const struct parse *parse, const char *names)
{
    while (names != NULL && *names != '\0') {
        size_t n = strcspn(names, ",");
        size_t i = find_flag(parse->command, names, n);
        assert(i < FLAGS_MAX);
        if (parse->given[i])
            return flags_at(parse->command, i, NULL);
        names += n + (names[n] == ',');
    }
    return NULL;
}

static bool check_relations(const struct parse *parse)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(parse->command, i, NULL), *other;
        if (row == NULL)
            return true;
        if (!parse->given[i])
            continue;
        if ((other = first_given(parse, row->excludes)) != NULL) {
            fail_usage("--%s and --%s cannot be given together", row->name, other->name);
            return false;
        }
        if (row->needs != NULL && first_given(parse, row->needs) == NULL) {
            const char *comma = strchr(row->needs, ',');
            int first = comma == NULL ? (int)strlen(row->needs) : (int)(comma - row->needs);
            fail_usage("--%s needs --%.*s%s%s as well", row->name, first, row->needs, comma ? " or --" : "",
                       comma ? comma + 1 : "");
            return false;
        }
    }
}

static bool take_operand(const struct command *command, size_t n, const char *argument, void *options)
{
    char shown[QUOTE_BYTES];
    if (n >= command->n_operands) {
        fail_usage("unexpected argument %s", quote(argument, shown));
        return false;
    }
    if (argument[0] == '\0' && command->operands[n].required) {
        fail_usage("%s is empty", command->operands[n].name);
        return false;
    }
    *(const char **)((char *)options + command->operands[n].offset) = argument;
    return true;
}

static void apply_presets(const struct command *command, void *options)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return;
        assert(i < FLAGS_MAX);
        if (row->preset != NULL) {
            bool fits = kinds[row->kind].read(row, row->preset, destination(command, i, options));
            assert(fits);
            (void)fits;
        }
    }
}

enum flags_outcome flags_parse(const struct command *command, int argc, char **argv, void *options,
                               struct parse *parse)
{
    size_t n_operands = 0;
    bool flags_over = false;
    *parse = (struct parse){.command = command};
    apply_presets(command, options);
    for (int i = 0, used = 1; i < argc; i += used) {
        used = 1;
        if (!flags_over && strcmp(argv[i], "--") == 0) {
            flags_over = true;
        } else if (!flags_over && argv[i][0] == '-' && argv[i][1] != '\0') {
            enum flags_outcome outcome = parse_flag(command, argc - i, argv + i, options, parse, &used);
            if (outcome != FLAGS_OK)
                return outcome;
        } else if (!take_operand(command, n_operands++, argv[i], options)) {
            return FLAGS_BAD;
        }
    }
    if (n_operands < command->n_operands && command->operands[n_operands].required) {
        fail_usage("%s is missing (%s)", command->operands[n_operands].name,
                   command->operands[n_operands].help);
        return FLAGS_BAD;
    }
    return check_relations(parse) ? FLAGS_OK : FLAGS_BAD;
}

void flags_release(const struct command *command, void *options)
{
    for (size_t i = 0;; i++) {
        const struct flag *row = flags_at(command, i, NULL);
        if (row == NULL)
            return;
        if (row->kind == FLAG_STRINGS)
            free(((struct string_list *)destination(command, i, options))->items);
        else if (row->kind == FLAG_PATHS)
            free(((sluice_paths *)destination(command, i, options))->items);
        else if (row->kind == FLAG_BIASES)
            free(((struct bias_list *)destination(command, i, options))->items);
        else if (row->kind == FLAG_NUMBERS)
            free(((struct number_list *)destination(command, i, options))->items);
    }
}
