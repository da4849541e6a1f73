#include "store/source.h"

#include "base/mem.h"

#include <string.h>

bool source_is_lfs_pointer(const void *bytes, size_t n)
{
    static const char FIRST_LINE[] = "version https://git-lfs.github.com/spec/";
    size_t length = sizeof FIRST_LINE - 1;
    return n >= length && memcmp(bytes, FIRST_LINE, length) == 0;
}

sluice_status source_refuse_lfs_pointer(const char *file, sluice_error *err)
{
    return err_set(err, SLUICE_E_FORMAT,
                   "%s: this is a Git LFS pointer, not the file itself; run `git lfs pull` in the snapshot",
                   file);
}

void source_close(struct source *source)
{
    if (source)
        source->close(source);
}

sluice_status source_load(struct source *source, const char *file, size_t max_bytes, char **text,
                          size_t *bytes, sluice_error *err)
{
    *text = NULL;
    uint64_t size;
    TRY(source->size(source, file, &size, err));
    if (size > max_bytes)
        return err_set(err, SLUICE_E_FORMAT, "%s has %llu bytes, at most %zu are accepted", file,
                       (unsigned long long)size, max_bytes);
    char *p = mem_alloc((size_t)size + 1);
    if (!p)
        return err_memory(err, (size_t)size + 1, file);
    sluice_status status = source->read(source, file, 0, p, (size_t)size, err);
    if (status == SLUICE_OK && source_is_lfs_pointer(p, (size_t)size))
        status = source_refuse_lfs_pointer(file, err);
    if (status != SLUICE_OK) {
        mem_free(p);
        return status;
    }
    p[size] = '\0';
    *text = p;
    *bytes = (size_t)size;
    return SLUICE_OK;
}
