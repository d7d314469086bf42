// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Epilogues that go through shared memory: each warp puts its 16 rows there and writes them out in whole
// lines. From registers every store touches 8 rows, and bringing 16 bytes of bf16 together takes shuffles: 3
// µs for a tile of 128 × 208, where this takes 1. Straight-line code, but little of it.
#pragma once

#include "matmul_hopper_epilogue.cuh"
#include "matmul_hopper_ring.cuh"

namespace flashrt {

// Whether this epilogue is one of those below: those of the models are.
template <int KIND, typename T> __device__ __forceinline__ bool goes_staged(const Epilogue& e) {
    if constexpr (T::SPLIT > 1) return false;
    if constexpr (KIND != PLAIN) return e.out_bf16;
    if (e.gate) return false;
    if (e.out_bf16) return !e.residual && (e.activation == NONE || e.activation == GELU_TANH);
    return T::STAGED_FP32 && e.activation == NONE && !(e.residual && e.residual_bf16);
}

// What is fetched while the first of the products run, in PARTS, one a step: at once it would keep the
// warpgroup from starting them.
template <int KIND, int PAIRS> struct Ahead {
    static constexpr int PARTS = 1;
    __device__ __forceinline__ void start(const Epilogue&, const Place&) {}
    template <int PART> __device__ __forceinline__ void load(const Epilogue&, const Place&) {}
};
template <int PAIRS> struct Ahead<ROPE_QKV, PAIRS> {
    static constexpr int BLOCKS = 2 * PAIRS, AT_ONCE = 32 / BLOCKS;  // rows
    static constexpr int PARTS = PAIRS / 2;
    static_assert(BLOCKS <= 32 && 16 % AT_ONCE == 0, "a lane for each block of as many rows");
    static_assert(PAIRS % 2 == 0, "two pairs a part");
    Angles<2> angles[PARTS];
    bf16* out;  // where the block that this lane writes has its first row; null: nowhere
    int width;  // of a row there

    __device__ __forceinline__ void start(const Epilogue& e, const Place& at) {
        int lane = threadIdx.x & 31, block = lane % BLOCKS, column = at.column + 2 * BLOCK * (block >> 1);
        RopeTarget t = RopeColumn(e, column).target(e);
        size_t first = at.row - (lane >> 2) + lane / BLOCKS;
        out = static_cast<bf16*>(t.out) + first * t.width + (block & 1 ? t.second : t.first);
        width = t.width;
        if (lane >= BLOCKS * AT_ONCE || column >= e.n || !t.out) out = nullptr;
    }
    template <int PART> __device__ __forceinline__ void load(const Epilogue& e, const Place& at) {
        angles[PART].load(e, at.column + 4 * BLOCK * PART, at);
    }
    __device__ __forceinline__ void turn(float (&d)[8 * PAIRS]) const {
#pragma unroll
        for (int i = 0; i < PARTS; ++i) angles[i].turn(d + 16 * i);
    }
};

// Copies this block's tile of an fp32 residual to where the results will wait; `thread`: of HELPERS.
template <int KIND, typename T>
__device__ __forceinline__ void fetch_residual(const Ring<T>& ring, const Work& w, const Epilogue& e,
                                               int thread) {
    if constexpr (KIND == PLAIN && T::STAGED_FP32) {
        if (!goes_staged<KIND, T>(e) || !e.residual) return;
        constexpr int CHUNKS = T::BN / 4;  // of 16 bytes in a row
        int group = w.cluster / w.row_groups, column = group * T::BN;
        int row = ((w.cluster - group * w.row_groups) * T::SHARE + w.share) * T::BM;
        const float* from = static_cast<const float*>(e.residual) + size_t(row) * e.n + column;
        wait_for_predecessor();
#pragma unroll 4
        for (int i = thread; i < T::BM * CHUNKS; i += HELPERS) {
            int r = i / CHUNKS, c = i % CHUNKS;
            if (row + r < e.rows && column + 4 * c < e.n)
                fetch16(ring.staging() + r * T::PITCH_FP32 + 16 * c, from + size_t(r) * e.n + 4 * c);
        }
        fetched(ring.residual_here());
    }
}

// BLOCKS blocks of the warp's 16 rows as bf16; `to`: the first of the rows.
template <int BLOCKS> __device__ __forceinline__ void stage_bf16(uint32_t to, const float (&x)[4 * BLOCKS]) {
    static_assert(BLOCKS % 2 == 0, "two blocks of two rows are four matrices");
    int lane = threadIdx.x & 31;
    to += (lane & 15) * (BLOCKS * 16 + 16) + (lane >> 4) * 16;
#pragma unroll
    for (int b = 0; b < BLOCKS; b += 2)
        store_matrices(to + 16 * b, pack_bf16(x[4 * b], x[4 * b + 1]), pack_bf16(x[4 * b + 2], x[4 * b + 3]),
                       pack_bf16(x[4 * b + 4], x[4 * b + 5]), pack_bf16(x[4 * b + 6], x[4 * b + 7]));
}

// Writes 16 rows of CHUNKS times 16 bytes to global memory, those of them that belong to the product.
template <int CHUNKS, int PITCH>
__device__ __forceinline__ void write_rows(uint32_t from, char* to, size_t width, int rows, int chunks) {
    static_assert(CHUNKS % 2 == 0, "no lane is left over");
    int lane = threadIdx.x & 31, row = lane / CHUNKS, chunk = lane % CHUNKS;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; ++i) {
        float4 v = shared_load4(from + row * PITCH + 16 * chunk);
        if (row < rows && chunk < chunks) *reinterpret_cast<float4*>(to + row * width + 16 * chunk) = v;
        row += 32 / CHUNKS, chunk += 32 % CHUNKS;
        if (chunk >= CHUNKS) chunk -= CHUNKS, ++row;
    }
    __syncwarp();
}

