/* Where an install's bytes come from: named files with random access. A snapshot directory today; byte ranges
 * of a repository through the same structure. Reads go through bounded buffers of the caller. */
#ifndef STORE_SOURCE_H
#define STORE_SOURCE_H

#include "base/err.h"

struct source {
    void *state;
    char *name; /* for messages and the manifest: a directory's last component, or a repository id */
    /* Size of a file; SLUICE_E_IO with the file's name when it is missing. */
    sluice_status (*size)(struct source *, const char *file, uint64_t *bytes, sluice_error *err);
    bool (*exists)(struct source *, const char *file);
    /* Exactly n bytes at offset. */
    sluice_status (*read)(struct source *, const char *file, uint64_t offset, void *buffer, size_t n,
                          sluice_error *err);
    void (*close)(struct source *);
};

sluice_status source_open_dir(struct source **source, const char *dir, sluice_error *err);
void source_close(struct source *source); /* NULL is fine */
/* A whole small file, NUL after it; free with mem_free. */
sluice_status source_load(struct source *source, const char *file, size_t max_bytes, char **text,
                          size_t *bytes, sluice_error *err);

#endif
