# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The simulated robot as one ROS 2 process: `python -m flashrt_ros.sim.robot`.

Publishes `front/image_raw`, `wrist/image_raw` (640×480 rgb8, 30 Hz each) and `joint_states` (100 Hz), follows
`joint_trajectory`. All names are relative: namespaces and remaps work as on a robot.
"""

from __future__ import annotations

import array
import signal
import sys
import time
from collections.abc import Callable

import cv2
import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image, JointState
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.sim.arm import Arm, ArmPose, TrajectoryError, arm_pose
from flashrt_ros.sim.messages import trajectory_fields
from flashrt_ros.sim.scene import HEIGHT, WIDTH, Renderer

CAMERA_RATE_HZ = 30.0
JOINT_RATE_HZ = 100.0


class Ticker:
    """Fires every `period_s` of a monotonic clock, without drift; missed ticks are dropped, not made up."""

    def __init__(self, period_s: float, first_s: float) -> None:
        self._period_s = period_s
        self.next_s = first_s

    def due(self, now_s: float) -> bool:
        if now_s < self.next_s:
            return False
        late_ticks = int((now_s - self.next_s) / self._period_s)
        self.next_s += (late_ticks + 1) * self._period_s
        return True


class CameraOutput:
    """One camera: a publisher and a message whose pixels are drawn in place, so Python copies no frame."""

    def __init__(self, node: Node, name: str, draw: Callable[[np.ndarray, ArmPose], None]) -> None:
        self._draw = draw
        self._publisher = node.create_publisher(Image, f"{name}/image_raw", qos_profile_sensor_data)
        self._message = Image(height=HEIGHT, width=WIDTH, encoding="rgb8", step=3 * WIDTH)
        self._message.header.frame_id = f"{name}_camera_optical_frame"
        self._message.data = array.array("B", bytes(HEIGHT * WIDTH * 3))
        self._pixels = np.frombuffer(self._message.data, np.uint8).reshape(HEIGHT, WIDTH, 3)

    def publish(self, pose: ArmPose, stamp_ns: int) -> None:
        self._draw(self._pixels, pose)
        stamp = self._message.header.stamp
        stamp.sec, stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        self._publisher.publish(self._message)


class SimulatedRobot(Node):
    """The arm, its cameras and its topics. `tick` does whatever is due and returns when to come back."""

    def __init__(self) -> None:
        super().__init__("robot")
        now_s = time.monotonic()
        self.arm = Arm(now_s=now_s)
        renderer = Renderer()
        frame_s = 1.0 / CAMERA_RATE_HZ
        # Half a frame apart, as two free-running cameras would be on average.
        self._cameras = (
            (Ticker(frame_s, now_s), CameraOutput(self, "front", renderer.front)),
            (Ticker(frame_s, now_s + frame_s / 2), CameraOutput(self, "wrist", renderer.wrist)),
        )
        self._joint_ticker = Ticker(1.0 / JOINT_RATE_HZ, now_s)
        self._joint_state = JointState(name=list(self.arm.names))
        self._joint_publisher = self.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
        self.create_subscription(
            JointTrajectory, "joint_trajectory", self._on_trajectory, QoSProfile(depth=10)
        )

    def tick(self, now_s: float) -> float:
        """Advance the arm to `now_s`, publish what is due; returns the time of the next thing to do."""
        self.arm.step(now_s)
        if self._joint_ticker.due(now_s):
            self._publish_joints()
        for ticker, camera in self._cameras:
            if ticker.due(now_s):
                camera.publish(arm_pose(self.arm.positions), self._wall_ns())
        return min(self._joint_ticker.next_s, *(ticker.next_s for ticker, _ in self._cameras))

    def _publish_joints(self) -> None:
        message = self._joint_state
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(self._wall_ns(), 1_000_000_000)
        message.position = array.array("d", self.arm.positions)
        message.velocity = array.array("d", self.arm.velocities)
        self._joint_publisher.publish(message)

    def _wall_ns(self) -> int:
        return self.get_clock().now().nanoseconds

    def _on_trajectory(self, message: JointTrajectory) -> None:
        heard = trajectory_fields(message)
        now_s = time.monotonic()
        start_s = None if heard.stamp_ns == 0 else now_s + (heard.stamp_ns - self._wall_ns()) / 1e9
        try:
            self.arm.follow(heard.names, heard.times_s, heard.positions, now_s, start_s, heard.velocities)
        except TrajectoryError as error:
            self.get_logger().warning(
                f"trajectory on joint_trajectory ignored: {error}. The arm goes on with the one before"
            )


def main(args: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; returns the exit code."""
    # Our own handlers: rclpy's would shut the context down in the middle of a publish.
    rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: stopping.append(received))
    cv2.setNumThreads(1)  # two cores are shared with the policy, and a frame takes a millisecond
    robot = SimulatedRobot()
    executor = SingleThreadedExecutor()
    executor.add_node(robot)
    robot.get_logger().info(f"simulated arm: joints {', '.join(robot.arm.names)}; cameras front and wrist")
    try:
        while not stopping:
            wake_s = robot.tick(time.monotonic())
            executor.spin_once(timeout_sec=max(0.0, wake_s - time.monotonic()))
        robot.get_logger().info(f"stopped by {signal.Signals(stopping[0]).name}")
    finally:
        executor.shutdown()
        robot.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
