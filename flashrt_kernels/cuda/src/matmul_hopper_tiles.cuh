// Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
//
// The tiles worth compiling, each for a shape of a model; mirrored by TILES in families/matmul_hopper.py.
// No include guard: it is a list, included once, where MATMUL is defined.
MATMUL(PLAIN, plain, 64, 64, 12, 1, 1)
MATMUL(PLAIN, plain, 64, 96, 8, 1, 1)
MATMUL(PLAIN, plain, 64, 128, 8, 1, 1)
MATMUL(PLAIN, plain, 64, 128, 8, 4, 1)
MATMUL(PLAIN, plain, 64, 144, 7, 1, 1)
MATMUL(PLAIN, plain, 64, 160, 6, 1, 1)
MATMUL(PLAIN, plain, 64, 192, 5, 1, 1)
MATMUL(PLAIN, plain, 128, 64, 7, 1, 1)
MATMUL(PLAIN, plain, 128, 96, 6, 1, 1)
MATMUL(PLAIN, plain, 128, 128, 4, 1, 1)
MATMUL(PLAIN, plain, 128, 160, 5, 1, 1)
MATMUL(PLAIN, plain, 128, 208, 4, 1, 1)
MATMUL(PLAIN, plain, 128, 256, 3, 1, 2)
MATMUL(GELU_MUL, gelu_mul, 128, 256, 4, 1, 1)
MATMUL(GELU_MUL, gelu_mul, 128, 256, 4, 2, 1)
MATMUL(ROPE_QKV, rope_qkv, 64, 64, 12, 1, 1)
MATMUL(ROPE_QKV, rope_qkv, 64, 128, 8, 1, 1)
MATMUL(ROPE_QKV, rope_qkv, 64, 192, 5, 1, 1)
MATMUL(ROPE_QKV, rope_qkv, 128, 160, 5, 1, 1)
