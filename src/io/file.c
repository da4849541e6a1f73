#include "io/file.h"

#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

char *file_join(const char *dir, const char *name)
{
    size_t room = strlen(dir) + strlen(name) + sizeof "/";
    char *path = mem_alloc(room);
    if (path)
        (void)snprintf(path, room, "%s/%s", dir, name);
    return path;
}

bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

sluice_status file_open_read(const char *path, int *out, uint64_t *bytes, sluice_error *err)
{
    *out = -1;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing to a regular file. */
    int fd =
        fault_hit(FAULT_READ) ? (errno = EIO, -1) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        int errnum = errno;
        (void)close(fd);
        return err_errno(err, errnum, "cannot examine %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        (void)close(fd);
        return err_set(err, SLUICE_E_FORMAT, "%s is not a regular file", path);
    }
    *out = fd;
    if (bytes)
        *bytes = (uint64_t)st.st_size;
    return SLUICE_OK;
}

sluice_status file_read_at(int fd, void *buffer, size_t n, uint64_t offset, const char *name,
                           sluice_error *err)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = fault_hit(FAULT_READ)
                          ? (errno = EIO, -1)
                          : pread(fd, (char *)buffer + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(err, errno, "reading %zu bytes at %llu of %s", n, (unsigned long long)offset,
                             name);
        if (got == 0)
            return err_set(err, SLUICE_E_FORMAT,
                           "%s ends early: %zu bytes at %llu were wanted, %zu are there", name, n,
                           (unsigned long long)offset, done);
        done += (size_t)got;
    }
    return SLUICE_OK;
}

