# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where a StaticGraph runs: who allocates its arena, turns its nodes into launches and replays them.

The graph composes, validates and plans; a backend does what depends on the device. Models never look at it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import torch

from flashrt_kernels import arena
from flashrt_kernels.cuda import ask_driver, manifest
from flashrt_kernels.errors import DeviceError
from flashrt_kernels.kernel import Array, Kernel

Launch = Callable[[], Any]
Tap = Callable[[], None]


@dataclass(frozen=True)
class Step:
    """One bound node: its section, its launches, and whether an output depends on it."""

    section: str
    launches: tuple[Launch, ...]
    needed: bool


def sections(steps: Sequence[Step]) -> list[tuple[str, list[Launch]]]:
    """Needed launches of neighbouring steps of one section, together."""
    runs: list[tuple[str, list[Launch]]] = []
    for step in steps:
        if step.needed:
            if not runs or runs[-1][0] != step.section:
                runs.append((step.section, []))
            runs[-1][1].extend(step.launches)
    return runs


class Program(Protocol):
    """The bound steps of one graph over one memory."""

    timings: dict[str, float]  # milliseconds by section in the last replay; empty where it was not timed
    results: Mapping[str, torch.Tensor]  # the outputs in host memory, until another program of the arena runs

    def send(self, offset: int, bytes: int) -> None:
        """Start bringing part of the input block, as it is in host memory now, to the device."""

    def start(self) -> None:
        """Send the small inputs and begin to run every needed step."""

    def settle(self, behind: int) -> None:
        """Wait until all but the newest `behind` (0 or 1) of what was started has ended, results included."""

    def finish(self, first: Program | None) -> None:
        """Wait for the end of what was started; results and `timings` are complete afterwards.

        first: the program of the same backend whose start began this replay; None where it was this one's.
        """

    def replay_all(self, taps: Mapping[int, Sequence[Tap]]) -> None:
        """Run every step one by one; taps[i] are called when i steps have run."""

    def close(self) -> None:
        """Let go of everything that is not a tensor."""


class Backend(Protocol):
    """One device as a graph sees it.

    ahead: replays of one graph that are worth starting before the host has looked at the one in front.
    """

    device: torch.device
    ahead: int

    def allocate(self, bytes: int, inputs: int) -> arena.Memory:
        """An arena whose first `inputs` bytes the host can write."""

    def workspace(
        self, kernel: Kernel, arguments: Mapping[str, Array | None], parameters: Mapping[str, Any]
    ) -> int:
        """Bytes of scratch memory that a call needs while it runs."""

    def bind(
        self,
        kernel: Kernel,
        tensors: Mapping[str, torch.Tensor | None],
        parameters: Mapping[str, Any],
        workspace: torch.Tensor | None,
    ) -> Sequence[Launch]:
        """The launches of one call over fixed tensors."""

    def program(
        self,
        name: str,
        steps: Sequence[Step],
        memory: arena.Memory,
        inputs: tuple[int, int],
        outputs: Mapping[str, torch.Tensor],
    ) -> Program:
        """inputs: byte range of the small inputs, which every replay sends. outputs: those it brings back."""

    def release(self) -> None:
        """Give memory that nothing uses any more back to the system."""


class CpuBackend:
    """The CPU runs the references; host and device memory are the same."""

    device = torch.device("cpu")
    ahead = 0  # what was started has ended

    def allocate(self, bytes: int, inputs: int) -> arena.Memory:
        return arena.allocate(bytes)

    def workspace(
        self, kernel: Kernel, arguments: Mapping[str, Array | None], parameters: Mapping[str, Any]
    ) -> int:
        return 0

    def bind(
        self,
        kernel: Kernel,
        tensors: Mapping[str, torch.Tensor | None],
        parameters: Mapping[str, Any],
        workspace: torch.Tensor | None,
    ) -> Sequence[Launch]:
        return (partial(kernel.reference, *tensors.values(), **parameters),)

    def program(
        self,
        name: str,
        steps: Sequence[Step],
        memory: arena.Memory,
        inputs: tuple[int, int],
        outputs: Mapping[str, torch.Tensor],
    ) -> Program:
        return CpuProgram(steps, outputs)

    def release(self) -> None:
        """Nothing to do: Python's references decide."""


