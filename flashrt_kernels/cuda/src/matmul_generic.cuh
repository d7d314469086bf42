// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// x [rows, k] · weight [n, k]ᵀ for operands of either type and any sizes, on the fp32 units: tiles for products of many
// outputs, dot products shared by a few lanes for small ones.
#pragma once

#include "finish.cuh"

namespace flashrt {

struct Operands {
    const void *x, *weight;
    int x_bf16, weight_bf16, k;
};

// Columns c … c+7 of row `row` of [rows, k]; zeros outside.
__device__ __forceinline__ void load_eight(
    float (&v)[8], const void* array, bool is_bf16, int row, int rows, int c, int k) {
    if (row < rows && c + 8 <= k) {
        size_t index = size_t(row) * k + c;
        Four a = load_four(array, is_bf16, index), b = load_four(array, is_bf16, index + 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = a.v[i], v[i + 4] = b.v[i];
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i] = row < rows && c + i < k ? load_as_float(array, is_bf16, size_t(row) * k + c + i) : 0.0f;
    }
}

// 256 threads; a block computes 16·ROWS × 128 outputs, a thread ROWS × 8. grid: (tiles of rows, tiles of n).
template <int ROWS> __device__ __forceinline__ void generic_tile(const Operands& o, int kind, const Epilogue& e) {
    constexpr int BLOCK_M = 16 * ROWS, BLOCK_N = 128, DEPTH = 16;
    __shared__ __align__(16) float x_tile[2][DEPTH][BLOCK_M + 4], weight_tile[2][DEPTH][BLOCK_N + 4];
    int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    int row0 = blockIdx.x * BLOCK_M, column0 = blockIdx.y * BLOCK_N;
    int load_row = threadIdx.x >> 1, load_column = (threadIdx.x & 1) * 8;
    bool loads_x = load_row < BLOCK_M;
    // Weight rows lie so that a thread's first four are at 4·tx and its second four at 64 + 4·tx, pairs included.
    int item = kind == PLAIN ? load_row >> 3 : (load_row >> 4) * 2 + ((load_row >> 2) & 1);
    int half = kind == PLAIN ? (load_row >> 2) & 1 : (load_row >> 3) & 1;
    int weight_place = half * 64 + item * 4 + (load_row & 3);

    float x_next[8], weight_next[8], sums[ROWS][8] = {};
    auto fetch_weight = [&](int c) {
        load_eight(weight_next, o.weight, o.weight_bf16, column0 + load_row, e.n, c + load_column, o.k);
    };
    auto fetch_x = [&](int c) {
        if (loads_x) load_eight(x_next, o.x, o.x_bf16, row0 + load_row, e.rows, c + load_column, o.k);
    };
    fetch_weight(0);
    wait_for_predecessor();
    release_successor();
    fetch_x(0);
    for (int c = 0, buffer = 0; c < o.k; c += DEPTH, buffer ^= 1) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (loads_x) x_tile[buffer][load_column + i][load_row] = x_next[i];
            weight_tile[buffer][load_column + i][weight_place] = weight_next[i];
        }
        __syncthreads();
        if (c + DEPTH < o.k) fetch_weight(c + DEPTH), fetch_x(c + DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float a[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) a[i] = x_tile[buffer][d][ty * ROWS + i];
            Four b[2] = {load_aligned_four(&weight_tile[buffer][d][4 * tx], false, 0),
                         load_aligned_four(&weight_tile[buffer][d][64 + 4 * tx], false, 0)};
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(a[i], b[j >> 2].v[j & 3], sums[i][j]);
        }
    }
    with_finisher(e, kind, columns_of(kind, column0 / 8 + tx), [&](const auto& finisher) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            int row = row0 + ty * ROWS + i;
            Eight x;
#pragma unroll
            for (int j = 0; j < 4; ++j) x.first.v[j] = sums[i][j], x.second.v[j] = sums[i][j + 4];
            finisher.store(row, x, finisher.load(row));
        }
    });
}

// Eight elements in 16-byte pieces.
__device__ __forceinline__ void load_aligned(float (&v)[8], const bf16* p) {
    uint4 raw = *reinterpret_cast<const uint4*>(p);
    const uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        v[2 * i] = __uint_as_float(pairs[i] << 16);
        v[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}
__device__ __forceinline__ void load_aligned(float (&v)[8], const float* p) {
    float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

// This lane's share of the products of a row of x with eight rows of the weight; k is a multiple of 8.
template <int LANES, typename X, typename W> __device__ __forceinline__ void dot_aligned(
    float (&sums)[8], const Operands& o, int lane, int row, const int (&outputs)[8]) {
    const X* x = static_cast<const X*>(o.x) + size_t(row) * o.k;
    const W* weight = static_cast<const W*>(o.weight);
#pragma unroll 2
    for (int c = lane * 8; c < o.k; c += LANES * 8) {
        float a[8], w[8][8];
        load_aligned(a, x + c);
#pragma unroll
        for (int j = 0; j < 8; ++j) load_aligned(w[j], weight + size_t(outputs[j]) * o.k + c);
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[j] = fmaf(a[i], w[j][i], sums[j]);
    }
}

// 128 threads; LANES lanes share the dot products of one row with 8 outputs. grid: (ceil(rows · ceil(n/8) · LANES / 128)).
template <int LANES> __device__ __forceinline__ void generic_dot(const Operands& o, int kind, const Epilogue& e) {
    release_successor();
    wait_for_predecessor();
    int items = (e.n + 15) / 16 * 2;
    int index = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    int row = index / items, item = index - row * items;
    Columns columns = columns_of(kind, item);
    float sums[8] = {};
    int outputs[8];  // those beyond the last are never stored
#pragma unroll
    for (int j = 0; j < 8; ++j) outputs[j] = min((j < 4 ? columns.first : columns.second - 4) + j, e.n - 1);
    if (row < e.rows && o.k % 8 == 0) {
        switch (2 * o.x_bf16 + o.weight_bf16) {
            case 0: dot_aligned<LANES, float, float>(sums, o, lane, row, outputs); break;
            case 1: dot_aligned<LANES, float, bf16>(sums, o, lane, row, outputs); break;
            case 2: dot_aligned<LANES, bf16, float>(sums, o, lane, row, outputs); break;
            default: dot_aligned<LANES, bf16, bf16>(sums, o, lane, row, outputs);
        }
    } else if (row < e.rows) {
        for (int c = lane; c < o.k; c += LANES) {
            float x = load_as_float(o.x, o.x_bf16, size_t(row) * o.k + c);
#pragma unroll
            for (int j = 0; j < 8; ++j)
                sums[j] = fmaf(x, load_as_float(o.weight, o.weight_bf16, size_t(outputs[j]) * o.k + c), sums[j]);
        }
    }
    Eight x;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int offset = LANES / 2; offset; offset >>= 1) sums[j] += __shfl_xor_sync(0xffffffffu, sums[j], offset);
        (j < 4 ? x.first : x.second).v[j & 3] = sums[j];
    }
    if (lane == 0)
        with_finisher(e, kind, columns, [&](const auto& finisher) { finisher.store(row, x, finisher.load(row)); });
}

}  // namespace flashrt
