/* The power loss of base/fault.h. Descriptors rather than paths name files and directories, so that a later
 * renaming does not lead elsewhere. */
#include "base/fault.h"

#ifdef SLUICE_FAULTS
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A write or a change of entries that may still be lost. */
struct unsynced {
    struct unsynced *next; /* the one before */
    bool is_entry, kept;
    int fd; /* our own: of the file, or of the directory */
    dev_t dev;
    ino_t ino;
    uint64_t ended; /* sequence number of its end; 0: not ended */
    /* a write */
    uint64_t offset;
    size_t n;
    /* an entry */
    enum fault_change change;
    char name[NAME_MAX + 1], to[NAME_MAX + 1];
    char attic[NAME_MAX + 1]; /* what had the name until then; "": nothing */
    unsigned char bytes[];    /* that the write replaced */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct unsynced *last;
static uint64_t sequence, in_attic;
static int attic_fd = -1;
static atomic_bool remembering;

static void need(bool ok)
{
    if (!ok)
        abort(); /* the simulation itself has failed: no test may go on */
}

void fault_remember(const char *attic)
{
    attic_fd = open(attic, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    need(attic_fd >= 0);
    atomic_store(&remembering, true);
}

static void push(struct unsynced *u)
{
    (void)pthread_mutex_lock(&lock);
    u->next = last;
    last = u;
    (void)pthread_mutex_unlock(&lock);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* A file or a whole tree; a missing one is fine. */
static void remove_at(int dir, const char *name)
{
    char path[NAME_MAX + 64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        need(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

static void drop(struct unsynced *u)
{
    if (u->attic[0])
        remove_at(attic_fd, u->attic);
    (void)close(u->fd);
    free(u);
}

/* ---- writes ---- */

void *fault_before_write(int fd, uint64_t offset, size_t n)
{
    struct stat st;
    if (!atomic_load(&remembering) || fstat(fd, &st) != 0)
        return NULL;
    struct unsynced *u = calloc(1, sizeof *u + n);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_RDWR | O_CLOEXEC); /* the file's own descriptor may be for writing only */
    need(u && own >= 0);
    u->fd = own;
    u->dev = st.st_dev;
    u->ino = st.st_ino;
    u->offset = offset;
    u->n = n;
    need(pread(own, u->bytes, n, (off_t)offset) >= 0); /* past the end there are zeros */
    push(u);
    return u;
}

static void end(struct unsynced *u)
{
    (void)pthread_mutex_lock(&lock);
    u->ended = ++sequence;
    (void)pthread_mutex_unlock(&lock);
}

void fault_after_write(void *write)
{
    if (write)
        end(write);
}

/* ---- entries ---- */

/* The directory that holds path, opened, and the name in it. */
static int open_parent(const char *path, char name[NAME_MAX + 1])
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    need(n < sizeof dir && strlen(slash ? slash + 1 : path) <= NAME_MAX);
    memcpy(dir, path, n);
    dir[n] = '\0';
    (void)strcpy(name, slash ? slash + 1 : path);
    return open(!slash ? "." : n == 0 ? "/" : dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void attic_name(char name[NAME_MAX + 1])
{
    (void)pthread_mutex_lock(&lock);
    uint64_t number = ++in_attic;
    (void)pthread_mutex_unlock(&lock);
    (void)snprintf(name, NAME_MAX + 1, "%llu", (unsigned long long)number);
}

void *fault_before_change(enum fault_change change, const char *path, const char *to)
{
    struct stat st;
    if (!atomic_load(&remembering) || (change == FAULT_CREATED && lstat(path, &st) == 0))
        return NULL;
    struct unsynced *u = calloc(1, sizeof *u);
    need(u != NULL);
    u->is_entry = true;
    u->change = change;
    u->fd = open_parent(path, u->name);
    if (u->fd < 0 || fstat(u->fd, &st) != 0) { /* it cannot happen then */
        drop(u);
        return NULL;
    }
    u->dev = st.st_dev;
    u->ino = st.st_ino;
    if (to) {
        int dir = open_parent(to, u->to);
        struct stat other;
        need(dir >= 0 && fstat(dir, &other) == 0 && other.st_dev == u->dev && other.st_ino == u->ino);
        (void)close(dir);
    }
    if (change == FAULT_RENAMED && faccessat(u->fd, u->to, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        attic_name(u->attic);
        need(linkat(u->fd, u->to, attic_fd, u->attic, 0) == 0);
    }
    return u;
}

void fault_after_change(void *change, bool happened)
{
    struct unsynced *u = change;
    if (u && happened) {
        push(u);
        end(u);
    } else if (u) {
        drop(u);
    }
}

bool fault_delete(const char *path)
{
    struct unsynced *u = fault_before_change(FAULT_DELETED, path, NULL);
    if (!u)
        return false;
    attic_name(u->attic);
    bool moved = renameat(u->fd, u->name, attic_fd, u->attic) == 0;
    fault_after_change(u, moved);
    return moved;
}

/* ---- syncs ---- */

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
        struct unsynced *u = *at;
        if (u->dev == st.st_dev && u->ino == st.st_ino && u->ended && u->ended <= before) {
            *at = u->next;
            drop(u);
        } else {
            at = &u->next;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- the loss ---- */

static void take_back_write(const struct unsynced *u)
{
    need(pwrite(u->fd, u->bytes, u->n, (off_t)u->offset) == (ssize_t)u->n);
}

/* Where the directory itself is gone, so are its entries. */
static void take_back_entry(const struct unsynced *u)
{
    bool ok = true;
    if (u->change == FAULT_CREATED)
        remove_at(u->fd, u->name);
    else if (u->change == FAULT_EXCHANGED)
        ok = renameat2(u->fd, u->name, u->fd, u->to, RENAME_EXCHANGE) == 0;
    else if (u->change == FAULT_RENAMED)
        ok = renameat(u->fd, u->to, u->fd, u->name) == 0;
    need(ok || errno == ENOENT);
    if (u->attic[0])
        ok = renameat(attic_fd, u->attic, u->fd, u->change == FAULT_RENAMED ? u->to : u->name) == 0;
    need(ok || errno == ENOENT);
}

static bool coin(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 63;
}

/* A directory's changes reach the drive in order: what came before one that did has reached it too. */
static void keep_before(struct unsynced *u)
{
    for (struct unsynced *v = u; v; v = v->next)
        if (v->is_entry && v->dev == u->dev && v->ino == u->ino)
            v->kept = true;
}

struct fault_loss fault_lose(uint64_t seed)
{
    struct fault_loss loss = {0};
    atomic_store(&remembering, false);
    bool all = seed == 0;
    for (struct unsynced *u = last; u; u = u->next) {
        if (!all && !u->kept && coin(&seed)) {
            u->kept = true;
            if (u->is_entry)
                keep_before(u);
        }
        if (u->kept)
            continue;
        if (u->is_entry)
            take_back_entry(u);
        else
            take_back_write(u);
        *(u->is_entry ? &loss.entries : &loss.writes) += 1;
    }
    while (last) {
        struct unsynced *u = last;
        last = u->next;
        drop(u);
    }
    (void)close(attic_fd);
    attic_fd = -1;
    return loss;
}
#else
/* ISO C wants at least one declaration in a translation unit. */
typedef int fault_power_disabled;
#endif
