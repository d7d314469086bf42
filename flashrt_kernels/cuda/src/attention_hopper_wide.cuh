// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of many queries with heads of 256 (a language prefix): query heads that share a key/value head are packed
// as rows, query-major, 128 rows in a tile. A cluster of two thread blocks takes one tile: block 0 the even
// 64-key blocks, block 1 the odd ones, so that each reads half of the keys and values. In a thread block one warp
// copies, two warpgroups compute 64 rows each; the products of one overlap the softmax of the other, and the scores of
// a key block are computed while the weights of the block before are multiplied with the values.
// At the end warpgroup w's rows are merged and written by block w, the other block sends its share over.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace wide {

constexpr int HEAD_DIM = 256, COLUMN_BLOCKS = HEAD_DIM / 64;  // a column block: 64 wide, one swizzled row of 128 bytes
constexpr int ROWS = 128, KEYS = 64, SLOTS = 5, BLOCKS = 2;
constexpr int MAX_KEYS = 8192;
constexpr int THREADS = 384;

struct Shared {
    uint8_t q[ROWS * HEAD_DIM * 2];            // [4 column blocks][128 rows][64]; at the end: the other block's sums
    uint8_t slot[SLOTS][KEYS * HEAD_DIM * 2];  // [4 column blocks][64 keys][64]; at the end, one: 64 rows of the output
    uint64_t q_full, received_full, full[SLOTS], empty[SLOTS];
    float2 received[64];  // maximum and sum of the other block
    uint32_t visible[MAX_KEYS / 32];
};
static_assert(sizeof(Shared) <= 232448);

// The next key block of this thread block that has a key to see, or `end`.
__device__ __forceinline__ int next_block(const Shared& sm, int block, int end) {
    do block += BLOCKS;
    while (block < end && !(sm.visible[2 * block] | sm.visible[2 * block + 1]));
    return block;
}

struct Slot {
    int index = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void advance() {
        if (++index == SLOTS) index = 0, phase ^= 1;
    }
};

// The copying thread. Keys and values alternate as they are needed: K0 K1 V0 K2 V1 …
struct Producer {
    Shared& sm;
    const CUtensorMap *k_map, *v_map;
    int head;
    Slot slot;

    __device__ __forceinline__ void load(const CUtensorMap* map, int block) {
        barrier_wait(&sm.empty[slot.index], slot.phase ^ 1);
        barrier_expect(&sm.full[slot.index], KEYS * HEAD_DIM * 2);
        copy_3d(sm.slot[slot.index], map, &sm.full[slot.index], 0, block * KEYS, head * COLUMN_BLOCKS, EVICT_LAST);
        slot.advance();
    }
};

struct Consumer {
    Shared& sm;
    Slot slot;
    uint64_t q_descriptor;

    // The slot that comes next has been filled.
    __device__ __forceinline__ void await() { barrier_wait(&sm.full[slot.index], slot.phase); }
    __device__ __forceinline__ void scores(float (&s)[KEYS / 2]) {
        await();
        uint64_t k_descriptor = descriptor_k_major(sm.slot[slot.index]);
        wgmma_hold(s);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 16; ++i)
            Wgmma<KEYS>::ss(s, q_descriptor + (i / 4) * (ROWS * 128 / 16) + (i % 4) * 2,
                            k_descriptor + (i / 4) * (KEYS * 128 / 16) + (i % 4) * 2, i > 0);
        wgmma_commit();
    }
    __device__ __forceinline__ void values(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[KEYS / 4], bool accumulate) {
        await();
        uint64_t v_descriptor = descriptor(shared_address(sm.slot[slot.index]), KEYS * 128, 1024, SWIZZLE_128);
        wgmma_hold(o);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < KEYS / 16; ++i) {
            uint32_t a[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
            Wgmma<HEAD_DIM>::template rs<1>(o, a, v_descriptor + i * (16 * 128 / 16), accumulate || i > 0);
        }
        wgmma_commit();
    }
    // Gives slot `index` back; each of the eight computing warps does.
    __device__ __forceinline__ void release(int index) {
        if ((threadIdx.x & 31) == 0) barrier_arrive(&sm.empty[index]);
    }
};

struct Rows {
    float maximum[2] = {NOTHING, NOTHING}, sum[2] = {0.0f, 0.0f};
};

