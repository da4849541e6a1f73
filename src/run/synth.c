#include "run/synth.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mem.h"
#include "run/engine.h"
#include "store/install.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARD "model.safetensors"

struct placed_tensor {
    uint64_t offset, bytes; /* in the shard */
    struct synth_tensor values;
};

struct synth_source {
    struct source source;
    char name[96];
    struct str config, tokenizer, tokenizer_config, header;
    struct placed_tensor *tensors; /* by offset */
    size_t n_tensors;
    uint64_t shard_bytes;
};

/* ---- config.json ---- */

static sluice_status repeat_layer_types(json_t *text, uint32_t layers, sluice_error *err)
{
    json_t *period = json_object_get(text, "layer_types"), *all = json_array();
    size_t n = json_array_size(period);
    bool ok = all && json_object_set_new(text, "num_hidden_layers", json_integer(layers)) == 0;
    for (uint32_t l = 0; n && ok && l < layers; l++)
        ok = json_array_append(all, json_array_get(period, l % n)) == 0;
    if (n && ok)
        ok = json_object_set(text, "layer_types", all) == 0;
    json_decref(all);
    return ok ? SLUICE_OK : err_memory(err, layers * sizeof(json_t *), "config.json");
}

static sluice_status add_overrides(const struct full_size *full, json_t *quantization, uint32_t layers,
                                   sluice_error *err)
{
    for (const struct full_override *o = full->overrides; o && o->module; o++)
        for (uint32_t l = 0; l < layers; l++) {
            char layer[12], name[TENSOR_NAME_BYTES_MAX];
            (void)snprintf(layer, sizeof layer, "%u", l);
            const char *mark = strstr(o->module, "%u");
            (void)snprintf(name, sizeof name, "%.*s%s%s", (int)(mark - o->module), o->module, layer,
                           mark + 2);
            if (json_object_set_new(quantization, name,
                                    json_pack("{s:i, s:i}", "bits", o->bits, "group_size", o->group_size)) !=
                0)
                return err_memory(err, sizeof name, "config.json");
        }
    return SLUICE_OK;
}

sluice_status synth_config(const struct full_size *full, uint32_t layers, json_t **config, sluice_error *err)
{
    json_t *root;
    *config = NULL;
    TRY(json_parse(full->config, strlen(full->config), "config.json", &root, err));
    json_t *text = json_object_get(root, "text_config");
    if (!text)
        text = root;
    if (layers == 0)
        layers = (uint32_t)json_integer_value(json_object_get(text, "num_hidden_layers"));
    sluice_status status = repeat_layer_types(text, layers, err);
    if (status == SLUICE_OK)
        status = add_overrides(full, json_object_get(root, "quantization"), layers, err);
    if (status == SLUICE_OK)
        *config = root;
    else
        json_decref(root);
    return status;
}

/* ---- the shard ---- */

static float matrix_gain(const struct full_size *full, const char *name)
{
    for (const struct full_gain *g = full->gains; g && g->part; g++)
        if (strstr(name, g->part))
            return g->gain;
    return 1.0f;
}

