/* Random checkpoints of a family's published size: a source (store/source.h) whose files are made up as they
 * are read, so that installing from it is an install like any other. The same family, layers and seed give
 * the same bytes. */
#ifndef RUN_SYNTH_H
#define RUN_SYNTH_H

#include "base/str.h"
#include "model/family.h"
#include "store/source.h"

/* The source of `family`, which has a full size; layers 0: as many as published. */
sluice_status synth_source_open(struct source **source, const struct family *family, uint32_t layers,
                                uint64_t seed, sluice_error *err);

/* config.json for so many layers. */
sluice_status synth_config(const struct full_size *full, uint32_t layers, json_t **config, sluice_error *err);
/* A byte-fallback BPE tokenizer.json of `vocab` ids: control tokens, bytes, letters, then strings of letters,
 * the shortest first, each with the merges that make it. */
sluice_status synth_tokenizer(const struct full_size *full, uint32_t vocab, struct str *out,
                              sluice_error *err);
sluice_status synth_tokenizer_config(const struct full_size *full, struct str *out, sluice_error *err);

/* ---- the values of a tensor ---- */

struct synth_tensor {
    enum synth_kind { SYNTH_CODES, SYNTH_SCALES, SYNTH_BIASES, SYNTH_VECTOR, SYNTH_MATRIX } kind;
    enum dtype dtype; /* of vectors and matrices */
    uint64_t seed;    /* scales and biases of one weight share it */
    float scale;      /* mean scale of the groups, or spread of a matrix */
    float middle;     /* code that stands for 0 */
};

/* Bytes [offset, offset + n) of the tensor. */
void synth_fill(const struct synth_tensor *tensor, uint64_t offset, unsigned char *out, size_t n);

#endif
