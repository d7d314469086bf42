// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Of attention_hopper_narrow.cuh: shared memory, loads, and what a thread block does with keys and values.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace narrow {

constexpr int HEAD_DIM = 256, COLUMN_BLOCKS = HEAD_DIM / 64, STEPS = HEAD_DIM / 16, CLUSTER = 8;
constexpr int WARPS = 8, COMPUTING = 32 * WARPS, THREADS = COMPUTING + 32;
static_assert(WARPS == CLUSTER);  // warp i of every block sends to block i

enum Barrier { TAKEN = 1, TOP = 3, SUMMED, KNOWN };  // TAKEN: one for each warpgroup

// MANY: there are more keys than the cluster takes at a time. BLOCKS: that a multiprocessor has registers for.
// With two the keys' last 64 columns find no place there, and stay in shared memory where sums are received
// later: worth it with 16 rows, with 32 a product from shared memory costs more than it saves.
template <int ROWS_, int UNIT_, bool MANY_> struct Shared {
    static constexpr int ROWS = ROWS_, UNIT = UNIT_, GROUPS = ROWS / 8, BLOCKS = MANY_ || ROWS > 16 ? 1 : 2;
    static constexpr int TAKEN_STEPS = ROWS > 16 ? STEPS : STEPS - 4;  // of wgmma, their keys in registers
    static constexpr bool MANY = MANY_;
    static_assert(ROWS % 16 == 0 && ROWS <= 32 && UNIT % 16 == 0 && UNIT <= 64);
    using Keys = uint32_t[TAKEN_STEPS][4];  // of a thread, as wgmma reads them
    static constexpr int STATISTICS_BYTES = CLUSTER * ROWS * sizeof(float2);
    static constexpr int RECEIVED_BYTES = CLUSTER * (GROUPS * 32 * sizeof(uint4) + sizeof(float));
    uint8_t unit[2][UNIT * HEAD_DIM * 2];   // keys, then values: [3, 4 column blocks][UNIT][64], swizzled
    uint8_t q[COLUMN_BLOCKS * ROWS * 128];  // [4 column blocks][ROWS][64], swizzled
    uint8_t p[2 * UNIT * ROWS * 2];         // weights: [chunks of 8 keys][ROWS][8]
    union {
        uint8_t last[UNIT + 64][128];         // the keys' fourth column block; 64 are read of a unit
        uint4 received[CLUSTER][GROUPS][32];  // sums, of warp `rank` of every block
    };
    float2 statistics[CLUSTER][ROWS];       // maximum and sum of every block
    float sums[WARPS][ROWS];                // of weights
    int top[ROWS];                          // largest score yet, ordered()
    float factor[CLUSTER][ROWS];            // what a block's sums are multiplied by
    float exponent[CLUSTER];                // the same for all rows
    uint64_t unit_full[2], q_full, statistics_full, received_full;
};

struct Task {
    const CUtensorMap *q_map, *k_map, *v_map;
    const uint8_t* key_valid;
    bf16* out;
    int queries, keys, settled, log_group, tile, rank;  // 2^log_group heads share one of keys and values
    float scale;

    __device__ __forceinline__ int query(int rows) const { return tile * (rows >> log_group); }
    __device__ __forceinline__ int head() const { return blockIdx.y << log_group; }
};

// ---- over the rows of a warp's part of scores ----

