#include "store/gturbo.h"

#include "base/check.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/sequence.h"
#include "store/digest.h"
#include "store/gturbo_private.h"
#include "store/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the small files ---- */

/* A file of another size cannot be the installed one; this costs no read, so every open does it. */
static sluice_status check_sizes(const char *dir, const struct manifest *m, sluice_error *err)
{
    for (size_t i = 0; i < m->n_files; i++) {
        const struct manifest_file *file = &m->files[i];
        char *path = file_join(dir, file->path);
        if (!path)
            return err_memory(err, strlen(file->path), "a path");
        struct stat st;
        sluice_status status = SLUICE_OK;
        if (stat(path, &st) != 0)
            status = err_errno(err, errno, "%s is missing from the install; install it again", path);
        else if (!S_ISREG(st.st_mode))
            status = err_set(err, SLUICE_E_FORMAT, "%s is not a regular file", path);
        else if ((uint64_t)st.st_size != file->bytes)
            status =
                err_set(err, SLUICE_E_CORRUPT, "%s has %llu bytes, the manifest says %llu; install it again",
                        path, (unsigned long long)st.st_size, (unsigned long long)file->bytes);
        mem_free(path);
        TRY(status);
    }
    return SLUICE_OK;
}

static sluice_status load_layout(const char *dir, const struct gturbo_private *p, struct layout *layout,
                                 sluice_error *err)
{
    char *path = file_join(dir, LAYOUT_NAME), *text = NULL;
    size_t bytes;
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    sluice_status status = file_load(path, LAYOUT_BYTES_MAX, &text, &bytes, err);
    mem_free(path);
    TRY(status);
    status = layout_parse(text, bytes, layout, err);
    mem_free(text);
    TRY(status);
    const struct manifest *m = &p->manifest;
    if (layout->n_layers != m->n_layers || layout->n_experts != m->n_experts ||
        layout->stride_bytes != m->stride_bytes)
        return err_set(err, SLUICE_E_FORMAT,
                       LAYOUT_NAME " says %u layers of %u experts at %llu bytes, " MANIFEST_NAME
                                   " says %u of %u at %llu; install again",
                       layout->n_layers, layout->n_experts, (unsigned long long)layout->stride_bytes,
                       m->n_layers, m->n_experts, (unsigned long long)m->stride_bytes);
    return SLUICE_OK;
}

static sluice_status load_index(const char *dir, struct gturbo_private *p, sluice_error *err)
{
    char *path = file_join(dir, RESIDENT_NAME);
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    uint64_t file_bytes, index_bytes;
    unsigned char start[RESIDENT_HEADER_BYTES], *index = NULL;
    sluice_status status;
    TRY_OUT(file_open_read(path, &p->resident_fd, &file_bytes, err));
    TRY_OUT(file_read_at(p->resident_fd, start, sizeof start, 0, RESIDENT_NAME, err));
    TRY_OUT(resident_index_bytes(start, &index_bytes, err));
    index = mem_alloc((size_t)index_bytes);
    if (!index) {
        status = err_memory(err, (size_t)index_bytes, "the index of " RESIDENT_NAME);
        goto out;
    }
    TRY_OUT(file_read_at(p->resident_fd, index, (size_t)index_bytes, 0, RESIDENT_NAME, err));
    TRY_OUT(resident_parse(index, (size_t)index_bytes, file_bytes, &p->resident, err));
out:
    mem_free(index);
    mem_free(path);
    return status;
}

/* ---- the tables built from them ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct stored_tensor *const *)a)->name,
                  (*(const struct stored_tensor *const *)b)->name);
}

static sluice_status sort_names(struct gturbo_private *p, sluice_error *err)
{
    size_t n = p->resident.n_tensors;
    p->by_name = mem_calloc(n, sizeof *p->by_name);
    if (!p->by_name)
        return err_memory(err, n * sizeof *p->by_name, "the tensor list");
    for (size_t i = 0; i < n; i++)
        p->by_name[i] = &p->resident.tensors[i];
    qsort(p->by_name, n, sizeof *p->by_name, by_name);
    return SLUICE_OK;
}

/* ---- open and close ---- */

/* Expert files are hashed at their first use; everything else now, and before any of it is parsed, so that
 * damage is reported as damage. */
static bool is_common(const struct manifest_file *file)
{
    return strncmp(file->path, EXPERTS_DIR "/", sizeof EXPERTS_DIR) != 0 ||
           strcmp(file->path, LAYOUT_NAME) == 0;
}

static sluice_status hash_common(const char *dir, const struct manifest *m, const sluice_watch *watch,
                                 sluice_error *err)
{
    uint64_t total = 0;
    for (size_t i = 0; i < m->n_files; i++)
        if (is_common(&m->files[i]))
            total += m->files[i].bytes;
    struct meter meter;
    meter_start(&meter, watch, "verify", total);
    for (size_t i = 0; i < m->n_files; i++)
        if (is_common(&m->files[i]))
            TRY(digest_check(dir, m->files[i].path, m->files[i].bytes, m->files[i].sha256, &meter, NULL,
                             err));
    meter_finish(&meter);
    return SLUICE_OK;
}

enum trust { TRUST_HEADERS, TRUST_RECEIPT, TRUST_HASHES };

