# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Groups of actions: a column in the wrong group moves the wrong thing, in the wrong units."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_ros.parameter_rows import OUTPUTS
from flashrt_ros.parameters import ConfigError, NodeConfig
from flashrt_ros.rotations import rotation_of, values_of
from flashrt_ros.spaces import (
    absolute,
    action_units,
    check_groups,
    check_limits,
    check_poses,
    columns,
    describe,
    group_fields,
    measured_pose,
    numbered_groups,
)
from test.ros.motion_groups import group, seeds, steady


def config(**more: Any) -> NodeConfig:
    """Joint positions of an arm, a gripper and a base; keys with `__` stand for dots."""
    values: dict[str, Any] = {
        "checkpoint": "/data/ckpt",
        "action_rate_hz": 30.0,
        "cameras": ["front"],
        "joint_names": ["a", "b", "hand"],
        "action_groups": ["arm", "hand", "base"],
        "action__arm__names": ["a", "b"],
        "action__arm__space": "joint_delta",
        "action__hand__space": "gripper",
        "action__hand__names": ["hand"],
        "action__base__space": "base",
    }
    values = {key: value for key, value in {**values, **more}.items() if value is not None}
    return NodeConfig.from_dict({key.replace("__", "."): value for key, value in values.items()})


def eef_config(**more: Any) -> NodeConfig:
    """Poses of an end effector that tf measures, and a gripper."""
    values: dict[str, Any] = {
        "joint_names": None,
        "state_groups": ["arm", "hand"],
        "state__arm__source": "tf",
        "state__arm__frame": "base_link",
        "state__arm__child_frame": "tool",
        "state__hand__names": ["hand"],
        "action_groups": ["arm", "hand"],
        "action__arm__names": None,
        "action__arm__space": "eef_pose",
        "action__base__space": None,
    }
    return config(**{**values, **more})


def policy(**more: Any) -> Any:
    fields = {
        "not_positions": "",
        "state_groups": {"observation.state": 3},
        "action_names": None,
        "cameras": ("front",),
        "camera_rule": "present first",
        "state_dim": 3,
        "action_dim": 6,
        "slot": lambda name: name,
    }
    return SimpleNamespace(**{**fields, **more})


def test_columns_follow_one_another() -> None:
    """Each group gets its own numbers of the row, in the policy's order."""
    groups = config().action_groups
    assert columns(groups) == [slice(0, 2), slice(2, 3), slice(3, 6)]
    assert columns(()) == []
    fields = group_fields(groups)
    assert fields.names == ("arm", "hand", "base")
    assert fields.spaces == ("joint_delta", "gripper", "base")
    assert fields.widths == (2, 1, 3)


def test_R35_start_log_says_what_the_actions_are_taken_for() -> None:
    """The user sees before anything moves whether increments are taken for targets."""
    lines = describe(config().action_groups, policy(not_positions="arm: changes"))
    assert lines == [
        "the checkpoint says of its actions: arm: changes",
        "group arm: joint_delta, 2 columns from 0 on, per-step increments, made absolute; "
        "out as trajectory on arm/joint_trajectory",
        "group hand: gripper, 1 column from 2 on, absolute gripper targets; "
        "out as trajectory on hand/joint_trajectory",
        "group base: base, 3 columns from 3 on, velocities vx vy wz, each held for one step; "
        "out as twist on base/cmd_vel",
    ]


@pytest.mark.parametrize(("space", "output"), [(s, o) for s, outputs in OUTPUTS.items() for o in outputs])
def test_R35_every_space_has_words(space: str, output: str) -> None:
    """No group may start without a line; a pose names its rotation and frame."""
    (line,) = describe([group(space, output=output)], policy())
    assert "in frame base_link" in line
    assert "{" not in line
    assert "on, ;" not in line
    assert ("rotation as" in line) == space.startswith("eef")
    assert ("composed" in line) == ((space, output) == ("eef_delta", "pose"))


@steady
@given(seed=seeds, steps=st.integers(1, 20))
def test_R35_increments_become_targets(seed: int, steps: int) -> None:
    """Each row adds to the one before, the first to where the robot was: past rows count as well."""
    random = np.random.default_rng(seed)
    start, rows = random.normal(size=3), random.normal(size=(steps, 3)).astype(np.float32)
    targets = absolute(rows, start)
    assert targets.shape == (steps, 3)
    np.testing.assert_allclose(targets[0], start + rows[0])
    np.testing.assert_allclose(np.diff(targets, axis=0), rows[1:], atol=1e-9)


