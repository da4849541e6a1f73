#include "store/drive.h"

#include "base/json.h"
#include "base/mem.h"
#include "io/file.h"
#include "io/probe.h"
#include "store/gturbo.h"
#include "store/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    BLOCK_DEFAULT = 1 << 20,
    BLOCK_MOST = 4 << 20,
    BUFFER_BYTES = 64 << 20, /* depth * block of a row; larger ones are left out */
    PATH_BYTES = 4096,
};

#define PROBE_SUFFIX    ".probe.json"
#define PROBE_BYTES_MAX 4096

static const struct drive_limits DEFAULTS = {.file_bytes = 256u << 20, .row_ns = 100000000};
static const uint32_t DEPTHS[] = {1, 2, 4, 8, 16, 32};
static const size_t BLOCKS[] = {128u << 10, 256u << 10, 512u << 10, 1u << 20, 2u << 20, 4u << 20};

static const char *const ENGINE_NAMES[] = {
    [SLUICE_IO_AUTO] = "auto", [SLUICE_IO_URING] = "uring", [SLUICE_IO_THREADS] = "threads"};

/* ---- remembering ---- */

/* "DIR.probe.json" without DIR's trailing slashes. */
static char *memory_path(const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    char *path = mem_alloc(n + sizeof PROBE_SUFFIX);
    if (path)
        (void)snprintf(path, n + sizeof PROBE_SUFFIX, "%.*s" PROBE_SUFFIX, (int)n, dir);
    return path;
}

/* What a measurement is bound to. */
struct binding {
    char device[32], file_system[64];
};

static bool bind_to(const char *dir, struct binding *binding)
{
    struct stat st;
    struct statfs fs;
    if (stat(dir, &st) != 0 || statfs(dir, &fs) != 0)
        return false;
    (void)snprintf(binding->device, sizeof binding->device, "%u:%u", major(st.st_dev), minor(st.st_dev));
    (void)snprintf(binding->file_system, sizeof binding->file_system, "%lx:%x:%x", (unsigned long)fs.f_type,
                   (unsigned)fs.f_fsid.__val[0], (unsigned)fs.f_fsid.__val[1]);
    return true;
}

static bool text_is(const json_t *root, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text && strcmp(text, wanted) == 0;
}

static bool read_choice(const json_t *root, const struct binding *binding, struct drive_choice *choice)
{
    uint32_t schema, depth;
    if (json_need_u32(root, "schemaVersion", 1, 1, &schema, PROBE_SUFFIX, NULL) != SLUICE_OK ||
        json_need_u32(root, "depth", 1, READS_DEPTH_MAX, &depth, PROBE_SUFFIX, NULL) != SLUICE_OK ||
        !text_is(root, "device", binding->device) || !text_is(root, "fileSystem", binding->file_system) ||
        !json_is_boolean(json_object_get(root, "direct")))
        return false;
    bool uring = text_is(root, "engine", ENGINE_NAMES[SLUICE_IO_URING]);
    if (!uring && !text_is(root, "engine", ENGINE_NAMES[SLUICE_IO_THREADS]))
        return false;
    choice->engine = uring ? SLUICE_IO_URING : SLUICE_IO_THREADS;
    choice->direct = json_is_true(json_object_get(root, "direct"));
    choice->depth = depth;
    return true;
}

bool drive_recall(const char *install_dir, struct drive_choice *choice, const char **why_not)
{
    struct binding binding;
    char *path = memory_path(install_dir), *text = NULL;
    size_t bytes;
    json_t *root = NULL;
    const bool there = path && file_exists(path);
    if (why_not)
        *why_not = there ? "what sluice probe remembered is of another device or file system, or damaged"
                         : "no measurement by sluice probe is remembered";
    bool fits = there && bind_to(install_dir, &binding) &&
                file_load(path, PROBE_BYTES_MAX, &text, &bytes, NULL) == SLUICE_OK &&
                json_parse(text, bytes, PROBE_SUFFIX, &root, NULL) == SLUICE_OK &&
                read_choice(root, &binding, choice);
    json_decref(root);
    mem_free(text);
    mem_free(path);
    return fits;
}

static sluice_status remember(const char *dir, const sluice_probe_row *best, sluice_error *err)
{
    struct binding binding;
    if (!bind_to(dir, &binding))
        return err_errno(err, errno, "cannot examine %s", dir);
    mem_hook_json();
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:s, s:b, s:i, s:I, s:f}", "schemaVersion", 1, "device", binding.device,
                  "fileSystem", binding.file_system, "engine", ENGINE_NAMES[best->engine], "direct",
                  best->direct, "depth", (int)best->depth, "blockBytes", (json_int_t)best->block_bytes,
                  "bytesPerSecond", best->bytes_per_s);
    char *text = NULL, *path = memory_path(dir);
    sluice_status status = root && path ? json_print(root, JSON_INDENT(2), "the measurement", &text, err)
                                        : err_memory(err, PROBE_BYTES_MAX, "the measurement");
    if (status == SLUICE_OK)
        status = file_publish(path, text, strlen(text), err);
    json_decref(root);
    mem_free(text);
    mem_free(path);
    return status;
}

