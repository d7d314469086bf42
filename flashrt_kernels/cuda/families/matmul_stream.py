# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matmul of 1 … 64 rows on Hopper: the weights stream through, see src/matmul_stream.cu.

Which kernel a declared matmul takes, and its `Epilogue`, is decided in `matmul.py`; here this one is cut
into thread blocks.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from flashrt_kernels.cuda.families.elements import ceil_div
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch
from flashrt_kernels.cuda.tensor_map import TensorMap, tensor_map

FAMILY = "matmul_stream"
KINDS = ("plain", "gelu_mul", "rope_qkv", "silu_mul")  # by EpilogueKind of epilogue.cuh
MAX_ROWS = 64
OUTPUTS = 64  # of a thread block
THREADS = 128 + 32  # consumers, and a warp that feeds them; every further warp costs more than it brings
BLOCK = 64  # of k: 128 bytes, a row of the copy engine's swizzle
SPLITS = (1, 2, 4, 8)  # of k: sizes of a portable cluster
MAX_STAGES = 16
MIN_STAGES = (
    2  # of a ring that is shorter than the slice: a stage is given back while the next one is computed
)
# Of a cut by rule: two thread blocks share a multiprocessor, so that the next one's weights arrive meanwhile.
SHARED_BYTES = 113 << 10
BARRIER_BYTES = (4 * MAX_STAGES + 1) * 8


class CutArgument(ctypes.Structure):
    """Mirror of `Cut` in src/matmul_stream_feed.cuh."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in (
            "split_shift",
            "depth_shift",
            "blocks",
            "longer",
            "weight_stages",
            "x_stages",
            "inner",
            "outer",
        )
    )


@dataclass(frozen=True)
class Cut:
    """How a product is cut: 64 outputs, 1 / splits of k for a thread block.

    depth: blocks of k in a stage of shared memory. weight_stages, x_stages: of the two rings.
    """

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
        """What the kernel is told."""
        shifts = (self.splits.bit_length() - 1, self.depth.bit_length() - 1)
        coordinates = (0, 1) if self.depth > 1 else (BLOCK, 0)
        slices = divmod(ceil_div(k, BLOCK), self.splits)
        return CutArgument(*shifts, *slices, self.weight_stages, self.x_stages, *coordinates)


def fits(gpu: Gpu, kind: int, rows: int, n: int, k: int) -> bool:
    """Whether this kernel can compute a bf16 product; outputs of the kinds with pairs come in sixteens."""
    return gpu.hopper and rows <= MAX_ROWS and k % 8 == 0 and (kind == 0 or n % 16 == 0)


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
    return [
        Launch(
            gpu.function(FAMILY, name, shared=shared),
            (ceil_div(n, OUTPUTS) * cut.splits,),
            THREADS,
            [
                blocked_map(weight, n, k, OUTPUTS, cut.depth),
                blocked_map(x, rows, k, tokens, cut.depth),
                epilogue,
                cut.argument(k),
            ],
            shared=shared,
            cluster=cut.splits,
            pdl=gpu.pdl,
            name=name,
        )
    ]


def blocked_map(matrix: torch.Tensor, rows: int, k: int, box_rows: int, depth: int) -> TensorMap:
    """Map of a matrix [rows, k] for copies of [depth, box_rows, 64], by block of k.

    One block at a time is found by its first k, so that zeros follow the last: k need not end with a block.
    """
    if depth == 1:
        return tensor_map(matrix, (k, rows, 1), (k * 2, k * 2), (BLOCK, box_rows, 1))
    return tensor_map(matrix, (BLOCK, rows, k // BLOCK), (k * 2, BLOCK * 2), (BLOCK, box_rows, depth))


def choose(gpu: Gpu, tokens: int, n: int, k: int) -> Cut:
    """The measured cut of a shape, or by rule.

    The rule: the smallest split that keeps most multiprocessors reading, as much of k in flight as fits.
    """
    measured = MEASURED.get((tokens > FEW, n, k))
    if measured is not None:
        return measured
    tiles, blocks = ceil_div(n, OUTPUTS), ceil_div(k, BLOCK)
    enough = (s for s in SPLITS if s * tiles >= 0.9 * gpu.multiprocessors or 2 * s > blocks)
    splits = next(enough, SPLITS[-1])
    return fill(splits, ceil_div(blocks, splits), tokens, deep=k % (BLOCK * splits) == 0)


def fill(splits: int, blocks: int, tokens: int, deep: bool) -> Cut:
    """Rings as deep as shared memory allows, up to the whole slice of `blocks`; weights first.

    deep: the slices are equal and whole, so that copies may bring several blocks.
    """
    depth = next(d for d in (4, 2, 1) if d == 1 or (deep and blocks % d == 0))
    most = max(MIN_STAGES, min(ceil_div(blocks, depth), MAX_STAGES))
    candidates = (
        Cut(splits, depth, weight_stages, x_stages)
        for weight_stages in range(most, MIN_STAGES - 1, -1)
        for x_stages in range(most, MIN_STAGES - 1, -1)
        if x_stages >= min(most, 4) or weight_stages == MIN_STAGES
    )
    fitting = (cut for cut in candidates if cut.shared(tokens) <= SHARED_BYTES)
    return next(fitting, Cut(splits, 1, MIN_STAGES, MIN_STAGES))


# (more than FEW tokens, n, k) → the fastest cut on an H200 for qkv, o, gate and up, down of Pi0.5's action
# expert, in the chain of all kernels of a layer, with 50 and with 10 rows
FEW = 16
MEASURED = {
    (True, 2560, 1024): Cut(4, 4, 1, 1),
    (True, 1024, 2048): Cut(4, 8, 1, 1),
    (True, 8192, 1024): Cut(1, 4, 3, 4),
    (True, 1024, 4096): Cut(4, 4, 3, 3),
    (False, 2560, 1024): Cut(2, 8, 1, 1),
    (False, 1024, 2048): Cut(4, 2, 4, 4),
    (False, 8192, 1024): Cut(2, 2, 3, 4),
    (False, 1024, 4096): Cut(8, 8, 1, 1),
}
