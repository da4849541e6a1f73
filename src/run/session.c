#include "run/session.h"

#include "base/clock.h"

#include <assert.h>
#include <string.h>

/* ---- size ---- */

static struct backend_limits limits_of(const struct model *model, uint32_t context, uint32_t chunk)
{
    struct backend_limits limits = model->limits;
    limits.rows = chunk;
    limits.context = context;
    limits.routes = moe_routes(chunk, model->top_k);
    limits.hidden = model->hidden;
    return limits;
}

/* What a session takes beside its KV cache and the family's activations. */
static size_t own_bytes(const struct model *model, uint32_t context)
{
    return arena_cost(context * sizeof(int32_t)) + arena_cost(model->vocab * sizeof(float)) +
           sampler_bytes(model->vocab);
}

/* Layers with state: the model's, and its drafting layer where that is used. */
static uint32_t layers_of(const struct model *model, const sluice_engine_options *options)
{
    return model->n_layers + (options->draft == SLUICE_DRAFT_MTP);
}

/* Rows of a pass that checks guesses; 0: none are made. */
static uint32_t trial_rows(const sluice_engine_options *options)
{
    return options->draft ? options->draft_max + 1 : 0;
}

struct session_cost session_cost(const struct model *model, const sluice_engine_options *options,
                                 uint32_t chunk, uint32_t lanes, sluice_kv_type kv)
{
    const uint32_t context = options->context_tokens, layers = layers_of(model, options);
    struct backend_limits limits = limits_of(model, context, chunk);
    return (struct session_cost){
        .kv_bytes = kv_bytes(model->kv, layers, context, chunk, kv),
        .recurrent_bytes =
            model->recurrent ? recurrent_bytes(model->recurrent, layers, trial_rows(options)) : 0,
        .scratch_bytes = model->family->scratch_bytes(model, chunk) + cpu_backend_bytes(&limits, lanes) +
                         own_bytes(model, context) +
                         speculation_bytes(model->vocab, options->draft ? options->draft_max : 0),
    };
}

/* ---- open ---- */

sluice_status session_open_with(sluice_engine *engine, sluice_activations activations, sluice_kv_type kv,
                                sluice_session **out, sluice_error *err)
{
    const struct model *model = engine->model;
    uint32_t context = engine->options.context_tokens, chunk = engine->options.prefill_chunk_tokens;
    *out = NULL;
    sluice_session *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_memory(err, sizeof *s, "a session");
    s->engine = engine;
    sluice_status status;
    struct session_cost cost = session_cost(model, &engine->options, chunk, pool_lanes(engine->pool), kv);
    TRY_OUT(arena_open(&s->arena, &engine->budget,
                       (size_t)(cost.kv_bytes + cost.recurrent_bytes + cost.scratch_bytes), "a session",
                       err));
    s->tokens = arena_take(&s->arena, context * sizeof *s->tokens);
    s->logits = arena_take(&s->arena, model->vocab * sizeof *s->logits);
    sampler_open(&s->sampler, model->vocab, &s->arena);
    const uint32_t layers = layers_of(model, &engine->options), most = engine->options.draft_max;
    speculation_open(&s->speculation, speculation_drafter(engine->options.draft), model->vocab,
                     engine->options.draft ? most : 0, &s->arena);
    kv_open(&s->kv, model->kv, layers, context, chunk, kv, &s->arena);
    recurrent_open(&s->recurrent, model->recurrent, model->recurrent ? layers : 0,
                   trial_rows(&engine->options), &s->arena);
    s->scratch = model->family->scratch_open(model, chunk, &s->arena);
    struct backend_limits limits = limits_of(model, context, chunk);
    TRY_OUT(cpu_backend_open(engine->pool, engine->options.isa, activations, &limits, &s->arena, &s->backend,
                             err));
    *out = s;
    return SLUICE_OK;
out:
    sluice_session_close(s);
    return status;
}

sluice_status sluice_session_open(sluice_engine *engine, sluice_session **session, sluice_error *err)
{
    return session_open_with(engine, engine->options.activations, engine->options.kv, session, err);
}

