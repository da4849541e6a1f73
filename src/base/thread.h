/* A pool of worker threads for data-parallel work inside one operation.
 *
 * A run has `lanes` parts, numbered from 0, and fn(arg, lane, lanes) computes its share from the number, so
 * results cannot depend on timing. Threads take parts in turn and the caller takes them too: a worker that
 * the system does not let run costs nothing but its help. On a machine that is busy with other things a part
 * can still be held up by a thread that lost its processor in the middle; after such a delay the pool
 * computes alone for a while, so that the delays stay a small part of the whole.
 *
 * One run at a time per pool: callers (sessions that share an engine) are serialised by a mutex. `fn` may run
 * another pool, never the one that it runs on. A pool of 1 starts no thread. Waiting threads spin for some
 * ten microseconds, then park. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>

struct pool;
typedef void (*pool_fn)(void *arg, uint32_t lane, uint32_t lanes);

/* lanes 0: one per core that the calling thread may use. Workers are bound to cores of their own as long as
 * there are some, near each other. A caller's thread is not bound: one that is found on a worker's core when
 * a run begins is moved to another that it may use. */
sluice_status pool_open(struct pool **pool, uint32_t lanes, sluice_error *err);
void pool_close(struct pool *pool); /* NULL is fine */
uint32_t pool_lanes(const struct pool *pool);
/* Every lane once, each on whichever thread comes first; returns when all are done and visible. */
void pool_run(struct pool *pool, pool_fn fn, void *arg);
/* The same with `parts` (at most 65535) in place of the number of lanes: more parts than threads even out
 * what a thread loses to others. */
void pool_run_parts(struct pool *pool, uint32_t parts, pool_fn fn, void *arg);

/* The share [*begin, *end) of n items that lane gets: contiguous, in whole units of `grain` (only the last of
 * all may be cut short), and the lanes' numbers of units differ by at most one. */
void pool_share(size_t n, size_t grain, uint32_t lane, uint32_t lanes, size_t *begin, size_t *end);

/* A thread that takes no signals: they belong to the caller's. Returns 0 or what pthread_create() does. */
int thread_start(pthread_t *thread, void *(*fn)(void *), void *arg);

/* Cores that the calling thread may use (its affinity mask), at least 1; hardware threads of a core count
 * once.
 */
uint32_t thread_available(void);

#endif
