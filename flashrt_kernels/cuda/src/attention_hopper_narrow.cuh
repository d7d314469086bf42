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
// Keys pass through shared memory into registers and make room for the values there: a block that holds all
// of its keys and values needs less than half of the shared memory, and starts beside the kernel in front.
//
// `settled`: so many leading keys were in place before the kernel in front of this one started. They, and
// their values, are loaded before the wait for it: nearly all there is to load.
//
// At the end every block sends its sums, in fp16 with a common exponent for 32 columns and all rows, to the
// block that adds them up: warp i to block i. A ninth warp, the messenger, asks for the queries, and tells the
// other blocks what the sums must be multiplied by while the values are multiplied. No second launch, no
// workspace, the same order of additions in every run.
#pragma once

#include "attention_hopper_narrow_cluster.cuh"

namespace flashrt {
namespace narrow {

// The key blocks rank, rank + CLUSTER, … of one tile, at least one, unseen if need be. `taken`: the keys of the
// first are in k.
template <typename Memory, int COUNT>
__device__ __forceinline__ void attend(Memory& sm, const Task& task, bool taken, typename Memory::Keys& k,
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
        float s[COUNT];
        if (w == 0) scores<0>(sm, k, s);
        else scores<1>(sm, k, s);
        if (last) {
            cluster_wait();            // all blocks have started: they may be sent to
            cluster_arrive_reading();  // where the last keys are, others may write
        }
        find_top(sm, visible, task.scale, s);
        named_barrier(TOP, COMPUTING);
        raise_maxima(sm, start, maximum, sum, o);
        weigh(sm, w, task.scale, maximum, s, sum);
        fence_async();
        named_barrier(TOP, COMPUTING);
        if (w == 0) values<0>(sm, 0, !start, o);
        else values<1>(sm, 0, !start, o);
        if (last) {  // meanwhile
            reduce(sum, [](float a, float b) { return a + b; });
            sm.sums[warp][reduced_row<COUNT / 2>()] = sum[0];
            named_arrive(SUMMED, THREADS);
        }
        if (w == 0) values<0>(sm, 1, true, o);
        else values<1>(sm, 1, true, o);
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
    typename Memory::Keys k;
    bool settled = first >= task.keys || min(first + UNIT, task.keys) <= task.settled;
    if (settled) {
        load_keys(sm, task, w, first);
        take_keys(sm, task, w, first, k);
    }
    wait_for_predecessor();
    release_successor();
    if (!settled) load_keys(sm, task, w, first);
    float o[2][ROWS / 2];
    attend(sm, task, settled, k, o);
    cluster_wait();
    wgmma_wait<0>();
    wgmma_hold(o[0]), wgmma_hold(o[1]);
    send(sm, task.rank, o);
    combine(sm, task);
}

}  // namespace narrow
}  // namespace flashrt
