// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Matmul of few tokens (1 … 64) on Hopper, where reading the weights is all of the cost.
//
// The operands are swapped: out[rows, n]ᵀ = weight[n, k] · x[rows, k]ᵀ puts 64 outputs on the M axis of wgmma and
// the tokens, rounded up to 8, on its N axis. One thread block computes 64 outputs over a slice of K. A cluster is
// `splits` slices of K by `shares` blocks that compute different outputs of the same slice and read x for each other
// (multicast): read by every block, x would be as much traffic out of L2 as the weights.
//
// Weights don't depend on the kernel before, so they are under way before it ends: as many as the ring holds into
// shared memory, the rest into L2. Copies bring several blocks of K each: one takes a hundred cycles to issue.
//
// Partial sums travel from the accumulators straight into the shared memory of the block that finishes them
// (st.async), which adds them in the order of K: no workspace, no second launch, the same bits in every run.
#include "epilogue.cuh"
#include "hopper.cuh"

namespace flashrt {

constexpr int BLOCK_K = 64;                      // one 128-byte swizzle row of bf16
constexpr int OUTPUTS = 64;                      // of a thread block
constexpr int CONSUMERS = 128;                   // threads: one warpgroup; a producer warp follows
constexpr int WEIGHT_TILE = OUTPUTS * BLOCK_K;   // elements
constexpr int MAX_STAGES = 16;                   // of a ring
constexpr int MAX_SPLITS = 8;                    // blocks of a portable cluster
constexpr int FRAGMENT_BYTES = CONSUMERS * 16;   // 64 outputs × 8 tokens: four sums of each thread

// What the host chose; mirrored by ctypes in flashrt_kernels/cuda/families/matmul_stream.py.
struct Cut {
    int shift, shares;     // a cluster is 2^shift slices of K by `shares` blocks of outputs
    int blocks, longer;    // blocks of K in a slice; the first `longer` slices have one more
    int depth;             // blocks of K in a stage
    int weight_stages, x_stages;  // rings. A stage of x that is used again is a multiple of `shares` further
};

struct Barriers {
    uint64_t weight[MAX_STAGES], x[MAX_STAGES];  // a stage has arrived
    uint64_t weight_read[MAX_STAGES];            // by this block
    uint64_t x_read[MAX_STAGES];                 // by every block that it was sent to; for stages that this one sends
    uint64_t received;                           // all partial sums of this block's tokens are here
};

// The part of the product that a thread block computes, and where it stands in its cluster.
struct Slice {
    int splits, part, share;  // slices of K, this one's; place among the blocks that share it
    int first_block;          // in its cluster, of those that share the slice
    int output;               // first of its outputs
    int first, blocks;        // blocks of BLOCK_K
    int stages;
    __device__ Slice(const Cut& cut) {
        int cluster, rank = cluster_rank();
        asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(cluster));
        splits = 1 << cut.shift;
        share = rank >> cut.shift;
        part = rank & (splits - 1);
        output = (cluster * cut.shares + share) * OUTPUTS;
        first = part * cut.blocks + min(part, cut.longer);
        blocks = cut.blocks + (part < cut.longer);
        stages = (blocks + cut.depth - 1) / cut.depth;
    }
    __device__ int rank_of(int part, int share) const { return share * splits + part; }
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
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y),
                 "r"(z)
                 : "memory");
}
// The same bytes to the same place in every block of the cluster in `mask`, counted by the barrier there.
__device__ __forceinline__ void multicast_3d(void* to, const CUtensorMap* map, uint64_t* barrier, int x, int y, int z,
                                             uint16_t mask, uint64_t hint) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(mask), "l"(hint)
        : "memory");
}
// As cluster_arrive, where fence.mbarrier_init has published all that the others need.
__device__ __forceinline__ void cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void remote_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Sends four floats to another block of the cluster; `barrier` there counts the 16 bytes.
__device__ __forceinline__ void remote_store4(uint32_t address, uint32_t barrier, const float* d) {
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            address),
        "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "r"(barrier)
        : "memory");
}

// Out of line: rarely used, and four copies of it would be most of the code.
__device__ __noinline__ float activate_rarely(float x, int code) { return activate(x, code); }

