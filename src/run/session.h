/* A session's insides, shared by session.c, generate.c and trace.c. */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H

#include "run/engine.h"
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
    int32_t *tokens; /* [context]; kv.length of them count */
    float *logits;   /* [vocab] */
    bool has_logits;
    atomic_bool cancel;
    sluice_session_stats stats;
};

#endif
