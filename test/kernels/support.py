# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Running one kernel against a formula in float64."""

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from flashrt_kernels.kernel import Kernel

DTYPES = (torch.float32, torch.bfloat16)
# What rounding once into the output may cost, relative to the largest value.
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2**-8}

seeds = st.integers(0, 2**31)
dtypes = st.sampled_from(DTYPES)


def random(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Standard normal tensor."""
    return torch.from_numpy(rng.standard_normal(shape, np.float32)).to(dtype)


def wide(tensor: torch.Tensor) -> np.ndarray:
    """As float64."""
    return tensor.double().numpy()


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """An output full of NaN: whatever a kernel forgets to write stays visible."""
    return torch.full(shape, torch.nan, dtype=dtype)


def check(
    kernel: Kernel, want: np.ndarray, dtype: torch.dtype, tolerance: float | None = None, **given: Any
) -> None:
    """Run `kernel` into a poisoned `out` of `want`'s shape and compare."""
    out = poisoned(want.shape, dtype)
    assert kernel(**given, out=out) is out
    compare(out, want, tolerance)


def compare(out: torch.Tensor, want: np.ndarray, tolerance: float | None = None) -> None:
    """Equal up to one rounding of the output's dtype."""
    limit = TOLERANCE[out.dtype] if tolerance is None else tolerance
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(wide(out), want, rtol=0, atol=limit * scale)
