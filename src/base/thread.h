/* A pool of worker threads for data-parallel work inside one operation.
 *
 * The caller's thread takes part as lane 0, so a pool of 1 starts no thread. pool_run splits nothing itself:
 * `fn(arg, lane, lanes)` computes its share from the lane number, so results cannot depend on timing. One
 * pool_run at a time per pool: it serialises callers (sessions that share an engine) by a mutex. `fn` may run
 * another pool, never the one that it runs on. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/err.h"

struct pool;
typedef void (*pool_fn)(void *arg, uint32_t lane, uint32_t lanes);

/* lanes 0: one per processor that this process may use. */
sluice_status pool_open(struct pool **pool, uint32_t lanes, sluice_error *err);
void pool_close(struct pool *pool); /* NULL is fine */
uint32_t pool_lanes(const struct pool *pool);
void pool_run(struct pool *pool, pool_fn fn, void *arg);

/* The share [*begin, *end) of n items that lane gets: contiguous, in whole units of `grain` (only the last of
 * all may be cut short), and the lanes' numbers of units differ by at most one. */
void pool_share(size_t n, size_t grain, uint32_t lane, uint32_t lanes, size_t *begin, size_t *end);

/* Processors this process may use (its affinity mask), at least 1. */
uint32_t thread_available(void);

#endif
