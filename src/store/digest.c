#include "store/digest.h"

#include "base/mem.h"
#include "io/file.h"
#include "io/reads.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pages are given back in windows this wide: wide enough for the kernel's readahead to run ahead. */
enum { WINDOW_BYTES = 8 << 20 };
enum { FAST_BLOCKS = 4, FAST_BLOCK_BYTES = DIGEST_FAST_BYTES / FAST_BLOCKS, DIRECT_ALIGN = 4096 };

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

/* One lap of the fast way: blocks in flight, oldest first in a ring of FAST_BLOCKS. */
struct lap {
    struct reads *reads;
    struct read_request blocks[FAST_BLOCKS];
    unsigned char *memory;
    uint64_t next; /* file offset of the next block to ask for */
};

static void ask(struct lap *lap, int fd, uint64_t bytes, size_t i)
{
    struct read_request *r = &lap->blocks[i], *one = r;
    uint64_t left = bytes - lap->next;
    size_t n = left < FAST_BLOCK_BYTES ? (size_t)left : FAST_BLOCK_BYTES;
    /* A direct read asks for whole sectors; the file's end cuts it short. */
    *r = (struct read_request){.fd = fd,
                               .buffer = lap->memory + i * FAST_BLOCK_BYTES,
                               .bytes = (n + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN,
                               .offset = lap->next};
    lap->next += n;
    reads_submit(lap->reads, &one, 1);
}

static sluice_status hash_blocks(struct lap *lap, int fd, const char *name, uint64_t bytes,
                                 struct meter *meter, struct sha256 *h, sluice_error *err)
{
    for (size_t i = 0; i < FAST_BLOCKS && lap->next < bytes; i++)
        ask(lap, fd, bytes, i);
    for (uint64_t at = 0; at < bytes;) {
        size_t i = at / FAST_BLOCK_BYTES % FAST_BLOCKS;
        struct read_request *r = &lap->blocks[i];
        size_t n = bytes - at < FAST_BLOCK_BYTES ? (size_t)(bytes - at) : FAST_BLOCK_BYTES;
        (void)reads_wait(lap->reads, r, NULL);
        if (r->errnum)
            return err_errno(err, r->errnum, "reading %zu bytes at %llu of %s", n, (unsigned long long)at,
                             name);
        if (r->got < n)
            return err_set(err, SLUICE_E_FORMAT,
                           "%s ends early: %zu bytes at %llu were wanted, %zu are there", name, n,
                           (unsigned long long)at, r->got);
        sha256_update(h, r->buffer, n);
        /* Nothing stays in the page cache even where the file system has no direct reads. */
        (void)posix_fadvise(fd, (off_t)at, (off_t)n, POSIX_FADV_DONTNEED);
        at += n;
        if (lap->next < bytes)
            ask(lap, fd, bytes, i);
        TRY(meter_step(meter, n, err));
    }
    return SLUICE_OK;
}

static sluice_status hash_fast(int fd, const char *name, uint64_t bytes, struct meter *meter,
                               struct sha256 *h, sluice_error *err)
{
    struct arena arena;
    struct lap lap = {0};
    TRY(arena_open(&arena, NULL, DIGEST_FAST_BYTES, "hashing", err));
    lap.memory = arena.base;
    int flags = fcntl(fd, F_GETFL);
    /* O_NONBLOCK: a ring would answer EAGAIN on file systems that can only block. */
    bool direct = flags >= 0 && fcntl(fd, F_SETFL, (flags & ~O_NONBLOCK) | O_DIRECT) == 0;
    if (direct && pread(fd, lap.memory, DIRECT_ALIGN, 0) < 0 && errno == EINVAL)
        direct = false; /* takes the flag and refuses the reads */
    if (flags >= 0 && !direct)
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    sluice_status status = reads_open(&lap.reads, &(struct reads_options){.depth = FAST_BLOCKS}, err);
    if (status == SLUICE_OK)
        status = hash_blocks(&lap, fd, name, bytes, meter, h, err);
    reads_close(lap.reads); /* before the memory that reads may still be filling */
    if (flags >= 0 && fcntl(fd, F_SETFL, flags) != 0 && status == SLUICE_OK)
        status = err_errno(err, errno, "cannot change the mode of %s", name);
    arena_close(&arena);
    return status;
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
    return digest_by(bytes < DIGEST_FAST_BYTES ? hash_all : hash_fast, fd, name, bytes, meter, hex, stamp,
                     err);
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
    mem_free(path);
    return status;
}
