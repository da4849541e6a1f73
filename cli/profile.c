#include "profile.h"

#include "out.h"

static uint64_t sum(const uint64_t ns[SLUICE_PHASES])
{
    uint64_t total = 0;
    for (int i = 0; i < SLUICE_PHASES; i++)
        total += ns[i];
    return total;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static double ms_per_token(uint64_t ns, uint64_t tokens)
{
    return tokens > 0 ? (double)ns / 1e6 / (double)tokens : 0.0;
}

void profile_notice(const sluice_profile *p, uint64_t prefill_tokens, uint64_t decode_tokens)
{
    uint64_t prefill = sum(p->prefill_ns), decode = sum(p->decode_ns);
    notice("%-16s %22s %22s", "phase", "prefill ms/token", "decode ms/token");
    for (int i = 0; i < SLUICE_PHASES; i++)
        notice("%-16s %12.3f %6.1f %% %13.3f %6.1f %%", p->names[i],
               ms_per_token(p->prefill_ns[i], prefill_tokens), share(p->prefill_ns[i], prefill),
               ms_per_token(p->decode_ns[i], decode_tokens), share(p->decode_ns[i], decode));
    notice("%-16s %12.3f %10.2f s %10.3f %10.2f s", "total", ms_per_token(prefill, prefill_tokens),
           seconds_of(prefill), ms_per_token(decode, decode_tokens), seconds_of(decode));
}

static json_t *phases(const sluice_profile *p, const uint64_t ns[SLUICE_PHASES])
{
    json_t *object = json_object();
    for (int i = 0; i < SLUICE_PHASES; i++)
        json_object_set_new(object, p->names[i], json_real(seconds_of(ns[i])));
    return object;
}

json_t *profile_json(const sluice_profile *p)
{
    return json_pack("{s:o, s:o}", "prefill", phases(p, p->prefill_ns), "decode", phases(p, p->decode_ns));
}
