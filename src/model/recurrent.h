/* The second kind of session state: what a recurrent layer keeps of all tokens before, of one size whatever
 * their number. Per layer a matrix state and a tail, the last rows that went into a short convolution.
 *
 * Unlike keys and values it cannot be cut: going back means going on again from an earlier copy. The session
 * does that (run/session.c) from the checkpoint here, or from nothing. `position` tells how many tokens the
 * state has seen; while it differs from the KV cache's length the session must catch up first.
 *
 * A trial runs rows that may be refused (speculation). The graph then works on scratch copies of one layer at
 * a time and logs the rows that went in; settling feeds the accepted ones to the state itself. So a trial
 * costs one layer's state and a few rows per layer, not a copy of everything. One thread at a time. */
#ifndef MODEL_RECURRENT_H
#define MODEL_RECURRENT_H

#include "base/mem.h"

#include <stdbool.h>

/* All zero: the layer has no such state. */
struct recurrent_shape {
    uint32_t state_values;        /* floats of the matrix state */
    uint32_t tail_rows, channels; /* of the tail */
    uint32_t log_values;          /* floats that a trial logs per row */
};

struct recurrent_view {
    float *state, *tail; /* zeros before the first token */
    float *log;          /* [log_rows][log_values] */
};

struct recurrent {
    const struct recurrent_shape *shapes; /* borrowed; n_layers */
    struct recurrent_view *views;
    uint32_t n_layers, log_rows;
    uint32_t position;             /* tokens that the state has seen */
    struct recurrent_view scratch; /* state and tail of one layer during a trial */
    float *values;                 /* every view's state and tail, one after the other */
    size_t n_values;
    float *checkpoint;      /* a copy of `values` */
    uint32_t checkpoint_at; /* its position; 0: none */
};

/* Bytes that recurrent_open takes from its arena. log_rows: most rows of a trial; 0: there are none. */
size_t recurrent_bytes(const struct recurrent_shape *shapes, uint32_t n_layers, uint32_t log_rows);
void recurrent_open(struct recurrent *r, const struct recurrent_shape *shapes, uint32_t n_layers,
                    uint32_t log_rows, struct arena *arena);

/* Where a layer's rows are to work, and in a trial, after copying the state to scratch, on what. */
struct recurrent_view recurrent_begin(struct recurrent *r, uint32_t layer, bool trial);

/* Back to before the first token. */
void recurrent_clear(struct recurrent *r);
/* Remember a layer's state as it is for the checkpoint under way, which the caller brackets: checkpoint_at is
 * 0 until every layer was marked at the same position, then that position. */
void recurrent_mark(struct recurrent *r, uint32_t layer);
/* Go to the latest copy at or before `position`: the state itself, the checkpoint, or nothing. A checkpoint
 * beyond `position` is forgotten: it belongs to tokens that are gone. Returns the position reached. */
uint32_t recurrent_rewind(struct recurrent *r, uint32_t position);
/* As recurrent_rewind, after a failure that left the state between two positions. */
uint32_t recurrent_recover(struct recurrent *r);

/* Copy the state out and back. `out` has recurrent_snapshot_bytes(r); a snapshot fits the same shapes. A
 * restore forgets the checkpoint. */
size_t recurrent_snapshot_bytes(const struct recurrent *r);
void recurrent_save(const struct recurrent *r, void *out);
void recurrent_restore(struct recurrent *r, const void *in);

#endif
