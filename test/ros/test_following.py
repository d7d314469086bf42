# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Whether the robot followed. When these fail, the demo praises a dead arm or blames a good one."""

from dataclasses import replace

import numpy as np
import pytest

from flashrt_ros.following import Follower, Unit, commanded_position, position_at
from flashrt_ros.report import DecisionRecord, RunLog
from flashrt_ros.sim.arm import JOINTS, Arm

HOME = np.array([joint.home for joint in JOINTS])  # [D]
NAMES = [joint.name for joint in JOINTS]
STEP_S = 0.5
MOVE = np.array([0.3, 0.1, -0.1, 0.01])  # [D] from home, far enough to be judged


def record(t_s: float, actions: np.ndarray, steps_consumed: int = 0) -> DecisionRecord:
    return DecisionRecord(t_s, 0, 1, "", 0.0, 0.0, 0.0, 0.0, {}, steps_consumed, actions.astype(np.float32))


def chunks(count: int = 20, scale: float = 1.0, consumed: int = 0) -> list[DecisionRecord]:
    """Chunks every 0.2 s that send the arm to and fro."""
    signs = [1 if index % 2 == 0 else -1 for index in range(count)]
    rows = [np.tile(HOME + sign * scale * MOVE, (6, 1)) for sign in signs]
    return [record(1.0 + 0.2 * index, actions, consumed) for index, actions in enumerate(rows)]


def run(decisions: list[DecisionRecord], mode: str) -> RunLog:
    """The log of an arm that is fed these chunks: "good", "dead", "mirrored" or "half speed"."""
    log = RunLog("test", STEP_S, NAMES, units={joint.name: joint.unit for joint in JOINTS})
    arm, waiting = Arm(), list(decisions)
    for now_s in np.arange(0.01, 5.5, 0.01):
        while waiting and waiting[0].t_s <= now_s:
            chunk = waiting.pop(0)
            log.decisions.append(chunk)
            rows = chunk.actions[chunk.steps_consumed :].astype(float)
            rows = 2 * HOME - rows if mode == "mirrored" else rows
            slow = 2.0 if mode == "half speed" else 1.0
            if mode != "dead":
                times = [slow * STEP_S * (j + 1) for j in range(len(rows))]
                arm.follow(NAMES, times, list(rows), float(now_s))
        arm.step(float(now_s))
        log.joint_samples.append((float(now_s), arm.positions.copy()))
    Follower(log).judge(finished=True)
    return log


def share(log: RunLog) -> float:
    return sum(record.followed is True for record in log.decisions) / len(log.decisions)


@pytest.mark.parametrize("consumed", [0, 2])
def test_a_good_arm_follows(consumed: int) -> None:
    """Lost otherwise: the demo fails on a robot that does everything right."""
    assert share(run(chunks(consumed=consumed), "good")) >= 0.95


@pytest.mark.parametrize("mode", ["dead", "mirrored", "half speed"])
def test_a_bad_arm_does_not(mode: str) -> None:
    """Lost otherwise: the demo passes although nothing (or the wrong thing) moves."""
    assert share(run(chunks(), mode)) <= 0.1


def test_a_still_arm_does_not_follow_commands_to_stand_still() -> None:
    """Lost otherwise: a policy that commands the present pose makes a dead arm pass."""
    assert share(run(chunks(scale=0.0), "dead")) == 0.0
    assert share(run(chunks(scale=0.0), "good")) == 0.0


def test_one_wrong_joint_is_enough() -> None:
    """Lost otherwise: a stuck gripper hides behind joints that move."""
    log = run(chunks(), "good")
    for _, positions in log.joint_samples:
        positions[NAMES.index("gripper")] = 0.04
    log.decisions = [replace(record, followed=None) for record in log.decisions]
    Follower(log).judge(finished=True)
    assert share(log) < 0.9


def test_a_decision_is_judged_when_its_window_is_over() -> None:
    """Lost otherwise: the live table counts a decision before the arm had time to move."""
    log = RunLog("test", STEP_S, NAMES)
    follower = Follower(log, {"rad": Unit(0.03, 0.05)})
    log.joint_samples = [(t_s, HOME) for t_s in (0.9, 1.1)]
    log.decisions = [record(1.0, HOME + np.zeros((2, 4)))]
    follower.judge()
    assert log.decisions[0].followed is None
    log.decisions.append(record(1.2, HOME + np.zeros((2, 4))))
    follower.judge()
    assert log.decisions[0].followed is None  # measured until 1.1 only
    log.joint_samples.append((1.3, HOME))
    follower.judge()
    assert [record.followed for record in log.decisions] == [False, None]


def test_thresholds_that_a_still_arm_could_pass_are_refused() -> None:
    """Lost otherwise: somebody loosens the tolerance until standing still is good enough."""
    with pytest.raises(ValueError, match=r"0 < tolerance < motion"):
        Unit(tolerance=0.1, motion=0.05)


def test_positions_between_and_outside_of_samples() -> None:
    """Lost otherwise: motion is invented where nothing was measured."""
    samples = [(1.0, np.array([0.0])), (2.0, np.array([1.0]))]
    assert position_at(samples, 1.25) == pytest.approx([0.25])
    assert position_at(samples, 1.0) == pytest.approx([0.0])
    assert position_at(samples, 0.9) is None
    assert position_at(samples, 2.1) is None


def test_commanded_position_skips_consumed_rows_and_holds_the_last() -> None:
    """Lost otherwise: the comparison uses rows that were never sent to the robot."""
    rows = np.array([[9.0], [1.0], [2.0]])
    chunk = record(10.0, rows, steps_consumed=1)
    begin = np.array([0.0])
    assert commanded_position(chunk, begin, 0.5, 10.25) == pytest.approx([0.5])
    assert commanded_position(chunk, begin, 0.5, 10.5) == pytest.approx([1.0])
    assert commanded_position(chunk, begin, 0.5, 99.0) == pytest.approx([2.0])
