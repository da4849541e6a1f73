/* A snapshot directory as a source. Links are followed, because download caches keep snapshots as links into
 * a pool of blobs; names, which may come from a shard index, cannot leave the directory. */
#include "base/mem.h"
#include "base/utf8.h"
#include "io/file.h"
#include "store/paths.h"
#include "store/source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct dir_source {
    struct source source;
    char *dir;
    /* The file of the last read stays open: an install reads each shard in thousands of pieces. */
    char *open_name;
    int fd;
    uint64_t bytes;
};

static sluice_status join(const struct dir_source *d, const char *file, char **path, sluice_error *err)
{
    *path = NULL;
    if (!path_stays_inside(file))
        return err_set(err, SLUICE_E_FORMAT,
                       "the file name \"%.120s\" leaves the snapshot; only names inside it are read", file);
    *path = file_join(d->dir, file);
    return *path ? SLUICE_OK : err_memory(err, strlen(file), "a path");
}

static void forget(struct dir_source *d)
{
    if (d->fd >= 0)
        (void)close(d->fd);
    mem_free(d->open_name);
    d->open_name = NULL;
    d->fd = -1;
}

static sluice_status use(struct dir_source *d, const char *file, sluice_error *err)
{
    if (d->open_name && strcmp(d->open_name, file) == 0)
        return SLUICE_OK;
    forget(d);
    char *path;
    TRY(join(d, file, &path, err));
    sluice_status status = file_open_read(path, &d->fd, &d->bytes, err);
    mem_free(path);
    TRY(status);
    d->open_name = mem_strdup(file);
    if (!d->open_name) {
        forget(d);
        return err_memory(err, strlen(file), "a path");
    }
    return SLUICE_OK;
}

static sluice_status dir_size(struct source *source, const char *file, uint64_t *bytes, sluice_error *err)
{
    struct dir_source *d = source->state;
    TRY(use(d, file, err));
    *bytes = d->bytes;
    return SLUICE_OK;
}

static sluice_status dir_exists(struct source *source, const char *file, bool *there, sluice_error *err)
{
    char *path;
    *there = false;
    if (!path_stays_inside(file))
        return SLUICE_OK;
    TRY(join(source->state, file, &path, err));
    *there = file_exists(path);
    mem_free(path);
    return SLUICE_OK;
}

static sluice_status dir_read(struct source *source, const char *file, uint64_t offset, void *buffer,
                              size_t n, sluice_error *err)
{
    struct dir_source *d = source->state;
    TRY(use(d, file, err));
    return file_read_at(d->fd, buffer, n, offset, file, err);
}

static sluice_status dir_identity(struct source *source, const char *file, char text[SOURCE_IDENTITY_BYTES],
                                  sluice_error *err)
{
    struct dir_source *d = source->state;
    TRY(use(d, file, err));
    struct stat st;
    if (fstat(d->fd, &st) != 0)
        return err_errno(err, errno, "cannot examine %s", file);
    (void)snprintf(text, SOURCE_IDENTITY_BYTES, "%lld bytes, %lld.%09ld", (long long)st.st_size,
                   (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return SLUICE_OK;
}

static void dir_close(struct source *source)
{
    struct dir_source *d = source->state;
    forget(d);
    mem_free(d->dir);
    mem_free(d->source.name);
    mem_free(d);
}

/* "." and "models/.." have no telling last component; their resolved path has. */
static char *last_component(const char *dir)
{
    char resolved[PATH_MAX];
    if (!realpath(dir, resolved))
        return NULL;
    const char *slash = strrchr(resolved, '/');
    const char *name = slash && slash[1] ? slash + 1 : resolved;
    /* The name goes into JSON, which holds text only. */
    return mem_strdup(utf8_valid_prefix(name, strlen(name)) == strlen(name) ? name : "snapshot");
}

sluice_status source_open_dir(struct source **source, const char *dir, sluice_error *err)
{
    *source = NULL;
    struct stat st;
    if (stat(dir, &st) != 0)
        return err_errno(err, errno, "cannot open the snapshot directory %s", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%s is not a directory; give the snapshot's directory, the one with config.json", dir);
    struct dir_source *d = mem_calloc(1, sizeof *d);
    if (!d)
        return err_memory(err, sizeof *d, "a source");
    d->fd = -1;
    d->dir = mem_strdup(dir);
    d->source.name = last_component(dir);
    d->source.state = d;
    d->source.size = dir_size;
    d->source.exists = dir_exists;
    d->source.read = dir_read;
    d->source.identity = dir_identity;
    d->source.close = dir_close;
    if (!d->dir || !d->source.name) {
        dir_close(&d->source);
        return err_memory(err, strlen(dir), "a path");
    }
    *source = &d->source;
    return SLUICE_OK;
}
