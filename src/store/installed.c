#include "store/installed.h"

#include "base/json.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/journal.h"
#include "store/manifest.h"
#include "store/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* OUTPUT without its trailing slashes, and SUFFIX. */
static sluice_status beside(char path[PATH_MAX], const char *output, const char *suffix, sluice_error *err)
{
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/')
        n--;
    int wrote = snprintf(path, PATH_MAX, "%.*s%s", (int)(n < PATH_MAX ? n : PATH_MAX), output, suffix);
    if (wrote < 0 || wrote >= PATH_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "the path %.80s... is too long", output);
    return SLUICE_OK;
}

/* Whether another process installs there. The lock file is not made where there is none. */
static bool is_busy(const char *lock)
{
    int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool busy = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return busy;
}

static void copy_text(char *out, size_t room, const json_t *text)
{
    (void)snprintf(out, room, "%s", json_is_string(text) ? json_string_value(text) : "");
}

static void fill_partial(const struct journal *j, sluice_install_state *state)
{
    const char *id;
    json_t *range;
    state->condition = SLUICE_INSTALL_PARTIAL;
    copy_text(state->model_id, sizeof state->model_id, json_object_get(j->root, "repoID"));
    copy_text(state->revision, sizeof state->revision, json_object_get(j->root, "resolvedCommit"));
    state->bytes = (uint64_t)json_integer_value(json_object_get(j->root, "totalSourceBytes"));
    json_object_foreach(j->ranges, id, range)
    {
        (void)id;
        state->done_bytes += (uint64_t)json_integer_value(json_object_get(range, "destinationBytes"));
    }
}

static sluice_status fill_complete(const char *output, sluice_install_state *state, sluice_error *err)
{
    struct manifest m;
    json_t *receipt = NULL;
    sluice_status status = manifest_load(output, &m, err);
    if (status == SLUICE_OK) {
        state->condition = SLUICE_INSTALL_COMPLETE;
        (void)snprintf(state->model_id, sizeof state->model_id, "%s", m.model_id);
        for (size_t i = 0; i < m.n_files; i++)
            state->bytes += m.files[i].bytes; /* manifest_parse() proved that the sum fits */
        status = receipt_load(output, &receipt, err);
    }
    if (status == SLUICE_OK) {
        copy_text(state->revision, sizeof state->revision, json_object_get(receipt, "sourceRevision"));
        state->verified = receipt_check(output, &m, NULL) == SLUICE_OK;
    }
    json_decref(receipt);
    manifest_free(&m);
    return status;
}

sluice_status sluice_install_examine(const char *output_dir, sluice_install_state *state, sluice_error *err)
{
    char output[PATH_MAX], journal_path[PATH_MAX], partial[PATH_MAX], lock[PATH_MAX];
    *state = (sluice_install_state){0};
    if (!output_dir || !*output_dir)
        return err_set(err, SLUICE_E_ARGUMENT, "no install directory was given");
    TRY(beside(output, output_dir, "", err));
    TRY(beside(journal_path, output_dir, ".resume.json", err));
    TRY(beside(partial, output_dir, ".partial", err));
    TRY(beside(lock, output_dir, ".install.lock", err));
    state->busy = is_busy(lock);
    if (file_exists(output))
        return fill_complete(output, state, err);
    if (!file_exists(journal_path)) {
        if (file_exists(partial))
            state->condition = SLUICE_INSTALL_PARTIAL; /* without its journal: --discard or removal is left */
        return SLUICE_OK;
    }
    struct journal j;
    TRY(journal_load(&j, journal_path, err));
    fill_partial(&j, state);
    journal_free(&j);
    return SLUICE_OK;
}

sluice_status installed_partial_revision(const char *output_dir, char revision[64], sluice_error *err)
{
    sluice_install_state state;
    revision[0] = '\0';
    TRY(sluice_install_examine(output_dir, &state, err));
    if (state.condition == SLUICE_INSTALL_PARTIAL)
        memcpy(revision, state.revision, sizeof state.revision);
    return SLUICE_OK;
}

/* ---- removing ---- */

/* The manifest first: what is half deleted is no install any more. */
static sluice_status remove_output(const char *output, sluice_error *err)
{
    struct stat st;
    if (lstat(output, &st) != 0)
        return errno == ENOENT ? SLUICE_OK : err_errno(err, errno, "cannot examine %s", output);
    if (S_ISLNK(st.st_mode))
        return file_unlink(output, err);
    struct manifest m;
    sluice_status status = manifest_load(output, &m, err);
    manifest_free(&m);
    if (status != SLUICE_OK)
        return err_prefix(err, status, "%s is not deleted, because it is no install", output);
    char *manifest = file_join(output, MANIFEST_NAME);
    if (!manifest)
        return err_memory(err, strlen(output), "a path");
    status = file_unlink(manifest, err);
    mem_free(manifest);
    return status == SLUICE_OK ? file_remove_tree(output, err) : status;
}

static sluice_status remove_all(const char *output_dir, sluice_error *err)
{
    static const char *const FILES[] = {".resume.json", ".resume.json.tmp", ".probe.json"};
    char path[PATH_MAX];
    TRY(beside(path, output_dir, "", err));
    TRY(remove_output(path, err));
    TRY(beside(path, output_dir, ".partial", err));
    TRY(file_remove_tree(path, err)); /* before its journal: without one nothing in it can be trusted */
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        TRY(beside(path, output_dir, FILES[i], err));
        TRY(file_unlink(path, err));
    }
    return SLUICE_OK;
}

sluice_status sluice_install_remove(const char *output_dir, sluice_error *err)
{
    static const char *const TRACES[] = {"", ".partial", ".resume.json"};
    char lock[PATH_MAX], path[PATH_MAX];
    bool there = false;
    if (!output_dir || !*output_dir)
        return err_set(err, SLUICE_E_ARGUMENT, "no install directory was given");
    for (size_t i = 0; i < sizeof TRACES / sizeof *TRACES; i++) {
        TRY(beside(path, output_dir, TRACES[i], err));
        there |= file_exists(path);
    }
    if (!there)
        return err_set(err, SLUICE_E_IO, "there is no install at %s", output_dir);
    int fd;
    TRY(beside(lock, output_dir, ".install.lock", err));
    TRY(file_lock(lock, "installing to it", &fd, err));
    sluice_status status = remove_all(output_dir, err);
    (void)file_unlink(lock, NULL);
    file_unlock(fd);
    return status;
}
