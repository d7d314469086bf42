# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The state vector: groups of numbers one after another, each from messages of its own kind.

One tracker for each group; groups that share a topic share one `StateInput`, so that a message counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from flashrt_ros.freshness import header_ns, too_old
from flashrt_ros.groups import ALL, JOINT_SPACES
from flashrt_ros.joints import NEVER, JointTracker, MalformedState
from flashrt_ros.observation import JOINT_STATES
from flashrt_ros.parameters import JointConfig, NodeConfig, StateGroup
from flashrt_ros.rotations import rotation_of, values_of
from flashrt_ros.source_counts import Counted, Reason

HEADERLESS: Final = ("array",)
"""Sources whose messages carry no stamp: their arrival stands for it."""

_SMALLEST_NORM: Final = 1e-6  # of a quaternion: below, its direction is noise


class Tracker(Protocol):
    """The newest numbers of one state group. Not thread-safe; times in ns."""

    def read(self, message: Any) -> Any | None:
        """What a message has for this group, nothing changed; None: nothing. Raises MalformedState."""

    def keep(self, found: Any, stamp_ns: int, arrival_ns: int, number: int) -> None:
        """Take over what `read` returned, `number` counting messages up."""

    def clear(self) -> None:
        """Forget everything."""

    def reasons(self, now_ns: int) -> list[Reason]:
        """Why the group is not ready; empty when it is."""

    def state(self) -> np.ndarray:
        """float32 [n] in the policy's units; only meaningful without `reasons`."""

    @property
    def oldest_ns(self) -> int:
        """Stamp of the oldest of its numbers."""

    def message_numbers(self) -> set[int]:
        """Numbers of the messages that the present state is made of."""


class WholeTracker:
    """A group of which every message brings all numbers; `numbers` takes them out of one, float64 [n].

    `max_age` is in seconds; `where` begins every sentence about the group, `source` every key.
    """

    def __init__(
        self,
        joints: Sequence[JointConfig],
        max_age: float,
        where: str,
        source: str,
        numbers: Callable[[Any, str], np.ndarray],
    ) -> None:
        self._names = tuple(joint.name for joint in joints)
        self._scale = np.array([joint.scale for joint in joints])  # [n]
        self._offset = np.array([joint.offset for joint in joints])  # [n]
        self._max_age, self._where, self._source, self._numbers = max_age, where, source, numbers
        self.clear()

    def clear(self) -> None:
        self._values = np.zeros(len(self._names))  # [n] in the message's units
        self._stamp_ns = self._arrival_ns = self._message = NEVER

    def read(self, message: Any) -> np.ndarray:
        values = self._numbers(message, self._where)
        require_length(values, self._names, self._where)
        require_finite(values, self._names, self._where)
        return values

    def keep(self, found: np.ndarray, stamp_ns: int, arrival_ns: int, number: int) -> None:
        self._values = found
        self._stamp_ns, self._arrival_ns, self._message = stamp_ns, arrival_ns, number

    def reasons(self, now_ns: int) -> list[Reason]:
        if self._stamp_ns == NEVER:
            names = ", ".join(self._names)
            return [(f"{self._where}: never seen; it gives {names}", f"{self._source}: never seen")]
        why = too_old(self._stamp_ns, self._arrival_ns, now_ns, self._max_age)
        return [(f"{self._where} {why}", f"{self._source}: old")] if why else []

    def state(self) -> np.ndarray:
        vector: np.ndarray = self._scale * self._values + self._offset
        return vector.astype(np.float32)

    @property
    def oldest_ns(self) -> int:
        return self._stamp_ns

    def message_numbers(self) -> set[int]:
        return set() if self._message == NEVER else {self._message}


def require_length(values: np.ndarray, names: Sequence[str], where: str) -> None:
    """Raises MalformedState unless values [n] are as many as names."""
    if len(values) != len(names):
        needed = f"{len(names)} are needed ({', '.join(names)})"
        raise MalformedState("length", f"{where}: {len(values)} numbers came, {needed}; message dropped")