__device__ __forceinline__ void wait_for(uint64_t* barrier, uint32_t parity) {
#ifdef BOUNDED_WAITS
    for (int tries = 0; tries < 1 << 20; ++tries) {
        uint32_t done;
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
        if (done) return;
    }
    __trap();
#else
    barrier_wait(barrier, parity);
#endif
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
            if (row + i < e.rows) store_from_float(e.out, e.out_bf16, (row + i) * f + at, gelu(d[i]) * d[i + 2]);
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
            store_from_float(target.out, e.out_bf16, line + target.first, d[i] * o.cos[i] - d[i + 2] * o.sin[i]);
            store_from_float(target.out, e.out_bf16, line + target.second, d[i + 2] * o.cos[i] + d[i] * o.sin[i]);
        }
    }
};

// ---- the kernel ----

template <int TOKENS> struct Shared {
    static constexpr int EIGHTS = TOKENS / 8;  // of tokens: one fragment each
    static constexpr int X_TILE = TOKENS * BLOCK_K;
    bf16 *weight, *x;
    char* received;  // [splits][eights of this block][128 threads] float4
    Barriers* barriers;
    __device__ Shared(char* memory, const Cut& cut) {
        weight = reinterpret_cast<bf16*>(memory);
        x = weight + cut.weight_stages * cut.depth * WEIGHT_TILE;
        received = reinterpret_cast<char*>(x + cut.x_stages * cut.depth * X_TILE);
        int fragments = cut.shift ? eights(cut.shift, 0) << cut.shift : 0;
        barriers = reinterpret_cast<Barriers*>(received + fragments * FRAGMENT_BYTES);
    }
    // Part p of the cluster finishes eights p, p + splits, …; part 0 the most.
    __device__ static int eights(int shift, int part) { return (EIGHTS - part + (1 << shift) - 1) >> shift; }
};

// One thread starts all copies. The maps' dimensions: within a block of K, row, block of K.
template <int TOKENS> struct Producer {
    const Shared<TOKENS>& shared;
    const Slice& slice;
    const Cut& cut;
    const CUtensorMap *weight, *x;

    __device__ void load_weight(int stage, int place) const {
        uint64_t* barrier = shared.barriers->weight + place;
        int elements = cut.depth * WEIGHT_TILE;
        barrier_expect(barrier, elements * 2);
        copy_3d(shared.weight + place * elements, weight, barrier, 0, slice.output, slice.first + stage * cut.depth,
                EVICT_FIRST);
    }
    // Every block announces a stage of x to itself; one of those that share it sends it to all.
    __device__ void load_x(int stage, const Position& at, bool again) const {
        uint64_t* barrier = shared.barriers->x + at.stage;
        int elements = cut.depth * shared.X_TILE, block = slice.first + stage * cut.depth;
        bool sends = at.stage % cut.shares == slice.share;
        if (again) {
            wait_for(barrier, at.parity ^ 1);
            if (sends) wait_for(shared.barriers->x_read + at.stage, at.parity ^ 1);
        }
        barrier_expect(barrier, elements * 2);
        if (!sends) return;
        bf16* to = shared.x + at.stage * elements;
        if (cut.shares == 1) {
            copy_3d(to, x, barrier, 0, 0, block, EVICT_LAST);
            return;
        }
        uint32_t mask = 0;
        for (int i = 0; i < cut.shares; ++i) mask |= 1u << slice.rank_of(slice.part, i);
        multicast_3d(to, x, barrier, 0, 0, block, mask, EVICT_LAST);
    }
    // Before anything else, so that HBM is busy from the start.
    __device__ void early() const {
        int held = min(cut.weight_stages, slice.stages);
#pragma unroll 4
        for (int i = 0; i < held; ++i) barrier_init(shared.barriers->weight + i, 1);
        barrier_init_fence();
        fence_async();
#pragma unroll 1
        for (int i = 0; i < held; ++i) load_weight(i, i);
#pragma unroll 1
        for (int i = held; i < slice.stages; ++i)
            prefetch_3d(weight, 0, slice.output, slice.first + i * cut.depth);
    }
    __device__ void init_barriers() const {
        int warps = CONSUMERS / 32;
#pragma unroll 4
        for (int i = 0; i < cut.x_stages; ++i) barrier_init(shared.barriers->x + i, 1);
        if (slice.stages > cut.x_stages)
#pragma unroll 4
            for (int i = 0; i < cut.x_stages; ++i) barrier_init(shared.barriers->x_read + i, warps * cut.shares);
        if (slice.stages > cut.weight_stages)
#pragma unroll 4
            for (int i = 0; i < cut.weight_stages; ++i) barrier_init(shared.barriers->weight_read + i, warps);
        if (slice.splits > 1) {
            barrier_init(&shared.barriers->received, 1);
            int fragments = shared.eights(cut.shift, slice.part) << cut.shift;
            if (fragments) barrier_expect(&shared.barriers->received, fragments * FRAGMENT_BYTES);
        }
        barrier_init_fence();
        fence_async();
    }
    __device__ void late() const {
        Position w, t;
        int sent = min(cut.x_stages, slice.stages), loaded = cut.weight_stages;
#pragma unroll 1
        for (int i = 0; i < sent; ++i, t.advance(cut.x_stages)) load_x(i, t, false);
#pragma unroll 1
        while (sent < slice.stages || loaded < slice.stages) {
            if (loaded < slice.stages) {
                wait_for(shared.barriers->weight_read + w.stage, w.parity);
                load_weight(loaded++, w.stage);
                w.advance(cut.weight_stages);
            }
            if (sent < slice.stages) {
                load_x(sent++, t, true);
                t.advance(cut.x_stages);
            }
        }
    }
};

