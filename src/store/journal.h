/* The journal of an unfinished install, OUTPUT.resume.json: which plan and source it belongs to, and which
 * ranges are on disk, each with a tag of its bytes at the destination. It is replaced atomically, and a range
 * is recorded only after its bytes were synced. It exists before the partial directory and until after it, so
 * a partial directory without one is not ours to judge.
 *
 * Tags are Poly1305's, under keys that come from a random secret of the journal and the range's number. They
 * cost a ninth of SHA-256, which so runs over every byte once, for the manifest, and they find any damage
 * that does not read the journal. What does could as well write another digest into it, of any kind: of who
 * may write there, neither protects; the digests that the source states do. */
#ifndef STORE_JOURNAL_H
#define STORE_JOURNAL_H

#include "base/json.h"
#include "base/poly1305.h"
#include "store/plan.h"

#define JOURNAL_BYTES_MAX (8u << 20)

struct journal {
    const char *path; /* borrowed */
    json_t *root;     /* owned */
    json_t *ranges;   /* borrowed from it */
};

struct journal_identity {
    const char *source_name, *source_sha256; /* of the source's index */
    const char *revision;                    /* NULL: none */
    const char *source_fingerprint, *plan_fingerprint;
    uint64_t source_bytes;
};

/* A fresh journal with a new secret, not written yet. */
sluice_status journal_start(struct journal *journal, const char *path,
                            const struct journal_identity *identity, sluice_error *err);
/* Read and check the form of a journal file. */
sluice_status journal_load(struct journal *journal, const char *path, sluice_error *err);
void journal_free(struct journal *journal);

/* SLUICE_E_EXISTS says whether the source or the plan changed, and what to do. */
sluice_status journal_match(const struct journal *journal, const struct journal_identity *identity,
                            sluice_error *err);

sluice_status journal_publish(const struct journal *journal, sluice_error *err);

/* Record a range and publish. */
sluice_status journal_add(struct journal *journal, size_t range, const char tag[POLY1305_HEX_BYTES],
                          const struct plan_range *plan, sluice_error *err);
/* The key of a range's tag. */
sluice_status journal_key(const struct journal *journal, size_t range, unsigned char key[POLY1305_KEY_BYTES],
                          sluice_error *err);
/* The recorded tag of a range, or NULL. */
const char *journal_tag(const struct journal *journal, size_t range, const struct plan_range *plan);
/* Forget every range that `kept` does not mark; `kept` has n_ranges rows. */
sluice_status journal_keep(struct journal *journal, const bool *kept, size_t n_ranges, sluice_error *err);

/* Every byte of a shard of the source was read and had the digest that the source states: record, publish. */
sluice_status journal_prove_shard(struct journal *journal, const char *shard, sluice_error *err);
/* Not any more; the next publication says so. */
void journal_doubt_shard(struct journal *journal, const char *shard);
bool journal_shard_is_proven(const struct journal *journal, const char *shard);

/* The partial directory is complete and about to take its final name: record its inode and its manifest's
 * digest, by which a later run recognises it under that name. */
sluice_status journal_finish(struct journal *journal, uint64_t inode, const char *manifest_sha256,
                             sluice_error *err);
/* *finished: the directory `output` is the one that journal_finish() recorded. */
sluice_status journal_is_finished(const struct journal *journal, const char *output, bool *finished,
                                  sluice_error *err);

#endif
