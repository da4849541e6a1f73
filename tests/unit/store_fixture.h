/* What the store's tests share: a small synthetic checkpoint with every kind of tensor, its recipe, the demo
 * checkpoint's recipe, and comparison of directories. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "io/file.h"
#include "store/gturbo.h"
#include "store/install.h"
#include "store/safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEMO_DIR "demo/dictionary-moe"

/* cmocka does not tell compilers that a failure never comes back. */
#define fx_fail(...)                                                                                         \
    do {                                                                                                     \
        fail_msg(__VA_ARGS__);                                                                               \
        abort();                                                                                             \
    } while (0)

#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        sluice_error fx_err = {0};                                                                           \
        sluice_error *err = &fx_err;                                                                         \
        if ((call) != SLUICE_OK)                                                                             \
            fx_fail("%s: %s", #call, fx_err.detail);                                                         \
    } while (0)

/* The call fails with that status and says that. */
#define assert_fails(call, wanted, text)                                                                     \
    do {                                                                                                     \
        sluice_error fx_err = {0};                                                                           \
        sluice_error *err = &fx_err;                                                                         \
        sluice_status fx_status = (call);                                                                    \
        if (fx_status != (wanted) || !strstr(fx_err.detail, (text)))                                         \
            fx_fail("%s: status %d, \"%s\"; wanted %d and \"%s\"", #call, (int)fx_status, fx_err.detail,     \
                    (int)(wanted), (text));                                                                  \
    } while (0)

/* ---- files ---- */

/* dir/name; lives until the program ends, so that tests can pass paths on freely. */
static inline char *fx_path(const char *dir, const char *name)
{
    static struct kept {
        struct kept *next;
        char path[];
    } * all;
    size_t room = strlen(dir) + strlen(name) + 2;
    struct kept *kept = malloc(sizeof *kept + room);
    assert_non_null(kept);
    kept->next = all;
    all = kept;
    (void)snprintf(kept->path, room, "%s/%s", dir, name);
    return kept->path;
}

