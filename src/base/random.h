/* splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): a permutation of a
 * counter, so that any number of a sequence can be made alone. The same seed gives the same numbers on every
 * machine. Not for secrets. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

/* The i-th number, from 0 on, of the sequence that starts at `seed`. */
static inline uint64_t random_at(uint64_t seed, uint64_t i)
{
    uint64_t x = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Uniform in [0, 1). */
static inline double random_unit_at(uint64_t seed, uint64_t i)
{
    return (double)(random_at(seed, i) >> 11) * 0x1p-53;
}

/* The next number of the sequence whose place is *state, a seed at first. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = random_at(*state, 0);
    *state += 0x9E3779B97F4A7C15u;
    return x;
}

static inline double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

#endif
