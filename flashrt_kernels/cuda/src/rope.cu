// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// rope_table, rope_table_axes, rope, rope_qk, rope_qkv and norm_rope_qkv (flashrt_kernels/rope.py).
#include "vector.cuh"

using namespace flashrt;

// theta^(2·column / head_dim). In fp64, as positions of hundreds would multiply an error of the last fp32 digit.
__device__ __forceinline__ float period_of(float theta, int column, int head_dim) {
    return float(pow(double(theta), double(__fdiv_rn(float(2 * column), float(head_dim)))));
}

// One thread per angle column, several rows each: the power is the dear part.
extern "C" __global__ void rope_table(const int* positions, float* out, int rows, int head_dim, float theta) {
    int half = head_dim / 2, column = blockIdx.x * blockDim.x + threadIdx.x;
    float period = 1.0f;
    if (column < half) period = period_of(theta, column, head_dim);
    release_successor();
    wait_for_predecessor();
    if (column >= half) return;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        float angle = __fdiv_rn(float(positions[row]), period);
        out[size_t(row) * head_dim + column] = cosf(angle);
        out[size_t(row) * head_dim + half + column] = sinf(angle);
    }
}

// The same with a position for each axis: positions [axes, rows], axis [half].
extern "C" __global__ void rope_table_axes(const int* positions, const int* axis, float* out, int rows, int half,
                                           float theta) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    float period = 1.0f;
    if (column < half) period = period_of(theta, column, 2 * half);
    release_successor();
    wait_for_predecessor();
    if (column >= half) return;
    const int* along = positions + size_t(axis[column]) * rows;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        float angle = __fdiv_rn(float(along[row]), period);
        out[size_t(row) * 2 * half + column] = cosf(angle);
        out[size_t(row) * 2 * half + half + column] = sinf(angle);
    }
}

// [q | k | v] of one row each, `q_heads + 2·kv_heads` heads; q and k turn, v is copied.
struct Heads {
    const void* x;
    const float* table;  // [rows, head_dim] = [cos | sin]
    void* q_out;         // null: q is not wanted
    void* k_out;
    void* v_out;
    int q_heads, kv_heads, head_dim;
    int x_bf16, q_bf16, k_bf16, v_bf16;
};

// Where head `head` of a row goes.
struct Target {
    void* out;
    bool is_bf16, turns;
    size_t offset;  // of the head's first value
};
__device__ __forceinline__ Target target_of(const Heads& h, size_t row, int head) {
    if (head < h.q_heads) return {h.q_out, bool(h.q_bf16), true, (row * h.q_heads + head) * h.head_dim};
    head -= h.q_heads;
    if (head < h.kv_heads) return {h.k_out, bool(h.k_bf16), true, (row * h.kv_heads + head) * h.head_dim};
    return {h.v_out, bool(h.v_bf16), false, (row * h.kv_heads + head - h.kv_heads) * h.head_dim};
}

// blockIdx.x: row; threads: (head, column of its first half), four columns each; half % 4 == 0, addresses aligned.
extern "C" __global__ void turn_heads(Heads h) {
    release_successor();
    wait_for_predecessor();
    int half = h.head_dim / 2, per_head = half / 4, heads = h.q_heads + 2 * h.kv_heads;
    size_t row = blockIdx.x;
    const float* table = h.table + row * h.head_dim;
    for (int unit = threadIdx.x; unit < heads * per_head; unit += blockDim.x) {
        int head = unit / per_head, column = unit % per_head * 4;
        Target to = target_of(h, row, head);
        if (!to.out) continue;
        size_t from = (row * heads + head) * h.head_dim + column;
        float4 a = load4(h.x, h.x_bf16, from), b = load4(h.x, h.x_bf16, from + half);
        float4 first = a, second = b;
        if (to.turns) {
            float4 cosine = load4(table + column), sine = load4(table + half + column);
            first = fma4(a, cosine, b * sine * -1.0f);
            second = fma4(b, cosine, a * sine);
        }
        store4(to.out, to.is_bf16, to.offset + column, first);
        store4(to.out, to.is_bf16, to.offset + half + column, second);
    }
}