// t[2i + b]: of row 8i + 2(lane % 4) + b, to be reduced over the lanes that share it. Afterwards t[0] is the
// result of row reduced_row().
template <int COUNT, typename Operator>
__device__ __forceinline__ void reduce(float (&t)[COUNT], Operator apply) {
    int count = COUNT;
#pragma unroll
    for (int offset = 16; offset >= 4; offset >>= 1) {
        bool upper = threadIdx.x & offset;
        if (count == 1) {
            t[0] = apply(t[0], __shfl_xor_sync(0xffffffffu, t[0], offset));
            continue;
        }
        count /= 2;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            float other = __shfl_xor_sync(0xffffffffu, upper ? t[i] : t[i + count], offset);
            t[i] = apply(upper ? t[i + count] : t[i], other);
        }
    }
}
template <int COUNT> __device__ __forceinline__ int reduced_row() {
    int index = 0, count = COUNT;
#pragma unroll
    for (int offset = 16; offset >= 4; offset >>= 1) {
        if (count == 1) continue;
        count /= 2;
        if (threadIdx.x & offset) index += count;
    }
    return index / 2 * 8 + 2 * (threadIdx.x & 3) + index % 2;
}
// A float as an integer of the same order, and back.
__device__ __forceinline__ int ordered(float x) {
    int bits = __float_as_int(x);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ __forceinline__ float unordered(int x) { return __int_as_float(x ^ (x >> 31 & 0x7fffffff)); }

// ---- loads ----

// Unit w of a block of keys, by its warpgroup: a column block each warp. Maps: see run().
template <typename Memory>
__device__ __forceinline__ void load_keys(Memory& sm, const Task& task, int w, int first) {
    int c = threadIdx.x % 128 / 32;
    if ((threadIdx.x & 31) == 0) {
        if (c == 0) barrier_expect(&sm.unit_full[w], sizeof(sm.unit[w]));
        uint8_t* to = sm.unit[w] + c * (Memory::UNIT * 128);
        if (c >= Memory::TAKEN_STEPS / 4) to = sm.last[w * Memory::UNIT];
        copy_3d(to, task.k_map, &sm.unit_full[w], 0, first, blockIdx.y * COLUMN_BLOCKS + c);
    }
    __syncwarp();
}
// Its values; by one thread.
template <typename Memory>
__device__ __forceinline__ void load_values(Memory& sm, const Task& task, int w, int first) {
    barrier_expect(&sm.unit_full[w], sizeof(sm.unit[w]));
    copy_3d(sm.unit[w], task.v_map, &sm.unit_full[w], 0, first, blockIdx.y * COLUMN_BLOCKS);
}
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&a)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address)
                 : "memory");
}
// Waits until loads from shared memory have arrived in registers: only an instruction that reads them does.
template <int COUNT> __device__ __forceinline__ void arrived(const uint32_t (&k)[COUNT][4]) {
    uint32_t x = 0;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x ^= k[i][3];
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %0, 0x7fc1a5c3;\n@p nanosleep.u32 1;\n}" ::"r"(x));
}
// The keys of this warpgroup's unit into registers, 16 to a warp; then its values take their place.
template <typename Memory>
__device__ __forceinline__ void take_keys(Memory& sm, const Task& task, int w, int first,
                                          typename Memory::Keys& k) {
    int warp = threadIdx.x % 128 / 32, lane = threadIdx.x & 31, row = 16 * warp + (lane & 15);
    barrier_wait(&sm.unit_full[w], 0);
    uint32_t at = shared_address(sm.unit[w]) + row * 128;
#pragma unroll
    for (int i = 0; i < Memory::TAKEN_STEPS; ++i) {
        int chunk = 2 * (i & 3) + (lane >> 4);
        k[i][0] = k[i][1] = k[i][2] = k[i][3] = 0;
        if (16 * warp < Memory::UNIT)
            load_matrices(at + i / 4 * (Memory::UNIT * 128) + ((chunk ^ (row & 7)) << 4), k[i]);
    }
    arrived(k);
    named_barrier(TAKEN + w, 128);
    if ((threadIdx.x & 127) == 0) load_values(sm, task, w, first);
    __syncwarp();
}

// ---- one block of keys ----
//
// W, the warpgroup, is a constant where it says which part of shared memory a product reads: then descriptors
// are constants too, and nothing is computed between two products.

// s[4i + 2h + b]: score of key 16·warp + lane / 4 + 8h of the unit with row 8i + 2(lane % 4) + b.
template <int W, typename Memory, int COUNT>
__device__ __forceinline__ void scores(const Memory& sm, const typename Memory::Keys& k,
                                       float (&s)[COUNT]) {
    uint64_t q = descriptor_k_major(sm.q), last = descriptor_k_major(sm.last[W * Memory::UNIT]);
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Memory::TAKEN_STEPS; ++i)
        Wgmma<Memory::ROWS>::rs(s, k[i], q + i / 4 * (Memory::ROWS * 128 / 16) + 2 * (i & 3), i > 0);
