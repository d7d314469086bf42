# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Everything the node says about a decision: the trajectory, the chunk, and what the model saw."""

from __future__ import annotations

import time
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import Image
from trajectory_msgs.msg import JointTrajectory

from flashrt_ros.chunk import chunk_fields, decision_steps_consumed, trajectory_points
from flashrt_ros.messages import action_chunk, joint_trajectory, rgb_image
from flashrt_ros.msg import ActionChunk
from flashrt_ros.observation import NS_PER_MS, NS_PER_S, Decision
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.statistics import Window


class Outputs:
    """Lifecycle publishers of the node; they are silent unless the node is active.

    `overhead` holds, for each decision, decision start → publish returned minus the policy's own time, in ms.
    `expired` counts decisions that came so late that every step of their chunk was in the past (R36).
    """

    def __init__(self, node: LifecycleNode, config: NodeConfig, policy: Any) -> None:
        self.overhead = Window()
        self.expired = 0
        self.debug_images_hz = config.debug_images
        self._node, self._policy = node, policy
        self._rate_hz = config.action_rate_hz
        self._camera_of_slot = {policy.slot(camera.slot): camera.name for camera in config.cameras}
        self._chunks = self._publisher(ActionChunk, "~/action_chunk", depth=10)
        # Depth 1: a controller that was away must get the newest trajectory, not the ones it missed.
        self._trajectories = self._publisher(JointTrajectory, "joint_trajectory", depth=1)
        self._images = {
            camera: node.create_lifecycle_publisher(Image, f"~/model_image/{camera}", qos_profile_sensor_data)
            for camera in self._camera_of_slot.values()
        }
        self._next_image_ns = 0

    def _publisher(self, message_type: type, topic: str, depth: int) -> Any:
        return self._node.create_lifecycle_publisher(
            message_type,
            topic,
            QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def publish(self, decision: Decision) -> None:
        """Send one decision, the trajectory first: it is what the robot waits for."""
        consumed = decision_steps_consumed(decision, self._rate_hz)
        points = trajectory_points(decision.actions, consumed, self._rate_hz)
        if points is None:
            self.expired += 1
            if self.expired == 1:
                self._node.get_logger().warning(
                    f"nothing sent: all {len(decision.actions)} steps of a chunk, at action_rate_hz = "
                    f"{self._rate_hz:g}, were in the past when it was ready ({consumed} had passed since "
                    "its observation); expired_chunks in /diagnostics counts such chunks"
                )
        else:
            self._trajectories.publish(joint_trajectory(decision.action_names, points))
        self._chunks.publish(action_chunk(chunk_fields(decision, consumed, self._rate_hz)))
        total_ms = (time.monotonic_ns() - decision.started_ns) / NS_PER_MS
        self.overhead.add(total_ms - decision.policy_ms)
        self._publish_images(decision)

    def _publish_images(self, decision: Decision) -> None:
        """What the model saw, at `debug_images` Hz at most, after the decision is out."""
        now_ns = time.monotonic_ns()
        if self.debug_images_hz <= 0 or now_ns < self._next_image_ns:
            return
        self._next_image_ns = now_ns + round(NS_PER_S / self.debug_images_hz)
        for slot, pixels in self._policy.model_images().items():  # uint8 [h, w, 3]
            camera = self._camera_of_slot.get(slot)
            if camera is not None:
                stamp_ns = decision.observation.stamps_ns.get(camera, decision.observation.oldest_ns)
                self._images[camera].publish(rgb_image(pixels, stamp_ns, camera))

    def close(self) -> None:
        """Destroy the publishers."""
        for publisher in (self._chunks, self._trajectories, *self._images.values()):
            self._node.destroy_lifecycle_publisher(publisher)
