# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The newest message of each topic, taken when somebody asks for it.

A camera at 30 Hz whose images are looked at five times a second should not cost 30 callbacks a second. So a
source is a subscription that no executor serves: the middleware keeps the last messages and `Source.drain`
takes them when a decision starts. The take call is not documented API of rclpy; this file is the only one
that knows it, and where it is missing (`can_take`) or unwanted (the camera that triggers decisions must wake
somebody) the same interface is served by a callback that stores messages.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
)
from rclpy.qos_overriding_options import QoSOverridingOptions

# Enough for 0.2 s of joint states at 1 kHz between two decisions; the merge needs every message, as several
# publishers may each send a part of the joints.
JOINT_DEPTH = 200
RATE_WINDOW_NS = 3_000_000_000


def sensor_qos(depth: int) -> QoSProfile:
    """Sensor-data QoS (best effort, volatile) with a history of `depth` messages."""
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE,
    )


class Sample(NamedTuple):
    """One message and the wall-clock time (ns since the epoch) at which the middleware received it."""

    message: Any
    received_ns: int


@dataclass
class Traffic:
    """How many messages publishers sent and how many of them were taken, from their sequence numbers.

    `skipped` were sent after the first one that was seen and never taken: replaced by a newer one, or lost.
    """

    published: int = 0
    taken: int = 0
    newest_ns: int = 0

    def __post_init__(self) -> None:
        self._last_number: dict[bytes, int] = {}
        self._history: deque[tuple[int, int]] = deque(maxlen=512)  # (received_ns, published)

    @property
    def skipped(self) -> int:
        return self.published - self.taken

    def note(self, info: Any, received_ns: int) -> None:
        """Count one taken message by the `info` that came with it."""
        number = info.get("publication_sequence_number")
        gap = 1
        if number is not None:
            gid = info.get("publisher_gid") or {}
            writer = bytes(gid.get("data", b""))
            # A writer that restarted counts from 1 again: never a negative gap.
            gap = max(1, number - self._last_number.get(writer, number - 1))
            self._last_number[writer] = number
        self.published += gap
        self.taken += 1
        self.newest_ns = received_ns
        self._history.append((received_ns, self.published))

    def rate(self, now_ns: int) -> float:
        """Messages per second (Hz) that were sent over the last 3 s of wall-clock time `now_ns`; 0 when
        silent."""
        while len(self._history) > 2 and now_ns - self._history[0][0] > RATE_WINDOW_NS:
            self._history.popleft()
        if len(self._history) < 2 or now_ns - self.newest_ns > RATE_WINDOW_NS:
            return 0.0
        (start_ns, first), (end_ns, last) = self._history[0], self._history[-1]
        return (last - first) * 1e9 / (end_ns - start_ns) if end_ns > start_ns else 0.0


class NeverExecuted(MutuallyExclusiveCallbackGroup):
    """A callback group that no executor serves, neither its subscriptions nor their events.

    An event shares its reader's condition in the middleware: with one in the wait set, every wait returns at
    once while a message lies unread, and the executor spins (20,000 waits a second instead of 20).
    """

    def can_execute(self, entity: Any) -> bool:
        """Refuse everything."""
        return False


