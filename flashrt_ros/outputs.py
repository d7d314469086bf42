# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Everything the node says: commands, the chunk, and what the model saw."""

from __future__ import annotations

import time
from typing import Any

from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import Image, JointState

from flashrt_ros.channels import Channel
from flashrt_ros.chunk import Account, chunk_fields, decision_steps_consumed
from flashrt_ros.command_messages import COMMANDS
from flashrt_ros.commands import Accepted, Commands
from flashrt_ros.messages import action_chunk, lag_message, rgb_image
from flashrt_ros.msg import ActionChunk
from flashrt_ros.observation import NS_PER_MS, NS_PER_S, Decision
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.statistics import Window


class CommandPublishers:
    """Puts the commands of each channel on its topic: the `Sender` of `Commands`."""

    def __init__(self, node: LifecycleNode, channels: tuple[Channel, ...], stream_rate_hz: float) -> None:
        self._node, self._period_ns = node, round(NS_PER_S / stream_rate_hz)
        self._ports = {
            channel.group.name: COMMANDS[channel.group.output](node, channel) for channel in channels
        }

    def trajectory(self, channel: Channel, planned: Any) -> None:
        """A whole chunk."""
        self._ports[channel.group.name].trajectory(planned.trajectory)

    def moment(self, channel: Channel, command: Any) -> None:
        """What is commanded now."""
        self._ports[channel.group.name].moment(command, self._period_ns)

    def close(self) -> None:
        """Destroy the publishers and clients."""
        for port in self._ports.values():
            port.close()


class Outputs:
    """Lifecycle publishers of the node; they are silent unless the node is active.

    `overhead` holds, for each decision, decision start → commands and chunk sent minus the policy's own time,
    in ms.
    """

    def __init__(self, node: LifecycleNode, config: NodeConfig, policy: Any) -> None:
        self.overhead = Window()
        self.debug_images_hz = config.debug_images
        self._node, self._policy, self._config = node, policy, config
        self._camera_of_slot = {policy.slot(camera.slot): camera.name for camera in config.cameras}
        self._chunks = self._publisher(ActionChunk, "~/action_chunk", depth=10)
        self._divergence = self._publisher(JointState, "~/divergence", depth=10) if config.shadow else None
        self._images = {
            camera: node.create_lifecycle_publisher(Image, f"~/model_image/{camera}", qos_profile_sensor_data)
            for camera in self._camera_of_slot.values()
        }
        self._next_image_ns = 0
        self._publish_ms = 0.0

    def _publisher(self, message_type: type, topic: str, depth: int) -> Any:
        return self._node.create_lifecycle_publisher(
            message_type,
            topic,
            QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def publish(self, decision: Decision, commands: Commands, rate_hz: float, missed: int) -> Accepted:
        """Send one decision, the commands first: they are what the robot waits for.

        `rate_hz` and `missed` are the measured rate of decisions and the deadlines missed.
        """
        config = self._config
        consumed = decision_steps_consumed(decision, config.action_rate_hz)
        observed_ns = decision.started_ns
        accepted = commands.accept(decision.actions, consumed, observed_ns, time.monotonic_ns())
        sent_ns = time.monotonic_ns()
        account = Account(
            groups=config.action_groups,
            commanded=accepted.sent,
            post_ms=decision.total_ms
            - decision.ingest_ms
            - decision.policy_ms
            + (sent_ns - decision.finished_ns) / NS_PER_MS,
            publish_ms=self._publish_ms,
            decision_rate_hz=rate_hz,
            missed_deadlines=missed,
        )
        self._chunks.publish(action_chunk(chunk_fields(decision, consumed, config.action_rate_hz, account)))
        done_ns = time.monotonic_ns()
        self._publish_ms = (done_ns - sent_ns) / NS_PER_MS
        self.overhead.add((done_ns - decision.started_ns) / NS_PER_MS - decision.policy_ms)
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
