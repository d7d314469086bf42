// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// layer_norm, rms_norm and ada_rms_norm (flashrt_kernels/norm.py), with the sum of a residual stream in front.
//
// A row stays in the registers of its lanes between statistics and output: lane t holds the chunks of four values t,
// t + lanes, …  The lanes are a whole block (few rows: as many loads in flight as possible; wide rows) or one warp
// (many rows: no barrier). Widths that are no multiple of 4, addresses off their alignment and very wide rows take the
// *_any kernels, which read the row again from L2.
#include "vector.cuh"

namespace flashrt {

enum Form : int { LAYER, RMS, ADAPTIVE };  // RMS and ADAPTIVE: weight counts from one; RMS has no shift

struct Row {
    const void* x;         // [rows, width]
    const float* gate;     // [width] or null: factor of x
    const void* residual;  // [rows, width] or null: added to gate·x
    const float* weight;   // [width]
    const float* shift;    // [width]; null in RMS
    void* out;             // [rows, width]
    void* sum;             // [rows, width] or null: gate·x + residual
    int rows, width;
    float eps, per_width;  // 1 / width
    int x_bf16, residual_bf16, out_bf16, sum_bf16;
};

constexpr int MAX_WARPS = 32;

// What one warp knows of its part of the row.
struct Part {
    float mean, spread, count, unused;
};

// Mean and Σ(x − mean)² of the row from the warps' own: one barrier, and no cancellation as in Σx² − n·mean².
__device__ __forceinline__ float2 combine(const Part* parts, int warps, float per_width) {
    float total = 0.0f, spread = 0.0f;
#pragma unroll 4
    for (int w = 0; w < warps; w++) total += parts[w].mean * parts[w].count;
    float mean = total * per_width;
#pragma unroll 4
    for (int w = 0; w < warps; w++) {
        float off = parts[w].mean - mean;
        spread += fmaf(parts[w].count * off, off, parts[w].spread);
    }
    return make_float2(mean, spread);
}

// The lanes that share a row, and where the calling one stands among them.
template <bool WARP> struct Lanes {
    __device__ __forceinline__ static int count() { return WARP ? 32 : blockDim.x; }
    __device__ __forceinline__ static int index() { return WARP ? threadIdx.x & 31 : threadIdx.x; }
    __device__ __forceinline__ static int row() {
        return WARP ? blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5) : blockIdx.x;
    }
};

// Mean and Σ(x − mean)² of what one warp holds, `count` values. Chunk c is part of the row where c·step < rest.
template <int CHUNKS>
__device__ __forceinline__ float2 moments(const float4 (&v)[CHUNKS], int step, int rest, int count) {
    float sum = 0.0f, spread = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) sum += sum4(v[c]);
    float mean = warp_sum(sum) / max(count, 1);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        float4 off = v[c] + -mean;
        spread += c * step < rest ? sum4(off * off) : 0.0f;
    }
    return make_float2(mean, warp_sum(spread));
}

// (offset, factor): normalised = (x + offset)·factor. Every lane of the row calls it; v is 0 beyond the row.
template <Form FORM, bool WARP, int CHUNKS>
__device__ __forceinline__ float2 statistics(const float4 (&v)[CHUNKS], const Row& r, int step, int rest) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    if constexpr (FORM != LAYER) {
        float total = 0.0f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) total += sum4(v[c] * v[c]);
        total = warp_sum(total);
        if constexpr (!WARP) {
            __shared__ float4 squares[MAX_WARPS / 4];  // of four warps each: blocks have a multiple of four
            if (lane == 0) reinterpret_cast<float*>(squares)[warp] = total;
            __syncthreads();
            total = sum4(squares[0]);
#pragma unroll 1
            for (int w = 4; w < warps; w += 4) total += sum4(squares[w / 4]);
        }
        return make_float2(0.0f, rsqrtf(fmaf(total, r.per_width, r.eps)));
    } else if constexpr (WARP) {
        float2 all = moments<CHUNKS>(v, step, rest, r.width);
        return make_float2(-all.x, rsqrtf(fmaf(all.y, r.per_width, r.eps)));
    } else {
        __shared__ Part parts[MAX_WARPS];
        int count = 0;  // of the values that this warp holds
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) count += min(max(r.width - c * step - warp * 128, 0), 128);
        float2 own = moments<CHUNKS>(v, step, rest, count);
        if (lane == 0) parts[warp] = {own.x, own.y, float(count), 0.0f};
        __syncthreads();
        float2 all = combine(parts, warps, r.per_width);
        return make_float2(-all.x, rsqrtf(fmaf(all.y, r.per_width, r.eps)));
    }
}

// gate·x + residual, also stored; `column`: of chunk 0.
template <int CHUNKS>
__device__ __forceinline__ void add(float4 (&v)[CHUNKS], const Row& r, size_t row, int column, int step, int rest) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++, column += step) {
        if (c * step >= rest) continue;
        if (r.gate) v[c] = v[c] * load4(r.gate + column);
        if (r.residual) v[c] = v[c] + load4(r.residual, r.residual_bf16, row + column);
        if (r.sum) store4(r.sum, r.sum_bf16, row + column, v[c]);
    }
}

// Asks for a vector into L2: it comes from memory, since nothing reads it twice in a decision, and takes longer than
// x. Harmless before the wait, whoever writes it. Each block asks for its part: all of it from every block is slower.
__device__ __forceinline__ void prefetch_part(const float* p, int width) {
    size_t at = 32 * (blockIdx.x + size_t(gridDim.x) * threadIdx.x);  // lines of 128 bytes
    if (at < size_t(width)) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + at));
}

