/* An install, in order: read the source's headers, plan, look at what is there, copy range by range, publish.
 *
 *     OUTPUT.install.lock   held while an install runs
 *     OUTPUT.resume.json    the journal; exists before the next and until after it
 *     OUTPUT.partial        the directory that becomes OUTPUT when it is complete
 *
 * At every moment a kill leaves one of: nothing; a journal with or without a partial directory; a finished
 * output with its journal (and, after --overwrite, the old install under the partial name). A later run
 * recognises each (install_state.c). */
#include "store/install.h"

#include "base/mem.h"
#include "io/file.h"
#include "store/install_work.h"
#include "store/receipt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void recipe_free(struct recipe *recipe)
{
    mem_free(recipe->specs);
    json_decref(recipe->arch);
    json_decref(recipe->quant);
    memset(recipe, 0, sizeof *recipe);
}

/* ---- what and where ---- */

static sluice_status check_options(const sluice_install_options *o, sluice_error *err)
{
    if (!o || !o->output_dir || !*o->output_dir)
        return err_set(err, SLUICE_E_ARGUMENT, "no output directory was given");
    if (o->resume && o->discard)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "--resume and --discard contradict each other; choose one of them");
    return SLUICE_OK;
}

static char *with_suffix(const char *path, const char *suffix)
{
    size_t room = strlen(path) + strlen(suffix) + 1;
    char *text = mem_alloc(room);
    if (text)
        (void)snprintf(text, room, "%s%s", path, suffix);
    return text;
}

static sluice_status name_paths(struct install *w, sluice_error *err)
{
    const char *given = w->options->output_dir;
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/')
        length--;
    w->output = mem_strndup(given, length);
    if (!w->output)
        return err_memory(err, length, "a path");
    const char *slash = strrchr(w->output, '/'), *last = slash ? slash + 1 : w->output;
    if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return err_set(err, SLUICE_E_ARGUMENT, "the output %s has no name of its own; give NAME.gturbo",
                       given);
    w->parent = !slash               ? mem_strdup(".")
                : slash == w->output ? mem_strdup("/")
                                     : mem_strndup(w->output, (size_t)(slash - w->output));
    w->partial = with_suffix(w->output, ".partial");
    w->journal_path = with_suffix(w->output, ".resume.json");
    w->lock_path = with_suffix(w->output, ".install.lock");
    if (!w->parent || !w->partial || !w->journal_path || !w->lock_path)
        return err_memory(err, length, "a path");
    struct stat st;
    if (stat(w->parent, &st) != 0 || !S_ISDIR(st.st_mode))
        return err_set(err, SLUICE_E_ARGUMENT, "the directory %s, where the output would go, does not exist",
                       w->parent);
    /* The final path, not that of what lies there now: an output that is a link is refused later. */
    return receipt_absolute(w->output, &w->absolute, err);
}

static bool source_has(void *st, const char *name)
{
    return safetensors_find(st, name) != NULL;
}

sluice_status install_recipe(struct install *w, recipe_fn fn, sluice_error *err)
{
    TRY(fn(w->config, source_has, w->st, &w->recipe, err));
    if (!w->recipe.extra_file)
        return SLUICE_OK;
    bool added = false;
    TRY(safetensors_add(w->st, w->source, w->recipe.extra_file, w->recipe.extra_prefix, &added, err));
    if (!added)
        return SLUICE_OK;
    recipe_free(&w->recipe); /* with the names that there are now */
    return fn(w->config, source_has, w->st, &w->recipe, err);
}

static sluice_status read_config(struct install *w, recipe_fn fn, sluice_error *err)
{
    char *text;
    size_t bytes;
    const struct sidecar *config = &SIDECAR_TABLE[0];
    TRY(source_load(w->source, config->name, config->max_bytes, &text, &bytes, err));
    sluice_status status = json_parse(text, bytes, config->name, &w->config, err);
    mem_free(text);
    TRY(status);
    TRY(safetensors_open(&w->st, w->source, err));
    if (w->options->quantize_bits)
        return install_quantized_recipe(w, w->options->quantize_bits, fn, err);
    return install_recipe(w, fn, err);
}

/* Everything of the source that the result depends on, short of the payload's bytes: those are represented by
 * sizes and modification times (or what else the source calls its identity). */
