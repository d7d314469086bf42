# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Robot units ↔ policy units on the GPU: the same float, or a state bin moves."""

from typing import Any

import pytest
import torch

from flashrt_kernels.scaling import normalise, unnormalise
from test.cuda.support import gpu, random, requires_cuda

pytestmark = requires_cuda
FACTORS = [(1.0, 0.0), (2.0, 1.0), (1.7, 0.3)]


@pytest.mark.parametrize(("rows", "d"), [(1, 8), (50, 32), (13, 7)])
@pytest.mark.parametrize(("mul", "sub"), FACTORS)
def test_normalise(rows: int, d: int, mul: float, sub: float) -> None:
    """Bit for bit what the CPU computes."""
    from flashrt_kernels.cuda.backend import run

    x, offset, divisor = random((rows, d)), random((d,), seed=1), random((d,), seed=2).abs() + 0.1
    came = run(normalise, gpu(), x=x, offset=offset, divisor=divisor, mul=mul, sub=sub)
    want = normalise(x=x.cpu(), offset=offset.cpu(), divisor=divisor.cpu(), mul=mul, sub=sub)
    assert torch.equal(came.cpu(), want)


@pytest.mark.parametrize(("rows", "d", "width"), [(50, 7, 32), (10, 32, 32), (1, 1, 3)])
@pytest.mark.parametrize(("mul", "sub"), FACTORS)
@pytest.mark.parametrize("relative", [False, True])
def test_unnormalise(rows: int, d: int, width: int, mul: float, sub: float, relative: bool) -> None:
    """The padding is cut off; a relative action starts from where the robot is."""
    from flashrt_kernels.cuda.backend import run

    given: dict[str, Any] = {
        "x": random((rows, width)),
        "offset": random((d,), seed=1),
        "span": random((d,), seed=2),
    }
    given["base"] = random((d,), seed=3) if relative else None
    came = run(unnormalise, gpu(), **given, mul=mul, sub=sub)
    on_cpu = {name: None if array is None else array.cpu() for name, array in given.items()}
    assert torch.equal(came.cpu(), unnormalise(**on_cpu, mul=mul, sub=sub))
