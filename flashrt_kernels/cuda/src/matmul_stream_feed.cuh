// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The streaming matmul's operands on their way into shared memory: how a product is cut, the rings of stages,
// and the thread that fills them.
#pragma once

#include "cluster.cuh"

namespace flashrt {

constexpr int BLOCK_K = 64;                     // one 128-byte swizzle row of bf16
constexpr int OUTPUTS = 64;                     // of a thread block
constexpr int CONSUMERS = 128;                  // threads: a warpgroup; the feeding warp follows
constexpr int WEIGHT_TILE = OUTPUTS * BLOCK_K;  // elements
constexpr int MAX_STAGES = 16;                  // of a ring
constexpr int MAX_SPLITS = 8;                   // blocks of a portable cluster
constexpr int FRAGMENT_BYTES = CONSUMERS * 16;  // 64 outputs × 8 tokens: four sums of each thread

// What the host chose; mirrored by ctypes in flashrt_kernels/cuda/families/matmul_stream.py.
struct Cut {
    int split_shift, depth_shift;  // log2 of the slices of K in a cluster, and of the blocks of K in a stage
    int blocks, longer;            // blocks of K in a slice; the first `longer` slices have one more
    int weight_stages, x_stages;   // rings
    int inner, outer;              // coordinates of block b of K in the maps: b · inner, row, b · outer
};

struct Barriers {
    uint64_t weight[MAX_STAGES], x[MAX_STAGES];            // a stage has arrived
    uint64_t weight_read[MAX_STAGES], x_read[MAX_STAGES];  // and is free again
    uint64_t received;                                     // all partial sums of this block's tokens are here
};

// The part of the product that a thread block computes. The blocks of a cluster compute the same outputs.
struct Slice {
    int splits, part;   // slices of K, this one's
    int output;         // first of its outputs
    int first, blocks;  // blocks of BLOCK_K
    int stages;
    __device__ Slice(const Cut& cut) {
        int cluster;
        asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
        part = cluster_rank();
        splits = 1 << cut.split_shift;
        output = cluster * OUTPUTS;
        first = part * cut.blocks + min(part, cut.longer);
        blocks = cut.blocks + (part < cut.longer);
        stages = (blocks + (1 << cut.depth_shift) - 1) >> cut.depth_shift;
    }
};

// A place in a ring and the parity of its barrier.
struct Position {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void advance(int stages) {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

__device__ __forceinline__ void prefetch_3d(const CUtensorMap* map, int x, int y, int z) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];"
                 ::"l"(map), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

template <int TOKENS> struct Shared {
    static constexpr int EIGHTS = TOKENS / 8;  // of tokens: one fragment each
    static constexpr int X_TILE = TOKENS * BLOCK_K;
    bf16 *weight, *x;
    char* received;  // [splits][eights of this block][128 threads] float4
    Barriers* barriers;
    __device__ Shared(char* memory, const Cut& cut) {
        weight = reinterpret_cast<bf16*>(memory);
        x = weight + (cut.weight_stages << cut.depth_shift) * WEIGHT_TILE;
        received = reinterpret_cast<char*>(x + (cut.x_stages << cut.depth_shift) * X_TILE);
        int fragments = cut.split_shift ? eights(cut.split_shift, 0) << cut.split_shift : 0;
        barriers = reinterpret_cast<Barriers*>(received + fragments * FRAGMENT_BYTES);
    }
    // Part p of the cluster finishes eights p, p + splits, …; part 0 the most.
    __device__ static int eights(int shift, int part) { return (EIGHTS - part + (1 << shift) - 1) >> shift; }
};

// One thread starts all copies. The maps' dimensions: within a block of K, row, block of K.
template <int TOKENS> struct Feed {
    const Shared<TOKENS>& shared;
    const Slice& slice;
    const Cut& cut;
    const CUtensorMap *weight, *x;

    __device__ void load_weight(int stage, int place) const {
        uint64_t* barrier = shared.barriers->weight + place;
        int elements = WEIGHT_TILE << cut.depth_shift, block = slice.first + (stage << cut.depth_shift);
        barrier_expect(barrier, elements * 2);
        copy_3d(shared.weight + place * elements, weight, barrier, block * cut.inner, slice.output,
                block * cut.outer, EVICT_FIRST);
    }
    __device__ void load_x(int stage, int place) const {
        uint64_t* barrier = shared.barriers->x + place;
        int elements = shared.X_TILE << cut.depth_shift, block = slice.first + (stage << cut.depth_shift);
        barrier_expect(barrier, elements * 2);
        copy_3d(shared.x + place * elements, x, barrier, block * cut.inner, 0, block * cut.outer, EVICT_LAST);
    }
    // Before anything else, so that HBM is busy from the start; what the ring cannot hold goes at least into L2.
    __device__ void early() const {
        int fits = min(cut.weight_stages, slice.stages);
#pragma unroll 4
        for (int i = 0; i < fits; ++i) barrier_init(shared.barriers->weight + i, 1);
        barrier_init_fence();
        fence_async();
#pragma unroll 1
        for (int i = 0; i < fits; ++i) load_weight(i, i);
#pragma unroll 1
        for (int i = fits; i < slice.stages; ++i) {
            int block = slice.first + (i << cut.depth_shift);
            prefetch_3d(weight, block * cut.inner, slice.output, block * cut.outer);
        }
    }
    __device__ void init_barriers() const {
        constexpr int WARPS = CONSUMERS / 32;
#pragma unroll 4
        for (int i = 0; i < cut.x_stages; ++i) barrier_init(shared.barriers->x + i, 1);
        if (slice.stages > cut.x_stages)
#pragma unroll 4
            for (int i = 0; i < cut.x_stages; ++i) barrier_init(shared.barriers->x_read + i, WARPS);
        if (slice.stages > cut.weight_stages)
#pragma unroll 4
            for (int i = 0; i < cut.weight_stages; ++i) barrier_init(shared.barriers->weight_read + i, WARPS);
        if (slice.splits > 1) {
            barrier_init(&shared.barriers->received, 1);
            int fragments = shared.eights(cut.split_shift, slice.part) << cut.split_shift;
            if (fragments) barrier_expect(&shared.barriers->received, fragments * FRAGMENT_BYTES);
        }
        barrier_init_fence();
        fence_async();
    }
    // Once x may be read.
    __device__ void late() const {
        Position w, t;
        int sent = min(cut.x_stages, slice.stages), loaded = cut.weight_stages;
#pragma unroll 1
        for (int i = 0; i < sent; ++i) load_x(i, i);
#pragma unroll 1
        while (sent < slice.stages || loaded < slice.stages) {
            if (loaded < slice.stages) {
                barrier_wait(shared.barriers->weight_read + w.stage, w.parity);
                load_weight(loaded++, w.stage);
                w.advance(cut.weight_stages);
            }
            if (sent < slice.stages) {
                barrier_wait(shared.barriers->x_read + t.stage, t.parity);
                load_x(sent++, t.stage);
                t.advance(cut.x_stages);
            }
        }
    }
};

}  // namespace flashrt
