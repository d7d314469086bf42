# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Chunks and motion: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from typing import Any

from test.guards.guard import Guard, edited, returns, value
from test.guards.places import FAULTS, FOLDERS, INPUTS, KERNELS, OWN, ROS, ROWS


def any_noise(real: Any) -> Any:
    """Noise that nobody can draw again."""

    def noise(seed: int, sequence: int, shape: Any) -> Any:
        import numpy as np

        return np.random.default_rng().standard_normal(shape, np.float32)

    return noise


def holding_the_lock(real: Any) -> Any:
    """`Decider._decide` that nobody can speak to while it computes."""

    def decide(self: Any, *times: Any) -> Any:
        with self._lock:
            return real(self, *times)

    return decide


def only_motion(real: Any) -> Any:
    """`Decider._observe` that waits for motion when there was none for five decisions."""

    states: list[list[float]] = []

    def observe(self: Any, now_ns: int) -> Any:
        from flashrt_ros.observation import NotReady

        observation = real(self, now_ns)
        if isinstance(observation, NotReady):
            return observation
        states.append(observation.state.tolist())
        still = len(states) > 5 and all(state == states[-1] for state in states[-6:])
        return NotReady(("no motion",), ("no motion",)) if still else observation

    return observe


CHUNKS = (
    Guard(
        "R28",
        ROWS + "R28_the_next_chunk_is_computed_while_the_last_is_executed",
        "flashrt_ros.decision:DecisionThread._run_timer",
        edited("self.missed += late", "pass"),
    ),
    Guard(
        "R28",
        ROWS + "R28_the_next_chunk_is_computed_while_the_last_is_executed",
        "flashrt_ros.decision:DecisionThread._run_timer",
        edited("self._step(stop, deadline_ns)", "self._step(stop, deadline_ns)\n        stop.wait(0.4)"),
    ),
    Guard(
        "R28",
        ROS + "decision_thread.py::test_R28_missed_deadlines_are_counted_and_not_made_up_for",
        "flashrt_ros.decision:DecisionThread._run_timer",
        edited("self.missed += late", "pass"),
    ),
    Guard(
        "R29",
        ROS + "commands.py::test_R29_a_robot_that_stood_has_consumed_nothing",
        "flashrt_ros.commands:Commands._consumed",
        returns(10**6),
    ),
    Guard(
        "R44",
        ROS + "commands.py::test_R44_what_was_decided_before_a_stop_is_not_sent_after_it",
        "flashrt_ros.commands:Commands._is_overtaken",
        returns(False),
    ),
    Guard(
        "R48",
        ROS + "commands.py::test_R48_one_group_that_cannot_be_reached_does_not_keep_the_others_moving",
        "flashrt_ros.commands:Commands._for_all",
        edited("errors.append(error)", "raise"),
    ),
    Guard(
        "R40",
        ROS + "commands.py::test_R40_chunks_that_come_while_a_base_stops_do_not_lose_its_zero[decelerate]",
        "flashrt_ros.commands:Commands._take_over",
        edited("self.is_settled() and ", ""),
    ),
    Guard(
        "R7",
        "test/ros/test_policy_node_motion.py::test_R7_input_is_watched_while_a_slow_policy_thinks",
        "flashrt_ros.oversight:Oversight._unwatched",
        returns(""),
    ),
    Guard(
        "R29",
        ROWS + "R29_the_first_chunk_skips_nothing_and_later_ones_what_is_over",
        "flashrt_ros.chunk:steps_consumed",
        returns(0),
    ),
    Guard(
        "R29",
        ROS + "chunk.py::test_R29_consumed_steps_are_whole_steps_of_the_age[0.29-100-29]",
        "flashrt_ros.chunk:steps_consumed",
        returns(0),
    ),
    Guard(
        "R29",
        ROS + "chunk.py::test_R29_first_chunk_skips_nothing",
        "flashrt_ros.chunk:steps_consumed",
        edited("0 if first else max", "max"),
    ),
    Guard(
        "R29",
        ROS + "chunk.py::test_R29_age_and_own_duration_both_count",
        "flashrt_ros.chunk:decision_steps_consumed",
        edited("decision.age_ms + decision.total_ms", "decision.age_ms"),
    ),
    Guard(
        "R29",
        ROS + "decision.py::test_R29_only_the_first_chunk_after_a_flush_skips_nothing",
        "flashrt_ros.decision:Decider._new_epoch",
        edited("self._first = True", "pass"),
    ),
    Guard(
        "R31",
        OWN + "R31_a_run_can_be_repeated_bit_by_bit",
        "flashrt_kernels.observation:seeded_noise",
        any_noise,
    ),
    Guard(
        "R31",
        OWN + "R31_a_run_can_be_repeated_bit_by_bit",
        "flashrt_ros.decision:Decider._decide",
        edited("sequence=sequence\n", "sequence=0\n"),
    ),
    Guard(
        "R31",
        ROS + "decision.py::test_R31_sequence_counts_calls_so_that_noise_differs_per_decision",
        "flashrt_ros.decision:Decider._decide",
        edited("self.sequence + 1", "self.sequence"),
    ),
    Guard(
        "R31",
        KERNELS + "policy_inputs.py::test_R31_same_observation_and_seed",
        "flashrt_kernels.observation:seeded_noise",
        any_noise,
    ),
    Guard(
        "R32",
        ROWS + "R32_a_robot_that_hardly_moves_is_still_decided_for",
        "flashrt_ros.decision:Decider._observe",
        only_motion,
    ),
    Guard(
        "R33",
        OWN + "R33_nothing_of_the_time_before_a_stop_is_used_after_it",
        "flashrt_ros.decision:Decider.flush",
        edited("self._ingest.flush()", "pass"),
    ),
    Guard(
        "R33",
        ROS + "decision.py::test_R33_flush_forgets_samples",
        "flashrt_ros.decision:Decider.flush",
        edited("self._ingest.flush()", "pass"),
    ),
    Guard(
        "R33",
        ROS + "ingest.py::test_R33_flush_forgets_samples_and_keeps_counts",
        "flashrt_ros.ingest:Ingest.flush",
        returns(None),
    ),
    Guard(
        "R33",
        ROS + "decision.py::test_R33_R43_new_instruction_begins_an_epoch",
        "flashrt_ros.decision:Decider._change_instruction",
        edited("self.epoch += 1", "pass"),
    ),
    Guard(
        "R35",
        OWN + "R35_start_log_says_what_the_actions_are",
        "flashrt_ros.running:actions_line",
        returns(" actions: ?"),
    ),
    Guard(
        "R35",
        KERNELS + "policy.py::test_R35_relative_actions_start_from_the_state_of_the_observation",
        "flashrt_kernels.models.flow_policy:FlowPolicy.write_inputs",
        edited("base[relative] = self.units.to_policy(state)[relative]", "pass"),
    ),
    Guard(
        "R35",
        FOLDERS + "processors.py::test_R35_relative_actions_are_read_from_the_steps",
        "flashrt_kernels.checkpoint.processors:_relative_actions",
        edited("return relative_mask(config.action_dim, names, excluded), shown", "return None, shown"),
    ),
    Guard(
        "R35",
        FOLDERS + "processors.py::test_R35_relative_actions_need_a_state_for_every_dimension",
        "flashrt_kernels.checkpoint.processors:_relative_actions",
        edited("config.state_dim < config.action_dim", "False"),
    ),
    Guard(
        "R35",
        FOLDERS + "processors.py::test_R35_exclusion_without_names_has_no_effect_and_is_noted",
        "flashrt_kernels.checkpoint.processors:_relative_actions",
        edited("excluded and names is None", "False"),
    ),
    Guard(
        "R35",
        FOLDERS + "processors.py::test_R35_exclusion_is_a_substring_in_any_case[names3-excluded3-mask3]",
        "flashrt_kernels.checkpoint.processors:relative_mask",
        edited("name.lower()", "name"),
    ),
    Guard(
        "R36",
        FAULTS + "R36_trajectory_that_is_entirely_past_is_not_published",
        "flashrt_ros.motion:JointMotion._due",
        edited("targets[consumed:]", "targets[-1:]"),
    ),
    Guard(
        "R36",
        ROS + "commands.py::test_R36_expired_chunks_are_counted_and_not_sent",
        "flashrt_ros.motion:JointMotion._due",
        edited("targets[consumed:]", "targets[-1:]"),
    ),
    Guard(
        "R42",
        FAULTS + "R42_non_finite_actions_are_never_published",
        "flashrt_ros.chunk:is_finite",
        returns(True),
    ),
    Guard(
        "R42",
        ROS + "chunk.py::test_R42_one_bad_value_rejects_the_chunk",
        "flashrt_ros.chunk:is_finite",
        returns(True),
    ),
    Guard(
        "R42",
        ROS + "decision.py::test_R42_not_finite_actions_are_rejected_naming_the_joint",
        "flashrt_ros.chunk:is_finite",
        returns(True),
    ),
    Guard(
        "R42",
        KERNELS + "parity_pi0_fast.py::test_R42_a_text_without_actions_is_no_chunk",
        "flashrt_kernels.models.pi0_fast:Pi0Fast.read",
        edited("if problem:", "if problem:\n        return np.zeros(shape, np.float32)\n    if False:"),
    ),
    Guard(
        "R43",
        ROWS + "R43_R44_R50_a_result_for_the_old_task_is_dropped",
        "flashrt_ros.chunk:chunk_fields",
        edited("instruction=decision.instruction", 'instruction=""'),
    ),
    Guard(
        "R43",
        INPUTS + "R26_instruction_from_the_topic_replaces_the_parameter",
        "flashrt_ros.chunk:chunk_fields",
        edited("instruction=decision.instruction", 'instruction=""'),
    ),
    Guard(
        "R43",
        ROS + "chunk.py::test_R43_R24_ages_and_skew_of_an_observation",
        "flashrt_ros.observation:Observation.ages_ms",
        value({}),
    ),
    Guard(
        "R43",
        ROS + "decision.py::test_R33_R43_new_instruction_begins_an_epoch",
        "flashrt_ros.decision:Decider._change_instruction",
        edited("self._instruction, self._pending = self._pending, None", "self._pending = None"),
    ),
    Guard(
        "R44",
        ROWS + "R43_R44_R50_a_result_for_the_old_task_is_dropped",
        "flashrt_ros.decision:Decider._change_instruction",
        edited("self.epoch += 1", "pass"),
    ),
    Guard(
        "R44",
        ROS + "decision.py::test_R44_result_of_an_old_epoch_is_dropped",
        "flashrt_ros.decision:Decider._decide",
        edited("if epoch != self.epoch:", "if False:"),
    ),
    Guard(
        "R44",
        ROS + "decision.py::test_R44_nothing_old_is_sent_between_decision_and_publishing",
        "flashrt_ros.decision:Decider.publish",
        edited("if decision.epoch != self.epoch:", "if False:"),
    ),
    Guard(
        "R50",
        ROWS + "R43_R44_R50_a_result_for_the_old_task_is_dropped",
        "flashrt_ros.decision:Decider._decide",
        holding_the_lock,
    ),
    Guard(
        "R35",
        FOLDERS + "processors.py::test_R35_config_alone_does_not_make_actions_relative",
        "flashrt_kernels.checkpoint.processors:_relative_actions",
        edited("if not enabled:", "if False:"),
    ),
)
