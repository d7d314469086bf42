// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of any element types and head sizes on the fp32 units.
//
// 256 threads: 32 rows of 8 lanes. A lane holds the scores of every 8th of 32 keys and the sums of columns 4·lane … +3
// of each 32. Tiles are fp32 in shared memory, padded with zeros to whole fours, rows 4 banks apart from a multiple of
// all 32: then the 8 lanes of a row read 16 bytes each without conflicts.
#pragma once

#include "attention.cuh"
#include "four.cuh"

namespace flashrt {

constexpr int GENERIC_ROWS = 32, GENERIC_KEYS = 32, GENERIC_LANES = 8;
constexpr int GENERIC_RUNS = 8;                                 // of four columns in a lane: head_dim ≤ 256
constexpr int GENERIC_SCORES = GENERIC_KEYS / GENERIC_LANES;    // of a lane
constexpr int GENERIC_WEIGHTS = GENERIC_KEYS + 4;               // floats from one row of weights to the next

struct GenericTile {
    float* memory;
    int width, lane, local;  // floats from row to row; this thread's lane and row

    // The thread's row of `source`, from element `offset` on.
    __device__ __forceinline__ void load(
        const void* source, bool is_bf16, size_t offset, bool valid, int head_dim) const {
#pragma unroll
        for (int i = 0; i < GENERIC_RUNS; ++i) {
            int d = 4 * lane + 32 * i;
            if (d >= head_dim) break;
            Four x = valid ? load_some(source, is_bf16, offset + d, head_dim - d) : Four{};
            store_aligned_four(memory, false, local * width + d, x);
        }
    }
    __device__ __forceinline__ Four at(int row, int column) const {
        return load_aligned_four(memory, false, row * width + column);
    }
};

__device__ __forceinline__ void multiply_keys(
    float (&scores)[GENERIC_SCORES], const GenericTile& q, const GenericTile& keys, int head_dim) {
    for (int d = 0; d < head_dim; d += 4) {
        Four x = q.at(q.local, d);
#pragma unroll
        for (int j = 0; j < GENERIC_SCORES; ++j) {
            Four y = keys.at(q.lane + j * GENERIC_LANES, d);
#pragma unroll
            for (int i = 0; i < 4; ++i) scores[j] = fmaf(x.v[i], y.v[i], scores[j]);
        }
    }
}

__device__ __forceinline__ void multiply_values(
    Four (&sums)[GENERIC_RUNS], const float* weights, float shrink, const GenericTile& values, int head_dim) {
#pragma unroll
    for (int i = 0; i < GENERIC_RUNS; ++i) {
        int d = 4 * values.lane + 32 * i;
        if (d >= head_dim) break;
#pragma unroll
        for (float& v : sums[i].v) v *= shrink;
#pragma unroll 8
        for (int key = 0; key < GENERIC_KEYS; ++key) {
            Four y = values.at(key, d);
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[i].v[c] = fmaf(weights[key], y.v[c], sums[i].v[c]);
        }
    }
}

// Scores become weights relative to the row's new maximum; returns what sums so far shrink by.
__device__ __forceinline__ float weigh(
    float (&scores)[GENERIC_SCORES], float& max, float& total, float* weights, int lane) {
    float newest = max;
#pragma unroll
    for (float score : scores) newest = fmaxf(newest, score);
#pragma unroll
    for (int offset = GENERIC_LANES / 2; offset; offset >>= 1)
        newest = fmaxf(newest, __shfl_xor_sync(0xffffffffu, newest, offset));
    float shrink = weight_of(max, newest);
    max = newest;
    total *= shrink;
#pragma unroll
    for (int j = 0; j < GENERIC_SCORES; ++j) {
        float weight = weight_of(scores[j], max);
        total += weight;
        weights[lane + j * GENERIC_LANES] = weight;
    }
    return shrink;
}

__device__ __forceinline__ void attention_generic_block(const Attention& a) {
    extern __shared__ __align__(16) float memory[];
    Rows rows(a);
    int lane = threadIdx.x % GENERIC_LANES, local = threadIdx.x / GENERIC_LANES;
    int width = (a.head_dim + 31) / 32 * 32 + 4;
    GenericTile q{memory, width, lane, local}, tile{memory + GENERIC_ROWS * width, width, lane, local};
    float* weights = tile.memory + GENERIC_KEYS * width + local * GENERIC_WEIGHTS;
    int row = blockIdx.x * GENERIC_ROWS + local, query = min(row, rows.count - 1) / rows.group;
    int tiles = (a.keys + GENERIC_KEYS - 1) / GENERIC_KEYS, per_part = (tiles + a.parts - 1) / a.parts;
    int begin = blockIdx.z * per_part * GENERIC_KEYS, end = min(a.keys, begin + per_part * GENERIC_KEYS);
    release_successor();
    wait_for_predecessor();
    q.load(a.q, a.q_bf16, rows.offset(a, row, a.q_stride), row < rows.count, a.head_dim);

    Four sums[GENERIC_RUNS] = {};
    float max = -INFINITY, total = 0.0f;
    for (int key0 = begin; key0 < end; key0 += GENERIC_KEYS) {
        size_t offset = rows.kv_offset(a) + size_t(key0 + local) * a.kv_stride;
        bool valid = key0 + local < end;
        __syncthreads();
        tile.load(a.k, a.k_bf16, offset, valid, a.head_dim);
        __syncthreads();
        float scores[GENERIC_SCORES] = {};
        multiply_keys(scores, q, tile, a.head_dim);
#pragma unroll
        for (int j = 0; j < GENERIC_SCORES; ++j) {
            int key = key0 + lane + j * GENERIC_LANES;
            bool seen = key < end && (!a.key_valid || a.key_valid[key]) &&
                        (!a.mask || a.mask[size_t(query) * a.keys + key]);
            scores[j] = seen ? scores[j] * a.scale : -INFINITY;
        }
        float shrink = weigh(scores, max, total, weights, lane);
        __syncthreads();
        tile.load(a.v, a.v_bf16, offset, valid, a.head_dim);
        __syncthreads();
        multiply_values(sums, weights, shrink, tile, a.head_dim);
    }
#pragma unroll
    for (int offset = GENERIC_LANES / 2; offset; offset >>= 1) total += __shfl_xor_sync(0xffffffffu, total, offset);
    if (row >= rows.count) return;
    float scale = a.partial ? 1.0f : total > 0.0f ? 1.0f / total : 0.0f;
    size_t partial = rows.partial_row(a, row);
    void* target = a.partial ? a.partial : a.out;
    size_t at = a.partial ? partial * a.head_dim : rows.offset(a, row, a.out_stride);
#pragma unroll
    for (int i = 0; i < GENERIC_RUNS; ++i) {
        int d = 4 * lane + 32 * i;
        if (d >= a.head_dim) break;
#pragma unroll
        for (float& v : sums[i].v) v *= scale;
        store_some(target, !a.partial && a.out_bf16, at + d, sums[i], a.head_dim - d);
    }
    if (a.partial && lane == 0) {
        float* statistics = a.partial + size_t(a.parts) * rows.all(a) * a.head_dim + partial * 2;
        statistics[0] = max;
        statistics[1] = total;
    }
}

}  // namespace flashrt
