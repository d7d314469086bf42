# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where the node's inputs come from, over DDS: groups of the state, frozen cameras, units, grippers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped, TransformStamped
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray

from flashrt_ros.parameters import NodeConfig
from test.ros.stub_policy import HORIZON, StubPolicy
from test.ros.support import JOINTS, NodeThread, Robot, chunk_array, image, joint_state, parameters, wait_for
from test.ros.tf2_stub import Buffer, TransformListener, tf2_module

pytestmark = pytest.mark.dds
ERROR = b"\x02"
ONE_CAMERA: dict[str, Any] = {"cameras": ["top"], "decision_rate": 20.0}


def one_camera(**changes: Any) -> dict[str, Any]:
    return parameters(**ONE_CAMERA, **changes)


def reason(robot: Robot, concern: str, words: str) -> str:
    """The message of a status, waited for until it has these words."""
    wait_for(f"{words!r} in {concern}", lambda: words in robot.status(concern).message)
    return str(robot.status(concern).message)


def error(robot: Robot, concern: str, words: str) -> str:
    """The same for a status that must be an error."""
    wait_for(f"an error of {concern}", lambda: robot.status(concern).level == ERROR)
    return reason(robot, concern, words)


def test_R7_frozen_camera_stops_the_actions_until_it_moves() -> None:
    """A camera that repeats its last picture looks alive to everything but this: the robot would act on a
    world of minutes ago."""
    frozen = image("top").data

    def hang(name: str) -> Image:
        message = image(name)
        message.data = frozen
        return message

    with NodeThread(StubPolicy, one_camera(camera__top__frozen_after=3)), Robot() as robot:
        robot.bring_up()
        robot.new_chunks(6)
        robot.make_image = hang
        error(robot, "top", "images with the same content")
        assert "camera 'top' on /top/image_raw frozen" in reason(robot, "decisions", "frozen")
        assert robot.is_silent(0.3)
        robot.make_image = image
        robot.new_chunks(2)


def test_R17_robot_outside_of_training_waits_with_the_numbers() -> None:
    """Degrees in place of radians turn a small motion into a large one: nothing moves, and the log says which
    joint, where it is and where it was in training."""

    def load(config: NodeConfig) -> StubPolicy:
        policy = StubPolicy(config)
        policy.state_stats = {"q01": np.full(5, -1.0), "q99": np.full(5, 1.0)}
        return policy

    with NodeThread(load, one_camera(pose_check=True)), Robot() as robot:
        robot.make_joints = lambda: joint_state(positions={"elbow": 57.3})
        robot.bring_up()
        text = reason(robot, "decisions", "elbow: 57.3, trained from -1 to 1 (q01–q99)")
        assert "pose_check: false" in text
        assert not robot.chunks
        robot.make_joints = joint_state
        robot.new_chunks(2)
        robot.make_joints = lambda: joint_state(positions={"elbow": 57.3})
        wait_for("the robot to go on", lambda: chunk_array(robot.chunks[-1])[0, 2] > 57)


def test_R18_inverted_gripper_is_felt_and_moved_the_right_way(capfd: pytest.CaptureFixture[str]) -> None:
    """A gripper whose larger number is closed drops what it should hold."""
    felt: list[float] = []

    def think(state: np.ndarray, **rest: Any) -> np.ndarray:
        felt.append(float(state[4]))
        return np.tile(np.array([0, 0, 0, 0, 1], np.float32), (HORIZON, 1))  # open it

    gripper = {"gripper__gripper__open": 0.0, "gripper__gripper__closed": 0.8}
    values = one_camera(grippers=["gripper"], **gripper)
    with NodeThread(lambda config: StubPolicy(config, think), values), Robot() as robot:
        robot.bring_up()
        chunk = robot.new_chunks()[0]
        assert felt[0] == pytest.approx(0.5), "0.4 of the robot is half open"
        assert chunk_array(chunk)[:, 4] == pytest.approx([0.0] * HORIZON)
    log = capfd.readouterr().err
    assert "gripper 'gripper': the policy's 0 is closed = 0.8, its 1 is open = 0" in log


GROUPS: dict[str, Any] = {
    "joint_names": [],
    "state_groups": ["arm", "finger", "hand", "ee", "head"],
    "state__arm__names": ["lift", "pan"],
    "state__finger__names": ["gripper"],
    "state__finger__topic": "left/joint_states",
    "state__hand__source": "array",
    "state__hand__names": ["thumb", "palm"],
    "state__ee__source": "pose",
    "state__ee__rotation": "rotvec",
    "state__head__source": "tf",
    "state__head__rotation": "rpy",
    "state__head__frame": "base",
    "state__head__child_frame": "neck",
}


def a_pose(message: Any, robot: Robot) -> Any:
    """Fill a PoseStamped."""
    message.header.stamp = robot.node.get_clock().now().to_msg()
    message.pose.position.x, message.pose.orientation.w = 0.25, 2.0
    return message


