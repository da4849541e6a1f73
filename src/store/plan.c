#include "store/plan.h"

#include "base/check.h"
#include "base/mem.h"
#include "store/manifest.h"
#include "store/quantize.h"
#include "store/resident.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of plan_build. */
struct builder {
    struct plan *plan;
    const struct recipe *recipe;
    const struct safetensors *st;
    bool *used;                              /* per source tensor */
    const struct tensor_spec *(*experts)[3]; /* per layer: gate, up, down */
    struct stored_tensor *resident;
    size_t *fused; /* per source tensor: 1 + the copy that takes it for two stacks */
};

/* ---- matching specs with source tensors ---- */

static const char *const SOURCE_DTYPES[DTYPE_COUNT] = {
    [DTYPE_AFFINE] = "U32", [DTYPE_BF16] = "BF16", [DTYPE_F16] = "F16",
    [DTYPE_F32] = "F32",    [DTYPE_I64] = "I64",   [DTYPE_I32] = "I32",
};

static sluice_status take(struct builder *b, const char *name, const char *dtype, uint32_t n_dims,
                          const uint64_t *shape, const struct st_tensor **tensor, sluice_error *err)
{
    sluice_status status = safetensors_expect(b->st, name, dtype, n_dims, shape, tensor, err);
    if (status != SLUICE_OK)
        return err_prefix(err, status, "this is not a complete %s checkpoint", b->recipe->family);
    bool *used = &b->used[*tensor - b->st->tensors];
    if (*used)
        return err_set(err, SLUICE_E_FORMAT, "the %s recipe uses the tensor %s twice", b->recipe->family,
                       name);
    *used = true;
    return SLUICE_OK;
}

/* Weights, scales, biases of an affine tensor: three tensors of the source, or one that is quantized. */
struct triple {
    const struct st_tensor *part[3];
    uint64_t bytes[3];
    const struct st_tensor *floats; /* instead of the parts */
    enum dtype from;
    int half; /* of `floats` (struct tensor_alias) */
};

/* ---- unquantized sources ---- */

/* The name of a spec in a checkpoint of Hugging Face's library. */
static void alias_name(const struct recipe *recipe, const char *name, char out[2 * TENSOR_NAME_BYTES_MAX],
                       int *half)
{
    (void)snprintf(out, 2 * TENSOR_NAME_BYTES_MAX, "%s", name);
    *half = 0;
    for (const struct tensor_alias *a = recipe->aliases; a && a->from; a++) {
        char *at = strstr(out, a->from);
        size_t from = strlen(a->from), to = strlen(a->to);
        if (!at || strlen(out) + to - from >= 2 * TENSOR_NAME_BYTES_MAX)
            continue;
        memmove(at + to, at + from, strlen(at + from) + 1);
        memcpy(at, a->to, to);
        if (a->half)
            *half = a->half;
    }
}

static const struct st_tensor *find_floats(const struct builder *b, const char *name, int *half)
{
    char alias[2 * TENSOR_NAME_BYTES_MAX];
    *half = 0;
    const struct st_tensor *tensor = safetensors_find(b->st, name);
    if (tensor)
        return tensor;
    alias_name(b->recipe, name, alias, half);
    return safetensors_find(b->st, alias);
}

static sluice_status take_floats(struct builder *b, const struct tensor_spec *spec, struct triple *triple,
                                 sluice_error *err)
{
    static const enum dtype FLOATS[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    uint64_t shape[TENSOR_DIMS_MAX], values = 1;
    const struct st_tensor *tensor = find_floats(b, spec->name, &triple->half);
    const char *dtype = NULL;
    if (!tensor)
        return err_set(err, SLUICE_E_FORMAT, "this is not a complete %s checkpoint: it lacks %s",
                       b->recipe->family, spec->name);
    for (size_t i = 0; i < sizeof FLOATS / sizeof *FLOATS; i++)
        if (strcmp(tensor->dtype, SOURCE_DTYPES[FLOATS[i]]) == 0) {
            triple->from = FLOATS[i];
            dtype = tensor->dtype;
        }
    if (!dtype)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       "tensor %s has the type %s; only BF16, F16 and F32 can be quantized", tensor->name,
                       tensor->dtype);
    for (uint32_t i = 0; i < spec->n_dims; i++)
        shape[i] = spec->shape[i];
    if (triple->half)
        shape[spec->n_dims - 2] *= 2;
    TRY(safetensors_expect(b->st, tensor->name, dtype, spec->n_dims, shape, &triple->floats, err));
    for (uint32_t i = 0; i < spec->n_dims; i++)
        values *= spec->shape[i]; /* the shard holds that many */
    triple->bytes[0] = values / 8 * spec->bits;
    triple->bytes[1] = triple->bytes[2] = values / spec->group_size * 2;
    /* Two stacks share a fused tensor, each other one has its own. */
    size_t place = (size_t)(tensor - b->st->tensors);
    if (b->used[place] && !triple->half)
        return err_set(err, SLUICE_E_FORMAT, "the %s recipe uses the tensor %s twice", b->recipe->family,
                       tensor->name);
    b->used[place] = true;
    return SLUICE_OK;
}

