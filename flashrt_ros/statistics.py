# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Percentile windows and rates of fixed size: nothing here grows while the node runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class Summary:
    """Percentiles over a window, in the unit of the values; `count` is the number of values behind them."""

    count: int
    p50: float
    p95: float
    p99: float
    max: float


def summarize(values: np.ndarray) -> Summary | None:
    """Percentiles of values [n], linear between ranks; None without values."""
    if not values.size:
        return None
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return Summary(values.size, float(p50), float(p95), float(p99), float(values.max()))


class Window:
    """The newest `size` values of one quantity; raises ValueError for a size below 1."""

    def __init__(self, size: int = 1000) -> None:
        if size < 1:
            raise ValueError(f"a window needs room for at least one value, got size {size}")
        self._values = np.zeros(size)  # [size]
        self._total = 0

    def add(self, value: float) -> None:
        self._values[self._total % self._values.size] = value
        self._total += 1

    @property
    def total(self) -> int:
        """Values ever added, also those that the window no longer holds."""
        return self._total

    @property
    def last(self) -> float | None:
        return float(self._values[(self._total - 1) % self._values.size]) if self._total else None

    def summary(self) -> Summary | None:
        """Percentiles of what the window holds; None while it is empty."""
        return summarize(self._values[: min(self._total, self._values.size)])

    def clear(self) -> None:
        self._total = 0


class Rate:
    """Events per second over the newest `size` events."""

    def __init__(self, size: int = 60) -> None:
        if size < 2:
            raise ValueError(f"a rate needs at least two events, got size {size}")
        self._times = np.zeros(size, dtype=np.int64)  # [size] ns
        self._total = 0

    def add(self, now_ns: int) -> None:
        self._times[self._total % self._times.size] = now_ns
        self._total += 1

    def hz(self, now_ns: int) -> float:
        """Mean rate in Hz; silence beyond the mean interval lowers it, so a stopped source tends to 0."""
        held = min(self._total, self._times.size)
        if held < 2:
            return 0.0
        newest = int(self._times[(self._total - 1) % self._times.size])
        oldest = (
            int(self._times[self._total % self._times.size])
            if held == self._times.size
            else int(self._times[0])
        )
        intervals = held - 1
        span = newest - oldest
        silence = now_ns - newest
        if silence > span / intervals:
            span, intervals = span + silence, intervals + 1
        return intervals * NS_PER_S / span if span > 0 else 0.0

    def clear(self) -> None:
        self._total = 0
