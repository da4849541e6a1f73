/* Phases of a session's time, as a table and as JSON. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "sluice.h"

#include <jansson.h>

/* To standard error: a row per phase, with milliseconds per token and the share, for prefill and decode. */
void profile_notice(const sluice_profile *profile, uint64_t prefill_tokens, uint64_t decode_tokens);

/* {"prefill": {"attention": seconds, …}, "decode": {…}} */
json_t *profile_json(const sluice_profile *profile);

#endif
