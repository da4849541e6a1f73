/* A checkpoint in the safetensors format: one file, or shards with an index. Only headers are read here; a
 * tensor is a place in a shard. Every bound is checked: after safetensors_open each tensor lies inside its
 * shard, overlaps no other, and has exactly the bytes that its shape and type ask for.
 *
 * A shard is: u64 header length (little-endian), a JSON header, then the data, which the tensors must cover
 * without holes. Immutable after open. */
#ifndef STORE_SAFETENSORS_H
#define STORE_SAFETENSORS_H

#include "base/sha256.h"
#include "store/source.h"

#define ST_DIMS_MAX         8
#define ST_HEADER_BYTES_MAX (16u << 20)
#define ST_INDEX_BYTES_MAX  (4u << 20)
#define ST_SHARDS_MAX       4096
#define ST_INDEX_NAME       "model.safetensors.index.json"
#define ST_SINGLE_NAME      "model.safetensors"

struct st_tensor {
    char *name;
    const char *dtype; /* static: "BF16", "U32", … */
    uint32_t shard, n_dims;
    uint64_t shape[ST_DIMS_MAX];
    uint64_t offset, bytes; /* absolute in the shard */
};

struct st_shard {
    char *name;
    uint64_t bytes;
    char header_sha256[SHA256_HEX_BYTES];
};

struct safetensors {
    struct st_shard *shards; /* in order of name, then what was added */
    size_t n_shards, shards_cap;
    struct st_tensor *tensors; /* in order of name */
    size_t n_tensors, tensors_cap;
    char sha256[SHA256_HEX_BYTES]; /* of the index file, or of the only shard's header */
};

/* Read the headers. SLUICE_E_FORMAT names the file and the tensor at fault; SLUICE_E_IO a missing shard. */
sluice_status safetensors_open(struct safetensors **st, struct source *source, sluice_error *err);
/* Where the source has `file`, its tensors whose names begin with `prefix` join the checkpoint: *added. */
sluice_status safetensors_add(struct safetensors *st, struct source *source, const char *file,
                              const char *prefix, bool *added, sluice_error *err);
void safetensors_close(struct safetensors *st); /* NULL is fine */

/* NULL when absent. */
const struct st_tensor *safetensors_find(const struct safetensors *st, const char *name);

/* The tensor of that name, type and shape, or SLUICE_E_FORMAT saying what is there instead. */
sluice_status safetensors_expect(const struct safetensors *st, const char *name, const char *dtype,
                                 uint32_t n_dims, const uint64_t *shape, const struct st_tensor **tensor,
                                 sluice_error *err);

#endif
