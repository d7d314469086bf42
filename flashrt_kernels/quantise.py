# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Activations in 8 bits, with scales that calibration fixed beforehand."""

from __future__ import annotations

import torch

from flashrt_kernels.kernel import FLOAT, FLOAT8, FLOAT32, In, Out, kernel

E4M3_MAX = 448.0  # largest finite value of float8_e4m3fn


@kernel(x=In("rows width", FLOAT), scale=In("1", FLOAT32), out=Out("rows width", FLOAT8))
def quantise(x: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> None:
    """x / scale in fp8 e4m3, ties to even, ±448 where it is beyond (Micikevicius et al. 2022).

    One scale for the whole array: x ≈ scale · out. NaN stays NaN.
    """
    out.copy_((x.float() / scale).clamp_(-E4M3_MAX, E4M3_MAX))
