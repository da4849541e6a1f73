#include "store/layout.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/str.h"
#include "io/file.h"
#include "store/manifest.h"
#include "store/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const LAYOUT_PART_NAMES[PART_KINDS] = {
    [PART_GATE] = "gate", [PART_GATE_SCALES] = "gate_scales", [PART_GATE_BIASES] = "gate_biases",
    [PART_UP] = "up",     [PART_UP_SCALES] = "up_scales",     [PART_UP_BIASES] = "up_biases",
    [PART_DOWN] = "down", [PART_DOWN_SCALES] = "down_scales", [PART_DOWN_BIASES] = "down_biases",
};

/* Parts come in threes: weights, scales, biases. */
static bool is_weights(int kind)
{
    return kind % 3 == 0;
}

/* ---- cutting the text into layers ---- */

/* Where the elements of the root object's "layers" array are. */
struct cut {
    const char *text;
    size_t bytes, at;
    size_t array_begin, array_end; /* of "[" and behind "]" */
    unsigned depth;
};

static void skip_string(struct cut *c)
{
    for (c->at++; c->at < c->bytes && c->text[c->at] != '"'; c->at++)
        if (c->text[c->at] == '\\')
            c->at++;
    if (c->at < c->bytes)
        c->at++;
    else
        c->at = c->bytes;
}

static void skip_space(struct cut *c)
{
    while (c->at < c->bytes && strchr(" \t\r\n", c->text[c->at]) && c->text[c->at])
        c->at++;
}

/* Step over one character or string, counting brackets. */
static void skip_one(struct cut *c)
{
    char ch = c->text[c->at];
    if (ch == '"') {
        skip_string(c);
        return;
    }
    if (ch == '{' || ch == '[')
        c->depth++;
    else if ((ch == '}' || ch == ']') && c->depth > 0)
        c->depth--;
    c->at++;
}

/* Move behind the "[" of "layers": […], a member of the root object. */
static bool find_layers(struct cut *c)
{
    static const char KEY[] = "\"layers\"";
    while (c->at < c->bytes) {
        if (c->depth == 1 && c->bytes - c->at > sizeof KEY &&
            memcmp(c->text + c->at, KEY, sizeof KEY - 1) == 0) {
            c->at += sizeof KEY - 1;
            skip_space(c);
            if (c->at < c->bytes && c->text[c->at] == ':') {
                c->at++;
                skip_space(c);
                if (c->at >= c->bytes || c->text[c->at] != '[')
                    return false;
                c->array_begin = c->at;
                skip_one(c);
                return true;
            }
            continue;
        }
        skip_one(c);
    }
    return false;
}

/* The next element, which must be an object; *n is 0 behind the last. */
static sluice_status next_layer(struct cut *c, bool first, const char **element, size_t *n, sluice_error *err)
{
    *n = 0;
    skip_space(c);
    if (c->at >= c->bytes)
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME " ends early; install again");
    if (c->text[c->at] == ']') {
        skip_one(c);
        c->array_end = c->at;
        return SLUICE_OK;
    }
    if (!first) {
        if (c->text[c->at] != ',')
            return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME " is not valid JSON: a comma is missing");
        c->at++;
        skip_space(c);
    }
    if (c->at >= c->bytes || c->text[c->at] != '{')
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": \"layers\" must be a list of objects");
    size_t begin = c->at;
    unsigned depth = c->depth;
    do
        skip_one(c);
    while (c->at < c->bytes && c->depth > depth);
    if (c->depth > depth)
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME " ends early; install again");
    *element = c->text + begin;
    *n = c->at - begin;
    return SLUICE_OK;
}

/* ---- one expert ---- */

