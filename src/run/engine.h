/* The engine's insides, shared by the files of run/. */
#ifndef RUN_ENGINE_H
#define RUN_ENGINE_H

#include "base/mem.h"
#include "experts/cache.h"
#include "io/reads.h"
#include "model/family.h"
#include "run/text.h"
#include "store/gturbo.h"
#include "store/install.h"

struct sluice_engine {
    struct log log;
    struct gturbo *store;
    struct model *model;
    sluice_tokenizer *text;
    sluice_engine_options options; /* with defaults filled in */
    bool even_chunks;              /* the chunk was not given: split prompts evenly */
    sluice_plan plan;
    struct budget budget;
    struct arena resident;
    struct pool *pool;
    struct reads *reads;
    struct expert_cache *experts;
    int32_t stop_ids[32]; /* config's and the family's */
    size_t n_stop_ids;
};

/* Open the manifest's files and the model's shape, without weights. The caller closes both. */
sluice_status engine_open_shape(const char *install_dir, const sluice_engine_options *options, bool headers,
                                struct gturbo **store, struct model **model, sluice_error *err);

/* What the model of a config.json says to the installer (store/install.h: recipe_fn). */
sluice_status engine_recipe_of(const json_t *config, model_has_fn has, void *names, struct recipe *recipe,
                               sluice_error *err);

/* Fill *plan for a model; `options` has defaults where zero, except for the prefill chunk and the lookahead,
 * which are chosen here. SLUICE_E_BUDGET: it does not fit; *plan is filled. */
sluice_status plan_compute(const struct gturbo *store, const struct model *model,
                           const sluice_engine_options *options, uint64_t tokenizer_bytes, sluice_plan *plan,
                           sluice_error *err);

/* Spare expert slots for guesses: those for the layer ahead, and as many whose reads may still be under way.
 */
static inline uint32_t plan_spares(const sluice_engine_options *options)
{
    return 2 * options->lookahead_experts;
}

/* How expert records are read: as asked for, and what was left open as sluice_probe() remembered it for this
 * install. A remembered ring that is refused by now falls back to threads. Before the first use of an expert
 * file of `store`, which may turn to buffered reads. No buffer is registered. Returns why they are read so,
 * in static storage. */
const char *engine_reads(struct gturbo *store, const sluice_engine_options *options,
                         struct reads_options *reads);

/* What open decided, told in the engine's log (decisions.c). `given`: the options before defaults were filled
 * in. */
void engine_tell(sluice_engine *engine, const sluice_engine_options *given);
void engine_tell_reads(sluice_engine *engine, const char *why);

/* Bytes of one session's arena, and its parts for the plan. */
struct session_cost {
    uint64_t kv_bytes, recurrent_bytes, scratch_bytes;
};
struct session_cost session_cost(const struct model *model, const sluice_engine_options *options,
                                 uint32_t chunk, uint32_t lanes, sluice_kv_type kv);

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
