# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Action groups that are velocities, as motions: of joints, of a base, of an end effector (steps per time).

NumPy and SciPy only, no ROS types; times in ns are of the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from flashrt_ros.groups import ActionGroup
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.planned import (
    Motion,
    Plan,
    Planned,
    Refused,
    check_finite,
    check_rows,
    is_past,
    step_times_ns,
)
from flashrt_ros.rotations import rotation_of

StopAction = Literal["hold", "decelerate"]

_NOTICEABLE = 1e-3  # per s: what limits changed by less is not counted
_LINEAR: Final = {"base": slice(0, 2), "eef_delta": slice(0, 3)}
_ANGULAR: Final = {"base": slice(2, 3), "eef_delta": slice(3, 6)}


@dataclass(frozen=True, eq=False)
class RatePlan(Plan):
    """Rates [n + 1, W] that begin at the times; the last ones, held after the end, are 0.

    ramp: they are reached evenly; otherwise each is held until the next one's time.
    """

    rates: np.ndarray
    ramp: bool = False

    def values(self, now_ns: int) -> np.ndarray:
        """The rates now, [W]: never one of the chunk after its end."""
        index, share = self._place(now_ns)
        if not self.ramp or index + 1 == len(self.rates):
            return self.rates[index].copy()
        return (1.0 - share) * self.rates[index] + share * self.rates[index + 1]

    def velocities(self, now_ns: int) -> np.ndarray:
        """How fast the rates change, [W] per s; 0 while they are held."""
        index, _ = self._place(now_ns)
        if not self.ramp or index + 1 == len(self.rates):
            return np.zeros(self.rates.shape[1])
        seconds = (self.times_ns[index + 1] - self.times_ns[index]) / NS_PER_S
        return (self.rates[index + 1] - self.rates[index]) / seconds

    def _place(self, now_ns: int) -> tuple[int, float]:
        """The knot that began last, and the share of the way to the next one."""
        index = max(0, int(np.searchsorted(self.times_ns, now_ns, side="right")) - 1)
        if index + 1 == len(self.times_ns):
            return index, 0.0
        length = self.times_ns[index + 1] - self.times_ns[index]
        return index, float(np.clip((now_ns - self.times_ns[index]) / length, 0.0, 1.0))


class RateMotion(Motion[RatePlan]):
    """Commanded velocities, for joint_velocity, base, and eef_delta with an output of twists.

    Each row of a chunk is held for one step, and after the last one the rate is 0: none is held beyond its
    chunk. A step of eef_delta becomes the twist (m/s, rad/s) that makes it in the time of a step. Where a
    chunk replaces another the rate may jump: within its limits, as from row to row.
    """

    def __init__(
        self, group: ActionGroup, rate_hz: float, limits: bool, max_velocity: np.ndarray | None = None
    ) -> None:
        """limits: keep to the speeds of `group`, and for joint_velocity to `max_velocity` [J], per s."""
        super().__init__(rate_hz)
        self.group = group
        self._limits = limits
        self._max_velocity = None if max_velocity is None else np.asarray(max_velocity, dtype=np.float64)
        if self._max_velocity is not None and self._max_velocity.shape != (len(group.names),):
            raise ValueError(
                f"max_velocity has shape {self._max_velocity.shape}; expected one of each of the "
                f"{len(group.names)} joints of group {group.name}"
            )

    def plan(
        self, targets: np.ndarray, consumed: int, now_ns: int, measured: np.ndarray | None = None
    ) -> Planned[RatePlan] | Refused | None:
        """Row consumed + j − 1 of `targets` [H, W] until j steps after `now_ns`; `measured` is not needed.

        None when all rows are past (R36).
        """
        rows = check_rows(targets, consumed, self.group.names)
        refused = check_finite(rows, self.group.names)
        if refused is not None:
            return refused
        if is_past(len(rows), consumed):
            return None
        _, version = self._present()
        wanted = self._rates(rows[consumed:])
        rates = self._limit(wanted)
        changed = np.abs(rates - wanted) > _NOTICEABLE  # [n, W]
        names = tuple(self.group.names[column] for column in np.flatnonzero(changed.any(axis=0)))
        plan = RatePlan(step_times_ns(now_ns, len(rates), self.rate_hz), len(rates), _ending(rates))
        return Planned(plan, int(changed.any(axis=1).sum()), names, version)

    def _rates(self, rows: np.ndarray) -> np.ndarray:
        """Rows [n, W] → rates [n, W] per s."""
        if self.group.space != "eef_delta":
            return rows
        turns = rotation_of(rows[:, 3:], self.group.rotation).as_rotvec()  # [n, 3]
        return np.concatenate([rows[:, :3], turns], axis=1) * self.rate_hz

    def _limit(self, rates: np.ndarray) -> np.ndarray:
        """R41: rates [n, W] within the speed limits, in their own directions."""
        if not self._limits:
            return rates
        limited = rates.copy()
        if self._max_velocity is not None:
            limited *= _slower(np.abs(rates) / self._max_velocity)
        for parts, limit in ((_LINEAR, "max_linear_velocity"), (_ANGULAR, "max_angular_velocity")):
            fastest = getattr(self.group, limit)
            if fastest is not None and self.group.space in parts:
                part = parts[self.group.space]
                speeds = np.linalg.norm(rates[:, part], axis=1, keepdims=True)  # [n, 1]
                limited[:, part] *= _slower(speeds / fastest)
        return limited

    def _after_reset(self, plan: RatePlan | None) -> RatePlan | None:
        """Standing still: a robot goes on with a velocity until it is told another one."""
        return None if plan is None else RatePlan(plan.times_ns[:1], 0, np.zeros_like(plan.rates[:1]))

    def stop(self, now_ns: int, action: StopAction, stop_time_s: float) -> RatePlan | None:
        """R40: "hold": no velocity from now on; "decelerate": evenly to none within `stop_time_s`.

        Executed at once. None when there is no motion of ours to stop.
        """
        if not stop_time_s > 0.0:
            raise ValueError(f"stop_time_s is {stop_time_s}; it must be above 0")
        with self._lock:
            if self._active is None:
                return None
            plan = _STOPS[action](self._active.values(now_ns), now_ns, stop_time_s)
            self._command(plan)
            return plan


def _ending(rates: np.ndarray) -> np.ndarray:
    """Rates [n, W] and 0 behind them, [n + 1, W]: a velocity ends with its chunk."""
    return np.concatenate([rates, np.zeros_like(rates[:1])])


def _slower(loads: np.ndarray) -> np.ndarray:
    """Shares of limits that rows use, [n, k] → a factor for each row, [n, 1], that keeps the largest at 1."""
    return 1.0 / np.maximum(loads.max(axis=1, keepdims=True), 1.0)


def _hold(rates: np.ndarray, now_ns: int, stop_time_s: float) -> RatePlan:
    return RatePlan(np.array([now_ns], np.int64), 0, np.zeros((1, len(rates))))


def _decelerate(rates: np.ndarray, now_ns: int, stop_time_s: float) -> RatePlan:
    times_ns = now_ns + np.array([0, round(stop_time_s * NS_PER_S)], np.int64)
    return RatePlan(times_ns, 0, _ending(rates[None]), ramp=True)


_STOPS: Final[dict[str, Callable[[np.ndarray, int, float], RatePlan]]] = {
    "hold": _hold,
    "decelerate": _decelerate,
}
