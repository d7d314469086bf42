# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Activations on the GPU, where no matmul applies them."""

from typing import Literal

import pytest
import torch

from flashrt_kernels.activation import gelu, gelu_mul, silu
from test.cuda.support import check, random, requires_cuda

pytestmark = requires_cuda
DTYPES = (torch.float32, torch.bfloat16)
both = pytest.mark.parametrize(("x", "out"), [(x, out) for x in DTYPES for out in DTYPES], ids=str)
shapes = pytest.mark.parametrize("shape", [(50, 4096), (1, 1), (7, 13), (3, 1030)], ids=str)


@both
@shapes
@pytest.mark.parametrize("approximation", ["gelu_tanh", "gelu_erf"])
def test_gelu(
    shape: tuple[int, int],
    x: torch.dtype,
    out: torch.dtype,
    approximation: Literal["gelu_tanh", "gelu_erf"],
) -> None:
    """From deep in both tails to around zero; never a tail value alone: there the reference cancels."""
    check(gelu, x=random(shape, x, scale=4) + 1, out_dtype=out, approximation=approximation)


@both
@shapes
def test_gelu_mul(shape: tuple[int, int], x: torch.dtype, out: torch.dtype) -> None:
    """Gemma's MLP where gate and up come from separate matmuls."""
    check(gelu_mul, gate=random(shape, x), up=random(shape, out, seed=1), out_dtype=out)


@both
@shapes
def test_silu(shape: tuple[int, int], x: torch.dtype, out: torch.dtype) -> None:
    """The time MLP of the action expert."""
    check(silu, x=random(shape, x, scale=4), out_dtype=out)


@pytest.mark.parametrize("kernel", [gelu, silu], ids=lambda kernel: kernel.name)
def test_arrays_may_start_anywhere(kernel: object) -> None:
    """Slices of a larger array are not on 16 bytes."""
    check(kernel, x=random((65,))[1:].view(4, 16))  # type: ignore[arg-type]


def test_extreme_values_stay_finite() -> None:
    """exp overflows in the tails; the activation must not."""
    x = torch.tensor([[-3e38, -1e4, -100.0, 0.0, 100.0, 1e4]], device="cuda")
    check(silu, x=x)
    check(gelu, x=x[:, 1:].contiguous())
