# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A node in this process and its robot, for tests of rows of robot-behaviour: its policy notes what it was
given."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image

from flashrt_kernels.pixels import FORMATS, RawImage
from flashrt_ros.messages import time_message
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.running import Running
from test.ros.stub_policy import HORIZON, StubPolicy
from test.ros.support import CAMERAS, NodeThread, Robot, image, joint_state, parameters


class Cell:
    """A robot with a node that decides."""

    def __init__(self, thread: NodeThread, robot: Robot) -> None:
        self.thread, self.robot = thread, robot
        self.usual_stamp = robot.make_stamp

    def reset(self) -> None:
        """The robot as it was at the start, and a node that decides on it."""
        robot = self.robot
        robot.alive, robot.send_joints = set(CAMERAS), True
        robot.make_image, robot.make_joints, robot.make_stamp = image, joint_state, self.usual_stamp
        self.policy.think_of(lambda: None)
        robot.new_chunks()

    @property
    def running(self) -> Running:
        """What the node holds while it is configured."""
        running = self.thread.node.running
        assert running is not None
        return running

    @property
    def policy(self) -> NotingPolicy:
        assert isinstance(self.running.policy, NotingPolicy)
        return self.running.policy

    @property
    def given(self) -> Mapping[str, Any]:
        """What the policy was given in the newest decision: images, state, instruction, sequence."""
        return self.policy.given

    def sees(self, camera: str) -> np.ndarray:
        """The picture of a camera as the policy got it: uint8 [h, w, 3]."""
        return rgb(self.given["images"][camera])

    def has_width(self, camera: str, width: int) -> bool:
        """Whether the policy got an image of this width."""
        return bool(self.given["images"][camera].width == width)

    def number(self, concern: str, key: str) -> float:
        """As `value`; 0 where it is not there."""
        return float(self.value(concern, key) or 0.0)

    def value(self, concern: str, key: str) -> str:
        """One value of the newest diagnostics; empty where it is not there."""
        values = {value.key: value.value for value in self.robot.status(concern).values}
        return values.get(key, "")


class NotingPolicy(StubPolicy):
    """Answers with the state it was given and keeps what it was given."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config, think=self._note)
        self.given: Mapping[str, Any] = {}
        self._during: Callable[[], object] = lambda: None

    def think_of(self, during: Callable[[], object]) -> None:
        """What happens inside of every decision from now on."""
        self._during = during

    def _note(self, **given: Any) -> np.ndarray:
        self.given = given
        self._during()
        return np.tile(np.asarray(given["state"], np.float32), (HORIZON, 1))  # [HORIZON, D]


@contextmanager
def cell_of(**changes: Any) -> Iterator[Cell]:
    """A node with these parameters, configured and active."""
    with NodeThread(NotingPolicy, parameters(**changes)) as thread, Robot() as robot:
        cell = Cell(thread, robot)
        robot.bring_up()
        robot.new_chunks()
        yield cell


def rgb(raw: RawImage) -> np.ndarray:
    """As a policy reads it: uint8 [h, w, 3]."""
    pixel = FORMATS[raw.encoding]
    rows = np.frombuffer(raw.data, np.uint8)[: raw.height * raw.step].reshape(raw.height, raw.step)
    pixels = rows[:, : raw.width * pixel.channels].reshape(raw.height, raw.width, pixel.channels)
    return pixels[..., list(pixel.rgb)]


def picture(pixels: np.ndarray, encoding: str, **fields: Any) -> Image:
    """A message of pixels uint8 [h, w, channels]."""
    height, width, channels = pixels.shape
    step = fields.pop("step", width * channels)
    message = Image(height=height, width=width, encoding=encoding, step=step, **fields)
    message.data = array("B", pixels.tobytes())
    return message


def copied(message: Image, name: str) -> Image:
    """The same image from every camera, each time a message of its own."""
    return copy(message)


@contextmanager
def slow(robot: Robot, camera: str, rate_hz: float) -> Iterator[None]:
    """This camera sends at another rate than the others."""
    robot.alive.remove(camera)
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(1.0 / rate_hz):
            message = image(camera)
            message.header.stamp = robot.node.get_clock().now().to_msg()
            robot.cameras[camera].publish(message)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def shifted(cell: Cell, source: str, seconds: float) -> None:
    """The stamps of one source lie so far from now."""

    def make(name: str) -> Time:
        now_ns = cell.robot.node.get_clock().now().nanoseconds
        return time_message(now_ns + round(1e9 * seconds) * (name == source))

    cell.robot.make_stamp = make


class SimulatedTime:
    """A /clock that goes on with the robot's messages, and stamps them."""

    def __init__(self, robot: Robot) -> None:
        self.now_s = 100.0
        self._clock = robot.node.create_publisher(Clock, "/clock", 10)
        robot.make_stamp = self._stamp

    def _stamp(self, source: str) -> Time:
        if source == "joint_states":  # the last one of a round of 50 ms
            self.now_s += 0.05
            self._clock.publish(Clock(clock=self.message()))
        return self.message()

    def message(self) -> Time:
        return time_message(round(1e9 * self.now_s))
