# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Milliseconds by CUDA events and by the wall clock, in rounds that interleave all engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from benchmarks.device.inputs import Observation, cycle

Sample = dict[str, float]  # quantity → milliseconds; always "gpu", mostly "wall", stages where known


class Engine(Protocol):
    """Something that turns observations into actions."""

    name: str
    what: str  # what its figures include, in words

    def measure(self, observation: Observation) -> Sample:
        """Decide once."""

    def actions(self, observation: Observation) -> np.ndarray:
        """Normalised actions [horizon, 32] of one decision, for comparison with the reference."""

    def close(self) -> None:
        """Give the memory back."""


def gpu_milliseconds(run: Callable[[], Any]) -> float:
    """Time between two events around what `run` enqueues."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def median_milliseconds(runs: list[Callable[[], Any]], repeats: int = 20) -> float:
    """Median per call; `runs` take turns, so that none finds its data in the cache."""
    for run in runs:
        run()
    return float(np.median([gpu_milliseconds(runs[i % len(runs)]) for i in range(repeats)]))


def load(seconds: float) -> None:
    """Bring clocks and temperature to where work keeps them."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            torch.mm(a, b)
        torch.cuda.synchronize()


class Sensors:
    """Clocks (MHz), temperature (°C) and power (W) of GPU 0, read only; empty where NVML is missing."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
        except Exception as error:  # no NVML is no reason to measure nothing
            self._nvml, self.missing = None, str(error)

    def read(self) -> dict[str, float]:
        n = self._nvml
        if n is None:
            return {}
        return {
            "sm_mhz": n.nvmlDeviceGetClockInfo(self._handle, n.NVML_CLOCK_SM),
            "memory_mhz": n.nvmlDeviceGetClockInfo(self._handle, n.NVML_CLOCK_MEM),
            "celsius": n.nvmlDeviceGetTemperature(self._handle, n.NVML_TEMPERATURE_GPU),
            "watts": n.nvmlDeviceGetPowerUsage(self._handle) / 1e3,
        }

    def driver(self) -> str:
        return "" if self._nvml is None else str(self._nvml.nvmlSystemGetDriverVersion())


@dataclass
class Samples:
    """Raw milliseconds: engine → quantity → values; a boundary between rounds is kept in `turns`."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    turns: dict[str, list[int]] = field(default_factory=dict)  # samples in each round
    sensors: list[dict[str, float]] = field(default_factory=list)

    def add(self, engine: str, sample: Mapping[str, float]) -> None:
        rows = self.values.setdefault(engine, {})
        for quantity, value in sample.items():
            rows.setdefault(quantity, []).append(round(value, 4))


def unwatched(engine: str, when: str) -> AbstractContextManager[None]:
    return nullcontext()


def interleaved(
    engines: list[Engine],
    found: list[Observation],
    rounds: int,
    turn_s: float,
    sensors: Sensors,
    watch: Callable[[str, str], AbstractContextManager[None]] = unwatched,
) -> Samples:
    """`rounds` times A B C …, every turn `turn_s` long and 3 decisions at least.

    Each turn runs inside `watch(engine, when)`, which is entered and left outside the measured time.
    """
    samples = Samples()
    streams = {engine.name: cycle(found) for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            with watch(engine.name, "while it was measured"):
                count = turn(engine, streams[engine.name], turn_s, samples)
            samples.turns.setdefault(engine.name, []).append(count)
            samples.sensors.append({"engine": engine.name, **sensors.read()})  # type: ignore[dict-item]
    return samples


def turn(engine: Engine, stream: Iterator[Observation], seconds: float, samples: Samples) -> int:
    """One engine's turn: the first decision warms it up and is not counted."""
    engine.measure(next(stream))
    end, count = time.monotonic() + seconds, 0
    while count < 3 or time.monotonic() < end:
        samples.add(engine.name, engine.measure(next(stream)))
        count += 1
    return count


def sustained(engine: Engine, found: list[Observation], seconds: float) -> dict[str, list[float]]:
    """Decisions without a pause: GPU milliseconds of the first and the last sixth of the time."""
    stream, start = cycle(found), time.monotonic()
    taken: list[tuple[float, float]] = []
    while (now := time.monotonic() - start) < seconds:
        taken.append((now, engine.measure(next(stream))["gpu"]))
    edge = seconds / 6
    return {
        "first": [round(ms, 4) for at, ms in taken if at < edge],
        "last": [round(ms, 4) for at, ms in taken if at > seconds - edge],
    }