def require_finite(values: np.ndarray, names: Sequence[str], where: str) -> None:
    """R16: raises MalformedState for values [n] that are NaN or infinite, naming them."""
    finite = np.isfinite(values)
    if not finite.all():
        pairs = zip(names, values, finite, strict=True)
        bad = ", ".join(f"{name} = {value}" for name, value, good in pairs if not good)
        raise MalformedState("non_finite", f"{where}: {bad}; message dropped")


def array_numbers(message: Any, where: str) -> np.ndarray:
    """The data of a std_msgs array, float64 [n]."""
    return np.array(message.data, dtype=np.float64)  # a copy: the message may be used again


class PoseNumbers:
    """Position (m) and rotation of a PoseStamped or TransformStamped as float64 [3 + n], by `rotation`.

    The forms are those of `rotations.py`; a quaternion keeps the sign with which it comes.
    """

    def __init__(self, rotation: str, frame: str = "") -> None:
        """`frame`: the one that messages must be in; empty = any."""
        self._rotation, self._frame = rotation, frame

    def __call__(self, message: Any, where: str) -> np.ndarray:
        """Raises MalformedState for numbers that are no pose, and for another frame than the one wanted."""
        if self._frame and message.header.frame_id != self._frame:
            came = message.header.frame_id
            raise MalformedState("frame", f"{where}: in frame '{came}', not '{self._frame}'; message dropped")
        position, turn = _parts(message)
        values = np.array([position.x, position.y, position.z, turn.x, turn.y, turn.z, turn.w], np.float64)
        require_finite(values, ("x", "y", "z", "qx", "qy", "qz", "qw"), where)
        norm = float(np.linalg.norm(values[3:]))
        require_rotation(norm, where)
        turned = values[3:] / norm
        if self._rotation != "quaternion":  # that one keeps its sign
            turned = values_of(rotation_of(turned, "quaternion"), self._rotation)
        return np.concatenate([values[:3], turned])


def _parts(message: Any) -> tuple[Any, Any]:
    """Position and rotation of a PoseStamped or a TransformStamped."""
    if hasattr(message, "transform"):
        return message.transform.translation, message.transform.rotation
    return message.pose.position, message.pose.orientation


def require_rotation(norm: float, where: str) -> None:
    """Raises MalformedState for a quaternion of length 0: a driver that never filled it in."""
    if norm < _SMALLEST_NORM:
        raise MalformedState("rotation", f"{where}: its quaternion has length {norm:g}; message dropped")


def _joint_tracker(group: StateGroup, joints: Sequence[JointConfig], where: str, source: str) -> Tracker:
    more: dict[str, Any] = {"names": group.names, "field": group.field, "source": source}
    return JointTracker(joints, group.max_age, where, **more)


def _array_tracker(group: StateGroup, joints: Sequence[JointConfig], where: str, source: str) -> Tracker:
    return WholeTracker(joints, group.max_age, where, source, array_numbers)


def _pose_tracker(group: StateGroup, joints: Sequence[JointConfig], where: str, source: str) -> Tracker:
    frame = group.frame if group.source == "pose" else ""  # tf was asked for the frame already
    numbers = PoseNumbers(group.rotation, frame)
    return WholeTracker(joints, group.max_age, where, source, numbers)


TRACKERS: Final[dict[str, Callable[[StateGroup, Sequence[JointConfig], str, str], Tracker]]] = {
    "joint_state": _joint_tracker,
    "array": _array_tracker,
    "pose": _pose_tracker,
    "tf": _pose_tracker,
}


