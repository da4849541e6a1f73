/* A debug hook that makes the n-th operation of a kind fail. Compiled in with -DSLUICE_FAULTS only (the
 * test library); otherwise fault_hit() is the constant false.
 *
 *     fault_arm(FAULT_WRITE, 3);      the third write from now fails, once
 *     ... run ...
 *     fault_fired(FAULT_WRITE)        true when it was reached
 */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FAULT_AGAIN and FAULT_SHORT disturb a block read (io/reads.h) without failing it: the drive says "try
 * again", or brings a part. FAULT_RING refuses an io_uring as a sandbox does. */
enum fault_kind {
    FAULT_ALLOC,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_FSYNC,
    FAULT_RENAME,
    FAULT_AGAIN,
    FAULT_SHORT,
    FAULT_RING,
    FAULT_KINDS
};

/* What can happen to an entry of a directory. */
enum fault_change { FAULT_CREATED, FAULT_DELETED, FAULT_RENAMED, FAULT_EXCHANGED };

#ifdef SLUICE_FAULTS
/* Thread-safe. n = 1 is the next operation; 0 disarms. */
void fault_arm(enum fault_kind kind, uint64_t n);
bool fault_fired(enum fault_kind kind);
/* Counts one operation; true when it must fail. */
bool fault_hit(enum fault_kind kind);

/* A power loss, simulated (fault_power.c). After fault_remember() every write through io/file.h keeps what it
 * replaces until its file is synced, and every entry of a directory that is made, deleted or renamed is
 * remembered until that directory is synced. fault_lose() takes back what was never synced and ends the
 * remembering. Thread-safe but for these two.
 *
 * `attic` is an empty directory on the same file system, where what is deleted lies meanwhile. */
struct fault_loss {
    unsigned writes, entries; /* how many were lost */
};

void fault_remember(const char *attic);
/* seed 0: everything that was not synced. Else a part that depends on it: some of the writes, and of every
 * directory the last so many changes, as a file system may have got to the drive when the power went. */
struct fault_loss fault_lose(uint64_t seed);

/* Around a write: keep n bytes at offset, and say when they are replaced. */
void *fault_before_write(int fd, uint64_t offset, size_t n);
void fault_after_write(void *write);
/* Around a change of entries: `to` is the other name of a renaming, in the same directory, or NULL. */
void *fault_before_change(enum fault_change change, const char *path, const char *to);
void fault_after_change(void *change, bool happened);
/* Instead of deleting a file or a tree: true when it was moved to the attic. */
bool fault_delete(const char *path);
/* Around a sync: what ended before it began is safe when it succeeds. */
uint64_t fault_before_sync(void);
void fault_after_sync(int fd, uint64_t before, bool succeeded);

/* While held, no read of the read threads ends: what is under way stays so for as long as a test looks at it.
 */
void fault_hold_reads(bool hold);
bool fault_reads_held(void);
#else
static inline bool fault_hit(enum fault_kind kind)
{
    (void)kind;
    return false;
}

static inline void *fault_before_write(int fd, uint64_t offset, size_t n)
{
    (void)fd;
    (void)offset;
    (void)n;
    return NULL;
}

static inline void fault_after_write(void *write)
{
    (void)write;
}

static inline void *fault_before_change(enum fault_change change, const char *path, const char *to)
{
    (void)change;
    (void)path;
    (void)to;
    return NULL;
}

static inline void fault_after_change(void *change, bool happened)
{
    (void)change;
    (void)happened;
}

static inline bool fault_delete(const char *path)
{
    (void)path;
    return false;
}

static inline uint64_t fault_before_sync(void)
{
    return 0;
}

static inline void fault_after_sync(int fd, uint64_t before, bool succeeded)
{
    (void)fd;
    (void)before;
    (void)succeeded;
}

static inline bool fault_reads_held(void)
{
    return false;
}
#endif

#endif
