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

// ROWS: packed queries of a tile. UNIT: keys of one warpgroup of a block at a time.
#define ATTENTION_NARROW(NAME, ROWS, UNIT, MANY)                                                             \
    extern "C" __global__ void __launch_bounds__(narrow::THREADS, narrow::Shared<ROWS, UNIT, MANY>::BLOCKS)  \
        attention_narrow_##NAME(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,\
                                const __grid_constant__ CUtensorMap v, bf16* out, const uint8_t* key_valid,  \
                                int queries, int keys, int settled, int log_group, float scale) {            \
        int tile = blockIdx.x / narrow::CLUSTER, rank = cluster_rank();                                      \
        narrow::run<ROWS, UNIT, MANY>(                                                                       \
            {&q, &k, &v, key_valid, out, queries, keys, settled, log_group, tile, rank, scale});             \
    }
ATTENTION_NARROW(16_16, 16, 16, false)
ATTENTION_NARROW(16_32, 16, 32, false)
ATTENTION_NARROW(16_48, 16, 48, false)
ATTENTION_NARROW(16_64, 16, 64, false)
ATTENTION_NARROW(16_64_many, 16, 64, true)
ATTENTION_NARROW(32_16, 32, 16, false)
ATTENTION_NARROW(32_32, 32, 32, false)
ATTENTION_NARROW(32_48, 32, 48, false)
ATTENTION_NARROW(32_64, 32, 64, false)
ATTENTION_NARROW(32_64_many, 32, 64, true)

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
