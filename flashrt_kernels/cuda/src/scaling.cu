// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// normalise and unnormalise (flashrt_kernels/scaling.py). Every operation rounds by itself, as in the reference: a
// value on the edge of a state bin must not move.
#include "common.cuh"

using namespace flashrt;

extern "C" __global__ void normalise(const float* x, const float* offset, const float* divisor, float* out, int count,
                                     int d, float mul, float sub) {
    release_successor();
    wait_for_predecessor();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float scaled = __fmul_rn(__fsub_rn(x[i], offset[i % d]), mul);
    out[i] = __fsub_rn(__fdiv_rn(scaled, divisor[i % d]), sub);
}

// The first d of `width` columns; base: [d] or null.
extern "C" __global__ void unnormalise(const float* x, const float* offset, const float* span, const float* base,
                                       float* out, int count, int d, int width, float mul, float sub) {
    release_successor();
    wait_for_predecessor();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int column = i % d;
    float unit = __fdiv_rn(__fadd_rn(x[size_t(i / d) * width + column], sub), mul);
    float y = __fadd_rn(__fmul_rn(unit, span[column]), offset[column]);
    out[i] = base ? __fadd_rn(y, base[column]) : y;
}
