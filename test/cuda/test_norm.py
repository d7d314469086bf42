# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Norms on the GPU: when these fail, every layer of every policy is off there, and only there."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from flashrt_kernels.activation import silu
from flashrt_kernels.kernel import Kernel
from flashrt_kernels.norm import ada_rms_norm, layer_norm, rms_norm
from test.cuda.support import check, compare, gpu, random, requires_cuda

pytestmark = requires_cuda
VECTORS = {layer_norm: ("weight", "bias"), rms_norm: ("weight",), ada_rms_norm: ("scale", "shift")}
KERNELS = sorted(VECTORS, key=lambda kernel: kernel.name)
DTYPES = (torch.float32, torch.bfloat16)
# The models' shapes, one value, odd widths, a lane more than a warp, more than registers hold.
SHAPES = [(50, 1024), (968, 2048), (768, 1152), (1, 1), (3, 7), (5, 132), (300, 8192), (2, 16388), (17, 2050)]


def vectors(kernel: Kernel, width: int) -> dict[str, Any]:
    """The weights of `kernel`."""
    return {name: random((width,), seed=i + 1, scale=0.5) for i, name in enumerate(VECTORS[kernel])}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("out", DTYPES, ids=str)
@pytest.mark.parametrize("x", DTYPES, ids=str)
def test_norm(kernel: Kernel, shape: tuple[int, int], x: torch.dtype, out: torch.dtype) -> None:
    """Every shape and every combination of element types."""
    check(kernel, x=random(shape, x) + 3, out_dtype=out, **vectors(kernel, shape[1]))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("shape", [(50, 1024), (300, 1152), (3, 7)], ids=str)
@pytest.mark.parametrize("stream", DTYPES, ids=str)
@pytest.mark.parametrize("kept", [None, *DTYPES], ids=str)
def test_the_residual_stream_goes_on(
    kernel: Kernel, shape: tuple[int, int], stream: torch.dtype, kept: torch.dtype | None
) -> None:
    """A sum that is lost or rounded too early ends every later layer."""
    given: dict[str, Any] = {"residual": random(shape, stream, seed=9), **vectors(kernel, shape[1])}
    if kept is not None:
        given["sum_out_dtype"] = kept
    check(kernel, x=random(shape, torch.bfloat16), out_dtype=torch.bfloat16, **given)


@pytest.mark.parametrize("width", [1024, 7])
def test_the_gate_scales_the_branch(width: int) -> None:
    """Pi0.5's gates are far from one: without them the expert's branches overwhelm its stream."""
    gate, residual = random((width,), seed=5), random((9, width), seed=6)
    given: dict[str, Any] = {"gate": gate, "residual": residual, "sum_out_dtype": torch.float32}
    check(ada_rms_norm, x=random((9, width), torch.bfloat16), **vectors(ada_rms_norm, width), **given)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_vectors_may_come_from_the_kernel_in_front(kernel: Kernel) -> None:
    """They are asked for before it has ended, and must be those that it has written when it has."""
    from flashrt_kernels.cuda.backend import run

    x, source = random((50, 1024)), {n: random((1, 1024), seed=i) for i, n in enumerate(VECTORS[kernel])}
    wanted = kernel(x=x, **{name: silu(x=row).view(-1) for name, row in source.items()})
    for _ in range(20):
        fresh = {name: run(silu, gpu(), x=row).view(-1) for name, row in source.items()}
        compare(kernel.name, run(kernel, gpu(), x=x, **fresh), wanted)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_arrays_may_start_anywhere(kernel: Kernel) -> None:
    """Slices of a larger array are not on 16 bytes."""
    x = random((4 * 64 + 1,), torch.bfloat16)[1:].view(4, 64)
    check(kernel, x=x, out_dtype=torch.float32, **vectors(kernel, 64))


def test_a_large_mean_does_not_eat_the_variance() -> None:
    """SigLIP has channels far from zero; Σx² − n·mean² would lose all digits there.

    Compared with fp64; the mean itself is known to 1e-5 in fp32, a ten-thousandth of the spread.
    """
    from flashrt_kernels.cuda.backend import run

    x, weights = random((64, 1152), scale=0.1) + 300, vectors(layer_norm, 1152)
    wide = F.layer_norm(x.double(), (1152,), weights["weight"].double(), weights["bias"].double(), 1e-6)
    compare("layer_norm", run(layer_norm, gpu(), x=x, **weights), wide, (5e-4, 2e-3))
