# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Tensors mapped from a file → memory of the device that runs the policy, in the dtype wanted there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

PIECE = 16 << 20  # bytes on the way at a time
PIECES = 4

Progress = Callable[[int, int], None]


class Upload:
    """Fills memory of `device` from mapped tensors; tells `progress` (bytes done, bytes in all).

    A GPU gets the bytes as they are stored, through pinned memory: while one piece crosses the bus, the next
    is read. There they are converted, and looked at once: `not_finite` knows afterwards, without a pass over
    gigabytes on the host.
    """

    def __init__(self, device: torch.device, total: int, progress: Progress | None = None) -> None:
        self.device, self.total, self.done = device, total, 0
        self._progress = progress
        self._ring: Iterator[Slot] | None = None
        self._extremes: dict[str, list[Tensor]] = {}  # smallest and largest value of every piece

    def fill(self, target: Tensor, source: Tensor, key: str) -> None:
        """target = source; both contiguous and of one size, `target` on the device."""
        to, of = target.view(-1), source.view(-1)
        step = PIECE // source.dtype.itemsize
        for start in range(0, of.numel(), step):
            piece = of[start : start + step]
            self._send(to[start : start + step], piece, key)
            self._advance(piece.nbytes)

    def not_finite(self) -> set[str]:
        """Keys of the tensors of which something that was sent to a GPU is NaN or infinite."""
        if not self._extremes:
            return set()
        keys = [key for key, values in self._extremes.items() for _ in values]
        values = torch.stack([value for values in self._extremes.values() for value in values])
        good = torch.isfinite(values).cpu().tolist()
        return {key for key, finite in zip(keys, good, strict=True) if not finite}

    @property
    def seen(self) -> set[str]:
        """Keys of the tensors that `not_finite` speaks of."""
        return set(self._extremes)

    def equal(self, one: Tensor, other: Tensor) -> bool:
        """Whether two mapped tensors of one shape hold the same values, compared on the device."""
        same = []
        step = PIECE // max(one.dtype.itemsize, other.dtype.itemsize)
        for start in range(0, one.numel(), step):
            a, b = (self._staged(tensor.view(-1)[start : start + step]) for tensor in (one, other))
            same.append((a == b).all())
        return bool(torch.stack(same).all()) if same else True

    def finish(self) -> None:
        """Nothing else will come, whatever was not needed."""
        if self.done < self.total:
            self._advance(self.total - self.done)

    def close(self) -> None:
        """Let go of the pinned memory; everything that was sent has arrived when it is used."""
        self._ring = None
        self._extremes.clear()

    def _advance(self, count: int) -> None:
        self.done += count
        if self._progress is not None:
            self._progress(self.done, self.total)

    def _send(self, to: Tensor, piece: Tensor, key: str) -> None:
        if self.device.type == "cpu":
            to.copy_(piece)
            return
        if to.dtype == piece.dtype:
            arrived = self._through(to, piece)
        else:
            arrived = self._staged(piece)
            to.copy_(arrived)
        self._extremes.setdefault(key, []).extend(value.float() for value in torch.aminmax(arrived))

    def _staged(self, piece: Tensor) -> Tensor:
        """A copy on the device, as it is stored."""
        return self._through(torch.empty(piece.shape, dtype=piece.dtype, device=self.device), piece)

    def _through(self, to: Tensor, piece: Tensor) -> Tensor:
        if self.device.type == "cpu":
            return to.copy_(piece)
        if self._ring is None:
            self._ring = ring()
        slot = next(self._ring)
        slot.sent.synchronize()
        pinned = slot.memory[: piece.nbytes].view(piece.dtype)
        pinned.copy_(piece)
        with torch.cuda.device(self.device):
            to.copy_(pinned, non_blocking=True)
            slot.sent.record()
        return to


class Slot:
    """Pinned memory for one piece; `sent` has happened when it may be written again."""

    def __init__(self) -> None:
        self.memory = torch.empty(PIECE, dtype=torch.uint8, pin_memory=True)
        self.sent = torch.cuda.Event()


def ring() -> Iterator[Slot]:
    """Pinned pieces, again and again in turn."""
    slots = [Slot() for _ in range(PIECES)]
    while True:
        yield from slots