def a_transform(robot: Robot) -> TransformStamped:
    message = TransformStamped()
    message.header.stamp = robot.node.get_clock().now().to_msg()
    message.transform.translation.z, message.transform.rotation.z = 1.5, 1.0
    return message


def publish_groups(robot: Robot) -> set[str]:
    """Publish what the robot of support.py does not, at 20 Hz; the names returned may be changed."""
    node, alive = robot.node, {"finger", "ee", "head"}
    finger = node.create_publisher(JointState, "left/joint_states", qos_profile_sensor_data)
    hand = node.create_publisher(Float64MultiArray, "hand", 10)
    pose = node.create_publisher(PoseStamped, "ee/pose", 10)

    def send_finger() -> None:
        message = joint_state(["gripper"], {"gripper": 0.7})
        message.header.stamp = node.get_clock().now().to_msg()
        finger.publish(message)

    sends: dict[str, Callable[[], None]] = {
        "finger": send_finger,
        "hand": lambda: hand.publish(Float64MultiArray(data=[5.0, 6.0])),
        "short hand": lambda: hand.publish(Float64MultiArray(data=[5.0])),
        "ee": lambda: pose.publish(a_pose(PoseStamped(), robot)),
        "head": lambda: Buffer.transforms.update({("base", "neck"): a_transform(robot)}),
    }

    def send_all() -> None:
        for name, send in sends.items():
            if name in alive:
                send()

    node.create_timer(0.05, send_all)
    return alive


def test_R15_state_of_joints_arrays_poses_and_tf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Humanoids and mobile robots give their state on many topics: each number must come from its own, and
    one that is missing be named with its group and topic."""
    monkeypatch.setitem(sys.modules, "tf2_ros", tf2_module())
    values = one_camera(**GROUPS, action_names=list(JOINTS))
    with NodeThread(StubPolicy, values) as thread, Robot() as robot:
        alive = publish_groups(robot)
        robot.bring_up()
        error(robot, "state.hand", "state group 'hand' on hand: never seen; it gives thumb, palm")
        alive.add("short hand")
        reason(robot, "decisions", "1 numbers came, 2 are needed (thumb, palm)")
        alive.remove("short hand")
        alive.add("hand")
        states: list[np.ndarray] = []
        running = thread.node.running
        assert running is not None
        keep = running.policy.decide

        def decide(images: Any, state: np.ndarray, *rest: Any, **more: Any) -> Any:
            states.append(state)
            return keep(images, state, *rest, **more)

        running.policy.decide = decide
        chunk = robot.new_chunks(2)[-1]
        ee, head = [0.25, 0, 0, 0, 0, 0], [0, 0, 1.5, 0, 0, np.pi / 2]
        expected = [0.1, 0.0, 0.7, 5, 6, *ee, *head]
        assert states[-1] == pytest.approx(expected, abs=1e-6)
        sources = {"top", "joint_states", "state.finger", "state.hand", "state.ee", "state.head"}
        assert set(chunk.source_names) == sources
        positions = running.ingest.measured(JOINTS, robot.node.get_clock().now().nanoseconds)
        assert positions == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4]), "joint_states, whatever the state is"
        alive.remove("head")
        reason(robot, "state.head", "state group 'head' on tf base → neck stopped")
    assert TransformListener.listening == []


def test_tf_without_its_package_is_refused_at_configure(capfd: pytest.CaptureFixture[str]) -> None:
    """One line with the package to install, instead of a node that dies at its first decision."""
    values = one_camera(**GROUPS, action_names=list(JOINTS))
    with NodeThread(StubPolicy, values) as thread, Robot() as robot:
        assert not robot.change("configure")
        assert robot.state() == "unconfigured"
        assert thread.node.health.fault is not None
        assert "state group 'head' (source tf) needs" in thread.node.health.fault
    assert "apt install ros-<distro>-tf2-ros-py" in capfd.readouterr().err


def test_R5_depth_camera_is_refused_at_the_first_message(capfd: pytest.CaptureFixture[str]) -> None:
    """A depth topic given by mistake: the first message names camera, encoding and policy, and nothing
    moves."""

    def depth(name: str) -> Image:
        message = image(name, encoding="16UC1")
        message.step = 2 * message.width
        return message

    with NodeThread(StubPolicy, one_camera()), Robot() as robot:
        robot.make_image = depth
        robot.bring_up()
        text = error(robot, "top", "encoding '16UC1'")
        assert "camera 'top' on /top/image_raw" in text
        assert "slot 'top' of the policy" in text
        assert "(stub)" in text
        assert not robot.chunks
    log = capfd.readouterr().err
    warnings = [line for line in log.splitlines() if "'16UC1'" in line and "no actions" not in line]
    assert len(warnings) == 1, "the log speaks once"
