// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// What every kernel shares: element types, the dependence on the kernel before, activations, reductions.
#pragma once

#include <cuda_bf16.h>
#include <cstdint>

namespace flashrt {

using bf16 = __nv_bfloat16;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }

// An array whose element type is only known at run time (uniform over the grid).
__device__ __forceinline__ float load_as_float(const void* p, bool is_bf16, size_t i) {
    return is_bf16 ? to_float(static_cast<const bf16*>(p)[i]) : static_cast<const float*>(p)[i];
}
__device__ __forceinline__ void store_from_float(void* p, bool is_bf16, size_t i, float x) {
    if (is_bf16) static_cast<bf16*>(p)[i] = from_float<bf16>(x);
    else static_cast<float*>(p)[i] = x;
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&pair);
}

// ---- programmatic dependent launch (compute capability 9.0 and later; nothing before) ----
//
// The rule that keeps a reused arena safe: every thread block calls wait_for_predecessor() before its first access,
// read or write, to anything that another kernel of the graph writes or reads. Only weights may be touched earlier,
// and what earlier sections of the graph completed: the first launch of a section starts when they have ended, and
// no later launch starts before it (`early` in flashrt_kernels/kernel.py; StaticGraph checks who writes).
// Then a kernel completes only after its predecessor has, and by induction after everything before that.

__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel's blocks start (they wait in turn); call it early, its place does not affect correctness.
__device__ __forceinline__ void release_successor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// ---- activations; the codes are those of flashrt_kernels/cuda/families (ACTIVATION_CODES) ----

enum Activation : int { NONE = 0, GELU_TANH = 1, GELU_ERF = 2, SILU = 3, RELU = 4 };

__device__ __forceinline__ float gelu_tanh(float x) {
    // 0.5·x·(1 + tanh(u)) = x · sigmoid(2u), u = √(2/π)·(x + 0.044715·x³)
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}
__device__ __forceinline__ float gelu_erf(float x) { return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f)); }
__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }
__device__ __forceinline__ float relu(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
__device__ __forceinline__ float activate(float x, int code) {
    switch (code) {
        case GELU_TANH: return gelu_tanh(x);
        case GELU_ERF: return gelu_erf(x);
        case SILU: return silu(x);
        case RELU: return relu(x);
        default: return x;
    }
}

// ---- reductions; the same order in every run ----

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}
// Sum over the block; every thread gets it. `scratch`: 32 floats of shared memory, free again after the call.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_sum(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = lane < warps ? scratch[lane] : 0.0f;
    x = warp_sum(x);
    __syncthreads();
    return x;
}

}  // namespace flashrt
