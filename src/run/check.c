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

static sluice_status compare_prompt(sluice_session *reference, sluice_session *other,
                                    const sluice_prompt *prompt, uint32_t index, uint32_t vocab,
                                    sluice_check_report *report, uint64_t *agreed, double *total,
                                    sluice_error *err)
{
    TRY(sluice_session_rewind(reference, 0, err));
    TRY(sluice_session_rewind(other, 0, err));
    /* Token by token: a chunk cannot change a bit, and two rows of logits are all that is held. */
    for (size_t i = 0; i < prompt->n_ids; i++) {
        TRY(sluice_session_prefill(reference, &prompt->ids[i], 1, err));
        TRY(sluice_session_prefill(other, &prompt->ids[i], 1, err));
        const float *p = sluice_session_logits(reference), *q = sluice_session_logits(other);
        double kl = divergence(p, q, vocab);
        uint32_t best = argmax(p, vocab);
        *agreed += argmax(q, vocab) == best;
        *total += kl;
        report->positions++;
        if (report->positions == 1 || kl > report->max_kl) {
            report->max_kl = kl;
            report->worst_token = (int32_t)best;
            report->worst_prompt = index;
            report->worst_position = (uint32_t)i;
        }
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
    sluice_session *reference = NULL, *other = NULL;
    uint64_t agreed = 0;
    double total = 0;
    sluice_status status;
    TRY_OUT(sluice_engine_open(install_dir, &o, &engine, err));
    TRY_OUT(session_open_with(engine, SLUICE_ACTIVATIONS_F32, SLUICE_KV_F32, &reference, err));
    TRY_OUT(session_open_with(engine, o.activations, kv, &other, err));
    for (size_t i = 0; i < n_prompts; i++)
        TRY_OUT(compare_prompt(reference, other, &prompts[i], (uint32_t)i, engine->model->vocab, report,
                               &agreed, &total, err));
    if (report->positions == 0)
        TRY_OUT(err_set(err, SLUICE_E_ARGUMENT, "there is nothing to check: the prompts have no tokens"));
    report->mean_kl = total / (double)report->positions;
    report->top1_agreement = (double)agreed / (double)report->positions;
out:
    sluice_session_close(other);
    sluice_session_close(reference);
    sluice_engine_close(engine);
    return status;
}
