#include "run/engine.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "run/speculate.h"
#include "store/drive.h"

#include <malloc.h>
#include <string.h>
#include <sys/resource.h>

enum { CONTEXT_DEFAULT = 4096, CHUNK_MAX = 4096, SESSIONS_MAX = 64 };
#define CONFIG_BYTES_MAX ((size_t)1 << 20)

/* ---- options ---- */

static sluice_status fill_draft(sluice_engine_options *o, const struct model *model, sluice_error *err)
{
    if (o->draft == SLUICE_DRAFT_MTP && !model->drafts)
        return err_set(
            err, SLUICE_E_UNSUPPORTED,
            "drafting with the model's own layer was asked for, and this install of the family %s has "
            "none; install it with its mtp.* tensors, or draft by lookup",
            model->family->name);
    if (o->draft == SLUICE_DRAFT_OFF && o->draft_max)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "a most of %u drafted tokens was given, and drafting is off; choose a way to draft",
                       o->draft_max);
    if (o->draft_max > DRAFT_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "a most of %u drafted tokens was given, it can be %d",
                       o->draft_max, DRAFT_MAX);
    if (o->draft_max == 0)
        o->draft_max = speculation_most(o->draft);
    return SLUICE_OK;
}

static sluice_status fill_options(const sluice_engine_options *given, const struct model *model,
                                  sluice_engine_options *o, sluice_error *err)
{
    *o = given ? *given : (sluice_engine_options){0};
    TRY(cpu_isa_resolve(&o->isa, err));
    if (o->context_tokens > model->max_context)
        return err_set(err, SLUICE_E_ARGUMENT,
                       "a context of %u tokens was asked for, the model's maximum is %u", o->context_tokens,
                       model->max_context);
    if (o->context_tokens == 0)
        o->context_tokens = model->max_context < CONTEXT_DEFAULT ? model->max_context : CONTEXT_DEFAULT;
    if (o->prefill_chunk_tokens > CHUNK_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "a prefill chunk of %u tokens was asked for, the most is %d",
                       o->prefill_chunk_tokens, CHUNK_MAX);
    if (o->prefill_chunk_tokens > o->context_tokens)
        o->prefill_chunk_tokens = o->context_tokens;
    if (o->max_sessions > SESSIONS_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "%u sessions were asked for, the most is %d", o->max_sessions,
                       SESSIONS_MAX);
    if (o->max_sessions == 0)
        o->max_sessions = 1;
    const bool ahead = o->lookahead_experts && o->lookahead_experts != SLUICE_LOOKAHEAD_OFF;
    if (ahead && (model->n_experts == 0 || !model->family->guess))
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "a lookahead was asked for, and models of the family %s cannot guess experts",
                       model->family->name);
    TRY(fill_draft(o, model, err));
    if (o->mirrors.n && model->n_experts == 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, "a mirror was given, and this model has no expert files");
    if (ahead && o->lookahead_experts > MOE_GUESSES_MAX)
        return err_set(err, SLUICE_E_ARGUMENT, "a lookahead of %u experts was asked for, the most is %d",
                       o->lookahead_experts, MOE_GUESSES_MAX);
    if (o->mirrors.n > GTURBO_COPIES_MAX - 1)
        return err_set(err, SLUICE_E_ARGUMENT, "%zu mirrors were given, at most %u are possible",
                       o->mirrors.n, GTURBO_COPIES_MAX - 1);
    return SLUICE_OK;
}

/* ---- shape ---- */

/* The manifest repeats the architecture; both must describe the same model. */
static sluice_status check_arch(const struct gturbo *store, const struct model *model, sluice_error *err)
{
    json_t *arch, *quant;
    TRY(model->family->describe(model, &arch, &quant, err));
    sluice_status status = SLUICE_OK;
    const char *key;
    json_t *value;
    json_object_foreach(arch, key, value)
    {
        const json_t *stored = json_object_get(store->arch, key);
        bool equal = json_is_number(value)
                         ? json_is_number(stored) && json_number_value(stored) == json_number_value(value)
                         : json_equal(stored, value);
        if (!equal) {
            status =
                err_set(err, SLUICE_E_FORMAT,
                        "manifest.json and tokenizer/config.json disagree on \"%s\"; install again", key);
            break;
        }
    }
    json_decref(arch);
    json_decref(quant);
    return status;
}

