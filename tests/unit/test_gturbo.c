/* Opening installs: verification modes, receipts that survive moves and notice edits, and every kind of
 * damage. */
#include "store_fixture.h"

#include "store/manifest.h"

#include <pthread.h>
#include <sys/time.h>

static char *snapshot, *root, *install;

static int set_up(void **state)
{
    (void)state;
    snapshot = fx_snapshot();
    root = fx_temp_fast();
    install = fx_path(root, "small.gturbo");
    assert_ok(fx_install(snapshot, install, err));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fx_drop(snapshot);
    fx_drop(root);
    return 0;
}

static void opens(const char *dir, sluice_verification verification)
{
    struct gturbo *store;
    assert_ok(gturbo_open(dir, verification, NULL, &store, err));
    gturbo_close(store);
}

static void refuses(const char *dir, sluice_verification verification, sluice_status status, const char *text)
{
    struct gturbo *store = NULL;
    assert_fails(gturbo_open(dir, verification, NULL, &store, err), status, text);
    assert_null(store);
}

/* Replace `from`, which must be there, by `to` in a file of the install. */
static void edit(const char *name, const char *from, const char *to)
{
    size_t n;
    char *text = (char *)fx_read(fx_path(install, name), &n), *at = strstr(text, from);
    if (!at)
        fx_fail("%s does not contain %s", name, from);
    size_t room = n + strlen(to) + 1;
    char *changed = malloc(room);
    if (!changed)
        abort();
    (void)snprintf(changed, room, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fx_text(install, name, changed);
    free(text);
    free(changed);
}

/* Make the manifest fit files that a test changed, so that the parsers behind it are reached. */
static void bless(const char *name)
{
    size_t n;
    char hex[SHA256_HEX_BYTES];
    unsigned char *bytes = fx_read(fx_path(install, name), &n);
    assert_ok(sha256_hex(bytes, n, hex, err));
    free(bytes);
    json_t *manifest = json_load_file(fx_path(install, MANIFEST_NAME), 0, NULL);
    json_t *entry = json_object_get(json_object_get(manifest, "files"), name);
    assert_non_null(entry);
    assert_int_equal(json_object_set_new(entry, "size", json_integer((json_int_t)n)), 0);
    assert_int_equal(json_object_set_new(entry, "sha256", json_string(hex)), 0);
    assert_int_equal(json_dump_file(manifest, fx_path(install, MANIFEST_NAME), 0), 0);
    json_decref(manifest);
}

static void all_modes_open(void **state)
{
    (void)state;
    struct gturbo *store;
    opens(install, SLUICE_VERIFY_FULL);
    opens(install, SLUICE_VERIFY_RECEIPT);
    assert_ok(gturbo_open_headers(install, &store, err));
    assert_int_equal(store->n_layers, FX_LAYERS);
    assert_int_equal(store->resident_offset % 16384, 0);
    assert_false(store->layers[0].present);
    assert_true(store->layers[1].present);
    const struct expert_part *p = store->layers[2].parts;
    assert_int_equal(p[PART_GATE].bits, 2);
    assert_int_equal(p[PART_GATE].group_size, 32);
    assert_int_equal(p[PART_UP].bits, 4);
    assert_int_equal(p[PART_UP].group_size, 64);
    assert_int_equal(p[PART_UP_SCALES].cols, 1);
    assert_null(gturbo_find(store, "m.layers.0.norm"));
    gturbo_close(store);
    gturbo_close(NULL);
}

static void reads_are_bounded(void **state)
{
    (void)state;
    struct gturbo *store;
    char byte[8];
    int fd;
    assert_ok(gturbo_open_headers(install, &store, err));
    uint64_t end = store->resident_offset + store->resident_bytes;
    assert_ok(gturbo_read_resident(store, end - 8, byte, 8, err));
    assert_fails(gturbo_read_resident(store, end - 7, byte, 8, err), SLUICE_E_ARGUMENT,
                 "outside the payload");
    assert_fails(gturbo_read_resident(store, 0, byte, 8, err), SLUICE_E_ARGUMENT, "outside the payload");
    assert_fails(gturbo_read_resident(store, UINT64_MAX, byte, 8, err), SLUICE_E_ARGUMENT, "outside");
    assert_fails(gturbo_layer_fd(store, 0, &fd, err), SLUICE_E_ARGUMENT, "layer 0 has no experts");
    assert_fails(gturbo_layer_fd(store, FX_LAYERS, &fd, err), SLUICE_E_ARGUMENT, "has no experts");
    gturbo_close(store);
}

static void texts_are_checked(void **state)
{
    (void)state;
    struct gturbo *store;
    char *text;
    size_t n;
    assert_ok(gturbo_open(install, SLUICE_VERIFY_FULL, NULL, &store, err));
    assert_true(gturbo_has_file(store, "tokenizer/chat_template.jinja"));
    assert_false(gturbo_has_file(store, "tokenizer/special_tokens_map.json"));
    assert_ok(gturbo_load_text(store, "tokenizer/chat_template.jinja", 1000, &text, &n, err));
    assert_string_equal(text, "{{ bos_token }}");
    assert_int_equal(n, strlen(text));
    mem_free(text);
    assert_fails(gturbo_load_text(store, "tokenizer/chat_template.jinja", 3, &text, &n, err), SLUICE_E_FORMAT,
                 "at most 3 are accepted");
    assert_fails(gturbo_load_text(store, "../secret", 1000, &text, &n, err), SLUICE_E_IO,
                 "has no file ../secret");
    fx_flip(fx_path(install, "tokenizer/chat_template.jinja"), 0, true); /* after it was hashed at open */
    assert_fails(gturbo_load_text(store, "tokenizer/chat_template.jinja", 1000, &text, &n, err),
                 SLUICE_E_CORRUPT, "chat_template.jinja");
    assert_null(text);
    gturbo_close(store);
}

/* ---- damage ---- */

static void damage_is_found(void **state)
{
    (void)state;
    static const char *const COMMON[] = {RESIDENT_NAME, LAYOUT_NAME, "tokenizer/config.json"};
    for (size_t i = 0; i < sizeof COMMON / sizeof *COMMON; i++) {
        fx_flip(fx_path(install, COMMON[i]), 9, true);
        refuses(install, SLUICE_VERIFY_FULL, SLUICE_E_CORRUPT, COMMON[i]);
        assert_fails(sluice_verify(install, NULL, NULL, err), SLUICE_E_CORRUPT, COMMON[i]);
        fx_flip(fx_path(install, COMMON[i]), 9, true);
    }
    opens(install, SLUICE_VERIFY_FULL);
    /* an expert file is hashed at its first use, and each time until it is right */
    struct gturbo *store;
    int fd;
    char *layer = fx_path(install, "packed_experts/layer_02.bin");
    fx_flip(layer, 70000, true);
    assert_fails(sluice_verify(install, NULL, NULL, err), SLUICE_E_CORRUPT, "layer_02.bin is damaged");
    assert_ok(gturbo_open(install, SLUICE_VERIFY_FULL, NULL, &store, err));
    assert_ok(gturbo_layer_fd(store, 1, &fd, err));
    assert_fails(gturbo_layer_fd(store, 2, &fd, err), SLUICE_E_CORRUPT, "layer_02.bin is damaged");
    assert_int_equal(fd, -1);
    assert_fails(gturbo_layer_fd(store, 2, &fd, err), SLUICE_E_CORRUPT, "layer_02.bin is damaged");
    fx_flip(layer, 70000, true);
    assert_ok(gturbo_layer_fd(store, 2, &fd, err));
    gturbo_close(store);
}

static void missing_and_short_files_are_found(void **state)
{
    (void)state;
    static const sluice_verification MODES[] = {SLUICE_VERIFY_FULL, SLUICE_VERIFY_RECEIPT};
    char *layer = fx_path(install, "packed_experts/layer_01.bin"), *aside = fx_path(root, "aside");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rename(layer, aside), 0);
        refuses(install, MODES[i], SLUICE_E_IO, "layer_01.bin is missing from the install");
        assert_int_equal(mkdir(layer, 0777), 0);
        refuses(install, MODES[i], SLUICE_E_FORMAT, "is not a regular file");
        assert_int_equal(rmdir(layer), 0);
        assert_int_equal(rename(aside, layer), 0);
    }
    assert_int_equal(truncate(layer, 100), 0);
    for (int i = 0; i < 2; i++)
        refuses(install, MODES[i], SLUICE_E_CORRUPT, "layer_01.bin has 100 bytes, the manifest says 163840");
    assert_int_equal(unlink(fx_path(install, MANIFEST_NAME)), 0);
    refuses(install, SLUICE_VERIFY_FULL, SLUICE_E_FORMAT, "has no manifest.json: it is not a complete");
    assert_fails(sluice_verify(install, NULL, NULL, err), SLUICE_E_FORMAT, "has no manifest.json");
}

