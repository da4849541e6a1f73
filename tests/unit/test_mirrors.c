/* Copies of the expert files on other drives: which are used, that reads are spread, what happens when one is
 * damaged, fails, or is none. */
#include "experts/cache.h"
#include "support/demo.h"
#include "support/unit.h"

#include "base/fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

enum { SLOTS = 8, BATCH = 8 };

static char mirror[128]; /* demo.dir/mirror */

/* ---- the mirror's files ---- */

static void layer_path(char *out, size_t room, const char *dir, uint32_t layer)
{
    (void)snprintf(out, room, "%s/packed_experts/layer_%02u.bin", dir, layer);
}

static void copy_layer(uint32_t layer, bool keep_times)
{
    char from[192], to[192];
    struct stat st;
    char *bytes;
    size_t n;
    layer_path(from, sizeof from, demo.install, layer);
    layer_path(to, sizeof to, mirror, layer);
    assert_int_equal(file_load(from, 1 << 30, &bytes, &n, NULL), SLUICE_OK);
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(file_write_at(fd, bytes, n, 0, to, NULL), SLUICE_OK);
    assert_int_equal(fsync(fd), 0);
    if (keep_times) {
        assert_int_equal(stat(from, &st), 0);
        assert_int_equal(futimens(fd, (struct timespec[]){st.st_mtim, st.st_mtim}), 0);
    }
    (void)close(fd);
    mem_free(bytes);
}

static int make_mirror(void **state)
{
    (void)state;
    char inside[160];
    (void)snprintf(mirror, sizeof mirror, "%s/mirror", demo.dir);
    (void)snprintf(inside, sizeof inside, "%s/packed_experts", mirror);
    return mkdir(mirror, 0777) != 0 || mkdir(inside, 0777) != 0 ? -1 : 0;
}

static int remove_mirror(void **state)
{
    (void)state;
    return file_remove_tree(mirror, NULL) == SLUICE_OK ? 0 : -1;
}

/* Overwrite the whole file in place, without changing its length. */
static void scribble(uint32_t layer, off_t from, size_t n)
{
    char path[192];
    layer_path(path, sizeof path, mirror, layer);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    unsigned char *bytes = mem_alloc(n);
    memset(bytes, 0xA5, n);
    assert_int_equal(pwrite(fd, bytes, n, from), n);
    assert_int_equal(fsync(fd), 0);
    (void)close(fd);
    mem_free(bytes);
}

/* ---- a store with a cache ---- */

struct told {
    pthread_mutex_t lock;
    int notices;
    char last[SLUICE_DETAIL_BYTES + 128];
};

static void keep_notice(void *user, sluice_log_level level, const char *sentence)
{
    (void)level;
    struct told *told = user;
    (void)pthread_mutex_lock(&told->lock);
    told->notices++;
    (void)snprintf(told->last, sizeof told->last, "%s", sentence);
    (void)pthread_mutex_unlock(&told->lock);
}

static int notices(struct told *told)
{
    (void)pthread_mutex_lock(&told->lock);
    int n = told->notices;
    (void)pthread_mutex_unlock(&told->lock);
    return n;
}

struct fixture {
    struct gturbo *store;
    struct reads *reads;
    struct budget budget;
    struct expert_cache *cache;
    struct told told;
    struct log log;
};

