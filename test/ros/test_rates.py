# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Velocities of joints, a base or an end effector: one that outlives its chunk drives into the wall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.cartesian import RateMotion
from flashrt_ros.planned import Planned, Refused
from flashrt_ros.rotations import rotation_of
from test.ros.motion_groups import DT_NS, NOW_NS, RATE_HZ, committed, group, seeds, steady, told

SPACES = {"joint_velocity": 2, "base": 3, "eef_delta": 6}
LINEAR, ANGULAR = 0.2, 0.5
MAX_VELOCITY = np.array([1.0, 0.5])


def motion(space: str = "base", *, limits: bool = True, **more: Any) -> RateMotion:
    output = {"joint_velocity": "array", "base": "twist", "eef_delta": "twist_stamped"}[space]
    joints = MAX_VELOCITY if space == "joint_velocity" else None
    return RateMotion(group(space, output=output, **more), RATE_HZ, limits, joints)


def drawn(seed: int, space: str, size: float = 1.0) -> np.ndarray:
    return size * np.random.default_rng(seed).normal(size=(6, SPACES[space]))


def test_rows_are_held_for_their_step() -> None:
    """Row consumed + j − 1 until j steps after now: none longer, none shorter."""
    rows = drawn(1, "base")
    moving = motion(limits=False)
    assert moving.command(NOW_NS) is None
    committed(moving, rows, consumed=2)
    for j in range(4):
        for part in (0.0, 0.5, 0.999):
            command = told(moving, NOW_NS + round((j + part) * DT_NS))
            np.testing.assert_array_equal(command, rows[2 + j])
    assert moving.remaining_steps(NOW_NS + DT_NS) == pytest.approx(3)
    state = moving.commanded(NOW_NS)
    assert state is not None
    np.testing.assert_array_equal(state[1], 0.0)


@pytest.mark.parametrize("space", SPACES)
@steady
@given(seed=seeds, late=st.integers(0, 20 * DT_NS))
def test_rates_are_zero_after_the_chunk(space: str, seed: int, late: int) -> None:
    """A decision that never comes (a crash, a busy GPU) must not leave the robot driving."""
    moving = motion(space)
    committed(moving, drawn(seed, space))
    assert moving.end_ns == NOW_NS + 6 * DT_NS
    np.testing.assert_array_equal(told(moving, moving.end_ns + late), np.zeros(SPACES[space]))
    assert moving.remaining_steps(moving.end_ns + late) == 0


@pytest.mark.parametrize("rotation", ["rotvec", "rpy"])
def test_steps_of_an_end_effector_become_twists(rotation: str) -> None:
    """A step of 1 cm and a small turn in 1/20 s: 0.2 m/s, and the turn as an axis times rad/s."""
    moving = motion("eef_delta", limits=False, rotation=rotation)
    turn = np.array([0.02, -0.3, 0.4])
    committed(moving, np.concatenate([[0.01, 0.0, 0.0], turn])[None])
    axis = rotation_of(turn, rotation).as_rotvec()
    command = told(moving, NOW_NS)
    np.testing.assert_allclose(command, [0.2, 0, 0, *(axis * RATE_HZ)], atol=1e-9)


@pytest.mark.parametrize("space", SPACES)
@steady
@given(seed=seeds, size=st.floats(0.01, 10.0))
def test_R41_speed_limits_hold_and_keep_the_direction(space: str, seed: int, size: float) -> None:
    """Fast rows are slowed down; each part of a twist, and the joints together, keep their direction."""
    moving = motion(space)
    rows = drawn(seed, space, size)
    planned = committed(moving, rows)
    factor = RATE_HZ if space == "eef_delta" else 1.0
    spaces: dict[str, list[tuple[slice, float | None]]] = {
        "joint_velocity": [(slice(0, 2), None)],
        "base": [(slice(0, 2), LINEAR), (slice(2, 3), ANGULAR)],
        "eef_delta": [(slice(0, 3), LINEAR), (slice(3, 6), ANGULAR)],
    }
    parts = spaces[space]
    for j, row in enumerate(rows):
        command = told(moving, NOW_NS + j * DT_NS)
        for part, fastest in parts:
            limit = 1.0 if fastest is None else fastest
            weights = MAX_VELOCITY if fastest is None else 1.0
            order = np.inf if fastest is None else 2
            assert np.linalg.norm(command[part] / weights, order) <= limit * (1 + 1e-9)
            wanted = row[part] * factor
            if space != "eef_delta":  # there a turn of more than half a circle goes the other way
                cosine = command[part] @ wanted / np.linalg.norm(command[part]) / np.linalg.norm(wanted)
                assert cosine == pytest.approx(1.0)
    assert planned.points == 6


