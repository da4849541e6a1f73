/* The end of an install: the small files, the manifest last, and the final name. */
#include "base/fault.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/gturbo.h"
#include "store/install_work.h"
#include "store/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sluice_status write_layout(struct install *w, sluice_error *err)
{
    char *path = file_join(w->partial, LAYOUT_NAME);
    if (!path)
        return err_memory(err, 0, "a path");
    sluice_status status = layout_write(path, &w->plan.layout, err);
    mem_free(path);
    TRY(status);
    return install_hash(w, LAYOUT_NAME, err);
}

static sluice_status write_text(const char *path, const char *text, sluice_error *err)
{
    int fd;
    TRY(file_create(path, O_WRONLY | O_TRUNC, &fd, err));
    sluice_status status = file_write_at(fd, text, strlen(text), 0, path, err);
    if (status == SLUICE_OK)
        status = file_sync(fd, path, err);
    (void)close(fd);
    return status;
}

/* The digest of the last finished file is the one that the source states, where it states one. */
static sluice_status check_stated(struct install *w, const char *name, sluice_error *err)
{
    char stated[SHA256_HEX_BYTES] = "";
    const struct finished_file *file = &w->finished[w->n_finished - 1];
    if (w->source->digest)
        TRY(w->source->digest(w->source, name, stated, err));
    if (stated[0] && strcmp(stated, file->sha256) != 0)
        return err_set(err, SLUICE_E_CORRUPT,
                       "%s arrived damaged: its SHA-256 is %.16s..., the source states %.16s...; go on with "
                       "--resume",
                       name, file->sha256, stated);
    return SLUICE_OK;
}

static sluice_status write_sidecars(struct install *w, sluice_error *err)
{
    for (size_t i = 0; i < SIDECARS; i++) {
        if (w->sidecar_bytes[i] == UINT64_MAX)
            continue;
        char name[48];
        (void)snprintf(name, sizeof name, TOKENIZER_DIR "/%s", SIDECAR_TABLE[i].name);
        char *path = file_join(w->partial, name);
        if (!path)
            return err_memory(err, 0, "a path");
        /* The first is config.json. */
        sluice_status status = i == 0 && w->config_text
                                   ? write_text(path, w->config_text, err)
                                   : sidecars_copy(w->source, SIDECAR_TABLE[i].name, w->sidecar_bytes[i],
                                                   path, w->scratch, COPY_SCRATCH_BYTES, err);
        mem_free(path);
        TRY(status);
        TRY(install_hash(w, name, err));
        if (i > 0 || !w->config_text)
            TRY(check_stated(w, SIDECAR_TABLE[i].name, err));
    }
    return SLUICE_OK;
}

/* Tensors whose bits or group size differ from the checkpoint's base, as the manifest counts them. */
static uint32_t count_overrides(const json_t *config)
{
    uint32_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(config, "quantization"), key, value)
    {
        (void)key;
        n += json_is_object(value);
    }
    return n;
}

static sluice_status write_manifest(struct install *w, sluice_error *err)
{
    struct manifest_file *files = mem_calloc(w->n_finished, sizeof *files);
    if (!files)
        return err_memory(err, w->n_finished * sizeof *files, "the file list");
    for (size_t i = 0; i < w->n_finished; i++) {
        files[i].path = w->finished[i].path;
        files[i].bytes = w->finished[i].stamp.bytes;
        memcpy(files[i].sha256, w->finished[i].sha256, sizeof files[i].sha256);
    }
    struct manifest_content content = {
        .model_id = w->source->name,
        .source_sha256 = w->st->sha256,
        .arch = w->recipe.arch,
        .quant = w->recipe.quant,
        .n_layers = w->plan.layout.n_layers,
        .n_experts = w->plan.layout.n_experts,
        .n_overrides = count_overrides(w->config),
        .stride_bytes = w->plan.layout.stride_bytes,
        .files = files,
        .n_files = w->n_finished,
    };
    sluice_status status = manifest_write(w->partial, &content, err);
    mem_free(files);
    return status;
}

