# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Poses, rates, action spaces, messages of commands: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from test.guards.guard import Guard, edited, gives, returns, value
from test.guards.places import ROS

CARTESIAN = ROS + "cartesian.py::"
RATES = ROS + "rates.py::"
SPACES_TESTS = ROS + "spaces.py::"
COMMAND_MESSAGES = ROS + "command_messages.py::"


def keep_pose(real: Any) -> Any:
    """Stop actions of poses that go on."""
    return {**real, **dict.fromkeys(("hold", "decelerate"), lambda motion, current, now_ns, stop_s: current)}


def nameless(output: str) -> Callable[[Any], Any]:
    """A table of messages in which those of one output name no joints."""

    def off(real: Any) -> Any:
        def build(group: Any, command: Any) -> Any:
            message = real[output].build(group, command)
            if output == "joint_state":
                message.name = []
            else:
                message.layout.dim[0].label = ""
            return message

        return {**real, output: replace(real[output], build=build)}

    return off


def base_command(real: Any) -> Any:
    """`PoseMotion._command` that does not remember what was sent."""
    from flashrt_ros.planned import Motion

    return Motion._command


def rate_goes_on(real: Any) -> Any:
    """Stop actions of rates that go on."""
    from flashrt_ros.rates import RatePlan

    def go(rates: Any, now_ns: int, stop_s: float) -> Any:
        return RatePlan(np.array([now_ns], np.int64), 0, rates[None])

    return dict.fromkeys(("hold", "decelerate"), go)


def rates_go_on(real: Any) -> Any:
    """`_ending` that keeps the last rate."""
    return lambda rates: np.concatenate([rates, rates[-1:]])


def no_turn_is_a_turn(real: Any) -> Any:
    """A table of rotations in which a quaternion of length 0 is one."""

    def quaternion(values: Any) -> Any:
        good = np.linalg.norm(values, axis=-1, keepdims=True) > 0
        return real["quaternion"](np.where(good, values, [0.0, 0.0, 0.0, 1.0]))

    return {**real, "quaternion": quaternion}


