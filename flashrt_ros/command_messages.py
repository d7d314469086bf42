# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a group of actions commands → the message that its `output` asks for, as `MESSAGES` says.

Grippers with an action interface are in `gripper_client.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Twist, TwistStamped, Vector3
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension, MultiArrayLayout
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from flashrt_ros.groups import BASE, TWIST, ActionGroup
from flashrt_ros.messages import _array, duration_message, time_message
from flashrt_ros.observation import NS_PER_S


@dataclass(frozen=True, eq=False)
class Command:
    """What a group commands at one moment: `values` [W] and how fast they change, `velocities`, per s.

    As `Motion.commanded` gives both. stamp_ns: on the node's clock; period_ns: until the next command.
    """

    values: np.ndarray
    velocities: np.ndarray
    stamp_ns: int
    period_ns: int


class Knots(Protocol):
    """What is read of a `Trajectory`: knots 1 to n are sent, knot 0 is where the robot is commanded now."""

    @property
    def positions(self) -> np.ndarray: ...  # [n + 1, J]
    @property
    def velocities(self) -> np.ndarray: ...  # [n + 1, J]
    @property
    def times_ns(self) -> np.ndarray: ...  # int64 [n], time_from_start of knots 1 to n


class TrajectoryMessage:
    """trajectory_msgs/JointTrajectory of one group, filled anew for each chunk.

    The points are kept: fifty of them as new objects cost 0.4 ms of each decision, written in place 0.07.
    """

    def __init__(self, group: ActionGroup) -> None:
        self._width = len(group.names)
        self._message = JointTrajectory(joint_names=list(group.names))
        self._points: list[JointTrajectoryPoint] = []
        self._places: list[tuple[np.ndarray, np.ndarray]] = []  # positions and velocities [J] of the points

    def fill(self, trajectory: Knots) -> JointTrajectory:
        """Stamp 0 ("start now"), positions and velocities of the knots. The next call writes over it."""
        times = trajectory.times_ns.tolist()
        while len(self._points) < len(times):
            self._add_point()
        positions, velocities = trajectory.positions[1:], trajectory.velocities[1:]  # [n, J]
        for index, time_ns in enumerate(times):
            place = self._places[index]
            place[0][:], place[1][:] = positions[index], velocities[index]
            due = self._points[index].time_from_start
            due.sec, due.nanosec = divmod(time_ns, NS_PER_S)
        self._message.points = self._points[: len(times)]
        return self._message

    def _add_point(self) -> None:
        zeros = np.zeros(self._width)
        point = JointTrajectoryPoint(positions=_array("d", zeros), velocities=_array("d", zeros))
        self._points.append(point)
        self._places.append((np.frombuffer(point.positions), np.frombuffer(point.velocities)))


def _moment_trajectory(group: ActionGroup, command: Command) -> JointTrajectory:
    """One point, due with the next command: how a trajectory controller is streamed to.

    Without a velocity: it would be the last of the trajectory, which controllers want to be zero (R38).
    """
    point = JointTrajectoryPoint(
        positions=_array("d", command.values),
        time_from_start=duration_message(command.period_ns),
    )
    return JointTrajectory(joint_names=list(group.names), points=[point])


def _joint_state(group: ActionGroup, command: Command) -> JointState:
    """sensor_msgs/JointState: positions and their velocities, or velocities alone for joint_velocity."""
    message = JointState(header=_header(group, command), name=list(group.names))
    if group.space == "joint_velocity":
        message.velocity = _array("d", command.values)
        return message
    message.position = _array("d", command.values)
    message.velocity = _array("d", command.velocities)
    return message


def _float_array(group: ActionGroup, command: Command) -> Float64MultiArray:
    """std_msgs/Float64MultiArray [W] whose one dimension names the joints in their order (R14)."""
    size = len(command.values)
    dimension = MultiArrayDimension(label=",".join(group.names), size=size, stride=size)
    return Float64MultiArray(
        layout=MultiArrayLayout(dim=[dimension], data_offset=0), data=_array("d", command.values)
    )


def _pose(group: ActionGroup, command: Command) -> PoseStamped:
    """geometry_msgs/PoseStamped in the group's frame, of a pose [7]."""
    x, y, z, *turn = command.values.tolist()
    pose = Pose(
        position=Point(x=x, y=y, z=z),
        orientation=Quaternion(**dict(zip(("x", "y", "z", "w"), turn, strict=True))),
    )
    return PoseStamped(header=_header(group, command), pose=pose)


def _twist(group: ActionGroup, command: Command) -> Twist:
    """geometry_msgs/Twist of vx vy wz, or of all six; what the group does not have is 0."""
    axes = BASE if group.space == "base" else TWIST
    parts = dict(zip(axes, command.values.tolist(), strict=True))
    linear, angular = (Vector3(**{axis: parts.get(f"{kind}{axis}", 0.0) for axis in "xyz"}) for kind in "vw")
    return Twist(linear=linear, angular=angular)


def _twist_stamped(group: ActionGroup, command: Command) -> TwistStamped:
    """geometry_msgs/TwistStamped, its axes those of the group's frame."""
    return TwistStamped(header=_header(group, command), twist=_twist(group, command))


def _header(group: ActionGroup, command: Command) -> Header:
    return Header(stamp=time_message(command.stamp_ns), frame_id=group.frame)


@dataclass(frozen=True)
class Output:
    """How one kind of output goes out: the type of its message, and what makes one."""

    message: type
    build: Callable[[ActionGroup, Command], Any]


MESSAGES: Final[dict[str, Output]] = {
    "trajectory": Output(JointTrajectory, _moment_trajectory),
    "joint_state": Output(JointState, _joint_state),
    "array": Output(Float64MultiArray, _float_array),
    "pose": Output(PoseStamped, _pose),
    "twist": Output(Twist, _twist),
    "twist_stamped": Output(TwistStamped, _twist_stamped),
}
"""Output of an action group → its message. A trajectory of a whole chunk: `TrajectoryMessage`."""
