# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Lifetimes → offsets in one allocation, and the table that shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from flashrt_kernels.kernel import short

ALIGNMENT = 256  # bytes; what vector loads, TMA descriptors and cuBLAS want at most


@dataclass(frozen=True)
class Request:
    """One buffer: it must keep its bytes from launch `first` to launch `last`, both included.

    in_front: it lies at the start of the arena, with nothing but others of that kind before it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    first: int
    last: int
    in_front: bool = False

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Placement:
    """A request and the byte offset it got."""

    request: Request
    offset: int


@dataclass(frozen=True)
class Plan:
    """Offsets of all buffers in one arena of `bytes`; separate buffers would take `bytes_without_reuse`."""

    placements: tuple[Placement, ...]
    bytes: int
    bytes_without_reuse: int

    @property
    def front(self) -> int:
        """Bytes up to the end of the last buffer that lies in front."""
        ends = (p.offset + p.request.bytes for p in self.placements if p.request.in_front)
        return max(ends, default=0)

    def describe(self, limit: int | None = None) -> str:
        """The plan as a table, in order of first use; `limit` keeps only the largest buffers."""
        shown = sorted(self.placements, key=lambda p: -p.request.bytes)[:limit]
        rows = [("buffer", "shape", "dtype", "bytes", "offset", "launches")]
        for placement in sorted(shown, key=lambda p: (p.request.first, p.offset)):
            r = placement.request
            shape = "×".join(map(str, r.shape))
            rows.append(
                (r.name, shape, short(r.dtype), f"{r.bytes}", f"{placement.offset}", f"{r.first}..{r.last}")
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        if len(shown) < len(self.placements):
            lines.append(f"… and {len(self.placements) - len(shown)} smaller buffers")
        end = max((p.request.last for p in self.placements), default=0)
        always = [p.request for p in self.placements if p.request.first == 0 and p.request.last == end]
        fixed = sum(request.bytes for request in always)
        lines.append(
            f"arena: {self.bytes} bytes with reuse, {self.bytes_without_reuse} without; "
            f"{len(self.placements)} buffers, {len(always)} of them alive throughout ({fixed} bytes)"
        )
        return "\n".join(lines)


def plan(requests: Sequence[Request], reuse: bool = True, alignment: int = ALIGNMENT) -> Plan:
    """Place every request so that two buffers alive at the same launch never share a byte.

    Greedy: those that belong in front, then the others, by size, the largest buffer first, each at the lowest
    aligned offset that is free of the buffers alive with it. Without `reuse` every buffer counts as alive
    throughout. The result is never larger than without reuse.
    """
    sizes = [align_up(request.bytes, alignment) for request in requests]
    total = sum(sizes)
    order = sorted(
        range(len(requests)), key=lambda i: (not requests[i].in_front, -sizes[i], requests[i].first, i)
    )
    first, last, start, end = (np.zeros(len(requests), np.int64) for _ in range(4))
    offsets = [0] * len(requests)
    for placed, index in enumerate(order):
        request, size = requests[index], sizes[index]
        alive = (
            (first[:placed] <= request.last) & (last[:placed] >= request.first) if reuse else slice(placed)
        )
        offset = lowest_gap(start[:placed][alive], end[:placed][alive], size)
        first[placed], last[placed], start[placed], end[placed] = (
            request.first,
            request.last,
            offset,
            offset + size,
        )
        offsets[index] = offset
    placements = tuple(Placement(request, offset) for request, offset in zip(requests, offsets, strict=True))
    return Plan(placements, int(end.max(initial=0)), total)


def lowest_gap(start: np.ndarray, end: np.ndarray, size: int) -> int:
    """Lowest offset where `size` bytes fit between the occupied ranges [start, end)."""
    offset = 0
    for i in np.argsort(start, kind="stable"):
        if start[i] - offset >= size:
            break
        offset = max(offset, int(end[i]))
    return offset


def align_up(count: int, alignment: int) -> int:
    """Smallest multiple of `alignment` that is ≥ count."""
    return -(-count // alignment) * alignment


@dataclass(frozen=True)
class Memory:
    """An arena: uint8 on its device, and where the host writes the inputs at its front.

    host: the arena itself on the CPU; elsewhere a page-locked copy of its first bytes.
    """

    arena: torch.Tensor
    host: torch.Tensor


def allocate(bytes: int, device: str | torch.device = "cpu", alignment: int = ALIGNMENT) -> Memory:
    """One uint8 allocation of at least `bytes` that starts on an aligned address; its own host memory."""
    raw = torch.empty(bytes + alignment, dtype=torch.uint8, device=device)
    skip = -raw.data_ptr() % alignment
    memory = raw[skip : skip + bytes]
    return Memory(memory, memory)
