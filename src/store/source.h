/* Where an install's bytes come from: named files with random access. A snapshot directory, or byte ranges of
 * a hub's repository. Reads go through bounded buffers of the caller.
 *
 * A source belongs to one thread at a time. An implementation allocates the structure zeroed; members that it
 * leaves NULL are optional ones. */
#ifndef STORE_SOURCE_H
#define STORE_SOURCE_H

#include "base/sha256.h"

struct http_options;

#define SOURCE_IDENTITY_BYTES 128

struct source {
    void *state;
    char *name;     /* for messages and the manifest: a directory's last component, or a repository id */
    char *revision; /* optional: the resolved revision of a repository */
    /* read() is a pure function, for any thread at any time, and costs no more than checking the bytes would:
     * the install is then written file by file, and a resume writes them again. */
    bool any_order;
    /* Size of a file; SLUICE_E_IO with the file's name when it is missing. */
    sluice_status (*size)(struct source *, const char *file, uint64_t *bytes, sluice_error *err);
    sluice_status (*exists)(struct source *, const char *file, bool *there, sluice_error *err);
    /* Exactly n bytes at offset. */
    sluice_status (*read)(struct source *, const char *file, uint64_t offset, void *buffer, size_t n,
                          sluice_error *err);
    /* Optional: a short text that changes when the file does (size and modification time; an entity tag). A
     * resume refuses a source whose text changed. */
    sluice_status (*identity)(struct source *, const char *file, char text[SOURCE_IDENTITY_BYTES],
                              sluice_error *err);
    /* Optional: the SHA-256 that the source itself states for a whole file, in lower-case hexadecimal; ""
     * when it states none. */
    sluice_status (*digest)(struct source *, const char *file, char hex[SHA256_HEX_BYTES], sluice_error *err);
    /* Optional: reads inside [offset, offset + bytes) will follow in the order of the announcements,
     * ascending and without overlap, the last one up to the end; so requests can run ahead. Another read
     * forgets what was announced. */
    sluice_status (*announce)(struct source *, const char *file, uint64_t offset, uint64_t bytes,
                              sluice_error *err);
    void (*close)(struct source *);
};

sluice_status source_open_dir(struct source **source, const char *dir, sluice_error *err);

/* A repository of a model hub, or of a mirror that answers the same addresses. `revision` is a commit, a tag
 * or a branch; the first response says which commit it is, and all others must say the same. `limits` has
 * what the transfers need (io/http.h), its token included, which goes over https or to this machine only, and
 * is left out elsewhere. */
struct hub_options {
    const char *base_url; /* NULL: HUB_DEFAULT_URL */
    const char *repo;     /* "owner/name" */
    const char *revision; /* NULL: "main" */
    const struct http_options *limits;
};

#define HUB_DEFAULT_URL "https://huggingface.co"

sluice_status source_open_hub(struct source **source, const struct hub_options *options, sluice_error *err);

void source_close(struct source *source); /* NULL is fine */
/* A whole small file, NUL after it; free with mem_free. A Git LFS pointer in its place is refused by name. */
sluice_status source_load(struct source *source, const char *file, size_t max_bytes, char **text,
                          size_t *bytes, sluice_error *err);

/* True when the first n bytes of a file are those of a Git LFS pointer. */
bool source_is_lfs_pointer(const void *bytes, size_t n);
/* The one sentence for it. */
sluice_status source_refuse_lfs_pointer(const char *file, sluice_error *err);

#endif
