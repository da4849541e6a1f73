/* Traces: every tensor of a forward pass in the order of computation, in two files.
 *
 *     index.json   {"tensors": [{"name", "dtype", "shape", "offset", "bytes"}, …], "digest"}
 *     data.bin     the bytes, one tensor after the other
 *
 * The digest is SHA-256 over each tensor's name, type, shape and bytes, length-prefixed; no time, no path,
 * and no chunk: a prompt of several chunks is recorded pass by pass beside, then its rows are put together.
 * So equal computations have equal digests. */
#include "run/session.h"

#include "base/json.h"
#include "base/sha256.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- passes ---- */

/* One tensor of one pass, in passes.bin. */
struct piece {
    char name[80];
    const char *dtype; /* static */
    uint32_t rows, cols;
    uint64_t offset;
    size_t bytes;
};

struct recorder {
    int fd; /* passes.bin */
    uint64_t offset;
    struct piece *pieces;
    size_t n_pieces, cap;
    size_t *starts; /* of each pass in pieces, and the end */
    size_t n_passes;
    sluice_status status;
    sluice_error *err;
};

static void record(void *user, int32_t layer, const char *name, const char *dtype, uint32_t rows,
                   uint32_t cols, const void *data, size_t bytes)
{
    struct recorder *r = user;
    void *items = r->pieces;
    if (r->status != SLUICE_OK)
        return;
    if (!mem_grow(&items, &r->cap, r->n_pieces + 1, sizeof *r->pieces)) {
        r->status = err_memory(r->err, r->n_pieces * sizeof *r->pieces, "the trace's index");
        return;
    }
    r->pieces = items;
    struct piece *piece = &r->pieces[r->n_pieces++];
    *piece = (struct piece){.dtype = dtype, .rows = rows, .cols = cols, .offset = r->offset, .bytes = bytes};
    if (layer < 0)
        (void)snprintf(piece->name, sizeof piece->name, "%s", name);
    else
        (void)snprintf(piece->name, sizeof piece->name, "layers.%d.%s", layer, name);
    r->status = file_write_at(r->fd, data, bytes, r->offset, "passes.bin", r->err);
    r->offset += bytes;
}

static sluice_status run_passes(sluice_engine *engine, struct recorder *r, const int32_t *ids, size_t n_ids,
                                sluice_error *err)
{
    sluice_session *session;
    struct tracer tracer = {r, record};
    size_t chunk = engine->options.prefill_chunk_tokens, passes = (n_ids + chunk - 1) / chunk;
    r->starts = mem_calloc(passes + 1, sizeof *r->starts);
    if (!r->starts)
        return err_memory(err, (passes + 1) * sizeof *r->starts, "the trace's index");
    TRY(sluice_session_open(engine, &session, err));
    session_set_tracer(session, &tracer);
    sluice_status status = SLUICE_OK;
    for (size_t done = 0; done < n_ids && status == SLUICE_OK; done += chunk) {
        bool last = n_ids - done <= chunk;
        status = session_append(session, ids + done, last ? n_ids - done : chunk, false,
                                last ? LOGITS_LAST : LOGITS_NONE, NULL, NULL, err);
        if (status == SLUICE_OK)
            status = r->status;
        r->starts[++r->n_passes] = r->n_pieces;
    }
    sluice_session_close(session);
    return status;
}

/* ---- putting together ---- */

struct writer {
    const struct recorder *passes;
    int fd; /* data.bin */
    uint64_t offset;
    json_t *tensors;
    struct sha256 digest;
};

static void digest_text(struct sha256 *digest, const char *text)
{
    sha256_update_u64(digest, strlen(text));
    sha256_update(digest, text, strlen(text));
}

static sluice_status copy_piece(struct writer *w, const struct piece *piece, sluice_error *err)
{
    unsigned char *bytes = mem_alloc(piece->bytes);
    if (!bytes)
        return err_memory(err, piece->bytes, "a traced tensor");
    sluice_status status = file_read_at(w->passes->fd, bytes, piece->bytes, piece->offset, "passes.bin", err);
    if (status == SLUICE_OK)
        status = file_write_at(w->fd, bytes, piece->bytes, w->offset, "data.bin", err);
    if (status == SLUICE_OK) {
        sha256_update(&w->digest, bytes, piece->bytes);
        w->offset += piece->bytes;
    }
    mem_free(bytes);
    return status;
}

/* The i-th tensor of every pass that has it. Passes record the same tensors in the same order; the last one
 * goes on to the logits. */
