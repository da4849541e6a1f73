/* An opened .gturbo directory (format 1.0): manifest, resident index, expert layout, receipt; every bound
 * checked. Immutable after open except for the state of expert files, which has its own locks. */
#ifndef STORE_GTURBO_H
#define STORE_GTURBO_H

#include "base/json.h"
#include "base/log.h"
#include "base/tensor.h"

/* One tensor of model_weights.bin. Offsets are absolute in the file. */
struct stored_tensor {
    const char *name;
    enum dtype dtype;
    uint32_t shape[TENSOR_DIMS_MAX]; /* logical, zero padded */
    uint64_t offset, bytes;
    uint64_t scale_offset, scale_bytes, bias_offset, bias_bytes;
};

enum expert_part_kind {
    PART_GATE,
    PART_GATE_SCALES,
    PART_GATE_BIASES,
    PART_UP,
    PART_UP_SCALES,
    PART_UP_BIASES,
    PART_DOWN,
    PART_DOWN_SCALES,
    PART_DOWN_BIASES,
    PART_KINDS
};

/* The same for every expert of a layer: offsets are inside the record. */
struct expert_part {
    uint64_t offset, bytes;
    uint32_t rows, cols; /* logical for weights: values, not words */
    uint8_t bits;        /* weights */
    uint16_t group_size; /* weights: cols / columns of the scales */
};

struct expert_layer {
    bool present; /* false: a dense layer without routed experts */
    struct expert_part parts[PART_KINDS];
};

struct gturbo {
    char *dir;
    char *model_id;
    json_t *arch, *quant;          /* borrowed from the manifest, which the structure owns */
    struct stored_tensor *tensors; /* in index order */
    size_t n_tensors;
    uint64_t resident_offset, resident_bytes; /* payload of model_weights.bin */
    uint32_t n_layers, n_experts;
    uint64_t stride_bytes;       /* of an expert record; a multiple of 16 KiB */
    struct expert_layer *layers; /* n_layers */
    struct gturbo_private *private;
};

/* Read and check the small files. SLUICE_VERIFY_FULL hashes manifest-listed common files now and expert files
 * on first use; SLUICE_VERIFY_RECEIPT requires a receipt bound to these files (identity and content, not
 * path). `watch` may be NULL. */
sluice_status gturbo_open(const char *dir, sluice_verification verification, const sluice_watch *watch,
                          struct gturbo **store, sluice_error *err);
/* As gturbo_open but hashes nothing: for inspect and plan. */
sluice_status gturbo_open_headers(const char *dir, struct gturbo **store, sluice_error *err);
void gturbo_close(struct gturbo *store); /* NULL is fine */

/* NULL when absent. */
const struct stored_tensor *gturbo_find(const struct gturbo *store, const char *name);

/* Copy payload bytes [offset, offset + n) of model_weights.bin (absolute offset) to buffer. */
sluice_status gturbo_read_resident(const struct gturbo *store, uint64_t offset, void *buffer, size_t n,
                                   sluice_error *err);

/* Copy the whole payload to `buffer`, which is aligned to 4096 and has room for resident_bytes rounded up to
 * 4096, at the drive's speed. `watch` may be NULL; its phase is "load". One caller at a time. */
sluice_status gturbo_load_resident(const struct gturbo *store, unsigned char *buffer,
                                   const sluice_watch *watch, sluice_error *err);

/* ---- expert files: the install's own, and copies of them on other drives ---- */

/* The install and its mirrors. */
#define GTURBO_COPIES_MAX 8u

struct layer_source {
    int fd;        /* owned by the store until it closes */
    uint32_t copy; /* 0: the install */
    bool direct;   /* open with O_DIRECT */
};

struct layer_sources {
    uint32_t n;
    struct layer_source at[GTURBO_COPIES_MAX]; /* the install's own first */
};

/* Where expert records of a layer can be read now, at expert * stride_bytes; O_DIRECT where the file system
 * takes it, unless gturbo_read_buffered() was called. In full verification the install's file is hashed
 * before the first call for its layer returns (SLUICE_E_CORRUPT when it differs), and a mirror's file appears
 * once it has been. Thread-safe. */
sluice_status gturbo_layer_sources(struct gturbo *store, uint32_t layer, struct layer_sources *sources,
                                   sluice_error *err);
/* The install's own alone. */
sluice_status gturbo_layer_fd(struct gturbo *store, uint32_t layer, int *fd, sluice_error *err);

/* The next three are called before the first of the above. */
void gturbo_read_buffered(struct gturbo *store);
/* Where hashing, ways of reading and dropped mirrors are told; borrowed until the store closes. */
void gturbo_log(struct gturbo *store, struct log *log);
/* Add DIR/packed_experts/layer_NN.bin, any subset of the layers. A file of another size is refused, and so is
 * a directory without any. Contents are proven before use: by digest, or, where the store was opened by its
 * receipt, by the size and modification time that the receipt has for the original (cp -a keeps both). */
sluice_status gturbo_add_mirror(struct gturbo *store, const char *dir, sluice_error *err);
/* No longer read from a mirror; `why` is told once. */
void gturbo_drop_mirror(struct gturbo *store, uint32_t copy, const char *why);

/* Start hashing what is not proven yet, in the background, layers ascending: `threads` (at least 1) for the
 * install, one for each mirror. A failure is told at the layer's use. Ends by itself or with gturbo_close().
 */
sluice_status gturbo_prove_ahead(struct gturbo *store, uint32_t threads, sluice_error *err);

/* True when the manifest lists the file: optional ones ("tokenizer/chat_template.jinja") may be absent. */
bool gturbo_has_file(const struct gturbo *store, const char *path);

/* A small text file under the install ("tokenizer/config.json"), checked against the manifest in full
 * verification; free with mem_free. */
sluice_status gturbo_load_text(const struct gturbo *store, const char *path, size_t max_bytes, char **text,
                               size_t *bytes, sluice_error *err);

/* The JSON text of sluice_inspect, without the parts that need a family. New reference. */
json_t *gturbo_describe(const struct gturbo *store);

#endif
