/* Checked arithmetic: every size that comes from a file or a socket goes through these. Each returns false,
 * and leaves *out alone, when the true result does not fit. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Round up to a multiple of `unit`, a power of two. */
static inline bool u64_round_up(uint64_t value, uint64_t unit, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(value, unit - 1, &r))
        return false;
    *out = r & ~(unit - 1);
    return true;
}

/* True when [offset, offset + bytes) lies inside [0, total). */
static inline bool range_inside(uint64_t offset, uint64_t bytes, uint64_t total)
{
    return offset <= total && bytes <= total - offset;
}

#endif
