# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Joint trajectories as cubic controllers follow them: knots with positions and velocities. NumPy only.

Between two knots the motion is the cubic that has both positions and both velocities (Hermite). That is what
joint_trajectory_controller makes of points with velocities, so what is planned here is what is executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from flashrt_ros.observation import NS_PER_S

EndVelocity = Literal["zero", "free"]
"""How a trajectory ends: at rest, or with the velocity that a natural spline has there."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """Where the joints are to be from `start_ns` (monotonic clock) on; units are the joints' own.

    Knot 0 is the commanded state at `start_ns`: it is not sent, the controller continues from it by itself.
    """

    start_ns: int
    times_s: np.ndarray  # float64 [n + 1], seconds after start_ns; [0] is 0, strictly growing
    positions: np.ndarray  # float64 [n + 1, J]
    velocities: np.ndarray  # float64 [n + 1, J], per second

    @property
    def end_ns(self) -> int:
        """When the last knot is due, ns on the monotonic clock."""
        return self.start_ns + round(float(self.times_s[-1]) * NS_PER_S)

    @property
    def times_ns(self) -> np.ndarray:
        """`time_from_start` of the points to send, knots 1 to n: int64 [n]."""
        rounded: np.ndarray = np.rint(self.times_s[1:] * NS_PER_S).astype(np.int64)
        return rounded

    def at(self, now_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """Position [J] and velocity [J] at `now_ns`: knot 0 before the start, at rest after the end."""
        time_s = (now_ns - self.start_ns) / NS_PER_S
        times = self.times_s
        if time_s <= 0.0:
            return self.positions[0].copy(), self.velocities[0].copy()
        if time_s >= times[-1]:
            return self.positions[-1].copy(), np.zeros(self.positions.shape[1])
        index = int(times.searchsorted(time_s, side="right")) - 1
        length_s = times[index + 1] - times[index]
        share = (time_s - times[index]) / length_s
        return hermite(
            share,
            length_s,
            self.positions[index],
            self.velocities[index],
            self.positions[index + 1],
            self.velocities[index + 1],
        )


def hermite(
    share: np.ndarray | float,
    length_s: np.ndarray | float,
    begin: np.ndarray,
    begin_velocity: np.ndarray,
    end: np.ndarray,
    end_velocity: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Position and velocity on a cubic of `length_s` seconds at `share` (0 … 1) of it; all broadcast."""
    rest = 1.0 - share
    moved = end - begin
    bump = share * rest
    position = (
        begin
        + share * share * (3.0 - 2.0 * share) * moved
        + bump * length_s * (rest * begin_velocity - share * end_velocity)
    )
    velocity = (
        6.0 * bump / length_s * moved
        + rest * (1.0 - 3.0 * share) * begin_velocity
        + share * (3.0 * share - 2.0) * end_velocity
    )
    return position, velocity


def knot_velocities(positions: np.ndarray, dt: float, v0: np.ndarray, end: EndVelocity) -> np.ndarray:
    """Velocities [n + 1, J] of the cubic spline through `positions` [n + 1, J], `dt` seconds apart, n ≥ 1.

    It begins with velocity `v0` [J] and has a continuous acceleration inside. It ends with velocity 0
    (`end` "zero") or with acceleration 0 ("free"). Everything is linear in positions and v0, and the matrix
    depends on n alone, so its inverse is kept.
    """
    count = len(positions) - 1
    velocities = np.empty_like(positions)
    velocities[0] = v0
    right = np.empty((count, positions.shape[1]))  # [n, J], right-hand sides of velocities 1 to n
    if count > 1:
        right[:-1] = (3.0 / dt) * (positions[2:] - positions[:-2])
    right[-1] = 0.0 if end == "zero" else (3.0 / dt) * (positions[-1] - positions[-2])
    # With one interval and a given end velocity the only equation is v1 = 0: nothing of v0 in it.
    if count > 1 or end == "free":
        right[0] -= v0
    np.matmul(_inverse(count, end), right, out=velocities[1:])
    if end == "zero":
        velocities[-1] = 0.0  # exactly: controllers compare
    return velocities


@lru_cache(maxsize=256)
def _inverse(count: int, end: EndVelocity) -> np.ndarray:
    """Inverse [n, n] of the spline's equations for velocities 1 to n; velocity 0 is known."""
    matrix = 4.0 * np.eye(count) + np.eye(count, k=1) + np.eye(count, k=-1)
    matrix[-1] = 0.0
    if end == "zero":
        matrix[-1, -1] = 1.0
    else:  # no acceleration: v[n-1] + 2 v[n] = 3 · slope of the last interval
        matrix[-1, -1] = 2.0
        if count > 1:
            matrix[-1, -2] = 1.0
    inverse = np.linalg.inv(matrix)
    inverse.setflags(write=False)  # shared between all callers
    return inverse
