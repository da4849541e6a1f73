/* The generation loop: draw, show what is final, append. */
#include "run/session.h"

#include "base/clock.h"
#include "run/chat.h"
#include "text/stops.h"

#include <string.h>

#define TOP_LOGPROBS_MAX 20

sluice_status sluice_session_sample(sluice_session *s, const sluice_sampling *sampling,
                                    sluice_token_logprob *choice, sluice_token_logprob *top, size_t n_top,
                                    sluice_error *err)
{
    if (!s->has_logits)
        return err_set(err, SLUICE_E_ARGUMENT, "there are no logits to sample from; append a token first");
    if (n_top > s->engine->model->vocab)
        return err_set(err, SLUICE_E_ARGUMENT, "%zu likeliest tokens were asked for, the vocabulary has %u",
                       n_top, s->engine->model->vocab);
    TRY(sluice_sampling_check(sampling, err));
    sampler_draw(&s->sampler, s->logits, s->tokens, s->kv.length, sampling, choice, top, n_top);
    return SLUICE_OK;
}

struct generation {
    sluice_session *session;
    const sluice_generate_options *options;
    sluice_piece_fn fn;
    void *user;
    struct tok_stream decoder;
    struct stops stops;
    struct str final; /* text to show */
    sluice_token_logprob top[TOP_LOGPROBS_MAX];
};

static const int32_t *stop_ids(const struct generation *g, size_t *n)
{
    const sluice_generate_options *o = g->options;
    *n = o->ignore_stop_ids ? 0 : o->stop_ids ? o->n_stop_ids : g->session->engine->n_stop_ids;
    return o->stop_ids ? o->stop_ids : g->session->engine->stop_ids;
}