static sluice_status take_affine(struct builder *b, const struct tensor_spec *spec, struct triple *triple,
                                 sluice_error *err)
{
    static const char WEIGHT[] = ".weight";
    size_t length = strlen(spec->name), stem = length - (sizeof WEIGHT - 1);
    uint32_t cols = spec->n_dims ? spec->shape[spec->n_dims - 1] : 0;
    bool known = (spec->bits == 2 || spec->bits == 4 || spec->bits == 8) &&
                 (spec->group_size == 32 || spec->group_size == 64 || spec->group_size == 128);
    if (!known || length < sizeof WEIGHT || strcmp(spec->name + stem, WEIGHT) != 0 || spec->n_dims < 2 ||
        cols == 0 || cols % spec->group_size)
        return err_set(
            err, SLUICE_E_UNSUPPORTED,
            "tensor %s: %u bits in groups of %u over %u columns cannot be stored; 2, 4 or 8 bits in "
            "groups of 32, 64 or 128 can",
            spec->name, spec->bits, spec->group_size, cols);
    if (b->recipe->quantize)
        return take_floats(b, spec, triple, err);
    uint64_t words[TENSOR_DIMS_MAX], groups[TENSOR_DIMS_MAX];
    for (uint32_t i = 0; i < spec->n_dims; i++)
        words[i] = groups[i] = spec->shape[i];
    words[spec->n_dims - 1] = (uint64_t)cols * spec->bits / 32; /* whole: a group is 64 bits or more */
    groups[spec->n_dims - 1] = cols / spec->group_size;
    char name[TENSOR_NAME_BYTES_MAX + 8];
    TRY(take(b, spec->name, "U32", spec->n_dims, words, &triple->part[0], err));
    (void)snprintf(name, sizeof name, "%.*s.scales", (int)stem, spec->name);
    TRY(take(b, name, "BF16", spec->n_dims, groups, &triple->part[1], err));
    (void)snprintf(name, sizeof name, "%.*s.biases", (int)stem, spec->name);
    TRY(take(b, name, "BF16", spec->n_dims, groups, &triple->part[2], err));
    for (int i = 0; i < 3; i++)
        triple->bytes[i] = triple->part[i]->bytes;
    return SLUICE_OK;
}

static sluice_status take_plain(struct builder *b, const struct tensor_spec *spec,
                                const struct st_tensor **tensor, enum dtype *dtype, sluice_error *err)
{
    uint64_t shape[TENSOR_DIMS_MAX];
    for (uint32_t i = 0; i < spec->n_dims; i++)
        shape[i] = spec->shape[i];
    int half;
    const struct st_tensor *found = b->recipe->quantize ? find_floats(b, spec->name, &half) : NULL;
    const char *name = found ? found->name : spec->name;
    const struct st_tensor *there = spec->any_float ? safetensors_find(b->st, name) : NULL;
    *dtype = spec->dtype;
    for (int i = 0; there && i < DTYPE_COUNT; i++)
        if (dtype_is_float((enum dtype)i) && strcmp(there->dtype, SOURCE_DTYPES[i]) == 0)
            *dtype = (enum dtype)i;
    return take(b, name, SOURCE_DTYPES[*dtype], spec->n_dims, shape, tensor, err);
}

static sluice_status check_leftovers(struct builder *b, sluice_error *err)
{
    for (size_t i = 0; i < b->st->n_tensors; i++) {
        if (b->used[i])
            continue;
        const struct st_tensor *tensor = &b->st->tensors[i];
        bool skip = false;
        for (const char *const *s = b->recipe->skip; s && *s && !skip; s++)
            skip = strstr(tensor->name, *s) != NULL;
        if (!skip)
            return err_set(err, SLUICE_E_FORMAT,
                           "%s: the tensor %s is none that a %s model has; it would be lost, so nothing is "
                           "installed",
                           b->st->shards[tensor->shard].name, tensor->name, b->recipe->family);
        b->plan->n_skipped++;
    }
    return SLUICE_OK;
}

