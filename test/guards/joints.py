# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Joints: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from test.guards.guard import Guard, edited, returns, value
from test.guards.places import FAULTS, INPUTS, OWN, ROS, ROWS

JOINTS = (
    Guard(
        "R11",
        ROWS + "R11_efforts_of_another_length_are_ignored",
        "flashrt_ros.joints:JointTracker.read",
        edited(
            "layout = self._layout(message)",
            "layout = self._layout(message)\n    message.effort and message.effort[len(message.name) - 1]",
        ),
    ),
    Guard(
        "R11",
        ROWS + "R11_efforts_of_another_length_are_ignored",
        "flashrt_ros.joints:JointTracker._layout",
        edited(
            "count = len(getattr(message, self._field))",
            "message.position = message.position or [0.0] * len(names)\n    count = len(message.position)",
        ),
    ),
    Guard(
        "R11",
        ROS + "joints.py::test_R11_messages_without_positions_are_legal_and_ignored",
        "flashrt_ros.joints:JointTracker._layout",
        edited(
            "count = len(getattr(message, self._field))",
            "message.position = [0.0] * len(names)\n    count = len(message.position)",
        ),
    ),
    Guard(
        "R12",
        ROWS + "R12_joint_order_changes_from_message_to_message",
        "flashrt_ros.joints:JointTracker._layout",
        edited("self._layouts.get(names)", "next(iter(self._layouts.values()), None)"),
    ),
    Guard(
        "R12",
        INPUTS + "R12_joint_order_changes_between_messages",
        "flashrt_ros.joints:JointTracker._layout",
        edited("self._layouts.get(names)", "next(iter(self._layouts.values()), None)"),
    ),
    Guard(
        "R12",
        ROS + "joints.py::test_R12_joint_order_changes",
        "flashrt_ros.joints:JointTracker._new_layout",
        edited(
            "pairs = [(source, self._index[name])",
            "pairs = [(source, min(source, len(self._index) - 1))",
            "targets.count(target) > 1",
            "False",
        ),
    ),
    Guard(
        "R13",
        ROWS + "R13_two_drivers_each_send_a_part",
        "flashrt_ros.joints:JointTracker.keep",
        edited("self._times[:, layout.target]", "self.clear()\n    self._times[:, layout.target]"),
    ),
    Guard(
        "R13",
        ROWS + "R13_two_drivers_each_send_a_part",
        "flashrt_ros.joints:JointTracker.keep",
        edited("self._times[:, layout.target]", "self._times[:]"),
    ),
    Guard(
        "R13",
        ROS + "joints.py::test_R13_several_publishers_are_merged_with_an_age_per_joint",
        "flashrt_ros.joints:JointTracker.keep",
        edited("self._times[:, layout.target]", "self._times[:]"),
    ),
    Guard(
        "R14",
        OWN + "R14_start_log_and_outputs_name_the_joints",
        "flashrt_ros.running:vector_lines",
        returns(()),
    ),
    Guard(
        "R14",
        OWN + "R14_start_log_and_outputs_name_the_joints",
        "flashrt_ros.command_messages:TrajectoryMessage.__init__",
        edited("joint_names=list(group.names)", ""),
    ),
    Guard(
        "R14",
        FAULTS + "R14_start_log_maps_indices_to_joints",
        "flashrt_ros.running:_numbered",
        edited("[{index}] {name}", "{name}"),
    ),
    Guard(
        "R14",
        ROS + "parameters.py::test_R14_permuted_action_names_are_refused",
        "flashrt_ros.parameters:NodeConfig.check_policy",
        edited("stored != self.action_names", "False"),
    ),
    Guard(
        "R14",
        ROS + "chunk.py::test_R14_chunk_message_carries_names_stamps_and_timing",
        "flashrt_ros.chunk:chunk_fields",
        edited("action_names=decision.action_names", "action_names=()"),
    ),
    Guard(
        "R15",
        OWN + "R15_missing_joint_is_named_beside_what_is_there",
        "flashrt_ros.joints:JointTracker.reasons",
        returns([]),
    ),
    Guard(
        "R15",
        ROS + "joints.py::test_R15_missing_joint_is_named_beside_what_is_there",
        "flashrt_ros.joints:JointTracker.reasons",
        edited(
            "if not seen.all():",
            "if False:",
        ),
    ),
    Guard(
        "R15",
        ROS + "ingest.py::test_R15_R27_reasons_name_what_is_missing",
        "flashrt_ros.joints:JointTracker.reasons",
        edited("if not seen.all():", "if False:"),
    ),
    Guard(
        "R16",
        ROWS + "R16_non_finite_joints_never_reach_the_policy",
        "flashrt_ros.joints:JointTracker._require_finite",
        returns(None),
    ),
    Guard(
        "R16",
        INPUTS + "R16_non_finite_joints_are_dropped",
        "flashrt_ros.joints:JointTracker._require_finite",
        returns(None),
    ),
    Guard(
        "R16",
        ROS + "joints.py::test_R16_not_finite_in_a_used_field_drops_the_message",
        "flashrt_ros.joints:JointTracker._require_finite",
        returns(None),
    ),
    Guard(
        "R17",
        OWN + "R17_units_of_the_robot_both_ways",
        "flashrt_ros.joints:JointTracker.state",
        edited("self._scale * self._values + self._offset", "self._values"),
    ),
    Guard(
        "R17",
        OWN + "R17_units_of_the_robot_both_ways",
        "flashrt_ros.decision:_to_robot_units",
        value(lambda config: lambda actions: actions),
    ),
    Guard(
        "R17",
        ROS + "joints.py::test_R17_scale_and_offset",
        "flashrt_ros.joints:JointTracker.state",
        edited("self._scale * self._values + self._offset", "self._values"),
    ),
    Guard(
        "R17",
        ROS + "decision.py::test_R17_actions_go_back_through_scale_and_offset",
        "flashrt_ros.decision:_to_robot_units",
        value(lambda config: lambda actions: actions),
    ),
    Guard(
        "R11",
        ROS + "joints.py::test_R11_only_positions_are_read",
        "flashrt_ros.joints:JointTracker.read",
        edited(
            "if layout is None or", "if len(message.effort) != len(message.position) or layout is None or"
        ),
    ),
)
