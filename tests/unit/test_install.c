/* Installs: what arrives is what was sent, every state that an earlier run can leave is handled, and what
 * cannot be installed is refused by name. */
#include "store_fixture.h"

#include "store/manifest.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <utime.h>

/* Bytes of a source tensor, from the snapshot's files. */
static unsigned char *source_bytes(const char *snapshot, const struct safetensors *st, const char *name,
                                   size_t *n)
{
    const struct st_tensor *t = safetensors_find(st, name);
    if (!t)
        fx_fail("the source has no %s", name);
    unsigned char *bytes = malloc((size_t)t->bytes + 1);
    int fd = open(fx_path(snapshot, st->shards[t->shard].name), O_RDONLY);
    assert_true(bytes && fd >= 0);
    assert_int_equal(pread(fd, bytes, (size_t)t->bytes, (off_t)t->offset), t->bytes);
    (void)close(fd);
    *n = (size_t)t->bytes;
    return bytes;
}

static const char *companion(const char *name, const char *suffix)
{
    static char text[256];
    (void)snprintf(text, sizeof text, "%.*s%s", (int)(strlen(name) - strlen(".weight")), name, suffix);
    return text;
}

static void check_resident(const char *snapshot, const struct safetensors *st, const struct gturbo *store,
                           const struct tensor_spec *spec)
{
    static const char *const SUFFIXES[] = {".weight", ".scales", ".biases"};
    const struct stored_tensor *t = gturbo_find(store, spec->name);
    if (!t)
        fx_fail("the install has no %s", spec->name);
    assert_int_equal(t->dtype, spec->dtype);
    assert_memory_equal(t->shape, spec->shape, sizeof t->shape);
    const uint64_t offsets[] = {t->offset, t->scale_offset, t->bias_offset};
    const uint64_t sizes[] = {t->bytes, t->scale_bytes, t->bias_bytes};
    for (int i = 0; i < (spec->dtype == DTYPE_AFFINE ? 3 : 1); i++) {
        size_t n;
        unsigned char *want =
            source_bytes(snapshot, st, i ? companion(spec->name, SUFFIXES[i]) : spec->name, &n);
        unsigned char *have = malloc(n);
        assert_int_equal(sizes[i], n);
        assert_ok(gturbo_read_resident(store, offsets[i], have, n, err));
        assert_memory_equal(have, want, n);
        free(have);
        free(want);
    }
}

/* Every expert's three parts of one stack. */
static void check_stack(const char *snapshot, const struct safetensors *st, struct gturbo *store,
                        const struct tensor_spec *spec)
{
    static const char *const SUFFIXES[] = {".weight", ".scales", ".biases"};
    int fd, first = 3 * (int)(spec->role - ROLE_EXPERT_GATE);
    const struct expert_layer *layer = &store->layers[spec->layer];
    assert_true(layer->present);
    assert_int_equal(layer->parts[first].bits, spec->bits);
    assert_int_equal(layer->parts[first].group_size, spec->group_size);
    assert_int_equal(layer->parts[first].rows, spec->shape[1]);
    assert_int_equal(layer->parts[first].cols, spec->shape[2]);
    assert_ok(gturbo_layer_fd(store, (uint32_t)spec->layer, &fd, err));
    unsigned char *record = aligned_alloc(4096, (size_t)store->stride_bytes);
    assert_non_null(record);
    for (int i = 0; i < 3; i++) {
        size_t n;
        unsigned char *want = source_bytes(snapshot, st, companion(spec->name, SUFFIXES[i]), &n);
        const struct expert_part *part = &layer->parts[first + i];
        assert_int_equal(part->bytes * store->n_experts, n);
        for (uint32_t e = 0; e < store->n_experts; e++) {
            assert_int_equal(pread(fd, record, (size_t)store->stride_bytes, (off_t)(e * store->stride_bytes)),
                             store->stride_bytes);
            assert_memory_equal(record + part->offset, want + e * part->bytes, part->bytes);
        }
        free(want);
    }
    free(record);
}

