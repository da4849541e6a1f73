#include "store/safetensors.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
} DTYPES[] = {
    {"BF16", 16}, {"U32", 32}, {"F16", 16},    {"F32", 32},    {"I64", 64},    {"I32", 32},    {"U8", 8},
    {"I8", 8},    {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F4", 4},    {"U16", 16}, {"I16", 16},    {"U64", 64},    {"F64", 64},    {"C64", 64},
};

enum { DTYPE_KINDS = sizeof DTYPES / sizeof *DTYPES };

/* ---- one tensor of a header ---- */

static sluice_status read_shape(const json_t *value, struct st_tensor *tensor, uint64_t *elements,
                                const char *shard, sluice_error *err)
{
    json_t *shape;
    TRY(json_need_array(value, "shape", &shape, tensor->name, err));
    if (json_array_size(shape) > ST_DIMS_MAX)
        return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s has %zu dimensions, at most %d are read", shard,
                       tensor->name, json_array_size(shape), ST_DIMS_MAX);
    *elements = 1;
    tensor->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s has a dimension that is not a count", shard,
                           tensor->name);
        tensor->shape[i] = (uint64_t)json_integer_value(dim);
        if (!u64_mul(*elements, tensor->shape[i], elements))
            return err_set(err, SLUICE_E_FORMAT, "%s: the shape of tensor %s overflows 64 bits", shard,
                           tensor->name);
    }
    return SLUICE_OK;
}

static sluice_status read_dtype(const json_t *value, struct st_tensor *tensor, unsigned *bits,
                                const char *shard, sluice_error *err)
{
    const char *text;
    TRY(json_need_string(value, "dtype", &text, tensor->name, err));
    for (size_t i = 0; i < DTYPE_KINDS; i++)
        if (strcmp(DTYPES[i].name, text) == 0) {
            tensor->dtype = DTYPES[i].name;
            *bits = DTYPES[i].bits;
            return SLUICE_OK;
        }
    return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s has the unknown type \"%.40s\"", shard, tensor->name,
                   text);
}

/* data_offsets count from the end of the header. */
static sluice_status read_offsets(const json_t *value, struct st_tensor *tensor, uint64_t data_start,
                                  uint64_t data_bytes, const char *shard, sluice_error *err)
{
    json_t *offsets;
    TRY(json_need_array(value, "data_offsets", &offsets, tensor->name, err));
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) < 0)
        return err_set(err, SLUICE_E_FORMAT, "%s: data_offsets of tensor %s must be two byte offsets", shard,
                       tensor->name);
    uint64_t begin = (uint64_t)json_integer_value(first), end = (uint64_t)json_integer_value(last);
    if (begin > end)
        return err_set(err, SLUICE_E_FORMAT, "%s: data_offsets of tensor %s run backwards, from %llu to %llu",
                       shard, tensor->name, (unsigned long long)begin, (unsigned long long)end);
    if (end > data_bytes)
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: tensor %s ends at byte %llu of the data, but only %llu are there; download the "
                       "file again",
                       shard, tensor->name, (unsigned long long)end, (unsigned long long)data_bytes);
    tensor->offset = data_start + begin;
    tensor->bytes = end - begin;
    return SLUICE_OK;
}

static sluice_status add_tensor(struct safetensors *st, uint32_t shard, const char *name, const json_t *value,
                                uint64_t data_start, sluice_error *err)
{
    const struct st_shard *s = &st->shards[shard];
    void *items = st->tensors;
    if (!mem_grow(&items, &st->tensors_cap, st->n_tensors + 1, sizeof *st->tensors))
        return err_memory(err, st->n_tensors * sizeof *st->tensors, "the tensor list");
    st->tensors = items;
    struct st_tensor *tensor = &st->tensors[st->n_tensors];
    memset(tensor, 0, sizeof *tensor);
    tensor->shard = shard;
    tensor->name = mem_strdup(name);
    if (!tensor->name)
        return err_memory(err, strlen(name), "a tensor name");
    st->n_tensors++; /* from here on safetensors_close() frees the name */
    if (!json_is_object(value))
        return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s is not described by an object", s->name, name);
    unsigned bits = 0;
    uint64_t elements = 0, need_bits;
    TRY(read_dtype(value, tensor, &bits, s->name, err));
    TRY(read_shape(value, tensor, &elements, s->name, err));
    TRY(read_offsets(value, tensor, data_start, s->bytes - data_start, s->name, err));
    if (!u64_mul(elements, bits, &need_bits))
        return err_set(err, SLUICE_E_FORMAT, "%s: the size of tensor %s overflows 64 bits", s->name, name);
    if (need_bits % 8 || need_bits / 8 != tensor->bytes)
        return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s has %llu bytes, its shape and type %s need %llu",
                       s->name, name, (unsigned long long)tensor->bytes, tensor->dtype,
                       (unsigned long long)((need_bits + 7) / 8));
    return SLUICE_OK;
}

