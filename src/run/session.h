/* A session's insides, shared by session.c, generate.c and trace.c. */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include "run/engine.h"
#include "run/routes.h"
#include "run/sampler.h"
#include "run/speculate.h"

struct sluice_session {
    sluice_engine *engine;
    struct arena arena;
    struct kv_cache kv;
    struct recurrent recurrent; /* its position is behind kv.length where it has to catch up */
    struct backend *backend;
    void *scratch;
    struct sampler sampler;
    struct speculation speculation;
    const struct tracer *tracer;
    const struct route_watch *watch;       /* NULL: the recorder's, when there is one */
    struct route_recorder *recorder;       /* NULL: none */
    const struct route_override *override; /* NULL: the router decides */
    bool profiling;
    struct phase_clock clocks[2]; /* prefill, decode */
    int32_t *tokens;              /* [context]; kv.length of them count */
    float *logits;                /* [vocab] */
    bool has_logits;
    atomic_bool cancel;
    sluice_session_stats stats;
};

/* What a call of the graph on the n tokens from `position` on starts with. */
struct forward session_forward(sluice_session *session, uint32_t position, uint32_t n, bool decoding,
                               struct lease_stats *stats);
/* Run it, and keep account of what state has seen; the timeline's length is the caller's. */
sluice_status session_run_forward(sluice_session *session, struct forward *f, sluice_error *err);
/* Add to the statistics. */
void session_count(sluice_session *session, bool decoding, uint64_t tokens, uint64_t ns,
                   const struct lease_stats *io);

/* The clock of what a session does now, or NULL. */
static inline struct phase_clock *session_clock(sluice_session *session, bool decoding)
{
    return session->profiling ? &session->clocks[decoding] : NULL;
}

#endif