sluice_status file_write_at(int fd, const void *buffer, size_t n, uint64_t offset, const char *name,
                            sluice_error *err)
{
    size_t done = 0;
    void *replaced = fault_before_write(fd, offset, n);
    while (done < n) {
        ssize_t put = fault_hit(FAULT_WRITE)
                          ? (errno = ENOSPC, -1)
                          : pwrite(fd, (const char *)buffer + done, n - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = EIO; /* a file system that makes no progress must not make us spin */
        if (put <= 0)
            return err_errno(err, errno, "writing %zu bytes at %llu of %s", n, (unsigned long long)offset,
                             name);
        done += (size_t)put;
    }
    fault_after_write(replaced);
    return SLUICE_OK;
}

sluice_status file_load(const char *path, size_t max_bytes, char **text, size_t *bytes, sluice_error *err)
{
    int fd;
    uint64_t size;
    *text = NULL;
    TRY(file_open_read(path, &fd, &size, err));
    sluice_status status = SLUICE_OK;
    if (size > max_bytes) {
        status = err_set(err, SLUICE_E_FORMAT, "%s has %llu bytes, at most %zu are accepted", path,
                         (unsigned long long)size, max_bytes);
    } else {
        char *p = mem_alloc((size_t)size + 1);
        status = p ? file_read_at(fd, p, (size_t)size, 0, path, err) : err_memory(err, (size_t)size, path);
        if (status == SLUICE_OK) {
            p[size] = '\0';
            *text = p;
            *bytes = (size_t)size;
        } else {
            mem_free(p);
        }
    }
    (void)close(fd);
    return status;
}

sluice_status file_sync(int fd, const char *name, sluice_error *err)
{
    int rc;
    uint64_t before = fault_before_sync();
    do
        rc = fault_hit(FAULT_FSYNC) ? (errno = EIO, -1) : fsync(fd);
    while (rc != 0 && errno == EINTR);
    fault_after_sync(fd, before, rc == 0);
    return rc == 0 ? SLUICE_OK : err_errno(err, errno, "syncing %s to disk", name);
}

sluice_status file_sync_dir(const char *dir, sluice_error *err)
{
    int fd = fault_hit(FAULT_READ) ? (errno = EIO, -1) : open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s", dir);
    sluice_status status = file_sync(fd, dir, err);
    (void)close(fd);
    return status;
}

static sluice_status sync_parent(const char *path, sluice_error *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return file_sync_dir(".", err);
    char *dir = slash == path ? mem_strdup("/") : mem_strndup(path, (size_t)(slash - path));
    if (!dir)
        return err_memory(err, strlen(path), "a path");
    sluice_status status = file_sync_dir(dir, err);
    mem_free(dir);
    return status;
}

sluice_status file_create(const char *path, int flags, int *out, sluice_error *err)
{
    void *made = fault_before_change(FAULT_CREATED, path, NULL);
    *out = open(path, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int errnum = errno;
    fault_after_change(made, *out >= 0);
    return *out >= 0 ? SLUICE_OK : err_errno(err, errnum, "cannot create %s", path);
}

sluice_status file_make_dir(const char *path, sluice_error *err)
{
    void *made = fault_before_change(FAULT_CREATED, path, NULL);
    int rc = mkdir(path, 0777), errnum = errno;
    fault_after_change(made, rc == 0);
    return rc == 0 || errnum == EEXIST ? SLUICE_OK
                                       : err_errno(err, errnum, "cannot create the directory %s", path);
}

sluice_status file_unlink(const char *path, sluice_error *err)
{
    if (!fault_delete(path) && unlink(path) != 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot delete %s", path);
    return SLUICE_OK;
}

int file_rename_flags(const char *from, const char *to, unsigned flags)
{
    if (fault_hit(FAULT_RENAME))
        return errno = EIO, -1;
    void *renamed = fault_before_change(flags & RENAME_EXCHANGE ? FAULT_EXCHANGED : FAULT_RENAMED, from, to);
    int rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, flags), errnum = errno;
    fault_after_change(renamed, rc == 0);
    errno = errnum;
    return rc;
}

static sluice_status rename_only(const char *from, const char *to, sluice_error *err)
{
    int rc = file_rename_flags(from, to, 0);
    return rc == 0 ? SLUICE_OK : err_errno(err, errno, "cannot rename %s to %s", from, to);
}

sluice_status file_rename(const char *from, const char *to, sluice_error *err)
{
    TRY(rename_only(from, to, err));
    return sync_parent(to, err);
}

static int take_lock(int fd, int operation)
{
    int rc;
    do
        rc = flock(fd, operation);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* Open PATH.tmp and hold its lock: two processes may publish one path at once (each renews the receipt of an
 * install that both opened), and neither may rename what the other is still writing. */
static sluice_status open_beside(const char *beside, int *out, sluice_error *err)
{
    for (;;) {
        int fd;
        if (fault_hit(FAULT_WRITE))
            return err_errno(err, ENOSPC, "cannot create %s", beside);
        TRY(file_create(beside, O_WRONLY | O_NONBLOCK, &fd, err));
        struct stat mine, there;
        if (take_lock(fd, LOCK_EX) != 0 || fstat(fd, &mine) != 0) {
            int errnum = errno;
            (void)close(fd);
            return err_errno(err, errnum, "cannot lock %s", beside);
        }
        if (!S_ISREG(mine.st_mode)) {
            (void)close(fd);
            return err_set(err, SLUICE_E_FORMAT, "%s is not a regular file; delete it", beside);
        }
        if (lstat(beside, &there) == 0 && mine.st_dev == there.st_dev && mine.st_ino == there.st_ino) {
            *out = fd;
            return SLUICE_OK;
        }
        (void)close(fd); /* another publisher renamed or deleted it while we waited: make a new one */
    }
}

static sluice_status fill(int fd, const void *bytes, size_t n, const char *name, sluice_error *err)
{
    if (ftruncate(fd, 0) != 0)
        return err_errno(err, errno, "cannot empty %s", name);
    TRY(file_write_at(fd, bytes, n, 0, name, err));
    return file_sync(fd, name, err);
}

sluice_status file_publish(const char *path, const void *bytes, size_t n, sluice_error *err)
{
    size_t room = strlen(path) + sizeof ".tmp";
    char *beside = mem_alloc(room);
    if (!beside)
        return err_memory(err, room, "a path");
    (void)snprintf(beside, room, "%s.tmp", path);
    int fd;
    sluice_status status = open_beside(beside, &fd, err);
    if (status == SLUICE_OK) {
        status = fill(fd, bytes, n, beside, err);
        if (status == SLUICE_OK)
            status = rename_only(beside, path, err);
        if (status != SLUICE_OK)
            (void)file_unlink(beside, NULL); /* while the lock still makes the name ours */
        (void)close(fd);
        if (status == SLUICE_OK)
            status = sync_parent(path, err);
    }
    mem_free(beside);
    return status;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

sluice_status file_remove_tree(const char *path, sluice_error *err)
{
    if (!file_exists(path))
        return SLUICE_OK;
    if (fault_delete(path))
        return SLUICE_OK;
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return err_errno(err, errno, "cannot delete %s", path);
    return SLUICE_OK;
}

sluice_status file_lock(const char *path, const char *what, int *out, sluice_error *err)
{
    *out = -1;
    int fd = -1;
    sluice_status status = fault_hit(FAULT_WRITE) ? err_errno(err, ENOSPC, "cannot create %s", path)
                                                  : file_create(path, O_RDWR, &fd, err);
    if (status != SLUICE_OK)
        return err_prefix(err, status, "cannot open the lock file");
    if (take_lock(fd, LOCK_EX | LOCK_NB) != 0) {
        int errnum = errno;
        (void)close(fd);
        if (errnum == EWOULDBLOCK)
            return err_set(err, SLUICE_E_BUSY,
                           "another process is busy with %s (it holds %s); wait until it ends", what, path);
        return err_errno(err, errnum, "cannot lock %s", path);
    }
    *out = fd;
    return SLUICE_OK;
}

void file_unlock(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}
