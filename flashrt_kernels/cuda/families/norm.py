# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of layer_norm, rms_norm and ada_rms_norm: one block or one warp per row."""

from __future__ import annotations

import ctypes

import torch

from flashrt_kernels import norm
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import SUFFIX, THREADS, ceil_div, fours, is_bf16, pointer
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

WARP, MAX_THREADS = 32, 1024
WARPS = 4  # of a block at most, where a row has one warp
# Chunks of four values per thread for which there are kernels, by who shares a row.
BLOCK_CHUNKS, WARP_CHUNKS = (1, 2), (9, 12)


class Row(ctypes.Structure):
    """`struct Row` of src/norm.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "gate", "residual", "weight", "shift", "out", "sum")),
        ("rows", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("eps", ctypes.c_float),
        ("per_width", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("x_bf16", "residual_bf16", "out_bf16", "sum_bf16")),
    )


@launches(norm.layer_norm)
def layer_norm(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, "layer_norm", a, p, a["weight"], a["bias"])


@launches(norm.rms_norm)
def rms_norm(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, "rms_norm", a, p, a["weight"], None)


@launches(norm.ada_rms_norm)
def ada_rms_norm(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, "ada_rms_norm", a, p, a["scale"], a["shift"])


def launch(
    gpu: Gpu, name: str, a: Tensors, p: Parameters, weight: torch.Tensor, shift: torch.Tensor | None
) -> list[Launch]:
    x, out, residual, total, gate = a["x"], a["out"], a["residual"], a["sum_out"], a.get("gate")
    rows, width = x.shape
    if not rows or not width:
        return []
    arrays = (x, gate, residual, weight, shift, out, total)
    row = Row(
        *map(pointer, arrays), rows, width, p["eps"], 1 / width, *map(is_bf16, (x, residual, out, total))
    )
    if width % 4 or not fours(*arrays) or width > 4 * MAX_THREADS * BLOCK_CHUNKS[-1]:
        function, grid, threads = f"{name}_any", rows, THREADS
    else:
        layout, grid, threads = shape_of(rows, width // 4, gpu.multiprocessors)
        function = f"{name}_{SUFFIX[x.dtype]}_{SUFFIX[out.dtype]}_{layout}"
    return [Launch(gpu.function("norm", function), (grid,), threads, (row,), pdl=gpu.pdl, name=function)]


def shape_of(rows: int, count: int, multiprocessors: int) -> tuple[str, int, int]:
    """(layout, blocks, threads) for rows of `count` chunks of four values.

    Few rows get as many threads as possible: only latency counts. Many short rows get a warp each, many long
    ones a block with several chunks per thread, so that all blocks run at once.
    """
    few = rows <= multiprocessors
    if not few and count <= WARP * WARP_CHUNKS[-1]:
        chunks = next(c for c in WARP_CHUNKS if count <= c * WARP)
        warps = min(ceil_div(rows, multiprocessors), WARPS)
        return f"warp_{chunks}", ceil_div(rows, warps), warps * WARP
    chunks = next(c for c in BLOCK_CHUNKS if c >= (1 if few else 2) and count <= c * MAX_THREADS)
    return f"block_{chunks}", rows, ceil_div(count, chunks * 4 * WARP) * 4 * WARP
