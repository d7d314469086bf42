// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// What happens to a matmul's fp32 sums, for every matmul kernel: the kinds of the declarations `matmul`,
// `matmul_gelu_mul`, `matmul_rope_qkv` and `matmul_silu_mul` (flashrt_kernels/matmul.py).
//
// Gated kinds (GELU_MUL, SILU_MUL) differ in the activation of the gate alone.
//
// Pairs: weights of gate/up, and of the two halves of a rotated head, are stored interleaved in blocks of 8 outputs:
// outputs 16b … 16b+7 are the first of each pair, 16b+8 … 16b+15 the second. The accumulator fragments of mma.sync
// and wgmma then hold both of a pair in one thread, whether outputs lie on the M or on the N axis.
#pragma once

#include "common.cuh"

namespace flashrt {

enum EpilogueKind : int { PLAIN = 0, GELU_MUL = 1, ROPE_QKV = 2, SILU_MUL = 3 };

__host__ __device__ constexpr bool is_gated(int kind) { return kind == GELU_MUL || kind == SILU_MUL; }

// The gate of a gated kind, activated.
template <int KIND> __device__ __forceinline__ float open_gate(float x) {
    static_assert(is_gated(KIND), "other kinds have no gate");
    return KIND == GELU_MUL ? gelu_tanh(x) : silu(x);
}

// Passed by value to every matmul kernel; mirrored by ctypes in flashrt_kernels/cuda/families/matmul.py.
struct Epilogue {
    const float* bias;      // [n] or null
    const float* gate;      // [n] or null
    const void* residual;   // [rows, n] or null
    void* out;              // [rows, n] (PLAIN), [rows, n/2] (gated), q [rows, q_width] or null (ROPE_QKV)
    void* k_out;            // [rows, kv_width] or null
    void* v_out;            // [rows, kv_width] or null
    const float* table;     // [rows, head_dim] = [cos | sin] (ROPE_QKV)
    int rows, n;            // of the product
    int activation;         // code of common.cuh (PLAIN)
    int out_bf16;           // out, k_out, v_out are bf16 (else fp32)
    int residual_bf16;
    int q_width, kv_width, head_dim;  // ROPE_QKV: n = q_width + 2·kv_width, or q_width when k_out is null
};

// One value of PLAIN.
__device__ __forceinline__ float finish(const Epilogue& e, int row, int column, float x) {
    if (e.bias) x += e.bias[column];
    x = activate(x, e.activation);
    if (e.gate) x *= e.gate[column];
    if (e.residual) x += load_as_float(e.residual, e.residual_bf16, size_t(row) * e.n + column);
    return x;
}

// Stores two values of one row in neighbouring columns (column even, row length even).
__device__ __forceinline__ void store_two(void* out, bool is_bf16, size_t index, float a, float b) {
    if (is_bf16) *reinterpret_cast<uint32_t*>(static_cast<bf16*>(out) + index) = pack_bf16(a, b);
    else *reinterpret_cast<float2*>(static_cast<float*>(out) + index) = make_float2(a, b);
}

// Where a pair of ROPE_QKV goes. `first`: stored output index of its first member (index % 16 < 8), the second is at
// first + 8. Values of v are not pairs: the same two indices are simply two columns of v.
struct RopeTarget {
    void* out;      // null: nothing is stored
    size_t first, second;  // element offsets within a row of `out`
    int angle;      // column of cos in `table` (sin is head_dim/2 further); < 0: not rotated
    int width;      // of a row of `out`
};
__device__ __forceinline__ RopeTarget rope_target(const Epilogue& e, int first) {
    RopeTarget t;
    int half = e.head_dim >> 1;
    if (first < e.q_width + e.kv_width) {
        bool is_q = first < e.q_width;
        int local = is_q ? first : first - e.q_width;
        int head = local / e.head_dim, within = local - head * e.head_dim;
        int i = (within >> 4) * 8 + (within & 7);  // 0 … half-1
        t.out = is_q ? e.out : e.k_out;
        t.width = is_q ? e.q_width : e.kv_width;
        t.first = size_t(head) * e.head_dim + i;
        t.second = t.first + half;
        t.angle = i;
    } else {
        t.out = e.v_out;
        t.width = e.kv_width;
        t.first = first - e.q_width - e.kv_width;
        t.second = t.first + 8;
        t.angle = -1;
    }
    return t;
}
__device__ __forceinline__ void rotate_pair(const Epilogue& e, const RopeTarget& t, int row, float& a, float& b) {
    if (t.angle < 0) return;
    const float* line = e.table + size_t(row) * e.head_dim + t.angle;
    float cos = line[0], sin = line[e.head_dim >> 1];
    float turned = a * cos - b * sin;
    b = b * cos + a * sin;
    a = turned;
}

}  // namespace flashrt
