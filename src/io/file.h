/* Files: whole reads and writes, bounded loads, locks, and publication that survives a crash.
 *
 * Errors name the path. Every open, read, write, sync and rename passes the fault hook (base/fault.h), and
 * the simulated power loss there knows of what is made, deleted and renamed through these functions. */
#ifndef IO_FILE_H
#define IO_FILE_H

#include "base/err.h"

/* Open for reading, without waiting; refuses anything that is not a regular file. *bytes (may be NULL) gets
 * its size. */
sluice_status file_open_read(const char *path, int *fd, uint64_t *bytes, sluice_error *err);

/* Read exactly n bytes at `offset`, or fail: an early end of file is SLUICE_E_FORMAT. `name` is for messages.
 */
sluice_status file_read_at(int fd, void *buffer, size_t n, uint64_t offset, const char *name,
                           sluice_error *err);
sluice_status file_write_at(int fd, const void *buffer, size_t n, uint64_t offset, const char *name,
                            sluice_error *err);

/* Load a whole file of at most max_bytes, with a NUL after it. Free *text with mem_free. */
sluice_status file_load(const char *path, size_t max_bytes, char **text, size_t *bytes, sluice_error *err);

/* Open for writing, with O_CREAT, O_CLOEXEC and O_NOFOLLOW beside `flags`. */
sluice_status file_create(const char *path, int flags, int *fd, sluice_error *err);
sluice_status file_make_dir(const char *path, sluice_error *err); /* one that is there already is fine */
sluice_status file_unlink(const char *path, sluice_error *err);   /* a missing one is fine */
/* renameat2(2) of two names in one directory: 0, or -1 with errno. */
int file_rename_flags(const char *from, const char *to, unsigned flags);

bool file_exists(const char *path); /* anything of that name, a dangling link too */
sluice_status file_sync(int fd, const char *name, sluice_error *err);
sluice_status file_sync_dir(const char *dir, sluice_error *err);
/* rename(2) and fsync of the directory that holds `to`. */
sluice_status file_rename(const char *from, const char *to, sluice_error *err);

/* Publish a small file atomically: write PATH.tmp, fsync it, rename, fsync the directory. A crash leaves the
 * old content or the new, and so do two processes that publish at once. After an error the old content is
 * there, or the new one where only the directory's fsync failed. */
sluice_status file_publish(const char *path, const void *bytes, size_t n, sluice_error *err);

/* Delete a directory tree (does not follow links). A missing one is fine. */
sluice_status file_remove_tree(const char *path, sluice_error *err);

/* An advisory lock on a file that is created when missing. SLUICE_E_BUSY when another process holds it:
 * `what` names the work for the message. The lock ends with file_unlock or with the process. */
sluice_status file_lock(const char *path, const char *what, int *fd, sluice_error *err);
void file_unlock(int fd);

/* "dir/name" into a new string; NULL when out of memory. Free with mem_free. */
char *file_join(const char *dir, const char *name);

#endif
