// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Epilogues of epilogue.cuh on the accumulators of wgmma: 64 rows × 8·BLOCKS columns in the registers of one
// warpgroup, straight to global memory. fp32 goes out as float2 (four neighbouring lanes fill a 32-byte
// sector); bf16 is exchanged among four lanes first, so that each stores 16 bytes and the four 64 in a row.
//
// What is only added (a bias, a residual without activation or gate) is what the accumulators start with: it
// is fetched while the first stages are on their way. The loops over portions of the tile stay loops:
// unrolled, the code is run once and comes from memory each time, which takes longer than the products of a
// small tile.
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

// x[0 … COUNT-1] = d[COUNT·portion …], zero behind the end: a branch instead of an index, which registers
// don't have.
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

__device__ __forceinline__ float2 load_two(const float* p) { return *reinterpret_cast<const float2*>(p); }
__device__ __forceinline__ uint32_t load_two(const bf16* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ __forceinline__ float2 as_floats(float2 v) { return v; }
__device__ __forceinline__ float2 as_floats(uint32_t v) {
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}

// Stores COUNT blocks of two rows: x as wgmma leaves them, block b at columns first + 8b, those before `end`.
template <int COUNT>
__device__ __forceinline__ void store_rows(void* out, bool is_bf16, int width, int first, int end,
                                           const float* x, const Place& at) {
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

// 0.5·x·(1 + tanh(u)) with the tanh of the special function unit: off by 5e-4 of |x| / 2, a quarter of what
// rounding to bf16 does; one special operation where the exact one takes two, which they are bound by.
__device__ __forceinline__ float rough_gelu_tanh(float x) {
    float t, half = 0.5f * x;
    float u = x * fmaf(0.7978845608028654f * 0.044715f, x * x, 0.7978845608028654f);
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(u));
    return fmaf(half, t, half);
}
template <int COUNT> __device__ __forceinline__ void activate_all(float (&x)[COUNT], int code, bool rough) {
    if (code == NONE) return;
    if (code == GELU_TANH && rough) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = rough_gelu_tanh(x[i]);
    } else if (code == GELU_TANH) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = gelu_tanh(x[i]);
    } else if (code == GELU_ERF) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = gelu_erf(x[i]);
    } else if (code == RELU) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = relu(x[i]);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) x[i] = silu(x[i]);
    }
}

// ---- PLAIN: residual + gate · activation(d + bias) ----

// x += COUNT blocks of a residual from column `first` on; all loads before the first sum.
template <int COUNT, typename E>
__device__ __forceinline__ void add_residual(const E* residual, int n, float (&x)[4 * COUNT], int first,
                                             const Place& at) {
    using Two = decltype(load_two(residual));
    Two v[2 * COUNT];
    const E* p = residual + size_t(at.row) * n + first + 2 * at.q;
#pragma unroll
    for (int i = 0; i < 2 * COUNT; ++i) {
        bool inside = at.row + 8 * (i & 1) < at.rows && first + BLOCK * (i >> 1) < n;
        v[i] = inside ? load_two(p + (i & 1 ? size_t(8) * n : 0) + BLOCK * (i >> 1)) : Two{};
    }
#pragma unroll
    for (int i = 0; i < 2 * COUNT; ++i) {
        float2 f = as_floats(v[i]);
        x[2 * i] += f.x, x[2 * i + 1] += f.y;
    }
}
template <int COUNT>
__device__ __forceinline__ void add_residual(const Epilogue& e, float (&x)[4 * COUNT], int first,
                                             const Place& at) {
    if (e.residual_bf16) add_residual<COUNT>(static_cast<const bf16*>(e.residual), e.n, x, first, at);
    else add_residual<COUNT>(static_cast<const float*>(e.residual), e.n, x, first, at);
}
// Values of the columns of COUNT blocks; zero behind the last.
template <int COUNT>
__device__ __forceinline__ void load_columns(const float* p, float2 (&v)[COUNT], int first, int n,
                                             const Place& at) {
#pragma unroll
    for (int b = 0; b < COUNT; ++b)
        v[b] = first + BLOCK * b < n ? load_two(p + first + 2 * at.q + BLOCK * b) : make_float2(0.0f, 0.0f);
}

