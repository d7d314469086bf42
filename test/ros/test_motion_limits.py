# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Limits of motions, as the controller executes them. When these fail, a policy can break a robot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.limits import JointLimits
from flashrt_ros.motion import JointMotion, Refused
from flashrt_ros.trajectory import EndVelocity
from test.ros.motion_rig import DT, LIMITS, NAMES, OFF, SEEDED, Robot, motion, moving, ns, planned, waves


def test_R41_a_jump_is_refused_with_the_numbers() -> None:
    """A chunk from elsewhere moves nothing, and the log says which joint, how far and what would do."""
    limits = JointLimits(NAMES, OFF.lower, OFF.upper, OFF.max_velocity, np.array([0.5, 0.5, 0.05]))
    robot = Robot(motion(limits))
    targets = np.tile([0.1, 0.7, 0.01], (4, 1))
    refused = robot.motion.plan(targets, 0, 0, np.zeros(3))
    assert isinstance(refused, Refused)
    assert refused.kind == "jump"
    assert refused.reason == (
        "elbow would jump by 0.7, from 0 (commanded) to 0.7; max_jump allows 0.5, from -0.5 to 0.5"
    )
    assert robot.motion.commanded(0) is None, "nothing changed"
    targets[:, 1] = 0.49
    robot.step(targets, 0.0)


@SEEDED
@given(
    seed=st.integers(0, 10**6),
    end=st.sampled_from(["zero", "free"]),
    size=st.floats(0.2, 3.0),
    blend=st.sampled_from([0, 4]),
)
def test_R41_limits_hold_in_the_controller_whatever_the_policy_wants(
    seed: int, end: EndVelocity, size: float, blend: int
) -> None:
    """Chunks at any moment, also in the middle of a step near a limit: position and velocity limits hold."""
    random = np.random.default_rng(seed)
    start = random.uniform(LIMITS.lower, LIMITS.upper)
    robot = Robot(motion(LIMITS, blend, end), start=start, free_end=True)
    now_s = 0.0
    for _ in range(6):
        targets = size * LIMITS.upper * random.normal(size=(8, 3))
        if random.random() < 0.4:  # a gripper that is to be shut, an arm that is pushed against its stop
            targets[random.integers(0, 8) :] = LIMITS.upper * random.choice([1.0, 1.5])
        robot.step(targets, now_s, consumed=int(random.integers(0, 4)))
        until_s = now_s + round(float(random.uniform(0.005, 0.3)), 6)
        positions, velocities = robot.path(now_s, until_s, 150)
        assert (positions >= LIMITS.lower - 1e-6).all()
        assert (positions <= LIMITS.upper + 1e-6).all()
        assert (np.abs(velocities) <= LIMITS.max_velocity + 1e-6).all()
        now_s = until_s


@SEEDED
@given(seed=st.integers(0, 10**6))
def test_R41_a_robot_measured_outside_comes_back(seed: int) -> None:
    """Pushed beyond a limit by hand: the first motion brings it back, further out it never goes."""
    random = np.random.default_rng(seed)
    start = LIMITS.upper + random.uniform(0.0, 0.3, 3) * (LIMITS.upper - LIMITS.lower)
    robot = Robot(motion(LIMITS, blend_steps=4), start=start)
    now_s, outside = 0.0, start - LIMITS.upper
    for _ in range(5):
        robot.step(LIMITS.upper * random.normal(size=(12, 3)), now_s)
        positions, velocities = robot.path(now_s, now_s + 0.23, 120)
        assert np.isfinite(positions).all()
        further = np.maximum(positions - LIMITS.upper, 0.0)
        assert (np.diff(np.concatenate([outside[None, :], further]), axis=0) <= 1e-9).all()
        assert (np.abs(velocities) <= LIMITS.max_velocity + 1e-6).all()
        outside, now_s = further[-1], now_s + 0.23
    assert (outside == 0.0).all()


@pytest.mark.parametrize("share", [0.55, 0.75, 0.95, 0.999])
def test_R41_a_plan_in_the_middle_of_a_step_that_ends_at_a_limit(share: float) -> None:
    """A gripper shuts, the next chunk comes just before: within one whole step it could not stop any more."""
    robot = Robot(motion(LIMITS), start=np.array([0.0, 0.0, 0.003]))
    targets = np.zeros((8, 3))
    robot.step(targets, 0.0)
    now_s = share * DT
    before = robot.controller.sample(now_s)
    plan = robot.step(targets, now_s)
    assert len(plan.trajectory.times_s) == 10, "a knot more: where the gripper is shut"
    assert (np.diff(plan.trajectory.times_ns) > 0).all()
    assert robot.controller.sample(now_s)[1] == pytest.approx(before[1], abs=1e-6)
    positions, velocities = robot.path(now_s, now_s + 3 * DT, 1000)
    assert positions[:, 2].min() >= -1e-9
    assert (np.diff(np.abs(velocities[:, 2])) <= 1e-6).all(), "only ever slower"
    assert positions[-1, 2] == pytest.approx(0.0, abs=1e-9)


def test_R41_clipped_targets_are_reported() -> None:
    """Lost otherwise: diagnostics cannot say that the policy wants what the robot must not do."""
    targets = np.tile([0.0, 0.0, 0.04], (6, 1))
    targets[3:, 1] = 1.5
    plan = planned(motion(LIMITS).plan(targets, 0, 0, np.array([0.0, 0.0, 0.04])))
    assert plan.clipped_names == ("elbow",)
    assert plan.clipped == 3
    assert plan.excess[1] > 1.0


def test_R41_limits_must_be_given() -> None:
    """No default means no limits: opting out is `JointLimits.off`, written out."""
    with pytest.raises(TypeError):
        JointMotion(NAMES, rate_hz=20.0, blend_steps=0, end_velocity="zero")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="limits are of"):
        JointMotion(("a", "b", "c"), OFF, 20.0, 0, "zero")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 5])
def test_R42_not_finite_targets_are_refused_before_any_clip(bad: float, row: int) -> None:
    """A clip would make a limit of an infinity: the joint would go to its stop at full speed."""
    robot = moving(LIMITS)
    before = robot.motion.commanded(ns(0.2))
    targets = waves(0.12, 8)
    targets[row, 1] = bad
    refused = robot.motion.plan(targets, 2, ns(0.12), None)
    assert isinstance(refused, Refused)
    assert refused.kind == "non_finite"
    assert f"elbow in step {row} is {bad}" in refused.reason
    after = robot.motion.commanded(ns(0.2))
    assert before is not None
    assert after is not None
    assert after[0].tolist() == before[0].tolist()


def test_not_finite_measurements_are_no_state() -> None:
    """Lost otherwise: the first trajectory begins at NaN."""
    refused = motion().plan(waves(0.0, 4), 0, 0, np.array([0.0, np.nan, 0.0]))
    assert isinstance(refused, Refused)
    assert refused.kind == "no_state"
