# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What is counted of every source: messages received, used, skipped, waiting and dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from flashrt_ros.observation import NS_PER_S
from flashrt_ros.statistics import Rate

Reason = tuple[str, str]  # sentence with numbers, the same without


@dataclass(frozen=True)
class SourceCounts:
    """Messages of one source: received = used + skipped + waiting + Σ dropped.

    used: part of at least one observation; skipped: replaced by a newer one before a decision looked;
    waiting: the newest, not looked at yet; dropped: by kind (malformed, encoding, stamp, length, repeated,
    non_finite, rotation, frame, unrelated = no joint of ours, flushed = forgotten at a reset or clock jump).
    """

    received: int = 0
    used: int = 0
    skipped: int = 0
    waiting: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


class Counted:
    """Counters that every source has. Not thread-safe; times in ns."""

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
        """Count one message."""
        self.received += 1
        self.last_message, self.last_arrival_ns = message, arrival_ns
        self.rate.add(arrival_ns)

    def drop(self, kind: str, problem: str, now_ns: int) -> None:
        """Count a message that cannot be used, and remember why."""
        self.dropped[kind] += 1
        self.last_problem, self.problem_ns = problem, now_ns

    def still_dropping(self, now_ns: int, max_age: float) -> bool:
        """Whether messages come and are dropped: to call that silence would send somebody to the cables."""
        return self.problem_ns is not None and now_ns - self.problem_ns <= max_age * NS_PER_S

    def counts(self) -> SourceCounts:
        """The counters of now."""
        waiting = self.waiting()
        skipped = self.received - self.used - waiting - self.dropped.total()
        return SourceCounts(self.received, self.used, skipped, waiting, dict(self.dropped))

    def waiting(self) -> int:
        """Messages that no decision has looked at and that one may still use."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop every sample; counters stay."""
        self.dropped["flushed"] += self.waiting()
        self.clear()
        self.rate.clear()
        self.last_arrival_ns = self.problem_ns = None

    def clear(self) -> None:
        """Drop the samples."""
        raise NotImplementedError
