#include "base/fault.h"

#ifdef SLUICE_FAULTS
#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic uint64_t countdown[FAULT_KINDS];
static atomic_bool fired[FAULT_KINDS];

void fault_arm(enum fault_kind kind, uint64_t n)
{
    atomic_store(&fired[kind], false);
    atomic_store(&countdown[kind], n);
}

bool fault_fired(enum fault_kind kind)
{
    return atomic_load(&fired[kind]);
}

bool fault_hit(enum fault_kind kind)
{
    uint64_t n = atomic_load(&countdown[kind]);
    while (n > 0) {
        if (atomic_compare_exchange_weak(&countdown[kind], &n, n - 1)) {
            if (n > 1)
                return false;
            atomic_store(&fired[kind], true);
            return true;
        }
    }
    return false;
}

static _Atomic uint64_t throttle_rate, throttle_free_ns;

void fault_throttle(uint64_t bytes_per_s)
{
    atomic_store(&throttle_rate, bytes_per_s);
}

uint64_t fault_throttle_ns(uint64_t bytes)
{
    uint64_t rate = atomic_load(&throttle_rate), now = clock_ns();
    if (rate == 0)
        return 0;
    /* The drive serves one read after the other: each takes its turn behind those before it. */
    uint64_t turn = atomic_load(&throttle_free_ns), end;
    do
        end = (turn > now ? turn : now) + (uint64_t)((double)bytes * 1e9 / (double)rate);
    while (!atomic_compare_exchange_weak(&throttle_free_ns, &turn, end));
    return end - now;
}
/* ---- power loss ---- */

struct unsynced {
    struct unsynced *next; /* the one before */
    int fd;                /* our own */
    dev_t dev;
    ino_t ino;
    uint64_t offset, ended; /* sequence number of its end; 0: not ended */
    size_t n;
    unsigned char bytes[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unsynced *last;
static uint64_t sequence;
static atomic_bool remembering;

void fault_remember_writes(void)
{
    atomic_store(&remembering, true);
}

void *fault_before_write(int fd, uint64_t offset, size_t n)
{
    struct stat st;
    if (!atomic_load(&remembering) || fstat(fd, &st) != 0)
        return NULL;
    struct unsynced *w = calloc(1, sizeof *w + n);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_RDWR | O_CLOEXEC); /* the file's own descriptor may be for writing only */
    if (!w || own < 0)
        abort();
    w->fd = own;
    w->dev = st.st_dev;
    w->ino = st.st_ino;
    w->offset = offset;
    w->n = n;
    if (pread(own, w->bytes, n, (off_t)offset) < 0) /* past the end there are zeros */
        abort();
    (void)pthread_mutex_lock(&lock);
    w->next = last;
    last = w;
    (void)pthread_mutex_unlock(&lock);
    return w;
}

void fault_after_write(void *write)
{
    struct unsynced *w = write;
    if (!w)
        return;
    (void)pthread_mutex_lock(&lock);
    w->ended = ++sequence;
    (void)pthread_mutex_unlock(&lock);
}

uint64_t fault_before_sync(void)
{
    (void)pthread_mutex_lock(&lock);
    uint64_t now = sequence;
    (void)pthread_mutex_unlock(&lock);
    return now;
}

void fault_after_sync(int fd, uint64_t before, bool succeeded)
{
    struct stat st;
    if (!succeeded || !atomic_load(&remembering) || fstat(fd, &st) != 0)
        return;
    (void)pthread_mutex_lock(&lock);
    for (struct unsynced **at = &last; *at;) {
        struct unsynced *w = *at;
        if (w->dev == st.st_dev && w->ino == st.st_ino && w->ended && w->ended <= before) {
            *at = w->next;
            (void)close(w->fd);
            free(w);
        } else {
            at = &w->next;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

unsigned fault_lose_writes(void)
{
    unsigned lost = 0;
    atomic_store(&remembering, false);
    while (last) {
        struct unsynced *w = last;
        last = w->next;
        if (pwrite(w->fd, w->bytes, w->n, (off_t)w->offset) != (ssize_t)w->n)
            abort();
        (void)close(w->fd);
        free(w);
        lost++;
    }
    return lost;
}
#else
/* ISO C wants at least one declaration in a translation unit. */
typedef int fault_disabled;
#endif
