#include "store/meter.h"

#include "base/clock.h"

enum { TELL_EVERY_NS = 250000000 };

static void tell(struct meter *meter, uint64_t now)
{
    if (!meter->watch || !meter->watch->progress)
        return;
    meter->told_ns = now;
    sluice_progress progress = {meter->phase, meter->done_bytes, meter->total_bytes,
                                atomic_load(&meter->verified_bytes)};
    meter->watch->progress(meter->watch->user, &progress);
}

void meter_start(struct meter *meter, const sluice_watch *watch, const char *phase, uint64_t total_bytes)
{
    *meter = (struct meter){.watch = watch, .phase = phase, .total_bytes = total_bytes};
    tell(meter, clock_ns());
}

sluice_status meter_step(struct meter *meter, uint64_t n, sluice_error *err)
{
    meter->done_bytes += n;
    if (meter->stop && atomic_load(meter->stop))
        return err_set(err, SLUICE_E_CANCELLED, "stopped");
    if (!meter->watch)
        return SLUICE_OK;
    if (meter->watch->cancel && *meter->watch->cancel)
        return err_set(err, SLUICE_E_CANCELLED, "cancelled after %llu of %llu bytes",
                       (unsigned long long)meter->done_bytes, (unsigned long long)meter->total_bytes);
    uint64_t now = clock_ns();
    if (now - meter->told_ns >= TELL_EVERY_NS)
        tell(meter, now);
    return SLUICE_OK;
}

void meter_prove(struct meter *meter, uint64_t n)
{
    atomic_fetch_add(&meter->verified_bytes, n);
}

void meter_finish(struct meter *meter)
{
    tell(meter, clock_ns());
}