// Gives stage `stage` of x and of the weights back, once in each warp, to those who fill it again.
template <int TOKENS>
__device__ __forceinline__ void give_back(const Shared<TOKENS>& shared, const Slice& slice, const Cut& cut, int stage,
                                          int weight_place, int x_place) {
    if (threadIdx.x % 32 != 0) return;
    if (stage + cut.weight_stages < slice.stages) barrier_arrive(shared.barriers->weight_read + weight_place);
    if (stage + cut.x_stages < slice.stages) {
        int sender = slice.rank_of(slice.part, x_place % cut.shares);
        remote_arrive(remote_address(shared_address(shared.barriers->x_read + x_place), sender));
    }
}

// Sums of 64 outputs over the block's slice of K.
template <int TOKENS>
__device__ __forceinline__ void accumulate(float (&d)[TOKENS / 2], const Shared<TOKENS>& shared, const Slice& slice,
                                           const Cut& cut) {
    int left = slice.blocks;
    bool refilled = slice.stages > min(cut.weight_stages, cut.x_stages);
    Position w, t, read_w, read_t;
#pragma unroll 1
    for (int i = 0; i < slice.stages; ++i, left -= cut.depth) {
        wait_for(shared.barriers->weight + w.stage, w.parity);
        wait_for(shared.barriers->x + t.stage, t.parity);
        uint64_t outputs = descriptor_k_major(shared.weight + w.stage * cut.depth * WEIGHT_TILE);
        uint64_t tokens = descriptor_k_major(shared.x + t.stage * cut.depth * shared.X_TILE);
#pragma unroll 1
        for (int b = min(cut.depth, left); b > 0; --b) {
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < BLOCK_K / 16; ++j) Wgmma<TOKENS>::ss(d, outputs + 2 * j, tokens + 2 * j, 1);
            outputs += WEIGHT_TILE * 2 >> 4;
            tokens += shared.X_TILE * 2 >> 4;
            wgmma_commit();
        }
        if (refilled) {
            wgmma_wait<1>();
            if (i > 0) {
                give_back(shared, slice, cut, i - 1, read_w.stage, read_t.stage);
                read_w.advance(cut.weight_stages), read_t.advance(cut.x_stages);
            }
        }
        w.advance(cut.weight_stages), t.advance(cut.x_stages);
    }
    wgmma_wait<0>();
    wgmma_hold(d);
}

// Sends each eight of tokens to the block that finishes it.
template <int TOKENS>
__device__ __forceinline__ void scatter(const float (&d)[TOKENS / 2], const Shared<TOKENS>& shared, const Slice& slice,
                                        const Cut& cut) {
    int target = 0, slot = 0;
    uint32_t barrier = shared_address(&shared.barriers->received);
    uint32_t received = shared_address(shared.received) + threadIdx.x * 16;
#pragma unroll
    for (int i = 0; i < TOKENS / 8; ++i) {
        int fragment = slice.part * shared.eights(cut.shift, target) + slot;
        int rank = slice.rank_of(target, slice.share);
        remote_store4(remote_address(received + fragment * FRAGMENT_BYTES, rank), remote_address(barrier, rank),
                      d + 4 * i);
        if (++target == slice.splits) target = 0, ++slot;
    }
}

