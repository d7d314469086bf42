# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Everything the node listens to: cameras, the sources of the state, the instruction."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from geometry_msgs.msg import PoseStamped
from rclpy.clock import ROSClock
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import CompressedImage, Image, JointState, PointCloud2
from std_msgs.msg import Bool, Float64MultiArray, String

from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import JOINT_STATES
from flashrt_ros.parameters import CameraConfig, ConfigError, NodeConfig, StateGroup
from flashrt_ros.sources import JOINT_DEPTH, Source, open_source
from flashrt_ros.state import listened_sources
from flashrt_ros.transforms import TransformSource, TransformTree

CAMERA_MESSAGES: Final = {"raw": Image, "compressed": CompressedImage, "pointcloud": PointCloud2}
STATE_MESSAGES: Final[dict[str, tuple[type, int]]] = {
    "joint_state": (JointState, JOINT_DEPTH),
    "array": (Float64MultiArray, 1),
    "pose": (PoseStamped, 1),
}
"""Source of a state group → its message, and how many are kept: of joints all, which are merged."""


OWN_TOPICS: Final = ("~/action_chunk", "~/divergence", "~/instruction", "~/enable", "/diagnostics")


def with_full_topics(node: Node, config: NodeConfig) -> NodeConfig:
    """`config` with the topic of each camera as it is after namespace and remaps, to be named to people.

    Topics of state groups stay, since groups belong together by them. Raises ConfigError for a topic that is
    no name.
    """
    cameras = tuple(
        replace(camera, topic=_full_topic(node, f"camera.{camera.name}.topic", camera.topic))
        for camera in config.cameras
    )
    _check_topics(node, config, cameras)
    return replace(config, cameras=cameras)


def _check_topics(node: Node, config: NodeConfig, cameras: Sequence[CameraConfig]) -> None:
    """One topic carries one thing: raises ConfigError where two parameters name the same one.

    State groups may share theirs, if they are of one source.
    """
    taken = {_full_topic(node, name, name): f"'{name}'" for name in OWN_TOPICS}
    for camera in cameras:
        _take(taken, camera.topic, f"parameter 'camera.{camera.name}.topic'", "")
    for state in config.state_groups:
        name = f"state.{state.name}.topic"
        if state.topic:
            _take(taken, _full_topic(node, name, state.topic), f"parameter '{name}'", state.source)
    for action in config.action_groups:
        name = f"action.{action.name}.topic"
        _take(taken, _full_topic(node, name, action.topic), f"parameter '{name}'", "")


def _take(taken: dict[str, str], topic: str, who: str, shared_by: str) -> None:
    """`shared_by`: what may use one topic together; "" = nothing."""
    owner = taken.setdefault(topic, shared_by or who)
    if owner != (shared_by or who):
        other = f"state groups of source {owner}" if owner in STATE_MESSAGES else owner
        raise ConfigError(f"{who} is {topic}, which is taken by {other}: one topic carries one thing")


def _full_topic(node: Node, parameter: str, topic: str) -> str:
    try:
        return str(node.resolve_topic_name(topic))
    except RuntimeError as error:  # RCLError has no public name
        raise ConfigError(f"parameter '{parameter}' is '{topic}', which is no topic: {error}") from error


def simulated_arrival_ns(received_ns: int, before: tuple[int, int], now: tuple[int, int]) -> int:
    """Simulated time at wall-clock time `received_ns`, from two readings (wall ns, simulated ns) of both.

    A simulator runs slower or faster than the wall clock, or stands still, so between two readings the time
    is interpolated. Where the clock went back only the newer reading counts.
    """
    (wall_0, simulated_0), (wall, simulated) = before, now
    shifted_ns = received_ns - wall + simulated
    if wall_0 >= wall or simulated_0 > simulated:
        return shifted_ns
    share = min(1.0, max(0.0, (received_ns - wall_0) / (wall - wall_0)))
    # After a jump forward the distance to now is the better guess.
    return max(simulated_0 + round(share * (simulated - simulated_0)), min(shifted_ns, simulated))


