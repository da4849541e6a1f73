/* The payload of an install: ranges through one scratch buffer, each recorded when it is on disk. */
#include "base/mem.h"
#include "io/file.h"
#include "store/install_work.h"

#include <string.h>
#include <unistd.h>

/* Takes n bytes of a copy, from byte `at` of it. */
typedef sluice_status (*move_fn)(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                                 sluice_error *err);

/* Read from the source into the scratch buffer, write to the places in the target file. */
static sluice_status move_in(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                             sluice_error *err)
{
    const char *shard = w->st->shards[copy->shard].name;
    TRY(w->source->read(w->source, shard, copy->source + at, w->scratch, n, err));
    w->dirty[copy->file] = true;
    for (size_t k = 0; k < n;) {
        uint64_t run, target = plan_target(copy, at + k, &run);
        size_t m = run < n - k ? (size_t)run : n - k;
        TRY(file_write_at(w->fds[copy->file], w->scratch + k, m, target, w->plan.files[copy->file].path,
                          err));
        k += m;
    }
    return SLUICE_OK;
}

/* Gather from the target file into the scratch buffer. */
static sluice_status move_back(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                               sluice_error *err)
{
    for (size_t k = 0; k < n;) {
        uint64_t run, target = plan_target(copy, at + k, &run);
        size_t m = run < n - k ? (size_t)run : n - k;
        TRY(file_read_at(w->fds[copy->file], w->scratch + k, m, target, w->plan.files[copy->file].path, err));
        k += m;
    }
    return SLUICE_OK;
}

/* The digest of a range covers its number and its bytes in the source's order; where they go is bound by the
 * plan's fingerprint, which the journal records. */
static sluice_status walk_range(struct install *w, size_t index, move_fn move, char hex[SHA256_HEX_BYTES],
                                sluice_error *err)
{
    static const char DOMAIN[] = "sluice install range 1";
    const struct plan_range *range = &w->plan.ranges[index];
    struct sha256 h;
    TRY(sha256_open(&h, err));
    sha256_update(&h, DOMAIN, sizeof DOMAIN);
    sha256_update_u64(&h, index);
    sluice_status status = SLUICE_OK;
    for (size_t i = range->first; i < range->first + range->count; i++) {
        const struct plan_segment *segment = &w->plan.segments[i];
        for (uint64_t at = 0; at < segment->bytes;) {
            uint64_t rest = segment->bytes - at;
            size_t n = rest < COPY_SCRATCH_BYTES ? (size_t)rest : COPY_SCRATCH_BYTES;
            TRY_OUT(move(w, &w->plan.copies[segment->copy], segment->start + at, n, err));
            sha256_update(&h, w->scratch, n);
            TRY_OUT(meter_step(&w->meter, n, err));
            at += n;
        }
    }
out:
    sha256_close(&h, hex);
    return status;
}

static void mark_done(struct install *w, size_t index)
{
    const struct plan_range *range = &w->plan.ranges[index];
    w->done[index] = true;
    for (size_t i = range->first; i < range->first + range->count; i++) {
        const struct plan_segment *segment = &w->plan.segments[i];
        w->left[w->plan.copies[segment->copy].file] -= segment->bytes;
    }
}

sluice_status install_recheck(struct install *w, sluice_error *err)
{
    uint64_t total = 0;
    for (size_t i = 0; i < w->plan.n_ranges; i++)
        if (journal_digest(&w->journal, i, &w->plan.ranges[i]))
            total += w->plan.ranges[i].payload_bytes;
    meter_start(&w->meter, &w->options->watch, "verify", total);
    for (size_t i = 0; i < w->plan.n_ranges; i++) {
        const char *recorded = journal_digest(&w->journal, i, &w->plan.ranges[i]);
        char hex[SHA256_HEX_BYTES];
        if (!recorded)
            continue;
        TRY(walk_range(w, i, move_back, hex, err));
        if (strcmp(hex, recorded) == 0) {
            mark_done(w, i);
            w->report.reused_bytes += w->plan.ranges[i].payload_bytes;
        }
    }
    meter_finish(&w->meter);
    return journal_keep(&w->journal, w->done, w->plan.n_ranges, err);
}

static sluice_status sync_dirty(struct install *w, sluice_error *err)
{
    for (size_t i = 0; i < w->plan.n_files; i++)
        if (w->dirty[i]) {
            TRY(file_sync(w->fds[i], w->plan.files[i].path, err));
            w->dirty[i] = false;
        }
    return SLUICE_OK;
}

sluice_status install_hash(struct install *w, const char *path, sluice_error *err)
{
    struct finished_file *file = NULL;
    for (size_t i = 0; i < w->n_finished; i++)
        if (strcmp(w->finished[i].path, path) == 0)
            file = &w->finished[i];
    if (file && file->hashed)
        return SLUICE_OK;
    if (!file) {
        file = &w->finished[w->n_finished++];
        *file = (struct finished_file){0};
        memcpy(file->path, path, strlen(path) + 1); /* plan paths, LAYOUT_NAME and sidecars: all below 48 */
    }
    char *full = file_join(w->partial, path);
    if (!full)
        return err_memory(err, strlen(path), "a path");
    /* Cancel counts, bytes do not: they belong to no phase that the caller watches. */
    sluice_watch quiet = {.cancel = w->options->watch.cancel};
    struct meter meter = {.watch = &quiet};
    int fd;
    uint64_t bytes;
    sluice_status status = file_open_read(full, &fd, &bytes, err);
    if (status == SLUICE_OK) {
        status = digest_fd(fd, full, bytes, &meter, file->sha256, &file->stamp, err);
        (void)close(fd);
    }
    mem_free(full);
    file->hashed = status == SLUICE_OK;
    return status;
}

static sluice_status copy_range(struct install *w, size_t index, sluice_error *err)
{
    const struct plan_range *range = &w->plan.ranges[index];
    char hex[SHA256_HEX_BYTES];
    if (w->source->announce)
        TRY(w->source->announce(w->source, w->st->shards[range->shard].name, range->source, range->span_bytes,
                                err));
    TRY(walk_range(w, index, move_in, hex, err));
    TRY(sync_dirty(w, err));
    TRY(journal_add(&w->journal, index, hex, range, err));
    mark_done(w, index);
    /* A file whose last byte just arrived is hashed while its pages are still in memory. */
    for (size_t i = range->first; i < range->first + range->count; i++) {
        uint32_t file = w->plan.copies[w->plan.segments[i].copy].file;
        if (w->left[file] == 0)
            TRY(install_hash(w, w->plan.files[file].path, err));
    }
    return SLUICE_OK;
}

sluice_status install_copy(struct install *w, sluice_error *err)
{
    meter_start(&w->meter, &w->options->watch, "copy", w->plan.source_bytes);
    TRY(meter_step(&w->meter, w->report.reused_bytes, err));
    for (size_t i = 0; i < w->plan.n_ranges; i++)
        if (!w->done[i])
            TRY(copy_range(w, i, err));
    meter_finish(&w->meter);
    for (size_t i = 0; i < w->plan.n_files; i++)
        TRY(install_hash(w, w->plan.files[i].path, err));
    return SLUICE_OK;
}
