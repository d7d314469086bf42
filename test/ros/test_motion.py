# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Motions as the robot's controller executes them. When these fail, a real robot jerks where chunks meet."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from flashrt_ros.limits import JointLimits
from flashrt_ros.planned import Refused, blend_weights
from flashrt_ros.sim.controller import TrajectoryError
from test.ros.motion_rig import DT, LIMITS, NAMES, OFF, Robot, motion, moving, ns, planned, waves


def test_points_are_due_as_the_architecture_says() -> None:
    """Row consumed + j − 1 at j·dt: one row off and the robot is a step late for ever."""
    targets = waves(0.0, 6)
    plan = planned(motion().plan(targets, 2, ns(3.0), np.zeros(3)))
    assert plan.trajectory.start_ns == ns(3.0)
    assert plan.trajectory.positions[1:].tolist() == targets[2:].tolist()
    assert plan.trajectory.times_s == pytest.approx(DT * np.arange(5))
    assert plan.trajectory.positions[0].tolist() == [0.0, 0.0, 0.0]
    assert (plan.clipped, plan.clipped_names) == (0, ())


def test_R30_offset_at_the_seam_is_blended_out() -> None:
    """A new chunk that begins elsewhere: no jump at the seam; from blend_steps on it is executed as it is."""
    robot = moving(blend_steps=5)
    after = robot.motion.commanded(ns(0.12 + DT))
    assert after is not None
    targets = waves(0.12, 16) + np.array([0.2, -0.1, 0.01])
    plan = robot.step(targets, 0.12)
    assert plan.offset == pytest.approx(after[0] - targets[0])
    apart = plan.trajectory.positions[1:] - targets  # [n, J]
    share = apart / plan.offset
    assert share[:5] == pytest.approx(np.tile(blend_weights(5, 5)[:, None], 3))
    assert np.abs(apart[4:]).max() < 1e-12
    assert np.abs(plan.trajectory.positions[1] - after[0]).max() < 0.11 * np.abs(plan.offset).max()
    before, _ = robot.path(0.12, 0.12 + DT)
    assert np.abs(np.diff(before, axis=0)).max() < 1e-3


