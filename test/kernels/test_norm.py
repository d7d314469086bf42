# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Norms: when these fail, every layer of every policy is off."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_kernels.norm import ada_rms_norm, layer_norm, rms_norm
from test.kernels.support import check, compare, dtypes, poisoned, random, seeds, wide

shapes = st.tuples(st.integers(1, 7), st.integers(1, 70))


def by_rms(x: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


@given(shapes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_layer_norm(shape: tuple[int, int], source: torch.dtype, target: torch.dtype, seed: int) -> None:
    """The vision tower's norm, with weight and bias."""
    rng = np.random.default_rng(seed)
    x, weight, bias = random(rng, shape, source), random(rng, shape[1:]), random(rng, shape[1:])
    centred = wide(x) - wide(x).mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * wide(weight) + wide(bias)
    check(layer_norm, want, target, x=x, weight=weight, bias=bias, eps=1e-3)


@given(shapes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_rms_norm(shape: tuple[int, int], source: torch.dtype, target: torch.dtype, seed: int) -> None:
    """Gemma's weight counts from one: without the 1 a trained model collapses."""
    rng = np.random.default_rng(seed)
    x, weight = random(rng, shape, source), random(rng, shape[1:])
    check(rms_norm, by_rms(wide(x), 1e-3) * (1 + wide(weight)), target, x=x, weight=weight, eps=1e-3)


@given(shapes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_ada_rms_norm(shape: tuple[int, int], source: torch.dtype, target: torch.dtype, seed: int) -> None:
    """The expert's only view of the flow time is scale and shift."""
    rng = np.random.default_rng(seed)
    x, scale, shift = random(rng, shape, source), random(rng, shape[1:]), random(rng, shape[1:])
    want = by_rms(wide(x), 1e-6) * (1 + wide(scale)) + wide(shift)
    check(ada_rms_norm, want, target, x=x, scale=scale, shift=shift)


@given(shapes, dtypes, dtypes, seeds)
@settings(deadline=None)
def test_the_residual_stream_is_added_and_kept(
    shape: tuple[int, int], source: torch.dtype, target: torch.dtype, seed: int
) -> None:
    """The norm sees the unrounded sum, and the next layer adds to what `sum_out` keeps."""
    rng = np.random.default_rng(seed)
    x, residual, weight = random(rng, shape, source), random(rng, shape, target), random(rng, shape[1:])
    total = wide(x) + wide(residual)
    given: dict[str, Any] = {"residual": residual, "weight": weight, "eps": 1e-3}
    out, kept = rms_norm(x=x, **given, out_dtype=target, sum_out_dtype=target)
    compare(kept, total)
    compare(out, by_rms(total, 1e-3) * (1 + wide(weight)))
    centred = total - total.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * wide(weight) + wide(weight)
    check(layer_norm, want, target, x=x, bias=weight, **given)


@given(shapes, dtypes, seeds)
@settings(deadline=None)
def test_the_gate_scales_only_the_branch(shape: tuple[int, int], target: torch.dtype, seed: int) -> None:
    """gate · x + residual: the stream itself is never scaled."""
    rng = np.random.default_rng(seed)
    x, residual, gate, scale, shift = (random(rng, s) for s in (shape, shape, *[shape[1:]] * 3))
    kept = poisoned(shape, torch.float32)
    given = {"x": x, "residual": residual, "gate": gate, "scale": scale, "shift": shift}
    out, _ = ada_rms_norm(**given, sum_out=kept, out_dtype=target)
    total = wide(gate) * wide(x) + wide(residual)
    compare(kept, total)
    compare(out, by_rms(total, 1e-6) * (1 + wide(scale)) + wide(shift))


def test_statistics_are_fp32_for_bf16_activations() -> None:
    """A mean over a wide row in bf16 loses two digits."""
    x = torch.full((1, 4096), 1.0).bfloat16()
    x[0, 0] = 64.0
    want = by_rms(wide(x), 0.0)
    check(rms_norm, want, torch.float32, 1e-5, x=x, weight=torch.zeros(4096), eps=0.0)
