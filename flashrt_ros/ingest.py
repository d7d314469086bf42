# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Messages in, `Observation` out: the newest sample of every source, for live topics and bags alike."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flashrt_kernels.pixels import RawImage
from flashrt_ros.encodings import Convert, MalformedImage, UnsupportedEncoding, prepare
from flashrt_ros.freshness import EdgeWarnings, Stamp, StampFault, choose_stamp, header_ns, too_old, went_back
from flashrt_ros.joints import JointTracker, MalformedJointState
from flashrt_ros.observation import JOINT_STATES, NS_PER_S, NotReady, Observation
from flashrt_ros.parameters import CameraConfig, NodeConfig
from flashrt_ros.statistics import Rate

Reason = tuple[str, str]  # sentence with numbers, the same without


@dataclass(frozen=True)
class SourceCounts:
    """Messages of one source: received = used + skipped + waiting + Σ dropped.

    used: part of at least one observation; skipped: replaced by a newer one before a decision looked;
    waiting: the newest, not looked at yet; dropped: by kind (malformed, encoding, stamp, length, repeated,
    non_finite, unrelated = no joint of ours, flushed = forgotten at a reset or clock jump).
    """

    received: int = 0
    used: int = 0
    skipped: int = 0
    waiting: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass
class _Sample:
    """One checked image; `raw` once a decision has asked for it."""

    convert: Convert
    stamp_ns: int
    arrival_ns: int
    raw: RawImage | None = None
    used: bool = False


class _Source:
    """Counters that every source has."""

    def __init__(self) -> None:
        self.received = 0
        self.used = 0
        self.dropped: Counter[str] = Counter()
        self.rate = Rate()
        self.last_message: Any = None
        self.last_arrival_ns: int | None = None
        self.last_problem = ""
        self.problem_ns: int | None = None  # when it happened

    def is_new(self, message: Any) -> bool:
        """A source that is asked for its newest message may hand over the same one twice."""
        return message is not self.last_message

    def arrived(self, message: Any, arrival_ns: int) -> None:
        self.received += 1
        self.last_message, self.last_arrival_ns = message, arrival_ns
        self.rate.add(arrival_ns)

    def drop(self, kind: str, problem: str, now_ns: int) -> None:
        self.dropped[kind] += 1
        self.last_problem, self.problem_ns = problem, now_ns

    def still_dropping(self, now_ns: int, max_age: float) -> bool:
        """Whether messages come and are dropped: to call that silence would send somebody to the cables."""
        return self.problem_ns is not None and now_ns - self.problem_ns <= max_age * NS_PER_S

    def counts(self, waiting: int) -> SourceCounts:
        skipped = self.received - self.used - waiting - self.dropped.total()
        return SourceCounts(self.received, self.used, skipped, waiting, dict(self.dropped))


class _Camera(_Source):
    """The newest image of one camera, and the last one that could be converted."""

    def __init__(self, config: CameraConfig) -> None:
        super().__init__()
        self.config = config
        self.where = f"camera '{config.name}' on {config.topic}"
        self.newest: _Sample | None = None
        self.good: _Sample | None = None  # kept beside a newer one: that may turn out to be malformed

    def waiting(self) -> int:
        unused = [sample for sample in (self.newest, self.good) if sample is not None and not sample.used]
        return len({id(sample) for sample in unused})

    def clear(self) -> None:
        self.dropped["flushed"] += self.waiting()
        self.newest = self.good = None

    def reasons(self, sample: _Sample | None, now_ns: int) -> list[Reason]:
        name = self.config.name
        if sample is None and self.received == 0:
            return [(f"{self.where}: never seen", f"{name}: never seen")]
        if sample is None:
            last = f"; {self.last_problem}" if self.last_problem else " since the last reset"
            return [(f"{self.where}: no usable image{last}", f"{name}: no usable image")]
        why = too_old(sample.stamp_ns, sample.arrival_ns, now_ns, self.config.max_age)
        if why and self.still_dropping(now_ns, self.config.max_age):
            gap_s = (now_ns - sample.arrival_ns) / NS_PER_S
            text = f"{self.where}: no usable image for {gap_s:.2f} s; {self.last_problem}"
            return [(text, f"{name}: no usable image")]
        return [(f"{self.where} {why}", f"{name}: {why.partition(':')[0]}")] if why else []


