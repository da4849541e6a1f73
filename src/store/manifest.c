#include "store/manifest.h"

#include "base/check.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A flag changes how files must be read, so one that is not in this table ends the open. `may_be_true` is
 * false for features of other implementations that nothing here can read. */
static const struct {
    const char *name;
    bool may_be_true;
} FLAGS[] = {
    {"streamingPresent", true},
    {"turboQuantKV", false},
    {"aneSharedExpert", false},
};

enum { N_FLAGS = sizeof FLAGS / sizeof *FLAGS };

static sluice_status check_flags(const json_t *root, sluice_error *err)
{
    json_t *flags, *value;
    const char *name;
    TRY(json_need_object(root, "flags", &flags, MANIFEST_NAME, err));
    json_object_foreach(flags, name, value)
    {
        size_t i = 0;
        while (i < N_FLAGS && strcmp(FLAGS[i].name, name) != 0)
            i++;
        if (i == N_FLAGS)
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           MANIFEST_NAME
                           ": the flag \"%.80s\" is unknown to this build; a newer one may read "
                           "this install",
                           name);
        if (!json_is_boolean(value))
            return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME ": the flag \"%s\" must be true or false",
                           name);
        if (json_is_true(value) && !FLAGS[i].may_be_true)
            return err_set(err, SLUICE_E_UNSUPPORTED,
                           MANIFEST_NAME ": the flag \"%s\" is set, which this build cannot read", name);
    }
    return SLUICE_OK;
}

static sluice_status check_version(const json_t *root, sluice_error *err)
{
    const char *magic;
    uint32_t major, minor;
    TRY(json_need_string(root, "magic", &magic, MANIFEST_NAME, err));
    if (strcmp(magic, "GTURBO") != 0)
        return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME " is not one of a .gturbo install");
    TRY(json_need_u32(root, "versionMajor", 0, UINT32_MAX, &major, MANIFEST_NAME, err));
    TRY(json_need_u32(root, "versionMinor", 0, UINT32_MAX, &minor, MANIFEST_NAME, err));
    if (major != 1)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       MANIFEST_NAME ": format version %u.%u, this build reads version 1; install again",
                       major, minor);
    return SLUICE_OK;
}

static sluice_status read_file(const char *path, const json_t *value, struct manifest_file *file,
                               sluice_error *err)
{
    if (!path_stays_inside(path))
        return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME ": the file name \"%.120s\" leaves the install",
                       path);
    const char *hex;
    TRY(json_need_u64(value, "size", 0, INT64_MAX, &file->bytes, path, err));
    TRY(json_need_string(value, "sha256", &hex, path, err));
    if (!sha256_is_hex(hex))
        return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME ": the SHA-256 of %s is not 64 hexadecimal digits",
                       path);
    memcpy(file->sha256, hex, sizeof file->sha256);
    file->path = mem_strdup(path);
    return file->path ? SLUICE_OK : err_memory(err, strlen(path), "a path");
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct manifest_file *)a)->path, ((const struct manifest_file *)b)->path);
}

static sluice_status read_files(struct manifest *m, sluice_error *err)
{
    json_t *files, *value;
    const char *path;
    TRY(json_need_object(m->root, "files", &files, MANIFEST_NAME, err));
    m->files = mem_calloc(json_object_size(files), sizeof *m->files);
    if (!m->files)
        return err_memory(err, json_object_size(files) * sizeof *m->files, "the file list");
    uint64_t total = 0;
    json_object_foreach(files, path, value)
    {
        struct manifest_file *file = &m->files[m->n_files];
        TRY(read_file(path, value, file, err));
        m->n_files++;
        if (!u64_add(total, file->bytes, &total))
            return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME ": the sizes of the files overflow 64 bits");
    }
    qsort(m->files, m->n_files, sizeof *m->files, by_path);
    static const char *const REQUIRED[] = {RESIDENT_NAME, LAYOUT_NAME};
    for (size_t i = 0; i < sizeof REQUIRED / sizeof *REQUIRED; i++)
        if (!manifest_find(m, REQUIRED[i]))
            return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME " does not list %s", REQUIRED[i]);
    return SLUICE_OK;
}

