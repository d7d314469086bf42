# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Stopping a motion, as the controller executes it. When these fail, a cancelled robot moves on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.motion import StopAction
from test.ros.motion_rig import DT, LIMITS, SEEDED, Robot, motion, moving, ns, planned, waves

STOPS: list[tuple[StopAction, float]] = [
    ("hold", 0.3),
    ("hold", 0.02),
    ("decelerate", 0.3),
    ("decelerate", 0.02),
]


@pytest.mark.parametrize(("action", "stop_time_s"), STOPS)
@SEEDED
@given(seed=st.integers(0, 10**6), time_s=st.floats(0.01, 0.79), size=st.floats(0.2, 3.0))
def test_R40_stop_brings_the_robot_to_rest_in_time_and_within_limits(
    action: StopAction, stop_time_s: float, seed: int, time_s: float, size: float
) -> None:
    """Cancel and deactivate: from any motion, near any limit; the first sample after it already obeys."""
    random = np.random.default_rng(seed)
    robot = Robot(motion(LIMITS), start=np.array([0.0, 0.25, 0.01]))
    robot.step(size * LIMITS.upper * random.normal(size=(16, 3)), 0.0)
    now_s = round(time_s, 6)
    before = robot.controller.sample(now_s)
    stop = robot.motion.stop(ns(now_s), action, stop_time_s)
    assert stop is not None
    robot.send(stop, now_s)
    after = robot.controller.sample(now_s)
    assert np.abs(after[0] - before[0]).max() < 1e-9
    assert np.abs(after[1] - before[1]).max() < 1e-6
    positions, velocities = robot.path(now_s, now_s + stop_time_s + 0.1, 600)
    assert (positions >= LIMITS.lower - 1e-6).all()
    assert (positions <= LIMITS.upper + 1e-6).all()
    assert (np.abs(velocities) <= LIMITS.max_velocity + 1e-6).all()
    rest = robot.controller.sample(now_s + stop_time_s + 1e-6)
    assert rest[1].tolist() == [0.0, 0.0, 0.0]
    if action == "hold":
        assert rest[0] == pytest.approx(before[0], abs=1e-9)
    else:
        assert (np.abs(rest[0] - before[0]) <= np.abs(before[1]) * stop_time_s / 2 + 1e-9).all()
        assert (np.diff(np.abs(velocities), axis=0) <= 1e-6).all(), "only ever slower"
    commanded = robot.motion.commanded(ns(now_s + 5.0))
    assert commanded is not None
    assert commanded[0] == pytest.approx(rest[0])


@pytest.mark.parametrize(("action", "stop_time_s"), STOPS)
def test_R40_stop_just_before_a_limit(action: StopAction, stop_time_s: float) -> None:
    """A gripper is about to be shut when it is stopped: neither the way on nor the swing passes the limit."""
    robot = Robot(motion(LIMITS), start=np.array([0.0, 0.0, 0.003]))
    robot.step(np.zeros((8, 3)), 0.0)
    now_s = 0.96 * DT
    stop = robot.motion.stop(ns(now_s), action, stop_time_s)
    assert stop is not None
    robot.send(stop, now_s)
    positions, _ = robot.path(now_s, now_s + stop_time_s, 2000)
    assert positions[:, 2].min() >= -1e-9
    assert positions[:, 2].max() <= robot.controller.sample(now_s)[0][2] + 1e-9


def test_R40_deceleration_is_even() -> None:
    """Lost otherwise: the stop of a fast arm shakes what it carries."""
    robot = moving()
    begin = robot.controller.sample(0.12)[1]
    stop = robot.motion.stop(ns(0.12), "decelerate", 0.2)
    assert stop is not None
    robot.send(stop, 0.12)
    _, velocities = robot.path(0.12, 0.32, 41)
    assert velocities == pytest.approx(begin * (1.0 - np.linspace(0.0, 1.0, 41))[:, None], abs=1e-6)
    assert np.diff(stop.times_s).max() <= 0.02 + 1e-9


def test_R40_a_plan_made_before_the_stop_is_void() -> None:
    """The decision thread plans while the guardian stops: the plan must not move the robot again."""
    robot = moving()
    plan = planned(robot.motion.plan(waves(0.12, 16), 0, ns(0.12), None))
    assert robot.motion.stop(ns(0.121), "hold", 0.3) is not None
    assert not robot.motion.commit(plan)
    state = robot.motion.commanded(ns(1.0))
    assert state is not None
    assert state[1].tolist() == [0.0, 0.0, 0.0]


def test_R40_nothing_to_stop() -> None:
    """A robot that was never commanded is sent nothing, nor one that was handed over and stands."""
    assert motion().stop(0, "hold", 0.3) is None
    robot = moving()
    robot.motion.reset()
    assert robot.motion.stop(ns(5.0), "hold", 0.3) is None
    with pytest.raises(ValueError, match="stop_time_s"):
        robot.motion.stop(ns(5.0), "hold", 0.0)


def test_R40_a_motion_that_goes_on_after_a_reset_can_be_stopped() -> None:
    """A reset forgets for plans, but the controller still moves: the guardian must be able to end that."""
    robot = moving()
    robot.motion.reset()
    stop = robot.motion.stop(ns(0.12), "decelerate", 0.1)
    assert stop is not None
    assert stop.velocities[0] == pytest.approx(robot.controller.sample(0.12)[1], abs=1e-6)
