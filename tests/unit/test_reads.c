/* io/reads: batches complete in any order, errors and early ends stay in their request, cancel and close; the
 * same suite for both engines. */
#include "support/unit.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "io/reads.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

enum { BLOCK_BYTES = 4096, BLOCKS = 64, TAIL_BYTES = 100 };

static char dir[TEMP_PATH_BYTES], path[TEMP_PATH_BYTES];

static unsigned char byte_at(uint64_t offset)
{
    return (unsigned char)(offset * 2654435761u >> 13);
}

static int make_file(void **state)
{
    (void)state;
    temp_dir(dir);
    FILE *file = fopen(temp_name(path, dir, "blocks.bin"), "wb");
    if (!file)
        return -1;
    for (uint64_t i = 0; i < (uint64_t)BLOCKS * BLOCK_BYTES + TAIL_BYTES; i++)
        (void)fputc(byte_at(i), file);
    return fclose(file);
}

static int remove_file(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

static int open_file(int flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    assert_true(fd >= 0);
    return fd;
}

static sluice_io engine; /* of the running group */

static struct reads *opened_with(const struct reads_options *options)
{
    struct reads *pool;
    sluice_error err;
    assert_ok(reads_open(&pool, options, &err), err);
    assert_string_equal(reads_engine(pool), engine == SLUICE_IO_URING ? "uring" : "threads");
    return pool;
}

static struct reads *opened(uint32_t depth)
{
    return opened_with(&(struct reads_options){.engine = engine, .depth = depth});
}

static void assert_content(const struct read_request *r, size_t bytes)
{
    assert_int_equal(r->errnum, 0);
    assert_int_equal(r->got, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char *)r->buffer)[i] != byte_at(r->offset + i))
            fail_msg("byte %zu of the read at %llu is wrong", i, (unsigned long long)r->offset);
}

static void batches_complete_whole(void **state)
{
    (void)state;
    static const uint32_t DEPTHS[] = {1, 2, 8, 0};
    static unsigned char buffers[BLOCKS][BLOCK_BYTES];
    int fd = open_file(0);
    for (size_t t = 0; t < sizeof DEPTHS / sizeof *DEPTHS; t++) {
        struct reads *pool = opened(DEPTHS[t]);
        struct read_request requests[BLOCKS], *batch[BLOCKS];
        memset(buffers, 0, sizeof buffers);
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t block = (i * 37 + 5) % BLOCKS;
            requests[i] = (struct read_request){
                .fd = fd, .buffer = buffers[i], .bytes = BLOCK_BYTES, .offset = block * BLOCK_BYTES};
            batch[i] = &requests[i];
            assert_false(reads_done(&requests[i]));
        }
        uint64_t before = clock_ns();
        reads_submit(pool, batch, BLOCKS / 2);
        reads_submit(pool, batch + BLOCKS / 2, BLOCKS - BLOCKS / 2);
        for (size_t i = BLOCKS; i-- > 0;) { /* waited for from the last to the first */
            assert_true(reads_wait(pool, &requests[i], NULL));
            assert_true(reads_done(&requests[i]));
            assert_content(&requests[i], BLOCK_BYTES);
            assert_true(requests[i].done_ns >= before && requests[i].done_ns <= clock_ns());
        }
        reads_submit(pool, batch, 0);
        reads_close(pool);
    }
    (void)close(fd);
}

