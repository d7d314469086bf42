# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A recording as a sequence of (source, message, time), read with `rosbags`: needs no ROS installation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from rosbags.highlevel import AnyReader, AnyReaderError
from rosbags.interfaces import Connection
from rosbags.typesys import Stores, get_typestore

from flashrt_ros.observation import JOINT_STATES, NS_PER_S
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.state import listened_sources

CAMERA_TYPES: Final = {"raw": "sensor_msgs/msg/Image", "compressed": "sensor_msgs/msg/CompressedImage"}
STATE_TYPES: Final = {
    "joint_state": "sensor_msgs/msg/JointState",
    "array": "std_msgs/msg/Float64MultiArray",
    "pose": "geometry_msgs/msg/PoseStamped",
}


class BagError(ValueError):
    """A recording that cannot be used: names the file, or the topics that it has."""


@dataclass(frozen=True)
class Damaged:
    """Stands where a message cannot be decoded. `problem` names topic and time."""

    problem: str


@dataclass(frozen=True)
class Topic:
    """One topic of a recording."""

    name: str
    type: str
    count: int


def resolve(topic: str, namespace: str, remaps: Mapping[str, str]) -> str:
    """The full name of a node's topic: remapped as given, then put into the namespace when it is relative."""
    name = remaps.get(topic, topic)
    if name.startswith("/"):
        return name
    inside = "/".join(part for part in (namespace.strip("/"), name) if part)
    return f"/{inside}"


def wanted_topics(
    config: NodeConfig, namespace: str, remaps: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Full topic name → (source, message type) of everything the node would subscribe to.

    Raises BagError for what only a robot has: tf's own library, and that of point clouds.
    """
    topics = {}
    for camera in config.cameras:
        kind = _type_of(CAMERA_TYPES, camera.transport, f"camera '{camera.name}'")
        topics[resolve(camera.topic, namespace, remaps)] = (camera.name, kind)
    for name, groups in listened_sources(config).items():
        topic = groups[0].topic if groups else JOINT_STATES
        kind = _type_of(STATE_TYPES, groups[0].source if groups else "joint_state", name)
        topics[resolve(topic, namespace, remaps)] = (name, kind)
    return topics


def _type_of(types: Mapping[str, str], kind: str, owner: str) -> str:
    if kind not in types:
        raise BagError(f"{owner} takes its data from {kind}, which cannot be replayed from a bag")
    return types[kind]


class Bag:
    """One rosbag2 recording (folder, .mcap or .db3), open inside a `with` block.

    Raises BagError when it is missing, damaged, or no recording.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._reader = AnyReader([self.path], default_typestore=get_typestore(Stores.ROS2_KILTED))
        except (AnyReaderError, OSError) as error:
            raise BagError(f"cannot open bag {path}: {error}") from error

    def __enter__(self) -> Bag:
        try:
            self._reader.open()
        except Exception as error:  # rosbags lets errors of yaml, sqlite3 and struct through, too
            raise BagError(
                f"cannot read bag {self.path}: {error} (After a recording was cut off: `mcap recover` for"
                " .mcap files, `ros2 bag reindex` for a missing metadata.yaml.)"
            ) from error
        self.start_ns = self._reader.start_time
        self.end_ns = max(self._reader.end_time, self.start_ns)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_S

    def topics(self) -> list[Topic]:
        """All topics with their types and numbers of messages."""
        return [
            Topic(name, str(info.msgtype), info.msgcount)
            for name, info in sorted(self._reader.topics.items())
        ]

    def select(self, wanted: Mapping[str, tuple[str, str]], required: tuple[str, ...]) -> list[Connection]:
        """The connections of the wanted topics.

        Raises BagError, listing the topics of the bag, when one of a required source is absent or any has
        another type.
        """
        there = {topic.name: topic for topic in self.topics()}
        listing = "; ".join(
            f"{topic.name} ({topic.type}, {topic.count} messages)" for topic in there.values()
        )
        for name, (source, kind) in wanted.items():
            if name not in there and source in required:
                raise BagError(
                    f"{self.path} has no topic {name} for {source}. "
                    f"Set camera.<name>.topic or use --remap; the bag has: {listing or 'no topics'}"
                )
            if name in there and there[name].type != kind:
                raise BagError(
                    f"{self.path}: {name} holds {there[name].type}, but {source} needs {kind} "
                    f"(camera.<name>.transport); the bag has: {listing}"
                )
        return [connection for connection in self._reader.connections if connection.topic in wanted]

    def messages(
        self, wanted: Mapping[str, tuple[str, str]], connections: list[Connection], limit_s: float | None
    ) -> Iterator[tuple[str, Any, int]]:
        """(source, message, time of recording in ns) in the order of recording, for the first `limit_s` s.

        A message that cannot be decoded comes as Damaged. Raises BagError naming the time from which on the
        file itself cannot be read.
        """
        stop = None if limit_s is None else self.start_ns + round(limit_s * NS_PER_S)
        rows = self._reader.messages(connections, stop=stop)
        time_ns = self.start_ns
        while True:
            # rosbags has no common class for what damaged files and messages can raise.
            try:
                row = next(rows, None)
            except Exception as error:
                at = (time_ns - self.start_ns) / NS_PER_S
                raise BagError(f"{self.path} cannot be read beyond {at:.3f} s: {error}") from error
            if row is None:
                return
            connection, time_ns, raw = row
            try:
                message = self._reader.deserialize(raw, connection.msgtype)
            except Exception as error:
                at = (time_ns - self.start_ns) / NS_PER_S
                message = Damaged(f"message on {connection.topic} at {at:.3f} s cannot be decoded: {error}")
            yield wanted[connection.topic][0], message, time_ns
