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

#ifdef SLUICE_FAULTS
/* Thread-safe. n = 1 is the next operation; 0 disarms. */
void fault_arm(enum fault_kind kind, uint64_t n);
bool fault_fired(enum fault_kind kind);
/* Counts one operation; true when it must fail. */
bool fault_hit(enum fault_kind kind);

/* A power loss, simulated: after fault_remember_writes() every write through io/file.h keeps what it replaces
 * until its file is synced, and fault_lose_writes() puts back what was never synced, the last one first, and
 * ends the remembering. Thread-safe but for these two. */
void fault_remember_writes(void);
unsigned fault_lose_writes(void); /* how many were lost */
/* Around a write: keep n bytes at offset, and say when they are replaced. */
void *fault_before_write(int fd, uint64_t offset, size_t n);
void fault_after_write(void *write);
/* Around a sync: writes that ended before it began are safe when it succeeds. */
uint64_t fault_before_sync(void);
void fault_after_sync(int fd, uint64_t before, bool succeeded);

/* Make the read threads behave like a drive of so many bytes per second, for measurements; 0: full speed. */
void fault_throttle(uint64_t bytes_per_s);
/* How long the one that has just read `bytes` must wait before that drive would have brought them. */
uint64_t fault_throttle_ns(uint64_t bytes);
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

static inline uint64_t fault_throttle_ns(uint64_t bytes)
{
    (void)bytes;
    return 0;
}
#endif

#endif
