# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rows of robot-behaviour over DDS: one node, shared by the tests; each finds it deciding."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState

from test.ros.cell import Cell, cell_of, copied, picture, shifted
from test.ros.support import JOINTS, chunk_array, image, joint_state, wait_for

pytestmark = pytest.mark.dds


@pytest.fixture(scope="module")
def shared() -> Iterator[Cell]:
    with cell_of() as cell:
        yield cell


@pytest.fixture
def cell(shared: Cell) -> Cell:
    shared.reset()
    return shared


def test_R1_padded_rows_arrive_unskewed(cell: Cell) -> None:
    """A driver that pads its rows gives the policy a sheared world without any error."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 10, 3), np.uint8)
    padded = np.full((6, 40), 255, np.uint8)
    padded[:, :30] = pixels.reshape(6, 30)
    message = picture(pixels, "rgb8", step=40)
    message.data = array("B", padded.tobytes())
    cell.robot.make_image = partial(copied, message)
    wait_for("the picture", partial(cell.has_width, "top", 10))
    np.testing.assert_array_equal(cell.sees("top"), pixels)


RED = {
    "rgb8": [255, 0, 0],
    "bgr8": [0, 0, 255],
    "rgba8": [255, 0, 0, 255],
    "bgra8": [0, 0, 255, 255],
    "8UC3": [0, 0, 255],
    "8UC4": [0, 0, 255, 255],
    "mono8": [76],
    "8UC1": [76],
}


def test_R3_red_is_red_in_every_encoding(cell: Cell) -> None:
    """A policy that was told to take the red block takes the blue one."""
    for width, (encoding, pixel) in enumerate(RED.items(), start=2):
        red = picture(np.tile(np.array(pixel, np.uint8), (2, width, 1)), encoding)
        cell.robot.make_image = partial(copied, red)
        wait_for(f"a picture in {encoding}", partial(cell.has_width, "top", width))
        expected = [255, 0, 0] if len(pixel) > 1 else [76, 76, 76]
        assert (cell.sees("top") == expected).all(), encoding


@pytest.mark.parametrize(("encoding", "big"), [("16UC1", 0), ("mono16", 1)])
def test_R5_R6_depth_camera_is_refused_naming_slot_and_camera(cell: Cell, encoding: str, big: int) -> None:
    """Millimetres, or their swapped bytes, shown as grey levels make the policy act on noise."""
    robot = cell.robot
    depth = picture(np.full((4, 4, 2), 9, np.uint8), encoding, is_bigendian=big)
    robot.make_image = lambda name: depth if name == "top" else image(name)
    words = f"camera 'top' on /top/image_raw: encoding '{encoding}' cannot feed slot 'top'"
    wait_for("camera and slot", lambda: words in robot.status("decisions").message)
    assert robot.is_silent(0.3)
    robot.make_image = image
    robot.new_chunks()


def test_R6_byte_order_of_bytes_does_not_matter(cell: Cell) -> None:
    """Some drivers set is_bigendian on 8-bit images: refusing them stops a robot for nothing."""
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    cell.robot.make_image = partial(copied, picture(pixels, "rgb8", is_bigendian=1))
    wait_for("the picture", partial(cell.has_width, "top", 2))
    np.testing.assert_array_equal(cell.sees("top"), pixels)


def test_R11_efforts_of_another_length_are_ignored(cell: Cell) -> None:
    """Drivers leave velocity and effort empty or give them another length; reading them by index ends in an
    exception, and the robot stops."""

    def odd() -> JointState:
        message = joint_state(positions={"pan": 0.5})
        message.effort = [9.0]
        return message

    cell.robot.make_joints = odd
    wait_for("the position", lambda: cell.given["state"][0] == 0.5)
    assert cell.robot.state() == "active"
    cell.robot.make_joints = lambda: JointState(name=list(JOINTS), velocity=[1.0] * 5)
    wait_for("velocities alone are no positions", lambda: cell.robot.is_silent(0.3))


def test_R12_joint_order_changes_from_message_to_message(cell: Cell) -> None:
    """Drivers reorder joints; values taken by position would send the elbow where the gripper should go."""
    orders = iter([JOINTS[::-1], ("elbow", *JOINTS[:2], *JOINTS[3:])] * 1000)
    cell.robot.make_joints = lambda: joint_state(next(orders))
    expected = np.array([0.1 * index for index in range(5)], np.float32)
    for chunk in cell.robot.new_chunks(5):
        np.testing.assert_allclose(chunk_array(chunk)[0], expected)


def test_R13_two_drivers_each_send_a_part(cell: Cell) -> None:
    """Arm and gripper have drivers of their own: together they are the state, and when one of them dies its
    last position must not count for ever."""
    robot = cell.robot
    hand = robot.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    wait_for("a match", hand.get_subscription_count)
    alive = threading.Event()
    alive.set()

    def arm() -> JointState:
        if alive.is_set():
            message = joint_state(("gripper",), {"gripper": 0.9})
            message.header.stamp = robot.node.get_clock().now().to_msg()
            hand.publish(message)
        return joint_state(JOINTS[:4], {"pan": 0.7})

    robot.make_joints = arm
    wait_for("both", lambda: cell.given["state"][0] > 0.6 and cell.given["state"][4] > 0.8)
    robot.new_chunks(3)
    alive.clear()
    wait_for("the reason", lambda: "of gripper stopped" in robot.status("joint_states").message)
    assert robot.is_silent(0.3)


def test_R16_non_finite_joints_never_reach_the_policy(cell: Cell) -> None:
    """One NaN from an encoder becomes NaN in every action; that of a joint that nobody uses does not."""
    robot = cell.robot
    robot.make_joints = lambda: joint_state((*JOINTS, "spare"), {"spare": float("nan"), "pan": 0.3})
    wait_for("the position", lambda: cell.given["state"][0] == np.float32(0.3))
    robot.make_joints = lambda: joint_state(positions={"elbow": float("nan")})
    wait_for("diagnostics that name it", lambda: "elbow = nan" in robot.status("joint_states").message)
    assert robot.is_silent(0.3)
    assert np.isfinite(cell.given["state"]).all()


def test_R19_zero_stamps_count_from_arrival(cell: Cell, capfd: pytest.CaptureFixture[str]) -> None:
    """A driver that leaves its stamps empty must neither stop the robot nor fill the log."""
    usual = cell.usual_stamp
    cell.robot.make_stamp = lambda source: Time() if source == "top" else usual(source)
    time.sleep(0.3)
    chunk = cell.robot.new_chunks(5)[-1]
    stamps = dict(zip(chunk.source_names, chunk.source_stamps, strict=True))
    assert abs(stamps["top"].sec - time.time()) < 5.0
    assert capfd.readouterr().err.count("its stamp is zero; its arrival time is used") == 1


def test_R21_a_camera_from_the_future_is_not_fresh_for_ever(
    cell: Cell, capfd: pytest.CaptureFixture[str]
) -> None:
    """A camera whose clock is ahead dies: by its stamps its last picture would stay fresh for a minute."""
    robot = cell.robot
    shifted(cell, "top", 60.0)
    time.sleep(0.3)
    chunk = robot.new_chunks(3)[-1]
    assert abs(chunk.header.stamp.sec - time.time()) < 5.0
    robot.alive.remove("top")
    time.sleep(0.8)
    assert robot.is_silent(0.3)
    wait_for("the camera", lambda: "camera 'top' on /top/image_raw stopped" in robot.status("top").message)
    assert "s in the future (clocks differ); its arrival time is used" in capfd.readouterr().err


def test_R23_a_step_of_the_wall_clock_moves_nothing(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a robot is set when it finds a network: a policy paced by it stops for an hour, or skips
    its whole chunk."""
    robot, now, now_ns = cell.robot, time.time, time.time_ns
    missed = cell.running.thread.missed
    for step_s in (3600, -3600):
        monkeypatch.setattr(time, "time", lambda step=step_s: now() + step)
        monkeypatch.setattr(time, "time_ns", lambda step=step_s: now_ns() + 10**9 * step)
        start = time.monotonic()
        chunks = robot.new_chunks(10)
        assert 0.5 < time.monotonic() - start < 4.0, "ten decisions at 10 Hz"
        assert all(0.0 <= chunk.policy_ms < 10_000.0 for chunk in chunks)
        assert all(chunk.steps_consumed < 100 for chunk in chunks), "a step lasts 100 ms"
    assert cell.running.thread.missed - missed < 50


