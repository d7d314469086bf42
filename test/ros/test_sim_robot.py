# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The simulated robot as a process, over DDS. When these fail, the demo has no robot to drive."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rclpy
from builtin_interfaces.msg import Duration
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from flashrt_ros.sim.arm import JOINTS
from flashrt_ros.sim.robot import Ticker

NAMES = [joint.name for joint in JOINTS]
HOME = [joint.home for joint in JOINTS]


class Peer:
    """A node that hears and drives the robot `ns`; `process` is the robot."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "robot.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-m", "flashrt_ros.sim.robot", "--ros-args", "-r", "__ns:=/sim"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.node = Node("peer")
        self.heard: dict[str, list[Any]] = {name: [] for name in ("front", "wrist", "joints")}
        for name, message_type, topic in (
            ("front", Image, "/sim/front/image_raw"),
            ("wrist", Image, "/sim/wrist/image_raw"),
            ("joints", JointState, "/sim/joint_states"),
        ):
            self.node.create_subscription(
                message_type, topic, self.heard[name].append, qos_profile_sensor_data
            )
        self.trajectories = self.node.create_publisher(JointTrajectory, "/sim/joint_trajectory", 10)

    def until(self, done: Callable[[], bool], timeout_s: float = 15.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, f"timeout; the robot said:\n{self.log.read_text()}"
            rclpy.spin_once(self.node, timeout_sec=0.1)

    def send(
        self,
        positions: list[float],
        seconds: float,
        names: list[str] = NAMES,
        velocities: Sequence[float] = (),
    ) -> None:
        due = Duration(sec=int(seconds), nanosec=int(seconds % 1 * 1e9))
        point = JointTrajectoryPoint(positions=positions, velocities=list(velocities), time_from_start=due)
        self.trajectories.publish(JointTrajectory(joint_names=names, points=[point]))


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    rclpy.init()
    try:
        peer = Peer(tmp_path)
        yield peer
        # Not SIGKILL: Fast DDS sometimes crashes on the shared memory that a killed process leaves behind.
        peer.process.send_signal(signal.SIGINT)
        try:
            peer.process.wait(10)
        except subprocess.TimeoutExpired:
            peer.process.kill()
            peer.process.wait()
        peer.node.destroy_node()
    finally:
        rclpy.try_shutdown()


@pytest.mark.dds
def test_robot_publishes_follows_and_survives_bad_trajectories(peer: Peer) -> None:
    """Lost otherwise: no images or joint states, an arm that does not move or that dies of bad input."""
    peer.until(lambda: all(len(messages) >= 3 for messages in peer.heard.values()))
    image = peer.heard["front"][-1]
    assert (image.width, image.height, image.encoding, image.step) == (640, 480, "rgb8", 1920)
    assert image.header.frame_id == "front_camera_optical_frame"
    assert not np.array_equal(image.data, peer.heard["wrist"][-1].data)
    assert peer.heard["joints"][-1].name == NAMES
    assert peer.heard["joints"][-1].position == pytest.approx(HOME)

    peer.until(lambda: peer.trajectories.get_subscription_count() == 1)
    peer.send([0.0] * 3, 0.1, NAMES[:3])
    peer.send([0.0] * 4, 0.1, velocities=[0.1, 0.0, 0.0, 0.0])
    target = [0.3, 1.0, -1.4, 0.06]
    peer.send(target, 0.2, velocities=[0.0] * 4)
    peer.until(lambda: np.allclose(peer.heard["joints"][-1].position, target, atol=1e-3))
    assert "trajectory on joint_trajectory ignored: joint_names are" in peer.log.read_text()
    assert "the last velocity of shoulder_pan is 0.1" in peer.log.read_text(), "velocities are heard (R38)"


@pytest.mark.dds
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_robot_ends_cleanly(peer: Peer, number: signal.Signals) -> None:
    """Lost otherwise: the demo leaves a robot behind, or its log ends in a traceback."""
    peer.until(lambda: bool(peer.heard["joints"]))
    peer.process.send_signal(number)
    assert peer.process.wait(timeout=10) == 0
    text = peer.log.read_text()
    assert f"stopped by {number.name}" in text
    assert "Traceback" not in text


def test_ticker_keeps_its_rate_and_skips_what_it_missed() -> None:
    """Lost otherwise: the cameras drift below 30 Hz, or send a burst after a hiccup."""
    ticker = Ticker(0.1, first_s=1.0)
    assert not ticker.due(0.99)
    fired = [now_s for now_s in np.arange(1.0, 2.0, 0.03) if ticker.due(float(now_s))]
    assert len(fired) == 10
    assert ticker.due(5.03)
    assert not ticker.due(5.04)
    assert ticker.next_s == pytest.approx(5.1)
