# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Rotations in all their forms: a mixed-up one turns the gripper into the table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.parameter_rows import ROTATIONS
from flashrt_ros.rotations import continuous, rotation_of, slerp, values_of
from test.ros.motion_groups import seeds, steady


@pytest.mark.parametrize("rotation", ROTATIONS)
@steady
@given(seed=seeds)
def test_every_form_comes_back(rotation: str, seed: int) -> None:
    """What the policy means is what the robot is told, whatever form the checkpoint writes it in."""
    quaternions = np.random.default_rng(seed).normal(size=(5, 4))
    turns = rotation_of(quaternions, "quaternion")
    values = values_of(turns, rotation)
    assert values.shape == (5, len(ROTATIONS[rotation]))
    again = rotation_of(values, rotation)
    np.testing.assert_allclose((again * turns.inv()).magnitude(), 0.0, atol=1e-6)
    single = rotation_of(values[2], rotation)
    np.testing.assert_allclose(single.as_matrix(), turns[2].as_matrix(), atol=1e-6)


def test_forms_are_what_their_names_say() -> None:
    """A quarter turn about z by hand: another convention would pass every round trip."""
    turn = rotation_of(np.array([0.0, 0.0, np.pi / 2]), "rotvec")
    half = np.sqrt(0.5)
    np.testing.assert_allclose(values_of(turn, "quaternion"), [0, 0, half, half], atol=1e-12)
    np.testing.assert_allclose(values_of(turn, "rpy"), [0, 0, np.pi / 2], atol=1e-12)
    np.testing.assert_allclose(values_of(turn, "rot6d"), [0, 1, 0, -1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(values_of(turn, "rot6d_rows"), [0, -1, 0, 1, 0, 0], atol=1e-12)
    # REP-103: roll about the fixed x first, then yaw about the fixed z. x → x → y; y → z → z.
    matrix = rotation_of(np.array([np.pi / 2, 0.0, np.pi / 2]), "rpy").as_matrix()
    np.testing.assert_allclose(matrix @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(matrix @ [0, 1, 0], [0, 0, 1], atol=1e-12)


@pytest.mark.parametrize("rotation", ["rot6d", "rot6d_rows"])
def test_six_numbers_of_a_network_are_made_orthonormal(rotation: str) -> None:
    """A network's six numbers are never quite a rotation; sheared axes would be an invalid pose."""
    turn = rotation_of(np.array([0.3, -0.2, 0.9]), "rotvec")
    crooked = values_of(turn, rotation) * 1.3
    crooked[3:] += 0.2 * crooked[:3]
    np.testing.assert_allclose(rotation_of(crooked, rotation).as_matrix(), turn.as_matrix(), atol=1e-9)


@pytest.mark.parametrize(
    ("rotation", "values"),
    [("quaternion", [0, 0, 0, 0]), ("rot6d", [0, 0, 0, 1, 0, 0]), ("rot6d_rows", [1, 2, 3, 2, 4, 6])],
)
def test_numbers_that_are_no_rotation_are_refused(rotation: str, values: list[float]) -> None:
    """A zero quaternion must not become some rotation."""
    with pytest.raises(ValueError, match="no rotation"):
        rotation_of(np.array([values], float), rotation)


@steady
@given(seed=seeds)
def test_continuous_signs_keep_the_rotation(seed: int) -> None:
    """Signs follow the one before; nothing else changes."""
    quaternions = np.random.default_rng(seed).normal(size=(6, 4))
    signed = continuous(quaternions)
    assert ((signed[1:] * signed[:-1]).sum(axis=1) >= 0).all()
    np.testing.assert_array_equal(np.abs(signed), np.abs(quaternions))
    np.testing.assert_array_equal(signed[0], quaternions[0])


@steady
@given(seed=seeds, share=st.floats(0, 1))
def test_slerp_turns_evenly(seed: int, share: float) -> None:
    """Half of the time is half of the angle, and the result is a rotation."""
    a, b = continuous(np.random.default_rng(seed).normal(size=(2, 4)))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    middle = slerp(a, b, share)
    assert np.linalg.norm(middle) == pytest.approx(1.0)
    whole = (rotation_of(b, "quaternion") * rotation_of(a, "quaternion").inv()).magnitude()
    part = (rotation_of(middle, "quaternion") * rotation_of(a, "quaternion").inv()).magnitude()
    assert part == pytest.approx(share * whole, abs=1e-6)