__device__ __forceinline__ bool residual_comes_late(const Epilogue& e) {
    return e.residual && (e.gate || e.activation != NONE);
}

// What the accumulators start with. `staged`: the residual is fetched by others.
template <int KIND, int BLOCKS>
__device__ __forceinline__ void start_tile(const Epilogue& e, float (&d)[4 * BLOCKS], const Place& at,
                                           bool staged) {
#pragma unroll
    for (int i = 0; i < 4 * BLOCKS; ++i) d[i] = 0.0f;
    if constexpr (KIND == PLAIN) {
        if (e.bias) {
            float2 v[BLOCKS];
            load_columns(e.bias, v, at.column, e.n, at);
#pragma unroll
            for (int i = 0; i < 4 * BLOCKS; ++i) d[i] = i & 1 ? v[i / 4].y : v[i / 4].x;
        }
        if (e.residual && !staged && !residual_comes_late(e)) add_residual<BLOCKS>(e, d, at.column, at);
    }
}

template <int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_plain(const Epilogue& e, const float (&d)[4 * BLOCKS],
                                             const Place& at) {
    int end = min(e.n, at.column + BLOCK * BLOCKS);
    bool late = residual_comes_late(e);
#pragma unroll 1
    for (int portion = 0; portion * COUNT < BLOCKS; ++portion) {
        float x[4 * COUNT];
        int first = at.column + BLOCK * COUNT * portion;
        take_portion(d, x, portion);
        activate_all(x, e.activation, e.out_bf16);
        if (e.gate) {
            float2 v[COUNT];
            load_columns(e.gate, v, first, e.n, at);
#pragma unroll
            for (int i = 0; i < 4 * COUNT; ++i) x[i] *= i & 1 ? v[i / 4].y : v[i / 4].x;
        }
        if (late) add_residual<COUNT>(e, x, first, at);
        store_rows<COUNT>(e.out, e.out_bf16, e.n, first, end, x, at);
    }
}

// ---- GELU_MUL, SILU_MUL: activation(gate) · up, pairs of blocks ----

template <int KIND, int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_gated(const Epilogue& e, const float (&d)[4 * BLOCKS],
                                             const Place& at) {
    int width = e.n >> 1, end = min(width, (at.column + BLOCK * BLOCKS) >> 1);
#pragma unroll 1
    for (int portion = 0; portion * COUNT * 2 < BLOCKS; ++portion) {
        float both[8 * COUNT], x[4 * COUNT];
        take_portion(d, both, portion);
#pragma unroll
        for (int i = 0; i < 4 * COUNT; ++i) x[i] = both[i / 4 * 8 + i % 4];
        activate_all(x, KIND == GELU_MUL ? GELU_TANH : SILU, e.out_bf16);
#pragma unroll
        for (int i = 0; i < 4 * COUNT; ++i) x[i] *= both[i / 4 * 8 + i % 4 + 4];
        store_rows<COUNT>(e.out, e.out_bf16, width, (at.column >> 1) + BLOCK * COUNT * portion, end, x, at);
    }
}

// ---- ROPE_QKV: rotation and split into q, k, v; pairs of blocks ----

// rope_target of epilogue.cuh for a column that only moves forward: one division, when it starts.
struct RopeColumn {
    int head, within;  // first output of the head, and how far in it (a multiple of 16)

