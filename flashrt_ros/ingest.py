# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Messages in, `Observation` out: the newest sample of every source, for live topics and bags alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flashrt_ros.observation import NotReady, Observation
from flashrt_ros.parameters import NodeConfig


@dataclass(frozen=True)
class SourceCounts:
    """Messages of one source: received = used + skipped + waiting + Σ dropped.

    used: part of at least one observation; skipped: replaced by a newer one before a decision looked; waiting: the
    newest, not looked at yet; dropped: by kind ("malformed", "encoding", "stamp", "non_finite", "unrelated", "flushed").
    """

    received: int = 0
    used: int = 0
    skipped: int = 0
    waiting: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


class Ingest:
    """`put` from any thread, `observe` from one. `now_ns` and `arrival_ns` are on the same clock (the node's)."""

    def __init__(
        self, config: NodeConfig, warn: Callable[[str, str], None], info: Callable[[str], None] | None = None
    ) -> None:
        """`warn(kind, text)` is called once per kind and source (again after 10 quiet seconds); `info(text)` once per
        camera with its encoding."""
        raise NotImplementedError

    clock_jumps: int
    """Times the clock went back; every buffer was dropped each time (R20)."""

    def put(self, source: str, message: Any, arrival_ns: int) -> None:
        """Store the newest message of a camera name or "joint_states". Touches no pixel; a bad message is dropped,
        counted and warned about. The same message object put again is ignored. KeyError for an unknown source."""
        raise NotImplementedError

    def observe(self, now_ns: int) -> Observation | NotReady:
        """The observation at `now_ns`, or why there is none. Converts each image once."""
        raise NotImplementedError

    def flush(self) -> None:
        """Forget every sample; counters stay."""
        raise NotImplementedError

    def counts(self) -> dict[str, SourceCounts]:
        """Counters by source."""
        raise NotImplementedError

    def rates_hz(self, now_ns: int) -> dict[str, float]:
        """Rate of the messages put, by source."""
        raise NotImplementedError
