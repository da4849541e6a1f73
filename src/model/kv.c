#include "model/kv.h"

#include <string.h>

static size_t value_bytes(sluice_kv_type type)
{
    return type == SLUICE_KV_F32 ? 4 : 2;
}

static uint32_t ring_slots(const struct kv_shape *shape, uint32_t context, uint32_t chunk)
{
    if (shape->window == 0)
        return context;
    uint64_t ring = (uint64_t)shape->window + chunk;
    return ring < context ? (uint32_t)ring : context;
}

static size_t row_bytes(const struct kv_view *view)
{
    return (size_t)view->kv_heads * view->head_dim * value_bytes(view->type);
}

size_t kv_bytes(const struct kv_shape *shapes, uint32_t n_layers, uint32_t context, uint32_t chunk,
                sluice_kv_type type)
{
    size_t total = arena_cost(n_layers * sizeof(struct kv_view));
    for (uint32_t i = 0; i < n_layers; i++)
        total += 2 * arena_cost((size_t)ring_slots(&shapes[i], context, chunk) * shapes[i].kv_heads *
                                shapes[i].head_dim * value_bytes(type));
    return total;
}

void kv_open(struct kv_cache *kv, const struct kv_shape *shapes, uint32_t n_layers, uint32_t context,
             uint32_t chunk, sluice_kv_type type, struct arena *arena)
{
    *kv = (struct kv_cache){.shapes = shapes, .n_layers = n_layers, .context = context};
    kv->views = arena_take(arena, n_layers * sizeof *kv->views);
    for (uint32_t i = 0; i < n_layers; i++) {
        struct kv_view *view = &kv->views[i];
        *view = (struct kv_view){
            .type = type,
            .slots = ring_slots(&shapes[i], context, chunk),
            .kv_heads = shapes[i].kv_heads,
            .head_dim = shapes[i].head_dim,
        };
        view->k = arena_take(arena, view->slots * row_bytes(view));
        view->v = arena_take(arena, view->slots * row_bytes(view));
    }
}

void kv_reach(struct kv_cache *kv, uint32_t end)
{
    if (kv->high < end)
        kv->high = end;
}

bool kv_can_rewind(const struct kv_cache *kv, uint32_t length)
{
    if (length > kv->length)
        return false;
    if (length == 0 || length == kv->length)
        return true;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        uint32_t window = kv->shapes[i].window;
        if (window == 0)
            continue;
        /* The next query sees positions from here on; row p % slots holds p until p + slots is written. */
        uint32_t oldest = length >= window ? length - window + 1 : 0;
        if ((uint64_t)oldest + kv->views[i].slots < kv->high)
            return false;
    }
    return true;
}

void kv_rewind(struct kv_cache *kv, uint32_t length)
{
    kv->length = length;
    if (length == 0)
        kv->high = 0;
}

/* Rows of a view that have been written. */
static size_t used_rows(const struct kv_cache *kv, const struct kv_view *view)
{
    return kv->high < view->slots ? kv->high : view->slots;
}

size_t kv_snapshot_bytes(const struct kv_cache *kv)
{
    size_t total = 2 * sizeof(uint32_t);
    for (uint32_t i = 0; i < kv->n_layers; i++)
        total += 2 * used_rows(kv, &kv->views[i]) * row_bytes(&kv->views[i]);
    return total;
}

void kv_save(const struct kv_cache *kv, void *out)
{
    unsigned char *p = out;
    memcpy(p, &kv->length, sizeof kv->length);
    memcpy(p + 4, &kv->high, sizeof kv->high);
    p += 8;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        const struct kv_view *view = &kv->views[i];
        size_t bytes = used_rows(kv, view) * row_bytes(view);
        memcpy(p, view->k, bytes);
        memcpy(p + bytes, view->v, bytes);
        p += 2 * bytes;
    }
}

void kv_restore(struct kv_cache *kv, const void *in)
{
    const unsigned char *p = in;
    memcpy(&kv->length, p, sizeof kv->length);
    memcpy(&kv->high, p + 4, sizeof kv->high);
    p += 8;
    for (uint32_t i = 0; i < kv->n_layers; i++) {
        struct kv_view *view = &kv->views[i];
        size_t bytes = used_rows(kv, view) * row_bytes(view);
        memcpy(view->k, p, bytes);
        memcpy(view->v, p + bytes, bytes);
        p += 2 * bytes;
    }
}
