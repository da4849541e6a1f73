/* base/err, base/check, base/str, base/sha256, base/poly1305, base/fault. */
#include "support/unit.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/poly1305.h"
#include "base/sha256.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>

/* ---- errors ---- */

static void err_set_returns_and_records(void **state)
{
    (void)state;
    sluice_error err;
    assert_fails(err_set(&err, SLUICE_E_CORRUPT, "layer %d differs", 3), SLUICE_E_CORRUPT, err,
                 "layer 3 differs");
    assert_int_equal(err_set(NULL, SLUICE_E_BUSY, "nobody reads %s", "this"), SLUICE_E_BUSY);
}

static void err_errno_appends_the_reason(void **state)
{
    (void)state;
    sluice_error err;
    assert_fails(err_errno(&err, ENOENT, "cannot open %s", "x.bin"), SLUICE_E_IO, err,
                 "cannot open x.bin: No such file or directory");
    assert_fails(err_errno(&err, ENOSPC, "writing"), SLUICE_E_IO, err,
                 "writing: the disk is full; free some space");
    assert_fails(err_errno(&err, EDQUOT, "writing"), SLUICE_E_IO, err, "writing: your disk quota is used up");
    assert_fails(err_errno(&err, ENOMEM, "starting"), SLUICE_E_MEMORY, err, "starting: ");
    assert_fails(err_errno(&err, 123456, "odd"), SLUICE_E_IO, err, "123456");
    assert_int_equal(err_errno(NULL, ENOMEM, "x"), SLUICE_E_MEMORY);
    assert_int_equal(err_errno(NULL, EIO, "x"), SLUICE_E_IO);
}

static void err_prefix_goes_before(void **state)
{
    (void)state;
    sluice_error err;
    (void)err_set(&err, SLUICE_E_FORMAT, "\"layers\" must be an integer");
    assert_int_equal(err_prefix(&err, SLUICE_E_FORMAT, "model %s", "m"), SLUICE_E_FORMAT);
    assert_string_equal(err.detail, "model m: \"layers\" must be an integer");
    assert_int_equal(err_prefix(&err, SLUICE_E_CORRUPT, "again"), SLUICE_E_CORRUPT);
    assert_int_equal(err.status, SLUICE_E_CORRUPT);
    assert_string_equal(err.detail, "again: model m: \"layers\" must be an integer");
    assert_int_equal(err_prefix(NULL, SLUICE_E_IO, "x"), SLUICE_E_IO);
}

/* However long the parts are and wherever a character falls, the detail stays terminated and whole UTF-8. */
static void err_cuts_at_a_character(void **state)
{
    (void)state;
    char text[2 * SLUICE_DETAIL_BYTES];
    for (size_t lead = 0; lead < 8; lead++) {
        size_t n = 0;
        while (n < lead)
            text[n++] = 'a';
        while (n + 4 < sizeof text) {
            memcpy(text + n, "\xF0\x9F\x98\x80", 4);
            n += 4;
        }
        text[n] = '\0';
        struct {
            sluice_error err;
            char canary[16];
        } guarded;
        memset(&guarded, 'C', sizeof guarded);
        for (int step = 0; step < 4; step++) {
            if (step == 0)
                (void)err_set(&guarded.err, SLUICE_E_IO, "%s", text);
            else if (step == 1)
                (void)err_errno(&guarded.err, ENOSPC, "%s", text);
            else if (step == 2)
                (void)err_prefix(&guarded.err, SLUICE_E_IO, "%s", text);
            else
                (void)err_prefix(&guarded.err, SLUICE_E_IO, "short");
            size_t length = strnlen(guarded.err.detail, SLUICE_DETAIL_BYTES);
            assert_in_range(length, SLUICE_DETAIL_BYTES - 4, SLUICE_DETAIL_BYTES - 1);
            assert_int_equal(utf8_valid_prefix(guarded.err.detail, length), length);
            assert_memory_equal(guarded.canary, "CCCCCCCCCCCCCCCC", 16);
        }
        assert_memory_equal(guarded.err.detail, "short: ", 7);
    }
}

static void err_memory_names_size_and_thing(void **state)
{
    (void)state;
    sluice_error err;
    assert_fails(err_memory(&err, 4096, "the slot table"), SLUICE_E_MEMORY, err,
                 "no memory for the slot table (4096 bytes)");
}

static sluice_status tried(sluice_status first, int *reached)
{
    TRY(first);
    (*reached)++;
    return SLUICE_OK;
}

static sluice_status tried_out(sluice_status first, int *released)
{
    sluice_status status;
    TRY_OUT(first);
    *released += 10;
out:
    *released += 1;
    return status;
}