def test_R30_weights_fall_without_a_kink() -> None:
    """From below 1 to 0 at blend_steps, flat at both ends; 0 and 1 step blend nothing."""
    for steps in (2, 5, 20):
        weights = np.concatenate([[1.0], blend_weights(steps, steps), [0.0]])
        assert len(weights) == steps + 2
        assert (np.diff(weights[:-1]) < 0.0).all()
        assert weights[-2] == 0.0
        change = np.diff(weights[:-1])
        assert abs(change[0]) <= abs(change[steps // 2])
        assert abs(change[-1]) == pytest.approx(abs(change[0]))
    assert blend_weights(0, 0).tolist() == []
    assert blend_weights(1, 1).tolist() == [0.0]


def test_R30_a_chunk_shorter_than_the_blend() -> None:
    """Few rows left must not fail, and not jump."""
    robot = moving(blend_steps=10)
    plan = robot.step(waves(0.12, 3) + 0.2, 0.12)
    assert len(plan.trajectory.times_s) == 4
    assert np.abs(plan.trajectory.positions[1] - (waves(0.12, 1) + 0.2)).max() > 0.1


def test_R33_reset_forgets() -> None:
    """After a new episode motions begin where the robot is, not where the old one wanted it to be."""
    robot = moving()
    old = planned(robot.motion.plan(waves(0.12, 8), 0, ns(0.12), None))
    robot.motion.reset()
    assert robot.motion.commanded(ns(0.12)) is None
    assert robot.motion.lag(np.zeros(3), ns(0.12)) is None
    assert robot.motion.remaining_steps(ns(0.12)) == 0.0
    assert not robot.motion.commit(old), "a plan of the old episode is not published afterwards"
    measured = np.array([0.3, 0.2, 0.03])
    plan = planned(robot.motion.plan(waves(0.12, 8), 0, ns(0.12), measured))
    assert plan.trajectory.positions[0].tolist() == measured.tolist()
    assert plan.trajectory.velocities[0].tolist() == [0.0, 0.0, 0.0]
    refused = robot.motion.plan(waves(0.12, 8), 0, ns(0.12), None)
    assert isinstance(refused, Refused)
    assert refused.kind == "no_state"


@pytest.mark.parametrize("consumed", [4, 5, 1000])
def test_R36_a_chunk_in_the_past_is_nothing(consumed: int) -> None:
    """A controller must never be sent motions whose time is over."""
    robot = moving()
    before = robot.motion.commanded(ns(0.2))
    assert robot.motion.plan(waves(0.0, 4), consumed, ns(0.12), None) is None
    after = robot.motion.commanded(ns(0.2))
    assert before is not None
    assert after is not None
    assert after[0].tolist() == before[0].tolist()


SEAMS = (0.12, 0.25, 0.3, 0.4375)


@pytest.mark.parametrize("limits", [OFF, LIMITS], ids=["unlimited", "limited"])
def test_R37_position_and_velocity_are_continuous_across_seams(limits: JointLimits) -> None:
    """Chunk after chunk in the controller: no step in position or velocity, at seams and points alike."""
    robot = moving(limits, blend_steps=3)
    random = np.random.default_rng(1)
    for now_s in SEAMS:
        before = robot.controller.sample(now_s)
        plan = robot.step(waves(now_s, 16) + 0.02 * random.normal(size=3), now_s)
        after = robot.controller.sample(now_s)
        assert np.abs(after[0] - before[0]).max() < 1e-9
        assert np.abs(after[1] - before[1]).max() < 1e-6
        assert np.abs(after[1]).max() > 0.05, "it moves: a stop would be continuous too"
        for time_s in np.linspace(now_s, now_s + 0.2, 60):
            executed = robot.controller.sample(float(time_s))
            expected = plan.trajectory.at(ns(float(time_s)))
            assert np.abs(executed[0] - expected[0]).max() < 1e-6, "what is executed is what was planned"
            assert np.abs(executed[1] - expected[1]).max() < 1e-6


def test_R37_velocity_does_not_dip_at_the_points() -> None:
    """A constant motion in many chunks is a constant motion: no stop and go at points and seams."""
    robot = Robot(motion())
    speed = np.array([0.4, -0.2, 0.01])
    for index in range(4):
        now_s = 0.13 * index
        times = now_s + DT * np.arange(1, 17)[:, None]
        robot.step(speed * times, now_s)
    _, velocities = robot.path(0.39, 0.39 + 10 * DT)
    assert velocities == pytest.approx(np.tile(speed, (len(velocities), 1)), rel=0.1)


@pytest.mark.parametrize("degree", [1, 5])
def test_R37_other_controllers_stay_near(degree: int) -> None:
    """Controllers that ignore velocities, or are given accelerations: position continuous, no wild swings."""
    robot = moving()
    for now_s in SEAMS:
        plan = planned(robot.motion.plan(waves(now_s, 16), 0, ns(now_s), None))
        assert robot.motion.commit(plan)
        path = plan.trajectory
        before = robot.controller.sample(now_s)[0]
        flat = np.zeros_like(path.positions[1:])
        velocities, accelerations = (None, None) if degree == 1 else (path.velocities[1:], flat)
        robot.controller.accept(NAMES, path.times_s[1:], path.positions[1:], velocities, accelerations, now_s)
        assert robot.controller.sample(now_s)[0] == pytest.approx(before, abs=1e-9)
        positions, speeds = robot.path(now_s, now_s + 0.6)
        assert (
            np.abs(positions - [path.at(ns(t))[0] for t in np.linspace(now_s, now_s + 0.6, 400)]).max() < 5e-3
        )
        assert np.abs(speeds).max() < 3.0 * np.abs(path.velocities).max()


def test_R38_by_default_the_last_velocity_is_zero() -> None:
    """Lost otherwise: the usual configuration of a controller rejects every trajectory."""
    for limits in (OFF, LIMITS):
        robot = Robot(motion(limits), start=np.array([0.0, 0.25, 0.01]))
        for size in (0.3, 5.0):  # within the limits, and far beyond
            plan = planned(motion(limits).plan(waves(0.0, 9, size), 0, 0, robot.start))
            assert plan.trajectory.velocities[-1].tolist() == [0.0] * 3
            robot.step(waves(0.0, 9, size), 0.0)  # accepted
            assert robot.controller.sample(9 * DT - 1e-9)[1] == pytest.approx([0.0] * 3, abs=1e-5)


def test_R38_free_ends_keep_their_speed() -> None:
    """`end_velocity: free` for controllers that allow it: no brake at the end of each chunk."""
    robot = Robot(motion(end_velocity="free"), free_end=True)
    plan = robot.step(np.arange(1, 10)[:, None] * np.ones(3), 0.0)
    assert np.abs(plan.trajectory.velocities[-1] / 20.0 - 1.0).max() < 0.01
    with pytest.raises(TrajectoryError, match="last velocity"):
        Robot(motion()).send(plan.trajectory, 0.0)


def test_R39_lag_is_commanded_minus_measured() -> None:
    """Lost otherwise: nobody sees that a joint does not follow."""
    robot = moving()
    state = robot.motion.commanded(ns(0.3))
    assert state is not None
    lag = robot.motion.lag(state[0] - np.array([0.1, 0.0, -0.2]), ns(0.3))
    assert lag == pytest.approx([0.1, 0.0, -0.2])
    assert motion().lag(np.zeros(3), 0) is None


def test_steps_of_the_trajectory_are_counted() -> None:
    """Lost otherwise: the node cannot tell when the robot runs out of motion."""
    robot = moving()
    assert robot.motion.consumed_steps(ns(0.125)) == pytest.approx(2.5)
    assert robot.motion.remaining_steps(ns(0.125)) == pytest.approx(13.5)
    assert robot.motion.consumed_steps(ns(9.0)) == pytest.approx(16.0)
    assert robot.motion.remaining_steps(ns(9.0)) == 0.0
    assert motion().consumed_steps(0) == 0.0


def test_wrong_shapes_are_errors() -> None:
    """A programming error is not a chunk to drop."""
    for targets, consumed in ((np.zeros((4, 2)), 0), (np.zeros(3), 0), (np.zeros((4, 3)), -1)):
        with pytest.raises(ValueError, match="targets have shape"):
            motion().plan(targets, consumed, 0, np.zeros(3))


def test_threads_share_it() -> None:
    """Plans, stops, resets and samples at once: nobody finds a state that is half of another."""
    shared, faults = motion(LIMITS, 3), []
    ended = threading.Event()

    def decide() -> None:
        while not ended.is_set():
            plan = planned(shared.plan(waves(0.0, 8), 0, ns(0.0), np.array([0.0, 0.25, 0.01])))
            shared.commit(plan)

    def watch() -> None:
        while not ended.is_set():
            shared.commanded(ns(0.1))
            shared.remaining_steps(ns(0.1))

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (decide, watch)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        shared.stop(ns(0.1), "hold", 0.1)
        shared.reset()
    ended.set()
    for thread in threads:
        thread.join()
    assert not faults