def test_R41_what_limits_changed_is_counted() -> None:
    """The node must notice when a policy runs into its limits all the time."""
    moving = motion("joint_velocity")
    planned = committed(moving, np.array([[0.1, 0.1], [3.0, 0.1], [0.1, 0.5]]))
    assert (planned.clipped, planned.clipped_names) == (1, ("pan", "lift"))
    unlimited = committed(motion("joint_velocity", limits=False), np.array([[9.0, 9.0]]))
    assert (unlimited.clipped, unlimited.clipped_names) == (0, ())
    np.testing.assert_array_equal(unlimited.plan.rates[0], [9.0, 9.0])


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_R42_non_finite_rates_are_refused(space: str, value: float) -> None:
    """NaN on a velocity controller is anything; the whole chunk goes."""
    rows = drawn(2, space)
    rows[1, 1] = value
    refused = motion(space).plan(rows, 3, NOW_NS)
    assert isinstance(refused, Refused)
    assert refused.kind == "non_finite"
    assert "step 1" in refused.reason


@pytest.mark.parametrize("consumed", [6, 7])
def test_R36_rates_that_are_past_give_no_plan(consumed: int) -> None:
    """Nothing of it may be executed late."""
    assert motion().plan(drawn(3, "base"), consumed, NOW_NS) is None


def test_R33_reset_is_standing_still_and_voids_plans() -> None:
    """A base goes on with its last velocity: after a reset it must be told none, and no plan comes back."""
    moving = motion()
    moving.reset()
    assert moving.command(NOW_NS) is None  # nothing was ever commanded
    rows = drawn(4, "base")
    committed(moving, rows)
    late = moving.plan(rows, 0, NOW_NS)
    moving.reset()
    assert isinstance(late, Planned)
    assert not moving.commit(late)
    np.testing.assert_array_equal(told(moving, NOW_NS + DT_NS), 0.0)
    assert moving.remaining_steps(NOW_NS) == 0


def test_R40_hold_is_no_velocity_at_once() -> None:
    """Within one control period of the stop the command is 0 and stays so."""
    moving = motion()
    assert moving.stop(NOW_NS, "hold", 0.3) is None  # nothing of ours
    rows = drawn(5, "base")
    committed(moving, rows)
    late = moving.plan(rows, 0, NOW_NS)
    now_ns = NOW_NS + DT_NS
    assert moving.stop(now_ns, "hold", 0.3) is not None
    for k in range(8):
        np.testing.assert_array_equal(told(moving, now_ns + k * DT_NS), 0.0)
    assert moving.remaining_steps(now_ns) == 0
    assert isinstance(late, Planned)
    assert not moving.commit(late)


@steady
@given(seed=seeds, elapsed=st.integers(0, 7 * DT_NS), stop_s=st.floats(0.02, 1.0))
def test_R40_decelerate_ramps_down_to_zero_within_stop_time(seed: int, elapsed: int, stop_s: float) -> None:
    """Evenly from the velocity commanded now to none: neither a jerk nor a long way."""
    moving = motion()
    committed(moving, drawn(seed, "base"))
    now_ns = NOW_NS + elapsed
    before = told(moving, now_ns)
    moving.stop(now_ns, "decelerate", stop_s)
    stop_ns = round(stop_s * 1e9)
    for share in (0.0, 0.25, 0.5, 0.9, 1.0, 1.1, 5.0):
        state = moving.commanded(now_ns + round(share * stop_ns))
        assert state is not None
        np.testing.assert_allclose(state[0], max(0.0, 1.0 - share) * before, atol=1e-6)
        slope = -before / stop_s if share < 1.0 else np.zeros(3)
        np.testing.assert_allclose(state[1], slope, rtol=1e-6, atol=1e-9)


def test_wrong_shapes_are_an_error_of_the_caller() -> None:
    """Limits of other joints than those commanded protect nothing."""
    with pytest.raises(ValueError, match="max_velocity"):
        RateMotion(group("joint_velocity", output="array"), RATE_HZ, True, np.ones(3))
    with pytest.raises(ValueError, match="stop_time"):
        motion().stop(NOW_NS, "hold", 0.0)