static void manifest_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
        sluice_status status;
    } CASES[] = {
        {"\"GTURBO\"", "\"gturbo\"", "is not one of a .gturbo install", SLUICE_E_FORMAT},
        {"\"versionMajor\": 1", "\"versionMajor\": 2", "format version 2.0", SLUICE_E_UNSUPPORTED},
        {"\"turboQuantKV\"", "\"lowBitExperts\"", "the flag \"lowBitExperts\" is unknown",
         SLUICE_E_UNSUPPORTED},
        {"\"turboQuantKV\": false", "\"turboQuantKV\": true", "\"turboQuantKV\" is set",
         SLUICE_E_UNSUPPORTED},
        {"\"streamingPresent\": true", "\"streamingPresent\": 1", "must be true or false", SLUICE_E_FORMAT},
        {"\"expertStride\": 32768", "\"expertStride\": 32767", "multiple of 16384", SLUICE_E_FORMAT},
        {"\"expertStride\": 32768", "\"expertStride\": 49152", "at 32768 bytes, manifest.json says",
         SLUICE_E_FORMAT},
        {"\"expertsPerLayer\": 5", "\"expertsPerLayer\": 6", "3 layers of 5 experts", SLUICE_E_FORMAT},
        {"\"numLayers\": 3,\n  \"quant", "\"numLayers\": 4,\n  \"quant", "says 3 layers", SLUICE_E_FORMAT},
        {"\"tokenizer/config.json\"", "\"../config.json\"", "leaves the install", SLUICE_E_FORMAT},
        {"\"tokenizer/config.json\"", "\"/etc/passwd\"", "leaves the install", SLUICE_E_FORMAT},
        {"\"model_weights.bin\"", "\"model_weight.bin\"", "does not list model_weights.bin", SLUICE_E_FORMAT},
        {"\"packed_experts/layer_01.bin\"", "\"packed_experts/layer_1.bin\"", "missing from the install",
         SLUICE_E_IO},
        {"\"sha256\": \"", "\"sha256\": \"z", "64 hexadecimal digits", SLUICE_E_FORMAT},
        {"\"modelID\"", "\"model\"", "has no \"modelID\"", SLUICE_E_FORMAT},
        {"\"arch\"", "\"architecture\"", "has no \"arch\"", SLUICE_E_FORMAT},
        {"{", "[", "not valid JSON", SLUICE_E_FORMAT},
    };
    size_t n;
    unsigned char *whole = fx_read(fx_path(install, MANIFEST_NAME), &n);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        edit(MANIFEST_NAME, CASES[i].from, CASES[i].to);
        refuses(install, SLUICE_VERIFY_FULL, CASES[i].status, CASES[i].says);
        fx_write(install, MANIFEST_NAME, whole, n);
    }
    edit(MANIFEST_NAME, "\"versionMinor\": 0",
         "\"versionMinor\": 7"); /* minor versions add, they do not change */
    opens(install, SLUICE_VERIFY_FULL);
    free(whole);
}

