/* The payload of an install whose source makes its bytes up (source.h: any_order): whole files, several at
 * once, each written front to back past the page cache and hashed on the way, so that every byte is touched
 * once. An interrupted run keeps nothing: making the bytes again costs no more than checking them. */
#include "base/mem.h"
#include "base/thread.h"
#include "io/file.h"
#include "store/install_work.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 4 << 20, DIRECT_ALIGN = 4096, WORKERS_MAX = 8, TELL_NS = 100000000 };

struct stream {
    struct install *w;
    pthread_mutex_t lock; /* of all below but the atomics */
    pthread_cond_t ended;
    uint32_t running;
    size_t next; /* file */
    sluice_status status;
    sluice_error error; /* of the first worker that failed */
    atomic_bool stop;
    _Atomic uint64_t done_bytes;
};

/* One file on its way to disk. */
struct target {
    struct stream *stream;
    const struct plan_file *file;
    int fd;
    bool direct;
    unsigned char *buffer; /* BUFFER_BYTES */
    size_t used;
    uint64_t at; /* of the buffer in the file */
    struct sha256 hash;
};

static sluice_status flush(struct target *t, sluice_error *err)
{
    if (t->used == 0)
        return SLUICE_OK;
    if (atomic_load(&t->stream->stop))
        return err_set(err, SLUICE_E_CANCELLED, "cancelled");
    if (t->direct && t->used % DIRECT_ALIGN != 0) { /* the tail of the file */
        if (fcntl(t->fd, F_SETFL, 0) != 0)
            return err_errno(err, errno, "cannot leave direct writing of %s", t->file->path);
        t->direct = false;
    }
    sha256_update(&t->hash, t->buffer, t->used);
    TRY(file_write_at(t->fd, t->buffer, t->used, t->at, t->file->path, err));
    atomic_fetch_add(&t->stream->done_bytes, t->used);
    t->at += t->used;
    t->used = 0;
    return SLUICE_OK;
}

/* Append n bytes: of the source's shard when `shard` is not NULL, else of `bytes`, else zeros. */
static sluice_status append(struct target *t, const char *shard, uint64_t offset, const unsigned char *bytes,
                            uint64_t n, sluice_error *err)
{
    struct source *source = t->stream->w->source;
    for (uint64_t k = 0; k < n;) {
        size_t room = BUFFER_BYTES - t->used, m = n - k < room ? (size_t)(n - k) : room;
        if (shard)
            TRY(source->read(source, shard, offset + k, t->buffer + t->used, m, err));
        else if (bytes)
            memcpy(t->buffer + t->used, bytes + k, m);
        else
            memset(t->buffer + t->used, 0, m);
        t->used += m;
        k += m;
        if (t->used == BUFFER_BYTES)
            TRY(flush(t, err));
    }
    return SLUICE_OK;
}

static int by_target(const void *a, const void *b)
{
    const struct plan_copy *x = *(const struct plan_copy *const *)a, *y = *(const struct plan_copy *const *)b;
    return x->target < y->target ? -1 : x->target > y->target;
}

/* Piece by piece: a file with one record has one piece per copy, an expert file one per copy and expert. */
static sluice_status write_pieces(struct target *t, const struct plan_copy *const *copies, size_t n,
                                  uint64_t records, sluice_error *err)
{
    const struct install *w = t->stream->w;
    for (uint64_t record = 0; record < records; record++) {
        for (size_t i = 0; i < n; i++) {
            const struct plan_copy *c = copies[i];
            uint64_t target = c->target + record * c->stride;
            TRY(append(t, NULL, 0, NULL, target - (t->at + t->used), err));
            TRY(append(t, w->st->shards[c->shard].name, c->source + record * c->piece, NULL, c->piece, err));
        }
    }
    return append(t, NULL, 0, NULL, t->file->bytes - (t->at + t->used), err);
}

