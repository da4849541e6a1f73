/* Rotary frequencies. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "compute/math64.h"

/* theta^(-index / dim), rounded as transformers rounds it (exponent, power and reciprocal each to float32),
 * so that angles agree with it at high positions too. */
static inline float rope_inv_freq(double theta, uint32_t index, uint32_t dim)
{
    float exponent = (float)index / (float)dim;
    float power = (float)math64_exp((double)exponent * math64_log(theta));
    return 1.0f / power;
}

#endif
