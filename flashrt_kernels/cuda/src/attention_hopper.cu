// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// Attention on Hopper (wgmma and TMA): three shapes of it, see the headers. Launched by
// flashrt_kernels/cuda/families/attention_hopper.py.
#include "attention_hopper_narrow.cuh"
#include "attention_hopper_self.cuh"
#include "attention_hopper_wide.cuh"

using namespace flashrt;

extern "C" __global__ void __launch_bounds__(wide::THREADS, 1)
    attention_wide(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                   const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap out,
                   const uint8_t* key_valid, int keys, int group, float scale) {
    wide::run(&q, &k, &v, &out, key_valid, keys, group, scale);
}

// KEYS: of one thread block; a cluster takes CLUSTER times as many at a time.
#define ATTENTION_NARROW(KEYS, CLUSTER)                                                                      \
    extern "C" __global__ void __launch_bounds__(narrow::THREADS, 1) attention_narrow_##KEYS##_##CLUSTER(    \
        const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,                        \
        const __grid_constant__ CUtensorMap v, bf16* out, const uint8_t* key_valid, int queries, int keys,   \
        int group, float scale) {                                                                            \
        int tile = blockIdx.x / CLUSTER, rank = cluster_rank();                                              \
        narrow::run<KEYS, CLUSTER>({&q, &k, &v, key_valid, out, queries, keys, group, tile, rank, scale});   \
    }
ATTENTION_NARROW(32, 8)
ATTENTION_NARROW(64, 8)
ATTENTION_NARROW(80, 8)
ATTENTION_NARROW(96, 8)
ATTENTION_NARROW(128, 8)

#define ATTENTION_SELF(HEAD_DIM, WARPGROUPS)                                                                 \
    extern "C" __global__ void __launch_bounds__(128 * WARPGROUPS, 1)                                        \
        attention_self_##HEAD_DIM##_##WARPGROUPS(const __grid_constant__ self::Maps maps, int length,        \
                                                 float scale) {                                              \
        self::run<HEAD_DIM, WARPGROUPS>(maps, length, scale);                                                \
    }
ATTENTION_SELF(64, 1)
ATTENTION_SELF(72, 1)
ATTENTION_SELF(72, 2)
ATTENTION_SELF(128, 1)
ATTENTION_SELF(128, 2)