/* ---- the resident file ---- */

static void add_copy(struct plan *plan, const struct st_tensor *tensor, size_t file, uint64_t target,
                     uint64_t pieces, uint64_t stride)
{
    plan->copies[plan->n_copies++] = (struct plan_copy){
        .shard = tensor->shard,
        .file = (uint32_t)file,
        .source = tensor->offset,
        .bytes = tensor->bytes,
        .target = target,
        .piece = tensor->bytes / pieces,
        .stride = stride,
    };
    plan->source_bytes += tensor->bytes; /* bounded by the sizes of the shards */
}

/* A copy that quantizes. The second half of a fused stack joins the first half's copy. */
static sluice_status add_quant(struct builder *b, const struct tensor_spec *spec, const struct triple *triple,
                               size_t file, const uint64_t offsets[3], uint64_t records, sluice_error *err)
{
    struct plan *plan = b->plan;
    size_t *fused = &b->fused[triple->floats - b->st->tensors];
    int way = triple->half ? triple->half - 1 : 0;
    if (*fused == 0) {
        void *items = plan->quants;
        if (!mem_grow(&items, &plan->quants_cap, plan->n_quants + 1, sizeof *plan->quants))
            return err_memory(err, plan->n_quants * sizeof *plan->quants, "the copy plan");
        plan->quants = items;
        plan->quants[plan->n_quants++] = (struct plan_quant){.from = triple->from,
                                                             .bits = spec->bits,
                                                             .group = spec->group_size,
                                                             .ways = triple->half ? 2 : 1};
        add_copy(plan, triple->floats, file, 0, records * (triple->half ? 2 : 1), 0);
        plan->copies[plan->n_copies - 1].quant = (uint32_t)plan->n_quants;
        *fused = plan->n_copies;
    }
    struct plan_copy *copy = &plan->copies[*fused - 1];
    struct plan_quant *quant = &plan->quants[copy->quant - 1];
    if (copy->file != file || quant->bits != spec->bits || quant->group != spec->group_size)
        return err_set(err, SLUICE_E_UNSUPPORTED, "%s holds two tensors that are not stored alike",
                       triple->floats->name);
    memcpy(quant->targets[way], offsets, sizeof quant->targets[way]);
    return SLUICE_OK;
}

static sluice_status plan_one_resident(struct builder *b, const struct tensor_spec *spec, uint64_t *at,
                                       sluice_error *err)
{
    struct plan *plan = b->plan;
    struct stored_tensor *t = &b->resident[plan->n_resident];
    struct triple triple = {.half = 0};
    t->dtype = DTYPE_AFFINE;
    if (spec->dtype == DTYPE_AFFINE) {
        TRY(take_affine(b, spec, &triple, err));
    } else {
        TRY(take_plain(b, spec, &triple.part[0], &t->dtype, err));
        triple.bytes[0] = triple.part[0]->bytes;
    }
    t->name = spec->name;
    for (uint32_t i = 0; i < spec->n_dims; i++)
        t->shape[i] = spec->shape[i];
    uint64_t offsets[3] = {0}, *bytes = triple.bytes;
    for (int i = 0; i < 3 && bytes[i]; i++) {
        offsets[i] = *at;
        if (!triple.floats)
            add_copy(plan, triple.part[i], 0, *at, 1, 0);
        if (!u64_add(*at, bytes[i], at))
            return err_set(err, SLUICE_E_FORMAT, "the resident tensors overflow 64 bits");
    }
    if (triple.floats)
        TRY(add_quant(b, spec, &triple, 0, offsets, 1, err));
    t->offset = offsets[0];
    t->bytes = bytes[0];
    t->scale_offset = offsets[1];
    t->scale_bytes = bytes[1];
    t->bias_offset = offsets[2];
    t->bias_bytes = bytes[2];
    plan->n_resident++;
    return SLUICE_OK;
}

