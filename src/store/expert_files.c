/* The files of routed experts: opened and proven at their first use or ahead of it, and their copies on other
 * drives. Whatever is handed out has been compared with its digest, or with the receipt where that was asked
 * for. */
#include "store/gturbo.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/digest.h"
#include "store/gturbo_private.h"
#include "store/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECT_ALIGN = 4096 };

sluice_status expert_files_list(struct gturbo_private *p, sluice_error *err)
{
    const struct layout *layout = &p->layout;
    p->layer_files = mem_calloc(layout->n_layers, sizeof *p->layer_files);
    if (!p->layer_files)
        return err_memory(err, layout->n_layers * sizeof *p->layer_files, "the layer list");
    p->n_copies = 1;
    for (uint32_t i = 0; i < layout->n_layers; i++) {
        struct layer_file *layer = &p->layer_files[i];
        (void)pthread_mutex_init(&layer->lock, NULL);
        for (uint32_t c = 0; c < GTURBO_COPIES_MAX; c++) {
            layer->copies[c].fd = -1;
            atomic_init(&layer->copies[c].state, c == 0 ? COPY_UNPROVEN : COPY_ABSENT);
        }
        p->n_layer_files++;
        if (!layout->files[i])
            continue;
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, EXPERTS_DIR "/%s", layout->files[i]);
        layer->file = manifest_find(&p->manifest, path);
        if (!layer->file)
            return err_set(err, SLUICE_E_FORMAT, MANIFEST_NAME " does not list %s", path);
        /* n_experts < 2^17 and stride <= 2^32: no overflow */
        uint64_t need = layout->n_experts * layout->stride_bytes;
        if (layer->file->bytes != need)
            return err_set(err, SLUICE_E_FORMAT, "%s has %llu bytes, %u experts of %llu need %llu", path,
                           (unsigned long long)layer->file->bytes, layout->n_experts,
                           (unsigned long long)layout->stride_bytes, (unsigned long long)need);
    }
    return SLUICE_OK;
}

void expert_files_close(struct gturbo_private *p)
{
    atomic_store(&p->stop, true);
    for (uint32_t i = 0; i < p->n_provers; i++)
        (void)pthread_join(p->provers[i].thread, NULL);
    for (uint32_t i = 0; i < p->n_layer_files; i++) {
        if (p->layer_files[i].failure.status != SLUICE_OK) /* nobody came to use the layer */
            log_error(p->log, "%s", p->layer_files[i].failure.detail);
        for (uint32_t c = 0; c < GTURBO_COPIES_MAX; c++)
            if (p->layer_files[i].copies[c].fd >= 0)
                (void)close(p->layer_files[i].copies[c].fd);
        (void)pthread_mutex_destroy(&p->layer_files[i].lock);
    }
    for (uint32_t c = 1; c < p->n_copies; c++)
        mem_free(p->mirrors[c].dir);
    mem_free(p->layer_files);
}

void gturbo_read_buffered(struct gturbo *store)
{
    store->private->buffered = true;
}

void gturbo_log(struct gturbo *store, struct log *log)
{
    store->private->log = log;
}

/* ---- one file ---- */

