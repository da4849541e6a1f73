/* io/file: loads, exact reads and writes, publication, locks, deletion; every fault in turn. */
#include "support/unit.h"

#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[TEMP_PATH_BYTES];

static int make_dir(void **state)
{
    (void)state;
    temp_dir(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    fault_arm(FAULT_ALLOC, 0);
    temp_dir_remove(dir);
    return 0;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void assert_holds(const char *path, const char *want)
{
    char *text;
    size_t bytes;
    sluice_error err;
    assert_ok(file_load(path, 1 << 20, &text, &bytes, &err), err);
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(text, want);
    mem_free(text);
}

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) != -1;
    return n;
}

/* ---- reading ---- */

static void open_read_takes_regular_files_only(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    sluice_error err;
    int fd = 5, before = open_fds();
    uint64_t bytes = 0;
    assert_fails(file_open_read(temp_name(path, dir, "absent"), &fd, NULL, &err), SLUICE_E_IO, err, path);
    assert_non_null(strstr(err.detail, "No such file"));
    assert_int_equal(fd, -1);
    assert_fails(file_open_read(dir, &fd, NULL, &err), SLUICE_E_FORMAT, err, "is not a regular file");
    assert_fails(file_open_read("/dev/null", &fd, NULL, &err), SLUICE_E_FORMAT, err,
                 "/dev/null is not a regular file");
    /* A FIFO without a writer would make a plain open() wait for ever. */
    assert_int_equal(mkfifo(temp_name(path, dir, "fifo"), 0600), 0);
    (void)alarm(20);
    assert_fails(file_open_read(path, &fd, NULL, &err), SLUICE_E_FORMAT, err, "is not a regular file");
    (void)alarm(0);
    assert_int_equal(open_fds(), before);

    put(temp_name(path, dir, "file"), "seven..");
    assert_ok(file_open_read(path, &fd, &bytes, &err), err);
    assert_int_equal(bytes, 7);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    (void)close(fd);
    fault_arm(FAULT_READ, 1);
    assert_fails(file_open_read(path, &fd, &bytes, &err), SLUICE_E_IO, err, path);
    assert_int_equal(fd, -1);
}

static void exact_reads_and_writes(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES], got[16] = {0};
    sluice_error err;
    int fd = open(temp_name(path, dir, "data"), O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_ok(file_write_at(fd, "0123456789", 10, 0, "data", &err), err);
    assert_ok(file_write_at(fd, "AB", 2, 4, "data", &err), err);
    assert_ok(file_write_at(fd, "", 0, 99, "data", &err), err);
    assert_ok(file_read_at(fd, got, 10, 0, "data", &err), err);
    assert_string_equal(got, "0123AB6789");
    assert_ok(file_read_at(fd, got, 3, 7, "data", &err), err);
    assert_memory_equal(got, "789", 3);
    assert_ok(file_read_at(fd, got, 0, 1000, "data", &err), err);
    assert_fails(file_read_at(fd, got, 4, 7, "data", &err), SLUICE_E_FORMAT, err,
                 "data ends early: 4 bytes at 7 were wanted, 3 are there");
    assert_fails(file_read_at(fd, got, 1, 10, "data", &err), SLUICE_E_FORMAT, err, "ends early");
    assert_fails(file_read_at(fd, got, 1, UINT64_MAX, "data", &err), SLUICE_E_IO, err,
                 "reading 1 bytes at 18446744073709551615 of data");
    assert_fails(file_write_at(fd, got, 1, UINT64_MAX, "data", &err), SLUICE_E_IO, err, "writing 1 bytes");
    assert_fails(file_read_at(-1, got, 1, 0, "data", &err), SLUICE_E_IO, err, "Bad file descriptor");
    fault_arm(FAULT_READ, 1);
    assert_fails(file_read_at(fd, got, 4, 0, "data", &err), SLUICE_E_IO, err, "reading 4 bytes at 0 of data");
    fault_arm(FAULT_WRITE, 1);
    assert_fails(file_write_at(fd, got, 4, 0, "data", &err), SLUICE_E_IO, err, "the disk is full");
    fault_arm(FAULT_FSYNC, 1);
    assert_fails(file_sync(fd, "data", &err), SLUICE_E_IO, err, "syncing data to disk");
    assert_ok(file_sync(fd, "data", &err), err);
    (void)close(fd);
    fd = open("/dev/full", O_WRONLY);
    if (fd >= 0) {
        assert_fails(file_write_at(fd, got, 4, 0, "/dev/full", &err), SLUICE_E_IO, err, "the disk is full");
        (void)close(fd);
    }
}