static sluice_status plan_resident(struct builder *b, sluice_error *err)
{
    struct plan *plan = b->plan;
    size_t n = 0, names_bytes = 0;
    for (size_t i = 0; i < b->recipe->n_specs; i++)
        if (b->recipe->specs[i].role == ROLE_RESIDENT) {
            n++;
            names_bytes += strlen(b->recipe->specs[i].name);
        }
    TRY(resident_plan_bytes(n, names_bytes, &plan->index_bytes, err));
    b->resident = mem_calloc(n, sizeof *b->resident);
    if (!b->resident)
        return err_memory(err, n * sizeof *b->resident, "the resident tensors");
    uint64_t at = plan->index_bytes;
    for (size_t i = 0; i < b->recipe->n_specs; i++)
        if (b->recipe->specs[i].role == ROLE_RESIDENT)
            TRY(plan_one_resident(b, &b->recipe->specs[i], &at, err));
    struct plan_file *file = &plan->files[plan->n_files++];
    (void)snprintf(file->path, sizeof file->path, RESIDENT_NAME);
    file->bytes = at;
    return resident_encode(b->resident, n, plan->index_bytes, at - plan->index_bytes, &plan->index, err);
}

/* ---- the experts ---- */

static sluice_status sort_experts(struct builder *b, sluice_error *err)
{
    const struct recipe *r = b->recipe;
    for (size_t i = 0; i < r->n_specs; i++) {
        const struct tensor_spec *spec = &r->specs[i];
        if (spec->role == ROLE_RESIDENT)
            continue;
        if (spec->layer < 0 || (uint32_t)spec->layer >= r->n_layers || spec->dtype != DTYPE_AFFINE ||
            spec->n_dims != 3 || spec->shape[0] != r->n_experts || r->n_experts == 0)
            return err_set(
                err, SLUICE_E_UNSUPPORTED,
                "tensor %s: expert stacks must be affine, [%u experts, rows, columns], in one of %u "
                "layers",
                spec->name, r->n_experts, r->n_layers);
        const struct tensor_spec **place = &b->experts[spec->layer][spec->role - ROLE_EXPERT_GATE];
        if (*place)
            return err_set(err, SLUICE_E_FORMAT, "the %s recipe gives layer %d two of %s", r->family,
                           spec->layer, spec->name);
        *place = spec;
    }
    for (uint32_t layer = 0; layer < r->n_layers; layer++) {
        bool gate = b->experts[layer][0], up = b->experts[layer][1], down = b->experts[layer][2];
        if (gate != up || gate != down)
            return err_set(err, SLUICE_E_FORMAT,
                           "the %s recipe gives layer %u some expert stacks but not all", r->family, layer);
    }
    return SLUICE_OK;
}

static sluice_status plan_layer(struct builder *b, uint32_t layer, sluice_error *err)
{
    struct plan *plan = b->plan;
    struct expert_layer *l = &plan->layout.layers[layer];
    size_t file = plan->n_files;
    uint64_t at = 0, experts = b->recipe->n_experts;
    for (int m = 0; m < 3; m++) {
        const struct tensor_spec *spec = b->experts[layer][m];
        struct triple triple = {.half = 0};
        uint64_t offsets[3];
        TRY(take_affine(b, spec, &triple, err));
        for (int i = 0; i < 3; i++) {
            struct expert_part *part = &l->parts[3 * m + i];
            uint64_t bytes = triple.bytes[i] / experts; /* whole: the shape begins with the experts */
            offsets[i] = at;
            *part = (struct expert_part){.offset = at, .bytes = bytes, .rows = spec->shape[1]};
            part->cols = i == 0 ? spec->shape[2] : spec->shape[2] / spec->group_size;
            part->bits = i == 0 ? spec->bits : 0;
            part->group_size = i == 0 ? spec->group_size : 0;
            if (!triple.floats)
                add_copy(plan, triple.part[i], file, at, experts, 0);
            at += bytes; /* bounded by the size of the shard */
        }
        if (triple.floats)
            TRY(add_quant(b, spec, &triple, file, offsets, experts, err));
    }
    l->present = true;
    (void)snprintf(plan->files[file].path, sizeof plan->files[file].path, EXPERTS_DIR "/layer_%02u.bin",
                   layer);
    plan->n_files++;
    plan->n_expert_layers++;
    if (!u64_round_up(at, GTURBO_PAGE_BYTES, &at) || at > GTURBO_RECORD_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED, "an expert of layer %u is larger than %llu bytes", layer,
                       (unsigned long long)GTURBO_RECORD_MAX);
    if (plan->layout.stride_bytes < at)
        plan->layout.stride_bytes = at;
    return SLUICE_OK;
}

/* The format has one stride for all layers: the widest. */
static void apply_stride(struct plan *plan)
{
    uint64_t stride = plan->layout.stride_bytes;
    for (size_t i = 1; i < plan->n_files; i++)
        plan->files[i].bytes = plan->layout.n_experts * stride;
    for (size_t i = 0; i < plan->n_copies; i++)
        if (plan->copies[i].file > 0)
            plan->copies[i].stride = stride;
    for (size_t i = 0; i < plan->n_files; i++)
        plan->data_bytes += plan->files[i].bytes;
}

