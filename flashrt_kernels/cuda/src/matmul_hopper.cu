// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// x[rows, k] · weight[n, k]ᵀ in bf16 for many rows on Hopper: copying warps bring tiles with the copy engine
// into a ring of stages, GROUPS warpgroups of 64 rows each multiply them (wgmma) and write their results
// through an epilogue. The warpgroups share the stages but never wait for each other, so that one multiplies
// while another writes.
//
// A cluster is SHARE blocks, neighbours along the rows: each loads a part of the weight tile and passes it to
// all.
#include "matmul_hopper_staged.cuh"

namespace flashrt {

// Where a block's part of a unit begins: the rows of x and of the weight that it copies.
template <typename T> struct Source {
    int row, column;
    __device__ __forceinline__ Source(const Work& w, int unit) {
        int group = unit / w.row_groups;
        row = ((unit - group * w.row_groups) * T::SHARE + w.share) * T::BM;
        column = group * T::BN + w.share * (T::BN / T::SHARE);
    }
};

// What the copying thread does. Nothing but additions between two copies: while it divided for the place of
// the tile, a step took it 450 cycles.
template <typename T>
__device__ __forceinline__ void load(const Ring<T>& ring, const CUtensorMap* x_map,
                                     const CUtensorMap* weight_map, const Work& w) {
    auto load_weight = [&](const Source<T>& from, int stage, int step) {
        uint32_t full = ring.full(stage), to = ring.weight(stage) + w.share * (T::WEIGHT_BYTES / T::SHARE);
        expect(full, T::STAGE_BYTES);
        uint16_t mask = (1 << T::SHARE) - 1;
        if constexpr (T::SHARE == 1) copy_tile(to, weight_map, full, (w.begin + step) * STEP, from.column, EVICT_NORMAL);
        else copy_tile_to_all(to, weight_map, full, (w.begin + step) * STEP, from.column, mask, EVICT_NORMAL);
    };
    auto load_x = [&](const Source<T>& from, int stage, int step) {
        copy_tile(ring.x(stage), x_map, ring.full(stage), (w.begin + step) * STEP, from.row, EVICT_LAST);
    };
    // Weights that fill the ring don't depend on the kernel before.
    int ahead = min(T::STAGES, w.steps);
    Source<T> first(w, w.cluster);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) load_weight(first, i, i);
    wait_for_predecessor();
    Turn turn;
#pragma unroll 1
    for (int unit = w.cluster; unit < w.units; unit += w.clusters) {
        Source<T> from(w, unit);
#pragma unroll 1
        for (int step = 0; step < w.steps; ++step) {
            if (ahead > 0) {
                --ahead;
            } else {
                wait_phase(ring.empty(turn.stage), turn.phase ^ 1);
                load_weight(from, turn.stage, step);
            }
            load_x(from, turn.stage, step);
            turn.advance<T::STAGES>();
        }
    }
}

// Gives stages back to those who fill them, while anything is left to fill: so nothing arrives at a block
// that is gone.
template <typename T> struct Release {
    uint32_t first;  // barrier of stage 0 at the block that this lane tells, or 0
    int left;        // fills to come

    __device__ __forceinline__ Release(const Ring<T>& ring, const Work& w) {
        int lane = threadIdx.x & 31;
        int units = w.units > w.cluster ? (w.units - w.cluster + w.clusters - 1) / w.clusters : 0;
        left = units * w.steps - T::STAGES;
        if constexpr (T::SHARE == 1) {
            first = lane == 0 ? ring.empty(0) : 0;
        } else {
            first = lane < T::SHARE ? remote_address(ring.empty(0), lane) : 0;
        }
    }
    __device__ __forceinline__ void operator()(int stage) {
        if (left-- <= 0 || !first) return;
        if constexpr (T::SHARE == 1) arrive(first + 8 * stage);
        else remote_arrive(first + 8 * stage);
    }
};

