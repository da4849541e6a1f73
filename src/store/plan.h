/* The plan of an install: which bytes of the source go where. Made from headers alone, so a dry run costs
 * nothing; identical inputs give an identical plan, whose fingerprint binds a journal to it.
 *
 * A copy takes one source tensor to one file. An expert stack is one copy too: its source is contiguous, its
 * target is a piece in each record, `stride` apart. Ranges cut the sorted copies into units of work: each is
 * read in ascending order and recorded in the journal when its bytes are on disk. */
#ifndef STORE_PLAN_H
#define STORE_PLAN_H

#include "store/install.h"
#include "store/layout.h"
#include "store/safetensors.h"

#define PLAN_RANGE_BYTES_MAX (UINT64_C(64) << 20)
/* Neighbours that are further apart are separate ranges: the bytes between would be fetched for nothing. */
#define PLAN_GAP_BYTES_MAX (64u << 10)

struct plan_file {
    char path[48]; /* in the install */
    uint64_t bytes;
};

struct plan_copy {
    uint32_t shard, file;
    uint64_t source, bytes; /* in the shard */
    uint64_t target;        /* of the first piece */
    uint64_t piece, stride; /* bytes; one piece: piece = bytes */
    uint32_t quant;         /* 1 + index of its plan_quant; 0: copied as it is */
};

/* How a copy's float values become codes, scales and biases. Its pieces are dealt to `ways` targets in turn:
 * piece p goes to way p mod ways, record p / ways. `piece` stays in source bytes. */
struct plan_quant {
    enum dtype from;
    uint8_t bits;
    uint16_t group;
    uint32_t ways;
    uint64_t targets[2][3]; /* codes, scales, biases of record 0 */
};

/* Where the values of [at, at + n) of a quantizing copy go, as far as one piece holds them. */
struct plan_quant_run {
    uint64_t targets[3], bytes[3];
    uint64_t source_bytes; /* of the copy that the run takes */
    size_t groups;
};

struct plan_segment {
    size_t copy;
    uint64_t start, bytes; /* inside the copy */
};

struct plan_range {
    uint32_t shard;
    size_t first, count; /* segments */
    uint64_t source, span_bytes, payload_bytes;
};

struct plan {
    struct plan_file *files; /* model_weights.bin, then one per layer with experts */
    size_t n_files;
    struct plan_copy *copies; /* by shard and offset */
    size_t n_copies;
    struct plan_quant *quants;
    size_t n_quants, quants_cap;
    struct plan_segment *segments;
    size_t n_segments, segments_cap;
    struct plan_range *ranges;
    size_t n_ranges, ranges_cap;
    unsigned char *index; /* of model_weights.bin */
    uint64_t index_bytes;
    struct layout layout;
    uint64_t source_bytes, data_bytes;
    uint32_t n_resident, n_skipped, n_expert_layers;
    char fingerprint[SHA256_HEX_BYTES];
};

/* Match the checkpoint against the recipe. SLUICE_E_FORMAT names the tensor that is missing, has another type
 * or shape, or that the recipe neither uses nor skips. *plan needs plan_free() whatever is returned. */
sluice_status plan_build(struct plan *plan, const struct recipe *recipe, const struct safetensors *st,
                         uint64_t range_bytes, sluice_error *err);
void plan_free(struct plan *plan);

/* Where byte `at` of a copy goes; *run gets how many bytes go on contiguously from there. */
uint64_t plan_target(const struct plan_copy *copy, uint64_t at, uint64_t *run);
/* The same for a quantizing copy; `at` and n are whole groups. */
struct plan_quant_run plan_quant_target(const struct plan *plan, const struct plan_copy *copy, uint64_t at,
                                        uint64_t n);

#endif
