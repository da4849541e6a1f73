/* Random checkpoints: any byte can be made alone, the values are what the graph needs, the tokenizer opens;
 * and an install that is written file by file equals one that is copied range by range. */
#include "store_fixture.h"

#include "base/check.h"
#include "compute/half.h"
#include "run/engine.h"
#include "run/synth.h"
#include "store/plan.h"

#include <math.h>

/* ---- installs from a source in any order ---- */

struct memory_file {
    char name[256];
    unsigned char *bytes;
    size_t n;
};

struct memory_source {
    struct source source;
    struct memory_file files[16];
    size_t n;
};

static const struct memory_file *memory_find(const struct memory_source *m, const char *file)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->files[i].name, file) == 0)
            return &m->files[i];
    return NULL;
}

static sluice_status memory_size(struct source *source, const char *file, uint64_t *bytes, sluice_error *err)
{
    const struct memory_file *f = memory_find(source->state, file);
    if (!f)
        return err_set(err, SLUICE_E_IO, "no %s", file);
    *bytes = f->n;
    return SLUICE_OK;
}

static sluice_status memory_exists(struct source *source, const char *file, bool *there, sluice_error *err)
{
    (void)err;
    *there = memory_find(source->state, file) != NULL;
    return SLUICE_OK;
}

static sluice_status memory_read(struct source *source, const char *file, uint64_t offset, void *buffer,
                                 size_t n, sluice_error *err)
{
    const struct memory_file *f = memory_find(source->state, file);
    if (!f || !range_inside(offset, n, f->n))
        return err_set(err, SLUICE_E_FORMAT, "%s is too short", file);
    memcpy(buffer, f->bytes + offset, n);
    return SLUICE_OK;
}

static void memory_close(struct source *source)
{
    struct memory_source *m = source->state;
    for (size_t i = 0; i < m->n; i++)
        free(m->files[i].bytes);
    free(m);
}

static struct source *memory_open(const char *dir, const char *name)
{
    struct memory_source *m = calloc(1, sizeof *m);
    assert_non_null(m);
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(m->n < sizeof m->files / sizeof *m->files);
        struct memory_file *f = &m->files[m->n++];
        (void)snprintf(f->name, sizeof f->name, "%s", entry->d_name);
        f->bytes = fx_read(fx_path(dir, entry->d_name), &f->n);
    }
    (void)closedir(d);
    m->source = (struct source){.state = m,
                                .name = (char *)(uintptr_t)name,
                                .any_order = true,
                                .size = memory_size,
                                .exists = memory_exists,
                                .read = memory_read,
                                .close = memory_close};
    return &m->source;
}

static void test_streamed_equals_copied(void **state)
{
    (void)state;
    char *dir = fx_temp();
    sluice_install_options copied = {.source_dir = DEMO_DIR, .output_dir = fx_path(dir, "copied.gturbo")};
    assert_ok(sluice_install(&copied, NULL, err));
    struct source *source = memory_open(DEMO_DIR, "dictionary-moe");
    sluice_install_options streamed = {.output_dir = fx_path(dir, "streamed.gturbo")};
    assert_ok(store_install_from(source, &streamed, NULL, engine_recipe_of, NULL, err));
    source_close(source);
    fx_assert_same_dir(copied.output_dir, streamed.output_dir);
    fx_assert_clean(streamed.output_dir);
    assert_ok(sluice_verify(streamed.output_dir, NULL, NULL, err));
    fx_drop(dir);
}

