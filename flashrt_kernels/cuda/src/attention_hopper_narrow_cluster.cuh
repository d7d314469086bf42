// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Of attention_hopper_narrow.cuh: what the thread blocks of a cluster tell and send each other.
#pragma once

#include "attention_hopper_narrow_keys.cuh"

namespace flashrt {
namespace narrow {

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
#pragma unroll
    for (int j = 0; j < WORDS; ++j) {
        int first = (word % GROUPS + j) * 8 + 2 * (lane & 3), row = first + odd;
        int group = 1 << task.log_group;
        int query = task.query(Memory::ROWS) + (row >> task.log_group);
        size_t head = size_t(query) * (gridDim.y * group) + task.head() + (row & (group - 1));
        to[j] = query < task.queries ? task.out + head * HEAD_DIM + column : nullptr;
#pragma unroll
        for (int i = 0; i < CLUSTER; ++i)
            factor[j][i] = *reinterpret_cast<const float2*>(&sm.factor[i][first]);
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

}  // namespace narrow
}  // namespace flashrt
