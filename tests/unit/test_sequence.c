/* io/sequence: whole files in order, every length and offset, stopped in the middle, failing in the middle.
 */
#include "support/unit.h"

#include "base/fault.h"
#include "base/mem.h"
#include "io/sequence.h"

#include <fcntl.h>

enum { BYTES = 2 * SEQUENCE_BYTES + 3 * 1048576 + 12345, PAGE = 4096 };

static char dir[TEMP_PATH_BYTES], path[TEMP_PATH_BYTES];
static unsigned char *content;

static int setup(void **state)
{
    (void)state;
    sluice_error err;
    temp_dir(dir);
    content = mem_alloc(BYTES);
    for (size_t i = 0; content && i < BYTES; i++)
        content[i] = (unsigned char)(i * 2654435761u >> 13);
    return content && file_publish(temp_name(path, dir, "file.bin"), content, BYTES, &err) == SLUICE_OK ? 0
                                                                                                        : -1;
}

static int teardown(void **state)
{
    (void)state;
    mem_free(content);
    temp_dir_remove(dir);
    return 0;
}

struct seen {
    uint64_t at, stop_at; /* stop_at 0: never */
    const unsigned char *into;
    bool wrong;
};

static sluice_status look(void *user, const unsigned char *bytes, size_t n, sluice_error *err)
{
    struct seen *seen = user;
    seen->wrong |= memcmp(bytes, content + seen->at, n) != 0;
    seen->at += n;
    if (seen->stop_at && seen->at >= seen->stop_at)
        return err_set(err, SLUICE_E_CANCELLED, "enough");
    return SLUICE_OK;
}

static sluice_status read_part(uint64_t begin, uint64_t end, unsigned char *into, struct seen *seen,
                               sluice_error *err)
{
    int fd;
    assert_ok(file_open_read(path, &fd, NULL, err), *err);
    int before = fcntl(fd, F_GETFL);
    seen->at = begin;
    sluice_status status = sequence_read(fd, "file.bin", begin, end, into, look, seen, err);
    assert_int_equal(fcntl(fd, F_GETFL), before);
    (void)close(fd);
    assert_false(seen->wrong);
    return status;
}

static const uint64_t PARTS[][2] = {
    {0, BYTES},
    {0, 0},
    {0, 1},
    {0, SEQUENCE_BYTES},
    {PAGE, BYTES},
    {5 * PAGE, 5 * PAGE + SEQUENCE_BYTES + 1},
    {77, BYTES - 1}, /* cannot be read directly */
    {BYTES / PAGE * PAGE, BYTES},
};

static void every_part_comes_whole_and_in_order(void **state)
{
    (void)state;
    sluice_error err;
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        struct seen seen = {0};
        assert_ok(read_part(PARTS[i][0], PARTS[i][1], NULL, &seen, &err), err);
        assert_int_equal(seen.at, PARTS[i][1]);
    }
}

static void bytes_land_in_place(void **state)
{
    (void)state;
    sluice_error err;
    struct arena arena;
    assert_ok(arena_open(&arena, NULL, BYTES + PAGE, "test", &err), err);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        struct seen seen = {0};
        size_t n = (size_t)(PARTS[i][1] - PARTS[i][0]), room = (n + PAGE - 1) / PAGE * PAGE;
        memset(arena.base, 0x5A, BYTES);
        assert_ok(read_part(PARTS[i][0], PARTS[i][1], arena.base, &seen, &err), err);
        assert_memory_equal(arena.base, content + PARTS[i][0], n);
        for (size_t k = room; k < BYTES; k++)
            if (arena.base[k] != 0x5A)
                fail_msg("byte %zu beyond the room of %zu was touched", k, room);
    }
    arena_close(&arena);
}

static void a_short_file_is_named(void **state)
{
    (void)state;
    sluice_error err;
    struct seen seen = {0};
    assert_fails(read_part(0, BYTES + 1, NULL, &seen, &err), SLUICE_E_FORMAT, err, "file.bin ends early");
    assert_fails(read_part(0, BYTES + 5 * (uint64_t)SEQUENCE_BYTES, NULL, &seen, &err), SLUICE_E_FORMAT, err,
                 "file.bin ends early");
}

static void the_reader_may_stop(void **state)
{
    (void)state;
    sluice_error err;
    struct seen seen = {.stop_at = SEQUENCE_BYTES + 5};
    assert_fails(read_part(0, BYTES, NULL, &seen, &err), SLUICE_E_CANCELLED, err, "enough");
    assert_in_range(seen.at, seen.stop_at, seen.stop_at + SEQUENCE_BYTES);
}

static void every_failure_is_told(void **state)
{
    (void)state;
    static const struct {
        enum fault_kind kind;
        sluice_status status;
    } KINDS[] = {{FAULT_READ, SLUICE_E_IO}, {FAULT_ALLOC, SLUICE_E_MEMORY}};
    for (size_t k = 0; k < 2; k++) {
        uint64_t failures = 0;
        for (bool fired = true; fired; failures += fired) {
            sluice_error err;
            int fd;
            struct seen seen = {0};
            assert_ok(file_open_read(path, &fd, NULL, &err), err);
            fault_arm(KINDS[k].kind, failures + 1);
            sluice_status status = sequence_read(fd, "file.bin", 0, BYTES, NULL, look, &seen, &err);
            fired = fault_fired(KINDS[k].kind);
            fault_arm(KINDS[k].kind, 0);
            assert_int_equal(status, fired ? KINDS[k].status : SLUICE_OK);
            assert_false(seen.wrong);
            (void)close(fd);
        }
        assert_true(failures >= (k ? 3 : BYTES / 1048576));
    }
    /* What only disturbs changes no byte. */
    for (int n = 1; n < 12; n++) {
        sluice_error err;
        struct seen seen = {0};
        fault_arm(n % 2 ? FAULT_SHORT : FAULT_AGAIN, (uint64_t)n);
        assert_ok(read_part(0, BYTES, NULL, &seen, &err), err);
        assert_int_equal(seen.at, BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_comes_whole_and_in_order),
        cmocka_unit_test(bytes_land_in_place),
        cmocka_unit_test(a_short_file_is_named),
        cmocka_unit_test(the_reader_may_stop),
        cmocka_unit_test(every_failure_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