static sluice_status write_tensor(struct writer *w, size_t i, sluice_error *err)
{
    const struct recorder *r = w->passes;
    const struct piece *shape = &r->pieces[r->starts[r->n_passes - 1] + i];
    uint64_t begin = w->offset;
    uint32_t rows = 0;
    for (size_t p = 0; p < r->n_passes; p++)
        if (i < r->starts[p + 1] - r->starts[p])
            rows += r->pieces[r->starts[p] + i].rows;
    digest_text(&w->digest, shape->name);
    digest_text(&w->digest, shape->dtype);
    sha256_update_u64(&w->digest, rows);
    sha256_update_u64(&w->digest, shape->cols);
    for (size_t p = 0; p < r->n_passes; p++)
        if (i < r->starts[p + 1] - r->starts[p])
            TRY(copy_piece(w, &r->pieces[r->starts[p] + i], err));
    json_t *entry = json_pack("{s:s, s:s, s:[I, I], s:I, s:I}", "name", shape->name, "dtype", shape->dtype,
                              "shape", (json_int_t)rows, (json_int_t)shape->cols, "offset", (json_int_t)begin,
                              "bytes", (json_int_t)(w->offset - begin));
    if (!entry || json_array_append_new(w->tensors, entry) != 0)
        return err_memory(err, 0, "the trace's index");
    return SLUICE_OK;
}

static sluice_status write_index(const struct writer *w, const char *path, const char *digest,
                                 sluice_error *err)
{
    json_t *root = json_pack("{s:s, s:O}", "digest", digest, "tensors", w->tensors);
    char *text = NULL;
    sluice_status status = root ? json_print(root, JSON_INDENT(1), "the trace's index", &text, err)
                                : err_memory(err, 0, "the trace's index");
    json_decref(root);
    if (status == SLUICE_OK)
        status = file_publish(path, text, strlen(text), err);
    mem_free(text);
    return status;
}

static sluice_status write_trace(const struct recorder *r, const char *data_path, const char *index_path,
                                 char digest[SLUICE_DIGEST_TEXT_BYTES], sluice_error *err)
{
    struct writer w = {.passes = r, .fd = -1};
    char unused[SHA256_HEX_BYTES];
    sluice_status status;
    mem_hook_json();
    w.tensors = json_array();
    if (!w.tensors)
        TRY_OUT(err_memory(err, 0, "the trace's index"));
    TRY_OUT(sha256_open(&w.digest, err));
    w.fd = open(data_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w.fd < 0)
        TRY_OUT(err_errno(err, errno, "cannot create %s", data_path));
    for (size_t i = 0; i < r->starts[r->n_passes] - r->starts[r->n_passes - 1]; i++)
        TRY_OUT(write_tensor(&w, i, err));
    TRY_OUT(file_sync(w.fd, data_path, err));
    sha256_close(&w.digest, digest);
    status = write_index(&w, index_path, digest, err);
out:
    sha256_close(&w.digest, unused);
    if (w.fd >= 0)
        (void)close(w.fd);
    json_decref(w.tensors);
    return status;
}

sluice_status sluice_trace_record(sluice_engine *engine, const int32_t *ids, size_t n_ids,
                                  const char *output_dir, char digest[SLUICE_DIGEST_TEXT_BYTES],
                                  sluice_error *err)
{
    if (n_ids == 0)
        return err_set(err, SLUICE_E_ARGUMENT, "there is nothing to trace: the prompt has no tokens");
    if (mkdir(output_dir, 0777) != 0)
        return err_errno(err, errno, "cannot create the directory %s", output_dir);
    struct recorder r = {.fd = -1, .err = err};
    char *passes = file_join(output_dir, "passes.bin"), *data = file_join(output_dir, "data.bin");
    char *index = file_join(output_dir, "index.json");
    sluice_status status;
    if (!passes || !data || !index)
        TRY_OUT(err_memory(err, strlen(output_dir), "a path"));
    r.fd = open(passes, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (r.fd < 0)
        TRY_OUT(err_errno(err, errno, "cannot create %s", passes));
    (void)unlink(passes); /* it lives as long as the descriptor */
    TRY_OUT(run_passes(engine, &r, ids, n_ids, err));
    status = write_trace(&r, data, index, digest, err);
out:
    if (r.fd >= 0)
        (void)close(r.fd);
    mem_free(r.pieces);
    mem_free(r.starts);
    mem_free(passes);
    mem_free(data);
    mem_free(index);
    return status;
}
