// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Unmasked attention of a fused projection to itself, heads of any multiple of 8 up to 128 (72 in SigLIP). A thread
// block takes 64 queries per warpgroup of one head of one sequence, and the keys 256 at a time (all of them in SigLIP),
// as two blocks of 128: the scores of the second are computed during the softmax of the first.
//
// Shared memory holds planes of 8 columns × rows (16 bytes a row): wgmma's layout without swizzle, for queries, keys and
// values alike, and no padding to 64 or 128 columns. A plane is 16 bytes longer than its rows, so that neighbouring
// chunks of one row lie in different banks. Where the number of planes is odd the last step of 16 columns meets a plane
// of zeros in q, and in k the same plane twice.
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace self {

constexpr int KEYS = 128, BLOCKS = 2, PLANE = KEYS * 16 + 16;

template <int HEAD_DIM, int WARPGROUPS> struct Shared {
    static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= 128);
    static constexpr int CHUNKS = HEAD_DIM / 8, STEPS = (CHUNKS + 1) / 2;
    static constexpr int ROWS = 64 * WARPGROUPS, Q_PLANE = ROWS * 16 + 16, THREADS = 128 * WARPGROUPS;
    uint8_t q[2 * STEPS][Q_PLANE];
    uint8_t k[BLOCKS][CHUNKS][PLANE];
    uint8_t v[BLOCKS][CHUNKS][PLANE];
};

// 16 bytes, or zeros; part of the group that commit_copies() closes.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the newest `pending` groups have arrived and wgmma may read them; for the whole thread block.
template <int pending> __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
    fence_async();
    __syncthreads();
}

// Rows of CHUNKS·8 columns into planes; rows from `exist` on become zeros.
template <int ROWS, int CHUNKS, int THREADS>
__device__ __forceinline__ void load(uint8_t* planes, const bf16* from, size_t pitch, int exist) {
    uint32_t to = shared_address(planes);
#pragma unroll
    for (int base = 0; base < ROWS * CHUNKS; base += THREADS) {
        int i = base + threadIdx.x, row = i / CHUNKS, chunk = i % CHUNKS;
        if (ROWS * CHUNKS % THREADS && i >= ROWS * CHUNKS) break;
        bool exists = row < exist;
        copy_16(to + chunk * (ROWS * 16 + 16) + row * 16, from + (exists ? row : 0) * pitch + chunk * 8, exists);
    }
    commit_copies();
}

template <typename Memory>
__device__ __forceinline__ void scores(const Memory& sm, int warpgroup, int block, float (&s)[KEYS / 2]) {
    uint32_t q = shared_address(sm.q) + warpgroup * 64 * 16, k = shared_address(sm.k[block]);
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Memory::STEPS; ++i)
        Wgmma<KEYS>::ss(s, descriptor(q + 2 * i * Memory::Q_PLANE, Memory::Q_PLANE, 128, NO_SWIZZLE),
                        descriptor(k + 2 * i * PLANE, 2 * i + 1 < Memory::CHUNKS ? PLANE : 0, 128, NO_SWIZZLE), i > 0);
    wgmma_commit();
}
template <typename Memory, int HALF>
__device__ __forceinline__ void values(const Memory& sm, int block, const uint32_t (&p)[KEYS / 4], bool accumulate,
                                       float (&o)[HALF]) {
    uint64_t v = descriptor(shared_address(sm.v[block]), 128, PLANE, NO_SWIZZLE);
    wgmma_hold(o);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; ++i) {
        uint32_t a[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
        Wgmma<2 * HALF>::template rs<1>(o, a, v + i * 16, accumulate || i > 0);
    }
    wgmma_commit();
}

__device__ __forceinline__ void softmax(int left, float scale, float (&s)[KEYS / 2], float (&maximum)[2], float (&sum)[2],
                                        float (&factor)[2], uint32_t (&p)[KEYS / 4]) {
    if (left < KEYS) {
        uint32_t visible[KEYS / 32];
        for (int i = 0; i < KEYS / 32; ++i) {
            int count = left - 32 * i;
            visible[i] = count >= 32 ? 0xffffffffu : count > 0 ? (1u << count) - 1 : 0u;
        }
        hide<KEYS>(s, visible);
    }
    float top[2];
    row_maxima(s, scale, top);
    raise(maximum, top, factor);
    sum[0] *= factor[0];
    sum[1] *= factor[1];
    weigh(s, scale, maximum, sum);
    pack(s, p);
}

