#include "store/resident.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "store/manifest.h"

#include <stdlib.h>
#include <string.h>

static uint64_t get_le(const unsigned char *p, int n)
{
    uint64_t value = 0;
    while (n-- > 0)
        value = value << 8 | p[n];
    return value;
}

static void put_le(unsigned char *p, int n, uint64_t value)
{
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(value >> (8 * i));
}

/* ---- reading ---- */

sluice_status resident_index_bytes(const unsigned char start[8], uint64_t *bytes, sluice_error *err)
{
    *bytes = get_le(start, 8);
    if (*bytes < RESIDENT_HEADER_BYTES || *bytes > RESIDENT_INDEX_BYTES_MAX)
        return err_set(err, SLUICE_E_FORMAT,
                       RESIDENT_NAME ": the index claims %llu bytes, %u to %u are possible",
                       (unsigned long long)*bytes, RESIDENT_HEADER_BYTES, RESIDENT_INDEX_BYTES_MAX);
    return SLUICE_OK;
}

/* Values of a zero-padded shape; rank 0 counts one. False when a dimension follows a zero or on overflow. */
static bool count_values(const uint32_t shape[TENSOR_DIMS_MAX], uint64_t *values, uint32_t *cols)
{
    *values = 1;
    *cols = 1;
    bool ended = false;
    for (int i = 0; i < TENSOR_DIMS_MAX; i++) {
        if (shape[i] == 0) {
            ended = true;
            continue;
        }
        if (ended || !u64_mul(*values, shape[i], values))
            return false;
        *cols = shape[i];
    }
    return true;
}

bool resident_affine(const struct stored_tensor *t, uint32_t *bits, uint32_t *group_size)
{
    uint64_t values, rows, wide;
    uint32_t cols;
    if (!count_values(t->shape, &values, &cols) || !u64_mul(t->bytes, 8, &wide) || wide % values)
        return false;
    *bits = 32;
    *group_size = 0;
    if (t->scale_bytes == 0 && t->bias_bytes == 0)
        return wide / values == 32;
    rows = values / cols;
    uint64_t width = wide / values;
    if ((width != 2 && width != 4 && width != 8) || cols * width % 32)
        return false;
    if (t->scale_bytes != t->bias_bytes || t->scale_bytes % (2 * rows))
        return false;
    uint64_t groups = t->scale_bytes / (2 * rows);
    if (groups == 0 || cols % groups)
        return false;
    uint64_t group = cols / groups;
    if (group != 32 && group != 64 && group != 128)
        return false;
    *bits = (uint32_t)width;
    *group_size = (uint32_t)group;
    return true;
}

static sluice_status check_sizes(const struct stored_tensor *t, sluice_error *err)
{
    if (t->dtype == DTYPE_AFFINE) {
        uint32_t bits, group;
        if (!resident_affine(t, &bits, &group))
            return err_set(err, SLUICE_E_FORMAT,
                           RESIDENT_NAME ": the sizes of tensor %s (%llu, scales %llu, biases %llu) fit no "
                                         "2, 4 or 8 bits in groups of 32, 64 or 128",
                           t->name, (unsigned long long)t->bytes, (unsigned long long)t->scale_bytes,
                           (unsigned long long)t->bias_bytes);
        return SLUICE_OK;
    }
    uint64_t values;
    uint32_t cols;
    if (t->scale_bytes || t->bias_bytes)
        return err_set(err, SLUICE_E_FORMAT, RESIDENT_NAME ": tensor %s is not quantized but has scales",
                       t->name);
    if (!count_values(t->shape, &values, &cols) || t->bytes % dtype_bytes(t->dtype) ||
        t->bytes / dtype_bytes(t->dtype) != values)
        return err_set(err, SLUICE_E_FORMAT,
                       RESIDENT_NAME ": the %llu bytes of tensor %s do not fit its shape",
                       (unsigned long long)t->bytes, t->name);
    return SLUICE_OK;
}

static sluice_status check_span(const struct stored_tensor *t, uint64_t offset, uint64_t bytes,
                                uint64_t index_bytes, uint64_t file_bytes, sluice_error *err)
{
    if (bytes == 0)
        return SLUICE_OK;
    if (offset < index_bytes || !range_inside(offset, bytes, file_bytes) || offset % 2)
        return err_set(err, SLUICE_E_FORMAT,
                       RESIDENT_NAME ": tensor %s claims %llu bytes at %llu; the payload is %llu to %llu, at "
                                     "even offsets",
                       t->name, (unsigned long long)bytes, (unsigned long long)offset,
                       (unsigned long long)index_bytes, (unsigned long long)file_bytes);
    return SLUICE_OK;
}

