# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Elementwise activations, alone and as matmul epilogues."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F

from flashrt_kernels.kernel import FLOAT, In, Out, kernel

Activation = Literal["none", "gelu_tanh", "gelu_erf", "silu", "relu"]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_erf": F.gelu,
    "silu": F.silu,
    "relu": F.relu,
}


@kernel(x=In("rows width", FLOAT), out=Out("rows width", FLOAT, like="x"))
def gelu(
    x: torch.Tensor, out: torch.Tensor, *, approximation: Literal["gelu_tanh", "gelu_erf"] = "gelu_tanh"
) -> None:
    """GELU (Hendrycks and Gimpel 2016): x·Φ(x), exactly (erf) or in the paper's tanh approximation."""
    out.copy_(ACTIVATIONS[approximation](x.float()))


@kernel(gate=In("rows width", FLOAT), up=In("rows width", FLOAT), out=Out("rows width", FLOAT, like="gate"))
def gelu_mul(gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor) -> None:
    """gelu_tanh(gate) · up: the middle of Gemma's MLP when gate and up come from separate matmuls."""
    out.copy_(F.gelu(gate.float(), approximate="tanh").mul_(up))


@kernel(x=In("rows width", FLOAT), out=Out("rows width", FLOAT, like="x"))
def silu(x: torch.Tensor, out: torch.Tensor) -> None:
    """x · sigmoid(x)."""
    out.copy_(F.silu(x.float()))
