# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What an active node does about what its threads report: a chunk is there or is not, the robot must stop, a
thread failed. Called by the decision thread and the guardian; transitions stay with the executor."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flashrt_ros.commands import EXPIRED, OVERTAKEN, Accepted
from flashrt_ros.observation import NS_PER_S, Decision, NotReady, Rejected
from flashrt_ros.running import Running
from flashrt_ros.safety import stops_robot

if TYPE_CHECKING:
    from flashrt_ros.policy_node import PolicyNode

CANCELLED: Final = "the process was asked to stop"
DEAD: Final = "the decision thread has died"
WATCH_NS: Final = NS_PER_S // 5
"""Input of a moving robot that no decision looked at for so long is looked at."""


class Oversight:
    """`cancelled` says whether the process should stop, `deactivate` asks the executor to deactivate."""

    def __init__(
        self, node: PolicyNode, cancelled: Callable[[], bool], deactivate: Callable[[], None]
    ) -> None:
        self._node, self._log = node, node.get_logger()
        self._cancelled, self._deactivate = cancelled, deactivate
        self._closed_told = ""
        self._watched_ns = 0

    def begin(self) -> None:
        """Activate: what was told before is news again."""
        self._closed_told = ""

    def epoch_over(self, reason: str) -> None:
        """Any thread: what the robot still does belongs to an epoch that is over (R33)."""
        running = self._node.running
        if running is not None and running.commands.stop(reason, time.monotonic_ns()):
            self.stopped(reason)

    def stopped(self, reason: str) -> None:
        """Any thread: the stop action was sent."""
        self._log.warning(f"robot stopped: {reason}")

    def alarm(self) -> str:
        """Guardian: why the robot must stop, whatever the decision thread is doing."""
        running = self._node.running
        if self._cancelled():
            if running is not None:
                running.commands.safety.close(CANCELLED)
            return CANCELLED
        if running is None or not self._node.is_active:
            return ""
        if not running.thread.running:
            self._on_dead()
            return DEAD
        return self._unwatched(running)

    def _unwatched(self, running: Running) -> str:
        """Why the input is not good enough to go on, for a robot that moves while no decision begins: a slow
        policy, a low rate."""
        now_ns = time.monotonic_ns()
        if now_ns - max(running.decider.looked_ns, self._watched_ns) < WATCH_NS:
            return ""
        if running.commands.remaining_s(now_ns) <= 0.0:
            return ""
        self._watched_ns = now_ns
        running.inputs.pull()
        stale = running.ingest.stale(self._node.now_ns())
        return "" if stale is None else str(stale)

    def _on_dead(self) -> None:
        """Guardian: the decision thread ended without a word."""
        if self._node.health.fault is None:
            self._node.health.fault = f"deactivated itself: {DEAD}"
            self._log.error(self._node.health.fault)
            self._deactivate()

    def chunk(self, decision: Decision) -> None:
        """Decision thread: a chunk to send."""
        running = self._node.running
        if running is None:
            return
        stale = self._stale_since(running, decision)
        if stale is not None:
            self.skipped(stale)
            return
        rate_hz = running.decider.rate.hz(time.monotonic_ns())
        accepted = running.outputs.publish(decision, running.commands, rate_hz, running.thread.missed)
        if not accepted.sent:
            self._not_sent(running, decision, accepted)
            return
        text = self._node.health.reason_to_tell(None)
        if text is not None:
            self._log.info(text)

    def _stale_since(self, running: Running, decision: Decision) -> NotReady | None:
        """What became of the input while a slow policy thought: an arm must not set out towards what it saw
        seconds ago if it sees nothing now."""
        if time.monotonic_ns() - decision.started_ns < WATCH_NS:
            return None
        running.inputs.pull()
        return running.ingest.stale(self._node.now_ns())

    def _not_sent(self, running: Running, decision: Decision, accepted: Accepted) -> None:
        if accepted.fault:
            self.skipped(Rejected(accepted.reason, "refused"))
            return
        if accepted.reason == EXPIRED and running.commands.expired == 1:
            rate_hz = running.config.action_rate_hz
            self._log.warning(
                f"nothing sent: all {len(decision.actions)} steps of a chunk, at action_rate_hz = "
                f"{rate_hz:g}, were in the past when it was ready ({accepted.consumed} had passed since its "
                "observation); expired_chunks in /diagnostics counts such chunks"
            )
        kind = re.sub(r"[\d.]+", "#", accepted.reason)  # an age that grows is no news
        if kind not in (self._closed_told, EXPIRED, OVERTAKEN):
            self._closed_told = kind
            self._log.warning(f"chunks go out, commands do not: {accepted.reason}")

    def skipped(self, outcome: NotReady | Rejected) -> None:
        """Decision thread: no chunk this time. A robot that is not looked after stands still (R7, R42)."""
        running = self._node.running
        if running is not None and stops_robot(outcome):
            reason = str(outcome) if isinstance(outcome, NotReady) else outcome.reason
            if isinstance(outcome, Rejected) and outcome.kind != "refused":
                running.commands.safety.refused(reason)
            if running.commands.stop(reason, time.monotonic_ns()):
                self.stopped(reason)
        text = self._node.health.reason_to_tell(outcome)
        if text is not None:
            hints = running.inputs.silences() if running is not None else []
            self._log.warning("; ".join([text, *hints]))

    def failed(self, error: Exception) -> None:
        """Decision thread or guardian: it failed. The robot stops at once; the transition belongs to the
        executor's thread (R48)."""
        self._node.health.fault = f"deactivated itself: {type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        self._log.error(f"decision failed, the node deactivates itself\n{trace}")
        self._deactivate()
        self.epoch_over(f"{type(error).__name__}: {error}")
