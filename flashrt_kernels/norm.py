# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Normalisation over the last axis. Statistics are fp32 whatever the activations are."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import FLOAT, FLOAT32, In, Out, kernel


@kernel(
    x=In("rows width", FLOAT),
    weight=In("width", FLOAT32),
    bias=In("width", FLOAT32),
    out=Out("rows width", FLOAT, like="x"),
)
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, *, eps: float = 1e-6
) -> None:
    """(x − mean) / √(var + eps) · weight + bias per row (Ba et al. 2016, biased variance)."""
    out.copy_(F.layer_norm(x.float(), (x.shape[1],), weight, bias, eps))


@kernel(x=In("rows width", FLOAT), weight=In("width", FLOAT32), out=Out("rows width", FLOAT, like="x"))
def rms_norm(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, *, eps: float = 1e-6) -> None:
    """x / √(mean(x²) + eps) · (1 + weight) per row: Gemma's form, stored as an offset from one."""
    out.copy_(F.rms_norm(x.float(), (x.shape[1],), eps=eps).mul_(1 + weight))


@kernel(
    x=In("rows width", FLOAT),
    scale=In("width", FLOAT32),
    shift=In("width", FLOAT32),
    out=Out("rows width", FLOAT, like="x"),
)
def ada_rms_norm(
    x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, out: torch.Tensor, *, eps: float = 1e-6
) -> None:
    """x / √(mean(x²) + eps) · (1 + scale) + shift per row.

    Adaptive RMS norm of Pi0.5's action expert; the third part of the same modulation row, the gate, is
    applied by the matmul that ends the branch.
    """
    out.copy_(torch.addcmul(shift, F.rms_norm(x.float(), (x.shape[1],), eps=eps), 1 + scale))
