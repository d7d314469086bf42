# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Policies composed from kernels: building blocks and one file per policy."""

from flashrt_kernels.models.pi05 import Pi05

MODELS = {Pi05.name: Pi05}
