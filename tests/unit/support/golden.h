/* Files of tests/golden: NAME.json with its table of the tensors in NAME.bin; and recorded traces, whose
 * index.json and data.bin are of the same form. */
#ifndef SUPPORT_GOLDEN_H
#define SUPPORT_GOLDEN_H

#include "run.h"

#define GOLDEN_DIMS 3

struct golden {
    json_t *root;
    unsigned char *data;
    size_t bytes;
};

struct golden_tensor {
    const void *data;
    size_t shape[GOLDEN_DIMS]; /* padded with ones */
};

static inline struct golden golden_open(const char *json_path, const char *data_path)
{
    struct golden golden = {.root = json_file_load(json_path)};
    golden.data = file_load(data_path, &golden.bytes);
    return golden;
}

static inline void golden_close(struct golden *golden)
{
    json_decref(golden->root);
    free(golden->data);
}

static inline size_t dtype_size(const char *dtype)
{
    static const struct {
        const char *name;
        size_t bytes;
    } SIZES[] = {{"U8", 1}, {"U16", 2}, {"F32", 4}, {"u16", 2}, {"f32", 4}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (strcmp(dtype, SIZES[i].name) == 0)
            return SIZES[i].bytes;
    fail_msg("unknown type %s", dtype);
    return 0;
}

static inline const json_t *golden_find(const struct golden *golden, const char *name)
{
    size_t i;
    const json_t *entry;
    const json_t *tensors = json_object_get(golden->root, "tensors");
    json_array_foreach(tensors, i, entry)
    {
        const char *candidate = json_string_value(json_object_get(entry, "name"));
        if (candidate && strcmp(candidate, name) == 0)
            return entry;
    }
    fail_msg("no tensor %s among %zu", name, json_array_size(tensors));
    return NULL;
}

/* The tensor `name`, of type `dtype`, with as many bytes as its shape says. */
static inline struct golden_tensor golden_get(const struct golden *golden, const char *name,
                                              const char *dtype)
{
    const json_t *entry = golden_find(golden, name);
    assert_string_equal(json_string_value(json_object_get(entry, "dtype")), dtype);
    struct golden_tensor tensor = {.shape = {1, 1, 1}};
    const json_t *shape = json_object_get(entry, "shape");
    size_t dims = json_array_size(shape), bytes = dtype_size(dtype);
    assert_true(dims > 0 && dims <= GOLDEN_DIMS);
    for (size_t i = 0; i < dims; i++) {
        tensor.shape[i] = (size_t)json_integer_value(json_array_get(shape, i));
        bytes *= tensor.shape[i];
    }
    size_t offset = (size_t)json_integer_value(json_object_get(entry, "offset"));
    assert_int_equal(json_integer_value(json_object_get(entry, "bytes")), bytes);
    assert_true(offset <= golden->bytes && bytes <= golden->bytes - offset);
    tensor.data = golden->data + offset;
    return tensor;
}

/* Element i; the data need not be aligned. */
static inline float f32_at(const struct golden_tensor *tensor, size_t i)
{
    float value;
    memcpy(&value, (const char *)tensor->data + i * sizeof value, sizeof value);
    return value;
}

static inline unsigned u16_at(const struct golden_tensor *tensor, size_t i)
{
    uint16_t value;
    memcpy(&value, (const char *)tensor->data + i * sizeof value, sizeof value);
    return value;
}

static inline unsigned u8_at(const struct golden_tensor *tensor, size_t i)
{
    return ((const unsigned char *)tensor->data)[i];
}

#endif
