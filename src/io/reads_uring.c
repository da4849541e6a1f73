/* Reads through one io_uring that all sessions share.
 *
 * Nobody is paid to wait: whoever waits for a read takes completions over for everybody. The first waiter
 * leads: it parks in the kernel without the lock, and hands out what completes; later waiters park on a
 * condition until the leader wakes them, and one of them leads when it leaves. Only the leader consumes while
 * there is one (a peek by another thread could take the completion that the leader sleeps for, and the kernel
 * would put it back to sleep). `lock` covers the submission side and the consuming.
 *
 * The depth is what the drive does best with, often less than what is asked for at once. While everybody
 * computes, a thread of its own leads, only as long as reads queue for room in the ring: without it the drive
 * fell silent after the first `depth` of a batch. */
#include "io/reads_engine.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

enum {
    DEPTH_DEFAULT = 64,
    FILES_MAX = 4096,
    BUFFERS_MAX = 16384,     /* the kernel's limit */
    RETRY_SLICE_NS = 1000000 /* a wait's length while the kernel refuses to take submissions */
};

struct uring {
    struct reads base;
    struct io_uring ring;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t feeder;
    pthread_cond_t backlog; /* for the feeder: reads queue and nobody waits, or closing */
    bool fed, closing;
    struct read_request *head, **tail;            /* waiting for room in the ring, oldest first */
    struct read_request *offered, **offered_tail; /* in the ring's queue, not yet taken by the kernel */
    uint32_t in_ring;                             /* prepared, and not yet completed */
    uint32_t waiters;
    bool leading;
    int broken; /* errno of a submission that can never succeed: every read fails with it from then on */
    uint32_t files, files_max;
    uint32_t buffers_max;
    void **buffers;    /* by buffer_id - 1: what is registered, NULL: nothing yet */
    bool buffers_full; /* the kernel registers no more of them */
};

/* ---- submission; the lock is held ---- */

/* Registering pins the buffer's pages once, so that no read has to. It is done at a buffer's first use: doing
 * it at open would touch the whole expert cache before the first token. */
static bool registered(struct uring *u, const struct read_request *r)
{
    if (r->buffer_id == 0 || r->buffer_id > u->buffers_max)
        return false;
    void **known = &u->buffers[r->buffer_id - 1];
    if (*known || u->buffers_full)
        return *known == r->buffer;
    struct iovec buffer = {r->buffer, r->bytes};
    __u64 tag = 0;
    if (io_uring_register_buffers_update_tag(&u->ring, r->buffer_id - 1, &buffer, &tag, 1) != 1) {
        u->buffers_full = true; /* RLIMIT_MEMLOCK is used up, as a rule */
        return false;
    }
    *known = r->buffer;
    return true;
}

static void prepare(struct uring *u, struct io_uring_sqe *sqe, struct read_request *r)
{
    /* A single read of the kernel's is at most 2 GiB less a page; the rest follows as after a short read. */
    static const size_t ONCE_MAX = (size_t)1 << 30;
    size_t left = r->bytes - r->got;
    unsigned n = (unsigned)(left < ONCE_MAX ? left : ONCE_MAX);
    char *to = (char *)r->buffer + r->got;
    int fd = r->file ? (int)r->file - 1 : r->fd;
    if (registered(u, r))
        io_uring_prep_read_fixed(sqe, fd, to, n, r->offset + r->got, (int)r->buffer_id - 1);
    else
        io_uring_prep_read(sqe, fd, to, n, r->offset + r->got);
    if (r->file)
        sqe->flags |= IOSQE_FIXED_FILE;
    if (r->stalls)
        sqe->flags |= IOSQE_ASYNC; /* the kernel's own thread may block where the ring would say EAGAIN */
    io_uring_sqe_set_data(sqe, r);
}

static void append(struct read_request ***tail, struct read_request *r)
{
    r->next = NULL;
    **tail = r;
    *tail = &r->next;
}

static struct read_request *pop(struct read_request **head, struct read_request ***tail)
{
    struct read_request *r = *head;
    *head = r->next;
    if (!*head)
        *tail = head;
    return r;
}

static void fail_all(struct uring *u)
{
    while (u->offered) {
        struct read_request *r = pop(&u->offered, &u->offered_tail);
        u->in_ring--;
        r->errnum = u->broken;
        reads_finish(&u->base, r);
    }
    while (u->head) {
        struct read_request *r = pop(&u->head, &u->tail);
        r->errnum = u->broken;
        reads_finish(&u->base, r);
    }
}

/* Move queued requests into the ring and tell the kernel. What it will not take now stays in the ring's queue
 * and is offered again by the next pump. */