// What multiplies: d += this warpgroup's 64 rows of a tile.
template <typename T> struct Products {
    const Ring<T>& ring;
    Release<T> release;
    Turn turn;
    uint64_t a0, b0;  // descriptors of the operands in stage 0
    int last;         // stage that the products under way read

    __device__ __forceinline__ Products(const Ring<T>& ring, const Work& w) : ring(ring), release(ring, w) {
        a0 = descriptor(ring.x(0) + (threadIdx.x >> 7) * 64 * 128, 16, 1024, SWIZZLE_128);
        b0 = descriptor(ring.weight(0), 16, 1024, SWIZZLE_128);
    }
    __device__ __forceinline__ void start(float (&d)[T::BN / 2]) {
        wait_phase(ring.full(turn.stage), turn.phase);
        uint64_t offset = turn.stage * (T::STAGE_BYTES / 16);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEP / 16; ++i) Wgmma<T::BN>::ss(d, a0 + offset + 2 * i, b0 + offset + 2 * i, 1);
        wgmma_commit();
        last = turn.stage;
        turn.advance<T::STAGES>();
    }
    // The next step; the one before is finished then.
    __device__ __forceinline__ void next(float (&d)[T::BN / 2]) {
        int before = last;
        start(d);
        wgmma_wait<1>();
        release(before);
    }
    __device__ __forceinline__ void finish(float (&d)[T::BN / 2]) {
        wgmma_wait<0>();
        wgmma_hold(d);
        release(last);
    }
};

// All steps of a tile. `ahead` fetches a part of what it needs behind each of the first.
template <typename T, typename A, int PART = 0>
__device__ __forceinline__ void multiply(Products<T>& products, const Work& w, float (&d)[T::BN / 2],
                                         A& ahead, const Epilogue& e, const Place& at) {
    if constexpr (PART == 0) products.start(d);
    else if (PART < w.steps) products.next(d);
    ahead.template load<PART>(e, at);
    if constexpr (PART + 1 < A::PARTS) {
        multiply<T, A, PART + 1>(products, w, d, ahead, e, at);
    } else {
#pragma unroll 1
        for (int step = A::PARTS; step < w.steps; ++step) products.next(d);
        products.finish(d);
    }
}

// Sends the parts of d that other blocks of the cluster finish, and sums up this block's own into `own`.
template <typename T>
__device__ __forceinline__ void sum_splits(const Ring<T>& ring, const Work& w, const float (&d)[T::BN / 2],
                                           float (&own)[T::OWN / 2]) {
    constexpr int VECTORS = T::OWN / 8;  // float4s of a thread
    int thread = threadIdx.x & 127, group = threadIdx.x >> 7;
    auto offset = [&](int slot, int i) {
        return (((slot * T::GROUPS + group) * VECTORS + i) * 128 + thread) * 16;
    };
#pragma unroll
    for (int z = 0; z < T::SPLIT; ++z) {
        if (z == w.split) continue;
        uint32_t to = remote_address(ring.sums(), z), barrier = remote_address(ring.summed(), z);
        int slot = w.split < z ? w.split : w.split - 1;
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            remote_store4(to + offset(slot, i), barrier, d + z * (T::OWN / 2) + 4 * i);
    }
#pragma unroll
    for (int i = 0; i < T::OWN / 2; ++i) {
        own[i] = d[i];
#pragma unroll
        for (int z = 1; z < T::SPLIT; ++z) own[i] = z == w.split ? d[z * (T::OWN / 2) + i] : own[i];
    }
    wait_phase(ring.summed(), 0);
#pragma unroll
    for (int slot = 0; slot < T::SPLIT - 1; ++slot) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            float4 v = shared_load4(ring.sums() + offset(slot, i));
            own[4 * i] += v.x, own[4 * i + 1] += v.y, own[4 * i + 2] += v.z, own[4 * i + 3] += v.w;
        }
    }
}

template <int KIND, typename T>
__device__ __forceinline__ void consume(const Ring<T>& ring, const Work& w, const Epilogue& e) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    Products<T> products(ring, w);
    wait_for_predecessor();
    bool staged = goes_staged<KIND, T>(e);
