/* Where the time of a forward pass goes (--profile). The graph says what it turns to; everything until it
 * turns to something else belongs to that, so the phases of a step add up to its wall time by construction. A
 * NULL clock costs one test. A clock belongs to one thread. */
#ifndef MODEL_PHASE_H
#define MODEL_PHASE_H

#include "base/clock.h"

enum phase {
    PHASE_OTHER,       /* embedding, residual sums, bookkeeping */
    PHASE_PROJECTIONS, /* of attention, with norms and rotation */
    PHASE_ATTENTION,   /* or recurrence */
    PHASE_ROUTER,
    PHASE_DENSE,   /* dense or shared branch */
    PHASE_REQUEST, /* finding slots and submitting reads; with --verify full, hashing a layer's file once */
    PHASE_WAIT,    /* for reads that no computation hid */
    PHASE_EXPERTS,
    PHASE_HEAD,
    PHASE_SAMPLING,
    PHASES
};

struct phase_clock {
    uint64_t ns[PHASES];
    uint64_t since; /* clock_ns() when `now` began */
    enum phase now;
};

static inline void phase_enter(struct phase_clock *clock, enum phase phase)
{
    if (!clock)
        return;
    uint64_t now = clock_ns();
    clock->ns[clock->now] += now - clock->since;
    clock->since = now;
    clock->now = phase;
}

/* Start counting again after a pause: what passed since belongs to nothing. */
static inline void phase_resume(struct phase_clock *clock, enum phase phase)
{
    if (!clock)
        return;
    clock->since = clock_ns();
    clock->now = phase;
}

#endif
