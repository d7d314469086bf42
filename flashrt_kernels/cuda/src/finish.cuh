// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The three epilogues of epilogue.cuh for a thread that holds eight sums of one row: two runs of four columns. With PLAIN
// the runs are free; with GELU_MUL and ROPE_QKV the second holds the partners of the first, 8 columns further.
#pragma once

#include "epilogue.cuh"

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

// Columns c … c+3 of PLAIN, as far as there are.
__device__ __forceinline__ void finish_plain(const Epilogue& e, int row, int c, Four x) {
    size_t index = size_t(row) * e.n + c;
    if (c + 4 > e.n) {
        for (int i = 0; c + i < e.n && i < 3; ++i)
            store_from_float(e.out, e.out_bf16, index + i, finish(e, row, c + i, i == 0 ? x.v[0] : i == 1 ? x.v[1] : x.v[2]));
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (e.bias) x.v[i] += e.bias[c + i];
        x.v[i] = activate(x.v[i], e.activation);
        if (e.gate) x.v[i] *= e.gate[c + i];
    }
    if (e.residual) {
        Four r = load_four(e.residual, e.residual_bf16, index);
#pragma unroll
        for (int i = 0; i < 4; ++i) x.v[i] += r.v[i];
    }
    store_four(e.out, e.out_bf16, index, x);
}

// Pairs whose first members are the stored outputs c … c+3.
__device__ __forceinline__ void finish_gelu_mul(const Epilogue& e, int row, int c, Four first, const Four& second) {
    if (c >= e.n) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) first.v[i] = gelu_tanh(first.v[i]) * second.v[i];
    store_four(e.out, e.out_bf16, size_t(row) * (e.n >> 1) + (c >> 4) * 8 + (c & 7), first);
}
__device__ __forceinline__ void finish_rope(const Epilogue& e, int row, int c, Four first, Four second) {
    if (c >= e.n) return;
    RopeTarget t = rope_target(e, c);
    if (!t.out) return;
    if (t.angle >= 0) {
        size_t line = size_t(row) * e.head_dim + t.angle;
        Four cos = load_four(e.table, false, line), sin = load_four(e.table, false, line + (e.head_dim >> 1));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float a = first.v[i], b = second.v[i];
            first.v[i] = a * cos.v[i] - b * sin.v[i];
            second.v[i] = b * cos.v[i] + a * sin.v[i];
        }
    }
    size_t start = size_t(row) * t.width;
    store_four(t.out, e.out_bf16, start + t.first, first);
    store_four(t.out, e.out_bf16, start + t.second, second);
}

// The columns that item i of a row's ceil(n / 8) stands for: four from `first` on, four from `second` on.
struct Columns { int first, second; };
__device__ __forceinline__ Columns columns_of(int kind, int item) {
    if (kind == PLAIN) return {item * 8, item * 8 + 4};
    int first = (item >> 1) * 16 + (item & 1) * 4;
    return {first, first + 8};
}

// Rows and columns beyond the product are left out.
__device__ __forceinline__ void finish_eight(
    const Epilogue& e, int kind, int row, Columns c, const Four& first, const Four& second) {
    if (row >= e.rows) return;
    switch (kind) {
        case GELU_MUL: finish_gelu_mul(e, row, c.first, first, second); break;
        case ROPE_QKV: finish_rope(e, row, c.first, first, second); break;
        default:
            finish_plain(e, row, c.first, first);
            finish_plain(e, row, c.second, second);
    }
}

}  // namespace flashrt
