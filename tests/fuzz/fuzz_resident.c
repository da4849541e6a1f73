/* The index of model_weights.bin. The file's size is what the index claims: the fuzzer could not guess it. */
#include "require.h"
#include "store/resident.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resident_index index;
    sluice_error err;
    uint64_t index_bytes, payload = 0;
    if (size >= 16 && resident_index_bytes(data, &index_bytes, &err) == SLUICE_OK)
        for (int i = 15; i >= 8; i--)
            payload = payload << 8 | data[i];
    uint64_t file_bytes = size + payload;
    if (resident_parse(data, size, file_bytes, &index, &err) == SLUICE_OK)
        for (size_t i = 0; i < index.n_tensors; i++) {
            const struct stored_tensor *t = &index.tensors[i];
            uint32_t bits, group;
            if (t->bytes > file_bytes || t->offset > file_bytes - t->bytes || t->scale_bytes > file_bytes ||
                t->scale_offset > file_bytes - t->scale_bytes)
                __builtin_trap();
            if (t->dtype == DTYPE_AFFINE && !resident_affine(t, &bits, &group))
                __builtin_trap();
        }
    resident_free(&index);
    return 0;
}
