#include "run/routes.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/random.h"
#include "io/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_HEAD_BYTES 8u
#define ROUTES_BYTES_MAX  ((size_t)4 << 30)

enum { LAYERS_MAX = 1024, EXPERTS_MAX = 65535, TOP_K_MAX = LEASE_EXPERTS_MAX, FLAG_DECODE = 1 };

/* ---- reading ---- */

static uint16_t load_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const unsigned char *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static sluice_status allocate(struct routes *r, sluice_error *err)
{
    size_t ids = r->tokens * r->layers * r->top_k; /* bounded by the caller */
    r->token = mem_calloc(r->tokens, sizeof *r->token);
    r->ids = mem_calloc(ids, sizeof *r->ids);
    return r->token && r->ids ? SLUICE_OK : err_memory(err, ids * sizeof *r->ids, "a routing trace");
}

static sluice_status read_header(const unsigned char *bytes, size_t n, struct routes *r, const char *name,
                                 sluice_error *err)
{
    if (n < ROUTES_HEADER_BYTES || bytes[ROUTES_HEADER_BYTES - 1] != '\n')
        return err_set(err, SLUICE_E_FORMAT, "%s is no routing trace; make one with --record-routes", name);
    json_t *root;
    const char *text;
    uint32_t tokens = 0;
    TRY(json_parse((const char *)bytes, ROUTES_HEADER_BYTES, name, &root, err));
    sluice_status status = json_need_string(root, "format", &text, name, err);
    if (status == SLUICE_OK && strcmp(text, "sluice-routes") != 0)
        status =
            err_set(err, SLUICE_E_FORMAT, "%s: the format is \"%.40s\", not \"sluice-routes\"", name, text);
    if (status == SLUICE_OK)
        status = json_need_u32(root, "version", 1, 1, &tokens, name, err);
    if (status == SLUICE_OK && !json_has(root, "tokens"))
        status = err_set(err, SLUICE_E_FORMAT, "%s: the recording did not end; record again", name);
    const struct {
        const char *key;
        uint32_t max, *out;
    } rows[] = {
        {"layers", LAYERS_MAX, &r->layers},
        {"experts", EXPERTS_MAX, &r->experts},
        {"top_k", TOP_K_MAX, &r->top_k},
        {"tokens", ROUTES_TOKENS_MAX, &tokens},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == SLUICE_OK; i++)
        status = json_need_u32(root, rows[i].key, 1, rows[i].max, rows[i].out, name, err);
    if (status == SLUICE_OK)
        status = json_need_string(root, "family", &text, name, err);
    if (status == SLUICE_OK && strlen(text) >= sizeof r->family)
        status = err_set(err, SLUICE_E_FORMAT, "%s: the family's name is too long", name);
    if (status == SLUICE_OK)
        memcpy(r->family, text, strlen(text) + 1);
    r->tokens = tokens;
    json_decref(root);
    return status;
}

/* Ids of one layer: all of them experts and distinct, or none. */
static bool valid_ids(const struct routes *r, const uint16_t *ids)
{
    for (uint32_t i = 0; i < r->top_k; i++) {
        if ((ids[i] == ROUTES_NONE) != (ids[0] == ROUTES_NONE) ||
            (ids[i] != ROUTES_NONE && ids[i] >= r->experts))
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (ids[i] == ids[j] && ids[i] != ROUTES_NONE)
                return false;
    }
    return true;
}

sluice_status routes_parse(const unsigned char *bytes, size_t n, struct routes *r, const char *name,
                           sluice_error *err)
{
    *r = (struct routes){0};
    TRY(read_header(bytes, n, r, name, err));
    if (r->top_k > r->experts)
        return err_set(err, SLUICE_E_FORMAT, "%s: %u of %u experts per token", name, r->top_k, r->experts);
    size_t row = (size_t)r->layers * r->top_k, record = RECORD_HEAD_BYTES + 2 * row, all;
    if (!size_mul(record, r->tokens, &all) || n - ROUTES_HEADER_BYTES != all)
        return err_set(err, SLUICE_E_FORMAT,
                       "%s has %zu bytes, its header says %zu tokens of %zu; it was cut or changed", name, n,
                       r->tokens, record);
    TRY(allocate(r, err));
    for (size_t t = 0; t < r->tokens; t++) {
        const unsigned char *p = bytes + ROUTES_HEADER_BYTES + t * record;
        r->token[t] =
            (struct route_token){load_u32(p), load_u16(p + 4), (load_u16(p + 6) & FLAG_DECODE) != 0};
        if (r->token[t].rows_left >= r->tokens - t)
            return err_set(err, SLUICE_E_FORMAT, "%s: the chunk of token %zu goes past the end", name, t);
        uint16_t *ids = r->ids + t * row;
        for (size_t i = 0; i < row; i++)
            ids[i] = load_u16(p + RECORD_HEAD_BYTES + 2 * i);
        for (uint32_t l = 0; l < r->layers; l++)
            if (!valid_ids(r, ids + (size_t)l * r->top_k))
                return err_set(err, SLUICE_E_FORMAT,
                               "%s: layer %u of token %zu has an expert twice, or above %u", name, l, t,
                               r->experts - 1);
    }
    return SLUICE_OK;
}

