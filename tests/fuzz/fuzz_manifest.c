/* manifest.json. */
#include "require.h"
#include "store/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m;
    sluice_error err;
    if (manifest_parse((const char *)data, size, &m, &err) == SLUICE_OK)
        for (size_t i = 0; i < m.n_files; i++)
            if (manifest_find(&m, m.files[i].path) != &m.files[i] || m.files[i].path[0] == '/' ||
                strstr(m.files[i].path, "/../"))
                __builtin_trap();
    manifest_free(&m);
    return 0;
}
