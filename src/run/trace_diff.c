/* The difference of two traces: see trace.c for what a trace is. */
#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/file.h"
#include "sluice.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INDEX_BYTES_MAX ((size_t)256 << 20)

struct trace {
    json_t *root, *tensors;
    int fd;
    uint64_t bytes;
    char *data_path;
};

static void trace_close(struct trace *t)
{
    json_decref(t->root);
    if (t->fd >= 0)
        (void)close(t->fd);
    mem_free(t->data_path);
}

static sluice_status trace_open(struct trace *t, const char *dir, sluice_error *err)
{
    *t = (struct trace){.fd = -1};
    char *index = file_join(dir, "index.json"), *text = NULL;
    size_t bytes;
    t->data_path = file_join(dir, "data.bin");
    sluice_status status;
    if (!index || !t->data_path)
        TRY_OUT(err_memory(err, strlen(dir), "a path"));
    TRY_OUT(file_load(index, INDEX_BYTES_MAX, &text, &bytes, err));
    TRY_OUT(json_parse(text, bytes, index, &t->root, err));
    TRY_OUT(json_need_array(t->root, "tensors", &t->tensors, index, err));
    status = file_open_read(t->data_path, &t->fd, &t->bytes, err);
out:
    mem_free(index);
    mem_free(text);
    return status;
}

struct entry {
    const char *name, *dtype;
    uint64_t offset, bytes;
    const json_t *shape;
};

static sluice_status entry_at(const struct trace *t, size_t i, struct entry *e, sluice_error *err)
{
    const json_t *item = json_array_get(t->tensors, i);
    json_t *shape;
    TRY(json_need_string(item, "name", &e->name, "index.json", err));
    TRY(json_need_string(item, "dtype", &e->dtype, "index.json", err));
    TRY(json_need_u64(item, "offset", 0, INT64_MAX, &e->offset, "index.json", err));
    TRY(json_need_u64(item, "bytes", 0, INT64_MAX, &e->bytes, "index.json", err));
    TRY(json_need_array(item, "shape", &shape, "index.json", err));
    e->shape = shape;
    size_t unit = strcmp(e->dtype, "f32") == 0 ? 4 : strcmp(e->dtype, "u16") == 0 ? 2 : 0;
    if (unit == 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, "index.json: %s has type %s; f32 and u16 are supported",
                       e->name, e->dtype);
    if (e->bytes % unit != 0 || !range_inside(e->offset, e->bytes, t->bytes))
        return err_set(err, SLUICE_E_FORMAT, "index.json: %s does not lie inside %s", e->name, t->data_path);
    return SLUICE_OK;
}

/* Floats as integers whose order is theirs, so that a difference counts representable values between. */
static int64_t ordered(uint32_t bits)
{
    return bits & 0x80000000u ? -(int64_t)(bits & 0x7FFFFFFFu) : (int64_t)bits;
}

static void describe_value(bool floating, const unsigned char *p, char out[48])
{
    if (floating) {
        float value;
        memcpy(&value, p, sizeof value);
        (void)snprintf(out, 48, "%.9g", (double)value);
    } else {
        uint16_t value;
        memcpy(&value, p, sizeof value);
        (void)snprintf(out, 48, "%u", value);
    }
}

static void describe_difference(sluice_trace_difference *d, const struct entry *e, uint64_t element,
                                const unsigned char *a, const unsigned char *b)
{
    bool floating = strcmp(e->dtype, "f32") == 0;
    d->equal = false;
    d->element = element;
    describe_value(floating, a, d->a);
    describe_value(floating, b, d->b);
    if (floating) {
        uint32_t x, y;
        memcpy(&x, a, 4);
        memcpy(&y, b, 4);
        int64_t distance = ordered(x) - ordered(y);
        d->ulps = (uint64_t)(distance < 0 ? -distance : distance);
    }
}

/* Compare two tensors of the same shape block by block. */
static sluice_status compare_entry(const struct trace *a, const struct trace *b, const struct entry *ea,
                                   const struct entry *eb, sluice_trace_difference *d, sluice_error *err)
{
    enum { BLOCK_BYTES = 64 << 10 };
    static const size_t NONE = SIZE_MAX;
    size_t unit = strcmp(ea->dtype, "f32") == 0 ? 4 : 2, at = NONE;
    unsigned char *x = mem_alloc(2 * (size_t)BLOCK_BYTES), *y = x + BLOCK_BYTES;
    if (!x)
        return err_memory(err, 2 * (size_t)BLOCK_BYTES, "a comparison buffer");
    sluice_status status = SLUICE_OK;
    for (uint64_t done = 0; done < ea->bytes && at == NONE; done += BLOCK_BYTES) {
        size_t n = ea->bytes - done < BLOCK_BYTES ? (size_t)(ea->bytes - done) : BLOCK_BYTES;
        TRY_OUT(file_read_at(a->fd, x, n, ea->offset + done, a->data_path, err));
        TRY_OUT(file_read_at(b->fd, y, n, eb->offset + done, b->data_path, err));
        for (size_t i = 0; i < n && at == NONE; i += unit)
            if (memcmp(x + i, y + i, unit) != 0)
                at = i;
        if (at != NONE)
            describe_difference(d, ea, (done + at) / unit, x + at, y + at);
    }
out:
    mem_free(x);
    return status;
}

static void name_difference(sluice_trace_difference *d, const char *name, const char *a, const char *b)
{
    d->equal = false;
    (void)snprintf(d->name, sizeof d->name, "%s", name);
    (void)snprintf(d->a, sizeof d->a, "%s", a);
    (void)snprintf(d->b, sizeof d->b, "%s", b);
}

static sluice_status compare(const struct trace *a, const struct trace *b, sluice_trace_difference *d,
                             sluice_error *err)
{
    size_t na = json_array_size(a->tensors), nb = json_array_size(b->tensors);
    for (size_t i = 0; i < na && i < nb && d->equal; i++) {
        struct entry ea, eb;
        TRY(entry_at(a, i, &ea, err));
        TRY(entry_at(b, i, &eb, err));
        if (strcmp(ea.name, eb.name) != 0) {
            name_difference(d, ea.name, ea.name, eb.name);
        } else if (strcmp(ea.dtype, eb.dtype) != 0 || !json_equal(ea.shape, eb.shape) ||
                   ea.bytes != eb.bytes) {
            name_difference(d, ea.name, "another shape or type", "");
        } else {
            (void)snprintf(d->name, sizeof d->name, "%s", ea.name);
            TRY(compare_entry(a, b, &ea, &eb, d, err));
        }
        d->tensors++;
    }
    if (d->equal && na != nb)
        name_difference(d, "the number of tensors", na > nb ? "more" : "fewer", na > nb ? "fewer" : "more");
    if (d->equal)
        d->name[0] = '\0';
    return SLUICE_OK;
}

sluice_status sluice_trace_diff(const char *dir_a, const char *dir_b, sluice_trace_difference *difference,
                                sluice_error *err)
{
    struct trace a, b;
    *difference = (sluice_trace_difference){.equal = true};
    sluice_status status = trace_open(&a, dir_a, err);
    if (status == SLUICE_OK) {
        status = trace_open(&b, dir_b, err);
        if (status == SLUICE_OK)
            status = compare(&a, &b, difference, err);
        trace_close(&b);
    }
    trace_close(&a);
    return status;
}
