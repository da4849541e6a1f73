/* A safetensors file, or, when the input begins like JSON, a shard index beside one good shard. */
#include "base/mem.h"
#include "require.h"
#include "store/safetensors.h"

#include <string.h>

struct memory_file {
    const char *name;
    const uint8_t *bytes;
    size_t size;
};

static const char GOOD[] = "\x39\0\0\0\0\0\0\0"
                           "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   "
                           "wxyz";

static const struct memory_file *find(struct source *source, const char *name)
{
    const struct memory_file *files = source->state;
    for (size_t i = 0; files[i].name; i++)
        if (strcmp(files[i].name, name) == 0)
            return &files[i];
    return NULL;
}

static sluice_status memory_size(struct source *source, const char *name, uint64_t *bytes, sluice_error *err)
{
    const struct memory_file *file = find(source, name);
    if (!file)
        return err_set(err, SLUICE_E_IO, "%s is missing", name);
    *bytes = file->size;
    return SLUICE_OK;
}

static sluice_status memory_exists(struct source *source, const char *name, bool *there, sluice_error *err)
{
    (void)err;
    *there = find(source, name) != NULL;
    return SLUICE_OK;
}

static sluice_status memory_read(struct source *source, const char *name, uint64_t offset, void *buffer,
                                 size_t n, sluice_error *err)
{
    const struct memory_file *file = find(source, name);
    if (!file || offset > file->size || n > file->size - offset)
        return err_set(err, SLUICE_E_FORMAT, "%s ends early", name);
    if (n)
        memcpy(buffer, file->bytes + offset, n);
    return SLUICE_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_index = size > 0 && data[0] == '{';
    const struct memory_file files[] = {
        {is_index ? ST_INDEX_NAME : ST_SINGLE_NAME, data, size},
        {"s", (const uint8_t *)GOOD, sizeof GOOD - 1},
        {NULL, NULL, 0},
    };
    struct source source = {.state = (void *)files,
                            .name = "fuzz",
                            .size = memory_size,
                            .exists = memory_exists,
                            .read = memory_read};
    struct safetensors *st;
    sluice_error err;
    if (safetensors_open(&st, &source, &err) != SLUICE_OK)
        return 0;
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct st_tensor *t = &st->tensors[i];
        /* what an install relies on */
        if (safetensors_find(st, t->name) != t || t->offset > st->shards[t->shard].bytes ||
            t->bytes > st->shards[t->shard].bytes - t->offset)
            __builtin_trap();
    }
    safetensors_close(st);
    return 0;
}