sluice_status manifest_parse(const char *text, size_t bytes, struct manifest *m, sluice_error *err)
{
    memset(m, 0, sizeof *m);
    m->bytes = bytes;
    TRY(sha256_hex(text, bytes, m->sha256, err));
    TRY(json_parse(text, bytes, MANIFEST_NAME, &m->root, err));
    TRY(check_version(m->root, err));
    TRY(check_flags(m->root, err));
    TRY(json_need_string(m->root, "modelID", &m->model_id, MANIFEST_NAME, err));
    TRY(json_need_object(m->root, "arch", &m->arch, MANIFEST_NAME, err));
    if (json_has(m->root, "quant"))
        TRY(json_need_object(m->root, "quant", &m->quant, MANIFEST_NAME, err));
    TRY(json_need_u32(m->root, "numLayers", 1, GTURBO_LAYERS_MAX, &m->n_layers, MANIFEST_NAME, err));
    TRY(json_need_u32(m->root, "expertsPerLayer", 0, GTURBO_EXPERTS_MAX, &m->n_experts, MANIFEST_NAME, err));
    TRY(json_need_u64(m->root, "expertStride", 0, GTURBO_RECORD_MAX, &m->stride_bytes, MANIFEST_NAME, err));
    if (m->stride_bytes % GTURBO_PAGE_BYTES || (m->n_experts > 0) != (m->stride_bytes > 0))
        return err_set(err, SLUICE_E_FORMAT,
                       MANIFEST_NAME
                       ": \"expertStride\" is %llu for %u experts; it must be a multiple of %u, "
                       "and 0 only without experts",
                       (unsigned long long)m->stride_bytes, m->n_experts, GTURBO_PAGE_BYTES);
    return read_files(m, err);
}

sluice_status manifest_load(const char *dir, struct manifest *m, sluice_error *err)
{
    memset(m, 0, sizeof *m);
    char *path = file_join(dir, MANIFEST_NAME);
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    char *text = NULL;
    size_t bytes;
    sluice_status status;
    if (!file_exists(path))
        status = err_set(err, SLUICE_E_FORMAT,
                         "%s has no " MANIFEST_NAME ": it is not a complete .gturbo install; make one with "
                         "`sluice install`",
                         dir);
    else
        status = file_load(path, MANIFEST_BYTES_MAX, &text, &bytes, err);
    if (status == SLUICE_OK) {
        status = manifest_parse(text, bytes, m, err);
        if (status != SLUICE_OK)
            status = err_prefix(err, status, "%s", dir);
    }
    mem_free(text);
    mem_free(path);
    return status;
}

void manifest_free(struct manifest *m)
{
    for (size_t i = 0; i < m->n_files; i++)
        mem_free(m->files[i].path);
    mem_free(m->files);
    json_decref(m->root);
    memset(m, 0, sizeof *m);
}

const struct manifest_file *manifest_find(const struct manifest *m, const char *path)
{
    struct manifest_file key = {.path = (char *)path};
    return bsearch(&key, m->files, m->n_files, sizeof *m->files, by_path);
}

/* ---- writing ---- */

static json_t *flags_object(void)
{
    json_t *flags = json_object();
    for (size_t i = 0; i < N_FLAGS; i++)
        if (json_object_set_new(flags, FLAGS[i].name, json_boolean(FLAGS[i].may_be_true)) != 0) {
            json_decref(flags);
            return NULL;
        }
    return flags;
}

static json_t *files_object(const struct manifest_file *files, size_t n)
{
    json_t *object = json_object();
    for (size_t i = 0; i < n; i++) {
        json_t *entry =
            json_pack("{s:I, s:s}", "size", (json_int_t)files[i].bytes, "sha256", files[i].sha256);
        if (json_object_set_new(object, files[i].path, entry) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

sluice_status manifest_write(const char *dir, const struct manifest_content *c, sluice_error *err)
{
    mem_hook_json();
    char source[sizeof "sha256:" + SHA256_HEX_BYTES];
    (void)snprintf(source, sizeof source, "sha256:%s", c->source_sha256);
    json_t *root = json_object();
    char *text = NULL, *path = file_join(dir, MANIFEST_NAME);
    int failed = 0;
    failed |= json_object_set_new(root, "magic", json_string("GTURBO"));
    failed |= json_object_set_new(root, "versionMajor", json_integer(1));
    failed |= json_object_set_new(root, "versionMinor", json_integer(0));
    failed |= json_object_set_new(root, "flags", flags_object());
    failed |= json_object_set_new(root, "modelID", json_string(c->model_id));
    failed |= json_object_set_new(root, "sourceSnapshotHash", json_string(source));
    failed |= json_object_set(root, "arch", c->arch);
    failed |= json_object_set(root, "quant", c->quant);
    failed |= json_object_set_new(root, "files", files_object(c->files, c->n_files));
    failed |= json_object_set_new(root, "expertsPerLayer", json_integer(c->n_experts));
    failed |= json_object_set_new(root, "numLayers", json_integer(c->n_layers));
    failed |= json_object_set_new(root, "expertStride", json_integer((json_int_t)c->stride_bytes));
    failed |= json_object_set_new(root, "bitWidthOverridesHonored", json_integer(c->n_overrides));
    sluice_status status = failed || !path ? err_memory(err, 0, MANIFEST_NAME) : SLUICE_OK;
    if (status == SLUICE_OK)
        status = json_print(root, JSON_INDENT(2) | JSON_SORT_KEYS, MANIFEST_NAME, &text, err);
    if (status == SLUICE_OK)
        status = file_publish(path, text, strlen(text), err);
    mem_free(text);
    mem_free(path);
    json_decref(root);
    return status;
}
