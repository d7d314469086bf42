// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// x [rows, k] · weight [n, k]ᵀ in bf16 on mma.sync, accumulated in fp32; and the generic matmul (matmul_generic.cuh).
//
// A block computes a tile of the product; cp.async fills a ring of shared-memory stages, each 64 columns of k, whose
// 16-byte chunks are swizzled (chunk ^ row % 8) so that neither copies nor ldmatrix meet bank conflicts. Products of few
// rows are split along k (blockIdx.z): each part writes fp32 sums to a workspace, `matmul_reduce` adds them in order.
#include "finish.cuh"
#include "matmul_generic.cuh"
#include "mma.cuh"

namespace flashrt {

constexpr int DEPTH = 64;       // columns of k in a stage
constexpr int ROW_BYTES = 128;  // of a stage

template <int BLOCK_M, int BLOCK_N, int WARP_M, int WARP_N, int STAGES> struct MmaTile {
    static constexpr int WARPS_M = BLOCK_M / WARP_M, THREADS = WARPS_M * (BLOCK_N / WARP_N) * 32;
    static constexpr int TILES_M = WARP_M / 16, TILES_N = WARP_N / 16;  // of 16×16 in a warp
    static constexpr int X_BYTES = BLOCK_M * ROW_BYTES, STAGE_BYTES = (BLOCK_M + BLOCK_N) * ROW_BYTES;

    uint32_t shared;  // address of the ring
    int lane, warp_m, warp_n;
    float sums[TILES_M][2 * TILES_N][4];
    uint32_t a[2][TILES_M][4], b[2][TILES_N][4];  // operands of this and the next 16 columns of k

    // Rows of an operand that this thread copies: `row`, and every STEP-th after it. Rows beyond the operand are left as
    // they are: they only reach sums that nobody stores.
    static constexpr int STEP = THREADS / 8;
    template <int ROWS> struct Copier {
        const char* source;  // of the next stage
        size_t step;         // bytes from one of the thread's rows to the next
        int limit;           // rows of the operand from `row` on
        __device__ __forceinline__ Copier(const bf16* array, int row0, int rows, int k, int begin) {
            int row = row0 + (threadIdx.x >> 3);
            source = reinterpret_cast<const char*>(array + size_t(row) * k + begin + (threadIdx.x & 7) * 8);
            step = size_t(STEP) * k * sizeof(bf16);
            limit = min(rows - row, ROWS - int(threadIdx.x >> 3));
        }
        // The next DEPTH columns; zeros for a chunk beyond the last column.
        __device__ __forceinline__ void copy(uint32_t target, bool valid) {
            const char* p = source;
#pragma unroll
            for (int i = 0; i < ROWS; i += STEP) {
                if (i < limit) copy_async(target + i * ROW_BYTES, p, valid);
                // In assembly, or the compiler makes one product a row of it, in the middle of the main loop.
                asm("add.s64 %0, %0, %1;" : "+l"(p) : "l"(step));
            }
            source += ROW_BYTES;
        }
    };

    __device__ __forceinline__ void load_operands(int buffer, int stage, int step) {
        uint32_t x = shared + stage * STAGE_BYTES, w = x + X_BYTES;
        int row = lane & 15, chunk = lane >> 4;
        uint32_t at = (warp_m * WARP_M + row) * ROW_BYTES + (((step * 2 + chunk) ^ (row & 7)) << 4);
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) load_matrices(a[buffer][i], x + at + i * 16 * ROW_BYTES);
        row = (lane & 7) | ((lane >> 4) << 3), chunk = (lane >> 3) & 1;
        at = (warp_n * WARP_N + row) * ROW_BYTES + (((step * 2 + chunk) ^ (row & 7)) << 4);
#pragma unroll
        for (int j = 0; j < TILES_N; ++j) load_matrices(b[buffer][j], w + at + j * 16 * ROW_BYTES);
    }

