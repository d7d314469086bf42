# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""fp8 on the GPU: bit for bit the reference's codes, or calibration judged another kernel."""

import pytest
import torch

from flashrt_kernels.quantise import quantise
from test.cuda.support import gpu, random, requires_cuda

pytestmark = requires_cuda


def codes(x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes from the kernel and from the reference."""
    from flashrt_kernels.cuda.backend import run

    by = torch.tensor([scale])
    ours = run(quantise, gpu(), x=x, scale=by.cuda())
    return ours.view(torch.uint8).cpu(), quantise(x=x.cpu(), scale=by).view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(50, 1024), (1, 1), (7, 13), (968, 2050)], ids=str)
@pytest.mark.parametrize("scale", [1.0, 0.013, 3e-5])
def test_quantise(shape: tuple[int, int], dtype: torch.dtype, scale: float) -> None:
    """From values that vanish to values far beyond 448."""
    came, wanted = codes(random(shape, dtype, scale=2), scale)
    assert torch.equal(came, wanted)


def test_edges() -> None:
    """Ties, subnormals, saturation, both zeros, NaN."""
    edges = [
        0.0,
        -0.0,
        17.0,
        19.0,
        2**-10,
        3 * 2**-10,
        2**-9,
        447.0,
        464.0,
        1e30,
        -1e30,
        torch.inf,
        torch.nan,
    ]
    came, wanted = codes(torch.tensor([edges], device="cuda"), 1.0)
    assert came.tolist() == wanted.tolist()


def test_arrays_may_start_anywhere() -> None:
    """Slices of a larger array are not on 16 bytes."""
    came, wanted = codes(random((33,))[1:].view(2, 16), 0.5)
    assert torch.equal(came, wanted)
