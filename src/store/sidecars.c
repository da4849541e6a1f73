#include "store/sidecars.h"

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const struct sidecar SIDECAR_TABLE[SIDECARS] = {
    {"config.json", 1u << 20, true},           {"tokenizer.json", 64u << 20, true},
    {"tokenizer_config.json", 4u << 20, true}, {"special_tokens_map.json", 1u << 20, false},
    {"chat_template.jinja", 4u << 20, false},  {"chat_template.json", 4u << 20, false},
};

sluice_status sidecars_feed(struct source *source, struct sha256 *h, const char *file, uint64_t bytes,
                            sluice_error *err)
{
    char identity[SOURCE_IDENTITY_BYTES] = "";
    if (source->identity)
        TRY(source->identity(source, file, identity, err));
    sha256_update_u64(h, strlen(file));
    sha256_update(h, file, strlen(file));
    sha256_update_u64(h, bytes);
    sha256_update_u64(h, strlen(identity));
    sha256_update(h, identity, strlen(identity));
    return SLUICE_OK;
}

static sluice_status check_one(struct source *source, const struct sidecar *sidecar, uint64_t *bytes,
                               sluice_error *err)
{
    char start[64];
    TRY(source->size(source, sidecar->name, bytes, err));
    if (*bytes > sidecar->max_bytes)
        return err_set(err, SLUICE_E_FORMAT, "%s has %llu bytes, at most %u are accepted", sidecar->name,
                       (unsigned long long)*bytes, sidecar->max_bytes);
    size_t n = *bytes < sizeof start ? (size_t)*bytes : sizeof start;
    TRY(source->read(source, sidecar->name, 0, start, n, err));
    return source_is_lfs_pointer(start, n) ? source_refuse_lfs_pointer(sidecar->name, err) : SLUICE_OK;
}

sluice_status sidecars_check(struct source *source, struct sha256 *h, uint64_t bytes[SIDECARS],
                             sluice_error *err)
{
    for (size_t i = 0; i < SIDECARS; i++) {
        const struct sidecar *sidecar = &SIDECAR_TABLE[i];
        bytes[i] = UINT64_MAX;
        bool there;
        TRY(source->exists(source, sidecar->name, &there, err));
        if (!there) {
            if (sidecar->required)
                return err_set(err, SLUICE_E_IO, "%s lacks %s; give a complete snapshot", source->name,
                               sidecar->name);
            continue;
        }
        TRY(check_one(source, sidecar, &bytes[i], err));
        TRY(sidecars_feed(source, h, sidecar->name, bytes[i], err));
    }
    return SLUICE_OK;
}

sluice_status sidecars_copy(struct source *source, const char *name, uint64_t bytes, const char *path,
                            void *scratch, size_t scratch_bytes, sluice_error *err)
{
    int fd;
    TRY(file_create(path, O_WRONLY | O_TRUNC, &fd, err));
    sluice_status status = source->announce ? source->announce(source, name, 0, bytes, err) : SLUICE_OK;
    for (uint64_t at = 0; at < bytes && status == SLUICE_OK;) {
        size_t n = bytes - at < scratch_bytes ? (size_t)(bytes - at) : scratch_bytes;
        status = source->read(source, name, at, scratch, n, err);
        if (status == SLUICE_OK)
            status = file_write_at(fd, scratch, n, at, path, err);
        at += n;
    }
    if (status == SLUICE_OK)
        status = file_sync(fd, path, err);
    (void)close(fd);
    return status;
}
