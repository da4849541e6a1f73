/* sluice_verify: hash every file of an install, then bind a receipt to what was hashed. */
#include "base/mem.h"
#include "store/digest.h"
#include "store/gturbo.h"
#include "store/manifest.h"
#include "store/receipt.h"

#include <string.h>

static sluice_status hash_files(const char *dir, const struct manifest *m, const sluice_watch *watch,
                                struct file_stamp *stamps, sluice_verify_report *report, sluice_error *err)
{
    uint64_t total = 0;
    for (size_t i = 0; i < m->n_files; i++)
        total += m->files[i].bytes; /* manifest_parse() proved that the sum fits */
    struct meter meter;
    meter_start(&meter, watch, "verify", total);
    for (size_t i = 0; i < m->n_files; i++) {
        const struct manifest_file *file = &m->files[i];
        TRY(digest_check(dir, file->path, file->bytes, file->sha256, &meter, &stamps[i], err));
        report->files++;
        report->bytes += file->bytes;
    }
    meter_finish(&meter);
    return SLUICE_OK;
}

/* Whether the receipt may stay: bound to these files, and naming the directory, as other readers want it. */
static sluice_status judge(const char *dir, const char *absolute, const struct manifest *m,
                           const json_t *receipt, bool *fits, sluice_error *err)
{
    sluice_status status = receipt_check(dir, m, err);
    const char *path = json_string_value(json_object_get(receipt, "modelDirectoryPath"));
    *fits = status == SLUICE_OK && path && strcmp(path, absolute) == 0;
    return status == SLUICE_E_CORRUPT ? SLUICE_OK : status;
}

static sluice_status renew(const char *dir, const struct manifest *m, const struct file_stamp *stamps,
                           sluice_verify_report *report, sluice_error *err)
{
    bool fits = false;
    char *absolute;
    json_t *old = NULL;
    TRY(receipt_absolute(dir, &absolute, err));
    sluice_status status = receipt_load(dir, &old, err);
    if (status == SLUICE_OK)
        status = judge(dir, absolute, m, old, &fits, err);
    if (status == SLUICE_OK && !fits) {
        /* The old receipt may know where the install came from; the new one keeps that. */
        status =
            receipt_write(dir, absolute, m, stamps, json_string_value(json_object_get(old, "sourceRepoID")),
                          json_string_value(json_object_get(old, "sourceRevision")), err);
        if (status != SLUICE_OK)
            status = err_prefix(err, status,
                                "every file of %s is right, but the receipt could not be written", dir);
        report->receipt_renewed = status == SLUICE_OK;
    }
    json_decref(old);
    mem_free(absolute);
    return status;
}

static sluice_status verify(const char *dir, const struct manifest *m, const sluice_watch *watch,
                            struct file_stamp *stamps, sluice_verify_report *report, sluice_error *err)
{
    TRY(hash_files(dir, m, watch, stamps, report, err));
    struct gturbo *store; /* the right bytes may still be those of a broken install */
    TRY(gturbo_open_headers(dir, &store, err));
    gturbo_close(store);
    return renew(dir, m, stamps, report, err);
}

sluice_status sluice_verify(const char *install_dir, const sluice_watch *watch, sluice_verify_report *report,
                            sluice_error *err)
{
    sluice_verify_report result = {0};
    if (!install_dir)
        return err_set(err, SLUICE_E_ARGUMENT, "no install directory was given");
    struct manifest m;
    struct file_stamp *stamps = NULL;
    sluice_status status = manifest_load(install_dir, &m, err);
    if (status == SLUICE_OK) {
        stamps = mem_calloc(m.n_files, sizeof *stamps);
        status = stamps ? verify(install_dir, &m, watch, stamps, &result, err)
                        : err_memory(err, m.n_files * sizeof *stamps, "the file list");
    }
    mem_free(stamps);
    manifest_free(&m);
    if (report)
        *report = result;
    return status;
}
