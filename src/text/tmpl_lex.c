#include "base/ascii.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/tmpl_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Tokens are made in Jinja's order of events, because its white-space control depends on it: what a block's
 * end swallows is decided before the next block's beginning strips. */

struct lexer {
    struct tmpl_arena *arena;
    const char *p;
    size_t n, at;
    int line;
    struct str tokens; /* of struct tmpl_token */
    bool line_start;   /* the last thing read ended a line */
    sluice_error *err;
};

static sluice_status fail(const struct lexer *l, const char *what)
{
    return err_set(l->err, SLUICE_E_FORMAT, TMPL_FILE " line %d: %s", l->line, what);
}

static sluice_status add(struct lexer *l, enum tmpl_token_kind kind, int line, const char *p, size_t n)
{
    struct tmpl_token token = {.kind = kind, .line = line, .p = p, .n = n};
    return str_append(&l->tokens, (const char *)&token, sizeof token)
               ? SLUICE_OK
               : err_memory(l->err, l->tokens.len, TMPL_FILE);
}

static sluice_status add_copy(struct lexer *l, enum tmpl_token_kind kind, const char *p, size_t n)
{
    char *copy = tmpl_take(l->arena, n + 1);
    if (!copy)
        return tmpl_refused(l->arena, l->err);
    memcpy(copy, p, n);
    return add(l, kind, l->line, copy, n);
}

static struct tmpl_token *last(struct lexer *l)
{
    return (struct tmpl_token *)(void *)(l->tokens.p + l->tokens.len) - 1;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
}

static void advance(struct lexer *l, size_t to)
{
    for (; l->at < to; l->at++)
        l->line += l->p[l->at] == '\n';
}

/* ---- text between tags ---- */

/* {%, {{ or {# at p? */
static bool opens(const char *p, size_t n)
{
    return n >= 2 && p[0] == '{' && (p[1] == '%' || p[1] == '{' || p[1] == '#');
}

/* Text up to the next tag, stripped as the tag wishes; l->at comes to stand behind the tag's opening and its
 * sign. *tag is its second character, or NUL at the end. */
static sluice_status read_text(struct lexer *l, char *tag)
{
    size_t start = l->at, end = start;
    while (end < l->n && !opens(l->p + end, l->n - end))
        end++;
    size_t keep = end;
    *tag = end < l->n ? l->p[end + 1] : '\0';
    char sign = end + 2 < l->n ? l->p[end + 2] : '\0';
    bool signed_tag = *tag && (sign == '-' || sign == '+');
    if (*tag && sign == '-') {
        while (keep > start && is_space(l->p[keep - 1]))
            keep--;
    } else if (*tag && sign != '+' && *tag != '{') {
        /* lstrip_blocks: white space alone between the line's start and the tag goes. */
        size_t line = end;
        while (line > start && l->p[line - 1] != '\n')
            line--;
        bool blank = line > start || l->line_start;
        for (size_t i = line; i < end; i++)
            blank &= is_space(l->p[i]);
        if (blank)
            keep = line;
    }
    if (keep > start)
        TRY(add_copy(l, TMPL_DATA, l->p + start, keep - start));
    advance(l, end + (*tag ? 2 + (size_t)signed_tag : 0));
    return SLUICE_OK;
}

/* The end of a tag at l->at: -%} swallows all white space, %} one newline (trim_blocks) unless +%}. */
static void close_tag(struct lexer *l, size_t length, bool trims_newline)
{
    bool dash = l->p[l->at] == '-', plus = l->p[l->at] == '+';
    size_t to = l->at + length;
    if (dash)
        while (to < l->n && is_space(l->p[to]))
            to++;
    else if (!plus && trims_newline && to < l->n && l->p[to] == '\n')
        to++;
    advance(l, to);
    l->line_start = l->p[to - 1] == '\n';
}

static sluice_status skip_comment(struct lexer *l)
{
    size_t end = l->at;
    while (end + 1 < l->n && !(l->p[end] == '#' && l->p[end + 1] == '}'))
        end++;
    if (end + 1 >= l->n)
        return fail(l, "a comment is not closed");
    bool sign = end > l->at && (l->p[end - 1] == '-' || l->p[end - 1] == '+');
    advance(l, end - sign);
    close_tag(l, 2 + (size_t)sign, true);
    return SLUICE_OK;
}

