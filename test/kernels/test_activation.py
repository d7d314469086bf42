# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Activations: the two GELUs differ by 1e-3, enough to miss the parity gate."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels.activation import gelu, gelu_mul, silu
from test.kernels.support import check, dtypes, random, seeds, wide

shapes = st.tuples(st.integers(1, 7), st.integers(1, 70))
erf = np.vectorize(math.erf)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_tanh(dtype: torch.dtype) -> None:
    """SigLIP and Gemma use the tanh form."""
    x = (3 * random(np.random.default_rng(0), (5, 33))).to(dtype)
    check(gelu, gelu_tanh(wide(x)), dtype, x=x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu_erf(dtype: torch.dtype) -> None:
    """Projectors of other policies use the exact form."""
    x = (3 * random(np.random.default_rng(0), (5, 33))).to(dtype)
    check(gelu, gelu_erf(wide(x)), dtype, x=x, approximation="gelu_erf")


@given(shapes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_gelu_mul(shape: tuple[int, int], source: torch.dtype, target: torch.dtype, seed: int) -> None:
    """Gate and up must not be swapped."""
    rng = np.random.default_rng(seed)
    gate, up = random(rng, shape, source), random(rng, shape)
    check(gelu_mul, gelu_tanh(wide(gate)) * wide(up), target, gate=gate, up=up)


@given(shapes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_silu(shape: tuple[int, int], source: torch.dtype, target: torch.dtype, seed: int) -> None:
    """The time MLP's activation."""
    x = random(np.random.default_rng(seed), shape, source)
    check(silu, wide(x) / (1 + np.exp(-wide(x))), target, x=x)
