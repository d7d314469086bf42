# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Policies composed from kernels: building blocks and one file per policy."""

from collections.abc import Callable

import torch

from flashrt_kernels.checkpoint import PiCheckpoint
from flashrt_kernels.models.model import Model
from flashrt_kernels.models.pi05 import Pi05

Progress = Callable[[int, int], None]
# (checkpoint, dtype of matmul weights, denoising steps, device of the weights, progress of loading) → model
MODELS: dict[str, Callable[[PiCheckpoint, torch.dtype, int, torch.device, Progress | None], Model]] = {
    Pi05.name: Pi05
}