def test_R28_the_next_chunk_is_computed_while_the_last_is_executed(cell: Cell) -> None:
    """A robot that stands still while its policy thinks jerks from chunk to chunk; a policy slower than its
    rate must be seen in the diagnostics."""
    missed = cell.number("decisions", "missed_deadlines")
    cell.policy.think_of(lambda: time.sleep(0.15))
    robot = cell.robot
    robot.new_chunks()
    trajectories = len(robot.trajectories)
    start = time.monotonic()
    wait_for("trajectories", lambda: len(robot.trajectories) >= trajectories + 4)
    # One decision ends every 0.2 s; were a chunk executed first, it would be every 0.6 s.
    assert time.monotonic() - start < 4 * 0.5
    wait_for("the deadlines", lambda: cell.number("decisions", "missed_deadlines") >= missed + 2)
    wait_for("the warning", lambda: "slower than decision_rate" in robot.status("decisions").message)


def test_R29_the_first_chunk_skips_nothing_and_later_ones_what_is_over(cell: Cell) -> None:
    """A slow first decision must not cost the robot the begin of its motion; a later chunk whose begin is
    executed again makes it jump back."""
    robot = cell.robot
    cell.policy.think_of(lambda: time.sleep(0.13))  # a chunk lasts 0.4 s: it never ends before the next one
    assert robot.change("deactivate")
    before = max(chunk.epoch for chunk in robot.chunks)
    assert robot.change("activate")
    chunks = wait_for(
        "a new epoch", lambda: (new := [c for c in robot.chunks if c.epoch > before])[2:] and new
    )
    assert chunks[0].policy_ms > 100.0
    assert chunks[0].steps_consumed == 0
    for number, chunk in enumerate(chunks[1:]):
        late_ms = chunk.age_ms + chunk.ingest_ms + chunk.policy_ms
        assert 100.0 * chunk.steps_consumed <= late_ms + 50.0
        if number > 0:  # the first of them observed a robot that did not move yet
            assert 100.0 * chunk.steps_consumed >= late_ms - 100.0