class Inputs:
    """The cameras and sources of the state of `config`, pulled into `ingest` when somebody wants to look."""

    def __init__(self, node: Node, config: NodeConfig, ingest: Ingest) -> None:
        self.sources: dict[str, Source | TransformSource] = {}
        self._node, self._config, self._ingest = node, config, ingest
        self._pulling = threading.Lock()
        self._readings: dict[str, tuple[int, int]] = {}  # of wall and simulated time at the last pull

    def open(self, on_trigger: Callable[[], None], *, on_demand: bool = True) -> None:
        """Subscribe to every source; `on_trigger` is called (executor's thread) at each image of the trigger
        camera."""
        config = self._config
        triggering = config.trigger_camera if config.trigger == "camera" else None
        for camera in config.cameras:
            self.sources[camera.name] = open_source(
                self._node,
                camera.name,
                CAMERA_MESSAGES[camera.transport],
                camera.topic,
                depth=1,
                on_message=on_trigger if camera.name == triggering else None,
                on_demand=on_demand,
            )
        tree = self._transform_tree()
        for name, groups in listened_sources(config).items():
            if tree is not None and groups and groups[0].source == "tf":
                frames = groups[0].frame, groups[0].child_frame
                self.sources[name] = TransformSource(name, tree, *frames)
            else:
                self.sources[name] = self._open_state(name, groups, on_demand)

    def _transform_tree(self) -> TransformTree | None:
        """One listener for all groups that need it."""
        wanted = any(group.source == "tf" for group in self._config.state_groups)
        return TransformTree(self._node) if wanted else None

    def _open_state(self, name: str, groups: tuple[StateGroup, ...], on_demand: bool) -> Source:
        """A source without groups is joint_states, where the joints of the actions are measured."""
        topic = groups[0].topic if groups else JOINT_STATES
        message_type, depth = STATE_MESSAGES[groups[0].source if groups else "joint_state"]
        return open_source(self._node, name, message_type, topic, depth, on_demand=on_demand)

    def pull(self) -> None:
        """Move what has arrived into the ingest, with its time of arrival on the node's clock. Any thread."""
        with self._pulling:
            self._pull()

    def _pull(self) -> None:
        for name, source in self.sources.items():
            samples = source.drain()
            arrival_ns = self._arrivals(name)
            if arrival_ns is None:
                continue
            for message, received_ns in samples:
                self._ingest.put(name, message, arrival_ns(received_ns))

    def silences(self) -> list[str]:
        """What the graph tells of sources that never delivered anything."""
        return [text for source in self.sources.values() if (text := source.silence()) is not None]

    def _arrivals(self, source: str) -> Callable[[int], int] | None:
        """Middleware's wall clock → node's clock; None before the first /clock, when no message has an age.

        They are one clock unless time is simulated; the distance is not measured then, because a thread that
        is stalled between two readings would measure its own stall.
        """
        clock = cast(ROSClock, self._node.get_clock())
        if not clock.ros_time_is_active:
            return lambda received_ns: received_ns
        reading = (time.time_ns(), int(clock.now().nanoseconds))
        if reading[1] <= 0:
            return None
        before, self._readings[source] = self._readings.get(source, reading), reading
        return lambda received_ns: simulated_arrival_ns(received_ns, before, reading)

    def close(self) -> None:
        """Destroy the subscriptions."""
        for source in self.sources.values():
            source.close()


class InstructionTopic:
    """`~/instruction`, heard from latched and from volatile publishers (R26).

    A transient-local subscription never matches a volatile publisher and a volatile one misses what was
    latched before it came, so there are two; a message that both deliver is passed to `on_text` once.
    """

    def __init__(self, node: Node, on_text: Callable[[str], Any]) -> None:
        self._node = node
        self._on_text = on_text
        self._seen: deque[tuple[Any, str]] = deque(maxlen=64)
        self._subscriptions = [
            node.create_subscription(
                String,
                "~/instruction",
                self._receive,
                QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE, durability=durability),
                # The latched one is meant to miss volatile publishers: rclpy would warn of each.
                event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
                qos_overriding_options=QoSOverridingOptions.with_default_policies(entity_id=name),
            )
            for name, durability in (
                ("latched", DurabilityPolicy.TRANSIENT_LOCAL),
                ("volatile", DurabilityPolicy.VOLATILE),
            )
        ]

    def _receive(self, message: String, info: Any) -> None:
        # The writer's time stamp tells a repeated instruction from the same sample arriving twice.
        sample = (info.get("source_timestamp"), message.data)
        if sample in self._seen:
            return
        self._seen.append(sample)
        self._on_text(message.data)

    def close(self) -> None:
        """Destroy both subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)


class EnableTopic:
    """`~/enable`: the deadman. Best effort, so that reliable and best-effort publishers both reach it."""

    def __init__(self, node: Node, on_value: Callable[[bool, int], Any]) -> None:
        """`on_value(value, age in ns)`: an executor that was busy hands over what came long ago."""
        self._node = node
        self._on_value = on_value
        self._subscription = node.create_subscription(
            Bool,
            "~/enable",
            self._receive,
            QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def _receive(self, message: Bool, info: Any) -> None:
        received_ns = info.get("received_timestamp") or time.time_ns()
        self._on_value(bool(message.data), max(0, time.time_ns() - received_ns))

    def close(self) -> None:
        """Destroy the subscription."""
        self._node.destroy_subscription(self._subscription)
