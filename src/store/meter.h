/* Progress and cancel of a long operation: counts bytes, calls the watch's callback at most four times a
 * second, and ends the operation when the watch says so. One thread, but for meter_prove(). */
#ifndef STORE_METER_H
#define STORE_METER_H

#include "base/err.h"

#include <stdatomic.h>

struct meter {
    const sluice_watch *watch; /* may be NULL */
    const atomic_bool *stop;   /* may be NULL; another thread's wish to end the operation */
    const char *phase;
    uint64_t done_bytes, total_bytes;
    uint64_t told_ns;
    _Atomic uint64_t verified_bytes;
};

void meter_start(struct meter *meter, const sluice_watch *watch, const char *phase, uint64_t total_bytes);
/* n more bytes are done. SLUICE_E_CANCELLED when the watch asks to stop. */
sluice_status meter_step(struct meter *meter, uint64_t n, sluice_error *err);
/* n bytes more are verified. From any thread. */
void meter_prove(struct meter *meter, uint64_t n);
/* Tell the last state, whatever the clock says. */
void meter_finish(struct meter *meter);

#endif
