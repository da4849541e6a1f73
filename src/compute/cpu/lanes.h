/* Sixteen lanes, the shape of every reduction, in the registers of one instruction set. A lanes_ISA.h defines
 * these types and functions; lane_math.h, lane_rows.h, lane_attend.h, lane_delta.h, lane_floats.h and
 * lane_affine.h are written with them alone, and each instruction set's file includes what it fills the
 * kernel table with.
 *
 *   vf, vi, vb, vm       16 floats, 16 int32, 64 bytes, 16 conditions
 *   vf_load_n, *_n       only the first n lanes (n <= 16, or bytes <= 64) are touched; loads fill with zeros
 *   vf_fma_n(a,b,c,n)    a * b + c in the first n lanes, c in the others
 *   vf_at_most(x,limit)  limit < x ? limit : x, so that a NaN stays one; vf_at_least likewise
 *   vf_sum, vf_sum4      the tree 8 + 8, 4 + 4, 2 + 2, 1 + 1 of one register, of four
 *   vf_fold(x,distance)  every lane of a run of 2 * distance lanes: its sum with the one `distance` away
 *   vf_rint              nearest integers, ties to even
 *   vi_half              arithmetic shift right by 1
 *   vi_pairs(a,b)        a0 + a1, a2 + a3, ..., b14 + b15
 *   lut                  what turns codes of a group into weights: fmaf(scale, code, bias) of every code
 *   lut_weights(t,p,bits)    16 weights, in an order of lanes that suits the instruction set
 *   lut_order, lut_natural   16 floats to that order, and back
 *   vb_plane(x,shift,mask)   each byte shifted right and masked
 *   split_bytes          the even and the odd bytes of 128
 *   transpose16          out[i][r] = rows[r][i], 4-byte values, 64 bytes of each row
 *   unit_dot             per lane: sum over planes of 4 codes times 4 of q; 64 bytes of q per plane
 *   tile_dots            per row and lane: sum over planes and `dwords` of 4 codes times the 4 values of q
 * that all lanes share; planes of w are 1024 bytes apart, of q 64
 */
#ifndef COMPUTE_CPU_LANES_H
#define COMPUTE_CPU_LANES_H

#include "compute/cpu/kernels.h"

#include <string.h>

/* Constant arguments decide how these compile. */
#define INLINE static inline __attribute__((always_inline))

#endif