static void layout_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } CASES[] = {
        {"\"layers\"", "\"strata\"", "no list \"layers\""},
        {"\"expertStride\": 32768", "\"expertStride\": 16384", "with a stride of 16384"},
        {"\"expertsPerLayer\": 5", "\"expertsPerLayer\": 4", "lists 5 experts of 4"},
        {"\"numLayers\": 3", "\"numLayers\": 2", "more layers are listed"},
        {"\"numLayers\": 3", "\"numLayers\": 4", "3 layers are listed, \"numLayers\" says 4"},
        {"\"numLayers\": 3", "\"numLayers\": 3, \"layers\": []", "duplicate"},
        {"{\"layer\": 1", "{\"layer\": 2", "layer 2 is listed where layer 1 belongs"},
        {"layer_01.bin", "../layer_01.bin", "leaves packed_experts"},
        {"layer_01.bin", "layer_09.bin", "does not list packed_experts/layer_09.bin"},
        {"\"expert\": 1,", "\"expert\": 0,", "expert 0 is listed twice"},
        {"\"expert\": 1,", "\"expert\": 5,", "it must be from 0 to 4"},
        {"\"expert\": 1, \"offset\": 32768", "\"expert\": 1, \"offset\": 0", "it must start at 32768"},
        {"\"up\": {\"offset\": 2560", "\"up\": {\"offset\": 2561", "even offsets"},
        {"\"up\": {\"offset\": 2560", "\"up\": {\"offset\": 32768", "even offsets"},
        {"\"up\": {\"offset\": 2560", "\"up\": {\"offset\": 2558", "overlap"},
        {"\"dtype\": \"U32\"", "\"dtype\": \"F16\"", "has the type F16"},
        {"\"shape\": [64, 64]", "\"shape\": [64, 60]", "not 64 x 60 values"},
        {"\"shape\": [64, 64]", "\"shape\": [64]", "must be [rows, columns]"},
        {"\"shape\": [64, 2]", "\"shape\": [64, 64]", "in groups of 32, 64 or 128"},
        {"\"shape\": [64, 2]", "\"shape\": [32, 2]", "do not fit its shape"},
        {"\"bits\": 4", "\"bits\": 8", "as recorded"},
        {"\"gate_scales\"", "\"gate_scale\"", "has no \"gate_scales\""},
        {"]},\n    {\"layer\": 1", "]}\n    {\"layer\": 1", "comma is missing"},
        {"\n  ]\n}", "\n", "ends early"},
    };
    size_t n, m;
    unsigned char *layout = fx_read(fx_path(install, LAYOUT_NAME), &n);
    unsigned char *manifest = fx_read(fx_path(install, MANIFEST_NAME), &m);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        edit(LAYOUT_NAME, CASES[i].from, CASES[i].to);
        bless(LAYOUT_NAME);
        struct gturbo *store;
        sluice_error e = {0};
        assert_int_not_equal(gturbo_open(install, SLUICE_VERIFY_FULL, NULL, &store, &e), SLUICE_OK);
        if (!strstr(e.detail, CASES[i].says))
            fx_fail("case %zu: \"%s\" lacks \"%s\"", i, e.detail, CASES[i].says);
        fx_write(install, LAYOUT_NAME, layout, n);
        fx_write(install, MANIFEST_NAME, manifest, m);
    }
    /* experts in another order, and bits left out, are allowed */
    edit(LAYOUT_NAME, "\"expert\": 0, \"offset\": 0, ", "\"expert\": 9, \"offset\": 9, ");
    edit(LAYOUT_NAME, "\"expert\": 1, \"offset\": 32768, ", "\"expert\": 0, \"offset\": 0, ");
    edit(LAYOUT_NAME, "\"expert\": 9, \"offset\": 9, ", "\"expert\": 1, \"offset\": 32768, ");
    edit(LAYOUT_NAME, ", \"bits\": 4", "");
    bless(LAYOUT_NAME);
    opens(install, SLUICE_VERIFY_FULL);
    free(layout);
    free(manifest);
}

