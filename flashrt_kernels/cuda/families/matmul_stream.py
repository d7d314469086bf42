# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matmul of 1 … 64 rows on Hopper: the weights stream through, see src/matmul_stream.cu.

Which kernel a declared matmul takes, and its `Epilogue`, is decided in `matmul.py`; here this one is cut into
thread blocks.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch
from flashrt_kernels.cuda.tensor_map import TensorMap, tensor_map

FAMILY = "matmul_stream"
KINDS = ("plain", "gelu_mul", "rope_qkv")  # by EpilogueKind of epilogue.cuh
MAX_ROWS = 64
OUTPUTS = 64  # of a thread block
BLOCK = 64  # of k: 128 bytes, a row of the copy engine's swizzle
CLUSTER = 8  # thread blocks, the portable limit
SPLITS = (1, 2, 4, 8)
THREADS = 128 + 32  # consumers, producer
MAX_STAGES = 16
BARRIER_BYTES = (4 * MAX_STAGES + 1) * 8
# Two thread blocks share a multiprocessor, so that the next matmul's weights arrive while this one ends.
SHARED_BYTES = 113 << 10


class CutArgument(ctypes.Structure):
    """Mirror of `Cut` in src/matmul_stream.cu."""

    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in ("shift", "shares", "blocks", "longer", "depth", "weight_stages", "x_stages")
    )


@dataclass(frozen=True)
class Cut:
    """How a product is cut: a cluster is `splits` slices of k by `shares` blocks of outputs that share x.

    depth: blocks of k in a stage of shared memory. weight_stages, x_stages: rings, of at least 2 stages where
    they are shorter than the slice.
    """

    shares: int
    splits: int
    depth: int
    weight_stages: int
    x_stages: int

    def shared(self, tokens: int) -> int:
        """Bytes of shared memory; `tokens`: rows of x, rounded up to 8."""
        rows = self.weight_stages * OUTPUTS + self.x_stages * tokens
        eights = ceil_div(tokens // 8, self.splits)
        received = self.splits * eights * OUTPUTS * 8 * 4 if self.splits > 1 else 0
        return rows * self.depth * BLOCK * 2 + received + BARRIER_BYTES

    def argument(self, k: int) -> CutArgument:
        shift = self.splits.bit_length() - 1
        blocks, longer = divmod(k // BLOCK, self.splits)
        return CutArgument(shift, self.shares, blocks, longer, self.depth, self.weight_stages, self.x_stages)


def fits(gpu: Gpu, kind: int, rows: int, n: int, k: int) -> bool:
    """Whether this kernel can compute a bf16 product."""
    pairs = kind == 0 or n % 16 == 0
    return gpu.hopper and rows <= MAX_ROWS and k % BLOCK == 0 and pairs


def launch(
    gpu: Gpu,
    epilogue: ctypes.Structure,
    kind: int,
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: int,
    n: int,
    k: int,
) -> list[Launch]:
    """The launch of x [rows, k] · weight [n, k]ᵀ. `kind`: EpilogueKind of epilogue.cuh.

    Needs no workspace. `weight` may have any shape of n · k elements.
    """
    tokens = ceil_div(rows, 8) * 8
    cut = choose(gpu, tokens, n, k)
    shared = cut.shared(tokens)
    name = f"matmul_stream_{tokens}_{KINDS[kind]}"
    outputs = ceil_div(ceil_div(n, OUTPUTS), cut.shares) * cut.shares
    return [
        Launch(
            gpu.function(FAMILY, name, shared=shared),
            (outputs * cut.splits,),
            THREADS,
            [
                blocked_map(weight, n, k, OUTPUTS, cut.depth),
                blocked_map(x, rows, k, tokens, cut.depth),
                epilogue,
                cut.argument(k),
            ],
            shared=shared,
            cluster=cut.splits * cut.shares,
            pdl=gpu.pdl,
            name=name,
        )
    ]


def blocked_map(matrix: torch.Tensor, rows: int, k: int, box_rows: int, depth: int) -> TensorMap:
    """Map of a matrix [rows, k] as [k / 64, rows, 64]; one copy brings [depth, box_rows, 64]."""
    return tensor_map(matrix, (BLOCK, rows, k // BLOCK), (k * 2, BLOCK * 2), (BLOCK, box_rows, depth))


def choose(gpu: Gpu, tokens: int, n: int, k: int) -> Cut:
    """The measured cut of a shape; for others the smallest split that keeps the multiprocessors reading."""
    measured = MEASURED.get((tokens > 16, n, k))
    if measured is not None:
        return measured
    tiles, blocks = ceil_div(n, OUTPUTS), k // BLOCK
    enough = (s for s in SPLITS if s * tiles >= 0.9 * gpu.multiprocessors or 4 * s > blocks)
    splits = next(enough, SPLITS[-1])
    return fill(splits, ceil_div(blocks, splits), tokens)


def fill(splits: int, blocks: int, tokens: int) -> Cut:
    """Rings for a slice of `blocks` blocks of k, as deep as shared memory allows."""
    depth = 2 if blocks % 2 == 0 else 1
    stages = min(ceil_div(blocks, depth), MAX_STAGES)
    shares = 1 if blocks <= 8 else CLUSTER // splits
    cuts = (
        Cut(shares, splits, depth, weights, x)
        for weights in range(stages, 1, -1)
        for x in range(stages, 1, -1)
        if x >= min(stages, 4)
    )
    fitting = (cut for cut in cuts if cut.shared(tokens) <= SHARED_BYTES)
    return next(fitting, Cut(shares, splits, 1, min(stages, 2), min(stages, 2)))


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


# (more than 16 tokens, n, k) → the fastest cut measured on an H200; the shapes of Pi0.5's action expert
MEASURED: dict[tuple[bool, int, int], Cut] = {}
