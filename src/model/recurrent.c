#include "model/recurrent.h"

#include <string.h>

static size_t state_floats(const struct recurrent_shape *shape)
{
    return (size_t)shape->state_values + (size_t)shape->tail_rows * shape->channels;
}

/* Floats of everything, of the largest layer, and of a row of the log. */
static void add_up(const struct recurrent_shape *shapes, uint32_t n_layers, size_t *all, size_t *largest,
                   size_t *log)
{
    *all = *largest = *log = 0;
    for (uint32_t i = 0; i < n_layers; i++) {
        size_t floats = state_floats(&shapes[i]);
        *all += floats;
        *largest = floats > *largest ? floats : *largest;
        *log += shapes[i].log_values;
    }
}

size_t recurrent_bytes(const struct recurrent_shape *shapes, uint32_t n_layers, uint32_t log_rows)
{
    size_t all, largest, log;
    if (n_layers == 0)
        return 0;
    add_up(shapes, n_layers, &all, &largest, &log);
    return arena_cost(n_layers * sizeof(struct recurrent_view)) + 2 * arena_cost(all * sizeof(float)) +
           (log_rows ? arena_cost(largest * sizeof(float)) + arena_cost(log_rows * log * sizeof(float)) : 0);
}

void recurrent_open(struct recurrent *r, const struct recurrent_shape *shapes, uint32_t n_layers,
                    uint32_t log_rows, struct arena *arena)
{
    size_t largest, log;
    *r = (struct recurrent){.shapes = shapes, .n_layers = n_layers, .log_rows = log_rows};
    if (n_layers == 0)
        return;
    add_up(shapes, n_layers, &r->n_values, &largest, &log);
    r->views = arena_take(arena, n_layers * sizeof *r->views);
    r->values = arena_take(arena, r->n_values * sizeof *r->values);
    r->checkpoint = arena_take(arena, r->n_values * sizeof *r->checkpoint);
    float *logs = NULL, *values = r->values;
    if (log_rows) {
        r->scratch.state = arena_take(arena, largest * sizeof *r->scratch.state);
        logs = arena_take(arena, log_rows * log * sizeof *logs);
    }
    for (uint32_t i = 0; i < n_layers; i++) {
        r->views[i] = (struct recurrent_view){values, values + shapes[i].state_values, logs};
        values += state_floats(&shapes[i]);
        logs = logs ? logs + (size_t)log_rows * shapes[i].log_values : NULL;
    }
    recurrent_clear(r);
}

struct recurrent_view recurrent_begin(struct recurrent *r, uint32_t layer, bool trial)
{
    struct recurrent_view view = r->views[layer];
    if (!trial)
        return view;
    memcpy(r->scratch.state, view.state, state_floats(&r->shapes[layer]) * sizeof *view.state);
    view.state = r->scratch.state;
    view.tail = r->scratch.state + r->shapes[layer].state_values;
    return view;
}

void recurrent_clear(struct recurrent *r)
{
    if (r->n_layers)
        memset(r->values, 0, r->n_values * sizeof *r->values);
    r->position = r->checkpoint_at = 0;
}

void recurrent_mark(struct recurrent *r, uint32_t layer)
{
    const float *state = r->views[layer].state;
    memcpy(r->checkpoint + (state - r->values), state, state_floats(&r->shapes[layer]) * sizeof *state);
}

uint32_t recurrent_recover(struct recurrent *r)
{
    if (r->checkpoint_at == 0) {
        recurrent_clear(r);
        return 0;
    }
    memcpy(r->values, r->checkpoint, r->n_values * sizeof *r->values);
    r->position = r->checkpoint_at;
    return r->position;
}

uint32_t recurrent_rewind(struct recurrent *r, uint32_t position)
{
    if (r->checkpoint_at > position)
        r->checkpoint_at = 0;
    return r->position <= position ? r->position : recurrent_recover(r);
}

size_t recurrent_snapshot_bytes(const struct recurrent *r)
{
    return r->n_layers ? sizeof r->position + r->n_values * sizeof *r->values : 0;
}

void recurrent_save(const struct recurrent *r, void *out)
{
    unsigned char *p = out;
    if (r->n_layers == 0)
        return;
    memcpy(p, &r->position, sizeof r->position);
    memcpy(p + sizeof r->position, r->values, r->n_values * sizeof *r->values);
}

void recurrent_restore(struct recurrent *r, const void *in)
{
    const unsigned char *p = in;
    if (r->n_layers == 0)
        return;
    memcpy(&r->position, p, sizeof r->position);
    memcpy(r->values, p + sizeof r->position, r->n_values * sizeof *r->values);
    r->checkpoint_at = 0;
}