/* Poke a little-endian field of the index. Entry 0 is the embedding, 96 x 64 at 4 bits. */
static void index_is_checked(void **state)
{
    (void)state;
    static const struct {
        off_t at;
        int bytes;
        uint64_t value;
        const char *says;
    } CASES[] = {
        {0, 8, 23, "the index claims 23 bytes"},
        {0, 8, (1u << 20) + 1, "the index claims 1048577 bytes"},
        {0, 8, UINT64_MAX, "the index claims"},
        {8, 8, UINT64_MAX, "the file has"},
        {8, 8, 4, "the index says 16384 + 4 bytes"},
        {16, 8, 1000000, "1000000 entries do not fit"},
        {16, 8, UINT64_MAX, "entries do not fit"},
        {24, 4, 16384, "inside the index"},
        {24, 4, 3, "inside the index"},
        {28, 2, 0, "1 to 1024 bytes"},
        {28, 2, 1025, "1 to 1024 bytes"},
        {30, 1, 6, "the unknown type 6"},
        {30, 1, DTYPE_BF16, "is not quantized but has scales"},
        {32, 8, 0, "the payload is 16384 to"},
        {32, 8, 16385, "at even offsets"},
        {32, 8, UINT64_MAX - 1, "the payload is"},
        {40, 8, UINT64_MAX, "claims"},
        {40, 8, 3070, "fit no 2, 4 or 8 bits"},
        {48, 4, 95, "fit no 2, 4 or 8 bits"},
        {48, 4, 0, "fit no 2, 4 or 8 bits"},
        {64, 8, 16384, "overlap"},
        {72, 8, 190, "fit no 2, 4 or 8 bits"},
        {96 + 8, 8, 16384, "overlap"},
        {96 + 16, 8, 130, "do not fit its shape"},
    };
    size_t n, m;
    unsigned char *whole = fx_read(fx_path(install, RESIDENT_NAME), &n);
    unsigned char *manifest = fx_read(fx_path(install, MANIFEST_NAME), &m);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        unsigned char *changed = malloc(n);
        memcpy(changed, whole, n);
        for (int k = 0; k < CASES[i].bytes; k++)
            changed[CASES[i].at + k] = (unsigned char)(CASES[i].value >> (8 * k));
        fx_write(install, RESIDENT_NAME, changed, n);
        free(changed);
        bless(RESIDENT_NAME);
        struct gturbo *store;
        sluice_error e = {0};
        assert_int_not_equal(gturbo_open(install, SLUICE_VERIFY_FULL, NULL, &store, &e), SLUICE_OK);
        if (!strstr(e.detail, CASES[i].says))
            fx_fail("case %zu: \"%s\" lacks \"%s\"", i, e.detail, CASES[i].says);
    }
    /* two entries of one name: the second entry's name is the first's */
    unsigned char *changed = malloc(n);
    memcpy(changed, whole, n);
    memcpy(changed + 96, whole + 24, 6);
    fx_write(install, RESIDENT_NAME, changed, n);
    bless(RESIDENT_NAME);
    refuses(install, SLUICE_VERIFY_FULL, SLUICE_E_FORMAT, "duplicate tensor m.embed.weight");
    free(changed);
    fx_write(install, RESIDENT_NAME, whole, n);
    fx_write(install, MANIFEST_NAME, manifest, m);
    opens(install, SLUICE_VERIFY_FULL);
    free(whole);
    free(manifest);
}

