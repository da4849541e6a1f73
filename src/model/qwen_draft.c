/* The drafting layer (multi-token prediction): from the token at position j + 1 and the model's normed hidden
 * state at position j it guesses the token at j + 2. docs/models/qwen38.md, section 5.
 *
 * Its keys and values at position j stem from that pair. The model's own forward passes keep them exact for
 * every position that counts; while drafting, further ones are made from guesses and later overwritten. What
 * it guesses decides speed, never output. */
#include "model/qwen.h"

#include <string.h>

/* The layer's input from pairs: s->h [n_rows] = fc([norm(embedding of ids) ; norm(hidden)]). */
static void join(const struct qwen *g, struct forward *f, struct qwen_scratch *s, const float *hidden)
{
    const struct backend_ops *ops = f->backend->ops;
    const uint32_t n = f->n_rows, width = g->base.hidden;
    ops->embed(f->backend, g->embed, f->ids, n, 1.0f, s->h);
    ops->norm(f->backend, s->h, g->draft[QD_NORM_EMBEDDING], n, width, g->eps, s->h);
    ops->norm(f->backend, hidden, g->draft[QD_NORM_HIDDEN], n, width, g->eps, s->proj);
    for (uint32_t r = 0; r < n; r++) {
        memcpy(s->pair + 2 * (size_t)r * width, s->h + (size_t)r * width, width * sizeof *s->pair);
        memcpy(s->pair + (2 * (size_t)r + 1) * width, s->proj + (size_t)r * width, width * sizeof *s->pair);
    }
    ops->linear(f->backend, &g->draft[QD_FC], 1, s->pair, n, &s->h);
}

/* Keys and values of the pairs that f->n_rows rows complete: (ids[0], the state before them) and so on. The
 * normed hidden states of the rows are in s->x. */
void qwen_draft_follow(const struct qwen *g, struct forward *f, struct qwen_scratch *s)
{
    const struct backend_ops *ops = f->backend->ops;
    const uint32_t n = f->n_rows, width = g->base.hidden, hd = g->head_dim;
    const uint32_t place = g->base.n_layers, first = f->position0 == 0;
    const struct qwen_layer *layer = &g->layers[place];
    const struct recurrent_view view = recurrent_begin(f->recurrent, place, f->trial);
    if (f->trial)
        memcpy(view.log, s->x, (size_t)n * width * sizeof *view.log);
    /* Hidden states one position earlier: the one that was kept, then all rows but the last. The first token
     * of all has none before it, and completes no pair. */
    memcpy(s->earlier, view.tail, width * sizeof *s->earlier);
    memcpy(s->earlier + width, s->x, (size_t)(n - 1) * width * sizeof *s->earlier);
    if (f->mark) {
        memcpy(view.tail, s->x + (size_t)(f->mark - 1) * width, width * sizeof *view.tail);
        recurrent_mark(f->recurrent, place);
    }
    memcpy(view.tail, s->x + (size_t)(n - 1) * width, width * sizeof *view.tail);
    if (n == first)
        return;
    struct forward pairs = *f;
    pairs.ids += first;
    pairs.n_rows -= first;
    pairs.position0 -= 1 - first;
    join(g, &pairs, s, s->earlier + (size_t)first * width);
    ops->norm(f->backend, s->h, layer->w[QW_NORM_IN], pairs.n_rows, width, g->eps, s->x);
    const struct mat *mats[] = {layer->w[QW_K], layer->w[QW_V]};
    float *ys[] = {s->k, s->v};
    ops->linear(f->backend, mats, 2, s->x, pairs.n_rows, ys);
    ops->norm(f->backend, s->k, layer->w[QW_K_NORM], pairs.n_rows * g->kv_heads, hd, g->eps, s->k);
    const struct rope rope = {g->rotated_pairs, g->rotated_pairs, g->inv_freq};
    ops->rope(f->backend, s->k, pairs.n_rows, g->kv_heads, hd, &rope, pairs.position0);
    ops->kv_store(f->backend, &f->kv->views[place], s->k, s->v, pairs.n_rows, pairs.position0);
}

/* The hidden state of the last row that counts. */
void qwen_draft_settle(const struct qwen *g, struct forward *f)
{
    const uint32_t width = g->base.hidden;
    const struct recurrent_view view = recurrent_begin(f->recurrent, g->base.n_layers, false);
    memcpy(view.tail, view.log + (size_t)(f->n_rows - 1) * width, width * sizeof *view.tail);
}

static int32_t best_of(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

uint32_t qwen_draft(const struct model *m, struct forward *f, int32_t token, uint32_t n, int32_t *out)
{
    const struct qwen *g = qwen_of(m);
    struct qwen_scratch *s = f->scratch;
    const struct backend_ops *ops = f->backend->ops;
    const struct qwen_layer *layer = &g->layers[m->n_layers];
    if (f->position0 == 0)
        return 0; /* nothing was computed that it could go on from */
    memcpy(s->earlier, f->recurrent->views[m->n_layers].tail, m->hidden * sizeof *s->earlier);
    struct forward one = *f;
    one.n_rows = 1;
    one.tracer = NULL;
    one.ids = &token;
    for (uint32_t i = 0; i < n; i++) {
        one.position0 = f->position0 - 1 + i;
        join(g, &one, s, s->earlier);
        qwen_attend(g, &one, s, layer, m->n_layers);
        qwen_dense(g, &one, s, layer);
        ops->norm(f->backend, s->h, g->draft[QD_NORM], 1, m->hidden, g->eps, s->x);
        ops->linear(f->backend, &g->head, 1, s->x, 1, &f->logits);
        token = out[i] = best_of(f->logits, m->vocab);
        memcpy(s->earlier, s->x, m->hidden * sizeof *s->earlier); /* the next pair's hidden state */
    }
    return n;
}
