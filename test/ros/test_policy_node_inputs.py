# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node makes of its inputs, over DDS: a process of the node whose policy answers with the state it
was given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import DurabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from test.ros.support import (
    CAMERAS,
    JOINTS,
    NodeProcess,
    Robot,
    chunk_array,
    image,
    instruction_publisher,
    joint_state,
    node_process,
    parameters,
    wait_for,
)

pytestmark = pytest.mark.dds
STUB = "test.ros.stub_policy"


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NodeProcess]:
    """A node with the stub policy; parametrise indirectly to change parameters."""
    with node_process(tmp_path, parameters(**getattr(request, "param", {})), module=STUB) as node:
        yield node


@pytest.fixture
def robot(node: NodeProcess) -> Iterator[Robot]:
    with Robot() as robot:
        yield robot


def with_parameters(**changes: Any) -> pytest.MarkDecorator:
    """Parameters of the node of one test."""
    return pytest.mark.parametrize("node", [changes], indirect=True, ids=[""])


@with_parameters(camera__top__max_age=0.3)
def test_stale_camera_stops_the_actions_and_is_named(node: NodeProcess, robot: Robot) -> None:
    """A robot that moves on a frozen picture hits something; the operator must be told which camera."""
    robot.bring_up()
    robot.new_chunks(2)
    robot.alive.remove("top")
    time.sleep(0.6)
    assert robot.is_silent()
    # Not the level alone: right after activation every source without a message is at ERROR.
    wait_for("diagnostics that name it", lambda: "stopped" in robot.status("top").message)
    assert robot.status("top").level == b"\x02"
    wait_for("the reason", lambda: "camera 'top'" in robot.status("decisions").message)
    assert robot.status("wrist").level == b"\x00"
    assert node.log.count("no actions: camera 'top'") == 1
    robot.alive.add("top")
    robot.new_chunks(2)
    wait_for("the error to end", lambda: robot.status("top").level == b"\x00")


def test_camera_that_never_came_is_named_before_activation(node: NodeProcess, robot: Robot) -> None:
    """Diagnostics of the inactive node are the check list before a robot may move."""
    robot.alive.remove("extra")
    assert robot.change("configure")
    wait_for("the warning", lambda: robot.status("extra").level == b"\x01")
    assert "never seen" in robot.status("extra").message
    assert "extra" in robot.status("decisions").message
    robot.alive.add("extra")
    wait_for("readiness", lambda: robot.status("decisions").message == "inactive, ready to decide")


@with_parameters(camera__extra__required=False)
def test_R27_optional_camera_may_be_missing(node: NodeProcess, robot: Robot) -> None:
    """A second wrist camera that is unplugged must not stop a robot that was trained to do without."""
    robot.alive.remove("extra")
    robot.bring_up()
    assert set(robot.new_chunks(2)[-1].source_names) == {"top", "wrist", "joint_states"}
    wait_for("the warning", lambda: robot.status("extra").level == b"\x01")
    robot.alive.add("extra")
    wait_for("it to be used", lambda: "extra" in robot.chunks[-1].source_names)


def test_R12_joint_order_changes_between_messages(node: NodeProcess, robot: Robot) -> None:
    """Drivers reorder joints; values taken by position would send the elbow where the gripper should go."""
    robot.bring_up()
    expected = np.array([0.1 * index for index in range(5)], np.float32)
    assert np.allclose(chunk_array(robot.new_chunks(2)[-1])[0], expected)
    orders = iter([JOINTS[::-1], ("elbow", *JOINTS[:2], *JOINTS[3:])] * 1000)
    robot.make_joints = lambda: joint_state(next(orders))
    for chunk in robot.new_chunks(6):
        assert np.allclose(chunk_array(chunk), expected)


@with_parameters(joint__gripper__scale=-2, joint__gripper__offset=1.0, action_names=[*JOINTS[:4], "hand"])
def test_R60_integers_are_numbers_and_scale_applies(node: NodeProcess, robot: Robot) -> None:
    """`scale: -2` in a parameter file is an integer to ROS; refusing it costs every user a search."""
    robot.bring_up()
    # The stub answers with the state; "hand" is no joint of the state, so nothing scales it back.
    assert chunk_array(robot.new_chunks()[0])[0, 4] == pytest.approx(-2 * 0.4 + 1.0)


def test_R2_malformed_images_are_dropped_with_one_warning(node: NodeProcess, robot: Robot) -> None:
    """A driver that sends broken frames must neither crash the node nor flood its log, and nothing may be
    decided on them."""

    def broken(name: str) -> Image:
        message = image(name)
        if name == "top":
            message.step = 10
        return message

    robot.make_image = broken
    robot.bring_up()
    assert robot.is_silent(1.0)
    assert robot.state() == "active"
    warnings = [line for line in node.log.splitlines() if "top" in line and "step" in line and "WARN" in line]
    assert len([line for line in warnings if "no actions" not in line]) == 1

    def dropped() -> int:
        values = {value.key: value.value for value in robot.status("top").values}
        return int(values.get("dropped_malformed", 0))

    wait_for("the count of several frames", lambda: dropped() > 1)
    robot.make_image = image
    robot.new_chunks(2)