/* ---- what to read ---- */

/* nftw has no user pointer; one search at a time per thread. */
static _Thread_local struct {
    char path[PATH_BYTES];
    uint64_t bytes;
} largest;

static int keep_largest(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    if (kind == FTW_F && S_ISREG(st->st_mode) && (uint64_t)st->st_size > largest.bytes &&
        strlen(path) < sizeof largest.path) {
        (void)snprintf(largest.path, sizeof largest.path, "%s", path);
        largest.bytes = (uint64_t)st->st_size;
    }
    return 0;
}

/* Fill with bytes that no drive can compress. */
static void fill(uint64_t *words, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        words[i] = *state;
    }
}

static sluice_status write_file(int fd, uint64_t bytes, const char *path, unsigned char *memory,
                                const sluice_watch *watch, sluice_error *err)
{
    uint64_t state = 88172645463325252u;
    for (uint64_t at = 0; at < bytes; at += BLOCK_DEFAULT) {
        size_t n = bytes - at < BLOCK_DEFAULT ? (size_t)(bytes - at) : BLOCK_DEFAULT;
        if (watch && watch->cancel && *watch->cancel)
            return err_set(err, SLUICE_E_CANCELLED, "cancelled");
        fill((uint64_t *)(void *)memory, n / sizeof(uint64_t), &state);
        TRY(file_write_at(fd, memory, n, at, path, err));
        if (watch && watch->progress)
            watch->progress(watch->user, &(sluice_progress){"write", at + n, bytes, 0});
    }
    return file_sync(fd, path, err);
}

/* A temporary file in `dir`; its name is in largest.path until it is unlinked. */
static sluice_status make_file(const char *dir, uint64_t bytes, unsigned char *memory,
                               const sluice_watch *watch, sluice_error *err)
{
    struct statvfs fs;
    if (statvfs(dir, &fs) != 0)
        return err_errno(err, errno, "cannot examine %s", dir);
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room / 2 < bytes)
        return err_set(err, SLUICE_E_IO,
                       "%s has %llu bytes free; measuring needs a file of %llu and leaves as much free", dir,
                       (unsigned long long)room, (unsigned long long)bytes);
    int n = snprintf(largest.path, sizeof largest.path, "%s/sluice-probe-XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof largest.path)
        return err_set(err, SLUICE_E_ARGUMENT, "the path %s is too long", dir);
    int fd = mkstemp(largest.path);
    if (fd < 0)
        return err_errno(err, errno, "cannot create %s", largest.path);
    sluice_status status = write_file(fd, bytes, largest.path, memory, watch, err);
    (void)close(fd);
    if (status != SLUICE_OK)
        (void)unlink(largest.path);
    largest.bytes = bytes;
    return status;
}

/* ---- measuring ---- */

struct probe {
    const struct drive_limits *limits;
    const sluice_watch *watch;
    sluice_probe_report *report;
    unsigned char *memory;
};

/* A row of the table. A way that is refused here is left out. */
static sluice_status measure(struct probe *p, const struct probe_way *way, sluice_error *err)
{
    sluice_probe_report *report = p->report;
    struct probe_result result;
    if (p->watch && p->watch->cancel && *p->watch->cancel)
        return err_set(err, SLUICE_E_CANCELLED, "cancelled");
    if (report->n_rows == SLUICE_PROBE_ROWS || way->depth * way->block_bytes > BUFFER_BYTES ||
        way->block_bytes > largest.bytes)
        return SLUICE_OK;
    sluice_status status =
        probe_file(largest.path, largest.bytes, way, p->limits->row_ns, p->memory, &result, err);
    if (status == SLUICE_E_UNSUPPORTED)
        return SLUICE_OK;
    TRY(status);
    report->rows[report->n_rows++] = (sluice_probe_row){
        .engine = way->engine,
        .direct = way->direct,
        .depth = way->depth,
        .block_bytes = way->block_bytes,
        .bytes_per_s = result.ns ? (double)result.bytes * 1e9 / (double)result.ns : 0,
        .cpu_s_per_gb = result.bytes ? (double)result.cpu_ns / (double)result.bytes : 0,
    };
    if (p->watch && p->watch->progress)
        p->watch->progress(p->watch->user,
                           &(sluice_progress){"measure", report->n_rows, SLUICE_PROBE_ROWS, 0});
    return SLUICE_OK;
}

