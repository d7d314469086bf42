// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Matmul of few tokens (1 … 64) on Hopper, where reading the weights is all of the cost.
//
// The operands are swapped: out[rows, n]ᵀ = weight[n, k] · x[rows, k]ᵀ puts 64 outputs on the M axis of wgmma
// and the tokens, rounded up to 8, on its N axis. One thread block computes 64 · GROUPS outputs over a slice of K;
// the blocks of a cluster share the outputs and split K. Weights don't depend on the kernel before, so they are
// under way before it ends: as many as the ring holds into shared memory, the rest into L2.
//
// Partial sums travel from the accumulators straight into the shared memory of the block that finishes them
// (st.async), which adds them in the order of K: no workspace, no second launch, the same bits in every run.
#include "epilogue.cuh"
#include "hopper.cuh"

namespace flashrt {

constexpr int BLOCK_K = 64;                      // one 128-byte swizzle row of bf16
constexpr int OUTPUTS = 64;                      // of one consumer warpgroup
constexpr int WEIGHT_TILE = OUTPUTS * BLOCK_K;   // elements
constexpr int MAX_STAGES = 16;                   // of a ring
constexpr int MAX_SPLITS = 8;                    // blocks of a portable cluster
constexpr int FRAGMENT_BYTES = 128 * 16;         // 64 outputs × 8 tokens: four sums of each thread

// Stages of the two rings. x comes from L2, late and fast; weights from HBM, early and slowly.
struct Rings {
    int weight, x;
    __device__ int smaller() const { return min(weight, x); }
};

struct Barriers {
    uint64_t weight[MAX_STAGES], x[MAX_STAGES];  // a tile has arrived
    uint64_t consumed[MAX_STAGES];  // block b of the slice has been read: at b % the smaller ring
    uint64_t received;                           // all partial sums of this block's tokens are here
};

// The part of the product that a thread block computes. The blocks of a cluster compute the same outputs.
struct Slice {
    int splits, shift, rank;  // blocks of the cluster (2^shift), this one's place
    int output;               // first of its outputs
    int first, blocks;        // blocks of BLOCK_K
    // The first `longer` blocks of a cluster take one block of K more than `blocks`.
    __device__ Slice(int blocks, int longer, int outputs) {
        asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(splits));
        asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(output));
        rank = cluster_rank();
        shift = 31 - __clz(splits);
        output *= outputs;
        first = rank * blocks + min(rank, longer);
        this->blocks = blocks + (rank < longer);
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

__device__ __forceinline__ void prefetch_2d(const CUtensorMap* map, int x, int y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y)
                 : "memory");
}

// As cluster_arrive, where fence.mbarrier_init has published all that the others need.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Out of line: rarely used, and four copies of it would be most of the code.
__device__ __noinline__ float activate_rarely(float x, int code) { return activate(x, code); }

// Sends four floats to another block of the cluster; `barrier` there counts the 16 bytes.
__device__ __forceinline__ void remote_store4(uint32_t address, uint32_t barrier, const float* d) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
        ::"r"(address), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "r"(barrier)
        : "memory");
}

// ---- what becomes of four sums: outputs `column` and `column + 8` of tokens `row` and `row + 1` ----
//   d[0]: column, row    d[1]: column, row + 1    d[2]: column + 8, row    d[3]: column + 8, row + 1

template <int KIND> struct Finish;

template <> struct Finish<PLAIN> {
    struct Operands {
        float residual[4];
    };
    int column;
    float bias[2] = {0.0f, 0.0f}, gate[2] = {1.0f, 1.0f};

    __device__ Finish(const Epilogue& e, int column) : column(column) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (column + 8 * i >= e.n) continue;
            if (e.bias) bias[i] = e.bias[column + 8 * i];
            if (e.gate) gate[i] = e.gate[column + 8 * i];
        }
    }
    __device__ bool inside(const Epilogue& e, int row, int i) const {
        return row + (i & 1) < e.rows && column + 8 * (i >> 1) < e.n;
    }
    __device__ size_t index(const Epilogue& e, int row, int i) const {
        return size_t(row + (i & 1)) * e.n + column + 8 * (i >> 1);
    }
    __device__ Operands operands(const Epilogue& e, int row) const {
        Operands o;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            bool read = e.residual && inside(e, row, i);
            o.residual[i] = read ? load_as_float(e.residual, e.residual_bf16, index(e, row, i)) : 0.0f;
        }
        return o;
    }
    __device__ void store(const Epilogue& e, int row, const float* d, const Operands& o) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float y = d[i] + bias[i >> 1];
            if (e.activation != NONE) y = activate_rarely(y, e.activation);
            y = y * gate[i >> 1] + o.residual[i];
            if (inside(e, row, i)) store_from_float(e.out, e.out_bf16, index(e, row, i), y);
        }
    }
};