static bool store_has(void *user, const char *name)
{
    return gturbo_find(user, name) != NULL;
}

static sluice_status open_model(struct gturbo *store, struct model **model, sluice_error *err)
{
    char *text;
    size_t bytes;
    json_t *config;
    TRY(gturbo_load_text(store, "tokenizer/config.json", CONFIG_BYTES_MAX, &text, &bytes, err));
    sluice_status status = json_parse(text, bytes, "config.json", &config, err);
    mem_free(text);
    if (status != SLUICE_OK)
        return status;
    status = model_open(config, model, err);
    json_decref(config);
    if (status != SLUICE_OK)
        return status;
    if ((*model)->family->arrange)
        status = (*model)->family->arrange(*model, store_has, store, err);
    if (status == SLUICE_OK)
        status = check_arch(store, *model, err);
    if (status == SLUICE_OK &&
        (store->n_layers != (*model)->n_layers || store->n_experts != (*model)->n_experts))
        status = err_set(err, SLUICE_E_FORMAT,
                         "the expert layout has %u layers of %u experts, the model %u of %u; install again",
                         store->n_layers, store->n_experts, (*model)->n_layers, (*model)->n_experts);
    if (status != SLUICE_OK) {
        model_close(*model);
        *model = NULL;
    }
    return status;
}

sluice_status engine_open_shape(const char *install_dir, const sluice_engine_options *options, bool headers,
                                struct gturbo **store, struct model **model, sluice_error *err)
{
    *model = NULL;
    if (headers)
        TRY(gturbo_open_headers(install_dir, store, err));
    else
        TRY(gturbo_open(install_dir, options->verification, &options->watch, store, err));
    sluice_status status = open_model(*store, model, err);
    if (status != SLUICE_OK) {
        gturbo_close(*store);
        *store = NULL;
    }
    return status;
}

sluice_status sluice_plan_install(const char *install_dir, const sluice_engine_options *options,
                                  sluice_plan *plan, sluice_error *err)
{
    struct gturbo *store;
    struct model *model;
    sluice_engine_options filled;
    memset(plan, 0, sizeof *plan);
    TRY(engine_open_shape(install_dir, options, true, &store, &model, err));
    sluice_status status = fill_options(options, model, &filled, err);
    char *text = NULL;
    size_t bytes = 0;
    if (status == SLUICE_OK)
        status =
            gturbo_load_text(store, "tokenizer/tokenizer.json", TOKENIZER_JSON_BYTES_MAX, &text, &bytes, err);
    mem_free(text);
    if (status == SLUICE_OK)
        status = plan_compute(store, model, &filled, bytes, plan, err);
    model_close(model);
    gturbo_close(store);
    return status;
}

/* ---- resident weights ---- */

/* Everything behind the first dimension, which a vector does not have. */
static uint32_t columns_of(const struct tensor_spec *spec)
{
    uint32_t cols = spec->n_dims > 1 ? 1 : spec->shape[0];
    for (uint32_t d = 1; d < spec->n_dims; d++)
        cols *= spec->shape[d];
    return cols;
}