static sluice_status parse_entry(const unsigned char *index, size_t n, size_t at, uint64_t file_bytes,
                                 struct stored_tensor *t, char **names, sluice_error *err)
{
    const unsigned char *p = index + at;
    uint64_t name_offset = get_le(p, 4), name_bytes = get_le(p + 4, 2);
    size_t entry = (at - RESIDENT_HEADER_BYTES) / RESIDENT_ENTRY_BYTES;
    if (name_bytes == 0 || name_bytes > RESIDENT_NAME_BYTES_MAX || name_offset < RESIDENT_HEADER_BYTES ||
        !range_inside(name_offset, name_bytes, n))
        return err_set(err, SLUICE_E_FORMAT,
                       RESIDENT_NAME ": the name of entry %zu is not 1 to %u bytes inside the index", entry,
                       RESIDENT_NAME_BYTES_MAX);
    const char *name = (const char *)index + name_offset;
    if (memchr(name, '\0', name_bytes) || utf8_valid_prefix(name, name_bytes) != name_bytes)
        return err_set(err, SLUICE_E_FORMAT, RESIDENT_NAME ": the name of entry %zu is not text", entry);
    memcpy(*names, name, name_bytes);
    (*names)[name_bytes] = '\0';
    t->name = *names;
    *names += name_bytes + 1;
    if (p[6] >= DTYPE_COUNT)
        return err_set(err, SLUICE_E_UNSUPPORTED, RESIDENT_NAME ": tensor %s has the unknown type %u",
                       t->name, p[6]);
    t->dtype = (enum dtype)p[6];
    t->offset = get_le(p + 8, 8);
    t->bytes = get_le(p + 16, 8);
    for (int i = 0; i < TENSOR_DIMS_MAX; i++)
        t->shape[i] = (uint32_t)get_le(p + 24 + 4 * i, 4);
    t->scale_offset = get_le(p + 40, 8);
    t->scale_bytes = get_le(p + 48, 8);
    t->bias_offset = get_le(p + 56, 8);
    t->bias_bytes = get_le(p + 64, 8);
    TRY(check_span(t, t->offset, t->bytes, n, file_bytes, err));
    TRY(check_span(t, t->scale_offset, t->scale_bytes, n, file_bytes, err));
    TRY(check_span(t, t->bias_offset, t->bias_bytes, n, file_bytes, err));
    t->scale_offset = t->scale_bytes ? t->scale_offset : 0; /* what is empty was not checked to be anywhere */
    t->bias_offset = t->bias_bytes ? t->bias_offset : 0;
    return check_sizes(t, err);
}

struct span {
    uint64_t offset, bytes;
    const char *name;
};

