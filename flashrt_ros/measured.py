# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where the robot's joints are, whether or not they are part of the state vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from flashrt_ros.observation import JOINT_STATES, NS_PER_S

_CAPACITY: Final = 512  # joints remembered; a driver that invents names must not grow memory
_MAX_LAYOUTS: Final = 16
_NEVER: Final = -1


class MeasuredJoints:
    """The newest position of every joint named on joint_states, in the robot's units. Not thread-safe.

    `wanted` are the joints of the actions: they have their place before any other. Times in ns.
    """

    def __init__(self, wanted: Sequence[str], max_age: float) -> None:
        """`max_age` in seconds."""
        self._names = tuple(dict.fromkeys(wanted))
        self._wanted = frozenset(wanted)
        self._index = {name: index for index, name in enumerate(dict.fromkeys(wanted))}
        self._max_age = max_age
        self._layouts: dict[tuple[str, ...], tuple[np.ndarray, np.ndarray]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget every position."""
        size = max(_CAPACITY, len(self._index))
        self._values = np.zeros(size)  # [size]
        self._stamps_ns = np.full(size, _NEVER, np.int64)  # [size]

    def put(self, message: Any, stamp_ns: int) -> bool:
        """Merge the positions of one message that are finite; False when it names no wanted joint."""
        names = tuple(message.name)
        if len(names) != len(message.position):
            return False
        source, target = self._layout(names)
        values = np.asarray(message.position, np.float64)[source]  # [n]
        finite = np.isfinite(values)
        if not finite.all():
            target, values = target[finite], values[finite]
        self._values[target] = values
        self._stamps_ns[target] = stamp_ns
        return not self._wanted.isdisjoint(names)

    def _layout(self, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """position[source] → values[target], both int [n]."""
        if names not in self._layouts:
            for name in names:
                if name not in self._index and len(self._index) < self._values.size:
                    self._index[name] = len(self._index)
            pairs = [(i, self._index[name]) for i, name in enumerate(names) if name in self._index]
            columns = np.array(pairs, np.intp).reshape(-1, 2)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[names] = (columns[:, 0], columns[:, 1])
        return self._layouts[names]

    def positions(self, names: Sequence[str], now_ns: int) -> np.ndarray | None:
        """float64 [J]; None when one of the names was never seen or is too old."""
        if self._late(names, now_ns):
            return None
        return self._values[[self._index[name] for name in names]]

    def wanted(self, now_ns: int) -> dict[str, float]:
        """The position of every joint of the actions that has a recent one."""
        late = set(self._late(self._names, now_ns))
        return {name: float(self._values[self._index[name]]) for name in self._names if name not in late}

    def missing(self, names: Sequence[str], now_ns: int) -> str:
        """Which of the names have no position, in words; empty when all have one."""
        late = self._late(names, now_ns)
        if not late:
            return ""
        there = [name for name, index in self._index.items() if self._stamps_ns[index] != _NEVER]
        words = ", ".join(f"{name} {self._age(name, now_ns)}" for name in late)
        return f"{JOINT_STATES}: {words}; there are {', '.join(there) or 'none'}"

    def _age(self, name: str, now_ns: int) -> str:
        index = self._index.get(name)
        if index is None or self._stamps_ns[index] == _NEVER:
            return "never seen"
        return f"{(now_ns - self._stamps_ns[index]) / NS_PER_S:.2f} s old (at most {self._max_age:g} s)"

    def _late(self, names: Sequence[str], now_ns: int) -> list[str]:
        limit_ns = self._max_age * NS_PER_S
        late = []
        for name in names:
            index = self._index.get(name)
            if index is None or self._stamps_ns[index] == _NEVER or self._is_old(index, now_ns, limit_ns):
                late.append(name)
        return late

    def _is_old(self, index: int, now_ns: int, limit_ns: float) -> bool:
        return bool(now_ns - self._stamps_ns[index] > limit_ns)
