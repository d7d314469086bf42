// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of few queries to many keys with heads of 256 (an action expert over its prefix): latency is what counts.
// Query heads that share a key/value head are packed as rows, 64 in a tile; a cluster of thread blocks takes one
// tile and divides the keys, KEYS to a block at a time. In a block warpgroup w computes the scores of half of the
// keys, shares its weights through shared memory, and multiplies all of them with columns 128w … 128w + 127 of the
// values. At the end every block sends each other one its sums for the rows that the other one writes: no second
// launch, no workspace, and the same order of additions in every run.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace narrow {

constexpr int HEAD_DIM = 256, COLUMN_BLOCKS = HEAD_DIM / 64, ROWS = 64;
constexpr int MAX_CLUSTER = 16;
constexpr int UNITS = 16, UNIT_BYTES = 4096;  // sums of 8 rows × 128 columns; unit = 2 · (row / 8) + column / 128
constexpr int THREADS = 256;
constexpr int Q_BYTES = ROWS * 128;  // of one column block

template <int KEYS> struct Shared {
    static_assert(KEYS % 16 == 0 && KEYS <= 128);
    uint8_t q[COLUMN_BLOCKS * Q_BYTES];  // [4 column blocks][64 rows][64]
    union {
        uint8_t k[KEYS * HEAD_DIM * 2];          // [4 column blocks][KEYS][64]
        uint8_t received[UNITS * UNIT_BYTES];    // at the end: [block][own unit][4 row pairs of chunks][32 lanes] float4
    };
    uint8_t v[KEYS * HEAD_DIM * 2];            // as k
    uint8_t p[ROWS * KEYS * 2];                // [KEYS/8 chunks][64 rows][8], not swizzled
    float2 statistics[MAX_CLUSTER][2][ROWS];   // maximum and sum: [block][warpgroup][row]
    float top[2][ROWS];                        // maxima of this key block: [warpgroup][row]
    uint64_t qk_full[COLUMN_BLOCKS], v_full[2], received_full;
};

struct Task {
    const CUtensorMap *q_map, *k_map, *v_map;
    const uint8_t* key_valid;
    bf16* out;
    int queries, keys, group, cluster, rank;
    float scale;

    __device__ __forceinline__ int query() const { return blockIdx.x / cluster * (ROWS / group); }
    __device__ __forceinline__ int head() const { return blockIdx.y * group; }
};

// Keys (and, the first time, queries) by column blocks, in the order of their use.
template <int KEYS>
__device__ __forceinline__ void load_keys(Shared<KEYS>& sm, const Task& task, int block, bool with_queries) {
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        barrier_expect(&sm.qk_full[c], KEYS * 128 + (with_queries ? Q_BYTES : 0));
        if (with_queries)
            copy_4d(sm.q + c * Q_BYTES, task.q_map, &sm.qk_full[c], 0, 0, task.query(), task.head() * COLUMN_BLOCKS + c);
        copy_3d(sm.k + c * KEYS * 128, task.k_map, &sm.qk_full[c], 0, block * KEYS, blockIdx.y * COLUMN_BLOCKS + c);
    }
}
// Values, for each warpgroup its half of the columns.
template <int KEYS> __device__ __forceinline__ void load_values(Shared<KEYS>& sm, const Task& task, int block) {
    for (int w = 0; w < 2; ++w) {
        barrier_expect(&sm.v_full[w], 2 * KEYS * 128);
        for (int c = 2 * w; c < 2 * w + 2; ++c)
            copy_3d(sm.v + c * KEYS * 128, task.v_map, &sm.v_full[w], 0, block * KEYS, blockIdx.y * COLUMN_BLOCKS + c);
    }
}

template <int KEYS>
__device__ __forceinline__ void scores(Shared<KEYS>& sm, int warpgroup, uint32_t phase, float (&s)[KEYS / 4]) {
    uint64_t q = descriptor_k_major(sm.q), k = descriptor_k_major(sm.k + warpgroup * (KEYS / 2) * 128);
    wgmma_hold(s);
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        barrier_wait(&sm.qk_full[c], phase);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            Wgmma<KEYS / 2>::ss(s, q + c * (Q_BYTES / 16) + 2 * i, k + c * (KEYS * 128 / 16) + 2 * i, c + i > 0);
        wgmma_commit();
    }
    wgmma_wait<0>();
    wgmma_hold(s);
}

