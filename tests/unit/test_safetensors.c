/* Safetensors headers: good ones, and each way in which a bad one is refused by name. */
#include "store_fixture.h"

#define LFS_POINTER "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"

static void write_raw(const char *dir, const char *file, const char *header, size_t data_bytes)
{
    uint64_t n = strlen(header); /* the tests run on little-endian machines */
    FILE *f = fopen(fx_path(dir, file), "wb");
    if (!f)
        abort();
    assert_int_equal(fwrite(&n, sizeof n, 1, f), 1);
    assert_int_equal(fwrite(header, 1, n, f), n);
    for (size_t i = 0; i < data_bytes; i++)
        assert_int_equal(fputc(0, f), 0);
    assert_int_equal(fclose(f), 0);
}

static sluice_status open_in(const char *dir, struct safetensors **st, sluice_error *err)
{
    struct source *source;
    TRY(source_open_dir(&source, dir, err));
    sluice_status status = safetensors_open(st, source, err);
    source_close(source);
    return status;
}

static void expect_error(const char *dir, sluice_status status, const char *text)
{
    struct safetensors *st = NULL;
    assert_fails(open_in(dir, &st, err), status, text);
    assert_null(st);
}

static void reads_one_file(void **state)
{
    (void)state;
    char *dir = fx_temp();
    fx_safetensors(dir, ST_SINGLE_NAME, FX_FIRST_SHARD, FX_FIRST);
    struct safetensors *st = NULL;
    assert_ok(open_in(dir, &st, err));
    assert_int_equal(st->n_tensors, FX_FIRST);
    assert_int_equal(st->n_shards, 1);
    const struct st_tensor *t = safetensors_find(st, "m.layers.0.ids");
    assert_non_null(t);
    assert_string_equal(t->dtype, "I32");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[1], 5);
    assert_int_equal(t->bytes, 60);
    size_t n;
    unsigned char *file = fx_read(fx_path(dir, ST_SINGLE_NAME), &n), want[60];
    fx_fill("m.layers.0.ids", want, sizeof want);
    assert_memory_equal(file + t->offset, want, sizeof want);
    free(file);
    assert_null(safetensors_find(st, "m.layers.0"));
    safetensors_close(st);
    fx_drop(dir);
}

static void reads_shards(void **state)
{
    (void)state;
    char *dir = fx_snapshot();
    struct safetensors *st = NULL;
    assert_ok(open_in(dir, &st, err));
    assert_int_equal(st->n_shards, 2);
    assert_int_equal(st->n_tensors, FX_FIRST + FX_SECOND);
    assert_string_equal(st->shards[safetensors_find(st, "m.embed.scales")->shard].name, "one.safetensors");
    assert_string_equal(st->shards[safetensors_find(st, "m.norm.weight")->shard].name, "two.safetensors");
    safetensors_close(st);
    fx_drop(dir);
}

static void names_wrong_type_and_shape(void **state)
{
    (void)state;
    char *dir = fx_snapshot();
    struct safetensors *st = NULL;
    const struct st_tensor *t;
    const uint64_t right[2] = {64}, wrong[2] = {65};
    assert_ok(open_in(dir, &st, err));
    assert_ok(safetensors_expect(st, "m.norm.weight", "F16", 1, right, &t, err));
    assert_fails(safetensors_expect(st, "m.norm.weight", "BF16", 1, right, &t, err), SLUICE_E_FORMAT,
                 "m.norm.weight has the type F16, the model needs BF16");
    assert_fails(safetensors_expect(st, "m.norm.weight", "F16", 1, wrong, &t, err), SLUICE_E_FORMAT,
                 "m.norm.weight has the shape [64], the model needs [65]");
    assert_fails(safetensors_expect(st, "m.norm.weight", "F16", 2, right, &t, err), SLUICE_E_FORMAT,
                 "has the shape [64], the model needs [64, 0]");
    assert_fails(safetensors_expect(st, "m.absent", "F16", 1, right, &t, err), SLUICE_E_FORMAT,
                 "lacks the tensor m.absent");
    safetensors_close(st);
    fx_drop(dir);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *says;
    } CASES[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "tensor a has 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "ends at byte 8 of the data"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "run backwards"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]}}", 8,
         "ends at byte"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "must be two byte offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "must be two byte offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551616]}}", 8,
         "not valid JSON"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
         6, "tensors a and b overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}",
         10, "a hole of 2 bytes before tensor b"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 7,
         "3 bytes after the last tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, "duplicate"},
        {"{\"a\":{\"dtype\":\"Q7\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "unknown type \"Q7\""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         "overflows"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4, "not a count"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,4]}}", 4,
         "9 dimensions"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "need 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, "\"shape\""},
        {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "\"dtype\""},
        {"{\"a\":7}", 0, "not described by an object"},
        {"[]", 0, "not an object"},
        {"{\"a\":", 0, "not valid JSON"},
        {"{}", 0, "holds no tensor"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char *dir = fx_temp();
        write_raw(dir, ST_SINGLE_NAME, CASES[i].header, CASES[i].data_bytes);
        expect_error(dir, SLUICE_E_FORMAT, CASES[i].says);
        fx_drop(dir);
    }
}

