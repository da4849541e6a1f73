/* base/mem: plain allocation, the budget, arenas. */
#include "support/unit.h"

#include "base/fault.h"
#include "base/mem.h"

#include <pthread.h>
#include <sys/mman.h>

static void plain_allocation(void **state)
{
    (void)state;
    char *p = mem_alloc(0);
    assert_non_null(p);
    p = mem_realloc(p, 100);
    assert_non_null(p);
    memset(p, 1, 100);
    p = mem_realloc(p, 0);
    assert_non_null(p);
    mem_free(p);
    mem_free(NULL);
    sluice_free(mem_strdup("handed out"));
    unsigned *zeroed = mem_calloc(50, sizeof *zeroed);
    for (int i = 0; i < 50; i++)
        assert_int_equal(zeroed[i], 0);
    mem_free(zeroed);
    void *none = mem_calloc(0, 0);
    assert_non_null(none);
    mem_free(none);
    assert_null(mem_calloc(SIZE_MAX / 2, 3)); /* the product overflows */
}

static void copies_of_strings(void **state)
{
    (void)state;
    char *copy = mem_strdup("text");
    assert_string_equal(copy, "text");
    mem_free(copy);
    copy = mem_strndup("a\0bc", 4); /* counts bytes, not up to a NUL */
    assert_memory_equal(copy, "a\0bc", 5);
    mem_free(copy);
    copy = mem_strndup("", 0);
    assert_string_equal(copy, "");
    mem_free(copy);
    assert_null(mem_strndup("x", SIZE_MAX));
}

static void every_allocator_passes_the_fault_hook(void **state)
{
    (void)state;
    char *old = mem_strdup("kept");
    for (int i = 0; i < 5; i++) {
        fault_arm(FAULT_ALLOC, 1);
        void *got = i == 0   ? mem_alloc(8)
                    : i == 1 ? mem_calloc(2, 4)
                    : i == 2 ? mem_realloc(old, 4000)
                    : i == 3 ? mem_strdup("x")
                             : mem_strndup("x", 1);
        assert_null(got);
        assert_true(fault_fired(FAULT_ALLOC));
    }
    assert_string_equal(old, "kept");
    mem_free(old);
}

static void growing_doubles(void **state)
{
    (void)state;
    void *items = NULL;
    size_t cap = 0, moves = 0;
    for (size_t n = 1; n <= 100000; n++) {
        size_t before = cap;
        assert_true(mem_grow(&items, &cap, n, sizeof(uint32_t)));
        assert_true(cap >= n);
        moves += cap != before;
        ((uint32_t *)items)[n - 1] = (uint32_t)n;
    }
    assert_in_range(moves, 5, 20);
    for (size_t n = 1; n <= 100000; n++)
        assert_int_equal(((uint32_t *)items)[n - 1], n);

    void *kept = items;
    size_t kept_cap = cap;
    fault_arm(FAULT_ALLOC, 1);
    assert_false(mem_grow(&items, &cap, cap + 1, sizeof(uint32_t)));
    fault_arm(FAULT_ALLOC, 0);
    assert_false(mem_grow(&items, &cap, SIZE_MAX, sizeof(uint32_t)));     /* doubling overflows */
    assert_false(mem_grow(&items, &cap, SIZE_MAX / 4, sizeof(uint32_t))); /* the product overflows */
    assert_ptr_equal(items, kept);
    assert_int_equal(cap, kept_cap);
    assert_true(mem_grow(&items, &cap, 0, sizeof(uint32_t)));
    mem_free(items);
}

/* ---- budget ---- */

static void budget_counts_and_refuses(void **state)
{
    (void)state;
    struct budget budget;
    sluice_error err;
    budget_init(&budget, 1000);
    assert_ok(budget_charge(&budget, 600, "weights", &err), err);
    assert_ok(budget_charge(&budget, 400, "cache", &err), err);
    assert_fails(budget_charge(&budget, 1, "one byte", &err), SLUICE_E_BUDGET, err,
                 "one byte needs 1 bytes, the budget of 1000 has 0 left; raise --memory");
    budget_release(&budget, 700);
    assert_fails(budget_charge(&budget, 701, "scratch", &err), SLUICE_E_BUDGET, err,
                 "scratch needs 701 bytes, the budget of 1000 has 700 left");
    assert_fails(budget_charge(&budget, UINT64_MAX, "a sum that wraps", &err), SLUICE_E_BUDGET, err,
                 "700 left");
    assert_ok(budget_charge(&budget, 0, "nothing", &err), err);
    assert_int_equal(budget.used_bytes, 300);
    assert_int_equal(budget.peak_bytes, 1000);
    budget_release(&budget, 300);
    assert_int_equal(budget.used_bytes, 0);
    assert_int_equal(budget.peak_bytes, 1000);

    budget_init(&budget, UINT64_MAX);
    assert_ok(budget_charge(&budget, UINT64_MAX - 1, "nearly all", &err), err);
    assert_ok(budget_charge(&budget, 1, "the rest", &err), err);
    assert_int_equal(budget_charge(&budget, 1, "more", NULL), SLUICE_E_BUDGET);
}

enum { CHARGERS = 4, CHARGE_BYTES = 10, LIMIT_CHARGES = 3 };

struct charging {
    struct budget budget;
    _Atomic unsigned long granted, refused;
    unsigned long rounds;
};