template <> struct Finish<GELU_MUL> {
    struct Operands {};
    int column;

    __device__ Finish(const Epilogue&, int column) : column(column) {}
    // gelu_tanh with the quick division: 2 more units in the last place, an eighth of the instructions.
    __device__ static float gelu(float x) {
        float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
        return __fdividef(x, 1.0f + __expf(-2.0f * u));
    }
    __device__ Operands operands(const Epilogue&, int) const { return {}; }
    __device__ void store(const Epilogue& e, int row, const float* d, const Operands&) const {
        if (column >= e.n) return;
        size_t f = e.n >> 1, at = (column >> 4) * 8 + (column & 7);
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (row + i < e.rows)
                store_from_float(e.out, e.out_bf16, (row + i) * f + at, gelu(d[i]) * d[i + 2]);
    }
};

template <> struct Finish<ROPE_QKV> {
    struct Operands {
        float cos[2], sin[2];
    };
    RopeTarget target;

    __device__ Finish(const Epilogue& e, int column) : target(rope_target(e, column)) {
        if (column >= e.n) target.out = nullptr;
    }
    __device__ Operands operands(const Epilogue& e, int row) const {
        Operands o = {{1.0f, 1.0f}, {0.0f, 0.0f}};
        if (target.angle < 0) return o;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (row + i >= e.rows) continue;
            const float* line = e.table + size_t(row + i) * e.head_dim + target.angle;
            o.cos[i] = line[0];
            o.sin[i] = line[e.head_dim >> 1];
        }
        return o;
    }
    __device__ void store(const Epilogue& e, int row, const float* d, const Operands& o) const {
        if (!target.out) return;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (row + i >= e.rows) continue;
            size_t line = size_t(row + i) * target.width;
            store_from_float(target.out, e.out_bf16, line + target.first,
                             d[i] * o.cos[i] - d[i + 2] * o.sin[i]);
            store_from_float(target.out, e.out_bf16, line + target.second,
                             d[i + 2] * o.cos[i] + d[i] * o.sin[i]);
        }
    }
};

// ---- the kernel ----

template <int TOKENS, int GROUPS> struct Shared {
    static constexpr int EIGHTS = TOKENS / 8;  // of tokens: one fragment each
    bf16 *weight, *x;
    char* received;  // [splits][eights of this block][GROUPS][128 threads] float4
    Barriers* barriers;
    __device__ Shared(char* memory, Rings rings, const Slice& slice) {
        weight = reinterpret_cast<bf16*>(memory);
        x = weight + rings.weight * GROUPS * WEIGHT_TILE;
        received = reinterpret_cast<char*>(x + rings.x * TOKENS * BLOCK_K);
        int bytes = slice.splits == 1 ? 0 : slice.splits * eights(slice, 0) * GROUPS * FRAGMENT_BYTES;
        barriers = reinterpret_cast<Barriers*>(received + bytes);
    }
    // Block `rank` finishes eights rank, rank + splits, …; block 0 the most.
    __device__ static int eights(const Slice& slice, int rank) {
        return (EIGHTS - rank + slice.splits - 1) >> slice.shift;
    }
};

