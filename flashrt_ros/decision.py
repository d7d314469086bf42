# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One decision (`Decider`), and the thread that makes them one after another (`DecisionThread`)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from flashrt_kernels.errors import DecisionError, ObservationError
from flashrt_ros.chunk import is_finite
from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import NS_PER_MS, NS_PER_S, Decision, NotReady, Observation, Rejected
from flashrt_ros.parameters import NodeConfig
from flashrt_ros.spaces import action_units
from flashrt_ros.statistics import Rate, Window

WINDOWS: Final = ("age", "wait", "ingest", "policy", "total")
SUMS: Final = ("total", "gpu")  # timings that hold others: beside them they would count twice
IDLE_S: Final = 0.005  # free-running without an observation: look again this often, do not spin
CONSUMED_LOOK_S: Final = 0.01
HANDOVER_S: Final = 1e-4  # who triggers lets go of the interpreter, or the decision waits half a millisecond
SILENCE_S: Final = 0.5  # a trigger camera silent for so long: say what is missing


class PolicyLike(Protocol):
    """What a decision needs of a policy (flashrt_kernels.Policy, or a stub in tests).

    `decide` returns an object with `actions` float32 [H, D] and `timings`, a dict of milliseconds.
    """

    @property
    def name(self) -> str: ...
    def decide(
        self, images: Any, state: np.ndarray, instruction: str, *, seed: int, sequence: int
    ) -> Any: ...