def test_R17_increments_and_velocities_have_no_offset() -> None:
    """A shifted zero of the joint would be added to every increment."""
    scale, offset = action_units(
        config(joint__a__scale=2.0, joint__a__offset=0.5, joint__hand__offset=0.1, joint__hand__scale=4.0)
    )
    np.testing.assert_array_equal(scale, [2.0, 1.0, 4.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(offset, [0.0, 0.0, 0.1, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("width", [5, 7])
def test_R56_every_column_needs_a_group(width: int) -> None:
    """A column without a group would have no output, or the groups would be shifted: refuse to configure."""
    config().check_policy(policy())
    with pytest.raises(ConfigError, match=f"has {width} values"):
        config().check_policy(policy(action_dim=width))


# ---- groups of the checkpoint ----


GROOT: Any = {
    "state_groups": {"arm": 2, "hand": 1},
    "action_names": ("arm.0", "arm.1", "hand.0", "base.0", "base.1", "base.2"),
}
STATES: Any = {
    "joint_names": None,
    "state_groups": ["arm", "hand"],
    "state__arm__names": ["a", "b"],
    "state__hand__names": ["hand"],
}


def test_R56_groups_of_the_checkpoint_are_matched() -> None:
    """The same names and widths in the same order pass; so do nodes and checkpoints without groups."""
    check_groups(config(**STATES), policy(**GROOT))
    check_groups(config(), policy(**GROOT))  # its state is one list of joints
    check_groups(config(**STATES), policy())
    check_groups(config(**STATES), policy(action_names=("a.pos", "b.pos")))


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"state_groups": {"arm": 1, "hand": 2}}, "state_groups"),
        ({"state_groups": {"hand": 1, "arm": 2}}, "state_groups"),
        ({"state_groups": {"left_arm": 2, "hand": 1}}, "state_groups"),
        ({"action_names": ("arm.0", "hand.0", "hand.1", "base.0", "base.1", "base.2")}, "action_groups"),
        ({"action_names": ("hand.0", "arm.0", "arm.1", "base.0", "base.1", "base.2")}, "action_groups"),
    ],
)
def test_R56_other_groups_than_the_checkpoints_are_refused(changes: Any, parameter: str) -> None:
    """The total width fits, but the hand's number would be the arm's: both sides are listed."""
    with pytest.raises(ConfigError) as refused:
        check_groups(config(**STATES), policy(**{**GROOT, **changes}))
    text = str(refused.value)
    assert parameter in text
    assert "arm: 2, hand: 1" in text
    assert "the checkpoint has" in text


def test_names_of_numbered_groups() -> None:
    """GR00T numbers its actions by group; joints that only look like it are none."""
    assert numbered_groups(("arm.0", "arm.1", "hand.0")) == {"arm": 2, "hand": 1}
    for others in ((), ("a", "b"), ("arm.1", "arm.2"), ("arm.0", "hand.0", "arm.2"), ("shoulder.pos",)):
        assert numbered_groups(others) == {}


# ---- limits ----


def test_R41_all_missing_limits_are_listed_at_once() -> None:
    """A user who must start the node once for each missing number gives up and turns limits off."""
    with pytest.raises(ConfigError) as refused:
        check_limits(
            eef_config(
                action_groups=["arm", "hand", "base", "wheels"],
                action__base__space="base",
                action__wheels__space="joint_velocity",
                action__wheels__names=["left", "right"],
                joint__left__max_velocity=3.0,
                action__arm__max_linear_velocity=0.2,
            )
        )
    text = str(refused.value)
    assert "action.arm.max_angular_velocity, action.arm.workspace, action.base.max_linear_velocity, " in text
    assert "`joint.right.max_velocity: 1.0`" in text
    assert "`action.arm.workspace: [" in text
    assert "limits: false" in text
    for given_ in ("joint.left", "arm.max_linear", "hand"):
        assert given_ not in text


def test_R41_limits_that_are_given_or_off_pass() -> None:
    """Opting out is explicit; joint positions are not looked at here, and a URDF may give joints' speeds."""
    check_limits(eef_config(limits=False))
    check_limits(
        eef_config(
            action__arm__max_linear_velocity=0.2,
            action__arm__max_angular_velocity=0.5,
            action__arm__workspace=[0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        )
    )
    check_limits(config(action_groups=["arm", "hand"], action__base__space=None))
    wheels = config(
        action_groups=["arm", "hand"], action__base__space=None, action__arm__space="joint_velocity"
    )
    check_limits(wheels, described=("a", "b"))
    with pytest.raises(ConfigError, match=r"joint\.b\.max_velocity"):
        check_limits(wheels, described=("a",))


# ---- measured poses ----


@pytest.mark.parametrize("rotation", ["quaternion", "rpy", "rot6d", "rot6d_rows"])
def test_measured_pose_is_found_in_the_state(rotation: str) -> None:
    """Where the first chunk begins: read from the numbers of the right group, in its own form."""
    made = eef_config(
        state_groups=["hand", "arm", "head"],
        state__head__source="pose",
        state__arm__rotation=rotation,
    )
    turn = rotation_of(np.array([0.1, -0.7, 0.4]), "rotvec")
    state = np.concatenate([[9.0], [0.1, 0.2, 0.3], values_of(turn, rotation), np.full(7, 9.0)])
    measured = measured_pose(made.action_groups[0], made.state_groups, state.astype(np.float32))
    assert measured is not None
    np.testing.assert_allclose(measured, [0.1, 0.2, 0.3, *values_of(turn, "quaternion")], atol=1e-6)
    assert measured_pose(made.action_groups[0], made.state_groups[::2][:1], state) is None


def test_poses_need_somebody_who_measures_them() -> None:
    """Else every chunk would be refused when the robot is already waiting for it."""
    check_poses(eef_config())
    check_poses(config())
    check_poses(eef_config(action__arm__frame="base_link"))
    with pytest.raises(ConfigError, match="no state group says where its end effector is"):
        check_poses(
            eef_config(
                state__arm__source=None,
                state__arm__frame=None,
                state__arm__child_frame=None,
                state__arm__names=["x"],
            )
        )
    with pytest.raises(ConfigError, match=r"'map', but 'state\.arm\.frame' is 'base_link'"):
        check_poses(eef_config(action__arm__frame="map"))
