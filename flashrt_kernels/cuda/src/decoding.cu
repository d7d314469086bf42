// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// argmax, write_rows, clear, begin_text and advance_text (flashrt_kernels/decoding.py).
#include "vector.cuh"

namespace flashrt {

struct Best {
    float value;
    int index;
};

// Larger, or equal and in front; NaN is larger than everything, so that it is seen. A total order: which comparisons
// are made in which order does not matter.
__device__ __forceinline__ bool beats(const Best& a, const Best& b) {
    bool a_nan = isnan(a.value), b_nan = isnan(b.value);
    if (a_nan != b_nan) return a_nan;
    if (a_nan || a.value == b.value) return a.index < b.index;
    return a.value > b.value;
}

__device__ __forceinline__ Best nothing() { return {-INFINITY, 0x7fffffff}; }

__device__ __forceinline__ Best warp_best(Best x) {
#pragma unroll
    for (int offset = 16; offset; offset >>= 1) {
        Best other = {__shfl_xor_sync(0xffffffffu, x.value, offset), __shfl_xor_sync(0xffffffffu, x.index, offset)};
        if (beats(other, x)) x = other;
    }
    return x;
}

// The best of a block, in its first warp; blockDim is a multiple of 32.
__device__ __forceinline__ Best block_best(Best x) {
    __shared__ Best of_warps[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_best(x);
    if (lane == 0) of_warps[warp] = x;
    __syncthreads();
    return warp_best(lane < warps ? of_warps[lane] : nothing());
}

}  // namespace flashrt

using namespace flashrt;

constexpr int VALUES = 8;  // of a thread: ARGMAX_VALUES in flashrt_kernels/cuda/families/decoding.py

// blockIdx.x: row, blockIdx.y: part of VALUES · blockDim columns; found [rows, parts].
extern "C" __global__ void __launch_bounds__(256) argmax_part(const float* logits, int vocabulary, Best* found) {
    release_successor();
    wait_for_predecessor();
    const float* row = logits + size_t(blockIdx.x) * vocabulary;
    int first = blockIdx.y * VALUES * blockDim.x + threadIdx.x;
    float values[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {  // all on their way before the first is looked at
        int column = first + i * blockDim.x;
        values[i] = column < vocabulary ? row[column] : -INFINITY;
    }
    Best best = nothing();
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {
        int column = first + i * blockDim.x;
        Best next = {values[i], column};
        if (column < vocabulary && beats(next, best)) best = next;
    }
    best = block_best(best);
    if (threadIdx.x == 0) found[size_t(blockIdx.x) * gridDim.y + blockIdx.y] = best;
}

// blockIdx.x: row.
extern "C" __global__ void __launch_bounds__(128) argmax_last(const Best* found, int parts, int* out) {
    release_successor();
    wait_for_predecessor();
    Best best = nothing();
    for (int part = threadIdx.x; part < parts; part += blockDim.x) {
        Best next = found[size_t(blockIdx.x) * parts + part];
        if (beats(next, best)) best = next;
    }
    best = block_best(best);
    if (threadIdx.x == 0) out[blockIdx.x] = best.index;
}

// Row blockIdx.x of `rows` to row *at + blockIdx.x of `cache`; what would lie outside is left out. Four columns a
// thread: width % 4 == 0, addresses aligned.
extern "C" __global__ void write_rows(const void* rows, int rows_bf16, const int* at, void* cache, int cache_bf16,
                                      int width, int capacity) {
    release_successor();
    wait_for_predecessor();
    int column = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    long long row = (long long)*at + blockIdx.x;
    if (column >= width || row < 0 || row >= capacity) return;
    store4(cache, cache_bf16, row * width + column, load4(rows, rows_bf16, size_t(blockIdx.x) * width + column));
}

// Any width, any address.
extern "C" __global__ void write_rows_any(const void* rows, int rows_bf16, const int* at, void* cache, int cache_bf16,
                                          int width, int capacity) {
    release_successor();
    wait_for_predecessor();
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    long long row = (long long)*at + blockIdx.x;
    if (column >= width || row < 0 || row >= capacity) return;
    float x = load_as_float(rows, rows_bf16, size_t(blockIdx.x) * width + column);
    store_from_float(cache, cache_bf16, row * width + column, x);
}

// Four values per thread; the last count % 4 one per thread.
extern "C" __global__ void clear(void* out, int out_bf16, long long count) {
    release_successor();
    wait_for_predecessor();
    long long unit = (long long)blockIdx.x * blockDim.x + threadIdx.x, whole = count / 4;
    if (unit < whole) store4(out, out_bf16, unit * 4, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    else if (unit - whole < count % 4) store_from_float(out, out_bf16, whole * 4 + unit - whole, 0.0f);
}

// Any address.
extern "C" __global__ void clear_any(void* out, int out_bf16, long long count) {
    release_successor();
    wait_for_predecessor();
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) store_from_float(out, out_bf16, i, 0.0f);
}

// One thread for each row of the cache; limit <= rows + limit.
extern "C" __global__ void begin_text(const int* next, const int* position, const bool* prompt, int* text,
                                      bool* visible, int* place, int rows, int limit) {
    release_successor();
    wait_for_predecessor();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < limit) text[i] = i == 0 ? *next : 0;
    if (i < rows + limit) visible[i] = i < rows ? prompt[i] : i == rows;
    if (i == 0) {
        place[0] = 0;
        place[1] = *position;
    }
}

// One warp, of which one thread works.
extern "C" __global__ void advance_text(const int* next, int* text, bool* visible, int* place, int limit) {
    release_successor();
    wait_for_predecessor();
    if (threadIdx.x) return;
    int at = place[0] + 1;
    if (at < limit) {
        text[at] = *next;
        visible[at] = true;
    }
    place[0] = at;
    place[1] += 1;
}
