// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention of many queries with heads of 256 (a language prefix): query heads that share a key/value head
// are packed as rows, query-major, 128 rows in a tile. A cluster of two thread blocks takes one tile: block 0
// the even 64-key blocks, block 1 the odd ones, so that each reads half of the keys and values. In a thread
// block one warp copies, two warpgroups compute 64 rows each; the products of one overlap the softmax of the
// other, and the scores of a key block are computed while the weights of the block before are multiplied with
// the values. At the end block b merges and writes columns 128b … 128b + 127, and sends the other block its
// sums of the rest.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace wide {

constexpr int HEAD_DIM = 256,
              COLUMN_BLOCKS = HEAD_DIM / 64;  // a column block: 64 wide, one swizzled row of 128 bytes
constexpr int ROWS = 128, KEYS = 64, SLOTS = 5, BLOCKS = 2;
constexpr int MAX_KEYS = 4096;
constexpr int THREADS = 384;
constexpr int VISIBLE = 1,
              STAGED = 2;  // named barriers: sm.visible is complete; a warpgroup's output is (two of them)

struct Shared {
    uint8_t q[ROWS * HEAD_DIM * 2];  // [4 column blocks][128 rows][64]; at the end: the other block's sums
    uint8_t slot[SLOTS][KEYS * HEAD_DIM *
                        2];  // [4 column blocks][64 keys][64]; at the end, one: 64 rows of the output
    uint64_t q_full, received_full, full[SLOTS], empty[SLOTS];
    float2 received[ROWS];  // maximum and sum of the other block
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
        copy_3d(sm.slot[slot.index], map, &sm.full[slot.index], 0, block * KEYS, head * COLUMN_BLOCKS,
                EVICT_LAST);
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
    __device__ __forceinline__ void values(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[KEYS / 4],
                                           bool accumulate) {
        await();
        uint64_t v_descriptor =
            descriptor(shared_address(sm.slot[slot.index]), KEYS * 128, 1024, SWIZZLE_128);
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

__device__ __forceinline__ void softmax(const Shared& sm, int block, float scale, float (&s)[KEYS / 2],
                                        Rows& rows, float (&factor)[2]) {
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
__device__ __forceinline__ void attend(Consumer& consumer, int first, int end, float scale,
                                       float (&o)[HEAD_DIM / 2], Rows& rows) {
    const Shared& sm = consumer.sm;
    float s[KEYS / 2], factor[2];
    uint32_t p[KEYS / 4];
    consumer.scores(s);
    wgmma_wait<0>();
    wgmma_hold(s);
    consumer.release(consumer.slot.index);
    consumer.slot.advance();
    named_barrier(VISIBLE, THREADS);
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
        // Also keeps the compiler from waiting for the values before the softmax, which is to overlap with
        // them.
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

// Sends the sums of the other block's columns, merges those of this one's, normalises, and writes them.
template <int RANK>
__device__ __forceinline__ void finish(Consumer& consumer, const CUtensorMap* out_map, int group,
                                       const float (&o)[HEAD_DIM / 2], const Rows& rows) {
    constexpr int COUNT = HEAD_DIM / 4;  // sums of a thread in half of the columns
    Shared& sm = consumer.sm;
    int t = threadIdx.x & 127, lane = t & 31, warpgroup = threadIdx.x / 128 - 1,
        row = 16 * (t / 32) + lane / 4;
    float4* sums = reinterpret_cast<float4*>(sm.q) + warpgroup * (COUNT / 4 * 128) + t;
    float2* statistics = sm.received + 64 * warpgroup;
    Receiver other(RANK ^ 1, &sm.received_full);
    const float *away = o + (RANK ^ 1) * COUNT, *kept = o + RANK * COUNT;
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
        other.send4(sums + i / 4 * 128, away[i], away[i + 1], away[i + 2], away[i + 3]);
    if ((t & 3) == 0) {
        other.send2(&statistics[row], rows.maximum[0], rows.sum[0]);
        other.send2(&statistics[row + 8], rows.maximum[1], rows.sum[1]);
    }
    barrier_wait(&sm.received_full, 0);
    float mine[2], theirs[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float2 there = statistics[row + 8 * h];
        float top = fmaxf(rows.maximum[h], there.x);
        mine[h] = rescale(rows.maximum[h], top);
        theirs[h] = rescale(there.x, top);
        float sum = mine[h] * rows.sum[h] + theirs[h] * there.y, inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        mine[h] *= inverse;
        theirs[h] *= inverse;
    }
    // The other warpgroup may still read the last values, of all slots only those.
    uint8_t* staging = sm.slot[(consumer.slot.index + 1) % SLOTS] + warpgroup * (64 * HEAD_DIM);
    int stored = 16 * (t / 32) + (lane & 15);  // the row whose address this lane gives
    uint32_t line = shared_address(staging) + stored * 128;
#pragma unroll
    for (int i = 0; i < COUNT / 4; i += 2) {  // i, i + 1: chunks of 8 columns
        uint32_t p[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float4 x = sums[(i + j) * 128];
            const float* y = kept + 4 * (i + j);
            p[2 * j] = pack_bf16(y[0] * mine[0] + x.x * theirs[0], y[1] * mine[0] + x.y * theirs[0]);
            p[2 * j + 1] = pack_bf16(y[2] * mine[1] + x.z * theirs[1], y[3] * mine[1] + x.w * theirs[1]);
        }
        int chunk = (i & 7) + (lane >> 4);
        store_matrices(line + (i / 8) * (64 * 128) + ((chunk ^ (stored & 7)) << 4), p[0], p[1], p[2], p[3]);
    }
    fence_async();
    named_barrier(STAGED + warpgroup, 128);
    if (t == 0) {
        int first = blockIdx.x / BLOCKS * ROWS + warpgroup * 64;
        store_4d(out_map, staging, 0, 0, first / group, blockIdx.y * group * COLUMN_BLOCKS + RANK * 2);
        store_done();
    }
}

__device__ __forceinline__ void consume(Shared& sm, const CUtensorMap* out_map, int end, float scale,
                                        int group) {
    int rank = cluster_rank(), warpgroup = threadIdx.x / 128 - 1;
    Consumer consumer{sm, Slot(), descriptor_k_major(sm.q + warpgroup * 64 * 128)};
    float o[HEAD_DIM / 2];
    Rows rows;
    barrier_wait(&sm.q_full, 0);
    attend(consumer, rank, end, scale, o, rows);
    cluster_wait();
    if (rank == 0) finish<0>(consumer, out_map, group, o, rows);
    else finish<1>(consumer, out_map, group, o, rows);
}

// The first warpgroup: looks which keys may be seen, and copies. Every thread block takes its first key
// block, seen or not: no need to look first.
__device__ __forceinline__ void produce(Shared& sm, const CUtensorMap* q_map, const CUtensorMap* k_map,
                                        const CUtensorMap* v_map, const uint8_t* key_valid, int keys, int end,
                                        int group) {
    constexpr int BATCH = 4, WARPS = 4;  // words that a warp looks at together
    int rank = cluster_rank(), warp = threadIdx.x / 32;
    Producer producer{sm, k_map, v_map, int(blockIdx.y), Slot()};
    if (threadIdx.x == 0) {
        barrier_expect(&sm.q_full, sizeof(sm.q));
        copy_4d(sm.q, q_map, &sm.q_full, 0, 0, blockIdx.x / BLOCKS * ROWS / group,
                blockIdx.y * group * COLUMN_BLOCKS);
        producer.load(k_map, rank);
    }
    __syncwarp();
    int blocks = max((end - rank + BLOCKS - 1) / BLOCKS, 1);  // of this thread block, two words each
    for (int base = warp; base < 2 * blocks; base += BATCH * WARPS) {
        bool seen[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            int word = base + i * WARPS;
            seen[i] = key_is_visible(key_valid, 32 * ((word / 2 * BLOCKS + rank) * 2 + word % 2), keys);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            uint32_t bits = __ballot_sync(0xffffffffu, seen[i]);
            int word = base + i * WARPS;
            if ((threadIdx.x & 31) == 0 && word < 2 * blocks)
                sm.visible[(word / 2 * BLOCKS + rank) * 2 + word % 2] = bits;
        }
    }
    named_barrier(VISIBLE, THREADS);
    if (threadIdx.x == 0) {
        int before = rank;
        for (int block = next_block(sm, rank, end); block < end; block = next_block(sm, block, end)) {
            producer.load(k_map, block);
            producer.load(v_map, before);
            before = block;
        }
        producer.load(v_map, before);
    }
}

// Maps: q and out [64, group, queries, heads·4] (head and column block of 64 in one dimension), boxes of 128
// rows and 4 column blocks, and of 64 and 2; k and v [64, keys, kv_heads·4], boxes of 64 keys and 4 column
// blocks. Grid: (2·tiles, kv_heads).
__device__ __forceinline__ void run(const CUtensorMap* q_map, const CUtensorMap* k_map,
                                    const CUtensorMap* v_map, const CUtensorMap* out_map,
                                    const uint8_t* key_valid, int keys, int group, float scale) {
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    Shared& sm = *reinterpret_cast<Shared*>(shared_memory);
    int end = (keys + KEYS - 1) / KEYS;
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1), barrier_init(&sm.received_full, 1);
        for (int i = 0; i < SLOTS; ++i) barrier_init(&sm.full[i], 1), barrier_init(&sm.empty[i], 8);
        barrier_init_fence();
        barrier_expect(&sm.received_full, ROWS * (HEAD_DIM / 2 * sizeof(float) + sizeof(float2)));
        prefetch_map(q_map), prefetch_map(k_map), prefetch_map(v_map), prefetch_map(out_map);
    }
    __syncthreads();
    wait_for_predecessor();
    release_successor();
    if (threadIdx.x < 128) {
        fewer_registers<24>();
        produce(sm, q_map, k_map, v_map, key_valid, keys, end, group);
    } else {
        more_registers<240>();
        consume(sm, out_map, end, scale, group);
    }
}

}  // namespace wide
}  // namespace flashrt