/* The fastest row; of those within 5 %, which is noise, the one with direct reads, then the ring, then the
 * smallest depth from 4 up: below that a drive is fast only while nothing else reads. */
static uint32_t choose(const sluice_probe_row *rows, uint32_t n)
{
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = rows[i].bytes_per_s > most ? rows[i].bytes_per_s : most;
    uint32_t best = 0, best_rank = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].bytes_per_s < 0.95 * most)
            continue;
        uint32_t shallow = rows[i].depth < 4 ? 128 : rows[i].depth;
        uint32_t rank =
            1 + rows[i].direct * 1024u + (rows[i].engine == SLUICE_IO_URING) * 512u + 256u - shallow;
        if (rank > best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    return best;
}

static sluice_status fill_table(struct probe *p, size_t block, sluice_error *err)
{
    static const sluice_io ENGINES[] = {SLUICE_IO_URING, SLUICE_IO_THREADS};
    for (int direct = 1; direct >= 0; direct--)
        for (size_t e = 0; e < 2; e++)
            for (size_t d = 0; d < sizeof DEPTHS / sizeof *DEPTHS; d++)
                TRY(measure(p, &(struct probe_way){ENGINES[e], direct, DEPTHS[d], block}, err));
    sluice_probe_report *report = p->report;
    if (report->n_rows == 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, "no way of reading works on %s", largest.path);
    report->best = choose(report->rows, report->n_rows);
    sluice_probe_row best = report->rows[report->best];
    for (size_t b = 0; b < sizeof BLOCKS / sizeof *BLOCKS; b++)
        if (BLOCKS[b] != block) {
            uint32_t room = (uint32_t)(BUFFER_BYTES / BLOCKS[b]),
                     depth = best.depth < room ? best.depth : room;
            TRY(measure(p, &(struct probe_way){best.engine, best.direct, depth, BLOCKS[b]}, err));
        }
    return SLUICE_OK;
}

/* The block to judge by: a whole expert record of an install. */
static bool stride_of(const char *dir, size_t *block)
{
    struct gturbo *store;
    *block = BLOCK_DEFAULT;
    if (gturbo_open_headers(dir, &store, NULL) != SLUICE_OK)
        return false;
    if (store->n_experts > 0)
        *block = store->stride_bytes < BLOCK_MOST ? (size_t)store->stride_bytes : BLOCK_MOST;
    gturbo_close(store);
    return true;
}

static sluice_status probe_with(struct probe *p, const char *dir, bool install, size_t block,
                                sluice_error *err)
{
    sluice_probe_report *report = p->report;
    largest.bytes = 0;
    if (nftw(dir, keep_largest, 16, FTW_PHYS) != 0)
        return err_errno(err, errno, "cannot look through %s", dir);
    report->temporary = largest.bytes < p->limits->file_bytes;
    if (report->temporary) {
        /* Beside an install, never in it. */
        char *parent = install ? file_join(dir, "..") : mem_strdup(dir);
        sluice_status status = parent ? make_file(parent, p->limits->file_bytes, p->memory, p->watch, err)
                                      : err_memory(err, strlen(dir), "a path");
        mem_free(parent);
        TRY(status);
    }
    (void)snprintf(report->file, sizeof report->file, "%.511s", largest.path);
    report->file_bytes = largest.bytes;
    sluice_status status = fill_table(p, block, err);
    if (report->temporary)
        (void)unlink(largest.path);
    if (status == SLUICE_OK && install) {
        sluice_error why;
        report->remembered = remember(dir, &report->rows[report->best], &why) == SLUICE_OK;
        if (!report->remembered)
            (void)snprintf(report->why_not, sizeof report->why_not, "%s", why.detail);
    }
    return status;
}

sluice_status drive_probe(const char *dir, const struct drive_limits *limits, const sluice_watch *watch,
                          sluice_probe_report *report, sluice_error *err)
{
    struct probe p = {.limits = limits, .watch = watch, .report = report};
    struct arena arena;
    size_t block;
    *report = (sluice_probe_report){0};
    struct stat st;
    if (stat(dir, &st) != 0)
        return err_errno(err, errno, "cannot examine %s", dir);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, SLUICE_E_ARGUMENT, "%s is not a directory", dir);
    bool install = stride_of(dir, &block);
    TRY(arena_open(&arena, NULL, BUFFER_BYTES, "the probe's buffers", err));
    p.memory = arena.base;
    sluice_status status = probe_with(&p, dir, install, block, err);
    arena_close(&arena);
    return status;
}

sluice_status sluice_probe(const char *dir, const sluice_watch *watch, sluice_probe_report *report,
                           sluice_error *err)
{
    return drive_probe(dir, &DEFAULTS, watch, report, err);
}