static void try_returns_early(void **state)
{
    (void)state;
    int reached = 0, released = 0;
    assert_int_equal(tried(SLUICE_E_BUSY, &reached), SLUICE_E_BUSY);
    assert_int_equal(reached, 0);
    assert_int_equal(tried(SLUICE_OK, &reached), SLUICE_OK);
    assert_int_equal(reached, 1);
    assert_int_equal(tried_out(SLUICE_E_IO, &released), SLUICE_E_IO);
    assert_int_equal(released, 1);
    assert_int_equal(tried_out(SLUICE_OK, &released), SLUICE_OK);
    assert_int_equal(released, 12);
}

static void every_status_has_its_text(void **state)
{
    (void)state;
    for (int a = SLUICE_OK; a <= SLUICE_E_NUMERIC; a++) {
        const char *text = sluice_status_text((sluice_status)a);
        assert_string_not_equal(text, "unknown status");
        assert_true(text[0] != '\0');
        for (int b = SLUICE_OK; b < a; b++)
            assert_string_not_equal(text, sluice_status_text((sluice_status)b));
    }
    assert_string_equal(sluice_status_text((sluice_status)(SLUICE_E_NUMERIC + 1)), "unknown status");
    assert_string_equal(sluice_status_text((sluice_status)-1), "unknown status");
}

/* ---- checked arithmetic ---- */

static void arithmetic_refuses_overflow(void **state)
{
    (void)state;
    size_t s = 7;
    assert_true(size_add(SIZE_MAX - 1, 1, &s));
    assert_true(s == SIZE_MAX);
    s = 7;
    assert_false(size_add(SIZE_MAX, 1, &s));
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &s));
    assert_int_equal(s, 7);
    assert_true(size_mul(SIZE_MAX / 2, 2, &s));
    assert_true(s == SIZE_MAX - 1);
    assert_true(size_mul(0, SIZE_MAX, &s));
    assert_int_equal(s, 0);

    uint64_t u = 7;
    assert_false(u64_add(UINT64_MAX, 1, &u));
    assert_false(u64_mul(1ull << 32, 1ull << 32, &u));
    assert_int_equal(u, 7);
    assert_true(u64_mul(1ull << 32, (1ull << 32) - 1, &u));
    assert_true(u == 0xFFFFFFFF00000000ull);
    assert_true(u64_add(UINT64_MAX - 5, 5, &u));
    assert_true(u == UINT64_MAX);
}

static void rounding_up(void **state)
{
    (void)state;
    static const struct {
        uint64_t value, unit, want;
    } CASES[] = {
        {0, 4096, 0},       {1, 4096, 4096}, {4096, 4096, 4096},
        {4097, 4096, 8192}, {5, 1, 5},       {UINT64_MAX - 4095, 4096, UINT64_MAX - 4095},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        uint64_t got = 1;
        assert_true(u64_round_up(CASES[i].value, CASES[i].unit, &got));
        assert_true(got == CASES[i].want);
    }
    uint64_t kept = 9;
    assert_false(u64_round_up(UINT64_MAX - 4094, 4096, &kept));
    assert_false(u64_round_up(UINT64_MAX, 2, &kept));
    assert_int_equal(kept, 9);
}