/* ---- receipts ---- */

static void receipt_survives_moving(void **state)
{
    (void)state;
    char *moved = fx_path(root, "elsewhere.gturbo");
    assert_int_equal(rename(install, moved), 0);
    opens(moved, SLUICE_VERIFY_RECEIPT);
    /* cp -a, as mv does between file systems: other inodes, the same times */
    char command[3 * PATH_MAX], *copied = fx_path(root, "copied.gturbo");
    (void)snprintf(command, sizeof command, "cp -a %s %s", moved, copied);
    assert_int_equal(system(command), 0);
    opens(copied, SLUICE_VERIFY_RECEIPT);
    (void)snprintf(command, sizeof command, "cp -r %s %s", moved, fx_path(root, "untimed.gturbo"));
    assert_int_equal(system(command), 0);
    refuses(fx_path(root, "untimed.gturbo"), SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT, "was written after it");
    /* a moved install is good for us; other readers want the path, so a verification renews the receipt */
    sluice_verify_report r;
    assert_ok(sluice_verify(moved, NULL, &r, err));
    assert_true(r.receipt_renewed);
    assert_ok(sluice_verify(moved, NULL, &r, err));
    assert_false(r.receipt_renewed);
    assert_int_equal(r.files, 1 + 2 + 1 + 4);
}

