// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// x[rows, k] · weight[n, k]ᵀ in bf16 for many rows on Hopper: copying warps bring tiles with the copy engine into a
// ring of stages, GROUPS warpgroups of 64 rows each multiply them (wgmma) and write their results through an epilogue.
// The warpgroups share the stages but never wait for each other, so that one multiplies while another writes.
//
// A cluster is SHARE × ACROSS × SPLIT blocks: SHARE neighbours along the rows load a part of the weight tile each and
// pass it to all of them, ACROSS neighbours along the columns do so with the tile of x; SPLIT parts of k are summed
// through distributed shared memory, in a fixed order.
#include "matmul_hopper_epilogue.cuh"
#include "matmul_hopper_ring.cuh"

namespace flashrt {

// What one of the copying warps does: every PRODUCERS-th step of the sequence that the consumers go through. Nothing
// but additions between two copies: with a division for the place of the tile a step took 450 cycles.
template <typename T> struct Producer {
    const Ring<T>& ring;
    const CUtensorMap *x_map, *weight_map;
    const Work& w;
    Turn turn;
    int unit, step, row, column;

    __device__ __forceinline__ void start(int warp) {
        turn.stage = warp, turn.phase = 0;
        unit = w.cluster, step = w.begin + warp;
        settle();
    }
    // Steps behind the end of one unit are the first of the next.
    __device__ __forceinline__ void settle() {
        while (step >= w.end && unit < w.units) step -= w.end - w.begin, unit += w.clusters;
        int group = unit / w.row_groups;
        column = (group * T::ACROSS + w.across) * T::BN + w.share * (T::BN / T::SHARE);
        row = ((unit - group * w.row_groups) * T::SHARE + w.share) * T::BM + w.across * (T::BM / T::ACROSS);
    }
    __device__ __forceinline__ void advance() {
        turn.template advance<T::STAGES, T::PRODUCERS>();
        step += T::PRODUCERS;
        if (step >= w.end) settle();
    }
    __device__ __forceinline__ bool done() const { return unit >= w.units; }
    __device__ __forceinline__ void load_weight() {
        uint32_t full = ring.full(turn.stage);
        uint32_t to = ring.weight(turn.stage) + w.share * (T::WEIGHT_BYTES / T::SHARE);
        expect(full, T::STAGE_BYTES);
        if constexpr (T::SHARE == 1) copy_tile(to, weight_map, full, step * STEP, column, EVICT_NORMAL);
        else copy_tile_to_all(to, weight_map, full, step * STEP, column, w.weight_mask<T>(), EVICT_NORMAL);
    }
    __device__ __forceinline__ void load_x() {
        uint32_t full = ring.full(turn.stage);
        uint32_t to = ring.x(turn.stage) + w.across * (T::X_BYTES / T::ACROSS);
        if constexpr (T::ACROSS == 1) copy_tile(to, x_map, full, step * STEP, row, EVICT_LAST);
        else copy_tile_to_all(to, x_map, full, step * STEP, row, w.x_mask<T>(), EVICT_LAST);
    }
};

template <typename T>
__device__ __forceinline__ void load(const Ring<T>& ring, const CUtensorMap* x_map, const CUtensorMap* weight_map,
                                     const Work& w, int warp) {
    Producer<T> p{ring, x_map, weight_map, w};
    // The weights that fill the ring don't depend on the kernel before.
    p.start(warp);
#pragma unroll 1
    for (int i = warp; i < T::STAGES && !p.done(); i += T::PRODUCERS, p.advance()) p.load_weight();
#ifdef FLASHRT_PREFETCH
    // What the ring does not hold comes closer, a part for each row tile.
    if (warp == 0 && w.cluster < w.units) {
        int group = w.cluster / w.row_groups, tile = (w.cluster - group * w.row_groups) * T::SHARE + w.share;
        int first = (group * T::ACROSS + w.across) * T::BN;
#pragma unroll 1
        for (int step = w.begin + T::STAGES + tile; step < w.end; step += w.row_groups * T::SHARE) {
#pragma unroll
            for (int i = 0; i < T::SHARE; ++i)
                prefetch_tile(weight_map, step * STEP, first + i * (T::BN / T::SHARE));
        }
    }
#endif
    wait_for_predecessor();
    p.start(warp);
#pragma unroll 1
    for (int i = warp; i < T::STAGES && !p.done(); i += T::PRODUCERS, p.advance()) p.load_x();
#pragma unroll 1
    for (; !p.done(); p.advance()) {
        wait_phase(ring.empty(p.turn.stage), p.turn.phase ^ 1);
        p.load_weight();
        p.load_x();
    }
}

// Gives stages back to those who fill them, while anything is left to fill: so nothing arrives at a block that is gone.
template <typename T> struct Release {
    uint32_t first;  // barrier of stage 0 at the block that this lane tells, or 0
    int left;        // fills to come

    __device__ __forceinline__ Release(const Ring<T>& ring, const Work& w) {
        int lane = threadIdx.x & 31;
        int units = w.units > w.cluster ? (w.units - w.cluster + w.clusters - 1) / w.clusters : 0;
        left = units * (w.end - w.begin) - T::STAGES;
        if constexpr (T::SHARE * T::ACROSS == 1) {
            first = lane == 0 ? ring.empty(0) : 0;
        } else {
            int other = lane - T::SHARE;
            other += other >= w.across;
            int rank = lane < T::SHARE ? w.rank<T>(lane, w.across) : w.rank<T>(w.share, other);
            first = lane < T::PEERS ? remote_address(ring.empty(0), rank) : 0;
        }
    }
    __device__ __forceinline__ void operator()(int stage) {
        if (left-- <= 0 || !first) return;
        if constexpr (T::SHARE * T::ACROSS == 1) arrive(first + 8 * stage);
        else remote_arrive(first + 8 * stage);
    }
};

// d += this warpgroup's 64 rows of the tile.
template <typename T>
__device__ __forceinline__ void multiply(const Ring<T>& ring, const Work& w, Turn& turn, Release<T>& release, int group,
                                         float (&d)[T::BN / 2]) {
    uint64_t a0 = descriptor(ring.x(0) + group * 64 * 128, 16, 1024, SWIZZLE_128);
    uint64_t b0 = descriptor(ring.weight(0), 16, 1024, SWIZZLE_128);
    auto start = [&] {
        wait_phase(ring.full(turn.stage), turn.phase);
        uint64_t offset = turn.stage * (T::STAGE_BYTES / 16);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEP / 16; ++i) Wgmma<T::BN>::ss(d, a0 + offset + 2 * i, b0 + offset + 2 * i, 1);
        wgmma_commit();
    };
    start();  // not in the loop: the compiler would serialise products that start with what came from memory
    int last = turn.stage;
#pragma unroll 1
    for (int step = w.begin + 1; step < w.end; ++step) {
        turn.template advance<T::STAGES, 1>();
        start();
        wgmma_wait<1>();
        release(last);
        last = turn.stage;
    }
    turn.template advance<T::STAGES, 1>();
    wgmma_wait<0>();
    wgmma_hold(d);
    release(last);
}

