// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Epilogues of epilogue.cuh on the accumulators of wgmma: 64 rows × 8·BLOCKS columns in the registers of one
// warpgroup, straight to global memory. fp32 goes out as float2 (four neighbouring lanes fill a 32-byte sector);
// bf16 is exchanged among four lanes first, so that each stores 16 bytes and the four 64 in a row.
//
// The loops over portions of the tile stay loops: unrolled, the code is run once and comes from memory each time,
// which takes longer than the products of a small tile.
#pragma once

#include "epilogue.cuh"

namespace flashrt {

constexpr int BLOCK = 8;  // columns: what four neighbouring lanes hold of one row

// What one thread holds of the tile.
struct Place {
    int row;     // of d[4i], d[4i+1]; d[4i+2], d[4i+3] are 8 rows below
    int column;  // first of the tile, not of the thread
    int q;       // lane within four: columns 8i + 2q and the next
    int rows;    // of the whole product
};

// x[0 … COUNT-1] = d[COUNT·portion …], zero behind the end: a branch instead of an index, which registers don't
// have.
template <int COUNT, int SIZE, int PORTION = 0>
__device__ __forceinline__ void take_portion(const float (&d)[SIZE], float (&x)[COUNT], int portion) {
    if (portion == PORTION) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = COUNT * PORTION + i < SIZE ? d[COUNT * PORTION + i] : 0.0f;
    } else if constexpr (COUNT * (PORTION + 1) < SIZE) {
        take_portion<COUNT, SIZE, PORTION + 1>(d, x, portion);
    }
}

// Lane q of four holds word q of four blocks; afterwards it holds the four words of block q.
__device__ __forceinline__ uint4 transpose_four(const uint32_t* from, int q) {
    uint32_t w[4] = {from[0], from[1], from[2], from[3]};
    bool odd = q & 1, high = q & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i];
        w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + 2], 2);
        w[i] = high ? got : w[i];
        w[i + 2] = high ? w[i + 2] : got;
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

__device__ __forceinline__ float2 load_two(const void* p, bool is_bf16, size_t index) {
    if (!is_bf16) return *reinterpret_cast<const float2*>(static_cast<const float*>(p) + index);
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(static_cast<const bf16*>(p) + index));
}

// Stores COUNT blocks of two rows: x as wgmma leaves them, block b at columns first + 8b, those before `end`.
template <int COUNT>
__device__ __forceinline__ void store_rows(void* out, bool is_bf16, int width, int first, int end, const float* x,
                                           const Place& at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int row = at.row + 8 * half;
        bool inside = row < at.rows;
        size_t line = size_t(row) * width + first;
        if (is_bf16) {
#pragma unroll
            for (int b = 0; b < COUNT; b += 4) {
                uint32_t words[4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    words[i] = pack_bf16(x[4 * (b + i) + 2 * half], x[4 * (b + i) + 2 * half + 1]);
                uint4 w = transpose_four(words, at.q);
                if (inside && first + BLOCK * (b + at.q) < end)
                    *reinterpret_cast<uint4*>(static_cast<bf16*>(out) + line + BLOCK * (b + at.q)) = w;
            }
        } else {
#pragma unroll
            for (int b = 0; b < COUNT; ++b) {
                if (inside && first + BLOCK * b < end)
                    *reinterpret_cast<float2*>(static_cast<float*>(out) + line + BLOCK * b + 2 * at.q) =
                        make_float2(x[4 * b + 2 * half], x[4 * b + 2 * half + 1]);
            }
        }
    }
}

// As gelu_tanh, with a division that is one step short of correctly rounded and has no slow path.
__device__ __forceinline__ float quick_gelu_tanh(float x) {
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.0f + __expf(-2.0f * u));
}
template <int COUNT> __device__ __forceinline__ void activate_all(float (&x)[COUNT], int code) {
    if (code == GELU_TANH) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = quick_gelu_tanh(x[i]);
    } else if (code != NONE) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = activate(x[i], code);
    }
}

// Residuals of COUNT blocks, as they belong to x; zero outside.
template <int COUNT>
__device__ __forceinline__ void load_residual(const Epilogue& e, float2 (&left)[2 * COUNT], int first, const Place& at) {
#pragma unroll
    for (int i = 0; i < 2 * COUNT; ++i) {
        int row = at.row + 8 * (i & 1), column = first + BLOCK * (i >> 1) + 2 * at.q;
        left[i] = row < at.rows && column < e.n ? load_two(e.residual, e.residual_bf16, size_t(row) * e.n + column)
                                                : make_float2(0.0f, 0.0f);
    }
}

template <int COUNT>
__device__ __forceinline__ void load_columns(const float* p, float2 (&v)[COUNT], int first, int n, const Place& at) {
#pragma unroll
    for (int b = 0; b < COUNT; ++b) {
        int column = first + BLOCK * b + 2 * at.q;
        v[b] = column < n ? load_two(p, false, column) : make_float2(0.0f, 0.0f);
    }
}