static void receipt_notices_edits(void **state)
{
    (void)state;
    sluice_verify_report r;
    char *layer = fx_path(install, "packed_experts/layer_01.bin");
    fx_flip(layer, 5, false);
    refuses(install, SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT,
            "layer_01.bin was written after it; run `sluice verify`");
    fx_flip(layer, 5, false); /* the same bytes again, but who knows */
    refuses(install, SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT, "run `sluice verify`");
    assert_ok(sluice_verify(install, NULL, &r, err));
    assert_true(r.receipt_renewed);
    opens(install, SLUICE_VERIFY_RECEIPT);

    char *receipt = fx_path(install, "verified-install.json");
    size_t n;
    unsigned char *whole = fx_read(receipt, &n);
    assert_int_equal(unlink(receipt), 0);
    refuses(install, SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT,
            "has no receipt of a verification; run `sluice verify`");
    opens(install, SLUICE_VERIFY_FULL);
    fx_text(install, "verified-install.json", "{");
    refuses(install, SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT, "has no receipt");
    static const struct {
        const char *from, *to, *says;
    } CASES[] = {
        {"\"modificationTimesNs\"", "\"other\"", "another program wrote it"},
        {"\"schemaVersion\": 1", "\"schemaVersion\": 2", "its schema is unknown"},
        {"\"manifestSha256\": \"", "\"manifestSha256\": \"0", "belongs to another manifest.json"},
        {"\"files\": {", "\"files\": {\"x\": 1,", "lists other files"},
        {"\"tokenizer/config.json\": {\n      \"sha256\": \"",
         "\"tokenizer/config.json\": {\n      \"sha256\": \"0", "it records another tokenizer/config.json"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        fx_write(install, "verified-install.json", whole, n);
        edit("verified-install.json", CASES[i].from, CASES[i].to);
        refuses(install, SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT, CASES[i].says);
    }
    fx_write(install, "verified-install.json", whole, n);
    opens(install, SLUICE_VERIFY_RECEIPT);
    edit(MANIFEST_NAME, "\"versionMinor\": 0", "\"versionMinor\": 1");
    refuses(install, SLUICE_VERIFY_RECEIPT, SLUICE_E_CORRUPT, "belongs to another manifest.json");
    free(whole);
}

static void receipt_has_the_format_s_fields(void **state)
{
    (void)state;
    json_t *receipt = json_load_file(fx_path(install, "verified-install.json"), 0, NULL);
    json_t *manifest = json_load_file(fx_path(install, MANIFEST_NAME), 0, NULL);
    char resolved[PATH_MAX];
    assert_non_null(realpath(install, resolved));
    assert_string_equal(json_string_value(json_object_get(receipt, "modelDirectoryPath")), resolved);
    assert_int_equal(json_integer_value(json_object_get(receipt, "schemaVersion")), 1);
    assert_int_equal(strlen(json_string_value(json_object_get(receipt, "verificationTimestamp"))),
                     strlen("2026-01-01T00:00:00Z"));
    assert_non_null(json_string_value(json_object_get(receipt, "toolVersion")));
    const char *path;
    json_t *entry, *files = json_object_get(receipt, "files");
    json_object_foreach(json_object_get(manifest, "files"), path, entry)
        assert_true(json_equal(entry, json_object_get(files, path)));
    assert_non_null(json_object_get(files, MANIFEST_NAME));
    json_decref(receipt);
    json_decref(manifest);
}

/* ---- the rest ---- */

static void describes(void **state)
{
    (void)state;
    struct gturbo *store;
    assert_ok(gturbo_open_headers(install, &store, err));
    json_t *d = gturbo_describe(store);
    assert_non_null(d);
    json_t *tensors = json_object_get(d, "tensors"), *experts = json_object_get(d, "experts");
    assert_int_equal(json_array_size(tensors), 6);
    json_t *embed = json_array_get(tensors, 0);
    assert_string_equal(json_string_value(json_object_get(embed, "name")), "m.embed.weight");
    assert_int_equal(json_integer_value(json_object_get(embed, "bits")), 4);
    assert_int_equal(json_integer_value(json_object_get(embed, "groupSize")), 64);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(embed, "shape"), 0)), 96);
    assert_int_equal(json_integer_value(json_object_get(embed, "bytes")), 3072 + 2 * 192);
    assert_int_equal(json_integer_value(json_object_get(experts, "strideBytes")), 32768);
    json_t *layers = json_object_get(experts, "layers");
    assert_null(json_object_get(json_array_get(layers, 0), "parts"));
    assert_int_equal(json_object_size(json_object_get(json_array_get(layers, 1), "parts")), PART_KINDS);
    assert_true(json_is_true(json_object_get(json_object_get(d, "receipt"), "fits")));
    assert_int_equal(json_object_size(json_object_get(d, "files")), 8);
    json_decref(d);
    gturbo_close(store);
}

