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
from flashrt_kernels.cuda.tensor_map import row_major_map

FAMILY = "matmul_stream"
KINDS = ("plain", "gelu_mul", "rope_qkv")  # by EpilogueKind of epilogue.cuh
MAX_ROWS = 64
OUTPUTS = 64  # of one warpgroup
DEPTH = 64  # of k in one stage
SPLITS = (1, 2, 4, 8)  # sizes of a portable cluster
MAX_STAGES = 16
MIN_STAGES = 2  # a stage is given back while the next one is computed
# Two thread blocks share a multiprocessor, so that the next matmul's weights arrive while this one ends.
SHARED_BYTES = 113 << 10
BARRIER_BYTES = (3 * MAX_STAGES + 1) * 8


@dataclass(frozen=True)
class Cut:
    """How a product is cut: 64 · groups outputs, 1 / splits of k for a thread block; stages of its rings."""

    groups: int
    splits: int
    weight_stages: int
    x_stages: int

    def shared(self, tokens: int) -> int:
        """Bytes of shared memory; `tokens`: rows of x, rounded up to 8."""
        tiles = self.weight_stages * self.groups * OUTPUTS * DEPTH * 2 + self.x_stages * tokens * DEPTH * 2
        eights = ceil_div(tokens // 8, self.splits)
        received = self.splits * eights * self.groups * OUTPUTS * 8 * 4 if self.splits > 1 else 0
        return tiles + received + BARRIER_BYTES


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
    name = f"matmul_stream_{tokens}_{cut.groups}_{KINDS[kind]}"
    return [
        Launch(
            gpu.function(FAMILY, name, shared=shared),
            (ceil_div(n, cut.groups * OUTPUTS) * cut.splits,),
            cut.groups * 128 + 32,
            [
                row_major_map(weight.view(n, k), cut.groups * OUTPUTS, DEPTH),
                row_major_map(x.view(rows, k), tokens, DEPTH),
                epilogue,
                *divmod(ceil_div(k, DEPTH), cut.splits),
                cut.weight_stages,
                cut.x_stages,
            ],
            shared=shared,
            cluster=cut.splits,
            pdl=gpu.pdl,
            name=name,
        )
    ]


def choose(gpu: Gpu, tokens: int, n: int, k: int) -> Cut:
    """The measured cut of a shape, or by rule.

    The rule: the smallest split that keeps most multiprocessors reading, as much of k in flight as fits.
    """
    measured = MEASURED.get((tokens, n, k))
    if measured is not None:
        return measured
    tiles = ceil_div(n, OUTPUTS)
    blocks = ceil_div(k, DEPTH)
    enough = (s for s in SPLITS if s * tiles >= 0.9 * gpu.multiprocessors or 2 * s > blocks)
    splits = next(enough, SPLITS[-1])
    return fill(1, splits, ceil_div(blocks, splits), tokens)


def fill(groups: int, splits: int, blocks: int, tokens: int) -> Cut:
    """Rings as deep as shared memory allows, up to the whole slice of `blocks`; weights first."""
    most = max(MIN_STAGES, min(blocks, MAX_STAGES))
    candidates = (
        Cut(groups, splits, weight_stages, x_stages)
        for weight_stages in range(most, MIN_STAGES - 1, -1)
        for x_stages in range(most, MIN_STAGES - 1, -1)
        if x_stages >= min(most, 4) or weight_stages == MIN_STAGES
    )
    fitting = (cut for cut in candidates if cut.shared(tokens) <= SHARED_BYTES)
    return next(fitting, Cut(groups, splits, MIN_STAGES, MIN_STAGES))


# (tokens rounded up to 8, n, k) → the fastest cut measured on an H200 where the rule finds another
MEASURED = {
    (16, 8192, 1024): Cut(1, 1, 10, 4),  # 7.9 µs
    (16, 1024, 4096): Cut(1, 8, 6, 4),  # 4.8 µs, by rule 5.2 to 5.9
    (56, 1024, 4096): Cut(1, 8, 6, 4),  # 6.7 µs, by rule 7.0
}