static sluice_status bind_mat(const struct stored_tensor *t, const struct tensor_spec *spec,
                              const unsigned char *payload, uint64_t payload_offset, struct mat *mat,
                              sluice_error *err)
{
    for (uint32_t d = 0; d < TENSOR_DIMS_MAX; d++)
        if (t->shape[d] != (d < spec->n_dims ? spec->shape[d] : 0))
            return err_set(err, SLUICE_E_FORMAT,
                           "model_weights.bin: dimension %u of %s is %u, the model needs %u; install again",
                           d, t->name, t->shape[d], d < spec->n_dims ? spec->shape[d] : 0);
    if (t->dtype != spec->dtype && !(spec->any_float && dtype_is_float(t->dtype)))
        return err_set(err, SLUICE_E_FORMAT,
                       "model_weights.bin: %s has another element type than config.json says", t->name);
    *mat = (struct mat){
        .dtype = t->dtype,
        .bits = spec->bits,
        .group_size = spec->group_size,
        .rows = spec->n_dims > 1 ? spec->shape[0] : 1,
        .cols = columns_of(spec),
        .weight = payload + (t->offset - payload_offset),
    };
    uint64_t values = (uint64_t)mat->rows * mat->cols, weight, scales = 0;
    if (spec->dtype == DTYPE_AFFINE) {
        weight = values * spec->bits / 8;
        scales = values / spec->group_size * 2;
        mat->scales = payload + (t->scale_offset - payload_offset);
        mat->biases = payload + (t->bias_offset - payload_offset);
    } else {
        weight = values * dtype_bytes(t->dtype);
    }
    if (t->bytes != weight || t->scale_bytes != scales || t->bias_bytes != scales)
        return err_set(err, SLUICE_E_FORMAT,
                       "model_weights.bin: %s has %llu + %llu + %llu bytes, %llu + %llu + %llu "
                       "are needed; install again",
                       t->name, (unsigned long long)t->bytes, (unsigned long long)t->scale_bytes,
                       (unsigned long long)t->bias_bytes, (unsigned long long)weight,
                       (unsigned long long)scales, (unsigned long long)scales);
    return SLUICE_OK;
}

static sluice_status bind_weights(sluice_engine *e, sluice_error *err)
{
    struct model *model = e->model;
    model->mats = mem_calloc(model->n_resident, sizeof *model->mats);
    if (!model->mats)
        return err_memory(err, model->n_resident * sizeof *model->mats, "the weight table");
    for (size_t i = 0; i < model->n_resident; i++) {
        const struct stored_tensor *t = gturbo_find(e->store, model->specs[i].name);
        if (!t)
            return err_set(err, SLUICE_E_FORMAT, "model_weights.bin has no %s; install again",
                           model->specs[i].name);
        TRY(bind_mat(t, &model->specs[i], e->resident.base, e->store->resident_offset, &model->mats[i], err));
    }
    return model->family->bind(model, err);
}

/* An expert record's parts must be the matrices that the model means. */
static sluice_status check_experts(const sluice_engine *e, sluice_error *err)
{
    static const enum expert_part_kind PART_OF[] = {
        [ROLE_EXPERT_GATE] = PART_GATE, [ROLE_EXPERT_UP] = PART_UP, [ROLE_EXPERT_DOWN] = PART_DOWN};
    const struct model *model = e->model;
    for (size_t i = model->n_resident; i < model->n_specs; i++) {
        const struct tensor_spec *spec = &model->specs[i];
        const struct expert_layer *layer = &e->store->layers[spec->layer];
        const struct expert_part *part = &layer->parts[PART_OF[spec->role]];
        if (!layer->present || part->rows != spec->shape[1] || part->cols != spec->shape[2] ||
            part->bits != spec->bits || part->group_size != spec->group_size)
            return err_set(
                err, SLUICE_E_FORMAT,
                "packed_experts/layout.json: layer %d does not hold %s as config.json says; install again",
                spec->layer, spec->name);
    }
    return SLUICE_OK;
}

/* Into anonymous memory, in huge pages where there are any, and not through a mapping of the file: the kernel
 * evicts mapped pages before it asks anybody (measured: sweeps at a third of the speed while something else
 * reads files within the same limit), and locking them needs a right that users do not have for gigabytes. */
static sluice_status load_resident(sluice_engine *e, sluice_error *err)
{
    TRY(arena_open(&e->resident, &e->budget, (size_t)e->store->resident_bytes, "resident weights", err));
    return gturbo_load_resident(e->store, e->resident.base, &e->options.watch, err);
}

/* ---- open ---- */

/* Stop ids: what config.json lists, and the control tokens that end a turn in this family. */
static void collect_stops(sluice_engine *e)
{
    for (uint32_t i = 0; i < e->model->n_stop_ids; i++)
        e->stop_ids[e->n_stop_ids++] = e->model->stop_ids[i];
    for (const char *const *s = e->model->family->stop_spellings; *s; s++) {
        int32_t id = tok_find(e->text->tok, *s);
        bool known = id < 0 || !tok_is_control(e->text->tok, id);
        for (size_t i = 0; i < e->n_stop_ids; i++)
            known |= e->stop_ids[i] == id;
        if (!known)
            e->stop_ids[e->n_stop_ids++] = id;
    }
}

