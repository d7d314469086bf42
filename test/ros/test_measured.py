# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Where the joints of the actions are: the motion code starts from there."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from flashrt_ros.measured import MeasuredJoints
from test.ros.test_ingest import MS, T0, Rig, S, image, joints


def put(to: MeasuredJoints, names: Any, *positions: float, at_ns: int = T0) -> bool:
    return to.put(SimpleNamespace(name=list(names), position=list(positions)), at_ns)


def measured(*wanted: str) -> MeasuredJoints:
    return MeasuredJoints(wanted or ("a", "b"), 0.5)


def test_R12_positions_by_name_in_the_order_asked_for() -> None:
    """A position of the wrong joint is a jump of the robot."""
    robot = measured()
    assert put(robot, "ba", 2, 1)
    assert put(robot, "xa", 9, 3)
    found = robot.positions(["a", "x", "b"], T0)
    assert found is not None
    assert found.dtype == np.float64
    assert found.tolist() == [3, 9, 2]


def test_R15_missing_joint_is_none_and_named() -> None:
    """Never a zero in place of a joint that nobody reported."""
    robot = measured()
    put(robot, "ax", 1, 2)
    assert robot.positions(["a", "b"], T0) is None
    assert robot.missing(["a", "b"], T0) == "joint_states: b never seen; there are a, x"
    assert robot.missing(["a"], T0) == ""


def test_R13_old_joint_is_none_and_named() -> None:
    """A driver that stopped: its last position is not where the joint is."""
    robot = measured()
    put(robot, "a", 1)
    put(robot, "b", 2, at_ns=T0 + S)
    assert robot.positions(["b"], T0 + S) is not None
    assert robot.positions(["a", "b"], T0 + S) is None
    assert "a 1.00 s old (at most 0.5 s)" in robot.missing(["a", "b"], T0 + S)


def test_R16_only_finite_positions_are_kept() -> None:
    """A NaN of one joint neither becomes a position nor hides the others."""
    robot = measured()
    put(robot, "ab", 1, 2)
    put(robot, "ab", math.nan, 3, at_ns=T0 + MS)
    found = robot.positions(["a", "b"], T0)
    assert found is not None
    assert found.tolist() == [1, 3]
    assert not put(robot, "ab", 1), "names and positions that do not pair up"


def test_other_joints_are_told_from_wanted_ones() -> None:
    """A message that names none of ours is another robot's."""
    assert not put(measured(), "xy", 1, 2)


def test_ever_new_names_do_not_grow_memory() -> None:
    """Nor do they take the place of the joints of the actions."""
    robot = measured()
    for number in range(3000):
        put(robot, [f"n{number}"], 1)
    put(robot, "ab", 1, 2)
    assert robot.positions(["a", "b"], T0) is not None
    assert len(robot._index) <= 512
    assert len(robot._layouts) <= 16


def test_ingest_measures_joints_that_are_no_part_of_the_state() -> None:
    """The gripper that the policy commands but does not feel; in the robot's units, whatever the scale."""
    rig = Rig(action_names=["a", "hand"], joint__a__scale=10.0)
    rig.put("joint_states", SimpleNamespace(**{**vars(joints(T0, "ab")), "name": ["a", "hand"]}), T0)
    found = rig.ingest.measured(["a", "hand"], T0)
    assert found is not None
    assert found.tolist() == [1, 2]
    assert rig.ingest.missing_measured(["a", "hand"], T0) == ""
    assert "b never seen" in rig.ingest.missing_measured(["b"], T0)
    rig.ingest.flush()
    assert rig.ingest.measured(["a"], T0) is None


def test_ingest_measures_where_no_group_listens_to_joint_states() -> None:
    """A state that is a pose: decisions do not wait for joint_states, the motion code does."""
    rig = Rig(
        cameras=["front"],
        joint_names=[],
        state_groups=["hand"],
        state__hand__source="array",
        state__hand__names=["x"],
        action_names=["a", "b"],
    )
    rig.put("front", image(T0), T0)
    rig.put("state.hand", SimpleNamespace(data=[1.0]), T0)
    assert rig.seen(T0).required == ("front", "state.hand")
    assert rig.ingest.measured(["a", "b"], T0) is None
    rig.put("joint_states", joints(T0), T0)
    assert rig.ingest.measured(["b", "a"], T0) is not None
    assert rig.counts("joint_states")["received"] == 1
    assert rig.ingest.max_age("joint_states") == 0.5