class CpuProgram:
    """Calls the references one after another."""

    def __init__(self, steps: Sequence[Step], outputs: Mapping[str, torch.Tensor]) -> None:
        self.timings: dict[str, float] = {}
        self.results = outputs
        self._steps, self._runs = steps, sections(steps)

    def send(self, offset: int, bytes: int) -> None:
        """Nothing to do: the launches read where the host wrote."""

    def start(self) -> None:
        timings = self.timings
        for section, _ in self._runs:
            timings[section] = 0.0
        with torch.inference_mode():  # no autograd bookkeeping: a tenth of the time of a small policy
            start = time.perf_counter()
            for section, launches in self._runs:
                for launch in launches:
                    launch()
                now = time.perf_counter()
                timings[section] += 1e3 * (now - start)
                start = now

    def settle(self, behind: int) -> None:
        """Nothing to do: what was started has ended."""

    def finish(self, first: Program | None) -> None:
        """Nothing to do: what was started has ended."""

    def replay_all(self, taps: Mapping[int, Sequence[Tap]]) -> None:
        self.timings.update({step.section: 0.0 for step in self._steps})
        with torch.inference_mode():
            for tap in taps.get(0, ()):
                tap()
            for done, step in enumerate(self._steps, 1):
                start = time.perf_counter()
                for launch in step.launches:
                    launch()
                self.timings[step.section] += 1e3 * (time.perf_counter() - start)
                for tap in taps.get(done, ()):
                    tap()

    def close(self) -> None:
        """Drop the launches, and with them the views of the arena."""
        self._steps, self._runs, self.results = (), [], {}


MAX_INDEX = 127  # of a device; torch cuts larger ones: its cuda:256 is cuda:0

# Kind of device → module and class; a module is imported when a graph for its device is made.
BACKENDS = {
    "cpu": ("flashrt_kernels.backend", "CpuBackend"),
    "cuda": ("flashrt_kernels.cuda.backend", "CudaBackend"),
}

# What the second needs beside torch, as in setup.py. Named one by one: pip does not know what colcon built.
CUDA_PACKAGES = ("cupy-cuda13x>=14.0,<15", "cuda-bindings>=13.0,<14")


def backend_of(device: str, name: str = "device") -> Backend:
    """The backend of a device by its torch name.

    Raises DeviceError where there is no such device, KernelBuildError for a GPU that is too old.
    """
    kind, _, index = device.partition(":")
    numbered = index.isascii() and index.isdecimal() and index == str(int(index))
    if kind not in BACKENDS or not (device == kind or (numbered and int(index) <= MAX_INDEX)):
        raise DeviceError(f"{name} {device!r}: expected one of cpu, cuda, cuda:1, …")
    if kind == "cpu":
        return CpuBackend()
    if not torch.cuda.is_available():
        cpu_build = torch.version.cuda is None
        if not cpu_build and (driver := ask_driver.version()):
            manifest.check_driver(driver)  # of an older one torch says no more than that it sees no GPU
        why = f"torch {torch.__version__} is a build for the CPU" if cpu_build else "torch sees no NVIDIA GPU"
        raise DeviceError(
            f"{name} {device!r}: {why}; expected an NVIDIA GPU, driver R580 or newer and a build of torch "
            "for CUDA 13 (in a clone: make install DEVICE=cuda; else see docs/build.md)"
        )
    module, cls = BACKENDS[kind]
    try:
        made: Backend = getattr(import_module(module), cls)(device)
    except ModuleNotFoundError as error:
        raise DeviceError(
            f"{name} {device!r}: Python module {error.name!r} is missing; in a clone: make install "
            f"DEVICE=cuda; else: pip install {' '.join(map(repr, CUDA_PACKAGES))}"
        ) from error
    return made