// Weights of this warpgroup's keys into shared memory, chunks of 8 keys.
template <int KEYS>
__device__ __forceinline__ void share_weights(Shared<KEYS>& sm, int warpgroup, const uint32_t (&p)[KEYS / 8]) {
    int t = threadIdx.x & 127, lane = t & 31, row = 16 * (t / 32) + (lane & 15);
    uint32_t to = shared_address(sm.p) + (warpgroup * (KEYS / 16) + (lane >> 4)) * (ROWS * 16) + row * 16;
#pragma unroll
    for (int i = 0; i + 1 < KEYS / 16; i += 2)
        store_matrices(to + i * (ROWS * 16), p[2 * i], p[2 * i + 1], p[2 * i + 2], p[2 * i + 3]);
    if constexpr (KEYS / 16 % 2) {
        constexpr int last = KEYS / 16 - 1;
        store_two_matrices(shared_address(sm.p) + (warpgroup * (KEYS / 16) + last) * (ROWS * 16) + row * 16, p[2 * last],
                           p[2 * last + 1]);
    }
    fence_async();
}

template <int KEYS>
__device__ __forceinline__ void values(Shared<KEYS>& sm, int warpgroup, uint32_t phase, bool accumulate, float (&o)[64]) {
    uint64_t p = descriptor(shared_address(sm.p), ROWS * 16, 128, NO_SWIZZLE);
    uint64_t v = descriptor(shared_address(sm.v + 2 * warpgroup * KEYS * 128), KEYS * 128, 1024, SWIZZLE_128);
    barrier_wait(&sm.v_full[warpgroup], phase);
    wgmma_hold(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; ++i)
        Wgmma<128>::template ss<1>(o, p + i * (2 * ROWS * 16 / 16), v + i * (16 * 128 / 16), accumulate || i > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(o);
}

// Sends this warpgroup's sums and statistics to the blocks that write the rows.
template <int KEYS>
__device__ __forceinline__ void send(Shared<KEYS>& sm, const Task& task, int warpgroup, const float (&o)[64],
                                     const float (&maximum)[2], const float (&sum)[2]) {
    int t = threadIdx.x & 127, lane = t & 31, owned = UNITS / task.cluster;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        int row_group = 2 * (t / 32) + h, unit = 2 * row_group + warpgroup, to = unit / owned;
        const uint8_t* sums = sm.received + (task.rank * owned + unit % owned) * UNIT_BYTES + lane * 16;
        Receiver receiver(to, &sm.received_full);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            receiver.send4(sums + i * 512, o[8 * i + 2 * h], o[8 * i + 2 * h + 1], o[8 * i + 4 + 2 * h], o[8 * i + 5 + 2 * h]);
        const float2* statistics = &sm.statistics[task.rank][warpgroup][8 * row_group + lane / 4];
        if ((lane & 3) == 0) receiver.send2(statistics, maximum[h], sum[h]);
        int other = (unit ^ 1) / owned;  // with 16 blocks the two halves of a row belong to two of them
        if ((lane & 3) == 0 && other != to) Receiver(other, &sm.received_full).send2(statistics, maximum[h], sum[h]);
    }
}

// Adds up what all blocks sent of the rows that this one writes: thread t has 4 columns of a row of each unit.
template <int KEYS> __device__ __forceinline__ void combine(const Shared<KEYS>& sm, const Task& task) {
    int t = threadIdx.x, lane = t & 31, owned = UNITS / task.cluster;
    const float4* received = reinterpret_cast<const float4*>(sm.received) + t;
    for (int i = 0; i < owned; ++i) {
        int unit = task.rank * owned + i, row = unit / 2 * 8 + lane / 4;
        float top = NOTHING, sum = 0.0f;
        for (int block = 0; block < task.cluster; ++block) top = fmaxf(top, sm.statistics[block][0][row].x);
        float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 8
        for (int block = 0; block < task.cluster; ++block) {
            float2 a = sm.statistics[block][0][row], b = sm.statistics[block][1][row];
            float4 x = received[(block * owned + i) * (UNIT_BYTES / 16)];
            float factor = rescale(a.x, top);
            sum += factor * (a.y + b.y);
            total.x += factor * x.x, total.y += factor * x.y, total.z += factor * x.z, total.w += factor * x.w;
        }
        float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        int query = task.query() + row / task.group, head = task.head() + row % task.group;
        if (query >= task.queries) continue;
        int column = unit % 2 * 128 + t / 32 * 16 + 2 * (lane & 3);
        bf16* to = task.out + (size_t(query) * (gridDim.y * task.group) + head) * HEAD_DIM + column;
        *reinterpret_cast<uint32_t*>(to) = pack_bf16(total.x * inverse, total.y * inverse);
        *reinterpret_cast<uint32_t*>(to + 8) = pack_bf16(total.z * inverse, total.w * inverse);
    }
}