sluice_status routes_load(const char *path, struct routes *routes, sluice_error *err)
{
    char *text;
    size_t n;
    *routes = (struct routes){0};
    TRY(file_load(path, ROUTES_BYTES_MAX, &text, &n, err));
    sluice_status status = routes_parse((const unsigned char *)text, n, routes, path, err);
    mem_free(text);
    return status;
}

void routes_free(struct routes *r)
{
    mem_free(r->token);
    mem_free(r->ids);
    *r = (struct routes){0};
}

/* ---- recording ---- */

struct route_recorder {
    struct route_watch watch;
    const struct model *model;
    char *path;
    int fd;
    int errnum; /* of the first write that failed */
    uint64_t tokens, at;
    size_t record_bytes;
    uint16_t *ids;          /* [rows][layers][top_k] */
    unsigned char *records; /* [rows] */
};

static void store_u16(unsigned char *p, uint32_t value)
{
    p[0] = (unsigned char)value;
    p[1] = (unsigned char)(value >> 8);
}

static void record_layer(void *user, uint32_t layer, uint32_t position0, uint32_t rows, uint32_t top_k,
                         const uint16_t *ids)
{
    struct route_recorder *r = user;
    (void)position0;
    for (uint32_t row = 0; row < rows; row++)
        memcpy(r->ids + ((size_t)row * r->model->n_layers + layer) * top_k, ids + (size_t)row * top_k,
               top_k * sizeof *ids);
}

static void write_all(struct route_recorder *r, const void *bytes, size_t n, uint64_t at)
{
    sluice_error error;
    if (r->errnum == 0 && file_write_at(r->fd, bytes, n, at, r->path, &error) != SLUICE_OK)
        r->errnum = errno ? errno : EIO;
}

static void write_header(struct route_recorder *r, bool ended)
{
    char header[ROUTES_HEADER_BYTES + 1], tokens[24] = "null";
    if (ended)
        (void)snprintf(tokens, sizeof tokens, "%llu", (unsigned long long)r->tokens);
    int n =
        snprintf(header, sizeof header,
                 "{\"format\": \"sluice-routes\", \"version\": 1, \"family\": \"%s\", \"layers\": %u, "
                 "\"experts\": %u, \"top_k\": %u, \"tokens\": %s}",
                 r->model->family->name, r->model->n_layers, r->model->n_experts, r->model->top_k, tokens);
    memset(header + n, ' ', ROUTES_HEADER_BYTES - (size_t)n);
    header[ROUTES_HEADER_BYTES - 1] = '\n';
    write_all(r, header, ROUTES_HEADER_BYTES, 0);
}

static void close_recorder(struct route_recorder *r)
{
    if (r->fd >= 0)
        (void)close(r->fd);
    mem_free(r->path);
    mem_free(r->ids);
    mem_free(r->records);
    mem_free(r);
}

/* Go on after what an earlier recording of the same model left. */
static sluice_status append_to(struct route_recorder *r, uint64_t bytes, sluice_error *err)
{
    unsigned char header[ROUTES_HEADER_BYTES];
    struct routes have = {0};
    if (bytes == 0)
        return SLUICE_OK;
    if (bytes < sizeof header)
        return err_set(err, SLUICE_E_EXISTS, "%s exists and is no routing trace; choose another name",
                       r->path);
    TRY(file_read_at(r->fd, header, sizeof header, 0, r->path, err));
    TRY(read_header(header, sizeof header, &have, r->path, err));
    const struct model *m = r->model;
    if (have.layers != m->n_layers || have.experts != m->n_experts || have.top_k != m->top_k ||
        strcmp(have.family, m->family->name) != 0 ||
        bytes != ROUTES_HEADER_BYTES + have.tokens * r->record_bytes)
        return err_set(err, SLUICE_E_EXISTS, "%s is a routing trace of another model; choose another name",
                       r->path);
    r->tokens = have.tokens;
    r->at = bytes;
    return SLUICE_OK;
}

sluice_status recorder_open(struct route_recorder **out, const char *path, const struct model *model,
                            uint32_t rows, sluice_error *err)
{
    *out = NULL;
    if (model->n_experts == 0)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "the model has no routed experts, there are no routes to record");
    struct route_recorder *r = mem_calloc(1, sizeof *r);
    if (!r)
        return err_memory(err, sizeof *r, "a routing trace");
    size_t row = (size_t)model->n_layers * model->top_k;
    *r = (struct route_recorder){
        .watch = {r, record_layer}, .model = model, .fd = -1, .at = ROUTES_HEADER_BYTES};
    r->record_bytes = RECORD_HEAD_BYTES + 2 * row;
    r->path = mem_strdup(path);
    r->ids = mem_alloc(rows * row * sizeof *r->ids);
    r->records = mem_alloc(rows * r->record_bytes);
    sluice_status status = SLUICE_OK;
    if (!r->path || !r->ids || !r->records) {
        status = err_memory(err, rows * r->record_bytes, "a routing trace");
    } else {
        memset(r->ids, 0xFF, rows * row * sizeof *r->ids); /* layers without experts stay so */
        struct stat st;
        r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (r->fd < 0 || fstat(r->fd, &st) != 0)
            status = err_errno(err, errno, "cannot create %s", path);
        else
            status = append_to(r, (uint64_t)st.st_size, err);
    }
    if (status == SLUICE_OK) {
        write_header(r, false);
        *out = r;
        return SLUICE_OK;
    }
    close_recorder(r);
    return status;
}

