#define PCRE2_CODE_UNIT_WIDTH 8

#include "text/regex.h"

#include "base/ascii.h"
#include "base/mem.h"

#include <pcre2.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct regex {
    pcre2_code *code;
    pcre2_general_context *general;
};

/* ---- dialect ---- */

/* Oniguruma's \s is White_Space; PCRE2's adds U+180E. Its \w is Alphabetic, M, Nd, Pc and, outside classes,
 * six fractions and superscripts of Latin-1; PCRE2's is L, N and the underscore. So both are written out.
 * (What neither can make equal is the Unicode version: characters that are newer than PCRE2's tables have no
 * class here.) */
#define SPACE_RANGES                                                                                         \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"   \
    "\\x{3000}"
#define NOT_SPACE_RANGES                                                                                     \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"       \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD_RANGES "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_LATIN1 "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define WORD        "[" WORD_RANGES WORD_LATIN1 "]"
#define HEX_RANGES  "0-9A-Fa-f"

/* Escapes that mean the same, or are rewritten; NULL: not there. Other letters and digits are refused. */
static const struct escape {
    char letter;
    const char *outside, *in_class;
} ESCAPES[] = {
    {'s', "[" SPACE_RANGES "]", SPACE_RANGES},
    {'S', "[^" SPACE_RANGES "]", NOT_SPACE_RANGES},
    {'w', WORD, WORD_RANGES},
    {'W', "[^" WORD_RANGES WORD_LATIN1 "]", NULL},
    {'d', "\\p{Nd}", "\\p{Nd}"},
    {'D', "\\P{Nd}", "\\P{Nd}"},
    {'h', "[" HEX_RANGES "]", HEX_RANGES},
    {'H', "[^" HEX_RANGES "]", NULL},
    {'b', "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))", "\\x{08}"},
    {'B', "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))", NULL},
    {'A', "\\A", NULL},
    {'Z', "\\Z", NULL},
    {'z', "\\z", NULL},
    {'t', "\\x{09}", "\\x{09}"},
    {'n', "\\x{0a}", "\\x{0a}"},
    {'v', "\\x{0b}", "\\x{0b}"},
    {'f', "\\x{0c}", "\\x{0c}"},
    {'r', "\\x{0d}", "\\x{0d}"},
    {'a', "\\x{07}", "\\x{07}"},
    {'e', "\\x{1b}", "\\x{1b}"},
};

/* Property names: PCRE2 10.42 knows categories by their short names and binary properties by their long
 * ones; everything else is taken for a script. */
static const struct property {
    const char *name, *pcre;
} PROPERTIES[] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Any", "Any"},
    {"Alphabetic", "Alphabetic"},
    {"Uppercase", "Uppercase"},
    {"Lowercase", "Lowercase"},
    {"White_Space", "White_Space"},
    {"Emoji", "Emoji"},
    {"Ideographic", "Ideographic"},
};

struct translator {
    const char *p, *where;
    size_t n, at;
    struct str *out;
    sluice_error *err;
    bool no_memory;
    bool caseless; /* some group ignores case */
    char letter;   /* the last item when it was a lower-case ASCII letter, or NUL */
};

static void put(struct translator *t, const char *text)
{
    if (!str_puts(t->out, text))
        t->no_memory = true;
}

static void put_byte(struct translator *t, char c)
{
    if (!str_putc(t->out, c))
        t->no_memory = true;
}

static sluice_status refuse(struct translator *t, const char *what)
{
    return err_set(t->err, SLUICE_E_UNSUPPORTED, "%s: %s in a regular expression is not supported", t->where,
                   what);
}

/* A code point as \x{…}; `digits` hexadecimal digits are next. */
static sluice_status hex_escape(struct translator *t, size_t digits, const char *what)
{
    size_t have = 0;
    while (have < digits && t->at + have < t->n && strchr("0123456789abcdefABCDEF", t->p[t->at + have]) &&
           t->p[t->at + have])
        have++;
    /* A byte of 80 or more is part of a sequence for Oniguruma and a code point for PCRE2. */
    if (have != digits || (digits == 2 && t->p[t->at] > '7'))
        return refuse(t, what);
    put(t, "\\x{");
    for (size_t i = 0; i < digits; i++)
        put_byte(t, t->p[t->at++]);
    put(t, "}");
    return SLUICE_OK;
}