/* ---- inside tags ---- */

static const struct {
    char letter, value;
} ESCAPES[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'},
               {'a', '\a'}, {'b', '\b'}, {'f', '\f'}, {'v', '\v'},  {'\n', '\0'}};

/* Python's escapes. p[0] is behind the backslash; returns the characters used, 0 when they are wrong. */
static size_t undo_escape(const char *p, size_t n, char *out, size_t *made)
{
    *made = 0;
    for (size_t i = 0; i < sizeof ESCAPES / sizeof *ESCAPES; i++) {
        if (p[0] != ESCAPES[i].letter)
            continue;
        if (p[0] != '\n') /* an escaped newline is nothing */
            out[(*made)++] = ESCAPES[i].value;
        return 1;
    }
    size_t digits = p[0] == 'x' ? 2 : p[0] == 'u' ? 4 : p[0] == 'U' ? 8 : 0, used = 1;
    uint32_t cp = 0;
    if (digits) {
        for (; used <= digits; used++) {
            int digit = used < n ? ascii_hex(p[used]) : -1;
            if (digit < 0 || cp > 0x10FFFF >> 4)
                return 0;
            cp = cp << 4 | (uint32_t)digit;
        }
    } else if (p[0] >= '0' && p[0] <= '7') {
        for (used = 0; used < 3 && used < n && p[used] >= '0' && p[used] <= '7'; used++)
            cp = cp << 3 | (uint32_t)(p[used] - '0');
    } else if (p[0] == 'N') {
        return 0;
    } else { /* not an escape: the backslash stays */
        out[0] = '\\';
        out[1] = p[0];
        *made = 2;
        return 1;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return 0;
    *made = utf8_encode(cp, out);
    return used;
}

static sluice_status read_string(struct lexer *l)
{
    char quote = l->p[l->at];
    size_t end = l->at + 1;
    while (end < l->n && l->p[end] != quote)
        end += l->p[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return fail(l, "a string is not closed");
    /* No escape makes more bytes than it has characters. */
    char *text = tmpl_take(l->arena, end - l->at + 4);
    if (!text)
        return tmpl_refused(l->arena, l->err);
    size_t n = 0;
    for (size_t i = l->at + 1; i < end;) {
        if (l->p[i] != '\\') {
            text[n++] = l->p[i++];
            continue;
        }
        size_t made, used = undo_escape(l->p + i + 1, end - i - 1, text + n, &made);
        if (used == 0)
            return fail(l, "a string has an escape that is wrong or not supported");
        i += 1 + used;
        n += made;
    }
    text[n] = '\0';
    TRY(add(l, TMPL_STRING, l->line, text, n));
    advance(l, end + 1);
    return SLUICE_OK;
}

/* Digits with single underscores between them; returns where they end. */
static size_t digits_end(const struct lexer *l, size_t at)
{
    while (at < l->n &&
           (ascii_is_digit(l->p[at]) || (l->p[at] == '_' && at + 1 < l->n && ascii_is_digit(l->p[at + 1]) &&
                                         ascii_is_digit(l->p[at - 1]))))
        at++;
    return at;
}

static sluice_status read_number(struct lexer *l)
{
    size_t end = digits_end(l, l->at);
    bool real = false;
    if (end + 1 < l->n && l->p[end] == '.' && ascii_is_digit(l->p[end + 1])) {
        real = true;
        end = digits_end(l, end + 1);
    }
    if (end < l->n && (l->p[end] == 'e' || l->p[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < l->n && (l->p[exponent] == '+' || l->p[exponent] == '-'))
            exponent++;
        if (exponent < l->n && ascii_is_digit(l->p[exponent])) {
            real = true;
            end = digits_end(l, exponent);
        }
    }
    char digits[64];
    size_t n = 0;
    for (size_t i = l->at; i < end && n + 1 < sizeof digits; i++)
        if (l->p[i] != '_')
            digits[n++] = l->p[i];
    digits[n] = '\0';
    bool odd = end < l->n && ascii_is_letter(l->p[end]);
    errno = 0;
    long long integer = real ? 0 : strtoll(digits, NULL, 10);
    if (odd || errno || n + 1 >= sizeof digits || (!real && n > 1 && digits[0] == '0'))
        return fail(l, "a number is too large or not supported");
    TRY(add(l, real ? TMPL_FLOAT : TMPL_INTEGER, l->line, NULL, 0));
    last(l)->integer = integer;
    last(l)->number = real ? strtod(digits, NULL) : 0.0;
    advance(l, end);
    return SLUICE_OK;
}

static bool in_name(char c)
{
    return ascii_is_alnum(c) || c == '_';
}

static sluice_status read_operator(struct lexer *l, size_t *brackets)
{
    static const char *const OPERATORS[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                            "/",  "%",  "~",  ">",  "<",  "=",  ".", ":", ",",
                                            ";",  "|",  "(",  ")",  "[",  "]",  "{", "}"};
    const char *p = l->p + l->at;
    for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++) {
        size_t n = strlen(OPERATORS[i]);
        if (l->n - l->at < n || memcmp(p, OPERATORS[i], n) != 0)
            continue;
        if (strchr("([{", p[0]))
            ++*brackets;
        else if (strchr(")]}", p[0]) && (*brackets)-- == 0)
            return fail(l, "a bracket is closed that was not opened");
        TRY(add(l, TMPL_OPERATOR, l->line, OPERATORS[i], n));
        advance(l, l->at + n);
        return SLUICE_OK;
    }
    return fail(l, "a character is not part of the language");
}

/* Everything up to the closing mark: "%" for a block, "}" for an output. */
static sluice_status read_tag(struct lexer *l, char closing, enum tmpl_token_kind end)
{
    size_t brackets = 0;
    while (l->at < l->n) {
        const char *p = l->p + l->at;
        size_t left = l->n - l->at;
        bool sign = left >= 3 && (p[0] == '-' || (p[0] == '+' && closing == '%'));
        if (brackets == 0 && left >= 2 + (size_t)sign && p[sign] == closing && p[sign + 1] == '}') {
            TRY(add(l, end, l->line, NULL, 0));
            close_tag(l, 2 + (size_t)sign, closing == '%');
            return SLUICE_OK;
        }
        if (is_space(*p)) {
            advance(l, l->at + 1);
        } else if (*p == '\'' || *p == '"') {
            TRY(read_string(l));
        } else if (ascii_is_digit(*p)) {
            TRY(read_number(l));
        } else if (in_name(*p)) {
            size_t to = l->at;
            while (to < l->n && in_name(l->p[to]))
                to++;
            TRY(add_copy(l, TMPL_NAME, p, to - l->at));
            advance(l, to);
        } else {
            TRY(read_operator(l, &brackets));
        }
    }
    return fail(l, "a tag is not closed");
}

/* ---- raw ---- */

/* {%, a sign, white space and a word at `at`? Returns where the word ends, or 0. */
static size_t tag_word(const struct lexer *l, size_t at, const char *word)
{
    size_t n = strlen(word);
    if (at + 2 > l->n || l->p[at] != '{' || l->p[at + 1] != '%')
        return 0;
    at += 2;
    at += at < l->n && (l->p[at] == '-' || l->p[at] == '+');
    while (at < l->n && is_space(l->p[at]))
        at++;
    return at + n <= l->n && memcmp(l->p + at, word, n) == 0 ? at + n : 0;
}

/* White space, a sign and %} at `at`? Returns where they start, or 0; *length: of sign and %}. */
static size_t tag_close(const struct lexer *l, size_t at, size_t *length)
{
    while (at < l->n && is_space(l->p[at]))
        at++;
    bool sign = at < l->n && (l->p[at] == '-' || l->p[at] == '+');
    *length = 2 + (size_t)sign;
    return at + *length <= l->n && l->p[at + sign] == '%' && l->p[at + sign + 1] == '}' ? at : 0;
}

/* Behind the opening of a block (and its sign): {% raw %} … {% endraw %} is data. *was: it was one. */
static sluice_status read_raw(struct lexer *l, size_t opening, bool *was)
{
    size_t length, word = tag_word(l, opening, "raw"), close = word ? tag_close(l, word, &length) : 0;
    *was = close != 0;
    if (!close)
        return SLUICE_OK;
    advance(l, close);
    close_tag(l, length, false); /* Jinja trims no newline here */
    size_t start = l->at;
    for (size_t end = start; end < l->n; end++) {
        word = tag_word(l, end, "endraw");
        close = word ? tag_close(l, word, &length) : 0;
        if (!close)
            continue;
        size_t keep = end;
        char sign = l->p[end + 2];
        if (sign == '-') {
            while (keep > start && is_space(l->p[keep - 1]))
                keep--;
        } else if (sign != '+') {
            size_t line = end;
            while (line > start && is_space(l->p[line - 1]) && l->p[line - 1] != '\n')
                line--;
            if ((line > start && l->p[line - 1] == '\n') || (line == start && l->line_start))
                keep = line;
        }
        if (keep > start)
            TRY(add_copy(l, TMPL_DATA, l->p + start, keep - start));
        advance(l, close);
        close_tag(l, length, true);
        return SLUICE_OK;
    }
    return fail(l, "a raw block is not closed");
}

/* ---- the whole ---- */

/* One kind of newline, and none at the very end. */
static char *normalize(struct tmpl_arena *arena, const char *source, size_t *n)
{
    char *text = tmpl_take(arena, *n + 1);
    size_t made = 0;
    for (size_t i = 0; text && i < *n; i++) {
        if (source[i] == '\r' && i + 1 < *n && source[i + 1] == '\n')
            continue;
        text[made++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (made && text[made - 1] == '\n')
        made--;
    *n = made;
    return text;
}

static sluice_status lex_all(struct lexer *l)
{
    while (l->at < l->n) {
        char tag;
        int line;
        TRY(read_text(l, &tag));
        l->line_start = false;
        line = l->line;
        bool raw = false;
        if (tag == '%') {
            size_t opening = l->at - 2 - (l->p[l->at - 1] == '-' || l->p[l->at - 1] == '+');
            TRY(read_raw(l, opening, &raw));
        }
        if (raw)
            continue;
        if (tag == '#') {
            TRY(skip_comment(l));
        } else if (tag == '%') {
            TRY(add(l, TMPL_BLOCK_BEGIN, line, NULL, 0));
            TRY(read_tag(l, '%', TMPL_BLOCK_END));
        } else if (tag == '{') {
            TRY(add(l, TMPL_OUTPUT_BEGIN, line, NULL, 0));
            TRY(read_tag(l, '}', TMPL_OUTPUT_END));
        }
    }
    return add(l, TMPL_END, l->line, NULL, 0);
}

sluice_status tmpl_lex(struct tmpl_arena *arena, const char *source, size_t n, struct tmpl_token **tokens,
                       size_t *n_tokens, sluice_error *err)
{
    *tokens = NULL;
    if (n > TMPL_SOURCE_BYTES_MAX)
        return err_set(err, SLUICE_E_FORMAT, TMPL_FILE " has %zu bytes, the limit is %zu", n,
                       TMPL_SOURCE_BYTES_MAX);
    if (utf8_valid_prefix(source, n) != n)
        return err_set(err, SLUICE_E_FORMAT, TMPL_FILE " is not UTF-8");
    struct lexer l = {.arena = arena, .n = n, .line = 1, .line_start = true, .err = err};
    l.p = normalize(arena, source, &l.n);
    if (!l.p)
        return tmpl_refused(arena, err);
    sluice_status status = lex_all(&l);
    if (status == SLUICE_OK) {
        size_t bytes = l.tokens.len;
        *n_tokens = bytes / sizeof **tokens;
        *tokens = tmpl_take(arena, bytes);
        if (*tokens)
            memcpy(*tokens, l.tokens.p, bytes);
        else
            status = tmpl_refused(arena, err);
    }
    str_free(&l.tokens);
    return status;
}
