// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Hopper's own instructions (compute capability 9.0a) as small functions: mbarriers, bulk tensor copies (TMA),
// warpgroup matrix products (wgmma), clusters. Formats: PTX ISA 9.0, sections on mbarrier, cp.async.bulk.tensor and
// wgmma.mma_async.
#pragma once

#include <cuda.h>

#include "common.cuh"
#include "wgmma.cuh"

namespace flashrt {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// One lane of a full warp; the same one every time.
__device__ __forceinline__ bool elect_one() {
    uint32_t chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen));
    return chosen;
}

// ---- mbarrier ----

__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// After all inits, before the barriers are used by the copy engine or by other blocks of the cluster.
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives and announces `bytes` that copies will bring.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
// Blocks until the phase of parity `parity` has completed.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// ---- bulk tensor copies: global → shared, completing on an mbarrier ----

constexpr uint64_t EVICT_NORMAL = 0x1000000000000000ull;
constexpr uint64_t EVICT_FIRST = 0x12F0000000000000ull;
constexpr uint64_t EVICT_LAST = 0x14F0000000000000ull;

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// x: innermost coordinate, in elements.
__device__ __forceinline__ void copy_2d(void* to, const CUtensorMap* map, uint64_t* barrier, int x, int y,
                                        uint64_t hint = EVICT_NORMAL) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "l"(hint)
        : "memory");
}
__device__ __forceinline__ void copy_3d(void* to, const CUtensorMap* map, uint64_t* barrier, int x, int y, int z,
                                        uint64_t hint = EVICT_NORMAL) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "l"(hint)
        : "memory");
}
__device__ __forceinline__ void copy_4d(void* to, const CUtensorMap* map, uint64_t* barrier, int x, int y, int z, int w,
                                        uint64_t hint = EVICT_NORMAL) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "l"(hint)
        : "memory");
}
// Ordinary stores to shared memory become visible to wgmma and to the copy engine: in each writing thread, before
// the barrier that publishes them.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- wgmma: shared memory descriptors ----

enum Swizzle : uint64_t { NO_SWIZZLE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

// leading, stride: byte offsets as the PTX ISA defines them for the layout.
//   K-major, 128-byte swizzle: rows of 64 bf16 (128 bytes), 8 rows are one atom; leading unused, stride 1024.
//     The next 16 of K: address + 32.
//   MN-major (transposed B), 128-byte swizzle: rows of 64 bf16 along N, one row per k; stride 1024 (next 8 of K),
//     leading: bytes to the next 64 of N. The next 16 of K: address + 2048.
//   no swizzle, K-major: core matrices of 8 rows × 16 bytes, contiguous; leading: to the next 8 of K, stride: to the
//     next 8 rows.
// The tile's start must be a multiple of 1024 bytes (of the swizzle's repeat) for the offsets above to hold.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride, Swizzle swizzle) {
    return uint64_t((address & 0x3FFFF) >> 4) | uint64_t((leading & 0x3FFFF) >> 4) << 16 |
           uint64_t((stride & 0x3FFFF) >> 4) << 32 | uint64_t(swizzle) << 62;
}
__device__ __forceinline__ uint64_t descriptor_k_major(const void* tile) {
    return descriptor(shared_address(tile), 16, 1024, SWIZZLE_128);
}

// Before the first wgmma, and whenever registers that one reads were written by ordinary instructions.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// At most `pending` groups are still under way afterwards.
template <int pending> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Keeps the compiler from moving accesses of an accumulator across an asynchronous product.
template <int count> __device__ __forceinline__ void wgmma_hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Registers move from producer to consumer warpgroups (needs a cap at entry: __launch_bounds__(threads, 1)).
template <int count> __device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
// Barrier `id` (1 … 15; 0 is __syncthreads) among `threads` of the block.
__device__ __forceinline__ void named_barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Accumulator d[] of a wgmma m64nNk16: thread t of the warpgroup (t = 0 … 127) holds, for i = 0 … N/8-1,
//   row 16·(t/32) + (t%32)/4,      columns 8i + 2·(t%4), +1 in d[4i], d[4i+1]
//   row 16·(t/32) + (t%32)/4 + 8,  the same columns         in d[4i+2], d[4i+3].

// ---- clusters ----

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}
// Address, in the cluster's shared window, of what lies at the same place in block `rank`.
__device__ __forceinline__ uint32_t remote_address(uint32_t shared, uint32_t rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
    return address;
}
__device__ __forceinline__ float remote_load(uint32_t address) {
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}
__device__ __forceinline__ float4 remote_load4(uint32_t address) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

}  // namespace flashrt