void sluice_session_close(sluice_session *s)
{
    if (!s)
        return;
    (void)recorder_close(s->recorder, NULL);
    if (s->backend)
        s->backend->ops->close(s->backend);
    arena_close(&s->arena);
    mem_free(s);
}

sluice_engine *session_engine(const sluice_session *session)
{
    return session->engine;
}

void session_set_tracer(sluice_session *session, const struct tracer *tracer)
{
    session->tracer = tracer;
}

/* ---- append ---- */

static sluice_status check_ids(const sluice_session *s, const int32_t *ids, size_t n, sluice_error *err)
{
    uint32_t context = s->engine->options.context_tokens, vocab = s->engine->model->vocab;
    if (n > context - s->kv.length)
        return err_set(
            err, SLUICE_E_CONTEXT,
            "the context holds %u tokens: %u are in use and %zu more do not fit; start anew or raise "
            "--context (the model's maximum is %u)",
            context, s->kv.length, n, s->engine->model->max_context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
            return err_set(err, SLUICE_E_ARGUMENT, "token id %d is outside the vocabulary of %u", ids[i],
                           vocab);
    return SLUICE_OK;
}

struct forward session_forward(sluice_session *s, uint32_t position, uint32_t n, bool decoding,
                               struct lease_stats *stats)
{
    return (struct forward){
        .model = s->engine->model,
        .lookahead = s->engine->options.lookahead_experts,
        .backend = s->backend,
        .experts = s->engine->experts,
        .kv = &s->kv,
        .recurrent = &s->recurrent,
        .scratch = s->scratch,
        .ids = s->tokens + position,
        .n_rows = n,
        .position0 = position,
        .logits = s->logits,
        .tracer = s->tracer,
        .watch = s->watch ? s->watch : recorder_watch(s->recorder),
        .override = s->override,
        .clock = session_clock(s, decoding),
        .cancel = &s->cancel,
        .stats = stats,
        .drafting = s->kv.n_layers > s->engine->model->n_layers,
    };
}

static bool has_recurrent(const sluice_session *s)
{
    return s->recurrent.n_layers > 0;
}

sluice_status session_run_forward(sluice_session *s, struct forward *f, sluice_error *err)
{
    const struct model *model = s->engine->model;
    kv_reach(&s->kv, f->position0 + f->n_rows);
    sluice_status status = model->family->forward(model, f, err);
    if (!has_recurrent(s) || f->trial)
        return status;
    if (status == SLUICE_OK)
        s->recurrent.position = f->position0 + f->n_rows;
    else
        (void)recurrent_recover(&s->recurrent); /* some layers may have gone on */
    return status;
}

/* A checkpoint shortly before the end of a prompt lets the next prompt go on from there when it differs only
 * in how it opened the answer ("<think>" or not). Returns its position; 0: none. */
enum { CHECKPOINT_BACK = 8 };

static uint32_t checkpoint_at(const sluice_session *s, size_t n_ids, bool decoding)
{
    uint64_t end = s->kv.length + n_ids;
    bool wanted = has_recurrent(s) && !decoding && n_ids > 1 && end > CHECKPOINT_BACK;
    return wanted ? (uint32_t)(end - CHECKPOINT_BACK) : 0;
}

/* Even chunks: a short one at the end would read nearly every expert for a few rows. */
static size_t even_share(size_t left, size_t most)
{
    assert(left > 0 && most > 0);
    size_t parts = 1 + (left - 1) / most;
    return 1 + (left - 1) / parts;
}

/* Rows of the next chunk from `position` on. */
static uint32_t chunk_rows(const sluice_session *s, uint32_t position, uint32_t end)
{
    uint32_t chunk = s->engine->options.prefill_chunk_tokens, left = end - position;
    if (s->engine->even_chunks && left > chunk)
        chunk = (uint32_t)even_share(left, chunk);
    return left < chunk ? left : chunk;
}

/* Bring recurrent state to the end of the timeline. Keys and values are written again, with the same bits. */
static sluice_status catch_up(sluice_session *s, bool decoding, struct lease_stats *stats, sluice_error *err)
{
    while (has_recurrent(s) && s->recurrent.position < s->kv.length) {
        uint32_t position = s->recurrent.position;
        struct forward f =
            session_forward(s, position, chunk_rows(s, position, s->kv.length), decoding, stats);
        f.mode = LOGITS_NONE;
        f.tracer = NULL;
        f.watch = NULL; /* recorded when it was first computed */
        if (atomic_load(&s->cancel))
            return err_set(err, SLUICE_E_CANCELLED, "cancelled");
        TRY(session_run_forward(s, &f, err));
    }
    return SLUICE_OK;
}

static sluice_status forward_chunk(sluice_session *s, uint32_t n, uint32_t mark, bool decoding,
                                   enum logits_mode mode, sluice_logits_fn sink, void *sink_user,
                                   struct lease_stats *stats, sluice_error *err)
{
    struct forward f = session_forward(s, s->kv.length, n, decoding, stats);
    f.mode = mode;
    f.sink = sink;
    f.sink_user = sink_user;
    const bool marks = mark > s->kv.length && mark <= s->kv.length + n;
    if (marks) {
        f.mark = mark - s->kv.length;
        s->recurrent.checkpoint_at = 0; /* until all of it is there */
    }
    TRY(session_run_forward(s, &f, err));
    if (marks)
        s->recurrent.checkpoint_at = mark;
    if (s->recorder)
        recorder_commit(s->recorder, s->kv.length, n, decoding);
    s->kv.length += n;
    return SLUICE_OK;
}

void session_count(sluice_session *s, bool decoding, uint64_t tokens, uint64_t ns,
                   const struct lease_stats *io)
{
    sluice_session_stats *t = &s->stats;
    if (decoding) {
        t->decode_tokens += tokens;
        t->decode_ns += ns;
        t->decode_read_bytes += io->read_bytes;
        t->decode_expert_requests += io->requests;
        t->decode_expert_hits += io->hits;
    } else {
        t->prefill_tokens += tokens;
        t->prefill_ns += ns;
        t->prefill_read_bytes += io->read_bytes;
    }
    t->wait_ns += io->wait_ns;
    t->guesses += io->guesses;
    t->useful_guesses += io->useful_guesses;
    t->wasted_guess_bytes += io->wasted_bytes;
}

sluice_status session_append(sluice_session *s, const int32_t *ids, size_t n_ids, bool decoding,
                             enum logits_mode last_mode, sluice_logits_fn sink, void *sink_user,
                             sluice_error *err)
{
    if (n_ids == 0)
        return SLUICE_OK;
    speculation_close(s);
    TRY(check_ids(s, ids, n_ids, err));
    uint64_t from = clock_ns();
    struct phase_clock *clock = session_clock(s, decoding);
    phase_resume(clock, PHASE_OTHER);
    struct lease_stats io = {0};
    memmove(s->tokens + s->kv.length, ids, n_ids * sizeof *ids);
    s->has_logits = false;
    sluice_status status = catch_up(s, decoding, &io, err);
    size_t done = 0;
    const uint32_t end = s->kv.length + (uint32_t)n_ids, mark = checkpoint_at(s, n_ids, decoding);
    const uint32_t first = chunk_rows(s, s->kv.length, end);
    while (done < n_ids && status == SLUICE_OK) {
        uint32_t n = chunk_rows(s, s->kv.length, end);
        enum logits_mode mode = last_mode == LOGITS_ALL || n == n_ids - done ? last_mode : LOGITS_NONE;
        if (atomic_load(&s->cancel))
            status = err_set(err, SLUICE_E_CANCELLED, "cancelled");
        else
            status = forward_chunk(s, n, mark, decoding, mode, sink, sink_user, &io, err);
        if (status == SLUICE_OK)
            done += n;
    }
    s->has_logits = status == SLUICE_OK && last_mode != LOGITS_NONE;
    phase_enter(clock, PHASE_OTHER);
    const uint64_t ns = clock_ns() - from;
    session_count(s, decoding, done, ns, &io);
    if (!decoding)
        log_debug(
            &s->engine->log,
            "prefill: %zu tokens in chunks of %u took %.3f s, of which %.3f s waiting for reads; %llu of "
            "%llu experts were in memory, %.1f MiB were read",
            done, first, (double)ns / 1e9, (double)io.wait_ns / 1e9, (unsigned long long)io.hits,
            (unsigned long long)io.requests, (double)io.read_bytes / 1048576);
    return status;
}

sluice_status sluice_session_prefill(sluice_session *session, const int32_t *ids, size_t n_ids,
                                     sluice_error *err)
{
    return session_append(session, ids, n_ids, false, LOGITS_LAST, NULL, NULL, err);
}

sluice_status sluice_session_score(sluice_session *session, const int32_t *ids, size_t n_ids,
                                   sluice_logits_fn fn, void *user, sluice_error *err)
{
    return session_append(session, ids, n_ids, false, LOGITS_ALL, fn, user, err);
}

const float *sluice_session_logits(const sluice_session *session)
{
    return session->has_logits ? session->logits : NULL;
}

const int32_t *sluice_session_tokens(const sluice_session *session, size_t *n_tokens)
{
    *n_tokens = session->kv.length;
    return session->tokens;
}

/* ---- going back ---- */

sluice_status sluice_session_rewind(sluice_session *s, size_t n_tokens, sluice_error *err)
{
    if (n_tokens > s->kv.length)
        return err_set(err, SLUICE_E_ARGUMENT, "cannot go back to %zu tokens, there are only %u", n_tokens,
                       s->kv.length);
    if (n_tokens == s->kv.length)
        return SLUICE_OK;
    speculation_close(s);
    if (!kv_can_rewind(&s->kv, (uint32_t)n_tokens))
        return err_set(
            err, SLUICE_E_UNSUPPORTED,
            "cannot go back from %u to %zu tokens: a sliding window has forgotten what lies before; go back "
            "to 0 and prefill again",
            s->kv.high, n_tokens);
    kv_rewind(&s->kv, (uint32_t)n_tokens);
    (void)recurrent_rewind(&s->recurrent, (uint32_t)n_tokens);
    s->has_logits = false;
    return SLUICE_OK;
}

sluice_status sluice_session_sync(sluice_session *s, const int32_t *ids, size_t n_ids, size_t *reused_tokens,
                                  sluice_error *err)
{
    if (n_ids == 0)
        return err_set(err, SLUICE_E_ARGUMENT, "a timeline needs at least one token");
    if (n_ids > s->engine->options.context_tokens)
        return err_set(
            err, SLUICE_E_CONTEXT,
            "the conversation has %zu tokens, the context holds %u; start anew or raise --context (the "
            "model's maximum is %u)",
            n_ids, s->engine->options.context_tokens, s->engine->model->max_context);
    size_t common = 0;
    while (common < n_ids && common < s->kv.length && s->tokens[common] == ids[common])
        common++;
    /* The last token's logits are wanted, and exist only right after it was computed. */
    if (common == n_ids && !(common == s->kv.length && s->has_logits))
        common--;
    if (!kv_can_rewind(&s->kv, (uint32_t)common))
        common = 0;
    if (common < s->kv.length)
        TRY(sluice_session_rewind(s, common, err));
    if (reused_tokens)
        *reused_tokens = has_recurrent(s) ? s->recurrent.position : common;
    return sluice_session_prefill(s, ids + common, n_ids - common, err);
}

/* ---- snapshots ---- */

struct sluice_snapshot {
    const sluice_engine *engine;
    uint32_t length;
    bool has_logits;
    size_t kv_bytes;
    unsigned char *bytes; /* tokens | logits | kv | recurrent */
};

sluice_status sluice_session_snapshot(const sluice_session *s, sluice_snapshot **out, sluice_error *err)
{
    size_t tokens = s->kv.length * sizeof *s->tokens;
    size_t logits = s->has_logits ? s->engine->model->vocab * sizeof *s->logits : 0;
    size_t kv = kv_snapshot_bytes(&s->kv), recurrent = recurrent_snapshot_bytes(&s->recurrent);
    size_t total = tokens + logits + kv + recurrent;
    *out = NULL;
    sluice_snapshot *snapshot = mem_calloc(1, sizeof *snapshot);
    unsigned char *bytes = mem_alloc(total);
    if (!snapshot || !bytes) {
        mem_free(snapshot);
        mem_free(bytes);
        return err_memory(err, total, "a snapshot");
    }
    *snapshot = (sluice_snapshot){s->engine, s->kv.length, s->has_logits, kv, bytes};
    memcpy(bytes, s->tokens, tokens);
    memcpy(bytes + tokens, s->logits, logits);
    kv_save(&s->kv, bytes + tokens + logits);
    recurrent_save(&s->recurrent, bytes + tokens + logits + kv);
    *out = snapshot;
    return SLUICE_OK;
}

sluice_status sluice_session_restore(sluice_session *s, const sluice_snapshot *snapshot, sluice_error *err)
{
    if (snapshot->engine != s->engine)
        return err_set(err, SLUICE_E_ARGUMENT, "the snapshot belongs to another engine");
    speculation_close(s);
    size_t tokens = snapshot->length * sizeof *s->tokens;
    size_t logits = snapshot->has_logits ? s->engine->model->vocab * sizeof *s->logits : 0;
    memcpy(s->tokens, snapshot->bytes, tokens);
    memcpy(s->logits, snapshot->bytes + tokens, logits);
    kv_restore(&s->kv, snapshot->bytes + tokens + logits);
    recurrent_restore(&s->recurrent, snapshot->bytes + tokens + logits + snapshot->kv_bytes);
    s->has_logits = snapshot->has_logits;
    return SLUICE_OK;
}

void sluice_snapshot_free(sluice_snapshot *snapshot)
{
    if (!snapshot)
        return;
    mem_free(snapshot->bytes);
    mem_free(snapshot);
}

/* ---- the rest ---- */

void sluice_session_cancel(sluice_session *session)
{
    atomic_store(&session->cancel, true);
}

void sluice_session_uncancel(sluice_session *session)
{
    atomic_store(&session->cancel, false);
}

void sluice_session_stats_get(const sluice_session *session, sluice_session_stats *stats)
{
    *stats = session->stats;
}

/* ---- looking closer ---- */

void sluice_session_profile(sluice_session *session, bool on)
{
    session->profiling = on;
}

void sluice_session_profile_get(const sluice_session *session, sluice_profile *profile)
{
    static const char *const NAMES[PHASES] = {
        [PHASE_OTHER] = "other",         [PHASE_PROJECTIONS] = "projections",
        [PHASE_ATTENTION] = "attention", [PHASE_ROUTER] = "router",
        [PHASE_DENSE] = "dense branch",  [PHASE_REQUEST] = "expert requests",
        [PHASE_WAIT] = "read wait",      [PHASE_EXPERTS] = "experts",
        [PHASE_HEAD] = "head",           [PHASE_SAMPLING] = "sampling"};
    _Static_assert(PHASES == SLUICE_PHASES, "sluice.h counts the phases");
    for (int i = 0; i < PHASES; i++) {
        profile->names[i] = NAMES[i];
        profile->prefill_ns[i] = session->clocks[false].ns[i];
        profile->decode_ns[i] = session->clocks[true].ns[i];
    }
}

sluice_status sluice_session_record_routes(sluice_session *session, const char *path, sluice_error *err)
{
    struct route_recorder *before = session->recorder;
    session->recorder = NULL;
    TRY(recorder_close(before, err));
    if (!path)
        return SLUICE_OK;
    return recorder_open(&session->recorder, path, session->engine->model,
                         session->engine->options.prefill_chunk_tokens, err);
}
