/* manifest.json: what an install is, and the size and SHA-256 of every file of it. It is written last, so its
 * presence marks a complete install. */
#ifndef STORE_MANIFEST_H
#define STORE_MANIFEST_H

#include "base/json.h"
#include "base/sha256.h"

#define MANIFEST_NAME      "manifest.json"
#define MANIFEST_BYTES_MAX (4u << 20)
#define RESIDENT_NAME      "model_weights.bin"
#define EXPERTS_DIR        "packed_experts"
#define LAYOUT_NAME        "packed_experts/layout.json"
#define TOKENIZER_DIR      "tokenizer"
#define GTURBO_LAYERS_MAX  1024
#define GTURBO_EXPERTS_MAX 65536
#define GTURBO_PAGE_BYTES  16384u /* the format's unit, whatever the machine's page is */
#define GTURBO_RECORD_MAX  (UINT64_C(1) << 32)

struct manifest_file {
    char *path; /* relative, inside the install */
    uint64_t bytes;
    char sha256[SHA256_HEX_BYTES];
};

struct manifest {
    json_t *root; /* owned; the next three are borrowed from it */
    const char *model_id;
    json_t *arch, *quant; /* quant may be NULL */
    struct manifest_file *files;
    size_t n_files;
    uint32_t n_layers, n_experts;
    uint64_t stride_bytes;
    uint64_t bytes; /* of manifest.json, and its digest */
    char sha256[SHA256_HEX_BYTES];
};

/* Parse and check. SLUICE_E_UNSUPPORTED: another major version, or a flag that this build does not know.
 * *manifest needs manifest_free() whatever is returned. */
sluice_status manifest_parse(const char *text, size_t bytes, struct manifest *manifest, sluice_error *err);
sluice_status manifest_load(const char *dir, struct manifest *manifest, sluice_error *err);
void manifest_free(struct manifest *manifest);

/* NULL when the manifest does not list it. */
const struct manifest_file *manifest_find(const struct manifest *manifest, const char *path);

struct manifest_content {
    const char *model_id;
    const char *source_sha256; /* of the source's index */
    json_t *arch, *quant;      /* borrowed */
    uint32_t n_layers, n_experts, n_overrides;
    uint64_t stride_bytes;
    const struct manifest_file *files;
    size_t n_files;
};

/* Publish dir/manifest.json atomically. */
sluice_status manifest_write(const char *dir, const struct manifest_content *content, sluice_error *err);

#endif