// The key blocks rank, rank + cluster, … of one tile. Ends with the cluster's arrival: k is free to receive.
template <int KEYS>
__device__ __forceinline__ void attend(Shared<KEYS>& sm, const Task& task, float (&o)[64], float (&maximum)[2],
                                       float (&sum)[2]) {
    constexpr int SHARE = KEYS / 2;  // keys of a warpgroup
    int warpgroup = threadIdx.x / 128, row = 16 * (threadIdx.x % 128 / 32) + (threadIdx.x & 31) / 4;
    int end = max((task.keys + KEYS - 1) / KEYS, task.rank + 1);  // at least one block each, unseen if need be
    uint32_t phase = 0;
    for (int block = task.rank; block < end; block += task.cluster, phase ^= 1) {
        int first = block * KEYS + warpgroup * SHARE;
        uint32_t visible[(SHARE + 31) / 32];
        for (int i = 0; i < (SHARE + 31) / 32; ++i) visible[i] = visible_keys(task.key_valid, first + 32 * i, task.keys);
        float s[SHARE / 2], top[2], factor[2];
        scores(sm, warpgroup, phase, s);
        bool last = block + task.cluster >= end;
        if (last) cluster_arrive_reading();
        hide<SHARE>(s, visible);
        row_maxima(s, task.scale, top);
        if ((threadIdx.x & 3) == 0) sm.top[warpgroup][row] = top[0], sm.top[warpgroup][row + 8] = top[1];
        __syncthreads();  // the block's maxima are there; k, and v and p of the block before, are free
        if (threadIdx.x == 0 && !last) load_keys(sm, task, block + task.cluster, false);
        if (threadIdx.x == 0 && block != task.rank) load_values(sm, task, block);
        top[0] = fmaxf(top[0], sm.top[warpgroup ^ 1][row]);
        top[1] = fmaxf(top[1], sm.top[warpgroup ^ 1][row + 8]);
        raise(maximum, top, factor);
        sum[0] *= factor[0];
        sum[1] *= factor[1];
        uint32_t p[SHARE / 4];
        weigh(s, task.scale, maximum, sum);
        pack(s, p);
        share_weights(sm, warpgroup, p);
        if (block != task.rank) scale_rows(o, factor);
        __syncthreads();
        values(sm, warpgroup, phase, block != task.rank, o);
    }
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
}

// Maps: q [64, group, queries, heads·4] (head and column block of 64 in one dimension), boxes of 64 rows of one column
// block; k and v [64, keys, kv_heads·4], boxes of KEYS of one column block. Grid: (tiles·cluster, kv_heads).
template <int KEYS> __device__ __forceinline__ void run(const Task& task) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    Shared<KEYS>& sm = *reinterpret_cast<Shared<KEYS>*>(shared_memory);
    if (threadIdx.x == 0) {
        for (auto& barrier : sm.qk_full) barrier_init(&barrier, 1);
        for (auto& barrier : sm.v_full) barrier_init(&barrier, 1);
        barrier_init(&sm.received_full, 1);
        barrier_init_fence();
        // Of each block: the sums of own units, statistics of both warpgroups of their rows.
        int rows = 8 * max(UNITS / 2 / task.cluster, 1);
        barrier_expect(&sm.received_full, UNITS * UNIT_BYTES + task.cluster * rows * 2 * sizeof(float2));
        prefetch_map(task.q_map);
        for (int c = 0; c < COLUMN_BLOCKS; ++c) {
            prefetch_3d(task.k_map, 0, task.rank * KEYS, blockIdx.y * COLUMN_BLOCKS + c);
            prefetch_3d(task.v_map, 0, task.rank * KEYS, blockIdx.y * COLUMN_BLOCKS + c);
        }
    }
    __syncthreads();
    wait_for_predecessor();
    release_successor();
    if (threadIdx.x == 0) {
        load_keys(sm, task, task.rank, true);
        load_values(sm, task, task.rank);
    }
    __syncwarp();
    float o[64], maximum[2] = {NOTHING, NOTHING}, sum[2] = {0.0f, 0.0f};
    attend(sm, task, o, maximum, sum);
    cluster_wait();
    send(sm, task, threadIdx.x / 128, o, maximum, sum);
    barrier_wait(&sm.received_full, 0);
    combine(sm, task);
}

}  // namespace narrow
}  // namespace flashrt
