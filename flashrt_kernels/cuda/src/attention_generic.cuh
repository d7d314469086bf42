// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of any element types and head sizes on the fp32 units.
#pragma once

#include "attention.cuh"

namespace flashrt {

constexpr int GENERIC_ROWS = 32, GENERIC_KEYS = 32, GENERIC_LANES = 8, GENERIC_COLUMNS = 32;

// Rows of head_dim elements as fp32, head_dim + 1 apart.
template <typename Offset> __device__ __forceinline__ void load_rows(
    float* target, const void* source, bool is_bf16, int rows, int head_dim, Offset offset) {
    for (int i = threadIdx.x; i < GENERIC_ROWS * head_dim; i += blockDim.x) {
        int row = i / head_dim, d = i - row * head_dim;
        target[row * (head_dim + 1) + d] = row < rows ? load_as_float(source, is_bf16, offset(row) + d) : 0.0f;
    }
}

// 256 threads: 32 rows of 8 lanes; a lane holds scores of every 8th key and sums of every 8th column.
__device__ __forceinline__ void attention_generic_block(const Attention& a) {
    extern __shared__ float memory[];
    Rows rows(a);
    int width = a.head_dim + 1, lane = threadIdx.x % GENERIC_LANES, local = threadIdx.x / GENERIC_LANES;
    float *q_tile = memory, *kv_tile = q_tile + GENERIC_ROWS * width, *weights = kv_tile + GENERIC_KEYS * width;
    const float* q_row = q_tile + local * width;
    float* weight_row = weights + local * (GENERIC_KEYS + 1);
    int row0 = blockIdx.x * GENERIC_ROWS, row = row0 + local, query = min(row, rows.count - 1) / rows.group;
    int tiles = (a.keys + GENERIC_KEYS - 1) / GENERIC_KEYS, per_part = (tiles + a.parts - 1) / a.parts;
    int begin = blockIdx.z * per_part * GENERIC_KEYS, end = min(a.keys, begin + per_part * GENERIC_KEYS);
    release_successor();
    wait_for_predecessor();
    auto query_offset = [&](int r) { return rows.offset(a, row0 + r, a.q_stride); };
    load_rows(q_tile, a.q, a.q_bf16, rows.count - row0, a.head_dim, query_offset);

    float sums[GENERIC_COLUMNS] = {}, max = -INFINITY, total = 0.0f;
    for (int key0 = begin; key0 < end; key0 += GENERIC_KEYS) {
        auto key_offset = [&](int r) { return rows.kv_offset(a) + size_t(key0 + r) * a.kv_stride; };
        __syncthreads();
        load_rows(kv_tile, a.k, a.k_bf16, end - key0, a.head_dim, key_offset);
        __syncthreads();
        float scores[GENERIC_KEYS / GENERIC_LANES] = {};
        for (int d = 0; d < a.head_dim; ++d)
#pragma unroll
            for (int j = 0; j < GENERIC_KEYS / GENERIC_LANES; ++j)
                scores[j] = fmaf(q_row[d], kv_tile[(lane + j * GENERIC_LANES) * width + d], scores[j]);
        float newest = max;
#pragma unroll
        for (int j = 0; j < GENERIC_KEYS / GENERIC_LANES; ++j) {
            int key = key0 + lane + j * GENERIC_LANES;
            bool seen = key < end && (!a.key_valid || a.key_valid[key]) &&
                        (!a.mask || a.mask[size_t(query) * a.keys + key]);
            scores[j] = seen ? scores[j] * a.scale : -INFINITY;
            newest = fmaxf(newest, scores[j]);
        }
#pragma unroll
        for (int offset = GENERIC_LANES / 2; offset; offset >>= 1)
            newest = fmaxf(newest, __shfl_xor_sync(0xffffffffu, newest, offset));
        float shrink = weight_of(max, newest);
        max = newest;
        total *= shrink;
#pragma unroll
        for (int j = 0; j < GENERIC_KEYS / GENERIC_LANES; ++j) {
            float weight = weight_of(scores[j], max);
            total += weight;
            weight_row[lane + j * GENERIC_LANES] = weight;
        }
        __syncthreads();
        load_rows(kv_tile, a.v, a.v_bf16, end - key0, a.head_dim, key_offset);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < GENERIC_COLUMNS; ++i) {
            int d = lane + i * GENERIC_LANES;
            if (d >= a.head_dim) break;
            float sum = sums[i] * shrink;
#pragma unroll 8
            for (int key = 0; key < GENERIC_KEYS; ++key) sum = fmaf(weight_row[key], kv_tile[key * width + d], sum);
            sums[i] = sum;
        }
    }
#pragma unroll
    for (int offset = GENERIC_LANES / 2; offset; offset >>= 1) total += __shfl_xor_sync(0xffffffffu, total, offset);
    if (row >= rows.count) return;
    float scale = total > 0.0f ? 1.0f / total : 0.0f;
    size_t out = rows.offset(a, row, a.out_stride), partial = rows.partial_row(a, row);
#pragma unroll
    for (int i = 0; i < GENERIC_COLUMNS; ++i) {
        int d = lane + i * GENERIC_LANES;
        if (d >= a.head_dim) break;
        if (a.partial) a.partial[partial * a.head_dim + d] = sums[i];
        else store_from_float(a.out, a.out_bf16, out + d, sums[i] * scale);
    }
    if (a.partial && lane == 0) {
        float* statistics = a.partial + size_t(a.parts) * rows.all(a) * a.head_dim + partial * 2;
        statistics[0] = max;
        statistics[1] = total;
    }
}

}  // namespace flashrt