    __device__ __forceinline__ void multiply(int buffer) {
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
                multiply_add(sums[i][2 * j], a[buffer][i], b[buffer][j][0], b[buffer][j][1]);
                multiply_add(sums[i][2 * j + 1], a[buffer][i], b[buffer][j][2], b[buffer][j][3]);
            }
    }

    // Columns [begin, end) of k; begin is a multiple of 8.
    __device__ __forceinline__ void accumulate(
        const bf16* x, const bf16* weight, int rows, int n, int k, int row0, int column0, int begin, int end) {
        int steps = (end - begin + DEPTH - 1) / DEPTH;
        int line = threadIdx.x >> 3, chunk = threadIdx.x & 7, columns = end - begin - chunk * 8;
        uint32_t target = shared + line * ROW_BYTES + ((chunk ^ (line & 7)) << 4);
        Copier<BLOCK_M> x_copier(x, row0, rows, k, begin);
        Copier<BLOCK_N> weight_copier(weight, column0, n, k, begin);
        for (int s = 0; s < STAGES - 1; ++s)  // weights depend on no kernel before this one
            if (s < steps) weight_copier.copy(target + s * STAGE_BYTES + X_BYTES, s * DEPTH < columns);
        wait_for_predecessor();
        for (int s = 0; s < STAGES - 1; ++s) {
            if (s < steps) x_copier.copy(target + s * STAGE_BYTES, s * DEPTH < columns);
            commit_copies();
        }
        release_successor();
        wait_copies<STAGES - 2>();
        __syncthreads();
        load_operands(0, 0, 0);
        int stage = 0, next = STAGES - 1;
        for (int s = 0; s < steps; ++s) {
            bool more = s + STAGES - 1 < steps, valid = (s + STAGES - 1) * DEPTH < columns;
#pragma unroll
            for (int step = 0; step < DEPTH / 16; ++step) {
                if (step == DEPTH / 16 - 1) {
                    wait_copies<STAGES - 2>();
                    __syncthreads();
                    stage = stage + 1 == STAGES ? 0 : stage + 1;
                }
                load_operands((step + 1) & 1, stage, (step + 1) % (DEPTH / 16));
                // Into the stage that was read last before the barrier.
                if (step == 0 && more) x_copier.copy(target + next * STAGE_BYTES, valid);
                if (step == 1) {
                    if (more) weight_copier.copy(target + next * STAGE_BYTES + X_BYTES, valid);
                    commit_copies();
                    next = next + 1 == STAGES ? 0 : next + 1;
                }
                multiply(step & 1);
            }
        }
    }

    // The sums through shared memory, which the last stage has left: each warp its part, in whole runs of a row.
    __device__ __forceinline__ void finish(char* memory, int row0, int column0, int kind, const Epilogue& e) {
        constexpr int WIDTH = WARP_N + 8, ITEMS = WARP_N / 8;
        float* part = reinterpret_cast<float*>(memory) + (threadIdx.x >> 5) * WARP_M * WIDTH;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < 2 * TILES_N; ++j) {
                float* p = part + (i * 16 + (lane >> 2)) * WIDTH + j * 8 + 2 * (lane & 3);
                *reinterpret_cast<float2*>(p) = make_float2(sums[i][j][0], sums[i][j][1]);
                *reinterpret_cast<float2*>(p + 8 * WIDTH) = make_float2(sums[i][j][2], sums[i][j][3]);
            }
        __syncwarp();
        row0 += warp_m * WARP_M;
        constexpr int LINES = 32 / ITEMS, ROUNDS = WARP_M / LINES;  // rows at once
        constexpr int BATCH = ROUNDS >= 16 ? 4 : ROUNDS >= 2 ? 2 : 1;
        Columns local = columns_of(kind, lane % ITEMS);
        column0 += warp_n * WARP_N;
        with_finisher(e, kind, {column0 + local.first, column0 + local.second}, [&](const auto& finisher) {
#pragma unroll 1
            for (int line = lane / ITEMS; line < WARP_M; line += LINES * BATCH) {
                Eight loaded[BATCH];
#pragma unroll
                for (int i = 0; i < BATCH; ++i) loaded[i] = finisher.load(row0 + line + i * LINES);
#pragma unroll
                for (int i = 0; i < BATCH; ++i) {
                    const float* p = part + (line + i * LINES) * WIDTH;
                    Eight x = {load_aligned_four(p, false, local.first), load_aligned_four(p, false, local.second)};
                    finisher.store(row0 + line + i * LINES, x, loaded[i]);
                }
            }
        });
    }

    // The sums as they are; `width` is that of a row of `partial`.
    __device__ __forceinline__ void store(float* partial, int row0, int column0, int rows, int width) {
        int row = row0 + warp_m * WARP_M + (lane >> 2), column = column0 + warp_n * WARP_N + 2 * (lane & 3);
#pragma unroll
        for (int i = 0; i < 2 * TILES_M; ++i)
#pragma unroll
            for (int j = 0; j < 2 * TILES_N; ++j) {
                int r = row + 8 * i, c = column + 8 * j;
                const float* pair = sums[i / 2][j] + i % 2 * 2;
                if (r < rows && c < width)
                    *reinterpret_cast<float2*>(partial + size_t(r) * width + c) = make_float2(pair[0], pair[1]);
            }
    }
};

