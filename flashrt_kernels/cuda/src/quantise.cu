// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// quantise (flashrt_kernels/quantise.py): fp8 e4m3 with one scale for the whole array.
#include <cuda_fp8.h>

#include "vector.cuh"

using namespace flashrt;

// Round to nearest even, ±448 where the value is beyond; NaN stays NaN.
__device__ __forceinline__ uint32_t to_e4m3(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

// Four values per thread; the last count % 4 one per thread. Divides: a reciprocal would move values on an edge.
extern "C" __global__ void quantise(const void* x, int x_bf16, const float* scale, uint8_t* out, long long count) {
    release_successor();
    wait_for_predecessor();
    long long unit = (long long)blockIdx.x * blockDim.x + threadIdx.x, whole = count / 4;
    float by = *scale;
    if (unit < whole) {
        float4 v = load4(x, x_bf16, unit * 4);
        reinterpret_cast<uint32_t*>(out)[unit] =
            to_e4m3(__fdiv_rn(v.x, by)) | to_e4m3(__fdiv_rn(v.y, by)) << 8 |
            to_e4m3(__fdiv_rn(v.z, by)) << 16 | to_e4m3(__fdiv_rn(v.w, by)) << 24;
    } else if (unit - whole < count % 4) {
        long long i = whole * 4 + unit - whole;
        out[i] = uint8_t(to_e4m3(__fdiv_rn(load_as_float(x, x_bf16, i), by)));
    }
}

// Any address.
extern "C" __global__ void quantise_any(const void* x, int x_bf16, const float* scale, uint8_t* out, long long count) {
    release_successor();
    wait_for_predecessor();
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = uint8_t(to_e4m3(__fdiv_rn(load_as_float(x, x_bf16, i), *scale)));
}
