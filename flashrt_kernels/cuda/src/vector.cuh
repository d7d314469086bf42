// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Four values at once, in fp32 registers whatever the memory holds. Addresses: 16 bytes in fp32, 8 in bf16, 4 in fp8.
#pragma once

#include "common.cuh"

namespace flashrt {

__device__ __forceinline__ float4 load4(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ __forceinline__ float4 load4(const bf16* p) {
    uint2 raw = *reinterpret_cast<const uint2*>(p);
    // bf16 is the upper half of an fp32
    return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u),
                       __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xffff0000u));
}
__device__ __forceinline__ void store4(float* p, float4 v) { *reinterpret_cast<float4*>(p) = v; }
__device__ __forceinline__ void store4(bf16* p, float4 v) {
    *reinterpret_cast<uint2*>(p) = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
}

// The same where the element type is only known at run time (uniform over the grid).
__device__ __forceinline__ float4 load4(const void* p, bool is_bf16, size_t i) {
    return is_bf16 ? load4(static_cast<const bf16*>(p) + i) : load4(static_cast<const float*>(p) + i);
}
__device__ __forceinline__ void store4(void* p, bool is_bf16, size_t i, float4 v) {
    if (is_bf16) store4(static_cast<bf16*>(p) + i, v);
    else store4(static_cast<float*>(p) + i, v);
}

__device__ __forceinline__ float sum4(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 operator*(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ __forceinline__ float4 operator+(float4 a, float b) { return a + make_float4(b, b, b, b); }
__device__ __forceinline__ float4 operator*(float4 a, float b) { return a * make_float4(b, b, b, b); }
// a·b + c
__device__ __forceinline__ float4 fma4(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w));
}

// Keeps an address in global memory in a register from here on. What a kernel computes of its parameters before
// wait_for_predecessor() is otherwise moved behind it by the compiler, where their first read costs a miss.
template <typename T> __device__ __forceinline__ void pin(T*& p) {
    asm volatile("" : "+l"(p));
    __builtin_assume(__isGlobal(p));
}

}  // namespace flashrt
