/* The index of model_weights.bin: a 24-byte header, 72-byte entries, the names, and zeros up to a multiple of
 * 16 KiB; the payload follows. All integers are little-endian.
 *
 *     header  u64 index bytes | u64 payload bytes | u64 entries
 *     entry   u32 name offset | u16 name length | u8 type | u8 0 | u64 offset | u64 bytes | u32 shape[4] |
 *             u64 scale offset | u64 scale bytes | u64 bias offset | u64 bias bytes
 *
 * Offsets count from the start of the file. Only 2-byte alignment is promised. */
#ifndef STORE_RESIDENT_H
#define STORE_RESIDENT_H

#include "store/gturbo.h"

#define RESIDENT_HEADER_BYTES    24u
#define RESIDENT_ENTRY_BYTES     72u
#define RESIDENT_INDEX_BYTES_MAX (1u << 20)
#define RESIDENT_NAME_BYTES_MAX  1024u

struct resident_index {
    struct stored_tensor *tensors; /* in index order; names point into `names` */
    size_t n_tensors;
    char *names;
    uint64_t index_bytes, payload_bytes;
};

/* The size of the index region, from its first 8 bytes; the caller reads that much and goes on to parse. */
sluice_status resident_index_bytes(const unsigned char start[8], uint64_t *bytes, sluice_error *err);
/* `index` holds the n bytes of the index region of a file of file_bytes. *out needs resident_free() whatever
 * is returned. */
sluice_status resident_parse(const unsigned char *index, size_t n, uint64_t file_bytes,
                             struct resident_index *out, sluice_error *err);
void resident_free(struct resident_index *index);

/* Bits per weight and values per group of an affine tensor, from its sizes; false when they contradict each
 * other. A type-0 tensor without scales (plain 32-bit words) gives bits 32 and group size 0. */
bool resident_affine(const struct stored_tensor *tensor, uint32_t *bits, uint32_t *group_size);

/* For the writer: the size of the index of n tensors whose names have names_bytes in all. */
sluice_status resident_plan_bytes(size_t n, size_t names_bytes, uint64_t *bytes, sluice_error *err);
/* The index region; free *out with mem_free. */
sluice_status resident_encode(const struct stored_tensor *tensors, size_t n, uint64_t index_bytes,
                              uint64_t payload_bytes, unsigned char **out, sluice_error *err);

#endif
