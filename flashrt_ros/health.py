# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the node knows about itself: collects the facts behind `/diagnostics`, speaks once when a reason
changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeGuard

from flashrt_ros import diagnostics
from flashrt_ros.diagnostics import MASKED, UNMEASURED, DecisionFacts, MotionFacts, SourceFacts
from flashrt_ros.ingest import SourceCounts
from flashrt_ros.observation import NS_PER_S, Decision, NotReady, Rejected

if TYPE_CHECKING:
    from diagnostic_msgs.msg import DiagnosticStatus
    from rclpy.node import Node

    from flashrt_ros.running import Running

CLOCK_PATIENCE_S = 1.0
REASON_PATIENCE_S = 0.5


class Health:
    """`fault` is the last error (until the next configure or activate), `phase` the step that configure is
    at."""

    def __init__(self, node: Node) -> None:
        self.fault: str | None = None
        self.phase: str | None = None
        self._node = node
        self._prefix = node.get_fully_qualified_name().lstrip("/")
        self._reason: tuple[str, ...] | None = None
        self._reason_since_s = 0.0
        self._reason_told = True
        self._missed = 0
        self._born = time.monotonic()
        self._clock_warned = False

    def at(self, phase: str | None) -> None:
        """Note the step of configure, None when there is none."""
        self.phase = phase

    def reason_to_tell(self, skipped: NotReady | Rejected | None) -> str | None:
        """Why there are no actions, once for each new reason, and that there are again; None in: decisions
        flow.

        A source that is late for less than half a second is no news.
        """
        if isinstance(skipped, Rejected) and not _is_fault(skipped):
            return None
        key: tuple[str, ...] | None = None
        if skipped is not None:
            key = skipped.keys if isinstance(skipped, NotReady) else (skipped.kind,)
        now_s = time.monotonic()
        if skipped is None and self._reason is not None and self._reason_told:
            self._reason = None
            return "actions again"
        if key != self._reason:
            self._reason, self._reason_since_s, self._reason_told = key, now_s, False
        patience_s = REASON_PATIENCE_S if isinstance(skipped, NotReady) else 0.0
        if skipped is None or self._reason_told or now_s - self._reason_since_s < patience_s:
            return None
        self._reason_told = True
        return f"no actions: {skipped if isinstance(skipped, NotReady) else skipped.reason}"

    def report(self, running: Running | None, *, active: bool, state: str) -> list[DiagnosticStatus]:
        """Every status of now. Not while a transition changes `running`."""
        statuses = [self._state(running, state)]
        if running is None:
            return statuses
        last = running.decider.last
        if active:
            not_ready = last if isinstance(last, NotReady) else None
        else:
            not_ready = running.decider.check(self._node.get_clock().now().nanoseconds)
        facts = self._decisions(running, not_ready, active)
        statuses.append(diagnostics.decision_status(self._prefix, facts, active=active))
        statuses.append(diagnostics.motion_status(self._prefix, _motion_facts(running), active=active))
        counts = running.ingest.counts()
        for name in running.inputs.sources:
            source = _source_facts(running, name, counts[name])
            statuses.append(diagnostics.source_status(self._prefix, source, not_ready, active=active))
        return statuses

    def _state(self, running: Running | None, state: str) -> DiagnosticStatus:
        values: dict[str, object] = {}
        if running is not None:
            values = {
                "policy": running.policy.name,
                "checkpoint": running.config.checkpoint,
                "device": running.config.device,
                "clock_jumps": running.ingest.clock_jumps,
            }
        fault = self.fault or self._missing_clock()
        return diagnostics.state_status(self._prefix, state, values, fault=fault, phase=self.phase)

    def _missing_clock(self) -> str | None:
        """R22: simulated time that never starts looks like every source being silent."""
        clock = self._node.get_clock()
        if not self._node.get_parameter("use_sim_time").value or clock.now().nanoseconds > 0:
            return None
        if time.monotonic() - self._born < CLOCK_PATIENCE_S:
            return None
        text = "use_sim_time is set but nothing is received on /clock"
        if not self._clock_warned:
            self._clock_warned = True
            self._node.get_logger().error(text)
        return text

    def _decisions(self, running: Running, not_ready: NotReady | None, active: bool) -> DecisionFacts:
        decider, config = running.decider, running.config
        missed, self._missed = running.thread.missed - self._missed, running.thread.missed
        last = decider.last
        observed: dict[str, Any] = {}
        if isinstance(last, Decision):
            observed = {"ages_ms": last.observation.ages_ms, "skew_ms": last.observation.skew_ms}
        windows = {**decider.windows, **running.outputs.windows}
        return DecisionFacts(
            rate_hz=decider.rate.hz(time.monotonic_ns()) if active else 0.0,
            wanted_hz=config.decision_rate if config.trigger == "timer" else None,
            sequence=decider.sequence,
            epoch=decider.epoch,
            instruction=decider.instruction,
            counts=decider.counts,
            summaries={name: window.summary() for name, window in windows.items()},
            missed=running.thread.missed,
            missed_now=missed,
            expired=running.commands.expired,
            not_ready=not_ready,
            rejected=last.reason if active and _is_fault(last) else None,
            **observed,
        )


def _is_fault(outcome: object) -> TypeGuard[Rejected]:
    """A result that was flushed (new instruction, clock jump) is no fault: the next one is under way."""
    return isinstance(outcome, Rejected) and outcome.kind != "old_epoch"


def _motion_facts(running: Running) -> MotionFacts:
    commands, config, now_ns = running.commands, running.config, time.monotonic_ns()
    safety = commands.safety.facts(now_ns)
    return MotionFacts(
        mode="shadow" if config.shadow else "dry run" if config.dry_run else config.execute,
        closed=safety.closed,
        latched=safety.latched,
        stops=commands.stops,
        last_stop=commands.last_stop,
        refused=commands.refused,
        expired=commands.expired,
        clipped=commands.clipped,
        remaining_s=commands.remaining_s(now_ns),
        refusal=commands.refusal,
        lag=commands.lag,
    )


def _source_facts(running: Running, name: str, counts: SourceCounts) -> SourceFacts:
    source, ingest = running.inputs.sources[name], running.ingest
    is_camera = any(camera.name == name for camera in running.config.cameras)
    traffic, wall_ns = source.traffic, time.time_ns()
    return SourceFacts(
        name=name,
        topic=source.topic,
        required=name in ingest.required,
        max_age_s=ingest.max_age(name),
        rate_hz=traffic.rate(wall_ns),
        silent_s=max(0, wall_ns - traffic.newest_ns) / NS_PER_S if traffic.newest_ns else None,
        published=traffic.published,
        skipped=traffic.skipped,
        counts=counts,
        conflicts=tuple(source.conflicts()),
        frozen=ingest.frozen().get(name),
        without=MASKED if is_camera else UNMEASURED,
    )