static void refuses_bad_lengths(void **state)
{
    (void)state;
    static const struct {
        unsigned char start[10];
        size_t n;
        const char *says;
    } CASES[] = {
        {{0}, 0, "truncated header: the file has 0 bytes"},
        {{2, 0, 0}, 3, "truncated header: the file has 3 bytes"},
        {{100, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, "truncated header: it claims 100 bytes"},
        {{1, 0, 0, 1, 0, 0, 0, 0, '{', '}'}, 10, "at most 16777216 are accepted"},
        {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, '{', '}'}, 10, "at most 16777216 are accepted"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char *dir = fx_temp();
        fx_write(dir, ST_SINGLE_NAME, CASES[i].start, CASES[i].n);
        expect_error(dir, SLUICE_E_FORMAT, CASES[i].says);
        fx_drop(dir);
    }
}

static void refuses_lfs_pointers(void **state)
{
    (void)state;
    char *dir = fx_snapshot();
    fx_text(dir, "two.safetensors", LFS_POINTER);
    expect_error(dir, SLUICE_E_FORMAT,
                 "two.safetensors: this is a Git LFS pointer, not the weights; run `git lfs pull`");
    fx_text(dir, ST_INDEX_NAME, LFS_POINTER);
    expect_error(dir, SLUICE_E_FORMAT, "this is a Git LFS pointer");
    fx_drop(dir);
}

static void refuses_bad_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *index, *says;
        sluice_status status;
    } CASES[] = {
        {"{\"weight_map\": {\"m.norm.weight\": \"three.safetensors\"}}",
         "the shard three.safetensors is missing", SLUICE_E_IO},
        {"{\"weight_map\": {\"m.norm.weight\": \"one.safetensors\"}}",
         "lists tensor m.norm.weight in one.safetensors, but that shard lacks it", SLUICE_E_FORMAT},
        {"{\"weight_map\": {\"nothing\": \"two.safetensors\"}}", "lists tensor nothing in two.safetensors",
         SLUICE_E_FORMAT},
        {"{\"weight_map\": {\"a\": \"../one.safetensors\"}}", "leaves the snapshot", SLUICE_E_FORMAT},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "leaves the snapshot", SLUICE_E_FORMAT},
        {"{\"weight_map\": {\"a\": 7}}", "does not name a shard for tensor a", SLUICE_E_FORMAT},
        {"{\"weight_map\": {}}", "lists no tensor", SLUICE_E_FORMAT},
        {"{}", "has no \"weight_map\"", SLUICE_E_FORMAT},
        {"{", "not valid JSON", SLUICE_E_FORMAT},
    };
    char *dir = fx_snapshot();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        fx_text(dir, ST_INDEX_NAME, CASES[i].index);
        expect_error(dir, CASES[i].status, CASES[i].says);
    }
    fx_drop(dir);
}

static void refuses_duplicates_across_shards(void **state)
{
    (void)state;
    char *dir = fx_snapshot();
    fx_safetensors(dir, "two.safetensors", FX_FIRST_SHARD, FX_FIRST);
    expect_error(dir, SLUICE_E_FORMAT, "duplicate tensor m.embed.biases: it is in ");
    fx_drop(dir);
}

static void refuses_an_empty_directory(void **state)
{
    (void)state;
    char *dir = fx_temp();
    expect_error(dir, SLUICE_E_IO, "has neither model.safetensors.index.json nor model.safetensors");
    fx_drop(dir);
    struct source *source;
    assert_fails(source_open_dir(&source, "no/such/directory", err), SLUICE_E_IO, "no/such/directory");
    assert_fails(source_open_dir(&source, "Makefile", err), SLUICE_E_ARGUMENT, "not a directory");
}

static void survives_every_failure(void **state)
{
    (void)state;
    char *dir = fx_snapshot();
    for (int kind = FAULT_ALLOC; kind <= FAULT_READ; kind++)
        for (uint64_t n = 1;; n++) {
            struct safetensors *st = NULL;
            sluice_error e = {0};
            fault_arm((enum fault_kind)kind, n);
            sluice_status status = open_in(dir, &st, &e);
            bool fired = fault_fired((enum fault_kind)kind);
            fault_arm((enum fault_kind)kind, 0);
            assert_int_equal(status == SLUICE_OK, !fired);
            if (!fired) {
                safetensors_close(st);
                assert_true(n > 5);
                break;
            }
            assert_null(st);
            assert_true(e.detail[0] != '\0');
        }
    fx_drop(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_one_file),
        cmocka_unit_test(reads_shards),
        cmocka_unit_test(names_wrong_type_and_shape),
        cmocka_unit_test(refuses_bad_headers),
        cmocka_unit_test(refuses_bad_lengths),
        cmocka_unit_test(refuses_lfs_pointers),
        cmocka_unit_test(refuses_bad_indexes),
        cmocka_unit_test(refuses_duplicates_across_shards),
        cmocka_unit_test(refuses_an_empty_directory),
        cmocka_unit_test(survives_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
