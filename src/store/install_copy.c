/* The payload of an install: ranges through one scratch buffer, each recorded when it is on disk, and, where
 * the source states a digest of its files, proof that what arrived is what the source means. */
#include "base/mem.h"
#include "base/worker.h"
#include "io/file.h"
#include "store/install_work.h"
#include "store/quantize.h"

#include <string.h>
#include <unistd.h>

/* The digest of a shard that is being read from its beginning to its end. */
struct shard_check {
    bool on;
    struct sha256 h;
    uint64_t at; /* bytes fed */
    char expected[SHA256_HEX_BYTES];
};

/* Takes n bytes of a copy, from byte `at` of it, and feeds what is at the destination to `tag`. */
typedef sluice_status (*move_fn)(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                                 struct poly1305 *tag, sluice_error *err);

/* Write to, or read from, n bytes of the target file that go on from `target`. */
static sluice_status put(struct install *w, uint32_t file, const void *bytes, size_t n, uint64_t target,
                         sluice_error *err)
{
    return file_write_at(w->fds[file], bytes, n, target, w->plan.files[file].path, err);
}

static sluice_status get(struct install *w, uint32_t file, void *bytes, size_t n, uint64_t target,
                         sluice_error *err)
{
    return file_read_at(w->fds[file], bytes, n, target, w->plan.files[file].path, err);
}

/* Quantize what lies in the scratch buffer, run by run, and write the parts to their places. */
static sluice_status quantize_in(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                                 struct poly1305 *tag, sluice_error *err)
{
    const struct plan_quant *q = &w->plan.quants[copy->quant - 1];
    for (size_t k = 0; k < n;) {
        struct plan_quant_run run = plan_quant_target(&w->plan, copy, at + k, n - k);
        unsigned char *part[3] = {w->parts, w->parts + run.bytes[0], w->parts + run.bytes[0] + run.bytes[1]};
        if (!quantize_groups(w->scratch + k, q->from, run.groups, q->group, q->bits, part[0],
                             (uint16_t *)(void *)part[1], (uint16_t *)(void *)part[2]))
            return err_set(
                err, SLUICE_E_NUMERIC,
                "%s holds a weight that is not finite at byte %llu or after; it cannot be quantized",
                w->st->shards[copy->shard].name, (unsigned long long)(copy->source + at + k));
        for (int i = 0; i < 3; i++) {
            poly1305_update(tag, part[i], (size_t)run.bytes[i]);
            TRY(put(w, copy->file, part[i], (size_t)run.bytes[i], run.targets[i], err));
        }
        k += (size_t)run.source_bytes;
    }
    return SLUICE_OK;
}

/* Read from the source into the scratch buffer, write to the places in the target file. */
static sluice_status move_in(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                             struct poly1305 *tag, sluice_error *err)
{
    const char *shard = w->st->shards[copy->shard].name;
    TRY(w->source->read(w->source, shard, copy->source + at, w->scratch, n, err));
    if (w->check && w->check->on) {
        sha256_update(&w->check->h, w->scratch, n);
        w->check->at = copy->source + at + n;
    }
    if (copy->quant)
        return quantize_in(w, copy, at, n, tag, err);
    poly1305_update(tag, w->scratch, n);
    for (size_t k = 0; k < n;) {
        uint64_t run, target = plan_target(copy, at + k, &run);
        size_t m = run < n - k ? (size_t)run : n - k;
        TRY(put(w, copy->file, w->scratch + k, m, target, err));
        k += m;
    }
    return SLUICE_OK;
}

/* Gather from the target file, into the scratch buffer unless it was quantized. `tag` may be NULL. */
static sluice_status move_back(struct install *w, const struct plan_copy *copy, uint64_t at, size_t n,
                               struct poly1305 *tag, sluice_error *err)
{
    for (size_t k = 0; copy->quant && k < n;) {
        struct plan_quant_run run = plan_quant_target(&w->plan, copy, at + k, n - k);
        for (int i = 0; i < 3; i++) {
            TRY(get(w, copy->file, w->parts, (size_t)run.bytes[i], run.targets[i], err));
            poly1305_update(tag, w->parts, (size_t)run.bytes[i]);
        }
        k += (size_t)run.source_bytes;
    }
    for (size_t k = 0; !copy->quant && k < n;) {
        uint64_t run, target = plan_target(copy, at + k, &run);
        size_t m = run < n - k ? (size_t)run : n - k;
        TRY(get(w, copy->file, w->scratch + k, m, target, err));
        k += m;
    }
    if (!copy->quant && tag)
        poly1305_update(tag, w->scratch, n);
    return SLUICE_OK;
}

