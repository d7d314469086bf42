# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of gelu, gelu_mul and silu."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from flashrt_kernels import activation
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import SUFFIX, THREADS, ceil_div, fours, is_bf16
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch


@launches(activation.gelu)
def gelu(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, p["approximation"], a["x"], None, a["out"])


@launches(activation.gelu_mul)
def gelu_mul(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, "gelu_tanh", a["gate"], a["up"], a["out"])


@launches(activation.silu)
def silu(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    return launch(gpu, "silu", a["x"], None, a["out"])


def launch(
    gpu: Gpu, name: str, x: torch.Tensor, factor: torch.Tensor | None, out: torch.Tensor
) -> list[Launch]:
    """out = name(x) · factor over flat arrays."""
    count = x.numel()
    if not count:
        return []
    arguments: tuple[Any, ...]
    if fours(x, factor, out):
        function, units = f"{name}_{SUFFIX[x.dtype]}_{SUFFIX[out.dtype]}", count // 4 + count % 4
        arguments = (x, factor, is_bf16(factor), out, ctypes.c_int64(count))
    else:
        function, units = f"{name}_any", count
        arguments = (x, is_bf16(x), factor, is_bf16(factor), out, is_bf16(out), ctypes.c_int64(count))
    handle = gpu.function("activation", function)
    return [Launch(handle, (ceil_div(units, THREADS),), THREADS, arguments, pdl=gpu.pdl, name=function)]
