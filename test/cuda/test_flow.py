# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Flow matching on the GPU: when these fail, the actions end somewhere else."""

import pytest
import torch

from flashrt_kernels.flow import euler_step, start_flow, time_embedding
from test.cuda.support import check, random, requires_cuda

pytestmark = requires_cuda
shapes = pytest.mark.parametrize("shape", [(50, 32), (1, 1), (13, 7)], ids=str)


@pytest.mark.parametrize("width", [1024, 2, 6])
def test_time_embedding(width: int) -> None:
    """fp64 inside: the shortest period shows an error of fp32 angles."""
    time = torch.tensor([1.0, 0.9, 0.1 + 1e-7, 0.0], device="cuda")
    check(time_embedding, (1e-6, 1e-6), time=time, width=width)


@shapes
def test_start_flow(shape: tuple[int, int]) -> None:
    """A copy, so that a second decision with the same noise starts from the same noise."""
    check(start_flow, (0.0, 0.0), noise=random(shape))


@shapes
def test_euler_step(shape: tuple[int, int]) -> None:
    """x moves in place."""
    check(euler_step, (1e-7, 1e-6), x=random(shape), velocity=random(shape, seed=1), dt=-0.1)
