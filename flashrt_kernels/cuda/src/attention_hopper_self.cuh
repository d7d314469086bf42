// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Unmasked attention of a fused projection to itself, heads of a multiple of 64, or of 8 more (72 in SigLIP).
// A thread block takes 64 queries per warpgroup of one head of one sequence, and the keys 256 at a time (all
// of them in SigLIP), as two blocks of 128: the scores of the second are computed during the softmax of the
// first.
//
// A head of 72 is not padded to 128: columns 0 … 63 lie in swizzled rows of 128 bytes, the last 8, the tail,
// in a plane of 16 bytes a row without swizzle. A step of wgmma is 16 columns wide: for those of the tail
// that don't exist q has a plane of zeros, and k its tail once more (finite, and multiplied by zero).
#pragma once

#include "attention_hopper_shared.cuh"

namespace flashrt {
namespace self {

constexpr int KEYS = 128, BLOCKS = 2;

template <int HEAD_DIM, int WARPGROUPS> struct Shared {
    static constexpr int MAIN = HEAD_DIM / 64, TAIL = HEAD_DIM % 64 / 8, ROWS = 64 * WARPGROUPS;
    static_assert(MAIN > 0 && TAIL <= 1 && HEAD_DIM == 64 * MAIN + 8 * TAIL);
    uint8_t q[MAIN][ROWS * 128];  // at the end: the output
    uint8_t k[BLOCKS][MAIN][KEYS * 128];
    uint8_t v[BLOCKS][MAIN][KEYS * 128];
    uint8_t q_tail[2 * TAIL][ROWS * 16];  // tail and zeros
    uint8_t k_tail[BLOCKS][TAIL * KEYS * 16];
    uint8_t v_tail[BLOCKS][TAIL * KEYS * 16];
    uint64_t k_full[BLOCKS], v_full[BLOCKS];
};

// Of qkv [sequences, length, 3·heads·HEAD_DIM] and out [sequences, length, heads·HEAD_DIM], innermost
// dimension first; boxes of 64 columns (`tail`: 8, not swizzled) and the rows of a thread block, KEYS or 64
// rows.
struct Maps {
    CUtensorMap q, q_tail, kv, kv_tail, out, out_tail;
};

// Asks for what one pass of the loop needs: queries (in the first), keys and values. Issuing a copy takes
// long, so each warp issues some of them, in the order of their use. `column`: the first of the head in qkv.
template <typename Memory>
__device__ __forceinline__ void load(Memory& sm, const Maps& maps, int column, int width, int first,
                                     int key) {
    constexpr int MAIN = Memory::MAIN, TAIL = Memory::TAIL, ROWS = Memory::ROWS, WARPS = ROWS / 16;
    if (threadIdx.x & 31) return;
    int warp = threadIdx.x / 32, copy = 0, z = blockIdx.z;
    if (warp == 0) {
#pragma unroll
        for (int b = 0; b < BLOCKS; ++b) {
            barrier_expect(&sm.k_full[b], (KEYS + (key + b ? 0 : ROWS)) * (64 * MAIN + 8 * TAIL) * 2);
            barrier_expect(&sm.v_full[b], KEYS * (64 * MAIN + 8 * TAIL) * 2);
        }
    }
    auto mine = [&] { return copy++ % WARPS == warp; };
    if (key == 0) {
        for (int m = 0; m < MAIN; ++m)
            if (mine()) copy_3d(sm.q[m], &maps.q, &sm.k_full[0], column + 64 * m, first, z);
        if (TAIL && mine()) copy_3d(sm.q_tail[0], &maps.q_tail, &sm.k_full[0], column + 64 * MAIN, first, z);
    }
#pragma unroll
    for (int i = 0; i < 2 * BLOCKS; ++i) {
        int b = i % BLOCKS, row = key + b * KEYS, at = column + width * (1 + i / BLOCKS);
        uint64_t* full = i < BLOCKS ? &sm.k_full[b] : &sm.v_full[b];
        for (int m = 0; m < MAIN; ++m)
            if (mine()) copy_3d(i < BLOCKS ? sm.k[b][m] : sm.v[b][m], &maps.kv, full, at + 64 * m, row, z);
        uint8_t* tail = i < BLOCKS ? sm.k_tail[b] : sm.v_tail[b];
        if (TAIL && mine()) copy_3d(tail, &maps.kv_tail, full, at + 64 * MAIN, row, z);
    }
}

template <typename Memory>
__device__ __forceinline__ void scores(const Memory& sm, int warpgroup, int block, float (&s)[KEYS / 2]) {
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int m = 0; m < Memory::MAIN; ++m) {
        uint64_t q = descriptor_k_major(sm.q[m] + warpgroup * 64 * 128),
                 k = descriptor_k_major(sm.k[block][m]);
#pragma unroll
        for (int i = 0; i < 4; ++i) Wgmma<KEYS>::ss(s, q + 2 * i, k + 2 * i, m + i > 0);
    }
    if (Memory::TAIL)
        Wgmma<KEYS>::ss(
            s,
            descriptor(shared_address(sm.q_tail) + warpgroup * 64 * 16, Memory::ROWS * 16, 128, NO_SWIZZLE),
            descriptor(shared_address(sm.k_tail[block]), 0, 128, NO_SWIZZLE), 1);
    wgmma_commit();
}

template <int HEAD_DIM> struct Sums {
    float main[HEAD_DIM / 64 * 32], tail[4];

    __device__ __forceinline__ void scale(const float (&factor)[2]) {
        scale_rows(main, factor);
        if (HEAD_DIM % 64) scale_rows(tail, factor);
    }
    __device__ __forceinline__ void hold() {
        wgmma_hold(main);
        if (HEAD_DIM % 64) wgmma_hold(tail);
    }
};

template <int HEAD_DIM, typename Memory>
__device__ __forceinline__ void values(const Memory& sm, int block, const uint32_t (&p)[KEYS / 4],
                                       bool accumulate, Sums<HEAD_DIM>& o) {
    uint64_t v = descriptor(shared_address(sm.v[block]), KEYS * 128, 1024, SWIZZLE_128);
    uint64_t v_tail = descriptor(shared_address(sm.v_tail[block]), 128, 128, NO_SWIZZLE);
    o.hold();
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; ++i) {
        uint32_t a[4] = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
        Wgmma<64 * Memory::MAIN>::template rs<1>(o.main, a, v + i * (16 * 128 / 16), accumulate || i > 0);
        if (Memory::TAIL)
            Wgmma<8>::template rs<1>(o.tail, a, v_tail + i * (16 * 16 / 16), accumulate || i > 0);
    }
    wgmma_commit();
}

