// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The epilogues of epilogue.cuh for a thread that holds eight sums of one row: two runs of four columns. With PLAIN
// the runs are free; with the other kinds the second holds the partners of the first, 8 columns further.
#pragma once

#include "epilogue.cuh"
#include "four.cuh"

namespace flashrt {

struct Eight { Four first, second; };

__device__ __forceinline__ void add(Eight& x, const Eight& y) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x.first.v[i] += y.first.v[i], x.second.v[i] += y.second.v[i];
}
template <typename Function> __device__ __forceinline__ void apply(Eight& x, Function f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) x.first.v[i] = f(x.first.v[i]), x.second.v[i] = f(x.second.v[i]);
}
__device__ __forceinline__ void activate_eight(Eight& x, int code) {
    switch (code) {
        case GELU_TANH: apply(x, gelu_tanh); break;
        case GELU_ERF: apply(x, gelu_erf); break;
        case SILU: apply(x, silu); break;
        case RELU: apply(x, relu); break;
        default: break;
    }
}

// The columns that item i of a row's ceil(n / 16) · 2 stands for: four from `first` on, four from `second` on.
struct Columns { int first, second; };
__device__ __forceinline__ Columns columns_of(int kind, int item) {
    if (kind == PLAIN) return {item * 8, item * 8 + 4};
    int first = (item >> 1) * 16 + (item & 1) * 4;
    return {first, first + 8};
}

// Arrays of the epilogue may be read and written four or eight elements at once.
__device__ __forceinline__ bool is_aligned(const Epilogue& e, int kind) {
    uintptr_t all = reinterpret_cast<uintptr_t>(e.out) | reinterpret_cast<uintptr_t>(e.residual) |
                    reinterpret_cast<uintptr_t>(e.k_out) | reinterpret_cast<uintptr_t>(e.v_out) |
                    reinterpret_cast<uintptr_t>(e.table);
    return all % 16 == 0 && (kind != PLAIN || e.n % 8 == 0);
}

// A thread's eight columns, for any number of rows. What depends on the column alone is loaded once; what depends on the
// row, `load` brings early, so that several rows' loads are on their way before the first of them is stored.
// ALIGNED: as is_aligned() says.
template <int KIND, bool ALIGNED> struct Finisher {
    const Epilogue& e;
    Columns c;
    Eight bias, gate;   // PLAIN
    RopeTarget target;  // ROPE_QKV

    __device__ __forceinline__ Finisher(const Epilogue& epilogue, Columns columns) : e(epilogue), c(columns) {
        target.out = nullptr;
        target.angle = -1;
        if (KIND == PLAIN) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                bool first = c.first + i < e.n, second = c.second + i < e.n;
                bias.first.v[i] = e.bias && first ? e.bias[c.first + i] : 0.0f;
                bias.second.v[i] = e.bias && second ? e.bias[c.second + i] : 0.0f;
                gate.first.v[i] = e.gate && first ? e.gate[c.first + i] : 1.0f;
                gate.second.v[i] = e.gate && second ? e.gate[c.second + i] : 1.0f;
            }
        } else if (KIND == ROPE_QKV && c.first < e.n) {
            target = rope_target(e, c.first);
        }
    }

    static __device__ __forceinline__ Four load_run(const void* array, bool is_bf16, size_t index, int count = 4) {
        return ALIGNED ? load_aligned_four(array, is_bf16, index) : load_some(array, is_bf16, index, count);
    }
    __device__ __forceinline__ void store_run(void* array, size_t index, const Four& x, int count = 4) const {
        if (ALIGNED) store_aligned_four(array, e.out_bf16, index, x);
        else store_some(array, e.out_bf16, index, x, count);
    }

    // Residual (PLAIN), or cos and sin (ROPE_QKV) of a row.
    __device__ __forceinline__ Eight load(int row) const {
        Eight r = {};
        if (row >= e.rows || c.first >= e.n) return r;
        if (KIND == PLAIN && e.residual) {
            size_t line = size_t(row) * e.n;
            r.first = load_run(e.residual, e.residual_bf16, line + c.first, e.n - c.first);
            r.second = load_run(e.residual, e.residual_bf16, line + c.second, e.n - c.second);
        } else if (KIND == ROPE_QKV && target.angle >= 0) {
            size_t line = size_t(row) * e.head_dim + target.angle;
            r.first = load_run(e.table, false, line);
            r.second = load_run(e.table, false, line + (e.head_dim >> 1));
        }
        return r;
    }

    // The sums of a row, with what `load` gave for it. Rows and columns beyond the product are left out.
    __device__ __forceinline__ void store(int row, Eight x, const Eight& loaded) const {
        if (row >= e.rows || c.first >= e.n) return;
        if (KIND == PLAIN) {
            size_t line = size_t(row) * e.n;
            add(x, bias);
            activate_eight(x, e.activation);
#pragma unroll
            for (int i = 0; i < 4; ++i) x.first.v[i] *= gate.first.v[i], x.second.v[i] *= gate.second.v[i];
            add(x, loaded);
            store_run(e.out, line + c.first, x.first, e.n - c.first);
            store_run(e.out, line + c.second, x.second, e.n - c.second);
        } else if constexpr (is_gated(KIND)) {
#pragma unroll
            for (int i = 0; i < 4; ++i) x.first.v[i] = open_gate<KIND>(x.first.v[i]) * x.second.v[i];
            store_run(e.out, size_t(row) * (e.n >> 1) + (c.first >> 4) * 8 + (c.first & 7), x.first);
        } else if (target.out) {
            if (target.angle >= 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    float a = x.first.v[i], b = x.second.v[i], cos = loaded.first.v[i], sin = loaded.second.v[i];
                    x.first.v[i] = a * cos - b * sin;
                    x.second.v[i] = b * cos + a * sin;
                }
            }
            size_t line = size_t(row) * target.width;
            store_run(target.out, line + target.first, x.first);
            store_run(target.out, line + target.second, x.second);
        }
    }
};

// Calls use(Finisher) with the one for this epilogue: the branches stay outside of the caller's loops.
template <typename Use>
__device__ __forceinline__ void with_finisher(const Epilogue& e, int kind, Columns columns, Use use) {
    bool aligned = is_aligned(e, kind);
    switch (kind * 2 + aligned) {
        case PLAIN * 2: use(Finisher<PLAIN, false>(e, columns)); break;
        case PLAIN * 2 + 1: use(Finisher<PLAIN, true>(e, columns)); break;
        case GELU_MUL * 2: use(Finisher<GELU_MUL, false>(e, columns)); break;
        case GELU_MUL * 2 + 1: use(Finisher<GELU_MUL, true>(e, columns)); break;
        case SILU_MUL * 2: use(Finisher<SILU_MUL, false>(e, columns)); break;
        case SILU_MUL * 2 + 1: use(Finisher<SILU_MUL, true>(e, columns)); break;
        case ROPE_QKV * 2: use(Finisher<ROPE_QKV, false>(e, columns)); break;
        default: use(Finisher<ROPE_QKV, true>(e, columns));
    }
}

}  // namespace flashrt
