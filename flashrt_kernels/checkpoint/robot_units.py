# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The units of a robot's state and actions, where a policy was trained in others."""

import math

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.errors import ObservationError

Floats = NDArray[np.float32]

ALOHA_JOINTS = 14  # two arms of six joints and a gripper
_GRIPPERS = (6, 13)
_SIGNS = np.array([1, -1, -1, 1, 1, 1, 1] * 2, np.float64)
# Finger travel that ALOHA's 0 (closed) and 1 (open) stand for, and the crank that drives the fingers, m.
_CLOSED, _OPEN = 0.01844, 0.05800
_HORN, _ARM = 0.022, 0.036
# Crank angle, rad, that Pi0's 0 and 1 stand for; and ALOHA's, which is what it commands.
_PI_CLOSED, _PI_OPEN = 0.5476, 1.6296
_COMMAND_CLOSED, _COMMAND_OPEN = -0.6213, 1.4910


class RobotUnits:
    """The policy has the units of the robot: nothing changes."""

    def to_policy(self, state: Floats) -> Floats:
        """[D] as the robot measures it → [D] as the policy knows it, before normalising.

        Raises `ObservationError` for what the robot cannot have measured.
        """
        return state

    def to_robot(self, actions: Floats) -> Floats:
        """[H, D] as the policy gives them, after normalising was undone → [H, D] as the robot takes them."""
        return actions

    def describe(self) -> list[str]:
        """Lines for people."""
        return []


class AlohaUnits(RobotUnits):
    """ALOHA's arms as openpi's base models know them (`adapt_to_pi`).

    Two joints of each arm turn the other way. A gripper is measured by the travel of its fingers, 0 closed to
    1 open, and commanded by the angle of its crank, 0 closed to 1 open; the policy knows angles only.

    Source: openpi 15a9616, policies/aloha_policy.py: _decode_state, _encode_actions.
    """

    def to_policy(self, state: Floats) -> Floats:
        """[14] → [14]. Raises `ObservationError` for a gripper whose fingers would be beyond their hinge."""
        found = _SIGNS * state
        for i in _GRIPPERS:
            travel = _CLOSED + float(state[i]) * (_OPEN - _CLOSED)
            if travel <= 0:
                raise ObservationError(
                    f"state[{i}] is {state[i]:g}, expected the position of an ALOHA gripper, 0 closed to 1 "
                    f"open; checkpoints whose grippers are no ALOHA's are loaded with adapt_to_pi=False"
                )
            sine = (_HORN**2 + travel**2 - _ARM**2) / (2 * _HORN * travel)
            angle = math.asin(min(max(sine, -1.0), 1.0))
            found[i] = (angle - _PI_CLOSED) / (_PI_OPEN - _PI_CLOSED)
        return found.astype(np.float32)

    def to_robot(self, actions: Floats) -> Floats:
        """[H, 14] → [H, 14]. The policy's gripper actions are radians above its closed gripper."""
        found = _SIGNS * actions
        for i in _GRIPPERS:
            angle = found[:, i] + _PI_CLOSED
            found[:, i] = (angle - _COMMAND_CLOSED) / (_COMMAND_OPEN - _COMMAND_CLOSED)
        return found.astype(np.float32)

    def describe(self) -> list[str]:
        return [
            "robot units: ALOHA's (adapt_to_pi); a gripper is measured by the position of its fingers and "
            "commanded by the angle of its crank, both 0 closed to 1 open; the statistics are of the units "
            "of the policy"
        ]
