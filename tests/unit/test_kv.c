/* KV cache: ring sizes, what can be rewound, snapshots. */
#include "model/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct kv_shape SHAPES[] = {{2, 4, 8}, {1, 8, 0}};

struct fixture {
    struct arena arena;
    struct kv_cache kv;
};

static void open_fixture(struct fixture *f, uint32_t context, uint32_t chunk)
{
    size_t bytes = kv_bytes(SHAPES, 2, context, chunk, SLUICE_KV_F16);
    assert_int_equal(arena_open(&f->arena, NULL, bytes, "test", NULL), SLUICE_OK);
    kv_open(&f->kv, SHAPES, 2, context, chunk, SLUICE_KV_F16, &f->arena);
    assert_int_equal(f->arena.used_bytes, bytes);
}

static void ring_is_window_plus_chunk(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 64, 4);
    assert_int_equal(f.kv.views[0].slots, 12);
    assert_int_equal(f.kv.views[1].slots, 64);
    arena_close(&f.arena);
    open_fixture(&f, 10, 4); /* a short context needs no ring */
    assert_int_equal(f.kv.views[0].slots, 10);
    arena_close(&f.arena);
}

/* Against a model of the ring: position p is intact when nothing later wrote its row. */
static bool intact(uint32_t high, uint32_t slots, uint32_t p)
{
    for (uint32_t q = p + slots; q < high; q += slots)
        return false;
    return true;
}

static void rewind_matches_what_the_ring_holds(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 64, 4);
    for (uint32_t high = 1; high <= 64; high++) {
        for (uint32_t to = 0; to <= high; to++) {
            f.kv.length = f.kv.high = high;
            bool possible = true;
            uint32_t oldest = to >= 8 ? to - 7 : 0;
            for (uint32_t p = oldest; p < to; p++)
                possible &= intact(high, 12, p);
            bool said = kv_can_rewind(&f.kv, to);
            if (said)
                assert_true(possible);
            /* It refuses only where a needed row is gone. */
            if (possible)
                assert_true(said);
            if (to == 0 || to == high)
                assert_true(said);
        }
    }
    assert_false(kv_can_rewind(&f.kv, 65));
    arena_close(&f.arena);
}

static void rewinding_remembers_how_far_it_was(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 64, 4);
    kv_reach(&f.kv, 20);
    f.kv.length = 20;
    assert_true(kv_can_rewind(&f.kv, 17)); /* sees from 10; row 10 holds until 22 */
    kv_rewind(&f.kv, 17);
    assert_int_equal(f.kv.high, 20);
    assert_false(kv_can_rewind(&f.kv, 14)); /* would see 7, which 19 overwrote */
    kv_rewind(&f.kv, 0);
    assert_int_equal(f.kv.high, 0);
    arena_close(&f.arena);
}

static void snapshot_restores_every_byte(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 32, 4);
    kv_reach(&f.kv, 20);
    f.kv.length = 18;
    for (int layer = 0; layer < 2; layer++) {
        struct kv_view *view = &f.kv.views[layer];
        size_t bytes = (size_t)view->slots * view->kv_heads * view->head_dim * 2;
        for (size_t i = 0; i < bytes; i++) {
            ((unsigned char *)view->k)[i] = (unsigned char)(i * 7 + (size_t)layer);
            ((unsigned char *)view->v)[i] = (unsigned char)(i * 13 + (size_t)layer);
        }
    }
    size_t bytes = kv_snapshot_bytes(&f.kv);
    unsigned char *saved = mem_alloc(bytes), *again = mem_alloc(bytes);
    kv_save(&f.kv, saved);
    for (int layer = 0; layer < 2; layer++)
        memset(f.kv.views[layer].k, 0, 64);
    f.kv.length = f.kv.high = 3;
    kv_restore(&f.kv, saved);
    assert_int_equal(f.kv.length, 18);
    assert_int_equal(f.kv.high, 20);
    assert_int_equal(kv_snapshot_bytes(&f.kv), bytes);
    kv_save(&f.kv, again);
    assert_memory_equal(saved, again, bytes);
    mem_free(saved);
    mem_free(again);
    arena_close(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_is_window_plus_chunk),
        cmocka_unit_test(rewind_matches_what_the_ring_holds),
        cmocka_unit_test(rewinding_remembers_how_far_it_was),
        cmocka_unit_test(snapshot_restores_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
