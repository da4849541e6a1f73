/* What a model family is: how its config.json is read and checked, which tensors it needs, how much state a
 * session has, and its forward pass. One file per family, one row in families.c.
 *
 * A struct model is one checkpoint's shape with its weights bound; immutable after bind and shared by
 * sessions. A struct forward is one call of the graph on a chunk of rows. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "base/json.h"
#include "compute/backend.h"
#include "experts/cache.h"
#include "model/kv.h"
#include "model/moe.h"
#include "model/phase.h"
#include "model/recurrent.h"

#include <stdatomic.h>

struct family;
struct forward;

struct model {
    const struct family *family;
    /* set by family->open */
    uint32_t n_layers, hidden, vocab, max_context;
    uint32_t n_experts, top_k; /* n_experts 0: no routed experts */
    int32_t stop_ids[16];      /* config.json's eos_token_id */
    uint32_t n_stop_ids;
    struct tensor_spec *specs; /* resident tensors in index order, then expert stacks */
    size_t n_specs, n_resident;
    bool drafts;                       /* has a layer of its own for drafting (family->draft) */
    struct kv_shape *kv;               /* n_layers, and with `drafts` one more */
    struct recurrent_shape *recurrent; /* likewise; NULL: no layer has such a state */
    struct backend_limits limits;      /* rows, context, routes, hidden: by the session */
    /* set by the engine before family->bind */
    struct mat *mats; /* n_resident, in spec order */
};

/* Whether a checkpoint or an install has a tensor of that name. */
typedef bool (*model_has_fn)(void *user, const char *name);

/* A checkpoint of the family's published size, for random weights (sluice synth). */
struct full_override {
    const char *module; /* path, with one %u for the layer */
    uint8_t bits;
    uint16_t group_size;
};

struct full_control {
    const char *text;
    uint32_t id;
};

/* Random matrices map unit variance to unit variance; those whose name contains `part`, to `gain` times as
 * much.
 */
struct full_gain {
    const char *part;
    float gain;
};

struct full_size {
    /* config.json. "layer_types" is one period, repeated over the layers; what is stored otherwise than the
     * rest is added from `overrides`. */
    const char *config;
    const struct full_override *overrides; /* NULL-ended */
    const struct full_gain *gains;         /* NULL-ended */
    /* The tokenizer's control tokens, by rising id; ids below `control_ids` that none of them has are unused.
     */
    const struct full_control *control; /* NULL-ended */
    uint32_t control_ids;
    const char *bos, *eos; /* bos NULL: there is none */
};

struct family {
    const char *name;
    const struct full_size *full_size; /* NULL: none is known */
    const char *const *model_types;    /* config.json's "model_type", NULL-ended */
    const char *const *skip;           /* substrings of tensor names to leave out at install, NULL-ended */
    /* For quantizing an unquantized checkpoint at install; NULL: the family cannot be (base/tensor.h). */
    const struct tensor_alias *aliases;
    const char *const *keep_8_bits; /* substrings of modules that keep 8 bits, NULL-ended */
    /* Optional: a file that may lie beside a checkpoint's own, whose tensors with the prefix belong to it.
     * Conversions drop the drafting layer, which the original's last shard has. */
    const char *extra_file, *extra_prefix;
    const char *const *stop_spellings; /* control tokens that end a turn, NULL-ended */
    /* Parse and validate config.json: an unsupported value is named. */
    sluice_status (*open)(const json_t *config, struct model **model, sluice_error *err);
    void (*close)(struct model *model);
    /* Optional: fit the specs to the names that a source or an install has, where a family's checkpoints come
     * in several layouts or with parts that may be missing. Before describe and bind. */
    sluice_status (*arrange)(struct model *model, model_has_fn has, void *user, sluice_error *err);
    /* The manifest's "arch" and "quant" objects, new references. */
    sluice_status (*describe)(const struct model *model, json_t **arch, json_t **quant, sluice_error *err);
    /* Resolve what the graph needs from model->mats. */
    sluice_status (*bind)(struct model *model, sluice_error *err);
    /* Bytes of a session's activations for chunks of `rows`, and their layout in an arena. */
    size_t (*scratch_bytes)(const struct model *model, uint32_t rows);
    void *(*scratch_open)(const struct model *model, uint32_t rows, struct arena *arena);
    /* Run f->n_rows rows; fills f->logits as asked. On failure the session's state below position0 is intact.
     */
    sluice_status (*forward)(const struct model *model, struct forward *f, sluice_error *err);
    /* Of a family with recurrent state: the first f->n_rows rows of the last trial count. */
    void (*settle)(const struct model *model, struct forward *f);
    /* Of a model that drafts: guess up to n tokens after `token`, which will be at f->position0. Returns how
     * many. f->logits is scratch; n_rows is not looked at. */
    uint32_t (*draft)(const struct model *model, struct forward *f, int32_t token, uint32_t n, int32_t *out);
    /* Optional. During moe_begin() of the layer before: up to n experts that `layer` is likely to need, best
     * first, from the one row's residual stream as it is. Returns how many; touches no state but scratch that
     * is free then, and records no trace. */
    uint32_t (*guess)(const struct model *model, struct forward *f, uint32_t layer, uint32_t n,
                      uint16_t *ids);
    uint32_t
        lookahead; /* experts to guess where nothing else is asked for; 0: guessing was not seen to pay */
};