static void a_request_can_be_used_again(void **state)
{
    (void)state;
    static unsigned char buffer[BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(2);
    struct read_request r = {.fd = fd, .buffer = buffer, .bytes = BLOCK_BYTES}, *one = &r;
    for (unsigned long i = 0; i < scaled(2000, 200); i++) {
        r.offset = i % BLOCKS * BLOCK_BYTES;
        reads_submit(pool, &one, 1);
        assert_true(reads_wait(pool, &r, NULL));
        if (i % 100 == 0)
            assert_content(&r, BLOCK_BYTES);
    }
    reads_close(pool);
    (void)close(fd);
}

static void the_end_of_the_file_is_a_short_read(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        size_t bytes, got;
    } CASES[] = {
        {(BLOCKS - 1) * BLOCK_BYTES, 2 * BLOCK_BYTES, BLOCK_BYTES + TAIL_BYTES},
        {BLOCKS * BLOCK_BYTES, BLOCK_BYTES, TAIL_BYTES},
        {(BLOCKS + 1) * BLOCK_BYTES, BLOCK_BYTES, 0},
        {0, 0, 0},
    };
    unsigned char *buffer = NULL;
    assert_int_equal(posix_memalign((void **)&buffer, 4096, 2 * BLOCK_BYTES), 0);
    struct reads *pool = opened(2);
    /* Cached and direct: some file systems answer the second call of a direct read with EINVAL there. */
    for (int direct = 0; direct < 2; direct++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
        if (fd < 0 && direct && errno == EINVAL)
            break; /* this file system has no direct reads */
        assert_true(fd >= 0);
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            struct read_request r = {
                .fd = fd, .buffer = buffer, .bytes = CASES[i].bytes, .offset = CASES[i].offset};
            struct read_request *one = &r;
            reads_submit(pool, &one, 1);
            assert_true(reads_wait(pool, &r, NULL));
            assert_content(&r, CASES[i].got);
        }
        (void)close(fd);
    }
    reads_close(pool);
    free(buffer);
}

