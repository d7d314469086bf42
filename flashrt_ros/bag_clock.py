# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""When decisions are due on a bag's clock: the pacing of `DecisionThread` without threads.

A decision occupies its measured wall time on the bag's clock, as it would on the robot: messages that arrive
then wait, and deadlines that pass then are missed. All times in ns.
"""

from __future__ import annotations

from typing import Final, Protocol

from flashrt_ros.observation import NS_PER_S
from flashrt_ros.parameters import NodeConfig


class Pacer(Protocol):
    """`due_ns` is the time of the next decision, None while there is nothing to wait for."""

    due_ns: int | None
    missed: int

    def arrived(self, source: str, at_ns: int) -> None:
        """A message of `source` was put at `at_ns`."""

    def decided(self, began_ns: int, finished_ns: int, made: bool) -> None:
        """A decision was tried; `made` when there was an observation to decide on."""


class TimerPacer:
    """Deadlines on a grid from `start_ns`."""

    def __init__(self, config: NodeConfig, start_ns: int) -> None:
        self.due_ns: int | None = start_ns
        self.missed = 0
        self._period_ns = round(NS_PER_S / config.decision_rate)

    def arrived(self, source: str, at_ns: int) -> None:
        pass

    def decided(self, began_ns: int, finished_ns: int, made: bool) -> None:
        late = (finished_ns - began_ns) // self._period_ns
        self.missed += late
        self.due_ns = began_ns + (late + 1) * self._period_ns


class CameraPacer:
    """One decision per image of the trigger camera; images that come during a decision make one more."""

    def __init__(self, config: NodeConfig, start_ns: int) -> None:
        self.due_ns: int | None = None
        self.missed = 0
        self._camera = config.trigger_camera
        self._free_ns = start_ns

    def arrived(self, source: str, at_ns: int) -> None:
        if source == self._camera and self.due_ns is None:
            self.due_ns = max(at_ns, self._free_ns)

    def decided(self, began_ns: int, finished_ns: int, made: bool) -> None:
        self.due_ns, self._free_ns = None, finished_ns


class FreePacer:
    """The next decision begins when the last one ended; without an observation, at the next message."""

    def __init__(self, config: NodeConfig, start_ns: int) -> None:
        self.due_ns: int | None = start_ns
        self.missed = 0

    def arrived(self, source: str, at_ns: int) -> None:
        if self.due_ns is None:
            self.due_ns = at_ns

    def decided(self, began_ns: int, finished_ns: int, made: bool) -> None:
        self.due_ns = finished_ns if made else None


class ConsumedPacer:
    """The next decision begins when a robot has consumed `replan_after` steps of the last; without an
    observation, after a period of `decision_rate`."""

    def __init__(self, config: NodeConfig, start_ns: int) -> None:
        self.due_ns: int | None = start_ns
        self.missed = 0
        self._idle_ns = round(NS_PER_S / config.decision_rate)
        self._steps_ns = round(NS_PER_S * config.replan_after / config.action_rate_hz)

    def arrived(self, source: str, at_ns: int) -> None:
        pass

    def decided(self, began_ns: int, finished_ns: int, made: bool) -> None:
        self.due_ns = finished_ns + self._steps_ns if made else began_ns + self._idle_ns


PACERS: Final[dict[str, type[TimerPacer] | type[CameraPacer] | type[FreePacer] | type[ConsumedPacer]]] = {
    "timer": TimerPacer,
    "camera": CameraPacer,
    "free": FreePacer,
    "consumed": ConsumedPacer,
}
"""`trigger` → its pacing."""
