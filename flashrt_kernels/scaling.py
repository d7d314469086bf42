# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The affine maps between robot units and the units a policy was trained in.

One form covers every normalisation mode of the supported checkpoints:
normalised = mul·(x − offset)/divisor − sub.
"""

from __future__ import annotations

import torch

from flashrt_kernels.kernel import FLOAT32, In, Out, kernel


@kernel(
    x=In("rows d", FLOAT32),
    offset=In("d", FLOAT32),
    divisor=In("d", FLOAT32),
    out=Out("rows d", FLOAT32, like="x"),
)
def normalise(
    x: torch.Tensor, offset: torch.Tensor, divisor: torch.Tensor, out: torch.Tensor, *, mul: float, sub: float
) -> None:
    """mul·(x − offset)/divisor − sub, in this order: a value on the edge of a state bin must not move."""
    out.copy_((x - offset).mul_(mul).div_(divisor).sub_(sub))


@kernel(
    x=In("rows width", FLOAT32),
    offset=In("d", FLOAT32),
    span=In("d", FLOAT32),
    base=In("d", FLOAT32, optional=True),
    out=Out("rows d", FLOAT32, like="x"),
)
def unnormalise(
    x: torch.Tensor,
    offset: torch.Tensor,
    span: torch.Tensor,
    base: torch.Tensor | None,
    out: torch.Tensor,
    *,
    mul: float,
    sub: float,
) -> None:
    """(x + sub)/mul·span + offset [+ base] of the first d columns; the others are padding of the model.

    base: what a relative action is relative to, 0 for dimensions that are absolute.
    """
    y = (x[:, : offset.shape[0]] + sub).div_(mul).mul_(span).add_(offset)
    out.copy_(y if base is None else y.add_(base))
