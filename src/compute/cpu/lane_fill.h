/* The whole kernel table on sixteen lanes. */
#ifndef COMPUTE_CPU_LANE_FILL_H
#define COMPUTE_CPU_LANE_FILL_H

#include "compute/cpu/lane_attend.h"
#include "compute/cpu/lane_delta.h"
#include "compute/cpu/lane_floats.h"
#include "compute/cpu/lane_rows.h"
#include "compute/cpu/lane_shapes.h"

INLINE void fill_all(struct cpu_kernels *kernels, const char *name)
{
    *kernels = (struct cpu_kernels){
        .name = name,
        .widen = widen,
        .narrow = narrow,
        .dequantize_row = dequantize_row,
        .quantize_row = quantize_row,
        .affine_i8 = affine_i8,
        .affine_f32 = affine_f32,
        .dense = dense,
        .norm_row = norm_row,
        .rope_row = rope_row,
        .attend = attend,
        .route_row = route_row,
        .gated_norm_row = gated_norm_row,
        .unit_row = unit_row,
        .conv_channels = conv_channels,
        .delta_values = delta_values,
        .weighted_sum_row = weighted_sum_row,
        .add = add,
        .scale = scale,
        .scale_cols = scale_cols,
        .gated = gated,
        .softcap = softcap,
        .finite = finite_all,
        .exp = exp_all,
        .largest = largest,
    };
}

#endif
