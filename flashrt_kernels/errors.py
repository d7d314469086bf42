# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Errors that callers of flashrt_kernels can catch; each message names what came and what would be right."""


class CheckpointError(ValueError):
    """A checkpoint, tokenizer or load option cannot be used. Names the file and the key."""


class ObservationError(ValueError):
    """An image, joint state or instruction does not fit the policy. Names the camera or the joint."""


class DecisionError(ValueError):
    """A policy has come to no actions that may be executed: what it wrote is none. The next decision may."""


class GraphError(ValueError):
    """A kernel was called with arguments that break its declaration. Names the kernel and the argument."""


class KernelBuildError(RuntimeError):
    """Compiled kernels are missing, stale, or cannot be made. Names the family and the command to run."""


class DeviceError(RuntimeError):
    """There is no such device, or its driver cannot run the kernels. Names what is there and is needed."""
