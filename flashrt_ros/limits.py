# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Position, velocity and jump limits of joints, and plans that keep them between the knots too. NumPy only.

A cubic lies within the hull of its Bézier points, and so does its velocity. With k = a third of an interval:

    position   q0,   q0 + k·v0,   q1 − k·v1,   q1
    velocity   v0,   (q1 − q0)/k − v0 − v1,   v1

When these points are within the limits, so is everything a cubic controller commands between the knots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashrt_ros.braking import brake_times, merged_times, rest_curves
from flashrt_ros.trajectory import EndVelocity, hermite, knot_velocities
from flashrt_ros.urdf import limits_from_urdf

__all__ = ["JointLimits", "Limited", "limit", "limits_from_urdf", "violations"]

TOLERANCE = 1e-9  # rounding, in units of the joints: far below what any robot resolves
CLIPPED_SHARE = 0.05  # of the range (positions) and of what max_velocity allows in a step: below, not counted


@dataclass(frozen=True, eq=False)
class JointLimits:
    """Limits of joints `names`, float64 [J] each, in the joints' units; inf (−inf for `lower`) means none.

    `max_velocity` is per second; `max_jump` is the largest distance between the commanded position and the
    first target of a chunk. Raises ValueError naming the joint when a limit cannot be kept.
    """

    names: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    max_velocity: np.ndarray
    max_jump: np.ndarray

    def __post_init__(self) -> None:
        for field in ("lower", "upper", "max_velocity", "max_jump"):
            values = np.array(getattr(self, field), dtype=np.float64)
            if values.shape != (len(self.names),):
                raise ValueError(f"{field} has shape {values.shape} for {len(self.names)} joints")
            values.setflags(write=False)
            object.__setattr__(self, field, values)
        for fault, wrong in (
            ("lower must be below upper", ~(self.lower < self.upper)),
            ("max_velocity must be above 0", ~(self.max_velocity > 0.0)),
            ("max_jump must be above 0", ~(self.max_jump > 0.0)),
        ):
            if wrong.any():
                j = int(np.flatnonzero(wrong)[0])
                raise ValueError(
                    f"limits of {self.names[j]}: {fault}; they are lower {self.lower[j]:g}, upper "
                    f"{self.upper[j]:g}, max_velocity {self.max_velocity[j]:g}, max_jump {self.max_jump[j]:g}"
                )

    @classmethod
    def off(cls, names: Sequence[str]) -> JointLimits:
        """No limits at all: the explicit way out of them."""
        none = np.full(len(names), np.inf)
        return cls(tuple(names), -none, none, none, none)

    def of(self, columns: np.ndarray) -> JointLimits:
        """The limits of some joints; `columns` are indices [j] or a mask [J]."""
        names = tuple(np.array(self.names, dtype=object)[columns])
        return JointLimits(
            names,
            self.lower[columns],
            self.upper[columns],
            self.max_velocity[columns],
            self.max_jump[columns],
        )


@dataclass(frozen=True, eq=False)
class Limited:
    """Knots within the limits; `times_s` [m], `positions` and `velocities` [m, J], knot 0 is the start.

    Knots beside the steps' own appear in the first step when joints must brake at once. `excess` [J] is the
    largest change to a target in units of what counts as clipped (5 % of the joint's range where a position
    limit changed it, 5 % of max_velocity · dt where the velocity limit did), `counts` int [J] how many of the
    targets were clipped: changed by more than that.
    """

    times_s: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray
    excess: np.ndarray
    counts: np.ndarray


def limit(
    position: np.ndarray,
    velocity: np.ndarray,
    targets: np.ndarray,
    dt: float,
    limits: JointLimits,
    end: EndVelocity,
) -> Limited:
    """The motion from `position`, `velocity` [J] through `targets` [n, J], `dt` apart, within the limits.

    Where nothing is to be changed this is the spline of `knot_velocities`. A start beyond a limit is brought
    back without ever going further out than its own velocity carries it. All inputs must be finite.
    """
    wanted = np.minimum(np.maximum(targets, limits.lower), limits.upper)  # [n, J]
    positions = np.concatenate([position[None, :], wanted])  # [n + 1, J]
    velocities = knot_velocities(positions, dt, velocity, end)
    times = dt * np.arange(len(positions))
    extra = None
    bad = violations(positions, velocities, dt, limits)  # [J]
    if bad.any():
        columns = np.flatnonzero(bad)
        limits_of_bad = limits.of(columns)
        stops = _stops(position[columns], velocity[columns], dt, limits_of_bad)
        positions[:, columns], velocities[:, columns] = _walk(
            positions[:, columns], velocities[:, columns], dt, limits_of_bad, end, stops
        )
        if stops.any:
            extra = _knots_of_stops(positions[:2], velocities[:2], dt, columns, stops)
    excess, counts = _excess(targets, wanted, positions[1:], dt, limits)
    if extra is not None:
        times = np.concatenate([times[:1], extra[0], times[1:]])
        positions = np.concatenate([positions[:1], extra[1], positions[1:]])
        velocities = np.concatenate([velocities[:1], extra[2], velocities[1:]])
    return Limited(times, positions, velocities, excess, counts)


def violations(positions: np.ndarray, velocities: np.ndarray, dt: float, limits: JointLimits) -> np.ndarray:
    """Which joints leave their limits, bool [J], on the cubics through knots [n + 1, J] that are `dt` apart.

    After every knot there must also be room to stop within one step, so that a later plan has it too.
    """
    third = dt / 3.0
    ways = third * velocities  # [n + 1, J]
    middle = (positions[1:] - positions[:-1]) / third - velocities[:-1] - velocities[1:]
    places = np.concatenate([positions, positions + ways, positions[1:] - ways[1:]])
    speeds = np.concatenate([velocities, middle])
    bad: np.ndarray = (
        (places.min(axis=0) < limits.lower - TOLERANCE)
        | (places.max(axis=0) > limits.upper + TOLERANCE)
        | (np.abs(speeds).max(axis=0) > limits.max_velocity + TOLERANCE)
    )
    return bad


