# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of rope_table, rope_table_axes, rope, rope_qk, rope_qkv and norm_rope_qkv."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from flashrt_kernels import rope as declared
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, fours, is_bf16, pointer
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

ROWS = 8  # of a table that one block computes: they share the powers
NORM_WARPS = 4  # of a block of norm_turn_heads; one head to each


class Heads(ctypes.Structure):
    """`struct Heads` of src/rope.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "table", "q_out", "k_out", "v_out")),
        *((name, ctypes.c_int32) for name in ("q_heads", "kv_heads", "head_dim")),
        *((name, ctypes.c_int32) for name in ("x_bf16", "q_bf16", "k_bf16", "v_bf16")),
    )


@launches(declared.rope_table)
def rope_table(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    rows, head_dim = a["out"].shape
    arguments = (a["positions"], a["out"], rows, head_dim, float(p["theta"]))
    return launch_table(gpu, "rope_table", rows, head_dim // 2, arguments)


@launches(declared.rope_table_axes)
def rope_table_axes(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    rows, half = a["out"].shape[0], a["axis"].shape[0]
    arguments = (a["positions"], a["axis"], a["out"], rows, half, float(p["theta"]))
    return launch_table(gpu, "rope_table_axes", rows, half, arguments)


def launch_table(gpu: Gpu, name: str, rows: int, half: int, arguments: Sequence[Any]) -> list[Launch]:
    """A table of `half` angles in each of `rows` rows."""
    if not rows or not half:
        return []
    threads = min(ceil_div(half, 32) * 32, THREADS)
    grid = (ceil_div(half, threads), min(ceil_div(rows, ROWS), 65535))
    return [Launch(gpu.function("rope", name), grid, threads, arguments, pdl=gpu.pdl, name=name)]


@launches(declared.rope)
def rope(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, a["x"], a["table"], (a["out"], None, None), p["heads"], 0, p["head_dim"])


@launches(declared.rope_qkv)
def rope_qkv(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    outputs = (a["q_out"], a["k_out"], a["v_out"])
    return launch(gpu, a["qkv"], a["table"], outputs, p["heads"], p["kv_heads"], p["head_dim"])


@launches(declared.rope_qk)
def rope_qk(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    qkv, heads = a["qkv"], 2 * p["heads"]
    if not qkv.numel():
        return []
    rows, width = qkv.shape
    threads = min(ceil_div(heads * p["head_dim"] // 2, 32) * 32, 2 * THREADS)
    arguments = (qkv, is_bf16(qkv), a["table"], heads, p["head_dim"], width)
    handle = gpu.function("rope", "turn_in_place")
    return [Launch(handle, (rows,), threads, arguments, pdl=gpu.pdl, name="turn_in_place")]


@launches(declared.norm_rope_qkv)
def norm_rope_qkv(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    qkv, outputs = a["qkv"], (a["q_out"], a["k_out"], a["v_out"])
    if not qkv.numel():
        return []
    sizes = (p["heads"], p["kv_heads"], p["head_dim"])
    heads = Heads(*map(pointer, (qkv, a["table"], *outputs)), *sizes, *map(is_bf16, (qkv, *outputs)))
    arguments = (heads, a["q_weight"], a["k_weight"], qkv.shape[0], float(p["eps"]))
    grid = (ceil_div(qkv.shape[0] * (p["heads"] + 2 * p["kv_heads"]), NORM_WARPS),)
    handle = gpu.function("rope", "norm_turn_heads")
    return [Launch(handle, grid, 32 * NORM_WARPS, arguments, pdl=gpu.pdl, name="norm_turn_heads")]


def launch(
    gpu: Gpu,
    x: torch.Tensor,
    table: torch.Tensor,
    outputs: tuple[torch.Tensor | None, ...],
    heads: int,
    kv_heads: int,
    head_dim: int,
) -> list[Launch]:
    """x: [rows, (heads + 2·kv_heads)·head_dim]; outputs: q, k, v."""
    if not x.numel():
        return []
    arrays = (x, table, *outputs)
    by_four = head_dim % 8 == 0 and fours(*arrays)
    function = "turn_heads" if by_four else "turn_heads_any"
    units = (heads + 2 * kv_heads) * head_dim // (8 if by_four else 2)
    argument = Heads(*map(pointer, arrays), heads, kv_heads, head_dim, *map(is_bf16, (x, *outputs)))
    threads = min(ceil_div(units, 32) * 32, 2 * THREADS)
    handle = gpu.function("rope", function)
    return [Launch(handle, (x.shape[0],), threads, (argument,), pdl=gpu.pdl, name=function)]