// Sends the parts of d that other blocks of the cluster finish, and sums up this block's own into `own`.
template <typename T>
__device__ __forceinline__ void sum_splits(const Ring<T>& ring, const Work& w, int group, const float (&d)[T::BN / 2],
                                           float (&own)[T::OWN / 2]) {
    constexpr int VECTORS = T::OWN / 8;  // float4s of a thread
    int thread = threadIdx.x & 127;
    auto offset = [&](int slot, int i) { return (((slot * T::GROUPS + group) * VECTORS + i) * 128 + thread) * 16; };
#pragma unroll
    for (int z = 0; z < T::SPLIT; ++z) {
        if (z == w.split) continue;
        const float* part = d + z * (T::OWN / 2);
        int rank = z * T::SHARE * T::ACROSS + w.across * T::SHARE + w.share;
        uint32_t to = remote_address(ring.sums(), rank), barrier = remote_address(ring.summed(), rank);
        int slot = w.split < z ? w.split : w.split - 1;
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) remote_store4(to + offset(slot, i), barrier, part + 4 * i);
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
    int group = threadIdx.x >> 7, warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
    Release<T> release(ring, w);
    Turn turn;
    wait_for_predecessor();
#pragma unroll 1
    for (int unit = w.cluster; unit < w.units; unit += w.clusters) {
        int column_group = unit / w.row_groups;
        int row = ((unit - column_group * w.row_groups) * T::SHARE + w.share) * T::BM + group * 64 + warp * 16;
        int column = (column_group * T::ACROSS + w.across) * T::BN + w.split * T::OWN;
        Place at{row + (lane >> 2), column, lane & 3, e.rows};
        Ahead<KIND> ahead;
        ahead.load(e, column, at);
        float d[T::BN / 2];
        if constexpr (T::SPLIT == 1) {
            start_tile<KIND, T::BN / 8>(e, d, at);
            multiply(ring, w, turn, release, group, d);
            finish_tile<KIND, T::BN / 8, T::PORTION>(e, d, at, ahead);
        } else {
            float own[T::OWN / 2];
            start_tile<KIND, T::OWN / 8>(e, own, at);
#pragma unroll
            for (int i = 0; i < T::BN / 2; ++i) d[i] = i / (T::OWN / 2) == w.split ? own[i % (T::OWN / 2)] : 0.0f;
            multiply(ring, w, turn, release, group, d);
            sum_splits(ring, w, group, d, own);
            finish_tile<KIND, T::OWN / 8, T::PORTION>(e, own, at, ahead);
            break;  // one unit for each cluster: the barrier of the sums counts once
        }
    }
}