// One thread feeds both rings.
template <int TOKENS, int GROUPS> struct Producer {
    const Shared<TOKENS, GROUPS>& shared;
    const Slice& slice;
    const CUtensorMap *weight, *x;
    Rings rings;

    __device__ void load_weight(int block, int stage) const {
        uint64_t* barrier = shared.barriers->weight + stage;
        barrier_expect(barrier, GROUPS * WEIGHT_TILE * 2);
        copy_2d(shared.weight + stage * GROUPS * WEIGHT_TILE, weight, barrier, (slice.first + block) * BLOCK_K,
                slice.output, EVICT_FIRST);
    }
    __device__ void load_x(int block, int stage) const {
        uint64_t* barrier = shared.barriers->x + stage;
        barrier_expect(barrier, TOKENS * BLOCK_K * 2);
        copy_2d(shared.x + stage * TOKENS * BLOCK_K, x, barrier, (slice.first + block) * BLOCK_K, 0,
                EVICT_LAST);
    }
    // Before anything else, so that HBM is busy from the start.
    __device__ void early() const {
#pragma unroll 4
        for (int i = 0; i < rings.weight; ++i) barrier_init(shared.barriers->weight + i, 1);
        barrier_init_fence();
        fence_async();
#pragma unroll 1
        for (int b = 0; b < min(rings.weight, slice.blocks); ++b) load_weight(b, b);
#pragma unroll 1
        for (int b = rings.weight; b < slice.blocks; ++b)
            prefetch_2d(weight, (slice.first + b) * BLOCK_K, slice.output);
    }
    __device__ void init_barriers() const {
#pragma unroll 4
        for (int i = 0; i < rings.x; ++i) barrier_init(shared.barriers->x + i, 1);
        if (slice.blocks > rings.smaller())
#pragma unroll 4
            for (int i = 0; i < rings.smaller(); ++i) barrier_init(shared.barriers->consumed + i, 4 * GROUPS);
        if (slice.splits > 1) {
            barrier_init(&shared.barriers->received, 1);
            int fragments = slice.splits * shared.eights(slice, slice.rank) * GROUPS;
            if (fragments) barrier_expect(&shared.barriers->received, fragments * FRAGMENT_BYTES);
        }
        barrier_init_fence();
        fence_async();
    }
    __device__ void late() const {
#pragma unroll 1
        for (int b = 0; b < min(rings.x, slice.blocks); ++b) load_x(b, b);
        Position w, t, done;
        for (int b = 0; b + rings.smaller() < slice.blocks; ++b) {
            barrier_wait(shared.barriers->consumed + done.stage, done.parity);
            if (b + rings.x < slice.blocks) load_x(b + rings.x, t.stage);
            if (b + rings.weight < slice.blocks) load_weight(b + rings.weight, w.stage);
            t.advance(rings.x), w.advance(rings.weight), done.advance(rings.smaller());
        }
    }
};

// Sums of this warpgroup's 64 outputs over the block's slice of K.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void accumulate(float (&d)[TOKENS / 2], const Shared<TOKENS, GROUPS>& shared, Rings rings,
                                           int blocks, int group) {
    bool refilled = blocks > rings.smaller();
    Position w, t, done;
#pragma unroll 1
    for (int b = 0; b < blocks; ++b) {
        barrier_wait(shared.barriers->weight + w.stage, w.parity);
        barrier_wait(shared.barriers->x + t.stage, t.parity);
        uint64_t outputs = descriptor_k_major(shared.weight + (w.stage * GROUPS + group) * WEIGHT_TILE);
        uint64_t tokens = descriptor_k_major(shared.x + t.stage * TOKENS * BLOCK_K);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BLOCK_K / 16; ++i) Wgmma<TOKENS>::ss(d, outputs + 2 * i, tokens + 2 * i, 1);
        wgmma_commit();
        if (refilled) {
            wgmma_wait<1>();
            if (b > 0) {
                if (threadIdx.x % 32 == 0) barrier_arrive(shared.barriers->consumed + done.stage);
                done.advance(rings.smaller());
            }
        }
        w.advance(rings.weight), t.advance(rings.x);
    }
    wgmma_wait<0>();
    wgmma_hold(d);
}

// Sends each eight of tokens to the block that finishes it.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void scatter(const float (&d)[TOKENS / 2], const Shared<TOKENS, GROUPS>& shared,
                                        const Slice& slice, int group) {
    int target = 0, slot = 0;
    uint32_t barrier = shared_address(&shared.barriers->received);
#pragma unroll
    for (int i = 0; i < TOKENS / 8; ++i) {
        int fragment = (slice.rank * shared.eights(slice, target) + slot) * GROUPS + group;
        uint32_t address = shared_address(shared.received) + fragment * FRAGMENT_BYTES + threadIdx.x % 128 * 16;
        remote_store4(remote_address(address, target), remote_address(barrier, target), d + 4 * i);
        if (++target == slice.splits) target = 0, ++slot;
    }
}

// Partial sums of one eight, added in the order of K.
template <int TOKENS, int GROUPS>
__device__ __forceinline__ void gather(float (&d)[4], const Shared<TOKENS, GROUPS>& shared, const Slice& slice,
                                       int slot, int group) {
    int eights = shared.eights(slice, slice.rank);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int from = 0; from < MAX_SPLITS; ++from) {
        int fragment = (from * eights + slot) * GROUPS + group;
        float4 part = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const char* address = shared.received + fragment * FRAGMENT_BYTES + threadIdx.x % 128 * 16;
        if (from < slice.splits) part = *reinterpret_cast<const float4*>(address);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    d[0] = sum.x, d[1] = sum.y, d[2] = sum.z, d[3] = sum.w;
}

