# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of rope_table, rope and rope_qkv."""

from __future__ import annotations

import ctypes

import torch

from flashrt_kernels import rope as declared
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, fours, is_bf16, pointer
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch

ROWS = 8  # of a table that one block computes: they share the powers


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
    if not rows or not head_dim:
        return []
    threads = min(ceil_div(head_dim // 2, 32) * 32, THREADS)
    grid = (ceil_div(head_dim // 2, threads), min(ceil_div(rows, ROWS), 65535))
    arguments = (a["positions"], a["out"], rows, head_dim, float(p["theta"]))
    return [
        Launch(gpu.function("rope", "rope_table"), grid, threads, arguments, pdl=gpu.pdl, name="rope_table")
    ]


@launches(declared.rope)
def rope(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, a["x"], a["table"], (a["out"], None, None), p["heads"], 0, p["head_dim"])


@launches(declared.rope_qkv)
def rope_qkv(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    outputs = (a["q_out"], a["k_out"], a["v_out"])
    return launch(gpu, a["qkv"], a["table"], outputs, p["heads"], p["kv_heads"], p["head_dim"])


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
