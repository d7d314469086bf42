# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Launches of time_embedding, start_flow and euler_step."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from flashrt_kernels import flow
from flashrt_kernels.cuda.families import Parameters, Tensors, launches
from flashrt_kernels.cuda.families.elements import THREADS, ceil_div
from flashrt_kernels.cuda.gpu import Gpu
from flashrt_kernels.cuda.launch import Launch


@launches(flow.time_embedding)
def time_embedding(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    steps, width = a["out"].shape
    periods = (ctypes.c_double(p["min_period"]), ctypes.c_double(p["max_period"]))
    return launch(gpu, "time_embedding", steps * width, (a["time"], a["out"], steps, width, *periods))


@launches(flow.start_flow)
def start_flow(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    count = a["out"].numel()
    return launch(gpu, "start_flow", count, (a["noise"], a["out"], count))


@launches(flow.euler_step)
def euler_step(gpu: Gpu, a: Tensors, p: Parameters, workspace: torch.Tensor | None) -> list[Launch]:
    count = a["x"].numel()
    return launch(gpu, "euler_step", count, (a["x"], a["velocity"], count, float(p["dt"])))


def launch(gpu: Gpu, name: str, count: int, arguments: Sequence[Any]) -> list[Launch]:
    """One thread per value."""
    if not count:
        return []
    handle = gpu.function("flow", name)
    return [Launch(handle, (ceil_div(count, THREADS),), THREADS, arguments, pdl=gpu.pdl, name=name)]