static void *charge_and_release(void *arg)
{
    struct charging *c = arg;
    for (unsigned long i = 0; i < c->rounds; i++) {
        if (budget_charge(&c->budget, CHARGE_BYTES, "a share", NULL) == SLUICE_OK) {
            atomic_fetch_add(&c->granted, 1);
            budget_release(&c->budget, CHARGE_BYTES);
        } else {
            atomic_fetch_add(&c->refused, 1);
        }
    }
    return NULL;
}

static void budget_holds_among_threads(void **state)
{
    (void)state;
    struct charging c = {.rounds = scaled(20000, 2000)};
    budget_init(&c.budget, LIMIT_CHARGES * CHARGE_BYTES);
    pthread_t threads[CHARGERS];
    for (int i = 0; i < CHARGERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, charge_and_release, &c), 0);
    for (int i = 0; i < CHARGERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(c.granted + c.refused, CHARGERS * c.rounds);
    assert_true(c.granted > 0);
    assert_int_equal(c.budget.used_bytes, 0);
    assert_in_range(c.budget.peak_bytes, CHARGE_BYTES, LIMIT_CHARGES * CHARGE_BYTES);
}

/* ---- arenas ---- */

static void arenas_hand_out_aligned_zeroed_pieces(void **state)
{
    (void)state;
    static const size_t SIZES[] = {1, 63, 64, 65, 4096, 100000};
    struct arena arena;
    sluice_error err;
    size_t total = 0;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        total += arena_cost(SIZES[i]);
    assert_ok(arena_open(&arena, NULL, total, "pieces", &err), err);
    unsigned char *end = NULL;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        unsigned char *p = arena_take(&arena, SIZES[i]);
        assert_int_equal((uintptr_t)p % ARENA_ALIGN, 0);
        assert_true(!end || p >= end);
        for (size_t k = 0; k < SIZES[i]; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xAA, SIZES[i]);
        end = p + SIZES[i];
    }
    assert_int_equal(arena.used_bytes, total);
    arena_close(&arena);
    arena_close(&arena); /* zeroed by the first: fine */
}

static void arena_costs(void **state)
{
    (void)state;
    assert_int_equal(arena_cost(0), 0);
    assert_int_equal(arena_cost(1), 64);
    assert_int_equal(arena_cost(64), 64);
    assert_int_equal(arena_cost(65), 128);
}

/* Pages that are really there, from the kernel: an arena must give back all it mapped. */
static bool is_mapped(void *p, size_t bytes)
{
    unsigned char present[4];
    assert_true(bytes <= 4 * (size_t)sysconf(_SC_PAGESIZE));
    return mincore(p, bytes, present) == 0;
}

static void arenas_charge_and_give_back(void **state)
{
    (void)state;
    static const size_t SIZES[] = {0, 1, 4096, 4097, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        struct budget budget;
        struct arena arena;
        sluice_error err;
        budget_init(&budget, 64 << 20);
        assert_ok(arena_open(&arena, &budget, SIZES[i], "an arena", &err), err);
        size_t unit = SIZES[i] >= 2 << 20 ? 2 << 20 : 4096;
        assert_true(budget.used_bytes >= SIZES[i]);
        assert_true(budget.used_bytes <= SIZES[i] + unit);
        assert_int_equal(budget.used_bytes % unit, 0);
        assert_int_equal((uintptr_t)arena.base % unit, 0);
        unsigned char *base = arena.base;
        base[0] = 1;
        if (SIZES[i])
            base[SIZES[i] - 1] = 1;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        assert_true(is_mapped(base, page));
        arena_close(&arena);
        assert_false(is_mapped(base, page));
        assert_int_equal(budget.used_bytes, 0);
        assert_true(budget.peak_bytes >= SIZES[i]);
        assert_null(arena.base);
    }
}

static void refused_arenas_leave_no_charge(void **state)
{
    (void)state;
    struct budget budget;
    struct arena arena;
    sluice_error err;
    budget_init(&budget, 8192);
    assert_fails(arena_open(&arena, &budget, 8193, "expert slots", &err), SLUICE_E_BUDGET, err,
                 "expert slots needs 12288 bytes");
    assert_int_equal(budget.used_bytes, 0);
    assert_null(arena.base);
    arena_close(&arena);

    budget_init(&budget, UINT64_MAX);
    fault_arm(FAULT_ALLOC, 1);
    assert_fails(arena_open(&arena, &budget, 4096, "expert slots", &err), SLUICE_E_MEMORY, err,
                 "no memory for expert slots");
    assert_true(fault_fired(FAULT_ALLOC));
    assert_int_equal(budget.used_bytes, 0);
    arena_close(&arena);
    assert_fails(arena_open(&arena, &budget, SIZE_MAX, "everything", &err), SLUICE_E_MEMORY, err,
                 "everything");
    assert_fails(arena_open(&arena, &budget, SIZE_MAX / 2, "half of it", &err), SLUICE_E_MEMORY, err,
                 "half of it");
    assert_int_equal(budget.used_bytes, 0);
    arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_allocation),
        cmocka_unit_test(copies_of_strings),
        cmocka_unit_test(every_allocator_passes_the_fault_hook),
        cmocka_unit_test(growing_doubles),
        cmocka_unit_test(budget_counts_and_refuses),
        cmocka_unit_test(budget_holds_among_threads),
        cmocka_unit_test(arenas_hand_out_aligned_zeroed_pieces),
        cmocka_unit_test(arena_costs),
        cmocka_unit_test(arenas_charge_and_give_back),
        cmocka_unit_test(refused_arenas_leave_no_charge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
