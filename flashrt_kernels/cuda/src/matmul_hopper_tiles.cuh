// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The tiles worth compiling, each for a shape of a model; mirrored by TILES in families/matmul_hopper.py.
// No include guard: it is a list, included once, where MATMUL is defined.
MATMUL(PLAIN, plain, 128, 64, 8, 1, 1)
MATMUL(PLAIN, plain, 128, 128, 6, 1, 1)
MATMUL(PLAIN, plain, 128, 128, 6, 2, 1)
MATMUL(PLAIN, plain, 128, 128, 6, 1, 2)
MATMUL(PLAIN, plain, 128, 160, 6, 1, 1)
MATMUL(PLAIN, plain, 128, 160, 6, 2, 1)
MATMUL(PLAIN, plain, 128, 192, 5, 1, 3)
MATMUL(PLAIN, plain, 128, 208, 5, 2, 1)
MATMUL(PLAIN, plain, 128, 256, 4, 1, 1)
MATMUL(PLAIN, plain, 128, 256, 4, 1, 2)
MATMUL(GELU_MUL, gelu_mul, 128, 256, 4, 1, 1)
MATMUL(GELU_MUL, gelu_mul, 128, 256, 4, 2, 1)
MATMUL(ROPE_QKV, rope_qkv, 128, 64, 8, 2, 1)
MATMUL(ROPE_QKV, rope_qkv, 128, 160, 6, 1, 1)
MATMUL(ROPE_QKV, rope_qkv, 128, 160, 6, 2, 1)
