// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of few queries to many keys with heads of 256 (an action expert over its prefix): latency is what
// counts. Query heads that share a key/value head are packed as rows, 32 in a tile; a cluster of thread
// blocks takes one tile and divides the keys, KEYS to a block at a time. In a block warpgroup w computes the
// scores of half of the keys, shares its weights through shared memory, and multiplies all of them with
// columns 128w … 128w + 127 of the values. At the end every block sends each other one its sums of the part
// of the output that the other one writes: no second launch, no workspace, and the same order of additions in
// every run.
//
// wgmma works on 64 rows, in groups of 8 of which a thread has row r of an even one and row r of the odd one
// after it. The 32 rows are the even groups; the odd ones read whatever lies there (half a group further on),
// and are ignored. More rows would cost little in the products, but twice as much in softmax and in what is
// sent.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace narrow {

constexpr int HEAD_DIM = 256, COLUMN_BLOCKS = HEAD_DIM / 64, ROWS = 32;
constexpr int THREADS = 256;
constexpr int UNITS = 16, UNIT = 128;  // a unit: sums of 8 rows × 64 columns, in float4

template <int KEYS, int CLUSTER> struct Shared {
    static_assert(KEYS % 16 == 0 && KEYS <= 128 && (CLUSTER == 8 || CLUSTER == 16));
    static constexpr int OWNED = UNITS / CLUSTER, OWNERS = CLUSTER / 4;  // units of a block; blocks of a row
    static constexpr int RECEIVED = UNITS * UNIT * sizeof(float4) + CLUSTER * 8 * sizeof(float4);  // bytes
    uint8_t q[COLUMN_BLOCKS * ROWS * 128];  // [4 column blocks][32 rows][64]
    uint8_t k[KEYS * HEAD_DIM * 2];         // [4 column blocks][KEYS][64]
    uint8_t v[KEYS * HEAD_DIM * 2];         // as k
    uint8_t p[ROWS * KEYS * 2];             // [KEYS/8 chunks][32 rows][8], not swizzled
    float4 received[CLUSTER][OWNED][UNIT];  // sums of each block
    float2 statistics[CLUSTER][8][2];       // maximum and sum: [block][row][warpgroup]
    float top[2][ROWS];                     // maxima of this key block: [warpgroup][row]
    uint64_t qk_full[COLUMN_BLOCKS], v_full[2], received_full;
};

struct Task {
    const CUtensorMap *q_map, *k_map, *v_map;
    const uint8_t* key_valid;
    bf16* out;
    int queries, keys, group, tile, rank;
    float scale;

    __device__ __forceinline__ int query() const { return tile * (ROWS / group); }
    __device__ __forceinline__ int head() const { return blockIdx.y * group; }
};

// Keys by column blocks in the order of their use, before the first of them the queries. By one thread.
template <typename Memory>
__device__ __forceinline__ void load_keys(Memory& sm, const Task& task, int block, bool with_queries) {
    constexpr int BYTES = sizeof(sm.k) / COLUMN_BLOCKS, KEYS = BYTES / 128;
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        barrier_expect(&sm.qk_full[c], BYTES + (with_queries && c == 0 ? sizeof(sm.q) : 0));
        if (with_queries && c == 0)
            copy_4d(sm.q, task.q_map, &sm.qk_full[0], 0, 0, task.query(), task.head() * COLUMN_BLOCKS);
        copy_3d(sm.k + c * BYTES, task.k_map, &sm.qk_full[c], 0, block * KEYS,
                blockIdx.y * COLUMN_BLOCKS + c);
    }
}
// Values, for each warpgroup its half of the columns. By one thread.
template <typename Memory>
__device__ __forceinline__ void load_values(Memory& sm, const Task& task, int block) {
    constexpr int BYTES = sizeof(sm.v) / COLUMN_BLOCKS, KEYS = BYTES / 128;
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        if (c % 2 == 0) barrier_expect(&sm.v_full[c / 2], 2 * BYTES);
        copy_3d(sm.v + c * BYTES, task.v_map, &sm.v_full[c / 2], 0, block * KEYS,
                blockIdx.y * COLUMN_BLOCKS + c);
    }
}

// s[2i], s[2i + 1]: scores of this thread's row with keys 8i + 2(t % 4), + 1 of the warpgroup's share.
template <int SHARE, typename Memory>
__device__ __forceinline__ void scores(const Memory& sm, int warpgroup, uint32_t phase,
                                       float (&s)[SHARE / 4]) {
    uint64_t q = descriptor(shared_address(sm.q), 16, 512, SWIZZLE_128);
    uint64_t k = descriptor_k_major(sm.k + warpgroup * SHARE * 128);
    float d[SHARE / 2];
    wgmma_hold(d);
#pragma unroll
    for (int c = 0; c < COLUMN_BLOCKS; ++c) {
        barrier_wait(const_cast<uint64_t*>(&sm.qk_full[c]), phase);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            Wgmma<SHARE>::ss(d, q + c * (ROWS * 128 / 16) + 2 * i, k + c * (2 * SHARE * 128 / 16) + 2 * i,
                             c + i > 0);
        wgmma_commit();
    }
    wgmma_wait<0>();
    wgmma_hold(d);
#pragma unroll
    for (int i = 0; i < SHARE / 8; ++i) s[2 * i] = d[4 * i], s[2 * i + 1] = d[4 * i + 1];
}