static sluice_status tokenizer_size(const struct gturbo *store, uint64_t *bytes, sluice_error *err)
{
    char *text;
    size_t n;
    TRY(gturbo_load_text(store, "tokenizer/tokenizer.json", TOKENIZER_JSON_BYTES_MAX, &text, &n, err));
    mem_free(text);
    *bytes = n;
    return SLUICE_OK;
}

const char *engine_reads(struct gturbo *store, const sluice_engine_options *options,
                         struct reads_options *reads)
{
    struct drive_choice choice;
    const char *why_not;
    *reads = (struct reads_options){.engine = options->io, .depth = options->read_threads};
    if (!drive_recall(store->dir, &choice, &why_not))
        return options->io == SLUICE_IO_AUTO ? why_not : "as asked for";
    if (!choice.direct)
        gturbo_read_buffered(store);
    if (reads->engine == SLUICE_IO_AUTO && choice.engine == SLUICE_IO_THREADS)
        reads->engine = SLUICE_IO_THREADS;
    if (reads->depth == 0 && (reads->engine == SLUICE_IO_AUTO || reads->engine == choice.engine))
        reads->depth = choice.depth;
    return options->io == SLUICE_IO_AUTO ? "as sluice probe found best" : "as asked for";
}

static sluice_status open_experts(sluice_engine *e, sluice_error *err)
{
    const sluice_engine_options *o = &e->options;
    uint32_t spares = plan_spares(o), provers = pool_lanes(e->pool) / 2;
    gturbo_log(e->store, &e->log);
    struct reads_options reads;
    const char *why = engine_reads(e->store, o, &reads);
    reads.log = &e->log;
    reads.buffers = e->store->n_layers * e->plan.expert_slots + spares;
    for (size_t i = 0; i < o->mirrors.n; i++)
        TRY(gturbo_add_mirror(e->store, o->mirrors.items[i], err));
    TRY(reads_open(&e->reads, &reads, err));
    engine_tell_reads(e, why);
    TRY(experts_open(&e->experts, e->store, e->reads, &e->budget, e->plan.expert_slots, spares, o->eviction,
                     err));
    return gturbo_prove_ahead(e->store, provers, err);
}

static sluice_status open_parts(sluice_engine *e, const char *dir, const sluice_engine_options *options,
                                sluice_error *err)
{
    const uint64_t from = clock_ns();
    TRY(engine_open_shape(dir, options, false, &e->store, &e->model, err));
    const double opening_s = (double)(clock_ns() - from) / 1e9;
    TRY(fill_options(options, e->model, &e->options, err));
    uint64_t tokenizer_bytes = 0;
    TRY(tokenizer_size(e->store, &tokenizer_bytes, err));
    TRY(plan_compute(e->store, e->model, &e->options, tokenizer_bytes, &e->plan, err));
    e->even_chunks = e->options.prefill_chunk_tokens == 0;
    e->options.prefill_chunk_tokens = e->plan.prefill_chunk_tokens;
    e->options.lookahead_experts = e->plan.lookahead_experts;
    budget_init(&e->budget, e->plan.limit_bytes);
    TRY(budget_charge(&e->budget, e->plan.unmetered_bytes, "the tokenizer and the reserve", err));
    TRY(budget_charge(&e->budget, e->plan.grammar_bytes, "grammars", err));
    TRY(sluice_tokenizer_open(dir, &e->text, err));
    if (tok_vocab(e->text->tok) > e->model->vocab)
        return err_set(err, SLUICE_E_FORMAT,
                       "the tokenizer has %u ids, the model's vocabulary %u; the files do not "
                       "belong together",
                       tok_vocab(e->text->tok), e->model->vocab);
    e->text->grammars.limit_bytes = e->plan.grammar_bytes;
    collect_stops(e);
    /* Parsing left the heap full of holes; give the pages back before the large parts are loaded. */
    (void)malloc_trim(0);
    TRY(pool_open(&e->pool, e->options.threads, err));
    log_info(&e->log, "verification: %s; manifest and common files took %.3f s",
             options->verification == SLUICE_VERIFY_RECEIPT
                 ? "the receipt is trusted, nothing is hashed"
                 : "full, each expert file is hashed before its first use",
             opening_s);
    engine_tell(e, options);
    TRY(load_resident(e, err));
    TRY(bind_weights(e, err));
    if (e->model->n_experts == 0)
        return SLUICE_OK;
    TRY(check_experts(e, err));
    return open_experts(e, err);
}

