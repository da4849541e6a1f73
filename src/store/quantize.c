#include "store/quantize.h"

#include <math.h>
#include <string.h>

enum { GROUP_MAX = 128 };

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16); /* to nearest even; x is finite */
}

static float float_of_bf16(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

static float float_of_f16(uint16_t h)
{
    uint32_t magnitude = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    if (magnitude >= 0x7c00u)
        return from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    float x = from_bits(magnitude << 13) * 0x1p112f; /* subnormals too */
    return sign ? -x : x;
}

/* The group's values as bfloat16 has them. */
static bool load(const unsigned char *source, enum dtype from, unsigned group, float *w)
{
    bool finite = true;
    for (unsigned i = 0; i < group; i++) {
        uint16_t h;
        float x;
        if (from == DTYPE_F32) {
            memcpy(&x, source + 4 * (size_t)i, 4);
        } else {
            memcpy(&h, source + 2 * (size_t)i, 2);
            x = from == DTYPE_BF16 ? float_of_bf16(h) : float_of_f16(h);
        }
        finite &= isfinite(x) != 0;
        w[i] = from == DTYPE_BF16 || !isfinite(x) ? x : float_of_bf16(bf16_of(x));
        finite &= isfinite(w[i]) != 0; /* a float32 near its maximum rounds to infinity */
    }
    return finite;
}

static void pack(const float *w, unsigned group, unsigned bits, float scale, float bias, unsigned char *codes)
{
    const float most = (float)((1u << bits) - 1);
    unsigned per_byte = 8 / bits;
    for (unsigned i = 0; i < group; i += per_byte) {
        unsigned byte = 0;
        for (unsigned k = 0; k < per_byte; k++) {
            float q = rintf((w[i + k] - bias) / scale);
            q = q < 0 ? 0 : q > most ? most : q;
            byte |= (unsigned)q << (k * bits);
        }
        *codes++ = (unsigned char)byte;
    }
}

bool quantize_groups(const void *source, enum dtype from, size_t n_groups, unsigned group, unsigned bits,
                     unsigned char *codes, uint16_t *scales, uint16_t *biases)
{
    const unsigned char *at = source;
    const float most = (float)((1u << bits) - 1);
    float w[GROUP_MAX] = {0};
    bool finite = true;
    if (group < 32 || group > GROUP_MAX || bits == 0 || bits > 8)
        return false;
    for (size_t g = 0; g < n_groups; g++) {
        finite &= load(at, from, group, w);
        float low = w[0], high = w[0];
        for (unsigned i = 1; i < group; i++) {
            low = w[i] < low ? w[i] : low;
            high = w[i] > high ? w[i] : high;
        }
        /* The end with the larger magnitude is met exactly: the scale is adjusted so that it has a whole
         * code. */
        bool low_is_edge = fabsf(low) > fabsf(high);
        float scale = (high - low) / most, bias = 0;
        scale = scale > 1e-7f ? scale : 1e-7f;
        scale = low_is_edge ? scale : -scale;
        float edge = low_is_edge ? low : high;
        float code = rintf(edge / scale);
        if (code != 0) {
            scale = edge / code;
            bias = edge;
        }
        pack(w, group, bits, scale, bias, codes);
        scales[g] = bf16_of(scale);
        biases[g] = bf16_of(bias);
        at += (size_t)group * dtype_bytes(from);
        codes += (size_t)group * bits / 8;
    }
    return finite;
}