static sluice_status property_escape(struct translator *t, char letter)
{
    char name[64];
    size_t length = 0;
    bool negated = letter == 'P';
    if (t->at >= t->n || t->p[t->at] != '{')
        return refuse(t, "\\p without braces");
    t->at++;
    if (t->at < t->n && t->p[t->at] == '^') {
        negated = !negated;
        t->at++;
    }
    while (t->at < t->n && t->p[t->at] != '}') {
        char c = t->p[t->at++];
        bool plain = ascii_is_letter(c) || c == '_' || c == ' ' || c == '-';
        if (!plain || length + 1 >= sizeof name)
            return refuse(t, "an unusual \\p{…}");
        name[length++] = c;
    }
    name[length] = '\0';
    if (t->at >= t->n || length == 0)
        return refuse(t, "an unfinished \\p{…}");
    t->at++;
    const char *known = length <= 2 ? name : NULL;
    for (size_t i = 0; !known && i < sizeof PROPERTIES / sizeof *PROPERTIES; i++)
        if (strcasecmp(name, PROPERTIES[i].name) == 0)
            known = PROPERTIES[i].pcre;
    put(t, negated ? "\\P{" : "\\p{");
    if (!known)
        put(t, "sc:"); /* PCRE2 would take Script_Extensions */
    put(t, known ? known : name);
    put(t, "}");
    return SLUICE_OK;
}

/* Oniguruma folds ß to "ss" and ﬁ to "fi"; PCRE2 compares single characters. A caseless expression that could
 * tell the two apart is refused. */
static sluice_status check_fold(struct translator *t, char c)
{
    static const char *const FOLDS[] = {"ss", "st", "ff", "fi", "fl"};
    char lower = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    for (size_t i = 0; t->caseless && i < sizeof FOLDS / sizeof *FOLDS; i++)
        if (t->letter == FOLDS[i][0] && lower == FOLDS[i][1])
            return refuse(t, "a pair of letters that has a ligature, ignoring case,");
    t->letter = lower >= 'a' && lower <= 'z' ? lower : '\0';
    return SLUICE_OK;
}

/* t->at is behind the backslash. */
static sluice_status escape(struct translator *t, bool in_class)
{
    if (t->at >= t->n)
        return refuse(t, "a backslash at the end");
    char c = t->p[t->at++];
    if (c == 'p' || c == 'P')
        return property_escape(t, c);
    if (c == 'u')
        return hex_escape(t, 4, "\\u");
    if (c == 'x' && t->at < t->n && t->p[t->at] == '{') {
        put(t, "\\x{");
        for (t->at++; t->at < t->n && t->p[t->at] != '}'; t->at++) {
            if (!strchr("0123456789abcdefABCDEF", t->p[t->at]) || !t->p[t->at])
                return refuse(t, "an unusual \\x{…}");
            put_byte(t, t->p[t->at]);
        }
        put(t, "}");
        return t->at++ < t->n ? SLUICE_OK : refuse(t, "an unfinished \\x{…}");
    }
    if (c == 'x')
        return hex_escape(t, 2, "\\x of a single byte");
    for (size_t i = 0; i < sizeof ESCAPES / sizeof *ESCAPES; i++) {
        if (ESCAPES[i].letter != c)
            continue;
        const char *text = in_class ? ESCAPES[i].in_class : ESCAPES[i].outside;
        if (!text)
            break;
        put(t, text);
        return SLUICE_OK;
    }
    if (ascii_is_alnum(c) || c == '\0') {
        char what[32] = "\\? in a character class";
        what[1] = c ? c : '0';
        if (!in_class)
            what[2] = '\0';
        return refuse(t, what);
    }
    /* Punctuation stands for itself; so does any character beyond ASCII, which needs no backslash. */
    if ((unsigned char)c < 0x80)
        put_byte(t, '\\');
    put_byte(t, c);
    return SLUICE_OK;
}

