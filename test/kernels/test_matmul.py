# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Matrix products and their epilogues, in every combination."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels import GraphError
from flashrt_kernels.matmul import interleave, matmul, matmul_gelu_mul, matmul_silu_mul
from test.kernels.support import check, dtypes, random, seeds, wide
from test.kernels.test_activation import gelu_erf, gelu_tanh

FORMULAS = {
    "none": lambda x: x,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
}
GATED = {"gelu": (matmul_gelu_mul, "gelu_tanh"), "silu": (matmul_silu_mul, "silu")}
sizes = st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 70))


@given(
    size=sizes,
    source=dtypes,
    weights=dtypes,
    target=dtypes,
    activation=st.sampled_from(sorted(FORMULAS)),
    parts=st.sets(st.sampled_from(("bias", "gate", "residual"))),
    seed=seeds,
)
@settings(deadline=None)
def test_matmul(
    size: tuple[int, int, int],
    source: torch.dtype,
    weights: torch.dtype,
    target: torch.dtype,
    activation: str,
    parts: set[str],
    seed: int,
) -> None:
    """residual + gate · activation(x · weightᵀ + bias), each part optional, rounded once at the end."""
    rows, n, k = size
    rng = np.random.default_rng(seed)
    x, weight = random(rng, (rows, k), source), random(rng, (n, k), weights)
    given_parts: dict[str, Any] = {
        part: random(rng, (rows, n) if part == "residual" else (n,)) for part in sorted(parts)
    }
    zero, one = np.zeros(1), np.ones(1)
    y = wide(x) @ wide(weight).T + (wide(given_parts["bias"]) if "bias" in parts else zero)
    y = FORMULAS[activation](y) * (wide(given_parts["gate"]) if "gate" in parts else one)
    want = y + (wide(given_parts["residual"]) if "residual" in parts else zero)
    check(matmul, want, target, x=x, weight=weight, activation=activation, **given_parts)


@given(st.sampled_from(sorted(GATED)), sizes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_gated_matmul(
    name: str, size: tuple[int, int, int], source: torch.dtype, target: torch.dtype, seed: int
) -> None:
    """The first of each pair is the gate, which is activated; its partner is multiplied in."""
    kernel, activation = GATED[name]
    rows, f, k = size[0], 8 * size[1], size[2]
    rng = np.random.default_rng(seed)
    x, weights = random(rng, (rows, k), source), random(rng, (2, f, k), source)
    gate, up = (wide(x) @ wide(weights[i]).T for i in (0, 1))
    want = FORMULAS[activation](gate) * up
    check(kernel, want, target, x=x, weight=interleave(weights[0], weights[1]))


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (3, 1, 8, 5), (16, 5)], ids=str)
def test_gates_that_are_not_interleaved_are_refused(shape: tuple[int, ...]) -> None:
    """Weights in another order would give numbers of the right size from the wrong rows."""
    with pytest.raises(GraphError, match="matmul_silu_mul: weight is"):
        matmul_silu_mul(x=torch.zeros(2, 5), weight=torch.zeros(shape))


def test_accumulation_is_fp32_for_bf16_operands() -> None:
    """A sum of 4096 products in bf16 would stop growing at 256."""
    ones = torch.ones(1, 4096, dtype=torch.bfloat16)
    assert matmul(x=ones, weight=ones, out_dtype=torch.float32).item() == 4096