const struct route_watch *recorder_watch(const struct route_recorder *recorder)
{
    return recorder ? &recorder->watch : NULL;
}

void recorder_commit(struct route_recorder *r, uint32_t position0, uint32_t rows, bool decode)
{
    size_t row = (size_t)r->model->n_layers * r->model->top_k;
    for (uint32_t i = 0; i < rows; i++) {
        unsigned char *p = r->records + i * r->record_bytes;
        uint32_t position = position0 + i;
        store_u16(p, position);
        store_u16(p + 2, position >> 16);
        store_u16(p + 4, rows - 1 - i);
        store_u16(p + 6, decode ? FLAG_DECODE : 0);
        for (size_t k = 0; k < row; k++)
            store_u16(p + RECORD_HEAD_BYTES + 2 * k, r->ids[i * row + k]);
    }
    write_all(r, r->records, rows * r->record_bytes, r->at);
    r->at += rows * r->record_bytes;
    r->tokens += rows;
}

sluice_status recorder_close(struct route_recorder *r, sluice_error *err)
{
    if (!r)
        return SLUICE_OK;
    sluice_status status = SLUICE_OK;
    write_header(r, true);
    if (r->errnum)
        status = err_errno(err, r->errnum, "cannot write the routing trace %s", r->path);
    close_recorder(r);
    return status;
}

/* ---- replaying ---- */

static const uint16_t *replayed(const struct route_replay *replay, size_t token, uint32_t layer)
{
    const struct routes *r = replay->routes;
    return r->ids + (token % r->tokens * r->layers + layer) * r->top_k;
}

static void replay_layer(void *user, uint32_t layer, uint32_t position0, uint32_t rows, uint32_t top_k,
                         uint16_t *ids)
{
    const struct route_replay *replay = user;
    for (uint32_t row = 0; row < rows; row++) {
        const uint16_t *from = replayed(replay, replay->first + position0 + row, layer);
        if (from[0] != ROUTES_NONE)
            memcpy(ids + (size_t)row * top_k, from, top_k * sizeof *ids);
    }
}

static bool among(const uint16_t *ids, uint32_t n, uint16_t id)
{
    while (n-- > 0)
        if (ids[n] == id)
            return true;
    return false;
}

/* Any id that is not there yet: one that some token of the trace used, or failing that the next free one. */
static uint16_t wrong_guess(const struct route_replay *replay, uint64_t *random, uint32_t layer,
                            const uint16_t *right, const uint16_t *ids, uint32_t n)
{
    const struct routes *r = replay->routes;
    assert(r->top_k > 0); /* no trace is without */
    uint16_t id = 0;
    for (int tries = 0; tries < 16; tries++) {
        uint64_t x = random_next(random);
        id = replayed(replay, (size_t)(x >> 32), layer)[(uint32_t)x % r->top_k];
        if (id != ROUTES_NONE && !among(right, r->top_k, id) && !among(ids, n, id))
            return id;
    }
    for (id = id < r->experts ? id : 0; among(ids, n, id);)
        id = (uint16_t)((id + 1u) % r->experts);
    return id;
}

static void replay_guess(void *user, uint32_t layer, uint32_t position, uint32_t n, uint16_t *ids)
{
    const struct route_replay *replay = user;
    const struct routes *r = replay->routes;
    const uint16_t *right = replayed(replay, replay->first + position, layer);
    uint64_t random = ((uint64_t)(replay->first + position) << 16) ^ layer;
    uint32_t n_right = right[0] == ROUTES_NONE ? 0 : r->top_k, from = 0;
    for (uint32_t i = 0; i < n; i++) {
        while (from < n_right && among(ids, i, right[from]))
            from++; /* a wrong guess came before, for want of others */
        bool hit = from < n_right && random_unit(&random) < replay->guess_accuracy;
        ids[i] = hit ? right[from++] : wrong_guess(replay, &random, layer, right, ids, i);
    }
}

sluice_status replay_open(struct route_replay *replay, const struct routes *r, const struct model *model,
                          sluice_error *err)
{
    *replay = (struct route_replay){.routes = r, .override = {replay, replay_layer, replay_guess}};
    if (r->layers != model->n_layers || r->experts != model->n_experts || r->top_k != model->top_k)
        return err_set(
            err, SLUICE_E_ARGUMENT,
            "the routing trace is of %u layers with %u of %u experts per token, the model has %u with "
            "%u of %u",
            r->layers, r->top_k, r->experts, model->n_layers, model->top_k, model->n_experts);
    return SLUICE_OK;
}