static inline void fx_write(const char *dir, const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(fx_path(dir, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void fx_text(const char *dir, const char *name, const char *text)
{
    fx_write(dir, name, text, strlen(text));
}

static inline unsigned char *fx_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fx_fail("cannot open %s", path);
    (void)fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    unsigned char *bytes = malloc(*n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    bytes[*n] = '\0';
    (void)fclose(f);
    return bytes;
}

/* Flip one bit, keeping the size and, on request, the modification time. */
static inline void fx_flip(const char *path, off_t at, bool keep_time)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;
    struct stat st;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (keep_time)
        assert_int_equal(futimens(fd, times), 0);
    (void)close(fd);
}

/* Sanitizers, valgrind and emulators run some tests at a fraction of their size. */
static inline unsigned long scaled(unsigned long full, unsigned long brief)
{
    return getenv("SLUICE_TEST_SHORT") ? brief : full;
}

static inline char *fx_temp_in(const char *parent)
{
    char *dir = strdup(fx_path(parent, "sluice-store-XXXXXX"));
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    return dir;
}

static inline char *fx_temp(void)
{
    return fx_temp_in("/tmp");
}

/* In memory where there is room: for tests that install thousands of times, on a disk minutes of syncing. */
static inline char *fx_temp_fast(void)
{
    struct statvfs fs;
    bool roomy = statvfs("/dev/shm", &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize > 512u << 20;
    return fx_temp_in(roomy && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static inline void fx_drop(char *dir)
{
    assert_int_equal(file_remove_tree(dir, NULL), SLUICE_OK);
    free(dir);
}

/* Every regular file of `a` is in `b` with the same bytes, the receipt apart: it holds times and paths. */
static inline size_t fx_subset(const char *a, const char *b)
{
    size_t files = 0;
    DIR *dir = opendir(a);
    if (!dir)
        fx_fail("cannot list %s", a);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        char x[PATH_MAX], y[PATH_MAX];
        (void)snprintf(x, sizeof x, "%s/%s", a, entry->d_name);
        (void)snprintf(y, sizeof y, "%s/%s", b, entry->d_name);
        struct stat st;
        assert_int_equal(lstat(x, &st), 0);
        if (S_ISDIR(st.st_mode)) {
            files += fx_subset(x, y);
            continue;
        }
        files++;
        if (strcmp(entry->d_name, "verified-install.json") == 0) {
            assert_int_equal(access(y, R_OK), 0);
            continue;
        }
        size_t n, m;
        unsigned char *p = fx_read(x, &n), *q = fx_read(y, &m);
        if (n != m || memcmp(p, q, n) != 0)
            fx_fail("%s and %s differ", x, y);
        free(p);
        free(q);
    }
    (void)closedir(dir);
    return files;
}

static inline void fx_assert_same_dir(const char *a, const char *b)
{
    size_t n = fx_subset(a, b);
    assert_true(n > 0);
    assert_int_equal(n, fx_subset(b, a));
}

/* No trace of an unfinished install beside `output`. */
static inline void fx_assert_clean(const char *output)
{
    static const char *const SUFFIXES[] = {".partial", ".resume.json", ".resume.json.tmp", ".install.lock"};
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s%s", output, SUFFIXES[i]);
        if (access(path, F_OK) == 0)
            fx_fail("%s is left over", path);
    }
}

/* ---- writing safetensors ---- */

struct fx_tensor {
    const char *name, *dtype;
    uint32_t n_dims, shape[3];
};

static inline size_t fx_tensor_bytes(const struct fx_tensor *t)
{
    bool half = strcmp(t->dtype, "BF16") == 0 || strcmp(t->dtype, "F16") == 0;
    size_t n = half ? 2 : strcmp(t->dtype, "I64") == 0 ? 8 : 4;
    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

/* Payload that differs between tensors and positions, so that a misplaced byte shows. */
static inline void fx_fill(const char *name, unsigned char *p, size_t n)
{
    uint64_t x = 1469598103934665603u;
    for (const char *c = name; *c; c++)
        x = (x ^ (unsigned char)*c) * 1099511628211u;
    for (size_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        p[i] = (unsigned char)(x >> 56);
    }
}

static inline void fx_safetensors(const char *dir, const char *file, const struct fx_tensor *tensors,
                                  size_t n)
{
    char *header = calloc(1, 256 * n + 64);
    assert_non_null(header);
    size_t data = 0, used = (size_t)sprintf(header, "{\"__metadata__\":{\"format\":\"test\"}");
    for (size_t i = 0; i < n; i++) {
        const struct fx_tensor *t = &tensors[i];
        used += (size_t)sprintf(header + used, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (uint32_t k = 0; k < t->n_dims; k++)
            used += (size_t)sprintf(header + used, "%s%u", k ? "," : "", t->shape[k]);
        used +=
            (size_t)sprintf(header + used, "],\"data_offsets\":[%zu,%zu]}", data, data + fx_tensor_bytes(t));
        data += fx_tensor_bytes(t);
    }
    used += (size_t)sprintf(header + used, "}");
    unsigned char *bytes = calloc(1, 8 + used + data);
    if (!header || !bytes)
        abort();
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)used >> (8 * i));
    memcpy(bytes + 8, header, used);
    unsigned char *p = bytes + 8 + used;
    for (size_t i = 0; i < n; i++) {
        fx_fill(tensors[i].name, p, fx_tensor_bytes(&tensors[i]));
        p += fx_tensor_bytes(&tensors[i]);
    }
    fx_write(dir, file, bytes, 8 + used + data);
    free(bytes);
    free(header);
}

/* ---- the small model: three layers, the first dense, the last with narrower experts ---- */

enum { FX_LAYERS = 3, FX_EXPERTS = 5 };

static const struct fx_tensor FX_FIRST_SHARD[] = {
    {"m.embed.weight", "U32", 2, {96, 8}},
    {"m.embed.scales", "BF16", 2, {96, 1}},
    {"m.embed.biases", "BF16", 2, {96, 1}},
    {"m.vision_tower.patch", "F32", 1, {32768}},
    {"m.layers.0.norm.weight", "BF16", 1, {64}},
    {"m.layers.0.ids", "I32", 2, {3, 5}},
    {"m.layers.1.experts.gate.weight", "U32", 3, {FX_EXPERTS, 64, 8}},
    {"m.layers.1.experts.gate.scales", "BF16", 3, {FX_EXPERTS, 64, 2}},
    {"m.layers.1.experts.gate.biases", "BF16", 3, {FX_EXPERTS, 64, 2}},
    {"m.layers.1.experts.up.weight", "U32", 3, {FX_EXPERTS, 64, 8}},
    {"m.layers.1.experts.up.scales", "BF16", 3, {FX_EXPERTS, 64, 2}},
};

static const struct fx_tensor FX_SECOND_SHARD[] = {
    {"m.layers.1.experts.up.biases", "BF16", 3, {FX_EXPERTS, 64, 2}},
    {"m.layers.1.experts.down.weight", "U32", 3, {FX_EXPERTS, 64, 64}},
    {"m.layers.1.experts.down.scales", "BF16", 3, {FX_EXPERTS, 64, 4}},
    {"m.layers.1.experts.down.biases", "BF16", 3, {FX_EXPERTS, 64, 4}},
    {"m.layers.1.scale", "F32", 1, {1}},
    {"m.layers.2.table", "I64", 1, {7}},
    {"m.layers.2.experts.gate.weight", "U32", 3, {FX_EXPERTS, 64, 4}},
    {"m.layers.2.experts.gate.scales", "BF16", 3, {FX_EXPERTS, 64, 2}},
    {"m.layers.2.experts.gate.biases", "BF16", 3, {FX_EXPERTS, 64, 2}},
    {"m.layers.2.experts.up.weight", "U32", 3, {FX_EXPERTS, 64, 8}},
    {"m.layers.2.experts.up.scales", "BF16", 3, {FX_EXPERTS, 64, 1}},
    {"m.layers.2.experts.up.biases", "BF16", 3, {FX_EXPERTS, 64, 1}},
    {"m.layers.2.experts.down.weight", "U32", 3, {FX_EXPERTS, 64, 8}},
    {"m.layers.2.experts.down.scales", "BF16", 3, {FX_EXPERTS, 64, 1}},
    {"m.layers.2.experts.down.biases", "BF16", 3, {FX_EXPERTS, 64, 1}},
    {"m.norm.weight", "F16", 1, {64}},
};

enum {
    FX_FIRST = sizeof FX_FIRST_SHARD / sizeof *FX_FIRST_SHARD,
    FX_SECOND = sizeof FX_SECOND_SHARD / sizeof *FX_SECOND_SHARD,
};

static const struct tensor_spec FX_SPECS[] = {
    {"m.embed.weight", ROLE_RESIDENT, DTYPE_AFFINE, 4, false, 64, -1, 2, {96, 64}},
    {"m.layers.0.norm.weight", ROLE_RESIDENT, DTYPE_BF16, 0, false, 0, 0, 1, {64}},
    {"m.layers.0.ids", ROLE_RESIDENT, DTYPE_I32, 0, false, 0, 0, 2, {3, 5}},
    {"m.layers.1.scale", ROLE_RESIDENT, DTYPE_F32, 0, false, 0, 1, 1, {1}},
    {"m.layers.2.table", ROLE_RESIDENT, DTYPE_I64, 0, false, 0, 2, 1, {7}},
    {"m.norm.weight", ROLE_RESIDENT, DTYPE_F16, 0, false, 0, -1, 1, {64}},
    {"m.layers.1.experts.gate.weight",
     ROLE_EXPERT_GATE,
     DTYPE_AFFINE,
     4,
     false,
     32,
     1,
     3,
     {FX_EXPERTS, 64, 64}},
    {"m.layers.1.experts.up.weight", ROLE_EXPERT_UP, DTYPE_AFFINE, 4, false, 32, 1, 3, {FX_EXPERTS, 64, 64}},
    {"m.layers.1.experts.down.weight",
     ROLE_EXPERT_DOWN,
     DTYPE_AFFINE,
     8,
     false,
     64,
     1,
     3,
     {FX_EXPERTS, 64, 256}},
    {"m.layers.2.experts.gate.weight",
     ROLE_EXPERT_GATE,
     DTYPE_AFFINE,
     2,
     false,
     32,
     2,
     3,
     {FX_EXPERTS, 64, 64}},
    {"m.layers.2.experts.up.weight", ROLE_EXPERT_UP, DTYPE_AFFINE, 4, false, 64, 2, 3, {FX_EXPERTS, 64, 64}},
    {"m.layers.2.experts.down.weight",
     ROLE_EXPERT_DOWN,
     DTYPE_AFFINE,
     4,
     false,
     64,
     2,
     3,
     {FX_EXPERTS, 64, 64}},
};

enum { FX_N_SPECS = sizeof FX_SPECS / sizeof *FX_SPECS };

static inline sluice_status fx_finish_recipe(struct recipe *r, const char *family, sluice_error *err)
{
    static const char *const SKIP[] = {"vision_tower.", NULL};
    r->family = family;
    r->skip = SKIP;
    r->arch =
        json_pack("{s:s, s:i, s:f}", "family", family, "numLayers", (int)r->n_layers, "ropeTheta", 10000.0);
    r->quant = json_pack("{s:{s:i, s:s, s:s, s:s, s:i}}", "embedding", "weightBits", 4, "scheme", "affine",
                         "scaleType", "BF16", "biasType", "BF16", "groupSize", 64);
    if (r->specs && r->arch && r->quant)
        return SLUICE_OK;
    recipe_free(r);
    return err_memory(err, 0, "a recipe");
}

static inline sluice_status fx_recipe(const json_t *config, bool (*has)(void *, const char *), void *names,
                                      struct recipe *r, sluice_error *err)
{
    const char *type;
    (void)has;
    (void)names;
    *r = (struct recipe){0};
    TRY(json_need_string(config, "model_type", &type, "config.json", err));
    if (strcmp(type, "small") != 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, "config.json: the model type \"%s\" is unknown", type);
    r->n_layers = FX_LAYERS;
    r->n_experts = FX_EXPERTS;
    r->n_specs = FX_N_SPECS;
    r->specs = mem_alloc(sizeof FX_SPECS);
    if (r->specs)
        memcpy(r->specs, FX_SPECS, sizeof FX_SPECS);
    return fx_finish_recipe(r, "small", err);
}

static inline void fx_index(const char *dir)
{
    char text[8192];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"weight_map\": {");
    for (size_t i = 0; i < FX_FIRST + FX_SECOND; i++) {
        bool first = i < FX_FIRST;
        const struct fx_tensor *t = first ? &FX_FIRST_SHARD[i] : &FX_SECOND_SHARD[i - FX_FIRST];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": \"%s.safetensors\"",
                                 i ? ", " : "", t->name, first ? "one" : "two");
    }
    (void)snprintf(text + used, sizeof text - used, "}}");
    fx_text(dir, ST_INDEX_NAME, text);
}

/* A snapshot of the small model in two shards. */
static inline char *fx_snapshot(void)
{
    char *dir = fx_temp();
    fx_safetensors(dir, "one.safetensors", FX_FIRST_SHARD, FX_FIRST);
    fx_safetensors(dir, "two.safetensors", FX_SECOND_SHARD, FX_SECOND);
    fx_index(dir);
    fx_text(dir, "config.json",
            "{\"model_type\": \"small\", \"quantization\": {\"bits\": 4, \"a\": {\"bits\": 8}, \"b\": {}}}");
    fx_text(dir, "tokenizer.json", "{\"model\": {}}");
    fx_text(dir, "tokenizer_config.json", "{}");
    fx_text(dir, "chat_template.jinja", "{{ bos_token }}");
    fx_text(dir, "README.md", "not part of an install");
    return dir;
}

/* ---- the demo's recipe ---- */

static inline void fx_spec(struct recipe *r, int32_t layer, const char *name, enum tensor_role role,
                           enum dtype dtype, uint8_t bits, uint32_t n_dims, uint32_t a, uint32_t b,
                           uint32_t c)
{
    struct tensor_spec *spec = &r->specs[r->n_specs++];
    *spec = (struct tensor_spec){
        .role = role, .dtype = dtype, .layer = layer, .n_dims = n_dims, .shape = {a, b, c}};
    if (dtype == DTYPE_AFFINE) {
        spec->bits = bits;
        spec->group_size = 64;
    }
    if (layer < 0)
        (void)snprintf(spec->name, sizeof spec->name, "language_model.model.%s", name);
    else
        (void)snprintf(spec->name, sizeof spec->name, "language_model.model.layers.%d.%s", layer, name);
}

static inline void fx_matrix(struct recipe *r, int32_t layer, const char *name, uint8_t bits, uint32_t rows,
                             uint32_t cols)
{
    fx_spec(r, layer, name, ROLE_RESIDENT, DTYPE_AFFINE, bits, 2, rows, cols, 0);
}

static inline void fx_vector(struct recipe *r, int32_t layer, const char *name, uint32_t n)
{
    fx_spec(r, layer, name, ROLE_RESIDENT, DTYPE_BF16, 0, 1, n, 0, 0);
}

static inline void fx_demo_layer(struct recipe *r, int32_t l)
{
    static const char *const NORMS[] = {
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        "pre_feedforward_layernorm.weight",
        "pre_feedforward_layernorm_2.weight",
        "post_feedforward_layernorm.weight",
        "post_feedforward_layernorm_1.weight",
        "post_feedforward_layernorm_2.weight",
    };
    bool full = l % 4 == 3;
    uint32_t head = full ? 128 : 64, kv = 128;
    fx_matrix(r, l, "self_attn.q_proj.weight", 4, 4 * head, 256);
    fx_matrix(r, l, "self_attn.k_proj.weight", 4, kv, 256);
    if (!full)
        fx_matrix(r, l, "self_attn.v_proj.weight", 4, kv, 256);
    fx_matrix(r, l, "self_attn.o_proj.weight", 4, 256, 4 * head);
    fx_vector(r, l, "self_attn.q_norm.weight", head);
    fx_vector(r, l, "self_attn.k_norm.weight", head);
    fx_matrix(r, l, "router.proj.weight", 8, 64, 256);
    fx_vector(r, l, "router.scale", 256);
    fx_vector(r, l, "router.per_expert_scale", 64);
    fx_matrix(r, l, "mlp.gate_proj.weight", 4, 512, 256);
    fx_matrix(r, l, "mlp.up_proj.weight", 4, 512, 256);
    fx_matrix(r, l, "mlp.down_proj.weight", 4, 256, 512);
    for (size_t i = 0; i < sizeof NORMS / sizeof *NORMS; i++)
        fx_vector(r, l, NORMS[i], 256);
    fx_vector(r, l, "layer_scalar", 1);
}

static inline sluice_status fx_demo_recipe(const json_t *config, bool (*has)(void *, const char *),
                                           void *names, struct recipe *r, sluice_error *err)
{
    (void)config;
    (void)has;
    (void)names;
    *r = (struct recipe){.n_layers = 8, .n_experts = 64};
    r->specs = mem_calloc(256, sizeof *r->specs);
    if (!r->specs)
        return err_memory(err, 0, "a recipe");
    fx_matrix(r, -1, "embed_tokens.weight", 4, 8192, 256);
    for (int32_t l = 0; l < 8; l++)
        fx_demo_layer(r, l);
    fx_vector(r, -1, "norm.weight", 256);
    for (int32_t l = 0; l < 8; l++) {
        fx_spec(r, l, "experts.switch_glu.gate_proj.weight", ROLE_EXPERT_GATE, DTYPE_AFFINE, 4, 3, 64, 64,
                256);
        fx_spec(r, l, "experts.switch_glu.up_proj.weight", ROLE_EXPERT_UP, DTYPE_AFFINE, 4, 3, 64, 64, 256);
        fx_spec(r, l, "experts.switch_glu.down_proj.weight", ROLE_EXPERT_DOWN, DTYPE_AFFINE, 4, 3, 64, 256,
                64);
    }
    return fx_finish_recipe(r, "demo", err);
}

/* ---- installing ---- */

/* Small ranges, so that even the small model has more than a hundred. */
enum { FX_RANGE_BYTES = 2048 };

static inline sluice_status fx_install_ranges(const sluice_install_options *options, uint64_t range_bytes,
                                              sluice_install_report *report, sluice_error *err)
{
    struct source *source;
    TRY(source_open_dir(&source, options->source_dir, err));
    sluice_status status = store_install_from(
        source, options, &(struct install_limits){.range_bytes = range_bytes}, fx_recipe, report, err);
    source_close(source);
    return status;
}

static inline sluice_status fx_install_with(const sluice_install_options *options,
                                            sluice_install_report *report, sluice_error *err)
{
    return fx_install_ranges(options, FX_RANGE_BYTES, report, err);
}

static inline sluice_status fx_install(const char *snapshot, const char *output, sluice_error *err)
{
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output};
    return fx_install_with(&o, NULL, err);
}

static inline sluice_status fx_resume(const char *snapshot, const char *output, sluice_error *err)
{
    sluice_install_options o = {.source_dir = snapshot, .output_dir = output, .resume = true};
    return fx_install_with(&o, NULL, err);
}

/* ---- processes ---- */

/* True when the child was killed; failing by itself fails the test. */
static inline bool fx_killed(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return false;
}

#endif
