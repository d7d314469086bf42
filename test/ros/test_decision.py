# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Decisions: nothing old, late or broken is published, and the loop keeps its pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashrt_kernels.errors import ObservationError
from flashrt_ros.decision import Decider, DecisionThread, Pacing
from flashrt_ros.ingest import Ingest
from flashrt_ros.observation import Decision, NotReady, Rejected
from flashrt_ros.parameters import NodeConfig

S = 1_000_000_000
T0 = 1_700_000_000 * S


class StubPolicy:
    """Remembers its calls; `during` runs inside decide(), as if something happened meanwhile."""

    name = "stub"

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.actions = np.ones((4, 2), np.float32)  # [H, D]
        self.during: Callable[[], object] = lambda: None

    def decide(self, images: Any, state: Any, instruction: str, *, seed: int, sequence: int) -> Any:
        self.calls.append(
            {"images": images, "state": state, "instruction": instruction, "seed": seed, "sequence": sequence}
        )
        self.during()
        return SimpleNamespace(actions=self.actions, timings={"vision": 1.0, "action": 2.0, "total": 3.0})


def joints(stamp_ns: int = T0) -> Any:
    stamp = SimpleNamespace(sec=stamp_ns // S, nanosec=stamp_ns % S)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=stamp), name=["a", "b"], position=np.array([1.0, 2.0])
    )


def image(stamp_ns: int = T0) -> Any:
    fields = {"encoding": "rgb8", "height": 1, "width": 1, "step": 3, "data": np.zeros(3, np.uint8)}
    return SimpleNamespace(header=joints(stamp_ns).header, is_bigendian=0, **fields)


class Rig:
    """A Decider with one camera and two joints over a stub policy."""

    def __init__(self, pull: Callable[[], None] | None = None, parameters: Any = None) -> None:
        flat = {
            "checkpoint": "/x",
            "action_rate_hz": 30.0,
            "cameras": ["front"],
            "joint_names": ["a", "b"],
            "instruction": "wait",
            "seed": 5,
            **(parameters or {}),
        }
        config = NodeConfig.from_dict(flat)
        self.policy = StubPolicy()
        self.ingest = Ingest(config, lambda kind, text: None)
        self.decider = Decider(self.policy, self.ingest, config, pull=pull)

    def fill(self, at_ns: int = T0) -> None:
        self.ingest.put("front", image(at_ns), at_ns)
        self.ingest.put("joint_states", joints(at_ns), at_ns)

    def decided(self, now_ns: int = T0) -> Decision:
        outcome = self.decider.decide(now_ns)
        assert isinstance(outcome, Decision), str(outcome)
        return outcome