static void open_fixture(struct fixture *f, sluice_verification verification, sluice_io io)
{
    sluice_error err = {0};
    *f = (struct fixture){.told = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    budget_init(&f->budget, UINT64_MAX);
    assert_ok(gturbo_open(demo.install, verification, NULL, &f->store, &err), err);
    log_open(&f->log, &(sluice_log){SLUICE_LOG_WARNING, keep_notice, &f->told});
    gturbo_log(f->store, &f->log);
    assert_ok(gturbo_add_mirror(f->store, mirror, &err), err);
    assert_ok(reads_open(&f->reads, &(struct reads_options){.engine = io}, &err), err);
    assert_ok(experts_open(&f->cache, f->store, f->reads, &f->budget, SLOTS, 0, SLUICE_EVICT_LRU, &err), err);
}

static void close_fixture(struct fixture *f)
{
    reads_close(f->reads);
    experts_close(f->cache);
    gturbo_close(f->store);
    log_close(&f->log);
}

static uint32_t copies_of(struct fixture *f, uint32_t layer)
{
    struct layer_sources sources;
    sluice_error err;
    assert_ok(gturbo_layer_sources(f->store, layer, &sources, &err), err);
    assert_int_equal(sources.at[0].copy, 0);
    return sources.n;
}

/* The background needs a moment; ten seconds are plenty. */
static void await_copies(struct fixture *f, uint32_t layer, uint32_t n)
{
    for (int i = 0; i < 1000 && copies_of(f, layer) != n; i++)
        (void)usleep(10000);
    assert_int_equal(copies_of(f, layer), n);
}

/* Read BATCH experts of a layer from `first` on; how many records are not the original's. */
static uint32_t read_batch(struct fixture *f, uint32_t layer, uint32_t first)
{
    struct lease lease = {0};
    struct lease_stats stats = {0};
    sluice_error err;
    uint16_t ids[BATCH];
    uint32_t foreign = 0;
    char path[192], *bytes;
    size_t n;
    layer_path(path, sizeof path, demo.install, layer);
    assert_int_equal(file_load(path, 1 << 30, &bytes, &n, NULL), SLUICE_OK);
    for (uint32_t i = 0; i < BATCH; i++)
        ids[i] = (uint16_t)((first + i) % f->store->n_experts);
    assert_ok(experts_request(f->cache, layer, ids, BATCH, EXPERTS_WAIT, &lease, &stats, NULL, &err), err);
    for (uint32_t i = 0; i < BATCH; i++) {
        struct expert_mats mats;
        assert_ok(experts_wait(f->cache, &lease, i, &stats, NULL, &err), err);
        experts_mats(f->cache, &lease, i, &mats);
        const unsigned char *record =
            (const unsigned char *)mats.gate.weight - f->store->layers[layer].parts[PART_GATE].offset;
        foreign += memcmp(record, bytes + ids[i] * f->store->stride_bytes, f->store->stride_bytes) != 0;
    }
    experts_release(f->cache, &lease);
    mem_free(bytes);
    return foreign;
}

/* ---- tests ---- */

static void reads_are_spread_over_proven_copies(void **state)
{
    (void)state;
    static const sluice_io ENGINES[] = {SLUICE_IO_AUTO, SLUICE_IO_THREADS};
    for (size_t e = 0; e < 2; e++) {
        struct fixture f;
        sluice_error err;
        copy_layer(0, false);
        copy_layer(3, false);
        open_fixture(&f, SLUICE_VERIFY_FULL, ENGINES[e]);
        assert_int_equal(copies_of(&f, 0), 1); /* nobody has hashed the mirror yet */
        assert_ok(gturbo_prove_ahead(f.store, 1, &err), err);
        await_copies(&f, 0, 2);
        await_copies(&f, 3, 2);
        assert_int_equal(copies_of(&f, 1), 1); /* the mirror has two layers only */
        for (uint32_t first = 0; first < 64; first += BATCH) {
            assert_int_equal(read_batch(&f, 0, first), 0);
            assert_int_equal(read_batch(&f, 1, first), 0);
        }
        /* Change the mirror behind the store's back: what comes from it is now to be seen. */
        scribble(0, 0, (size_t)(64 * f.store->stride_bytes));
        uint32_t foreign = 0;
        for (uint32_t first = 0; first < 64; first += BATCH)
            foreign += read_batch(&f, 0, first);
        assert_in_range(foreign, 64 / 4, 64 * 3 / 4);
        assert_int_equal(notices(&f.told), 0);
        close_fixture(&f);
    }
}

static void a_failing_mirror_is_dropped_with_one_notice(void **state)
{
    (void)state;
    static const sluice_io ENGINES[] = {SLUICE_IO_AUTO, SLUICE_IO_THREADS};
    for (size_t e = 0; e < 2; e++) {
        struct fixture f;
        sluice_error err;
        char path[192];
        copy_layer(0, false);
        copy_layer(1, false);
        open_fixture(&f, SLUICE_VERIFY_FULL, ENGINES[e]);
        assert_ok(gturbo_prove_ahead(f.store, 1, &err), err);
        await_copies(&f, 0, 2);
        await_copies(&f, 1, 2);
        layer_path(path, sizeof path, mirror, 0);
        assert_int_equal(truncate(path, 0), 0); /* every read of it ends at once */
        for (uint32_t first = 0; first < 64; first += BATCH) {
            assert_int_equal(read_batch(&f, 0, first), 0);
            assert_int_equal(read_batch(&f, 1, first), 0);
        }
        assert_int_equal(notices(&f.told), 1);
        assert_non_null(strstr(f.told.last, mirror));
        assert_non_null(strstr(f.told.last, "of layer 0: its file ends early"));
        assert_int_equal(copies_of(&f, 1), 1); /* the whole mirror is out */
        close_fixture(&f);
    }
}

static void one_failed_read_never_reaches_the_session(void **state)
{
    (void)state;
    struct fixture f;
    sluice_error err;
    copy_layer(0, false);
    open_fixture(&f, SLUICE_VERIFY_FULL, SLUICE_IO_AUTO);
    assert_ok(gturbo_prove_ahead(f.store, 1, &err), err);
    await_copies(&f, 0, 2);
    for (uint32_t l = 0; l < f.store->n_layers; l++)
        assert_in_range(copies_of(&f, l), 1, 2); /* everything is hashed: no other read can be hit */
    /* The n-th read fails, wherever it goes: on the mirror it is repeated, on the install it is an error. */
    uint32_t errors = 0;
    for (uint32_t n = 1; n <= 64 && notices(&f.told) == 0; n++) {
        struct lease lease = {0};
        struct lease_stats stats = {0};
        uint16_t ids[BATCH];
        for (uint32_t i = 0; i < BATCH; i++)
            ids[i] = (uint16_t)((n * BATCH + i) % 64);
        fault_arm(FAULT_READ, 1 + n % BATCH);
        assert_ok(experts_request(f.cache, 0, ids, BATCH, EXPERTS_WAIT, &lease, &stats, NULL, &err), err);
        uint32_t failed = 0;
        for (uint32_t i = 0; i < BATCH; i++)
            failed += experts_wait(f.cache, &lease, i, &stats, NULL, &err) != SLUICE_OK;
        fault_arm(FAULT_READ, 0);
        experts_release(f.cache, &lease);
        assert_int_equal(failed + (uint32_t)notices(&f.told), 1);
        errors += failed;
    }
    assert_int_equal(notices(&f.told), 1);
    assert_in_range(errors, 0, 63);
    assert_int_equal(read_batch(&f, 0, 0), 0);
    close_fixture(&f);
}

static void a_damaged_mirror_is_never_used(void **state)
{
    (void)state;
    struct fixture f;
    sluice_error err;
    copy_layer(0, false);
    copy_layer(1, false);
    scribble(1, 12345, 1);
    open_fixture(&f, SLUICE_VERIFY_FULL, SLUICE_IO_AUTO);
    assert_ok(gturbo_prove_ahead(f.store, 2, &err), err);
    for (int i = 0; i < 1000 && notices(&f.told) == 0; i++)
        (void)usleep(10000);
    assert_int_equal(notices(&f.told), 1);
    assert_non_null(strstr(f.told.last, "layer_01.bin is damaged"));
    assert_int_equal(copies_of(&f, 1), 1);
    for (uint32_t first = 0; first < 64; first += BATCH)
        assert_int_equal(read_batch(&f, 1, first), 0);
    close_fixture(&f);
}

static void the_receipt_vouches_for_a_copy_that_kept_its_times(void **state)
{
    (void)state;
    struct fixture f;
    sluice_error err;
    copy_layer(0, true);
    copy_layer(1, false);
    open_fixture(&f, SLUICE_VERIFY_RECEIPT, SLUICE_IO_AUTO);
    assert_int_equal(copies_of(&f, 0), 2); /* at once */
    assert_int_equal(copies_of(&f, 1), 1);
    assert_ok(gturbo_prove_ahead(f.store, 1, &err), err);
    await_copies(&f, 1, 2);
    for (uint32_t first = 0; first < 64; first += BATCH)
        assert_int_equal(read_batch(&f, 0, first), 0);
    close_fixture(&f);
}

static void what_is_no_mirror_is_refused(void **state)
{
    (void)state;
    struct gturbo *store;
    sluice_error err;
    char path[192];
    assert_ok(gturbo_open(demo.install, SLUICE_VERIFY_RECEIPT, NULL, &store, &err), err);
    assert_fails(gturbo_add_mirror(store, mirror, &err), SLUICE_E_ARGUMENT, err, "holds no packed_experts");
    assert_fails(gturbo_add_mirror(store, "/nonexistent", &err), SLUICE_E_ARGUMENT, err, "/nonexistent");
    copy_layer(2, true);
    layer_path(path, sizeof path, mirror, 2);
    assert_int_equal(truncate(path, 4096), 0);
    assert_fails(gturbo_add_mirror(store, mirror, &err), SLUICE_E_CORRUPT, err, "layer_02.bin");
    copy_layer(2, true);
    for (uint32_t i = 3; i < GTURBO_COPIES_MAX - 1; i++)
        assert_ok(gturbo_add_mirror(store, mirror, &err), err);
    gturbo_close(store);
    assert_ok(gturbo_open(demo.install, SLUICE_VERIFY_RECEIPT, NULL, &store, &err), err);
    for (uint32_t i = 1; i < GTURBO_COPIES_MAX; i++)
        assert_ok(gturbo_add_mirror(store, mirror, &err), err);
    assert_fails(gturbo_add_mirror(store, mirror, &err), SLUICE_E_ARGUMENT, err, "at most 7");
    gturbo_close(store);
}

/* The install's own files, proven ahead: a damaged layer is told at its use and not before. */
static void damage_found_ahead_is_told_at_use(void **state)
{
    (void)state;
    struct fixture f;
    sluice_error err;
    char path[192];
    copy_layer(5, true); /* the good bytes, to put back */
    copy_layer(0, false);
    layer_path(path, sizeof path, demo.install, 5);
    int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, 777), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 777), 1);
    open_fixture(&f, SLUICE_VERIFY_FULL, SLUICE_IO_AUTO);
    assert_ok(gturbo_prove_ahead(f.store, 1, &err), err);
    await_copies(&f, 0, 2);
    struct layer_sources sources;
    for (uint32_t l = 0; l < f.store->n_layers; l++)
        if (l == 5)
            assert_fails(gturbo_layer_sources(f.store, l, &sources, &err), SLUICE_E_CORRUPT, err,
                         "layer_05.bin is damaged");
        else
            assert_ok(gturbo_layer_sources(f.store, l, &sources, &err), err);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 777), 1);
    (void)close(fd);
    /* A failure is told once; whoever comes next tries anew, and finds it repaired. (The thread that runs
     * ahead may have met the damage after the loop did: then there is one more to tell.) */
    if (gturbo_layer_sources(f.store, 5, &sources, &err) != SLUICE_OK)
        assert_in_range(copies_of(&f, 5), 1, 2);
    close_fixture(&f);
    /* The receipt is bound to times: renew it for the other tests. */
    assert_ok(sluice_verify(demo.install, NULL, NULL, &err), err);
}

#define WITH_MIRROR(test) cmocka_unit_test_setup_teardown(test, make_mirror, remove_mirror)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MIRROR(reads_are_spread_over_proven_copies),
        WITH_MIRROR(a_failing_mirror_is_dropped_with_one_notice),
        WITH_MIRROR(one_failed_read_never_reaches_the_session),
        WITH_MIRROR(a_damaged_mirror_is_never_used),
        WITH_MIRROR(the_receipt_vouches_for_a_copy_that_kept_its_times),
        WITH_MIRROR(what_is_no_mirror_is_refused),
        WITH_MIRROR(damage_found_ahead_is_told_at_use),
    };
    return cmocka_run_group_tests(tests, demo_setup, demo_teardown);
}
