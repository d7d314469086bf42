# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The units of ALOHA and those of openpi's base models.

The numbers come from a run of openpi 15a9616 on these inputs (policies/aloha_policy.py: _decode_state,
_encode_actions, _gripper_to_angular, _gripper_from_angular).
"""

import numpy as np
import pytest

from flashrt_kernels.checkpoint.robot_units import AlohaUnits, RobotUnits
from flashrt_kernels.errors import ObservationError

ALOHA = AlohaUnits()
STATE = [0.1, -0.9, 1.2, -0.3, 0.4, 0.2, 0.0, -0.5, 0.6, -0.7, 0.8, 0.9, -1.1, 0.35]
STATE_OF_POLICY = [0.1, 0.9, -1.2, -0.3, 0.4, 0.2, -1.07986555, -0.5, -0.6, 0.7, 0.8, 0.9, -1.1, -0.35554873]
ACTIONS = [STATE, list(np.linspace(-1, 1.6, 14))]
ACTIONS_OF_ROBOT = [
    [0.1, 0.9, -1.2, -0.3, 0.4, 0.2, 0.55337783, -0.5, -0.6, 0.7, 0.8, 0.9, -1.1, 0.71907399],
    [-1.0, 0.8, 0.6, -0.4, -0.2, 0.0, 0.64806136, 0.4, -0.6, -0.8, 1.0, 1.2, 1.4, 1.31084601],
]


def test_state_is_that_of_openpi() -> None:
    """A policy that sees an elbow bent the other way moves the arm into the table."""
    got = ALOHA.to_policy(np.array(STATE, np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, STATE_OF_POLICY, rtol=0, atol=2e-7)


def test_actions_are_those_of_openpi() -> None:
    """The way back: other signs, and grippers that ALOHA commands in other units than it measures."""
    got = ALOHA.to_robot(np.array(ACTIONS, np.float32))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, ACTIONS_OF_ROBOT, rtol=0, atol=2e-7)


@pytest.mark.parametrize(
    ("measured", "known"),
    [
        (-0.1, -1.649765133857727),
        (0.0, -1.0798654556274414),
        (0.5, -0.14005576074123383),
        (1.0, 0.9456529021263123),
        (1.2, 0.9456529021263123),  # the crank turns no further
    ],
)
def test_grippers_over_their_whole_travel(measured: float, known: float) -> None:
    """The crank makes a curve of it: right at both ends only, a policy would crush what it should hold."""
    state = np.zeros(14, np.float32)
    state[[6, 13]] = measured
    np.testing.assert_allclose(ALOHA.to_policy(state)[[6, 13]], known, rtol=0, atol=1e-6)


def test_joints_that_are_sent_where_they_are_stay_there() -> None:
    """Signs that differ between the two ways would throw the arm to its mirror image."""
    state = np.array(STATE, np.float32)
    joints = [i for i in range(14) if i not in (6, 13)]
    np.testing.assert_array_equal(ALOHA.to_robot(ALOHA.to_policy(state)[None])[0][joints], state[joints])
    flipped = [i for i in range(14) if ALOHA.to_policy(state)[i] == -state[i]]
    assert flipped == [1, 2, 8, 9]


def test_the_callers_arrays_stay_as_they_are() -> None:
    """The state of an observation serves for more than one thing in a decision."""
    state, actions = np.array(STATE, np.float32), np.array(ACTIONS, np.float32)
    ALOHA.to_policy(state)
    ALOHA.to_robot(actions)
    np.testing.assert_array_equal(state, np.array(STATE, np.float32))
    np.testing.assert_array_equal(actions, np.array(ACTIONS, np.float32))


@pytest.mark.parametrize("joint", [6, 13])
def test_a_gripper_in_other_units_is_refused(joint: int) -> None:
    """Radians of a closed gripper would be read as the opposite of what they are: as an open one."""
    state = np.zeros(14, np.float32)
    state[joint] = -0.6213
    with pytest.raises(ObservationError, match=rf"state\[{joint}\] is -0\.6213, expected .* ALOHA gripper"):
        ALOHA.to_policy(state)


def test_other_robots_keep_their_units() -> None:
    """Nothing is turned that nobody asked to turn."""
    state, actions = np.array(STATE, np.float32), np.array(ACTIONS, np.float32)
    np.testing.assert_array_equal(RobotUnits().to_policy(state), state)
    np.testing.assert_array_equal(RobotUnits().to_robot(actions), actions)
    assert RobotUnits().describe() == []
