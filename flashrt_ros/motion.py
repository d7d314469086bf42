# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The one path of every motion: action targets → trajectories within limits that continue what is commanded.

Everything begins at the state that is commanded now, so position and velocity never jump where one trajectory
replaces another. NumPy only, no ROS types; times in ns are of the monotonic clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flashrt_ros.braking import brake_times, merged_times, rest_curves
from flashrt_ros.limits import JointLimits, Limited, limit
from flashrt_ros.observation import NS_PER_S
from flashrt_ros.planned import Refused, blend_weights
from flashrt_ros.trajectory import EndVelocity, Trajectory

StopAction = Literal["hold", "decelerate"]

_STOP_GRID_S = 0.02  # so that a controller without cubics still slows down, not only stops


@dataclass(frozen=True, eq=False)
class Planned:
    """A trajectory that may be sent, once `JointMotion.commit` has agreed.

    `offset` [J] is how far the commanded motion was from the first target; it is blended out. `clipped`
    counts the targets [n, J] that limits changed by more than 5 % of the joint's range, or of
    max_velocity · dt; `clipped_names` are their joints and `excess` [J] is the largest change in units of
    that. `version` is the state of the motion it continues.
    """

    trajectory: Trajectory
    clipped: int
    clipped_names: tuple[str, ...]
    excess: np.ndarray
    offset: np.ndarray
    version: int


