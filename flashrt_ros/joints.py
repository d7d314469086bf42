# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Numbers of the state from JointState messages: matched by name in every message, merged per joint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from flashrt_ros.freshness import too_old
from flashrt_ros.observation import JOINT_STATES
from flashrt_ros.parameters import JointConfig
from flashrt_ros.source_counts import Reason

NEVER: Final = -1
PLURALS: Final = {"position": "positions", "velocity": "velocities", "effort": "efforts"}
_MAX_NAMES = 512  # joints remembered for messages; a driver that invents names must not grow memory
_MAX_LAYOUTS = 16


class MalformedState(ValueError):
    """A message of a state group that cannot be used; `kind` is the counter it goes to."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class _Layout:
    """Where the joints of one list of names go: field[source] → state[target]."""

    source: np.ndarray  # int [n]
    target: np.ndarray  # int [n]


class JointTracker:
    """The newest value of each joint of one state group with its own time. Not thread-safe.

    `joints` gives the order, scale and offset of its numbers; `max_age` is in seconds, stamps and arrivals
    in ns.
    """

    def __init__(
        self,
        joints: Sequence[JointConfig],
        max_age: float,
        where: str = "joint_states",
        *,
        names: Sequence[str] | None = None,
        field: str = "position",
        source: str = JOINT_STATES,
    ) -> None:
        """`names` are those of the messages where `joints` have others, `field` is the one that is read.

        `where` begins every sentence about this group, `source` every key.
        """
        self._names = tuple(names if names is not None else [joint.name for joint in joints])
        self._index = {name: index for index, name in enumerate(self._names)}
        self._scale = np.array([joint.scale for joint in joints])  # [D]
        self._offset = np.array([joint.offset for joint in joints])  # [D]
        self._max_age = max_age
        self._where, self._field, self._source = where, field, source
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._others: dict[str, None] = {}  # names seen that the policy does not use
        self._empty = False  # whether a message came without the field
        self.clear()

    def clear(self) -> None:
        """Forget every value."""
        size = len(self._names)
        self._values = np.zeros(size)  # [D] in the message's units
        # stamp, arrival and number of the message that set each joint; one array: 500 messages a second
        self._times = np.full((3, size), NEVER, dtype=np.int64)  # [3, D]
        self._stamps_ns, self._arrivals_ns, self._messages = self._times  # views, [D]

    def put(self, message: Any, stamp_ns: int, arrival_ns: int, number: int) -> bool:
        """Merge one message, `number` counting up; False when it names no joint of ours. As `read`."""
        found = self.read(message)
        if found is None:
            return False
        self.keep(found, stamp_ns, arrival_ns, number)
        return True

    def read(self, message: Any) -> tuple[_Layout, np.ndarray] | None:
        """What one message has for this group, nothing changed; None when it names none of the joints.

        Only `name` and one field are read (R11). Raises MalformedState when their lengths differ, a name
        comes twice, or a value that is needed is NaN or infinite (R16).
        """
        layout = self._layout(message)
        if layout is None or not layout.source.size:
            return None
        values = np.asarray(getattr(message, self._field), dtype=np.float64)[layout.source]  # [n]
        self._require_finite(values, layout.target)
        return layout, values

    def _require_finite(self, values: np.ndarray, target: np.ndarray) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            bad = ", ".join(
                f"{self._names[index]} = {value}"
                for index, value in zip(target[~finite], values[~finite], strict=True)
            )
            raise MalformedState("non_finite", f"{self._where}: {self._field} of {bad}; message dropped")

    def keep(self, found: tuple[_Layout, np.ndarray], stamp_ns: int, arrival_ns: int, number: int) -> None:
        """Merge what `read` returned."""
        layout, values = found
        self._values[layout.target] = values
        self._times[:, layout.target] = ((stamp_ns,), (arrival_ns,), (number,))

    def _layout(self, message: Any) -> _Layout | None:
        """None for a message without the field, which JointState allows (velocities only)."""
        names = tuple(message.name)
        count = len(getattr(message, self._field))
        if count == 0:
            self._empty = True
            return None
        if len(names) != count:
            what = PLURALS[self._field]
            raise MalformedState(
                "length", f"{self._where}: {len(names)} names but {count} {what}; message dropped"
            )
        layout = self._layouts.get(names)
        if layout is None:
            layout = self._new_layout(names)
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[names] = layout
        return layout

    def _new_layout(self, names: tuple[str, ...]) -> _Layout:
        pairs = [(source, self._index[name]) for source, name in enumerate(names) if name in self._index]
        targets = [target for _, target in pairs]
        twice = sorted({self._names[target] for target in targets if targets.count(target) > 1})
        if twice:
            raise MalformedState(
                "repeated", f"{self._where}: names {', '.join(twice)} more than once; message dropped"
            )
        for name in names:
            if name not in self._index and len(self._others) < _MAX_NAMES:
                self._others[name] = None
        return _Layout(
            np.array([source for source, _ in pairs], dtype=np.intp), np.array(targets, dtype=np.intp)
        )

    def reasons(self, now_ns: int) -> list[Reason]:
        """Why the state is not ready: (sentence, the same without numbers); empty when it is (R13, R15)."""
        seen = self._stamps_ns != NEVER  # [D]
        if not seen.any():
            return [self._none_seen()]
        reasons = []
        if not seen.all():
            missing = ", ".join(name for name, there in zip(self._names, seen, strict=True) if not there)
            there_too = [name for name, there in zip(self._names, seen, strict=True) if there] + list(
                self._others
            )
            reasons.append(
                (
                    f"{self._where}: {missing} never seen; there are {', '.join(there_too)}",
                    f"{self._source}: missing {missing}",
                )
            )
        old = seen & (now_ns - self._stamps_ns > self._max_age * 1e9)
        if old.any():
            names = ", ".join(self._names[index] for index in np.flatnonzero(old))
            worst = int(np.argmin(np.where(old, self._stamps_ns, np.iinfo(np.int64).max)))
            why = too_old(int(self._stamps_ns[worst]), int(self._arrivals_ns[worst]), now_ns, self._max_age)
            which = "" if old.all() else f" of {names}"
            reasons.append((f"{self._where}{which} {why}", f"{self._source}: old{which}"))
        return reasons

    def _none_seen(self) -> Reason:
        there = f"; the messages name {', '.join(self._others)}" if self._others else ""
        if self._empty and not there:
            there = f"; the messages have no {self._field}"
        count = len(self._names)
        return (
            f"{self._where}: none of the {count} joints was ever seen{there}",
            f"{self._source}: never seen",
        )

    def state(self) -> np.ndarray:
        """scale · value + offset, float32 [D] in the policy's order; only meaningful without `reasons`."""
        vector: np.ndarray = self._scale * self._values + self._offset
        return vector.astype(np.float32)

    @property
    def oldest_ns(self) -> int:
        """Stamp of the joint that was heard of longest ago, ns."""
        return int(self._stamps_ns.min())

    def message_numbers(self) -> set[int]:
        """Numbers of the messages that the present state is made of."""
        return {int(number) for number in np.unique(self._messages) if number != NEVER}
