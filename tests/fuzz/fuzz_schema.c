/* A JSON Schema, then behind a NUL bytes for its automaton. */
#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    grammar_walk(grammar_from_schema, data, size);
    return 0;
}
