# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""May the robot move? One place that says so; fail-closed. No ROS; times are ns of the monotonic clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from flashrt_ros.observation import NS_PER_S, NotReady, Rejected
from flashrt_ros.parameters import NodeConfig


@dataclass(frozen=True)
class SafetyFacts:
    """What is known now: why no commands flow ("" = they do), whether that is latched, and the counts."""

    closed: str
    latched: bool
    refused_in_a_row: int
    limited_in_a_row: int


class Safety:
    """The deadman and the latch. Any thread.

    A latch stays until `reset` (activate): what it stands for does not go away by itself.
    """

    def __init__(self, config: NodeConfig) -> None:
        self._required, self._timeout_s = config.require_enable, config.enable_timeout
        self._latch_after, self._storm_after = config.latch_after, config.limit_storm_after
        self._silent = "dry_run is set" if config.dry_run else "shadow is set" if config.shadow else ""
        self._lock = threading.Lock()
        self._enabled: tuple[bool, int] | None = None  # value, when it came
        self._latched = ""
        self._refused = self._limited = 0

    def reset(self) -> None:
        """Activate: forget latches and the enable of before."""
        with self._lock:
            self._enabled = None
            self._latched = ""
            self._refused = self._limited = 0

    def enable(self, value: bool, now_ns: int) -> None:
        """A message on ~/enable."""
        with self._lock:
            self._enabled = (value, now_ns)

    def closed(self, now_ns: int) -> str:
        """Why no command may go out now; "" when it may."""
        with self._lock:
            return self._silent or self._latched or self._not_enabled(now_ns)

    def _not_enabled(self, now_ns: int) -> str:
        """The deadman: commands flow only while somebody says so, and said so a moment ago."""
        if not self._required:
            return ""
        if self._enabled is None:
            return "not enabled: nothing came on ~/enable (require_enable: false does without)"
        value, came_ns = self._enabled
        if not value:
            return "not enabled: ~/enable is false"
        age_s = (now_ns - came_ns) / NS_PER_S
        if age_s > self._timeout_s:
            return f"not enabled: ~/enable is {age_s:.2f} s old, enable_timeout is {self._timeout_s:g} s"
        return ""

    def latch(self, reason: str) -> None:
        """Close until `reset`; the first reason stays."""
        with self._lock:
            self._latched = self._latched or f"{reason}; deactivate and activate to go on"

    def close(self, reason: str) -> None:
        """As `latch`, for what ends with the process."""
        with self._lock:
            self._latched = self._latched or reason

    def refused(self, reason: str) -> None:
        """A chunk was refused (not finite, a jump): `latch_after` of them in a row latch (R42)."""
        with self._lock:
            self._refused += 1
            count = self._refused
        if count >= self._latch_after:
            self.latch(f"{count} chunks in a row were refused, the last because {reason}")

    def accepted(self, limited: bool, names: str) -> None:
        """A chunk went out; `limited`: limits changed half of it, of joints `names` (a storm latches)."""
        with self._lock:
            self._refused = 0
            self._limited = self._limited + 1 if limited else 0
            count = self._limited
        if self._storm_after and count >= self._storm_after:
            self.latch(f"limits changed half of {count} chunks in a row ({names})")

    def facts(self, now_ns: int) -> SafetyFacts:
        """For diagnostics."""
        closed = self.closed(now_ns)
        with self._lock:
            return SafetyFacts(closed, bool(self._latched), self._refused, self._limited)


def stops_robot(outcome: NotReady | Rejected) -> bool:
    """Whether a decision that was not made stops the robot: not when its epoch just ended, which has stopped
    it already."""
    return isinstance(outcome, NotReady) or outcome.kind != "old_epoch"
