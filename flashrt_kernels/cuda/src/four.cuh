// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Four neighbouring elements of an array of either type.
#pragma once

#include "common.cuh"

namespace flashrt {

struct Four { float v[4]; };

// Element `index` of an array of either type; 16 (fp32) or 8 (bf16) bytes at once where the address allows it.
__device__ __forceinline__ Four load_four(const void* array, bool is_bf16, size_t index) {
    Four r;
    if (is_bf16) {
        const bf16* p = static_cast<const bf16*>(array) + index;
        if (reinterpret_cast<uintptr_t>(p) % 8 == 0) {
            uint2 raw = *reinterpret_cast<const uint2*>(p);
            float2 a = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&raw.x));
            float2 b = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&raw.y));
            r.v[0] = a.x, r.v[1] = a.y, r.v[2] = b.x, r.v[3] = b.y;
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) r.v[i] = to_float(p[i]);
        }
    } else {
        const float* p = static_cast<const float*>(array) + index;
        if (reinterpret_cast<uintptr_t>(p) % 16 == 0) {
            float4 raw = *reinterpret_cast<const float4*>(p);
            r.v[0] = raw.x, r.v[1] = raw.y, r.v[2] = raw.z, r.v[3] = raw.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) r.v[i] = p[i];
        }
    }
    return r;
}
__device__ __forceinline__ void store_four(void* array, bool is_bf16, size_t index, const Four& x) {
    if (is_bf16) {
        bf16* p = static_cast<bf16*>(array) + index;
        if (reinterpret_cast<uintptr_t>(p) % 8 == 0) {
            *reinterpret_cast<uint2*>(p) = make_uint2(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]));
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) p[i] = from_float<bf16>(x.v[i]);
        }
    } else {
        float* p = static_cast<float*>(array) + index;
        if (reinterpret_cast<uintptr_t>(p) % 16 == 0) {
            *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) p[i] = x.v[i];
        }
    }
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