/* Whatever write or sync fails, nothing looks finished, and --resume ends in the same bytes. */
static void test_streamed_faults(void **state)
{
    (void)state;
    static const enum fault_kind KINDS[] = {FAULT_WRITE, FAULT_FSYNC, FAULT_RENAME, FAULT_ALLOC};
    char *dir = fx_temp();
    sluice_install_options whole = {.output_dir = fx_path(dir, "whole.gturbo")};
    struct source *source = memory_open(DEMO_DIR, "dictionary-moe");
    assert_ok(store_install_from(source, &whole, NULL, engine_recipe_of, NULL, err));
    int fired = 0;
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
        for (uint64_t n = 1; n < 400; n = n * 3 / 2 + 1) {
            sluice_install_options o = {.output_dir = fx_path(dir, "faulty.gturbo"), .discard = true};
            sluice_error error;
            fault_arm(KINDS[k], n);
            sluice_status status = store_install_from(source, &o, NULL, engine_recipe_of, NULL, &error);
            bool hit = fault_fired(KINDS[k]);
            fault_arm(KINDS[k], 0);
            fired += hit;
            if (!hit)
                assert_int_equal(status, SLUICE_OK);
            if (status != SLUICE_OK) {
                o.discard = false;
                o.resume = file_exists(fx_path(dir, "faulty.gturbo.partial")) ||
                           file_exists(fx_path(dir, "faulty.gturbo.resume.json"));
                assert_ok(store_install_from(source, &o, NULL, engine_recipe_of, NULL, err));
            }
            fx_assert_same_dir(whole.output_dir, o.output_dir);
            assert_int_equal(file_remove_tree(o.output_dir, NULL), SLUICE_OK);
        }
    assert_true(fired > 20);
    source_close(source);
    fx_drop(dir);
}

static void test_streamed_cancel(void **state)
{
    (void)state;
    char *dir = fx_temp();
    volatile int cancel = 1;
    struct source *source = memory_open(DEMO_DIR, "dictionary-moe");
    sluice_install_options o = {.output_dir = fx_path(dir, "x.gturbo"), .watch = {.cancel = &cancel}};
    sluice_status status = store_install_from(source, &o, NULL, engine_recipe_of, NULL, NULL);
    assert_int_equal(status, SLUICE_E_CANCELLED);
    assert_false(file_exists(o.output_dir));
    source_close(source);
    fx_drop(dir);
}

/* ---- the made-up source ---- */

static struct source *full_gemma4(uint64_t seed)
{
    struct source *source = NULL;
    assert_ok(synth_source_open(&source, FAMILIES[0], 6, seed, err));
    return source;
}

static void test_random_access(void **state)
{
    (void)state;
    enum { WINDOW = 100000 };
    struct source *source = full_gemma4(3), *again = full_gemma4(3), *other = full_gemma4(4);
    unsigned char *whole = malloc(WINDOW), *parts = malloc(WINDOW);
    assert_true(whole && parts);
    uint64_t total;
    assert_ok(source->size(source, "model.safetensors", &total, err));
    /* Windows everywhere, odd offsets, over the borders of tensors. */
    for (uint64_t at = 1; at + WINDOW < total; at += total / 61) {
        assert_ok(source->read(source, "model.safetensors", at, whole, WINDOW, err));
        for (size_t k = 0, step = 1; k < WINDOW; k += step, step = step * 5 / 3 + 1) {
            size_t n = k + step <= WINDOW ? step : WINDOW - k;
            assert_ok(again->read(again, "model.safetensors", at + k, parts + k, n, err));
        }
        assert_memory_equal(whole, parts, WINDOW);
    }
    assert_ok(other->read(other, "model.safetensors", total - WINDOW, parts, WINDOW, err));
    assert_ok(source->read(source, "model.safetensors", total - WINDOW, whole, WINDOW, err));
    assert_memory_not_equal(whole, parts, WINDOW);
    assert_fails(source->read(source, "model.safetensors", total - 1, whole, 2, err), SLUICE_E_FORMAT,
                 "ends");
    free(whole);
    free(parts);
    source_close(source);
    source_close(again);
    source_close(other);
}

/* Names that no recipe asks for. */
static bool has_nothing(void *user, const char *name)
{
    (void)user;
    (void)name;
    return false;
}

/* The published sizes: 26B-A4B in 4 bits has 14.3 GB in experts and residents. */
static void test_full_shape(void **state)
{
    (void)state;
    struct source *source = NULL;
    assert_ok(synth_source_open(&source, FAMILIES[0], 0, 0, err));
    struct safetensors *st = NULL;
    assert_ok(safetensors_open(&st, source, err));
    char *text;
    size_t n;
    json_t *config;
    assert_ok(source_load(source, "config.json", 1 << 20, &text, &n, err));
    assert_ok(json_parse(text, n, "config.json", &config, err));
    struct recipe recipe;
    assert_ok(engine_recipe_of(config, has_nothing, NULL, &recipe, err));
    struct plan plan;
    assert_ok(plan_build(&plan, &recipe, st, 64 << 20, err));
    assert_int_equal(plan.layout.stride_bytes, 3358720);
    assert_int_equal(plan.layout.n_layers, 30);
    assert_int_equal(plan.layout.n_experts, 128);
    /* docs/models/gemma4.md, section 1 */
    assert_int_equal(plan.files[0].bytes, 1353771068);
    plan_free(&plan);
    recipe_free(&recipe);
    json_decref(config);
    mem_free(text);
    safetensors_close(st);
    source_close(source);
}

