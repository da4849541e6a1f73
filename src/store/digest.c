#include "store/digest.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/sequence.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pages are given back in windows this wide: wide enough for the kernel's readahead to run ahead. */
enum { WINDOW_BYTES = 8 << 20 };

sluice_status stamp_fd(int fd, const char *name, struct file_stamp *stamp, sluice_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_errno(err, errno, "cannot examine %s", name);
    stamp->bytes = (uint64_t)st.st_size;
    /* Unsigned, because a file system may hold any number of seconds. */
    stamp->mtime_ns = (int64_t)((uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
    return SLUICE_OK;
}

static sluice_status hash_all(int fd, const char *name, uint64_t bytes, struct meter *meter, struct sha256 *h,
                              sluice_error *err)
{
    unsigned char *scratch = mem_alloc(DIGEST_SCRATCH_BYTES);
    if (!scratch)
        return err_memory(err, DIGEST_SCRATCH_BYTES, "hashing");
    sluice_status status = SLUICE_OK;
    uint64_t window = 0;
    for (uint64_t at = 0; at < bytes && status == SLUICE_OK;) {
        size_t n = bytes - at < DIGEST_SCRATCH_BYTES ? (size_t)(bytes - at) : DIGEST_SCRATCH_BYTES;
        status = file_read_at(fd, scratch, n, at, name, err);
        if (status == SLUICE_OK) {
            sha256_update(h, scratch, n);
            at += n;
            if (at - window >= WINDOW_BYTES || at == bytes) {
                (void)posix_fadvise(fd, (off_t)window, (off_t)(at - window), POSIX_FADV_DONTNEED);
                window = at;
            }
            status = meter_step(meter, n, err);
        }
    }
    mem_free(scratch);
    return status;
}

struct hashing {
    struct sha256 *h;
    struct meter *meter;
};

static sluice_status hash_block(void *user, const unsigned char *bytes, size_t n, sluice_error *err)
{
    struct hashing *hashing = user;
    sha256_update(hashing->h, bytes, n);
    return meter_step(hashing->meter, n, err);
}

/* The next blocks are read while one is hashed. */
static sluice_status hash_fast(int fd, const char *name, uint64_t bytes, struct meter *meter,
                               struct sha256 *h, sluice_error *err)
{
    struct hashing hashing = {h, meter};
    return sequence_read(fd, name, 0, bytes, NULL, hash_block, &hashing, err);
}

typedef sluice_status hash_way(int fd, const char *name, uint64_t bytes, struct meter *meter,
                               struct sha256 *h, sluice_error *err);

static sluice_status digest_by(hash_way *hash, int fd, const char *name, uint64_t bytes, struct meter *meter,
                               char hex[SHA256_HEX_BYTES], struct file_stamp *stamp, sluice_error *err)
{
    struct file_stamp before, after;
    TRY(stamp_fd(fd, name, &before, err));
    if (before.bytes != bytes)
        return err_set(err, SLUICE_E_CORRUPT, "%s has %llu bytes, the manifest says %llu; install it again",
                       name, (unsigned long long)before.bytes, (unsigned long long)bytes);
    struct sha256 h;
    TRY(sha256_open(&h, err));
    sluice_status status = hash(fd, name, bytes, meter, &h, err);
    sha256_close(&h, hex);
    TRY(status);
    TRY(stamp_fd(fd, name, &after, err));
    if (before.bytes != after.bytes || before.mtime_ns != after.mtime_ns)
        return err_set(err, SLUICE_E_CORRUPT, "%s changed while it was read; stop what writes to it", name);
    if (stamp)
        *stamp = before;
    return SLUICE_OK;
}

sluice_status digest_fd(int fd, const char *name, uint64_t bytes, struct meter *meter,
                        char hex[SHA256_HEX_BYTES], struct file_stamp *stamp, sluice_error *err)
{
    return digest_by(hash_all, fd, name, bytes, meter, hex, stamp, err);
}

sluice_status digest_fd_fast(int fd, const char *name, uint64_t bytes, struct meter *meter,
                             char hex[SHA256_HEX_BYTES], struct file_stamp *stamp, sluice_error *err)
{
    return digest_by(bytes < SEQUENCE_BYTES ? hash_all : hash_fast, fd, name, bytes, meter, hex, stamp, err);
}

sluice_status digest_check(const char *dir, const char *name, uint64_t bytes,
                           const char expected[SHA256_HEX_BYTES], struct meter *meter,
                           struct file_stamp *stamp, sluice_error *err)
{
    char *path = file_join(dir, name);
    if (!path)
        return err_memory(err, strlen(name), "a path");
    int fd;
    char hex[SHA256_HEX_BYTES];
    sluice_status status = file_open_read(path, &fd, NULL, err);
    if (status == SLUICE_OK) {
        status = digest_fd_fast(fd, path, bytes, meter, hex, stamp, err);
        (void)close(fd);
    }
    if (status == SLUICE_OK && strcmp(hex, expected) != 0)
        status = err_set(err, SLUICE_E_CORRUPT,
                         "%s is damaged: its SHA-256 is %s, the manifest says %s; install it again", path,
                         hex, expected);
    if (status == SLUICE_OK)
        meter_prove(meter, bytes);
    mem_free(path);
    return status;
}