#pragma unroll
    for (int i = 0; i < STEPS - Memory::TAKEN_STEPS; ++i)
        Wgmma<Memory::ROWS>::ss(s, last + 2 * i, q + 3 * (Memory::ROWS * 128 / 16) + 2 * i, 1);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s);
}
// Scores of keys that may not be seen become −inf; the largest of each row goes to sm.top.
template <typename Memory, int COUNT>
__device__ __forceinline__ void find_top(Memory& sm, const bool (&visible)[2], float scale,
                                         float (&s)[COUNT]) {
    float t[COUNT / 2];
    if (!__all_sync(0xffffffffu, visible[0] && visible[1])) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (!visible[i >> 1 & 1]) s[i] = NOTHING;
    }
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) t[i] = fmaxf(s[i / 2 * 4 + i % 2], s[i / 2 * 4 + 2 + i % 2]);
    reduce(t, [](float a, float b) { return fmaxf(a, b); });
    atomicMax(&sm.top[reduced_row<COUNT / 2>()], ordered(t[0] * scale));
}
// Takes over the rows' maxima; what was summed under the old ones, of earlier key blocks, is brought to them.
template <typename Memory, int COUNT>
__device__ __forceinline__ void raise_maxima(const Memory& sm, bool start, float (&maximum)[COUNT / 2],
                                             float (&sum)[COUNT / 2], float (&o)[2][COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
        float before = maximum[i];
        maximum[i] = unordered(sm.top[i / 2 * 8 + 2 * (threadIdx.x & 3) + i % 2]);
        if (start) continue;
        float factor = rescale(before, maximum[i]);
        sum[i] *= factor;
#pragma unroll
        for (int j = 0; j < 4; ++j) o[j >> 1][i / 2 * 4 + 2 * (j & 1) + i % 2] *= factor;
    }
}
// Four 8 × 8 matrices, transposed; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_transposed(uint32_t address, const uint32_t (&x)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
// Scores become weights, into shared memory as the second operand of the values' product. Adds to the sums of
// this thread's keys.
template <typename Memory, int COUNT>
__device__ __forceinline__ void weigh(Memory& sm, int w, float scale, const float (&maximum)[COUNT / 2],
                                      float (&s)[COUNT], float (&sum)[COUNT / 2]) {
    int warp = threadIdx.x % 128 / 32, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        float top = maximum[i / 4 * 2 + i % 2];
        s[i] = exp2_fast(fmaf(s[i], scale, top == NOTHING ? 0.0f : -top));
        sum[i / 4 * 2 + i % 2] += s[i];
    }
    if (16 * warp >= Memory::UNIT) return;
    int chunk = w * (Memory::UNIT / 8) + 2 * warp + (lane >> 3 & 1), row = (lane >> 4) * 8 + (lane & 7);
    uint32_t at = shared_address(sm.p) + (chunk * Memory::ROWS + row) * 16;
#pragma unroll
    for (int i = 0; i < Memory::GROUPS; i += 2) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = pack_bf16(s[4 * i + 2 * j], s[4 * i + 2 * j + 1]);
        store_transposed(at + i * 128, x);
    }
}
// o[m]: columns 128·W + 64m …, of the keys of one unit, asynchronous.
template <int W, typename Memory, int COUNT>
__device__ __forceinline__ void values(Memory& sm, int unit, bool accumulate, float (&o)[2][COUNT]) {
    constexpr int UNIT = Memory::UNIT, ROWS = Memory::ROWS;
    barrier_wait(&sm.unit_full[unit], 1);
    wgmma_hold(o[0]), wgmma_hold(o[1]);
    wgmma_fence();
    uint64_t p = descriptor(shared_address(sm.p) + unit * UNIT * ROWS * 2, ROWS * 16, 128, NO_SWIZZLE);
    uint64_t v = descriptor(shared_address(sm.unit[unit]) + 2 * W * UNIT * 128, 0, 1024, SWIZZLE_128);
#pragma unroll
    for (int i = 0; i < UNIT / 16; ++i)
#pragma unroll
        for (int m = 0; m < 2; ++m)
            Wgmma<ROWS>::template ss<0, 1>(o[m], v + i * 128 + m * (UNIT * 128 / 16), p + i * (2 * ROWS),
                                           accumulate || i > 0);
    wgmma_commit();
}

}  // namespace narrow
}  // namespace flashrt
