# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of normalise and unnormalise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flashrt_kernels import scaling
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch


@launches(scaling.normalise)
def normalise(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    count, d = a["out"].numel(), a["out"].shape[1]
    factors = (float(p["mul"]), float(p["sub"]))
    arguments = (a["x"], a["offset"], a["divisor"], a["out"], count, d, *factors)
    return launch(gpu, "normalise", count, arguments)


@launches(scaling.unnormalise)
def unnormalise(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    count, d, width = a["out"].numel(), a["out"].shape[1], a["x"].shape[1]
    factors = (float(p["mul"]), float(p["sub"]))
    arguments = (a["x"], a["offset"], a["span"], a["base"], a["out"], count, d, width, *factors)
    return launch(gpu, "unnormalise", count, arguments)


def launch(gpu: Gpu, name: str, count: int, arguments: Sequence[Any]) -> list[Launch]:
    """One thread per value of the result."""
    if not count:
        return []
    handle = gpu.function("scaling", name)
    return [Launch(handle, (ceil_div(count, THREADS),), THREADS, arguments, pdl=gpu.pdl, name=name)]