def test_R16_non_finite_joints_are_dropped(node: NodeProcess, robot: Robot) -> None:
    """One NaN from an encoder becomes NaN in every action."""
    robot.bring_up()
    robot.new_chunks()
    robot.make_joints = lambda: joint_state(positions={"elbow": float("nan")})
    wait_for("silence", lambda: robot.is_silent(0.5))
    assert all(np.isfinite(chunk_array(chunk)).all() for chunk in robot.chunks)
    wait_for("diagnostics that name it", lambda: "elbow = nan" in robot.status("joint_states").message)
    assert robot.status("joint_states").level == b"\x02"


def test_R26_instruction_from_the_topic_replaces_the_parameter(node: NodeProcess, robot: Robot) -> None:
    """The task is changed while the robot runs, from latched and from volatile publishers, and each chunk
    says which task it serves (R43)."""
    latched = instruction_publisher(robot.node, DurabilityPolicy.TRANSIENT_LOCAL)
    latched.publish(String(data="open the drawer"))
    robot.bring_up()
    wait_for("the latched one", lambda: robot.chunks and robot.chunks[-1].instruction == "open the drawer")
    volatile = instruction_publisher(robot.node, DurabilityPolicy.VOLATILE)
    wait_for("a match", volatile.get_subscription_count)
    time.sleep(0.2)
    before = robot.chunks[-1].epoch
    volatile.publish(String(data="close the drawer"))
    wait_for("the volatile one", lambda: robot.chunks[-1].instruction == "close the drawer")
    assert robot.chunks[-1].epoch == before + 1
    assert robot.set_parameter("instruction", "wave") == (True, "")
    wait_for("the parameter", lambda: robot.chunks[-1].instruction == "wave")


@with_parameters(cameras=["top"], camera__top__transport="compressed")
def test_R5_compressed_camera(node: NodeProcess, robot: Robot) -> None:
    """Many cameras are reachable only as JPEG over the network."""
    publisher = robot.node.create_publisher(
        CompressedImage, "top/image_raw/compressed", qos_profile_sensor_data
    )
    robot.bring_up()
    jpeg = cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1].tobytes()

    def decided() -> bool:
        message = CompressedImage(format="jpeg", data=jpeg)
        message.header.stamp = robot.node.get_clock().now().to_msg()
        publisher.publish(message)
        time.sleep(0.05)
        return len(robot.chunks) > 2

    wait_for("chunks", decided)


@with_parameters(trigger="camera", trigger_camera="wrist", decision_rate=0.1)
def test_trigger_camera_decides_on_each_of_its_images(node: NodeProcess, robot: Robot) -> None:
    """The camera's rate, not the timer's, sets the pace; silent trigger, no decisions."""
    robot.bring_up()
    robot.new_chunks(20, 5.0)
    robot.alive.remove("wrist")
    time.sleep(0.3)
    assert robot.is_silent()


@with_parameters(trigger="free", decision_rate=0.1)
def test_trigger_free_decides_without_pause(node: NodeProcess, robot: Robot) -> None:
    """A free-running policy must not be held to the timer's rate."""
    robot.bring_up()
    robot.new_chunks(30, 5.0)


@with_parameters(debug_images=20.0)
def test_R4_what_the_model_saw_is_published(node: NodeProcess, robot: Robot) -> None:
    """Swapped channels and wrong crops are seen in no log; they are seen in this picture."""
    seen: dict[str, list[Image]] = {name: [] for name in CAMERAS}
    for name in CAMERAS:
        robot.node.create_subscription(
            Image, f"policy/model_image/{name}", seen[name].append, qos_profile_sensor_data
        )
    robot.bring_up()
    wait_for("an image of each camera", lambda: all(seen.values()))
    picture = seen["top"][0]
    assert (picture.height, picture.width, picture.encoding, picture.step) == (8, 8, "rgb8", 24)
    assert picture.header.frame_id == "top"
    assert set(picture.data) == {7}
    assert robot.set_parameter("debug_images", 0) == (True, "")
    robot.new_chunks(2)
    count = len(seen["top"])
    robot.new_chunks(3)
    assert len(seen["top"]) == count


@with_parameters(use_sim_time=True)
def test_R22_simulated_time_without_clock_is_said(node: NodeProcess, robot: Robot) -> None:
    """With no /clock no image has an age, so nothing may be decided, and the cause must be named within
    seconds."""
    robot.bring_up()
    assert robot.is_silent()
    wait_for("the error", lambda: "/clock" in robot.status("state").message)
    assert "/clock" in node.log


def test_diagnostics_keep_coming_every_second(node: NodeProcess, robot: Robot) -> None:
    """Monitoring treats a silent node as dead: the heartbeat does not depend on the state."""
    beats: list[float] = []
    robot.node.create_subscription(
        DiagnosticArray, "/diagnostics", lambda message: beats.append(time.monotonic()), 10
    )
    wait_for("beats while unconfigured", lambda: len(beats) >= 2)
    robot.bring_up()
    beats.clear()
    wait_for("beats while active", lambda: len(beats) >= 3)
    assert beats[2] - beats[0] > 1.0, "once a second, not a flood"
    assert {"policy: state", "policy: decisions", "policy: joint_states"} <= set(robot.statuses)
    values = {value.key: value.value for value in robot.status("decisions").values}
    assert {"rate_hz", "total_ms_p50", "total_ms_p95", "total_ms_p99", "age_ms_top"} <= set(values)