/* Switch to O_DIRECT where the file system takes it: some refuse the flag, others only the first read. */
static sluice_status set_mode(int fd, const char *path, bool buffered, bool *direct, sluice_error *err)
{
    *direct = false;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return err_errno(err, errno, "cannot examine %s", path);
    /* A ring would answer EAGAIN for a file that must not block, on file systems that can only block. */
    flags &= ~O_NONBLOCK;
    if (buffered || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return fcntl(fd, F_SETFL, flags) == 0 ? SLUICE_OK
                                              : err_errno(err, errno, "cannot change the mode of %s", path);
    _Alignas(DIRECT_ALIGN) unsigned char probe[DIRECT_ALIGN];
    ssize_t got = fault_hit(FAULT_READ) ? (errno = EIO, -1) : pread(fd, probe, sizeof probe, 0);
    int errnum = errno;
    if (got < 0 && errnum != EINVAL)
        return err_errno(err, errnum, "reading %s", path);
    if (got < 0 && fcntl(fd, F_SETFL, flags) != 0)
        return err_errno(err, errno, "cannot change the mode of %s", path);
    *direct = got >= 0;
    return SLUICE_OK;
}

static sluice_status prove(struct gturbo_private *p, int fd, const char *path,
                           const struct manifest_file *file, sluice_error *err)
{
    struct meter meter = {.stop = &p->stop};
    char hex[SHA256_HEX_BYTES];
    TRY(digest_fd_fast(fd, path, file->bytes, &meter, hex, NULL, err));
    if (strcmp(hex, file->sha256) != 0)
        return err_set(err, SLUICE_E_CORRUPT,
                       "%s is damaged: its SHA-256 is %s, the manifest says %s; install it again", path, hex,
                       file->sha256);
    return SLUICE_OK;
}

/* Open a copy of a layer's file, hash it when asked, and make it ready. */
static sluice_status open_copy(struct gturbo_private *p, const struct manifest_file *file,
                               struct layer_copy *copy, const char *dir, bool hash, sluice_error *err)
{
    int fd = -1;
    uint64_t bytes;
    const uint64_t from = clock_ns();
    char *path = file_join(dir, file->path);
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    sluice_status status;
    TRY_OUT(file_open_read(path, &fd, &bytes, err));
    if (bytes != file->bytes)
        TRY_OUT(err_set(err, SLUICE_E_CORRUPT, "%s has %llu bytes, the manifest says %llu; install it again",
                        path, (unsigned long long)bytes, (unsigned long long)file->bytes));
    if (hash) {
        TRY_OUT(prove(p, fd, path, file, err));
        log_debug(p->log, "%s was hashed: %.1f MiB in %.3f s", path, (double)bytes / 1048576,
                  (double)(clock_ns() - from) / 1e9);
    }
    TRY_OUT(set_mode(fd, path, p->buffered, &copy->direct, err));
    log_debug(p->log, "%s is read %s", path,
              copy->direct  ? "directly"
              : p->buffered ? "through the page cache, as sluice probe found faster"
                            : "through the page cache: its file system takes no direct reads");
    copy->fd = fd;
    fd = -1;
    atomic_store_explicit(&copy->state, COPY_READY, memory_order_release);
out:
    if (fd >= 0)
        (void)close(fd);
    mem_free(path);
    return status;
}

/* ---- the install's own ---- */

/* `ahead`: nobody waits for it, so a failure is kept for the next use of the layer. */
static sluice_status own_copy(struct gturbo *store, uint32_t layer, bool ahead, sluice_error *err)
{
    struct gturbo_private *p = store->private;
    struct layer_file *file = &p->layer_files[layer];
    sluice_status status = SLUICE_OK;
    const uint64_t from = clock_ns();
    (void)pthread_mutex_lock(&file->lock);
    if (file->failure.status != SLUICE_OK) {
        status = file->failure.status;
        if (err)
            *err = file->failure;
        file->failure.status = SLUICE_OK; /* told; whoever comes next tries anew */
    } else if (file->copies[0].fd < 0) {
        status = open_copy(p, file->file, &file->copies[0], store->dir, p->hash, err);
        if (ahead && status != SLUICE_OK && status != SLUICE_E_CANCELLED)
            file->failure = *err;
    }
    (void)pthread_mutex_unlock(&file->lock);
    if (!ahead && status == SLUICE_OK && p->hash)
        log_info(p->log, "the first use of %s waited %.3f s for its hash", file->file->path,
                 (double)(clock_ns() - from) / 1e9);
    return status;
}

static bool ready(const struct gturbo_private *p, uint32_t layer, uint32_t copy)
{
    return (copy == 0 || !atomic_load(&p->mirrors[copy].dropped)) &&
           atomic_load_explicit(&p->layer_files[layer].copies[copy].state, memory_order_acquire) ==
               COPY_READY;
}

sluice_status gturbo_layer_sources(struct gturbo *store, uint32_t layer, struct layer_sources *sources,
                                   sluice_error *err)
{
    struct gturbo_private *p = store->private;
    sources->n = 0;
    if (layer >= store->n_layers || !p->layer_files[layer].file)
        return err_set(err, SLUICE_E_ARGUMENT, "layer %u has no experts", layer);
    if (!ready(p, layer, 0))
        TRY(own_copy(store, layer, false, err));
    for (uint32_t c = 0; c < p->n_copies; c++) {
        const struct layer_copy *copy = &p->layer_files[layer].copies[c];
        if (ready(p, layer, c))
            sources->at[sources->n++] = (struct layer_source){copy->fd, c, copy->direct};
    }
    return SLUICE_OK;
}

sluice_status gturbo_layer_fd(struct gturbo *store, uint32_t layer, int *fd, sluice_error *err)
{
    struct layer_sources sources = {0};
    *fd = -1;
    TRY(gturbo_layer_sources(store, layer, &sources, err));
    *fd = sources.at[0].fd;
    return SLUICE_OK;
}

/* ---- mirrors ---- */

/* True when the receipt vouches for the file: it has the original's size and time. */
static bool vouched(const json_t *receipt, const struct manifest_file *file, const struct stat *st)
{
    const json_t *time = json_object_get(json_object_get(receipt, "modificationTimesNs"), file->path);
    uint64_t mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
    return json_is_integer(time) && (uint64_t)json_integer_value(time) == mtime_ns;
}

/* Look at one file of a mirror; *present when it is there. */
static sluice_status look(struct gturbo_private *p, uint32_t layer, const char *dir, const json_t *receipt,
                          bool *present, sluice_error *err)
{
    struct layer_file *file = &p->layer_files[layer];
    struct layer_copy *copy = &file->copies[p->n_copies];
    *present = false;
    char *path = file_join(dir, file->file->path);
    if (!path)
        return err_memory(err, strlen(dir), "a path");
    struct stat st;
    sluice_status status = SLUICE_OK;
    if (stat(path, &st) != 0) {
        if (errno != ENOENT)
            status = err_errno(err, errno, "cannot examine %s", path);
    } else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != file->file->bytes) {
        status = err_set(err, SLUICE_E_CORRUPT,
                         "the mirror's %s is not a file of %llu bytes as the manifest says; copy it again",
                         path, (unsigned long long)file->file->bytes);
    } else {
        *present = true;
        atomic_store(&copy->state, COPY_UNPROVEN);
        if (receipt && vouched(receipt, file->file, &st))
            status = open_copy(p, file->file, copy, dir, false, err);
    }
    mem_free(path);
    return status;
}