/* NULL-ended. */
extern const struct family *const FAMILIES[];

/* Find the family of a config.json and open it; SLUICE_E_UNSUPPORTED lists what is supported. */
sluice_status model_open(const json_t *config, struct model **model, sluice_error *err);
void model_close(struct model *model); /* NULL is fine */

/* ---- one call of the graph ---- */

/* Gets every tensor and discrete choice of a forward pass in the order of computation (sluice trace). */
struct tracer {
    void *user;
    void (*record)(void *user, int32_t layer, const char *name, const char *dtype, uint32_t rows,
                   uint32_t cols, const void *data, size_t bytes);
};

/* Sees every layer's experts as the router chose them: ids [rows][top_k] of the rows from position0 on. */
struct route_watch {
    void *user;
    void (*routed)(void *user, uint32_t layer, uint32_t position0, uint32_t rows, uint32_t top_k,
                   const uint16_t *ids);
};

/* Puts other experts in place of the router's, which keep its weights: the answer is nonsense then. Only the
 * benchmark sets one, on sessions that nobody else can reach. The ids of a row must be distinct. */
struct route_override {
    void *user;
    void (*route)(void *user, uint32_t layer, uint32_t position0, uint32_t rows, uint32_t top_k,
                  uint16_t *ids);
    /* Writes n distinct guesses of the experts of the row at `position`, likelier ones first; as good as the
     * model's own would be if the experts were its own. */
    void (*guess)(void *user, uint32_t layer, uint32_t position, uint32_t n, uint16_t *ids);
};

/* LOGITS_ALL passes the logits row by row to a function; LOGITS_ROWS leaves all of them. */
enum logits_mode { LOGITS_NONE, LOGITS_LAST, LOGITS_ALL, LOGITS_ROWS };

struct forward {
    const struct model *model;
    struct backend *backend;
    struct expert_cache *experts;
    struct kv_cache *kv;
    struct recurrent *recurrent;
    uint32_t mark; /* after so many rows, recurrent_mark() each layer; 0: not in this call */
    bool trial;    /* the rows may not count: leave recurrent state as it is and log what settle() needs */
    bool drafting; /* keep what the drafting layer goes on from */
    void *scratch; /* of family->scratch_open */
    const int32_t *ids;
    uint32_t n_rows, position0;
    enum logits_mode mode;
    float *logits; /* [vocab]: LOGITS_LAST leaves the last row's here; LOGITS_ALL passes each row's to `sink`;
                      LOGITS_ROWS fills [n_rows][vocab] */
    sluice_logits_fn sink;
    void *sink_user;
    const struct tracer *tracer; /* NULL: none; so for the next three */
    const struct route_watch *watch;
    const struct route_override *override;
    struct phase_clock *clock;
    const atomic_bool *cancel;
    uint32_t lookahead; /* experts of the next layer to guess; 0: none */
    struct lease_stats *stats;
};

static inline void trace_f32(const struct forward *f, int32_t layer, const char *name, const float *x,
                             uint32_t rows, uint32_t cols)
{
    if (f->tracer)
        f->tracer->record(f->tracer->user, layer, name, "f32", rows, cols, x,
                          (size_t)rows * cols * sizeof *x);
}

static inline void trace_u16(const struct forward *f, int32_t layer, const char *name, const uint16_t *x,
                             uint32_t rows, uint32_t cols)
{
    if (f->tracer)
        f->tracer->record(f->tracer->user, layer, name, "u16", rows, cols, x,
                          (size_t)rows * cols * sizeof *x);
}

/* The end that all families share: logits of normed rows x [n_rows][hidden] through `head`, soft-capped when
 * cap > 0, delivered as f->mode asks. SLUICE_E_NUMERIC when one is not finite. */
sluice_status forward_logits(const struct model *model, struct forward *f, const struct mat *head, float cap,
                             const float *x, sluice_error *err);

#endif