static bool is_stop_id(const struct generation *g, int32_t id)
{
    size_t n;
    const int32_t *ids = stop_ids(g, &n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Room for the text of any token of a published vocabulary, so that the loop asks for none. */
enum { TEXT_BYTES = 4096 };

static sluice_status reserve_text(struct generation *g, sluice_error *err)
{
    struct str *texts[] = {&g->decoder.held, &g->decoder.out, &g->stops.held, &g->final};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!str_reserve(texts[i], TEXT_BYTES))
            return err_memory(err, TEXT_BYTES, "the answer's text");
    return SLUICE_OK;
}

/* Hand out what is final. *go_on: the caller wants more. */
static sluice_status show(struct generation *g, const sluice_token_logprob *token, uint32_t n_top,
                          bool *go_on, sluice_error *err)
{
    sluice_piece piece = {
        .text = g->final.p ? g->final.p : "",
        .text_bytes = g->final.len,
        .token = *token,
        .top = g->top,
        .n_top = n_top,
    };
    if (g->options->chat) {
        TRY(chat_feed(g->options->chat, piece.text, piece.text_bytes, err));
        TRY(chat_deltas(g->options->chat, &piece.deltas, &piece.n_deltas, err));
    }
    *go_on = !g->fn || g->fn(g->user, &piece);
    str_clear(&g->final);
    return SLUICE_OK;
}

/* Decode a token and move what is final to g->final. *hit: the stop string that it completed, or -1. */
static sluice_status feed(struct generation *g, int32_t id, int *hit, sluice_error *err)
{
    str_clear(&g->decoder.out);
    /* Marks of a chat are control tokens, which are silent otherwise. */
    g->decoder.show_control =
        g->options->show_control || (g->options->chat && chat_shows(g->options->chat, id));
    TRY(tok_stream_push(&g->decoder, id, err));
    return stops_feed(&g->stops, g->decoder.out.p ? g->decoder.out.p : "", g->decoder.out.len, &g->final, hit,
                      err);
}

/* What decoder and stop matcher hold back becomes final, unless a stop string ended the text. */
static sluice_status flush(struct generation *g, sluice_generated *result, sluice_error *err)
{
    static const sluice_token_logprob NO_TOKEN = {.id = -1};
    int hit = result->stop_string;
    if (hit < 0) {
        str_clear(&g->decoder.out);
        TRY(tok_stream_finish(&g->decoder, err));
        TRY(stops_feed(&g->stops, g->decoder.out.p ? g->decoder.out.p : "", g->decoder.out.len, &g->final,
                       &hit, err));
        if (hit < 0)
            TRY(stops_finish(&g->stops, &g->final, err));
        else
            result->stop_string = hit, result->finish = SLUICE_FINISH_STOP;
    }
    bool go_on, rest = g->final.len > 0;
    if (g->options->chat) {
        sluice_chat *chat = g->options->chat;
        TRY(chat_feed(chat, g->final.p ? g->final.p : "", g->final.len, err));
        TRY(chat_finish(chat, result->finish != SLUICE_FINISH_STOP, err));
        result->finish = chat_finish_reason(chat, result->finish);
        sluice_piece piece = {
            .text = g->final.p ? g->final.p : "", .text_bytes = g->final.len, .token = NO_TOKEN};
        TRY(chat_deltas(chat, &piece.deltas, &piece.n_deltas, err));
        if (g->fn && (rest || piece.n_deltas))
            (void)g->fn(g->user, &piece);
        return SLUICE_OK;
    }
    return rest ? show(g, &NO_TOKEN, 0, &go_on, err) : SLUICE_OK;
}

/* Draw the next token, from what is allowed. *complete: nothing can follow it. */
static sluice_status draw(struct generation *g, sluice_token_logprob *token, bool *complete,
                          sluice_error *err)
{
    sluice_session *s = g->session;
    sluice_chat *chat = g->options->chat;
    sluice_constraint *constraint = chat ? chat_constraint(chat) : g->options->constraint;
    const uint64_t *forced = chat ? chat_forced(chat) : NULL;
    size_t n_stops;
    const int32_t *stops = stop_ids(g, &n_stops);
    *complete = false;
    if (forced)
        s->sampler.allowed = forced;
    else if (constraint)
        TRY(constraint_allow(constraint, &s->sampler, stops, n_stops, err));
    sluice_status status =
        sluice_session_sample(s, &g->options->sampling, token, g->top, g->options->top_logprobs, err);
    s->sampler.allowed = NULL;
    TRY(status);
    if (chat)
        chat_count(chat);
    return constraint && !is_stop_id(g, token->id) ? constraint_take(constraint, token->id, complete, err)
                                                   : SLUICE_OK;
}

static sluice_status loop(struct generation *g, sluice_generated *result, sluice_error *err)
{
    sluice_session *s = g->session;
    const sluice_generate_options *o = g->options;
    uint32_t n_top = o->top_logprobs;
    for (;;) {
        if (atomic_load(&s->cancel)) {
            result->finish = SLUICE_FINISH_CANCELLED;
            return SLUICE_OK;
        }
        result->finish = SLUICE_FINISH_LENGTH;
        if (o->max_tokens && result->tokens >= o->max_tokens)
            return SLUICE_OK;
        uint64_t from = clock_ns();
        struct phase_clock *clock = session_clock(s, true);
        phase_resume(clock, PHASE_SAMPLING);
        sluice_token_logprob token;
        int hit;
        bool complete = false;
        TRY(draw(g, &token, &complete, err));
        if (is_stop_id(g, token.id)) {
            result->stop_id = token.id;
            result->finish = SLUICE_FINISH_STOP;
            return SLUICE_OK;
        }
        result->tokens++;
        TRY(feed(g, token.id, &hit, err));
        phase_enter(clock, PHASE_OTHER);
        s->stats.decode_ns += clock_ns() - from;
        bool go_on;
        TRY(show(g, &token, n_top, &go_on, err));
        if (hit >= 0) {
            result->stop_string = hit;
            result->finish = SLUICE_FINISH_STOP;
            return SLUICE_OK;
        }
        if (complete) {
            result->finish = SLUICE_FINISH_STOP;
            return SLUICE_OK;
        }
        if (!go_on) {
            result->finish = SLUICE_FINISH_CANCELLED;
            return SLUICE_OK;
        }
        bool last = (o->max_tokens && result->tokens >= o->max_tokens) ||
                    s->kv.length >= s->engine->options.context_tokens;
        if (last)
            return SLUICE_OK;
        sluice_status status = speculate(s, token.id, err);
        if (status == SLUICE_E_CANCELLED) {
            result->finish = SLUICE_FINISH_CANCELLED;
            return SLUICE_OK;
        }
        TRY(status);
    }
}

sluice_status sluice_generate(sluice_session *session, const sluice_generate_options *options,
                              sluice_piece_fn fn, void *user, sluice_generated *result, sluice_error *err)
{
    if (options->top_logprobs > TOP_LOGPROBS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "%u log-probabilities per token were asked for, the most is %d", options->top_logprobs,
                       TOP_LOGPROBS_MAX);
    TRY(sluice_sampling_check(&options->sampling, err));
    if (options->constraint && options->chat)
        return err_set(err, SLUICE_E_ARGUMENT, "a chat brings its own constraint; give one or the other");
    if ((options->constraint || (options->chat && options->chat->constraint)) && options->n_stops)
        return err_set(
            err, SLUICE_E_ARGUMENT,
            "stop strings would cut an answer that a grammar or schema shapes; give one or the other");
    if (options->constraint)
        constraint_restart(options->constraint);
    if (options->chat)
        chat_begin(options->chat);
    *result = (sluice_generated){.stop_id = -1, .stop_string = -1};
    struct generation g = {.session = session, .options = options, .fn = fn, .user = user};
    sluice_status status;
    tok_stream_open(&g.decoder, session->engine->text->tok, options->show_control);
    TRY_OUT(stops_open(&g.stops, options->stops, options->n_stops, err));
    TRY_OUT(reserve_text(&g, err));
    status = loop(&g, result, err);
    speculation_close(session);
    TRY_OUT(status);
    status = flush(&g, result, err);
out:
    tok_stream_close(&g.decoder);
    stops_close(&g.stops);
    str_free(&g.final);
    return status;
}
