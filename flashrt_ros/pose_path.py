# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rows of an action chunk → a path of poses that a robot may follow. Pure functions.

A pose is float64 [7]: x, y, z in m and a unit quaternion x, y, z, w, in the frame of the action group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flashrt_ros.observation import NS_PER_S
from flashrt_ros.planned import Plan, Refused
from flashrt_ros.rotations import continuous, rotation_of, slerp, values_of

if TYPE_CHECKING:
    from scipy.spatial.transform import Rotation

_ROUNDING = 1e-9


def poses_of(rows: np.ndarray, rotation: str) -> np.ndarray:
    """Rows [H, 3 + k], x, y, z and a rotation, → poses [H, 7]. Raises ValueError where that is none."""
    return joined(rows[:, :3], rotation_of(rows[:, 3:], rotation))


def joined(places: np.ndarray, turns: Rotation) -> np.ndarray:
    """Places [n, 3] and n rotations → poses [n, 7]."""
    return np.concatenate([places, values_of(turns, "quaternion")], axis=1)


def turn_of(pose: np.ndarray) -> Rotation:
    """The rotation of poses [..., 7]."""
    return rotation_of(pose[..., 3:], "quaternion")


def composed(deltas: np.ndarray, rotation: str, start: np.ndarray) -> np.ndarray:
    """Steps [n, 6] one after another onto the pose `start` [7] → poses [n, 7].

    A step is a translation along the axes of the frame that the pose is given in, and a rotation about
    these axes and the place of the pose itself: R ← R_step · R.
    """
    places = start[:3] + np.cumsum(deltas[:, :3], axis=0)
    turn, turns = turn_of(start), []
    for step in rotation_of(deltas[:, 3:], rotation):
        turn = step * turn
        turns.append(values_of(turn, "quaternion"))
    return np.concatenate([places, np.stack(turns)], axis=1)


def turned(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Rotation vector [..., 3] (rad, at most π) that leads from poses `start` to poses `end`."""
    return (turn_of(end) * turn_of(start).inv()).as_rotvec()


def blended(poses: np.ndarray, continuation: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """R30: poses [n, 7], the first due in one step, → [n, 7] that begin near what is commanded.

    continuation [7]: where the commanded motion would be in one step. What lies between it and the first
    pose, as a translation and a rotation, is added to each pose with its weight, [n].
    """
    places = poses[:, :3] + weights[:, None] * (continuation[:3] - poses[0, :3])
    turns = rotation_of(weights[:, None] * turned(poses[0], continuation), "rotvec") * turn_of(poses)
    return joined(places, turns)


def clamped(poses: np.ndarray, workspace: Sequence[float]) -> np.ndarray:
    """R41: poses [n, 7] moved into the box (lowest x, y, z, highest x, y, z); () = no box."""
    if not workspace:
        return poses
    places = np.clip(poses[:, :3], workspace[:3], workspace[3:])
    return np.concatenate([places, poses[:, 3:]], axis=1)


def slowed(poses: np.ndarray, start: np.ndarray, linear: float, angular: float) -> np.ndarray:
    """R41: poses [n, 7] → [n, 7] that follow from `start` [7] with steps of at most so many m and rad.

    A pose that is too far is approached as far as a step leads, along the straight line. Between points of a
    convex box such a path does not leave it.
    """
    knots = np.concatenate([start[None], poses])
    steps = np.linalg.norm(np.diff(knots[:, :3], axis=0), axis=1)  # [n]
    turns = np.linalg.norm(turned(knots[:-1], knots[1:]), axis=1)  # [n]
    if (steps <= linear).all() and (turns <= angular).all():
        return poses
    for index in range(1, len(knots)):
        knots[index] = _towards(knots[index - 1], knots[index], linear, angular)
    return knots[1:]


def _towards(start: np.ndarray, end: np.ndarray, linear: float, angular: float) -> np.ndarray:
    """`end` [7], or what lies as far from `start` in its direction as a step may lead."""
    step, turn = end[:3] - start[:3], turned(start, end)
    length, angle = float(np.linalg.norm(step)), float(np.linalg.norm(turn))
    if length <= linear and angle <= angular:
        return end
    place = start[:3] + step * min(1.0, linear / max(length, _ROUNDING))
    rotation = rotation_of(turn * min(1.0, angular / max(angle, _ROUNDING)), "rotvec") * turn_of(start)
    return np.concatenate([place, values_of(rotation, "quaternion")])


def jump(first: np.ndarray, start: np.ndarray, linear: float, angular: float) -> Refused | None:
    """R41: a first pose [7] that far (m, rad) from the commanded one is no continuation of it."""
    distance = float(np.linalg.norm(first[:3] - start[:3]))
    angle = float(np.linalg.norm(turned(start, first)))
    if distance <= linear and angle <= angular:
        return None
    return Refused(
        "jump",
        f"the chunk begins {distance:.3f} m and {angle:.3f} rad from the commanded pose; the speed limits "
        f"cover {linear:.3f} m and {angular:.3f} rad in the blend",
    )


@dataclass(frozen=True, eq=False)
class PosePlan(Plan):
    """Poses at times, straight lines and even rotations between them; the last one holds."""

    poses: np.ndarray  # [n + 1, 7], signs of the quaternions continuous

    def values(self, now_ns: int) -> np.ndarray:
        """The pose now, [7]."""
        index, share = self._segment(now_ns)
        start, end = self.poses[index], self.poses[min(index + 1, len(self.poses) - 1)]
        place = start[:3] + share * (end[:3] - start[:3])
        return np.concatenate([place, slerp(start[3:], end[3:], share)])

    def velocities(self, now_ns: int) -> np.ndarray:
        """Linear and angular velocity now, [6] in m/s and rad/s; 0 at the end."""
        if now_ns >= self.end_ns:
            return np.zeros(6)
        index, _ = self._segment(now_ns)
        start, end = self.poses[index], self.poses[index + 1]
        seconds = (self.times_ns[index + 1] - self.times_ns[index]) / NS_PER_S
        return np.concatenate([end[:3] - start[:3], turned(start, end)]) / seconds

    def _segment(self, now_ns: int) -> tuple[int, float]:
        """The knot before now, and how far it is from there to the next one, 0 … 1."""
        times = self.times_ns
        if now_ns >= times[-1]:
            return len(times) - 1, 0.0
        index = max(0, int(np.searchsorted(times, now_ns, side="right")) - 1)
        share = (now_ns - times[index]) / (times[index + 1] - times[index])
        return index, float(np.clip(share, 0.0, 1.0))


def path(start: np.ndarray, poses: np.ndarray, times_ns: np.ndarray, steps: int) -> PosePlan:
    """From `start` [7] through poses [n, 7] at times [n + 1] ns, turning the short way each time."""
    knots = np.concatenate([start[None], poses])
    knots[:, 3:] = continuous(knots[:, 3:])
    return PosePlan(times_ns, steps, knots)


def braking(start: np.ndarray, velocity: np.ndarray, shares: np.ndarray, stop_s: float) -> np.ndarray:
    """Poses [n, 7] on the way from `start` [7], moving at `velocity` [6], to rest within `stop_s` seconds.

    Constant deceleration, linear and angular: after a share u of the time, v · T · (u − u²/2) is covered.
    """
    covered = stop_s * (shares - 0.5 * shares**2)[:, None]  # s [n, 1]
    turns = rotation_of(covered * velocity[3:], "rotvec") * turn_of(start)
    return joined(start[:3] + covered * velocity[:3], turns)
