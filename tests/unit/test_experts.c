/* Expert cache: bytes, pins, victims, failures, threads. */
#include "base/fault.h"
#include "experts/cache.h"
#include "support/demo.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct gturbo *store;
    struct reads *reads;
    struct budget budget;
    struct expert_cache *cache;
};

static void open_fixture_with(struct fixture *f, uint32_t slots, uint32_t spares, sluice_io io,
                              sluice_eviction eviction)
{
    sluice_error err = {0};
    budget_init(&f->budget, UINT64_MAX);
    assert_int_equal(gturbo_open(demo.install, SLUICE_VERIFY_FULL, NULL, &f->store, &err), SLUICE_OK);
    assert_int_equal(
        reads_open(&f->reads, &(struct reads_options){.engine = io, .depth = 4, .buffers = 64}, &err),
        SLUICE_OK);
    assert_int_equal(experts_open(&f->cache, f->store, f->reads, &f->budget, slots, spares, eviction, &err),
                     SLUICE_OK);
}

static void open_fixture(struct fixture *f, uint32_t slots, sluice_eviction eviction)
{
    open_fixture_with(f, slots, 0, SLUICE_IO_AUTO, eviction);
}

static void close_fixture(struct fixture *f)
{
    reads_close(f->reads);
    experts_close(f->cache);
    gturbo_close(f->store);
    assert_int_equal(atomic_load(&f->budget.used_bytes), 0);
}

/* The record as a plain read gives it. */
static void load_record(const struct gturbo *store, uint32_t layer, uint32_t expert, unsigned char *out)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/packed_experts/layer_%02u.bin", demo.install, layer);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    size_t n = (size_t)store->stride_bytes;
    assert_int_equal(pread(fd, out, n, (off_t)(expert * store->stride_bytes)), n);
    (void)close(fd);
}

static void use(struct fixture *f, uint32_t layer, const uint16_t *experts, uint32_t n, uint32_t *hits)
{
    struct lease lease = {0};
    struct lease_stats stats = {0};
    sluice_error err;
    assert_int_equal(experts_request(f->cache, layer, experts, n, EXPERTS_WAIT, &lease, &stats, NULL, &err),
                     SLUICE_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(experts_wait(f->cache, &lease, i, &stats, NULL, &err), SLUICE_OK);
    experts_release(f->cache, &lease);
    if (hits)
        *hits = (uint32_t)stats.hits;
}

/* Leases n experts (at most 4) and compares their records with the file's. */
static void check_records(struct fixture *f, uint32_t layer, const uint16_t *ids, uint32_t n)
{
    const size_t bytes = (size_t)f->store->stride_bytes;
    unsigned char *expected = mem_alloc(bytes);
    struct lease lease = {0};
    struct lease_stats stats = {0};
    sluice_error err;
    assert_int_equal(experts_request(f->cache, layer, ids, n, EXPERTS_WAIT, &lease, &stats, NULL, &err),
                     SLUICE_OK);
    for (uint32_t i = 0; i < n; i++) {
        struct expert_mats mats;
        assert_int_equal(experts_wait(f->cache, &lease, i, &stats, NULL, &err), SLUICE_OK);
        assert_true(experts_ready(f->cache, &lease, i));
        experts_mats(f->cache, &lease, i, &mats);
        load_record(f->store, layer, ids[i], expected);
        const struct expert_part *parts = f->store->layers[layer].parts;
        const unsigned char *record = (const unsigned char *)mats.gate.weight - parts[PART_GATE].offset;
        assert_memory_equal(record, expected, bytes);
        assert_int_equal(mats.down.rows, mats.gate.cols);
        assert_int_equal(mats.down.cols, mats.up.rows);
    }
    experts_release(f->cache, &lease);
    mem_free(expected);
}

static void records_are_the_files_bytes(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 6, SLUICE_EVICT_LFU);
    for (uint32_t round = 0; round < 40; round++) {
        uint16_t ids[4];
        for (uint32_t i = 0; i < 4; i++)
            ids[i] = (uint16_t)((round * 13 + i * 7) % f.store->n_experts);
        check_records(&f, round % f.store->n_layers, ids, 4);
    }
    close_fixture(&f);
}