static sluice_status load_all(struct gturbo *store, enum trust trust, const sluice_watch *watch,
                              sluice_error *err)
{
    struct gturbo_private *p = store->private;
    TRY(manifest_load(store->dir, &p->manifest, err));
    TRY(check_sizes(store->dir, &p->manifest, err));
    if (trust == TRUST_RECEIPT)
        TRY(receipt_check(store->dir, &p->manifest, err));
    if (trust == TRUST_HASHES)
        TRY(hash_common(store->dir, &p->manifest, watch, err));
    p->hash = trust == TRUST_HASHES;
    TRY(load_layout(store->dir, p, &p->layout, err));
    TRY(load_index(store->dir, p, err));
    TRY(sort_names(p, err));
    TRY(expert_files_list(p, err));
    store->model_id = mem_strdup(p->manifest.model_id);
    if (!store->model_id)
        return err_memory(err, strlen(p->manifest.model_id), "the model's name");
    store->arch = p->manifest.arch;
    store->quant = p->manifest.quant;
    store->tensors = p->resident.tensors;
    store->n_tensors = p->resident.n_tensors;
    store->resident_offset = p->resident.index_bytes;
    store->resident_bytes = p->resident.payload_bytes;
    store->n_layers = p->layout.n_layers;
    store->n_experts = p->layout.n_experts;
    store->stride_bytes = p->layout.stride_bytes;
    store->layers = p->layout.layers;
    return SLUICE_OK;
}

static sluice_status open_store(const char *dir, enum trust trust, const sluice_watch *watch,
                                struct gturbo **out, sluice_error *err)
{
    *out = NULL;
    struct gturbo *store = mem_calloc(1, sizeof *store);
    struct gturbo_private *p = mem_calloc(1, sizeof *p);
    char *copy = mem_strdup(dir);
    if (!store || !p || !copy) {
        mem_free(store);
        mem_free(p);
        mem_free(copy);
        return err_memory(err, sizeof *store + sizeof *p, "an install");
    }
    store->dir = copy;
    store->private = p;
    p->resident_fd = -1;
    sluice_status status = load_all(store, trust, watch, err);
    if (status != SLUICE_OK) {
        gturbo_close(store);
        return status;
    }
    *out = store;
    return SLUICE_OK;
}

sluice_status gturbo_open(const char *dir, sluice_verification verification, const sluice_watch *watch,
                          struct gturbo **store, sluice_error *err)
{
    enum trust trust = verification == SLUICE_VERIFY_RECEIPT ? TRUST_RECEIPT : TRUST_HASHES;
    return open_store(dir, trust, watch, store, err);
}

sluice_status gturbo_open_headers(const char *dir, struct gturbo **store, sluice_error *err)
{
    return open_store(dir, TRUST_HEADERS, NULL, store, err);
}

void gturbo_close(struct gturbo *store)
{
    if (!store)
        return;
    struct gturbo_private *p = store->private;
    expert_files_close(p);
    if (p->resident_fd >= 0)
        (void)close(p->resident_fd);
    mem_free(p->by_name);
    resident_free(&p->resident);
    layout_free(&p->layout);
    manifest_free(&p->manifest);
    mem_free(p);
    mem_free(store->model_id);
    mem_free(store->dir);
    mem_free(store);
}

/* ---- reading ---- */

const struct stored_tensor *gturbo_find(const struct gturbo *store, const char *name)
{
    const struct stored_tensor key = {.name = name}, *wanted = &key;
    const struct gturbo_private *p = store->private;
    const struct stored_tensor **found =
        bsearch(&wanted, p->by_name, p->resident.n_tensors, sizeof *p->by_name, by_name);
    return found ? *found : NULL;
}

sluice_status gturbo_read_resident(const struct gturbo *store, uint64_t offset, void *buffer, size_t n,
                                   sluice_error *err)
{
    if (offset < store->resident_offset ||
        !range_inside(offset - store->resident_offset, n, store->resident_bytes))
        return err_set(err, SLUICE_E_ARGUMENT, "%zu bytes at %llu are outside the payload of " RESIDENT_NAME,
                       n, (unsigned long long)offset);
    int fd = store->private->resident_fd;
    TRY(file_read_at(fd, buffer, n, offset, RESIDENT_NAME, err));
    /* The caller holds the bytes now; a second copy in the page cache would be charged to the budget too. */
    (void)posix_fadvise(fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
    return SLUICE_OK;
}

static sluice_status count_block(void *user, const unsigned char *bytes, size_t n, sluice_error *err)
{
    (void)bytes;
    return meter_step(user, n, err);
}

sluice_status gturbo_load_resident(const struct gturbo *store, unsigned char *buffer,
                                   const sluice_watch *watch, sluice_error *err)
{
    struct meter meter;
    meter_start(&meter, watch, "load", store->resident_bytes);
    TRY(sequence_read(store->private->resident_fd, RESIDENT_NAME, store->resident_offset,
                      store->resident_offset + store->resident_bytes, buffer, count_block, &meter, err));
    meter_finish(&meter);
    return SLUICE_OK;
}

bool gturbo_has_file(const struct gturbo *store, const char *path)
{
    return manifest_find(&store->private->manifest, path) != NULL;
}

sluice_status gturbo_load_text(const struct gturbo *store, const char *path, size_t max_bytes, char **text,
                               size_t *bytes, sluice_error *err)
{
    *text = NULL;
    const struct manifest_file *file = manifest_find(&store->private->manifest, path);
    if (!file)
        return err_set(err, SLUICE_E_IO, "the install %s has no file %s", store->dir, path);
    char *full = file_join(store->dir, path);
    if (!full)
        return err_memory(err, strlen(path), "a path");
    sluice_status status = file_load(full, max_bytes, text, bytes, err);
    mem_free(full);
    TRY(status);
    if (!store->private->hash)
        return SLUICE_OK;
    char hex[SHA256_HEX_BYTES];
    status = sha256_hex(*text, *bytes, hex, err);
    if (status == SLUICE_OK && strcmp(hex, file->sha256) != 0)
        status =
            err_set(err, SLUICE_E_CORRUPT, "%s/%s does not have the digest of the manifest; install it again",
                    store->dir, path);
    if (status != SLUICE_OK) {
        mem_free(*text);
        *text = NULL;
    }
    return status;
}