template <typename T>
__device__ __forceinline__ void stage_plain(const Ring<T>& ring, const Epilogue& e, float (&d)[T::BN / 2],
                                            const Place& at, int first) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, columns = min(e.n - at.column, T::BN);
    if (e.out_bf16) {
        activate_all(d, e.activation == GELU_TANH ? GELU_TANH : NONE, true);
        uint32_t rows = ring.staging() + warp * 16 * T::PITCH_BF16;
        stage_bf16<T::BN / 8>(rows, d);
        bf16* out = static_cast<bf16*>(e.out) + size_t(first) * e.n + at.column;
        write_rows<T::BN / 8, T::PITCH_BF16>(rows, reinterpret_cast<char*>(out), size_t(e.n) * 2,
                                             at.rows - first, columns / 8);
    } else if constexpr (T::STAGED_FP32) {
        uint32_t rows = ring.staging() + warp * 16 * T::PITCH_FP32;
        uint32_t own = rows + (lane >> 2) * T::PITCH_FP32 + at.q * 8;
        if (e.residual) {
            wait_phase(ring.residual_here(), 0);
#pragma unroll
            for (int i = 0; i < T::BN / 4; ++i) {
                float2 v = shared_load2(own + (i & 1) * 8 * T::PITCH_FP32 + (i >> 1) * 32);
                d[2 * i] += v.x, d[2 * i + 1] += v.y;
            }
        }
#pragma unroll
        for (int i = 0; i < T::BN / 4; ++i)
            shared_store2(own + (i & 1) * 8 * T::PITCH_FP32 + (i >> 1) * 32, d[2 * i], d[2 * i + 1]);
        float* out = static_cast<float*>(e.out) + size_t(first) * e.n + at.column;
        write_rows<T::BN / 4, T::PITCH_FP32>(rows, reinterpret_cast<char*>(out), size_t(e.n) * 4,
                                             at.rows - first, columns / 4);
    }
}

template <int KIND, typename T>
__device__ __forceinline__ void stage_gated(const Ring<T>& ring, const Epilogue& e, float (&d)[T::BN / 2],
                                            const Place& at, int first) {
    float x[T::BN / 4];
#pragma unroll
    for (int i = 0; i < T::BN / 4; ++i) {
        float gate = d[i / 4 * 8 + i % 4], up = d[i / 4 * 8 + i % 4 + 4];
        x[i] = (KIND == GELU_MUL ? rough_gelu_tanh(gate) : silu(gate)) * up;
    }
    uint32_t rows = ring.staging() + (threadIdx.x >> 5) * 16 * T::PITCH_BF16;
    stage_bf16<T::BN / 16>(rows, x);
    int width = e.n >> 1, column = at.column >> 1;
    bf16* out = static_cast<bf16*>(e.out) + size_t(first) * width + column;
    write_rows<T::BN / 16, T::PITCH_BF16>(rows, reinterpret_cast<char*>(out), size_t(width) * 2,
                                          at.rows - first, min(width - column, T::BN / 2) / 8);
}

// A lane writes one block of a row at a time: to q, k or v, into the first or second half of a head.
template <typename T>
__device__ __forceinline__ void stage_rope(const Ring<T>& ring, const Epilogue& e, float (&d)[T::BN / 2],
                                           int first, const Ahead<ROPE_QKV, T::BN / 16>& ahead) {
    constexpr int BLOCKS = T::BN / 8, AT_ONCE = ahead.AT_ONCE, BATCH = 4;
    ahead.turn(d);
    uint32_t rows = ring.staging() + (threadIdx.x >> 5) * 16 * T::PITCH_BF16;
    stage_bf16<BLOCKS>(rows, d);
    int lane = threadIdx.x & 31, row = min(lane / BLOCKS, AT_ONCE - 1),
        left = ahead.out ? e.rows - first - row : 0;
    uint32_t from = rows + row * T::PITCH_BF16 + 16 * (lane % BLOCKS);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16; i += BATCH * AT_ONCE) {
        float4 v[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; ++j) v[j] = shared_load4(from + (i + j * AT_ONCE) * T::PITCH_BF16);
#pragma unroll
        for (int j = 0; j < BATCH; ++j) {
            int below = i + j * AT_ONCE;
            if (below < left) *reinterpret_cast<float4*>(ahead.out + size_t(below) * ahead.width) = v[j];
        }
    }
    __syncwarp();
}

template <int KIND, typename T>
__device__ __forceinline__ void finish_staged(const Ring<T>& ring, const Epilogue& e, float (&d)[T::BN / 2],
                                              const Place& at, const Ahead<KIND, T::BN / 16>& ahead) {
    int first = at.row - ((threadIdx.x & 31) >> 2);  // row of the warp
    if constexpr (KIND == PLAIN) stage_plain(ring, e, d, at, first);
    else if constexpr (is_gated(KIND)) stage_gated<KIND>(ring, e, d, at, first);
    else stage_rope(ring, e, d, first, ahead);
}

}  // namespace flashrt