/* ---- one shard ---- */

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a, *y = *(const struct st_tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty ones before the one that starts there */
}

/* The data must be covered exactly: an overlap would let one tensor's bytes stand for another's, a hole could
 * hide a truncated header. */
static sluice_status check_cover(const struct safetensors *st, size_t first, uint64_t data_start,
                                 const struct st_shard *shard, sluice_error *err)
{
    size_t n = st->n_tensors - first;
    const struct st_tensor **order = mem_calloc(n, sizeof *order);
    if (!order)
        return err_memory(err, n * sizeof *order, "the tensor list");
    for (size_t i = 0; i < n; i++)
        order[i] = &st->tensors[first + i];
    qsort(order, n, sizeof *order, by_place);
    sluice_status status = SLUICE_OK;
    uint64_t at = data_start;
    for (size_t i = 0; i < n && status == SLUICE_OK; i++) {
        if (order[i]->offset < at)
            status = err_set(err, SLUICE_E_FORMAT, "%s: tensors %s and %s overlap", shard->name,
                             order[i - 1]->name, order[i]->name);
        else if (order[i]->offset > at)
            status = err_set(err, SLUICE_E_FORMAT, "%s: a hole of %llu bytes before tensor %s", shard->name,
                             (unsigned long long)(order[i]->offset - at), order[i]->name);
        at = order[i]->offset + order[i]->bytes;
    }
    if (status == SLUICE_OK && at != shard->bytes)
        status = err_set(err, SLUICE_E_FORMAT, "%s: %llu bytes after the last tensor belong to none",
                         shard->name, (unsigned long long)(shard->bytes - at));
    mem_free(order);
    return status;
}

static sluice_status read_header_length(struct source *source, const struct st_shard *shard, uint64_t *length,
                                        sluice_error *err)
{
    unsigned char start[64];
    size_t n = shard->bytes < sizeof start ? (size_t)shard->bytes : sizeof start;
    TRY(source->read(source, shard->name, 0, start, n, err));
    if (source_is_lfs_pointer(start, n))
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: this is a Git LFS pointer, not the weights; run `git lfs pull` in the snapshot",
                       shard->name);
    if (n < 8)
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: truncated header: the file has %zu bytes, the header's length alone takes 8",
                       shard->name, n);
    *length = 0;
    for (int i = 7; i >= 0; i--)
        *length = *length << 8 | start[i];
    if (*length > ST_HEADER_BYTES_MAX)
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: the header claims %llu bytes, at most %u are accepted; this is not a safetensors "
                       "file, or it is damaged",
                       shard->name, (unsigned long long)*length, ST_HEADER_BYTES_MAX);
    if (!range_inside(8, *length, shard->bytes))
        return err_set(err, SLUICE_E_FORMAT,
                       "%s: truncated header: it claims %llu bytes, the file has %llu; download it again",
                       shard->name, (unsigned long long)*length, (unsigned long long)shard->bytes);
    return SLUICE_OK;
}

static sluice_status parse_header(struct safetensors *st, uint32_t index, const char *text, size_t length,
                                  sluice_error *err)
{
    struct st_shard *shard = &st->shards[index];
    char where[PATH_NAME_BYTES_MAX + 16];
    (void)snprintf(where, sizeof where, "%s (header)", shard->name);
    TRY(sha256_hex(text, length, shard->header_sha256, err));
    json_t *root;
    TRY(json_parse(text, length, where, &root, err));
    sluice_status status = SLUICE_OK;
    if (!json_is_object(root))
        status = err_set(err, SLUICE_E_FORMAT, "%s is not an object of tensors", where);
    size_t first = st->n_tensors;
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        TRY_OUT(add_tensor(st, index, name, value, 8 + (uint64_t)length, err));
    }
    if (status == SLUICE_OK)
        status = check_cover(st, first, 8 + (uint64_t)length, shard, err);
out:
    json_decref(root);
    return status;
}