class _Joints(_Source):
    """The joint states, merged per joint."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__()
        self.max_age = config.joint_max_age
        self.tracker = JointTracker(config.joints, self.max_age)
        self.seen_by_decisions: set[int] = set()

    def waiting(self) -> int:
        return len(self.tracker.message_numbers() - self.seen_by_decisions)

    def clear(self) -> None:
        self.dropped["flushed"] += self.waiting()
        self.tracker.clear()

    def reasons(self, now_ns: int) -> list[Reason]:
        reasons = self.tracker.reasons(now_ns)
        if reasons and self.still_dropping(now_ns, self.max_age):
            reasons.append((self.last_problem, f"{JOINT_STATES}: messages dropped"))
        return reasons

    def mark_used(self) -> None:
        numbers = self.tracker.message_numbers()
        self.used += len(numbers - self.seen_by_decisions)
        self.seen_by_decisions = numbers


class Ingest:
    """`put` from any thread, `observe` from one; `now_ns` and `arrival_ns` are on one clock (the node's)."""

    def __init__(
        self,
        config: NodeConfig,
        warn: Callable[[str, str], None],
        info: Callable[[str], None] | None = None,
    ) -> None:
        """`warn(kind, text)` is called once per kind and source (again after 10 quiet seconds), `info(text)`
        once per camera and encoding."""
        self._config = config
        self._warnings = EdgeWarnings(warn)
        self._info = info
        self._told: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._cameras = {camera.name: _Camera(camera) for camera in config.cameras}
        self._joints = _Joints(config)
        self._sources: dict[str, _Camera | _Joints] = {**self._cameras, JOINT_STATES: self._joints}
        self._required = (*(camera.name for camera in config.cameras if camera.required), JOINT_STATES)
        self._last_now_ns: int | None = None
        self._generation = 0  # counts flushes: a conversion that began before one must not survive it
        self.clock_jumps = 0
        """Times the clock went back; every buffer was dropped each time (R20)."""

    def put(self, source: str, message: Any, arrival_ns: int) -> None:
        """Store the newest message of a camera name or "joint_states" without touching a pixel.

        A bad message is dropped, counted and warned about; the same message object put again is ignored.
        Raises KeyError for an unknown source.
        """
        with self._lock:
            entry = self._sources[source]
            if not entry.is_new(message):
                return
            if went_back(entry.last_arrival_ns, arrival_ns):
                self._clock_jump(source, arrival_ns)
            entry.arrived(message, arrival_ns)
            if isinstance(entry, _Camera):
                self._put_image(entry, message, arrival_ns)
            else:
                self._put_joints(entry, message, arrival_ns)

    def _put_image(self, camera: _Camera, message: Any, arrival_ns: int) -> None:
        name = camera.config.name
        try:
            convert, reading = prepare(message, camera.config)
            stamp = self._stamp(name, message, arrival_ns, camera.where)
        except MalformedImage as error:
            self._drop(name, "malformed", str(error), arrival_ns)
        except UnsupportedEncoding as error:
            self._drop(name, "encoding", str(error), arrival_ns)
        except StampFault as error:
            self._drop(name, "stamp", str(error), arrival_ns)
        else:
            self._tell_once(name, f"{camera.where}: {reading}")
            camera.newest = _Sample(convert, stamp.ns, arrival_ns)

    def _put_joints(self, joints: _Joints, message: Any, arrival_ns: int) -> None:
        try:
            stamp = self._stamp(JOINT_STATES, message, arrival_ns, JOINT_STATES)
            if not joints.tracker.put(message, stamp.ns, arrival_ns, joints.received):
                joints.dropped["unrelated"] += 1  # legal: another publisher's joints (R13)
        except MalformedJointState as error:
            self._drop(JOINT_STATES, error.kind, str(error), arrival_ns)
        except StampFault as error:
            self._drop(JOINT_STATES, "stamp", str(error), arrival_ns)

    def _stamp(self, source: str, message: Any, arrival_ns: int, where: str) -> Stamp:
        stamp = choose_stamp(header_ns(message), arrival_ns, self._config.stamp_source, where)
        if stamp.warning:
            self._warnings.fault(source, stamp.kind, stamp.warning, arrival_ns)
        return stamp

    def _drop(self, source: str, kind: str, problem: str, now_ns: int) -> None:
        self._sources[source].drop(kind, problem, now_ns)
        self._warnings.fault(source, kind, problem, now_ns)

    def _tell_once(self, source: str, text: str) -> None:
        if self._info is not None and (source, text) not in self._told and len(self._told) < 100:
            self._told.add((source, text))
            self._info(text)

    def observe(self, now_ns: int) -> Observation | NotReady:
        """The observation at `now_ns`, or why there is none. Converts each image once, and none in vain."""
        with self._lock:
            if went_back(self._last_now_ns, now_ns):
                self._clock_jump("the node's clock", now_ns)
            self._last_now_ns = now_ns
            reasons = self._reasons(now_ns, converted=False)
        if reasons:
            return _not_ready(reasons)
        for camera in self._cameras.values():
            self._convert(camera, now_ns)
        with self._lock:
            reasons = self._reasons(now_ns, converted=True)
            return _not_ready(reasons) if reasons else self._observation(now_ns)

    def _reasons(self, now_ns: int, converted: bool) -> list[Reason]:
        reasons = self._joints.reasons(now_ns)
        for camera in self._cameras.values():
            if camera.config.required:
                sample = camera.good if converted else camera.newest or camera.good
                reasons += camera.reasons(sample, now_ns)
        return reasons

    def _convert(self, camera: _Camera, now_ns: int) -> None:
        """Convert the newest image, outside the lock: decoding a JPEG must not hold up the next delivery."""
        with self._lock:
            sample, generation = camera.newest, self._generation
        if sample is None or sample.raw is not None:
            return
        problem = ""
        try:
            sample.raw = sample.convert()
        except MalformedImage as error:
            problem = str(error)
        with self._lock:
            if generation != self._generation:
                return
            if not problem:
                camera.good = sample
                return
            if camera.newest is sample:
                camera.newest = None
            self._drop(camera.config.name, "malformed", problem, now_ns)

    def _observation(self, now_ns: int) -> Observation | NotReady:
        images, stamps_ns, used = {}, {}, []
        for camera in self._cameras.values():
            sample = camera.good
            if sample is None or sample.raw is None or camera.reasons(sample, now_ns):
                continue  # an optional camera: its slot is masked (R27)
            images[camera.config.slot] = sample.raw
            stamps_ns[camera.config.name] = sample.stamp_ns
            used.append((camera, sample))
        stamps_ns[JOINT_STATES] = self._joints.tracker.oldest_ns
        state = self._joints.tracker.state()  # [D]
        observation = Observation(images, state, stamps_ns, self._required, now_ns)
        if 0.0 < self._config.max_skew * 1e3 < observation.skew_ms:
            return _not_ready([self._skew_reason(stamps_ns)])
        for camera, sample in used:
            camera.used += not sample.used
            sample.used = True
        self._joints.mark_used()
        return observation

    def _skew_reason(self, stamps_ns: dict[str, int]) -> Reason:
        by_age = sorted(self._required, key=stamps_ns.__getitem__)
        skew = (stamps_ns[by_age[-1]] - stamps_ns[by_age[0]]) / NS_PER_S
        return (
            f"{by_age[0]} is {skew:.3f} s older than {by_age[-1]}, max_skew is {self._config.max_skew:g} s",
            f"skew of {by_age[0]}",
        )

    def _clock_jump(self, clock: str, now_ns: int) -> None:
        self.clock_jumps += 1
        self._forget()
        text = f"the clock went back (seen at {clock}): everything collected so far was dropped"
        self._warnings.fault("", "clock jump", text, now_ns)

    def _forget(self) -> None:
        self._generation += 1
        self._last_now_ns = None
        for entry in self._sources.values():
            entry.clear()
            entry.rate.clear()
            entry.last_arrival_ns = entry.problem_ns = None

    def flush(self) -> None:
        """Forget every sample; counters stay."""
        with self._lock:
            self._forget()

    def counts(self) -> dict[str, SourceCounts]:
        """Counters by source."""
        with self._lock:
            return {name: entry.counts(entry.waiting()) for name, entry in self._sources.items()}

    def rates_hz(self, now_ns: int) -> dict[str, float]:
        """Rate of the messages put, by source."""
        with self._lock:
            return {name: entry.rate.hz(now_ns) for name, entry in self._sources.items()}


def _not_ready(reasons: list[Reason]) -> NotReady:
    return NotReady(tuple(text for text, _ in reasons), tuple(key for _, key in reasons))