// Any even head_dim, any address.
extern "C" __global__ void turn_heads_any(Heads h) {
    release_successor();
    wait_for_predecessor();
    int half = h.head_dim / 2, heads = h.q_heads + 2 * h.kv_heads;
    size_t row = blockIdx.x;
    const float* table = h.table + row * h.head_dim;
    for (int unit = threadIdx.x; unit < heads * half; unit += blockDim.x) {
        int head = unit / half, column = unit % half;
        Target to = target_of(h, row, head);
        if (!to.out) continue;
        size_t from = (row * heads + head) * h.head_dim + column;
        float a = load_as_float(h.x, h.x_bf16, from), b = load_as_float(h.x, h.x_bf16, from + half);
        float cosine = to.turns ? table[column] : 1.0f, sine = to.turns ? table[half + column] : 0.0f;
        store_from_float(to.out, to.is_bf16, to.offset + column, fmaf(a, cosine, -b * sine));
        store_from_float(to.out, to.is_bf16, to.offset + half + column, fmaf(b, cosine, a * sine));
    }
}

// Turns the first `heads` heads of a row where they lie; width: of a row. blockIdx.x: row. Any even head_dim, any address.
extern "C" __global__ void turn_in_place(void* x, int x_bf16, const float* table, int heads, int head_dim, int width) {
    release_successor();
    wait_for_predecessor();
    int half = head_dim / 2;
    size_t row = blockIdx.x;
    table += row * head_dim;
    for (int unit = threadIdx.x; unit < heads * half; unit += blockDim.x) {
        int head = unit / half, column = unit - head * half;
        size_t at = row * width + size_t(head) * head_dim + column;
        float a = load_as_float(x, x_bf16, at), b = load_as_float(x, x_bf16, at + half);
        float cosine = table[column], sine = table[half + column];
        store_from_float(x, x_bf16, at, a * cosine - b * sine);
        store_from_float(x, x_bf16, at + half, b * cosine + a * sine);
    }
}

// One warp per head of a row: its RMS norm in fp32, then the turn; v is copied. Any even head_dim, any address. The
// second pass reads the head again, from L1.
extern "C" __global__ void norm_turn_heads(Heads h, const float* q_weight, const float* k_weight, int rows, float eps) {
    release_successor();
    wait_for_predecessor();
    int half = h.head_dim / 2, heads = h.q_heads + 2 * h.kv_heads, lane = threadIdx.x & 31;
    size_t unit = size_t(blockIdx.x) * (blockDim.x >> 5) + (threadIdx.x >> 5), row = unit / heads;
    if (row >= rows) return;
    int head = int(unit - row * heads);
    Target to = target_of(h, row, head);
    size_t from = unit * h.head_dim;
    float squares = 0.0f;
    for (int column = lane; column < half; column += 32) {
        float a = load_as_float(h.x, h.x_bf16, from + column), b = load_as_float(h.x, h.x_bf16, from + half + column);
        squares += a * a + b * b;
    }
    float scale = to.turns ? rsqrtf(warp_sum(squares) / float(h.head_dim) + eps) : 1.0f;
    const float* weight = head < h.q_heads ? q_weight : k_weight;
    const float* table = h.table + row * h.head_dim;
    for (int column = lane; column < half; column += 32) {
        float a = load_as_float(h.x, h.x_bf16, from + column), b = load_as_float(h.x, h.x_bf16, from + half + column);
        if (to.turns) {
            float first = a * scale * weight[column], second = b * scale * weight[half + column];
            float cosine = table[column], sine = table[half + column];
            a = first * cosine - second * sine;
            b = second * cosine + first * sine;
        }
        store_from_float(to.out, to.is_bf16, to.offset + column, a);
        store_from_float(to.out, to.is_bf16, to.offset + half + column, b);
    }
}
