/* JSON's own grammar as rules. Numbers are kept to what every reader takes exactly (15 digits before the
 * point, exponents below 100), escapes to whole characters, white space to one space or one indented line. */
#include "base/mem.h"
#include "base/utf8.h"
#include "text/grammar_internal.h"

#include <string.h>

enum { JSON_RULE_DEPTH = 20, INDENT_MAX = 24 };

#define START(j, rule) grammar_start((j)->b, (rule))
#define END(j, rule)   grammar_end((j)->b, (rule))

static uint32_t text(struct grammar_builder *b, uint32_t from, const char *literal)
{
    return grammar_text(b, from, literal, strlen(literal));
}

static uint32_t call(struct json_rules *j, uint32_t from, uint32_t rule)
{
    uint32_t to = grammar_position(j->b);
    grammar_call(j->b, from, rule, to);
    return to;
}

static void symbols(struct grammar_builder *b, uint32_t from, const char *set, uint32_t to)
{
    for (; *set; set++)
        grammar_symbols(b, from, (unsigned char)*set, (unsigned char)*set, to);
}

uint32_t jrule_space(struct json_rules *j)
{
    if (j->has_space)
        return j->space;
    j->has_space = true;
    j->space = grammar_rule(j->b);
    uint32_t at = START(j, j->space), end = END(j, j->space);
    grammar_empty(j->b, at, end);
    grammar_symbols(j->b, at, ' ', ' ', end);
    at = text(j->b, at, "\n");
    for (int i = 0; i < INDENT_MAX; i++) {
        uint32_t next = grammar_position(j->b);
        grammar_empty(j->b, at, end);
        grammar_symbols(j->b, at, ' ', ' ', next);
        at = next;
    }
    grammar_empty(j->b, at, end);
    return j->space;
}

/* ---- strings ---- */

static void hex_digit(struct grammar_builder *b, uint32_t from, uint32_t to)
{
    grammar_symbols(b, from, '0', '9', to);
    grammar_symbols(b, from, 'A', 'F', to);
    grammar_symbols(b, from, 'a', 'f', to);
}

static uint32_t hex_digits(struct grammar_builder *b, uint32_t from, int n)
{
    for (; n > 0; n--) {
        uint32_t to = grammar_position(b);
        hex_digit(b, from, to);
        from = to;
    }
    return from;
}

/* \uXXXX of one character: not NUL, and surrogates in pairs. */
static void unicode_escape(struct grammar_builder *b, uint32_t from, uint32_t to)
{
    uint32_t zero = grammar_position(b), zeros = grammar_position(b), third = grammar_position(b);
    uint32_t any = grammar_position(b), d = grammar_position(b), low = grammar_position(b);
    grammar_symbols(b, from, '0', '0', zero);
    grammar_symbols(b, zero, '0', '0', zeros);
    grammar_symbols(b, zeros, '0', '0', third);
    grammar_symbols(b, third, '1', '9', to);
    symbols(b, third, "abcdefABCDEF", to);
    grammar_symbols(b, zeros, '1', '9', low);
    symbols(b, zeros, "abcdefABCDEF", low);
    hex_digit(b, low, to);
    uint32_t two = grammar_position(b);
    grammar_symbols(b, zero, '1', '9', two);
    symbols(b, zero, "abcdefABCDEF", two);
    grammar_empty(b, hex_digits(b, two, 2), to);
    grammar_symbols(b, from, '1', '9', any);
    symbols(b, from, "abcefABCEF", any);
    grammar_empty(b, hex_digits(b, any, 3), to);
    symbols(b, from, "dD", d);
    grammar_symbols(b, d, '0', '7', two);
    uint32_t high = grammar_position(b);
    symbols(b, d, "89abAB", high);
    high = text(b, hex_digits(b, high, 2), "\\u");
    uint32_t pair = grammar_position(b), tail = grammar_position(b);
    symbols(b, high, "dD", pair);
    symbols(b, pair, "cdefCDEF", tail);
    grammar_empty(b, hex_digits(b, tail, 2), to);
}

