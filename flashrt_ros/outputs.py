# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Everything the node says: commands, the chunk, and what the model saw."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import Image, JointState

from flashrt_ros.channels import Channel
from flashrt_ros.chunk import Account, chunk_fields, decision_steps_consumed
from flashrt_ros.command_messages import MESSAGES, Command, TrajectoryMessage
from flashrt_ros.commands import Accepted, Commands
from flashrt_ros.gripper_client import GripperClient
from flashrt_ros.messages import action_chunk, lag_message, rgb_image
from flashrt_ros.msg import ActionChunk
from flashrt_ros.observation import NS_PER_MS, NS_PER_S, Decision
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.statistics import Window
from flashrt_ros.trajectory import Trajectory


class CommandPublishers:
    """Puts the commands of each channel on its topic, or to its gripper: the `Sender` of `Commands`.

    Raises ConfigError where a message package is missing.
    """

    def __init__(self, node: LifecycleNode, channels: Sequence[Channel], config: NodeConfig) -> None:
        self._node = node
        self._period_ns = round(NS_PER_S / config.stream_rate_hz)
        self._publishers: dict[str, Any] = {}
        self._grippers: dict[str, GripperClient] = {}
        self._trajectories = {channel.group.name: TrajectoryMessage(channel.group) for channel in channels}
        try:
            for channel in channels:
                self._open(channel)
        except BaseException:
            self.close()
            raise

    def _open(self, channel: Channel) -> None:
        group = channel.group
        if group.output == "gripper_command":
            self._grippers[group.name] = GripperClient(self._node, group, gripper_resolution(channel))
            return
        # Depth 1: a controller that was away must get the newest command, not the ones it missed.
        message_type = MESSAGES[group.output].message
        self._publishers[group.name] = open_publisher(self._node, message_type, group.topic, 1)

    def trajectory(self, channel: Channel, trajectory: Trajectory) -> None:
        """A whole chunk."""
        message = self._trajectories[channel.group.name].fill(trajectory)
        self._publishers[channel.group.name].publish(message)

    def moment(self, channel: Channel, values: np.ndarray, velocities: np.ndarray) -> None:
        """What is commanded now: values [W] and how fast they change, per s."""
        group = channel.group
        gripper = self._grippers.get(group.name)
        if gripper is not None:
            gripper.send(values)
            return
        stamp_ns = int(self._node.get_clock().now().nanoseconds)
        command = Command(values, velocities, stamp_ns, self._period_ns)
        self._publishers[group.name].publish(MESSAGES[group.output].build(group, command))

    def forget(self) -> None:
        """The next gripper goal is sent whatever the last one was."""
        for gripper in self._grippers.values():
            gripper.reset()

    def close(self) -> None:
        """Destroy the publishers and clients."""
        for publisher in self._publishers.values():
            self._node.destroy_lifecycle_publisher(publisher)
        for gripper in self._grippers.values():
            gripper.close()


def gripper_resolution(channel: Channel) -> float:
    """Change of position that is worth a goal: 1 % of the range, else 1e-3, in the robot's units.

    Most drivers begin their motion anew with each goal.
    """
    limits = getattr(channel.motion, "limits", None)
    if limits is None or not np.isfinite(limits.upper - limits.lower).all():
        return 1e-3
    return 0.01 * float((limits.upper - limits.lower).min())


def open_publisher(node: LifecycleNode, message_type: type, topic: str, depth: int) -> Any:
    """A reliable lifecycle publisher whose QoS parameters may override."""
    return node.create_lifecycle_publisher(
        message_type,
        topic,
        QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE),
        qos_overriding_options=QoSOverridingOptions.with_default_policies(),
    )


class Outputs:
    """Lifecycle publishers of the node; they are silent unless the node is active.

    `windows`, in ms of each decision: post (result → commands sent), publish (the chunk message), overhead
    (decision start → commands and chunk sent, minus the policy's own time).
    """

    def __init__(self, node: LifecycleNode, config: NodeConfig, policy: Any) -> None:
        self.windows = {name: Window() for name in ("post", "publish", "overhead")}
        self.debug_images_hz = config.debug_images
        self._node, self._policy, self._config = node, policy, config
        self._camera_of_slot = {policy.slot(camera.slot): camera.name for camera in config.cameras}
        self._chunks = open_publisher(node, ActionChunk, "~/action_chunk", depth=10)
        self._divergence = (
            open_publisher(node, JointState, "~/divergence", depth=10) if config.shadow else None
        )
        self._images = {
            camera: node.create_lifecycle_publisher(Image, f"~/model_image/{camera}", qos_profile_sensor_data)
            for camera in self._camera_of_slot.values()
        }
        self._next_image_ns = 0
        self._publish_ms = 0.0

    def publish(self, decision: Decision, commands: Commands, rate_hz: float, missed: int) -> Accepted:
        """Send one decision, the commands first: they are what the robot waits for.

        `rate_hz` and `missed` are the measured rate of decisions and the deadlines missed.
        """
        config = self._config
        consumed = decision_steps_consumed(decision, config.action_rate_hz)
        accepted = commands.accept(decision, consumed, time.monotonic_ns())
        sent_ns = time.monotonic_ns()
        before_ms = decision.ingest_ms + decision.policy_ms
        post_ms = (sent_ns - decision.started_ns) / NS_PER_MS - before_ms
        account = Account(
            groups=config.action_groups,
            commanded=accepted.sent,
            post_ms=post_ms,
            publish_ms=self._publish_ms,
            decision_rate_hz=rate_hz,
            missed_deadlines=missed,
        )
        fields = chunk_fields(decision, accepted.consumed, config.action_rate_hz, account)
        self._chunks.publish(action_chunk(fields))
        done_ns = time.monotonic_ns()
        self._publish_ms = (done_ns - sent_ns) / NS_PER_MS
        overhead_ms = (done_ns - decision.started_ns) / NS_PER_MS - decision.policy_ms
        for name, ms in (("post", post_ms), ("publish", self._publish_ms), ("overhead", overhead_ms)):
            self.windows[name].add(ms)
        if self._divergence is not None and commands.lag:
            self._divergence.publish(lag_message(commands.lag, decision.observation.now_ns))
        self._publish_images(decision)
        return accepted

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
        others = () if self._divergence is None else (self._divergence,)
        for publisher in (self._chunks, *others, *self._images.values()):
            self._node.destroy_lifecycle_publisher(publisher)
