# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What tests of the GPU kernels share: every kernel against its own reference, over poisoned outputs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flashrt_kernels.kernel import Kernel

if TYPE_CHECKING:
    from flashrt_kernels.cuda.gpu import Gpu

requires_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; CI has none")

# (relative error ‖out − reference‖ / ‖reference‖, largest error as a part of the largest value) by output
# dtype: the references sum in fp32 too, and round once
TOLERANCE = {torch.float32: (2e-5, 2e-4), torch.bfloat16: (4e-3, 1e-2)}


@lru_cache(maxsize=8)
def gpu(**options: Any) -> Gpu:
    """The first GPU with the given CudaOptions."""
    from flashrt_kernels.cuda.gpu import Gpu
    from flashrt_kernels.cuda.options import CudaOptions

    return Gpu(torch.device("cuda"), CudaOptions(**options))


def check(
    kernel: Kernel,
    tolerance: tuple[float, float] | None = None,
    options: dict[str, Any] | None = None,
    **given: Any,
) -> None:
    """Launch `kernel` and its reference on the same CUDA tensors; every written element must agree.

    Outputs that are not given are allocated; all written arguments are poisoned first (0xFF: NaN in every
    float format), except those that the kernel also reads. Fails on NaN, and where the error passes the
    tolerance.
    """
    from flashrt_kernels.cuda.backend import run

    call = kernel.validate(given)
    for name, (shape, dtype) in call.allocate.items():
        given.pop(f"{name}_dtype", None)
        given[name] = torch.empty(shape, dtype=dtype, device="cuda")
    given.update(
        {name: None for name in kernel.outputs if name not in given}
    )  # outputs that nobody asked for
    ours, reference = dict(given), dict(given)
    for name in kernel.outputs:
        if given[name] is None:
            continue
        ours[name], reference[name] = given[name].clone(), given[name].clone()
        if kernel.arguments[name].role == "out":
            ours[name].view(torch.uint8).fill_(0xFF)
    run(kernel, gpu(**(options or {})), **ours)
    torch.cuda.synchronize()
    kernel(**reference)
    for name in kernel.outputs:
        if given[name] is not None:
            compare(f"{kernel.name} {name}", ours[name], reference[name], tolerance)


def compare(
    what: str, came: torch.Tensor, wanted: torch.Tensor, tolerance: tuple[float, float] | None = None
) -> None:
    """Raise AssertionError where `came` is not `wanted` within the tolerance of its dtype."""
    if not came.dtype.is_floating_point:
        assert torch.equal(came, wanted), f"{what}: {int((came != wanted).sum())} values differ"
        return
    relative, largest = tolerance or TOLERANCE[came.dtype]
    a, b = came.double(), wanted.double()
    assert torch.isfinite(a).all(), (
        f"{what} {list(a.shape)}: {int((~torch.isfinite(a)).sum())} values not finite"
    )
    error = float((a - b).norm() / b.norm().clamp(min=1e-30))
    worst = float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) if a.numel() else 0.0
    assert error <= relative, f"{what} {list(a.shape)}: relative error {error:.2e}, at most {relative:.0e}"
    assert worst <= largest, f"{what} {list(a.shape)}: largest error {worst:.2e} of the largest value"


def random(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0
) -> torch.Tensor:
    """Seeded normal values on the GPU."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(shape, generator=generator, device="cuda") * scale).to(dtype)