static void ranges(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset, bytes, total;
        bool inside;
    } CASES[] = {
        {0, 0, 0, true},
        {0, 10, 10, true},
        {10, 0, 10, true},
        {11, 0, 10, false},
        {9, 2, 10, false},
        {UINT64_MAX, 1, UINT64_MAX, false},
        {UINT64_MAX - 1, 1, UINT64_MAX, true},
        {8, UINT64_MAX, 10, false}, /* offset + bytes wraps to 7 */
        {UINT64_MAX, UINT64_MAX, 10, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_int_equal(range_inside(CASES[i].offset, CASES[i].bytes, CASES[i].total), CASES[i].inside);
}

static void the_clock_goes_forward(void **state)
{
    (void)state;
    uint64_t before = clock_ns();
    (void)usleep(2000);
    assert_true(clock_ns() - before >= 2000000);
}

/* ---- strings ---- */

static void strings_grow_and_stay_terminated(void **state)
{
    (void)state;
    struct str s = {0};
    for (int i = 0; i < 1000; i++) {
        assert_true(str_putc(&s, (char)('a' + i % 26)));
        assert_int_equal(s.len, i + 1);
        assert_int_equal(s.p[s.len], '\0');
        assert_true(s.cap > s.len);
    }
    assert_int_equal(s.p[999], 'a' + 999 % 26);
    char *before = s.p;
    str_clear(&s);
    assert_int_equal(s.len, 0);
    assert_string_equal(s.p, "");
    assert_true(str_puts(&s, "one "));
    assert_ptr_equal(s.p, before);
    assert_true(str_printf(&s, "%d %s", 2, "three"));
    assert_string_equal(s.p, "one 2 three");
    assert_true(str_append(&s, "\0x", 2));
    assert_int_equal(s.len, 13);
    assert_memory_equal(s.p + 11, "\0x", 3);
    assert_true(str_append(&s, NULL, 0));
    str_free(&s);
    assert_null(s.p);
    str_clear(&s); /* nothing there: fine */
}

static void long_formats_fit(void **state)
{
    (void)state;
    struct str s = {0};
    assert_true(str_puts(&s, "<"));
    assert_true(str_printf(&s, "%0*d", 5000, 7));
    assert_true(str_puts(&s, ">"));
    assert_int_equal(s.len, 5002);
    assert_int_equal(s.p[5000], '7');
    assert_int_equal(s.p[5001], '>');
    str_free(&s);
}

static void taking_hands_the_buffer_over(void **state)
{
    (void)state;
    struct str s = {0};
    assert_true(str_puts(&s, "mine"));
    char *taken = str_take(&s);
    assert_string_equal(taken, "mine");
    assert_null(s.p);
    assert_int_equal(s.len + s.cap, 0);
    mem_free(taken);
    taken = str_take(&s); /* nothing was appended: an empty string all the same */
    assert_string_equal(taken, "");
    mem_free(taken);
    fault_arm(FAULT_ALLOC, 1);
    assert_null(str_take(&s));
    assert_true(fault_fired(FAULT_ALLOC));
}

static void a_failed_append_changes_nothing(void **state)
{
    (void)state;
    struct str s = {0};
    assert_true(str_puts(&s, "0123456789"));
    char big[64];
    memset(big, 'x', sizeof big);
    fault_arm(FAULT_ALLOC, 1);
    assert_false(str_append(&s, big, sizeof big));
    assert_true(fault_fired(FAULT_ALLOC));
    fault_arm(FAULT_ALLOC, 1);
    assert_false(str_printf(&s, "%064d", 1));
    fault_arm(FAULT_ALLOC, 0);
    assert_false(str_reserve(&s, SIZE_MAX));
    assert_false(str_reserve(&s, SIZE_MAX - s.len));
    assert_string_equal(s.p, "0123456789");
    assert_int_equal(s.len, 10);
    str_free(&s);
}

/* ---- SHA-256: FIPS 180-4 examples and the classic million ---- */

static void digests_match_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } CASES[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char hex[SHA256_HEX_BYTES];
    sluice_error err;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        assert_ok(sha256_hex(CASES[i].text, strlen(CASES[i].text), hex, &err), err);
        assert_string_equal(hex, CASES[i].hex);
        assert_true(sha256_is_hex(hex));
    }
    struct sha256 h;
    assert_ok(sha256_open(&h, &err), err);
    char block[777];
    memset(block, 'a', sizeof block);
    for (size_t left = 1000000; left > 0;) {
        size_t n = left < sizeof block ? left : sizeof block;
        sha256_update(&h, block, n);
        left -= n;
    }
    sha256_close(&h, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void numbers_are_hashed_little_endian(void **state)
{
    (void)state;
    char one[SHA256_HEX_BYTES], other[SHA256_HEX_BYTES];
    struct sha256 h;
    assert_int_equal(sha256_open(&h, NULL), SLUICE_OK);
    sha256_update_u64(&h, 0x0102030405060708u);
    sha256_close(&h, one);
    assert_int_equal(sha256_hex("\x08\x07\x06\x05\x04\x03\x02\x01", 8, other, NULL), SLUICE_OK);
    assert_string_equal(one, other);
}

static void a_failed_digest_writes_nothing(void **state)
{
    (void)state;
    char hex[SHA256_HEX_BYTES] = "untouched";
    struct sha256 h;
    sluice_error err;
    fault_arm(FAULT_ALLOC, 1);
    assert_fails(sha256_open(&h, &err), SLUICE_E_MEMORY, err, "SHA-256");
    sha256_close(&h, hex);
    assert_string_equal(hex, "untouched");
    fault_arm(FAULT_ALLOC, 1);
    assert_int_equal(sha256_hex("x", 1, hex, NULL), SLUICE_E_MEMORY);
    assert_string_equal(hex, "untouched");
}

static void hex_is_64_lower_case_digits(void **state)
{
    (void)state;
    char text[80];
    memset(text, 'a', sizeof text);
    static const struct {
        size_t length;
        bool good;
    } CASES[] = {{0, false}, {63, false}, {64, true}, {65, false}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        memset(text, 'a', sizeof text);
        text[CASES[i].length] = '\0';
        assert_int_equal(sha256_is_hex(text), CASES[i].good);
    }
    text[64] = '\0';
    static const char BAD[] = "Ag -\n";
    for (size_t i = 0; i < sizeof BAD - 1; i++) {
        memset(text, '0', 64);
        text[i * 15] = BAD[i];
        assert_false(sha256_is_hex(text));
    }
}

/* ---- Poly1305: RFC 8439, section 2.5.2 ---- */

static const unsigned char TAG_KEY[POLY1305_KEY_BYTES] = {
    0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52, 0xfe, 0x42, 0xd5, 0x06, 0xa8,
    0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d, 0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf, 0x41, 0x49, 0xf5, 0x1b};

static void tags_match_the_standard(void **state)
{
    (void)state;
    static const char TEXT[] = "Cryptographic Forum Research Group";
    size_t n = sizeof TEXT - 1;
    for (size_t cut = 0; cut <= n; cut++) {
        struct poly1305 p;
        sluice_error err;
        char hex[POLY1305_HEX_BYTES];
        assert_ok(poly1305_open(&p, TAG_KEY, &err), err);
        poly1305_update(&p, TEXT, cut);
        poly1305_update(&p, TEXT + cut, n - cut);
        poly1305_close(&p, hex);
        assert_string_equal(hex, "a8061dc1305136c6c22b8baf0c0127a9");
        assert_true(poly1305_is_hex(hex));
        hex[cut % 32] = 'A';
        assert_false(poly1305_is_hex(hex));
        hex[cut % 32] = '\0';
        assert_false(poly1305_is_hex(hex));
    }
    assert_false(poly1305_is_hex("a8061dc1305136c6c22b8baf0c0127a90"));
}

static void a_failed_tag_writes_nothing(void **state)
{
    (void)state;
    char hex[POLY1305_HEX_BYTES] = "untouched";
    struct poly1305 p;
    sluice_error err;
    fault_arm(FAULT_ALLOC, 1);
    assert_fails(poly1305_open(&p, TAG_KEY, &err), SLUICE_E_MEMORY, err, "Poly1305");
    poly1305_close(&p, hex);
    assert_string_equal(hex, "untouched");
}

/* ---- the fault hook itself ---- */

static void faults_fire_once_at_the_nth(void **state)
{
    (void)state;
    fault_arm(FAULT_WRITE, 3);
    assert_false(fault_hit(FAULT_WRITE));
    assert_false(fault_hit(FAULT_READ)); /* kinds are counted apart */
    assert_false(fault_hit(FAULT_WRITE));
    assert_false(fault_fired(FAULT_WRITE));
    assert_true(fault_hit(FAULT_WRITE));
    assert_true(fault_fired(FAULT_WRITE));
    assert_false(fault_hit(FAULT_WRITE));
    fault_arm(FAULT_WRITE, 1);
    assert_false(fault_fired(FAULT_WRITE)); /* arming forgets */
    fault_arm(FAULT_WRITE, 0);
    assert_false(fault_hit(FAULT_WRITE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_set_returns_and_records),
        cmocka_unit_test(err_errno_appends_the_reason),
        cmocka_unit_test(err_prefix_goes_before),
        cmocka_unit_test(err_cuts_at_a_character),
        cmocka_unit_test(err_memory_names_size_and_thing),
        cmocka_unit_test(try_returns_early),
        cmocka_unit_test(every_status_has_its_text),
        cmocka_unit_test(arithmetic_refuses_overflow),
        cmocka_unit_test(rounding_up),
        cmocka_unit_test(ranges),
        cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(strings_grow_and_stay_terminated),
        cmocka_unit_test(long_formats_fit),
        cmocka_unit_test(taking_hands_the_buffer_over),
        cmocka_unit_test(a_failed_append_changes_nothing),
        cmocka_unit_test(digests_match_the_standard),
        cmocka_unit_test(numbers_are_hashed_little_endian),
        cmocka_unit_test(a_failed_digest_writes_nothing),
        cmocka_unit_test(hex_is_64_lower_case_digits),
        cmocka_unit_test(tags_match_the_standard),
        cmocka_unit_test(a_failed_tag_writes_nothing),
        cmocka_unit_test(faults_fire_once_at_the_nth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