static void loads_are_capped(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    sluice_error err;
    char *text = NULL;
    size_t bytes = 77;
    int before = open_fds();
    put(temp_name(path, dir, "ten"), "0123456789");
    assert_ok(file_load(path, 10, &text, &bytes, &err), err);
    assert_int_equal(bytes, 10);
    assert_int_equal(text[10], '\0');
    mem_free(text);
    bytes = 77;
    assert_fails(file_load(path, 9, &text, &bytes, &err), SLUICE_E_FORMAT, err,
                 "has 10 bytes, at most 9 are accepted");
    assert_null(text);
    assert_int_equal(bytes, 77);
    put(temp_name(path, dir, "empty"), "");
    assert_ok(file_load(path, 0, &text, &bytes, &err), err);
    assert_int_equal(bytes, 0);
    assert_string_equal(text, "");
    mem_free(text);
    assert_int_equal(open_fds(), before);
}

static void every_fault_of_a_load(void **state)
{
    (void)state;
    static const struct {
        enum fault_kind kind;
        sluice_status status;
    } CASES[] = {{FAULT_ALLOC, SLUICE_E_MEMORY}, {FAULT_READ, SLUICE_E_IO}};
    char path[TEMP_PATH_BYTES];
    put(temp_name(path, dir, "ten"), "0123456789");
    int before = open_fds(), failures = 0;
    for (size_t i = 0; i < 2; i++)
        for (uint64_t n = 1;; n++) {
            char *text;
            size_t bytes;
            fault_arm(CASES[i].kind, n);
            sluice_status status = file_load(path, 100, &text, &bytes, NULL);
            bool fired = fault_fired(CASES[i].kind);
            fault_arm(CASES[i].kind, 0);
            assert_int_equal(status, fired ? CASES[i].status : SLUICE_OK);
            assert_int_equal(text == NULL, fired);
            mem_free(text);
            assert_int_equal(open_fds(), before);
            if (!fired)
                break;
            failures++;
        }
    assert_int_equal(failures, 1 + 2);
}

/* ---- publishing ---- */

static void publishing_replaces_at_once(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES], beside[TEMP_PATH_BYTES];
    sluice_error err;
    (void)temp_name(path, dir, "receipt.json");
    (void)temp_name(beside, dir, "receipt.json.tmp");
    int before = open_fds();
    assert_ok(file_publish(path, "first, the longer one", 21, &err), err);
    assert_holds(path, "first, the longer one");
    assert_ok(file_publish(path, "second", 6, &err), err);
    assert_holds(path, "second");
    put(beside, "what a crash left, longer than what comes"); /* must not show through */
    assert_ok(file_publish(path, "third", 5, &err), err);
    assert_holds(path, "third");
    assert_ok(file_publish(path, "", 0, &err), err);
    assert_holds(path, "");
    assert_false(file_exists(beside));
    assert_int_equal(open_fds(), before);

    struct stat st;
    mode_t mask = umask(022);
    assert_ok(file_publish(path, "x", 1, &err), err);
    (void)umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);

    assert_fails(file_publish("/nonexistent-dir/x", "x", 1, &err), SLUICE_E_IO, err,
                 "/nonexistent-dir/x.tmp");
    assert_int_equal(mkdir(beside, 0700), 0); /* something else is in the way */
    assert_fails(file_publish(path, "x", 1, &err), SLUICE_E_IO, err, beside);
    assert_int_equal(rmdir(beside), 0);
    assert_int_equal(symlink("elsewhere", beside), 0); /* a link is not followed */
    assert_fails(file_publish(path, "x", 1, &err), SLUICE_E_IO, err, beside);
    char elsewhere[TEMP_PATH_BYTES];
    assert_false(file_exists(temp_name(elsewhere, dir, "elsewhere")));
    assert_int_equal(unlink(beside), 0);
    assert_int_equal(mkfifo(beside, 0600), 0);
    assert_int_not_equal(file_publish(path, "x", 1, &err), SLUICE_OK);
}

/* A relative path without a directory syncs ".". */
static void publishing_in_the_current_directory(void **state)
{
    (void)state;
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(dir), 0);
    sluice_error err;
    sluice_status status = file_publish("here", "1", 1, &err);
    assert_int_equal(chdir(old), 0);
    assert_int_equal(status, SLUICE_OK);
    char path[TEMP_PATH_BYTES];
    assert_holds(temp_name(path, dir, "here"), "1");
}

