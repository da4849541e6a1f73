/* What an earlier run left behind, and the partial directory. */
#include "base/fault.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/install_work.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- looking ---- */

enum kind { KIND_ABSENT, KIND_FILE, KIND_DIR, KIND_OTHER };

static sluice_status kind_of(const char *path, enum kind *kind, sluice_error *err)
{
    struct stat st;
    *kind = KIND_ABSENT;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? SLUICE_OK : err_errno(err, errno, "cannot examine %s", path);
    *kind = S_ISREG(st.st_mode) ? KIND_FILE : S_ISDIR(st.st_mode) ? KIND_DIR : KIND_OTHER;
    return SLUICE_OK;
}

/* KIND_ABSENT or `wanted`; anything else, a link too, is refused. */
static sluice_status expect_kind(const char *path, enum kind wanted, enum kind *kind, sluice_error *err)
{
    TRY(kind_of(path, kind, err));
    if (*kind != KIND_ABSENT && *kind != wanted)
        return err_set(err, SLUICE_E_EXISTS, "%s is not a %s (a link does not count); move it away", path,
                       wanted == KIND_DIR ? "directory" : "regular file");
    return SLUICE_OK;
}

static bool is_empty_dir(const char *path)
{
    DIR *dir = opendir(path);
    bool empty = dir != NULL;
    for (struct dirent *entry; empty && (entry = readdir(dir));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir)
        (void)closedir(dir);
    return empty;
}

/* --overwrite deletes a directory, so it must be one that an install made. */
static sluice_status check_replaceable(const char *output, sluice_error *err)
{
    if (is_empty_dir(output))
        return SLUICE_OK;
    struct manifest m;
    sluice_status status = manifest_load(output, &m, err);
    manifest_free(&m);
    return status;
}

sluice_status install_discard(const struct install *w, sluice_error *err)
{
    TRY(file_remove_tree(w->partial, err));
    TRY(file_sync_dir(w->parent,
                      err)); /* a journal that comes back after a crash is harmless, the rest is not */
    return file_unlink(w->journal_path, err);
}

/* A run that ended after the rename and before its last deletions: the journal recognises the output. */
static sluice_status settle_finished(struct install *w, enum kind *partial, enum kind *journal,
                                     bool *finished, sluice_error *err)
{
    TRY(journal_is_finished(&w->journal, w->output, finished, err));
    if (!*finished)
        return SLUICE_OK;
    bool same = journal_match(&w->journal, &w->identity, NULL) == SLUICE_OK;
    journal_free(&w->journal);
    *partial = *journal = KIND_ABSENT;
    *finished = same && w->options->resume;
    return w->options->dry_run ? SLUICE_OK : install_discard(w, err);
}

static sluice_status judge_leftovers(struct install *w, enum kind partial, enum kind journal,
                                     enum found *found, sluice_error *err)
{
    if (partial == KIND_ABSENT && journal == KIND_ABSENT)
        return SLUICE_OK;
    if (w->options->discard) {
        journal_free(&w->journal);
        return w->options->dry_run ? SLUICE_OK : install_discard(w, err);
    }
    if (journal == KIND_ABSENT)
        return err_set(err, SLUICE_E_EXISTS,
                       "%s is there without its journal %s, so nothing in it can be trusted; start over with "
                       "--discard",
                       w->partial, w->journal_path);
    if (!w->options->resume)
        return err_set(err, SLUICE_E_EXISTS,
                       "an interrupted install is at %s; go on with --resume or start over with --discard",
                       w->partial);
    TRY(journal_match(&w->journal, &w->identity, err));
    *found = FOUND_PARTIAL;
    return SLUICE_OK;
}

