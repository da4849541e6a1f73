/* base/utf8, against a decoder written the other way round: from code points, not from lead bytes. */
#include "support/unit.h"

#include "base/utf8.h"

/* Valid when some scalar value encodes to exactly these bytes (RFC 3629, section 3, spelt out). */
static bool spells(const unsigned char *b, size_t n, uint32_t *cp)
{
    static const uint32_t LOWEST[5] = {0, 0, 0x80, 0x800, 0x10000};
    static const unsigned char MARK[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    static const unsigned char MASK[5] = {0, 0x80, 0xE0, 0xF0, 0xF8};
    if ((b[0] & MASK[n]) != MARK[n])
        return false;
    uint32_t value = b[0] & (unsigned char)~MASK[n];
    for (size_t i = 1; i < n; i++) {
        if ((b[i] & 0xC0) != 0x80)
            return false;
        value = value << 6 | (b[i] & 0x3F);
    }
    *cp = value;
    return value >= LOWEST[n] && value <= 0x10FFFF && !(value >= 0xD800 && value <= 0xDFFF);
}

static void check_decode(const unsigned char *b, size_t n)
{
    uint32_t want = UTF8_REPLACEMENT;
    size_t length = 0;
    for (size_t k = 1; k <= 4 && k <= n && length == 0; k++)
        if (spells(b, k, &want))
            length = k;
    uint32_t cp = 1;
    int valid = -1;
    size_t used = utf8_decode((const char *)b, n, &cp, &valid);
    if (valid != (length > 0) || (length > 0 && (used != length || cp != want)) ||
        (length == 0 && (cp != UTF8_REPLACEMENT || used < 1 || used > n)))
        fail_msg("%02x %02x of %zu bytes: %zu used, U+%04X, valid %d", b[0], b[1], n, used, cp, valid);
    assert_int_equal(utf8_decode((const char *)b, n, &cp, NULL), used);
}

static void all_one_and_two_byte_sequences(void **state)
{
    (void)state;
    for (unsigned a = 0; a < 256; a++) {
        unsigned char b[2] = {(unsigned char)a, 0};
        check_decode(b, 1);
        for (unsigned c = 0; c < 256; c++) {
            b[1] = (unsigned char)c;
            check_decode(b, 2);
        }
    }
}

static void three_and_four_bytes_at_every_edge(void **state)
{
    (void)state;
    static const unsigned char EDGES[] = {0x00, 0x41, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x9F,
                                          0xA0, 0xBE, 0xBF, 0xC0, 0xC2, 0xE0, 0xF0, 0xFF};
    enum { N = sizeof EDGES };
    for (unsigned a = 0xC0; a < 256; a++)
        for (size_t i = 0; i < N; i++)
            for (size_t j = 0; j < N; j++)
                for (size_t k = 0; k < N; k++) {
                    unsigned char b[4] = {(unsigned char)a, EDGES[i], EDGES[j], EDGES[k]};
                    check_decode(b, 3);
                    check_decode(b, 4);
                }
}

static void every_scalar_value_survives(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        char b[4];
        size_t n = utf8_encode(cp, b);
        uint32_t back;
        int valid;
        if (utf8_decode(b, n, &back, &valid) != n || !valid || back != cp)
            fail_msg("U+%04X came back as U+%04X", cp, back);
    }
}

/* How much of a bad sequence one replacement stands for: Unicode 15, section 3.9, "maximal subparts". */
static void replacements_cover_maximal_subparts(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t used;
    } CASES[] = {
        {"\x80", 1},             /* a continuation without a lead */
        {"\xC0\xAF", 1},         /* overlong: C0 begins nothing */
        {"\xC1\xBF", 1},         /* the same */
        {"\xE0\x80\xBF", 1},     /* overlong: 80 cannot follow E0 */
        {"\xED\xA0\x80", 1},     /* a surrogate */
        {"\xF0\x80\x80\x41", 1}, /* overlong */
        {"\xF4\x90\x80\x80", 1}, /* above U+10FFFF */
        {"\xF5\x80\x80\x80", 1},
        {"\xFF", 1},
        {"\xC2", 1},     /* cut off */
        {"\xC2\x41", 1}, /* cut off by a letter */
        {"\xE2\x82", 2},
        {"\xE2\x82\x41", 2},
        {"\xF0\x9F\x98", 3},
        {"\xF0\x9F\x98\x41", 3},
        {"\xF0\x9F\xF0\x9F", 2},
        {"\xE1\x80\xE2", 2},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        uint32_t cp;
        int valid;
        size_t used = utf8_decode(CASES[i].bytes, strlen(CASES[i].bytes), &cp, &valid);
        if (valid || cp != UTF8_REPLACEMENT || used != CASES[i].used)
            fail_msg("case %zu: %zu used, U+%04X, valid %d", i, used, cp, valid);
    }
}

