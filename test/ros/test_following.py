# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Whether the robot followed. When these fail, the demo praises a dead arm or blames a good one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from flashrt_ros.commanded import CommandModel
from flashrt_ros.following import Follower, Reach, Unit, beyond_limits, position_at, reaches
from flashrt_ros.limits import JointLimits
from flashrt_ros.motion import JointMotion, Planned
from flashrt_ros.report import DecisionRecord, RunLog
from flashrt_ros.sim.arm import JOINTS, Arm

HOME = np.array([joint.home for joint in JOINTS])  # [D]
NAMES = [joint.name for joint in JOINTS]
STEP_S = 0.5
MOVE = np.array([0.3, 0.2, -0.2, 0.03])  # [D] from home, far enough to be judged
PHASES = np.array([0.0, 0.5, 0.25, 0.75]) * np.pi  # [D]


def record(
    t_s: float, actions: np.ndarray, steps_consumed: int = 0, commanded: bool = True
) -> DecisionRecord:
    actions = actions.astype(np.float32)
    return DecisionRecord(t_s, 0, 1, "", 0.0, 0.0, 0.0, 0.0, {}, steps_consumed, actions, commanded=commanded)


def chunks(count: int = 20, scale: float = 1.0, consumed: int = 0) -> list[DecisionRecord]:
    """Chunks every 0.2 s of one swing of all joints, in which some joint always moves."""
    begins = 1.0 + 0.2 * np.arange(count)
    steps = STEP_S * np.arange(1 - consumed, 7)  # of the rows, from the begin of the chunk on
    swing = [np.sin(np.pi * (t_s + steps[:, None]) + PHASES) for t_s in begins]
    rows = [HOME + scale * MOVE * turn for turn in swing]
    return [record(float(t_s), actions, consumed) for t_s, actions in zip(begins, rows, strict=True)]


Fed = tuple[np.ndarray, np.ndarray, np.ndarray]  # times [n], positions and velocities [n, D]
ARMS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Fed | None]] = {
    "good": lambda times, positions, velocities: (times, positions, velocities),
    "dead": lambda times, positions, velocities: None,
    "mirrored": lambda times, positions, velocities: (times, 2 * HOME - positions, -velocities),
    "half speed": lambda times, positions, velocities: (2 * times, positions, velocities / 2),
    "half way": lambda times, positions, velocities: (times, (HOME + positions) / 2, velocities / 2),
}
"""What an arm makes of a trajectory; None: nothing."""


def run(decisions: list[DecisionRecord], mode: str, delay_s: float = 0.0) -> RunLog:
    """The log of an arm of `ARMS` that gets, `delay_s` late, what the node sends for these chunks."""
    log = RunLog("test", STEP_S, NAMES, units={joint.name: joint.unit for joint in JOINTS})
    motion = JointMotion(NAMES, JointLimits.off(NAMES), 1.0 / STEP_S, blend_steps=0, end_velocity="zero")
    arm, model, waiting = Arm(), CommandModel(NAMES), list(decisions)
    sent: list[tuple[float, Fed]] = []
    for now_s in np.arange(0.01, 5.5, 0.01).tolist():
        while waiting and waiting[0].t_s <= now_s:
            chunk = waiting.pop(0)
            log.decisions.append(chunk)
            if not chunk.commanded:
                continue
            planned = motion.plan(chunk.actions, chunk.steps_consumed, round(now_s * 1e9), HOME)
            assert isinstance(planned, Planned)
            motion.commit(planned)
            path = planned.trajectory
            fed = path.times_s[1:], path.positions[1:], path.velocities[1:]
            model.hear(now_s, NAMES, *fed)
            sent.append((now_s + delay_s, fed))
        while sent and sent[0][0] <= now_s:
            made = ARMS[mode](*sent.pop(0)[1])
            if made is not None:
                arm.follow(NAMES, made[0].tolist(), made[1], now_s, velocities=made[2])
        arm.step(now_s)
        log.joint_samples.append((now_s, arm.positions.copy()))
        log.command_samples.extend(model.measure(now_s, arm.positions.copy()))
    Follower(log).judge(finished=True)
    return log


def share(log: RunLog) -> float:
    return sum(record.followed is True for record in log.decisions) / len(log.decisions)


@pytest.mark.parametrize("consumed", [0, 2])
def test_a_good_arm_follows(consumed: int) -> None:
    """Lost otherwise: the demo fails on a robot that does everything right."""
    assert share(run(chunks(consumed=consumed), "good")) >= 0.95


def test_a_servo_may_run_behind_its_command() -> None:
    """Lost otherwise: the demo fails on a busy computer, where the robot hears of a chunk a bit later."""
    assert share(run(chunks(scale=1.3), "good", delay_s=0.03)) >= 0.95


@pytest.mark.parametrize("mode", ["dead", "mirrored", "half speed", "half way"])
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


def test_chunks_that_were_not_commanded_are_not_followed() -> None:
    """Lost otherwise: a node that refuses its chunks passes, because the arm goes on with the one before."""
    decisions = [replace(chunk, commanded=index % 3 != 2) for index, chunk in enumerate(chunks())]
    log = run(decisions, "good")
    assert not any(chunk.followed for chunk in log.decisions if not chunk.commanded)
    assert sum(chunk.followed is True for chunk in log.decisions) >= 10


def test_without_commands_nothing_is_followed() -> None:
    """Lost otherwise: the demo passes although nobody heard what was commanded."""
    log = run(chunks(), "good")
    log.command_samples = []
    log.decisions = [replace(chunk, followed=None) for chunk in log.decisions]
    Follower(log).judge(finished=True)
    assert share(log) == 0.0


def commanded(*rows: tuple[float, float]) -> RunLog:
    samples = [(t_s, np.array([position])) for t_s, position in rows]
    return RunLog("test", STEP_S, ["pan"], limits={"pan": (-1.0, 1.0, 3.0)}, command_samples=samples)


def test_reach_of_the_commands() -> None:
    """Lost otherwise: the demo tells a speed that nobody commanded, or hides one that no joint can do."""
    log = commanded((0.0, 0.0), (0.5, 0.2), (1.5, -0.05))
    assert reaches(log) == [Reach("pan", -0.05, 0.2, 0.4)]
    assert beyond_limits(log) == []
    assert beyond_limits(commanded((0.0, 0.0), (0.1, 0.4))) == ["pan at 4.000 per s, limit 3"]
    assert beyond_limits(commanded((0.0, 0.9), (1.0, 1.2))) == ["pan from 0.900 to 1.200, limits -1 to 1"]
    assert reaches(commanded((0.0, 0.0), (0.0, 0.5)))[0].fastest == 0.0
    assert reaches(commanded()) == []
