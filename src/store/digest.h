/* SHA-256 of whole files through a small buffer, leaving nothing of them in the page cache: the cache is
 * charged to the memory budget, and the bytes are not needed again. */
#ifndef STORE_DIGEST_H
#define STORE_DIGEST_H

#include "base/sha256.h"
#include "store/meter.h"

#define DIGEST_SCRATCH_BYTES (256u << 10)

/* What tells a file from an edited one without reading it (see receipt.h). */
struct file_stamp {
    uint64_t bytes;
    int64_t mtime_ns;
};

sluice_status stamp_fd(int fd, const char *name, struct file_stamp *stamp, sluice_error *err);

/* Hash the file behind fd, which must have exactly `bytes`; SLUICE_E_CORRUPT when it has not, or when its
 * stamp changed meanwhile. `name` is for messages. `stamp` may be NULL; it gets the stamp that the digest
 * belongs to. */
sluice_status digest_fd(int fd, const char *name, uint64_t bytes, struct meter *meter,
                        char hex[SHA256_HEX_BYTES], struct file_stamp *stamp, sluice_error *err);
/* The same at the drive's or the processor's speed, whichever is less (io/sequence.h); small files go the
 * plain way. */
sluice_status digest_fd_fast(int fd, const char *name, uint64_t bytes, struct meter *meter,
                             char hex[SHA256_HEX_BYTES], struct file_stamp *stamp, sluice_error *err);
/* Open, hash the fast way, close, and compare: SLUICE_E_CORRUPT with the file's name when the digest is not
 * `expected`. */
sluice_status digest_check(const char *dir, const char *name, uint64_t bytes,
                           const char expected[SHA256_HEX_BYTES], struct meter *meter,
                           struct file_stamp *stamp, sluice_error *err);

#endif
