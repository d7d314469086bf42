# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One `DiagnosticStatus` per concern, from plain facts: the policy's state, each source, the decisions.

While the node is inactive a missing source is a warning (it is still time to plug it in); while it is active
the same is an error, because the robot gets no actions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from flashrt_ros.ingest import SourceCounts
from flashrt_ros.observation import NotReady
from flashrt_ros.statistics import Summary

OK: Final = DiagnosticStatus.OK
WARN: Final = DiagnosticStatus.WARN
ERROR: Final = DiagnosticStatus.ERROR

PERIOD_S = 1.0


def status(name: str, level: bytes, message: str, values: Mapping[str, object]) -> DiagnosticStatus:
    """A status with readable values: floats with one decimal, everything else as it prints."""
    return DiagnosticStatus(
        level=level,
        name=name,
        message=message,
        values=[KeyValue(key=key, value=_words(value)) for key, value in values.items()],
    )


def _words(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


MASKED: Final = ("optional camera", "its slot is masked")
UNMEASURED: Final = ("optional source", "the joints of the actions are not measured")
"""What a source is that no decision waits for, and what its absence means."""


@dataclass(frozen=True)
class SourceFacts:
    """What is known of one camera or source of the state. Rates in Hz, ages in s; None = never seen.

    `frozen`: why the images of a camera are taken for one (R7); `without`: MASKED or UNMEASURED.
    """

    name: str
    topic: str
    required: bool
    max_age_s: float
    rate_hz: float
    silent_s: float | None
    published: int = 0
    skipped: int = 0
    counts: SourceCounts = field(default_factory=SourceCounts)
    conflicts: tuple[str, ...] = ()
    frozen: str | None = None
    without: tuple[str, str] = MASKED


def source_status(
    prefix: str, facts: SourceFacts, not_ready: NotReady | None, *, active: bool
) -> DiagnosticStatus:
    """Status of one source; `not_ready` is the node's present reason, this source's part of it is shown."""
    reasons = source_reasons(facts, not_ready)
    values = {
        "topic": facts.topic,
        "required": facts.required,
        "rate_hz": facts.rate_hz,
        "last_message_s_ago": "never" if facts.silent_s is None else f"{facts.silent_s:.2f}",
        "max_age_s": f"{facts.max_age_s:g}",
        "published": facts.published,
        "not_taken": facts.skipped,
        "received": facts.counts.received,
        "used": facts.counts.used,
        **{f"dropped_{kind}": count for kind, count in sorted(facts.counts.dropped.items()) if count},
    }
    name = f"{prefix}: {facts.name}"
    if facts.conflicts:
        return status(name, ERROR, f"incompatible QoS: {'; '.join(facts.conflicts)}", values)
    if reasons:
        level = ERROR if active and facts.required else WARN
        return status(name, level, "; ".join(reasons), values)
    return status(name, OK, f"{facts.rate_hz:.1f} Hz", values)


def source_reasons(facts: SourceFacts, not_ready: NotReady | None) -> list[str]:
    """Why this source keeps the node from deciding, or that an optional one is masked."""
    reasons = []
    if not_ready is not None:
        pairs = zip(not_ready.keys, not_ready.reasons, strict=True)
        own = (f"{facts.name}:", f"{facts.name} ")
        reasons = [reason for key, reason in pairs if key.startswith(own) or reason.startswith(own)]
    if not reasons and not facts.required:
        what, consequence = facts.without
        if facts.silent_s is None:
            return [f"{what} {facts.name} was never seen; {consequence}"]
        if facts.silent_s > facts.max_age_s:
            return [f"{what} {facts.name} stopped {facts.silent_s:.1f} s ago; {consequence}"]
        if facts.frozen is not None:
            return [f"{what} {facts.name} is {facts.frozen}; {consequence}"]
    return reasons


@dataclass(frozen=True)
class DecisionFacts:
    """What is known of the decisions since configure; `missed_now` are the deadlines missed since the last
    status."""

    rate_hz: float
    wanted_hz: float | None
    sequence: int
    epoch: int
    instruction: str
    counts: Mapping[str, int]
    summaries: Mapping[str, Summary | None]
    missed: int = 0
    missed_now: int = 0
    expired: int = 0
    ages_ms: Mapping[str, float] = field(default_factory=dict)
    skew_ms: float = 0.0
    not_ready: NotReady | None = None
    rejected: str | None = None


def decision_status(prefix: str, facts: DecisionFacts, *, active: bool) -> DiagnosticStatus:
    """Rate, latencies, ages, misses, and why nothing is decided."""
    values: dict[str, object] = {
        "rate_hz": facts.rate_hz,
        "wanted_hz": "as fast as possible" if facts.wanted_hz is None else facts.wanted_hz,
        "sequence": facts.sequence,
        "epoch": facts.epoch,
        "instruction": facts.instruction,
        "missed_deadlines": facts.missed,
        "expired_chunks": facts.expired,
        **{f"count_{name}": count for name, count in facts.counts.items()},
    }
    for name, summary in facts.summaries.items():
        if summary is not None:
            values |= {
                f"{name}_ms_{key}": f"{getattr(summary, key):.2f}" for key in ("p50", "p95", "p99", "max")
            }
    values |= {f"age_ms_{name}": age for name, age in facts.ages_ms.items()}
    values["skew_ms"] = facts.skew_ms
    if facts.not_ready is not None:
        values["not_ready"] = str(facts.not_ready)
    level, message = _decision_level(facts, active)
    return status(f"{prefix}: decisions", level, message, values)


def _decision_level(facts: DecisionFacts, active: bool) -> tuple[bytes, str]:
    if not active:
        if facts.not_ready is not None:
            return WARN, f"inactive, and not ready: {facts.not_ready}"
        return OK, "inactive, ready to decide"
    if facts.not_ready is not None:
        return ERROR, f"no actions: {facts.not_ready}"
    if facts.rejected is not None:
        return ERROR, f"no actions: {facts.rejected}"
    if facts.missed_now:
        return WARN, f"{facts.rate_hz:.1f} Hz: slower than decision_rate, {facts.missed_now} deadlines missed"
    return OK, f"{facts.rate_hz:.1f} Hz"


@dataclass(frozen=True)
class MotionFacts:
    """What is known of the commands. `lag` in the robot's units by joint, `remaining_s` in s."""

    mode: str
    closed: str
    latched: bool
    stops: int
    last_stop: str
    refused: int
    expired: int
    clipped: int
    remaining_s: float
    refusal: str = ""
    lag: Mapping[str, float] = field(default_factory=dict)


def motion_status(prefix: str, facts: MotionFacts, *, active: bool) -> DiagnosticStatus:
    """Whether commands flow, why not, what limits did, and how far the robot is behind (R39)."""
    values: dict[str, object] = {
        "mode": facts.mode,
        "commands": facts.closed or "flow",
        "stops": facts.stops,
        "last_stop": facts.last_stop or "never",
        "refused_chunks": facts.refused,
        "expired_chunks": facts.expired,
        "points_changed_by_limits": facts.clipped,
        "remaining_s": f"{facts.remaining_s:.2f}",
        **{f"lag_{name}": f"{value:.4f}" for name, value in facts.lag.items()},
    }
    name = f"{prefix}: motion"
    if facts.latched:
        return status(name, ERROR if active else WARN, f"stopped: {facts.closed}", values)
    if facts.closed:
        return status(name, WARN if active else OK, f"no commands: {facts.closed}", values)
    if facts.refusal and active:
        return status(name, ERROR, f"chunk refused: {facts.refusal}", values)
    return status(name, OK, "commands flow" if active else "inactive", values)


def state_status(
    prefix: str, state: str, values: Mapping[str, object], *, fault: str | None, phase: str | None
) -> DiagnosticStatus:
    """State of the lifecycle, the step configure is at, and what went wrong last."""
    if fault is not None:
        return status(f"{prefix}: state", ERROR, f"{state}: {fault}", values)
    return status(f"{prefix}: state", OK, f"{state}: {phase}" if phase else state, values)


class Heartbeat:
    """Calls `beat` every `period_s` on a thread of its own, so that a busy executor does not silence it.

    An exception of `beat` goes to `on_error` and the heart keeps beating.
    """

    def __init__(
        self,
        beat: Callable[[], None],
        on_error: Callable[[Exception], None],
        period_s: float = PERIOD_S,
    ) -> None:
        self._beat, self._on_error, self._period_s = beat, on_error, period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="diagnostics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                self._beat()
            except Exception as error:
                self._on_error(error)

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop and wait for a beat under way."""
        self._stop.set()
        self._thread.join(timeout_s)