static void check_round_trip(const char *snapshot, const char *output, recipe_fn fn)
{
    struct gturbo *store;
    struct safetensors *st = NULL;
    struct source *source;
    struct recipe recipe;
    json_t *config = json_load_file(fx_path(snapshot, "config.json"), 0, NULL);
    assert_non_null(config);
    assert_ok(fn(config, NULL, NULL, &recipe, err));
    assert_ok(source_open_dir(&source, snapshot, err));
    assert_ok(safetensors_open(&st, source, err));
    assert_ok(gturbo_open(output, SLUICE_VERIFY_FULL, NULL, &store, err));
    assert_true(json_equal(store->arch, recipe.arch));
    assert_true(json_equal(store->quant, recipe.quant));
    assert_int_equal(store->n_layers, recipe.n_layers);
    assert_int_equal(store->n_experts, recipe.n_experts);
    size_t resident = 0;
    for (size_t i = 0; i < recipe.n_specs; i++) {
        const struct tensor_spec *spec = &recipe.specs[i];
        if (spec->role != ROLE_RESIDENT) {
            check_stack(snapshot, st, store, spec);
            continue;
        }
        assert_string_equal(store->tensors[resident].name, spec->name); /* in the recipe's order */
        resident++;
        check_resident(snapshot, st, store, spec);
    }
    assert_int_equal(store->n_tensors, resident);
    gturbo_close(store);
    safetensors_close(st);
    source_close(source);
    recipe_free(&recipe);
    json_decref(config);
}

