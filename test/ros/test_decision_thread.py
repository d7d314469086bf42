# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The decision thread: it keeps its pace, and it stops when it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flashrt_ros.decision import DecisionThread, Pacing
from flashrt_ros.observation import Decision, NotReady, Rejected
from test.ros.decision_rig import T0, Rig


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


def test_consumed_decides_when_the_robot_has_used_its_steps(loops: Any) -> None:
    """`trigger: consumed`: no decision while the robot still has enough to do, one as soon as it has not."""
    due_in = [10.0]
    loop = loops(Pacing("consumed", 1000.0, due_in_s=lambda: due_in[0]))
    loop.thread.start()
    time.sleep(0.1)
    assert loop.published == []
    due_in[0] = 0.0
    loop.until(lambda: len(loop.published) >= 2, "decisions")
    due_in[0] = 10.0
    time.sleep(0.05)
    count = len(loop.published)
    time.sleep(0.1)
    assert len(loop.published) == count


def test_consumed_is_no_faster_than_decision_rate(loops: Any) -> None:
    """A robot that stands consumes nothing: without a bound the policy would run hot for nothing."""
    loop = loops(Pacing("consumed", 20.0))
    loop.thread.start()
    time.sleep(0.5)
    loop.thread.stop()
    assert 2 <= len(loop.published) <= 12


def test_R43_nothing_is_decided_while_an_instruction_waits(loops: Any) -> None:
    """`finish_chunk`: a new chunk of the old instruction would never let the old one end."""
    loop = loops(Pacing("timer", 200.0))
    loop.thread.start()
    loop.until(lambda: len(loop.published) >= 1, "a decision")
    loop.rig.decider._remaining_s = lambda: 1.0
    loop.rig.decider._pending = "another"
    time.sleep(0.05)
    count = len(loop.published)
    time.sleep(0.1)
    assert len(loop.published) == count
    loop.rig.decider._remaining_s = lambda: 0.0
    loop.until(lambda: loop.published[-1].instruction == "another", "the new instruction")
