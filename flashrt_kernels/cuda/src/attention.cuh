// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// What the attention kernels take, and how rows are counted: all query heads that share a key/value head are rows of one
// product (row = query · group + head within the group), so that multi-query attention reads its keys once.
#pragma once

#include "common.cuh"

namespace flashrt {

// Passed by value; mirrored by ctypes in flashrt_kernels/cuda/families/attention_portable.py.
struct Attention {
    const void *q, *k, *v;      // sequence b, query i: q + (b·queries + i)·q_stride; the same for keys and out
    const uint8_t* key_valid;   // [keys] or null
    const uint8_t* mask;        // [queries, keys] or null
    void* out;
    float* partial;             // null, or sums [parts, rows of all, head_dim], then (max, sum) [parts, rows of all, 2]
    int q_stride, kv_stride, out_stride;  // elements
    int queries, keys, sequences, heads, kv_heads, head_dim;
    int parts;                  // of the keys
    float scale;                // log2(e) / √head_dim
    int q_bf16, k_bf16, v_bf16, out_bf16;
};

// The row tile of a block: grid (tiles of rows, sequences · kv_heads, parts).
struct Rows {
    int group, count, sequence, kv_head;
    __device__ __forceinline__ explicit Rows(const Attention& a)
        : group(a.heads / a.kv_heads), count(a.queries * group), sequence(blockIdx.y / a.kv_heads),
          kv_head(blockIdx.y - sequence * a.kv_heads) {}
    // Element offset of a row in an array of queries with `stride` elements from one to the next.
    __device__ __forceinline__ size_t offset(const Attention& a, int row, int stride) const {
        int query = row / group, head = kv_head * group + row - query * group;
        return (size_t(sequence) * a.queries + query) * stride + size_t(head) * a.head_dim;
    }
    __device__ __forceinline__ size_t kv_offset(const Attention& a) const {
        return size_t(sequence) * a.keys * a.kv_stride + size_t(kv_head) * a.head_dim;
    }
    __device__ __forceinline__ int all(const Attention& a) const { return a.sequences * a.kv_heads * count; }
    __device__ __forceinline__ size_t partial_row(const Attention& a, int row) const {
        return size_t(blockIdx.z) * all(a) + size_t(blockIdx.y) * count + row;
    }
};

// exp2(x − max) where the maximum of nothing is −∞, and gives 0.
__device__ __forceinline__ float weight_of(float x, float max) { return max == -INFINITY ? 0.0f : exp2f(x - max); }

}  // namespace flashrt
