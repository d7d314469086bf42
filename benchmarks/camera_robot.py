# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A robot that only talks: three 1280×720 cameras at 30 Hz, joint states at 500 Hz. For node_cost."""

import array
import signal
import time
from typing import Any

import numpy as np
import rclpy
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image, JointState

from flashrt_ros.sim.robot import Ticker

CAMERAS = ("front", "left", "right")
JOINTS = tuple(f"joint_{number}" for number in range(7))
ROBOT: dict[str, Any] = {
    "cameras": list(CAMERAS),
    "joint_names": list(JOINTS),
    "action_rate_hz": 10.0,
    "require_enable": False,
    **{f"joint.{name}.min": -1.0 for name in JOINTS},
    **{f"joint.{name}.max": 1.0 for name in JOINTS},
    **{f"joint.{name}.max_velocity": 1.0 for name in JOINTS},
}
"""Parameters of a node for it."""

WIDTH, HEIGHT = 1280, 720
CAMERA_HZ, JOINT_HZ = 30.0, 500.0


class Camera:
    """Publishes one message whose first pixel counts: Python copies no frame."""

    def __init__(self, node: Node, name: str) -> None:
        self._publisher = node.create_publisher(Image, f"{name}/image_raw", qos_profile_sensor_data)
        self._message = Image(height=HEIGHT, width=WIDTH, encoding="rgb8", step=3 * WIDTH)
        self._message.data = array.array("B", np.random.default_rng(0).bytes(HEIGHT * WIDTH * 3))
        self._frames = 0

    def publish(self, stamp_ns: int) -> None:
        """Send one frame."""
        self._frames += 1
        self._message.data[0] = self._frames % 256
        self._message.header.stamp.sec, self._message.header.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        self._publisher.publish(self._message)


def main() -> None:
    """Publish until SIGINT or SIGTERM."""
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: stopping.append(received))
    node, now_s = Node("camera_robot"), time.monotonic()
    # A third of a frame apart, as free-running cameras would be on average.
    phases = [now_s + index / len(CAMERAS) / CAMERA_HZ for index in range(len(CAMERAS))]
    cameras = [
        (Ticker(1 / CAMERA_HZ, phase), Camera(node, name))
        for name, phase in zip(CAMERAS, phases, strict=True)
    ]
    ticker, publisher = (
        Ticker(1 / JOINT_HZ, now_s),
        node.create_publisher(JointState, "joint_states", qos_profile_sensor_data),
    )
    joints = JointState(name=list(JOINTS), position=[0.1] * len(JOINTS), velocity=[0.0] * len(JOINTS))
    while not stopping:
        now_s, stamp_ns = time.monotonic(), time.time_ns()
        if ticker.due(now_s):
            joints.header.stamp.sec, joints.header.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
            publisher.publish(joints)
        for camera_ticker, camera in cameras:
            if camera_ticker.due(now_s):
                camera.publish(stamp_ns)
        wake_s = min(ticker.next_s, *(camera_ticker.next_s for camera_ticker, _ in cameras))
        time.sleep(max(0.0, wake_s - time.monotonic()))
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