#pragma unroll 1
    for (int unit = w.cluster; unit < w.units; unit += w.clusters) {
        int column_group = unit / w.row_groups;
        int row = ((unit - column_group * w.row_groups) * T::SHARE + w.share) * T::BM + warp * 16;
        Place at{row + (lane >> 2), column_group * T::BN + w.split * T::OWN, lane & 3, e.rows};
        float d[T::BN / 2];
        Ahead<KIND, T::BN / 16> ahead;
        ahead.start(e, at);
        if constexpr (T::SPLIT == 1) {
            start_tile<KIND, T::BN / 8>(e, d, at, staged);
            multiply(products, w, d, ahead, e, at);
            if (staged) finish_staged<KIND>(ring, e, d, at, ahead);
            else finish_tile<KIND, T::BN / 8, T::PORTION>(e, d, at);
        } else {
            float own[T::OWN / 2];
            start_tile<KIND, T::OWN / 8>(e, own, at, false);
#pragma unroll
            for (int i = 0; i < T::BN / 2; ++i)
                d[i] = i / (T::OWN / 2) == w.split ? own[i % (T::OWN / 2)] : 0.0f;
            multiply(products, w, d, ahead, e, at);
            sum_splits(ring, w, d, own);
            finish_tile<KIND, T::OWN / 8, T::PORTION>(e, own, at);
        }
        if constexpr (!is_gated(KIND))
            break;  // one unit for each cluster: the residual's barrier counts once
    }
}

template <int KIND, typename T>
__device__ __forceinline__ void matmul(const CUtensorMap* x_map, const CUtensorMap* weight_map,
                                       const Epilogue& e, int steps, int row_groups, int units) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t barriers[2 * T::STAGES + 2];
    Ring<T> ring(memory, barriers);
    bool producer = threadIdx.x >= 128 * T::GROUPS;
    if (threadIdx.x == 128 * T::GROUPS) {
        ring.initialise();
        prefetch_map(weight_map);
        prefetch_map(x_map);
    }
    constexpr int CLUSTER = T::SHARE * T::SPLIT;
    if constexpr (CLUSTER > 1) cluster_sync();
    else __syncthreads();
    release_successor();

    int rank = CLUSTER > 1 ? int(cluster_rank()) : 0, share = rank % T::SHARE, split = rank / T::SHARE;
    int clusters = int(gridDim.x) / CLUSTER, cluster = int(blockIdx.x) / CLUSTER;
    int begin = steps * split / T::SPLIT, end = steps * (split + 1) / T::SPLIT;
    Work w{clusters, cluster, share, row_groups, units, split, begin, end - begin};
    if (producer) {
        fewer_registers<T::LEFT>();
        if (threadIdx.x >= 128 * T::GROUPS + 32)
            fetch_residual<KIND>(ring, w, e, threadIdx.x - 128 * T::GROUPS - 32);
        else if (elect_one()) load(ring, x_map, weight_map, w);
    } else {
        more_registers<T::REGISTERS>();
        consume<KIND>(ring, w, e);
    }
}

}  // namespace flashrt

// Name: kind, rows × columns of a tile, stages, blocks that share a weight tile, parts of k.
#define MATMUL(KIND, NAME, BM, BN, STAGES, SHARE, SPLIT)                                                       \
    extern "C" __global__ void __launch_bounds__(2 * BM + 128, 1)                                       \
        matmul_##NAME##_##BM##x##BN##x##STAGES##_##SHARE##_##SPLIT(                                               \
            const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap weight_map,  \
            const __grid_constant__ flashrt::Epilogue epilogue, int steps, int row_groups, int units) { \
        flashrt::matmul<flashrt::KIND, flashrt::Tile<flashrt::KIND, BM / 64, BN, STAGES, SHARE, SPLIT>>(       \
            &x_map, &weight_map, epilogue, steps, row_groups, units);                                   \
    }
#include "matmul_hopper_tiles.cuh"