static sluice_status read_part(const json_t *tensors, int kind, uint64_t stride, struct expert_part *part,
                               sluice_error *err)
{
    const char *name = LAYOUT_PART_NAMES[kind], *dtype;
    json_t *value, *shape;
    memset(part, 0, sizeof *part);
    TRY(json_need_object(tensors, name, &value, LAYOUT_NAME, err));
    TRY(json_need_u64(value, "offset", 0, stride, &part->offset, name, err));
    TRY(json_need_u64(value, "size", 1, stride, &part->bytes, name, err));
    TRY(json_need_string(value, "dtype", &dtype, name, err));
    TRY(json_need_array(value, "shape", &shape, name, err));
    if (!range_inside(part->offset, part->bytes, stride) || part->offset % 2)
        return err_set(err, SLUICE_E_FORMAT,
                       LAYOUT_NAME
                       ": part %s has %llu bytes at %llu; a record has %llu, and parts start at even "
                       "offsets",
                       name, (unsigned long long)part->bytes, (unsigned long long)part->offset,
                       (unsigned long long)stride);
    if (strcmp(dtype, is_weights(kind) ? "U32" : "BF16") != 0)
        return err_set(err, SLUICE_E_UNSUPPORTED, LAYOUT_NAME ": part %s has the type %.40s, %s is supported",
                       name, dtype, is_weights(kind) ? "U32" : "BF16");
    uint64_t dims[2];
    for (size_t i = 0; i < 2; i++) {
        const json_t *dim = json_array_get(shape, i);
        dims[i] = json_is_integer(dim) && json_integer_value(dim) > 0 ? (uint64_t)json_integer_value(dim) : 0;
        if (json_array_size(shape) != 2 || dims[i] == 0 || dims[i] > UINT32_MAX)
            return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": the shape of part %s must be [rows, columns]",
                           name);
    }
    part->rows = (uint32_t)dims[0];
    part->cols = (uint32_t)dims[1];
    if (is_weights(kind) && json_has(value, "bits")) {
        uint32_t bits;
        TRY(json_need_u32(value, "bits", 2, 8, &bits, name, err));
        part->bits = (uint8_t)bits;
    }
    return SLUICE_OK;
}

/* Weights, scales and biases of one matrix must agree; fills in bits and group size of the weights. */
static sluice_status check_matrix(struct expert_part *w, const struct expert_part *scales,
                                  const struct expert_part *biases, const char *name, sluice_error *err)
{
    /* rows and cols are below 2^32, so no product below wraps */
    uint64_t values = (uint64_t)w->rows * w->cols;
    uint64_t bits = w->bytes <= UINT64_MAX / 8 && (w->bytes * 8) % values == 0 ? w->bytes * 8 / values : 0;
    uint64_t group = w->cols % scales->cols == 0 ? w->cols / scales->cols : 0;
    if ((bits != 2 && bits != 4 && bits != 8) || (w->bits && w->bits != bits) || w->cols * bits % 32)
        return err_set(err, SLUICE_E_FORMAT,
                       LAYOUT_NAME ": the %llu bytes of part %s are not %u x %u values of 2, 4 or 8 bits as "
                                   "recorded",
                       (unsigned long long)w->bytes, name, w->rows, w->cols);
    if (scales->rows != w->rows || biases->rows != w->rows || biases->cols != scales->cols ||
        (group != 32 && group != 64 && group != 128))
        return err_set(err, SLUICE_E_FORMAT,
                       LAYOUT_NAME
                       ": the scales and biases of part %s do not fit its shape in groups of 32, 64 "
                       "or 128",
                       name);
    uint64_t pairs = (uint64_t)scales->rows * scales->cols;
    if (scales->bytes % 2 || scales->bytes / 2 != pairs || biases->bytes != scales->bytes)
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": the sizes of the scales of part %s are wrong",
                       name);
    w->bits = (uint8_t)bits;
    w->group_size = (uint16_t)group;
    return SLUICE_OK;
}

static sluice_status check_overlap(const struct expert_part parts[PART_KINDS], sluice_error *err)
{
    for (int a = 0; a < PART_KINDS; a++)
        for (int b = 0; b < a; b++)
            if (parts[a].offset < parts[b].offset + parts[b].bytes &&
                parts[b].offset < parts[a].offset + parts[a].bytes)
                return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": parts %s and %s overlap",
                               LAYOUT_PART_NAMES[b], LAYOUT_PART_NAMES[a]);
    return SLUICE_OK;
}