static void records_of_residents_are_listed(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 6, SLUICE_EVICT_LFU);
    const size_t bytes = (size_t)f.store->stride_bytes;
    const unsigned char *records[8];
    unsigned char *expected = mem_alloc(bytes);
    assert_int_equal(experts_records(f.cache, records, 8), 0);
    use(&f, 1, (uint16_t[]){7, 3}, 2, NULL);
    use(&f, 2, (uint16_t[]){3}, 1, NULL);
    assert_int_equal(experts_records(f.cache, records, 2), 2);
    assert_int_equal(experts_records(f.cache, records, 8), 3);
    const uint16_t owners[][2] = {{1, 7}, {1, 3}, {2, 3}};
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        uint32_t found = 0;
        load_record(f.store, owners[i][0], owners[i][1], expected);
        for (size_t k = 0; k < 3; k++)
            found += memcmp(records[k], expected, bytes) == 0;
        assert_int_equal(found, 1);
    }
    mem_free(expected);
    close_fixture(&f);
}

static bool resident(struct fixture *f, uint16_t expert)
{
    return experts_resident(f->cache, 0, expert);
}

static void lfu_evicts_the_least_used_then_the_least_recent(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 3, SLUICE_EVICT_LFU);
    for (uint16_t e = 0; e < 3; e++)
        use(&f, 0, &e, 1, NULL); /* 0, 1, 2 once each */
    use(&f, 0, (uint16_t[]){0}, 1, NULL);
    use(&f, 0, (uint16_t[]){9}, 1, NULL); /* 1 and 2 tie: 1 is older */
    assert_false(resident(&f, 1));
    assert_true(resident(&f, 0) && resident(&f, 2) && resident(&f, 9));
    use(&f, 0, (uint16_t[]){1}, 1, NULL); /* 1 has two uses now; 2 goes (one use, older than 9) */
    assert_false(resident(&f, 2));
    assert_true(resident(&f, 0) && resident(&f, 1) && resident(&f, 9));
    close_fixture(&f);
}

/* Ten uses long ago count less than two now. */
static void lfu_forgets(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 3, SLUICE_EVICT_LFU);
    for (int i = 0; i < 10; i++)
        use(&f, 0, (uint16_t[]){0}, 1, NULL);
    use(&f, 0, (uint16_t[]){1, 2}, 2, NULL);
    use(&f, 0, (uint16_t[]){3}, 1, NULL); /* not 0: 1 or 2 */
    assert_true(resident(&f, 0));
    for (uint32_t i = 0; i < 4 * 64 * f.store->n_layers; i++)
        use(&f, 1, (uint16_t[]){7}, 1, NULL);
    for (int i = 0; i < 2; i++)
        use(&f, 0, (uint16_t[]){4, 5}, 2, NULL); /* two slots that are no longer colder than 0 */
    use(&f, 0, (uint16_t[]){6}, 1, NULL);
    assert_false(resident(&f, 0));
    assert_true(resident(&f, 4) && resident(&f, 5) && resident(&f, 6));
    close_fixture(&f);
}

static void lru_evicts_the_least_recent(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 3, SLUICE_EVICT_LRU);
    for (uint16_t e = 0; e < 3; e++)
        use(&f, 0, &e, 1, NULL);
    use(&f, 0, (uint16_t[]){0}, 1, NULL);
    use(&f, 0, (uint16_t[]){9}, 1, NULL);
    assert_false(resident(&f, 1));
    use(&f, 0, (uint16_t[]){10}, 1, NULL);
    assert_false(resident(&f, 2));
    assert_true(resident(&f, 0) && resident(&f, 9) && resident(&f, 10));
    close_fixture(&f);
}

