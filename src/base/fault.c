#include "base/fault.h"

#ifdef SLUICE_FAULTS
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

static atomic_bool reads_held;

void fault_hold_reads(bool hold)
{
    atomic_store(&reads_held, hold);
}

bool fault_reads_held(void)
{
    return atomic_load(&reads_held);
}
#else
/* ISO C wants at least one declaration in a translation unit. */
typedef int fault_disabled;
#endif
