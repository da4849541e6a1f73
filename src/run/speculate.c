#include "run/speculate.h"

#include "base/clock.h"
#include "run/session.h"

#include <string.h>

/* ---- drafters ---- */

static uint32_t draft_lookup(sluice_session *s, int32_t token, uint32_t n, int32_t *out)
{
    s->tokens[s->kv.length] = token;
    return lookup_guess(s->tokens, s->kv.length + 1, n, out);
}

static uint32_t draft_mtp(sluice_session *s, int32_t token, uint32_t n, int32_t *out)
{
    const struct model *model = s->engine->model;
    struct forward f = session_forward(s, s->kv.length, 1, true, NULL);
    f.logits = s->speculation.rows;
    return model->family->draft(model, &f, token, n, out);
}

/* Looking up costs nothing, and 16 rows are what products are fastest with; a layer that guesses costs time
 * for every guess, and its third or fourth is seldom right. */
static const struct {
    draft_fn draft;
    uint32_t most;
} DRAFTERS[] = {[SLUICE_DRAFT_OFF] = {NULL, 0},
                [SLUICE_DRAFT_LOOKUP] = {draft_lookup, 15},
                [SLUICE_DRAFT_MTP] = {draft_mtp, 4}};

draft_fn speculation_drafter(sluice_draft draft)
{
    return DRAFTERS[draft].draft;
}

uint32_t speculation_most(sluice_draft draft)
{
    return DRAFTERS[draft].most;
}

/* ---- open ---- */

size_t speculation_bytes(uint32_t vocab, uint32_t most)
{
    return most ? arena_cost((most + 1) * (size_t)vocab * sizeof(float)) : 0;
}

void speculation_open(struct speculation *sp, draft_fn draft, uint32_t vocab, uint32_t most,
                      struct arena *arena)
{
    *sp = (struct speculation){.draft = most ? draft : NULL, .most = most, .pace.accept = 0.8};
    if (most)
        sp->rows = arena_take(arena, (most + 1) * (size_t)vocab * sizeof(float));
}

/* ---- rounds ---- */

void speculation_close(sluice_session *s)
{
    struct speculation *sp = &s->speculation;
    if (!sp->open)
        return;
    sp->open = false;
    if (s->recurrent.n_layers == 0 || s->recurrent.position != sp->start)
        return;
    const struct model *model = s->engine->model;
    struct forward f = session_forward(s, sp->start, sp->taken, true, NULL);
    model->family->settle(model, &f);
    s->recurrent.position = sp->start + sp->taken;
}

/* The logits after the last row that counts become the session's. */
static sluice_status show_row(sluice_session *s, sluice_error *err)
{
    const struct speculation *sp = &s->speculation;
    const uint32_t vocab = s->engine->model->vocab;
    const float *row = sp->rows + (size_t)(sp->taken - 1) * vocab;
    s->has_logits = false;
    if (!s->backend->ops->finite(s->backend, row, vocab))
        return err_set(err, SLUICE_E_NUMERIC,
                       "the logits at position %u are not finite; the weights or the arithmetic are broken",
                       s->kv.length - 1);
    memcpy(s->logits, row, vocab * sizeof *row);
    s->has_logits = true;
    return SLUICE_OK;
}

/* True when the next row of the round is this token: it counts now. */
static bool take(sluice_session *s, int32_t token)
{
    struct speculation *sp = &s->speculation;
    if (!sp->open || sp->taken > sp->n)
        return false;
    bool hit = sp->ids[sp->taken] == token;
    pace_test(&sp->pace, hit);
    s->stats.draft_tested++;
    if (!hit)
        return false;
    s->stats.draft_accepted++;
    sp->taken++;
    s->kv.length++;
    return true;
}

/* One token more, since `from`; returns how long that took. */
static uint64_t count(sluice_session *s, uint64_t from, const struct lease_stats *io)
{
    phase_enter(session_clock(s, true), PHASE_OTHER);
    const uint64_t ns = clock_ns() - from;
    session_count(s, true, 1, ns, io);
    return ns;
}

/* One pass over the token and the n guesses in sp->ids. */
static sluice_status verify(sluice_session *s, uint32_t n, uint64_t from, sluice_error *err)
{
    struct speculation *sp = &s->speculation;
    struct lease_stats io = {0};
    memcpy(s->tokens + s->kv.length, sp->ids, (n + 1) * sizeof *sp->ids);
    s->has_logits = false;
    struct forward f = session_forward(s, s->kv.length, n + 1, true, &io);
    f.mode = LOGITS_ROWS;
    f.logits = sp->rows;
    f.trial = true;
    TRY(session_run_forward(s, &f, err));
    sp->open = true;
    sp->start = s->kv.length;
    sp->n = n;
    sp->taken = 1;
    s->kv.length++;
    s->stats.draft_rounds++;
    s->stats.draft_guesses += n;
    s->stats.draft_expert_requests += io.requests;
    TRY(show_row(s, err));
    pace_round(&sp->pace, n, (double)count(s, from, &io));
    return SLUICE_OK;
}

/* What pays; a rest that begins is told. */
static uint32_t paced(sluice_session *s, uint32_t most)
{
    struct pace *pace = &s->speculation.pace;
    const bool rested = pace->rest > 0;
    const double accept = pace->accept;
    const uint32_t n = pace_choose(pace, most);
    if (!rested && pace->rest > 0)
        log_info(
            &s->engine->log,
            "drafting rests for %u tokens: it does not pay (%.0f %% of the guesses are right, a pass without "
            "takes %.1f ms)",
            pace->rest, 100 * accept, pace->plain_ns / 1e6);
    return n;
}

/* How many guesses may follow the token: what pays, fits the context and the chunk that scratch is for; none
 * while something records what a pass does, pass by pass. */
static uint32_t room(sluice_session *s)
{
    struct speculation *sp = &s->speculation;
    const uint32_t context = s->engine->options.context_tokens,
                   chunk = s->engine->options.prefill_chunk_tokens;
    uint32_t most = sp->most;
    const bool behind = s->recurrent.n_layers > 0 && s->recurrent.position < s->kv.length;
    if (!sp->draft || behind || s->tracer || s->watch || s->recorder || s->override ||
        s->kv.length + 1 >= context)
        return 0;
    most = most < chunk - 1 ? most : chunk - 1;
    most = most < context - s->kv.length - 1 ? most : context - s->kv.length - 1;
    return sp->steady ? most : paced(s, most);
}

sluice_status speculate(sluice_session *s, int32_t token, sluice_error *err)
{
    struct speculation *sp = &s->speculation;
    const uint64_t from = clock_ns();
    phase_resume(session_clock(s, true), PHASE_OTHER);
    if (take(s, token)) {
        TRY(show_row(s, err));
        (void)count(s, from, &(struct lease_stats){0});
        return SLUICE_OK;
    }
    speculation_close(s);
    uint32_t n = room(s);
    if (n > 0) {
        sp->ids[0] = token;
        n = sp->draft(s, token, n, sp->ids + 1);
    }
    if (n > 0)
        return verify(s, n, from, err);
    sluice_status status = session_append(s, &token, 1, true, LOGITS_LAST, NULL, NULL, err);
    if (status == SLUICE_OK)
        pace_plain(&sp->pace, (double)(clock_ns() - from));
    return status;
}
