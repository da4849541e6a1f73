#include "base/fault.h"

#ifdef SLUICE_FAULTS
#include "base/clock.h"

#include <stdatomic.h>

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
#else
/* ISO C wants at least one declaration in a translation unit. */
typedef int fault_disabled;
#endif
