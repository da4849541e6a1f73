/* The small files of a snapshot that go into tokenizer/ unchanged. The set is the format's: other readers
 * expect no further file. */
#ifndef STORE_SIDECARS_H
#define STORE_SIDECARS_H

#include "base/sha256.h"
#include "store/source.h"

struct sidecar {
    const char *name;
    uint32_t max_bytes;
    bool required;
};

enum { SIDECARS = 6 };
extern const struct sidecar SIDECAR_TABLE[SIDECARS];

/* Before anything is written: required ones are there, none is too large or a Git LFS pointer. Feeds their
 * identity to `h`. bytes[i] gets the size, UINT64_MAX for an optional one that is absent. */
sluice_status sidecars_check(struct source *source, struct sha256 *h, uint64_t bytes[SIDECARS],
                             sluice_error *err);

/* Feed a file's name, size and identity, where the source has one. */
sluice_status sidecars_feed(struct source *source, struct sha256 *h, const char *file, uint64_t bytes,
                            sluice_error *err);

/* Copy one to `path` through `scratch`, and sync it. */
sluice_status sidecars_copy(struct source *source, const char *name, uint64_t bytes, const char *path,
                            void *scratch, size_t scratch_bytes, sluice_error *err);

#endif