static sluice_status write_content(struct target *t, size_t file, sluice_error *err)
{
    const struct install *w = t->stream->w;
    size_t n = 0;
    for (size_t i = 0; i < w->plan.n_copies; i++)
        n += w->plan.copies[i].file == file;
    const struct plan_copy **copies = mem_calloc(n, sizeof(const struct plan_copy *));
    if (!copies)
        return err_memory(err, n * sizeof *copies, "the copy plan");
    n = 0;
    for (size_t i = 0; i < w->plan.n_copies; i++)
        if (w->plan.copies[i].file == file)
            copies[n++] = &w->plan.copies[i];
    qsort(copies, n, sizeof *copies, by_target);
    sluice_status status = SLUICE_OK;
    if (file == 0)
        status = append(t, NULL, 0, w->plan.index, w->plan.index_bytes, err);
    if (status == SLUICE_OK)
        status = write_pieces(t, copies, n, file == 0 ? 1 : w->plan.layout.n_experts, err);
    mem_free(copies);
    return status == SLUICE_OK ? flush(t, err) : status;
}

static sluice_status write_file(struct stream *s, size_t file, unsigned char *buffer, sluice_error *err)
{
    struct install *w = s->w;
    struct finished_file row = {.hashed = true};
    struct target t = {.stream = s, .file = &w->plan.files[file], .fd = w->fds[file], .buffer = buffer};
    memcpy(row.path, t.file->path, sizeof row.path);
    t.direct = fcntl(t.fd, F_SETFL, O_DIRECT) == 0; /* refused by some file systems */
    TRY(sha256_open(&t.hash, err));
    sluice_status status = write_content(&t, file, err);
    sha256_close(&t.hash, row.sha256);
    TRY(status);
    TRY(file_sync(t.fd, t.file->path, err));
    TRY(stamp_fd(t.fd, t.file->path, &row.stamp, err));
    w->finished[file] = row;
    return SLUICE_OK;
}

static void *work(void *arg)
{
    struct stream *s = arg;
    sluice_error error = {0};
    sluice_status status = SLUICE_OK;
    unsigned char *buffer =
        mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        status = err_memory(&error, BUFFER_BYTES, "a write buffer");
    while (status == SLUICE_OK) {
        (void)pthread_mutex_lock(&s->lock);
        size_t file = s->next < s->w->plan.n_files ? s->next++ : SIZE_MAX;
        (void)pthread_mutex_unlock(&s->lock);
        if (file == SIZE_MAX || atomic_load(&s->stop))
            break;
        status = write_file(s, file, buffer, &error);
    }
    if (buffer != MAP_FAILED)
        (void)munmap(buffer, BUFFER_BYTES);
    (void)pthread_mutex_lock(&s->lock);
    if (status != SLUICE_OK && s->status == SLUICE_OK) {
        s->status = status;
        s->error = error;
    }
    if (status != SLUICE_OK)
        atomic_store(&s->stop, true);
    s->running--;
    (void)pthread_cond_signal(&s->ended);
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* The caller's thread tells progress and looks at its cancel flag. */
static void watch_workers(struct stream *s)
{
    uint64_t told = 0;
    sluice_error error;
    (void)pthread_mutex_lock(&s->lock);
    while (s->running > 0) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TELL_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&s->ended, &s->lock, &until);
        uint64_t done = atomic_load(&s->done_bytes);
        sluice_status status = meter_step(&s->w->meter, done - told, &error);
        told = done;
        if (status != SLUICE_OK && !atomic_exchange(&s->stop, true) && s->status == SLUICE_OK) {
            s->status = status;
            s->error = error;
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
}

sluice_status install_stream(struct install *w, sluice_error *err)
{
    struct stream s = {.w = w, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    pthread_t threads[WORKERS_MAX] = {0};
    /* More than cores: while one waits for the drive another makes bytes. */
    uint32_t wanted = 2 * thread_available();
    wanted = wanted < WORKERS_MAX ? wanted : WORKERS_MAX;
    wanted = wanted < w->plan.n_files ? wanted : (uint32_t)w->plan.n_files;
    meter_start(&w->meter, &w->options->watch, "write", w->plan.data_bytes);
    (void)pthread_mutex_lock(&s.lock);
    int rc = 0;
    while (s.running < wanted && rc == 0)
        if ((rc = pthread_create(&threads[s.running], NULL, work, &s)) == 0)
            s.running++;
    uint32_t n = s.running;
    (void)pthread_mutex_unlock(&s.lock);
    if (n == 0)
        return err_errno(err, rc, "cannot start a thread that writes");
    watch_workers(&s);
    for (uint32_t i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL);
    if (s.status != SLUICE_OK) {
        if (err)
            *err = s.error;
        return s.status;
    }
    w->n_finished = w->plan.n_files;
    meter_finish(&w->meter);
    return SLUICE_OK;
}
