# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The motion of joints and its limits: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from test.guards.guard import Guard, gives, returns, value
from test.guards.places import MOTION, ROS


def ending(end: str) -> Callable[[Any], Any]:
    """`JointMotion._limit` with an end velocity of its own."""

    def off(real: Any) -> Any:
        from flashrt_ros.limits import limit

        return lambda self, position, velocity, rows: limit(
            position,
            velocity,
            rows,
            self.dt_s,
            self.limits,
            end,  # type: ignore[arg-type]
        )

    return off


def unlimited(real: Any) -> Any:
    """`JointMotion._limit` without limits."""
    from flashrt_ros.limits import JointLimits, limit

    return lambda self, position, velocity, rows: limit(
        position, velocity, rows, self.dt_s, JointLimits.off(self.names), self._end_velocity
    )


def at_rest(real: Any) -> Any:
    """`knot_velocities` that stands at every knot."""
    return lambda positions, dt, v0, end: 0.0 * positions


def stop_and_go(real: Any) -> Any:
    """`JointMotion._limit` that stands at every knot."""

    def limit(*arguments: Any) -> Any:
        limited = real(*arguments)
        return replace(limited, velocities=0.0 * limited.velocities)

    return limit


def from_measured(real: Any) -> Any:
    """`JointMotion._start` where the robot is measured."""
    return lambda self, active, now_ns, measured: (measured, 0.0 * measured)


def late_brakes(real: Any) -> Any:
    """`brake_times` that takes all the time there is, whatever limit is near."""
    return lambda position, velocity, lower, upper, max_velocity, step_s, within_s, share=0.5: (
        0.0 * position + within_s
    )


def all_good(real: Any) -> Any:
    """`violations` that finds none."""
    return lambda positions, velocities, dt, limits: np.zeros(positions.shape[1], bool)


def no_stops(real: Any) -> Any:
    """`_stops` of joints that never need to brake within a step."""
    return lambda position, velocity, dt, limits: real(position, 0.0 * velocity, dt, limits)


def commits_all(real: Any) -> Any:
    """`JointMotion.commit` that takes any plan."""

    def commit(self: Any, planned: Any) -> bool:
        self._command(planned.trajectory)
        return True

    return commit


JOINT_MOTION = "flashrt_ros.motion:JointMotion."
LIMIT_TESTS = ROS + "limits.py::test_R41_"

MOTIONS = (
    Guard("R30", MOTION + "R30_seam_is_blended_out", JOINT_MOTION + "_blend", gives(1)),
    Guard(
        "R30",
        ROS + "motion.py::test_R30_offset_at_the_seam_is_blended_out",
        JOINT_MOTION + "_blend",
        gives(1),
    ),
    Guard(
        "R30", ROS + "motion.py::test_R30_a_chunk_shorter_than_the_blend", JOINT_MOTION + "_blend", gives(1)
    ),
    Guard("R33", ROS + "motion.py::test_R33_reset_forgets", JOINT_MOTION + "reset", returns(None)),
    Guard(
        "R36",
        ROS + "motion.py::test_R36_a_chunk_in_the_past_is_nothing",
        JOINT_MOTION + "_due",
        value(lambda self, targets, consumed: targets[-1:]),
    ),
    Guard(
        "R37",
        MOTION + "R37_R38_a_long_way_is_one_smooth_motion_to_a_rest",
        JOINT_MOTION + "_limit",
        stop_and_go,
    ),
    Guard(
        "R37",
        ROS + "motion.py::test_R37_position_and_velocity_are_continuous_across_seams",
        JOINT_MOTION + "_start",
        from_measured,
    ),
    Guard(
        "R37",
        ROS + "motion.py::test_R37_velocity_does_not_dip_at_the_points",
        "flashrt_ros.limits:knot_velocities",
        at_rest,
    ),
    Guard(
        "R38",
        MOTION + "R37_R38_a_long_way_is_one_smooth_motion_to_a_rest",
        JOINT_MOTION + "_limit",
        ending("free"),
    ),
    Guard(
        "R38",
        ROS + "motion.py::test_R38_by_default_the_last_velocity_is_zero",
        JOINT_MOTION + "_limit",
        ending("free"),
    ),
    Guard(
        "R38", ROS + "motion.py::test_R38_free_ends_keep_their_speed", JOINT_MOTION + "_limit", ending("zero")
    ),
    Guard(
        "R39",
        ROS + "motion.py::test_R39_lag_is_commanded_minus_measured",
        JOINT_MOTION + "lag",
        value(lambda self, measured, now_ns: 0.0 * measured),
    ),
    Guard(
        "R40",
        ROS + "motion_stop.py::test_R40_stop_brings_the_robot_to_rest_in_time_and_within_limits",
        JOINT_MOTION + "stop",
        returns(None),
    ),
    Guard(
        "R40",
        ROS + "motion_stop.py::test_R40_stop_just_before_a_limit",
        "flashrt_ros.motion:brake_times",
        late_brakes,
    ),
    Guard(
        "R40",
        ROS + "motion_stop.py::test_R40_a_plan_made_before_the_stop_is_void",
        JOINT_MOTION + "commit",
        commits_all,
    ),
    Guard(
        "R41",
        MOTION + "R30_R37_R38_R41_chunks_that_contradict_each_other_become_one_motion",
        JOINT_MOTION + "_limit",
        unlimited,
    ),
    Guard("R41", MOTION + "R41_a_jump_is_refused", JOINT_MOTION + "_check_jump", returns(None)),
    Guard(
        "R41",
        ROS + "motion_limits.py::test_R41_a_jump_is_refused_with_the_numbers",
        JOINT_MOTION + "_check_jump",
        returns(None),
    ),
    Guard(
        "R41",
        ROS + "motion_limits.py::test_R41_limits_hold_in_the_controller_whatever_the_policy_wants",
        JOINT_MOTION + "_limit",
        unlimited,
    ),
    Guard(
        "R41",
        ROS + "motion_limits.py::test_R41_a_robot_measured_outside_comes_back",
        JOINT_MOTION + "_limit",
        unlimited,
    ),
    Guard(
        "R41",
        ROS + "motion_limits.py::test_R41_clipped_targets_are_reported",
        JOINT_MOTION + "_limit",
        unlimited,
    ),
    Guard(
        "R41",
        ROS + "motion_limits.py::test_R41_a_plan_in_the_middle_of_a_step_that_ends_at_a_limit",
        "flashrt_ros.limits:_stops",
        no_stops,
    ),
    Guard("R41", LIMIT_TESTS + "between_the_knots_too", "flashrt_ros.limits:violations", all_good),
    Guard(
        "R41", LIMIT_TESTS + "random_targets_from_a_state_inside", "flashrt_ros.limits:violations", all_good
    ),
    Guard(
        "R41",
        LIMIT_TESTS + "a_start_outside_comes_back_and_never_gets_worse",
        "flashrt_ros.limits:violations",
        all_good,
    ),
    Guard(
        "R41",
        LIMIT_TESTS + "moving_outwards_outside_stops_at_once",
        "flashrt_ros.limits:violations",
        all_good,
    ),
    Guard(
        "R42",
        ROS + "motion_limits.py::test_R42_not_finite_targets_are_refused_before_any_clip",
        JOINT_MOTION + "_check_finite",
        returns(None),
    ),
)
