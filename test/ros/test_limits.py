# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Limits of joints. When these fail, a controller between two points drives a joint where it must not go."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.limits import JointLimits, Limited, limit
from flashrt_ros.trajectory import EndVelocity, Trajectory, knot_velocities
from test.ros.motion_rig import DT, LIMITS, NAMES, OFF, SEEDED

NEVER = math.inf


def sampled(limited: Limited, per_step: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities [samples, J] between the knots too; the end counts without its drop to 0."""
    path = Trajectory(0, limited.times_s, limited.positions, limited.velocities)
    count = per_step * len(limited.times_s)
    states = [path.at(int(t)) for t in np.linspace(0, path.end_ns, count, endpoint=False)]
    return np.array([q for q, _ in states]), np.array([v for _, v in states])


def assert_within(limited: Limited, limits: JointLimits = LIMITS) -> None:
    positions, velocities = sampled(limited)
    assert (positions >= limits.lower - 1e-6).all()
    assert (positions <= limits.upper + 1e-6).all()
    assert (np.abs(velocities) <= limits.max_velocity + 1e-6).all()


def test_R41_within_the_limits_nothing_is_changed() -> None:
    """Lost otherwise: limits bend motions that any robot could do."""
    targets = 0.05 * np.sin(np.arange(1, 9)[:, None] * 0.3 + np.arange(3)) * np.array([1, 1, 0.1]) + [
        0,
        0,
        0.04,
    ]
    start = np.array([0.0, 0.04, 0.044])
    limited = limit(start, np.zeros(3), targets, DT, LIMITS, "zero")
    assert limited.positions[1:].tolist() == targets.tolist()
    knots = np.concatenate([start[None, :], targets])
    assert limited.velocities.tolist() == knot_velocities(knots, DT, np.zeros(3), "zero").tolist()
    assert limited.counts.tolist() == [0, 0, 0]


def test_R41_between_the_knots_too() -> None:
    """Points inside, the spline between them outside: what a check of the points alone lets through."""
    targets = np.zeros((6, 3)) + np.array([0.0, 0.0, 0.04])
    targets[2:4, 1] = 1.0  # at the limit twice: the spline swings over it
    start = targets[0]
    knots = np.concatenate([start[None, :], targets])
    free = JointLimits(NAMES, LIMITS.lower, LIMITS.upper, np.full(3, NEVER), np.full(3, NEVER))
    swing = Limited(
        DT * np.arange(7), knots, knot_velocities(knots, DT, np.zeros(3), "zero"), np.zeros(3), np.zeros(3)
    )
    assert sampled(swing)[0][:, 1].max() > 1.05, "the case is one"
    limited = limit(start, np.zeros(3), targets, DT, free, "zero")
    assert_within(limited, free)
    assert limited.positions[1:].tolist() == targets.tolist(), "the points themselves were right"
    assert limited.counts.tolist() == [0, 0, 0]


def test_R41_a_far_target_is_reached_at_full_speed() -> None:
    """Lost otherwise: limited motions crawl, and the policy waits for a robot that never arrives."""
    targets = np.tile([1.5, 0.0, 0.04], (25, 1))
    limited = limit(np.array([-1.5, 0.0, 0.04]), np.zeros(3), targets, DT, LIMITS, "zero")
    assert_within(limited)
    assert limited.velocities[:, 0].max() == pytest.approx(3.0)
    arrived = int(np.argmax(limited.positions[:, 0] >= 1.5 - 1e-9))
    assert 20 <= arrived <= 21  # 3 rad at 3 rad/s are 20 steps; starting costs a third of one
    assert limited.counts.tolist() == [20, 0, 0]


def test_R41_clipped_points_are_counted_by_joint() -> None:
    """Lost otherwise: nobody sees that the policy asks for what the robot cannot do."""
    targets = np.tile([0.0, 0.0, 0.04], (4, 1))
    targets[2:, 1] = [1.05, 1.3]  # 2.5 % and 15 % of the range beyond
    wide = JointLimits(NAMES, LIMITS.lower, LIMITS.upper, np.full(3, NEVER), np.full(3, NEVER))
    limited = limit(targets[0], np.zeros(3), targets, DT, wide, "zero")
    assert limited.counts.tolist() == [0, 1, 0]
    assert limited.excess == pytest.approx([0.0, 3.0, 0.0])


numbers = st.floats(-4.0, 4.0)


@SEEDED
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.sampled_from(["zero", "free"]),
    st.floats(0.1, 5.0),
    st.booleans(),
)
def test_R41_random_targets_from_a_state_inside(
    seed: int, count: int, end: EndVelocity, size: float, still: bool
) -> None:
    """Lost otherwise: some chunk, some day, drives a joint into its stop."""
    random = np.random.default_rng(seed)
    position = random.uniform(LIMITS.lower, LIMITS.upper)
    # As fast as a third of a step allows: the invariant that every knot has.
    room = np.minimum(position - LIMITS.lower, LIMITS.upper - position) * 3.0 / DT
    velocity = random.uniform(-1, 1, 3) * np.minimum(room, LIMITS.max_velocity) * (not still)
    targets = size * random.normal(size=(count, 3)) * LIMITS.upper
    limited = limit(position, velocity, targets, DT, LIMITS, end)
    assert_within(limited)
    assert len(limited.times_s) == count + 1, "no knots beside the steps' own"
    if end == "zero":
        assert limited.velocities[-1].tolist() == [0.0, 0.0, 0.0]


@SEEDED
@given(st.integers(0, 10**6), st.integers(1, 30))
def test_R41_a_start_outside_comes_back_and_never_gets_worse(seed: int, count: int) -> None:
    """A robot measured beyond a limit, limits that were made narrower: back inside, on the straight way."""
    random = np.random.default_rng(seed)
    beyond = random.uniform(0.0, 0.5, 3) * (LIMITS.upper - LIMITS.lower)
    above = random.random(3) < 0.5
    position = np.where(above, LIMITS.upper + beyond, LIMITS.lower - beyond)
    velocity = random.uniform(0.0, 2.0, 3) * LIMITS.max_velocity * np.where(above, -1.0, 1.0)
    targets = random.normal(size=(count, 3)) * 2.0 * LIMITS.upper
    limited = limit(position, velocity, targets, DT, LIMITS, "zero")
    positions, velocities = sampled(limited)
    assert np.isfinite(positions).all()
    outside = np.maximum(positions - LIMITS.upper, LIMITS.lower - positions)  # [samples, J]
    outside = np.maximum(outside, 0.0)
    assert (np.diff(outside, axis=0) <= 1e-9).all(), "monotone"
    fast = np.maximum(np.abs(velocities) - LIMITS.max_velocity, 0.0)
    assert (np.diff(fast, axis=0) <= 1e-9).all(), "no faster than it is, and soon within the limit"
    needed = beyond / LIMITS.max_velocity / DT + 2.0  # steps
    assert (outside[-1] <= 1e-9)[needed < count].all()


@SEEDED
@given(st.integers(0, 10**6))
def test_R41_moving_outwards_outside_stops_at_once(seed: int) -> None:
    """Nothing can undo a speed at once; a quarter of a step must do, then it comes back."""
    random = np.random.default_rng(seed)
    position = LIMITS.upper + random.uniform(0.0, 0.2, 3)
    velocity = random.uniform(0.1, 1.0, 3) * LIMITS.max_velocity
    limited = limit(position, velocity, np.tile(LIMITS.upper, (30, 1)), DT, LIMITS, "zero")
    positions, velocities = sampled(limited)
    assert (positions <= position + velocity * DT / 8.0 + 1e-9).all()
    assert (np.abs(velocities) <= LIMITS.max_velocity + 1e-9).all()
    assert (positions[-1] <= LIMITS.upper + 1e-9).all()


def test_R41_opting_out_is_explicit_and_then_nothing_is_limited() -> None:
    """`JointLimits.off` is the only way without limits; there is no default that means it."""
    targets = 1e3 * np.random.default_rng(0).normal(size=(10, 3))
    limited = limit(np.zeros(3), np.zeros(3), targets, DT, OFF, "free")
    assert limited.positions[1:].tolist() == targets.tolist()
    assert limited.counts.tolist() == [0, 0, 0]
    with pytest.raises(TypeError):
        JointLimits(NAMES)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("lower", "upper", "velocity", "jump", "words"),
    [
        ([0, 1], [1, 1], [1, 1], [1, 1], "limits of b: lower must be below upper"),
        ([0, 0], [1, math.nan], [1, 1], [1, 1], "limits of b: lower"),
        ([0, 0], [1, 1], [0, 1], [1, 1], "limits of a: max_velocity must be above 0"),
        ([0, 0], [1, 1], [1, 1], [1, -1], "limits of b: max_jump"),
        ([0], [1, 1], [1, 1], [1, 1], r"lower has shape \(1,\) for 2"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(
    lower: list[float], upper: list[float], velocity: list[float], jump: list[float], words: str
) -> None:
    """Lost otherwise: a joint without room, found out while the robot moves."""
    with pytest.raises(ValueError, match=words):
        JointLimits(("a", "b"), np.array(lower), np.array(upper), np.array(velocity), np.array(jump))