__device__ __forceinline__ void softmax(const Shared& sm, int block, float scale, float (&s)[KEYS / 2], Rows& rows,
                                        float (&factor)[2]) {
    uint32_t visible[2] = {sm.visible[2 * block], sm.visible[2 * block + 1]};
    if ((visible[0] & visible[1]) != 0xffffffffu) hide<KEYS>(s, visible);
    float top[2];
    row_maxima(s, scale, top);
    raise(rows.maximum, top, factor);
    rows.sum[0] *= factor[0];
    rows.sum[1] *= factor[1];
    weigh(s, scale, rows.maximum, rows.sum);
}

// All key blocks of this thread block: o becomes the unnormalised output of the warpgroup's 64 rows.
__device__ __forceinline__ void attend(Consumer& consumer, int first, int end, float scale, float (&o)[HEAD_DIM / 2],
                                       Rows& rows) {
    const Shared& sm = consumer.sm;
    float s[KEYS / 2], factor[2];
    uint32_t p[KEYS / 4];
    consumer.scores(s);
    wgmma_wait<0>();
    wgmma_hold(s);
    consumer.release(consumer.slot.index);
    consumer.slot.advance();
    softmax(sm, first, scale, s, rows, factor);
    pack(s, p);
    bool accumulate = false;
    for (int block = next_block(sm, first, end); block < end;) {
        int k_slot = consumer.slot.index;
        weights_hold(p);
        wgmma_hold(o);
        consumer.scores(s);
        consumer.slot.advance();
        int v_slot = consumer.slot.index;
        consumer.values(o, p, accumulate);
        consumer.slot.advance();
        accumulate = true;
        wgmma_wait<1>();
        wgmma_hold(s);
        consumer.release(k_slot);
        softmax(sm, block, scale, s, rows, factor);
        wgmma_hold(s);
        int following = next_block(sm, block, end);
        // Also keeps the compiler from waiting for the values before the softmax, which is to overlap with them.
        if (following < end) consumer.await();
        wgmma_wait<0>();
        wgmma_hold(o);
        consumer.release(v_slot);
        pack(s, p);  // not before: the product that has just ended read p
        scale_rows(o, factor);
        block = following;
    }
    cluster_arrive_reading();  // the last scores are there: q may be overwritten
    consumer.values(o, p, accumulate);
    wgmma_wait<0>();
    wgmma_hold(o);
    rows.sum[0] = quad_sum(rows.sum[0]);
    rows.sum[1] = quad_sum(rows.sum[1]);
}

// Sums and statistics go to the block that writes these rows.
__device__ __forceinline__ void send(Shared& sm, int to, const float (&o)[HEAD_DIM / 2], const Rows& rows) {
    int t = threadIdx.x & 127, row = 16 * (t / 32) + (t & 31) / 4;
    Receiver receiver(to, &sm.received_full);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; ++i)
        receiver.send4(sm.q + i * 2048 + t * 16, o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    if ((t & 3) == 0) {
        receiver.send2(&sm.received[row], rows.maximum[0], rows.sum[0]);
        receiver.send2(&sm.received[row + 8], rows.maximum[1], rows.sum[1]);
    }
}

// Adds what the other block sent, normalises, and leaves the bf16 rows in `to` as the copy engine wants them.
__device__ __forceinline__ void merge(const Shared& sm, const float (&o)[HEAD_DIM / 2], const Rows& rows,
                                      uint8_t* to) {
    int t = threadIdx.x & 127, lane = t & 31, row = 16 * (t / 32) + lane / 4;
    float mine[2], other[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float2 there = sm.received[row + 8 * h];
        float top = fmaxf(rows.maximum[h], there.x);
        mine[h] = rescale(rows.maximum[h], top);
        other[h] = rescale(there.x, top);
        float sum = mine[h] * rows.sum[h] + other[h] * there.y, inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        mine[h] *= inverse;
        other[h] *= inverse;
    }
    const float4* sums = reinterpret_cast<const float4*>(sm.q) + t;
    int stored = 16 * (t / 32) + (lane & 15);  // the row whose address this lane gives
    uint32_t line = shared_address(to) + stored * 128;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i += 2) {  // i, i + 1: chunks of 8 columns
        float4 a = sums[i * 128], b = sums[(i + 1) * 128];
        int chunk = (i & 7) + (lane >> 4);
        store_matrices(line + (i / 8) * (64 * 128) + ((chunk ^ (stored & 7)) << 4),
                       pack_bf16(o[4 * i] * mine[0] + a.x * other[0], o[4 * i + 1] * mine[0] + a.y * other[0]),
                       pack_bf16(o[4 * i + 2] * mine[1] + a.z * other[1], o[4 * i + 3] * mine[1] + a.w * other[1]),
                       pack_bf16(o[4 * i + 4] * mine[0] + b.x * other[0], o[4 * i + 5] * mine[0] + b.y * other[0]),
                       pack_bf16(o[4 * i + 6] * mine[1] + b.z * other[1], o[4 * i + 7] * mine[1] + b.w * other[1]));
    }
    fence_async();
}