static void small_model_round_trip(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *output = fx_path(out, "small.gturbo");
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output};
    sluice_install_report r = {0};
    assert_ok(fx_install_with(&o, &r, err));
    check_round_trip(snapshot, output, fx_recipe);
    fx_assert_clean(output);
    assert_string_equal(r.family, "small");
    assert_int_equal(r.resident_tensors, 6);
    assert_int_equal(r.skipped_tensors, 1);
    assert_int_equal(r.expert_layers, 2);
    assert_int_equal(r.experts_per_layer, FX_EXPERTS);
    assert_int_equal(r.stride_bytes, 32768);
    assert_int_equal(r.reused_bytes, 0);
    assert_true(r.ranges > 40);
    /* sidecars of the format's set, byte for byte; nothing else */
    size_t n, m;
    unsigned char *a = fx_read(fx_path(snapshot, "chat_template.jinja"), &n);
    unsigned char *b = fx_read(fx_path(output, "tokenizer/chat_template.jinja"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    assert_int_not_equal(access(fx_path(output, "tokenizer/README.md"), F_OK), 0);
    json_t *manifest = json_load_file(fx_path(output, "manifest.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(manifest, "bitWidthOverridesHonored")), 2);
    assert_string_equal(json_string_value(json_object_get(manifest, "modelID")), strrchr(snapshot, '/') + 1);
    json_decref(manifest);
    fx_drop(snapshot);
    fx_drop(out);
}

static void demo_round_trip(void **state)
{
    (void)state;
    char *out = fx_temp();
    char *output = fx_path(out, "demo.gturbo");
    sluice_install_options o = {.source_dir = DEMO_DIR, .output_dir = output};
    sluice_install_report r = {0};
    assert_ok(store_install(&o, fx_demo_recipe, &r, err));
    assert_int_equal(r.source_bytes, 18276368);
    assert_int_equal(r.skipped_tensors, 0);
    assert_int_equal(r.stride_bytes, 32768);
    assert_int_equal(r.output_bytes, 8 * 64 * 32768 + (int)r.source_bytes - 8 * 64 * 27648 + 32768);
    check_round_trip(DEMO_DIR, output, fx_demo_recipe);
    sluice_verify_report v;
    assert_ok(sluice_verify(output, NULL, &v, err));
    assert_int_equal(v.files, 1 + 8 + 1 + 4);
    assert_false(v.receipt_renewed);
    fx_drop(out);
}

/* The same bytes whatever the ranges are, and from one shard or two. */
static void ranges_do_not_matter(void **state)
{
    (void)state;
    static const uint64_t SIZES[] = {1, 777, 65536, 0};
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *first = fx_path(out, "first.gturbo");
    assert_ok(fx_install(snapshot, first, err));
    for (size_t i = 1; i < sizeof SIZES / sizeof *SIZES; i++) {
        char *output = fx_path(out, "other.gturbo");
        sluice_install_options o = {.output_dir = output};
        struct source *source;
        assert_ok(source_open_dir(&source, snapshot, err));
        assert_ok(store_install_from(source, &o, &(struct install_limits){.range_bytes = SIZES[i]}, fx_recipe,
                                     NULL, err));
        source_close(source);
        fx_assert_same_dir(first, output);
        assert_ok(file_remove_tree(output, err));
    }
    fx_drop(snapshot);
    fx_drop(out);
}

static void dry_run_writes_nothing(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *output = fx_path(out, "small.gturbo");
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output, .dry_run = true};
    sluice_install_report dry, wet;
    assert_ok(fx_install_with(&o, &dry, err));
    assert_int_equal(rmdir(out), 0); /* empty */
    assert_int_equal(mkdir(out, 0777), 0);
    o.dry_run = false;
    assert_ok(fx_install_with(&o, &wet, err));
    assert_memory_equal(&dry, &wet, sizeof dry);
    o.dry_run = true;
    assert_fails(fx_install_with(&o, NULL, err), SLUICE_E_EXISTS,
                 "exists already; replace it with --overwrite");
    fx_drop(snapshot);
    fx_drop(out);
}

/* ---- what is refused ---- */

static void refused(const char *snapshot, sluice_status status, const char *text)
{
    char *out = fx_temp_fast();
    char *output = fx_path(out, "x.gturbo");
    assert_fails(fx_install(snapshot, output, err), status, text);
    assert_int_not_equal(access(output, F_OK), 0);
    fx_assert_clean(output);
    fx_drop(out);
}

static void refuses_other_tensors(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot();
    struct fx_tensor second[FX_SECOND + 1];
    memcpy(second, FX_SECOND_SHARD, sizeof FX_SECOND_SHARD);

    second[FX_SECOND] = (struct fx_tensor){"m.layers.2.surprise", "F32", 1, {4}};
    fx_safetensors(snapshot, "two.safetensors", second, FX_SECOND + 1);
    refused(snapshot, SLUICE_E_FORMAT, "the tensor m.layers.2.surprise is none that a small model has");

    second[FX_SECOND - 1].shape[0] = 65;
    fx_safetensors(snapshot, "two.safetensors", second, FX_SECOND);
    refused(snapshot, SLUICE_E_FORMAT, "tensor m.norm.weight has the shape [65], the model needs [64]");

    second[FX_SECOND - 1] = (struct fx_tensor){"m.norm.weight", "BF16", 1, {64}};
    fx_safetensors(snapshot, "two.safetensors", second, FX_SECOND);
    refused(snapshot, SLUICE_E_FORMAT, "tensor m.norm.weight has the type BF16, the model needs F16");

    memcpy(second, FX_SECOND_SHARD, sizeof FX_SECOND_SHARD);
    second[2] = (struct fx_tensor){"m.layers.1.experts.down.other", "BF16", 3, {FX_EXPERTS, 64, 4}};
    fx_safetensors(snapshot, "two.safetensors", second, FX_SECOND);
    assert_int_equal(unlink(fx_path(snapshot, ST_INDEX_NAME)), 0);
    assert_int_equal(unlink(fx_path(snapshot, "one.safetensors")), 0);
    assert_int_equal(rename(fx_path(snapshot, "two.safetensors"), fx_path(snapshot, ST_SINGLE_NAME)), 0);
    refused(snapshot, SLUICE_E_FORMAT, "the checkpoint lacks the tensor m.embed.weight");
    fx_drop(snapshot);
}

static void refuses_bad_sidecars(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot();
    fx_text(snapshot, "tokenizer.json",
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n");
    refused(snapshot, SLUICE_E_FORMAT, "tokenizer.json: this is a Git LFS pointer");
    assert_int_equal(unlink(fx_path(snapshot, "tokenizer.json")), 0);
    refused(snapshot, SLUICE_E_IO, "lacks tokenizer.json");
    fx_text(snapshot, "tokenizer.json", "{}");
    char *large = calloc(1, (4u << 20) + 2);
    memset(large, ' ', (4u << 20) + 1);
    fx_text(snapshot, "tokenizer_config.json", large);
    free(large);
    refused(snapshot, SLUICE_E_FORMAT,
            "tokenizer_config.json has 4194305 bytes, at most 4194304 are accepted");
    fx_text(snapshot, "tokenizer_config.json", "{}");
    fx_text(snapshot, "config.json", "{\"model_type\": \"strange\"}");
    refused(snapshot, SLUICE_E_UNSUPPORTED, "the model type \"strange\" is unknown");
    assert_int_equal(unlink(fx_path(snapshot, "config.json")), 0);
    refused(snapshot, SLUICE_E_IO, "config.json");
    fx_drop(snapshot);
}

static void refuses_bad_options(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    sluice_install_options o = {.source_dir = snapshot};
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_ARGUMENT, "no output directory");
    o.output_dir = fx_path(out, "none/x.gturbo");
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_ARGUMENT, "does not exist");
    o.output_dir = "..";
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_ARGUMENT, "has no name of its own");
    o.output_dir = fx_path(out, "x.gturbo");
    o.resume = o.discard = true;
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_ARGUMENT, "contradict each other");
    o.resume = o.discard = false;
    o.source_dir = fx_path(out, "absent");
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_IO, "cannot open the snapshot directory");
    fx_drop(snapshot);
    fx_drop(out);
}

