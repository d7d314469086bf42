# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The kernels' references on any torch device: an fp32 forward of every policy, without kernels of ours.

What the tests compare with the public implementations is these references in the same graphs; run in fp32
on a GPU they are the measure of a full-size policy there, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from flashrt_kernels import arena
from flashrt_kernels.backend import CpuBackend, CpuProgram, Program, Step, Tap


class ReferenceBackend(CpuBackend):
    """As the CPU's, with arena and weights on `device`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def allocate(self, bytes: int, inputs: int) -> arena.Memory:
        memory = arena.allocate(bytes, self.device)
        memory.arena.zero_()
        return arena.Memory(memory.arena, torch.zeros(max(inputs, 1), dtype=torch.uint8))

    def program(
        self,
        name: str,
        steps: Sequence[Step],
        memory: arena.Memory,
        inputs: tuple[int, int],
        outputs: Mapping[str, torch.Tensor],
    ) -> Program:
        return ReferenceProgram(steps, outputs, memory, inputs)

    def release(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


class ReferenceProgram(CpuProgram):
    """Calls the references; inputs are copied over when they are sent."""

    def __init__(
        self,
        steps: Sequence[Step],
        outputs: Mapping[str, torch.Tensor],
        memory: arena.Memory,
        inputs: tuple[int, int],
    ) -> None:
        super().__init__(steps, outputs)
        self._memory, self._inputs = memory, inputs

    def send(self, offset: int, bytes: int) -> None:
        part = slice(offset, offset + bytes)
        self._memory.arena[part].copy_(self._memory.host[part])

    def start(self) -> None:
        with exact():
            self.send(self._inputs[0], self._inputs[1] - self._inputs[0])
            super().start()

    def replay_all(self, taps: Mapping[int, Sequence[Tap]]) -> None:
        with exact():
            self.send(self._inputs[0], self._inputs[1] - self._inputs[0])
            super().replay_all(taps)


@contextmanager
def exact() -> Iterator[None]:
    """No TF32: convolutions use it by default, products where somebody asked for it."""
    flags: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [flag.allow_tf32 for flag in flags]
    try:
        for flag in flags:
            flag.allow_tf32 = False
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            flag.allow_tf32 = value