/* Mean and variance of a dequantized row, through the source: unit variance goes to unit variance. */
static void test_spread(void **state)
{
    (void)state;
    enum { COLS = 2816, ROWS = 64 };
    struct source *source = full_gemma4(1);
    struct safetensors *st;
    assert_ok(safetensors_open(&st, source, err));
    static const char STEM[] = "language_model.model.layers.2.mlp.gate_proj";
    const struct st_tensor *part[3];
    static const char *const SUFFIX[3] = {".weight", ".scales", ".biases"};
    uint32_t *words = malloc(ROWS * COLS / 2);
    uint16_t *halves = malloc((size_t)2 * ROWS * COLS / 64 * sizeof *halves);
    assert_true(words && halves);
    for (int i = 0; i < 3; i++) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s%s", STEM, SUFFIX[i]);
        part[i] = safetensors_find(st, name);
        assert_non_null(part[i]);
        void *out = i == 0 ? (void *)words : (void *)(halves + (i - 1) * ROWS * COLS / 64);
        assert_ok(source->read(source, "model.safetensors", part[i]->offset, out,
                               i == 0 ? ROWS * COLS / 2 : ROWS * COLS / 32, err));
    }
    double sum = 0, squares = 0;
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
        uint32_t code = words[i / 8] >> (4 * (i % 8)) & 15;
        float scale = half_from_bf16(halves[i / 64]),
              bias = half_from_bf16(halves[ROWS * COLS / 64 + i / 64]);
        double w = (double)scale * code + (double)bias;
        sum += w;
        squares += w * w;
    }
    double n = (double)ROWS * COLS, spread = sqrt(squares / n * COLS);
    assert_true(fabs(sum / n) < 1e-3 && spread > 0.9 && spread < 1.15);
    free(words);
    free(halves);
    safetensors_close(st);
    source_close(source);
}

/* ---- the tokenizer ---- */

static void test_tokenizer(void **state)
{
    (void)state;
    static const uint32_t SIZES[] = {1000, 20000};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        struct str json = {0}, config = {0};
        struct tokenizer *t = NULL;
        assert_ok(synth_tokenizer(FAMILIES[0]->full_size, SIZES[i], &json, err));
        assert_ok(synth_tokenizer_config(FAMILIES[0]->full_size, &config, err));
        assert_ok(tok_open(json.p, json.len, config.p, config.len, &t, err));
        assert_int_equal(tok_vocab(t), SIZES[i]);
        assert_true(tok_is_control(t, tok_find(t, "<turn|>")));
        assert_int_equal(tok_find(t, "<turn|>"), 106);
        assert_int_equal(tok_find(t, "ab"), 107 + 1 + 256 + 1 + 94 + 1);
        tok_close(t);
        str_free(&json);
        str_free(&config);
    }
    struct str json = {0};
    assert_fails(synth_tokenizer(FAMILIES[0]->full_size, 300, &json, err), SLUICE_E_UNSUPPORTED, "too small");
    str_free(&json);
}

static void test_refusals(void **state)
{
    (void)state;
    sluice_synth_options o = {.family = "none", .output_dir = "x.gturbo"};
    assert_fails(sluice_synth(&o, NULL, err), SLUICE_E_ARGUMENT, "gemma4");
    o = (sluice_synth_options){.family = "gemma4", .output_dir = "/nowhere/x.gturbo", .dry_run = true};
    assert_fails(sluice_synth(&o, NULL, err), SLUICE_E_ARGUMENT, "/nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streamed_equals_copied),
        cmocka_unit_test(test_streamed_faults),
        cmocka_unit_test(test_streamed_cancel),
        cmocka_unit_test(test_random_access),
        cmocka_unit_test(test_full_shape),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_tokenizer),
        cmocka_unit_test(test_refusals),
    };
    mem_hook_json();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
