# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""fp8 activations: when these fail, a quantised policy is not the one that was calibrated."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels.quantise import quantise
from test.kernels.support import dtypes, random, seeds, wide

# All finite values of e4m3: 4 exponent bits with bias 7, 3 of mantissa, subnormals below 2^-6, no infinity.
FINITE = np.array(
    [m / 8 * 2.0**-6 for m in range(8)]
    + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8) if (e, m) != (15, 7)]
)


def nearest(x: np.ndarray) -> np.ndarray:
    """The closest value of FINITE with x's sign; of two equally close ones that with the even code."""
    size = np.minimum(np.abs(x), FINITE[-1])
    upper = np.searchsorted(FINITE, size).clip(1, len(FINITE) - 1)
    low, high = FINITE[upper - 1], FINITE[upper]
    up = (size - low > high - size) | ((size - low == high - size) & (upper % 2 == 0))
    return np.copysign(np.where(up, high, low), x)


@given(st.tuples(st.integers(1, 7), st.integers(1, 70)), dtypes, st.sampled_from([1.0, 0.25, 2.0**-9]), seeds)
@settings(deadline=None)
def test_quantise(shape: tuple[int, int], dtype: torch.dtype, scale: float, seed: int) -> None:
    """x ≈ scale · code, within half a step of the format; powers of two keep the division exact."""
    x = random(np.random.default_rng(seed), shape, dtype)
    out = quantise(x=x, scale=torch.tensor([scale]))
    assert out.dtype == torch.float8_e4m3fn
    np.testing.assert_array_equal(wide(out.float()), nearest(wide(x) / scale))


@pytest.mark.parametrize(
    ("value", "want"),
    [(1e30, 448.0), (-1e30, -448.0), (463.0, 448.0), (17.0, 16.0), (19.0, 20.0), (2.0**-10, 0.0)],
)
def test_edges(value: float, want: float) -> None:
    """An outlier must saturate: as NaN or infinity it would wipe out the whole row of the next matmul."""
    out = quantise(x=torch.tensor([[value]]), scale=torch.ones(1))
    assert out.float().item() == want


def test_nan_stays_visible() -> None:
    """A broken activation must not come out as a plausible number."""
    assert torch.isnan(quantise(x=torch.tensor([[torch.nan]]), scale=torch.ones(1)).float()).all()
