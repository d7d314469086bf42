// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Matmul of few tokens (1 … 64) on Hopper, where reading the weights is all of the cost.
//
// The operands are swapped: out[rows, n]ᵀ = weight[n, k] · x[rows, k]ᵀ puts 64 outputs on the M axis of wgmma
// and the tokens, rounded up to 8, on its N axis. One thread block computes 64 outputs over a slice of K; the
// blocks of a cluster share the outputs and split K. Weights don't depend on the kernel before, so they are under
// way before it ends: as many as the ring holds into shared memory, the rest into L2.
//
// Partial sums travel from the accumulators straight into the shared memory of the block that finishes them
// (st.async), which adds them in the order of K: no workspace, no second launch, the same bits in every run.
#include "matmul_stream_feed.cuh"
#include "matmul_stream_finish.cuh"

namespace flashrt {

template <int TOKENS, int KIND> struct Consumer {
    static constexpr int EIGHTS = TOKENS / 8;
    static constexpr int EARLY = 2;  // eights whose operands are asked for before the main loop
    using Operands = typename Finish<KIND>::Operands;
    const Shared<TOKENS>& shared;
    const Slice& slice;
    const Cut& cut;
    float d[TOKENS / 2] = {};

    __device__ Consumer(const Shared<TOKENS>& shared, const Slice& slice, const Cut& cut)
        : shared(shared), slice(slice), cut(cut) {}

    // Once in each warp, to the thread that fills the stage again.
    __device__ void give_back(uint64_t* barriers, int place) const {
        if (threadIdx.x % 32 == 0) barrier_arrive(barriers + place);
    }

    // Sums of the block's slice of K.
    __device__ void accumulate() {
        int left = slice.blocks;
        bool refilled = slice.stages > min(cut.weight_stages, cut.x_stages);
        Position w, t, read_w, read_t;
        wgmma_hold(d);
#pragma unroll 1
        for (int i = 0; i < slice.stages; ++i, left -= 1 << cut.depth_shift) {
            uint64_t outputs = descriptor_k_major(shared.weight + (w.stage << cut.depth_shift) * WEIGHT_TILE);
            uint64_t tokens = descriptor_k_major(shared.x + (t.stage << cut.depth_shift) * shared.X_TILE);
            barrier_wait(shared.barriers->weight + w.stage, w.parity);
            barrier_wait(shared.barriers->x + t.stage, t.parity);
#pragma unroll 1
            for (int b = min(1 << cut.depth_shift, left); b > 0; --b) {
                wgmma_fence();
#pragma unroll
                for (int j = 0; j < BLOCK_K / 16; ++j)
                    Wgmma<TOKENS>::ss(d, outputs + 2 * j, tokens + 2 * j, 1);
                outputs += WEIGHT_TILE * 2 >> 4;
                tokens += shared.X_TILE * 2 >> 4;
                wgmma_commit();
            }
            if (refilled) {
                wgmma_wait<1>();  // the stage before has been read
                if (i > 0) {
                    int later = slice.stages - (i - 1);
                    if (cut.weight_stages < later) give_back(shared.barriers->weight_read, read_w.stage);
                    if (cut.x_stages < later) give_back(shared.barriers->x_read, read_t.stage);
                    read_w.advance(cut.weight_stages), read_t.advance(cut.x_stages);
                }
            }
            w.advance(cut.weight_stages), t.advance(cut.x_stages);
        }
        wgmma_wait<0>();
        wgmma_hold(d);
    }

    // Sends each eight of tokens to the block that finishes it.
    __device__ void scatter() const {
        int target = 0, slot = 0;
        uint32_t barrier = shared_address(&shared.barriers->received);
        uint32_t received = shared_address(shared.received) + threadIdx.x * 16;
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i) {
            int fragment = slice.part * shared.eights(cut.split_shift, target) + slot;
            remote_store4(remote_address(received + fragment * FRAGMENT_BYTES, target),
                          remote_address(barrier, target), d + 4 * i);
            if (++target == slice.splits) target = 0, ++slot;
        }
    }
    // Partial sums of one eight, added in the order of K.
    __device__ void gather(float (&sums)[4], int eights, int slot) const {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int from = 0; from < MAX_SPLITS; ++from) {
            float4 more = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            int fragment = from * eights + slot;
            const char* address = shared.received + fragment * FRAGMENT_BYTES + threadIdx.x * 16;
            if (from < slice.splits) more = *reinterpret_cast<const float4*>(address);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        sums[0] = sum.x, sums[1] = sum.y, sums[2] = sum.z, sums[3] = sum.w;
    }

