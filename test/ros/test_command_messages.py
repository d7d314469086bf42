# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Commands as messages: a name or an axis in the wrong place moves the wrong thing."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import TwistStamped
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from flashrt_ros import command_messages
from flashrt_ros.command_messages import Command, TrajectoryMessage
from flashrt_ros.groups import BASE
from flashrt_ros.messages import duration_message
from flashrt_ros.parameter_rows import OUTPUTS
from test.ros.motion_groups import group

WIDTHS = {"eef_pose": 7, "base": 3}  # of commands; pairs of joints otherwise
STAMP_NS = 5_000_000_007


def command(*values: float) -> Command:
    numbers = np.array(values, np.float64)
    return Command(numbers, -numbers, STAMP_NS, 10_000_000)


def made(space: str, output: str, *values: float) -> Any:
    return command_messages.MESSAGES[output].build(group(space, output=output), command(*values))


def names(space: str) -> list[str]:
    return list(group(space).names)


@pytest.mark.parametrize(
    ("space", "output"), [(s, o) for s, outs in OUTPUTS.items() for o in outs if o != "gripper_command"]
)
def test_every_output_makes_its_message(space: str, output: str) -> None:
    """Each message that a group can go out as survives the wire."""
    width = {"pose": 7, "twist": 3, "twist_stamped": 6 if space == "eef_delta" else 3}.get(output, 2)
    message = made(space, output, *np.linspace(0.1, 0.9, width))
    assert type(message) is command_messages.MESSAGES[output].message
    assert deserialize_message(serialize_message(message), type(message)) == message


def test_R14_trajectory_names_its_joints_and_skips_the_commanded_knot() -> None:
    """Knot 0 is where the robot is: sent again, it would hold the robot back."""
    knots = SimpleNamespace(
        positions=np.arange(8.0).reshape(4, 2),
        velocities=-np.arange(8.0).reshape(4, 2),
        times_ns=np.array([50_000_000, 100_000_000, 1_150_000_000]),
    )
    arm = group("joint_position", output="trajectory")
    message = TrajectoryMessage(arm).fill(knots)
    assert message.joint_names == names("joint_position")
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (0, 0)  # start now
    assert [list(point.positions) for point in message.points] == [[2, 3], [4, 5], [6, 7]]
    assert [list(point.velocities) for point in message.points] == [[-2, -3], [-4, -5], [-6, -7]]
    last = message.points[-1].time_from_start
    assert (last.sec, last.nanosec) == (1, 150_000_000)
    assert isinstance(message.points[0].positions, array)
    empty = SimpleNamespace(
        positions=np.zeros((1, 2)), velocities=np.zeros((1, 2)), times_ns=np.zeros(0, np.int64)
    )
    assert TrajectoryMessage(arm).fill(empty).points == []


def test_a_trajectory_holds_nothing_of_the_one_before() -> None:
    """The points are written over: a shorter chunk must not end with the longer one's."""
    values = np.random.default_rng(0).normal(size=(2, 8, 2))
    times_ns = np.arange(1, 8) * 700_000_000
    message = TrajectoryMessage(group("joint_position", output="trajectory"))
    message.fill(SimpleNamespace(positions=values[0], velocities=values[1], times_ns=times_ns))
    short = SimpleNamespace(positions=-values[1, :4], velocities=-values[0, :4], times_ns=times_ns[:3] + 1)
    points = [
        JointTrajectoryPoint(
            positions=(-values[1, k]).tolist(),
            velocities=(-values[0, k]).tolist(),
            time_from_start=duration_message(int(times_ns[k - 1]) + 1),
        )
        for k in range(1, 4)
    ]
    wanted = JointTrajectory(joint_names=names("joint_position"), points=points)
    assert deserialize_message(serialize_message(message.fill(short)), JointTrajectory) == wanted


def test_streamed_trajectory_is_one_point_due_with_the_next_command() -> None:
    """A trajectory controller is there when the next command comes; it refuses a last velocity (R38)."""
    message = made("joint_position", "trajectory", 0.1, 0.2)
    (point,) = message.points
    assert (list(point.positions), list(point.velocities)) == ([0.1, 0.2], [])
    assert (point.time_from_start.sec, point.time_from_start.nanosec) == (0, 10_000_000)
    assert message.header.stamp.sec == 0


@pytest.mark.parametrize("space", ["joint_position", "joint_delta", "gripper"])
def test_R14_joint_state_names_its_joints(space: str) -> None:
    """Consumers match by name; positions and their velocities go together."""
    message: JointState = made(space, "joint_state", 0.1, 0.2)
    assert list(message.name) == names(space)
    assert list(message.position) == [0.1, 0.2]
    assert list(message.velocity) == [-0.1, -0.2]
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (5, 7)


def test_velocities_are_no_positions() -> None:
    """joint_velocity as a joint state: a driver that read them as positions would jump."""
    message: JointState = made("joint_velocity", "joint_state", 0.1, 0.2)
    assert list(message.position) == []
    assert list(message.velocity) == [0.1, 0.2]


def test_R14_array_is_labelled_with_the_joints() -> None:
    """The numbers have no names of their own."""
    message = made("joint_position", "array", 0.1, 0.2)
    (dimension,) = message.layout.dim
    assert dimension.label == ",".join(names("joint_position"))
    assert (dimension.size, dimension.stride) == (2, 2)
    assert isinstance(message.data, array)
    assert list(message.data) == [0.1, 0.2]


def test_pose_keeps_the_order_of_the_quaternion() -> None:
    """w last in the row and by name in the message."""
    message = made("eef_pose", "pose", 1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 0.9)
    place, turn = message.pose.position, message.pose.orientation
    assert (place.x, place.y, place.z) == (1.0, 2.0, 3.0)
    assert (turn.x, turn.y, turn.z, turn.w) == (0.1, 0.2, 0.3, 0.9)
    assert message.header.frame_id == "base_link"
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (5, 7)


def test_base_moves_in_its_plane() -> None:
    """vx vy wz are x and y of the linear and z of the angular velocity; the rest is 0."""
    assert BASE == ("vx", "vy", "wz")
    message = made("base", "twist", 0.1, 0.2, 0.3)
    assert (message.linear.x, message.linear.y, message.linear.z) == (0.1, 0.2, 0.0)
    assert (message.angular.x, message.angular.y, message.angular.z) == (0.0, 0.0, 0.3)
    stamped: TwistStamped = made("base", "twist_stamped", 0.1, 0.2, 0.3)
    assert stamped.twist == message
    assert (stamped.header.frame_id, stamped.header.stamp.sec) == ("base_link", 5)


def test_twist_of_an_end_effector_has_all_six() -> None:
    """In the order of the twist: linear x y z, angular x y z."""
    twist = made("eef_delta", "twist_stamped", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0).twist
    assert (twist.linear.x, twist.linear.y, twist.linear.z) == (1.0, 2.0, 3.0)
    assert (twist.angular.x, twist.angular.y, twist.angular.z) == (4.0, 5.0, 6.0)
