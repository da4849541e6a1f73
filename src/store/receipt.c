#include "store/receipt.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "io/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define NEXT_STEP "run `sluice verify`, or open with full verification"

/* ---- writing ---- */

static json_t *files_object(const struct manifest *m)
{
    json_t *object = json_object();
    int failed = json_object_set_new(
        object, MANIFEST_NAME, json_pack("{s:I, s:s}", "size", (json_int_t)m->bytes, "sha256", m->sha256));
    for (size_t i = 0; i < m->n_files; i++)
        failed |= json_object_set_new(
            object, m->files[i].path,
            json_pack("{s:I, s:s}", "size", (json_int_t)m->files[i].bytes, "sha256", m->files[i].sha256));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *binding_object(const struct manifest *m, const struct file_stamp *stamps)
{
    json_t *object = json_object();
    int failed = 0;
    for (size_t i = 0; i < m->n_files; i++)
        failed |= json_object_set_new(object, m->files[i].path, json_integer(stamps[i].mtime_ns));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *now_text(void)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    if (!gmtime_r(&now, &utc) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        return NULL;
    return json_string(text);
}

sluice_status receipt_write(const char *dir, const char *final_dir, const struct manifest *m,
                            const struct file_stamp *stamps, const char *repo, const char *revision,
                            sluice_error *err)
{
    mem_hook_json();
    json_t *root = json_object();
    char *text = NULL, *path = file_join(dir, RECEIPT_NAME);
    int failed = 0;
    failed |= json_object_set_new(root, "schemaVersion", json_integer(1));
    failed |= json_object_set_new(root, "manifestSha256", json_string(m->sha256));
    /* JSON holds text only; a path that is none cannot be recorded, and only other readers miss it. */
    bool is_text = utf8_valid_prefix(final_dir, strlen(final_dir)) == strlen(final_dir);
    failed |= json_object_set_new(root, "modelDirectoryPath", json_string(is_text ? final_dir : ""));
    failed |= json_object_set_new(root, "verificationTimestamp", now_text());
    failed |= json_object_set_new(root, "toolVersion", json_string("sluice " SLUICE_VERSION));
    failed |= json_object_set_new(root, "files", files_object(m));
    failed |= json_object_set_new(root, "modificationTimesNs", binding_object(m, stamps));
    if (repo)
        failed |= json_object_set_new(root, "sourceRepoID", json_string(repo));
    if (revision)
        failed |= json_object_set_new(root, "sourceRevision", json_string(revision));
    sluice_status status = failed || !path ? err_memory(err, 0, RECEIPT_NAME) : SLUICE_OK;
    if (status == SLUICE_OK)
        status = json_print(root, JSON_INDENT(2) | JSON_SORT_KEYS, RECEIPT_NAME, &text, err);
    if (status == SLUICE_OK)
        status = file_publish(path, text, strlen(text), err);
    mem_free(text);
    mem_free(path);
    json_decref(root);
    return status;
}

/* ---- checking ---- */

sluice_status receipt_load(const char *dir, json_t **root, sluice_error *err)
{
    *root = NULL;
    char *text = NULL, *path = file_join(dir, RECEIPT_NAME);
    size_t bytes;
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    sluice_status status = SLUICE_OK;
    if (file_exists(path))
        status = file_load(path, RECEIPT_BYTES_MAX, &text, &bytes, err);
    if (status == SLUICE_OK && text)
        status = json_parse(text, bytes, RECEIPT_NAME, root, err);
    mem_free(text);
    mem_free(path);
    return status == SLUICE_E_FORMAT ? SLUICE_OK : status;
}

static sluice_status misfit(const char *dir, const char *what, sluice_error *err)
{
    return err_set(err, SLUICE_E_CORRUPT, "the receipt of %s does not fit: %s; " NEXT_STEP, dir, what);
}

static bool entry_fits(const json_t *files, const char *path, uint64_t bytes, const char *sha256)
{
    const json_t *entry = json_object_get(files, path);
    const json_t *size = json_object_get(entry, "size");
    const char *hex = json_string_value(json_object_get(entry, "sha256"));
    return json_is_integer(size) && (uint64_t)json_integer_value(size) == bytes && hex &&
           strcmp(hex, sha256) == 0;
}

static sluice_status check_file(const char *dir, const struct manifest_file *file, const json_t *files,
                                const json_t *times, sluice_error *err)
{
    char why[PATH_MAX];
    if (!entry_fits(files, file->path, file->bytes, file->sha256)) {
        (void)snprintf(why, sizeof why, "it records another %s", file->path);
        return misfit(dir, why, err);
    }
    const json_t *time_ns = json_object_get(times, file->path);
    char *path = file_join(dir, file->path);
    if (!path)
        return err_memory(err, strlen(file->path), "a path");
    struct stat st;
    sluice_status status = SLUICE_OK;
    if (stat(path, &st) != 0) {
        status = err_errno(err, errno, "cannot examine %s", path);
    } else {
        uint64_t mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
        if (!json_is_integer(time_ns) || (uint64_t)json_integer_value(time_ns) != mtime_ns ||
            (uint64_t)st.st_size != file->bytes) {
            (void)snprintf(why, sizeof why, "%s was written after it", file->path);
            status = misfit(dir, why, err);
        }
    }
    mem_free(path);
    return status;
}

static sluice_status check_root(const char *dir, const json_t *root, const struct manifest *m,
                                sluice_error *err)
{
    const json_t *files = json_object_get(root, "files"),
                 *times = json_object_get(root, "modificationTimesNs");
    const json_t *schema = json_object_get(root, "schemaVersion");
    const char *manifest = json_string_value(json_object_get(root, "manifestSha256"));
    if (!json_is_integer(schema) || json_integer_value(schema) != 1)
        return misfit(dir, "its schema is unknown", err);
    if (!manifest || strcmp(manifest, m->sha256) != 0 ||
        !entry_fits(files, MANIFEST_NAME, m->bytes, m->sha256))
        return misfit(dir, "it belongs to another " MANIFEST_NAME, err);
    if (!times)
        return misfit(dir, "another program wrote it, without modification times", err);
    if (json_object_size(files) != m->n_files + 1)
        return misfit(dir, "it lists other files than " MANIFEST_NAME, err);
    for (size_t i = 0; i < m->n_files; i++)
        TRY(check_file(dir, &m->files[i], files, times, err));
    return SLUICE_OK;
}

sluice_status receipt_check(const char *dir, const struct manifest *m, sluice_error *err)
{
    json_t *root;
    TRY(receipt_load(dir, &root, err));
    if (!root)
        return err_set(err, SLUICE_E_CORRUPT, "%s has no receipt of a verification; " NEXT_STEP, dir);
    sluice_status status = check_root(dir, root, m, err);
    json_decref(root);
    return status;
}

/* ---- paths ---- */

sluice_status receipt_absolute(const char *dir, char **absolute, sluice_error *err)
{
    char resolved[PATH_MAX];
    *absolute = NULL;
    if (realpath(dir, resolved)) {
        *absolute = mem_strdup(resolved);
        return *absolute ? SLUICE_OK : err_memory(err, strlen(resolved), "a path");
    }
    const char *slash = strrchr(dir, '/');
    const char *name = slash ? slash + 1 : dir;
    char *parent = slash ? mem_strndup(dir, (size_t)(slash - dir) + 1) : mem_strdup(".");
    if (!parent)
        return err_memory(err, strlen(dir), "a path");
    sluice_status status = SLUICE_OK;
    if (!realpath(parent, resolved))
        status = err_errno(err, errno, "cannot resolve %s", parent);
    else {
        *absolute = file_join(strcmp(resolved, "/") == 0 ? "" : resolved, name);
        if (!*absolute)
            status = err_memory(err, strlen(name), "a path");
    }
    mem_free(parent);
    return status;
}