    __device__ __forceinline__ RopeColumn(const Epilogue& e, int column) {
        int number = column / e.head_dim;
        head = number * e.head_dim, within = column - head;
    }
    // To the next pair of blocks.
    __device__ __forceinline__ void advance(const Epilogue& e) {
        within += 2 * BLOCK;
        if (within == e.head_dim) within = 0, head += e.head_dim;
    }
    __device__ __forceinline__ bool turns(const Epilogue& e) const { return head < e.q_width + e.kv_width; }
    // Of the pair's first block.
    __device__ __forceinline__ RopeTarget target(const Epilogue& e) const {
        RopeTarget t;
        int from_k = head - e.q_width;
        t.angle = within >> 1;
        t.out = from_k < 0 ? e.out : from_k < e.kv_width ? e.k_out : e.v_out;
        t.width = from_k < 0 ? e.q_width : e.kv_width;
        t.first = from_k < 0            ? head + t.angle
                  : from_k < e.kv_width ? from_k + t.angle
                                        : from_k - e.kv_width + within;
        t.second = t.first + (turns(e) ? e.head_dim >> 1 : BLOCK);
        return t;
    }
};

// Angles of COUNT pairs of blocks; v is not turned.
template <int COUNT> struct Angles {
    float2 cos[2 * COUNT], sin[2 * COUNT];  // of pair i/2, row i%2

    __device__ __forceinline__ void load(const Epilogue& e, int column, const Place& at) {
        RopeColumn place(e, column);
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) {
            int row = at.row + 8 * (i & 1);
            bool inside = row < at.rows && column + 2 * BLOCK * (i >> 1) < e.n && place.turns(e);
            const float* line = e.table + size_t(row) * e.head_dim + (place.within >> 1) + 2 * at.q;
            cos[i] = inside ? load_two(line) : make_float2(1.0f, 1.0f);
            sin[i] = inside ? load_two(line + (e.head_dim >> 1)) : make_float2(0.0f, 0.0f);
            if (i & 1) place.advance(e);
        }
    }
    __device__ __forceinline__ void turn(float* x) const {
#pragma unroll
        for (int i = 0; i < 4 * COUNT; ++i) {  // pair i/4, row i/2%2, column i%2
            int first = i / 4 * 8 + i % 4;
            float c = i & 1 ? cos[i / 2].y : cos[i / 2].x, s = i & 1 ? sin[i / 2].y : sin[i / 2].x;
            float a = x[first], b = x[first + 4];
            x[first] = a * c - b * s;
            x[first + 4] = b * c + a * s;
        }
    }
};

// Four pairs of blocks to where q, k and v lie, in fp32.
__device__ __forceinline__ void store_pairs(const Epilogue& e, const float (&x)[32], int column, int end,
                                            const Place& at) {
    RopeColumn place(e, column);
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // pair i/2, row i%2
        int row = at.row + 8 * (i & 1), from = 8 * (i / 2) + 2 * (i & 1);
        RopeTarget t = place.target(e);
        if (row < at.rows && column + 2 * BLOCK * (i / 2) < end && t.out) {
            size_t line = size_t(row) * t.width + 2 * at.q;
            store_two(t.out, false, line + t.first, x[from], x[from + 1]);
            store_two(t.out, false, line + t.second, x[from + 4], x[from + 5]);
        }
        if (i & 1) place.advance(e);
    }
}

template <int BLOCKS>
__device__ __forceinline__ void finish_rope(const Epilogue& e, const float (&d)[4 * BLOCKS],
                                            const Place& at) {
    int end = min(e.n, at.column + BLOCK * BLOCKS);
#pragma unroll 1
    for (int portion = 0; portion * 8 < BLOCKS; ++portion) {
        float x[32];
        int column = at.column + 8 * BLOCK * portion;
        Angles<4> angles;
        angles.load(e, column, at);
        take_portion(d, x, portion);
        angles.turn(x);
        store_pairs(e, x, column, end, at);
    }
}

// A tile of BLOCKS blocks, COUNT at a time.
template <int KIND, int BLOCKS, int COUNT>
__device__ __forceinline__ void finish_tile(const Epilogue& e, const float (&d)[4 * BLOCKS],
                                            const Place& at) {
    if constexpr (KIND == PLAIN) finish_plain<BLOCKS, COUNT>(e, d, at);
    else if constexpr (is_gated(KIND)) finish_gated<KIND, BLOCKS, 4>(e, d, at);
    else finish_rope<BLOCKS>(e, d, at);
}

}  // namespace flashrt
