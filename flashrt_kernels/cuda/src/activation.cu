// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// gelu, gelu_mul and silu (flashrt_kernels/activation.py) over flat arrays: where no matmul's epilogue does them.
#include "vector.cuh"

namespace flashrt {

// Four values per thread; the last count % 4 one per thread.
template <int CODE, typename In, typename Out>
__device__ __forceinline__ void apply(const void* x, const void* factor, int factor_bf16, void* out, long long count) {
    release_successor();
    wait_for_predecessor();
    long long unit = (long long)blockIdx.x * blockDim.x + threadIdx.x, whole = count / 4;
    if (unit < whole) {
        float4 v = load4(static_cast<const In*>(x) + unit * 4);
        v = make_float4(activate(v.x, CODE), activate(v.y, CODE), activate(v.z, CODE), activate(v.w, CODE));
        if (factor) v = v * load4(factor, factor_bf16, unit * 4);
        store4(static_cast<Out*>(out) + unit * 4, v);
    } else if (unit - whole < count % 4) {
        long long i = whole * 4 + unit - whole;
        float v = activate(to_float(static_cast<const In*>(x)[i]), CODE);
        if (factor) v *= load_as_float(factor, factor_bf16, i);
        static_cast<Out*>(out)[i] = from_float<Out>(v);
    }
}

// The same for addresses that are off the alignment of four values.
template <int CODE>
__device__ __forceinline__ void apply_any(const void* x, int x_bf16, const void* factor, int factor_bf16, void* out,
                                          int out_bf16, long long count) {
    release_successor();
    wait_for_predecessor();
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float v = activate(load_as_float(x, x_bf16, i), CODE);
    if (factor) v *= load_as_float(factor, factor_bf16, i);
    store_from_float(out, out_bf16, i, v);
}

}  // namespace flashrt

using namespace flashrt;

#define APPLY(name, CODE, in, In, out_name, Out) \
    extern "C" __global__ void name##_##in##_##out_name(const void* x, const void* factor, int factor_bf16, void* out, \
                                                        long long count) { \
        apply<CODE, In, Out>(x, factor, factor_bf16, out, count); \
    }
#define APPLY_CODE(name, CODE) \
    APPLY(name, CODE, f32, float, f32, float) \
    APPLY(name, CODE, f32, float, bf16, bf16) \
    APPLY(name, CODE, bf16, bf16, f32, float) \
    APPLY(name, CODE, bf16, bf16, bf16, bf16) \
    extern "C" __global__ void name##_any(const void* x, int x_bf16, const void* factor, int factor_bf16, void* out, \
                                          int out_bf16, long long count) { \
        apply_any<CODE>(x, x_bf16, factor, factor_bf16, out, out_bf16, count); \
    }

APPLY_CODE(gelu_tanh, GELU_TANH)
APPLY_CODE(gelu_erf, GELU_ERF)
APPLY_CODE(silu, SILU)
