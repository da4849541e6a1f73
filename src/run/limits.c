#include "run/limits.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"

#include <string.h>

enum { DEPTH_DEFAULT = 16 };

/* ---- drive ---- */

static sluice_status begin_read(struct gturbo *store, struct reads *reads, struct read_request *request,
                                uint64_t *random, sluice_error *err)
{
    uint32_t layer = (uint32_t)(random_next(random) % store->n_layers);
    while (!store->layers[layer].present)
        layer = (layer + 1) % store->n_layers;
    TRY(gturbo_layer_fd(store, layer, &request->fd, err));
    request->bytes = (size_t)store->stride_bytes;
    request->offset = random_next(random) % store->n_experts * store->stride_bytes;
    reads_submit(reads, &request, 1);
    return SLUICE_OK;
}

static sluice_status end_read(struct reads *reads, struct read_request *request, sluice_error *err)
{
    (void)reads_wait(reads, request, NULL);
    if (request->errnum)
        return err_errno(err, request->errnum, "reading an expert to measure the drive");
    return SLUICE_OK;
}

sluice_status limits_drive(struct gturbo *store, struct reads *reads, uint32_t depth, uint64_t ns,
                           double *bytes_per_second, sluice_error *err)
{
    *bytes_per_second = 0;
    bool any = false;
    for (uint32_t l = 0; l < store->n_layers; l++)
        any |= store->layers[l].present;
    if (!any)
        return SLUICE_OK;
    depth = depth < 1 ? 1 : depth > READS_DEPTH_MAX ? READS_DEPTH_MAX : depth;
    struct arena arena;
    TRY(arena_open(&arena, NULL, depth * (size_t)store->stride_bytes, "measuring the drive", err));
    struct read_request *requests = mem_calloc(depth, sizeof *requests);
    sluice_status status =
        requests ? SLUICE_OK : err_memory(err, depth * sizeof *requests, "measuring the drive");
    uint64_t from = clock_ns(), random = from, done = 0;
    uint32_t in_flight = 0;
    for (; in_flight < depth && status == SLUICE_OK; in_flight++) {
        requests[in_flight].buffer = arena.base + in_flight * (size_t)store->stride_bytes;
        status = begin_read(store, reads, &requests[in_flight], &random, err);
        if (status != SLUICE_OK)
            break;
    }
    /* The oldest is replaced when it ends, so the queue stays full until the time is over. */
    for (uint32_t i = 0; status == SLUICE_OK && clock_ns() - from < ns; i = (i + 1) % depth) {
        status = end_read(reads, &requests[i], err);
        done += requests[i].got;
        if (status == SLUICE_OK)
            status = begin_read(store, reads, &requests[i], &random, err);
    }
    uint64_t took = clock_ns() - from;
    for (uint32_t i = 0; i < in_flight; i++)
        (void)reads_wait(reads, &requests[i], NULL);
    mem_free(requests);
    arena_close(&arena);
    if (status == SLUICE_OK)
        *bytes_per_second = (double)done * 1e9 / (double)took;
    return status;
}

sluice_status sluice_measure_drive(const char *install_dir, const sluice_engine_options *options, uint64_t ns,
                                   double *bytes_per_second, sluice_error *err)
{
    struct gturbo *store;
    struct reads *reads;
    struct reads_options how;
    *bytes_per_second = 0;
    TRY(gturbo_open_headers(install_dir, &store, err));
    engine_reads(store, options ? options : &(sluice_engine_options){0}, &how);
    sluice_status status = reads_open(&reads, &how, err);
    if (status == SLUICE_OK) {
        status = limits_drive(store, reads, how.depth ? how.depth : DEPTH_DEFAULT, ns, bytes_per_second, err);
        reads_close(reads);
    }
    gturbo_close(store);
    return status;
}

/* ---- memory ---- */

typedef uint64_t words8 __attribute__((vector_size(64)));

/* One core alone with one stream reaches half of what several streams and prefetching do, and the kernels
 * have both: less would not be the machine's limit. */
enum { STREAMS = 8, STREAM_STEP = 256, STREAM_AHEAD = 1024 };

struct stream {
    const unsigned char *memory; /* `bytes` of it, a share for each lane; or else */
    const unsigned char *const *records;
    size_t bytes, n; /* of each of n records, drawn at random */
    uint64_t until_ns;
    _Atomic uint64_t done_bytes;
    _Atomic uint64_t sum; /* keeps the reads from being left out */
};