template <int KIND, typename T>
__device__ __forceinline__ void matmul(const CUtensorMap* x_map, const CUtensorMap* weight_map, const Epilogue& e,
                                       int steps, int row_groups, int units) {
    extern __shared__ __align__(1024) uint8_t memory[];
    __shared__ uint64_t barriers[2 * T::STAGES + 1];
    Ring<T> ring(memory, barriers);
    bool producer = threadIdx.x >= 128 * T::GROUPS;
    if (threadIdx.x == 128 * T::GROUPS) {
        ring.initialise();
        prefetch_map(weight_map);
        prefetch_map(x_map);
    }
    if constexpr (T::CLUSTER > 1) cluster_sync();
    else __syncthreads();
    release_successor();

    int rank = T::CLUSTER > 1 ? cluster_rank() : 0, split = rank / (T::SHARE * T::ACROSS);
    int within = rank % (T::SHARE * T::ACROSS);
    Work w{int(gridDim.x) / T::CLUSTER, int(blockIdx.x) / T::CLUSTER, within % T::SHARE, within / T::SHARE, split,
           row_groups, units, steps * split / T::SPLIT, steps * (split + 1) / T::SPLIT};
    if (producer) {
        if constexpr (!T::SMALL) fewer_registers<T::LEFT>();
        int warp = (threadIdx.x >> 5) - T::WARPS;
        if (warp < T::PRODUCERS && elect_one()) load(ring, x_map, weight_map, w, warp);
    } else {
        if constexpr (!T::SMALL) more_registers<T::REGISTERS>();
        consume<KIND>(ring, w, e);
    }
}

}  // namespace flashrt

// Name: kind, rows × columns of a tile, stages, blocks that share a weight tile, those that share x, parts of k.
#define MATMUL(KIND, NAME, BM, BN, STAGES, SHARE, ACROSS, SPLIT)                                                      \
    extern "C" __global__ void __launch_bounds__(flashrt::Tile<BM / 64, BN, STAGES, SHARE, ACROSS, SPLIT>::THREADS,   \
                                                 flashrt::Tile<BM / 64, BN, STAGES, SHARE, ACROSS, SPLIT>::SMALL ? 2 : 1) \
        matmul_##NAME##_##BM##x##BN##x##STAGES##_##SHARE##_##ACROSS##_##SPLIT(                                        \
            const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap weight_map,                \
            const __grid_constant__ flashrt::Epilogue epilogue, int steps, int row_groups, int units) {               \
        flashrt::matmul<flashrt::KIND, flashrt::Tile<BM / 64, BN, STAGES, SHARE, ACROSS, SPLIT>>(                     \
            &x_map, &weight_map, epilogue, steps, row_groups, units);                                                 \
    }
#ifdef FLASHRT_TILES
#include FLASHRT_TILES
#else
#include "matmul_hopper_tiles.cuh"
#endif