static void a_request_never_evicts_its_own_hits(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t hits;
    open_fixture(&f, 4, SLUICE_EVICT_LRU);
    use(&f, 0, (uint16_t[]){0, 1, 2, 3}, 4, &hits);
    assert_int_equal(hits, 0);
    use(&f, 0, (uint16_t[]){20, 21, 22, 0}, 4, &hits); /* 0 comes last and must survive the three misses */
    assert_int_equal(hits, 1);
    assert_true(resident(&f, 0) && resident(&f, 20) && resident(&f, 21) && resident(&f, 22));
    close_fixture(&f);
}

static void try_gives_up_while_slots_are_pinned(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 4, SLUICE_EVICT_LFU);
    struct lease first = {0}, second = {0};
    struct lease_stats stats = {0};
    sluice_error err;
    assert_int_equal(
        experts_request(f.cache, 1, (uint16_t[]){0, 1, 2}, 3, EXPERTS_WAIT, &first, &stats, NULL, &err),
        SLUICE_OK);
    assert_int_equal(
        experts_request(f.cache, 1, (uint16_t[]){5, 6}, 2, EXPERTS_TRY, &second, &stats, NULL, &err),
        SLUICE_OK);
    assert_false(second.held);
    /* One that it shares and one new fit beside the pins. */
    assert_int_equal(
        experts_request(f.cache, 1, (uint16_t[]){2, 6}, 2, EXPERTS_TRY, &second, &stats, NULL, &err),
        SLUICE_OK);
    assert_true(second.held);
    atomic_bool cancel = true;
    struct lease third = {0};
    assert_int_equal(
        experts_request(f.cache, 1, (uint16_t[]){9}, 1, EXPERTS_WAIT, &third, &stats, &cancel, &err),
        SLUICE_E_CANCELLED);
    experts_release(f.cache, &first);
    experts_release(f.cache, &second);
    close_fixture(&f);
}

static void a_failed_read_is_told_and_forgotten(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 4, SLUICE_EVICT_LFU);
    uint16_t expert = 3;
    use(&f, 2, &expert, 1, NULL); /* hashes the layer's file before the fault is armed */
    struct lease lease = {0};
    struct lease_stats stats = {0};
    sluice_error err;
    fault_arm(FAULT_READ, 1);
    assert_int_equal(
        experts_request(f.cache, 2, (uint16_t[]){8}, 1, EXPERTS_WAIT, &lease, &stats, NULL, &err), SLUICE_OK);
    assert_int_equal(experts_wait(f.cache, &lease, 0, &stats, NULL, &err), SLUICE_E_IO);
    assert_non_null(strstr(err.detail, "expert 8 of layer 2"));
    assert_true(fault_fired(FAULT_READ));
    experts_release(f.cache, &lease);
    assert_false(experts_resident(f.cache, 2, 8));
    uint32_t hits;
    use(&f, 2, (uint16_t[]){8}, 1, &hits); /* reads again */
    assert_int_equal(hits, 0);
    use(&f, 2, (uint16_t[]){8}, 1, &hits);
    assert_int_equal(hits, 1);
    close_fixture(&f);
}

/* Threads fight for few slots; whatever a lease shows must be the right record, whole. */
struct contender {
    struct fixture *f;
    unsigned char *const *expected; /* first 64 bytes of every expert of layer 0 */
    uint32_t seed;
    bool failed;
};

static void *contend(void *arg)
{
    struct contender *c = arg;
    uint32_t random = c->seed;
    for (int round = 0; round < 300 && !c->failed; round++) {
        uint16_t ids[2];
        random = random * 1664525u + 1013904223u;
        ids[0] = (uint16_t)(random >> 16) % 12;
        ids[1] = (uint16_t)((ids[0] + 1 + (random >> 28) % 11) % 12);
        struct lease lease = {0};
        struct lease_stats stats = {0};
        sluice_error err;
        c->failed |=
            experts_request(c->f->cache, 0, ids, 2, EXPERTS_WAIT, &lease, &stats, NULL, &err) != SLUICE_OK;
        for (uint32_t i = 0; i < 2 && !c->failed; i++) {
            struct expert_mats mats;
            c->failed |= experts_wait(c->f->cache, &lease, i, &stats, NULL, &err) != SLUICE_OK;
            experts_mats(c->f->cache, &lease, i, &mats);
            c->failed |= memcmp(mats.gate.weight, c->expected[ids[i]], 64) != 0;
        }
        experts_release(c->f->cache, &lease);
    }
    return NULL;
}

