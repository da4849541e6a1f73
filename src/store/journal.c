#include "store/journal.h"

#include "base/ascii.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* Member names are those of the format's own journal where it has them. */
static const struct {
    const char *key;
    bool of_source; /* otherwise of the plan */
} BOUND[] = {
    {"sourceIndexSHA256", true},
    {"sourceFingerprint", true},
    {"planFingerprint", false},
};

enum { N_BOUND = sizeof BOUND / sizeof *BOUND };

static const char *bound_value(const struct journal_identity *id, size_t i)
{
    const char *const values[N_BOUND] = {id->source_sha256, id->source_fingerprint, id->plan_fingerprint};
    return values[i];
}

enum { SCHEMA = 2, ID_BYTES = 32 }; /* 1 had SHA-256 digests in place of tags */

static void range_id(char id[ID_BYTES], size_t range)
{
    (void)snprintf(id, ID_BYTES, "range-%08zu", range);
}

static sluice_status new_secret(char hex[SHA256_HEX_BYTES], sluice_error *err)
{
    unsigned char bytes[SHA256_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return err_errno(err, errno, "the system gives no random bytes");
    ascii_put_hex(bytes, sizeof bytes, hex);
    return SLUICE_OK;
}

sluice_status journal_start(struct journal *j, const char *path, const struct journal_identity *id,
                            sluice_error *err)
{
    char secret[SHA256_HEX_BYTES];
    TRY(new_secret(secret, err));
    mem_hook_json();
    j->path = path;
    j->root = json_object();
    j->ranges = json_object();
    int failed = json_object_set_new(j->root, "schema", json_integer(SCHEMA));
    failed |= json_object_set_new(j->root, "repoID", json_string(id->source_name));
    if (id->revision)
        failed |= json_object_set_new(j->root, "resolvedCommit", json_string(id->revision));
    for (size_t i = 0; i < N_BOUND; i++)
        failed |= json_object_set_new(j->root, BOUND[i].key, json_string(bound_value(id, i)));
    failed |= json_object_set_new(j->root, "totalSourceBytes", json_integer((json_int_t)id->source_bytes));
    failed |= json_object_set_new(j->root, "rangeSecret", json_string(secret));
    failed |= json_object_set_new(j->root, "completedRanges", j->ranges);
    if (!failed)
        return SLUICE_OK;
    json_decref(j->root);
    *j = (struct journal){0};
    return err_memory(err, 0, "the journal");
}

static sluice_status check_form(const struct journal *j, sluice_error *err)
{
    uint64_t schema, total;
    const char *text, *id;
    json_t *range;
    TRY(json_need_u64(j->root, "schema", SCHEMA, SCHEMA, &schema, j->path, err));
    TRY(json_need_u64(j->root, "totalSourceBytes", 0, INT64_MAX, &total, j->path, err));
    for (size_t i = 0; i < N_BOUND; i++)
        TRY(json_need_string(j->root, BOUND[i].key, &text, j->path, err));
    TRY(json_need_string(j->root, "rangeSecret", &text, j->path, err));
    if (!sha256_is_hex(text))
        return err_set(err, SLUICE_E_FORMAT, "%s: the secret of the ranges is not one", j->path);
    json_object_foreach(j->ranges, id, range)
    {
        uint64_t bytes;
        TRY(json_need_u64(range, "sourceBytes", 1, INT64_MAX, &bytes, id, err));
        TRY(json_need_u64(range, "destinationBytes", 1, INT64_MAX, &bytes, id, err));
        TRY(json_need_string(range, "destinationTag", &text, id, err));
        if (!poly1305_is_hex(text))
            return err_set(err, SLUICE_E_FORMAT, "%s: the tag of %.24s is not one", j->path, id);
    }
    return SLUICE_OK;
}

sluice_status journal_load(struct journal *j, const char *path, sluice_error *err)
{
    char *text;
    size_t bytes;
    *j = (struct journal){.path = path};
    TRY(file_load(path, JOURNAL_BYTES_MAX, &text, &bytes, err));
    sluice_status status = json_parse(text, bytes, path, &j->root, err);
    mem_free(text);
    if (status == SLUICE_OK)
        status = json_need_object(j->root, "completedRanges", &j->ranges, path, err);
    if (status == SLUICE_OK)
        status = check_form(j, err);
    if (status != SLUICE_OK)
        journal_free(j);
    return status;
}

void journal_free(struct journal *j)
{
    json_decref(j->root);
    *j = (struct journal){0};
}

sluice_status journal_match(const struct journal *j, const struct journal_identity *id, sluice_error *err)
{
    for (size_t i = 0; i < N_BOUND; i++) {
        const char *recorded = json_string_value(json_object_get(j->root, BOUND[i].key));
        if (strcmp(recorded, bound_value(id, i)) != 0)
            return err_set(err, SLUICE_E_EXISTS,
                           "the %s changed since the interrupted install that %s records; start over with "
                           "--discard, or bring the old %s back",
                           BOUND[i].of_source ? "source" : "copy plan", j->path,
                           BOUND[i].of_source ? "source" : "version of the program");
    }
    return SLUICE_OK;
}

sluice_status journal_publish(const struct journal *j, sluice_error *err)
{
    char *text;
    TRY(json_print(j->root, JSON_INDENT(1) | JSON_SORT_KEYS, "the journal", &text, err));
    sluice_status status = file_publish(j->path, text, strlen(text), err);
    mem_free(text);
    return status;
}

sluice_status journal_add(struct journal *j, size_t range, const char tag[POLY1305_HEX_BYTES],
                          const struct plan_range *plan, sluice_error *err)
{
    char id[ID_BYTES];
    range_id(id, range);
    json_t *row =
        json_pack("{s:s, s:I, s:I}", "destinationTag", tag, "sourceBytes", (json_int_t)plan->span_bytes,
                  "destinationBytes", (json_int_t)plan->payload_bytes);
    if (json_object_set_new(j->ranges, id, row) != 0)
        return err_memory(err, 0, "the journal");
    sluice_status status = journal_publish(j, err);
    if (status != SLUICE_OK)
        (void)json_object_del(j->ranges, id); /* not on disk, so not in memory either */
    return status;
}

sluice_status journal_key(const struct journal *j, size_t range, unsigned char key[POLY1305_KEY_BYTES],
                          sluice_error *err)
{
    static const char DOMAIN[] = "sluice install range 2";
    const char *secret = json_string_value(json_object_get(j->root, "rangeSecret"));
    struct sha256 h;
    TRY(sha256_open(&h, err));
    sha256_update(&h, DOMAIN, sizeof DOMAIN);
    sha256_update(&h, secret, strlen(secret));
    sha256_update_u64(&h, range);
    sha256_end(&h, key);
    return SLUICE_OK;
}

const char *journal_tag(const struct journal *j, size_t range, const struct plan_range *plan)
{
    char id[ID_BYTES];
    range_id(id, range);
    const json_t *row = json_object_get(j->ranges, id);
    if (!row || (uint64_t)json_integer_value(json_object_get(row, "sourceBytes")) != plan->span_bytes ||
        (uint64_t)json_integer_value(json_object_get(row, "destinationBytes")) != plan->payload_bytes)
        return NULL;
    return json_string_value(json_object_get(row, "destinationTag"));
}

sluice_status journal_keep(struct journal *j, const bool *kept, size_t n_ranges, sluice_error *err)
{
    json_t *rows = json_object();
    int failed = rows ? 0 : -1;
    for (size_t i = 0; i < n_ranges && !failed; i++) {
        char id[ID_BYTES];
        range_id(id, i);
        if (kept[i])
            failed = json_object_set(rows, id, json_object_get(j->ranges, id));
    }
    if (!failed && json_object_size(rows) == json_object_size(j->ranges)) {
        json_decref(rows);
        return SLUICE_OK;
    }
    if (failed || json_object_set_new(j->root, "completedRanges", json_incref(rows)) != 0) {
        json_decref(rows);
        return err_memory(err, 0, "the journal");
    }
    j->ranges = rows;
    json_decref(rows); /* the root holds it */
    return journal_publish(j, err);
}

sluice_status journal_prove_shard(struct journal *j, const char *shard, sluice_error *err)
{
    json_t *proven = json_object_get(j->root, "provenShards");
    int failed = 0;
    if (!proven) {
        proven = json_object();
        failed = json_object_set_new(j->root, "provenShards", proven);
    }
    if (failed || json_object_set_new(proven, shard, json_true()) != 0)
        return err_memory(err, 0, "the journal");
    return journal_publish(j, err);
}

void journal_doubt_shard(struct journal *j, const char *shard)
{
    (void)json_object_del(json_object_get(j->root, "provenShards"), shard);
}

bool journal_shard_is_proven(const struct journal *j, const char *shard)
{
    return json_is_true(json_object_get(json_object_get(j->root, "provenShards"), shard));
}

sluice_status journal_finish(struct journal *j, uint64_t inode, const char *manifest_sha256,
                             sluice_error *err)
{
    json_t *finish = json_pack("{s:I, s:s}", "inode", (json_int_t)inode, "manifestSHA256", manifest_sha256);
    if (json_object_set_new(j->root, "finishing", finish) != 0)
        return err_memory(err, 0, "the journal");
    return journal_publish(j, err);
}

sluice_status journal_is_finished(const struct journal *j, const char *output, bool *finished,
                                  sluice_error *err)
{
    const json_t *finish = json_object_get(j->root, "finishing");
    const char *recorded = json_string_value(json_object_get(finish, "manifestSHA256"));
    struct stat st;
    *finished = false;
    if (!recorded || lstat(output, &st) != 0 || !S_ISDIR(st.st_mode) ||
        (uint64_t)json_integer_value(json_object_get(finish, "inode")) != (uint64_t)st.st_ino)
        return SLUICE_OK;
    struct manifest m;
    sluice_status status = manifest_load(output, &m, err);
    *finished = status == SLUICE_OK && strcmp(m.sha256, recorded) == 0;
    manifest_free(&m);
    return status == SLUICE_E_MEMORY || status == SLUICE_E_IO ? status : SLUICE_OK;
}
