/* What tests that run a model share: a temporary directory, an install in it, sessions and their logits.
 *
 * Every function fails the running test on the first error, with the library's own sentence. Memory comes
 * from malloc and is freed by the caller. */
#ifndef SUPPORT_RUN_H
#define SUPPORT_RUN_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "sluice.h"

/* `call` passes &err, a local sluice_error. */
#define EXPECT_OK(call)                                                                                      \
    do {                                                                                                     \
        sluice_status expect_status = (call);                                                                \
        if (expect_status != SLUICE_OK)                                                                      \
            fail_msg("%s: %s: %s", #call, sluice_status_text(expect_status), err.detail);                    \
    } while (0)

#define PATH_BYTES 512

static inline void *need(void *memory)
{
    assert_non_null(memory);
    return memory;
}

static inline const char *path_join(char path[PATH_BYTES], const char *dir, const char *name)
{
    int n = snprintf(path, PATH_BYTES, "%s/%s", dir, name);
    assert_true(n > 0 && n < PATH_BYTES);
    return path;
}

/* ---- temporary directory ---- */

/* "/tmp/sluice-test-XXXXXX" or the same under $TMPDIR. */
static inline void temp_make(char dir[PATH_BYTES])
{
    const char *parent = getenv("TMPDIR");
    path_join(dir, parent && *parent ? parent : "/tmp", "sluice-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

static inline int temp_remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline void temp_remove(const char *dir)
{
    assert_int_equal(nftw(dir, temp_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- files ---- */

static inline unsigned char *file_load(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened; tests run from the root of the repository", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    unsigned char *data = need(malloc((size_t)size + 1));
    assert_int_equal(fread(data, 1, (size_t)size, file), (size_t)size);
    (void)fclose(file);
    *bytes = (size_t)size;
    return data;
}

static inline json_t *json_file_load(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

/* A list of token ids. */
static inline int32_t *ids_of(const json_t *array, size_t *n)
{
    *n = json_array_size(array);
    assert_true(*n > 0);
    int32_t *ids = need(calloc(*n + 1, sizeof *ids));
    for (size_t i = 0; i < *n; i++) {
        assert_true(json_is_integer(json_array_get(array, i)));
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    }
    return ids;
}

/* ---- engines and sessions ---- */

/* Install the snapshot `source` as `dir`/`name`; `path` gets the install's directory. */
static inline void install_into(const char *source, const char *dir, const char *name, char path[PATH_BYTES])
{
    sluice_error err;
    sluice_install_options options = {.source_dir = source, .output_dir = path_join(path, dir, name)};
    EXPECT_OK(sluice_install(&options, NULL, &err));
}

static inline sluice_engine *engine_open(const char *install_dir, const sluice_engine_options *options)
{
    sluice_error err;
    sluice_engine *engine = NULL;
    EXPECT_OK(sluice_engine_open(install_dir, options, &engine, &err));
    return need(engine);
}

static inline sluice_session *session_open(sluice_engine *engine)
{
    sluice_error err;
    sluice_session *session = NULL;
    EXPECT_OK(sluice_session_open(engine, &session, &err));
    return need(session);
}

static inline uint32_t vocab_of(const sluice_engine *engine)
{
    sluice_model_info info;
    sluice_engine_info(engine, &info);
    assert_true(info.vocab_tokens > 0);
    return info.vocab_tokens;
}

/* ---- logits ---- */

/* Logits of consecutive positions, [n][vocab]. */
struct rows {
    float *v;
    size_t n, got;
    uint32_t vocab, first; /* position of row 0 in the session */
    bool in_order;
};

static inline struct rows rows_make(size_t n, uint32_t vocab)
{
    struct rows rows = {.n = n, .vocab = vocab, .in_order = true};
    rows.v = need(calloc(n * vocab + 1, sizeof *rows.v));
    return rows;
}

static inline const float *row_at(const struct rows *rows, size_t i)
{
    assert_true(i < rows->n);
    return rows->v + i * rows->vocab;
}

static inline void rows_keep(void *user, uint32_t position, const float *logits)
{
    struct rows *rows = user;
    if (rows->got < rows->n && position == rows->first + rows->got)
        memcpy(rows->v + rows->got * rows->vocab, logits, rows->vocab * sizeof *logits);
    else
        rows->in_order = false; /* no assertion here: it would jump out of the library */
    rows->got++;
}

/* Append ids[first..n) to a session that holds the ones before, and keep their logits. */
static inline struct rows score_from(sluice_session *session, const int32_t *ids, size_t n, size_t first,
                                     uint32_t vocab)
{
    sluice_error err;
    struct rows rows = rows_make(n - first, vocab);
    rows.first = (uint32_t)first;
    EXPECT_OK(sluice_session_score(session, ids + first, n - first, rows_keep, &rows, &err));
    assert_int_equal(rows.got, rows.n);
    assert_true(rows.in_order);
    return rows;
}

/* Logits of all positions of ids in a fresh session. */
static inline struct rows score_fresh(sluice_engine *engine, const int32_t *ids, size_t n)
{
    sluice_session *session = session_open(engine);
    struct rows rows = score_from(session, ids, n, 0, vocab_of(engine));
    sluice_session_close(session);
    return rows;
}

/* Index of the largest value; ties to the lower one. */
static inline int32_t best_of(const float *row, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return (int32_t)best;
}

#endif
