# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Attention on Hopper (cuda/src/attention_hopper.cu): which calls its kernels take, and their launches.

Query heads that share a key/value head are packed as rows: queries · group of them, group = heads / kv_heads.
Many rows take the `wide` kernel, few rows the `narrow` one, which divides the keys over a cluster of thread
blocks.
"""

from __future__ import annotations

import ctypes
import math

import torch

from flashrt_kernels.cuda.families import Dtypes, Parameters, Shapes, Tensors
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch
from flashrt_kernels.cuda.tensor_map import TensorMap, tensor_map

FAMILY = "attention_hopper"
HEAD_DIM = 256  # of `wide` and `narrow`
COLUMN_BLOCK = 64  # columns of one swizzled row of 128 bytes
COLUMN_BLOCKS = HEAD_DIM // COLUMN_BLOCK
MAX_KEYS = 4096  # wide::MAX_KEYS

WIDE_ROWS, WIDE_OUT_ROWS, WIDE_KEYS, WIDE_SLOTS, WIDE_THREADS = 128, 64, 64, 5, 384
WIDE_SHARED = (
    (WIDE_ROWS + WIDE_SLOTS * WIDE_KEYS) * HEAD_DIM * 2  # queries, ring of keys and values
    + (2 + 2 * WIDE_SLOTS) * 8  # barriers
    + MAX_KEYS // 8  # visible keys
    + WIDE_ROWS * 8  # statistics of the other block
)
# The kernels there are: packed rows of a tile, keys of a unit. A thread block takes two units at a time.
NARROW_ROWS, NARROW_UNITS = (16, 32), (16, 32, 48, 64)
NARROW_THREADS, NARROW_CLUSTER = 288, 8

SELF_WARPGROUPS = {64: 1, 72: 2, 128: 2}  # by head_dim, at most: the kernels there are
SELF_KEYS, SELF_BLOCKS = 128, 2


def fits_attention(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> bool:
    """Whether these kernels compute this call of `attention`."""
    k, group = shapes["k"], p["heads"] // p["kv_heads"]
    return (
        all(dtypes[name] == torch.bfloat16 for name in ("q", "k", "v", "out"))
        and shapes.get("mask") is None
        and p["head_dim"] == HEAD_DIM
        and NARROW_ROWS[-1] % group == 0
        and k is not None
        and k[0] <= MAX_KEYS
    )


def launch_attention(gpu: Gpu, a: Tensors, p: Parameters) -> list[Launch]:
    """softmax(q·kᵀ / √256)·v per head, of a call that fits."""
    rows = narrow_rows(gpu, a["q"].shape[0], p)
    return [launch_narrow(gpu, a, p, rows) if rows else launch_wide(gpu, a, p)]


def narrow_rows(gpu: Gpu, queries: int, p: Parameters) -> int:
    """Packed rows of a tile of `narrow`: the fewest whose thread blocks run all at once; 0: none does."""
    group = p["heads"] // p["kv_heads"]
    for rows in NARROW_ROWS:
        clusters = -(-queries * group // rows) * p["kv_heads"]
        if rows % group == 0 and clusters * NARROW_CLUSTER <= gpu.multiprocessors:
            return rows
    return 0


def exponent_scale(head_dim: int) -> float:
    """log2(e) / √head_dim: scores times this are exponents of 2."""
    return math.log2(math.e) / math.sqrt(head_dim)


def rows_map(x: torch.Tensor, p: Parameters, rows: int, column_blocks: int) -> TensorMap:
    """Map of q or out [queries, heads·256] that brings `rows` packed rows.

    They arrive as [column block][query][head of its group][64]. Heads and column blocks share the map's last
    dimension, because both are steps within a row of `x`.
    """
    queries, heads, group = x.shape[0], p["heads"], p["heads"] // p["kv_heads"]
    return tensor_map(
        x,
        (COLUMN_BLOCK, group, queries, (heads - group + 1) * COLUMN_BLOCKS),
        (HEAD_DIM * 2, heads * HEAD_DIM * 2, COLUMN_BLOCK * 2),
        (COLUMN_BLOCK, group, rows // group, column_blocks),
    )


def keys_map(x: torch.Tensor, keys: int, column_blocks: int) -> TensorMap:
    """Map of k or v [keys, kv_heads·256] that brings [column block][key][64]."""
    rows, width = x.shape
    return tensor_map(
        x,
        (COLUMN_BLOCK, rows, width // COLUMN_BLOCK),
        (width * 2, COLUMN_BLOCK * 2),
        (COLUMN_BLOCK, keys, column_blocks),
    )


def launch_wide(gpu: Gpu, a: Tensors, p: Parameters) -> Launch:
    """Many queries: a cluster of two blocks takes 128 rows, each block every other block of keys."""
    queries, group = a["q"].shape[0], p["heads"] // p["kv_heads"]
    tiles = -(-queries * group // WIDE_ROWS)
    return Launch(
        gpu.function(FAMILY, "attention_wide", shared=WIDE_SHARED),
        (2 * tiles, p["kv_heads"]),
        WIDE_THREADS,
        [
            rows_map(a["q"], p, WIDE_ROWS, COLUMN_BLOCKS),
            keys_map(a["k"], WIDE_KEYS, COLUMN_BLOCKS),
            keys_map(a["v"], WIDE_KEYS, COLUMN_BLOCKS),
            rows_map(a["out"], p, WIDE_OUT_ROWS, COLUMN_BLOCKS // 2),
            a["key_valid"],
            a["k"].shape[0],
            group,
            exponent_scale(HEAD_DIM),
        ],
        shared=WIDE_SHARED,
        cluster=2,
        pdl=gpu.pdl,
        name="attention_wide",
    )


def narrow_shared(rows: int, unit: int) -> int:
    """Bytes of shared memory of `narrow`: keys and values, queries, weights, what the cluster sends."""
    tiles = (2 * unit + rows) * HEAD_DIM * 2 + 2 * unit * rows * 2
    received = max(NARROW_CLUSTER * rows * 32 * 2, (unit + 64) * COLUMN_BLOCK * 2)
    received += NARROW_CLUSTER * (rows * 8 + 4)
    return tiles + received + (2 * NARROW_CLUSTER + 1) * rows * 4 + 5 * 8


def launch_narrow(gpu: Gpu, a: Tensors, p: Parameters, rows: int) -> Launch:
    """Few queries: a cluster takes `rows` packed rows and divides the keys."""
    (queries, _), keys, group = a["q"].shape, a["k"].shape[0], p["heads"] // p["kv_heads"]
    tiles = -(-queries * group // rows)
    unit = next((n for n in NARROW_UNITS if 2 * n * NARROW_CLUSTER >= keys), NARROW_UNITS[-1])
    many = "_many" if 2 * unit * NARROW_CLUSTER < keys else ""
    name, shared = f"attention_narrow_{rows}_{unit}{many}", narrow_shared(rows, unit)
    return Launch(
        gpu.function(FAMILY, name, shared=shared),
        (tiles * NARROW_CLUSTER, p["kv_heads"]),
        NARROW_THREADS,
        [
            rows_map(a["q"], p, rows, COLUMN_BLOCKS),
            keys_map(a["k"], unit, 1),
            keys_map(a["v"], unit, COLUMN_BLOCKS),
            a["out"],
            a["key_valid"],
            queries,
            keys,
            p.get("settled", 0),
            group.bit_length() - 1,
            exponent_scale(HEAD_DIM),
        ],
        shared=shared,
        cluster=NARROW_CLUSTER,
        pdl=gpu.pdl,
        name=name,
    )


def fits_self_attention(gpu: Gpu, shapes: Shapes, dtypes: Dtypes, p: Parameters) -> bool:
    """Whether these kernels compute this call of `self_attention`."""
    return all(dtypes[name] == torch.bfloat16 for name in ("qkv", "out")) and p["head_dim"] in SELF_WARPGROUPS


class SelfMaps(ctypes.Structure):
    """self::Maps."""

    _fields_ = tuple((name, TensorMap) for name in ("q", "q_tail", "kv", "kv_tail", "out", "out_tail"))


def head_map(x: torch.Tensor, sequences: int, rows: int, columns: int) -> TensorMap:
    """Map of qkv or out [sequences · length, width] that brings [rows, columns] of one sequence.

    64 columns arrive swizzled, a tail of 8 not. Rows after the end of a sequence read as zero.
    """
    length, width = x.shape[0] // sequences, x.shape[1]
    strides = (width * 2, length * width * 2)
    return tensor_map(x, (width, length, sequences), strides, (columns, rows, 1), 128 if columns == 64 else 0)


def self_shared(head_dim: int, warpgroups: int) -> int:
    """Bytes of shared memory of `self`: queries, two blocks of keys and of values, zeros for a tail."""
    zeros = 64 * warpgroups * 16 if head_dim % COLUMN_BLOCK else 0
    return (64 * warpgroups + 2 * SELF_BLOCKS * SELF_KEYS) * head_dim * 2 + zeros + 2 * SELF_BLOCKS * 8


def launch_self_attention(gpu: Gpu, a: Tensors, p: Parameters) -> list[Launch]:
    """Each sequence of a fused projection attends to itself, of a call that fits."""
    heads, head_dim, sequences = p["heads"], p["head_dim"], p["sequences"]
    length = a["qkv"].shape[0] // sequences
    # One warpgroup to a thread block reads the keys more often, but spreads over more multiprocessors.
    alone = -(-length // 64) * heads * sequences <= gpu.multiprocessors
    warpgroups = 1 if alone else SELF_WARPGROUPS[head_dim]
    name, shared = f"attention_self_{head_dim}_{warpgroups}", self_shared(head_dim, warpgroups)
    boxes = (("qkv", 64 * warpgroups), ("qkv", SELF_KEYS), ("out", 64))
    maps = SelfMaps(
        *(head_map(a[x], sequences, rows, columns) for x, rows in boxes for columns in (COLUMN_BLOCK, 8))
    )
    return [
        Launch(
            gpu.function(FAMILY, name, shared=shared),
            (-(-length // (64 * warpgroups)), heads, sequences),
            128 * warpgroups,
            [maps, length, exponent_scale(head_dim)],
            shared=shared,
            pdl=gpu.pdl,
            name=name,
        )
    ]
