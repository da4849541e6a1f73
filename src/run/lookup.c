/* Guesses from the text itself: prompt lookup. */
#include "run/speculate.h"

enum { MATCH_LEAST = 2, MATCH_MOST = 16 };

/* How many tokens that end before `at` equal those that end the text. */
static uint32_t match(const int32_t *tokens, uint32_t n, uint32_t at)
{
    uint32_t length = 0;
    while (length < MATCH_MOST && length < at && tokens[at - 1 - length] == tokens[n - 1 - length])
        length++;
    return length;
}

uint32_t lookup_guess(const int32_t *tokens, uint32_t n, uint32_t most, int32_t *out)
{
    uint32_t best = 0, from = 0;
    for (uint32_t at = n - (n > 0); at > 0 && best < MATCH_MOST; at--) {
        if (tokens[at - 1] != tokens[n - 1])
            continue;
        uint32_t length = match(tokens, n, at);
        if (length > best) {
            best = length;
            from = at;
        }
    }
    if (best < MATCH_LEAST)
        return 0;
    /* A match near the end runs into the guesses themselves: the text repeats with that period. */
    for (uint32_t i = 0; i < most; i++)
        out[i] = from + i < n ? tokens[from + i] : out[from + i - n];
    return most;
}