static int by_offset(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sluice_status check_overlap(const struct resident_index *index, sluice_error *err)
{
    struct span *spans = mem_calloc(index->n_tensors, 3 * sizeof *spans);
    if (!spans)
        return err_memory(err, index->n_tensors * 3 * sizeof *spans, "the tensor list");
    size_t n = 0;
    for (size_t i = 0; i < index->n_tensors; i++) {
        const struct stored_tensor *t = &index->tensors[i];
        const struct span parts[3] = {{t->offset, t->bytes, t->name},
                                      {t->scale_offset, t->scale_bytes, t->name},
                                      {t->bias_offset, t->bias_bytes, t->name}};
        for (int k = 0; k < 3; k++)
            if (parts[k].bytes)
                spans[n++] = parts[k];
    }
    qsort(spans, n, sizeof *spans, by_offset);
    sluice_status status = SLUICE_OK;
    for (size_t i = 1; i < n && status == SLUICE_OK; i++)
        if (spans[i].offset - spans[i - 1].offset < spans[i - 1].bytes)
            status = err_set(err, SLUICE_E_FORMAT, RESIDENT_NAME ": tensors %s and %s overlap",
                             spans[i - 1].name, spans[i].name);
    mem_free(spans);
    return status;
}

static sluice_status check_names(const struct resident_index *index, sluice_error *err)
{
    const char **names = mem_calloc(index->n_tensors, sizeof *names);
    if (!names)
        return err_memory(err, index->n_tensors * sizeof *names, "the tensor list");
    for (size_t i = 0; i < index->n_tensors; i++)
        names[i] = index->tensors[i].name;
    qsort(names, index->n_tensors, sizeof *names, by_text);
    sluice_status status = SLUICE_OK;
    for (size_t i = 1; i < index->n_tensors && status == SLUICE_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = err_set(err, SLUICE_E_FORMAT, RESIDENT_NAME ": duplicate tensor %s", names[i]);
    mem_free(names);
    return status;
}

/* Entries may share bytes of the string table, so the copies' size is summed and not taken from the table. */
static sluice_status reserve_names(const unsigned char *index, size_t entries, char **names,
                                   sluice_error *err)
{
    size_t total = 0;
    for (size_t i = 0; i < entries; i++) {
        uint64_t bytes = get_le(index + RESIDENT_HEADER_BYTES + i * RESIDENT_ENTRY_BYTES + 4, 2);
        total += bytes <= RESIDENT_NAME_BYTES_MAX ? (size_t)bytes + 1 : 0; /* longer ones are refused */
    }
    *names = mem_alloc(total);
    return *names ? SLUICE_OK : err_memory(err, total, "the tensor names");
}

sluice_status resident_parse(const unsigned char *index, size_t n, uint64_t file_bytes,
                             struct resident_index *out, sluice_error *err)
{
    memset(out, 0, sizeof *out);
    if (n < RESIDENT_HEADER_BYTES || n > RESIDENT_INDEX_BYTES_MAX)
        return err_set(err, SLUICE_E_FORMAT, RESIDENT_NAME ": an index of %zu bytes is impossible", n);
    uint64_t entries = get_le(index + 16, 8);
    out->index_bytes = get_le(index, 8);
    out->payload_bytes = get_le(index + 8, 8);
    uint64_t whole;
    if (out->index_bytes != n || !u64_add(n, out->payload_bytes, &whole) || whole != file_bytes)
        return err_set(err, SLUICE_E_FORMAT,
                       RESIDENT_NAME ": the index says %llu + %llu bytes, the file has %llu; install again",
                       (unsigned long long)out->index_bytes, (unsigned long long)out->payload_bytes,
                       (unsigned long long)file_bytes);
    if (entries > (n - RESIDENT_HEADER_BYTES) / RESIDENT_ENTRY_BYTES)
        return err_set(err, SLUICE_E_FORMAT, RESIDENT_NAME ": %llu entries do not fit an index of %zu bytes",
                       (unsigned long long)entries, n);
    TRY(reserve_names(index, (size_t)entries, &out->names, err));
    out->tensors = mem_calloc((size_t)entries, sizeof *out->tensors);
    if (!out->tensors)
        return err_memory(err, (size_t)entries * sizeof *out->tensors, "the tensor list");
    char *names = out->names;
    for (size_t i = 0; i < entries; i++) {
        size_t at = RESIDENT_HEADER_BYTES + i * RESIDENT_ENTRY_BYTES;
        TRY(parse_entry(index, n, at, file_bytes, &out->tensors[i], &names, err));
        out->n_tensors++;
    }
    TRY(check_names(out, err));
    return check_overlap(out, err);
}

void resident_free(struct resident_index *index)
{
    mem_free(index->tensors);
    mem_free(index->names);
    memset(index, 0, sizeof *index);
}

/* ---- writing ---- */

sluice_status resident_plan_bytes(size_t n, size_t names_bytes, uint64_t *bytes, sluice_error *err)
{
    uint64_t total;
    if (!u64_mul(n, RESIDENT_ENTRY_BYTES, &total) || !u64_add(total, RESIDENT_HEADER_BYTES, &total) ||
        !u64_add(total, names_bytes, &total) || !u64_round_up(total, GTURBO_PAGE_BYTES, &total) ||
        total >= RESIDENT_INDEX_BYTES_MAX)
        return err_set(
            err, SLUICE_E_UNSUPPORTED,
            "%zu resident tensors need an index of %u bytes or more, which the format does not allow", n,
            RESIDENT_INDEX_BYTES_MAX);
    *bytes = total;
    return SLUICE_OK;
}

sluice_status resident_encode(const struct stored_tensor *tensors, size_t n, uint64_t index_bytes,
                              uint64_t payload_bytes, unsigned char **out, sluice_error *err)
{
    unsigned char *index = mem_calloc(1, (size_t)index_bytes);
    *out = index;
    if (!index)
        return err_memory(err, (size_t)index_bytes, "the index of " RESIDENT_NAME);
    put_le(index, 8, index_bytes);
    put_le(index + 8, 8, payload_bytes);
    put_le(index + 16, 8, n);
    size_t name_at = RESIDENT_HEADER_BYTES + n * RESIDENT_ENTRY_BYTES;
    for (size_t i = 0; i < n; i++) {
        const struct stored_tensor *t = &tensors[i];
        unsigned char *p = index + RESIDENT_HEADER_BYTES + i * RESIDENT_ENTRY_BYTES;
        size_t length = strlen(t->name);
        put_le(p, 4, name_at);
        put_le(p + 4, 2, length);
        p[6] = (unsigned char)t->dtype;
        put_le(p + 8, 8, t->offset);
        put_le(p + 16, 8, t->bytes);
        for (int k = 0; k < TENSOR_DIMS_MAX; k++)
            put_le(p + 24 + 4 * k, 4, t->shape[k]);
        put_le(p + 40, 8, t->scale_offset);
        put_le(p + 48, 8, t->scale_bytes);
        put_le(p + 56, 8, t->bias_offset);
        put_le(p + 64, 8, t->bias_bytes);
        memcpy(index + name_at, t->name, length);
        name_at += length;
    }
    return SLUICE_OK;
}
