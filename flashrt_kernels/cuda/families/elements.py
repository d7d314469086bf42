# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the launches of elementwise kernels share: element types, four values at once, grids."""

from __future__ import annotations

import torch

THREADS = 256  # of a block, where nothing speaks for another number
SUFFIX = {torch.float32: "f32", torch.bfloat16: "bf16"}


def is_bf16(tensor: torch.Tensor | None) -> bool:
    """The flag that kernels take for arrays whose element type is known at run time only."""
    return tensor is not None and tensor.dtype == torch.bfloat16


def fours(*tensors: torch.Tensor | None) -> bool:
    """True where every array starts on a boundary of four of its elements: four can be moved at once."""
    return all(t is None or t.data_ptr() % (4 * t.element_size()) == 0 for t in tensors)


def pointer(tensor: torch.Tensor | None) -> int | None:
    """Address for a field of a ctypes structure."""
    return None if tensor is None else tensor.data_ptr()


def ceil_div(count: int, size: int) -> int:
    """How many of `size` hold `count`: thread blocks of a grid, tiles of a matrix."""
    return -(-count // size)