/* A sparse file costs nothing, so a model of 8 TiB is easily made. */
static sluice_status huge_recipe(const json_t *config, bool (*has)(void *, const char *), void *names,
                                 struct recipe *r, sluice_error *err)
{
    (void)config;
    (void)has;
    (void)names;
    *r = (struct recipe){.n_layers = 1};
    r->specs = mem_calloc(1, sizeof *r->specs);
    if (!r->specs)
        return err_memory(err, 0, "a recipe");
    fx_spec(r, -1, "huge", ROLE_RESIDENT, DTYPE_F32, 0, 2, 1u << 20, 1u << 21, 0);
    return fx_finish_recipe(r, "huge", err);
}

static void refuses_a_full_disk(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    static const char HEADER[] =
        "{\"language_model.model.huge\":{\"dtype\":\"F32\",\"shape\":[1048576,2097152],\"data_offsets\":[0,"
        "8796093022208]}}";
    unsigned char start[8 + sizeof HEADER - 1] = {sizeof HEADER - 1};
    memcpy(start + 8, HEADER, sizeof HEADER - 1);
    assert_int_equal(unlink(fx_path(snapshot, ST_INDEX_NAME)), 0);
    fx_write(snapshot, ST_SINGLE_NAME, start, sizeof start);
    if (truncate(fx_path(snapshot, ST_SINGLE_NAME), (off_t)sizeof start + 8796093022208) != 0)
        skip(); /* a file system without files of 8 TiB */
    sluice_install_options o = {.source_dir = snapshot, .output_dir = fx_path(out, "x.gturbo")};
    for (int dry = 0; dry < 2; dry++) {
        o.dry_run = dry;
        assert_fails(store_install(&o, huge_recipe, NULL, err), SLUICE_E_IO, "the install needs 87");
        fx_assert_clean(o.output_dir);
    }
    fx_drop(snapshot);
    fx_drop(out);
}

/* ---- interrupted ---- */

struct stopper {
    volatile int stop;
    int after;
    uint64_t reads;
    struct source *inner;
};

/* A source that raises the cancel flag after some reads. */
static sluice_status stop_read(struct source *s, const char *file, uint64_t offset, void *buffer, size_t n,
                               sluice_error *err)
{
    struct stopper *stopper = s->state;
    if ((int)++stopper->reads == stopper->after)
        stopper->stop = 1;
    return stopper->inner->read(stopper->inner, file, offset, buffer, n, err);
}

static sluice_status stop_size(struct source *s, const char *file, uint64_t *bytes, sluice_error *err)
{
    struct stopper *stopper = s->state;
    return stopper->inner->size(stopper->inner, file, bytes, err);
}

static sluice_status stop_exists(struct source *s, const char *file, bool *there, sluice_error *err)
{
    struct stopper *stopper = s->state;
    return stopper->inner->exists(stopper->inner, file, there, err);
}

static sluice_status stop_identity(struct source *s, const char *file, char text[SOURCE_IDENTITY_BYTES],
                                   sluice_error *err)
{
    struct stopper *stopper = s->state;
    return stopper->inner->identity(stopper->inner, file, text, err);
}

/* Install until `after` reads of the source were made. */
static sluice_status interrupt(const char *snapshot, const char *output, int after, bool resume,
                               sluice_install_report *report, sluice_error *err)
{
    struct stopper stopper = {.after = after};
    TRY(source_open_dir(&stopper.inner, snapshot, err));
    struct source source = {.state = &stopper,
                            .name = stopper.inner->name,
                            .size = stop_size,
                            .exists = stop_exists,
                            .read = stop_read,
                            .identity = stop_identity};
    sluice_install_options o = {.output_dir = output, .resume = resume, .watch = {.cancel = &stopper.stop}};
    sluice_status status = store_install_from(
        &source, &o, &(struct install_limits){.range_bytes = FX_RANGE_BYTES}, fx_recipe, report, err);
    source_close(stopper.inner);
    return status;
}

