/* Speculative decoding: a drafter guesses the next tokens, the model computes all of them in one pass, and
 * those that it would have chosen itself count. The rest is as if it had never been.
 *
 * A row of a pass has the same bits whatever is computed beside it, so its logits are those of plain
 * decoding, and every token is drawn from them as it always is (seed and position decide). A guess that is
 * what was drawn counts: it saves a pass, and changes nothing. For a guess d, a drafter's distribution with
 * all its mass on d, that is the exact rule of speculative sampling (Leviathan et al., arXiv:2211.17192): d
 * is kept with probability p(d), and otherwise the token is distributed as p without d.
 *
 * Belongs to a session and its thread. */
#ifndef RUN_SPECULATE_H
#define RUN_SPECULATE_H

#include "base/mem.h"
#include "sluice.h"

#include <stdbool.h>

enum { DRAFT_MAX = 16 };

/* Guess up to n tokens after `token`, which is about to be appended, into out; returns how many. */
typedef uint32_t (*draft_fn)(sluice_session *session, int32_t token, uint32_t n, int32_t *out);

/* How many guesses pay: measured, as it differs with the model, the machine, the text, and with how many
 * further experts must be read for them. Times in nanoseconds, all of them moving averages. */
struct pace {
    double plain_ns;                  /* of a pass without guesses; 0: none was measured */
    double round_ns[DRAFT_MAX + 1];   /* of a round with so many, guessing included */
    double accept;                    /* share of the guesses that were looked at and counted */
    uint32_t rest, next_rest;         /* rounds to go without guesses, and how many after the next loss */
    uint32_t since_plain, since_rest; /* rounds since the last plain pass, and since the last rest */
};

struct speculation {
    draft_fn draft; /* NULL: off */
    uint32_t most;  /* guesses in a round */
    bool steady;    /* always that many: for tests */
    float *rows;    /* [most + 1][vocab]: logits of the round's rows */
    /* The round that is under way: row 0 is a token that was drawn, the others are guesses. */
    bool open;
    uint32_t start, n; /* position of row 0; guesses */
    uint32_t taken;    /* rows that count */
    int32_t ids[DRAFT_MAX + 1];
    struct pace pace;
};

/* Bytes that speculation_open takes; `most` 0: off. */
size_t speculation_bytes(uint32_t vocab, uint32_t most);
void speculation_open(struct speculation *sp, draft_fn draft, uint32_t vocab, uint32_t most,
                      struct arena *arena);
/* The drafter that an option names; NULL for off. */
draft_fn speculation_drafter(sluice_draft draft);
/* Most guesses of a round where no number was asked for. */
uint32_t speculation_most(sluice_draft draft);

/* Append one drawn token, and leave the logits after it. As session_append, which it uses where nothing is
 * guessed. */
sluice_status speculate(sluice_session *session, int32_t token, sluice_error *err);
/* End the round under way: rows that were not taken are gone. Every other call on the session does this
 * first. */
void speculation_close(sluice_session *session);

/* How many guesses are worth it now, at most `most`. */
uint32_t pace_choose(struct pace *pace, uint32_t most);
/* A pass without guesses took so long; a round with n guesses took `ns`, and of those looked at, `hits` of
 * `tests` counted. */
void pace_plain(struct pace *pace, double ns);
void pace_round(struct pace *pace, uint32_t n, double ns);
void pace_test(struct pace *pace, bool hit);

/* Guesses from the text itself: what followed the last place where its end occurred before. The longest match
 * wins, then the latest; a match is of 2 tokens or more. tokens [n]. */
uint32_t lookup_guess(const int32_t *tokens, uint32_t n, uint32_t most, int32_t *out);

#endif
