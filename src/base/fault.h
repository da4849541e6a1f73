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
#include <stdint.h>

enum fault_kind { FAULT_ALLOC, FAULT_READ, FAULT_WRITE, FAULT_FSYNC, FAULT_RENAME, FAULT_KINDS };

#ifdef SLUICE_FAULTS
/* Thread-safe. n = 1 is the next operation; 0 disarms. */
void fault_arm(enum fault_kind kind, uint64_t n);
bool fault_fired(enum fault_kind kind);
/* Counts one operation; true when it must fail. */
bool fault_hit(enum fault_kind kind);
#else
static inline bool fault_hit(enum fault_kind kind)
{
    (void)kind;
    return false;
}
#endif

#endif