struct asked {
    struct gturbo *store;
    int fds[2];
};

static void *ask(void *arg)
{
    struct asked *asked = arg;
    for (int i = 0; i < 2; i++)
        if (gturbo_layer_fd(asked->store, (uint32_t)i + 1, &asked->fds[i], NULL) != SLUICE_OK)
            asked->fds[i] = -1;
    return NULL;
}

static void threads_share_a_layer(void **state)
{
    (void)state;
    struct gturbo *store;
    assert_ok(gturbo_open(install, SLUICE_VERIFY_FULL, NULL, &store, err));
    pthread_t threads[8];
    struct asked asked[8];
    for (int i = 0; i < 8; i++) {
        asked[i].store = store;
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &asked[i]), 0);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++) {
            assert_true(asked[i].fds[k] >= 0);
            assert_int_equal(asked[i].fds[k], asked[0].fds[k]);
        }
    gturbo_close(store);
}

static void count(void *user, const sluice_progress *progress)
{
    uint64_t *seen = user;
    seen[0]++;
    seen[1] = progress->done_bytes;
    seen[2] = progress->total_bytes;
    assert_string_equal(progress->phase, "verify");
}

static void verify_reports_and_can_be_cancelled(void **state)
{
    (void)state;
    uint64_t seen[3] = {0};
    sluice_verify_report r;
    sluice_watch watch = {.progress = count, .user = seen};
    assert_ok(sluice_verify(install, &watch, &r, err));
    assert_true(seen[0] >= 2);
    assert_int_equal(seen[1], seen[2]);
    assert_int_equal(seen[2], r.bytes);
    volatile int stop = 1;
    watch.cancel = &stop;
    assert_fails(sluice_verify(install, &watch, &r, err), SLUICE_E_CANCELLED, "cancelled");
    struct gturbo *store;
    assert_fails(gturbo_open(install, SLUICE_VERIFY_FULL, &watch, &store, err), SLUICE_E_CANCELLED,
                 "cancelled");
    assert_fails(sluice_verify(NULL, NULL, NULL, err), SLUICE_E_ARGUMENT, "no install directory");
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(all_modes_open),
        EACH(reads_are_bounded),
        EACH(texts_are_checked),
        EACH(damage_is_found),
        EACH(missing_and_short_files_are_found),
        EACH(manifest_is_checked),
        EACH(layout_is_checked),
        EACH(index_is_checked),
        EACH(receipt_survives_moving),
        EACH(receipt_notices_edits),
        EACH(receipt_has_the_format_s_fields),
        EACH(describes),
        EACH(threads_share_a_layer),
        EACH(verify_reports_and_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
