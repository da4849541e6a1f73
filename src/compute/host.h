/* Arithmetic on logits that the host does itself, whichever backend made them: exp and maximum over the whole
 * vocabulary, with the best CPU kernels of this processor. The bits are those of compute/math.h on every
 * processor. Thread-safe. */
#ifndef COMPUTE_HOST_H
#define COMPUTE_HOST_H

#include <stddef.h>

/* out[i] = math_exp(x[i] - shift). In place allowed. */
void host_exp(const float *x, float shift, size_t n, float *out);
/* The largest of n >= 1 finite values. */
float host_largest(const float *x, size_t n);

#endif