sluice_status gturbo_add_mirror(struct gturbo *store, const char *dir, sluice_error *err)
{
    struct gturbo_private *p = store->private;
    if (p->n_copies == GTURBO_COPIES_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%s would be mirror number %u, at most %u are possible", dir,
                       p->n_copies, GTURBO_COPIES_MAX - 1);
    json_t *receipt = NULL;
    if (!p->hash)
        TRY(receipt_load(store->dir, &receipt, err));
    char *copy = mem_strdup(dir);
    sluice_status status = copy ? SLUICE_OK : err_memory(err, strlen(dir), "a path");
    uint32_t found = 0;
    for (uint32_t l = 0; l < p->n_layer_files && status == SLUICE_OK; l++) {
        bool present = false;
        if (p->layer_files[l].file)
            status = look(p, l, dir, receipt, &present, err);
        found += present;
    }
    json_decref(receipt);
    if (status == SLUICE_OK && found == 0)
        status = err_set(err, SLUICE_E_ARGUMENT,
                         "the mirror %s holds no " EXPERTS_DIR "/layer_NN.bin of this model; copy some there",
                         dir);
    /* Counted after a failure too, so that closing finds what was opened. */
    p->mirrors[p->n_copies].dir = copy;
    atomic_init(&p->mirrors[p->n_copies].dropped, status != SLUICE_OK);
    p->n_copies++;
    return status;
}

void gturbo_drop_mirror(struct gturbo *store, uint32_t copy, const char *why)
{
    struct gturbo_private *p = store->private;
    if (copy == 0 || atomic_exchange(&p->mirrors[copy].dropped, true))
        return;
    log_warning(p->log, "the mirror %.100s is no longer used: %s; reads go on with the other copies",
                p->mirrors[copy].dir, why);
}

/* ---- ahead of use ---- */

static void prove_own(struct gturbo *store)
{
    struct gturbo_private *p = store->private;
    sluice_error err;
    for (;;) {
        uint32_t layer = atomic_fetch_add(&p->next_layer, 1);
        if (layer >= p->n_layer_files || atomic_load(&p->stop))
            return;
        if (p->layer_files[layer].file && !ready(p, layer, 0))
            (void)own_copy(store, layer, true, &err);
    }
}

static void prove_mirror(struct gturbo *store, uint32_t c)
{
    struct gturbo_private *p = store->private;
    for (uint32_t l = 0; l < p->n_layer_files; l++) {
        struct layer_file *file = &p->layer_files[l];
        sluice_error err;
        if (atomic_load(&p->stop) || atomic_load(&p->mirrors[c].dropped))
            return;
        if (!file->file || atomic_load(&file->copies[c].state) != COPY_UNPROVEN)
            continue;
        sluice_status status = open_copy(p, file->file, &file->copies[c], p->mirrors[c].dir, true, &err);
        if (status != SLUICE_OK && status != SLUICE_E_CANCELLED)
            gturbo_drop_mirror(store, c, err.detail);
    }
}

static void *prover_main(void *arg)
{
    struct prover *prover = arg;
    if (prover->copy == 0)
        prove_own(prover->store);
    else
        prove_mirror(prover->store, prover->copy);
    return NULL;
}

static bool has_work(const struct gturbo_private *p, uint32_t copy)
{
    for (uint32_t l = 0; l < p->n_layer_files; l++)
        if (p->layer_files[l].file && atomic_load(&p->layer_files[l].copies[copy].state) == COPY_UNPROVEN)
            return true;
    return false;
}

static sluice_status start(struct gturbo *store, uint32_t copy, sluice_error *err)
{
    struct gturbo_private *p = store->private;
    struct prover *prover = &p->provers[p->n_provers];
    *prover = (struct prover){.store = store, .copy = copy};
    int failed = fault_hit(FAULT_ALLOC) ? ENOMEM : pthread_create(&prover->thread, NULL, prover_main, prover);
    if (failed)
        return err_errno(err, failed, "cannot start a thread that verifies the expert files");
    p->n_provers++;
    return SLUICE_OK;
}

sluice_status gturbo_prove_ahead(struct gturbo *store, uint32_t threads, sluice_error *err)
{
    struct gturbo_private *p = store->private;
    sluice_status status = SLUICE_OK;
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    for (uint32_t c = 0; c < p->n_copies && status == SLUICE_OK; c++) {
        if ((c == 0 && !p->hash) || !has_work(p, c))
            continue;
        uint32_t n = c > 0 || threads == 0 ? 1 : threads > 4 ? 4 : threads;
        for (uint32_t i = 0; i < n && status == SLUICE_OK; i++)
            status = start(store, c, err);
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}