static void threads_share_few_slots(void **state)
{
    (void)state;
    enum { THREADS = 4, EXPERTS = 12 };
    struct fixture f;
    open_fixture(&f, 3, SLUICE_EVICT_LFU);
    unsigned char *expected[EXPERTS];
    size_t gate = (size_t)f.store->layers[0].parts[PART_GATE].offset;
    unsigned char *record = mem_alloc((size_t)f.store->stride_bytes);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        expected[e] = mem_alloc(64);
        load_record(f.store, 0, e, record);
        memcpy(expected[e], record + gate, 64);
    }
    pthread_t threads[THREADS];
    struct contender contenders[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        contenders[i] = (struct contender){&f, expected, i * 77 + 1, false};
        assert_int_equal(pthread_create(&threads[i], NULL, contend, &contenders[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_false(contenders[i].failed);
    }
    for (uint32_t e = 0; e < EXPERTS; e++)
        mem_free(expected[e]);
    mem_free(record);
    close_fixture(&f);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    sluice_error err;
    struct expert_cache *cache;
    open_fixture(&f, 2, SLUICE_EVICT_LFU);
    assert_int_equal(experts_open(&cache, f.store, f.reads, &f.budget, 1, 0, SLUICE_EVICT_LFU, &err),
                     SLUICE_E_ARGUMENT);
    assert_int_equal(experts_open(&cache, f.store, f.reads, &f.budget, 65, 0, SLUICE_EVICT_LFU, &err),
                     SLUICE_E_ARGUMENT);
    struct budget small;
    budget_init(&small, 100000);
    assert_int_equal(experts_open(&cache, f.store, f.reads, &small, 64, 0, SLUICE_EVICT_LFU, &err),
                     SLUICE_E_BUDGET);
    assert_int_equal(atomic_load(&small.used_bytes), 0);
    close_fixture(&f);
}

/* ---- guesses ---- */

static void await_idle(const struct fixture *f)
{
    struct read_request nothing = {0};
    for (int i = 0; i < 100000 && reads_busy(f->reads) > 0; i++) {
        (void)reads_ready(f->reads, &nothing); /* takes completions over */
        (void)usleep(100);
    }
    assert_int_equal(reads_busy(f->reads), 0);
}

/* Use experts and return what the request counted. Reads that are held are let go once they were waited for.
 */
static struct lease_stats used(struct fixture *f, uint32_t layer, const uint16_t *experts, uint32_t n)
{
    struct lease lease = {0};
    struct lease_stats stats = {0};
    sluice_error err;
    unsigned char *expected = mem_alloc((size_t)f->store->stride_bytes);
    assert_int_equal(experts_request(f->cache, layer, experts, n, EXPERTS_WAIT, &lease, &stats, NULL, &err),
                     SLUICE_OK);
    if (fault_reads_held()) {
        const atomic_bool cancel = true;
        assert_int_equal(experts_wait(f->cache, &lease, 0, &stats, &cancel, &err), SLUICE_E_CANCELLED);
        fault_hold_reads(false);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct expert_mats mats;
        assert_int_equal(experts_wait(f->cache, &lease, i, &stats, NULL, &err), SLUICE_OK);
        experts_mats(f->cache, &lease, i, &mats);
        load_record(f->store, layer, experts[i], expected);
        assert_memory_equal((const unsigned char *)mats.gate.weight -
                                f->store->layers[layer].parts[PART_GATE].offset,
                            expected, (size_t)f->store->stride_bytes);
    }
    experts_release(f->cache, &lease);
    mem_free(expected);
    return stats;
}

static void a_guess_is_taken_over_and_evicts_nothing(void **state)
{
    (void)state;
    struct fixture f;
    struct lease_stats guessed = {0}, stats;
    uint64_t stride;
    open_fixture_with(&f, 4, 4, SLUICE_IO_AUTO, SLUICE_EVICT_LRU);
    stride = f.store->stride_bytes;
    /* Before its first request a layer has no proven file, and a guess does nothing. */
    assert_true(experts_guess(f.cache, 1, (uint16_t[]){9}, 1, &guessed));
    assert_int_equal(guessed.guesses, 0);
    (void)used(&f, 1, (uint16_t[]){0, 1, 2, 3}, 4);

    assert_true(experts_guess(f.cache, 1, (uint16_t[]){0, 10, 11, 10}, 4, &guessed));
    assert_int_equal(guessed.guesses, 2); /* 0 is resident, the second 10 on its way */
    assert_int_equal(guessed.read_bytes, 2 * stride);
    await_idle(&f);
    for (uint16_t e = 0; e < 4; e++)
        assert_true(experts_resident(f.cache, 1, e));

    stats = used(&f, 1, (uint16_t[]){10, 20, 3}, 3);
    assert_int_equal(stats.hits, 2); /* 3, and 10 although it was in no slot */
    assert_int_equal(stats.useful_guesses, 1);
    assert_int_equal(stats.read_bytes, stride);    /* 20 */
    assert_int_equal(stats.wasted_bytes, stride);  /* 11 */
    assert_true(experts_resident(f.cache, 1, 10)); /* it has a slot now */
    assert_false(experts_resident(f.cache, 1, 11));
    assert_int_equal(used(&f, 1, (uint16_t[]){10, 20, 3}, 3).hits, 3);
    /* 11 still lies in its spare slot: needed after all, it is not read again. */
    stats = used(&f, 1, (uint16_t[]){11}, 1);
    assert_int_equal(stats.read_bytes, 0);
    assert_int_equal(stats.useful_guesses, 0);
    close_fixture(&f);
}

static void a_guess_under_way_is_joined(void **state)
{
    (void)state;
    struct fixture f;
    struct lease_stats guessed = {0};
    open_fixture_with(&f, 4, 4, SLUICE_IO_THREADS, SLUICE_EVICT_LRU);
    (void)used(&f, 2, (uint16_t[]){0}, 1);
    fault_hold_reads(true);
    assert_true(experts_guess(f.cache, 2, (uint16_t[]){30, 31}, 2, &guessed));
    assert_false(experts_guess(f.cache, 2, (uint16_t[]){32}, 1, &guessed)); /* the drive is busy */
    assert_int_equal(guessed.guesses, 2);
    struct lease_stats stats = used(&f, 2, (uint16_t[]){30}, 1);
    assert_int_equal(stats.hits, 0);
    assert_int_equal(stats.read_bytes, 0);
    assert_int_equal(stats.useful_guesses, 1);
    assert_true(stats.wait_ns > 0);
    close_fixture(&f);
}

static void a_failed_guess_is_forgotten(void **state)
{
    (void)state;
    struct fixture f;
    struct lease_stats guessed = {0};
    open_fixture_with(&f, 4, 2, SLUICE_IO_AUTO, SLUICE_EVICT_LRU);
    (void)used(&f, 0, (uint16_t[]){0}, 1);
    fault_arm(FAULT_READ, 1);
    assert_true(experts_guess(f.cache, 0, (uint16_t[]){40}, 1, &guessed));
    await_idle(&f);
    assert_true(fault_fired(FAULT_READ));
    struct lease_stats stats = used(&f, 0, (uint16_t[]){40}, 1);
    assert_int_equal(stats.useful_guesses, 0);
    assert_int_equal(stats.read_bytes, f.store->stride_bytes);
    close_fixture(&f);
}

/* ---- filling ---- */

static uint32_t count_resident(struct fixture *f, uint32_t layer)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < f->store->n_experts; e++)
        n += experts_resident(f->cache, layer, e);
    return n;
}