class JointMotion:
    """What a group of joints is commanded to do. Safe to use from several threads.

    `plan` computes and changes nothing; `commit` makes a plan the commanded motion, unless something else
    was commanded or forgotten in between. Whoever sends trajectories must commit and send, or stop and send,
    under one lock of its own: otherwise a plan could be sent behind the stop that made it invalid.
    """

    def __init__(
        self,
        names: Sequence[str],
        limits: JointLimits,
        rate_hz: float,
        blend_steps: int,
        end_velocity: EndVelocity,
    ) -> None:
        """`limits` are of the joints `names`, in that order; `rate_hz` is the rate of the steps of a chunk.

        `blend_steps` is the number of the step from which on targets are executed as they are, 0 and 1: all.
        """
        if limits.names != tuple(names):
            raise ValueError(f"limits are of {', '.join(limits.names)}; expected {', '.join(names)}")
        if not rate_hz > 0.0 or blend_steps < 0:
            raise ValueError(f"rate_hz {rate_hz} must be above 0 and blend_steps {blend_steps} not below")
        self.names = tuple(names)
        self.limits = limits
        self.dt_s = 1.0 / rate_hz
        self._end_velocity: EndVelocity = end_velocity
        self._weights = blend_weights(blend_steps, blend_steps)  # [blend_steps]
        self._lock = threading.Lock()
        # Trajectories never change, so reading which one it is needs no lock.
        self._active: Trajectory | None = None  # what plans continue
        self._sent: Trajectory | None = None  # what the robot was told last; outlives `reset`
        self._version = 0

    def plan(
        self, targets: np.ndarray, consumed: int, now_ns: int, measured: np.ndarray | None
    ) -> Planned | Refused | None:
        """From now on through `targets` [H, J]: row consumed + j − 1 is due j steps after `now_ns`.

        Begins at the commanded state, or at rest where the joints were `measured` [J] when nothing is
        commanded. None when all rows are past (R36).
        """
        if targets.ndim != 2 or targets.shape[1] != len(self.names) or consumed < 0:
            raise ValueError(
                f"targets have shape {targets.shape}, consumed is {consumed}; "
                f"expected [steps, {len(self.names)}] and no negative number"
            )
        refused = self._check_finite(targets)
        if refused is not None:
            return refused
        rows = self._due(targets, consumed)  # [n, J]
        if not len(rows):
            return None
        with self._lock:
            active, version = self._active, self._version
        start = self._start(active, now_ns, measured)
        if isinstance(start, Refused):
            return start
        position, velocity = start
        refused = self._check_jump(rows[0], position)
        if refused is not None:
            return refused
        offset = self._continuation(active, position, now_ns) - rows[0]  # [J]
        limited = self._limit(position, velocity, self._blend(rows, offset))
        return Planned(
            Trajectory(now_ns, limited.times_s, limited.positions, limited.velocities),
            clipped=int(limited.counts.sum()),
            clipped_names=tuple(self.names[j] for j in np.flatnonzero(limited.counts)),
            excess=limited.excess,
            offset=offset,
            version=version,
        )

    def _check_finite(self, targets: np.ndarray) -> Refused | None:
        """R42: before anything clips a NaN into a number. Past rows count too, a chunk is one whole."""
        finite = np.isfinite(targets)
        if finite.all():
            return None
        row, joint = np.argwhere(~finite)[0]
        return Refused(
            "non_finite",
            f"target of {self.names[joint]} in step {row} is {targets[row, joint]}; "
            "the whole chunk is dropped",
        )

    def _due(self, targets: np.ndarray, consumed: int) -> np.ndarray:
        """R36: the rows [n, J] that are not past."""
        return np.asarray(targets[consumed:], dtype=np.float64)

    def _start(
        self, active: Trajectory | None, now_ns: int, measured: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray] | Refused:
        """R37: the state [J], [J] that the controller has when it gets the trajectory."""
        if active is not None:
            return active.at(now_ns)
        if measured is None or not np.isfinite(measured).all():
            return Refused("no_state", "nothing is commanded and no position is measured to begin from")
        return np.array(measured, dtype=np.float64), np.zeros(len(self.names))

    def _check_jump(self, first: np.ndarray, position: np.ndarray) -> Refused | None:
        """R41: a first target [J] that far from the commanded position [J] is no continuation of it."""
        jump = np.abs(first - position)
        beyond = jump > self.limits.max_jump
        if not beyond.any():
            return None
        return Refused(
            "jump",
            "; ".join(
                f"{self.names[j]} would jump by {jump[j]:.4g}, from {position[j]:.4g} (commanded) to "
                f"{first[j]:.4g}; max_jump allows {self.limits.max_jump[j]:.4g}, from "
                f"{position[j] - self.limits.max_jump[j]:.4g} to {position[j] + self.limits.max_jump[j]:.4g}"
                for j in np.flatnonzero(beyond)
            ),
        )

    def _continuation(self, active: Trajectory | None, position: np.ndarray, now_ns: int) -> np.ndarray:
        """Where the commanded motion would be when the first target is due: [J]."""
        return position if active is None else active.at(now_ns + round(self.dt_s * NS_PER_S))[0]

    def _blend(self, rows: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """R30: rows [n, J] that begin near the commanded motion and are the targets from `blend_steps` on."""
        count = min(len(rows), len(self._weights))
        blended = rows.copy()
        blended[:count] += self._weights[:count, None] * offset
        return blended

    def _limit(self, position: np.ndarray, velocity: np.ndarray, rows: np.ndarray) -> Limited:
        """R41, R37, R38: knots within the limits, with velocities, from the commanded state on."""
        return limit(position, velocity, rows, self.dt_s, self.limits, self._end_velocity)

    def commit(self, planned: Planned) -> bool:
        """`planned` is what is commanded from now on; call it just before sending.

        False, and then it must not be sent, when another plan, a stop or a reset came after `plan` began.
        """
        with self._lock:
            if planned.version != self._version:
                return False
            self._command(planned.trajectory)
            return True

    def _command(self, trajectory: Trajectory) -> None:
        self._active = self._sent = trajectory
        self._version += 1

    def commanded(self, now_ns: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Position [J] and velocity [J] that are commanded; None when nothing is, or all was forgotten."""
        active = self._active
        return None if active is None else active.at(now_ns)

    def reset(self) -> None:
        """R33: forget what was commanded: the next plan begins at the measured position, older ones are void.

        Sends nothing: a robot that still moves goes on with what it has, so `stop` first.
        """
        with self._lock:
            self._active = None
            self._version += 1

    def stop(self, now_ns: int, action: StopAction, stop_time_s: float) -> Trajectory | None:
        """R40: from the commanded state to rest within `stop_time_s`, as the commanded motion from now on.

        "hold" goes back to the position commanded now, "decelerate" slows down evenly. Both stay within the
        position limits. After `reset` it still stops a motion that was sent before and is not over. None when
        there is no motion of ours to stop.
        """
        if not stop_time_s > 0.0:
            raise ValueError(f"stop_time_s is {stop_time_s}; it must be above 0")
        with self._lock:
            current = self._active
            if current is None and self._sent is not None and now_ns < self._sent.end_ns:
                current = self._sent
            if current is None:
                return None
            position, velocity = current.at(now_ns)
            times, positions, velocities = _STOPS[action](self, position, velocity, stop_time_s)
            trajectory = Trajectory(now_ns, times, positions, velocities)
            self._command(trajectory)
            return trajectory

    def _stop_times(
        self, position: np.ndarray, velocity: np.ndarray, within_s: float, share: float
    ) -> np.ndarray:
        """Duration of the stop of each joint, s [J]; `share` as in `brake_times`."""
        limits = self.limits
        return brake_times(
            position,
            velocity,
            limits.lower,
            limits.upper,
            limits.max_velocity,
            self.dt_s,
            within_s,
            share,
        )

    def lag(self, measured: np.ndarray, now_ns: int) -> np.ndarray | None:
        """R39: commanded minus `measured`, [J]; None when nothing is commanded."""
        state = self.commanded(now_ns)
        return None if state is None else state[0] - measured

    @property
    def end_ns(self) -> int | None:
        """When what is commanded is over; None when nothing is."""
        active = self._active
        return None if active is None else active.end_ns

    def remaining_steps(self, now_ns: int) -> float:
        """Steps of the commanded trajectory that are still to come; 0 when there is none."""
        active = self._active
        return 0.0 if active is None else max(0.0, (active.end_ns - now_ns) / NS_PER_S / self.dt_s)

    def consumed_steps(self, now_ns: int) -> float:
        """Steps of the commanded trajectory that are past; 0 when there is none."""
        active = self._active
        if active is None:
            return 0.0
        past_ns = min(max(0, now_ns - active.start_ns), active.end_ns - active.start_ns)
        return past_ns / NS_PER_S / self.dt_s


_Knots = tuple[np.ndarray, np.ndarray, np.ndarray]


def _hold(motion: JointMotion, position: np.ndarray, velocity: np.ndarray, stop_time_s: float) -> _Knots:
    """Back to `position` within a step, in one knot unless a limit is near.

    The way there swings out by 4/27 · velocity · time and never moves faster than it does now. In one step a
    plan within the velocity limit can turn a velocity round too: this brakes no harder.
    """
    within_s = min(stop_time_s, motion.dt_s)
    durations = motion._stop_times(position, velocity, within_s, 4.0 / 27.0)  # [J]
    times = merged_times(durations, np.array([within_s]))
    return _with_start(times, position, velocity, position, durations)


def _decelerate(
    motion: JointMotion, position: np.ndarray, velocity: np.ndarray, stop_time_s: float
) -> _Knots:
    """Constant deceleration within `stop_time_s`, shorter for joints that are near a limit."""
    durations = motion._stop_times(position, velocity, stop_time_s, 0.5)  # [J]
    grid = np.arange(_STOP_GRID_S, stop_time_s, _STOP_GRID_S)
    times = merged_times(durations, grid, np.array([stop_time_s]))
    return _with_start(times, position, velocity, position + 0.5 * durations * velocity, durations)


def _with_start(
    times: np.ndarray, position: np.ndarray, velocity: np.ndarray, end: np.ndarray, durations: np.ndarray
) -> _Knots:
    times = np.concatenate([[0.0], times])
    return times, *rest_curves(times, position, velocity, end, durations)


_STOPS: dict[str, Callable[[JointMotion, np.ndarray, np.ndarray, float], _Knots]] = {
    "hold": _hold,
    "decelerate": _decelerate,
}
