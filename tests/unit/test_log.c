/* base/log: what is off costs nothing, a record is one whole line, threads take turns. */
#include "support/unit.h"

#include "base/log.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>

struct heard {
    int n, inside; /* neither is atomic: records come one at a time */
    bool overlapped;
    sluice_log_level level;
    char last[LOG_RECORD_BYTES + 1];
};

static void hear(void *user, sluice_log_level level, const char *record)
{
    struct heard *heard = user;
    heard->overlapped |= heard->inside++ != 0;
    heard->n++;
    heard->level = level;
    (void)snprintf(heard->last, sizeof heard->last, "%s", record);
    heard->inside--;
}

static void open_log(struct log *log, sluice_log_level level, struct heard *heard)
{
    *heard = (struct heard){0};
    log_open(log, &(sluice_log){level, hear, heard});
}

static int evaluated;

static int evaluate(void)
{
    return ++evaluated;
}

static void a_level_holds_those_before_it(void **state)
{
    (void)state;
    for (int level = SLUICE_LOG_OFF; level <= SLUICE_LOG_DEBUG; level++) {
        struct heard heard;
        struct log log;
        open_log(&log, (sluice_log_level)level, &heard);
        evaluated = 0;
        log_error(&log, "%d", evaluate());
        log_warning(&log, "%d", evaluate());
        log_info(&log, "%d", evaluate());
        log_debug(&log, "%d", evaluate());
        assert_int_equal(heard.n, level);
        assert_int_equal(evaluated, level); /* what is off evaluates nothing */
        assert_int_equal((int)heard.level, level);
        log_close(&log);
    }
}

static void none_is_off(void **state)
{
    (void)state;
    struct log log;
    evaluated = 0;
    log_error((struct log *)NULL, "%d", evaluate());
    log_open(&log, NULL);
    log_error(&log, "%d", evaluate());
    log_close(&log);
    assert_int_equal(evaluated, 0);
}

static void a_record_is_one_line(void **state)
{
    (void)state;
    struct heard heard;
    struct log log;
    open_log(&log, SLUICE_LOG_INFO, &heard);
    log_info(&log, "%s: %d", "a\nb\tc\x1b[2Jd\x7f", 7);
    assert_string_equal(heard.last, "a b c [2Jd : 7");
    log_info(&log, "%s", "");
    assert_string_equal(heard.last, "");
    log_info(&log, "\xC3\xA9"); /* beyond ASCII nothing is a control character */
    assert_string_equal(heard.last, "\xC3\xA9");
    log_close(&log);
}

static void what_is_too_long_is_cut_between_characters(void **state)
{
    (void)state;
    struct heard heard;
    struct log log;
    char text[2 * LOG_RECORD_BYTES];
    open_log(&log, SLUICE_LOG_INFO, &heard);
    for (size_t skip = 0; skip < 4; skip++) {
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = "\xF0\x9F\x8C\x8A"[i % 4];
        text[sizeof text - 1] = '\0';
        log_info(&log, "%.*s%s", (int)skip, "abc", text);
        size_t n = strlen(heard.last);
        assert_in_range(n, LOG_RECORD_BYTES - 4 - 3, LOG_RECORD_BYTES - 1);
        assert_string_equal(heard.last + n - 3, "...");
        assert_int_equal(utf8_valid_prefix(heard.last, n), n);
    }
    memset(text, 'x', LOG_RECORD_BYTES - 1);
    text[LOG_RECORD_BYTES - 1] = '\0';
    log_info(&log, "%s", text);
    assert_string_equal(heard.last, text); /* exactly as long as fits */
    log_close(&log);
}

static void nothing_is_allocated_and_errno_is_kept(void **state)
{
    (void)state;
    struct heard heard;
    struct log log;
    open_log(&log, SLUICE_LOG_INFO, &heard);
    size_t before = mallinfo2().uordblks;
    errno = EXDEV;
    for (int i = 0; i < 100; i++)
        log_info(&log, "%d %s %.3f", i, "text", i / 7.0);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(mallinfo2().uordblks, before);
    assert_int_equal(heard.n, 100);
    log_close(&log);
}

enum { THREADS = 4, RECORDS = 2000 };

static void *talk(void *arg)
{
    for (int i = 0; i < RECORDS; i++)
        log_info((struct log *)arg, "%d", i);
    return NULL;
}

static void talk_together(struct log *log)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, log), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void records_come_one_at_a_time(void **state)
{
    (void)state;
    struct heard heard;
    struct log log;
    open_log(&log, SLUICE_LOG_DEBUG, &heard);
    talk_together(&log);
    assert_int_equal(heard.n, THREADS * RECORDS);
    assert_false(heard.overlapped);
    log_close(&log);
}

/* Standard error of this process goes to a file meanwhile. */
static void without_a_sink_lines_go_to_standard_error(void **state)
{
    (void)state;
    struct log log;
    char dir[TEMP_PATH_BYTES], path[TEMP_PATH_BYTES], line[64];
    temp_dir(dir);
    int file = open(temp_name(path, dir, "stderr"), O_RDWR | O_CREAT | O_APPEND, 0600);
    int kept = dup(STDERR_FILENO);
    assert_true(file >= 0 && kept >= 0);
    log_open(&log, &(sluice_log){.level = SLUICE_LOG_INFO});
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    log_warning(&log, "a\nb");
    talk_together(&log);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    (void)close(kept);
    log_close(&log);
    FILE *lines = fdopen(file, "r");
    assert_non_null(lines);
    rewind(lines);
    assert_non_null(fgets(line, sizeof line, lines));
    assert_string_equal(line, "warning: a b\n");
    int n = 0;
    for (; fgets(line, sizeof line, lines); n++) {
        char *end;
        assert_memory_equal(line, "info: ", 6);
        assert_in_range(strtoul(line + 6, &end, 10), 0, RECORDS - 1);
        assert_string_equal(end, "\n");
    }
    assert_int_equal(n, THREADS * RECORDS);
    (void)fclose(lines);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_level_holds_those_before_it),
        cmocka_unit_test(none_is_off),
        cmocka_unit_test(a_record_is_one_line),
        cmocka_unit_test(what_is_too_long_is_cut_between_characters),
        cmocka_unit_test(nothing_is_allocated_and_errno_is_kept),
        cmocka_unit_test(records_come_one_at_a_time),
        cmocka_unit_test(without_a_sink_lines_go_to_standard_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
