# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The simulated arm: three joints and a gripper that follow joint trajectories with limited speed.

Geometry: the shoulder turns about the vertical axis (pan) and lifts the upper arm, the elbow bends the
forearm, and a parallelogram keeps the hand vertical, as on palletising robots. Lengths in metres, angles in
radians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flashrt_ros.sim.controller import JointTrajectoryController, Rows, TrajectoryError

__all__ = ["JOINTS", "Arm", "ArmPose", "Joint", "TrajectoryError", "arm_pose"]

SHOULDER_HEIGHT = 0.20
UPPER_ARM = 0.30
FOREARM = 0.30
HAND = 0.10


@dataclass(frozen=True)
class Joint:
    """Limits of one joint, in rad and rad/s (`unit` "rad") or m and m/s (`unit` "m")."""

    name: str
    unit: str
    lower: float
    upper: float
    max_velocity: float
    home: float


JOINTS = (
    Joint("shoulder_pan", "rad", -1.5, 1.5, 3.0, 0.0),
    Joint("shoulder_lift", "rad", 0.3, 1.6, 3.0, 1.1),
    Joint("elbow", "rad", -2.4, -0.4, 3.0, -1.55),
    Joint("gripper", "m", 0.0, 0.09, 0.25, 0.04),
)


@dataclass(frozen=True)
class ArmPose:
    """Where the arm's points are, world frame (x forward, y left, z up), metres."""

    pan: float
    upper_pitch: float  # above the horizontal
    fore_pitch: float
    opening: float
    shoulder: np.ndarray  # [3]
    elbow: np.ndarray  # [3]
    wrist: np.ndarray  # [3]


def arm_pose(positions: np.ndarray) -> ArmPose:
    """Forward kinematics of `positions` [4] in the order of `JOINTS`."""
    pan, lift, bend, opening = (float(value) for value in positions)
    shoulder = np.array([0.0, 0.0, SHOULDER_HEIGHT])
    elbow = shoulder + UPPER_ARM * _direction(pan, lift)
    wrist = elbow + FOREARM * _direction(pan, lift + bend)
    return ArmPose(pan, lift, lift + bend, opening, shoulder, elbow, wrist)


def _direction(pan: float, pitch: float) -> np.ndarray:
    return np.array([math.cos(pitch) * math.cos(pan), math.cos(pitch) * math.sin(pan), math.sin(pitch)])


class Arm:
    """Joint positions that chase the current trajectory.

    The set point runs through the trajectory's points as joint_trajectory_controller does it (see
    `flashrt_ros.sim.controller`); a new trajectory replaces the old one at once. The joints follow the set
    point as a first-order servo (`lag_s`), never faster than their velocity limit and never beyond their
    position limits. All times are seconds of one monotonic clock.
    """

    def __init__(self, joints: Sequence[Joint] = JOINTS, lag_s: float = 0.01, now_s: float = 0.0) -> None:
        self.names = tuple(joint.name for joint in joints)
        self._lower = np.array([joint.lower for joint in joints])
        self._upper = np.array([joint.upper for joint in joints])
        self._max_velocity = np.array([joint.max_velocity for joint in joints])
        self._lag_s = lag_s
        self.positions = np.array([joint.home for joint in joints])  # [D]
        self.velocities = np.zeros(len(joints))  # [D]
        self._now_s = now_s
        self._controller = JointTrajectoryController(self.names, self.positions, skip_past_points=True)

    def set_point(self, now_s: float) -> np.ndarray:
        """The commanded position [D] at `now_s`."""
        position, _ = self._controller.sample(now_s)
        within: np.ndarray = np.clip(position, self._lower, self._upper)
        return within

    def follow(
        self,
        names: Sequence[str],
        times_s: Sequence[float],
        points: Rows,
        now_s: float,
        start_s: float | None = None,
        velocities: Rows | None = None,
    ) -> None:
        """Replace the trajectory: `points[k]` (columns `names`) is due `times_s[k]` seconds after `start_s`.

        `start_s` None means now. `velocities` as `points`; None when they have none, the set point then runs
        straight. Raises `TrajectoryError` when a controller would reject the trajectory; the arm then keeps
        its old one.
        """
        self._controller.accept(names, times_s, points, velocities, None, now_s, start_s)

    def step(self, now_s: float) -> None:
        """Advance the joints to `now_s`."""
        dt = now_s - self._now_s
        if dt <= 0.0:
            return
        self._now_s = now_s
        wanted = (self.set_point(now_s) - self.positions) * (1.0 - math.exp(-dt / self._lag_s))
        moved = np.clip(wanted, -self._max_velocity * dt, self._max_velocity * dt)
        self.positions = np.clip(self.positions + moved, self._lower, self._upper)
        self.velocities = moved / dt