def test_R32_a_robot_that_hardly_moves_is_still_decided_for(cell: Cell) -> None:
    """A filter that waits for motion freezes a policy that waits for the robot."""
    shades = iter(range(10_000))

    def noisy(name: str) -> Image:
        message = image(name)
        message.data[0] = next(shades) % 256
        return message

    robot = cell.robot
    robot.make_image = noisy
    robot.new_chunks()
    chunks = robot.new_chunks(12)
    assert len({chunk.sequence for chunk in chunks}) == 12
    assert np.ptp([chunk_array(chunk)[0] for chunk in chunks], axis=0).max() == 0.0


def test_R43_R44_R50_a_result_for_the_old_task_is_dropped(cell: Cell) -> None:
    """A new task comes while the policy computes: the node must hear it at once; what was computed was for
    the old one and must not move the robot; and each chunk says which task it is for."""
    robot, busy, go_on, over = cell.robot, threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        busy.set()
        go_on.wait(5.0)
        over.set()

    cell.policy.think_of(wait)
    assert busy.wait(5.0)
    time.sleep(0.2)  # what was sent before has arrived
    count = len(robot.chunks)
    sequence = cell.given["sequence"]
    try:
        assert robot.set_parameter("instruction", "wave") == (True, "")
        assert not over.is_set(), "the node answered only after the decision"
    finally:
        go_on.set()
    chunks = robot.new_chunks(2)
    assert chunks == robot.chunks[count : count + 2]
    assert [chunk.sequence for chunk in chunks] == [sequence + 1, sequence + 2]
    assert {chunk.instruction for chunk in chunks} == {"wave"}
    wait_for("the count", lambda: cell.number("decisions", "count_old_epoch") >= 1)
    assert robot.set_parameter("instruction", "pick up the red block") == (True, "")