// grid: (tiles of rows, tiles of n, parts of k). k_part: columns of k in a part, a multiple of DEPTH. partial: null, or
// fp32 [parts, rows, n rounded up to 16] that takes the sums instead of the epilogue.
template <typename Tile, int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ void mma_matmul(
    const bf16* x, const bf16* weight, int k, int k_part, float* partial, int kind, const Epilogue& e) {
    extern __shared__ __align__(128) char ring[];
    Tile tile;
    tile.shared = shared_address(ring);
    tile.lane = threadIdx.x & 31;
    int warp = threadIdx.x >> 5;
    tile.warp_m = warp % Tile::WARPS_M;
    tile.warp_n = warp / Tile::WARPS_M;
#pragma unroll
    for (auto& row : tile.sums)
#pragma unroll
        for (auto& sums : row)
#pragma unroll
            for (float& sum : sums) sum = 0.0f;
    int row0 = blockIdx.x * BLOCK_M, column0 = blockIdx.y * BLOCK_N;
    int begin = blockIdx.z * k_part, end = min(k, begin + k_part);
    tile.accumulate(x, weight, e.rows, e.n, k, row0, column0, begin, end);
    if (partial) {
        int width = (e.n + 15) & ~15;
        tile.store(partial + size_t(blockIdx.z) * e.rows * width, row0, column0, e.rows, width);
    } else {
        tile.finish(ring, row0, column0, kind, e);
    }
}

}  // namespace flashrt

using namespace flashrt;

// Name: matmul_<rows>x<outputs> of the tile; BLOCKS of them share a multiprocessor. The list is that of TILES in
// flashrt_kernels/cuda/families/matmul_portable.py.
#define MMA_MATMUL(M, N, WARP_M, WARP_N, STAGES, BLOCKS)                                                              \
    extern "C" __global__ void __launch_bounds__((M / WARP_M) * (N / WARP_N) * 32, BLOCKS)                            \
        matmul_##M##x##N(const bf16* x, const bf16* weight, int k, int k_part, float* partial, int kind, Epilogue e) { \
        mma_matmul<MmaTile<M, N, WARP_M, WARP_N, STAGES>, M, N>(x, weight, k, k_part, partial, kind, e);              \
    }
MMA_MATMUL(256, 128, 64, 64, 3, 1)
MMA_MATMUL(128, 128, 64, 64, 3, 2)
MMA_MATMUL(128, 64, 64, 32, 4, 2)
MMA_MATMUL(64, 128, 32, 64, 4, 2)
MMA_MATMUL(64, 64, 32, 32, 4, 3)
MMA_MATMUL(32, 64, 32, 16, 6, 3)
MMA_MATMUL(16, 64, 16, 16, 6, 3)

// Adds the parts of a product split along k, in their order, and applies the epilogue; a thread takes eight columns of a
// row. grid: (ceil(rows · width/8 / 128)), width = n rounded up to 16.
extern "C" __global__ void __launch_bounds__(128) matmul_reduce(const float* partial, int parts, int kind, Epilogue e) {
    release_successor();
    wait_for_predecessor();
    int width = (e.n + 15) & ~15, items = width >> 3;
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int row = index / items;
    if (row >= e.rows) return;
    Columns c = columns_of(kind, index - row * items);
    const float* line = partial + size_t(row) * width;
    size_t step = size_t(e.rows) * width;
    with_finisher(e, kind, c, [&](const auto& finisher) {
        Eight loaded = finisher.load(row), x = {};
#pragma unroll 4
        for (int part = 0; part < parts; ++part, line += step)
            add(x, {load_aligned_four(line, false, c.first), load_aligned_four(line, false, c.second)});
        finisher.store(row, x, loaded);
    });
}

#define GENERIC_MATMUL(NAME, THREADS, BLOCKS, BODY)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(Operands operands, int kind, Epilogue e) { \
        BODY(operands, kind, e);                                                                                 \
    }
GENERIC_MATMUL(matmul_generic_128x128, 256, 2, generic_tile<8>)
GENERIC_MATMUL(matmul_generic_32x128, 256, 3, generic_tile<2>)
GENERIC_MATMUL(matmul_generic_4_lanes, 128, 1, generic_dot<4>)
GENERIC_MATMUL(matmul_generic_32_lanes, 128, 1, generic_dot<32>)