static sluice_status read_shard(struct safetensors *st, struct source *source, uint32_t index,
                                sluice_error *err)
{
    struct st_shard *shard = &st->shards[index];
    sluice_status status = source->size(source, shard->name, &shard->bytes, err);
    if (status != SLUICE_OK) {
        bool there = true;
        if (source->exists(source, shard->name, &there, NULL) == SLUICE_OK && !there)
            return err_set(err, SLUICE_E_IO, "the shard %s is missing from %s; download it", shard->name,
                           source->name);
        return status;
    }
    uint64_t length = 0;
    TRY(read_header_length(source, shard, &length, err));
    char *text = mem_alloc((size_t)length + 1);
    if (!text)
        return err_memory(err, (size_t)length, "a safetensors header");
    status = source->read(source, shard->name, 8, text, (size_t)length, err);
    if (status == SLUICE_OK)
        status = parse_header(st, index, text, (size_t)length, err);
    mem_free(text);
    return status;
}

/* ---- the checkpoint ---- */

static sluice_status add_shard(struct safetensors *st, const char *name, sluice_error *err)
{
    if (!path_stays_inside(name))
        return err_set(err, SLUICE_E_FORMAT,
                       ST_INDEX_NAME ": the shard name \"%.120s\" leaves the snapshot directory", name);
    if (st->n_shards >= ST_SHARDS_MAX)
        return err_set(err, SLUICE_E_FORMAT, ST_INDEX_NAME " names more than %d shards", ST_SHARDS_MAX);
    void *items = st->shards;
    if (!mem_grow(&items, &st->shards_cap, st->n_shards + 1, sizeof *st->shards))
        return err_memory(err, sizeof *st->shards, "the shard list");
    st->shards = items;
    memset(&st->shards[st->n_shards], 0, sizeof *st->shards);
    st->shards[st->n_shards].name = mem_strdup(name);
    if (!st->shards[st->n_shards].name)
        return err_memory(err, strlen(name), "a shard name");
    st->n_shards++;
    return SLUICE_OK;
}

static int by_shard_name(const void *a, const void *b)
{
    return strcmp(((const struct st_shard *)a)->name, ((const struct st_shard *)b)->name);
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* The shards that the weight map names, each once, in order of name. */
static sluice_status list_shards(struct safetensors *st, const json_t *map, sluice_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor, value)
    {
        const char *shard = json_string_value(value);
        if (!shard || strlen(shard) != json_string_length(value))
            return err_set(err, SLUICE_E_FORMAT,
                           ST_INDEX_NAME ": weight_map does not name a shard for tensor %.160s", tensor);
        bool known = false;
        for (size_t i = st->n_shards; i > 0 && !known; i--) /* neighbours share shards: look back first */
            known = strcmp(st->shards[i - 1].name, shard) == 0;
        if (!known)
            TRY(add_shard(st, shard, err));
    }
    if (st->n_shards == 0)
        return err_set(err, SLUICE_E_FORMAT, ST_INDEX_NAME " lists no tensor");
    qsort(st->shards, st->n_shards, sizeof *st->shards, by_shard_name);
    return SLUICE_OK;
}

static sluice_status check_unique(const struct safetensors *st, sluice_error *err)
{
    for (size_t i = 1; i < st->n_tensors; i++)
        if (strcmp(st->tensors[i - 1].name, st->tensors[i].name) == 0)
            return err_set(err, SLUICE_E_FORMAT, "duplicate tensor %s: it is in %s and in %s",
                           st->tensors[i].name, st->shards[st->tensors[i - 1].shard].name,
                           st->shards[st->tensors[i].shard].name);
    return SLUICE_OK;
}

static sluice_status check_map(const struct safetensors *st, const json_t *map, sluice_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value)
    {
        const char *shard = json_string_value(value);
        const struct st_tensor *tensor = safetensors_find(st, name);
        if (!tensor || strcmp(st->shards[tensor->shard].name, shard) != 0)
            return err_set(err, SLUICE_E_FORMAT,
                           ST_INDEX_NAME " lists tensor %s in %s, but that shard lacks it", name, shard);
    }
    return SLUICE_OK;
}

static sluice_status read_all(struct safetensors *st, struct source *source, sluice_error *err)
{
    for (size_t i = 0; i < st->n_shards; i++)
        TRY(read_shard(st, source, (uint32_t)i, err));
    if (st->n_tensors == 0)
        return err_set(err, SLUICE_E_FORMAT, "%s holds no tensor", source->name);
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_tensor_name);
    return check_unique(st, err);
}

static sluice_status open_sharded(struct safetensors *st, struct source *source, sluice_error *err)
{
    char *text;
    size_t bytes;
    json_t *root = NULL, *map;
    TRY(source_load(source, ST_INDEX_NAME, ST_INDEX_BYTES_MAX, &text, &bytes, err));
    sluice_status status = sha256_hex(text, bytes, st->sha256, err);
    if (status == SLUICE_OK)
        status = json_parse(text, bytes, ST_INDEX_NAME, &root, err);
    mem_free(text);
    TRY(status);
    TRY_OUT(json_need_object(root, "weight_map", &map, ST_INDEX_NAME, err));
    TRY_OUT(list_shards(st, map, err));
    TRY_OUT(read_all(st, source, err));
    TRY_OUT(check_map(st, map, err));
out:
    json_decref(root);
    return status;
}

