# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Flow matching: the time embedding and the Euler integration of the velocity field."""

from __future__ import annotations

import math

import torch

from flashrt_kernels.kernel import FLOAT32, In, InOut, Out, kernel


@kernel(time=In("steps", FLOAT32), out=Out("steps width", FLOAT32), multiples=[("width", "2")])
def time_embedding(
    time: torch.Tensor, out: torch.Tensor, *, width: int, min_period: float = 4e-3, max_period: float = 4.0
) -> None:
    """[sin | cos](2π·time / period), periods log-spaced from min_period to max_period; fp64 inside.

    fp32 angles would be off by 1e-4 at the shortest period, which the actions show.
    """
    fraction = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=time.device)
    period = min_period * (max_period / min_period) ** fraction
    angles = time.double()[:, None] * (2 * math.pi / period)  # [steps, width/2]
    out.copy_(torch.cat([angles.sin(), angles.cos()], dim=1))


@kernel(noise=In("horizon width", FLOAT32), out=Out("horizon width", FLOAT32))
def start_flow(noise: torch.Tensor, out: torch.Tensor) -> None:
    """x at t = 1: a copy of the noise, so that the graph's input stays as the caller wrote it."""
    out.copy_(noise)


@kernel(x=InOut("horizon width", FLOAT32), velocity=In("horizon width", FLOAT32))
def euler_step(x: torch.Tensor, velocity: torch.Tensor, *, dt: float) -> None:
    """x += dt · velocity; dt is negative where time runs from noise at t = 1 to actions at t = 0."""
    x.add_(velocity, alpha=dt)
