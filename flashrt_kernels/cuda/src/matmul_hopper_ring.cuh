// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Sizes of a tile of matmul_hopper.cu, the part of the product that a block works on, and the ring of stages
// between the warps that copy and the warpgroups that multiply. Addresses of shared memory are numbers here,
// kept in registers: from pointers the compiler makes them again at every use.
#pragma once

#include "cluster.cuh"
#include "epilogue.cuh"

namespace flashrt {

constexpr int STEP = 64;     // of k: 128 bytes, the width of the swizzle
constexpr int HELPERS = 96;  // threads beside the copying warp, which fetch the residual

constexpr int MOST_SHARED = 226 << 10;  // bytes that a tile may ask for, beside its barriers

template <int KIND, int GROUPS_, int BN_, int STAGES_, int SHARE_, int SPLIT_> struct Tile {
    static constexpr int GROUPS = GROUPS_, BN = BN_, STAGES = STAGES_, SHARE = SHARE_, SPLIT = SPLIT_;
    static constexpr int BM = 64 * GROUPS, WARPS = 4 * GROUPS;
    static constexpr int X_BYTES = BM * 128, WEIGHT_BYTES = BN * 128, STAGE_BYTES = X_BYTES + WEIGHT_BYTES;
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
    static constexpr int OWN = BN / SPLIT;  // columns that one of the SPLIT blocks finishes
    static constexpr int SUM_BYTES = (SPLIT - 1) * BM * OWN * 4;
    // Results wait in shared memory for whole lines: in bf16, in fp32 where there is room. Rows are apart by
    // what keeps 8 of them in different banks.
    static constexpr int OUT_BLOCKS = is_gated(KIND) ? BN / 16 : BN / 8;
    static constexpr int PITCH_FP32 = OUT_BLOCKS * 32 + 32, PITCH_BF16 = OUT_BLOCKS * 16 + 16;
    static constexpr int ROOM = SPLIT > 1 ? 0 : MOST_SHARED - RING_BYTES;
    static constexpr bool STAGED_FP32 = KIND == 0 && BM * PITCH_FP32 <= ROOM;
    static_assert(SPLIT > 1 || BM * PITCH_BF16 <= ROOM, "no room for the results");
    static_assert(SPLIT == 1 || (KIND == 0 && SHARE == 1 && BN % (8 * SPLIT) == 0), "such parts are not made");
    static_assert(RING_BYTES + SUM_BYTES <= MOST_SHARED, "no room for the sums");
    // Of a consumer thread; the copying warpgroup hands over what it does not need (setmaxnreg). One warpgroup
    // is allotted as many at its start: the fewer, the more room is left for blocks of the kernel behind.
    static constexpr int REGISTERS = GROUPS == 2 ? 232 : KIND == 2 && BN > 128 ? 240 : 208;  // 2: ROPE_QKV
    static constexpr int LEFT = 40;
    static constexpr int PORTION = 4;  // blocks that results go out by when they don't wait
    static_assert(BN % (8 * SHARE) == 0, "parts are whole atoms of the swizzle");
};

// Which part of the product a block works on.
struct Work {
    int clusters, cluster;  // in the grid; this one's
    int share;              // place within the cluster
    int row_groups, units;  // SHARE row tiles make a group; units = groups · column tiles, rows fastest
    int split, begin;       // which part of k, and the first of its steps
    int steps;              // of k
};

// Whose turn it is in the ring.
struct Turn {
    int stage = 0;
    uint32_t phase = 0;
    template <int STAGES> __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

__device__ __forceinline__ uint32_t fixed_address(const void* p) {
    uint32_t address = shared_address(p);
    asm volatile("" : "+r"(address));
    return address;
}

template <typename T> struct Ring {
    uint32_t memory, barriers;
    __device__ __forceinline__ Ring(const void* memory, const uint64_t* barriers)
        : memory(fixed_address(memory)), barriers(fixed_address(barriers)) {}
    __device__ __forceinline__ uint32_t x(int stage) const { return memory + stage * T::STAGE_BYTES; }
    __device__ __forceinline__ uint32_t weight(int stage) const { return x(stage) + T::X_BYTES; }
    __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
    __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + 8 * (T::STAGES + stage); }
    __device__ __forceinline__ uint32_t residual_here() const { return barriers + 16 * T::STAGES; }
    __device__ __forceinline__ uint32_t summed() const { return residual_here() + 8; }
    __device__ __forceinline__ uint32_t sums() const { return memory + T::RING_BYTES; }
    __device__ __forceinline__ uint32_t staging() const { return memory + T::RING_BYTES; }
    __device__ __forceinline__ void initialise() const;
};

// ---- the instructions, on such addresses ----

__device__ __forceinline__ void initialise_barrier(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Nothing is published, only read: with .release.cluster it would be a fence of the whole GPU.
__device__ __forceinline__ void remote_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait_phase(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y,
                                          uint64_t hint) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(hint)
        : "memory");
}
// Lands at the same place in every block of the cluster that `mask` names, and arrives at the barrier there.
__device__ __forceinline__ void copy_tile_to_all(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x,
                                                 int y, uint16_t mask, uint64_t hint) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(mask), "l"(hint)
        : "memory");
}
__device__ __forceinline__ float4 shared_load4(uint32_t address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ float2 shared_load2(uint32_t address) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
}
__device__ __forceinline__ void shared_store2(uint32_t address, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}
// Four matrices of 8 × 8 bf16 as wgmma and mma.sync leave them; lanes 8i … 8i+7 name the rows of matrix i.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
                 "r"(b), "r"(c), "r"(d)
                 : "memory");
}
// 16 bytes, under way until the barrier that fetched() names has counted this thread.
__device__ __forceinline__ void fetch16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(__cvta_generic_to_global(from))
                 : "memory");
}
__device__ __forceinline__ void fetched(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

template <typename T> __device__ __forceinline__ void Ring<T>::initialise() const {
#pragma unroll
    for (int i = 0; i < T::STAGES; ++i) {
        initialise_barrier(full(i), 1);
        initialise_barrier(empty(i), T::WARPS * T::SHARE);
    }
    initialise_barrier(residual_here(), HELPERS);
    if constexpr (T::SPLIT > 1) {
        initialise_barrier(summed(), 1);
        expect(summed(), T::SUM_BYTES);
    }
    barrier_init_fence();
}

}  // namespace flashrt
