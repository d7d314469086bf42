# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Lifecycle and parameters: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from types import SimpleNamespace

from test.guards.guard import Guard, edited, returns, value
from test.guards.places import FAULTS, INPUTS, NODE, ROS

LIFECYCLE = (
    Guard(
        "R46",
        FAULTS + "R46_exception_in_configure_leaves_a_node_that_can_be_configured",
        "flashrt_ros.policy_node:PolicyNode.get_logger",
        value(lambda self: SimpleNamespace(**dict.fromkeys(("info", "warning", "error"), lambda text: None))),
    ),
    Guard(
        "R47",
        NODE + "R47_restart_and_invalid_transitions",
        "flashrt_ros.decision:DecisionThread.stop",
        returns(True),
    ),
    Guard(
        "R48",
        FAULTS + "R48_fatal_error_deactivates_the_node",
        "flashrt_ros.policy_node:PolicyNode._deactivate_after_fault",
        returns(None),
    ),
    Guard(
        "R48",
        ROS + "decision_thread.py::test_R48_an_exception_is_reported_once_and_ends_the_thread",
        "flashrt_ros.decision:DecisionThread._main",
        edited("self._on_error(error)", "pass"),
    ),
    Guard(
        "R49",
        FAULTS + "R49_decision_in_flight_is_dropped",
        "flashrt_ros.policy_node:PolicyNode._take_down",
        edited("if not self._stop_deciding():", "self._stop_deciding()\n    if False:"),
    ),
    Guard(
        "R49",
        ROS + "decision_thread.py::test_R49_stop_with_a_decision_in_flight_is_bounded_and_drops_it",
        "flashrt_ros.decision:DecisionThread.start",
        edited("if self.running:", "if False:"),
    ),
    Guard(
        "R51",
        FAULTS + "R51_configure_and_cleanup_leave_nothing",
        "flashrt_ros.outputs:Outputs.close",
        returns(None),
    ),
    Guard(
        "R60",
        INPUTS + "R60_integers_are_numbers_and_scale_applies",
        "flashrt_ros.parameter_table:read_value",
        edited(
            "type(value) not in accepted",
            'type(value) not in accepted or (row.type, type(value)) == ("double", int)',
        ),
    ),
    Guard(
        "R60",
        ROS + "parameters.py::test_R60_an_integer_is_accepted_for_a_double",
        "flashrt_ros.parameter_table:read_value",
        edited("return convert(value)", "return value"),
    ),
    Guard(
        "R61",
        NODE + "R61_two_robots_in_two_namespaces",
        "flashrt_ros.sources:Source.__init__",
        edited("self._asked = topic", 'self._asked = "/" + topic'),
    ),
    Guard(
        "R61",
        ROS + "sources.py::test_R61_remaps_that_swap_two_topics_are_applied_once",
        "flashrt_ros.sources:Source.__init__",
        edited("self._asked = topic", "self._asked = self.topic"),
    ),
    Guard(
        "R61",
        ROS + "parameters.py::test_R61_two_robots_in_one_file_are_told_apart",
        "flashrt_ros.parameter_file:load_parameter_file",
        edited("or len(plain) > 1", ""),
    ),
)