/* Bytes of the shard that no copy takes, for its digest alone. */
static sluice_status pass_gap(struct install *w, uint32_t shard, uint64_t end, sluice_error *err)
{
    struct shard_check *check = w->check;
    while (check->on && check->at < end) {
        uint64_t rest = end - check->at;
        size_t n = rest < COPY_SCRATCH_BYTES ? (size_t)rest : COPY_SCRATCH_BYTES;
        TRY(w->source->read(w->source, w->st->shards[shard].name, check->at, w->scratch, n, err));
        sha256_update(&check->h, w->scratch, n);
        check->at += n;
        TRY(meter_step(&w->meter, 0, err));
    }
    return SLUICE_OK;
}

/* The tag of a range covers its number, through the key, and its bytes in the source's order, as they are at
 * the destination; where they go is bound by the plan's fingerprint, which the journal records. */
static sluice_status walk_range(struct install *w, size_t index, move_fn move, char hex[POLY1305_HEX_BYTES],
                                sluice_error *err)
{
    unsigned char key[POLY1305_KEY_BYTES];
    const struct plan_range *range = &w->plan.ranges[index];
    struct poly1305 tag;
    TRY(journal_key(&w->journal, index, key, err));
    TRY(poly1305_open(&tag, key, err));
    sluice_status status = SLUICE_OK;
    for (size_t i = range->first; i < range->first + range->count; i++) {
        const struct plan_segment *segment = &w->plan.segments[i];
        const struct plan_copy *copy = &w->plan.copies[segment->copy];
        if (move == move_in && w->check)
            TRY_OUT(pass_gap(w, range->shard, copy->source + segment->start, err));
        for (uint64_t at = 0; at < segment->bytes;) {
            uint64_t rest = segment->bytes - at;
            size_t n = rest < COPY_SCRATCH_BYTES ? (size_t)rest : COPY_SCRATCH_BYTES;
            TRY_OUT(move(w, copy, segment->start + at, n, &tag, err));
            TRY_OUT(meter_step(&w->meter, n, err));
            at += n;
        }
    }
out:
    poly1305_close(&tag, hex);
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
        if (journal_tag(&w->journal, i, &w->plan.ranges[i]))
            total += w->plan.ranges[i].payload_bytes;
    meter_start(&w->meter, &w->options->watch, "verify", total);
    for (size_t i = 0; i < w->plan.n_ranges; i++) {
        const char *recorded = journal_tag(&w->journal, i, &w->plan.ranges[i]);
        char hex[POLY1305_HEX_BYTES];
        if (!recorded)
            continue;
        TRY(walk_range(w, i, move_back, hex, err));
        if (strcmp(hex, recorded) == 0) {
            mark_done(w, i);
            w->report.reused_bytes += w->plan.ranges[i].payload_bytes;
            meter_prove(&w->meter, w->plan.ranges[i].payload_bytes);
        }
    }
    for (size_t i = 0; i < w->plan.n_ranges; i++)
        if (!w->done[i])
            journal_doubt_shard(&w->journal, w->st->shards[w->plan.ranges[i].shard].name);
    meter_finish(&w->meter);
    return journal_keep(&w->journal, w->done, w->plan.n_ranges, err);
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
    sluice_watch quiet = {.cancel = w->stop ? NULL : w->options->watch.cancel};
    struct meter meter = {.watch = &quiet, .stop = w->stop};
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

/* ---- a shard's own digest ---- */

static sluice_status check_open(struct install *w, uint32_t shard, struct shard_check *check,
                                sluice_error *err)
{
    const char *name = w->st->shards[shard].name;
    *check = (struct shard_check){.on = false};
    if (!w->source->digest || journal_shard_is_proven(&w->journal, name))
        return SLUICE_OK;
    TRY(w->source->digest(w->source, name, check->expected, err));
    if (!check->expected[0])
        return SLUICE_OK;
    TRY(sha256_open(&check->h, err));
    check->on = true;
    return SLUICE_OK;
}

/* What arrived is not what the source says it has: nothing of this shard may be kept. */
static sluice_status refuse_shard(struct install *w, uint32_t shard, const char *hex, const char *expected,
                                  sluice_error *err)
{
    for (size_t i = 0; i < w->plan.n_ranges; i++)
        if (w->plan.ranges[i].shard == shard)
            w->done[i] = false;
    TRY(journal_keep(&w->journal, w->done, w->plan.n_ranges, err));
    return err_set(err, SLUICE_E_CORRUPT,
                   "%s arrived damaged: its SHA-256 is %.16s..., the source states %.16s...; its bytes were "
                   "dropped, go on with --resume",
                   w->st->shards[shard].name, hex, expected);
}

static sluice_status check_close(struct install *w, uint32_t shard, struct shard_check *check,
                                 sluice_error *err)
{
    char hex[SHA256_HEX_BYTES];
    if (!check->on)
        return SLUICE_OK;
    TRY(pass_gap(w, shard, w->st->shards[shard].bytes, err));
    sha256_close(&check->h, hex);
    check->on = false;
    if (strcmp(hex, check->expected) != 0)
        return refuse_shard(w, shard, hex, check->expected, err);
    return journal_prove_shard(&w->journal, w->st->shards[shard].name, err);
}

/* A range that is on disk already, for the shard's digest: from the destination where the bytes are the same,
 * from the source where they were quantized. */
static sluice_status feed_done(struct install *w, size_t index, sluice_error *err)
{
    const struct plan_range *range = &w->plan.ranges[index];
    struct shard_check *check = w->check;
    for (size_t i = range->first; check->on && i < range->first + range->count; i++) {
        const struct plan_segment *segment = &w->plan.segments[i];
        const struct plan_copy *copy = &w->plan.copies[segment->copy];
        TRY(pass_gap(w, range->shard, copy->source + segment->start, err));
        for (uint64_t at = 0; !copy->quant && at < segment->bytes;) {
            uint64_t rest = segment->bytes - at;
            size_t n = rest < COPY_SCRATCH_BYTES ? (size_t)rest : COPY_SCRATCH_BYTES;
            TRY(move_back(w, copy, segment->start + at, n, NULL, err));
            sha256_update(&check->h, w->scratch, n);
            check->at += n;
            at += n;
            TRY(meter_step(&w->meter, 0, err));
        }
        /* What was quantized follows as a gap. */
    }
    return SLUICE_OK;
}

/* ---- what the source is told to read ahead ---- */

static sluice_status announce(struct install *w, uint32_t shard, uint64_t from, uint64_t to,
                              sluice_error *err)
{
    if (from >= to)
        return SLUICE_OK;
    return w->source->announce(w->source, w->st->shards[shard].name, from, to - from, err);
}

/* The whole shard but the bytes that are read back from the destination. */
static sluice_status announce_checked(struct install *w, uint32_t shard, size_t first, size_t end,
                                      sluice_error *err)
{
    uint64_t at = 0;
    for (size_t r = first; r < end; r++) {
        const struct plan_range *range = &w->plan.ranges[r];
        for (size_t i = range->first; w->done[r] && i < range->first + range->count; i++) {
            const struct plan_segment *segment = &w->plan.segments[i];
            const struct plan_copy *copy = &w->plan.copies[segment->copy];
            if (copy->quant)
                continue;
            TRY(announce(w, shard, at, copy->source + segment->start, err));
            at = copy->source + segment->start + segment->bytes;
        }
    }
    return announce(w, shard, at, w->st->shards[shard].bytes, err);
}

static sluice_status announce_shard(struct install *w, uint32_t shard, size_t first, size_t end,
                                    sluice_error *err)
{
    if (!w->source->announce)
        return SLUICE_OK;
    if (w->check->on)
        return announce_checked(w, shard, first, end, err);
    for (size_t r = first; r < end; r++)
        if (!w->done[r])
            TRY(announce(w, shard, w->plan.ranges[r].source,
                         w->plan.ranges[r].source + w->plan.ranges[r].span_bytes, err));
    return SLUICE_OK;
}

/* ---- all of it ---- */

/* While a range is copied the one before it is synced and recorded, and files that are complete are hashed:
 * two threads of their own, so that neither the drive nor the network waits for the other. No more than one
 * range waits for its record, so that an interruption loses two at most. */
struct finishing {
    struct install *w;
    struct worker record, hash;
    char (*tags)[POLY1305_HEX_BYTES]; /* of ranges that were copied */
};

static sluice_status hash_file(void *user, size_t file, sluice_error *err)
{
    struct finishing *f = user;
    return install_hash(f->w, f->w->plan.files[file].path, err);
}

/* A file whose last byte arrived is hashed while its pages are still in memory. */
static sluice_status give_complete_files(struct finishing *f, const struct plan_range *range,
                                         sluice_error *err)
{
    struct install *w = f->w;
    for (size_t i = range->first; i < range->first + range->count; i++) {
        uint32_t file = w->plan.copies[w->plan.segments[i].copy].file;
        if (w->left[file] == 0 && !w->given[file]) {
            w->given[file] = true;
            TRY(worker_give(&f->hash, file, err));
        }
    }
    return SLUICE_OK;
}

/* Job: the number of a range whose bytes were written. */
static sluice_status record_range(void *user, size_t index, sluice_error *err)
{
    struct finishing *f = user;
    struct install *w = f->w;
    const struct plan_range *range = &w->plan.ranges[index];
    uint32_t synced = UINT32_MAX;
    for (size_t i = range->first; i < range->first + range->count; i++) {
        uint32_t file = w->plan.copies[w->plan.segments[i].copy].file;
        if (file != synced) /* neighbours go to one file */
            TRY(file_sync(w->fds[file], w->plan.files[file].path, err));
        synced = file;
    }
    TRY(journal_add(&w->journal, index, f->tags[index], range, err));
    meter_prove(&w->meter, range->payload_bytes);
    mark_done(w, index);
    return give_complete_files(f, range, err);
}

static sluice_status copy_ranges(struct finishing *f, uint32_t shard, size_t first, size_t end,
                                 sluice_error *err)
{
    struct install *w = f->w;
    TRY(announce_shard(w, shard, first, end, err));
    for (size_t i = first; i < end; i++) {
        if (w->done[i]) {
            TRY(feed_done(w, i, err));
            continue;
        }
        TRY(walk_range(w, i, move_in, f->tags[i], err));
        TRY(worker_give(&f->record, i, err));
    }
    return worker_drain(&f->record, err);
}

/* Ranges [first, end) are those of the shard. */
static sluice_status copy_shard(struct finishing *f, uint32_t shard, size_t first, size_t end,
                                sluice_error *err)
{
    struct install *w = f->w;
    struct shard_check check;
    TRY(check_open(w, shard, &check, err));
    w->check = &check;
    sluice_status status = copy_ranges(f, shard, first, end, err);
    if (status == SLUICE_OK)
        status = check_close(w, shard, &check, err);
    if (check.on) {
        char hex[SHA256_HEX_BYTES];
        sha256_close(&check.h, hex);
    }
    w->check = NULL;
    return status;
}

static sluice_status copy_all(struct finishing *f, sluice_error *err)
{
    struct install *w = f->w;
    TRY(worker_start(&f->hash, WORKER_ROOM_MAX, hash_file, f, err));
    TRY(worker_start(&f->record, 1, record_range, f, err));
    for (size_t first = 0, end; first < w->plan.n_ranges; first = end) {
        uint32_t shard = w->plan.ranges[first].shard;
        end = first;
        while (end < w->plan.n_ranges && w->plan.ranges[end].shard == shard)
            end++;
        TRY(copy_shard(f, shard, first, end, err));
    }
    meter_finish(&w->meter);
    return worker_drain(&f->hash, err);
}

sluice_status install_copy(struct install *w, sluice_error *err)
{
    struct finishing f = {.w = w, .tags = mem_calloc(w->plan.n_ranges, POLY1305_HEX_BYTES)};
    if (!f.tags)
        return err_memory(err, w->plan.n_ranges * POLY1305_HEX_BYTES, "the copy");
    atomic_bool stop = false;
    w->stop = &stop;
    meter_start(&w->meter, &w->options->watch, "copy", w->plan.source_bytes);
    meter_prove(&w->meter, w->report.reused_bytes);
    sluice_status status = meter_step(&w->meter, w->report.reused_bytes, err);
    if (status == SLUICE_OK)
        status = copy_all(&f, err);
    worker_stop(&f.record); /* it gives to the other */
    atomic_store(&stop, status != SLUICE_OK);
    worker_stop(&f.hash);
    w->stop = NULL;
    mem_free(f.tags);
    TRY(status);
    for (size_t i = 0; i < w->plan.n_files; i++)
        TRY(install_hash(w, w->plan.files[i].path, err));
    return SLUICE_OK;
}
