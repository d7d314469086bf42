# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of layer_norm, rms_norm and ada_rms_norm: one block per row."""

from __future__ import annotations

import ctypes

import torch

from flashrt_kernels import norm
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import SUFFIX, THREADS, blocks, fours, is_bf16, pointer
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

WARP, MAX_THREADS = 32, 1024
CHUNKS = (1, 2, 4)  # of four values, per thread; the kernels that exist


class Row(ctypes.Structure):
    """`struct Row` of src/norm.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "gate", "residual", "weight", "shift", "out", "sum")),
        ("width", ctypes.c_int32),
        ("eps", ctypes.c_float),
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
    row = Row(*map(pointer, arrays), width, p["eps"], *map(is_bf16, (x, residual, out, total)))
    if width % 4 or not fours(*arrays) or width > 4 * MAX_THREADS * CHUNKS[-1]:
        function, threads = f"{name}_any", THREADS
    else:
        chunks = chunks_per_thread(width // 4, rows, gpu.multiprocessors)
        function = f"{name}_{SUFFIX[x.dtype]}_{SUFFIX[out.dtype]}_{chunks}"
        threads = blocks(width // 4, chunks * WARP) * WARP
    return [Launch(gpu.function("norm", function), (rows,), threads, (row,), pdl=gpu.pdl, name=function)]


def chunks_per_thread(count: int, rows: int, multiprocessors: int) -> int:
    """For few rows as many threads as possible, for many rows so few that all blocks run at once."""
    fewest = 1 if rows <= 2 * multiprocessors else 2
    return next(c for c in CHUNKS if c >= fewest and count <= c * MAX_THREADS)
