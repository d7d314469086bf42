// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention on every GPU: on tensor cores (attention_flash.cuh) and generic (attention_generic.cuh). Few rows: the keys
// are split over blocks (blockIdx.z), each writes its sums to a workspace, `attention_combine` adds them in order.
#include "attention_flash.cuh"
#include "attention_generic.cuh"
#include "four.cuh"

namespace flashrt {

template <int D, int KEYS, int GROUPS> __device__ __forceinline__ void flash_attention(const Attention& a) {
    extern __shared__ __align__(128) char flash_memory[];
    Flash<D, KEYS, GROUPS> flash(a, flash_memory);
    int tiles = (a.keys + KEYS - 1) / KEYS, per_part = (tiles + a.parts - 1) / a.parts;
    int begin = blockIdx.z * per_part * KEYS;
    flash.accumulate(begin, min(a.keys, begin + per_part * KEYS));
    if (GROUPS == 2) {
        flash.merge_groups(flash_memory);
        if (flash.group == 1) return;
    }
    flash.store();
}

}  // namespace flashrt

using namespace flashrt;

// Name: attention_<padded head_dim>x<keys of a tile>. The list is that of VARIANTS in
// flashrt_kernels/cuda/families/attention_portable.py.
#define FLASH_ATTENTION(D, KEYS, GROUPS)                                             \
    extern "C" __global__ void __launch_bounds__(GROUPS * GROUP_THREADS)             \
        attention_##D##x##KEYS(const __grid_constant__ Attention a) {                \
        flash_attention<D, KEYS, GROUPS>(a);                                         \
    }
FLASH_ATTENTION(64, 64, 1)
FLASH_ATTENTION(80, 64, 1)
FLASH_ATTENTION(128, 64, 1)
FLASH_ATTENTION(256, 32, 2)
FLASH_ATTENTION(256, 64, 2)

extern "C" __global__ void __launch_bounds__(256, 2) attention_generic(const __grid_constant__ Attention a) {
    attention_generic_block(a);
}

// Adds the parts of a row, in their order; at most 32 parts. A warp: 128 columns of a row.
// grid: (ceil(queries·group · ceil(head_dim/128) / 4), sequences·kv_heads).
extern "C" __global__ void __launch_bounds__(128) attention_combine(const __grid_constant__ Attention a) {
    release_successor();
    wait_for_predecessor();
    Rows rows(a);
    int pieces = (a.head_dim + 127) >> 7, warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, lane = threadIdx.x & 31;
    int row = warp / pieces, column = (warp - row * pieces) * 128 + lane * 4;
    if (row >= rows.count) return;
    size_t all = rows.all(a), at = rows.partial_row(a, row);
    float max = -INFINITY, total = 0.0f;  // of part `lane`
    if (lane < a.parts) {
        const float* statistics = a.partial + size_t(a.parts) * all * a.head_dim + (lane * all + at) * 2;
        max = statistics[0];
        total = statistics[1];
    }
    float weight = weight_of(max, warp_max(max));
    total = warp_sum(total * weight);
    const float* sums = a.partial + at * a.head_dim + column;
    int count = a.head_dim - column;
    Four x = {};
#pragma unroll 8
    for (int part = 0; part < a.parts; ++part) {
        Four s = load_some(sums + part * all * a.head_dim, false, 0, count);
        float w = __shfl_sync(0xffffffffu, weight, part);
#pragma unroll
        for (int i = 0; i < 4; ++i) x.v[i] = fmaf(w, s.v[i], x.v[i]);
    }
    float scale = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
    for (float& v : x.v) v *= scale;
    store_some(a.out, a.out_bf16, rows.offset(a, row, a.out_stride) + column, x, count);
}
