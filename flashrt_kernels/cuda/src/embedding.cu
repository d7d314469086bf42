// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// embedding (flashrt_kernels/embedding.py). blockIdx.x: token; blockIdx.y, threads: columns.
#include "vector.cuh"

using namespace flashrt;

// Eight values per thread: 16 bytes of a bf16 table. width % 8 == 0, addresses aligned.
extern "C" __global__ void embedding(const int* ids, const void* table, int table_bf16, void* out, int out_bf16,
                                     int width, float scale) {
    release_successor();
    wait_for_predecessor();
    int column = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (column >= width) return;
    size_t from = size_t(ids[blockIdx.x]) * width + column, to = size_t(blockIdx.x) * width + column;
    float4 a, b;
    if (table_bf16) {
        uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(table) + from);
        uint2 halves[2] = {make_uint2(raw.x, raw.y), make_uint2(raw.z, raw.w)};
        a = load4(reinterpret_cast<const bf16*>(&halves[0]));
        b = load4(reinterpret_cast<const bf16*>(&halves[1]));
    } else {
        a = load4(static_cast<const float*>(table) + from);
        b = load4(static_cast<const float*>(table) + from + 4);
    }
    store4(out, out_bf16, to, a * scale);
    store4(out, out_bf16, to + 4, b * scale);
}

// Any width, any address.
extern "C" __global__ void embedding_any(const int* ids, const void* table, int table_bf16, void* out, int out_bf16,
                                         int width, float scale) {
    release_successor();
    wait_for_predecessor();
    int column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= width) return;
    size_t from = size_t(ids[blockIdx.x]) * width + column, to = size_t(blockIdx.x) * width + column;
    store_from_float(out, out_bf16, to, load_as_float(table, table_bf16, from) * scale);
}
