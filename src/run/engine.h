/* The engine's insides, shared by the files of run/. */
#ifndef RUN_ENGINE_H
#define RUN_ENGINE_H

#include "base/mem.h"
#include "experts/cache.h"
#include "io/readpool.h"
#include "model/family.h"
#include "run/text.h"
#include "store/gturbo.h"

struct sluice_engine {
    struct gturbo *store;
    struct model *model;
    sluice_tokenizer *text;
    sluice_engine_options options; /* with defaults filled in */
    sluice_plan plan;
    struct budget budget;
    struct arena resident;
    struct pool *pool;
    struct read_pool *reads;
    struct expert_cache *experts;
    int32_t stop_ids[32]; /* config's and the family's */
    size_t n_stop_ids;
};

/* Open the manifest's files and the model's shape, without weights. The caller closes both. */
sluice_status engine_open_shape(const char *install_dir, const sluice_engine_options *options, bool headers,
                                struct gturbo **store, struct model **model, sluice_error *err);

/* Fill *plan for a model; `options` has defaults where zero. SLUICE_E_BUDGET: it does not fit; *plan is
 * filled. */
sluice_status plan_compute(const struct gturbo *store, const struct model *model,
                           const sluice_engine_options *options, uint64_t tokenizer_bytes, sluice_plan *plan,
                           sluice_error *err);

/* Bytes of one session's arena, and its parts for the plan. */
struct session_cost {
    uint64_t kv_bytes, recurrent_bytes, scratch_bytes;
};
struct session_cost session_cost(const struct model *model, uint32_t context, uint32_t chunk, uint32_t lanes,
                                 sluice_kv_type kv);

/* As sluice_session_open, with an arithmetic of its own (sluice check compares two). */
sluice_status session_open_with(sluice_engine *engine, sluice_activations activations, sluice_kv_type kv,
                                sluice_session **session, sluice_error *err);

/* Append tokens; `decoding` chooses the statistics. */
sluice_status session_append(sluice_session *session, const int32_t *ids, size_t n_ids, bool decoding,
                             enum logits_mode last_mode, sluice_logits_fn sink, void *sink_user,
                             sluice_error *err);
void session_set_tracer(sluice_session *session, const struct tracer *tracer);
sluice_engine *session_engine(const sluice_session *session);

#endif
