/* The state of a running install, shared by install.c (the order of events), install_state.c (what an earlier
 * run left), install_copy.c (the payload) and install_publish.c (the end). */
#ifndef STORE_INSTALL_WORK_H
#define STORE_INSTALL_WORK_H

#include "store/digest.h"
#include "store/install.h"
#include "store/journal.h"
#include "store/manifest.h"
#include "store/plan.h"
#include "store/sidecars.h"

/* Together with DIGEST_SCRATCH_BYTES this is all the memory that payload passes through: below 1 MiB. */
#define COPY_SCRATCH_BYTES (512u << 10)

/* A finished file of the install: its manifest row, and the stamp its digest belongs to. */
struct finished_file {
    char path[48];
    char sha256[SHA256_HEX_BYTES];
    struct file_stamp stamp;
    bool hashed;
};

struct install {
    const sluice_install_options *options;
    struct source *source;      /* borrowed */
    const char *expected_index; /* NULL: any */
    sluice_install_report report;
    /* what to do */
    json_t *config;
    char *config_text; /* the config.json of the install where it is not the source's; NULL elsewhere */
    struct recipe recipe;
    struct safetensors *st;
    struct plan plan;
    uint64_t sidecar_bytes[SIDECARS];
    char source_fingerprint[SHA256_HEX_BYTES];
    struct journal_identity identity;
    /* where */
    char *output, *parent, *partial, *journal_path, *lock_path, *absolute;
    int lock_fd;
    /* how far */
    struct journal journal;
    struct meter meter;
    unsigned char *scratch;    /* COPY_SCRATCH_BYTES */
    unsigned char *parts;      /* as many again, where the plan quantizes; NULL elsewhere */
    struct shard_check *check; /* of the shard that is being copied */
    int *fds;                  /* per plan file; -1: not open */
    bool *given;               /* per plan file: complete, and on its way to be hashed */
    uint64_t *left;            /* per plan file: payload bytes not on disk yet */
    const atomic_bool *stop;   /* while files are hashed on another thread; NULL: watch.cancel is looked at */
    bool *done;                /* per range */
    struct finished_file *finished; /* plan files, then layout.json, then sidecars */
    size_t n_finished;
};

enum found { FOUND_NOTHING, FOUND_PARTIAL, FOUND_FINISHED };

/* ---- install_state.c ---- */

/* Look at the output, the partial directory and the journal, decide by the options, and clean up what the
 * options or a finished journal allow. `w->journal` is loaded for FOUND_PARTIAL. A dry run changes nothing.
 */
sluice_status install_look(struct install *w, enum found *found, sluice_error *err);
/* Create or complete the partial directory: subdirectories and files of the right size, the resident index.
 * Anything in it that no install makes is refused. */
sluice_status install_prepare(struct install *w, bool resumed, sluice_error *err);
/* Enough space for what is still to be written, and a reserve. */
sluice_status install_check_space(const struct install *w, bool resumed, sluice_error *err);
/* Delete the partial directory, then the journal. */
sluice_status install_discard(const struct install *w, sluice_error *err);

/* ---- install.c ---- */

/* Fill the recipe from w->config and the names that the source has, its extra file's included. */
sluice_status install_recipe(struct install *w, recipe_fn fn, sluice_error *err);

/* ---- install_quantize.c ---- */

/* Rewrite w->config for `bits` per weight and fill the recipe from it. */
sluice_status install_quantized_recipe(struct install *w, unsigned bits, recipe_fn fn, sluice_error *err);

/* ---- install_copy.c ---- */

/* Verify the ranges that the journal records; forget those whose bytes differ. */
sluice_status install_recheck(struct install *w, sluice_error *err);
/* Copy the ranges that are not done; hash each file when its last byte is on disk. */
sluice_status install_copy(struct install *w, sluice_error *err);
/* Hash a file of the partial directory into its finished row. */
sluice_status install_hash(struct install *w, const char *path, sluice_error *err);

/* ---- install_stream.c ---- */

/* Instead of install_copy, for a source that can be read in any order. */
sluice_status install_stream(struct install *w, sluice_error *err);

/* ---- install_publish.c ---- */

/* layout.json, tokenizer files, manifest, receipt; then the final name. */
sluice_status install_publish(struct install *w, sluice_error *err);

#endif