sluice_status install_look(struct install *w, enum found *found, sluice_error *err)
{
    enum kind output, partial, journal;
    *found = FOUND_NOTHING;
    TRY(expect_kind(w->output, KIND_DIR, &output, err));
    TRY(expect_kind(w->partial, KIND_DIR, &partial, err));
    TRY(expect_kind(w->journal_path, KIND_FILE, &journal, err));
    bool finished = false;
    if (journal == KIND_FILE) {
        sluice_status status = journal_load(&w->journal, w->journal_path, err);
        if (status != SLUICE_OK && (status != SLUICE_E_FORMAT || !w->options->discard))
            return err_prefix(err, status,
                              "the journal of an interrupted install cannot be used (--discard "
                              "starts over)");
        if (status == SLUICE_OK)
            TRY(settle_finished(w, &partial, &journal, &finished, err));
    }
    if (finished) {
        *found = FOUND_FINISHED;
        return SLUICE_OK;
    }
    if (output == KIND_DIR && !w->options->overwrite)
        return err_set(err, SLUICE_E_EXISTS,
                       "%s exists already; replace it with --overwrite or choose another output", w->output);
    if (output == KIND_DIR) {
        sluice_status status = check_replaceable(w->output, err);
        if (status != SLUICE_OK)
            return err_prefix(err, status, "--overwrite replaces installs only");
    }
    return judge_leftovers(w, partial, journal, found, err);
}

/* ---- the partial directory ---- */

/* Every name that an install may have written, by directory. */
static bool is_ours(const struct install *w, const char *path, enum kind kind)
{
    static const char *const DIRS[] = {EXPERTS_DIR, TOKENIZER_DIR};
    static const char *const FILES[] = {LAYOUT_NAME, "manifest.json", "manifest.json.tmp",
                                        "verified-install.json", "verified-install.json.tmp"};
    for (size_t i = 0; kind == KIND_DIR && i < sizeof DIRS / sizeof *DIRS; i++)
        if (strcmp(path, DIRS[i]) == 0)
            return true;
    if (kind != KIND_FILE)
        return false;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        if (strcmp(path, FILES[i]) == 0)
            return true;
    for (size_t i = 0; i < w->plan.n_files; i++)
        if (strcmp(path, w->plan.files[i].path) == 0)
            return true;
    size_t prefix = sizeof TOKENIZER_DIR;
    for (size_t i = 0; strncmp(path, TOKENIZER_DIR "/", prefix) == 0 && i < SIDECARS; i++)
        if (strcmp(path + prefix, SIDECAR_TABLE[i].name) == 0)
            return true;
    return false;
}

static sluice_status check_entry(const struct install *w, const char *path, sluice_error *err)
{
    char *full = file_join(w->partial, path);
    if (!full)
        return err_memory(err, strlen(path), "a path");
    enum kind kind;
    sluice_status status = kind_of(full, &kind, err);
    if (status == SLUICE_OK && !is_ours(w, path, kind))
        status =
            err_set(err, SLUICE_E_EXISTS,
                    "%s is not something that an install leaves there (a link does not count); start over "
                    "with --discard",
                    full);
    mem_free(full);
    return status;
}

/* `sub` is a directory inside the partial one, "" for itself. */
static sluice_status check_entries(const struct install *w, const char *sub, sluice_error *err)
{
    char *path = *sub ? file_join(w->partial, sub) : mem_strdup(w->partial);
    if (!path)
        return err_memory(err, strlen(sub), "a path");
    sluice_status status = SLUICE_OK;
    DIR *dir = opendir(path);
    if (!dir && errno != ENOENT)
        status = err_errno(err, errno, "cannot list %s", path);
    for (struct dirent *entry; dir && status == SLUICE_OK && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *name = *sub ? file_join(sub, entry->d_name) : mem_strdup(entry->d_name);
        status = name ? check_entry(w, name, err) : err_memory(err, 0, "a path");
        mem_free(name);
    }
    if (dir)
        (void)closedir(dir);
    mem_free(path);
    return status;
}

/* Remove what the end of an earlier run wrote: while it is being changed a directory has no manifest. */
static sluice_status remove_end(const struct install *w, sluice_error *err)
{
    static const char *const NAMES[] = {"manifest.json", "manifest.json.tmp", "verified-install.json",
                                        "verified-install.json.tmp"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char *path = file_join(w->partial, NAMES[i]);
        if (!path)
            return err_memory(err, strlen(NAMES[i]), "a path");
        sluice_status status = file_unlink(path, err);
        mem_free(path);
        TRY(status);
    }
    return SLUICE_OK;
}

/* Reserve the blocks now, so that a full disk shows before hours of copying. File systems that cannot reserve
 * get a sparse file. */
