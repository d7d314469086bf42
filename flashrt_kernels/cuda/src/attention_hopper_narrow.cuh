// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of few queries to many keys with heads of 256 (an action expert over its prefix): latency is what
// counts. Query heads that share a key/value head are packed as rows, ROWS in a tile; a cluster of thread
// blocks takes one tile and divides the keys, 2·UNIT to a block at a time.
//
// Everything is computed transposed, so that the 64 rows of wgmma are keys, then columns of the values, and
// the few queries its N:
//   scores[key, row] = k · qᵀ         warpgroup w has the keys of unit w, in registers
//   sums[column, row] = vᵀ · weights  warpgroup w has columns 128w … 128w + 127, of all keys
// Keys pass through shared memory into registers and make room for the values there, but for their last 64
// columns, which stay where shares of the output are received later: a block that holds all of its keys and
// values needs less than half of registers and shared memory, and starts beside the kernel in front.
//
// `settled`: so many leading keys were in place before the kernel in front of this one started. They, and
// their values, are loaded before the wait for it: nearly all there is to load.
//
// At the end every block sends its sums, in fp16 with a common exponent for 32 columns and all rows, to the block
// that adds them up: warp i to block i. A ninth warp, the messenger, asks for the queries, and while the values
// are multiplied tells the other blocks what the sums must be multiplied by. No second launch, no workspace, the
// same order of additions in every run.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace narrow {

constexpr int HEAD_DIM = 256, COLUMN_BLOCKS = HEAD_DIM / 64, CLUSTER = 8;
#ifndef NARROW_TAKEN
#define NARROW_TAKEN 12
#endif
constexpr int STEPS = HEAD_DIM / 16, TAKEN_STEPS = NARROW_TAKEN;  // of wgmma; those whose keys are in registers
constexpr int WARPS = 8, COMPUTING = 32 * WARPS, THREADS = COMPUTING + 32;
static_assert(WARPS == CLUSTER);  // warp i of every block sends to block i

enum Barrier { TAKEN = 1, TOP = 3, SUMMED, KNOWN };  // TAKEN: one for each warpgroup