static sluice_status class(struct translator *t)
{
    put_byte(t, '[');
    t->at++;
    if (t->at < t->n && t->p[t->at] == '^') {
        put_byte(t, '^');
        t->at++;
    }
    for (bool first = true; t->at < t->n; first = false) {
        char c = t->p[t->at];
        if (c == ']' && !first) {
            t->at++;
            put_byte(t, ']');
            return SLUICE_OK;
        }
        if (c == '[')
            return refuse(t, "a class inside a class");
        if (c == '&' && t->at + 1 < t->n && t->p[t->at + 1] == '&')
            return refuse(t, "&& in a class");
        t->at++;
        if (c == '\\')
            TRY(escape(t, true));
        else if (c == '\0')
            return refuse(t, "a NUL character");
        else if (c == ']')
            put(t, "\\]");
        else
            put_byte(t, c);
    }
    return refuse(t, "an unfinished class");
}

/* (?… with t->at at the parenthesis. */
static sluice_status group(struct translator *t)
{
    const char *p = t->p + t->at;
    size_t left = t->n - t->at;
    if (left >= 2 && p[1] == '*')
        return refuse(t, "(*…)");
    if (left < 2 || p[1] != '?') {
        t->at++;
        put(t, "(?:"); /* nothing refers to a group, so none captures */
        return SLUICE_OK;
    }
    static const char *const PLAIN[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++) {
        size_t length = strlen(PLAIN[i]);
        if (left >= length && memcmp(p, PLAIN[i], length) == 0) {
            put(t, PLAIN[i]);
            t->at += length;
            return SLUICE_OK;
        }
    }
    size_t i = 2;
    while (i < left && (p[i] == 'i' || p[i] == 'm' || p[i] == '-'))
        i++;
    /* Options without a colon reach over alternatives in Oniguruma; at the very start that is the same. */
    bool scoped = i < left && p[i] == ':', global = i < left && p[i] == ')' && t->at == 0;
    if (i == 2 || (!scoped && !global))
        return refuse(t, "this kind of (?…) group");
    for (size_t k = 0; k <= i; k++) {
        put_byte(t, p[k] == 'm' ? 's' : p[k]); /* Oniguruma's m lets the dot match newlines */
        t->caseless |= p[k] == 'i';
    }
    t->at += i + 1;
    return SLUICE_OK;
}

/* A brace: an interval, or a literal as Oniguruma takes anything else. */
static sluice_status brace(struct translator *t)
{
    size_t i = t->at + 1, low = 0, high = 0;
    while (i < t->n && t->p[i] >= '0' && t->p[i] <= '9')
        i++, low++;
    bool comma = i < t->n && t->p[i] == ',';
    if (comma)
        for (i++; i < t->n && t->p[i] >= '0' && t->p[i] <= '9'; i++)
            high++;
    if (i >= t->n || t->p[i] != '}' || low + high == 0) {
        t->at++;
        put(t, "\\{");
        return SLUICE_OK;
    }
    char next = i + 1 < t->n ? t->p[i + 1] : '\0';
    if (next == '+' || (next == '?' && !comma))
        return refuse(t, "a modifier behind {n}");
    put(t, low ? "{" : "{0");
    for (size_t k = t->at + 1; k <= i; k++)
        put_byte(t, t->p[k]);
    t->at = i + 1;
    return SLUICE_OK;
}

sluice_status regex_translate(const char *pattern, size_t n, const char *where, struct str *out,
                              sluice_error *err)
{
    struct translator t = {.p = pattern, .where = where, .n = n, .out = out, .err = err};
    if (n > REGEX_BYTES_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED, "%s: a regular expression has %zu bytes, the limit is %d",
                       where, n, REGEX_BYTES_MAX);
    while (t.at < n && !t.no_memory) {
        char c = pattern[t.at];
        TRY(check_fold(&t, c));
        if (c == '\\') {
            t.at++;
            TRY(escape(&t, false));
        } else if (c == '[') {
            TRY(class(&t));
        } else if (c == '(') {
            TRY(group(&t));
        } else if (c == '{') {
            TRY(brace(&t));
        } else if (c == '\0') {
            return refuse(&t, "a NUL character");
        } else {
            put_byte(&t, c);
            t.at++;
        }
    }
    return t.no_memory ? err_memory(err, n, where) : SLUICE_OK;
}

/* ---- compiling ---- */