template <int TOKENS, int GROUPS, int KIND>
__device__ __forceinline__ void consume(const Shared<TOKENS, GROUPS>& shared, Rings rings, const Slice& slice,
                                        const Epilogue& e) {
    int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    int column = slice.output + group * OUTPUTS + warp * 16 + lane / 4, row = lane % 4 * 2;
    wait_for_predecessor();
    // What the last step needs is under way before the sums are.
    Finish<KIND> finish(e, column);
    auto operands = finish.operands(e, 8 * slice.rank + row);
    float d[TOKENS / 2] = {};
    accumulate<TOKENS, GROUPS>(d, shared, rings, slice.blocks, group);
    if (slice.splits == 1) {
#pragma unroll
        for (int i = 0; i < TOKENS / 8; ++i)
            finish.store(e, 8 * i + row, d + 4 * i, i ? finish.operands(e, 8 * i + row) : operands);
        return;
    }
    cluster_wait();
    scatter<TOKENS, GROUPS>(d, shared, slice, group);
    if (slice.rank >= shared.EIGHTS) return;
    barrier_wait(&shared.barriers->received, 0);
#pragma unroll 1
    for (int i = slice.rank, slot = 0; i < shared.EIGHTS; i += slice.splits, ++slot) {
        float sums[4];
        gather<TOKENS, GROUPS>(sums, shared, slice, slot, group);
        if (slot) operands = finish.operands(e, 8 * i + row);
        finish.store(e, 8 * i + row, sums, operands);
    }
}

template <int TOKENS, int GROUPS, int KIND>
__device__ __forceinline__ void matmul_stream(const CUtensorMap* weight, const CUtensorMap* x, const Epilogue& e,
                                              int blocks, int longer, Rings rings) {
    extern __shared__ __align__(1024) char memory[];
    release_successor();
    Slice slice(blocks, longer, GROUPS * OUTPUTS);
    Shared<TOKENS, GROUPS> shared(memory, rings, slice);
    Producer<TOKENS, GROUPS> producer{shared, slice, weight, x, rings};
    bool producing = threadIdx.x >= GROUPS * 128, leads = false;
    if (producing) {
        leads = elect_one();
        if (leads) {
            producer.early();
            prefetch_map(x);
            producer.init_barriers();
        }
        __syncwarp();
    }
    if (slice.splits > 1) cluster_arrive_relaxed();
    __syncthreads();
    if (!producing) {
        consume<TOKENS, GROUPS, KIND>(shared, rings, slice, e);
        return;
    }
    if (leads) {
        wait_for_predecessor();
        producer.late();
    }
    __syncwarp();
    if (slice.splits > 1) cluster_wait();
}

}  // namespace flashrt

#define MATMUL_STREAM(TOKENS, GROUPS, KIND, NAME)                                                               \
    extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 32) matmul_stream_##TOKENS##_##GROUPS##_##NAME( \
        const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,                      \
        const __grid_constant__ flashrt::Epilogue epilogue, int blocks, int longer, int weight_stages,          \
        int x_stages) {                                                                                         \
        flashrt::matmul_stream<TOKENS, GROUPS, flashrt::KIND>(&weight, &x, epilogue, blocks, longer,            \
                                                              {weight_stages, x_stages});                       \
    }
#define MATMUL_STREAM_KINDS(TOKENS, GROUPS)           \
    MATMUL_STREAM(TOKENS, GROUPS, PLAIN, plain)       \
    MATMUL_STREAM(TOKENS, GROUPS, GELU_MUL, gelu_mul) \
    MATMUL_STREAM(TOKENS, GROUPS, ROPE_QKV, rope_qkv)

MATMUL_STREAM_KINDS(8, 1)
MATMUL_STREAM_KINDS(16, 1)
MATMUL_STREAM_KINDS(24, 1)
MATMUL_STREAM_KINDS(32, 1)
MATMUL_STREAM_KINDS(40, 1)
MATMUL_STREAM_KINDS(48, 1)
MATMUL_STREAM_KINDS(56, 1)
MATMUL_STREAM_KINDS(64, 1)
