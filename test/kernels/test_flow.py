# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Flow matching: the time embedding and the integration."""

import numpy as np
import pytest
import torch

from flashrt_kernels.flow import euler_step, start_flow, time_embedding
from test.kernels.support import check, random, wide


@pytest.mark.parametrize("width", [2, 32, 1024])
def test_time_embedding_is_exact_at_the_shortest_period(width: int) -> None:
    """Angles reach 1571 rad: in fp32 the actions would be off by 1e-4."""
    time = torch.tensor([1.0, 0.9, 0.1])
    period = 4e-3 * (4.0 / 4e-3) ** np.linspace(0, 1, width // 2) if width > 2 else np.array([4e-3])
    angle = wide(time)[:, None] * 2 * np.pi / period
    want = np.concatenate([np.sin(angle), np.cos(angle)], 1)
    check(time_embedding, want, torch.float32, 1e-7, time=time, width=width)


def test_euler_step_updates_in_place() -> None:
    """x moves against the velocity, from noise to actions."""
    rng = np.random.default_rng(0)
    x, velocity = random(rng, (5, 7)), random(rng, (5, 7))
    want = wide(x) - 0.1 * wide(velocity)
    assert euler_step(x=x, velocity=velocity, dt=-0.1) is x
    np.testing.assert_allclose(wide(x), want, rtol=0, atol=1e-6)


def test_start_flow_copies() -> None:
    """The input must survive the integration, or a replay cannot be repeated."""
    noise = random(np.random.default_rng(0), (3, 5))
    check(start_flow, wide(noise), torch.float32, 0.0, noise=noise)
