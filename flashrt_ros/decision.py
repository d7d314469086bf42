# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One decision (`Decider`), and the thread that makes them one after another (`DecisionThread`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import Decision, NotReady, Rejected
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.statistics import Rate, Window


class PolicyLike(Protocol):
    """What a decision needs of a policy (flashrt_kernels.Policy, or a stub in tests)."""

    name: str

    def decide(self, *, images: Any, state: Any, instruction: str, seed: int, sequence: int) -> Any: ...


class Decider:
    """Observe → decide → check, synchronously. Owns sequence, epoch, seed and instruction."""

    epoch: int
    sequence: int
    instruction: str
    counts: dict[str, int]  # decided, not_ready, rejected, and one per kind of rejection
    windows: dict[str, Window]  # age, ingest, policy, total: milliseconds
    rate: Rate  # of decisions, on the monotonic clock
    last: Decision | NotReady | Rejected | None

    def __init__(
        self,
        policy: PolicyLike,
        ingest: Ingest,
        config: NodeConfig,
        instruction: str | None = None,
        pull: Callable[[], None] | None = None,
    ) -> None:
        """`pull` fetches the newest messages into `ingest` when a decision starts; its time counts as ingest."""
        raise NotImplementedError

    def decide(self, now_ns: int) -> Decision | NotReady | Rejected:
        """One decision at `now_ns` (the node's clock). Exceptions of the policy other than ObservationError pass."""
        raise NotImplementedError

    def check(self, now_ns: int) -> NotReady | None:
        """Only look whether a decision could be made; no decision is counted."""
        raise NotImplementedError

    def publish(self, decision: Decision, send: Callable[[Decision], None]) -> bool:
        """Call `send` unless the decision's epoch is over; after `flush` returned nothing older is ever sent (R44)."""
        raise NotImplementedError

    def set_instruction(self, text: str) -> bool:
        """Instruction of the next decision; a changed one begins a new epoch. True when it changed."""
        raise NotImplementedError

    def flush(self) -> None:
        """Begin a new epoch: forget every sample, drop what is in flight (R33)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Pacing:
    """What starts a decision: "timer" at `rate_hz`, "camera" on `DecisionThread.trigger()`, "free" at once."""

    trigger: str
    rate_hz: float = 5.0


class DecisionThread:
    """Makes decisions until stopped; one object per activation or reused: start / stop may alternate."""

    missed: int  # deadlines that passed while a decision was still running (timer)

    def __init__(
        self,
        decider: Decider,
        pacing: Pacing,
        publish: Callable[[Decision], None],
        now_ns: Callable[[], int],
        on_error: Callable[[Exception], None],
        on_skip: Callable[[NotReady | Rejected], None] | None = None,
    ) -> None:
        """`publish`, `on_skip` and `on_error` are called on the decision thread; `on_error` once, then it ends."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin a new epoch and the thread. RuntimeError while an earlier decision is still running."""
        raise NotImplementedError

    def trigger(self) -> None:
        """The trigger camera has a new image."""
        raise NotImplementedError

    def stop(self, timeout_s: float = 2.0) -> bool:
        """End the epoch and wait; False when a decision is still in flight after the timeout (its result is dropped)."""
        raise NotImplementedError
