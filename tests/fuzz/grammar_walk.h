/* Reads data as a grammar's source, and what stands behind a NUL as bytes for its automaton. */
#ifndef FUZZ_GRAMMAR_WALK_H
#define FUZZ_GRAMMAR_WALK_H

#include "base/mem.h"
#include "require.h"
#include "text/grammar.h"

#include <string.h>

typedef sluice_status grammar_reader(const char *text, size_t n, struct grammar **g, sluice_error *err);

static inline void grammar_walk(grammar_reader *from, const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    struct grammar *g = NULL;
    struct walker *w = NULL;
    sluice_error err = {0};
    if (from((const char *)data, n, &g, &err) != SLUICE_OK) {
        require(g == NULL && err.detail[0] != '\0');
        return;
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
}

#endif