def test_decision_carries_everything_the_messages_need() -> None:
    """Names, numbering, instruction and the timing split arrive in the published chunk."""
    rig = Rig()
    rig.fill()
    decision = rig.decided(T0 + S // 10)
    assert decision.action_names == ("a", "b")
    assert (decision.sequence, decision.epoch, decision.seed) == (0, 0, 5)
    assert (decision.instruction, decision.model) == ("wait", "stub")
    assert decision.age_ms == pytest.approx(100)
    assert decision.stage_ms == {"vision": 1.0, "action": 2.0}
    assert decision.total_ms >= decision.ingest_ms + decision.policy_ms
    call = rig.policy.calls[0]
    assert (call["instruction"], call["seed"], call["sequence"]) == ("wait", 5, 0)
    assert call["state"].tolist() == [1, 2]
    assert set(call["images"]) == {"front"}


def test_chunks_do_not_share_memory_with_the_policy() -> None:
    """A policy that reuses its output buffer must not change a chunk that is still being sent."""
    rig = Rig()
    rig.fill()
    decision = rig.decided()
    rig.policy.actions[:] = 9
    assert (decision.actions == 1).all()


def test_R17_actions_go_back_through_scale_and_offset() -> None:
    """A policy trained in degrees must not send degrees to a controller that takes radians."""
    rig = Rig(parameters={"joint.b.scale": 180 / np.pi, "joint.b.offset": 10.0})
    rig.fill()
    rig.policy.actions = np.array([[1.0, 100.0]] * 4, np.float32)
    decision = rig.decided()
    assert rig.policy.calls[0]["state"][1] == pytest.approx(2 * 180 / np.pi + 10)
    assert decision.actions[:, 0].tolist() == [1.0] * 4
    assert decision.actions[:, 1] == pytest.approx(np.radians(90.0))


def test_R31_sequence_counts_calls_so_that_noise_differs_per_decision() -> None:
    """Seed and sequence of the message are those of the noise: a chunk can be computed again from them."""
    rig = Rig()
    rig.fill()
    assert [rig.decided().sequence for _ in range(3)] == [0, 1, 2]
    assert [call["sequence"] for call in rig.policy.calls] == [0, 1, 2]


def test_not_ready_is_counted_and_asks_no_policy() -> None:
    """Without a camera the policy is not run."""
    rig = Rig()
    outcome = rig.decider.decide(T0)
    assert isinstance(outcome, NotReady)
    assert rig.decider.last is outcome
    assert rig.decider.counts["not_ready"] == 1
    assert rig.policy.calls == []
    assert rig.decider.sequence == 0


def test_messages_are_pulled_when_a_decision_starts() -> None:
    """The newest message is fetched at decision time, and the time for it counts as ingest."""

    def pull() -> None:
        rig.fill()
        time.sleep(0.002)

    rig = Rig(pull=pull)
    decision = rig.decided()
    assert 2.0 <= decision.ingest_ms < decision.total_ms


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_R42_not_finite_actions_are_rejected_naming_the_joint(bad: float) -> None:
    """A NaN must never reach the controller; the whole chunk goes and the joint is named."""
    rig = Rig()
    rig.fill()
    rig.policy.actions[2, 1] = bad
    outcome = rig.decider.decide(T0)
    assert isinstance(outcome, Rejected)
    assert "1 of 8 actions are NaN or infinite (joints b)" in outcome.reason
    assert (rig.decider.counts["rejected"], rig.decider.counts["non_finite"]) == (1, 1)
    rig.policy.actions[:] = 1
    assert rig.decided().first, "nothing was executed yet"


def test_observation_error_of_the_policy_rejects_one_decision() -> None:
    """An image larger than the policy's limit is a fault of that image; the node goes on."""
    rig = Rig()
    rig.fill()
    error = ObservationError("front: 9000x9000 is larger than 4096x4096")

    def refuse() -> None:
        raise error

    rig.policy.during = refuse
    outcome = rig.decider.decide(T0)
    assert outcome == Rejected(str(error), "observation")
    rig.policy.during = lambda: None
    rig.decided()


def test_R29_only_the_first_chunk_after_a_flush_skips_nothing() -> None:
    """Later chunks enter where the robot already is, also after a new instruction: it is still moving."""
    rig = Rig()
    rig.fill()
    assert [rig.decided().first for _ in range(3)] == [True, False, False]
    assert rig.decider.set_instruction("another")
    assert not rig.decided().first
    rig.decider.flush()
    rig.fill()
    assert rig.decided().first


def test_R44_result_of_an_old_epoch_is_dropped() -> None:
    """A reset while the policy computes: its result belongs to the past."""
    rig = Rig()
    rig.fill()
    rig.policy.during = rig.decider.flush
    outcome = rig.decider.decide(T0)
    assert isinstance(outcome, Rejected)
    assert outcome.kind == "old_epoch"
    assert "epoch 0 ended" in outcome.reason


def test_R44_nothing_old_is_sent_between_decision_and_publishing() -> None:
    """The last moment for a reset is just before the message is sent."""
    rig = Rig()
    rig.fill()
    decision = rig.decided()
    sent: list[Decision] = []
    rig.decider.flush()
    assert not rig.decider.publish(decision, sent.append)
    assert sent == []
    assert rig.decider.counts["old_epoch"] == 1
    rig.fill()
    assert rig.decider.publish(rig.decided(), sent.append)
    assert sent[0].epoch == 1


def test_R33_flush_forgets_samples() -> None:
    """The first decision after a reset sees only what came after it."""
    rig = Rig()
    rig.fill()
    rig.decider.flush()
    assert isinstance(rig.decider.decide(T0), NotReady)
    assert rig.decider.epoch == 1


def test_a_pause_does_not_count_as_slow_decisions() -> None:
    """Diagnostics after deactivate and activate show the present rate, not the pause averaged over it."""
    rig = Rig()
    rig.fill()
    for _ in range(3):
        rig.decided()
    assert rig.decider.rate.hz(time.monotonic_ns()) > 0
    rig.decider.flush()
    assert rig.decider.rate.hz(time.monotonic_ns()) == 0


def test_R33_R43_new_instruction_begins_an_epoch() -> None:
    """What was computed for the old task is not published; each chunk tells its instruction."""
    rig = Rig()
    rig.fill()
    old = rig.decided()
    assert rig.decider.set_instruction("pick")
    assert not rig.decider.set_instruction("pick"), "the same text again changes nothing"
    assert not rig.decider.publish(old, lambda decision: None)
    new = rig.decided()
    assert (new.instruction, new.epoch) == ("pick", 1)
    rig.policy.during = lambda: rig.decider.set_instruction("place")
    assert isinstance(rig.decider.decide(T0), Rejected)


@pytest.mark.parametrize("seen_by", ["observe", "put"])
def test_R20_clock_jump_begins_an_epoch(seen_by: str) -> None:
    """After a simulator reset the motion of the old run is void."""
    rig = Rig()
    rig.fill()
    old = rig.decided()
    if seen_by == "put":
        rig.fill(T0 - 100 * S)
        new = rig.decided(T0 - 100 * S)
        assert (new.epoch, new.first) == (1, True)
    else:
        assert isinstance(rig.decider.decide(T0 - 100 * S), NotReady)
    assert rig.decider.epoch == 1
    assert not rig.decider.publish(old, lambda decision: None)


def test_windows_hold_what_was_decided() -> None:
    """Diagnostics show percentiles of decisions, not of attempts."""
    rig = Rig()
    rig.decider.decide(T0)
    rig.fill()
    for _ in range(3):
        rig.decided(T0 + S // 10)
    for name in ("age", "ingest", "policy", "total"):
        summary = rig.decider.windows[name].summary()
        assert summary is not None
        assert summary.count == 3
    assert rig.decider.windows["age"].last == pytest.approx(100)
    assert rig.decider.counts["decided"] == 3


class Loop:
    """A DecisionThread whose callbacks are remembered; messages keep coming."""

    def __init__(self, pacing: Pacing, feed: bool = True) -> None:
        self.rig = Rig(pull=(lambda: self.rig.fill()) if feed else None)
        self.published: list[Decision] = []
        self.skipped: list[NotReady | Rejected] = []
        self.errors: list[Exception] = []
        self.thread = DecisionThread(
            self.rig.decider,
            pacing,
            self.published.append,
            lambda: T0,
            self.errors.append,
            self.skipped.append,
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(0.001)


def hold(loop: Loop) -> tuple[threading.Event, threading.Event]:
    """Lets the next decision wait inside the policy: (it has begun, let it go on)."""
    busy, release = threading.Event(), threading.Event()

    def during() -> None:
        busy.set()
        release.wait(10)

    loop.rig.policy.during = during
    return busy, release


@pytest.fixture
def loops() -> Iterator[Callable[..., Loop]]:
    made: list[Loop] = []

    def make(*arguments: Any, **more: Any) -> Loop:
        made.append(Loop(*arguments, **more))
        return made[-1]

    yield make
    for loop in made:
        loop.thread.stop()


def test_timer_decides_at_its_rate_without_drift(loops: Any) -> None:
    """Twenty periods take twenty periods, although each decision takes time itself."""
    loop = loops(Pacing("timer", 200.0))
    loop.rig.policy.during = lambda: time.sleep(0.001)
    loop.thread.start()
    loop.until(lambda: len(loop.published) >= 21, "21 decisions")
    loop.thread.stop()
    began = [decision.started_ns for decision in loop.published[:21]]
    periods = loop.thread.missed + 20
    assert began[20] - began[0] >= 0.9 * 20 * 5_000_000, "faster than asked"
    assert (began[20] - began[0]) / 5_000_000 <= periods + 1.5, "deadlines drifted"


def test_R28_missed_deadlines_are_counted_and_not_made_up_for(loops: Any) -> None:
    """A policy slower than its period skips decisions; it does not queue them."""
    loop = loops(Pacing("timer", 100.0))
    loop.rig.policy.during = lambda: time.sleep(0.025)
    loop.thread.start()
    loop.until(lambda: len(loop.published) >= 3, "three decisions")
    loop.thread.stop()
    assert loop.thread.missed >= 2 * 3


def test_camera_trigger_decides_once_per_image(loops: Any) -> None:
    """No image, no decision; images that arrive meanwhile make one further decision, not a queue."""
    loop = loops(Pacing("camera"))
    loop.thread.start()
    loop.thread.trigger()
    loop.until(lambda: len(loop.published) == 1, "a decision for the image")
    busy, release = hold(loop)
    loop.thread.trigger()
    assert busy.wait(5)
    for _ in range(5):
        loop.thread.trigger()
    release.set()
    loop.until(lambda: len(loop.published) == 3, "one more decision")
    time.sleep(0.05)
    assert len(loop.published) == 3


def test_camera_trigger_says_what_is_missing_when_no_image_comes(loops: Any) -> None:
    """A trigger camera that is not there must not leave the log silent."""
    loop = loops(Pacing("camera"), feed=False)
    loop.thread.start()
    loop.until(lambda: bool(loop.skipped), "the reason")
    assert "front: never seen" in loop.skipped[0].keys


def test_free_running_decides_back_to_back(loops: Any) -> None:
    """The policy's own speed is the pace."""
    loop = loops(Pacing("free"))
    loop.thread.start()
    loop.until(lambda: len(loop.published) >= 20, "decisions")


def test_free_running_without_input_does_not_spin(loops: Any) -> None:
    """A node that waits for its cameras leaves the processor to the drivers."""
    loop = loops(Pacing("free"), feed=False)
    began = time.monotonic()
    loop.thread.start()
    time.sleep(0.1)
    loop.thread.stop()
    assert 1 <= len(loop.skipped) <= (time.monotonic() - began) / 0.004


def test_R49_stop_with_a_decision_in_flight_is_bounded_and_drops_it(loops: Any) -> None:
    """Deactivate returns although the policy hangs; its result is never published."""
    loop = loops(Pacing("free"))
    busy, release = hold(loop)
    loop.thread.start()
    assert busy.wait(5)
    assert not loop.thread.stop(timeout_s=0.05)
    with pytest.raises(RuntimeError, match="still running"):
        loop.thread.start()
    release.set()
    loop.until(lambda: not loop.thread.running, "the end of the thread")
    assert loop.published == []
    assert loop.rig.decider.counts["old_epoch"] == 1


def test_R48_an_exception_is_reported_once_and_ends_the_thread(loops: Any) -> None:
    """A fatal error of the policy stops the motion; it is neither swallowed nor repeated."""
    loop = loops(Pacing("free"))
    error = RuntimeError("device lost")

    def fail() -> None:
        raise error

    loop.rig.policy.during = fail
    loop.thread.start()
    loop.until(lambda: not loop.thread.running, "the end of the thread")
    assert loop.errors == [error]
    assert loop.published == []


def test_stop_from_within_a_callback_does_not_wait_for_itself() -> None:
    """A node that deactivates itself in on_error must not hang."""
    rig = Rig(pull=lambda: rig.fill())
    stopped: list[bool] = []
    thread: DecisionThread

    def stop(error: Exception) -> None:
        stopped.append(thread.stop())

    def fail() -> None:
        raise RuntimeError("device lost")

    rig.policy.during = fail
    thread = DecisionThread(rig.decider, Pacing("free"), lambda decision: None, lambda: T0, stop)
    thread.start()
    end = time.monotonic() + 10
    while thread.running and time.monotonic() < end:
        time.sleep(0.001)
    assert stopped == [True]


def test_start_again_after_stop(loops: Any) -> None:
    """Deactivate and activate: a new epoch, nothing published in between."""
    loop = loops(Pacing("free"))
    loop.thread.start()
    loop.until(lambda: bool(loop.published), "a decision")
    assert loop.thread.stop()
    count = len(loop.published)
    time.sleep(0.03)
    assert len(loop.published) == count
    loop.thread.start()
    loop.until(lambda: len(loop.published) > count, "a decision after the restart")
    assert loop.published[count].epoch > loop.published[count - 1].epoch
    assert loop.published[count].first
