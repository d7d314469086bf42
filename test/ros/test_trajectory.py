# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Trajectories and their knot velocities: what the controller will do between the points that are sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt_ros.trajectory import EndVelocity, Trajectory, knot_velocities


def trajectory() -> Trajectory:
    times = np.array([0.0, 0.1, 0.3])
    positions = np.array([[0.0, 1.0], [0.1, 1.0], [0.5, 0.0]])
    velocities = np.array([[0.0, 0.0], [2.0, -1.0], [1.0, 0.0]])
    return Trajectory(5_000_000_000, times, positions, velocities)


def test_before_the_start_and_after_the_end() -> None:
    """Lost otherwise: a player reads a state that nobody commanded, or runs on past the end."""
    path = trajectory()
    for time_ns, knot in ((0, 0), (5_000_000_000, 0), (5_300_000_000, 2), (9_000_000_000, 2)):
        position, velocity = path.at(time_ns)
        assert position.tolist() == path.positions[knot].tolist()
        assert velocity.tolist() == [0.0, 0.0]
    assert path.end_ns == 5_300_000_000
    assert path.times_ns.tolist() == [100_000_000, 300_000_000]


def test_what_is_returned_may_be_changed() -> None:
    """Lost otherwise: a caller that works in place moves the trajectory itself."""
    path = trajectory()
    path.at(0)[0][:] = 9.0
    assert path.positions[0].tolist() == [0.0, 1.0]


def test_between_knots_it_is_the_cubic_through_both() -> None:
    """Lost otherwise: what is planned is not what a cubic controller does."""
    path = trajectory()
    assert path.at(5_100_000_000)[0] == pytest.approx([0.1, 1.0])
    assert path.at(5_100_000_000)[1] == pytest.approx([2.0, -1.0])
    times_s = np.linspace(0.101, 0.299, 50).round(4)
    states = [path.at(5_000_000_000 + round(t * 1e9)) for t in times_s]
    fit = np.polyfit(times_s, [position[0] for position, _ in states], 3)
    assert np.polyval(fit, times_s) == pytest.approx([position[0] for position, _ in states], abs=1e-9)
    assert np.polyval(np.polyder(fit), times_s) == pytest.approx([v[0] for _, v in states], abs=1e-6)
    assert np.polyval(fit, [0.1, 0.3]) == pytest.approx([0.1, 0.5], abs=1e-8)


def accelerations(positions: np.ndarray, velocities: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """At the begin and at the end of every interval: [n, J] each."""
    slope = np.diff(positions, axis=0) / dt
    begin, end = velocities[:-1], velocities[1:]
    return (6 * slope - 4 * begin - 2 * end) / dt, (2 * begin + 4 * end - 6 * slope) / dt


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.sampled_from([0.01, 1 / 30, 0.5]),
    st.sampled_from(["zero", "free"]),
    st.integers(0, 99),
)
def test_R37_spline_has_no_step_in_velocity_or_acceleration(
    count: int, dt: float, end: EndVelocity, seed: int
) -> None:
    """Lost otherwise: the robot jerks at every step of a chunk, or begins with a speed it does not have."""
    random = np.random.default_rng(seed)
    positions, v0 = random.normal(size=(count + 1, 3)), random.normal(size=3)
    velocities = knot_velocities(positions, dt, v0, end)
    begins, ends = accelerations(positions, velocities, dt)
    scale = np.abs(begins).max() + np.abs(ends).max()
    assert velocities[0].tolist() == v0.tolist()
    assert np.abs(ends[:-1] - begins[1:]).max(initial=0.0) < 1e-9 * scale
    if end == "zero":
        assert velocities[-1].tolist() == [0.0, 0.0, 0.0]
    else:
        assert np.abs(ends[-1]).max() < 1e-9 * scale


def test_R37_a_straight_motion_is_executed_straight() -> None:
    """Lost otherwise: stop and go at every point of a constant motion."""
    positions = np.linspace(0.0, 1.0, 11)[:, None]
    assert knot_velocities(positions, 0.1, np.ones(1), "free") == pytest.approx(np.ones((11, 1)))