/* Add a tensor to the header and to the table. */
static sluice_status place(struct synth_source *s, const char *stem, const char *suffix, const char *dtype,
                           size_t unit, const struct tensor_spec *shape, struct synth_tensor values,
                           sluice_error *err)
{
    struct placed_tensor *t = &s->tensors[s->n_tensors++];
    uint64_t bytes = unit;
    for (uint32_t d = 0; d < shape->n_dims; d++)
        if (!u64_mul(bytes, shape->shape[d], &bytes))
            return err_set(err, SLUICE_E_UNSUPPORTED, "%s%s is too large", stem, suffix);
    *t = (struct placed_tensor){s->shard_bytes, bytes, values};
    s->shard_bytes += bytes;
    bool ok = str_printf(&s->header, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", s->n_tensors > 1 ? "," : "{",
                         stem, suffix, dtype);
    for (uint32_t d = 0; d < shape->n_dims; d++)
        ok = ok && str_printf(&s->header, "%s%u", d ? "," : "", shape->shape[d]);
    ok = ok && str_printf(&s->header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->offset,
                          (unsigned long long)s->shard_bytes);
    return ok ? SLUICE_OK : err_memory(err, s->header.len, "the header");
}

static sluice_status place_affine(struct synth_source *s, const struct full_size *full,
                                  const struct tensor_spec *spec, uint64_t seed, sluice_error *err)
{
    char stem[TENSOR_NAME_BYTES_MAX];
    (void)snprintf(stem, sizeof stem, "%.*s", (int)(strlen(spec->name) - strlen(".weight")), spec->name);
    struct tensor_spec words = *spec, groups = *spec;
    uint32_t cols = spec->shape[spec->n_dims - 1];
    words.shape[spec->n_dims - 1] = cols * spec->bits / 32;
    groups.shape[spec->n_dims - 1] = cols / spec->group_size;
    /* Codes are uniform: their standard deviation is sqrt((4^bits - 1) / 12). */
    float levels = (float)(1u << spec->bits), spread = sqrtf((levels * levels - 1.0f) / 12.0f);
    struct synth_tensor values = {
        .kind = SYNTH_CODES,
        .seed = seed,
        .scale = matrix_gain(full, spec->name) / (spread * sqrtf((float)cols)),
        .middle = (levels - 1.0f) / 2.0f,
    };
    TRY(place(s, stem, ".weight", "U32", 4, &words, values, err));
    values.seed = ~seed;
    values.kind = SYNTH_SCALES;
    TRY(place(s, stem, ".scales", "BF16", 2, &groups, values, err));
    values.kind = SYNTH_BIASES;
    return place(s, stem, ".biases", "BF16", 2, &groups, values, err);
}

static sluice_status place_all(struct synth_source *s, const struct full_size *full,
                               const struct recipe *recipe, uint64_t seed, sluice_error *err)
{
    static const char *const NAMES[DTYPE_COUNT] = {[DTYPE_BF16] = "BF16",
                                                   [DTYPE_F16] = "F16",
                                                   [DTYPE_F32] = "F32",
                                                   [DTYPE_I64] = "I64",
                                                   [DTYPE_I32] = "I32"};
    s->tensors = mem_calloc(recipe->n_specs, 3 * sizeof *s->tensors);
    if (!s->tensors)
        return err_memory(err, recipe->n_specs * 3 * sizeof *s->tensors, "the tensor table");
    for (size_t i = 0; i < recipe->n_specs; i++) {
        const struct tensor_spec *spec = &recipe->specs[i];
        uint64_t own = (seed + 1) * 0xD1342543DE82EF95u + i * 0x2545F4914F6CDD1Du;
        if (spec->dtype == DTYPE_AFFINE) {
            TRY(place_affine(s, full, spec, own, err));
            continue;
        }
        struct synth_tensor values = {
            .kind = spec->n_dims > 1 ? SYNTH_MATRIX : SYNTH_VECTOR, .dtype = spec->dtype, .seed = own};
        if (spec->n_dims > 1)
            values.scale = matrix_gain(full, spec->name) / sqrtf((float)spec->shape[spec->n_dims - 1]);
        TRY(place(s, spec->name, "", NAMES[spec->dtype], dtype_bytes(spec->dtype), spec, values, err));
    }
    return str_putc(&s->header, '}') ? SLUICE_OK : err_memory(err, s->header.len, "the header");
}

/* The header, padded to whole words, and its length before it; then the tensors. */
static sluice_status close_header(struct synth_source *s, sluice_error *err)
{
    struct str framed = {0};
    while (s->header.len % 8 != 0)
        if (!str_putc(&s->header, ' '))
            return err_memory(err, s->header.len, "the header");
    uint64_t n = s->header.len;
    if (!str_append(&framed, (const char *)&n, sizeof n) ||
        !str_append(&framed, s->header.p, s->header.len)) {
        str_free(&framed);
        return err_memory(err, s->header.len, "the header");
    }
    str_free(&s->header);
    s->header = framed;
    for (size_t i = 0; i < s->n_tensors; i++)
        s->tensors[i].offset += framed.len;
    s->shard_bytes += framed.len;
    return SLUICE_OK;
}

/* ---- the source ---- */

/* False: not one of the small files. */
static bool small_file(const struct synth_source *s, const char *file, const struct str **text)
{
    bool config = strcmp(file, "config.json") == 0, tokenizer = strcmp(file, "tokenizer.json") == 0;
    *text = config ? &s->config : tokenizer ? &s->tokenizer : &s->tokenizer_config;
    return config || tokenizer || strcmp(file, "tokenizer_config.json") == 0;
}

static sluice_status synth_size(struct source *source, const char *file, uint64_t *bytes, sluice_error *err)
{
    const struct synth_source *s = source->state;
    const struct str *text;
    bool small = small_file(s, file, &text);
    if (!small && strcmp(file, SHARD) != 0)
        return err_set(err, SLUICE_E_IO, "a random checkpoint has no %s", file);
    *bytes = small ? text->len : s->shard_bytes;
    return SLUICE_OK;
}

static sluice_status synth_exists(struct source *source, const char *file, bool *there, sluice_error *err)
{
    uint64_t bytes;
    (void)err;
    *there = synth_size(source, file, &bytes, NULL) == SLUICE_OK;
    return SLUICE_OK;
}

/* The tensor that holds byte `offset`, which is behind the header. */
static const struct placed_tensor *tensor_at(const struct synth_source *s, uint64_t offset)
{
    size_t low = 0, high = s->n_tensors;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->tensors[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return &s->tensors[low];
}

static sluice_status synth_read(struct source *source, const char *file, uint64_t offset, void *buffer,
                                size_t n, sluice_error *err)
{
    const struct synth_source *s = source->state;
    const struct str *text;
    bool small = small_file(s, file, &text);
    uint64_t total;
    TRY(synth_size(source, file, &total, err));
    if (!range_inside(offset, n, total))
        return err_set(err, SLUICE_E_FORMAT, "%s ends before byte %llu", file,
                       (unsigned long long)(offset + n));
    unsigned char *out = buffer;
    if (!small)
        text = &s->header;
    if (offset < text->len) {
        size_t m = text->len - offset < n ? (size_t)(text->len - offset) : n;
        memcpy(out, text->p + offset, m);
        out += m;
        offset += m;
        n -= m;
    }
    while (n > 0) {
        const struct placed_tensor *t = tensor_at(s, offset);
        uint64_t inside = offset - t->offset, rest = t->bytes - inside;
        size_t m = rest < n ? (size_t)rest : n;
        synth_fill(&t->values, inside, out, m);
        out += m;
        offset += m;
        n -= m;
    }
    return SLUICE_OK;
}

static void synth_close(struct source *source)
{
    struct synth_source *s = source->state;
    str_free(&s->config);
    str_free(&s->tokenizer);
    str_free(&s->tokenizer_config);
    str_free(&s->header);
    mem_free(s->tensors);
    mem_free(s);
}

static sluice_status fill_source(struct synth_source *s, const struct family *family, json_t *config,
                                 uint64_t seed, sluice_error *err)
{
    struct model *model;
    char *text;
    TRY(json_print(config, JSON_INDENT(2), "config.json", &text, err));
    bool ok = str_puts(&s->config, text);
    mem_free(text);
    if (!ok)
        return err_memory(err, 0, "config.json");
    TRY(family->open(config, &model, err));
    sluice_status status = synth_tokenizer(family->full_size, model->vocab, &s->tokenizer, err);
    const struct recipe recipe = {.specs = model->specs, .n_specs = model->n_specs};
    if (status == SLUICE_OK)
        status = synth_tokenizer_config(family->full_size, &s->tokenizer_config, err);
    if (status == SLUICE_OK)
        status = place_all(s, family->full_size, &recipe, seed, err);
    if (status == SLUICE_OK)
        status = close_header(s, err);
    (void)snprintf(s->name, sizeof s->name, "%s-random-%u-layers-seed-%llu", family->name, model->n_layers,
                   (unsigned long long)seed);
    model_close(model);
    return status;
}

sluice_status synth_source_open(struct source **source, const struct family *family, uint32_t layers,
                                uint64_t seed, sluice_error *err)
{
    json_t *config;
    *source = NULL;
    struct synth_source *s = mem_calloc(1, sizeof *s);
    if (!s)
        return err_memory(err, sizeof *s, "a source");
    s->source = (struct source){.state = s,
                                .name = s->name,
                                .any_order = true,
                                .size = synth_size,
                                .exists = synth_exists,
                                .read = synth_read,
                                .close = synth_close};
    sluice_status status = synth_config(family->full_size, layers, &config, err);
    if (status == SLUICE_OK)
        status = fill_source(s, family, config, seed, err);
    json_decref(config);
    if (status == SLUICE_OK)
        *source = &s->source;
    else
        synth_close(&s->source);
    return status;
}

/* ---- the public call ---- */

static sluice_status find_family(const char *name, const struct family **family, sluice_error *err)
{
    char list[256] = "";
    for (size_t i = 0; FAMILIES[i]; i++) {
        size_t used = strlen(list);
        if (!FAMILIES[i]->full_size)
            continue;
        if (strcmp(FAMILIES[i]->name, name) == 0) {
            *family = FAMILIES[i];
            return SLUICE_OK;
        }
        (void)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", FAMILIES[i]->name);
    }
    return err_set(err, SLUICE_E_ARGUMENT, "no family \"%.60s\" of a known size; there are: %s", name, list);
}

sluice_status sluice_synth(const sluice_synth_options *options, sluice_install_report *report,
                           sluice_error *err)
{
    const struct family *family = NULL;
    struct source *source;
    TRY(find_family(options->family ? options->family : "", &family, err));
    mem_hook_json();
    TRY(synth_source_open(&source, family, options->layers, options->seed, err));
    const sluice_install_options install = {
        .output_dir = options->output_dir,
        .dry_run = options->dry_run,
        .overwrite = options->overwrite,
        .resume = options->resume,
        .discard = options->discard,
        .watch = options->watch,
    };
    sluice_status status = store_install_from(source, &install, NULL, engine_recipe_of, report, err);
    source_close(source);
    return status;
}
