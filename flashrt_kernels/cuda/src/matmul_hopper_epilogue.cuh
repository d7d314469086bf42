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

// x[0 … COUNT-1] = d[COUNT·portion …], zero behind the end: a branch instead of an index, which registers don't have.
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

// What the epilogue of a kind reads for one portion of the tile.
template <int KIND, int COUNT> struct Operands {
    __device__ __forceinline__ void load(const Epilogue&, int, const Place&) {}
};

// COUNT blocks of PLAIN; zero outside of the product.
template <int COUNT> struct Operands<PLAIN, COUNT> {
    float2 residual[2 * COUNT], bias[COUNT], gate[COUNT];

    __device__ __forceinline__ void load(const Epilogue& e, int first, const Place& at) {
        const float2 zero = make_float2(0.0f, 0.0f);
        if (e.residual) {
#pragma unroll
            for (int i = 0; i < 2 * COUNT; ++i) {
                int row = at.row + 8 * (i & 1), column = first + BLOCK * (i >> 1) + 2 * at.q;
                bool inside = row < at.rows && column < e.n;
                residual[i] = inside ? load_two(e.residual, e.residual_bf16, size_t(row) * e.n + column) : zero;
            }
        }
        if (e.bias) load_columns(e.bias, bias, first, e.n, at);
        if (e.gate) load_columns(e.gate, gate, first, e.n, at);
    }
    __device__ __forceinline__ static void load_columns(const float* p, float2 (&v)[COUNT], int first, int n,
                                                        const Place& at) {
#pragma unroll
        for (int b = 0; b < COUNT; ++b) {
            int column = first + BLOCK * b + 2 * at.q;
            v[b] = column < n ? load_two(p, false, column) : make_float2(0.0f, 0.0f);
        }
    }
};

// Angles of four pairs of blocks; v is not turned.
template <int COUNT> struct Operands<ROPE_QKV, COUNT> {
    float2 cos[8], sin[8];  // of pair i/2, row i%2

    __device__ __forceinline__ void load(const Epilogue& e, int first, const Place& at) {
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            int column = first + 2 * BLOCK * b + 2 * at.q;
            int angle = rope_target(e, column).angle;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int i = 2 * b + half, row = at.row + 8 * half;
                cos[i] = make_float2(1.0f, 1.0f), sin[i] = make_float2(0.0f, 0.0f);
                if (row < at.rows && column < e.n && angle >= 0) {
                    const float* line = e.table + size_t(row) * e.head_dim + angle;
                    cos[i] = load_two(line, false, 0), sin[i] = load_two(line, false, e.head_dim >> 1);
                }
            }
        }
    }
};

// residual + gate · activation(d + bias). `operands`: the first portion's; those of the next are under way while one
// is finished.
template <int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_plain(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at,
                                             Operands<PLAIN, COUNT>& operands) {
    int end = min(e.n, at.column + BLOCK * BLOCKS);
#pragma unroll 1
    for (int portion = 0; portion * COUNT < BLOCKS; ++portion) {
        float x[4 * COUNT];
        int first = at.column + BLOCK * COUNT * portion;
        take_portion(d, x, portion);
        if (e.bias) {
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] += i & 1 ? operands.bias[i / 4].y : operands.bias[i / 4].x;
        }
        activate_all(x, e.activation);
        if (e.gate) {
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] *= i & 1 ? operands.gate[i / 4].y : operands.gate[i / 4].x;
        }
        if (e.residual) {
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] += i & 1 ? operands.residual[i / 2].y : operands.residual[i / 2].x;
        }
        if ((portion + 1) * COUNT < BLOCKS) operands.load(e, first + BLOCK * COUNT, at);
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

// Four pairs of blocks to where q, k and v lie; each lane stores the blocks of one pair.
__device__ __forceinline__ void store_pairs(const Epilogue& e, const float (&x)[32], int column, int end, const Place& at) {
    int first = column + 2 * BLOCK * at.q;
    RopeTarget t = rope_target(e, first);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] = pack_bf16(x[8 * i + 2 * half], x[8 * i + 2 * half + 1]);
            b[i] = pack_bf16(x[8 * i + 2 * half + 4], x[8 * i + 2 * half + 5]);
        }
        uint4 firsts = transpose_four(a, at.q), seconds = transpose_four(b, at.q);
        int row = at.row + 8 * half;
        if (row >= at.rows || first >= end || !t.out) continue;
        bf16* line = static_cast<bf16*>(t.out) + size_t(row) * t.width;
        *reinterpret_cast<uint4*>(line + t.first) = firsts;
        *reinterpret_cast<uint4*>(line + t.second) = seconds;
    }
}
__device__ __forceinline__ void store_pairs_fp32(const Epilogue& e, const float (&x)[32], int column, int end,
                                                 const Place& at) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // pair i/2, row i%2
        int first = column + 2 * BLOCK * (i / 2) + 2 * at.q, row = at.row + 8 * (i & 1), from = 8 * (i / 2) + 2 * (i & 1);
        RopeTarget t = rope_target(e, first);
        if (row >= at.rows || first >= end || !t.out) continue;
        store_two(t.out, false, size_t(row) * t.width + t.first, x[from], x[from + 1]);
        store_two(t.out, false, size_t(row) * t.width + t.second, x[from + 4], x[from + 5]);
    }
}

// Rotation and split into q, k, v: pairs of blocks, four of them at a time.
template <int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_rope(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at,
                                            Operands<ROPE_QKV, COUNT>& operands) {
    int end = min(e.n, at.column + BLOCK * BLOCKS);
#pragma unroll 1
    for (int portion = 0; portion * 8 < BLOCKS; ++portion) {
        float x[32];
        int column = at.column + 8 * BLOCK * portion;
        take_portion(d, x, portion);
#pragma unroll
        for (int i = 0; i < 16; ++i) {  // pair i/4, row i/2%2, column i%2
            int first = i / 4 * 8 + i % 4;
            float cos = i & 1 ? operands.cos[i / 2].y : operands.cos[i / 2].x;
            float sin = i & 1 ? operands.sin[i / 2].y : operands.sin[i / 2].x;
            float a = x[first], b = x[first + 4];
            x[first] = a * cos - b * sin;
            x[first + 4] = b * cos + a * sin;
        }
        if ((portion + 1) * 8 < BLOCKS) operands.load(e, column + 8 * BLOCK, at);
        if (e.out_bf16) store_pairs(e, x, column, end, at);
        else store_pairs_fp32(e, x, column, end, at);
    }
}

// A tile of BLOCKS blocks, COUNT at a time.
template <int KIND, int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_tile(const Epilogue& e, const float (&d)[4 * BLOCKS], const Place& at,
                                            Operands<KIND, COUNT>& operands) {
    if constexpr (KIND == PLAIN) finish_plain<BLOCKS, COUNT>(e, d, at, operands);
    else if constexpr (KIND == GELU_MUL) finish_gelu_mul<BLOCKS, 4>(e, d, at);
    else finish_rope<BLOCKS, COUNT>(e, d, at, operands);
}

}  // namespace flashrt