static void *hook_alloc(size_t bytes, void *unused)
{
    (void)unused;
    return mem_alloc(bytes);
}

static void hook_free(void *memory, void *unused)
{
    (void)unused;
    mem_free(memory);
}

static sluice_status compile(struct regex *regex, const struct str *text, const char *where,
                             sluice_error *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(regex->general);
    if (!context)
        return err_memory(err, text->len, where);
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* Oniguruma's ^ and $ always mean lines. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int code;
    PCRE2_SIZE at;
    regex->code = pcre2_compile((PCRE2_SPTR)text->p, text->len, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (regex->code)
        return SLUICE_OK;
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return err_memory(err, text->len, where);
    char reason[128];
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    return err_set(err, SLUICE_E_UNSUPPORTED, "%s: the regular expression was refused: %s", where, reason);
}

sluice_status regex_open(struct regex **out, const char *pattern, size_t n, const char *where,
                         sluice_error *err)
{
    *out = NULL;
    struct str text = {0};
    struct regex *regex = mem_calloc(1, sizeof *regex);
    sluice_status status = SLUICE_OK;
    if (!regex || !str_reserve(&text, n)) {
        status = err_memory(err, n, where);
        goto out;
    }
    TRY_OUT(regex_translate(pattern, n, where, &text, err));
    regex->general = pcre2_general_context_create(hook_alloc, hook_free, NULL);
    if (!regex->general) {
        status = err_memory(err, n, where);
        goto out;
    }
    TRY_OUT(compile(regex, &text, where, err));
    /* Without the just-in-time compiler the interpreter gives the same matches, slower. */
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    *out = regex;
    regex = NULL;
out:
    regex_close(regex);
    str_free(&text);
    return status;
}

void regex_close(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    pcre2_general_context_free(regex->general);
    mem_free(regex);
}

/* ---- matching ---- */

enum {
    STEPS_MIN = 10000000, /* backtracking steps allowed to one search, and as many per byte again */
    STEPS_PER_BYTE = 8,
    HEAP_KIB = 65536,
    JIT_STACK_BYTES = 4 << 20,
};

void regex_run_close(struct regex_run *run)
{
    pcre2_match_data_free(run->data);
    pcre2_match_context_free(run->match);
    pcre2_jit_stack_free(run->stack);
    pcre2_general_context_free(run->general);
    memset(run, 0, sizeof *run);
}

static bool run_ready(struct regex_run *run)
{
    if (run->data)
        return true;
    if (!run->general)
        run->general = pcre2_general_context_create(hook_alloc, hook_free, NULL);
    if (run->general && !run->match)
        run->match = pcre2_match_context_create(run->general);
    if (!run->match)
        return false;
    (void)pcre2_set_heap_limit(run->match, HEAP_KIB);
    if (!run->stack)
        run->stack = pcre2_jit_stack_create(32768, JIT_STACK_BYTES, run->general);
    if (!run->stack)
        return false;
    pcre2_jit_stack_assign(run->match, NULL, run->stack);
    run->data = pcre2_match_data_create(1, run->general);
    return run->data != NULL;
}

sluice_status regex_find(const struct regex *regex, struct regex_run *run, const char *text, size_t n,
                         size_t at, bool *found, size_t *start, size_t *end, sluice_error *err)
{
    *found = false;
    if (!run_ready(run))
        return err_memory(err, JIT_STACK_BYTES, "matching a regular expression");
    size_t steps = STEPS_MIN + (n - at) * STEPS_PER_BYTE;
    (void)pcre2_set_match_limit(run->match, steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps);
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int rc = pcre2_match(regex->code, subject, n, at, PCRE2_NO_UTF_CHECK, run->data, run->match);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(regex->code, subject, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->data,
                         run->match);
    if (rc == PCRE2_ERROR_NOMATCH)
        return SLUICE_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_memory(err, n, "matching a regular expression");
    if (rc < 0)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "a regular expression of tokenizer.json gave up on a text of %zu bytes (error %d); "
                       "pass the text in smaller parts",
                       n, rc);
    const PCRE2_SIZE *where = pcre2_get_ovector_pointer(run->data);
    *found = true;
    *start = where[0];
    *end = where[1];
    return SLUICE_OK;
}