static void every_fault_of_a_publish(void **state)
{
    (void)state;
    static const enum fault_kind KINDS[] = {FAULT_ALLOC, FAULT_READ, FAULT_WRITE, FAULT_FSYNC, FAULT_RENAME};
    static const int WANT[] = {2, 1, 2, 2, 1};
    char path[TEMP_PATH_BYTES], beside[TEMP_PATH_BYTES];
    (void)temp_name(path, dir, "manifest.json");
    (void)temp_name(beside, dir, "manifest.json.tmp");
    int before = open_fds();
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        int failures = 0;
        for (uint64_t n = 1;; n++) {
            sluice_error err;
            assert_ok(file_publish(path, "old", 3, &err), err);
            fault_arm(KINDS[i], n);
            sluice_status status = file_publish(path, "new", 3, &err);
            bool fired = fault_fired(KINDS[i]);
            fault_arm(KINDS[i], 0);
            assert_int_equal(open_fds(), before);
            assert_false(file_exists(beside));
            if (!fired) {
                assert_int_equal(status, SLUICE_OK);
                assert_holds(path, "new");
                break;
            }
            failures++;
            assert_int_equal(status, KINDS[i] == FAULT_ALLOC ? SLUICE_E_MEMORY : SLUICE_E_IO);
            /* Only what comes after the rename, syncing the directory, may leave the new content. */
            bool renamed = failures == WANT[i] &&
                           (KINDS[i] == FAULT_ALLOC || KINDS[i] == FAULT_READ || KINDS[i] == FAULT_FSYNC);
            assert_holds(path, renamed ? "new" : "old");
        }
        assert_int_equal(failures, WANT[i]);
    }
}

/* Processes that publish the same path at once, and one that reads it: every version ever seen is whole. */
static void concurrent_publishers_never_mix(void **state)
{
    (void)state;
    enum { PUBLISHERS = 3, BYTES = 20000 };
    char path[TEMP_PATH_BYTES];
    (void)temp_name(path, dir, "shared");
    unsigned long rounds = scaled(60, 15);
    static char content[BYTES];
    memset(content, 'a', BYTES);
    assert_int_equal(file_publish(path, content, BYTES, NULL), SLUICE_OK);
    pid_t pids[PUBLISHERS];
    for (int i = 0; i < PUBLISHERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            int failed = 0;
            size_t bytes = BYTES - (size_t)i * 1000; /* lengths differ too */
            memset(content, 'a' + i, bytes);
            for (unsigned long r = 0; r < rounds && !failed; r++)
                failed = file_publish(path, content, bytes, NULL) != SLUICE_OK;
            _exit(failed);
        }
    }
    int running = PUBLISHERS;
    while (running > 0) {
        char *text;
        size_t bytes;
        sluice_error err;
        assert_ok(file_load(path, BYTES, &text, &bytes, &err), err);
        assert_in_range(text[0], 'a', 'a' + PUBLISHERS - 1);
        assert_int_equal(bytes, BYTES - (size_t)(text[0] - 'a') * 1000);
        for (size_t i = 1; i < bytes; i++)
            if (text[i] != text[0])
                fail_msg("byte %zu is %c in a file of %c", i, text[i], text[0]);
        mem_free(text);
        int status;
        pid_t done = waitpid(-1, &status, WNOHANG);
        if (done > 0) {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), 0);
            running--;
        }
    }
}

static void renames_name_both_ends(void **state)
{
    (void)state;
    char from[TEMP_PATH_BYTES], to[TEMP_PATH_BYTES];
    sluice_error err;
    (void)temp_name(from, dir, "from");
    (void)temp_name(to, dir, "to");
    assert_fails(file_rename(from, to, &err), SLUICE_E_IO, err, to);
    assert_non_null(strstr(err.detail, from));
    put(from, "x");
    fault_arm(FAULT_RENAME, 1);
    assert_fails(file_rename(from, to, &err), SLUICE_E_IO, err, "cannot rename");
    assert_true(file_exists(from));
    fault_arm(FAULT_FSYNC, 1);
    assert_fails(file_rename(from, to, &err), SLUICE_E_IO, err, dir);
    assert_true(file_exists(to));
    assert_fails(file_sync_dir(to, &err), SLUICE_E_IO, err, "cannot open the directory");
    assert_ok(file_sync_dir(dir, &err), err);
}

/* ---- deleting ---- */