// MANY: there are more keys than the cluster takes at a time.
template <int ROWS_, int UNIT_, bool MANY_> struct Shared {
    static constexpr int ROWS = ROWS_, UNIT = UNIT_, GROUPS = ROWS / 8;
    static constexpr bool MANY = MANY_;
    static_assert(ROWS % 16 == 0 && ROWS <= 32 && UNIT % 16 == 0 && UNIT <= 64);
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
        uint8_t* to = c < TAKEN_STEPS / 4 ? sm.unit[w] + c * (Memory::UNIT * 128) : sm.last[w * Memory::UNIT];
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
__device__ __forceinline__ void arrived(const uint32_t (&k)[TAKEN_STEPS][4]) {
    uint32_t x = 0;
#pragma unroll
    for (int i = 0; i < TAKEN_STEPS; ++i) x ^= k[i][3];
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, %0, 0x7fc1a5c3;\n@p nanosleep.u32 1;\n}" ::"r"(x));
}
// The keys of this warpgroup's unit into registers, 16 to a warp; then its values take their place.
template <typename Memory>
__device__ __forceinline__ void take_keys(Memory& sm, const Task& task, int w, int first,
                                          uint32_t (&k)[TAKEN_STEPS][4]) {
    int warp = threadIdx.x % 128 / 32, lane = threadIdx.x & 31, row = 16 * warp + (lane & 15);
    barrier_wait(&sm.unit_full[w], 0);
    uint32_t at = shared_address(sm.unit[w]) + row * 128;
#pragma unroll
    for (int i = 0; i < TAKEN_STEPS; ++i) {
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

// ---- one block of keys; the warpgroup is a constant W where it says which part of shared memory a product
// reads: then its descriptors are known, and nothing is computed between two products ----

// s[4i + 2h + b]: score of key 16·warp + lane / 4 + 8h of the unit with row 8i + 2(lane % 4) + b.
template <int W, typename Memory, int COUNT>
__device__ __forceinline__ void scores(const Memory& sm, const uint32_t (&k)[TAKEN_STEPS][4],
                                       float (&s)[COUNT]) {
    uint64_t q = descriptor_k_major(sm.q), last = descriptor_k_major(sm.last[W * Memory::UNIT]);
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < TAKEN_STEPS; ++i)
        Wgmma<Memory::ROWS>::rs(s, k[i], q + i / 4 * (Memory::ROWS * 128 / 16) + 2 * (i & 3), i > 0);
#pragma unroll
    for (int i = 0; i < STEPS - TAKEN_STEPS; ++i)
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
    uint32_t at = shared_address(sm.p) + (w * (Memory::UNIT / 8) + 2 * warp + (lane >> 3 & 1)) * (Memory::ROWS * 16) +
                  ((lane >> 4) * 8 + (lane & 7)) * 16;
#pragma unroll
    for (int i = 0; i < Memory::GROUPS; i += 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at + i * 128),
                     "r"(pack_bf16(s[4 * i], s[4 * i + 1])), "r"(pack_bf16(s[4 * i + 2], s[4 * i + 3])),
                     "r"(pack_bf16(s[4 * i + 4], s[4 * i + 5])), "r"(pack_bf16(s[4 * i + 6], s[4 * i + 7]))
                     : "memory");
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

// ---- the cluster ----

__device__ __forceinline__ void named_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// The ninth warp.
template <typename Memory> __device__ __forceinline__ void carry_messages(Memory& sm, const Task& task) {
    int row = threadIdx.x & 31;
    if (row == 0) {
        barrier_expect(&sm.q_full, sizeof(sm.q));
        copy_4d(sm.q, task.q_map, &sm.q_full, 0, 0, task.query(Memory::ROWS), task.head() * COLUMN_BLOCKS);
    }
    __syncwarp();
    cluster_wait();
    cluster_arrive_reading();
    named_barrier(SUMMED, THREADS);
    if (row < Memory::ROWS) {
        float sum = 0.0f, top = unordered(sm.top[row]);
#pragma unroll
        for (int i = 0; i < WARPS; ++i) sum += sm.sums[i][row];
#pragma unroll
        for (int i = 0; i < CLUSTER; ++i)
            Receiver(i, &sm.statistics_full).send2(&sm.statistics[task.rank][row], top, sum);
        barrier_wait(&sm.statistics_full, 0);
        float2 all[CLUSTER];
        float highest = NOTHING, total = 0.0f;
#pragma unroll
        for (int i = 0; i < CLUSTER; ++i) {
            all[i] = sm.statistics[i][row];
            highest = fmaxf(highest, all[i].x);
        }
#pragma unroll
        for (int i = 0; i < CLUSTER; ++i) {
            all[i].x = rescale(all[i].x, highest);
            total += all[i].y * all[i].x;
        }
        float inverse = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
        for (int i = 0; i < CLUSTER; ++i) sm.factor[i][row] = all[i].x * inverse;
    }
    __syncwarp();
    named_arrive(KNOWN, THREADS);
    cluster_wait();
}
__device__ __forceinline__ uint32_t pack_half(float low, float high) {
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&pair);
}
// This warp's sums of 32 columns to block `warp`.
template <typename Memory, int COUNT>
__device__ __forceinline__ void send(Memory& sm, int rank, const float (&o)[2][COUNT]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    float largest[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        for (int m = 0; m < 2; ++m) largest[m] = fmaxf(largest[m], fabsf(o[m][i]));
    // fp16 holds 65504: the largest value becomes one of 2¹⁴ … 2¹⁵
    uint32_t bits = __reduce_max_sync(0xffffffffu, __float_as_uint(fmaxf(largest[0], largest[1])));
    uint32_t exponent = max(bits >> 23, 15u);
    float factor = __uint_as_float((268 - exponent) << 23);
    Receiver receiver(warp, &sm.received_full);
    uint32_t words[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {  // [half of the columns][columns + 8 or not][group of rows]
        int m = i / (COUNT / 2), h = i / Memory::GROUPS % 2, group = i % Memory::GROUPS;
        const float* pair = o[m] + 4 * group + 2 * h;
        words[i] = pack_half(pair[0] * factor, pair[1] * factor);
    }
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i)
        receiver.send4(&sm.received[rank][i][lane],
                       make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]));
    if (lane == 0) receiver.send1(&sm.exponent[rank], __uint_as_float((exponent - 14) << 23));
}
// Adds up what all blocks sent: this thread has WORDS words of each, pairs of rows of one column.
template <typename Memory>
__device__ __forceinline__ void combine(Memory& sm, const Task& task) {
    constexpr int WORDS = Memory::ROWS / 16, GROUPS = Memory::GROUPS;
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, word = warp * WORDS, block = word / GROUPS;
    bool odd = lane & 4;  // lanes of neighbouring columns swap one row of theirs
    int column = 128 * (task.rank / 4) + 64 * (block >> 1) + 16 * (task.rank & 3) + 8 * (block & 1) +
                 (lane >> 3) * 2;
    bf16* to[WORDS];
    float2 factor[WORDS][CLUSTER];
    float total[WORDS][2] = {};
    named_barrier(KNOWN, THREADS);
    STAMP(10);
#pragma unroll
    for (int j = 0; j < WORDS; ++j) {
        int first = (word % GROUPS + j) * 8 + 2 * (lane & 3), row = first + odd, group = 1 << task.log_group;
        int query = task.query(Memory::ROWS) + (row >> task.log_group), head = task.head() + (row & (group - 1));
        to[j] = query < task.queries ? task.out + (size_t(query) * (gridDim.y * group) + head) * HEAD_DIM + column
                                     : nullptr;
#pragma unroll
        for (int i = 0; i < CLUSTER; ++i) factor[j][i] = *reinterpret_cast<const float2*>(&sm.factor[i][first]);
    }
    barrier_wait(&sm.received_full, 0);
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) {
        float exponent = sm.exponent[i];
        const __half2* from = reinterpret_cast<const __half2*>(&sm.received[i][word / 4][lane]) + word % 4;
#pragma unroll
        for (int j = 0; j < WORDS; ++j) {
            float2 x = __half22float2(from[j]);
            total[j][0] = fmaf(x.x, factor[j][i].x * exponent, total[j][0]);
            total[j][1] = fmaf(x.y, factor[j][i].y * exponent, total[j][1]);
        }
    }
