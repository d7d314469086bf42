// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// x[rows, k] · weight[n, k]ᵀ in bf16 for many rows on Hopper: one thread brings tiles with the copy engine into a
// ring of stages, GROUPS warpgroups of 64 rows each multiply them (wgmma) and write their results through an epilogue.
// The warpgroups share the stages but never wait for each other, so that one multiplies while another writes.
//
// A cluster is SHARE × SPLIT blocks: SHARE neighbours along the rows load a part of the weight tile each and pass it
// to all of them; SPLIT parts of k are summed through distributed shared memory, in a fixed order.
#include "hopper.cuh"
#include "matmul_hopper_epilogue.cuh"

namespace flashrt {

constexpr int STEP = 64;  // of k: 128 bytes, the width of the swizzle

// A copy that lands at the same place in every block of the cluster that `mask` names, and arrives at the barrier
// there.
__device__ __forceinline__ void copy_2d_to_all(void* to, const CUtensorMap* map, uint64_t* barrier, int x, int y,
                                               uint16_t mask, uint64_t hint) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(mask), "l"(hint)
        : "memory");
}
__device__ __forceinline__ void remote_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void remote_store4(uint32_t address, float a, float b, float c, float d) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

template <int GROUPS_, int BN_, int STAGES_, int SHARE_, int SPLIT_> struct Tile {
    static constexpr int GROUPS = GROUPS_, BN = BN_, STAGES = STAGES_, SHARE = SHARE_, SPLIT = SPLIT_;
    static constexpr int BM = 64 * GROUPS, WARPS = 4 * GROUPS;
    // Of a consumer thread; the copying warpgroup hands over what it does not need (setmaxnreg).
    static constexpr int REGISTERS = GROUPS == 3 ? 160 : GROUPS == 2 ? 232 : 208;
    static constexpr int LEFT = GROUPS == 3 ? 32 : 40;
    static constexpr int PORTION = GROUPS != 2 || BN > 192 ? 4 : 8;  // blocks that the epilogue works on at a time
    static constexpr int X_BYTES = BM * 128, WEIGHT_BYTES = BN * 128, STAGE_BYTES = X_BYTES + WEIGHT_BYTES;
    static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
    static constexpr int OWN = BN / SPLIT;  // columns that one of the SPLIT blocks finishes
    static_assert(BN % (8 * SHARE) == 0 && BN % (8 * SPLIT) == 0, "parts are whole atoms of the swizzle");
    static_assert((SPLIT - 1) * BM * OWN * 4 <= RING_BYTES, "partial sums take the place of the ring");
};