// Partial sums of one eight, added in the order of K.
template <int TOKENS>
__device__ __forceinline__ void gather(float (&d)[4], const Shared<TOKENS>& shared, const Slice& slice, int eights,
                                       int slot) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int from = 0; from < MAX_SPLITS; ++from) {
        float4 part = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const char* address = shared.received + (from * eights + slot) * FRAGMENT_BYTES + threadIdx.x * 16;
        if (from < slice.splits) part = *reinterpret_cast<const float4*>(address);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    d[0] = sum.x, d[1] = sum.y, d[2] = sum.z, d[3] = sum.w;
}

template <int TOKENS, int KIND>
__device__ __forceinline__ void consume(const Shared<TOKENS>& shared, const Slice& slice, const Cut& cut,
                                        const Epilogue& e) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int column = slice.output + warp * 16 + lane / 4, row = lane % 4 * 2;
    auto row_of = [&](int slot) { return 8 * (slice.part + slot * slice.splits) + row; };
    wait_for_predecessor();
    // What the last step needs is under way before the sums are.
    constexpr int EARLY = 2;
    Finish<KIND> finish(e, column);
    typename Finish<KIND>::Operands operands[EARLY];
#pragma unroll
    for (int slot = 0; slot < EARLY; ++slot) operands[slot] = finish.operands(e, row_of(slot));
    float d[TOKENS / 2] = {};
    accumulate(d, shared, slice, cut);
    if (slice.splits == 1) {
#pragma unroll
        for (int i = 0; i < TOKENS / 8; ++i)
            finish.store(e, row_of(i), d + 4 * i, i < EARLY ? operands[i] : finish.operands(e, row_of(i)));
        return;
    }
    scatter(d, shared, slice, cut);
    int eights = shared.eights(cut.shift, slice.part);
    if (eights == 0) return;
    wait_for(&shared.barriers->received, 0);
    float sums[4];
#pragma unroll
    for (int slot = 0; slot < EARLY; ++slot) {
        if (slot >= eights) return;
        gather(sums, shared, slice, eights, slot);
        finish.store(e, row_of(slot), sums, operands[slot]);
    }
#pragma unroll 1
    for (int slot = EARLY; slot < eights; ++slot) {
        gather(sums, shared, slice, eights, slot);
        finish.store(e, row_of(slot), sums, finish.operands(e, row_of(slot)));
    }
}

template <int TOKENS, int KIND>
__device__ __forceinline__ void matmul_stream(const CUtensorMap* weight, const CUtensorMap* x, const Epilogue& e,
                                              const Cut& cut) {
    extern __shared__ __align__(1024) char memory[];
    release_successor();
    Slice slice(cut);
    Shared<TOKENS> shared(memory, cut);
    Producer<TOKENS> producer{shared, slice, cut, weight, x};
    bool producing = threadIdx.x >= CONSUMERS, leads = false;
    if (producing) {
        leads = elect_one();
        if (leads) {
            producer.early();
            prefetch_map(x);
            producer.init_barriers();
        }
        __syncwarp();
    }
    // The others' barriers exist before anything is sent to them.
    bool alone = slice.splits * cut.shares == 1;
    if (!alone) cluster_arrive_relaxed();
    __syncthreads();
    if (!alone) cluster_wait();
    if (!producing) {
        consume<TOKENS, KIND>(shared, slice, cut, e);
    } else if (leads) {
        wait_for_predecessor();
        producer.late();
    }
}

}  // namespace flashrt

#define MATMUL_STREAM(TOKENS, KIND, NAME)                                                                            \
    extern "C" __global__ void __launch_bounds__(flashrt::CONSUMERS + 32) matmul_stream_##TOKENS##_##NAME(           \
        const __grid_constant__ CUtensorMap weight, const __grid_constant__ CUtensorMap x,                           \
        const __grid_constant__ flashrt::Epilogue epilogue, const __grid_constant__ flashrt::Cut cut) {              \
        flashrt::matmul_stream<TOKENS, flashrt::KIND>(&weight, &x, epilogue, cut);                                   \
    }
#define MATMUL_STREAM_KINDS(TOKENS)            \
    MATMUL_STREAM(TOKENS, PLAIN, plain)        \
    MATMUL_STREAM(TOKENS, GELU_MUL, gelu_mul)  \
    MATMUL_STREAM(TOKENS, ROPE_QKV, rope_qkv)

MATMUL_STREAM_KINDS(8)
MATMUL_STREAM_KINDS(16)
MATMUL_STREAM_KINDS(24)
MATMUL_STREAM_KINDS(32)
MATMUL_STREAM_KINDS(40)
MATMUL_STREAM_KINDS(48)
MATMUL_STREAM_KINDS(56)
MATMUL_STREAM_KINDS(64)
