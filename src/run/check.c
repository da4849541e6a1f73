/* sluice check: the default arithmetic beside the reference mode, on the same weights. */
#include "run/session.h"

#include "compute/math64.h"

/* log-softmax normaliser in double. */
static double log_total(const float *x, uint32_t n)
{
    double max = (double)x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (uint32_t i = 0; i < n; i++) {
        double d = (double)x[i] - max;
        sum += d < -700 ? 0 : math64_exp(d);
    }
    return max + math64_log(sum);
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* KL(reference || other) in nats: sum of p (log p - log q). */
static double divergence(const float *reference, const float *other, uint32_t n)
{
    double log_p = log_total(reference, n), log_q = log_total(other, n), kl = 0;
    for (uint32_t i = 0; i < n; i++) {
        double p = (double)reference[i] - log_p, q = (double)other[i] - log_q;
        if (p > -700)
            kl += math64_exp(p) * (p - q);
    }
    return kl;
}

struct comparison {
    sluice_session *reference, *other;
    sluice_check_report *report;
    uint32_t vocab, prompt; /* index of the prompt */
    uint64_t agreed;
    double total;
};

/* Compare the logits that both sessions have; returns the reference's best token. */
static int32_t compare_here(struct comparison *c)
{
    sluice_check_report *report = c->report;
    const float *p = sluice_session_logits(c->reference), *q = sluice_session_logits(c->other);
    double kl = divergence(p, q, c->vocab);
    uint32_t best = argmax(p, c->vocab);
    size_t n;
    (void)sluice_session_tokens(c->reference, &n);
    c->agreed += argmax(q, c->vocab) == best;
    c->total += kl;
    report->positions++;
    if (report->positions == 1 || kl > report->max_kl) {
        report->max_kl = kl;
        report->worst_token = (int32_t)best;
        report->worst_prompt = c->prompt;
        report->worst_position = (uint32_t)n - 1;
    }
    return (int32_t)best;
}

static sluice_status append_both(struct comparison *c, const int32_t *ids, size_t n, sluice_error *err)
{
    TRY(sluice_session_prefill(c->reference, ids, n, err));
    return sluice_session_prefill(c->other, ids, n, err);
}

static bool ends_turn(const sluice_engine *engine, int32_t id)
{
    for (size_t i = 0; i < engine->n_stop_ids; i++)
        if (engine->stop_ids[i] == id)
            return true;
    return false;
}

static sluice_status compare_prompt(struct comparison *c, const sluice_prompt *prompt, sluice_error *err)
{
    const sluice_engine *engine = session_engine(c->reference);
    if (prompt->n_ids == 0 || prompt->first >= prompt->n_ids)
        return err_set(err, SLUICE_E_ARGUMENT, "prompt %u has no tokens to compare", c->prompt);
    TRY(sluice_session_rewind(c->reference, 0, err));
    TRY(sluice_session_rewind(c->other, 0, err));
    TRY(append_both(c, prompt->ids, prompt->first, err));
    /* Token by token: a chunk cannot change a bit, and two rows of logits are all that is held. */
    int32_t best = 0;
    for (size_t i = prompt->first; i < prompt->n_ids; i++) {
        TRY(append_both(c, &prompt->ids[i], 1, err));
        best = compare_here(c);
    }
    size_t n;
    for (uint32_t i = 0; i < prompt->answer_tokens && !ends_turn(engine, best); i++) {
        (void)sluice_session_tokens(c->reference, &n);
        if (n >= engine->options.context_tokens)
            break;
        TRY(append_both(c, &best, 1, err));
        best = compare_here(c);
    }
    return SLUICE_OK;
}

sluice_status sluice_check(const char *install_dir, const sluice_engine_options *options,
                           const sluice_prompt *prompts, size_t n_prompts, sluice_check_report *report,
                           sluice_error *err)
{
    sluice_engine_options o = options ? *options : (sluice_engine_options){0};
    sluice_kv_type kv = o.kv;
    /* Two sessions on one engine, planned at the larger state. */
    o.kv = SLUICE_KV_F32;
    o.max_sessions = 2;
    *report = (sluice_check_report){0};
    sluice_engine *engine = NULL;
    struct comparison c = {.report = report};
    sluice_status status;
    TRY_OUT(sluice_engine_open(install_dir, &o, &engine, err));
    c.vocab = engine->model->vocab;
    TRY_OUT(session_open_with(engine, SLUICE_ACTIVATIONS_F32, SLUICE_KV_F32, &c.reference, err));
    TRY_OUT(session_open_with(engine, o.activations, kv, &c.other, err));
    for (size_t i = 0; i < n_prompts; i++) {
        c.prompt = (uint32_t)i;
        TRY_OUT(compare_prompt(&c, &prompts[i], err));
    }
    if (report->positions == 0)
        TRY_OUT(err_set(err, SLUICE_E_ARGUMENT, "there is nothing to check: no prompt is given"));
    report->mean_kl = c.total / (double)report->positions;
    report->top1_agreement = (double)c.agreed / (double)report->positions;
out:
    sluice_session_close(c.other);
    sluice_session_close(c.reference);
    sluice_engine_close(engine);
    return status;
}
