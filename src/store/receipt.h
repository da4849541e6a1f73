/* verified-install.json: "these files were hashed and matched the manifest". With it an open can skip hashing
 * hundreds of gigabytes.
 *
 * It is bound to the manifest (by digest) and to each file by size and modification time in nanoseconds. That
 * survives renaming and moving the directory, within a file system or to another with `mv` or `cp -a`, which
 * keep both. It notices files that were edited, truncated, replaced or half copied by ordinary programs. It
 * does not notice what leaves size and time as they were: a decaying disk, or somebody who sets the time back
 * on purpose; only hashing does (`sluice verify`).
 *
 * The members of the format's own receipt are all there too, modelDirectoryPath among them, so other readers
 * accept it until the directory moves. */
#ifndef STORE_RECEIPT_H
#define STORE_RECEIPT_H

#include "store/digest.h"
#include "store/manifest.h"

#define RECEIPT_NAME      "verified-install.json"
#define RECEIPT_BYTES_MAX (4u << 20)

/* Write dir/verified-install.json for files that were just hashed. `stamps` has one row per manifest file,
 * taken before its hashing; `final_dir` is the absolute path that the install has or is about to get. repo
 * and revision may be NULL. */
sluice_status receipt_write(const char *dir, const char *final_dir, const struct manifest *manifest,
                            const struct file_stamp *stamps, const char *repo, const char *revision,
                            sluice_error *err);

/* SLUICE_OK when the receipt is bound to these files. SLUICE_E_CORRUPT says what does not fit and to run
 * `sluice verify`. */
sluice_status receipt_check(const char *dir, const struct manifest *manifest, sluice_error *err);

/* The parsed receipt; *receipt is NULL when there is none, or none that is JSON. New reference. */
sluice_status receipt_load(const char *dir, json_t **receipt, sluice_error *err);

/* The absolute path of a directory that exists, or that its existing parent is about to get; free with
 * mem_free. */
sluice_status receipt_absolute(const char *dir, char **absolute, sluice_error *err);

#endif
