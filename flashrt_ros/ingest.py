# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Messages in, `Observation` out: the newest sample of every source, for live topics and bags alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flashrt_ros.camera_input import CameraInput, Sample
from flashrt_ros.encodings import MalformedImage, UnsupportedEncoding, prepare
from flashrt_ros.freshness import EdgeWarnings, Stamp, StampFault, choose_stamp, header_ns, went_back
from flashrt_ros.joints import MalformedState
from flashrt_ros.measured import MeasuredJoints
from flashrt_ros.observation import JOINT_STATES, NS_PER_S, NotReady, Observation
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.pose_check import PoseCheck, outside_reason
from flashrt_ros.source_counts import Reason, SourceCounts
from flashrt_ros.state import StateInput, action_joint_names, make_inputs

__all__ = ["Ingest", "SourceCounts"]


class Ingest:
    """`put` from any thread, `observe` from one; `now_ns` and `arrival_ns` are on one clock (the node's)."""

    def __init__(
        self,
        config: NodeConfig,
        warn: Callable[[str, str], None],
        info: Callable[[str], None] | None = None,
        pose_check: PoseCheck | None = None,
        model: str = "the policy",
    ) -> None:
        """`warn(kind, text)` is called once per kind and source (again after 10 quiet seconds), `info(text)`
        once per camera and encoding. `pose_check` judges the first state after each flush, until one is good
        (R17). `model` is the policy's name, for people."""
        self._config = config
        self._model = model
        self._warnings = EdgeWarnings(warn)
        self._info = info
        self._pose_check = pose_check
        self._pose_checked = False
        self._told: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        stamps_count = config.stamp_source != "arrival"
        self._cameras = {camera.name: CameraInput(camera, stamps_count) for camera in config.cameras}
        self._states, self._trackers = make_inputs(config)
        self._measured = MeasuredJoints(action_joint_names(config), config.joint_max_age)
        self._sources: dict[str, CameraInput | StateInput] = {**self._cameras, **self._states}
        self.required = (
            *(camera.name for camera in config.cameras if camera.required),
            *(name for name, state in self._states.items() if state.trackers),
        )
        """Sources that an observation must have."""
        self._last_now_ns: int | None = None
        self._generation = 0  # counts flushes: a conversion that began before one must not survive it
        self.clock_jumps = 0
        """Times the clock went back; every buffer was dropped each time (R20)."""

    def put(self, source: str, message: Any, arrival_ns: int) -> None:
        """Store the newest message of a camera or state source without touching a pixel.

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
            if isinstance(entry, CameraInput):
                self._put_image(entry, message, arrival_ns)
            else:
                self._put_state(entry, message, arrival_ns)

    def _put_image(self, camera: CameraInput, message: Any, arrival_ns: int) -> None:
        name = camera.config.name
        try:
            convert, reading = prepare(message, camera.config)
            stamp = self._stamp(name, message, arrival_ns, camera.where)
        except MalformedImage as error:
            self._drop(name, "malformed", str(error), arrival_ns)
        except UnsupportedEncoding as error:
            self._drop(name, "encoding", f"{error} ({self._model})", arrival_ns)
        except StampFault as error:
            self._drop(name, "stamp", str(error), arrival_ns)
        else:
            self._tell_once(name, f"{camera.where}: {reading}")
            camera.newest = Sample(message, convert, stamp.ns, arrival_ns)

    def _put_state(self, state: StateInput, message: Any, arrival_ns: int) -> None:
        try:
            stamp = (
                Stamp(arrival_ns)
                if state.is_timeless(message)
                else self._stamp(state.name, message, arrival_ns, state.where)
            )
            taken = state.put(message, stamp.ns, arrival_ns)
        except MalformedState as error:
            self._drop(state.name, error.kind, str(error), arrival_ns)
            return
        except StampFault as error:
            self._drop(state.name, "stamp", str(error), arrival_ns)
            return
        if state.name == JOINT_STATES:
            taken |= self._measured.put(message, stamp.ns)
        if not taken:
            state.dropped["unrelated"] += 1  # legal: another publisher's joints (R13)

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
            for camera in self._cameras.values():
                camera.look()  # at every new image, also of a frozen camera: it may move again
            reasons = self._reasons(now_ns, converted=False)
        if reasons:
            return _not_ready(reasons)
        for camera in self._cameras.values():
            self._convert(camera, now_ns)
        with self._lock:
            reasons = self._reasons(now_ns, converted=True)
            return _not_ready(reasons) if reasons else self._observation(now_ns)

    def stale(self, now_ns: int) -> NotReady | None:
        """Why a decision could not be made now, of all that needs no pixel but those of a frozen camera."""
        with self._lock:
            for camera in self._cameras.values():
                camera.look()
            reasons = self._reasons(now_ns, converted=False)
        return _not_ready(reasons) if reasons else None

    def _reasons(self, now_ns: int, converted: bool) -> list[Reason]:
        reasons = [reason for state in self._states.values() for reason in state.reasons(now_ns)]
        for camera in self._cameras.values():
            if camera.config.required:
                sample = camera.good if converted else camera.newest or camera.good
                reasons += camera.reasons(sample, now_ns)
        return reasons

    def _convert(self, camera: CameraInput, now_ns: int) -> None:
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
        states = [state for state in self._states.values() if state.trackers]
        stamps_ns |= {state.name: state.oldest_ns for state in states}
        vector = np.concatenate([tracker.state() for tracker in self._trackers])  # float32 [D]
        positions = self._measured.wanted(now_ns)
        observation = Observation(images, vector, stamps_ns, self.required, now_ns, positions)
        if 0.0 < self._config.max_skew * 1e3 < observation.skew_ms:
            return _not_ready([self._skew_reason(stamps_ns)])
        lines = self._outside(vector)
        if lines:
            return _not_ready([outside_reason(lines)])
        for camera, sample in used:
            camera.used += not sample.used
            sample.used = True
        for state in states:
            state.mark_used()
        return observation

    def _outside(self, state: np.ndarray) -> list[str]:
        """R17: numbers of the first state after a flush that training never saw; state float32 [D]."""
        if self._pose_checked or self._pose_check is None:
            return []
        lines = self._pose_check(state)
        self._pose_checked = not lines
        return lines

    def _skew_reason(self, stamps_ns: dict[str, int]) -> Reason:
        by_age = sorted(self.required, key=stamps_ns.__getitem__)
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
        self._pose_checked = False
        self._measured.clear()
        for entry in self._sources.values():
            entry.forget()

    def flush(self) -> None:
        """Forget every sample; counters stay."""
        with self._lock:
            self._forget()

    def fresh_state(self, now_ns: int) -> np.ndarray | None:
        """The state vector, float32 [D] in the policy's units; None while a group is not ready."""
        with self._lock:
            if any(state.reasons(now_ns) for state in self._states.values()):
                return None
            return np.concatenate([tracker.state() for tracker in self._trackers])

    def measured(self, names: Sequence[str], now_ns: int) -> np.ndarray | None:
        """Positions of joints by name, float64 [J] in the robot's units (no scale), from joint_states.

        None when one of them was never seen or is older than joint_max_age.
        """
        with self._lock:
            return self._measured.positions(names, now_ns)

    def missing_measured(self, names: Sequence[str], now_ns: int) -> str:
        """Which of these joints `measured` has no position of, in words; "" when it has all."""
        with self._lock:
            return self._measured.missing(names, now_ns)

    def max_age(self, source: str) -> float:
        """Age limit of a source, s."""
        entry = self._sources[source]
        if isinstance(entry, CameraInput):
            return entry.config.max_age
        return entry.max_age if entry.trackers else self._config.joint_max_age

    def frozen(self) -> dict[str, str]:
        """Cameras whose images do not change any more → in words (R7)."""
        with self._lock:
            found = {name: camera.stillness.why() for name, camera in self._cameras.items()}
        return {name: why for name, why in found.items() if why is not None}

    def counts(self) -> dict[str, SourceCounts]:
        """Counters by source."""
        with self._lock:
            return {name: entry.counts() for name, entry in self._sources.items()}

    def rates_hz(self, now_ns: int) -> dict[str, float]:
        """Rate of the messages put, by source."""
        with self._lock:
            return {name: entry.rate.hz(now_ns) for name, entry in self._sources.items()}


def _not_ready(reasons: list[Reason]) -> NotReady:
    return NotReady(tuple(text for text, _ in reasons), tuple(key for _, key in reasons))