    // Of the eights that this block finishes, the j-th.
    __device__ int eight(int j) const { return slice.part + j * slice.splits; }

    __device__ void store_own(const Finish<KIND>& finish, const Operands (&operands)[EARLY]) {
        Operands all[EIGHTS];
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i)
            all[i] = i < EARLY ? operands[i < EARLY ? i : 0] : finish.operands(i);
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i) finish.apply(i, d + 4 * i, all[i]);
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i) finish.write(i, d + 4 * i);
    }
    __device__ void store_received(const Finish<KIND>& finish, const Operands (&operands)[EARLY]) const {
        int eights = shared.eights(cut.split_shift, slice.part);
        if (eights == 0) return;
        barrier_wait(&shared.barriers->received, 0);
        float sums[EARLY][4];
#pragma unroll
        for (int j = 0; j < EARLY; ++j) gather(sums[j], eights, min(j, eights - 1));
#pragma unroll
        for (int j = 0; j < EARLY; ++j) finish.apply(eight(j), sums[j], operands[j]);
#pragma unroll
        for (int j = 0; j < EARLY; ++j)
            if (j < eights) finish.write(eight(j), sums[j]);
#pragma unroll 1
        for (int j = EARLY; j < eights; ++j) {
            gather(sums[0], eights, j);
            finish.apply(eight(j), sums[0], finish.operands(eight(j)));
            finish.write(eight(j), sums[0]);
        }
    }

    __device__ void run(const Epilogue& e) {
        Finish<KIND> finish(e, slice.output + threadIdx.x / 32 * 16);
        wait_for_predecessor();
        finish.load();
        Operands operands[EARLY];
#pragma unroll
        for (int j = 0; j < EARLY; ++j) operands[j] = finish.operands(eight(j));
        accumulate();
        if (slice.splits == 1) {
            store_own(finish, operands);
            return;
        }
        cluster_wait();  // the others have started
        scatter();
        store_received(finish, operands);
    }
};

template <int TOKENS, int KIND>
__device__ __forceinline__ void matmul_stream(const CUtensorMap* weight, const CUtensorMap* x,
                                              const Epilogue& e, const Cut& cut) {
    extern __shared__ __align__(1024) char memory[];
    release_successor();
    Slice slice(cut);
    Shared<TOKENS> shared(memory, cut);
    Feed<TOKENS> feed{shared, slice, cut, weight, x};
    bool feeding = threadIdx.x >= CONSUMERS, leads = false;
    if (feeding) {
        leads = elect_one();
        if (leads) {
            feed.early();
            prefetch_map(x);
            feed.init_barriers();
        }
        __syncwarp();
    }
    if (slice.splits > 1) cluster_arrive_relaxed();
    __syncthreads();
    if (!feeding) {
        Consumer<TOKENS, KIND>(shared, slice, cut).run(e);
        return;
    }
    if (leads) {
        wait_for_predecessor();
        feed.late();
    }
    __syncwarp();
    if (slice.splits > 1) cluster_wait();
}

}  // namespace flashrt

#define MATMUL_STREAM(TOKENS, KIND, NAME)                                                                  \
    extern "C" __global__ void __launch_bounds__(flashrt::CONSUMERS + 32) matmul_stream_##TOKENS##_##NAME( \
        const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,                 \
        const __grid_constant__ flashrt::Epilogue epilogue, const __grid_constant__ flashrt::Cut cut) {    \
        flashrt::matmul_stream<TOKENS, flashrt::KIND>(&weight, &x, epilogue, cut);                         \
    }
#define MATMUL_STREAM_KINDS(TOKENS)           \
    MATMUL_STREAM(TOKENS, PLAIN, plain)       \
    MATMUL_STREAM(TOKENS, GELU_MUL, gelu_mul) \
    MATMUL_STREAM(TOKENS, ROPE_QKV, rope_qkv) \
    MATMUL_STREAM(TOKENS, SILU_MUL, silu_mul)

MATMUL_STREAM_KINDS(8)
MATMUL_STREAM_KINDS(16)
MATMUL_STREAM_KINDS(24)
MATMUL_STREAM_KINDS(32)
MATMUL_STREAM_KINDS(40)
MATMUL_STREAM_KINDS(48)
MATMUL_STREAM_KINDS(56)
MATMUL_STREAM_KINDS(64)