// `left`: how many keys there are from the first of this block on.
__device__ __forceinline__ void softmax(int left, float scale, float (&s)[KEYS / 2], float (&maximum)[2],
                                        float (&sum)[2], float (&factor)[2], uint32_t (&p)[KEYS / 4]) {
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

// Normalised bf16 rows of a warpgroup, to where its queries were and from there out.
template <int HEAD_DIM, typename Memory>
__device__ __forceinline__ void write(Memory& sm, const Maps& maps, int warpgroup, int first,
                                      const Sums<HEAD_DIM>& o, const float (&sum)[2]) {
    int t = threadIdx.x & 127, lane = t & 31, row = 16 * (t / 32) + (lane & 15);
    float inverse[2] = {1.0f / quad_sum(sum[0]), 1.0f / quad_sum(sum[1])};
#pragma unroll
    for (int i = 0; i < 8 * Memory::MAIN; i += 2) {  // chunks i and i + 1 of 8 columns
        uint32_t p[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            p[j] =
                pack_bf16(o.main[4 * i + 2 * j] * inverse[j & 1], o.main[4 * i + 2 * j + 1] * inverse[j & 1]);
        int chunk = (i & 7) + (lane >> 4);
        store_matrices(
            shared_address(sm.q[i / 8]) + (warpgroup * 64 + row) * 128 + ((chunk ^ (row & 7)) << 4), p[0],
            p[1], p[2], p[3]);
    }
    if (Memory::TAIL)
        for (int h = 0; h < 2; ++h) {
            int tail_row = warpgroup * 64 + 16 * (t / 32) + lane / 4 + 8 * h;
            *reinterpret_cast<uint32_t*>(sm.q_tail[0] + tail_row * 16 + (lane & 3) * 4) =
                pack_bf16(o.tail[2 * h] * inverse[h], o.tail[2 * h + 1] * inverse[h]);
        }
    fence_async();
    named_barrier(1 + warpgroup, 128);
    if (t == 0) {
        int column = blockIdx.y * HEAD_DIM;
        for (int m = 0; m < Memory::MAIN; ++m)
            store_3d(&maps.out, sm.q[m] + warpgroup * 64 * 128, column + 64 * m, first, blockIdx.z);
        if (Memory::TAIL)
            store_3d(&maps.out_tail, sm.q_tail[0] + warpgroup * 64 * 16, column + 64 * Memory::MAIN, first,
                     blockIdx.z);
        store_done();
    }
}

// Grid: (tiles of a sequence, heads, sequences).
template <int HEAD_DIM, int WARPGROUPS>
__device__ __forceinline__ void run(const Maps& maps, int length, float scale) {
    using Memory = Shared<HEAD_DIM, WARPGROUPS>;
    constexpr int TAIL = Memory::TAIL, ROWS = Memory::ROWS;
    extern __shared__ __align__(1024) uint8_t shared_memory[];
    Memory& sm = *reinterpret_cast<Memory*>(shared_memory);
    int warpgroup = threadIdx.x / 128, first = blockIdx.x * ROWS;
    int column = blockIdx.y * HEAD_DIM, width = gridDim.y * HEAD_DIM;
    if (threadIdx.x == 0) {
        for (auto& barrier : sm.k_full) barrier_init(&barrier, 1);
        for (auto& barrier : sm.v_full) barrier_init(&barrier, 1);
        barrier_init_fence();
        prefetch_map(&maps.q), prefetch_map(&maps.kv), prefetch_map(&maps.out);
        if (TAIL) prefetch_map(&maps.q_tail), prefetch_map(&maps.kv_tail), prefetch_map(&maps.out_tail);
    }
    if (TAIL && threadIdx.x < ROWS) {
        *reinterpret_cast<uint4*>(sm.q_tail[1] + threadIdx.x * 16) = make_uint4(0, 0, 0, 0);
        fence_async();
    }
    __syncthreads();
    wait_for_predecessor();
    release_successor();
    Sums<HEAD_DIM> o;
    float maximum[2] = {NOTHING, NOTHING}, sum[2] = {0.0f, 0.0f}, factor[2];
    uint32_t phase = 0;
    for (int key = 0; key < length; key += BLOCKS * KEYS, phase ^= 1) {
        if (key) __syncthreads();  // everybody is through with the keys before
        load(sm, maps, column, width, first, key);
        __syncwarp();
        float s[2][KEYS / 2];
        uint32_t p[2][KEYS / 4];
        barrier_wait(&sm.k_full[0], phase);
        scores(sm, warpgroup, 0, s[0]);
        barrier_wait(&sm.k_full[1], phase);
        scores(sm, warpgroup, 1, s[1]);
        wgmma_wait<1>();
        wgmma_hold(s[0]);
        softmax(length - key, scale, s[0], maximum, sum, factor, p[0]);
        if (key) o.scale(factor);
        barrier_wait(&sm.v_full[0], phase);
        values<HEAD_DIM>(sm, 0, p[0], key > 0, o);
        wgmma_wait<1>();
        wgmma_hold(s[1]);
        softmax(length - key - KEYS, scale, s[1], maximum, sum, factor, p[1]);
        weights_hold(p[1]);
        barrier_wait(&sm.v_full[1], phase);
        wgmma_wait<0>();
        o.hold();
        o.scale(factor);
        values<HEAD_DIM>(sm, 1, p[1], true, o);
        wgmma_wait<0>();
        o.hold();
    }
    write<HEAD_DIM>(sm, maps, warpgroup, first + 64 * warpgroup, o, sum);
}

}  // namespace self
}  // namespace flashrt