static void pump(struct uring *u)
{
    while (u->head && u->in_ring < u->base.depth && !u->broken) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        if (!sqe)
            break;
        struct read_request *r = pop(&u->head, &u->tail);
        prepare(u, sqe, r);
        append(&u->offered_tail, r);
        u->in_ring++;
    }
    while (u->offered && !u->broken) {
        int n = fault_hit(FAULT_AGAIN) ? -EAGAIN : io_uring_submit(&u->ring);
        for (int i = 0; i < n && u->offered; i++)
            (void)pop(&u->offered, &u->offered_tail);
        if (n == -EAGAIN || n == -EBUSY || n == -ENOMEM || n == 0)
            break;
        if (n < 0 && n != -EINTR)
            u->broken = -n;
    }
    if (u->broken)
        fail_all(u);
}

/* Whenever reads may queue and nobody waits. */
static void call_feeder(struct uring *u)
{
    if (u->head && u->waiters == 0 && u->fed)
        (void)pthread_cond_signal(&u->backlog);
}

static void uring_submit(struct reads *reads, struct read_request *const *requests, size_t n)
{
    struct uring *u = (struct uring *)reads;
    (void)pthread_mutex_lock(&u->lock);
    for (size_t i = 0; i < n; i++) {
        reads_prepare(requests[i]);
        append(&u->tail, requests[i]);
    }
    pump(u);
    call_feeder(u);
    (void)pthread_mutex_unlock(&u->lock);
}

/* ---- completion; the lock is held ---- */

static void take(struct uring *u, struct read_request *r, int result)
{
    u->in_ring--;
    if (reads_take(r, result)) {
        reads_finish(&u->base, r);
        return;
    }
    if (!u->head)
        u->tail = &r->next;
    r->next = u->head; /* the rest, before anything younger */
    u->head = r;
}

/* Hand out everything that has completed; true when there was something. */
static bool consume(struct uring *u)
{
    struct io_uring_cqe *cqe;
    bool any = false;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct read_request *r = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        take(u, r, result);
        any = true;
    }
    if (u->head || u->offered)
        pump(u);
    if (any && u->waiters > 1)
        (void)pthread_cond_broadcast(&u->changed);
    return any;
}

/* Park in the kernel until something completes. Called with the lock, which is dropped meanwhile. */
static void lead(struct uring *u)
{
    struct __kernel_timespec slice = {.tv_nsec = u->offered ? RETRY_SLICE_NS : READS_WAIT_SLICE_NS};
    struct io_uring_cqe *cqe;
    u->leading = true;
    (void)pthread_mutex_unlock(&u->lock);
    int rc = io_uring_wait_cqe_timeout(&u->ring, &cqe, &slice);
    if (rc != 0 && rc != -ETIME && rc != -EINTR) /* never seen; a loop that does not park would burn a core */
        (void)nanosleep(&(struct timespec){.tv_nsec = RETRY_SLICE_NS}, NULL);
    (void)pthread_mutex_lock(&u->lock);
    u->leading = false;
    (void)consume(u);
    if (u->waiters > 1)
        (void)pthread_cond_broadcast(&u->changed); /* somebody else may have to lead now */
}

static void *feed(void *arg)
{
    struct uring *u = arg;
    (void)pthread_mutex_lock(&u->lock);
    while (!u->closing) {
        if (!u->head || u->waiters) { /* a waiter leads, and it has its read sooner so */
            (void)pthread_cond_wait(&u->backlog, &u->lock);
            continue;
        }
        u->waiters++;
        lead(u);
        u->waiters--;
    }
    (void)pthread_mutex_unlock(&u->lock);
    return NULL;
}

static bool uring_wait(struct reads *reads, struct read_request *request, const atomic_bool *cancel)
{
    struct uring *u = (struct uring *)reads;
    (void)pthread_mutex_lock(&u->lock);
    u->waiters++;
    bool done;
    while (!(done = reads_done(request)) && !(cancel && atomic_load(cancel))) {
        if (!u->leading) {
            lead(u);
            continue;
        }
        uint64_t until = clock_ns() + READS_WAIT_SLICE_NS;
        struct timespec deadline = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        (void)pthread_cond_timedwait(&u->changed, &u->lock, &deadline);
    }
    u->waiters--;
    call_feeder(u);
    (void)pthread_mutex_unlock(&u->lock);
    return done;
}

static void uring_poll(struct reads *reads)
{
    struct uring *u = (struct uring *)reads;
    if (pthread_mutex_trylock(&u->lock) != 0)
        return; /* whoever holds it is at the same work */
    if (!u->leading)
        (void)consume(u);
    (void)pthread_mutex_unlock(&u->lock);
}

