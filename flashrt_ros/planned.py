# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the motions that are no joint trajectories have in common: a plan, replaced as a whole, and its end.

The methods are those of `JointMotion`, so that whoever executes chunks need not know which one it has.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from flashrt_ros.observation import NS_PER_S


@dataclass(frozen=True)
class Refused:
    """Why a chunk must not be executed; `kind` is what to count it as: non_finite, no_state or jump."""

    kind: str
    reason: str


@dataclass(frozen=True, eq=False)
class Plan(ABC):
    """What is commanded from `times_ns[0]` on; `steps` of a chunk are in it, none in a stop."""

    times_ns: np.ndarray  # int64 [n + 1] of the knots, on the clock of whoever asks; the first is its begin
    steps: int

    @abstractmethod
    def values(self, now_ns: int) -> np.ndarray:
        """What is commanded now, [W]."""

    @abstractmethod
    def velocities(self, now_ns: int) -> np.ndarray:
        """How fast that changes, per s."""

    @property
    def end_ns(self) -> int:
        """When the last step is over."""
        return int(self.times_ns[-1])


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True, eq=False)
class Planned(Generic[P]):
    """A plan that may be executed once `Motion.commit` has agreed.

    clipped: how many of its steps limits changed noticeably, clipped_names: in what.
    version: the state of the motion it continues.
    """

    plan: P
    clipped: int
    clipped_names: tuple[str, ...]
    version: int

    @property
    def points(self) -> int:
        """Of how many steps `clipped` are."""
        return self.plan.steps


class Motion(ABC, Generic[P]):
    """What a group of actions is commanded to do. Safe to use from several threads.

    `plan` (of the classes that derive from this) computes and changes nothing; `commit` makes it what is
    commanded.
    """

    def __init__(self, rate_hz: float) -> None:
        """`rate_hz` is the rate of the steps of a chunk."""
        if not rate_hz > 0.0:
            raise ValueError(f"rate_hz is {rate_hz}; it must be above 0")
        self.rate_hz = rate_hz
        self._lock = threading.Lock()
        self._active: P | None = None  # what is commanded
        self._version = 0

    def commit(self, planned: Planned[P]) -> bool:
        """Execute `planned` from now on.

        False, and nothing changes, when another plan, a stop or a reset came after `plan` began (R33).
        """
        with self._lock:
            if self._is_stale(planned):
                return False
            self._command(planned.plan)
            return True

    def _is_stale(self, planned: Planned[P]) -> bool:
        return planned.version != self._version

    def _command(self, plan: P | None) -> None:
        self._active = plan
        self._version += 1

    def _present(self) -> tuple[P | None, int]:
        with self._lock:
            return self._active, self._version

    def reset(self) -> None:
        """R33: forget the chunk; nothing of it is commanded any more, and what was planned before is void."""
        with self._lock:
            self._command(self._after_reset(self._active))

    @abstractmethod
    def _after_reset(self, plan: P | None) -> P | None:
        """What is commanded after a reset."""

    def command(self, now_ns: int) -> np.ndarray | None:
        """What is commanded now, [W]; None before the first chunk."""
        active = self._active
        return None if active is None else active.values(now_ns)

    def commanded(self, now_ns: int) -> tuple[np.ndarray, np.ndarray] | None:
        """`command` and how fast it changes, per s; None before the first chunk."""
        active = self._active
        return None if active is None else (active.values(now_ns), active.velocities(now_ns))

    def remaining_steps(self, now_ns: int) -> float:
        """Steps of the chunk that are still to come; 0 after its end and after a stop."""
        active = self._active
        if active is None:
            return 0.0
        return min(float(active.steps), max(0.0, (active.end_ns - now_ns) / NS_PER_S * self.rate_hz))

    def consumed_steps(self, now_ns: int) -> float:
        """Steps of the plan that are past; 0 when there is none."""
        active = self._active
        if active is None:
            return 0.0
        past_ns = min(max(0, now_ns - int(active.times_ns[0])), active.end_ns - int(active.times_ns[0]))
        return min(float(active.steps), past_ns / NS_PER_S * self.rate_hz)

    @property
    def end_ns(self) -> int | None:
        """When what is commanded is over, on the clock of `plan`; None before the first chunk."""
        active = self._active
        return None if active is None else active.end_ns

    @property
    def dt_s(self) -> float:
        """Duration of a step, s."""
        return 1.0 / self.rate_hz


def check_rows(targets: np.ndarray, consumed: int, names: tuple[str, ...]) -> np.ndarray:
    """Rows [H, W] of the group with these names, as float64. Raises ValueError for another shape."""
    if targets.ndim != 2 or targets.shape[1] != len(names) or consumed < 0:
        raise ValueError(
            f"targets have shape {targets.shape}, consumed is {consumed}; expected [steps, {len(names)}] "
            "and no negative number"
        )
    return np.asarray(targets, dtype=np.float64)


def check_finite(rows: np.ndarray, names: tuple[str, ...]) -> Refused | None:
    """R42: before anything clips a NaN into a number. The rows of a chunk belong together, past ones too."""
    finite = np.isfinite(rows)
    if finite.all():
        return None
    row, column = np.argwhere(~finite)[0]
    return Refused(
        "non_finite",
        f"{names[column]} in step {row} is {rows[row, column]}; the whole chunk is dropped",
    )


def is_past(horizon: int, consumed: int) -> bool:
    """R36: whether no step of the chunk is left."""
    return consumed >= horizon


def step_times_ns(now_ns: int, steps: int, rate_hz: float) -> np.ndarray:
    """int64 [steps + 1]: now and the ends of the steps."""
    return now_ns + np.rint(np.arange(steps + 1) * (NS_PER_S / rate_hz)).astype(np.int64)


def blend_weights(blend_steps: int, steps: int) -> np.ndarray:
    """How much of the seam's offset each of `steps` targets keeps: below 1, falling, 0 from `blend_steps` on.

    A cubic in the step j, 1 at j = 0 and 0 at j = blend_steps, without slope at both: the velocity of the
    targets is not changed where the blend begins and where it ends, so neither end is a kink.
    """
    share = np.minimum(np.arange(1, steps + 1) / max(1, blend_steps), 1.0)
    return 1.0 - share * share * (3.0 - 2.0 * share)