static void errors_stay_in_their_request(void **state)
{
    (void)state;
    static unsigned char buffers[3][BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(3);
    struct read_request requests[3], *batch[3];
    for (size_t i = 0; i < 3; i++) {
        requests[i] = (struct read_request){
            .fd = i == 1 ? -1 : fd, .buffer = buffers[i], .bytes = BLOCK_BYTES, .offset = i * BLOCK_BYTES};
        batch[i] = &requests[i];
    }
    reads_submit(pool, batch, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(reads_wait(pool, &requests[i], NULL));
    assert_content(&requests[0], BLOCK_BYTES);
    assert_content(&requests[2], BLOCK_BYTES);
    assert_int_equal(requests[1].errnum, EBADF);
    assert_int_equal(requests[1].got, 0);

    requests[1].fd = fd;
    fault_arm(FAULT_READ, 2);
    reads_submit(pool, batch, 3);
    int failed = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(reads_wait(pool, &requests[i], NULL));
        if (requests[i].errnum) {
            failed++;
            assert_int_equal(requests[i].errnum, EIO);
            assert_int_equal(requests[i].got, 0);
        } else {
            assert_content(&requests[i], BLOCK_BYTES);
        }
    }
    assert_true(fault_fired(FAULT_READ));
    assert_int_equal(failed, 1);

    fault_arm(FAULT_READ, 0);
    reads_submit(pool, batch, 3); /* an error is forgotten with the next submit */
    for (size_t i = 0; i < 3; i++) {
        assert_true(reads_wait(pool, &requests[i], NULL));
        assert_content(&requests[i], BLOCK_BYTES);
    }
    reads_close(pool);
    (void)close(fd);
}

/* ---- cancel: a request that is not submitted yet is as unfinished as one that the drive keeps ---- */

struct gate {
    struct reads *pool;
    struct read_request *request;
    atomic_bool cancel;
    bool done;
    uint64_t waited_ns;
};

static void *wait_at_gate(void *arg)
{
    struct gate *gate = arg;
    uint64_t before = clock_ns();
    gate->done = reads_wait(gate->pool, gate->request, &gate->cancel);
    gate->waited_ns = clock_ns() - before;
    return NULL;
}

static void cancel_ends_the_wait_not_the_read(void **state)
{
    (void)state;
    static unsigned char buffer[BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(1);
    struct read_request r = {.fd = fd, .buffer = buffer, .bytes = BLOCK_BYTES}, *one = &r;
    struct gate gate = {.pool = pool, .request = &r};
    pthread_t waiter;
    assert_int_equal(pthread_create(&waiter, NULL, wait_at_gate, &gate), 0);
    (void)usleep(50000);
    atomic_store(&gate.cancel, true);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_false(gate.done);
    assert_true(gate.waited_ns >= 40000000);
    assert_false(reads_done(&r));

    assert_false(reads_wait(pool, &r, &gate.cancel)); /* cancelled before it began */
    atomic_store(&gate.cancel, false);
    assert_int_equal(pthread_create(&waiter, NULL, wait_at_gate, &gate), 0);
    (void)usleep(20000);
    reads_submit(pool, &one, 1);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_true(gate.done);
    assert_content(&r, BLOCK_BYTES);
    atomic_store(&gate.cancel, true);
    assert_true(reads_wait(pool, &r, &gate.cancel)); /* done beats cancelled */
    reads_close(pool);
    (void)close(fd);
}

/* ---- many threads on one pool ---- */

enum { CLIENTS = 4, CLIENT_BATCH = 8 };

struct client {
    struct reads *pool;
    int fd;
    unsigned seed;
    unsigned long rounds, wrong;
};

static void *read_many(void *arg)
{
    struct client *c = arg;
    unsigned char *memory = mem_alloc(CLIENT_BATCH * BLOCK_BYTES);
    for (unsigned long round = 0; memory && round < c->rounds; round++) {
        struct read_request requests[CLIENT_BATCH] = {0}, *batch[CLIENT_BATCH];
        for (size_t i = 0; i < CLIENT_BATCH; i++) {
            c->seed = c->seed * 1664525u + 1013904223u;
            requests[i].fd = c->fd;
            requests[i].buffer = memory + i * BLOCK_BYTES;
            requests[i].bytes = 1 + c->seed % BLOCK_BYTES;
            requests[i].offset = (c->seed >> 8) % ((BLOCKS - 1) * BLOCK_BYTES);
            batch[i] = &requests[i];
        }
        reads_submit(c->pool, batch, CLIENT_BATCH);
        for (size_t i = 0; i < CLIENT_BATCH; i++) {
            if (!reads_wait(c->pool, batch[i], NULL) || batch[i]->errnum || batch[i]->got != batch[i]->bytes)
                c->wrong++;
            const unsigned char *p = batch[i]->buffer;
            for (size_t k = 0; k < batch[i]->bytes; k++)
                c->wrong += p[k] != byte_at(batch[i]->offset + k);
        }
    }
    c->wrong += memory == NULL;
    mem_free(memory);
    return NULL;
}

static void many_threads_share_a_pool(void **state)
{
    (void)state;
    int fd = open_file(0);
    struct reads *pool = opened(4);
    struct client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.pool = pool, .fd = fd, .seed = i + 1, .rounds = scaled(300, 40)};
        assert_int_equal(pthread_create(&threads[i], NULL, read_many, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(clients[i].wrong, 0);
    }
    reads_close(pool);
    (void)close(fd);
}

/* ---- opening and closing ---- */

static void close_drains_what_was_submitted(void **state)
{
    (void)state;
    static unsigned char buffers[BLOCKS][BLOCK_BYTES];
    int fd = open_file(0);
    for (unsigned long round = 0; round < scaled(50, 10); round++) {
        struct reads *pool = opened(1 + (uint32_t)(round % 3));
        struct read_request requests[BLOCKS], *batch[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++) {
            requests[i] = (struct read_request){
                .fd = fd, .buffer = buffers[i], .bytes = BLOCK_BYTES, .offset = i * BLOCK_BYTES};
            batch[i] = &requests[i];
        }
        reads_submit(pool, batch, BLOCKS);
        reads_close(pool); /* at once: nothing was waited for */
        for (size_t i = 0; i < BLOCKS; i++) {
            assert_true(reads_done(&requests[i]));
            assert_int_equal(requests[i].got, BLOCK_BYTES);
        }
        assert_content(&requests[BLOCKS - 1], BLOCK_BYTES);
    }
    reads_close(NULL);
    (void)close(fd);
}

static void too_many_at_once_are_refused(void **state)
{
    (void)state;
    struct reads *pool = (struct reads *)&pool;
    sluice_error err;
    assert_fails(reads_open(&pool, &(struct reads_options){.engine = engine, .depth = 257}, &err),
                 SLUICE_E_ARGUMENT, err, "257 reads in flight were asked for, the most is 256");
    assert_null(pool);
}

static void failures_while_opening_leave_nothing(void **state)
{
    (void)state;
    const struct reads_options options = {.engine = engine, .depth = 3, .buffers = 16};
    int failures = 0;
    for (bool fired = true; fired;) {
        struct reads *pool = NULL;
        fault_arm(FAULT_ALLOC, (uint64_t)failures + 1);
        sluice_status status = reads_open(&pool, &options, NULL);
        fired = fault_fired(FAULT_ALLOC);
        fault_arm(FAULT_ALLOC, 0);
        assert_int_equal(status, fired ? SLUICE_E_MEMORY : SLUICE_OK);
        assert_int_equal(pool == NULL, fired);
        failures += fired;
        reads_close(pool);
    }
    assert_int_equal(failures, engine == SLUICE_IO_THREADS ? 2 + 3 : 2);
}

/* ---- a drive that stutters ---- */

/* One read while something disturbs its n-th attempt. */
static bool disturbed_read(struct reads *pool, int fd, unsigned char *buffer, enum fault_kind kind,
                           uint64_t n)
{
    struct read_request r = {.fd = fd, .buffer = buffer, .bytes = BLOCKS * BLOCK_BYTES}, *one = &r;
    memset(buffer, 0, r.bytes);
    fault_arm(kind, n);
    reads_submit(pool, &one, 1);
    assert_true(reads_wait(pool, &r, NULL));
    bool fired = fault_fired(kind);
    fault_arm(kind, 0);
    assert_content(&r, r.bytes);
    assert_int_equal(reads_busy(pool), 0);
    return fired;
}

static void short_reads_and_refusals_are_continued(void **state)
{
    (void)state;
    unsigned char *buffer = NULL;
    assert_int_equal(posix_memalign((void **)&buffer, 4096, BLOCKS * BLOCK_BYTES), 0);
    struct reads *pool = opened(2);
    for (int direct = 0; direct < 2; direct++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
        if (fd < 0 && direct && errno == EINVAL)
            break;
        assert_true(disturbed_read(pool, fd, buffer, FAULT_SHORT, 1));
        assert_true(disturbed_read(pool, fd, buffer, FAULT_AGAIN, 1));
        (void)close(fd);
    }
    reads_close(pool);
    free(buffer);
}

/* A thread keeps arming both while a stream of reads goes on: whatever is hit, the bytes are right. */
static atomic_bool stop_disturbing;

static void *disturb(void *arg)
{
    (void)arg;
    for (unsigned i = 0; !atomic_load(&stop_disturbing); i++) {
        fault_arm(i % 2 ? FAULT_SHORT : FAULT_AGAIN, 1 + i % 5);
        (void)usleep(50);
    }
    fault_arm(FAULT_SHORT, 0);
    fault_arm(FAULT_AGAIN, 0);
    return NULL;
}

static void a_stuttering_drive_changes_no_byte(void **state)
{
    (void)state;
    enum { SPAN = 6 * BLOCK_BYTES, BATCH = 8 };
    static unsigned char buffers[BATCH][SPAN];
    int fd = open_file(0);
    struct reads *pool = opened(4);
    pthread_t thread;
    atomic_store(&stop_disturbing, false);
    assert_int_equal(pthread_create(&thread, NULL, disturb, NULL), 0);
    for (unsigned long round = 0; round < scaled(400, 40); round++) {
        struct read_request requests[BATCH] = {0}, *batch[BATCH];
        for (size_t i = 0; i < BATCH; i++) {
            requests[i] = (struct read_request){.fd = fd,
                                                .buffer = buffers[i],
                                                .bytes = SPAN,
                                                .offset = (round * 7 + i * 11) % (BLOCKS - 6) * BLOCK_BYTES};
            batch[i] = &requests[i];
        }
        memset(buffers, 0, sizeof buffers);
        reads_submit(pool, batch, BATCH);
        for (size_t i = 0; i < BATCH; i++) {
            assert_true(reads_wait(pool, batch[i], NULL));
            assert_content(batch[i], SPAN);
        }
    }
    atomic_store(&stop_disturbing, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    reads_close(pool);
    (void)close(fd);
}

static void a_drive_that_never_answers_is_an_error(void **state)
{
    (void)state;
    static unsigned char buffer[BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(1);
    struct read_request r = {.fd = fd, .buffer = buffer, .bytes = BLOCK_BYTES}, *one = &r;
    /* A directory cannot be read: the error comes back at once, and is not taken for a stall. */
    int directory = open(dir, O_RDONLY | O_DIRECTORY);
    r.fd = directory;
    reads_submit(pool, &one, 1);
    assert_true(reads_wait(pool, &r, NULL));
    assert_int_equal(r.errnum, EISDIR);
    (void)close(directory);
    reads_close(pool);
    (void)close(fd);
}

/* ---- what is told to the engine beforehand ---- */

static void registered_files_and_buffers_give_the_same_bytes(void **state)
{
    (void)state;
    enum { ROUNDS = 3 };
    unsigned char *memory = NULL;
    assert_int_equal(posix_memalign((void **)&memory, 4096, BLOCKS * BLOCK_BYTES), 0);
    /* Fewer buffers than there are requests: the rest go the plain way. */
    struct reads *pool = opened_with(&(struct reads_options){.engine = engine, .buffers = BLOCKS / 2});
    int fd = open_file(0);
    uint32_t file = reads_add_file(pool, fd);
    if (engine == SLUICE_IO_THREADS)
        assert_int_equal(file, 0);
    static struct read_request requests[BLOCKS];
    for (size_t round = 0; round < ROUNDS; round++) {
        struct read_request *batch[BLOCKS];
        memset(memory, 0, (size_t)BLOCKS * BLOCK_BYTES);
        for (size_t i = 0; i < BLOCKS; i++) {
            requests[i] = (struct read_request){.fd = fd,
                                                .file = i % 3 ? file : 0,
                                                .buffer_id = (uint32_t)i + 1,
                                                .buffer = memory + i * BLOCK_BYTES,
                                                .bytes = BLOCK_BYTES,
                                                .offset = (i * 29 + round) % BLOCKS * BLOCK_BYTES};
            batch[i] = &requests[i];
        }
        reads_submit(pool, batch, BLOCKS);
        for (size_t i = 0; i < BLOCKS; i++) {
            assert_true(reads_wait(pool, batch[i], NULL));
            assert_content(batch[i], BLOCK_BYTES);
        }
    }
    reads_close(pool);
    (void)close(fd);
    free(memory);
}

static void completions_show_without_waiting(void **state)
{
    (void)state;
    static unsigned char buffer[BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(0);
    struct read_request r = {.fd = fd, .buffer = buffer, .bytes = BLOCK_BYTES}, *one = &r;
    reads_submit(pool, &one, 1);
    for (int i = 0; i < 100000 && !reads_ready(pool, &r); i++)
        (void)usleep(100);
    assert_true(reads_done(&r));
    assert_content(&r, BLOCK_BYTES);
    reads_close(pool);
    (void)close(fd);
}

/* The thread that submitted ends before its reads do; another waits for them. */
struct errand {
    struct reads *pool;
    struct read_request **batch;
};

static void *submit_and_leave(void *arg)
{
    struct errand *errand = arg;
    reads_submit(errand->pool, errand->batch, BLOCKS);
    return NULL;
}

static void reads_outlive_the_thread_that_asked(void **state)
{
    (void)state;
    static unsigned char buffers[BLOCKS][BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(4);
    for (unsigned long round = 0; round < scaled(50, 10); round++) {
        struct read_request requests[BLOCKS] = {0}, *batch[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++) {
            requests[i] = (struct read_request){
                .fd = fd, .buffer = buffers[i], .bytes = BLOCK_BYTES, .offset = i * BLOCK_BYTES};
            batch[i] = &requests[i];
        }
        struct errand errand = {pool, batch};
        pthread_t thread;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        assert_int_equal(pthread_create(&thread, NULL, submit_and_leave, &errand), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (size_t i = 0; i < BLOCKS; i++) {
            assert_true(reads_wait(pool, batch[i], NULL));
            assert_content(batch[i], BLOCK_BYTES);
        }
    }
    reads_close(pool);
    (void)close(fd);
}

/* Nobody waits and nobody looks: only as many reads as the depth allows may lack a look when the drive rests.
 */
static void a_queue_moves_while_everybody_computes(void **state)
{
    (void)state;
    enum { DEPTH = 2 };
    static unsigned char buffers[BLOCKS][BLOCK_BYTES];
    int fd = open_file(0);
    struct reads *pool = opened(DEPTH);
    struct read_request requests[BLOCKS] = {0}, *batch[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        requests[i] = (struct read_request){
            .fd = fd, .buffer = buffers[i], .bytes = BLOCK_BYTES, .offset = i * BLOCK_BYTES};
        batch[i] = &requests[i];
    }
    reads_submit(pool, batch, BLOCKS);
    size_t done = 0;
    for (int i = 0; i < 100000 && done + DEPTH < BLOCKS; i++) {
        (void)usleep(100);
        done = 0;
        for (size_t k = 0; k < BLOCKS; k++)
            done += reads_done(&requests[k]);
    }
    assert_true(done + DEPTH >= BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++) {
        assert_true(reads_wait(pool, batch[i], NULL));
        assert_content(batch[i], BLOCK_BYTES);
    }
    reads_close(pool);
    (void)close(fd);
}

/* ---- which engine ---- */

static void auto_falls_back_where_the_ring_is_refused(void **state)
{
    (void)state;
    sluice_error err;
    struct reads *pool;
    fault_arm(FAULT_RING, 1);
    assert_fails(reads_open(&pool, &(struct reads_options){.engine = SLUICE_IO_URING}, &err),
                 SLUICE_E_UNSUPPORTED, err, "the kernel refuses an io_uring (Operation not permitted)");
    assert_null(pool);
    fault_arm(FAULT_RING, 1);
    assert_ok(reads_open(&pool, &(struct reads_options){.engine = SLUICE_IO_AUTO}, &err), err);
    assert_true(fault_fired(FAULT_RING));
    assert_string_equal(reads_engine(pool), "threads");
    reads_close(pool);
}

static void the_ring_is_not_to_be_had_here(void **state)
{
    (void)state;
    skip();
}

static int choose_threads(void **state)
{
    engine = SLUICE_IO_THREADS;
    return make_file(state);
}

static int choose_uring(void **state)
{
    engine = SLUICE_IO_URING;
    return make_file(state);
}

#define SUITE                                                                                                \
    cmocka_unit_test(batches_complete_whole), cmocka_unit_test(a_request_can_be_used_again),                 \
        cmocka_unit_test(the_end_of_the_file_is_a_short_read),                                               \
        cmocka_unit_test(errors_stay_in_their_request), cmocka_unit_test(cancel_ends_the_wait_not_the_read), \
        cmocka_unit_test(many_threads_share_a_pool), cmocka_unit_test(close_drains_what_was_submitted),      \
        cmocka_unit_test(too_many_at_once_are_refused),                                                      \
        cmocka_unit_test(failures_while_opening_leave_nothing),                                              \
        cmocka_unit_test(short_reads_and_refusals_are_continued),                                            \
        cmocka_unit_test(a_stuttering_drive_changes_no_byte),                                                \
        cmocka_unit_test(a_drive_that_never_answers_is_an_error),                                            \
        cmocka_unit_test(registered_files_and_buffers_give_the_same_bytes),                                  \
        cmocka_unit_test(completions_show_without_waiting),                                                  \
        cmocka_unit_test(reads_outlive_the_thread_that_asked),                                               \
        cmocka_unit_test(a_queue_moves_while_everybody_computes)

int main(void)
{
    const struct CMUnitTest threads[] = {SUITE};
    const struct CMUnitTest uring[] = {SUITE};
    const struct CMUnitTest choice[] = {cmocka_unit_test(auto_falls_back_where_the_ring_is_refused)};
    int failed = cmocka_run_group_tests_name("threads", threads, choose_threads, remove_file) +
                 cmocka_run_group_tests_name("choice", choice, NULL, NULL);
    struct reads *pool;
    sluice_error err;
    const bool unwanted = getenv("SLUICE_TEST_NO_RING") != NULL; /* the Makefile says where and why */
    if (unwanted ||
        reads_open(&pool, &(struct reads_options){.engine = SLUICE_IO_URING}, &err) != SLUICE_OK) {
        (void)printf("%s\n", unwanted ? "left out by SLUICE_TEST_NO_RING" : err.detail);
        const struct CMUnitTest refused[] = {cmocka_unit_test(the_ring_is_not_to_be_had_here)};
        return failed + cmocka_run_group_tests_name("uring", refused, NULL, NULL);
    }
    reads_close(pool);
    return failed + cmocka_run_group_tests_name("uring", uring, choose_uring, remove_file);
}
