# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Names for memory that is not there yet: what a graph hands out while it is composed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from flashrt_kernels.errors import GraphError


@dataclass(eq=False)
class Storage:
    """Memory behind buffers: an input, an arena buffer, a constant (which holds its own tensor), or what the
    graph before keeps (its tensor is known once that graph is planned)."""

    name: str
    kind: Literal["input", "buffer", "constant", "borrowed"]
    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor: torch.Tensor | None = None
    uses: list[int] = field(default_factory=list)  # launches that read or write it, in order
    written: list[tuple[int, int]] = field(default_factory=list)  # byte ranges [start, end), sorted, apart
    fixed: list[tuple[int, int]] = field(default_factory=list)  # those that the graph before wrote

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Buffer:
    """A contiguous part of a storage. An integer or a slice along the first dimension gives a part of it."""

    storage: Storage
    shape: tuple[int, ...]
    offset: int = 0  # bytes from the start of the storage

    @property
    def dtype(self) -> torch.dtype:
        return self.storage.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def written(self) -> bool:
        """True where every byte holds a value: those of inputs and constants do from the start."""
        end = self.offset + self.bytes
        return any(start <= self.offset and end <= stop for start, stop in self.storage.written)

    def mark_written(self) -> None:
        """From here on every byte holds a value."""
        ranges = sorted([*self.storage.written, (self.offset, self.offset + self.bytes)])
        merged = ranges[:1]
        for start, stop in ranges[1:]:
            if start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((start, stop))
        self.storage.written[:] = merged

    def written_here(self) -> list[tuple[int, int]]:
        """The byte ranges that hold a value, counted from the start of this part."""
        end = self.offset + self.bytes
        found = ((max(start, self.offset), min(stop, end)) for start, stop in self.storage.written)
        return [(start - self.offset, stop - self.offset) for start, stop in found if start < stop]

    def __getitem__(self, index: int | slice) -> Buffer:
        rows = self.shape[0] if self.shape else 0
        part = slice(index, index + 1) if isinstance(index, int) else index
        start, stop, step = part.indices(rows)
        if step != 1 or stop < start or (isinstance(index, int) and stop - start != 1):
            raise GraphError(f"{self.storage.name}: [{index}] is not a contiguous part of {list(self.shape)}")
        inner = self.shape[1:]
        row_bytes = math.prod(inner) * self.dtype.itemsize
        shape = inner if isinstance(index, int) else (stop - start, *inner)
        return Buffer(self.storage, shape, self.offset + start * row_bytes)

    def view(self, *shape: int) -> Buffer:
        """The same bytes with another shape. Raises GraphError where the count of elements differs."""
        if math.prod(shape) != math.prod(self.shape):
            raise GraphError(f"{self.storage.name}: {list(self.shape)} cannot be viewed as {list(shape)}")
        return Buffer(self.storage, shape, self.offset)

    def overlaps(self, other: Buffer) -> bool:
        """True where the two share bytes."""
        if self.storage is not other.storage:
            return False
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


def copy_out(tensor: torch.Tensor) -> np.ndarray:
    """A copy as a NumPy array; NumPy has no bf16, so bf16 becomes float32 (exact)."""
    host = tensor.to("cpu", copy=True)
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy()