#pragma unroll
    for (int j = 0; j < WORDS; ++j) {
        float other = __shfl_xor_sync(0xffffffffu, odd ? total[j][0] : total[j][1], 4);
        uint32_t pair = odd ? pack_bf16(other, total[j][1]) : pack_bf16(total[j][0], other);
        if (to[j]) *reinterpret_cast<uint32_t*>(to[j]) = pair;
    }
}

// ---- everything ----

// The key blocks rank, rank + CLUSTER, … of one tile, at least one, unseen if need be. `k`: keys of the first,
// if they were settled.
template <typename Memory, int COUNT>
__device__ __forceinline__ void attend(Memory& sm, const Task& task, bool taken, uint32_t (&k)[TAKEN_STEPS][4],
                                       float (&o)[2][COUNT]) {
    constexpr int UNIT = Memory::UNIT;
    int w = threadIdx.x / 128, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    int blocks = (task.keys + 2 * UNIT - 1) / (2 * UNIT), block = task.rank;
    float maximum[COUNT / 2], sum[COUNT / 2];
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) maximum[i] = NOTHING, sum[i] = 0.0f;
    while (true) {
        bool start = !Memory::MANY || block == task.rank, last = !Memory::MANY || block + CLUSTER >= blocks;
        bool visible[2];
        int first = (2 * block + w) * UNIT;
        if (!start) {
            wgmma_wait<0>();
            wgmma_hold(o[0]), wgmma_hold(o[1]);
            named_barrier(TOP, COMPUTING);
            load_keys(sm, task, w, first);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            int in_unit = warp % 4 * 16 + lane / 4 + 8 * h, key = first + in_unit;
            visible[h] = in_unit < UNIT && key < task.keys && (!task.key_valid || task.key_valid[key]);
        }
        if (!start || !taken) take_keys(sm, task, w, first, k);
        if (start) barrier_wait(&sm.q_full, 0);
        STAMP(3);
        float s[COUNT];
        if (w == 0) scores<0>(sm, k, s);
        else scores<1>(sm, k, s);
        if (last) {
            cluster_wait();            // all blocks have started: they may be sent to
            cluster_arrive_reading();  // where the last keys are, others may write
        }
        STAMP(4);
        find_top(sm, visible, task.scale, s);
        named_barrier(TOP, COMPUTING);
        STAMP(5);
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            float raised = unordered(sm.top[i / 2 * 8 + 2 * (lane & 3) + i % 2]), before = maximum[i];
            maximum[i] = raised;
            if (!start) {
                float factor = rescale(before, raised);
                sum[i] *= factor;
#pragma unroll
                for (int j = 0; j < 4; ++j) o[j >> 1][i / 2 * 4 + 2 * (j & 1) + i % 2] *= factor;
            }
        }
        weigh(sm, w, task.scale, maximum, s, sum);
        fence_async();
        named_barrier(TOP, COMPUTING);
        STAMP(6);
        if (w == 0) values<0>(sm, 0, !start, o);
        else values<1>(sm, 0, !start, o);
        if (last) {  // meanwhile
            reduce(sum, [](float a, float b) { return a + b; });
            sm.sums[warp][reduced_row<COUNT / 2>()] = sum[0];
            named_arrive(SUMMED, THREADS);
        }
        if (w == 0) values<0>(sm, 1, true, o);
        else values<1>(sm, 1, true, o);
        STAMP(7);
        if (last) return;
        block += CLUSTER;
    }
}

