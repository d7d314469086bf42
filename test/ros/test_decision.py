# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Decisions: nothing old, late or broken is published."""

from __future__ import annotations

import time

import numpy as np
import pytest

from flashrt_kernels.errors import ObservationError
from flashrt_ros.observation import Decision, NotReady, Rejected
from test.ros.decision_rig import T0, Rig, S


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


@pytest.mark.parametrize(("opened", "closed"), [(10.0, 2.0), (2.0, 10.0)])
def test_R18_gripper_positions_go_both_ways(opened: float, closed: float) -> None:
    """A gripper whose larger number is closed must neither be felt nor moved the wrong way round."""
    gripper = {"open": opened, "closed": closed, "policy_open": 1.0, "policy_closed": -1.0}
    named = {f"gripper.b.{name}": value for name, value in gripper.items()}
    rig = Rig(parameters={"grippers": ["b"], **named})
    rig.fill()  # b is at 2
    rig.policy.actions = np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]], np.float32)
    decision = rig.decided()
    assert rig.policy.calls[0]["state"].tolist() == [1.0, -1.0 if closed == 2.0 else 1.0]
    assert decision.actions[:, 1] == pytest.approx([opened, closed, 6.0])
    assert decision.actions[:, 0].tolist() == [0.0, 0.0, 0.0]


def test_R18_gripper_of_the_actions_only() -> None:
    """A gripper that is commanded and not felt has its positions all the same."""
    named = {"gripper.hand.open": 0.0, "gripper.hand.closed": 50.0}
    rig = Rig(parameters={"action_names": ["a", "hand"], "grippers": ["hand"], **named})
    rig.fill()
    rig.policy.actions = np.array([[0.5, 1.0], [0.5, 0.0]], np.float32)
    assert rig.decided().actions.tolist() == [[0.5, 0.0], [0.5, 50.0]]


@pytest.mark.parametrize("space", ["joint_delta", "joint_velocity"])
def test_R17_steps_and_velocities_have_no_offset(space: str) -> None:
    """A step of 0 must stay a step of 0, whatever the zero of the joint is."""
    units = {"joint.b.scale": 2.0, "joint.b.offset": 10.0}
    group = {"action_groups": ["arm"], "action.arm.space": space, "action.arm.names": ["a", "b"]}
    rig = Rig(parameters={**units, **group})
    rig.fill()
    rig.policy.actions = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    assert rig.decided().actions.tolist() == [[0.0, 0.0], [3.0, 2.0]]


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


def test_R33_the_end_of_an_epoch_is_told_so_that_the_robot_stops() -> None:
    """A new instruction, a reset and a clock jump all void what the robot still does."""
    rig = Rig()
    told: list[str] = []
    rig.decider._on_epoch = told.append
    rig.decider.set_instruction("another")
    rig.decider.flush("deactivated")
    rig.fill()
    rig.decided(T0)
    rig.fill(T0 - 60 * S)
    rig.decider.decide(T0 - 60 * S)
    assert told == ["a new instruction", "deactivated", "the clock went back"]


def test_R43_finish_chunk_keeps_the_instruction_until_the_chunk_has_ended() -> None:
    """`instruction_policy: finish_chunk`: the robot ends what it does, and nothing is decided meanwhile."""
    rig = Rig(parameters={"instruction_policy": "finish_chunk"})
    remaining = [1.0]
    rig.decider._remaining_s = lambda: remaining[0]
    epoch = rig.decider.epoch
    assert rig.decider.set_instruction("another")
    assert (rig.decider.instruction, rig.decider.epoch, rig.decider.holding) == ("wait", epoch, True)
    assert not rig.decider.set_instruction("another"), "said twice"
    remaining[0] = 0.0
    assert not rig.decider.holding
    rig.fill()
    decision = rig.decided()
    assert (decision.instruction, decision.epoch) == ("another", epoch + 1)


def test_R43_flush_changes_the_instruction_at_once() -> None:
    """The default: who says stop! does not want to wait for a second of motion."""
    rig = Rig()
    rig.decider._remaining_s = lambda: 1.0
    rig.decider.set_instruction("another")
    assert (rig.decider.instruction, rig.decider.holding) == ("another", False)


def test_wait_is_the_time_from_the_deadline_to_the_start() -> None:
    """A decision that begins late is told apart from one that computes long."""
    rig = Rig()
    rig.fill()
    outcome = rig.decider.decide(T0, time.monotonic_ns() - 20_000_000)
    assert isinstance(outcome, Decision)
    assert 20.0 <= outcome.wait_ms < 1000.0
    assert rig.decided().wait_ms == 0.0
