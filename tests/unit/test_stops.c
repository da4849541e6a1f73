/* Stop strings against a plain search, for every way to cut the text. */
#include "base/fault.h"
#include "text/stops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The text before the stop string whose end comes first; of those the longest, then the first listed. */
static size_t plain_search(const char *text, const char *const *stops, size_t n, int *hit)
{
    size_t length = strlen(text);
    *hit = -1;
    for (size_t end = 1; end <= length; end++) {
        size_t best = 0;
        for (size_t i = 0; i < n; i++) {
            size_t bytes = strlen(stops[i]);
            if (bytes <= end && bytes > best && memcmp(text + end - bytes, stops[i], bytes) == 0) {
                best = bytes;
                *hit = (int)i;
            }
        }
        if (best)
            return end - best;
    }
    return length;
}

/* Feed text in pieces; bit i of cuts: a piece ends behind byte i. */
static void check(const char *text, const char *const *stops, size_t n, uint32_t cuts)
{
    struct stops s;
    struct str out = {0};
    int hit = -1, want_hit;
    size_t want = plain_search(text, stops, n, &want_hit), length = strlen(text), start = 0;
    assert_int_equal(stops_open(&s, stops, n, NULL), SLUICE_OK);
    for (size_t i = 0; i < length && hit < 0; i++) {
        if (i + 1 < length && !(cuts >> (i % 32) & 1))
            continue;
        assert_int_equal(stops_feed(&s, text + start, i + 1 - start, &out, &hit, NULL), SLUICE_OK);
        start = i + 1;
        /* Nothing may be shown that the stop string turns out to contain. */
        assert_true(out.len <= want);
    }
    if (hit < 0)
        assert_int_equal(stops_finish(&s, &out, NULL), SLUICE_OK);
    assert_int_equal(hit, want_hit);
    assert_int_equal(out.len, want);
    if (want)
        assert_memory_equal(out.p, text, want);
    str_free(&out);
    stops_close(&s);
}

static void test_every_split(void **state)
{
    (void)state;
    static const char *const STOPS[][3] = {{"ab", "abab", "b"},
                                           {"aab", "ba", "bbb"},
                                           {"aaa", "aa", "a"},
                                           {"abcab", "cabc", "bcd"},
                                           {"ba", "ba", "aba"}};
    static const char *const TEXTS[] = {"aaaab", "abab",      "babab", "aabaab", "bbbb",  "abcabcd",
                                        "ccc",   "abcabcabd", "a",     "",       "cabca", "aabbab"};
    for (size_t s = 0; s < sizeof STOPS / sizeof *STOPS; s++)
        for (size_t n = 0; n <= 3; n++)
            for (size_t t = 0; t < sizeof TEXTS / sizeof *TEXTS; t++)
                for (uint32_t cuts = 0; cuts < 256; cuts++)
                    check(TEXTS[t], STOPS[s], n, cuts);
}

static void test_random(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int round = 0; round < 20000; round++) {
        char text[40], stops[3][8];
        const char *list[3] = {stops[0], stops[1], stops[2]};
        for (size_t i = 0; i < sizeof text; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = (char)('a' + (seed >> 24) % 2);
        }
        text[(seed >> 8) % 40] = '\0';
        text[39] = '\0';
        for (size_t i = 0; i < 3; i++) {
            seed = seed * 1664525u + 1013904223u;
            size_t bytes = 1 + (seed >> 16) % 6;
            for (size_t k = 0; k < bytes; k++)
                stops[i][k] = (char)('a' + (seed >> (8 + k) & 1));
            stops[i][bytes] = '\0';
        }
        check(text, list, 3, seed);
    }
}

/* Characters are not cut: what is held back starts where a stop string's first character starts. */
static void test_characters(void **state)
{
    (void)state;
    static const char *const STOPS[] = {"é!"};
    struct stops s;
    struct str out = {0};
    int hit;
    assert_int_equal(stops_open(&s, STOPS, 1, NULL), SLUICE_OK);
    assert_int_equal(stops_feed(&s, "aèé", 5, &out, &hit, NULL), SLUICE_OK);
    assert_string_equal(out.p, "aè");
    assert_int_equal(stops_feed(&s, "è", 2, &out, &hit, NULL), SLUICE_OK);
    assert_string_equal(out.p, "aèéè");
    assert_int_equal(hit, -1);
    str_free(&out);
    stops_close(&s);
}

static void test_refused(void **state)
{
    (void)state;
    struct stops s;
    sluice_error err;
    char longer[STOP_BYTES_MAX + 2];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const char *bad[] = {"", longer, "a\xC3"};
    const char *many[STOPS_MAX + 1];
    for (size_t i = 0; i <= STOPS_MAX; i++)
        many[i] = "x";
    for (size_t i = 0; i < 3; i++) {
        const char *list[] = {"fine", bad[i]};
        assert_int_equal(stops_open(&s, list, 2, &err), SLUICE_E_ARGUMENT);
        assert_non_null(strstr(err.detail, "stop string 2"));
    }
    assert_int_equal(stops_open(&s, many, STOPS_MAX + 1, &err), SLUICE_E_ARGUMENT);
    assert_int_equal(stops_open(&s, many, STOPS_MAX, &err), SLUICE_OK);
    stops_close(&s);
    longer[STOP_BYTES_MAX] = '\0';
    const char *longest[] = {longer};
    assert_int_equal(stops_open(&s, longest, 1, &err), SLUICE_OK);
    stops_close(&s);
}

static void test_memory(void **state)
{
    (void)state;
    static const char *const STOPS[] = {"stop", "halt"};
    for (uint64_t n = 1;; n++) {
        struct stops s;
        struct str out = {0};
        int hit = -1;
        fault_arm(FAULT_ALLOC, n);
        sluice_status status = stops_open(&s, STOPS, 2, NULL);
        if (status == SLUICE_OK) {
            status = stops_feed(&s, "one two three four, now sto", 27, &out, &hit, NULL);
            if (status == SLUICE_OK)
                status = stops_finish(&s, &out, NULL);
            stops_close(&s);
        }
        str_free(&out);
        bool fired = fault_fired(FAULT_ALLOC);
        fault_arm(FAULT_ALLOC, 0);
        assert_int_equal(status, fired ? SLUICE_E_MEMORY : SLUICE_OK);
        if (!fired)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split), cmocka_unit_test(test_random), cmocka_unit_test(test_characters),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