class Decider:
    """Observe → decide → check, synchronously. Owns sequence, epoch, seed and instruction.

    `decide` runs on one thread; everything else may be called from any.
    """

    def __init__(
        self,
        policy: PolicyLike,
        ingest: Ingest,
        config: NodeConfig,
        instruction: str | None = None,
        pull: Callable[[], None] | None = None,
        window: int = 1000,
        on_epoch: Callable[[str], object] = lambda reason: None,
        remaining_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`pull` fetches the newest messages into `ingest` when a decision starts; its time counts as ingest.

        `instruction` defaults to the configured one. `window` is the number of decisions behind percentiles.
        `on_epoch(reason)` is called when an epoch ends: what the robot still does is void. `remaining_s` says
        for how long the robot still follows the last chunk, for `instruction_policy: finish_chunk`.
        """
        self._policy = policy
        self._ingest = ingest
        self._config = config
        self._pull = pull
        self._lock = threading.RLock()
        self._instruction = config.instruction if instruction is None else instruction
        self._to_robot = _to_robot_units(config)
        self._pending: str | None = None
        self._on_epoch, self._remaining_s = on_epoch, remaining_s
        self._first = True
        self._clock_jumps = ingest.clock_jumps
        self.epoch = 0
        self.sequence = 0
        """Calls of the policy since configure."""
        self.counts: Counter[str] = Counter(decided=0, not_ready=0, rejected=0)
        """decided, not_ready, rejected, and the rejected by kind (observation, non_finite, old_epoch)."""
        self.windows = {name: Window(window) for name in WINDOWS}
        """Milliseconds of the newest decisions, by `WINDOWS`."""
        self.rate = Rate()
        """Of decisions, on the monotonic clock."""
        self.last: Decision | NotReady | Rejected | None = None
        self.looked_ns = 0
        """When the sources were looked at last, ns (monotonic)."""

    @property
    def instruction(self) -> str:
        with self._lock:
            return self._instruction

    def set_instruction(self, text: str) -> bool:
        """Instruction of the next decision; a changed one begins a new epoch (R33). True when it changed.

        With `instruction_policy: finish_chunk` it waits until the robot has followed the present chunk to its
        end. Sensor samples stay: they do not depend on what the robot is asked to do.
        """
        with self._lock:
            if text == (self._instruction if self._pending is None else self._pending):
                return False
            self._pending = text
            if self._config.instruction_policy == "flush" or self._remaining_s() <= 0.0:
                self._change_instruction()
            return True

    def _change_instruction(self) -> None:
        if self._pending is not None:
            self._instruction, self._pending = self._pending, None
            self.epoch += 1
            self._on_epoch("a new instruction")

    @property
    def holding(self) -> bool:
        """A new instruction waits for the end of the present chunk (R43): nothing is decided until then."""
        with self._lock:
            return self._pending is not None and self._remaining_s() > 0.0

    def flush(self, reason: str = "a reset") -> None:
        """Begin a new epoch: forget every sample, drop what is in flight (R33)."""
        with self._lock:
            self._ingest.flush()
            self._new_epoch(reason)
            self.rate.clear()  # the pause before the next decision says nothing about their rate

    def _new_epoch(self, reason: str) -> None:
        """After a flush the robot stands still, or does not do what we think it does."""
        self.epoch += 1
        self._first = True
        self._on_epoch(reason)

    def decide(self, now_ns: int, due_ns: int | None = None) -> Decision | NotReady | Rejected:
        """One decision at `now_ns` (the node's clock); it was due at `due_ns` (monotonic; None: now).

        It is rejected when the policy cannot take the observation, an action is not finite (R42), or its
        epoch ended meanwhile (R44). Other exceptions of the policy pass through.
        """
        self.last = outcome = self._decide(now_ns, due_ns)
        if isinstance(outcome, NotReady):
            self.counts["not_ready"] += 1
        elif isinstance(outcome, Rejected):
            self.counts["rejected"] += 1
            self.counts[outcome.kind] += 1
        else:
            self._count(outcome)
        return outcome

    def check(self, now_ns: int) -> NotReady | None:
        """Only look whether a decision could be made; nothing is counted but what the sources delivered."""
        self._begin()
        observation = self._observe(now_ns)
        if isinstance(observation, NotReady):
            self.last = observation
            return observation
        return None

    def _begin(self) -> tuple[int, str]:
        """Fetch what the sources have; returns the epoch and the instruction of this decision."""
        self.looked_ns = time.monotonic_ns()
        if self._pull is not None:
            self._pull()
        with self._lock:
            self._notice_clock_jump()
            self._change_instruction()
            return self.epoch, self._instruction

    def _observe(self, now_ns: int) -> Observation | NotReady:
        observation = self._ingest.observe(now_ns)
        with self._lock:
            self._notice_clock_jump()
        return observation

    def _notice_clock_jump(self) -> None:
        """What was decided before the clock went back is void (R20)."""
        if self._ingest.clock_jumps != self._clock_jumps:
            self._clock_jumps = self._ingest.clock_jumps
            self._new_epoch("the clock went back")

    def _decide(self, now_ns: int, due_ns: int | None) -> Decision | NotReady | Rejected:
        started_ns = time.monotonic_ns()
        epoch, instruction = self._begin()
        observation = self._observe(now_ns)
        if isinstance(observation, NotReady):
            return observation
        sequence, self.sequence = self.sequence, self.sequence + 1
        observed_ns = time.monotonic_ns()
        try:
            chunk = self._policy.decide(
                observation.images, observation.state, instruction, seed=self._config.seed, sequence=sequence
            )
        except ObservationError as error:
            return Rejected(str(error), "observation")
        except DecisionError as error:
            return Rejected(str(error), "no_actions")
        decided_ns = time.monotonic_ns()
        actions = self._to_robot(
            np.array(chunk.actions, dtype=np.float32)
        )  # [H, D], a copy: buffers are reused
        if not is_finite(actions):
            return Rejected(self._not_finite(actions), "non_finite")
        with self._lock:
            self._notice_clock_jump()  # of another thread's look at the sources
            if epoch != self.epoch:
                return Rejected(f"its epoch {epoch} ended while it was computed", "old_epoch")
            first, self._first = self._first, False
        return Decision(
            actions=actions,
            action_names=self._config.action_names,
            sequence=sequence,
            epoch=epoch,
            first=first,
            seed=self._config.seed,
            instruction=instruction,
            model=self._policy.name,
            observation=observation,
            age_ms=max(0, now_ns - observation.oldest_ns) / NS_PER_MS,
            wait_ms=0.0 if due_ns is None else max(0, started_ns - due_ns) / NS_PER_MS,
            ingest_ms=(observed_ns - started_ns) / NS_PER_MS,
            policy_ms=(decided_ns - observed_ns) / NS_PER_MS,
            stage_ms={stage: float(ms) for stage, ms in chunk.timings.items() if stage not in SUMS},
            started_ns=started_ns,
            finished_ns=time.monotonic_ns(),
        )

    def _not_finite(self, actions: np.ndarray) -> str:
        bad = ~np.isfinite(actions)  # [H, D]
        joints = ", ".join(self._config.action_names[column] for column in np.flatnonzero(bad.any(axis=0)))
        return f"{int(bad.sum())} of {bad.size} actions are NaN or infinite (joints {joints}); chunk dropped"

    def _count(self, decision: Decision) -> None:
        self.counts["decided"] += 1
        self.rate.add(decision.finished_ns)
        for name in WINDOWS:
            self.windows[name].add(getattr(decision, f"{name}_ms"))

    def publish(self, decision: Decision, send: Callable[[Decision], None]) -> bool:
        """Call `send` unless the decision's epoch is over: after `flush` returned, nothing older is sent."""
        with self._lock:
            self._notice_clock_jump()
            if decision.epoch != self.epoch:
                self.counts["old_epoch"] += 1
                return False
            send(decision)
            return True


def _to_robot_units(config: NodeConfig) -> Callable[[np.ndarray], np.ndarray]:
    """Undo scale and offset of the action's joints: a joint has one unit in both directions (R17, R18).

    Steps and velocities have no offset. Actions [H, D] without scale and offset keep their bits.
    """
    scale, offset = action_units(config)  # [D] each
    columns = np.flatnonzero((scale != 1.0) | (offset != 0.0))
    scale, offset = scale[columns], offset[columns]

    def convert(actions: np.ndarray) -> np.ndarray:
        if columns.size:
            actions[:, columns] = (actions[:, columns] - offset) / scale
        return actions

    return convert


@dataclass(frozen=True)
class Pacing:
    """What starts a decision: "timer" at `rate_hz`, "camera" on `DecisionThread.trigger`, "free" at once,
    "consumed" when `due_in_s()` is 0, at `rate_hz` at most."""

    trigger: str
    rate_hz: float = 5.0
    due_in_s: Callable[[], float] = lambda: 0.0


class DecisionThread:
    """Makes decisions from `start` to `stop`; may be started again."""

    def __init__(
        self,
        decider: Decider,
        pacing: Pacing,
        publish: Callable[[Decision], None],
        now_ns: Callable[[], int],
        on_error: Callable[[Exception], None],
        on_skip: Callable[[NotReady | Rejected], None] | None = None,
    ) -> None:
        """`publish`, `on_skip`, `on_error` run on the decision thread; after `on_error` it ends (R48)."""
        self._decider = decider
        self._publish = publish
        self._now_ns = now_ns
        self._on_error = on_error
        self._on_skip = on_skip
        self._period_ns = round(NS_PER_S / pacing.rate_hz)
        self._due_in_s = pacing.due_in_s
        self._run = {
            "timer": self._run_timer,
            "camera": self._run_camera,
            "free": self._run_free,
            "consumed": self._run_consumed,
        }[pacing.trigger]
        self._triggered_ns = 0
        self._image = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.missed = 0
        """Deadlines that passed while a decision was still running, for the timer; for the camera, images
        that were replaced before a decision began."""

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin a new epoch and the thread. RuntimeError while an earlier decision is still running."""
        if self.running:
            raise RuntimeError("the previous decision is still running; try again when it has ended")
        self._decider.flush("activated")
        self._image.clear()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(self._stop,), name="decisions", daemon=True)
        self._thread.start()

    def trigger(self) -> None:
        """The trigger camera has a new image."""
        self.missed += self._image.is_set()  # the one before waits still: it will not be decided on
        self._triggered_ns = time.monotonic_ns()
        self._image.set()
        time.sleep(HANDOVER_S)

    def stop(self, timeout_s: float = 2.0, reason: str = "deactivated") -> bool:
        """End the epoch, for `reason`, and wait; False when a decision is still in flight then (its result is
        dropped, R49).

        Called on the decision thread itself (from `publish` or `on_error`) it does not wait.
        """
        self._stop.set()
        self._image.set()
        self._decider.flush(reason)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return True

    def _main(self, stop: threading.Event) -> None:
        try:
            self._run(stop)
        except Exception as error:  # handed to the node, which reports it and deactivates
            self._on_error(error)

    def _step(self, stop: threading.Event, due_ns: int | None = None) -> bool:
        """One decision that was due at `due_ns` (monotonic); False when there was none to publish."""
        if self._decider.holding:
            return False
        outcome = self._decider.decide(self._now_ns(), due_ns)
        if stop.is_set():
            return False
        if isinstance(outcome, Decision):
            return self._decider.publish(outcome, self._publish)
        if self._on_skip is not None:
            self._on_skip(outcome)
        return False

    def _run_timer(self, stop: threading.Event) -> None:
        """Deadlines lie on a grid from the start: one late decision does not shift the following ones."""
        deadline_ns = time.monotonic_ns()
        while not stop.wait(max(0, deadline_ns - time.monotonic_ns()) / NS_PER_S):
            self._step(stop, deadline_ns)
            late = max(0, time.monotonic_ns() - deadline_ns) // self._period_ns
            self.missed += late
            deadline_ns += (late + 1) * self._period_ns

    def _run_camera(self, stop: threading.Event) -> None:
        while not stop.is_set():
            fresh = self._image.wait(SILENCE_S)
            if stop.is_set():
                return
            if fresh:
                self._image.clear()
                self._step(stop, self._triggered_ns)
                continue
            missing = self._decider.check(self._now_ns())
            if missing is not None and self._on_skip is not None:
                self._on_skip(missing)

    def _run_free(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if not self._step(stop):
                stop.wait(IDLE_S)

    def _run_consumed(self, stop: threading.Event) -> None:
        """A stopped robot consumes nothing, and nobody tells: so look again every few milliseconds."""
        earliest_ns = 0
        while not stop.is_set():
            now_ns = time.monotonic_ns()
            wait_s = max(self._due_in_s(), (earliest_ns - now_ns) / NS_PER_S)
            if wait_s > 0.0:
                stop.wait(min(wait_s, CONSUMED_LOOK_S))
                continue
            self._step(stop, now_ns)
            earliest_ns = now_ns + self._period_ns