__device__ __forceinline__ void consume(Shared& sm, const CUtensorMap* out_map, int end, float scale, int group) {
    int rank = cluster_rank(), warpgroup = threadIdx.x / 128 - 1;
    Consumer consumer{sm, Slot(), descriptor_k_major(sm.q + warpgroup * 64 * 128)};
    float o[HEAD_DIM / 2];
    Rows rows;
    barrier_wait(&sm.q_full, 0);
    attend(consumer, rank, end, scale, o, rows);
    cluster_wait();
    if (warpgroup != rank) {
        send(sm, rank ^ 1, o, rows);
        return;
    }
    barrier_wait(&sm.received_full, 0);
    // The other warpgroup may still read the last values, of all slots only those.
    uint8_t* staging = sm.slot[(consumer.slot.index + 1) % SLOTS];
    merge(sm, o, rows, staging);
    named_barrier(1, 128);
    if ((threadIdx.x & 127) == 0) {
        int row = blockIdx.x / BLOCKS * ROWS + rank * 64;
        store_4d(out_map, staging, 0, 0, row / group, blockIdx.y * group * COLUMN_BLOCKS);
        store_done();
    }
}

// Maps: q and out [64, group, queries, heads·4] (head and column block of 64 in one dimension), boxes of 128 and of
// 64 rows; k and v [64, keys, kv_heads·4], boxes of 64 keys and 4 column blocks. Grid: (2·tiles, kv_heads).
__device__ __forceinline__ void run(const CUtensorMap* q_map, const CUtensorMap* k_map, const CUtensorMap* v_map,
                                    const CUtensorMap* out_map, const uint8_t* key_valid, int keys, int group, float scale) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    Shared& sm = *reinterpret_cast<Shared*>(shared_memory);
    int warp = threadIdx.x / 32, rank = cluster_rank(), end = (keys + KEYS - 1) / KEYS;
    Producer producer{sm, k_map, v_map, int(blockIdx.y), Slot()};
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1), barrier_init(&sm.received_full, 1);
        for (int i = 0; i < SLOTS; ++i) barrier_init(&sm.full[i], 1), barrier_init(&sm.empty[i], 8);
        barrier_init_fence();
        barrier_expect(&sm.received_full, 64 * (HEAD_DIM * 4 + sizeof(float2)));
        prefetch_map(q_map), prefetch_map(k_map), prefetch_map(v_map), prefetch_map(out_map);
    }
    wait_for_predecessor();
    release_successor();
    if (threadIdx.x == 0) {  // every thread block takes its first key block, seen or not: no need to look first
        barrier_expect(&sm.q_full, ROWS * HEAD_DIM * 2);
        copy_4d(sm.q, q_map, &sm.q_full, 0, 0, blockIdx.x / BLOCKS * ROWS / group, blockIdx.y * group * COLUMN_BLOCKS);
        producer.load(k_map, rank);
    }
    __syncwarp();
    for (int word = warp; word < 2 * max(end, BLOCKS); word += THREADS / 32) {
        uint32_t bits = visible_keys(key_valid, 32 * word, keys);
        if ((threadIdx.x & 31) == 0) sm.visible[word] = bits;
    }
    __syncthreads();
    if (warp < 4) {
        fewer_registers<24>();
        if (threadIdx.x == 0) {
            int before = rank;
            for (int block = next_block(sm, rank, end); block < end; block = next_block(sm, block, end)) {
                producer.load(k_map, block);
                producer.load(v_map, before);
                before = block;
            }
            producer.load(v_map, before);
        }
    } else {
        more_registers<240>();
        consume(sm, out_map, end, scale, group);
    }
}

}  // namespace wide
}  // namespace flashrt