static void cancel_and_resume(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *whole = fx_path(out, "whole.gturbo"), *output = fx_path(out, "small.gturbo");
    assert_ok(fx_install(snapshot, whole, err));
    assert_fails(interrupt(snapshot, output, 60, false, NULL, err), SLUICE_E_CANCELLED,
                 "go on with --resume");
    assert_int_not_equal(access(output, F_OK), 0);
    assert_fails(fx_install(snapshot, output, err), SLUICE_E_EXISTS,
                 "go on with --resume or start over with --discard");
    sluice_install_report r = {0};
    assert_fails(interrupt(snapshot, output, 40, true, &r, err), SLUICE_E_CANCELLED, "go on with --resume");
    assert_true(r.reused_bytes > 20 * FX_RANGE_BYTES);
    uint64_t before = r.reused_bytes;
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output, .resume = true};
    assert_ok(fx_install_with(&o, &r, err));
    assert_true(r.reused_bytes > before);
    fx_assert_same_dir(whole, output);
    fx_assert_clean(output);
    fx_drop(snapshot);
    fx_drop(out);
}

static void resume_repairs_damage(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *whole = fx_path(out, "whole.gturbo"), *output = fx_path(out, "small.gturbo");
    char *partial = fx_path(out, "small.gturbo.partial");
    assert_ok(fx_install(snapshot, whole, err));
    assert_fails(interrupt(snapshot, output, 60, false, NULL, err), SLUICE_E_CANCELLED, "");
    fx_flip(fx_path(partial, RESIDENT_NAME), 16384 + 7, true);         /* a recorded range */
    fx_flip(fx_path(partial, RESIDENT_NAME), 5, true);                 /* the index */
    fx_flip(fx_path(partial, "packed_experts/layer_01.bin"), 1, true); /* another recorded range */
    assert_int_equal(truncate(fx_path(partial, "packed_experts/layer_02.bin"), 3), 0);
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output, .resume = true};
    sluice_install_report r = {0};
    assert_ok(fx_install_with(&o, &r, err));
    assert_true(r.reused_bytes > 0);
    fx_assert_same_dir(whole, output);
    fx_drop(snapshot);
    fx_drop(out);
}

static void resume_refuses_changes(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *output = fx_path(out, "small.gturbo"), *journal = fx_path(out, "small.gturbo.resume.json");
    assert_fails(interrupt(snapshot, output, 60, false, NULL, err), SLUICE_E_CANCELLED, "");
    /* another plan: other ranges */
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output, .resume = true};
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_EXISTS,
                 "the copy plan changed since the interrupted install");
    /* another source: the same headers, written again */
    struct utimbuf times = {1000000000, 1000000000};
    assert_int_equal(utime(fx_path(snapshot, "two.safetensors"), &times), 0);
    assert_fails(fx_resume(snapshot, output, err), SLUICE_E_EXISTS,
                 "the source changed since the interrupted install");
    fx_text(out, "small.gturbo.resume.json", "{\"schema\": 1}");
    assert_fails(fx_resume(snapshot, output, err), SLUICE_E_FORMAT, "--discard starts over");
    assert_int_equal(unlink(journal), 0);
    assert_fails(fx_resume(snapshot, output, err), SLUICE_E_EXISTS, "without its journal");
    o = (sluice_install_options){.source_dir = snapshot, .output_dir = output, .discard = true};
    assert_ok(fx_install_with(&o, NULL, err));
    fx_assert_clean(output);
    fx_drop(snapshot);
    fx_drop(out);
}