static sluice_status read_parts(const json_t *expert, uint64_t stride, struct expert_part parts[PART_KINDS],
                                sluice_error *err)
{
    json_t *tensors;
    TRY(json_need_object(expert, "tensors", &tensors, LAYOUT_NAME, err));
    if (json_object_size(tensors) != PART_KINDS)
        return err_set(err, SLUICE_E_UNSUPPORTED, LAYOUT_NAME ": an expert has %zu parts, %d are supported",
                       json_object_size(tensors), PART_KINDS);
    for (int kind = 0; kind < PART_KINDS; kind++)
        TRY(read_part(tensors, kind, stride, &parts[kind], err));
    for (int kind = 0; kind < PART_KINDS; kind += 3)
        TRY(check_matrix(&parts[kind], &parts[kind + 1], &parts[kind + 2], LAYOUT_PART_NAMES[kind], err));
    return check_overlap(parts, err);
}

static bool same_parts(const struct expert_part *a, const struct expert_part *b)
{
    for (int i = 0; i < PART_KINDS; i++)
        if (a[i].offset != b[i].offset || a[i].bytes != b[i].bytes || a[i].rows != b[i].rows ||
            a[i].cols != b[i].cols || a[i].bits != b[i].bits || a[i].group_size != b[i].group_size)
            return false;
    return true;
}

/* ---- one layer ---- */

static sluice_status read_expert(const json_t *expert, size_t position, const struct layout *layout,
                                 struct expert_layer *layer, bool *seen, sluice_error *err)
{
    uint32_t id = (uint32_t)position;
    uint64_t offset, size;
    if (json_has(expert, "expert"))
        TRY(json_need_u32(expert, "expert", 0, layout->n_experts - 1, &id, LAYOUT_NAME, err));
    TRY(json_need_u64(expert, "offset", 0, INT64_MAX, &offset, LAYOUT_NAME, err));
    TRY(json_need_u64(expert, "size", 0, INT64_MAX, &size, LAYOUT_NAME, err));
    if (seen[id])
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": expert %u is listed twice", id);
    seen[id] = true;
    if (size != layout->stride_bytes || offset != id * layout->stride_bytes)
        return err_set(
            err, SLUICE_E_FORMAT,
            LAYOUT_NAME ": expert %u has %llu bytes at %llu; with a stride of %llu it must start at "
                        "%llu",
            id, (unsigned long long)size, (unsigned long long)offset,
            (unsigned long long)layout->stride_bytes, (unsigned long long)(id * layout->stride_bytes));
    struct expert_part parts[PART_KINDS];
    TRY(read_parts(expert, layout->stride_bytes, parts, err));
    if (!layer->present) {
        memcpy(layer->parts, parts, sizeof parts);
        layer->present = true;
    } else if (!same_parts(layer->parts, parts)) {
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       LAYOUT_NAME ": the parts of expert %u lie differently from its layer's first expert",
                       id);
    }
    return SLUICE_OK;
}

static sluice_status read_layer(const json_t *value, uint32_t index, struct layout *layout, bool *seen,
                                sluice_error *err)
{
    uint32_t number;
    const char *file;
    json_t *experts;
    TRY(json_need_u32(value, "layer", 0, GTURBO_LAYERS_MAX, &number, LAYOUT_NAME, err));
    if (number != index)
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": layer %u is listed where layer %u belongs",
                       number, index);
    TRY(json_need_string(value, "file", &file, LAYOUT_NAME, err));
    TRY(json_need_array(value, "experts", &experts, LAYOUT_NAME, err));
    if (json_array_size(experts) == 0)
        return SLUICE_OK; /* a dense layer: it has no file */
    if (!path_is_plain(file))
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": the file name \"%.120s\" leaves " EXPERTS_DIR,
                       file);
    if (json_array_size(experts) != layout->n_experts)
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": layer %u lists %zu experts of %u", index,
                       json_array_size(experts), layout->n_experts);
    memset(seen, 0, layout->n_experts * sizeof *seen);
    for (size_t i = 0; i < layout->n_experts; i++)
        TRY(read_expert(json_array_get(experts, i), i, layout, &layout->layers[index], seen, err));
    layout->files[index] = mem_strdup(file);
    return layout->files[index] ? SLUICE_OK : err_memory(err, strlen(file), "a file name");
}

