/* run/routes on any bytes. A trace that was accepted must run through the cache simulator: its ids index
 * tables there. */
#include "base/mem.h"
#include "require.h"
#include "run/cachesim.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct routes routes;
    sluice_error err = {0};
    mem_hook_json();
    sluice_status status = routes_parse(data, size, &routes, "fuzz", &err);
    assert(status == SLUICE_OK || err.detail[0] != '\0');
    if (status == SLUICE_OK && (uint64_t)routes.layers * routes.experts < 100000) {
        struct cachesim_count count;
        for (int p = 0; p < SLUICE_CACHE_POLICIES; p++) {
            status = cachesim_run(&routes, (sluice_cache_policy)p, routes.top_k, &count, &err);
            assert(status == SLUICE_OK && count.hits <= count.requests);
        }
    }
    routes_free(&routes);
    return 0;
}
