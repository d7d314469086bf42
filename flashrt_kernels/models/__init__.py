# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Policies composed from kernels: building blocks and one file per policy."""

from collections.abc import Callable

import torch

from flashrt_kernels.checkpoint import LeRobotCheckpoint
from flashrt_kernels.models.model import Model
from flashrt_kernels.models.pi05 import Pi05

# (checkpoint, dtype of matmul weights, denoising steps) → model
MODELS: dict[str, Callable[[LeRobotCheckpoint, torch.dtype, int], Model]] = {Pi05.name: Pi05}
