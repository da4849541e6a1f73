/* A JSON Schema, then behind a NUL bytes for its automaton. */
#include "base/mem.h"
#include "text/grammar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    struct grammar *g = NULL;
    struct walker *w = NULL;
    sluice_error err = {0};
    if (grammar_from_schema((const char *)data, n, &g, &err) != SLUICE_OK) {
        require(g == NULL && err.detail[0] != '\0');
        return 0;
    }
    if (walker_open(g, NULL, NULL, 0, &w, &err) == SLUICE_OK) {
        uint32_t at = walker_start(w);
        require(at != WALKER_DEAD);
        for (size_t i = n + 1; i < size && at != WALKER_DEAD; i++)
            if (walker_symbol(w, at, data[i], &at, &err) != SLUICE_OK)
                break;
        require(walker_memory(w) < (size_t)256 << 20);
    }
    walker_close(w);
    grammar_close(g);
    return 0;
}
