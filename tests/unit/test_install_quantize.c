/* Quantizing at install: a float checkpoint under the names of transformers becomes, byte for byte, what an
 * install of MLX's own quantization of it holds (tests/oracle/quantize); in any cut, resumed, and from a hub.
 */
#include "hub_fixture.h"

#include "run/engine.h"
#include "store/manifest.h"

#define SOURCE_DIR "tests/golden/gemma4/q4"
#define GOLDEN     "tests/golden/quantize/gemma4.json"

static char *snapshot, *root;
static json_t *golden;

/* ---- the float checkpoint ---- */

struct tensors {
    struct source *source;
    struct safetensors *st;
    const char *shard;
};

static unsigned char *payload(const struct tensors *t, const struct st_tensor *tensor)
{
    unsigned char *bytes = malloc((size_t)tensor->bytes + 1);
    assert_non_null(bytes);
    assert_ok(t->source->read(t->source, t->shard, tensor->offset, bytes, (size_t)tensor->bytes, err));
    return bytes;
}

static float bf16(const unsigned char *p, size_t i)
{
    uint32_t bits = (uint32_t)(p[2 * i] | p[2 * i + 1] << 8) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The values of an affine tensor as bfloat16; *n of them. */
static uint16_t *dequantize(const struct tensors *t, const struct st_tensor *weight, size_t *n)
{
    char name[256];
    int stem = (int)(strlen(weight->name) - strlen(".weight"));
    (void)snprintf(name, sizeof name, "%.*s.scales", stem, weight->name);
    const struct st_tensor *s = safetensors_find(t->st, name);
    (void)snprintf(name, sizeof name, "%.*s.biases", stem, weight->name);
    const struct st_tensor *b = safetensors_find(t->st, name);
    assert_true(s && b);
    unsigned char *codes = payload(t, weight), *scales = payload(t, s), *biases = payload(t, b);
    *n = (size_t)(s->bytes / 2 * 64); /* groups of 64 */
    unsigned bits = (unsigned)(weight->bytes * 8 / *n);
    uint16_t *out = malloc(2 * *n);
    assert_non_null(out);
    for (size_t i = 0; i < *n; i++) {
        unsigned code = bits == 8 ? codes[i] : (unsigned)codes[i / 2] >> (i % 2 * 4) & 15u;
        out[i] = to_bf16(bf16(scales, i / 64) * (float)code + bf16(biases, i / 64));
    }
    free(codes);
    free(scales);
    free(biases);
    return out;
}

struct writer {
    char *header, *data;
    size_t header_bytes, data_bytes;
};

static void put(struct writer *w, const char *name, uint32_t n_dims, const uint64_t *shape, const void *data,
                size_t n)
{
    char *h = w->header + w->header_bytes;
    size_t k =
        (size_t)sprintf(h, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[", w->header_bytes > 1 ? "," : "", name);
    for (uint32_t i = 0; i < n_dims; i++)
        k += (size_t)sprintf(h + k, "%s%llu", i ? "," : "", (unsigned long long)shape[i]);
    k += (size_t)sprintf(h + k, "],\"data_offsets\":[%zu,%zu]}", w->data_bytes, w->data_bytes + n);
    w->header_bytes += k;
    memcpy(w->data + w->data_bytes, data, n);
    w->data_bytes += n;
}

/* The name that transformers gives it. */
static const char *hugging(const char *name, char out[256])
{
    static const char MLX[] = "language_model.model.";
    assert_int_equal(strncmp(name, MLX, sizeof MLX - 1), 0);
    (void)snprintf(out, 256, "model.language_model.%s", name + sizeof MLX - 1);
    return out;
}

static void write_float(const struct tensors *t, struct writer *w, const struct st_tensor *tensor)
{
    char name[256];
    uint64_t shape[ST_DIMS_MAX];
    size_t n, m;
    memcpy(shape, tensor->shape, sizeof shape);
    hugging(tensor->name, name);
    if (strcmp(tensor->dtype, "BF16") == 0) {
        unsigned char *bytes = payload(t, tensor);
        put(w, name, tensor->n_dims, shape, bytes, (size_t)tensor->bytes);
        free(bytes);
        return;
    }
    uint16_t *values = dequantize(t, tensor, &n);
    char *gate = strstr(name, "switch_glu.gate_proj.weight"),
         *down = strstr(name, "switch_glu.down_proj.weight");
    shape[tensor->n_dims - 1] = n;
    for (uint32_t i = 0; i + 1 < tensor->n_dims; i++)
        shape[tensor->n_dims - 1] /= shape[i];
    if (gate) {
        char other[256];
        (void)snprintf(other, sizeof other, "%.*sup_proj.weight",
                       (int)(strstr(tensor->name, "gate_proj") - tensor->name), tensor->name);
        uint16_t *up = dequantize(t, safetensors_find(t->st, other), &m);
        assert_int_equal(n, m);
        size_t expert = n / shape[0];
        uint16_t *both = malloc(4 * n);
        assert_non_null(both);
        for (size_t e = 0; e < shape[0]; e++) {
            memcpy(both + 2 * e * expert, values + e * expert, 2 * expert);
            memcpy(both + (2 * e + 1) * expert, up + e * expert, 2 * expert);
        }
        shape[1] *= 2;
        memcpy(gate, "gate_up_proj", sizeof "gate_up_proj");
        put(w, name, 3, shape, both, 4 * n);
        free(both);
        free(up);
    } else if (!strstr(name, "switch_glu.up_proj")) {
        if (down)
            memcpy(down, "down_proj", sizeof "down_proj");
        put(w, name, tensor->n_dims, shape, values, 2 * n);
    }
    free(values);
}

static void write_config(const char *dir)
{
    json_t *config = json_load_file(SOURCE_DIR "/config.json", 0, NULL);
    assert_non_null(config);
    (void)json_object_del(config, "quantization");
    (void)json_object_del(config, "quantization_config");
    assert_int_equal(json_dump_file(config, fx_path(dir, "config.json"), 0), 0);
    json_decref(config);
}

static char *float_snapshot(void)
{
    static const char *const PLAIN[] = {"tokenizer.json", "tokenizer_config.json"};
    char *dir = fx_temp();
    struct tensors t = {.shard = "model.safetensors"};
    assert_ok(source_open_dir(&t.source, SOURCE_DIR, err));
    assert_ok(safetensors_open(&t.st, t.source, err));
    struct writer w = {.header = calloc(1, 1 << 20), .data = calloc(1, 8 << 20)};
    assert_true(w.header && w.data);
    w.header[w.header_bytes++] = '{';
    for (size_t i = 0; i < t.st->n_tensors; i++) {
        const char *name = t.st->tensors[i].name;
        if (!strstr(name, ".scales") && !strstr(name, ".biases"))
            write_float(&t, &w, &t.st->tensors[i]);
    }
    w.header[w.header_bytes++] = '}';
    while (w.header_bytes % 8)
        w.header[w.header_bytes++] = ' ';
    FILE *f = fopen(fx_path(dir, "model.safetensors"), "wb");
    uint64_t length = w.header_bytes;
    assert_non_null(f);
    assert_int_equal(fwrite(&length, 1, 8, f) + fwrite(w.header, 1, w.header_bytes, f) +
                         fwrite(w.data, 1, w.data_bytes, f),
                     8 + w.header_bytes + w.data_bytes);
    (void)fclose(f);
    for (size_t i = 0; i < 2; i++) {
        size_t n;
        unsigned char *bytes = fx_read(fx_path(SOURCE_DIR, PLAIN[i]), &n);
        fx_write(dir, PLAIN[i], bytes, n);
        free(bytes);
    }
    write_config(dir);
    free(w.header);
    free(w.data);
    safetensors_close(t.st);
    source_close(t.source);
    return dir;
}

/* ---- tests ---- */

static int set_up(void **state)
{
    (void)state;
    hub_unset_proxies();
    golden = json_load_file(GOLDEN, 0, NULL);
    assert_non_null(golden);
    snapshot = float_snapshot();
    root = fx_temp_fast();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    json_decref(golden);
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

static void assert_golden(const char *output, const char *bits)
{
    const char *name;
    json_t *value;
    assert_true(json_object_size(json_object_get(golden, bits)) > 3);
    json_object_foreach(json_object_get(golden, bits), name, value)
    {
        char hex[SHA256_HEX_BYTES];
        size_t n;
        unsigned char *bytes = fx_read(fx_path(output, name), &n);
        assert_ok(sha256_hex(bytes, n, hex, err));
        free(bytes);
        if (strcmp(hex, json_string_value(value)) != 0)
            fx_fail("%s at %s bits is not what MLX makes", name, bits);
    }
    sluice_plan plan;
    assert_ok(sluice_plan_install(output, NULL, &plan, err)); /* it opens as a model */
    assert_ok(sluice_verify(output, NULL, NULL, err));
}

static sluice_status install(const char *output, uint32_t bits, uint64_t range_bytes, bool resume,
                             const sluice_watch *watch, sluice_install_report *report, sluice_error *err)
{
    struct source *source;
    sluice_install_options o = {.output_dir = output, .quantize_bits = bits, .resume = resume};
    if (watch)
        o.watch = *watch;
    TRY(source_open_dir(&source, snapshot, err));
    sluice_status status = store_install_from(
        source, &o, &(struct install_limits){.range_bytes = range_bytes}, engine_recipe_of, report, err);
    source_close(source);
    return status;
}

static void equals_mlx_in_any_cut(void **state)
{
    (void)state;
    static const uint64_t RANGES[] = {0, 65536, 7000, 20001};
    char *output = fx_path(root, "q.gturbo");
    for (size_t i = 0; i < scaled(4, 3); i++) {
        assert_ok(install(output, 4, RANGES[i], false, NULL, NULL, err));
        assert_golden(output, "4");
        hub_wipe(output);
    }
    assert_ok(install(output, 8, 70000, false, NULL, NULL, err));
    assert_golden(output, "8");
    json_t *config = json_load_file(fx_path(output, "tokenizer/config.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(config, "quantization"), "bits")), 8);
    json_decref(config);
    hub_wipe(output);
}

static volatile int stop;
static int steps;

static void stop_later(void *user, const sluice_progress *progress)
{
    (void)user;
    if (strcmp(progress->phase, "copy") == 0 && ++steps > 1)
        stop = 1;
}

static void resumes(void **state)
{
    (void)state;
    char *output = fx_path(root, "r.gturbo"), *partial = fx_path(root, "r.gturbo.partial");
    sluice_install_report r = {0};
    /* Ends at the first sync of a layer file that fails, with ranges on disk. */
    fault_arm(FAULT_FSYNC, 40);
    assert_int_not_equal(install(output, 4, 8192, false, NULL, NULL, NULL), SLUICE_OK);
    fault_arm(FAULT_FSYNC, 0);
    assert_fails(install(output, 8, 8192, true, NULL, NULL, err), SLUICE_E_EXISTS, "copy plan changed");
    fx_flip(fx_path(partial, RESIDENT_NAME), 16384 * 2 + 77, true);
    assert_ok(install(output, 4, 8192, true, NULL, &r, err));
    assert_true(r.reused_bytes > 0);
    assert_golden(output, "4");
    hub_wipe(output);
    stop = steps = 0;
    const sluice_watch watch = {.progress = stop_later, .cancel = &stop};
    sluice_status status = install(output, 4, 4096, false, &watch, NULL, NULL);
    assert_true(status == SLUICE_OK || status == SLUICE_E_CANCELLED);
    if (status == SLUICE_E_CANCELLED)
        assert_ok(install(output, 4, 4096, true, NULL, NULL, err));
    assert_golden(output, "4");
    hub_wipe(output);
}

/* From a hub that states the shard's digest: a resume reads what was quantized again to prove the shard. */
static void from_a_hub(void **state)
{
    (void)state;
    char hex[SHA256_HEX_BYTES], *output = fx_path(root, "h.gturbo");
    size_t n;
    unsigned char *bytes = fx_read(fx_path(snapshot, "model.safetensors"), &n);
    assert_ok(sha256_hex(bytes, n, hex, err));
    free(bytes);
    fx_text(snapshot, "model.safetensors.sha256", hex);
    struct httpd hub = {.dir = snapshot, .commit = HUB_COMMIT, .digests = true};
    httpd_start(&hub);
    struct hub_run run = hub_run_to(output, &hub);
    run.limits.buffer_bytes = 1 << 20;
    run.limits.head_bytes = 0;
    run.install.quantize_bits = 4;
    run.range_bytes = 30000;
    for (unsigned at = 9; at < 14; at += 2) {
        struct source *source;
        const struct hub_options h = {.base_url = run.url, .repo = "owner/small", .limits = &run.limits};
        sluice_error e = {0};
        const struct install_limits limits = {.range_bytes = run.range_bytes};
        httpd_strike(&hub, HTTPD_CORRUPT, at, 1);
        assert_ok(source_open_hub(&source, &h, err));
        run.install.resume = false;
        sluice_status status = store_install_from(source, &run.install, &limits, engine_recipe_of, NULL, &e);
        source_close(source);
        assert_int_equal(atomic_load(&hub.struck), 1);
        if (status != SLUICE_E_CORRUPT)
            fx_fail("corruption of request %u: status %d, %s", at, (int)status, e.detail);
        run.install.resume = true;
        assert_ok(source_open_hub(&source, &h, err));
        assert_ok(store_install_from(source, &run.install, &limits, engine_recipe_of, NULL, err));
        source_close(source);
        assert_golden(output, "4");
        hub_wipe(output);
    }
    httpd_stop(&hub);
}

static void refuses(void **state)
{
    (void)state;
    char *output = fx_path(root, "x.gturbo");
    assert_fails(install(output, 3, 0, false, NULL, NULL, err), SLUICE_E_ARGUMENT, "4 and 8 can");
    sluice_install_options o = {.source_dir = SOURCE_DIR, .output_dir = output, .quantize_bits = 4};
    assert_fails(sluice_install(&o, NULL, err), SLUICE_E_ARGUMENT, "quantized already");
    o.source_dir = snapshot;
    o.quantize_bits = 0;
    assert_fails(sluice_install(&o, NULL, err), SLUICE_E_UNSUPPORTED, "not quantized");
    char *other = fx_snapshot();
    fx_text(other, "config.json", "{\"model_type\": \"small\"}");
    o = (sluice_install_options){.source_dir = other, .output_dir = output, .quantize_bits = 4};
    assert_fails(store_install(&o, fx_recipe, NULL, err), SLUICE_E_UNSUPPORTED,
                 "cannot be quantized at install");
    fx_drop(other);
    hub_wipe(output);
}

/* ---- Qwen, whose residents keep the published names ---- */

#define QWEN "tests/golden/quantize/qwen36"

/* Codes, scales and biases of a tensor, one after another. */
static unsigned char *resident_parts(struct gturbo *store, const char *mlx_name, size_t *n)
{
    static const char MLX[] = "language_model.", INNER[] = "model.";
    char name[256];
    const char *rest = mlx_name + sizeof MLX - 1;
    assert_int_equal(strncmp(mlx_name, MLX, sizeof MLX - 1), 0);
    bool inner = strncmp(rest, INNER, sizeof INNER - 1) == 0;
    (void)snprintf(name, sizeof name, "%s%s.weight", inner ? "model.language_model." : "",
                   inner ? rest + sizeof INNER - 1 : rest);
    const struct stored_tensor *t = gturbo_find(store, name);
    if (!t)
        fx_fail("the install has no %s", name);
    *n = (size_t)(t->bytes + t->scale_bytes + t->bias_bytes);
    unsigned char *out = malloc(*n);
    assert_non_null(out);
    assert_ok(gturbo_read_resident(store, t->offset, out, (size_t)t->bytes, err));
    assert_ok(gturbo_read_resident(store, t->scale_offset, out + t->bytes, (size_t)t->scale_bytes, err));
    assert_ok(gturbo_read_resident(store, t->bias_offset, out + t->bytes + t->scale_bytes,
                                   (size_t)t->bias_bytes, err));
    return out;
}

/* The same of a stack: codes of every expert, then their scales, then their biases. */
static unsigned char *stack_parts(const struct gturbo *store, const char *output, unsigned layer,
                                  enum expert_part_kind first, size_t *n)
{
    char file[64];
    (void)snprintf(file, sizeof file, "packed_experts/layer_%02u.bin", layer);
    size_t file_bytes;
    unsigned char *records = fx_read(fx_path(output, file), &file_bytes), *out = malloc(file_bytes);
    assert_true(out && file_bytes == store->n_experts * store->stride_bytes);
    *n = 0;
    for (int kind = (int)first; kind < (int)first + 3; kind++) {
        const struct expert_part *part = &store->layers[layer].parts[kind];
        for (uint32_t e = 0; e < store->n_experts; e++, *n += (size_t)part->bytes)
            memcpy(out + *n, records + e * store->stride_bytes + part->offset, (size_t)part->bytes);
    }
    free(records);
    return out;
}

static void assert_qwen(const char *output, const char *bits)
{
    static const char LAYERS[] = "language_model.model.layers.", STACK[] = ".mlp.switch_mlp.";
    static const struct {
        const char *name;
        enum expert_part_kind kind;
    } STACKS[] = {{"gate_proj", PART_GATE}, {"up_proj", PART_UP}, {"down_proj", PART_DOWN}};
    struct gturbo *store;
    const char *name;
    json_t *value, *all = json_load_file(QWEN ".json", 0, NULL);
    assert_true(json_object_size(json_object_get(all, bits)) > 20);
    assert_ok(gturbo_open(output, SLUICE_VERIFY_FULL, NULL, &store, err));
    json_object_foreach(json_object_get(all, bits), name, value)
    {
        char hex[SHA256_HEX_BYTES];
        size_t n = 0;
        unsigned char *bytes;
        const char *stack = strstr(name, STACK);
        if (stack) {
            const unsigned layer = (unsigned)strtoul(name + sizeof LAYERS - 1, NULL, 10);
            size_t i = 0;
            while (i < 2 && strcmp(stack + sizeof STACK - 1, STACKS[i].name) != 0)
                i++;
            bytes = stack_parts(store, output, layer, STACKS[i].kind, &n);
        } else {
            bytes = resident_parts(store, name, &n);
        }
        assert_non_null(bytes);
        assert_ok(sha256_hex(bytes, n, hex, err));
        free(bytes);
        if (strcmp(hex, json_string_value(value)) != 0)
            fx_fail("%s at %s bits is not what mlx-lm makes", name, bits);
    }
    gturbo_close(store);
    json_decref(all);
}

/* Fused expert matrices become stacks, and every matrix what mlx-lm's converter makes of it. */
static void qwen_equals_mlx(void **state)
{
    (void)state;
    char *output = fx_path(root, "qwen.gturbo");
    static const uint32_t BITS[] = {4, 8};
    for (size_t i = 0; i < 2; i++) {
        sluice_install_options o = {
            .source_dir = QWEN, .output_dir = output, .quantize_bits = BITS[i], .overwrite = true};
        sluice_plan plan;
        assert_ok(sluice_install(&o, NULL, err));
        assert_qwen(output, i ? "8" : "4");
        assert_ok(sluice_plan_install(output, NULL, &plan, err)); /* it opens as a model */
    }
    hub_wipe(output);
    sluice_install_options o = {.source_dir = QWEN, .output_dir = output};
    assert_fails(sluice_install(&o, NULL, err), SLUICE_E_UNSUPPORTED, "not quantized");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_mlx_in_any_cut),
        cmocka_unit_test(resumes),
        cmocka_unit_test(from_a_hub),
        cmocka_unit_test(refuses),
        cmocka_unit_test(qwen_equals_mlx),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