/* ---- the file ---- */

/* What surrounds the layers, parsed as its own document: it also proves that there is one "layers" only. */
static sluice_status read_frame(const struct cut *c, struct layout *layout, sluice_error *err)
{
    struct str frame = {0};
    json_t *root = NULL;
    sluice_status status = SLUICE_OK;
    if (!str_append(&frame, c->text, c->array_begin) || !str_puts(&frame, "[]") ||
        !str_append(&frame, c->text + c->array_end, c->bytes - c->array_end))
        status = err_memory(err, frame.len, LAYOUT_NAME);
    if (status == SLUICE_OK)
        status = json_parse(frame.p, frame.len, LAYOUT_NAME, &root, err);
    str_free(&frame);
    TRY(status);
    TRY_OUT(
        json_need_u64(root, "expertStride", 0, GTURBO_RECORD_MAX, &layout->stride_bytes, LAYOUT_NAME, err));
    TRY_OUT(json_need_u32(root, "numLayers", 1, GTURBO_LAYERS_MAX, &layout->n_layers, LAYOUT_NAME, err));
    TRY_OUT(
        json_need_u32(root, "expertsPerLayer", 0, GTURBO_EXPERTS_MAX, &layout->n_experts, LAYOUT_NAME, err));
    if (layout->stride_bytes % GTURBO_PAGE_BYTES || (layout->n_experts > 0) != (layout->stride_bytes > 0))
        status = err_set(err, SLUICE_E_FORMAT,
                         LAYOUT_NAME ": \"expertStride\" is %llu, it must be a multiple of %u",
                         (unsigned long long)layout->stride_bytes, GTURBO_PAGE_BYTES);
out:
    json_decref(root);
    return status;
}

static sluice_status read_layers(struct cut *c, struct layout *layout, bool *seen, sluice_error *err)
{
    for (uint32_t index = 0;; index++) {
        const char *element = NULL;
        size_t n;
        TRY(next_layer(c, index == 0, &element, &n, err));
        if (n == 0 && index != layout->n_layers)
            return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME ": %u layers are listed, \"numLayers\" says %u",
                           index, layout->n_layers);
        if (n == 0)
            return SLUICE_OK;
        if (index >= layout->n_layers)
            return err_set(err, SLUICE_E_FORMAT,
                           LAYOUT_NAME ": more layers are listed than \"numLayers\", %u", layout->n_layers);
        json_t *value;
        TRY(json_parse(element, n, LAYOUT_NAME, &value, err));
        sluice_status status = read_layer(value, index, layout, seen, err);
        json_decref(value);
        TRY(status);
    }
}

/* Two passes over the text: the first finds the end of the array, the second parses layer by layer. */
sluice_status layout_parse(const char *text, size_t bytes, struct layout *layout, sluice_error *err)
{
    memset(layout, 0, sizeof *layout);
    struct cut c = {.text = text, .bytes = bytes};
    if (bytes > LAYOUT_BYTES_MAX)
        return err_set(err, SLUICE_E_FORMAT, LAYOUT_NAME " has %zu bytes, at most %u are accepted", bytes,
                       LAYOUT_BYTES_MAX);
    if (!find_layers(&c))
        return err_set(err, SLUICE_E_FORMAT,
                       LAYOUT_NAME " has no list \"layers\"; it is not a .gturbo layout");
    struct cut layers = c;
    const char *element;
    size_t n = 1;
    for (bool first = true; n > 0; first = false)
        TRY(next_layer(&c, first, &element, &n, err));
    TRY(read_frame(&c, layout, err));
    layout->layers = mem_calloc(layout->n_layers, sizeof *layout->layers);
    layout->files = mem_calloc(layout->n_layers, sizeof *layout->files);
    bool *seen = mem_calloc(layout->n_experts, sizeof *seen);
    sluice_status status = layout->layers && layout->files && seen
                               ? read_layers(&layers, layout, seen, err)
                               : err_memory(err, layout->n_layers * sizeof *layout->layers, "the layout");
    mem_free(seen);
    return status;
}