SPACES = (
    Guard(
        "R14",
        COMMAND_MESSAGES + "test_R14_trajectory_names_its_joints_and_skips_the_commanded_knot",
        "flashrt_ros.command_messages:TrajectoryMessage.__init__",
        edited("joint_names=list(group.names)", "joint_names=[]"),
    ),
    Guard(
        "R14",
        COMMAND_MESSAGES + "test_R14_joint_state_names_its_joints",
        "flashrt_ros.command_messages:MESSAGES",
        nameless("joint_state"),
    ),
    Guard(
        "R14",
        COMMAND_MESSAGES + "test_R14_array_is_labelled_with_the_joints",
        "flashrt_ros.command_messages:MESSAGES",
        nameless("array"),
    ),
    Guard(
        "R17",
        SPACES_TESTS + "test_R17_increments_and_velocities_have_no_offset",
        "flashrt_ros.spaces:_OFFSET_FREE",
        value(()),
    ),
    Guard(
        "R30",
        CARTESIAN + "test_R30_first_step_of_a_seam_follows_the_commanded_motion",
        "flashrt_ros.pose_path:blended",
        gives(0),
    ),
    Guard(
        "R30",
        CARTESIAN + "test_R30_seam_of_poses_is_continuous_and_bounded",
        "flashrt_ros.pose_path:blended",
        gives(0),
    ),
    Guard(
        "R30",
        CARTESIAN + "test_R30_begins_at_the_commanded_pose_and_not_at_the_measured_one",
        "flashrt_ros.cartesian:_start",
        gives(2),
    ),
    Guard(
        "R30",
        CARTESIAN + "test_quaternion_signs_never_make_it_turn_the_long_way",
        "flashrt_ros.rotations:continuous",
        gives(0),
    ),
    Guard(
        "R33",
        CARTESIAN + "test_R33_reset_forgets_the_chunk_and_voids_plans",
        "flashrt_ros.planned:Motion._is_stale",
        returns(False),
    ),
    Guard(
        "R33",
        CARTESIAN + "test_R33_reset_forgets_the_chunk_and_voids_plans",
        "flashrt_ros.cartesian:PoseMotion._after_reset",
        gives(1),
    ),
    Guard(
        "R33",
        RATES + "test_R33_reset_is_standing_still_and_voids_plans",
        "flashrt_ros.planned:Motion._is_stale",
        returns(False),
    ),
    Guard(
        "R33",
        RATES + "test_R33_reset_is_standing_still_and_voids_plans",
        "flashrt_ros.rates:RateMotion._after_reset",
        gives(1),
    ),
    Guard(
        "R35",
        SPACES_TESTS + "test_R35_start_log_says_what_the_actions_are_taken_for",
        "flashrt_ros.spaces:describe",
        returns([]),
    ),
    Guard("R35", SPACES_TESTS + "test_R35_every_space_has_words", "flashrt_ros.spaces:_meaning", returns("")),
    Guard(
        "R35", SPACES_TESTS + "test_R35_increments_become_targets", "flashrt_ros.spaces:absolute", gives(0)
    ),
    Guard(
        "R36",
        CARTESIAN + "test_R36_a_chunk_that_is_past_gives_no_plan",
        "flashrt_ros.cartesian:PoseMotion.plan",
        edited(
            "if is_past(len(rows), consumed):\n        return None", "consumed = min(consumed, len(rows) - 1)"
        ),
    ),
    Guard(
        "R36",
        RATES + "test_R36_rates_that_are_past_give_no_plan",
        "flashrt_ros.planned:is_past",
        returns(False),
    ),
    Guard(
        "R40",
        CARTESIAN + "test_R40_hold_is_the_commanded_pose_at_once",
        "flashrt_ros.cartesian:_POSE_STOPS",
        keep_pose,
    ),
    Guard(
        "R40",
        CARTESIAN + "test_R40_decelerate_is_at_rest_within_stop_time",
        "flashrt_ros.cartesian:_POSE_STOPS",
        keep_pose,
    ),
    Guard(
        "R40",
        CARTESIAN + "test_R40_decelerate_stays_in_the_workspace",
        "flashrt_ros.pose_path:clamped",
        gives(0),
    ),
    Guard(
        "R40",
        CARTESIAN + "test_R40_stop_after_a_reset_ends_what_was_sent",
        "flashrt_ros.cartesian:PoseMotion._command",
        base_command,
    ),
    Guard(
        "R40",
        CARTESIAN + "test_R40_hold_is_the_commanded_pose_at_once",
        "flashrt_ros.planned:Motion._is_stale",
        returns(False),
    ),
    Guard("R40", RATES + "test_R40_hold_is_no_velocity_at_once", "flashrt_ros.rates:_STOPS", rate_goes_on),
    Guard(
        "R40",
        RATES + "test_R40_decelerate_ramps_down_to_zero_within_stop_time",
        "flashrt_ros.rates:_STOPS",
        rate_goes_on,
    ),
    Guard("R40", RATES + "test_rates_are_zero_after_the_chunk", "flashrt_ros.rates:_ending", rates_go_on),
    Guard(
        "R41",
        CARTESIAN + "test_R41_workspace_and_speeds_hold_at_every_moment",
        "flashrt_ros.cartesian:PoseMotion._limit",
        gives(1),
    ),
    Guard("R41", CARTESIAN + "test_R41_workspace_is_never_left", "flashrt_ros.pose_path:clamped", gives(0)),
    Guard("R41", CARTESIAN + "test_R41_speeds_bound_each_step", "flashrt_ros.pose_path:slowed", gives(0)),
    Guard(
        "R41",
        CARTESIAN + "test_R41_outside_of_the_workspace_it_comes_back_slowly",
        "flashrt_ros.cartesian:_including",
        gives(0),
    ),
    Guard(
        "R41",
        CARTESIAN + "test_R41_a_chunk_that_begins_far_away_is_refused",
        "flashrt_ros.pose_path:jump",
        returns(None),
    ),
    Guard(
        "R41",
        RATES + "test_R41_speed_limits_hold_and_keep_the_direction",
        "flashrt_ros.rates:RateMotion._limit",
        gives(1),
    ),
    Guard(
        "R41",
        RATES + "test_R41_what_limits_changed_is_counted",
        "flashrt_ros.rates:RateMotion._limit",
        gives(1),
    ),
    Guard(
        "R41",
        SPACES_TESTS + "test_R41_all_missing_limits_are_listed_at_once",
        "flashrt_ros.spaces:_missing_limits",
        returns([]),
    ),
    Guard(
        "R41",
        SPACES_TESTS + "test_R41_limits_that_are_given_or_off_pass",
        "flashrt_ros.spaces:_missing_limits",
        returns([]),
    ),
    Guard(
        "R42",
        CARTESIAN + "test_R42_non_finite_pose_is_refused_before_anything_clips_it",
        "flashrt_ros.planned:check_finite",
        returns(None),
    ),
    Guard(
        "R42",
        RATES + "test_R42_non_finite_rates_are_refused",
        "flashrt_ros.planned:check_finite",
        returns(None),
    ),
    Guard(
        "R42",
        CARTESIAN + "test_R42_numbers_that_are_no_rotation_are_refused",
        "flashrt_ros.rotations:_FROM",
        no_turn_is_a_turn,
    ),
    Guard(
        "R56",
        SPACES_TESTS + "test_R56_other_groups_than_the_checkpoints_are_refused",
        "flashrt_ros.spaces:_match",
        returns(None),
    ),
    Guard(
        "R56",
        SPACES_TESTS + "test_R56_every_column_needs_a_group",
        "flashrt_ros.parameters:_check_width",
        returns(None),
    ),
)