struct Ring {
    int stage = 0;
    uint32_t phase = 0;
    template <int STAGES> __device__ __forceinline__ void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

template <typename T> struct Shared {
    uint8_t* ring;
    uint64_t *full, *empty;
    __device__ __forceinline__ uint8_t* x(int stage) const { return ring + stage * T::STAGE_BYTES; }
    __device__ __forceinline__ uint8_t* weight(int stage) const { return x(stage) + T::X_BYTES; }
};

// Which part of the product a block works on.
struct Work {
    int clusters, cluster;  // in the grid; this one's
    int share, split;       // place within the cluster
    int row_groups, units;  // SHARE row tiles make a group; units = groups · column tiles, rows fastest
    int begin, end;         // steps of k
};

template <typename T>
__device__ __forceinline__ void load(const Shared<T>& s, const CUtensorMap* x_map, const CUtensorMap* weight_map,
                                     const Work& w) {
    auto load_weight = [&](int stage, int unit, int step) {
        int column = unit / w.row_groups * T::BN;
        if constexpr (T::SHARE == 1) {
            copy_2d(s.weight(stage), weight_map, s.full + stage, step * STEP, column);
        } else {
            constexpr int PART = T::BN / T::SHARE;
            copy_2d_to_all(s.weight(stage) + w.share * PART * 128, weight_map, s.full + stage, step * STEP,
                           column + w.share * PART, ((1 << T::SHARE) - 1) << (w.split * T::SHARE), EVICT_NORMAL);
        }
    };
    auto load_x = [&](int stage, int unit, int step) {
        int row = (unit % w.row_groups * T::SHARE + w.share) * T::BM;
        copy_2d(s.x(stage), x_map, s.full + stage, step * STEP, row, EVICT_LAST);
    };
    // Weights of the first stages don't depend on the kernel before.
    int ahead = w.cluster < w.units ? min(T::STAGES, w.end - w.begin) : 0;
    for (int i = 0; i < ahead; ++i) {
        barrier_expect(s.full + i, T::STAGE_BYTES);
        load_weight(i, w.cluster, w.begin + i);
    }
    wait_for_predecessor();
    Ring ring;
    for (int unit = w.cluster; unit < w.units; unit += w.clusters) {
        for (int step = w.begin; step < w.end; ++step) {
            if (ahead > 0) {
                --ahead;
            } else {
                barrier_wait(s.empty + ring.stage, ring.phase ^ 1);
                barrier_expect(s.full + ring.stage, T::STAGE_BYTES);
                load_weight(ring.stage, unit, step);
            }
            load_x(ring.stage, unit, step);
            ring.advance<T::STAGES>();
        }
    }
}

// d = this warpgroup's 64 rows of the tile.
template <typename T>
__device__ __forceinline__ void multiply(const Shared<T>& s, const Work& w, Ring& ring, int group,
                                         float (&d)[T::BN / 2]) {
    int lane = threadIdx.x & 31, last = 0;
    auto release = [&](int stage) {
        if constexpr (T::SHARE == 1) {
            if (lane == 0) barrier_arrive(s.empty + stage);
        } else {
            if (lane < T::SHARE)
                remote_arrive(remote_address(shared_address(s.empty + stage), w.split * T::SHARE + lane));
        }
    };
    for (int step = w.begin; step < w.end; ++step) {
        barrier_wait(s.full + ring.stage, ring.phase);
        uint64_t a = descriptor_k_major(s.x(ring.stage) + group * 64 * 128);
        uint64_t b = descriptor_k_major(s.weight(ring.stage));
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEP / 16; ++i) Wgmma<T::BN>::ss(d, a + 2 * i, b + 2 * i, step > w.begin || i > 0);
        wgmma_commit();
        if (step > w.begin) {
            wgmma_wait<1>();
            release(last);
        }
        last = ring.stage;
        ring.advance<T::STAGES>();
    }
    wgmma_wait<0>();
    wgmma_hold(d);
    release(last);
}

// Sends the parts of d that other blocks of the cluster finish, and sums up this block's own into `own`.
template <typename T>
__device__ __forceinline__ void sum_splits(const Shared<T>& s, const Work& w, int group, const float (&d)[T::BN / 2],
                                           float (&own)[T::OWN / 2]) {
    constexpr int VECTORS = T::OWN / 8;  // float4s of a thread
    int thread = threadIdx.x & 127;
    auto offset = [&](int slot, int i) { return (((slot * T::GROUPS + group) * VECTORS + i) * 128 + thread) * 16; };
    cluster_sync();  // nobody in the cluster still reads its ring
#pragma unroll
    for (int z = 0; z < T::SPLIT; ++z) {
        if (z == w.split) continue;
        const float* part = d + z * (T::OWN / 2);
        uint32_t to = remote_address(shared_address(s.ring), z * T::SHARE + w.share);
        int slot = w.split < z ? w.split : w.split - 1;
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            remote_store4(to + offset(slot, i), part[4 * i], part[4 * i + 1], part[4 * i + 2], part[4 * i + 3]);
    }
#pragma unroll
    for (int i = 0; i < T::OWN / 2; ++i) {
        own[i] = d[i];
#pragma unroll
        for (int z = 1; z < T::SPLIT; ++z) own[i] = z == w.split ? d[z * (T::OWN / 2) + i] : own[i];
    }
    cluster_sync();
#pragma unroll
    for (int slot = 0; slot < T::SPLIT - 1; ++slot) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            float4 v = *reinterpret_cast<const float4*>(s.ring + offset(slot, i));
            own[4 * i] += v.x, own[4 * i + 1] += v.y, own[4 * i + 2] += v.z, own[4 * i + 3] += v.w;
        }
    }
}