static sluice_status plan_experts(struct builder *b, sluice_error *err)
{
    struct layout *layout = &b->plan->layout;
    TRY(sort_experts(b, err));
    for (uint32_t layer = 0; layer < b->recipe->n_layers; layer++)
        if (b->experts[layer][0])
            TRY(plan_layer(b, layer, err));
    layout->n_experts = b->plan->n_expert_layers ? b->recipe->n_experts : 0;
    apply_stride(b->plan);
    return SLUICE_OK;
}

/* ---- ranges ---- */

static int by_source(const void *a, const void *b)
{
    const struct plan_copy *x = a, *y = b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->source < y->source ? -1 : x->source > y->source;
}

/* The last range, when `least` bytes at `source` may still join it; otherwise a new one. */
static struct plan_range *range_for(struct plan *plan, uint32_t shard, uint64_t source, uint64_t range_bytes,
                                    uint64_t least)
{
    struct plan_range *last = plan->n_ranges ? &plan->ranges[plan->n_ranges - 1] : NULL;
    if (last && last->shard == shard && source - last->source + least <= range_bytes &&
        source - (last->source + last->span_bytes) <= PLAN_GAP_BYTES_MAX)
        return last;
    void *items = plan->ranges;
    if (!mem_grow(&items, &plan->ranges_cap, plan->n_ranges + 1, sizeof *plan->ranges))
        return NULL;
    plan->ranges = items;
    plan->ranges[plan->n_ranges] =
        (struct plan_range){.shard = shard, .first = plan->n_segments, .source = source};
    return &plan->ranges[plan->n_ranges++];
}

static sluice_status cut_ranges(struct plan *plan, uint64_t range_bytes, sluice_error *err)
{
    qsort(plan->copies, plan->n_copies, sizeof *plan->copies, by_source);
    for (size_t i = 0; i < plan->n_copies; i++) {
        const struct plan_copy *copy = &plan->copies[i];
        for (uint64_t at = 0; at < copy->bytes;) {
            uint64_t source = copy->source + at;
            struct plan_range *range =
                range_for(plan, copy->shard, source, range_bytes, copy->quant ? QUANTIZE_GRAIN_BYTES : 1);
            void *items = plan->segments;
            if (!range ||
                !mem_grow(&items, &plan->segments_cap, plan->n_segments + 1, sizeof *plan->segments))
                return err_memory(err, plan->n_segments * sizeof *plan->segments, "the copy plan");
            plan->segments = items;
            uint64_t room = range_bytes - (source - range->source);
            if (copy->quant) /* groups stay whole */
                room = room < QUANTIZE_GRAIN_BYTES ? QUANTIZE_GRAIN_BYTES
                                                   : room / QUANTIZE_GRAIN_BYTES * QUANTIZE_GRAIN_BYTES;
            uint64_t n = copy->bytes - at < room ? copy->bytes - at : room;
            plan->segments[plan->n_segments++] = (struct plan_segment){.copy = i, .start = at, .bytes = n};
            range->count++;
            range->span_bytes = source + n - range->source;
            range->payload_bytes += n;
            at += n;
        }
    }
    return SLUICE_OK;
}

uint64_t plan_target(const struct plan_copy *copy, uint64_t at, uint64_t *run)
{
    uint64_t piece = at / copy->piece, inside = at % copy->piece;
    *run = copy->piece - inside;
    return copy->target + piece * copy->stride + inside;
}

struct plan_quant_run plan_quant_target(const struct plan *plan, const struct plan_copy *copy, uint64_t at,
                                        uint64_t n)
{
    const struct plan_quant *q = &plan->quants[copy->quant - 1];
    uint64_t piece = at / copy->piece, inside = at % copy->piece;
    uint64_t group_bytes = q->group * dtype_bytes(q->from);
    struct plan_quant_run run = {.source_bytes = n < copy->piece - inside ? n : copy->piece - inside};
    uint64_t sizes[3] = {(uint64_t)q->group * q->bits / 8, 2, 2};
    run.groups = (size_t)(run.source_bytes / group_bytes);
    for (int i = 0; i < 3; i++) {
        run.bytes[i] = run.groups * sizes[i];
        run.targets[i] =
            q->targets[piece % q->ways][i] + piece / q->ways * copy->stride + inside / group_bytes * sizes[i];
    }
    return run;
}