uint32_t jrule_character(struct json_rules *j)
{
    static const struct grammar_range PLAIN[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    if (j->has_character)
        return j->character;
    j->has_character = true;
    j->character = grammar_rule(j->b);
    uint32_t at = START(j, j->character), end = END(j, j->character);
    grammar_chars(j->b, at, PLAIN, 3, end);
    at = text(j->b, at, "\\");
    symbols(j->b, at, "\"\\/bfnrt", end);
    unicode_escape(j->b, text(j->b, at, "u"), end);
    return j->character;
}

uint32_t jrule_string(struct json_rules *j)
{
    if (j->has_string)
        return j->string;
    j->has_string = true;
    uint32_t character = jrule_character(j);
    j->string = grammar_rule(j->b);
    uint32_t at = text(j->b, START(j, j->string), "\"");
    at = grammar_repeat(j->b, at, character, 0, GRAMMAR_FOREVER);
    grammar_symbols(j->b, at, '"', '"', END(j, j->string));
    return j->string;
}

/* The escape that JSON needs for a character, or the character. */
static size_t escaped(uint32_t cp, char out[8])
{
    static const char LETTERS[] = "btnvfr"; /* from backspace on; JSON has no \v */
    if (cp == '"' || cp == '\\') {
        out[0] = '\\';
        out[1] = (char)cp;
        return 2;
    }
    if (cp >= 0x20)
        return utf8_encode(cp, out);
    if (cp >= '\b' && cp <= '\r' && cp != '\v') {
        out[0] = '\\';
        out[1] = LETTERS[cp - '\b'];
        return 2;
    }
    static const char DIGITS[] = "0123456789abcdef";
    static const char PREFIX[] = {'\\', 'u', '0', '0'};
    memcpy(out, PREFIX, sizeof PREFIX);
    out[4] = DIGITS[cp >> 4];
    out[5] = DIGITS[cp & 15];
    return 6;
}

void jrule_chars(struct grammar_builder *b, uint32_t from, const struct grammar_range *ranges, size_t n,
                 uint32_t to)
{
    static const struct grammar_range PLAIN[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    static const struct grammar_range ESCAPED[] = {{0x01, 0x1F}, {0x22, 0x22}, {0x5C, 0x5C}};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < 3; k++) {
            struct grammar_range r = {ranges[i].low > PLAIN[k].low ? ranges[i].low : PLAIN[k].low,
                                      ranges[i].high < PLAIN[k].high ? ranges[i].high : PLAIN[k].high};
            if (r.low <= r.high)
                grammar_chars(b, from, &r, 1, to);
            uint32_t low = ranges[i].low > ESCAPED[k].low ? ranges[i].low : ESCAPED[k].low;
            for (uint32_t cp = low; cp <= ESCAPED[k].high && cp <= ranges[i].high; cp++) {
                char bytes[8];
                size_t length = escaped(cp, bytes);
                uint32_t at = grammar_text(b, from, bytes, length - 1);
                grammar_symbols(b, at, (unsigned char)bytes[length - 1], (unsigned char)bytes[length - 1],
                                to);
            }
        }
    }
}

uint32_t jrule_literal(struct grammar_builder *b, uint32_t from, const json_t *value)
{
    char *printed = NULL;
    if (b->status != SLUICE_OK)
        return from;
    b->status = json_print(value, JSON_ENCODE_ANY, "the schema", &printed, b->err);
    if (b->status == SLUICE_OK)
        from = text(b, from, printed);
    mem_free(printed);
    return from;
}

/* ---- numbers ---- */

/* -? (0 | [1-9][0-9]{0,14}); returns where it ends. */
static uint32_t whole(struct grammar_builder *b, uint32_t from)
{
    uint32_t unsigned_at = grammar_position(b), end = grammar_position(b), at = grammar_position(b);
    grammar_empty(b, from, unsigned_at);
    grammar_symbols(b, from, '-', '-', unsigned_at);
    grammar_symbols(b, unsigned_at, '0', '0', end);
    grammar_symbols(b, unsigned_at, '1', '9', at);
    for (int i = 0; i < 14; i++) {
        uint32_t next = grammar_position(b);
        grammar_empty(b, at, end);
        grammar_symbols(b, at, '0', '9', next);
        at = next;
    }
    grammar_empty(b, at, end);
    return end;
}