static sluice_status fingerprint_source(struct install *w, sluice_error *err)
{
    static const char DOMAIN[] = "sluice install source 1";
    struct sha256 h;
    TRY(sha256_open(&h, err));
    sha256_update(&h, DOMAIN, sizeof DOMAIN);
    sha256_update(&h, w->st->sha256, strlen(w->st->sha256));
    sluice_status status = SLUICE_OK;
    for (size_t i = 0; i < w->st->n_shards && status == SLUICE_OK; i++) {
        const struct st_shard *shard = &w->st->shards[i];
        sha256_update(&h, shard->header_sha256, strlen(shard->header_sha256));
        status = sidecars_feed(w->source, &h, shard->name, shard->bytes, err);
    }
    if (status == SLUICE_OK)
        status = sidecars_check(w->source, &h, w->sidecar_bytes, err);
    sha256_close(&h, w->source_fingerprint);
    return status;
}

static void fill_report(struct install *w)
{
    sluice_install_report *r = &w->report;
    (void)snprintf(r->family, sizeof r->family, "%s", w->recipe.family);
    r->source_bytes = w->plan.source_bytes;
    r->output_bytes = w->plan.data_bytes;
    r->stride_bytes = w->plan.layout.stride_bytes;
    r->ranges = (uint32_t)w->plan.n_ranges;
    r->resident_tensors = w->plan.n_resident;
    r->skipped_tensors = w->plan.n_skipped;
    r->expert_layers = w->plan.n_expert_layers;
    r->experts_per_layer = w->plan.layout.n_experts;
    r->pinned = w->expected_index != NULL;
    if (w->source->revision)
        (void)snprintf(r->revision, sizeof r->revision, "%s", w->source->revision);
}

static sluice_status make_plan(struct install *w, uint64_t range_bytes, recipe_fn fn, sluice_error *err)
{
    TRY(read_config(w, fn, err));
    if (w->expected_index && strcmp(w->expected_index, w->st->sha256) != 0)
        return err_set(
            err, SLUICE_E_CORRUPT,
            "%s is not what is pinned under that name: its index has the SHA-256 %.16s..., pinned is "
            "%.16s...; use another mirror, or name the repository itself to trust it as it is",
            w->source->name, w->st->sha256, w->expected_index);
    TRY(fingerprint_source(w, err));
    TRY(plan_build(&w->plan, &w->recipe, w->st, range_bytes, err));
    w->identity = (struct journal_identity){.source_name = w->source->name,
                                            .revision = w->source->revision,
                                            .source_sha256 = w->st->sha256,
                                            .source_fingerprint = w->source_fingerprint,
                                            .plan_fingerprint = w->plan.fingerprint,
                                            .source_bytes = w->plan.source_bytes};
    fill_report(w);
    return SLUICE_OK;
}

/* ---- the lock ---- */

/* The lock file is deleted at the end, by its holder. Whoever opened it before that and gets the lock after
 * holds a lock on a deleted file, which excludes nobody: look again under the same name. */
static sluice_status take_lock(struct install *w, sluice_error *err)
{
    for (;;) {
        TRY(file_lock(w->lock_path, "installing to the same output", &w->lock_fd, err));
        struct stat held, named;
        if (fstat(w->lock_fd, &held) == 0 && lstat(w->lock_path, &named) == 0 &&
            held.st_ino == named.st_ino && held.st_dev == named.st_dev)
            return SLUICE_OK;
        file_unlock(w->lock_fd);
        w->lock_fd = -1;
    }
}

static void release_lock(struct install *w)
{
    if (w->lock_fd < 0)
        return;
    (void)file_unlink(w->lock_path, NULL);
    file_unlock(w->lock_fd);
}

/* ---- running ---- */

