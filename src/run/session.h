/* A session's insides, shared by session.c, generate.c and trace.c. */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include "run/engine.h"
#include "run/routes.h"
#include "run/sampler.h"

struct sluice_session {
    sluice_engine *engine;
    struct arena arena;
    struct kv_cache kv;
    struct recurrent recurrent; /* its position is behind kv.length where it has to catch up */
    struct backend *backend;
    void *scratch;
    struct sampler sampler;
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

/* The clock of what a session does now, or NULL. */
static inline struct phase_clock *session_clock(sluice_session *session, bool decoding)
{
    return session->profiling ? &session->clocks[decoding] : NULL;
}

#endif
