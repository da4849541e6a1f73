/* packed_experts/layout.json. */
#include "require.h"
#include "store/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layout layout;
    sluice_error err;
    if (layout_parse((const char *)data, size, &layout, &err) == SLUICE_OK)
        for (uint32_t i = 0; i < layout.n_layers; i++)
            for (int k = 0; layout.layers[i].present && k < PART_KINDS; k++) {
                const struct expert_part *p = &layout.layers[i].parts[k];
                if (p->offset > layout.stride_bytes || p->bytes > layout.stride_bytes - p->offset ||
                    !p->rows || !p->cols)
                    __builtin_trap();
            }
    layout_free(&layout);
    return 0;
}
