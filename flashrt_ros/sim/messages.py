# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What of a JointTrajectory message a controller uses."""

from __future__ import annotations

from dataclasses import dataclass

from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.sim.controller import Rows


@dataclass(frozen=True)
class TrajectoryFields:
    """`stamp_ns` 0 is "start now"; `velocities` are None where not all points have them."""

    names: list[str]
    times_s: list[float]  # time_from_start
    positions: Rows
    velocities: Rows | None
    stamp_ns: int


def trajectory_fields(message: JointTrajectory) -> TrajectoryFields:
    """The fields as the message has them, unchecked."""
    points, stamp = message.points, message.header.stamp
    # A controller uses velocities only where all points have them.
    has_velocities = all(len(point.velocities) > 0 for point in points)
    return TrajectoryFields(
        names=list(message.joint_names),
        times_s=[p.time_from_start.sec + p.time_from_start.nanosec / 1e9 for p in points],
        positions=[point.positions for point in points],
        velocities=[point.velocities for point in points] if has_velocities else None,
        stamp_ns=stamp.sec * 1_000_000_000 + stamp.nanosec,
    )