static void resume_rejects_foreign_entries(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *output = fx_path(out, "small.gturbo"), *partial = fx_path(out, "small.gturbo.partial");
    assert_fails(interrupt(snapshot, output, 60, false, NULL, err), SLUICE_E_CANCELLED, "");
    static const char *const NAMES[] = {"extra", "packed_experts/layer_00.bin", "tokenizer/x.json"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        fx_text(partial, NAMES[i], "?");
        assert_fails(fx_resume(snapshot, output, err), SLUICE_E_EXISTS, NAMES[i]);
        assert_int_equal(unlink(fx_path(partial, NAMES[i])), 0);
    }
    char *file = fx_path(partial, "packed_experts/layer_01.bin"), *aside = fx_path(out, "aside");
    assert_int_equal(rename(file, aside), 0);
    assert_int_equal(symlink(aside, file), 0);
    assert_fails(fx_resume(snapshot, output, err), SLUICE_E_EXISTS, "a link does not count");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0777), 0);
    assert_fails(fx_resume(snapshot, output, err), SLUICE_E_EXISTS, "layer_01.bin is not something");
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(rename(aside, file), 0);
    assert_ok(fx_resume(snapshot, output, err));
    fx_drop(snapshot);
    fx_drop(out);
}

static void resume_without_leftovers_installs(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *output = fx_path(out, "small.gturbo");
    assert_ok(fx_resume(snapshot, output, err));
    assert_fails(fx_resume(snapshot, output, err), SLUICE_E_EXISTS, "exists already");
    fx_drop(snapshot);
    fx_drop(out);
}

/* ---- overwriting ---- */

static void overwrite_replaces_installs_only(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *whole = fx_path(out, "whole.gturbo"), *output = fx_path(out, "small.gturbo");
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output, .overwrite = true};
    assert_ok(fx_install(snapshot, whole, err));
    assert_ok(fx_install_with(&o, NULL, err)); /* nothing there: fine */
    fx_flip(fx_path(output, "packed_experts/layer_01.bin"), 0, false);
    fx_text(output, "extra", "of the old install");
    assert_ok(fx_install_with(&o, NULL, err));
    fx_assert_same_dir(whole, output);
    fx_assert_clean(output);
    /* a directory that is no install stays */
    assert_int_equal(unlink(fx_path(output, "manifest.json")), 0);
    assert_fails(fx_install_with(&o, NULL, err), SLUICE_E_FORMAT, "--overwrite replaces installs only");
    assert_int_equal(access(fx_path(output, RESIDENT_NAME), F_OK), 0);
    assert_ok(file_remove_tree(output, err));
    assert_int_equal(mkdir(output, 0777), 0);
    assert_ok(fx_install_with(&o, NULL, err)); /* an empty one is no loss */
    fx_assert_same_dir(whole, output);
    assert_ok(file_remove_tree(output, err));
    fx_text(out, "small.gturbo", "a file");
    assert_fails(fx_install_with(&o, NULL, err), SLUICE_E_EXISTS, "is not a directory");
    fx_drop(snapshot);
    fx_drop(out);
}

/* ---- two at once ---- */

static void second_installer_is_told(void **state)
{
    (void)state;
    char *snapshot = fx_snapshot(), *out = fx_temp_fast();
    char *output = fx_path(out, "small.gturbo"), *lock = fx_path(out, "small.gturbo.install.lock");
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(lock, O_RDWR | O_CREAT, 0666);
        char byte = (char)(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
        (void)!write(ready[1], &byte, 1);
        for (;;)
            (void)pause();
    }
    char held = 0;
    assert_int_equal(read(ready[0], &held, 1), 1);
    assert_int_equal(held, 1);
    assert_fails(fx_install(snapshot, output, err), SLUICE_E_BUSY, "install.lock");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_ok(fx_install(snapshot, output, err)); /* the lock died with its holder */
    fx_assert_clean(output);
    (void)close(ready[0]);
    (void)close(ready[1]);
    fx_drop(snapshot);
    fx_drop(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_model_round_trip),
        cmocka_unit_test(demo_round_trip),
        cmocka_unit_test(ranges_do_not_matter),
        cmocka_unit_test(dry_run_writes_nothing),
        cmocka_unit_test(refuses_other_tensors),
        cmocka_unit_test(refuses_bad_sidecars),
        cmocka_unit_test(refuses_bad_options),
        cmocka_unit_test(refuses_a_full_disk),
        cmocka_unit_test(cancel_and_resume),
        cmocka_unit_test(resume_repairs_damage),
        cmocka_unit_test(resume_refuses_changes),
        cmocka_unit_test(resume_rejects_foreign_entries),
        cmocka_unit_test(resume_without_leftovers_installs),
        cmocka_unit_test(overwrite_replaces_installs_only),
        cmocka_unit_test(second_installer_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
