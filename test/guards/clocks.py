# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Time, synchronisation and QoS: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from test.guards.guard import Guard, edited, returns, value
from test.guards.places import FAULTS, INPUTS, KERNELS, OWN, ROS, ROWS


def wall_clock(real: Any) -> Any:
    """The module `time`, whose monotonic clock is the wall clock."""
    return SimpleNamespace(monotonic_ns=lambda: real.time_ns(), time_ns=lambda: real.time_ns())


CLOCKS = (
    Guard(
        "R19",
        ROWS + "R19_zero_stamps_count_from_arrival",
        "flashrt_ros.freshness:choose_stamp",
        edited("stamped_ns == 0", "False"),
    ),
    Guard(
        "R19",
        ROWS + "R19_zero_stamps_count_from_arrival",
        "flashrt_ros.freshness:EdgeWarnings.fault",
        edited("last_ns is None or", "True or"),
    ),
    Guard(
        "R19",
        ROS + "freshness.py::test_R19_zero_stamps_fall_back_to_arrival",
        "flashrt_ros.freshness:choose_stamp",
        edited("stamped_ns == 0", "False"),
    ),
    Guard(
        "R19",
        ROS + "ingest.py::test_R19_R21_stamps_that_cannot_be_believed",
        "flashrt_ros.freshness:choose_stamp",
        edited("stamped_ns == 0", "False"),
    ),
    Guard(
        "R20",
        OWN + "R20_simulator_that_restarts_voids_what_was",
        "flashrt_ros.freshness:went_back",
        returns(False),
    ),
    Guard(
        "R20",
        OWN + "R20_simulator_that_restarts_voids_what_was",
        "flashrt_ros.decision:Decider._notice_clock_jump",
        returns(None),
    ),
    Guard(
        "R20",
        ROS + "decision.py::test_R20_clock_jump_begins_an_epoch",
        "flashrt_ros.decision:Decider._notice_clock_jump",
        returns(None),
    ),
    Guard(
        "R20", ROS + "ingest.py::test_R20_clock_jumps_back", "flashrt_ros.freshness:went_back", returns(False)
    ),
    Guard(
        "R20",
        ROS + "freshness.py::test_R20_only_a_real_jump_is_a_jump",
        "flashrt_ros.freshness:went_back",
        edited("> CLOCK_TOLERANCE_NS", "> 0"),
    ),
    Guard(
        "R20",
        ROS + "inputs.py::test_R20_a_slow_or_paused_simulator_is_no_clock_that_goes_back[0.2]",
        "flashrt_ros.inputs:simulated_arrival_ns",
        edited("wall_0 >= wall or", "True or"),
    ),
    Guard(
        "R20",
        ROS + "inputs.py::test_R20_after_a_jump_only_the_newer_reading_counts",
        "flashrt_ros.inputs:simulated_arrival_ns",
        edited("simulated_0 > simulated", "False"),
    ),
    Guard(
        "R21",
        ROWS + "R21_a_camera_from_the_future_is_not_fresh_for_ever",
        "flashrt_ros.freshness:choose_stamp",
        edited("ahead_ns > CLOCK_TOLERANCE_NS", "False"),
    ),
    Guard(
        "R21",
        ROS + "freshness.py::test_R21_future_stamps_are_never_fresh_for_ever",
        "flashrt_ros.freshness:choose_stamp",
        edited("ahead_ns > CLOCK_TOLERANCE_NS", "False"),
    ),
    Guard(
        "R21",
        ROS + "freshness.py::test_R21_stamps_slightly_ahead_are_no_fault",
        "flashrt_ros.freshness:choose_stamp",
        edited('stamp_source == "header"', "False", "> CLOCK_TOLERANCE_NS", "> 0"),
    ),
    Guard(
        "R21",
        ROS + "ingest.py::test_R19_R21_stamps_that_cannot_be_believed",
        "flashrt_ros.freshness:choose_stamp",
        edited("ahead_ns > CLOCK_TOLERANCE_NS", "False"),
    ),
    Guard(
        "R22",
        INPUTS + "R22_simulated_time_without_clock_is_said",
        "flashrt_ros.health:Health._missing_clock",
        returns(None),
    ),
    Guard(
        "R23", ROWS + "R23_a_step_of_the_wall_clock_moves_nothing", "flashrt_ros.decision:time", wall_clock
    ),
    Guard(
        "R24",
        OWN + "R24_sources_of_different_moments_are_no_observation",
        "flashrt_ros.ingest:Ingest._observation",
        edited("0.0 < self._config.max_skew * 1e3 < observation.skew_ms", "False"),
    ),
    Guard(
        "R24",
        ROS + "ingest.py::test_R24_skew_between_sources_is_bounded",
        "flashrt_ros.ingest:Ingest._observation",
        edited("0.0 < self._config.max_skew * 1e3 < observation.skew_ms", "False"),
    ),
    Guard(
        "R24",
        ROS + "chunk.py::test_R43_R24_ages_and_skew_of_an_observation",
        "flashrt_ros.observation:Observation.skew_ms",
        value(0.0),
    ),
    Guard(
        "R25",
        FAULTS + "R25_incompatible_publisher_is_an_error_before_anything_moves",
        "flashrt_ros.sources:Source.conflicts",
        returns([]),
    ),
    Guard(
        "R25",
        ROS + "sources.py::test_R25_incompatible_qos_names_both_sides",
        "flashrt_ros.sources:Source.conflicts",
        edited("{offered}; this node asks {asked}", "other QoS"),
    ),
    Guard(
        "R26",
        INPUTS + "R26_instruction_from_the_topic_replaces_the_parameter",
        "flashrt_ros.inputs:InstructionTopic.__init__",
        edited('("volatile", DurabilityPolicy.VOLATILE),', ""),
    ),
    Guard(
        "R26",
        ROS + "sources.py::test_R26_latched_and_volatile_instructions_arrive_once",
        "flashrt_ros.inputs:InstructionTopic.__init__",
        edited('("latched", DurabilityPolicy.TRANSIENT_LOCAL),', ""),
    ),
    Guard(
        "R26",
        ROS + "sources.py::test_R26_latched_and_volatile_instructions_arrive_once",
        "flashrt_ros.inputs:InstructionTopic._receive",
        edited("if sample in self._seen:", "if False:"),
    ),
    Guard(
        "R27",
        INPUTS + "R27_optional_camera_may_be_missing",
        "flashrt_ros.ingest:Ingest._reasons",
        edited("if camera.config.required:", "if True:"),
    ),
    Guard(
        "R27",
        ROS + "ingest.py::test_R27_optional_camera_is_masked_when_it_is_missing",
        "flashrt_ros.ingest:Ingest._reasons",
        edited("if camera.config.required:", "if True:"),
    ),
    Guard(
        "R27",
        ROS + "ingest.py::test_R15_R27_reasons_name_what_is_missing",
        "flashrt_ros.camera_input:CameraInput.reasons",
        returns([]),
    ),
    Guard(
        "R27",
        KERNELS + "policy.py::test_R27_missing_camera_is_masked_as_in_training",
        "flashrt_kernels.policy:Policy._write_images",
        edited("frame is not None", "True"),
    ),
)