@dataclass(frozen=True, eq=False)
class _Stops:
    """Joints that must brake within the first step: `which` bool [J], after `times` s at `positions` [J]."""

    which: np.ndarray
    times: np.ndarray
    positions: np.ndarray

    @property
    def any(self) -> bool:
        return bool(self.which.any())


def _stops(position: np.ndarray, velocity: np.ndarray, dt: float, limits: JointLimits) -> _Stops:
    """Joints so close to a limit that no cubic of one whole step keeps them inside.

    It happens when the plan before was left in the middle of a step in which it slowed down towards a limit.
    """
    ahead = position + velocity * (dt / 3.0)
    which = ((ahead > limits.upper + TOLERANCE) & (velocity > 0.0)) | (
        (ahead < limits.lower - TOLERANCE) & (velocity < 0.0)
    )
    times = brake_times(position, velocity, limits.lower, limits.upper, limits.max_velocity, dt, dt)
    return _Stops(which, times, position + 0.5 * times * velocity)


def _knots_of_stops(
    positions: np.ndarray, velocities: np.ndarray, dt: float, columns: np.ndarray, stops: _Stops
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Knots inside the first step, whose ends are `positions` and `velocities` [2, J].

    Returns times [m], positions and velocities [m, J]. The joints `columns[stops.which]` brake there; the
    others keep their cubic, cut in pieces.
    """
    braking = columns[stops.which]
    times = merged_times(stops.times[stops.which], np.array([dt]))[:-1]  # [m]
    cut = hermite((times / dt)[:, None], dt, positions[0], velocities[0], positions[1], velocities[1])
    cut[0][:, braking], cut[1][:, braking] = rest_curves(
        times,
        positions[0, braking],
        velocities[0, braking],
        stops.positions[stops.which],
        stops.times[stops.which],
    )
    return times, cut[0], cut[1]


def _walk(
    positions: np.ndarray,
    velocities: np.ndarray,
    dt: float,
    limits: JointLimits,
    end: EndVelocity,
    stops: _Stops,
) -> tuple[np.ndarray, np.ndarray]:
    """Step by step, the knots [n + 1, J] within the limits that are closest to those given.

    Positions come first, then velocities: whatever the start, standing still within a step is allowed, so the
    intervals below are never empty.
    """
    third, last = dt / 3.0, len(positions) - 1
    kept_q, kept_v = positions.copy(), velocities.copy()
    up, down = limits.max_velocity, -limits.max_velocity
    outside = True  # until it is known better; once inside, a joint stays inside
    for j in range(1, last + 1):
        q, v = kept_q[j - 1], kept_v[j - 1]
        ahead = q + third * v
        high, low = np.maximum(limits.upper, ahead), np.minimum(limits.lower, ahead)
        if outside:
            # Beyond a limit the motion goes back only, and the way back is free.
            above, below = q > limits.upper + TOLERANCE, q < limits.lower - TOLERANCE
            outside = bool((above | below).any())
            up, down = np.where(above, 0.0, limits.max_velocity), np.where(below, 0.0, -limits.max_velocity)
            high, low = np.maximum(high, q), np.minimum(low, q)
        end_up, end_down = (0.0, 0.0) if j == last and end == "zero" else (up, down)

        farthest, nearest = ahead + third * up, ahead + third * down
        most = np.minimum(np.minimum(high, farthest + third * end_up), 0.5 * (high + farthest))
        least = np.maximum(np.maximum(low, nearest + third * end_down), 0.5 * (low + nearest))
        target = positions[j]
        reached = np.minimum(np.maximum(target, least), most)

        following = positions[min(j + 1, last)]
        wish = np.where(reached == target, velocities[j], (following - q) * (0.5 / dt))
        slope = (reached - q) / third - v
        room = np.minimum(high - reached, reached - low) / third
        v_most = np.minimum(np.minimum(end_up, room), slope - down)
        v_least = np.maximum(np.maximum(end_down, -room), slope - up)
        kept_q[j], kept_v[j] = reached, np.minimum(np.maximum(wish, v_least), v_most)
        if j == 1 and stops.any:
            kept_q[j] = np.where(stops.which, stops.positions, kept_q[j])
            kept_v[j] = np.where(stops.which, 0.0, kept_v[j])
            outside = True  # the hardest stop may have ended there
    if end == "zero":
        kept_v[last] = 0.0  # exactly, not but for rounding
    return kept_q, kept_v


def _excess(
    targets: np.ndarray, wanted: np.ndarray, reached: np.ndarray, dt: float, limits: JointLimits
) -> tuple[np.ndarray, np.ndarray]:
    """`Limited.excess` and `Limited.counts`: raw targets → within position limits → reached, [n, J] each."""
    if np.array_equal(targets, reached):
        joints = targets.shape[1]
        return np.zeros(joints), np.zeros(joints, np.intp)
    beyond = np.abs(targets - wanted) / (CLIPPED_SHARE * (limits.upper - limits.lower))
    late = np.abs(wanted - reached) / (CLIPPED_SHARE * dt * limits.max_velocity)
    changed = np.maximum(beyond, late)  # [n, J]
    return changed.max(axis=0), (changed > 1.0).sum(axis=0)