/* A text cut anywhere: what is held back is exactly the unfinished character, and the rest completes it. */
static void complete_prefix_at_every_split(void **state)
{
    (void)state;
    static const char TEXT[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z\xF4\x8F\xBF\xBF";
    size_t starts[sizeof TEXT], n_starts = 0, total = sizeof TEXT - 1;
    for (size_t at = 0; at < total;) {
        uint32_t cp;
        starts[n_starts++] = at;
        at += utf8_decode(TEXT + at, total - at, &cp, NULL);
    }
    starts[n_starts++] = total;
    for (size_t cut = 0; cut <= total; cut++) {
        size_t want = 0;
        for (size_t i = 0; i < n_starts && starts[i] <= cut; i++)
            want = starts[i];
        assert_int_equal(utf8_complete_prefix(TEXT, cut), want);
        assert_int_equal(utf8_valid_prefix(TEXT, cut), want);
    }
}

/* Bytes that nothing can complete are not worth waiting for. */
static void hopeless_tails_are_not_held_back(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, keep;
    } CASES[] = {
        {"", 0, 0},         {"\x80", 1, 1},         {"\x80\x80\x80\x80", 4, 4}, {"a\xC0", 2, 2},
        {"a\xFF", 2, 2},    {"\xED\xA0", 2, 2}, /* the beginning of a surrogate */
        {"\xE0\x9F", 2, 2}, {"\xF4\x90", 2, 2},     {"\xF0\x8F\xBF", 3, 3},     {"\xC3\xA9\xA9", 3, 3},
        {"\xE2\x82", 2, 0}, {"\xF0\x9F\x98", 3, 0}, {"\xFF\xF0", 2, 1},         {"\xF0\xF0", 2, 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        size_t got = utf8_complete_prefix(CASES[i].bytes, CASES[i].n);
        if (got != CASES[i].keep)
            fail_msg("case %zu: %zu, wanted %zu", i, got, CASES[i].keep);
    }
}

/* For every tail of three edge bytes: held back if and only if some continuation makes it one character. */
static void complete_prefix_agrees_with_search(void **state)
{
    (void)state;
    static const unsigned char BYTES[] = {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF,
                                          0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    enum { N = sizeof BYTES };
    for (size_t code = 0; code < (size_t)N * N * N; code++) {
        unsigned char b[6] = {BYTES[code % N], BYTES[code / N % N], BYTES[code / N / N]};
        size_t want = 3;
        for (size_t at = 0; at < 3 && want == 3; at++)
            for (unsigned x = 0x80; x <= 0xBF && want == 3; x++)
                for (unsigned y = 0x80; y <= 0xBF && want == 3; y += 0x3F) {
                    unsigned char whole[6] = {0};
                    size_t have = 3 - at;
                    memcpy(whole, b + at, have);
                    whole[have] = (unsigned char)x;
                    whole[have + 1] = (unsigned char)y;
                    whole[have + 2] = 0x80;
                    uint32_t cp;
                    for (size_t length = have + 1; length <= 4; length++)
                        if (spells(whole, length, &cp))
                            want = at;
                }
        assert_int_equal(utf8_complete_prefix((const char *)b, 3), want);
    }
}

static void valid_prefix_stops_at_the_first_fault(void **state)
{
    (void)state;
    assert_int_equal(utf8_valid_prefix("abc", 3), 3);
    assert_int_equal(utf8_valid_prefix("abc\xFF"
                                       "d",
                                       5),
                     3);
    assert_int_equal(utf8_valid_prefix("\xC3\xA9\xED\xA0\x80", 5), 2);
    assert_int_equal(utf8_valid_prefix("a\0b", 3), 3); /* NUL is a character */
    assert_int_equal(utf8_valid_prefix("", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_one_and_two_byte_sequences),
        cmocka_unit_test(three_and_four_bytes_at_every_edge),
        cmocka_unit_test(every_scalar_value_survives),
        cmocka_unit_test(replacements_cover_maximal_subparts),
        cmocka_unit_test(complete_prefix_at_every_split),
        cmocka_unit_test(hopeless_tails_are_not_held_back),
        cmocka_unit_test(complete_prefix_agrees_with_search),
        cmocka_unit_test(valid_prefix_stops_at_the_first_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