static sluice_status open_single(struct safetensors *st, struct source *source, sluice_error *err)
{
    bool there;
    TRY(source->exists(source, ST_SINGLE_NAME, &there, err));
    if (!there)
        return err_set(err, SLUICE_E_IO,
                       "%s has neither " ST_INDEX_NAME " nor " ST_SINGLE_NAME
                       "; give a complete snapshot in the safetensors format",
                       source->name);
    TRY(add_shard(st, ST_SINGLE_NAME, err));
    TRY(read_all(st, source, err));
    memcpy(st->sha256, st->shards[0].header_sha256, sizeof st->sha256);
    return SLUICE_OK;
}

sluice_status safetensors_open(struct safetensors **out, struct source *source, sluice_error *err)
{
    *out = NULL;
    struct safetensors *st = mem_calloc(1, sizeof *st);
    if (!st)
        return err_memory(err, sizeof *st, "a checkpoint");
    bool sharded;
    sluice_status status = source->exists(source, ST_INDEX_NAME, &sharded, err);
    if (status == SLUICE_OK)
        status = sharded ? open_sharded(st, source, err) : open_single(st, source, err);
    if (status != SLUICE_OK) {
        safetensors_close(st);
        return status;
    }
    *out = st;
    return SLUICE_OK;
}

sluice_status safetensors_add(struct safetensors *st, struct source *source, const char *file,
                              const char *prefix, bool *added, sluice_error *err)
{
    const size_t first = st->n_tensors;
    *added = false;
    for (size_t i = 0; i < st->n_shards; i++)
        if (strcmp(st->shards[i].name, file) == 0)
            return SLUICE_OK;
    TRY(source->exists(source, file, added, err));
    if (!*added)
        return SLUICE_OK;
    TRY(add_shard(st, file, err));
    TRY(read_shard(st, source, (uint32_t)st->n_shards - 1, err));
    size_t kept = first;
    for (size_t i = first; i < st->n_tensors; i++) {
        if (strncmp(st->tensors[i].name, prefix, strlen(prefix)) == 0)
            st->tensors[kept++] = st->tensors[i];
        else
            mem_free(st->tensors[i].name);
    }
    st->n_tensors = kept;
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_tensor_name);
    return check_unique(st, err);
}

void safetensors_close(struct safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->n_tensors; i++)
        mem_free(st->tensors[i].name);
    for (size_t i = 0; i < st->n_shards; i++)
        mem_free(st->shards[i].name);
    mem_free(st->tensors);
    mem_free(st->shards);
    mem_free(st);
}

const struct st_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    struct st_tensor key = {.name = (char *)name};
    return bsearch(&key, st->tensors, st->n_tensors, sizeof *st->tensors, by_tensor_name);
}

static const char *shape_text(uint32_t n_dims, const uint64_t *shape, char text[128])
{
    size_t used = (size_t)snprintf(text, 128, "[");
    for (uint32_t i = 0; i < n_dims && used < 100; i++)
        used +=
            (size_t)snprintf(text + used, 128 - used, "%s%llu", i ? ", " : "", (unsigned long long)shape[i]);
    (void)snprintf(text + used, 128 - used, "]");
    return text;
}

sluice_status safetensors_expect(const struct safetensors *st, const char *name, const char *dtype,
                                 uint32_t n_dims, const uint64_t *shape, const struct st_tensor **out,
                                 sluice_error *err)
{
    const struct st_tensor *tensor = safetensors_find(st, name);
    *out = tensor;
    if (!tensor)
        return err_set(err, SLUICE_E_FORMAT, "the checkpoint lacks the tensor %s", name);
    const char *shard = st->shards[tensor->shard].name;
    if (strcmp(tensor->dtype, dtype) != 0)
        return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s has the type %s, the model needs %s", shard, name,
                       tensor->dtype, dtype);
    if (tensor->n_dims != n_dims || memcmp(tensor->shape, shape, n_dims * sizeof *shape) != 0) {
        char have[128], want[128];
        return err_set(err, SLUICE_E_FORMAT, "%s: tensor %s has the shape %s, the model needs %s", shard,
                       name, shape_text(tensor->n_dims, tensor->shape, have),
                       shape_text(n_dims, shape, want));
    }
    return SLUICE_OK;
}
