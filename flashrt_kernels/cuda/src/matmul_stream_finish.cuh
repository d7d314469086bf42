// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The epilogues of the streaming matmul: what becomes of four sums of a thread. They are outputs `column` and
// `column + 8` of tokens `row` and `row + 1`, with row = 2 · (lane % 4) of eight tokens:
//   d[0]: column, row    d[1]: column, row + 1    d[2]: column + 8, row    d[3]: column + 8, row + 1
//
// With one warp in each quarter of a multiprocessor, latencies add up. Therefore: operands are asked for before
// the main loop as unconverted words and are not waited for there; of several eights all values are computed
// (`apply`) before the first is stored (`write`); pairs of bf16 are transposed, so that a thread stores two at once.
#pragma once

#include "epilogue.cuh"

namespace flashrt {

// Out of line: rarely used, and four copies of it would be most of the code.
__device__ __noinline__ float activate_rarely(float x, int code) { return activate(x, code); }

// Into L2, where it can't go stale: also allowed before the kernel before has ended.
__device__ __forceinline__ void prefetch_line(const void* p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// The aligned word that holds element i (of bf16, one of its halves), and the element in it.
__device__ __forceinline__ uint32_t load_word(const void* p, bool is_bf16, size_t i) {
    uintptr_t at = reinterpret_cast<uintptr_t>(p) + (i << (is_bf16 ? 1 : 2));
    return *reinterpret_cast<const uint32_t*>(at & ~uintptr_t(3));
}
__device__ __forceinline__ float element_of(uint32_t word, const void* p, bool is_bf16, size_t i) {
    bool upper = (reinterpret_cast<uintptr_t>(p) >> 1) + i & 1;
    if (is_bf16) word = upper ? word & 0xffff0000u : word << 16;
    return __uint_as_float(word);
}

// Lane l gives output l / 4 of tokens 2 · (l % 4) and the next, and gets these two outputs of token l / 4.
__device__ __forceinline__ uint32_t transposed(float token, float next) {
    uint32_t pair = pack_bf16(token, next);
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
    return pair;
}
// Such a pair can be stored as one word where rows have an even length.
__device__ __forceinline__ bool takes_pairs(const void* out, bool is_bf16) {
    return is_bf16 && (reinterpret_cast<uintptr_t>(out) & 3) == 0;
}
__device__ __forceinline__ void store_pair(void* out, size_t i, uint32_t pair) {
    *reinterpret_cast<uint32_t*>(static_cast<bf16*>(out) + i) = pair;
}

// GELU_MUL, SILU_MUL.
template <int KIND> struct Finish {
    struct Operands {};
    const Epilogue& e;
    int first, lane;
    bool pairs;

    __device__ Finish(const Epilogue& e, int first)
        : e(e), first(first), lane(threadIdx.x % 32), pairs(takes_pairs(e.out, e.out_bf16)) {}
    __device__ void load() {}
    __device__ Operands operands(int) const { return {}; }
    __device__ void apply(int, float* d, const Operands&) const {
        d[0] = open_gate<KIND>(d[0]) * d[2];
        d[1] = open_gate<KIND>(d[1]) * d[3];
    }
    __device__ void write(int eight, const float* d) const {
        if (first >= e.n) return;
        size_t f = e.n >> 1, at = first >> 1;
        if (pairs) {
            uint32_t pair = transposed(d[0], d[1]);
            int token = 8 * eight + lane / 4;
            if (token < e.rows) store_pair(e.out, token * f + at + lane % 4 * 2, pair);
            return;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int token = 8 * eight + lane % 4 * 2 + i;
            if (token < e.rows) store_from_float(e.out, e.out_bf16, token * f + at + lane / 4, d[i]);
        }
    }
};

template <> struct Finish<PLAIN> {
    struct Operands {
        uint32_t residual[4];
    };
    const Epilogue& e;
    int column, row;
    float bias[2] = {0.0f, 0.0f}, gate[2] = {1.0f, 1.0f};

    // first: output of the warp's first sums
    __device__ Finish(const Epilogue& e, int first)
        : e(e), column(first + threadIdx.x % 32 / 4), row(threadIdx.x % 4 * 2) {
        if (column >= e.n) return;
        if (e.bias) prefetch_line(e.bias + column);
        if (e.gate) prefetch_line(e.gate + column);
    }
    __device__ void load() {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            bool inside = column + 8 * i < e.n;
            if (inside && e.bias) bias[i] = e.bias[column + 8 * i];
            if (inside && e.gate) gate[i] = e.gate[column + 8 * i];
        }
    }
    __device__ bool inside(int eight, int i) const {
        return 8 * eight + row + (i & 1) < e.rows && column + 8 * (i >> 1) < e.n;
    }
    __device__ size_t index(int eight, int i) const {
        return size_t(8 * eight + row + (i & 1)) * e.n + column + 8 * (i >> 1);
    }
    __device__ Operands operands(int eight) const {
        Operands o = {};
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (e.residual && inside(eight, i))
                o.residual[i] = load_word(e.residual, e.residual_bf16, index(eight, i));
        return o;
    }
    __device__ void apply(int eight, float* d, const Operands& o) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) d[i] += bias[i >> 1];
        if (e.activation != NONE) {
#pragma unroll
            for (int i = 0; i < 4; ++i) d[i] = activate_rarely(d[i], e.activation);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
            d[i] = d[i] * gate[i >> 1] +
                   element_of(o.residual[i], e.residual, e.residual_bf16, index(eight, i));
    }
    __device__ void write(int eight, const float* d) const {
        if (e.out_bf16) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (inside(eight, i)) static_cast<bf16*>(e.out)[index(eight, i)] = from_float<bf16>(d[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (inside(eight, i)) static_cast<float*>(e.out)[index(eight, i)] = d[i];
        }
    }
};

template <> struct Finish<ROPE_QKV> {
    struct Operands {
        float cos[2], sin[2];
    };
    const Epilogue& e;
    RopeTarget target;  // of the warp's first pair
    int lane;
    bool pairs;

    __device__ Finish(const Epilogue& e, int first)
        : e(e), target(rope_target(e, first)), lane(threadIdx.x % 32) {
        if (first >= e.n) target.out = nullptr;
        pairs = takes_pairs(target.out, e.out_bf16);
    }
    __device__ void load() {}
    __device__ Operands operands(int eight) const {
        Operands o = {{1.0f, 1.0f}, {0.0f, 0.0f}};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int token = 8 * eight + lane % 4 * 2 + i;
            const float* line = e.table + size_t(token) * e.head_dim + target.angle + lane / 4;
            if (target.angle >= 0 && token < e.rows) o.cos[i] = line[0], o.sin[i] = line[e.head_dim >> 1];
        }
        return o;
    }
    __device__ void apply(int, float* d, const Operands& o) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float turned = d[i] * o.cos[i] - d[i + 2] * o.sin[i];
            d[i + 2] = d[i + 2] * o.cos[i] + d[i] * o.sin[i];
            d[i] = turned;
        }
    }
    __device__ void write(int eight, const float* d) const {
        if (!target.out) return;
        if (pairs) {
            uint32_t one = transposed(d[0], d[1]), two = transposed(d[2], d[3]);
            int token = 8 * eight + lane / 4;
            if (token >= e.rows) return;
            size_t at = size_t(token) * target.width + lane % 4 * 2;
            store_pair(target.out, at + target.first, one);
            store_pair(target.out, at + target.second, two);
            return;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int token = 8 * eight + lane % 4 * 2 + i;
            if (token >= e.rows) continue;
            size_t at = size_t(token) * target.width + lane / 4;
            store_from_float(target.out, e.out_bf16, at + target.first, d[i]);
            store_from_float(target.out, e.out_bf16, at + target.second, d[i + 2]);
        }
    }
};

}  // namespace flashrt
