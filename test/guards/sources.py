# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Sources of the state, frozen cameras, units and grippers: what makes the rows true, and its switches."""

from __future__ import annotations

from typing import Any

import numpy as np

from test.guards.guard import Guard, returns, value
from test.guards.places import ROS, SOURCES


def grey(real: Any) -> Any:
    """`_row_of` that takes what it does not know for grey levels."""
    from flashrt_ros.encodings import ENCODINGS

    return lambda encoding, camera: ENCODINGS.get(encoding, ENCODINGS["mono8"])


def copied(data: Any) -> np.ndarray:
    """`_as_bytes` that copies."""
    return np.array(bytearray(data), np.uint8)


def by_place(self: Any, names: Any) -> tuple[np.ndarray, np.ndarray]:
    """`MeasuredJoints._layout` that believes in an order."""
    return np.arange(len(names)), np.arange(len(names))


UNITS = value(lambda config: lambda actions: actions)
UNUSABLE = ROS + "state.py::test_R16_unusable_messages_are_dropped_and_counted"

SOURCE_GUARDS = (
    Guard(
        "R2",
        ROS + "encodings.py::test_R2_clouds_that_are_no_picture_are_refused[changes0-not organised]",
        "flashrt_ros.encodings:cloud_problem",
        returns(None),
    ),
    Guard(
        "R5",
        SOURCES + "R5_depth_camera_is_refused_at_the_first_message",
        "flashrt_ros.encodings:_row_of",
        grey,
    ),
    Guard(
        "R7",
        SOURCES + "R7_frozen_camera_stops_the_actions_until_it_moves",
        "flashrt_ros.camera_input:Stillness.why",
        returns(None),
    ),
    Guard(
        "R7",
        ROS + "camera_input.py::test_R7_no_observation_of_a_frozen_camera_until_it_moves",
        "flashrt_ros.camera_input:Stillness.why",
        returns(None),
    ),
    Guard(
        "R7",
        ROS + "camera_input.py::test_R7_optional_frozen_camera_is_masked",
        "flashrt_ros.camera_input:Stillness.why",
        returns(None),
    ),
    Guard(
        "R10",
        ROS + "ingest.py::test_R10_large_images_are_views_until_a_decision_and_copied_once",
        "flashrt_ros.encodings:_as_bytes",
        value(copied),
    ),
    Guard(
        "R12",
        ROS + "measured.py::test_R12_positions_by_name_in_the_order_asked_for",
        "flashrt_ros.measured:MeasuredJoints._layout",
        value(by_place),
    ),
    Guard(
        "R13",
        ROS + "measured.py::test_R13_old_joint_is_none_and_named",
        "flashrt_ros.measured:MeasuredJoints._is_old",
        returns(False),
    ),
    Guard("R13", ROS + "state.py::test_R13_age_of_each_group", "flashrt_ros.state:too_old", returns(None)),
    Guard(
        "R15",
        SOURCES + "R15_state_of_joints_arrays_poses_and_tf",
        "flashrt_ros.state:StateInput.reasons",
        returns([]),
    ),
    Guard(
        "R15",
        ROS + "state.py::test_R15_missing_group_is_named",
        "flashrt_ros.state:StateInput.reasons",
        returns([]),
    ),
    Guard(
        "R15",
        ROS + "measured.py::test_R15_missing_joint_is_none_and_named",
        "flashrt_ros.measured:MeasuredJoints._late",
        returns([]),
    ),
    Guard("R16", UNUSABLE + "[array-nan]", "flashrt_ros.state:require_finite", returns(None)),
    Guard("R16", UNUSABLE + "[array-length]", "flashrt_ros.state:require_length", returns(None)),
    Guard(
        "R17",
        SOURCES + "R17_robot_outside_of_training_waits_with_the_numbers",
        "flashrt_ros.ingest:Ingest._outside",
        returns([]),
    ),
    Guard(
        "R17",
        ROS + "pose_check.py::test_R17_no_observation_until_the_state_is_inside_once",
        "flashrt_ros.ingest:Ingest._outside",
        returns([]),
    ),
    Guard(
        "R18",
        SOURCES + "R18_inverted_gripper_is_felt_and_moved_the_right_way",
        "flashrt_ros.decision:_to_robot_units",
        UNITS,
    ),
    Guard(
        "R18",
        SOURCES + "R18_inverted_gripper_is_felt_and_moved_the_right_way",
        "flashrt_ros.running:gripper_lines",
        returns(()),
    ),
    Guard(
        "R18",
        ROS + "decision.py::test_R18_gripper_positions_go_both_ways",
        "flashrt_ros.decision:_to_robot_units",
        UNITS,
    ),
    Guard(
        "R18",
        ROS + "running.py::test_R18_grippers_are_printed_in_words",
        "flashrt_ros.running:gripper_lines",
        returns(()),
    ),
    Guard(
        "R24",
        ROS + "state.py::test_R24_skew_counts_groups",
        "flashrt_ros.ingest:Observation.skew_ms",
        value(property(lambda self: 0.0)),
    ),
)