static void read_step(const unsigned char *at, words8 *sum)
{
    for (int k = 0; k < STREAM_STEP / 64; k++) {
        words8 v;
        __builtin_prefetch(at + STREAM_AHEAD + 64 * (size_t)k);
        memcpy(&v, at + 64 * (size_t)k, sizeof v);
        *sum ^= v;
    }
}

/* Returns how many of the bytes were read: whole steps of all streams. */
static size_t read_streams(const unsigned char *memory, size_t bytes, words8 sums[STREAMS])
{
    const size_t part = bytes / STREAMS / STREAM_STEP * STREAM_STEP;
    for (size_t at = 0; at < part; at += STREAM_STEP)
        for (size_t k = 0; k < STREAMS; k++)
            read_step(memory + at + k * part, &sums[k]);
    return STREAMS * part;
}

static void stream_lane(void *arg, uint32_t lane, uint32_t lanes)
{
    struct stream *s = arg;
    size_t begin = 0, end = s->bytes, read;
    uint64_t done = 0, random = s->until_ns + lane;
    words8 sums[STREAMS] = {{0}};
    if (!s->records)
        pool_share(s->bytes, STREAMS * STREAM_STEP, lane, lanes, &begin, &end);
    do {
        const unsigned char *from = s->records ? s->records[random_next(&random) % s->n] : s->memory + begin;
        read = read_streams(from, end - begin, sums);
        done += read;
    } while (read && clock_ns() < s->until_ns);
    for (int k = 0; k < STREAMS; k++)
        for (int i = 0; i < 8; i++)
            atomic_fetch_xor(&s->sum, sums[k][i]);
    atomic_fetch_add(&s->done_bytes, done);
}

static double run_streams(struct pool *pool, struct stream *s, uint64_t ns)
{
    const uint64_t from = clock_ns();
    s->until_ns = from + ns;
    pool_run(pool, stream_lane, s);
    return (double)atomic_load(&s->done_bytes) * 1e9 / (double)(clock_ns() - from);
}

double limits_memory(struct pool *pool, const unsigned char *memory, size_t bytes, uint64_t ns)
{
    return run_streams(pool, &(struct stream){.memory = memory, .bytes = bytes}, ns);
}

double limits_records(struct pool *pool, const unsigned char *const *records, size_t n, size_t bytes,
                      uint64_t ns)
{
    return run_streams(pool, &(struct stream){.records = records, .n = n, .bytes = bytes}, ns);
}

/* ---- what a token touches ---- */

double limits_expert_bytes(const struct gturbo *store)
{
    uint64_t sum = 0, layers = 0;
    for (uint32_t l = 0; l < store->n_layers; l++) {
        layers += store->layers[l].present;
        for (int p = 0; store->layers[l].present && p < PART_KINDS; p++)
            sum += store->layers[l].parts[p].bytes;
    }
    return layers ? (double)sum / (double)layers : 0;
}

uint64_t limits_routed_bytes(const struct gturbo *store, const struct model *model)
{
    uint64_t layers = 0;
    for (uint32_t l = 0; l < store->n_layers; l++)
        layers += store->layers[l].present;
    return (uint64_t)(limits_expert_bytes(store) * (double)(layers * model->top_k));
}

uint64_t limits_weight_bytes(const struct gturbo *store, const struct model *model)
{
    bool head = false;
    for (size_t i = 0; i < model->n_resident; i++)
        head |= strstr(model->specs[i].name, "lm_head.") != NULL;
    uint64_t sum = 0;
    for (size_t i = 0; i < model->n_resident; i++) {
        const struct stored_tensor *t = gturbo_find(store, model->specs[i].name);
        uint64_t bytes = t ? t->bytes + t->scale_bytes + t->bias_bytes : 0;
        if (head && strstr(model->specs[i].name, "embed_tokens."))
            bytes /= model->vocab;
        sum += bytes;
    }
    return sum + limits_routed_bytes(store, model);
}

uint64_t limits_kv_bytes(const struct model *model, sluice_kv_type kv, uint32_t position)
{
    uint64_t sum = 0, element = kv == SLUICE_KV_F32 ? 4 : 2;
    for (uint32_t l = 0; l < model->n_layers; l++) {
        const struct kv_shape *shape = &model->kv[l];
        uint64_t rows = position + 1u;
        if (shape->window && shape->window < rows)
            rows = shape->window;
        sum += rows * shape->kv_heads * shape->head_dim * 2 * element;
    }
    return sum;
}

uint64_t limits_state_bytes(const struct model *model)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < model->n_layers && model->recurrent; l++) {
        const struct recurrent_shape *shape = &model->recurrent[l];
        sum += shape->state_values + (uint64_t)shape->tail_rows * shape->channels;
    }
    return 2 * sum * sizeof(float);
}
