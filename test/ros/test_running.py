# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The start log: what the numbers are, where they come from and go, and which way grippers move."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.parameters import NodeConfig
from flashrt_ros.running import vector_lines


def config(**parameters: Any) -> NodeConfig:
    flat = {"checkpoint": "/x", "action_rate_hz": 30.0, "cameras": ["front"], **parameters}
    return NodeConfig.from_dict({name.replace("__", "."): value for name, value in flat.items()})


def test_R14_default_groups() -> None:
    """Joints in one vector on one topic."""
    assert vector_lines(config(joint_names=["a", "b"], joint__b__scale=2.0)) == (
        "state vector: [0] a, [1] b·2+0",
        "action vector: [0] a, [1] b·2+0",
        "state group joints: joint_state, position, on joint_states: a, b",
    )


def test_R14_every_source_and_space_is_named() -> None:
    """Which topic a number comes from is found by reading these lines and by nothing else."""
    lines = vector_lines(
        config(
            state_groups=["arm", "hand", "ee", "head"],
            state__arm__names=["a"],
            state__arm__field="velocity",
            state__arm__topic="left/joint_states",
            state__hand__source="array",
            state__hand__names=["palm"],
            state__ee__source="pose",
            state__ee__rotation="rpy",
            state__head__source="tf",
            state__head__frame="base",
            state__head__child_frame="neck",
            action_groups=["move"],
            action__move__space="base",
        )
    )
    assert lines[2:] == (
        "state group arm: joint_state, velocity, on left/joint_states: a.velocity",
        "state group hand: array on hand: palm",
        "state group ee: pose on ee/pose, rotation as rpy: ee.x, ee.y, ee.z, ee.roll, ee.pitch, ee.yaw",
        "state group head: tf base → neck, rotation as quaternion: "
        "head.x, head.y, head.z, head.qx, head.qy, head.qz, head.qw",
    )


@pytest.mark.parametrize(("opened", "closed"), [(0.08, 0.0), (0.0, 0.7)])
def test_R18_grippers_are_printed_in_words(opened: float, closed: float) -> None:
    """A gripper that opens where it should close drops what it holds: the log says which way it moves, also
    where a larger number is closed."""
    lines = vector_lines(
        config(
            joint_names=["a", "grip"],
            grippers=["grip"],
            gripper__grip__open=opened,
            gripper__grip__closed=closed,
            gripper__grip__policy_open=100.0,
        )
    )
    assert lines[-1] == (
        f"gripper 'grip': the policy's 0 is closed = {closed:g}, its 100 is open = {opened:g}, "
        "in the robot's units"
    )