/* Every expert of a layer fits into slots that hold nothing, its own and other layers'. */
static void a_layer_is_read_ahead_into_empty_slots(void **state)
{
    (void)state;
    struct fixture f;
    struct lease_stats filled = {0}, stats;
    open_fixture(&f, 16, SLUICE_EVICT_LFU);
    const uint32_t experts = f.store->n_experts;
    assert_true(f.store->n_layers * 16 > experts + 2);
    (void)used(&f, 1, (uint16_t[]){1, 40}, 2);
    (void)used(&f, 2, (uint16_t[]){7}, 1);
    experts_fill(f.cache, 1, &filled);
    assert_int_equal(filled.read_bytes, (experts - 2) * f.store->stride_bytes);
    assert_int_equal(filled.requests, 0);
    await_idle(&f);
    assert_int_equal(count_resident(&f, 1), experts);
    assert_true(experts_resident(f.cache, 2, 7));
    experts_fill(f.cache, 1, &filled); /* nothing is missing */
    assert_int_equal(filled.read_bytes, (experts - 2) * f.store->stride_bytes);
    stats = used(&f, 1, (uint16_t[]){0, 3, 40, 50}, 4);
    assert_int_equal(stats.hits, 4);
    assert_int_equal(stats.read_bytes, 0);
    /* Group 0 holds experts of layer 1 now, which its own layer takes the place of. */
    stats = used(&f, 0, (uint16_t[]){10, 11, 12, 13}, 4);
    assert_int_equal(stats.read_bytes, 4 * f.store->stride_bytes);
    assert_int_equal(count_resident(&f, 1), experts - 4);
    (void)used(&f, 0, (uint16_t[]){14}, 1);
    assert_int_equal(count_resident(&f, 1), experts - 5);
    assert_int_equal(count_resident(&f, 0), 5);
    close_fixture(&f);
}

