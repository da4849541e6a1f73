/* Values from a counter: any byte of any tensor can be made alone. */
#include "run/synth.h"

#include "base/random.h"
#include "compute/half.h"

#include <string.h>

/* From 0 to 1. */
static inline float uniform_at(uint64_t seed, uint64_t i)
{
    return (float)(random_at(seed, i) >> 40) * 0x1p-24f;
}

/* Scales of a weight differ by up to half of their mean, as trained ones do. */
static inline uint16_t scale_at(const struct synth_tensor *t, uint64_t i)
{
    return half_to_bf16(t->scale * (0.75f + 0.5f * uniform_at(t->seed, i)));
}

static inline uint16_t bias_at(const struct synth_tensor *t, uint64_t i)
{
    return half_to_bf16(-t->middle * half_from_bf16(scale_at(t, i)));
}

static float plain_at(const struct synth_tensor *t, uint64_t i)
{
    float u = 2.0f * uniform_at(t->seed, i) - 1.0f;
    /* Gains close to 1; matrices uniform with the wanted standard deviation. */
    return t->kind == SYNTH_VECTOR ? 1.0f + 0.1f * u : 1.7320508f * t->scale * u;
}

/* Bytes of one value, and the value itself in `out`. */
static size_t unit_bytes(const struct synth_tensor *t)
{
    if (t->kind == SYNTH_CODES)
        return 8;
    return t->kind == SYNTH_SCALES || t->kind == SYNTH_BIASES ? 2 : dtype_bytes(t->dtype);
}

static void unit_at(const struct synth_tensor *t, uint64_t i, unsigned char out[8])
{
    uint16_t half = 0;
    float value;
    int64_t integer = 0;
    switch (t->kind) {
    case SYNTH_CODES: {
        uint64_t word = random_at(t->seed, i);
        memcpy(out, &word, sizeof word);
        return;
    }
    case SYNTH_SCALES:
        half = scale_at(t, i);
        break;
    case SYNTH_BIASES:
        half = bias_at(t, i);
        break;
    case SYNTH_VECTOR:
    case SYNTH_MATRIX:
        value = plain_at(t, i);
        if (t->dtype == DTYPE_F32) {
            memcpy(out, &value, sizeof value);
            return;
        }
        if (t->dtype == DTYPE_I32 || t->dtype == DTYPE_I64) {
            memcpy(out, &integer, sizeof integer);
            return;
        }
        half = t->dtype == DTYPE_F16 ? half_to_f16(value) : half_to_bf16(value);
        break;
    }
    memcpy(out, &half, sizeof half);
}

/* Whole values, in a loop of its own per kind: a full size has half a billion scales. Returns how many. */
static size_t fill_whole(const struct synth_tensor *t, uint64_t i, unsigned char *out, size_t n)
{
    size_t unit = unit_bytes(t), count = n / unit;
    switch (t->kind) {
    case SYNTH_CODES:
        for (size_t k = 0; k < count; k++) {
            uint64_t word = random_at(t->seed, i + k);
            memcpy(out + 8 * k, &word, sizeof word);
        }
        break;
    case SYNTH_SCALES:
        for (size_t k = 0; k < count; k++) {
            uint16_t half = scale_at(t, i + k);
            memcpy(out + 2 * k, &half, sizeof half);
        }
        break;
    case SYNTH_BIASES:
        for (size_t k = 0; k < count; k++) {
            uint16_t half = bias_at(t, i + k);
            memcpy(out + 2 * k, &half, sizeof half);
        }
        break;
    case SYNTH_VECTOR:
    case SYNTH_MATRIX:
        for (size_t k = 0; k < count; k++) {
            unsigned char value[8];
            unit_at(t, i + k, value);
            memcpy(out + unit * k, value, unit);
        }
        break;
    }
    return count;
}

void synth_fill(const struct synth_tensor *t, uint64_t offset, unsigned char *out, size_t n)
{
    size_t unit = unit_bytes(t), skip = (size_t)(offset % unit);
    uint64_t i = offset / unit;
    while (n > 0) {
        if (skip == 0) {
            size_t whole = fill_whole(t, i, out, n);
            i += whole;
            out += whole * unit;
            n -= whole * unit;
            if (n == 0)
                return;
        }
        unsigned char value[8];
        size_t m = unit - skip < n ? unit - skip : n;
        unit_at(t, i++, value);
        memcpy(out, value + skip, m);
        out += m;
        n -= m;
        skip = 0;
    }
}
