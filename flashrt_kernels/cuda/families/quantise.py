# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launch of quantise."""

from __future__ import annotations

import ctypes

import torch

from flashrt_kernels import quantise as declared
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div, fours, is_bf16
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch


@launches(declared.quantise)
def quantise(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    x, out = a["x"], a["out"]
    count = x.numel()
    if not count:
        return []
    by_four = fours(x, out)
    function, units = ("quantise", count // 4 + count % 4) if by_four else ("quantise_any", count)
    arguments = (x, is_bf16(x), a["scale"], out, ctypes.c_int64(count))
    handle = gpu.function("quantise", function)
    return [Launch(handle, (ceil_div(units, THREADS),), THREADS, arguments, pdl=gpu.pdl, name=function)]
