// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The three epilogues of epilogue.cuh for a thread that holds eight sums of one row: two runs of four columns. With PLAIN
// the runs are free; with GELU_MUL and ROPE_QKV the second holds the partners of the first, 8 columns further.
#pragma once

#include "epilogue.cuh"
#include "four.cuh"

namespace flashrt {

struct Eight { Four first, second; };

// The columns that item i of a row's ceil(n / 16) · 2 stands for: four from `first` on, four from `second` on.
struct Columns { int first, second; };
__device__ __forceinline__ Columns columns_of(int kind, int item) {
    if (kind == PLAIN) return {item * 8, item * 8 + 4};
    int first = (item >> 1) * 16 + (item & 1) * 4;
    return {first, first + 8};
}

// A thread's eight columns, for any number of rows. What depends on the column alone is loaded once; what depends on the
// row, `load` brings early, so that several rows' loads are on their way before the first of them is stored.
struct Finisher {
    const Epilogue& e;
    int kind;
    Columns c;
    Eight bias, gate;   // PLAIN
    RopeTarget target;  // ROPE_QKV

    __device__ __forceinline__ Finisher(const Epilogue& epilogue, int kind, Columns columns)
        : e(epilogue), kind(kind), c(columns) {
        target.out = nullptr;
        target.angle = -1;
        if (kind == PLAIN) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                bool first = c.first + i < e.n, second = c.second + i < e.n;
                bias.first.v[i] = e.bias && first ? e.bias[c.first + i] : 0.0f;
                bias.second.v[i] = e.bias && second ? e.bias[c.second + i] : 0.0f;
                gate.first.v[i] = e.gate && first ? e.gate[c.first + i] : 1.0f;
                gate.second.v[i] = e.gate && second ? e.gate[c.second + i] : 1.0f;
            }
        } else if (kind == ROPE_QKV && c.first < e.n) {
            target = rope_target(e, c.first);
        }
    }

    // Residual (PLAIN), or cos and sin (ROPE_QKV) of a row.
    __device__ __forceinline__ Eight load(int row) const {
        Eight r = {};
        if (row >= e.rows) return r;
        if (kind == PLAIN && e.residual) {
            size_t line = size_t(row) * e.n;
            r.first = load_some(e.residual, e.residual_bf16, line + c.first, e.n - c.first);
            r.second = load_some(e.residual, e.residual_bf16, line + c.second, e.n - c.second);
        } else if (kind == ROPE_QKV && target.angle >= 0) {
            size_t line = size_t(row) * e.head_dim + target.angle;
            r.first = load_four(e.table, false, line);
            r.second = load_four(e.table, false, line + (e.head_dim >> 1));
        }
        return r;
    }

    __device__ __forceinline__ Four plain(Four x, const Four& bias, const Four& gate, const Four& residual) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) x.v[i] = activate(x.v[i] + bias.v[i], e.activation) * gate.v[i] + residual.v[i];
        return x;
    }

    // The sums of a row, with what `load` gave for it. Rows and columns beyond the product are left out.
    __device__ __forceinline__ void store(int row, Eight x, const Eight& loaded) const {
        if (row >= e.rows || c.first >= e.n) return;
        if (kind == PLAIN) {
            size_t line = size_t(row) * e.n;
            x.first = plain(x.first, bias.first, gate.first, loaded.first);
            x.second = plain(x.second, bias.second, gate.second, loaded.second);
            store_some(e.out, e.out_bf16, line + c.first, x.first, e.n - c.first);
            store_some(e.out, e.out_bf16, line + c.second, x.second, e.n - c.second);
        } else if (kind == GELU_MUL) {
#pragma unroll
            for (int i = 0; i < 4; ++i) x.first.v[i] = gelu_tanh(x.first.v[i]) * x.second.v[i];
            store_four(e.out, e.out_bf16, size_t(row) * (e.n >> 1) + (c.first >> 4) * 8 + (c.first & 7), x.first);
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
            store_four(target.out, e.out_bf16, line + target.first, x.first);
            store_four(target.out, e.out_bf16, line + target.second, x.second);
        }
    }
};

}  // namespace flashrt
