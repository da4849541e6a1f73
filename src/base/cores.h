/* Where threads that compute should run: on cores of their own, not on two hardware threads of one core, and
 * close to each other. hwloc knows the machine; what the calling thread may not use is left out. Where hwloc
 * cannot tell, every processor of the affinity mask counts as a core, and binding does nothing. One thread at
 * a time per struct. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

#include "base/err.h"

#include <pthread.h>

struct cores;

/* Those that the calling thread may run on. SLUICE_E_MEMORY. */
sluice_status cores_open(struct cores **cores, sluice_error *err);
void cores_close(struct cores *cores); /* NULL is fine */
/* At least 1. */
uint32_t cores_count(const struct cores *cores);
/* Keep the first `n` to those of one cache, or else of one memory node, where that has so many. */
void cores_prefer_near(struct cores *cores, uint32_t n);
/* Let `thread` run on core i (modulo their number) alone. False where the system refuses or nothing is known.
 */
bool cores_bind(struct cores *cores, pthread_t thread, uint32_t i);

#endif
