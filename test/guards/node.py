# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Stopping, latching and the one way to the robot: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from test.guards.guard import Guard, edited, returns
from test.guards.places import MOTION, ROS

COMMANDS, SAFETY, DECISION = (ROS + f"{name}.py::test_" for name in ("commands", "safety", "decision"))
POLICY_NODE = "flashrt_ros.policy_node:PolicyNode."
OVERSIGHT = "flashrt_ros.oversight:Oversight."
OPEN = edited("closed = self.safety.closed(now_ns)", 'closed = ""')

NODE_GUARDS = (
    Guard(
        "R7",
        MOTION + "R7_R40_stale_input_stops_the_robot[camera]",
        "flashrt_ros.safety:stops_robot",
        returns(False),
    ),
    Guard(
        "R7",
        SAFETY + "R7_R42_only_the_end_of_an_epoch_does_not_stop_the_robot_again",
        "flashrt_ros.safety:stops_robot",
        returns(False),
    ),
    Guard("R33", MOTION + "R33_R43_new_instruction[flush]", OVERSIGHT + "epoch_over", returns(None)),
    Guard(
        "R33",
        DECISION + "R33_the_end_of_an_epoch_is_told_so_that_the_robot_stops",
        "flashrt_ros.decision:Decider._new_epoch",
        edited("self._on_epoch(reason)", "pass"),
    ),
    Guard(
        "R33",
        DECISION + "R33_the_end_of_an_epoch_is_told_so_that_the_robot_stops",
        "flashrt_ros.decision:Decider._change_instruction",
        edited('self._on_epoch("a new instruction")', "pass"),
    ),
    Guard(
        "R39",
        MOTION + "R39_servo_lag_is_in_the_diagnostics",
        "flashrt_ros.health:_motion_facts",
        edited("lag=commands.lag", "lag={}"),
    ),
    Guard(
        "R39",
        COMMANDS + "R39_servo_lag_is_reported_per_joint",
        "flashrt_ros.commands:Commands._look",
        edited("lag |= channel", "channel"),
    ),
    Guard(
        "R40",
        MOTION + "R40_deactivate_stops_a_moving_robot_first",
        "flashrt_ros.commands:Commands._stop_channel",
        returns(None),
    ),
    Guard(
        "R40",
        MOTION + "R40_deactivate_stops_a_moving_robot_first",
        POLICY_NODE + "on_deactivate",
        edited("@transition\n", "", "self._stop_deciding()", "pass"),
    ),
    Guard(
        "R40",
        MOTION + "R40_deadman_that_is_released_stops_the_robot",
        "flashrt_ros.safety:Safety._not_enabled",
        edited("age_s > self._timeout_s", "False"),
    ),
    Guard(
        "R40",
        MOTION + "R7_R40_stale_input_stops_the_robot[joints]",
        OVERSIGHT + "skipped",
        edited("if running.commands.stop(reason, time.monotonic_ns()):", "if False:"),
    ),
    Guard(
        "R40",
        MOTION + "R40_SIGTERM_stops_a_moving_robot_and_ends_cleanly",
        "flashrt_ros.commands:Commands._stop_channel",
        returns(None),
    ),
    Guard(
        "R40",
        COMMANDS + "R40_stop_is_sent_at_once_and_once",
        "flashrt_ros.commands:Commands._stop_channel",
        returns(None),
    ),
    Guard(
        "R40",
        COMMANDS + "R40_decelerate_takes_stop_time",
        "flashrt_ros.commands:STOPS",
        lambda real: {**real, "decelerate": "hold"},
    ),
    Guard(
        "R40",
        COMMANDS + "R40_enable_that_goes_away_stops_within_a_tick",
        "flashrt_ros.commands:Commands.tick",
        OPEN,
    ),
    Guard(
        "R40",
        COMMANDS + "R40_a_chunk_while_closed_stops_a_robot_that_still_moves",
        "flashrt_ros.commands:Commands.accept",
        edited("self._stop(closed, now_ns)", "pass"),
    ),
    Guard(
        "R40",
        SAFETY + "R40_enable_is_a_deadman",
        "flashrt_ros.safety:Safety._not_enabled",
        edited("age_s > self._timeout_s", "False"),
    ),
    Guard(
        "R41",
        MOTION + "R41_limits_are_on_by_default",
        "flashrt_ros.channels:joint_limits",
        edited("if bare and config.limits:", "if False:"),
    ),
    Guard(
        "R41",
        COMMANDS + "R41_limits_must_be_known[change0-no limits for a: write joint]",
        "flashrt_ros.channels:joint_limits",
        edited("if bare and config.limits:", "if False:"),
    ),
    Guard(
        "R41",
        COMMANDS + "R41_limits_come_from_the_robot_description_too",
        "flashrt_ros.channels:_completed",
        edited("upper if joint.max is None else joint.max", "upper"),
    ),
    Guard(
        "R41",
        COMMANDS + "R41_a_jump_is_refused_and_repeated_jumps_latch",
        "flashrt_ros.commands:Commands._refuse",
        edited("self.safety.refused(refused.reason)", "pass"),
    ),
    Guard(
        "R41", COMMANDS + "R41_a_storm_of_limits_stops_the_robot", "flashrt_ros.commands:Commands.tick", OPEN
    ),
    Guard(
        "R41",
        SAFETY + "R41_a_storm_of_limits_latches",
        "flashrt_ros.safety:Safety.accepted",
        edited("if limited else 0", ""),
    ),
    Guard(
        "R42",
        MOTION + "R42_bad_chunks_stop_the_robot_and_latch",
        "flashrt_ros.safety:Safety.refused",
        returns(None),
    ),
    Guard(
        "R42",
        MOTION + "R42_bad_chunks_stop_the_robot_and_latch",
        OVERSIGHT + "skipped",
        edited("if running.commands.stop(reason, time.monotonic_ns()):", "if False:"),
    ),
    Guard(
        "R42",
        SAFETY + "R42_refused_chunks_in_a_row_latch",
        "flashrt_ros.safety:Safety.accepted",
        edited("self._refused = 0", "pass"),
    ),
    Guard(
        "R43",
        MOTION + "R33_R43_new_instruction[finish_chunk]",
        "flashrt_ros.decision:DecisionThread._step",
        edited("if self._decider.holding:", "if False:"),
    ),
    Guard(
        "R43",
        DECISION + "R43_finish_chunk_keeps_the_instruction_until_the_chunk_has_ended",
        "flashrt_ros.decision:Decider.set_instruction",
        edited('self._config.instruction_policy == "flush"', "True"),
    ),
    Guard(
        "R43",
        DECISION + "R43_flush_changes_the_instruction_at_once",
        "flashrt_ros.decision:Decider.set_instruction",
        edited('self._config.instruction_policy == "flush"', "False"),
    ),
    Guard(
        "R43",
        ROS + "decision_thread.py::test_R43_nothing_is_decided_while_an_instruction_waits",
        "flashrt_ros.decision:DecisionThread._step",
        edited("if self._decider.holding:", "if False:"),
    ),
    Guard(
        "R45",
        MOTION + "R45_every_motion_goes_through_the_checked_path",
        "flashrt_ros.safety:Safety.closed",
        returns(""),
    ),
    Guard(
        "R45",
        COMMANDS + "R45_all_groups_or_none",
        "flashrt_ros.commands:Commands._plan",
        edited(
            "return Refused(proposal.kind, f\"group '{channel.group.name}': {proposal.reason}{hint}\")",
            "continue",
        ),
    ),
    Guard(
        "R45",
        COMMANDS + "R45_dry_run_and_shadow_send_nothing",
        "flashrt_ros.safety:Safety.closed",
        returns(""),
    ),
    Guard(
        "R45",
        SAFETY + "R45_nothing_moves_before_somebody_enables_it",
        "flashrt_ros.safety:Safety._not_enabled",
        edited(
            "self._enabled is None",
            "False",
            "value, came_ns = self._enabled",
            "value, came_ns = self._enabled or (True, now_ns)",
        ),
    ),
    Guard(
        "R48",
        MOTION + "R48_exception_of_the_policy_stops_the_robot",
        OVERSIGHT + "failed",
        edited("self.epoch_over(", "str("),
    ),
    Guard(
        "R48",
        MOTION + "R48_death_of_the_decision_thread_stops_the_robot",
        OVERSIGHT + "alarm",
        returns(""),
    ),
)