/* With every slot taken, the layers that are done give theirs: not the one before, and none that follows
 * soon.
 */
static void a_layer_is_read_ahead_in_place_of_those_that_are_done(void **state)
{
    (void)state;
    enum { SLOTS = 4 };
    struct fixture f;
    struct lease_stats filled = {0};
    open_fixture(&f, SLOTS, SLUICE_EVICT_LRU);
    const uint32_t layers = f.store->n_layers, next = layers - 1;
    assert_true(layers >= 4);
    for (uint32_t l = 0; l < layers; l++)
        (void)used(&f, l, (uint16_t[]){0, 1, 2, 3}, SLOTS);
    experts_fill(f.cache, next, &filled);
    await_idle(&f);
    uint32_t donors = 0;
    for (uint32_t l = 0; l < layers; l++) {
        const uint32_t away = (l + layers - next) % layers;
        const bool done = away >= layers / 2 && l + 1 != next;
        donors += done;
        if (l != next)
            assert_int_equal(count_resident(&f, l), done ? 0 : SLOTS);
    }
    assert_true(donors > 0);
    assert_int_equal(count_resident(&f, next), SLOTS * (1 + donors));
    assert_int_equal(filled.read_bytes, SLOTS * donors * f.store->stride_bytes);
    /* A request pins what was read ahead, wherever it lies, and the bytes are the file's. */
    check_records(&f, next, (uint16_t[]){0, SLOTS, SLOTS + 1}, 3);
    /* The layer that gave its slots takes them back. */
    assert_int_equal(used(&f, next - 2, (uint16_t[]){0, 1}, 2).read_bytes, 2 * f.store->stride_bytes);
    close_fixture(&f);
}

static void a_fill_under_way_is_joined_and_sorted_between(void **state)
{
    (void)state;
    struct fixture f;
    struct lease_stats filled = {0};
    uint16_t sorted[5];
    open_fixture_with(&f, 4, 0, SLUICE_IO_THREADS, SLUICE_EVICT_LRU);
    (void)used(&f, 2, (uint16_t[]){30}, 1);
    fault_hold_reads(true);
    experts_fill(f.cache, 2, &filled);
    experts_sort(f.cache, 2, (uint16_t[]){60, 2, 1, 30, 50}, 5, sorted);
    assert_memory_equal(sorted, ((uint16_t[]){30, 2, 1, 60, 50}), sizeof sorted);
    struct lease_stats stats = used(&f, 2, (uint16_t[]){2}, 1);
    assert_int_equal(stats.hits, 0);
    assert_int_equal(stats.read_bytes, 0);
    close_fixture(&f);
}

