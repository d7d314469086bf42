// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// What Hopper's attention kernels share: visibility of keys, the online softmax on wgmma accumulators, and
// the few copy and cluster instructions that only they need.
//
// Softmax is computed in powers of two: scores are multiplied by `scale` = log2(e)/√head_dim. The running
// maxima are kept in those units. A row that has seen no key has maximum −inf and sum 0.
#pragma once

#include <cuda_fp16.h>

#include "hopper.cuh"

namespace flashrt {

constexpr float NOTHING = -__builtin_huge_valf();

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Factor that brings what was summed under maximum `from` to maximum `to` ≥ from; 0 where nothing was seen.
__device__ __forceinline__ float rescale(float from, float to) {
    return from == NOTHING ? 0.0f : exp2_fast(from - to);
}

// As wgmma_hold, for weights that a product reads from registers: they are ready here, not later.
template <int count> __device__ __forceinline__ void weights_hold(uint32_t (&p)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(p[i])::"memory");
}

// Whether key first + lane may be seen. key_valid null: all.
__device__ __forceinline__ bool key_is_visible(const uint8_t* key_valid, int first, int keys) {
    int key = first + (threadIdx.x & 31);
    return key < keys && (!key_valid || key_valid[key]);
}

// ---- softmax over the columns of one accumulator [64, COLUMNS]; a thread has rows r and r + 8 of hopper.cuh
// ----

// Scores of keys that may not be seen become −inf; bit i of visible[j]: column 32j + i.
template <int COLUMNS>
__device__ __forceinline__ void hide(float (&s)[COLUMNS / 2],
                                     const uint32_t (&visible)[(COLUMNS + 31) / 32]) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; ++i) {
        uint32_t bits = visible[i / 4] >> (8 * (i & 3) + 2 * (threadIdx.x & 3));
        if (!(bits & 1)) s[4 * i] = s[4 * i + 2] = NOTHING;
        if (!(bits & 2)) s[4 * i + 1] = s[4 * i + 3] = NOTHING;
    }
}
// Largest score of each of the two rows, in units of the exponent.
template <int COUNT>
__device__ __forceinline__ void row_maxima(const float (&s)[COUNT], float scale, float (&top)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float x = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
        for (int i = 1; i < COUNT / 4; ++i) x = fmaxf(x, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
        top[h] = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2)) * scale;
    }
}
// Raises the maxima to at least `top`; factor: by what earlier sums and products must be multiplied.
__device__ __forceinline__ void raise(float (&maximum)[2], const float (&top)[2], float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float raised = fmaxf(maximum[h], top[h]);
        factor[h] = rescale(maximum[h], raised);
        maximum[h] = raised;
    }
}
// Scores become weights 2^(s·scale − maximum); adds this thread's share of the row sums.
template <int COUNT>
__device__ __forceinline__ void weigh(float (&s)[COUNT], float scale, const float (&maximum)[2],
                                      float (&sum)[2]) {
    float base[2] = {maximum[0] == NOTHING ? 0.0f : maximum[0], maximum[1] == NOTHING ? 0.0f : maximum[1]};
    float total[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        int h = (i >> 1) & 1;
        s[i] = exp2_fast(fmaf(s[i], scale, -base[h]));
        total[h] += s[i];
    }
    sum[0] += total[0];
    sum[1] += total[1];
}
// By pairs of columns: p[2i]: row r, p[2i+1]: row r + 8, which is the A fragment of a product as well.
template <int COUNT> __device__ __forceinline__ void pack(const float (&s)[COUNT], uint32_t (&p)[COUNT / 2]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}
// Multiplies rows r and r + 8 of an accumulator.
template <int COUNT> __device__ __forceinline__ void scale_rows(float (&o)[COUNT], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) o[i] *= factor[(i >> 1) & 1];
}
// Sum over the four threads that share a row.
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// ---- stores ----

// Four 8 × 8 matrices of bf16 pairs; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}
__device__ __forceinline__ void store_two_matrices(uint32_t address, uint32_t a, uint32_t b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b)
                 : "memory");
}
// Shared → global, of one thread; store_done() waits until everything that this thread stored has arrived.
__device__ __forceinline__ void store_4d(const CUtensorMap* map, const void* from, int x, int y, int z,
                                         int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}
__device__ __forceinline__ void store_3d(const CUtensorMap* map, const void* from, int x, int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
        : "memory");
}
__device__ __forceinline__ void store_done() {
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
// Into the level 2 cache only. Harmless before wait_for_predecessor(): what others still write arrives there
// as well.
__device__ __forceinline__ void prefetch_3d(const CUtensorMap* map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(x),
                 "r"(y), "r"(z)
                 : "memory");
}

// ---- clusters ----

// Every block of the cluster has come this far, with nothing written that the others would read.
__device__ __forceinline__ void cluster_arrive_reading() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// A block of the cluster as a receiver: what is sent counts, in bytes, towards its barrier.
struct Receiver {
    uint32_t block, barrier;

    __device__ __forceinline__ Receiver(uint32_t block, uint64_t* barrier)
        : block(block), barrier(remote_address(shared_address(barrier), block)) {}
    // `to`: where it is in this block.
    __device__ __forceinline__ void send2(const void* to, float a, float b) const {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %3}, [%1];" ::"r"(
                remote_address(shared_address(to), block)),
            "r"(barrier), "f"(a), "f"(b)
            : "memory");
    }
    __device__ __forceinline__ void send1(const void* to, float a) const {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %2, [%1];" ::"r"(
                         remote_address(shared_address(to), block)),
                     "r"(barrier), "f"(a)
                     : "memory");
    }
    __device__ __forceinline__ void send4(const void* to, uint4 words) const {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
            "[%1];" ::"r"(remote_address(shared_address(to), block)),
            "r"(barrier), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
            : "memory");
    }
    __device__ __forceinline__ void send4(const void* to, float a, float b, float c, float d) const {
        send4(to, make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)));
    }
};

}  // namespace flashrt