static sluice_status allocate(struct install *w, sluice_error *err)
{
    size_t n = w->plan.n_files;
    w->scratch = mem_alloc(COPY_SCRATCH_BYTES);
    if (w->plan.n_quants > 0 && !(w->parts = mem_alloc(COPY_SCRATCH_BYTES)))
        return err_memory(err, COPY_SCRATCH_BYTES, "the copy");
    w->fds = mem_alloc(n * sizeof *w->fds);
    for (size_t i = 0; w->fds && i < n; i++)
        w->fds[i] = -1;
    w->given = mem_calloc(n, sizeof *w->given);
    w->left = mem_calloc(n, sizeof *w->left);
    w->done = mem_calloc(w->plan.n_ranges, sizeof *w->done);
    w->finished = mem_calloc(n + 1 + SIDECARS, sizeof *w->finished);
    if (!w->scratch || !w->fds || !w->given || !w->left || !w->done || !w->finished)
        return err_memory(err, COPY_SCRATCH_BYTES, "the copy");
    for (size_t i = 0; i < w->plan.n_segments; i++)
        w->left[w->plan.copies[w->plan.segments[i].copy].file] += w->plan.segments[i].bytes;
    return SLUICE_OK;
}

static sluice_status run(struct install *w, bool resumed, sluice_error *err)
{
    TRY(allocate(w, err));
    if (!resumed) {
        TRY(journal_start(&w->journal, w->journal_path, &w->identity, err));
        TRY(journal_publish(&w->journal, err));
    }
    TRY(install_prepare(w, resumed, err));
    if (w->source->any_order && w->plan.n_quants == 0)
        TRY(install_stream(w, err));
    else {
        if (resumed)
            TRY(install_recheck(w, err));
        TRY(install_copy(w, err));
    }
    return install_publish(w, err);
}

static sluice_status install(struct install *w, uint64_t range_bytes, recipe_fn fn, sluice_error *err)
{
    enum found found;
    TRY(name_paths(w, err));
    TRY(make_plan(w, range_bytes, fn, err));
    if (!w->options->dry_run)
        TRY(take_lock(w, err));
    TRY(install_look(w, &found, err));
    if (found == FOUND_FINISHED) {
        w->report.reused_bytes = w->plan.source_bytes;
        return SLUICE_OK;
    }
    TRY(install_check_space(w, found == FOUND_PARTIAL, err));
    if (w->options->planned)
        w->options->planned(w->options->watch.user, &w->report);
    if (w->options->dry_run)
        return SLUICE_OK;
    sluice_status status = run(w, found == FOUND_PARTIAL, err);
    if (status == SLUICE_E_CANCELLED)
        return err_set(
            err, status,
            "cancelled; what is done is kept in %s: go on with --resume, or drop it with --discard",
            w->partial);
    return status;
}

static void close_install(struct install *w)
{
    for (size_t i = 0; w->fds && i < w->plan.n_files; i++)
        if (w->fds[i] >= 0)
            (void)close(w->fds[i]);
    mem_free(w->fds);
    mem_free(w->given);
    mem_free(w->left);
    mem_free(w->done);
    mem_free(w->finished);
    mem_free(w->scratch);
    mem_free(w->parts);
    mem_free(w->config_text);
    journal_free(&w->journal);
    plan_free(&w->plan);
    safetensors_close(w->st);
    recipe_free(&w->recipe);
    json_decref(w->config);
    release_lock(w);
    mem_free(w->output);
    mem_free(w->parent);
    mem_free(w->partial);
    mem_free(w->journal_path);
    mem_free(w->lock_path);
    mem_free(w->absolute);
}

sluice_status store_install_from(struct source *source, const sluice_install_options *options,
                                 const struct install_limits *limits, recipe_fn fn,
                                 sluice_install_report *report, sluice_error *err)
{
    TRY(check_options(options, err));
    uint64_t range_bytes = limits ? limits->range_bytes : 0;
    if (range_bytes == 0 || range_bytes > PLAN_RANGE_BYTES_MAX)
        range_bytes = PLAN_RANGE_BYTES_MAX;
    mem_hook_json();
    struct install w = {.options = options,
                        .source = source,
                        .expected_index = limits ? limits->index_sha256 : NULL,
                        .lock_fd = -1};
    sluice_status status = install(&w, range_bytes, fn, err);
    if (report)
        *report = w.report;
    close_install(&w);
    return status;
}

sluice_status store_install(const sluice_install_options *options, recipe_fn fn,
                            sluice_install_report *report, sluice_error *err)
{
    TRY(check_options(options, err));
    if (!options->source_dir || !*options->source_dir)
        return err_set(err, SLUICE_E_ARGUMENT, "no source directory was given");
    struct source *source;
    TRY(source_open_dir(&source, options->source_dir, err));
    sluice_status status = store_install_from(source, options, NULL, fn, report, err);
    source_close(source);
    return status;
}