static void trees_go_whole_and_links_are_not_followed(void **state)
{
    (void)state;
    char outside[TEMP_PATH_BYTES], tree[TEMP_PATH_BYTES], path[TEMP_PATH_BYTES + 32], deep[4096];
    sluice_error err;
    put(temp_name(outside, dir, "outside"), "stays");
    assert_int_equal(mkdir(temp_name(tree, dir, "tree"), 0700), 0);
    (void)snprintf(path, sizeof path, "%s/link", tree);
    assert_int_equal(symlink(outside, path), 0);
    (void)snprintf(path, sizeof path, "%s/up", tree);
    assert_int_equal(symlink("..", path), 0);
    (void)snprintf(path, sizeof path, "%s/dangling", tree);
    assert_int_equal(symlink("nowhere", path), 0);
    int n = snprintf(deep, sizeof deep, "%s", tree);
    for (int i = 0; i < 40; i++) {
        n += snprintf(deep + n, sizeof deep - (size_t)n, "/d%d", i);
        assert_int_equal(mkdir(deep, 0700), 0);
    }
    (void)snprintf(deep + n, sizeof deep - (size_t)n, "/leaf");
    put(deep, "x");
    assert_ok(file_remove_tree(tree, &err), err);
    assert_false(file_exists(tree));
    assert_holds(outside, "stays");
    assert_ok(file_remove_tree(tree, &err), err); /* already gone: fine */

    (void)snprintf(path, sizeof path, "%s/alone", dir);
    put(path, "x");
    assert_ok(file_remove_tree(path, &err), err); /* a file is a tree of one */
    assert_false(file_exists(path));
    assert_int_equal(symlink(outside, path), 0);
    assert_ok(file_remove_tree(path, &err), err);
    assert_holds(outside, "stays");
    assert_fails(file_remove_tree("/proc/self/status", &err), SLUICE_E_IO, err,
                 "cannot delete /proc/self/status");
}

static void existence_counts_dangling_links(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    assert_true(file_exists(dir));
    assert_false(file_exists(temp_name(path, dir, "link")));
    assert_int_equal(symlink("nowhere", path), 0);
    assert_true(file_exists(path));
}

/* ---- locks ---- */

static void a_lock_is_busy_until_its_holder_ends(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    (void)temp_name(path, dir, "install.lock");
    sluice_error err;
    int fd, ready[2], finish[2];
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(finish), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char c = 'x';
        (void)close(finish[1]);
        bool ok = file_lock(path, "the install", &fd, NULL) == SLUICE_OK && write(ready[1], "r", 1) == 1;
        ssize_t n = read(finish[0], &c, 1); /* until the parent closes its end, or dies */
        _exit(ok && n == 0 ? 0 : 1);        /* without unlocking: the end of the process does it */
    }
    (void)close(finish[0]);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    fd = 3;
    assert_fails(file_lock(path, "installing m.gturbo", &fd, &err), SLUICE_E_BUSY, err,
                 "another process is busy with installing m.gturbo");
    assert_non_null(strstr(err.detail, path));
    assert_int_equal(fd, -1);
    (void)close(finish[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_ok(file_lock(path, "x", &fd, &err), err);
    int second;
    assert_fails(file_lock(path, "x", &second, &err), SLUICE_E_BUSY, err, "busy"); /* in one process too */
    file_unlock(fd);
    assert_ok(file_lock(path, "x", &second, &err), err);
    file_unlock(second);
    file_unlock(-1);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void locks_that_cannot_be_taken(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    sluice_error err;
    int fd, before = open_fds();
    assert_fails(file_lock("/nonexistent-dir/x.lock", "x", &fd, &err), SLUICE_E_IO, err,
                 "/nonexistent-dir/x.lock");
    assert_int_equal(symlink("elsewhere", temp_name(path, dir, "x.lock")), 0);
    assert_fails(file_lock(path, "x", &fd, &err), SLUICE_E_IO, err, "cannot open the lock file");
    fault_arm(FAULT_WRITE, 1);
    assert_fails(file_lock(temp_name(path, dir, "y.lock"), "x", &fd, &err), SLUICE_E_IO, err,
                 "the disk is full");
    assert_int_equal(fd, -1);
    assert_int_equal(open_fds(), before);
}

/* ---- paths ---- */

static void joining(void **state)
{
    (void)state;
    char *path = file_join("a/b", "c.bin");
    assert_string_equal(path, "a/b/c.bin");
    mem_free(path);
    fault_arm(FAULT_ALLOC, 1);
    assert_null(file_join("a", "b"));
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        IN_DIR(open_read_takes_regular_files_only),
        IN_DIR(exact_reads_and_writes),
        IN_DIR(loads_are_capped),
        IN_DIR(every_fault_of_a_load),
        IN_DIR(publishing_replaces_at_once),
        IN_DIR(publishing_in_the_current_directory),
        IN_DIR(every_fault_of_a_publish),
        IN_DIR(concurrent_publishers_never_mix),
        IN_DIR(renames_name_both_ends),
        IN_DIR(trees_go_whole_and_links_are_not_followed),
        IN_DIR(existence_counts_dangling_links),
        IN_DIR(a_lock_is_busy_until_its_holder_ends),
        IN_DIR(locks_that_cannot_be_taken),
        cmocka_unit_test(joining),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
