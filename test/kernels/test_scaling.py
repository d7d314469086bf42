# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Robot units ↔ the policy's units: when these fail, the robot moves to the wrong place."""

import numpy as np
import pytest
import torch

from flashrt_kernels.scaling import normalise, unnormalise
from test.kernels.support import check, random, wide


@pytest.mark.parametrize(("mul", "sub"), [(2.0, 1.0), (1.0, 0.0)])
def test_normalise(mul: float, sub: float) -> None:
    """Quantiles and mean/std are the same map with other constants."""
    rng = np.random.default_rng(0)
    x, offset, divisor = random(rng, (3, 5)), random(rng, (5,)), random(rng, (5,)).abs() + 0.1
    want = mul * (wide(x) - wide(offset)) / wide(divisor) - sub
    check(normalise, want, torch.float32, x=x, offset=offset, divisor=divisor, mul=mul, sub=sub)


@pytest.mark.parametrize("width", [5, 8])
@pytest.mark.parametrize("relative", [False, True])
def test_unnormalise_cuts_the_padding(width: int, relative: bool) -> None:
    """The model's action vector is wider than the robot's; a relative action starts from the state."""
    rng = np.random.default_rng(1)
    x, offset, span = random(rng, (3, width)), random(rng, (5,)), random(rng, (5,)).abs()
    base = random(rng, (5,)) if relative else None
    want = (wide(x)[:, :5] + 1) / 2 * wide(span) + wide(offset) + (0 if base is None else wide(base))
    check(unnormalise, want, torch.float32, x=x, offset=offset, span=span, base=base, mul=2.0, sub=1.0)


def test_there_and_back() -> None:
    """Normalising and un-normalising is the identity."""
    rng = np.random.default_rng(2)
    x, offset, span = random(rng, (4, 6)), random(rng, (6,)), random(rng, (6,)).abs() + 0.1
    there = normalise(x=x, offset=offset, divisor=span, mul=2.0, sub=1.0)
    back = unnormalise(x=there, offset=offset, span=span, mul=2.0, sub=1.0)
    np.testing.assert_allclose(back.numpy(), x.numpy(), rtol=0, atol=1e-5)
