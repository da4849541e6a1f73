/* What open decided and why, for whoever wonders why a model is slow. */
#include "base/thread.h"
#include "run/engine.h"

#include <string.h>

static double mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

static void tell_kernels(sluice_engine *e, const sluice_engine_options *given)
{
    static const char *const KV[] = {
        [SLUICE_KV_F16] = "f16", [SLUICE_KV_BF16] = "bf16", [SLUICE_KV_F32] = "f32"};
    const bool best = !given->isa || strcmp(given->isa, "auto") == 0;
    log_info(&e->log,
             "kernels: %s (%s), activations %s, keys and values %s; %u threads (%s), %u cores to use",
             e->options.isa, best ? "the best of this processor" : "as asked for",
             e->options.activations == SLUICE_ACTIVATIONS_F32 ? "f32" : "int8", KV[e->options.kv],
             pool_lanes(e->pool), given->threads ? "as asked for" : "one for each core", thread_available());
}

static void tell_plan(sluice_engine *e, const sluice_engine_options *given)
{
    const sluice_plan *p = &e->plan;
    log_info(
        &e->log,
        "memory: %.1f MiB planned of %.1f MiB (%s); context %u tokens, prefill chunk %u tokens (%s), %u of "
        "%u experts per layer in memory (%s)",
        mib(p->total_bytes), mib(p->limit_bytes), p->limit_source, p->context_tokens, p->prefill_chunk_tokens,
        given->prefill_chunk_tokens ? "as asked for" : "what the budget allows", p->expert_slots,
        p->experts_per_layer,
        given->expert_slots || given->expert_cache_bytes ? "as asked for" : "what the budget allows");
    for (uint32_t i = 0; i < p->n_items; i++)
        log_debug(&e->log, "memory: %s %.1f MiB", p->items[i].name, mib(p->items[i].bytes));
}

static void tell_lookahead(sluice_engine *e, const sluice_engine_options *given)
{
    const sluice_plan *p = &e->plan;
    if (p->lookahead_experts)
        log_info(&e->log, "lookahead: %u experts of the next layer are guessed (%s)", p->lookahead_experts,
                 given->lookahead_experts ? "as asked for" : "what pays for this family");
    else
        log_info(&e->log, "lookahead: off, %s",
                 given->lookahead_experts == SLUICE_LOOKAHEAD_OFF ? "as asked for"
                 : p->expert_slots == p->experts_per_layer        ? "every expert fits into memory"
                 : e->model->family->lookahead == 0               ? "it does not pay for this family"
                                                                  : "a token's own experts barely fit");
}

static void tell_draft(sluice_engine *e)
{
    static const char *const WAYS[] = {[SLUICE_DRAFT_OFF] = "off",
                                       [SLUICE_DRAFT_LOOKUP] = "from the text",
                                       [SLUICE_DRAFT_MTP] = "with the model's own layer"};
    if (e->options.draft == SLUICE_DRAFT_OFF)
        log_info(&e->log, "drafting: off");
    else
        log_info(&e->log, "drafting: %s, at most %u tokens a pass", WAYS[e->options.draft],
                 e->options.draft_max);
}

void engine_tell(sluice_engine *e, const sluice_engine_options *given)
{
    log_info(&e->log, "model: %s of the family %s, %u layers, %u experts of which a token takes %u",
             e->store->model_id, e->model->family->name, e->model->n_layers, e->model->n_experts,
             e->model->top_k);
    tell_kernels(e, given);
    tell_plan(e, given);
    if (e->model->n_experts > 0)
        tell_lookahead(e, given);
    tell_draft(e);
}

void engine_tell_reads(sluice_engine *e, const char *why)
{
    log_info(&e->log, "experts are read by %s, at most %u at once (%s)",
             strcmp(reads_engine(e->reads), "uring") == 0 ? "io_uring" : "threads", reads_depth(e->reads),
             why);
}
