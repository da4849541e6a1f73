/* Qwen 3.5 text models: three gated DeltaNet layers, then one of gated full attention, over and over; a
 * feed-forward part of routed experts with a gated shared one (Qwen 3.6 35B-A3B) or a dense one (Qwen 3.8
 * 27B), and optionally a layer that drafts the token after the next (multi-token prediction).
 * Equations: docs/models/qwen36.md and qwen38.md; Hugging Face transformers, models/qwen3_5 and qwen3_5_moe.
 *
 * The families are QWEN36 and QWEN38; the rest is shared by qwen.c, qwen_config.c and qwen_draft.c. */
#ifndef MODEL_QWEN_H
#define MODEL_QWEN_H

#include "model/config.h"
#include "model/family.h"

extern const struct family QWEN36, QWEN38;
extern const struct full_size QWEN36_FULL_SIZE, QWEN38_FULL_SIZE; /* 35B-A3B, 27B */

/* Tensors of a layer, in the order of the resident index (format b1). */
enum qwen_weight {
    QW_Q,
    QW_K,
    QW_V,
    QW_O,
    QW_Q_NORM,
    QW_K_NORM,
    QW_QKV,
    QW_Z,
    QW_A,
    QW_B,
    QW_CONV,
    QW_A_LOG,
    QW_DT_BIAS,
    QW_DELTA_NORM,
    QW_OUT,
    QW_ROUTER,
    QW_SHARED_GATE,
    QW_GATE, /* of the dense part, or of the shared expert */
    QW_UP,
    QW_DOWN,
    QW_NORM_IN,
    QW_NORM_POST,
    QW_WEIGHTS
};

#define QWEN_NONE SIZE_MAX

struct qwen_layer {
    bool full;                /* attention; otherwise DeltaNet */
    size_t index[QW_WEIGHTS]; /* into mats; QWEN_NONE when the layer has none */
    const struct mat *w[QW_WEIGHTS];
};

/* How a checkpoint names and forms its tensors. */
struct qwen_layout {
    const char *prefix, *head;
    bool original; /* as published: norm weights are stored less 1, convolutions [channels, 1, taps] */
};

/* What the drafting layer has beside an attention layer. */
enum qwen_draft_weight { QD_FC, QD_NORM_EMBEDDING, QD_NORM_HIDDEN, QD_NORM, QD_WEIGHTS };

struct qwen {
    struct model base;
    uint32_t heads, kv_heads, head_dim, rotated_pairs;
    uint32_t conv_taps, conv_channels;
    struct delta_shape delta;
    uint32_t dense, expert; /* width of the dense part or the shared expert; of a routed expert */
    float eps;
    double theta, partial_rotary;
    float *inv_freq; /* [rotated_pairs] */
    json_t *config;  /* a reference: specs are built again when the names are known */
    struct storage_map storage;
    struct storage
        described[5]; /* embedding, attention, router, dense or shared, experts: for the manifest */
    const struct qwen_layout *layout;
    struct qwen_layer *layers; /* n_layers, and one more for drafting */
    size_t embed_index, norm_index, head_index, draft_index[QD_WEIGHTS];
    const struct mat *embed, *norm, *head, *draft[QD_WEIGHTS];
};

static inline const struct qwen *qwen_of(const struct model *model)
{
    return (const struct qwen *)model; /* base is the first member */
}

/* Activations of one chunk. Comments give the floats per row. */
struct qwen_scratch {
    float *h;               /* hidden: the residual stream */
    float *x;               /* hidden: normed input of a branch */
    float *qg;              /* heads * 2 * head_dim: per head query, then gate */
    float *q, *gate;        /* heads * head_dim */
    float *k, *v;           /* kv_heads * head_dim */
    float *u, *c;           /* conv_channels: before and after the convolution */
    float *z;               /* value heads * value_dim */
    float *a, *b;           /* value heads */
    float *o;               /* heads * head_dim or value heads * value_dim */
    float *proj;            /* hidden: output of a branch */
    float *inner, *up;      /* dense */
    float *shared, *scaled; /* hidden */
    float *share, *ones;    /* 1 */
    float *router;          /* experts */
    float *pair;            /* with a drafting layer, 2 * hidden: embedding | hidden state */
    float *earlier;         /* with a drafting layer, hidden: states one position before */
    uint32_t *evens, *odds; /* heads: rows of qg */
    struct moe moe;
};

/* qwen_config.c */
sluice_status qwen_open(const struct family *family, const json_t *config, struct model **model,
                        sluice_error *err);
void qwen_close(struct model *model);
sluice_status qwen_arrange(struct model *model, model_has_fn has, void *user, sluice_error *err);
sluice_status qwen_describe(const struct model *model, json_t **arch, json_t **quant, sluice_error *err);

/* qwen_draft.c, beside family.h's draft(): after the rows of f, whose normed states are in s->x; and when
 * f->n_rows rows of a trial turned out to count. */
void qwen_draft_follow(const struct qwen *g, struct forward *f, struct qwen_scratch *s);
void qwen_draft_settle(const struct qwen *g, struct forward *f);
uint32_t qwen_draft(const struct model *model, struct forward *f, int32_t token, uint32_t n, int32_t *out);

/* qwen.c: h += out(attention(norm(h))) for f->n_rows rows at f->position0, keys and values in view `kv`. */
void qwen_attend(const struct qwen *g, struct forward *f, struct qwen_scratch *s,
                 const struct qwen_layer *layer, uint32_t kv);
/* h += dense(norm(h)). */
void qwen_dense(const struct qwen *g, struct forward *f, struct qwen_scratch *s,
                const struct qwen_layer *layer);

#endif