static sluice_status size_file(int fd, uint64_t bytes, const char *path, sluice_error *err)
{
    int rc = fault_hit(FAULT_WRITE) ? (errno = ENOSPC, -1) : ftruncate(fd, (off_t)bytes);
    if (rc == 0 && bytes > 0) {
        do
            rc = fallocate(fd, 0, 0, (off_t)bytes);
        while (rc != 0 && errno == EINTR);
        if (rc != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
            rc = 0;
    }
    return rc == 0
               ? SLUICE_OK
               : err_errno(err, errno, "cannot reserve %llu bytes for %s", (unsigned long long)bytes, path);
}

static sluice_status open_file(struct install *w, size_t i, sluice_error *err)
{
    const struct plan_file *file = &w->plan.files[i];
    char *path = file_join(w->partial, file->path);
    if (!path)
        return err_memory(err, strlen(file->path), "a path");
    sluice_status status = file_create(path, O_RDWR, &w->fds[i], err);
    if (status == SLUICE_OK)
        status = size_file(w->fds[i], file->bytes, path, err);
    if (status == SLUICE_OK && i == 0)
        status = file_write_at(w->fds[i], w->plan.index, (size_t)w->plan.index_bytes, 0, path, err);
    if (status == SLUICE_OK)
        status = file_sync(w->fds[i], path, err);
    mem_free(path);
    return status;
}

sluice_status install_prepare(struct install *w, bool resumed, sluice_error *err)
{
    static const char *const DIRS[] = {EXPERTS_DIR, TOKENIZER_DIR};
    if (resumed) {
        TRY(check_entries(w, "", err));
        TRY(check_entries(w, EXPERTS_DIR, err));
        TRY(check_entries(w, TOKENIZER_DIR, err));
        TRY(remove_end(w, err));
    }
    TRY(file_make_dir(w->partial, err));
    for (size_t i = 0; i < sizeof DIRS / sizeof *DIRS; i++) {
        char *path = file_join(w->partial, DIRS[i]);
        sluice_status status = path ? file_make_dir(path, err) : err_memory(err, 0, "a path");
        mem_free(path);
        TRY(status);
    }
    for (size_t i = 0; i < w->plan.n_files; i++)
        TRY(open_file(w, i, err));
    char *experts = file_join(w->partial, EXPERTS_DIR);
    sluice_status status = experts ? file_sync_dir(experts, err) : err_memory(err, 0, "a path");
    mem_free(experts);
    TRY(status);
    TRY(file_sync_dir(w->partial, err));
    return file_sync_dir(w->parent, err);
}

/* ---- space ---- */

static uint64_t allocated_bytes(const struct install *w)
{
    uint64_t total = 0;
    for (size_t i = 0; i < w->plan.n_files; i++) {
        struct stat st;
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", w->partial, w->plan.files[i].path);
        if (n > 0 && (size_t)n < sizeof path && lstat(path, &st) == 0) {
            uint64_t have = (uint64_t)st.st_blocks * 512;
            total += have < w->plan.files[i].bytes ? have : w->plan.files[i].bytes;
        }
    }
    return total;
}

/* Kept free for others: an eighth of the install, from 64 MiB to 1 GiB. */
static uint64_t reserve_bytes(uint64_t data_bytes)
{
    uint64_t eighth = data_bytes / 8;
    return eighth < 64u << 20 ? 64u << 20 : eighth > 1u << 30 ? 1u << 30 : eighth;
}

sluice_status install_check_space(const struct install *w, bool resumed, sluice_error *err)
{
    struct statvfs fs;
    if (statvfs(w->parent, &fs) != 0)
        return err_errno(err, errno, "cannot examine the file system of %s", w->parent);
    uint64_t need = w->plan.data_bytes - (resumed ? allocated_bytes(w) : 0);
    for (size_t i = 0; i < SIDECARS; i++)
        need += w->sidecar_bytes[i] != UINT64_MAX ? w->sidecar_bytes[i] : 0;
    /* layout.json: about 1 KiB per expert */
    need += (uint64_t)w->plan.n_expert_layers * w->plan.layout.n_experts * 1024;
    need += reserve_bytes(w->plan.data_bytes);
    uint64_t have = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (have < need)
        return err_set(
            err, SLUICE_E_IO,
            "the file system of %s has %llu bytes free, the install needs %llu with its reserve; free "
            "some space or choose another output",
            w->output, (unsigned long long)have, (unsigned long long)need);
    return SLUICE_OK;
}