/* Reads land while the experts are sorted: each must come out once all the same. */
static void sorting_loses_nobody(void **state)
{
    (void)state;
    enum { EXPERTS = 64, ROUNDS = 40 };
    uint16_t from[EXPERTS], sorted[EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        from[e] = (uint16_t)e;
    for (int round = 0; round < ROUNDS; round++) {
        struct fixture f;
        struct lease_stats filled = {0};
        open_fixture_with(&f, 60, 0, SLUICE_IO_THREADS, SLUICE_EVICT_LRU);
        assert_int_equal(f.store->n_experts, EXPERTS);
        experts_fill(f.cache, (uint32_t)round % f.store->n_layers, &filled);
        bool busy;
        do {
            bool seen[EXPERTS] = {false};
            busy = reads_busy(f.reads) > 0;
            memset(sorted, 0xff, sizeof sorted);
            experts_sort(f.cache, (uint32_t)round % f.store->n_layers, from, EXPERTS, sorted);
            for (int i = 0; i < EXPERTS; i++) {
                assert_in_range(sorted[i], 0, EXPERTS - 1);
                assert_false(seen[sorted[i]]);
                seen[sorted[i]] = true;
            }
        } while (busy);
        close_fixture(&f);
    }
}

static void a_failed_fill_is_read_again_by_its_request(void **state)
{
    (void)state;
    struct fixture f;
    struct lease_stats filled = {0};
    open_fixture(&f, 4, SLUICE_EVICT_LRU);
    (void)used(&f, 0, (uint16_t[]){9}, 1);
    fault_arm(FAULT_READ, 1);
    experts_fill(f.cache, 0, &filled);
    await_idle(&f);
    assert_true(fault_fired(FAULT_READ));
    /* Any of those that were read: the read threads race for the fault. */
    uint16_t failed = 0;
    while (experts_resident(f.cache, 0, failed))
        failed++;
    assert_true(failed * f.store->stride_bytes < filled.read_bytes);
    assert_int_equal(used(&f, 0, &failed, 1).read_bytes, f.store->stride_bytes);
    close_fixture(&f);
}

static void residents_are_sorted_first(void **state)
{
    (void)state;
    struct fixture f;
    uint16_t sorted[6];
    open_fixture(&f, 4, SLUICE_EVICT_LRU);
    (void)used(&f, 0, (uint16_t[]){5, 9, 13}, 3);
    experts_sort(f.cache, 0, (uint16_t[]){1, 5, 6, 9, 13, 60}, 6, sorted);
    assert_memory_equal(sorted, ((uint16_t[]){5, 9, 13, 1, 6, 60}), sizeof sorted);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_the_files_bytes),
        cmocka_unit_test(records_of_residents_are_listed),
        cmocka_unit_test(lfu_evicts_the_least_used_then_the_least_recent),
        cmocka_unit_test(lfu_forgets),
        cmocka_unit_test(lru_evicts_the_least_recent),
        cmocka_unit_test(a_request_never_evicts_its_own_hits),
        cmocka_unit_test(try_gives_up_while_slots_are_pinned),
        cmocka_unit_test(a_failed_read_is_told_and_forgotten),
        cmocka_unit_test(threads_share_few_slots),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(residents_are_sorted_first),
        cmocka_unit_test(a_layer_is_read_ahead_into_empty_slots),
        cmocka_unit_test(a_layer_is_read_ahead_in_place_of_those_that_are_done),
        cmocka_unit_test(a_fill_under_way_is_joined_and_sorted_between),
        cmocka_unit_test(sorting_loses_nobody),
        cmocka_unit_test(a_failed_fill_is_read_again_by_its_request),
        cmocka_unit_test(a_guess_is_taken_over_and_evicts_nothing),
        cmocka_unit_test(a_guess_under_way_is_joined),
        cmocka_unit_test(a_failed_guess_is_forgotten),
    };
    return cmocka_run_group_tests(tests, demo_setup, demo_teardown);
}
