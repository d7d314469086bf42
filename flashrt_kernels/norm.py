# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Normalisation over the last axis, of x or of x + residual; statistics in fp32 whatever the activations are.

Where `residual` is given, the fp32 sum is normalised, not its rounding; `sum_out` (given, or asked for with
`sum_out_dtype`) keeps it for the next residual add.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import FLOAT, FLOAT32, In, Out, kernel

RESIDUAL = In("rows width", FLOAT, optional=True)
SUM = Out("rows width", FLOAT, like="x", on_request=True)


@kernel(
    x=In("rows width", FLOAT),
    weight=In("width", FLOAT32),
    bias=In("width", FLOAT32),
    residual=RESIDUAL,
    out=Out("rows width", FLOAT, like="x"),
    sum_out=SUM,
)
def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    sum_out: torch.Tensor | None,
    *,
    eps: float = 1e-6,
) -> None:
    """(x − mean) / √(var + eps) · weight + bias per row (Ba et al. 2016, biased variance)."""
    x = add(x, None, residual, sum_out)
    out.copy_(F.layer_norm(x, (x.shape[1],), weight, bias, eps))


@kernel(
    x=In("rows width", FLOAT),
    weight=In("width", FLOAT32),
    residual=RESIDUAL,
    out=Out("rows width", FLOAT, like="x"),
    sum_out=SUM,
)
def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    sum_out: torch.Tensor | None,
    *,
    eps: float = 1e-6,
) -> None:
    """x / √(mean(x²) + eps) · (1 + weight) per row: Gemma's form, stored as an offset from one."""
    x = add(x, None, residual, sum_out)
    out.copy_(F.rms_norm(x, (x.shape[1],), eps=eps).mul_(1 + weight))


@kernel(
    x=In("rows width", FLOAT),
    scale=In("width", FLOAT32),
    shift=In("width", FLOAT32),
    gate=In("width", FLOAT32, optional=True),
    residual=RESIDUAL,
    out=Out("rows width", FLOAT, like="x"),
    sum_out=SUM,
)
def ada_rms_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    gate: torch.Tensor | None,
    residual: torch.Tensor | None,
    out: torch.Tensor,
    sum_out: torch.Tensor | None,
    *,
    eps: float = 1e-6,
) -> None:
    """x / √(mean(x²) + eps) · (1 + scale) + shift per row.

    Adaptive RMS norm of Pi0.5's action expert. The third part of a modulation row, the gate, scales what the
    branch adds to the stream: in the matmul that ends the branch, or in the next norm, which then takes
    gate · x + residual for x.
    """
    x = add(x, gate, residual, sum_out)
    out.copy_(torch.addcmul(shift, F.rms_norm(x, (x.shape[1],), eps=eps), 1 + scale))


def add(
    x: torch.Tensor, gate: torch.Tensor | None, residual: torch.Tensor | None, sum_out: torch.Tensor | None
) -> torch.Tensor:
    """gate · x + residual in fp32 [rows, width], also stored in `sum_out`."""
    total = x.float()
    if gate is not None:
        total = total * gate
    if residual is not None:
        total = total + residual
    if sum_out is not None:
        sum_out.copy_(total)
    return total