// Sets the scores of keys that may not be seen to −inf; the largest of the row, in units of the exponent.
template <int SHARE>
__device__ __forceinline__ float row_maximum(float (&s)[SHARE / 4],
                                             const uint32_t (&visible)[(SHARE + 31) / 32], float scale) {
    float top = NOTHING;
#pragma unroll
    for (int i = 0; i < SHARE / 8; ++i) {
        uint32_t bits = visible[i / 4] >> (8 * (i & 3) + 2 * (threadIdx.x & 3));
        if (!(bits & 1)) s[2 * i] = NOTHING;
        if (!(bits & 2)) s[2 * i + 1] = NOTHING;
        top = fmaxf(top, fmaxf(s[2 * i], s[2 * i + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    return fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * scale;
}

// Weights of this warpgroup's keys into shared memory; returns this thread's share of their sum.
template <int SHARE, typename Memory>
__device__ __forceinline__ float share_weights(Memory& sm, int warpgroup, int row,
                                               const float (&s)[SHARE / 4], float scale, float maximum) {
    float base = maximum == NOTHING ? 0.0f : maximum, sum = 0.0f;
    uint8_t* to = sm.p + warpgroup * (SHARE / 8) * (ROWS * 16) + row * 16 + (threadIdx.x & 3) * 4;
#pragma unroll
    for (int i = 0; i < SHARE / 8; ++i) {
        float a = exp2_fast(fmaf(s[2 * i], scale, -base)), b = exp2_fast(fmaf(s[2 * i + 1], scale, -base));
        sum += a + b;
        *reinterpret_cast<uint32_t*>(to + i * (ROWS * 16)) = pack_bf16(a, b);
    }
    fence_async();
    return sum;
}

template <int KEYS, typename Memory>
__device__ __forceinline__ void values(const Memory& sm, int warpgroup, uint32_t phase, bool accumulate,
                                       float (&o)[64]) {
    uint64_t p = descriptor(shared_address(sm.p), ROWS * 16, 64, NO_SWIZZLE);
    uint64_t v = descriptor(shared_address(sm.v + 2 * warpgroup * KEYS * 128), KEYS * 128, 1024, SWIZZLE_128);
    barrier_wait(const_cast<uint64_t*>(&sm.v_full[warpgroup]), phase);
    wgmma_hold(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; ++i)
        Wgmma<128>::template ss<1>(o, p + i * (2 * ROWS), v + i * (16 * 128 / 16), accumulate || i > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(o);
}

// The key blocks rank, rank + CLUSTER, … of one tile, at least one, unseen if need be.
template <int KEYS, int CLUSTER>
__device__ __forceinline__ void attend(Shared<KEYS, CLUSTER>& sm, const Task& task, float (&o)[64],
                                       float& maximum, float& sum) {
    constexpr int SHARE = KEYS / 2;  // keys of a warpgroup
    int warpgroup = threadIdx.x / 128, row = threadIdx.x % 128 / 32 * 8 + (threadIdx.x & 31) / 4;
    int end = max((task.keys + KEYS - 1) / KEYS, task.rank + 1);
    uint32_t phase = 0;
    for (int block = task.rank; block < end; block += CLUSTER, phase ^= 1) {
        int first = block * KEYS + warpgroup * SHARE;
        uint32_t visible[(SHARE + 31) / 32];
        for (int i = 0; i < (SHARE + 31) / 32; ++i)
            visible[i] =
                __ballot_sync(0xffffffffu, key_is_visible(task.key_valid, first + 32 * i, task.keys));
        float s[SHARE / 4];
        scores<SHARE>(sm, warpgroup, phase, s);
        float top = row_maximum<SHARE>(s, visible, task.scale);
        if ((threadIdx.x & 3) == 0) sm.top[warpgroup][row] = top;
        __syncthreads();  // the maxima are there; k, and v and p of the block before, are free
        if (threadIdx.x == 0 && block + CLUSTER < end) load_keys(sm, task, block + CLUSTER, false);
        if (threadIdx.x == 128 && block != task.rank) load_values(sm, task, block);
        __syncwarp();
        float raised = fmaxf(maximum, fmaxf(top, sm.top[warpgroup ^ 1][row])),
              factor = rescale(maximum, raised);
        maximum = raised;
        sum = sum * factor + share_weights<SHARE>(sm, warpgroup, row, s, task.scale, maximum);
        if (block != task.rank) {
#pragma unroll
            for (int i = 0; i < 64; ++i) o[i] *= factor;
        }
        __syncthreads();
        values<KEYS>(sm, warpgroup, phase, block != task.rank, o);
    }
    sum = quad_sum(sum);
}

// Sends this warpgroup's sums and statistics to the blocks that write the rows.
template <int KEYS, int CLUSTER>
__device__ __forceinline__ void send(Shared<KEYS, CLUSTER>& sm, int rank, const float (&o)[64], float maximum,
                                     float sum) {
    constexpr int OWNED = Shared<KEYS, CLUSTER>::OWNED, OWNERS = Shared<KEYS, CLUSTER>::OWNERS;
    int warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int unit = 4 * warp + 2 * warpgroup + half;
        Receiver receiver(unit / OWNED, &sm.received_full);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float* pair = o + 32 * half + 8 * j;  // columns 16j + 2(t % 4), + 1, + 8, + 9 of the unit
            receiver.send4(&sm.received[rank][unit % OWNED][32 * j + lane], pair[0], pair[1], pair[4],
                           pair[5]);
        }
    }
    if ((lane & 3) < OWNERS)  // every block that writes a part of the row
        Receiver(OWNERS * warp + (lane & 3), &sm.received_full)
            .send2(&sm.statistics[rank][lane / 4][warpgroup], maximum, sum);
}

// Adds up what all blocks sent for the units that this one writes: a thread has 4 columns of a row.
template <int KEYS, int CLUSTER>
__device__ __forceinline__ void combine(const Shared<KEYS, CLUSTER>& sm, const Task& task) {
    constexpr int OWNED = Shared<KEYS, CLUSTER>::OWNED;
    int t = threadIdx.x, lane = t & 31;
    if (t >= OWNED * UNIT) return;
    float4 statistics[CLUSTER];
    float top = NOTHING, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) {
        statistics[i] = *reinterpret_cast<const float4*>(sm.statistics[i][lane / 4]);
        top = fmaxf(top, statistics[i].x);  // both warpgroups have the same maximum
    }
    float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) {
        float4 x = sm.received[i][t / UNIT][t % UNIT];
        float factor = rescale(statistics[i].x, top);
        sum += factor * (statistics[i].y + statistics[i].w);
        total.x += factor * x.x, total.y += factor * x.y, total.z += factor * x.z, total.w += factor * x.w;
    }
    float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    int unit = task.rank * OWNED + t / UNIT, row = unit / 4 * 8 + lane / 4;
    int query = task.query() + row / task.group, head = task.head() + row % task.group;
    if (query >= task.queries) return;
    int column = unit % 4 * 64 + t % UNIT / 32 * 16 + 2 * (lane & 3);
    bf16* to = task.out + (size_t(query) * (gridDim.y * task.group) + head) * HEAD_DIM + column;
    *reinterpret_cast<uint32_t*>(to) = pack_bf16(total.x * inverse, total.y * inverse);
    *reinterpret_cast<uint32_t*>(to + 8) = pack_bf16(total.z * inverse, total.w * inverse);
}

// Maps: q [64, group, queries, heads·4] (head and column block of 64 in one dimension), boxes of 32 rows of 4
// column blocks; k and v [64, keys, kv_heads·4], boxes of KEYS of one column block. Grid: (tiles·CLUSTER,
// kv_heads).
template <int KEYS, int CLUSTER> __device__ __forceinline__ void run(const Task& task) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    auto& sm = *reinterpret_cast<Shared<KEYS, CLUSTER>*>(shared_memory);
    if (threadIdx.x == 0) {
        for (auto& barrier : sm.qk_full) barrier_init(&barrier, 1);
        for (auto& barrier : sm.v_full) barrier_init(&barrier, 1);
        barrier_init(&sm.received_full, 1);
        barrier_init_fence();
        barrier_expect(&sm.received_full, sm.RECEIVED);
        prefetch_map(task.q_map);
        for (int c = 0; c < COLUMN_BLOCKS; ++c) {
            prefetch_3d(task.k_map, 0, task.rank * KEYS, blockIdx.y * COLUMN_BLOCKS + c);
            prefetch_3d(task.v_map, 0, task.rank * KEYS, blockIdx.y * COLUMN_BLOCKS + c);
        }
    }
    __syncthreads();
    cluster_arrive_reading();  // waited for before anything is sent: then all blocks have started
    wait_for_predecessor();
    release_successor();
    if (threadIdx.x == 0) load_keys(sm, task, task.rank, true);
    if (threadIdx.x == 128) load_values(sm, task, task.rank);
    __syncwarp();
    float o[64], maximum = NOTHING, sum = 0.0f;
    attend(sm, task, o, maximum, sum);
    cluster_wait();
    send(sm, task.rank, o, maximum, sum);
    barrier_wait(&sm.received_full, 0);
    combine(sm, task);
}

}  // namespace narrow
}  // namespace flashrt