// Maps: q [64, group, queries, heads·4] (head and column block of 64 in one dimension), boxes of ROWS rows of
// 4 column blocks; k and v [64, keys, kv_heads·4], boxes of UNIT keys of one column block and of 4. Grid:
// (tiles·CLUSTER, kv_heads).
template <int ROWS, int UNIT, bool MANY> __device__ __forceinline__ void run(const Task& task) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    using Memory = Shared<ROWS, UNIT, MANY>;
    Memory& sm = *reinterpret_cast<Memory*>(shared_memory);
    STAMP(0);
    int w = threadIdx.x / 128, first = (2 * task.rank + w) * UNIT;
    if (threadIdx.x == 0) {
        for (auto& barrier : sm.unit_full) barrier_init(&barrier, 1);
        barrier_init(&sm.q_full, 1);
        barrier_init(&sm.statistics_full, 1), barrier_init(&sm.received_full, 1);
        barrier_init_fence();
        barrier_expect(&sm.statistics_full, Memory::STATISTICS_BYTES);
        barrier_expect(&sm.received_full, Memory::RECEIVED_BYTES);
    }
    if (threadIdx.x < ROWS) sm.top[threadIdx.x] = ordered(NOTHING);
    if (threadIdx.x == COMPUTING) prefetch_map(task.q_map), prefetch_map(task.v_map);
    __syncthreads();
    cluster_arrive_reading();  // waited for before anything is sent: then all blocks have started
    if (threadIdx.x >= COMPUTING) {
        wait_for_predecessor();
        release_successor();
        carry_messages(sm, task);
        return;
    }
    uint32_t k[TAKEN_STEPS][4];
    bool settled = first >= task.keys || min(first + UNIT, task.keys) <= task.settled;
    if (settled) {
        load_keys(sm, task, w, first);
        take_keys(sm, task, w, first, k);
    }
    STAMP(1);
    wait_for_predecessor();
    release_successor();
    STAMP(2);
    if (!settled) load_keys(sm, task, w, first);
    float o[2][ROWS / 2];
    attend(sm, task, settled, k, o);
    cluster_wait();
    wgmma_wait<0>();
    wgmma_hold(o[0]), wgmma_hold(o[1]);
    STAMP(8);
    send(sm, task.rank, o);
    STAMP(9);
    combine(sm, task);
    STAMP(11);
}

}  // namespace narrow
}  // namespace flashrt