void layout_free(struct layout *layout)
{
    for (uint32_t i = 0; layout->files && i < layout->n_layers; i++)
        mem_free(layout->files[i]);
    mem_free(layout->files);
    mem_free(layout->layers);
    memset(layout, 0, sizeof *layout);
}

/* ---- writing ---- */

static bool print_expert(struct str *s, const struct layout *layout, uint32_t layer, uint32_t expert)
{
    bool ok = str_printf(s, "%s\n        {\"expert\": %u, \"offset\": %llu, \"size\": %llu, \"tensors\": {",
                         expert ? "," : "", expert, (unsigned long long)(expert * layout->stride_bytes),
                         (unsigned long long)layout->stride_bytes);
    for (int kind = 0; kind < PART_KINDS; kind++) {
        const struct expert_part *part = &layout->layers[layer].parts[kind];
        ok &= str_printf(
            s,
            "%s\n          \"%s\": {\"offset\": %llu, \"size\": %llu, \"dtype\": \"%s\", \"shape\": "
            "[%u, %u]",
            kind ? "," : "", LAYOUT_PART_NAMES[kind], (unsigned long long)part->offset,
            (unsigned long long)part->bytes, is_weights(kind) ? "U32" : "BF16", part->rows, part->cols);
        ok &= is_weights(kind) ? str_printf(s, ", \"bits\": %u}", part->bits) : str_puts(s, "}");
    }
    return ok & str_puts(s, "}}");
}

static bool print_layer(struct str *s, const struct layout *layout, uint32_t layer)
{
    bool ok = str_printf(s, "%s\n    {\"layer\": %u, \"file\": \"layer_%02u.bin\", \"experts\": [",
                         layer ? "," : "", layer, layer);
    if (layout->layers[layer].present)
        for (uint32_t expert = 0; expert < layout->n_experts; expert++)
            ok &= print_expert(s, layout, layer, expert);
    return ok & str_puts(s, "]}");
}

static sluice_status flush(struct str *s, bool ok, int fd, uint64_t *at, const char *path, sluice_error *err)
{
    if (!ok)
        return err_memory(err, s->len, LAYOUT_NAME);
    TRY(file_write_at(fd, s->p, s->len, *at, path, err));
    *at += s->len;
    str_clear(s);
    return SLUICE_OK;
}

static sluice_status write_all(struct str *s, const struct layout *layout, int fd, const char *path,
                               sluice_error *err)
{
    uint64_t at = 0;
    bool ok = str_printf(s,
                         "{\n  \"expertStride\": %llu,\n  \"expertsPerLayer\": %u,\n  \"numLayers\": %u,\n"
                         "  \"layers\": [",
                         (unsigned long long)layout->stride_bytes, layout->n_experts, layout->n_layers);
    TRY(flush(s, ok, fd, &at, path, err));
    for (uint32_t layer = 0; layer < layout->n_layers; layer++)
        TRY(flush(s, print_layer(s, layout, layer), fd, &at, path, err));
    TRY(flush(s, str_puts(s, "\n  ]\n}\n"), fd, &at, path, err));
    if (at > LAYOUT_BYTES_MAX)
        return err_set(err, SLUICE_E_UNSUPPORTED,
                       LAYOUT_NAME
                       " would have %llu bytes, the format allows %u; the model has too many experts",
                       (unsigned long long)at, LAYOUT_BYTES_MAX);
    return file_sync(fd, path, err);
}

sluice_status layout_write(const char *path, const struct layout *layout, sluice_error *err)
{
    int fd;
    TRY(file_create(path, O_WRONLY | O_TRUNC, &fd, err));
    struct str s = {0};
    sluice_status status = write_all(&s, layout, fd, path, err);
    str_free(&s);
    (void)close(fd);
    return status;
}
