// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Four neighbouring elements of an array of either type.
#pragma once

#include "common.cuh"

namespace flashrt {

struct Four { float v[4]; };

// Elements `index` … index+3 of an array whose address there is a multiple of their 16 (fp32) or 8 (bf16) bytes.
__device__ __forceinline__ Four load_aligned_four(const void* array, bool is_bf16, size_t index) {
    Four r;
    if (is_bf16) {
        uint2 raw = *reinterpret_cast<const uint2*>(static_cast<const bf16*>(array) + index);
        r.v[0] = __uint_as_float(raw.x << 16), r.v[1] = __uint_as_float(raw.x & 0xffff0000u);
        r.v[2] = __uint_as_float(raw.y << 16), r.v[3] = __uint_as_float(raw.y & 0xffff0000u);
    } else {
        float4 raw = *reinterpret_cast<const float4*>(static_cast<const float*>(array) + index);
        r.v[0] = raw.x, r.v[1] = raw.y, r.v[2] = raw.z, r.v[3] = raw.w;
    }
    return r;
}
__device__ __forceinline__ void store_aligned_four(void* array, bool is_bf16, size_t index, const Four& x) {
    if (is_bf16) {
        uint2 pairs = make_uint2(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]));
        *reinterpret_cast<uint2*>(static_cast<bf16*>(array) + index) = pairs;
    } else {
        float4 all = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
        *reinterpret_cast<float4*>(static_cast<float*>(array) + index) = all;
    }
}

// The same at any address.
__device__ __forceinline__ bool is_aligned_four(const void* array, bool is_bf16, size_t index) {
    size_t size = is_bf16 ? 2 : 4;
    return (reinterpret_cast<uintptr_t>(array) + index * size) % (4 * size) == 0;
}
__device__ __forceinline__ Four load_four(const void* array, bool is_bf16, size_t index) {
    if (is_aligned_four(array, is_bf16, index)) return load_aligned_four(array, is_bf16, index);
    Four r;
#pragma unroll
    for (int i = 0; i < 4; ++i) r.v[i] = load_as_float(array, is_bf16, index + i);
    return r;
}
__device__ __forceinline__ void store_four(void* array, bool is_bf16, size_t index, const Four& x) {
    if (is_aligned_four(array, is_bf16, index)) return store_aligned_four(array, is_bf16, index, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) store_from_float(array, is_bf16, index + i, x.v[i]);
}

// The same where only the first `count` of the four are there; the others are 0 and are not stored.
__device__ __forceinline__ Four load_some(const void* array, bool is_bf16, size_t index, int count) {
    if (count >= 4) return load_four(array, is_bf16, index);
    Four r;
#pragma unroll
    for (int i = 0; i < 4; ++i) r.v[i] = i < count ? load_as_float(array, is_bf16, index + i) : 0.0f;
    return r;
}
__device__ __forceinline__ void store_some(void* array, bool is_bf16, size_t index, const Four& x, int count) {
    if (count >= 4) return store_four(array, is_bf16, index, x);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        if (i < count) store_from_float(array, is_bf16, index + i, x.v[i]);
}

}  // namespace flashrt
