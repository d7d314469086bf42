// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Sizes of a tile of matmul_hopper.cu, the part of the product that a block works on, and the ring of stages between
// the warps that copy and the warpgroups that multiply. Addresses of shared memory are numbers here, kept in registers:
// from pointers the compiler makes them again at every use.
#pragma once

#include "hopper.cuh"

namespace flashrt {

constexpr int STEP = 64;  // of k: 128 bytes, the width of the swizzle

template <int GROUPS_, int BN_, int STAGES_, int SHARE_, int ACROSS_, int SPLIT_> struct Tile {
    static constexpr int GROUPS = GROUPS_, BN = BN_, STAGES = STAGES_, SHARE = SHARE_, ACROSS = ACROSS_, SPLIT = SPLIT_;
    static constexpr int BM = 64 * GROUPS, WARPS = 4 * GROUPS, CLUSTER = SHARE * ACROSS * SPLIT;
    static constexpr int PEERS = SHARE + ACROSS - 1;  // blocks that fill a stage, this one among them
    static constexpr int X_BYTES = BM * 128, WEIGHT_BYTES = BN * 128, STAGE_BYTES = X_BYTES + WEIGHT_BYTES;
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
    static constexpr int OWN = BN / SPLIT;  // columns that one of the SPLIT blocks finishes
    static constexpr int SUM_BYTES = (SPLIT - 1) * BM * OWN * 4;
    // Two blocks, of this product or of the next, fit a multiprocessor; registers are as they come.
    static constexpr bool SMALL = RING_BYTES + SUM_BYTES <= 112 << 10 && BN <= (GROUPS == 1 ? 256 : 96);
    // Of a consumer thread; the copying warpgroup hands over what it does not need (setmaxnreg).
    static constexpr int REGISTERS = GROUPS == 3 ? 160 : GROUPS == 2 ? 232 : 208;
    static constexpr int LEFT = GROUPS == 3 ? 32 : 40;
#ifdef FLASHRT_PRODUCERS
    static constexpr int PRODUCERS = SMALL ? 1 : FLASHRT_PRODUCERS;
#else
    static constexpr int PRODUCERS = SMALL ? 1 : 2;  // warps that copy
#endif
    static constexpr int THREADS = 128 * GROUPS + (SMALL ? 32 : 128);
    static constexpr int PORTION = SMALL || BN > 208 ? 4 : 8;  // blocks that the epilogue works on at a time
    static_assert(BN % (8 * SHARE) == 0 && BM % (8 * ACROSS) == 0 && BN % (8 * SPLIT) == 0, "parts are whole atoms");
};

// Which part of the product a block works on.
struct Work {
    int clusters, cluster;     // in the grid; this one's
    int share, across, split;  // place within the cluster
    int row_groups, units;     // of SHARE row tiles each; row groups · groups of ACROSS column tiles, rows fastest
    int begin, end;            // steps of k

    template <typename T> __device__ __forceinline__ int rank(int along, int beside) const {
        return (split * T::ACROSS + beside) * T::SHARE + along;
    }
    // The blocks that want this one's part of a weight tile, and of an x tile.
    template <typename T> __device__ __forceinline__ uint16_t weight_mask() const {
        return ((1 << T::SHARE) - 1) << rank<T>(0, across);
    }
    template <typename T> __device__ __forceinline__ uint16_t x_mask() const {
        int every = 0;
#pragma unroll
        for (int i = 0; i < T::ACROSS; ++i) every |= 1 << (i * T::SHARE);
        return every << rank<T>(share, 0);
    }
};

// Whose turn it is in the ring.
struct Turn {
    int stage = 0;
    uint32_t phase = 0;
    template <int STAGES, int BY> __device__ __forceinline__ void advance() {
        stage += BY;
        if (stage >= STAGES) stage -= STAGES, phase ^= 1;
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
    __device__ __forceinline__ uint32_t sums() const { return memory + T::RING_BYTES; }
    __device__ __forceinline__ uint32_t full(int stage) const { return barriers + 8 * stage; }
    __device__ __forceinline__ uint32_t empty(int stage) const { return barriers + 8 * (T::STAGES + stage); }
    __device__ __forceinline__ uint32_t summed() const { return barriers + 16 * T::STAGES; }
    __device__ __forceinline__ void initialise() const;
};

// ---- the instructions, on such addresses ----

__device__ __forceinline__ void initialise_barrier(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Nothing is published, only read: with .release.cluster it would be a fence of the whole GPU.
__device__ __forceinline__ void remote_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait_phase(uint32_t barrier, uint32_t parity) {
#ifdef FLASHRT_BOUNDED_WAITS
    long long until = clock64() + 1000000000ll;
    while (clock64() < until) {
        uint32_t done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (done) return;
    }
    __trap();
#else
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
#endif
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
__device__ __forceinline__ void copy_tile_to_all(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y,
                                                 uint16_t mask, uint64_t hint) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(mask), "l"(hint)
        : "memory");
}
// Into L2 only.
__device__ __forceinline__ void prefetch_tile(const CUtensorMap* map, int x, int y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y)
                 : "memory");
}
// Four floats to another block of the cluster; `barrier` there counts the 16 bytes.
__device__ __forceinline__ void remote_store4(uint32_t address, uint32_t barrier, const float* d) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
        "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "r"(barrier)
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

template <typename T> __device__ __forceinline__ void Ring<T>::initialise() const {
#pragma unroll
    for (int i = 0; i < T::STAGES; ++i) {
        initialise_barrier(full(i), 1);
        initialise_barrier(empty(i), T::WARPS * T::PEERS);
    }
    if constexpr (T::SPLIT > 1) {
        initialise_barrier(summed(), 1);
        expect(summed(), T::SUM_BYTES);
    }
    barrier_init_fence();
}

}  // namespace flashrt
