# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Policies composed from kernels: building blocks and one file per policy."""

from collections.abc import Callable
from typing import Any

from flashrt_kernels.models.groot_n16 import GrootN16
from flashrt_kernels.models.groot_n17 import GrootN17
from flashrt_kernels.models.model import Model
from flashrt_kernels.models.pi0 import Pi0
from flashrt_kernels.models.pi0_fast import Pi0Fast
from flashrt_kernels.models.pi05 import Pi05
from flashrt_kernels.models.smolvla import SmolVLA

# Policy type → (checkpoint of its family, dtype of matmul weights, denoising steps, device of the weights,
# progress of loading) → model
MODELS: dict[str, Callable[..., Model] | Any] = {
    "pi0": Pi0,
    "pi05": Pi05,
    "pi0_fast": Pi0Fast,
    "groot_n16": GrootN16,
    "groot_n17": GrootN17,
    "smolvla": SmolVLA,
}
