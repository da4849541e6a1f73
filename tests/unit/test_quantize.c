/* Quantizing at install: the codes, scales and biases of MLX itself, bit for bit. */
#include "support/unit.h"

#include "store/quantize.h"

#include <dirent.h>

#define GOLDEN_DIR "tests/golden/quantize"

static void check_file(const char *name)
{
    static const enum dtype TYPES[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    char path[512];
    char *bytes;
    size_t n;
    sluice_error err;
    (void)snprintf(path, sizeof path, GOLDEN_DIR "/%s", name);
    assert_ok(file_load(path, 1u << 20, &bytes, &n, &err), err);
    const unsigned char *p = (const unsigned char *)bytes;
    enum dtype from = TYPES[p[0]];
    unsigned bits = p[1], group = p[2] * 32u;
    uint32_t values;
    memcpy(&values, p + 4, 4);
    size_t groups = values / group, source_bytes = values * dtype_bytes(from), code_bytes = values * bits / 8;
    assert_int_equal(n, 8 + source_bytes + code_bytes + 4 * groups);
    unsigned char *codes = malloc(code_bytes);
    uint16_t *scales = malloc(2 * groups), *biases = malloc(2 * groups);
    assert_true(codes && scales && biases);
    assert_true(quantize_groups(p + 8, from, groups, group, bits, codes, scales, biases));
    p += 8 + source_bytes;
    if (memcmp(codes, p, code_bytes) != 0 || memcmp(scales, p + code_bytes, 2 * groups) != 0 ||
        memcmp(biases, p + code_bytes + 2 * groups, 2 * groups) != 0)
        fail_msg("%s: not what MLX makes of it", name);
    free(codes);
    free(scales);
    free(biases);
    sluice_free(bytes);
}

static void equals_mlx(void **state)
{
    (void)state;
    DIR *dir = opendir(GOLDEN_DIR);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strstr(entry->d_name, ".bin")) {
            check_file(entry->d_name);
            files++;
        }
    (void)closedir(dir);
    assert_int_equal(files, 3 * 3 * 3);
}

/* Whatever the cut, the same bytes: groups know nothing of each other. */
static void groups_are_independent(void **state)
{
    (void)state;
    uint16_t w[512], scales[8], biases[8], one_scale, one_bias;
    unsigned char codes[256], one[32];
    for (unsigned i = 0; i < 512; i++)
        w[i] = (uint16_t)(0x3c00u + (i * 2654435761u >> 20 & 0x83ffu));
    assert_true(quantize_groups(w, DTYPE_BF16, 8, 64, 4, codes, scales, biases));
    for (size_t g = 0; g < 8; g++) {
        assert_true(quantize_groups(w + 64 * g, DTYPE_BF16, 1, 64, 4, one, &one_scale, &one_bias));
        assert_memory_equal(one, codes + 32 * g, 32);
        assert_int_equal(one_scale, scales[g]);
        assert_int_equal(one_bias, biases[g]);
    }
}

static void says_what_is_not_finite(void **state)
{
    (void)state;
    static const uint16_t BAD[] = {0x7f80, 0xff80, 0x7fc0};
    unsigned char codes[16];
    uint16_t scale, bias;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        uint16_t w[32] = {0};
        w[31] = BAD[i];
        assert_false(quantize_groups(w, DTYPE_BF16, 1, 32, 4, codes, &scale, &bias));
    }
    float near = 3.4028235e38f, w[32] = {0}; /* rounds to infinity in bfloat16 */
    w[0] = near;
    assert_false(quantize_groups(w, DTYPE_F32, 1, 32, 4, codes, &scale, &bias));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_mlx),
        cmocka_unit_test(groups_are_independent),
        cmocka_unit_test(says_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