template <Form FORM, bool WARP, typename In, typename Out, int CHUNKS>
__device__ __forceinline__ void normalise(const Row& r) {
    int index = Lanes<WARP>::row(), column = Lanes<WARP>::index() * 4, step = Lanes<WARP>::count() * 4;
    int rest = r.width - column, adds = r.gate || r.residual || r.sum;
    size_t row = size_t(index) * r.width;
    const In* x = static_cast<const In*>(r.x) + row + column;
    const float *weights = r.weight + column, *shifts = r.shift + column;
    Out* out = static_cast<Out*>(r.out) + row + column;
    if constexpr (CHUNKS == 1 || WARP) {  // a block with two chunks per thread has no registers to spare
        pin(x), pin(weights), pin(out);
        if constexpr (FORM != RMS) pin(shifts);
    }
    if constexpr (!WARP) {
        prefetch_part(r.weight, r.width);
        if constexpr (FORM != RMS) prefetch_part(r.shift, r.width);
    }
    release_successor();
    wait_for_predecessor();
    if (WARP && index >= r.rows) return;
    float4 v[CHUNKS], weight[CHUNKS], shift[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        v[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (c * step < rest) v[c] = load4(x + c * step);
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        weight[c] = shift[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (c * step < rest) {
            weight[c] = load4(weights + c * step);
            if constexpr (FORM != RMS) shift[c] = load4(shifts + c * step);
        }
    }
    if (adds) add<CHUNKS>(v, r, row, column, step, rest);
    float2 by = statistics<FORM, WARP, CHUNKS>(v, r, step, rest);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        float4 factor = FORM == LAYER ? weight[c] : weight[c] + 1.0f;
        float4 y = fma4((v[c] + by.x) * by.y, factor, shift[c]);
        if (c * step < rest) store4(out + c * step, y);
    }
}

// One value of the row to be normalised.
__device__ __forceinline__ float value(const Row& r, size_t row, int column) {
    float x = load_as_float(r.x, r.x_bf16, row + column);
    if (r.gate) x *= r.gate[column];
    if (r.residual) x += load_as_float(r.residual, r.residual_bf16, row + column);
    return x;
}

template <Form FORM> __device__ __forceinline__ void normalise_any(const Row& r) {
    __shared__ float scratch[MAX_WARPS];
    release_successor();
    wait_for_predecessor();
    size_t row = size_t(blockIdx.x) * r.width;
    float mean = 0.0f, spread = 0.0f;
    if constexpr (FORM == LAYER) {
        for (int i = threadIdx.x; i < r.width; i += blockDim.x) mean += value(r, row, i);
        mean = block_sum(mean, scratch) * r.per_width;
    }
    for (int i = threadIdx.x; i < r.width; i += blockDim.x) {
        float off = value(r, row, i) - mean;
        spread = fmaf(off, off, spread);
    }
    float factor = rsqrtf(fmaf(block_sum(spread, scratch), r.per_width, r.eps));
    for (int i = threadIdx.x; i < r.width; i += blockDim.x) {
        float x = value(r, row, i);
        float y = (x - mean) * factor * (FORM == LAYER ? r.weight[i] : 1.0f + r.weight[i]);
        if constexpr (FORM != RMS) y += r.shift[i];
        store_from_float(r.out, r.out_bf16, row + i, y);
        if (r.sum) store_from_float(r.sum, r.sum_bf16, row + i, x);
    }
}

}  // namespace flashrt

using namespace flashrt;

// Two blocks of 1024 threads where a multiprocessor holds 2048; the others hold 1536.
#if __CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100)
constexpr int RMS_BLOCKS = 2;
#else
constexpr int RMS_BLOCKS = 1;
#endif

// <name>_<x>_<out>_block_<chunks>: one block per row, blockDim a multiple of 128, blockDim·4·chunks ≥ width.
// …_warp_<chunks>: one warp per row, 128·chunks ≥ width. All addresses on four values, width a multiple of 4.
// 32 registers of RMS let all rows of a prefix run at once.
#define NORM(name, FORM, in, In, out, Out, chunks) \
    extern "C" __global__ void __launch_bounds__(1024, FORM == RMS ? RMS_BLOCKS : 1) \
    name##_##in##_##out##_block_##chunks(Row row) { \
        normalise<FORM, false, In, Out, chunks>(row); \
    }
#define NORM_WARP(name, FORM, in, In, out, Out, chunks) \
    extern "C" __global__ void __launch_bounds__(128) name##_##in##_##out##_warp_##chunks(Row row) { \
        normalise<FORM, true, In, Out, chunks>(row); \
    }
#define NORM_CHUNKS(name, FORM, in, In, out, Out) \
    NORM(name, FORM, in, In, out, Out, 1) \
    NORM(name, FORM, in, In, out, Out, 2) \
    NORM_WARP(name, FORM, in, In, out, Out, 9) \
    NORM_WARP(name, FORM, in, In, out, Out, 12)
#define NORM_FORM(name, FORM) \
    NORM_CHUNKS(name, FORM, f32, float, f32, float) \
    NORM_CHUNKS(name, FORM, f32, float, bf16, bf16) \
    NORM_CHUNKS(name, FORM, bf16, bf16, f32, float) \
    NORM_CHUNKS(name, FORM, bf16, bf16, bf16, bf16) \
    extern "C" __global__ void __launch_bounds__(1024) name##_any(Row row) { normalise_any<FORM>(row); }

NORM_FORM(layer_norm, LAYER)
NORM_FORM(rms_norm, RMS)
NORM_FORM(ada_rms_norm, ADAPTIVE)
