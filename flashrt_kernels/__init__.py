# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Vision-language-action policies as static graphs of declared kernels. No ROS in here.

    from flashrt_kernels import load_policy
    policy = load_policy(folder)
    chunk = policy.decide(images={name: rgb}, state=[...], instruction="...", seed=0)

Importing the package is cheap; torch is imported with the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flashrt_kernels.errors import (
    CheckpointError,
    DecisionError,
    DeviceError,
    GraphError,
    KernelBuildError,
    ObservationError,
)

if TYPE_CHECKING:
    from flashrt_kernels.loading import load_policy
    from flashrt_kernels.pixels import RawImage
    from flashrt_kernels.policy import Chunk, Policy

__all__ = [
    "CheckpointError",
    "Chunk",
    "DecisionError",
    "DeviceError",
    "GraphError",
    "KernelBuildError",
    "ObservationError",
    "Policy",
    "RawImage",
    "load_policy",
]

LAZY = {"Chunk": "policy", "Policy": "policy", "load_policy": "loading", "RawImage": "pixels"}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LAZY[name]}"), name)