sluice_status sluice_engine_open(const char *install_dir, const sluice_engine_options *options,
                                 sluice_engine **engine, sluice_error *err)
{
    const sluice_engine_options defaults = {0};
    *engine = NULL;
    sluice_engine *e = mem_calloc(1, sizeof *e);
    if (!e)
        return err_memory(err, sizeof *e, "the engine");
    options = options ? options : &defaults;
    log_open(&e->log, &options->log);
    sluice_status status = open_parts(e, install_dir, options, err);
    if (status != SLUICE_OK) {
        sluice_engine_close(e);
        return status;
    }
    *engine = e;
    return SLUICE_OK;
}

void sluice_engine_close(sluice_engine *e)
{
    if (!e)
        return;
    reads_close(e->reads); /* first: a read in flight writes into the slab */
    experts_close(e->experts);
    pool_close(e->pool);
    arena_close(&e->resident);
    sluice_tokenizer_close(e->text);
    model_close(e->model);
    gturbo_close(e->store);
    log_close(&e->log);
    mem_free(e);
}

const sluice_plan *sluice_engine_plan(const sluice_engine *engine)
{
    return &engine->plan;
}

const sluice_tokenizer *sluice_engine_tokenizer(const sluice_engine *engine)
{
    return engine->text;
}

void sluice_engine_info(const sluice_engine *engine, sluice_model_info *info)
{
    const struct model *model = engine->model;
    *info = (sluice_model_info){
        .family = model->family->name,
        .model_id = engine->store->model_id,
        .layers = model->n_layers,
        .vocab_tokens = model->vocab,
        .hidden = model->hidden,
        .max_context_tokens = model->max_context,
        .experts_per_layer = model->n_experts,
        .experts_per_token = model->top_k,
    };
}

uint64_t sluice_peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss << 10 : 0;
}

/* ---- install and inspect: the store with the family's knowledge ---- */

sluice_status engine_recipe_of(const json_t *config, model_has_fn has, void *names, struct recipe *recipe,
                               sluice_error *err)
{
    struct model *model;
    TRY(model_open(config, &model, err));
    sluice_status status = SLUICE_OK;
    if (model->family->arrange)
        status = model->family->arrange(model, has, names, err);
    *recipe = (struct recipe){
        .family = model->family->name,
        .n_layers = model->n_layers,
        .n_experts = model->n_experts,
        .skip = model->family->skip,
        .extra_file = model->drafts ? NULL : model->family->extra_file,
        .extra_prefix = model->family->extra_prefix,
        .aliases = model->family->aliases,
        .keep_8_bits = model->family->keep_8_bits,
    };
    if (status == SLUICE_OK)
        status = model->family->describe(model, &recipe->arch, &recipe->quant, err);
    if (status == SLUICE_OK) {
        recipe->specs = model->specs; /* handed over */
        recipe->n_specs = model->n_specs;
        model->specs = NULL;
    }
    model_close(model);
    return status;
}

sluice_status sluice_inspect(const char *install_dir, char **json, sluice_error *err)
{
    struct gturbo *store;
    struct model *model;
    *json = NULL;
    TRY(engine_open_shape(install_dir, NULL, true, &store, &model, err));
    json_t *root = gturbo_describe(store);
    if (root)
        (void)json_object_set_new(root, "family", json_string(model->family->name));
    sluice_status status = root ? json_print(root, JSON_INDENT(2), "the description", json, err)
                                : err_memory(err, 0, "the description");
    json_decref(root);
    model_close(model);
    gturbo_close(store);
    return status;
}