class Source:
    """A topic whose messages are collected with `drain`; made by `open_source`."""

    def __init__(self, node: Node, name: str, topic: str, qos: QoSProfile) -> None:
        self.name, self.qos = name, qos
        self.topic: str = node.resolve_topic_name(topic)
        self._asked = topic  # rclpy remaps what it is given: a resolved name would be remapped twice
        self.traffic = Traffic()
        self._reported: list[str] = []
        self._type_name = ""
        self._node = node
        self._lock = threading.Lock()
        self._subscription: Any = None

    def subscribe(self, message_type: type, callback: Callable[..., None], group: Any) -> None:
        """Create the subscription; `conflicts` finds QoS conflicts, not events (see NeverExecuted)."""
        self._type_name = f"{message_type.__module__.partition('.')[0]}/msg/{message_type.__name__}"
        self._subscription = self._node.create_subscription(
            message_type,
            self._asked,
            callback,
            self.qos,
            callback_group=group,
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )
        self.qos = self._subscription.qos_profile

    def drain(self) -> list[Sample]:
        """Take what has arrived since the last call, oldest first; safe from any thread."""
        with self._lock:
            samples = []
            for message, info in self._take_all():
                # 0: this middleware does not tell; then the time of the take is the best we know.
                received_ns = info.get("received_timestamp") or time.time_ns()
                self.traffic.note(info, received_ns)
                samples.append(Sample(message, received_ns))
            return samples

    def close(self) -> None:
        """Destroy the subscription; `drain` returns nothing afterwards."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
            if subscription is not None:
                self._node.destroy_subscription(subscription)

    def conflicts(self) -> list[str]:
        """Name every publisher of this topic whose QoS cannot reach this subscription, with both sides.

        Looks at the graph, so the heartbeat calls it; a new conflict is logged once.
        """
        texts = []
        for publisher in self._node.get_publishers_info_by_topic(self._asked):
            verdict, _ = qos_check_compatible(publisher.qos_profile, self.qos)
            if verdict == QoSCompatibility.ERROR:
                where = f"{publisher.node_namespace.rstrip('/')}/{publisher.node_name}"
                offered, asked = _qos_words(publisher.qos_profile), _qos_words(self.qos)
                texts.append(f"{where} offers {offered}; this node asks {asked}")
        if texts and texts != self._reported:
            self._node.get_logger().error(
                f"{self.name}: incompatible QoS on {self.topic}, nothing will be received: {'; '.join(texts)}"
            )
        self._reported = texts
        return texts

    def silence(self) -> str | None:
        """Why nothing ever came, as far as the graph tells: a forgotten remap, another message type.

        None when messages came or a fitting publisher is there. Looks at the graph: not for every decision.
        """
        if self.traffic.newest_ns:
            return None
        publishers = self._node.get_publishers_info_by_topic(self.topic)
        others = sorted({publisher.topic_type for publisher in publishers} - {self._type_name})
        if others:
            return f"{self.topic} is published as {', '.join(others)}, this node asks for {self._type_name}"
        if publishers:
            return None
        near = [
            name
            for name, types in self._node.get_topic_names_and_types()
            if name != self.topic and (self._type_name in types or name.startswith(f"{self.topic}/"))
            if self._node.count_publishers(name)
        ]
        there = f"; there is {', '.join(near[:5])}" if near else ""
        return f"nobody publishes {self.topic}{there}"

    def _take_all(self) -> Iterable[tuple[Any, Any]]:
        raise NotImplementedError


class OnDemandSource(Source):
    """Messages stay in the middleware's history until `drain` takes them: no callbacks at all."""

    def _take_all(self) -> Iterable[tuple[Any, Any]]:
        subscription = self._subscription
        if subscription is None:
            return
        # Bounded: a publisher faster than this loop must not keep it going for ever.
        for _ in range(max(1, subscription.qos_profile.depth)):
            with subscription.handle:
                taken = subscription.handle.take_message(subscription.msg_type, False)
            if taken is None:
                return
            yield taken


class StoredSource(Source):
    """Messages are stored by a callback of the executor; `on_message` is called after each one."""

    def __init__(
        self, node: Node, name: str, topic: str, qos: QoSProfile, on_message: Callable[[], None] | None = None
    ) -> None:
        super().__init__(node, name, topic, qos)
        self._stored: deque[tuple[Any, Any]] = deque(maxlen=max(1, qos.depth))
        self._on_message = on_message

    def store(self, message: Any, info: Any) -> None:
        """Callback of the subscription."""
        self._stored.append((message, info))
        if self._on_message is not None:
            self._on_message()

    def _take_all(self) -> Iterable[tuple[Any, Any]]:
        if self._subscription is None:
            self._stored.clear()
        while self._stored:
            yield self._stored.popleft()


def can_take(subscription: Any) -> bool:
    """Whether messages can be taken from `subscription` without an executor in this rclpy.

    Takes at most one message, which is lost: call it on a subscription that was created a moment ago.
    """
    try:
        with subscription.handle:
            taken = subscription.handle.take_message(subscription.msg_type, False)
    except (AttributeError, TypeError):
        return False
    return taken is None or (isinstance(taken, tuple) and len(taken) == 2 and hasattr(taken[1], "get"))


def _ignore(message: Any) -> None:
    """Callback of a subscription that no executor serves."""


def open_source(
    node: Node,
    name: str,
    message_type: type,
    topic: str,
    depth: int,
    *,
    on_message: Callable[[], None] | None = None,
    on_demand: bool = True,
) -> Source:
    """Subscribe to `topic` with sensor-data QoS and a history of `depth` messages.

    With `on_message` (called in the executor's thread at each arrival), with `on_demand=False`, or where
    rclpy has no take call, messages are stored by callbacks; otherwise they are taken when `drain` is called.
    """
    if on_demand and on_message is None:
        source = OnDemandSource(node, name, topic, sensor_qos(depth))
        source.subscribe(message_type, _ignore, NeverExecuted())
        if can_take(source._subscription):
            return source
        source.close()
        node.get_logger().warning(
            f"{name}: this rclpy cannot take messages on demand; every message costs a callback instead"
        )
    stored = StoredSource(node, name, topic, sensor_qos(depth), on_message)
    stored.subscribe(message_type, stored.store, MutuallyExclusiveCallbackGroup())
    return stored


def _qos_words(qos: QoSProfile) -> str:
    return f"{qos.reliability.name.lower()}, {qos.durability.name.lower()}, depth {qos.depth}"