// qkv: [sequences·length, 3·heads·HEAD_DIM], out: [sequences·length, heads·HEAD_DIM].
// Grid: (tiles of a sequence, heads, sequences).
template <int HEAD_DIM, int WARPGROUPS>
__device__ __forceinline__ void run(const bf16* qkv, bf16* out, int length, float scale) {
    using Memory = Shared<HEAD_DIM, WARPGROUPS>;
    constexpr int CHUNKS = Memory::CHUNKS, THREADS = Memory::THREADS;
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    Memory& sm = *reinterpret_cast<Memory*>(shared_memory);
    int warpgroup = threadIdx.x / 128, t = threadIdx.x & 127, lane = t & 31;
    int heads = gridDim.y, width = heads * HEAD_DIM, first = blockIdx.x * Memory::ROWS;
    size_t pitch = 3 * width, start = size_t(blockIdx.z) * length;
    const bf16 *q = qkv + start * pitch + blockIdx.y * HEAD_DIM, *k = q + width, *v = k + width;
    if (CHUNKS % 2)
        for (int i = threadIdx.x; i < Memory::ROWS; i += THREADS)
            *reinterpret_cast<uint4*>(sm.q[CHUNKS] + i * 16) = make_uint4(0, 0, 0, 0);
    wait_for_predecessor();
    release_successor();
    load<Memory::ROWS, CHUNKS, THREADS>(sm.q[0], q + first * pitch, pitch, length - first);
    float o[HEAD_DIM / 2], maximum[2] = {NOTHING, NOTHING}, sum[2] = {0.0f, 0.0f}, factor[2];
    for (int key = 0; key < length; key += BLOCKS * KEYS) {
        if (key) __syncthreads();  // everybody is through with the keys before
        int left[BLOCKS] = {length - key, length - key - KEYS};
        for (int b = 0; b < BLOCKS; ++b)
            load<KEYS, CHUNKS, THREADS>(sm.k[b][0], k + (key + b * KEYS) * pitch, pitch, left[b]);
        for (int b = 0; b < BLOCKS; ++b)
            load<KEYS, CHUNKS, THREADS>(sm.v[b][0], v + (key + b * KEYS) * pitch, pitch, left[b]);
        float s[2][KEYS / 2];
        uint32_t p[2][KEYS / 4];
        wait_copies<3>();
        scores(sm, warpgroup, 0, s[0]);
        wait_copies<2>();
        scores(sm, warpgroup, 1, s[1]);
        wgmma_wait<1>();
        wgmma_hold(s[0]);
        softmax(left[0], scale, s[0], maximum, sum, factor, p[0]);
        if (key) scale_rows(o, factor);
        wait_copies<1>();
        values(sm, 0, p[0], key > 0, o);
        wgmma_wait<1>();
        wgmma_hold(s[1]);
        softmax(left[1], scale, s[1], maximum, sum, factor, p[1]);
        wait_copies<0>();
        wgmma_wait<0>();
        wgmma_hold(o);
        scale_rows(o, factor);
        values(sm, 1, p[1], true, o);
        wgmma_wait<0>();
        wgmma_hold(o);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float inverse = 1.0f / quad_sum(sum[h]);
        int row = first + 64 * warpgroup + 16 * (t / 32) + lane / 4 + 8 * h;
        if (row >= length) continue;
        bf16* to = out + (start + row) * width + blockIdx.y * HEAD_DIM + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < CHUNKS; ++i)
            *reinterpret_cast<uint32_t*>(to + 8 * i) =
                pack_bf16(o[4 * i + 2 * h] * inverse, o[4 * i + 2 * h + 1] * inverse);
    }
}

}  // namespace self
}  // namespace flashrt
