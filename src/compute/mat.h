/* Single stored values, for the few scalars that a graph needs on the host. */
#ifndef COMPUTE_MAT_H
#define COMPUTE_MAT_H

#include "compute/backend.h"
#include "compute/half.h"

#include <string.h>

/* The first value of an unquantized matrix or vector. */
static inline float mat_scalar(const struct mat *m)
{
    uint16_t bits;
    float value;
    if (m->dtype == DTYPE_F32) {
        memcpy(&value, m->weight, sizeof value);
        return value;
    }
    memcpy(&bits, m->weight, sizeof bits);
    return m->dtype == DTYPE_F16 ? half_from_f16(bits) : half_from_bf16(bits);
}

#endif