// residual + gate · activation(d + bias); the next portion's residuals are under way while this one is finished.
template <int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_plain(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at) {
    float2 left[2 * COUNT], column[COUNT];
    int end = min(e.n, at.column + BLOCK * BLOCKS);
    if (e.residual) load_residual<COUNT>(e, left, at.column, at);
#pragma unroll 1
    for (int portion = 0; portion * COUNT < BLOCKS; ++portion) {
        float x[4 * COUNT];
        int first = at.column + BLOCK * COUNT * portion;
        take_portion(d, x, portion);
        if (e.bias) {
            load_columns(e.bias, column, first, e.n, at);
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] += i & 1 ? column[i / 4].y : column[i / 4].x;
        }
        activate_all(x, e.activation);
        if (e.gate) {
            load_columns(e.gate, column, first, e.n, at);
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] *= i & 1 ? column[i / 4].y : column[i / 4].x;
        }
        if (e.residual) {
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] += i & 1 ? left[i / 2].y : left[i / 2].x;
            if ((portion + 1) * COUNT < BLOCKS) load_residual<COUNT>(e, left, first + BLOCK * COUNT, at);
        }
        store_rows<COUNT>(e.out, e.out_bf16, e.n, first, end, x, at);
    }
}

// gelu_tanh(gate) · up: pairs of blocks.
template <int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_gelu_mul(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at) {
    int width = e.n >> 1, end = min(width, (at.column + BLOCK * BLOCKS) >> 1);
#pragma unroll 1
    for (int portion = 0; portion * COUNT * 2 < BLOCKS; ++portion) {
        float both[8 * COUNT], x[4 * COUNT];
        take_portion(d, both, portion);
#pragma unroll
        for (int i = 0; i < 4 * COUNT; ++i) {
            int gate = i / 4 * 8 + i % 4;
            x[i] = quick_gelu_tanh(both[gate]) * both[gate + 4];
        }
        store_rows<COUNT>(e.out, e.out_bf16, width, (at.column >> 1) + BLOCK * COUNT * portion, end, x, at);
    }
}

// Rotation and split into q, k, v: pairs of blocks, four of them at a time.
template <int BLOCKS>
__device__ __forceinline__ void finish_rope(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at) {
    int end = min(e.n, at.column + BLOCK * BLOCKS);
#pragma unroll 1
    for (int portion = 0; portion * 8 < BLOCKS; ++portion) {
        float x[32];
        int column = at.column + 8 * BLOCK * portion;
        take_portion(d, x, portion);
        uint32_t words[2][2][4];  // of row, of first or second, of pair
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            int first = column + 2 * BLOCK * b;
            RopeTarget t = rope_target(e, first + 2 * at.q);
            bool stored = first < end && t.out;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int row = at.row + 8 * half;
                bool inside = row < at.rows && stored;
                float2 a = make_float2(x[8 * b + 2 * half], x[8 * b + 2 * half + 1]);
                float2 c = make_float2(x[8 * b + 2 * half + 4], x[8 * b + 2 * half + 5]);
                if (inside && t.angle >= 0) {
                    const float* line = e.table + size_t(row) * e.head_dim + t.angle;
                    float2 cos = load_two(line, false, 0), sin = load_two(line, false, e.head_dim >> 1);
                    float2 turned = make_float2(a.x * cos.x - c.x * sin.x, a.y * cos.y - c.y * sin.y);
                    c = make_float2(c.x * cos.x + a.x * sin.x, c.y * cos.y + a.y * sin.y);
                    a = turned;
                }
                words[half][0][b] = pack_bf16(a.x, a.y);
                words[half][1][b] = pack_bf16(c.x, c.y);
                if (inside && !e.out_bf16) {
                    store_two(t.out, false, size_t(row) * t.width + t.first, a.x, a.y);
                    store_two(t.out, false, size_t(row) * t.width + t.second, c.x, c.y);
                }
            }
        }
        if (!e.out_bf16) continue;
        int first = column + 2 * BLOCK * at.q;  // of the pair that this lane stores
        RopeTarget t = rope_target(e, first);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint4 a = transpose_four(words[half][0], at.q), c = transpose_four(words[half][1], at.q);
            int row = at.row + 8 * half;
            if (row >= at.rows || first >= end || !t.out) continue;
            bf16* line = static_cast<bf16*>(t.out) + size_t(row) * t.width;
            *reinterpret_cast<uint4*>(line + t.first) = a;
            *reinterpret_cast<uint4*>(line + t.second) = c;
        }
    }
}

// A tile of BLOCKS blocks, COUNT at a time.
template <int KIND, int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_tile(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at) {
    if constexpr (KIND == PLAIN) finish_plain<BLOCKS, COUNT>(e, d, at);
    else if constexpr (KIND == GELU_MUL) finish_gelu_mul<BLOCKS, 4>(e, d, at);
    else finish_rope<BLOCKS>(e, d, at);
}

}  // namespace flashrt