class StateInput(Counted):
    """The groups that one topic (or one pair of frames) feeds."""

    def __init__(self, name: str, groups: Sequence[StateGroup], trackers: Sequence[Tracker]) -> None:
        """`name` of the source; without trackers it only measures joints."""
        super().__init__()
        self.name, self.groups, self.trackers = name, tuple(groups), tuple(trackers)
        self.max_age = max((group.max_age for group in groups), default=0.0)
        self.where = JOINT_STATES if name == JOINT_STATES else " and ".join(map(where_of, groups))
        self.seen_by_decisions: set[int] = set()

    def is_timeless(self, message: Any) -> bool:
        """Whether the arrival of a message is its time: it has no stamp, or is a static transform."""
        source = self.groups[0].source if self.groups else ""
        return source in HEADERLESS or (source == "tf" and header_ns(message) == 0)

    def put(self, message: Any, stamp_ns: int, arrival_ns: int) -> bool:
        """Merge one message into every group; False when it has nothing for any.

        Raises MalformedState, changing nothing, when one of the groups cannot use what it needs of it.
        """
        found = [(tracker, tracker.read(message)) for tracker in self.trackers]
        taken = [(tracker, part) for tracker, part in found if part is not None]
        for tracker, part in taken:
            tracker.keep(part, stamp_ns, arrival_ns, self.received)
        return bool(taken)

    def reasons(self, now_ns: int) -> list[Reason]:
        """Why the groups are not ready, each with its own sentence."""
        reasons = [reason for tracker in self.trackers for reason in tracker.reasons(now_ns)]
        if reasons and self.still_dropping(now_ns, self.max_age):
            reasons.append((self.last_problem, f"{self.name}: messages dropped"))
        return reasons

    @property
    def oldest_ns(self) -> int:
        """Stamp of the oldest number of all groups, ns."""
        return min(tracker.oldest_ns for tracker in self.trackers)

    def waiting(self) -> int:
        return len(self._numbers() - self.seen_by_decisions)

    def clear(self) -> None:
        for tracker in self.trackers:
            tracker.clear()

    def mark_used(self) -> None:
        """The present state went into an observation."""
        numbers = self._numbers()
        self.used += len(numbers - self.seen_by_decisions)
        self.seen_by_decisions = numbers

    def _numbers(self) -> set[int]:
        return {number for tracker in self.trackers for number in tracker.message_numbers()}


def where_of(group: StateGroup) -> str:
    """Group and topic as sentences begin; of the one group that has no name the topic only."""
    place = f"tf {group.frame} → {group.child_frame}" if group.source == "tf" else group.topic
    return place if group.name == ALL else f"state group '{group.name}' on {place}"


def state_sources(config: NodeConfig) -> dict[str, tuple[StateGroup, ...]]:
    """Source name → the groups of the state vector that it feeds: one source for each topic.

    The source on joint_states has its name; others have those of their groups, behind "state.", which no
    camera can have.
    """
    places: dict[tuple[str, ...], list[StateGroup]] = {}
    for group in config.state_groups:
        place = (group.frame, group.child_frame) if group.source == "tf" else (group.topic,)
        places.setdefault((group.source, *place), []).append(group)
    return {_source_name(groups): tuple(groups) for groups in places.values()}


def _source_name(groups: Sequence[StateGroup]) -> str:
    if (groups[0].source, groups[0].topic) == ("joint_state", JOINT_STATES):
        return JOINT_STATES
    return "state." + "+".join(group.name for group in groups)


def listened_sources(config: NodeConfig) -> dict[str, tuple[StateGroup, ...]]:
    """`state_sources`, and joint_states without a group where only the actions' joints are measured there."""
    sources = state_sources(config)
    if JOINT_STATES not in sources and action_joint_names(config):
        sources[JOINT_STATES] = ()
    return sources


def action_joint_names(config: NodeConfig) -> tuple[str, ...]:
    """The joints that the actions move."""
    return tuple(
        name for group in config.action_groups if group.space in JOINT_SPACES for name in group.names
    )


def make_inputs(config: NodeConfig) -> tuple[dict[str, StateInput], tuple[Tracker, ...]]:
    """A StateInput for each source, and the trackers of all groups in the order of the state vector."""
    joints = iter(config.joints)
    trackers: dict[str, Tracker] = {}  # by group
    sources = listened_sources(config)
    source_of = {group.name: name for name, groups in sources.items() for group in groups}
    for group in config.state_groups:
        own = _take(joints, len(group.elements))
        trackers[group.name] = TRACKERS[group.source](group, own, where_of(group), source_of[group.name])
    inputs = {
        name: StateInput(name, groups, [trackers[group.name] for group in groups])
        for name, groups in sources.items()
    }
    return inputs, tuple(trackers.values())


def _take(joints: Iterable[JointConfig], count: int) -> list[JointConfig]:
    return [joint for _, joint in zip(range(count), joints, strict=False)]
