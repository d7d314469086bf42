# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What joint_trajectory_controller of ros2_controllers does with a trajectory, without ROS.

Its rules, with open_loop_control or interpolate_from_desired_state:

* A new trajectory replaces the old one at once. Until its first point the motion runs from the state that is
  commanded when it arrives to that point.
* Between two states the polynomial is of the highest degree that both ends determine: linear for positions
  alone, cubic with velocities, quintic with accelerations too. What was commanded always has all three.
* After the last point its position is held.
* Refused: joints missing or unknown, times that do not grow, a stamped trajectory that is already over, and a
  last velocity other than 0 (unless `allow_nonzero_velocity_at_trajectory_end`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

_REST_VELOCITY = float(np.finfo(np.float32).eps)  # what the controller still takes for 0

Rows: TypeAlias = Sequence[Sequence[float] | np.ndarray] | np.ndarray
State: TypeAlias = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]
"""Position, velocity and acceleration [J]; None where a point has none."""


class TrajectoryError(ValueError):
    """A trajectory that a controller would reject; the text says which field and what would be right."""


class JointTrajectoryController:
    """Accepts trajectories and says what is commanded; seconds of one clock, joints in the order `names`."""

    def __init__(
        self,
        names: Sequence[str],
        start: np.ndarray,
        allow_nonzero_end_velocity: bool = False,
        skip_past_points: bool = False,
    ) -> None:
        """`start` [J] is held until the first trajectory comes.

        `skip_past_points` is not the original's: a trajectory stamped in the past is then entered on the way
        to its next point, where the original jumps to where the motion would be by now.
        """
        self.names = tuple(names)
        self.skip_past_points = skip_past_points
        self.allow_nonzero_end_velocity = allow_nonzero_end_velocity
        zeros = np.zeros(len(self.names))
        self._times: list[float] = [0.0]
        self._polynomials: dict[int, np.ndarray] = {}  # of the segments that were sampled
        self._states: list[State] = [(np.array(start, dtype=np.float64), zeros, zeros)]

    def accept(
        self,
        names: Sequence[str],
        times: Sequence[float] | np.ndarray,
        positions: Rows,
        velocities: Rows | None,
        accelerations: Rows | None,
        now_s: float,
        start_s: float | None = None,
    ) -> None:
        """Replace the trajectory: row k (columns `names`) is due `times[k]` seconds after `start_s`.

        `start_s` None is stamp 0: now. Raises `TrajectoryError`; the old trajectory then goes on.
        """
        order = self._column_order(names)
        width = len(order)
        rows = _checked_rows("positions", positions, width)[:, order]  # [points, J]
        count = len(rows)
        due = _checked_times(times, count) + (now_s if start_s is None else start_s)  # [points]
        speeds = _optional_rows("velocities", velocities, count, order)
        changes = _optional_rows("accelerations", accelerations, count, order)
        self._check_end(speeds)
        if start_s is not None and due[-1] < now_s:
            raise TrajectoryError(
                f"the trajectory ended {now_s - due[-1]:.3f} s ago; use stamp 0 for 'start now'"
            )
        before = self._state(now_s)
        points: list[State] = [
            (rows[k], None if speeds is None else speeds[k], None if changes is None else changes[k])
            for k in range(count)
        ]
        first = min(int((due <= now_s).sum()), count - 1) if self.skip_past_points else 0
        # To a first point that is still to come the motion runs from the state of now.
        lead = [(now_s, before)] if due[first] > now_s else []
        self._times = [time for time, _ in lead] + due[first:].tolist()
        self._states = [state for _, state in lead] + points[first:]
        self._polynomials.clear()

    def sample(self, now_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Commanded position [J] and velocity [J] at `now_s`."""
        position, velocity, _ = self._state(now_s)
        assert velocity is not None, "what is commanded has a velocity"
        return position, velocity

    def _state(self, now_s: float) -> State:
        index = int(np.searchsorted(self._times, now_s, side="right")) - 1
        zeros = np.zeros(len(self.names))
        if index < 0:
            return self._states[0][0].copy(), zeros, zeros
        if index + 1 == len(self._times):
            return self._states[-1][0].copy(), zeros, zeros
        begin_s = self._times[index]
        length_s = self._times[index + 1] - begin_s
        if index not in self._polynomials:
            self._polynomials[index] = _polynomial(self._states[index], self._states[index + 1], length_s)
        coefficients = self._polynomials[index]  # [degree + 1, J]
        degree, share = len(coefficients) - 1, (now_s - begin_s) / length_s
        position, velocity, acceleration = (
            _powers(share, degree, order) @ coefficients / length_s**order for order in range(3)
        )
        return position, velocity, acceleration

    def _column_order(self, names: Sequence[str]) -> list[int]:
        if sorted(names) != sorted(self.names):
            raise TrajectoryError(f"joint_names are {list(names)}; this arm needs exactly {list(self.names)}")
        return [list(names).index(name) for name in self.names]

    def _check_end(self, velocities: np.ndarray | None) -> None:
        if velocities is None or self.allow_nonzero_end_velocity:
            return
        for name, velocity in zip(self.names, velocities[-1], strict=True):
            if abs(velocity) > _REST_VELOCITY:
                raise TrajectoryError(
                    f"the last velocity of {name} is {velocity:g}; it must be 0 (the policy node's parameter "
                    "end_velocity: zero) unless allow_nonzero_velocity_at_trajectory_end is set"
                )


def _polynomial(a: State, b: State, length_s: float) -> np.ndarray:
    """Coefficients [degree + 1, J] of the way from `a` to `b`: powers of the share 0 … 1 of `length_s`."""
    ends: list[tuple[np.ndarray, np.ndarray]] = []  # what both ends say, derivative by derivative
    for order, (begin, end) in enumerate(zip(a, b, strict=True)):
        if begin is None or end is None:
            break
        ends.append((begin * length_s**order, end * length_s**order))
    degree = 2 * len(ends) - 1
    orders = range(len(ends))
    matrix = np.array([_powers(share, degree, order) for share in (0.0, 1.0) for order in orders])
    values = np.array([begin for begin, _ in ends] + [end for _, end in ends])  # [degree + 1, J]
    return np.linalg.solve(matrix, values)


def _powers(share: float, degree: int, order: int) -> np.ndarray:
    """The derivatives of that order of 1, s, …, s^degree at s = `share`: [degree + 1]."""
    row = np.zeros(degree + 1)
    for power in range(order, degree + 1):
        row[power] = math.perm(power, order) * share ** (power - order)
    return row


def _checked_rows(field: str, rows: Rows, width: int) -> np.ndarray:
    if len(rows) == 0:
        raise TrajectoryError("the trajectory has no points; at least one is needed")
    for index, row in enumerate(rows):
        if len(row) != width:
            raise TrajectoryError(f"point {index} has {len(row)} {field} for {width} joint_names")
    values = np.array(rows, dtype=np.float64)  # [points, J]
    if not np.isfinite(values).all():
        bad = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise TrajectoryError(f"point {bad} holds {field} that are not finite")
    return values


def _optional_rows(field: str, rows: Rows | None, count: int, order: list[int]) -> np.ndarray | None:
    if rows is None:
        return None
    if len(rows) != count:
        raise TrajectoryError(f"{len(rows)} {field} for {count} points")
    return _checked_rows(field, rows, len(order))[:, order]


def _checked_times(times_s: Sequence[float] | np.ndarray, count: int) -> np.ndarray:
    times = np.array(times_s, dtype=np.float64)  # [points]
    if len(times) != count:
        raise TrajectoryError(f"{len(times)} times for {count} points")
    if times[0] < 0.0 or (np.diff(times) <= 0.0).any():
        raise TrajectoryError("time_from_start must start at or above 0 and grow from point to point")
    return times