/* ---- the whole ---- */

static sluice_status fingerprint(struct plan *plan, const struct safetensors *st, sluice_error *err)
{
    static const char DOMAIN[] = "sluice install plan 1";
    struct sha256 h;
    TRY(sha256_open(&h, err));
    sha256_update(&h, DOMAIN, sizeof DOMAIN);
    sha256_update_u64(&h, plan->n_files);
    for (size_t i = 0; i < plan->n_files; i++) {
        sha256_update_u64(&h, strlen(plan->files[i].path));
        sha256_update(&h, plan->files[i].path, strlen(plan->files[i].path));
        sha256_update_u64(&h, plan->files[i].bytes);
    }
    sha256_update_u64(&h, plan->index_bytes);
    sha256_update(&h, plan->index, (size_t)plan->index_bytes);
    for (size_t i = 0; i < st->n_shards; i++) {
        sha256_update_u64(&h, strlen(st->shards[i].name));
        sha256_update(&h, st->shards[i].name, strlen(st->shards[i].name));
    }
    for (size_t i = 0; i < plan->n_copies; i++) {
        const struct plan_copy *c = &plan->copies[i];
        const uint64_t fields[] = {c->shard, c->file, c->source, c->bytes, c->target, c->piece, c->stride};
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            sha256_update_u64(&h, fields[k]);
    }
    for (size_t i = 0; i < plan->n_quants; i++) {
        const struct plan_quant *q = &plan->quants[i];
        const uint64_t fields[] = {q->from, q->bits, q->group, q->ways};
        for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
            sha256_update_u64(&h, fields[k]);
        for (uint32_t k = 0; k < 3 * q->ways; k++)
            sha256_update_u64(&h, q->targets[k / 3][k % 3]);
    }
    for (size_t i = 0; i < plan->n_ranges; i++) {
        sha256_update_u64(&h, plan->ranges[i].source);
        sha256_update_u64(&h, plan->ranges[i].span_bytes);
        sha256_update_u64(&h, plan->ranges[i].count);
    }
    sha256_close(&h, plan->fingerprint);
    return SLUICE_OK;
}

static sluice_status build(struct builder *b, uint64_t range_bytes, sluice_error *err)
{
    struct plan *plan = b->plan;
    uint32_t n_layers = b->recipe->n_layers;
    if (n_layers == 0 || n_layers > GTURBO_LAYERS_MAX || b->recipe->n_experts > GTURBO_EXPERTS_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED, "%u layers of %u experts; the most are %d and %d", n_layers,
                       b->recipe->n_experts, GTURBO_LAYERS_MAX, GTURBO_EXPERTS_MAX);
    plan->layout.n_layers = n_layers;
    plan->layout.layers = mem_calloc(n_layers, sizeof *plan->layout.layers);
    plan->files = mem_calloc(n_layers + 1, sizeof *plan->files);
    plan->copies = mem_calloc(b->recipe->n_specs, 3 * sizeof *plan->copies);
    b->used = mem_calloc(b->st->n_tensors, sizeof *b->used);
    b->fused = mem_calloc(b->st->n_tensors, sizeof *b->fused);
    b->experts = mem_calloc(n_layers, sizeof *b->experts);
    if (!plan->layout.layers || !plan->files || !plan->copies || !b->used || !b->fused || !b->experts)
        return err_memory(err, b->recipe->n_specs * 3 * sizeof *plan->copies, "the copy plan");
    TRY(plan_resident(b, err));
    TRY(plan_experts(b, err));
    TRY(check_leftovers(b, err));
    TRY(cut_ranges(plan, range_bytes, err));
    return fingerprint(plan, b->st, err);
}

sluice_status plan_build(struct plan *plan, const struct recipe *recipe, const struct safetensors *st,
                         uint64_t range_bytes, sluice_error *err)
{
    memset(plan, 0, sizeof *plan);
    struct builder b = {.plan = plan, .recipe = recipe, .st = st};
    sluice_status status = build(&b, range_bytes, err);
    mem_free(b.used);
    mem_free(b.fused);
    mem_free(b.experts);
    mem_free(b.resident);
    return status;
}

void plan_free(struct plan *plan)
{
    layout_free(&plan->layout);
    mem_free(plan->files);
    mem_free(plan->copies);
    mem_free(plan->quants);
    mem_free(plan->segments);
    mem_free(plan->ranges);
    mem_free(plan->index);
    memset(plan, 0, sizeof *plan);
}