/* The receipt's stamps follow the order of the manifest as it is read back. */
static sluice_status write_receipt(struct install *w, const struct manifest *m, sluice_error *err)
{
    struct file_stamp *stamps = mem_calloc(m->n_files, sizeof *stamps);
    if (!stamps)
        return err_memory(err, m->n_files * sizeof *stamps, "the file list");
    for (size_t i = 0; i < m->n_files; i++)
        for (size_t k = 0; k < w->n_finished; k++)
            if (strcmp(m->files[i].path, w->finished[k].path) == 0)
                stamps[i] = w->finished[k].stamp;
    const char *revision = w->source->revision;
    sluice_status status =
        receipt_write(w->partial, w->absolute, m, stamps, revision ? w->source->name : NULL, revision, err);
    mem_free(stamps);
    return status;
}

static sluice_status sync_dirs(struct install *w, sluice_error *err)
{
    static const char *const DIRS[] = {EXPERTS_DIR, TOKENIZER_DIR};
    for (size_t i = 0; i < sizeof DIRS / sizeof *DIRS; i++) {
        char *path = file_join(w->partial, DIRS[i]);
        sluice_status status = path ? file_sync_dir(path, err) : err_memory(err, 0, "a path");
        mem_free(path);
        TRY(status);
    }
    return file_sync_dir(w->partial, err);
}

/* What is about to become an install must open as one. */
static sluice_status prove(struct install *w, sluice_error *err)
{
    struct gturbo *store;
    sluice_status status = gturbo_open(w->partial, SLUICE_VERIFY_RECEIPT, NULL, &store, err);
    if (status != SLUICE_OK)
        return err_prefix(err, status, "the finished directory does not open");
    gturbo_close(store);
    return SLUICE_OK;
}

/* The output did not exist when the install began; NOREPLACE keeps it so on file systems that can. */
static sluice_status publish_new(struct install *w, sluice_error *err)
{
    int rc = file_rename_flags(w->partial, w->output, RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS))
        rc = file_rename_flags(w->partial, w->output, 0);
    if (rc != 0)
        return err_errno(err, errno, "cannot rename %s to %s", w->partial, w->output);
    return file_sync_dir(w->parent, err);
}

static sluice_status publish_over(struct install *w, sluice_error *err)
{
    if (file_rename_flags(w->partial, w->output, RENAME_EXCHANGE) != 0)
        return err_errno(
            err, errno,
            "cannot exchange %s with the finished %s (if this file system never can: delete the old "
            "one and go on with --resume)",
            w->output, w->partial);
    TRY(file_sync_dir(w->parent, err));
    sluice_status status = file_remove_tree(w->partial, err);
    if (status != SLUICE_OK)
        return err_prefix(err, status, "the new install is in place, but the old one could not be deleted");
    return SLUICE_OK;
}

static sluice_status take_name(struct install *w, const struct manifest *m, sluice_error *err)
{
    struct stat st;
    if (lstat(w->partial, &st) != 0)
        return err_errno(err, errno, "cannot examine %s", w->partial);
    TRY(journal_finish(&w->journal, (uint64_t)st.st_ino, m->sha256, err));
    TRY(lstat(w->output, &st) == 0 ? publish_over(w, err) : publish_new(w, err));
    return install_discard(w, err); /* of this run only the journal is left */
}

sluice_status install_publish(struct install *w, sluice_error *err)
{
    TRY(write_layout(w, err));
    TRY(write_sidecars(w, err));
    TRY(sync_dirs(w, err));
    TRY(write_manifest(w, err));
    struct manifest m;
    sluice_status status = manifest_load(w->partial, &m, err);
    if (status == SLUICE_OK)
        status = write_receipt(w, &m, err);
    if (status == SLUICE_OK)
        status = prove(w, err);
    if (status == SLUICE_OK)
        status = take_name(w, &m, err);
    manifest_free(&m);
    return status;
}