template <int KIND, typename T>
__device__ __forceinline__ void consume(const Shared<T>& s, const Work& w, const Epilogue& e) {
    int group = threadIdx.x >> 7, warp = (threadIdx.x >> 5) & 3, lane = threadIdx.x & 31;
    wait_for_predecessor();
    Ring ring;
    for (int unit = w.cluster; unit < w.units; unit += w.clusters) {
        float d[T::BN / 2];
        multiply(s, w, ring, group, d);
        int row = (unit % w.row_groups * T::SHARE + w.share) * T::BM + group * 64 + warp * 16 + (lane >> 2);
        int column = unit / w.row_groups * T::BN;
        Place at{row, column + w.split * T::OWN, lane & 3, e.rows};
        if constexpr (T::SPLIT == 1) {
            finish_tile<KIND, T::BN / 8, T::PORTION>(e, d, at);
        } else {
            float own[T::OWN / 2];
            sum_splits(s, w, group, d, own);
            finish_tile<KIND, T::OWN / 8, T::PORTION>(e, own, at);
            break;  // one unit for each cluster: the sums have taken the place of the ring
        }
    }
}

template <int KIND, typename T>
__device__ __forceinline__ void matmul(const CUtensorMap* x_map, const CUtensorMap* weight_map, const Epilogue& e,
                                       int steps, int row_groups, int units) {
    extern __shared__ __align__(1024) uint8_t ring[];
    __shared__ uint64_t full[T::STAGES], empty[T::STAGES];
    constexpr int CLUSTER = T::SHARE * T::SPLIT;
    bool producer = threadIdx.x >= 128 * T::GROUPS;
    if (threadIdx.x == 0) {
        prefetch_map(x_map);
        prefetch_map(weight_map);
        for (int i = 0; i < T::STAGES; ++i) {
            barrier_init(full + i, 1);
            barrier_init(empty + i, T::WARPS * T::SHARE);
        }
        barrier_init_fence();
    }
    if constexpr (CLUSTER > 1) cluster_sync();
    else __syncthreads();
    release_successor();

    int rank = CLUSTER > 1 ? cluster_rank() : 0, split = rank / T::SHARE;
    Work w{int(gridDim.x) / CLUSTER, int(blockIdx.x) / CLUSTER, rank % T::SHARE, split, row_groups, units,
           steps * split / T::SPLIT, steps * (split + 1) / T::SPLIT};
    Shared<T> s{ring, full, empty};
    if (producer) {
        fewer_registers<T::LEFT>();
        if (threadIdx.x < 128 * T::GROUPS + 32 && elect_one()) load(s, x_map, weight_map, w);
        __syncwarp();
        if constexpr (T::SPLIT > 1) {
            cluster_sync();
            cluster_sync();
        }
    } else {
        more_registers<T::REGISTERS>();
        consume<KIND>(s, w, e);
    }
    // Neighbours still arrive at this block's barriers.
    if constexpr (T::SHARE > 1) cluster_sync();
}

}  // namespace flashrt

// Name: kind, rows × columns of a tile, stages, blocks that share a weight tile, parts of k.
#define MATMUL(KIND, NAME, BM, BN, STAGES, SHARE, SPLIT)                                                           \
    extern "C" __global__ void __launch_bounds__(2 * BM + 128, BM == 64 ? 2 : 1)                                                   \
        matmul_##NAME##_##BM##x##BN##x##STAGES##_##SHARE##_##SPLIT(                                                \
            const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap weight_map,             \
            const __grid_constant__ flashrt::Epilogue epilogue, int steps, int row_groups, int units) {            \
        flashrt::matmul<flashrt::KIND, flashrt::Tile<BM / 64, BN, STAGES, SHARE, SPLIT>>(                          \
            &x_map, &weight_map, epilogue, steps, row_groups, units);                                              \
    }
#include "matmul_hopper_tiles.cuh"