static uint32_t uring_add_file(struct reads *reads, int fd)
{
    struct uring *u = (struct uring *)reads;
    uint32_t handle = 0;
    (void)pthread_mutex_lock(&u->lock);
    if (u->files < u->files_max && io_uring_register_files_update(&u->ring, u->files, &fd, 1) == 1)
        handle = ++u->files;
    (void)pthread_mutex_unlock(&u->lock);
    return handle;
}

/* ---- open and close ---- */

static void uring_close(struct reads *reads)
{
    struct uring *u = (struct uring *)reads;
    (void)pthread_mutex_lock(&u->lock);
    u->closing = true;
    (void)pthread_cond_signal(&u->backlog);
    (void)pthread_mutex_unlock(&u->lock);
    if (u->fed)
        (void)pthread_join(u->feeder, NULL);
    (void)pthread_mutex_lock(&u->lock);
    while (u->head || (u->in_ring > 0 && !u->broken))
        if (!consume(u))
            lead(u);
    (void)pthread_mutex_unlock(&u->lock);
    io_uring_queue_exit(&u->ring);
    (void)pthread_cond_destroy(&u->backlog);
    (void)pthread_cond_destroy(&u->changed);
    (void)pthread_mutex_destroy(&u->lock);
    mem_free(u->buffers);
    mem_free(u);
}

static const struct reads_ops URING = {
    .name = "uring",
    .close = uring_close,
    .submit = uring_submit,
    .poll = uring_poll,
    .wait = uring_wait,
    .add_file = uring_add_file,
};

/* A sandbox may allow the setup and refuse to enter: one operation that does nothing tells. */
static int try_ring(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool knows = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                 io_uring_opcode_supported(probe, IORING_OP_READ_FIXED);
    io_uring_free_probe(probe);
    /* EXT_ARG (Linux 5.11): waiting with a timeout must not touch the submission side, which others use. */
    if (!knows || !(ring->features & IORING_FEAT_EXT_ARG) || !(ring->features & IORING_FEAT_NODROP))
        return ENOSYS;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (!sqe)
        return EAGAIN;
    io_uring_prep_nop(sqe);
    int n = io_uring_submit_and_wait(ring, 1);
    struct io_uring_cqe *cqe;
    if (n < 0)
        return -n;
    if (io_uring_peek_cqe(ring, &cqe) != 0)
        return EAGAIN;
    io_uring_cqe_seen(ring, cqe);
    return 0;
}

static sluice_status refused(int errnum, sluice_error *err)
{
    return err_set(err, SLUICE_E_UNSUPPORTED,
                   "the kernel refuses an io_uring (%s): it is older than 5.11, a sandbox forbids it, or "
                   "kernel.io_uring_disabled is set",
                   strerrordesc_np(errnum) ? strerrordesc_np(errnum) : "unknown error");
}

/* Both are an optimisation: where the kernel has no such tables, or no room, plain reads serve. */
static void register_tables(struct uring *u, uint32_t buffers)
{
    if (io_uring_register_files_sparse(&u->ring, FILES_MAX) == 0)
        u->files_max = FILES_MAX;
    if (buffers > 0 && io_uring_register_buffers_sparse(&u->ring, buffers) == 0)
        u->buffers_max = buffers;
}

sluice_status reads_uring_open(struct reads **out, const struct reads_options *options, sluice_error *err)
{
    *out = NULL;
    uint32_t buffers = options->buffers < BUFFERS_MAX ? options->buffers : BUFFERS_MAX;
    struct uring *u = mem_calloc(1, sizeof *u);
    void **table = mem_calloc(buffers, sizeof *table);
    if (!u || !table) {
        mem_free(u);
        mem_free(table);
        return err_memory(err, sizeof *u + buffers * sizeof *table, "the read ring");
    }
    u->buffers = table;
    u->base.ops = &URING;
    u->base.depth = options->depth ? options->depth : DEPTH_DEFAULT;
    u->tail = &u->head;
    u->offered_tail = &u->offered;
    int rc =
        fault_hit(FAULT_RING) ? -EPERM : io_uring_queue_init(READS_DEPTH_MAX, &u->ring, IORING_SETUP_CLAMP);
    if (rc == 0 && (rc = -try_ring(&u->ring)) != 0)
        io_uring_queue_exit(&u->ring);
    if (rc != 0) {
        mem_free(table);
        mem_free(u);
        return refused(-rc, err);
    }
    (void)io_uring_ring_dontfork(&u->ring);
    register_tables(u, buffers);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&u->lock, NULL);
    (void)pthread_cond_init(&u->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_cond_init(&u->backlog, NULL);
    /* Where the system refuses a thread, whoever waits feeds the ring. */
    u->fed = thread_start(&u->feeder, feed, u) == 0;
    *out = &u->base;
    return SLUICE_OK;
}