uint32_t jrule_integer(struct json_rules *j)
{
    if (j->has_integer)
        return j->integer;
    j->has_integer = true;
    j->integer = grammar_rule(j->b);
    grammar_empty(j->b, whole(j->b, START(j, j->integer)), END(j, j->integer));
    return j->integer;
}

uint32_t jrule_number(struct json_rules *j)
{
    if (j->has_number)
        return j->number;
    j->has_number = true;
    j->number = grammar_rule(j->b);
    struct grammar_builder *b = j->b;
    uint32_t digit = grammar_rule(b), end = END(j, j->number), at = whole(b, START(j, j->number));
    grammar_symbols(b, START(j, digit), '0', '9', END(j, digit));
    uint32_t power = grammar_position(b), sign = grammar_position(b), digits = grammar_position(b);
    grammar_empty(b, at, power);
    grammar_empty(b, grammar_repeat(b, text(b, at, "."), digit, 1, 16), power);
    grammar_empty(b, power, end);
    symbols(b, power, "eE", sign);
    symbols(b, sign, "+-", digits);
    grammar_empty(b, sign, digits);
    grammar_empty(b, grammar_repeat(b, digits, digit, 1, 2), end);
    return j->number;
}

/* ---- any value ---- */

/* open space ( item ( , space item )* )? space close */
static void container(struct json_rules *j, const char *brackets, uint32_t item, uint32_t from, uint32_t to)
{
    struct grammar_builder *b = j->b;
    uint32_t space = jrule_space(j), open = grammar_position(b), close = grammar_position(b);
    grammar_symbols(b, from, (unsigned char)brackets[0], (unsigned char)brackets[0], open);
    uint32_t first = call(j, open, space), last = call(j, first, item);
    grammar_empty(b, first, close);
    grammar_call(b, last, space, close);
    grammar_call(b, call(j, text(b, last, ","), space), item, last);
    grammar_symbols(b, close, (unsigned char)brackets[1], (unsigned char)brackets[1], to);
}

/* A key and a value. */
static uint32_t pair(struct json_rules *j, uint32_t value)
{
    uint32_t rule = grammar_rule(j->b), at = call(j, START(j, rule), jrule_string(j));
    grammar_call(j->b, call(j, text(j->b, at, ":"), jrule_space(j)), value, END(j, rule));
    return rule;
}

uint32_t jrule_any(struct json_rules *j)
{
    static const char *const WORDS[] = {"true", "false", "null"};
    if (j->has_value)
        return j->value;
    j->has_value = true;
    struct grammar_builder *b = j->b;
    uint32_t inner = 0;
    /* One rule for each level, the innermost first: nesting ends by itself. */
    for (int depth = 0; depth <= JSON_RULE_DEPTH; depth++) {
        uint32_t rule = grammar_rule(b);
        grammar_call(b, START(j, rule), jrule_string(j), END(j, rule));
        grammar_call(b, START(j, rule), jrule_number(j), END(j, rule));
        for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
            grammar_empty(b, text(b, START(j, rule), WORDS[i]), END(j, rule));
        if (depth) {
            uint32_t object = grammar_rule(b), array = grammar_rule(b);
            container(j, "{}", pair(j, inner), START(j, object), END(j, object));
            container(j, "[]", inner, START(j, array), END(j, array));
            grammar_call(b, START(j, rule), object, END(j, rule));
            grammar_call(b, START(j, rule), array, END(j, rule));
            j->object = object;
            j->array = array;
        }
        inner = rule;
    }
    j->value = inner;
    return inner;
}

uint32_t jrule_any_object(struct json_rules *j)
{
    (void)jrule_any(j);
    return j->object;
}
