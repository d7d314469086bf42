# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Checkpoints and their binding: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from test.guards.guard import Guard, edited, returns
from test.guards.places import FAULTS, FOLDERS, KERNELS, ROS

CHECKPOINTS = (
    Guard(
        "R54",
        KERNELS + "policy.py::test_R54_description_points_at_joints_that_never_moved_in_training",
        "flashrt_kernels.checkpoint.normaliser:Normaliser.describe",
        edited("if i in self.zero_range", "if False"),
    ),
    Guard(
        "R54",
        FOLDERS + "normaliser.py::test_R54_zero_range_is_recorded_and_finite[QUANTILES]",
        "flashrt_kernels.checkpoint.normaliser:make_normaliser",
        edited("span = np.where(span == 0, epsilon, span)", "pass"),
    ),
    Guard(
        "R54",
        FOLDERS + "normaliser.py::test_R54_bad_statistics_are_named[NaN]",
        "flashrt_kernels.checkpoint.normaliser:_check_finite",
        returns(None),
    ),
    Guard(
        "R54",
        FOLDERS + "normaliser.py::test_R54_files_with_bad_statistics_refuse_to_load",
        "flashrt_kernels.checkpoint.normaliser:_checked",
        edited(
            "if missing:",
            'if missing:\n        stats = {name: stats["q01"] + 1 for name in MODES[mode]}\n    if False:',
        ),
    ),
    Guard(
        "R55",
        FOLDERS + "lerobot.py::test_R55_keys_do_not_match_lists_all_kinds_at_once",
        "flashrt_kernels.checkpoint.tensors:misfit",
        edited(
            "for kind, names in problems.items() if names",
            "for kind, names in list(problems.items())[:1] if names",
        ),
    ),
    Guard(
        "R55",
        FOLDERS + "lerobot.py::test_R55_long_lists_are_complete_and_grouped",
        "flashrt_kernels.checkpoint.tensors:complete",
        edited("groups.items()]", "[*groups.items()][:5]]"),
    ),
    Guard(
        "R55",
        FOLDERS + "lerobot.py::test_R55_all_non_finite_tensors_are_listed",
        "flashrt_kernels.checkpoint.tensors:check_finite",
        returns(None),
    ),
    Guard(
        "R56",
        FOLDERS + "lerobot.py::test_R56_wrong_dims_or_processor[action width]",
        "flashrt_kernels.checkpoint.tensors:match",
        edited("tuple(tensor.shape) != specs[name].shape", "False"),
    ),
    Guard(
        "R56",
        FOLDERS + "lerobot.py::test_R56_wrong_dims_or_processor[processor]",
        "flashrt_kernels.checkpoint.processors:_read_steps",
        edited("if name not in order:", "if name not in order:\n            continue\n        if False:"),
    ),
    Guard(
        "R57",
        FAULTS + "R57_bad_configuration_is_refused_in_one_line[cameras-]",
        "flashrt_ros.parameters:NodeConfig._bind_cameras",
        edited("set camera.{camera.name}.slot. {both}", "no"),
    ),
    Guard(
        "R57",
        ROS + "parameters.py::test_R57_unknown_slot_lists_both_sides",
        "flashrt_ros.parameters:NodeConfig._bind_cameras",
        edited("set camera.{camera.name}.slot. {both}", "no"),
    ),
    Guard(
        "R57",
        ROS + "parameters.py::test_R57_two_cameras_on_one_slot_are_refused",
        "flashrt_ros.parameters:NodeConfig._bind_cameras",
        edited("if slot in filled:", "if False:"),
    ),
    Guard(
        "R57",
        ROS + "parameters.py::test_R57_unfilled_slot_is_told_with_both_sides",
        "flashrt_ros.parameters:NodeConfig._bind_cameras",
        edited("if empty:", "if False:"),
    ),
    Guard(
        "R57",
        ROS + "parameters.py::test_R57_image_size_that_is_none_is_refused",
        "flashrt_ros.parameters:_image_size",
        edited("if found is None:", "if found is None:\n        return None\n    if False:"),
    ),
    Guard(
        "R57",
        KERNELS + "policy.py::test_R57_unknown_camera_lists_the_slots",
        "flashrt_kernels.names:Names.slot",
        edited(
            "if name not in self._slots:",
            "if name not in self._slots:\n        return self._cameras[0]\n    if False:",
        ),
    ),
    Guard(
        "R59",
        FOLDERS + "tokenizer.py::test_R59_missing_tokenizer_names_every_place",
        "flashrt_kernels.checkpoint.tokenizer:find_tokenizer",
        edited("for place in places)", "for place in places[:1])"),
    ),
    Guard(
        "R59",
        FOLDERS + "tokenizer.py::test_R59_given_file_of_another_kind_is_refused",
        "flashrt_kernels.checkpoint.tokenizer:load_tokenizer",
        edited('if path.suffix == ".model":', "if True:"),
    ),
    Guard(
        "R59",
        FOLDERS + "tokenizer.py::test_R59_unreadable_tokenizer_is_named[noise-tokenizer.json]",
        "flashrt_kernels.checkpoint.tokenizer:_from_json",
        edited("{path}: not a readable tokenizers file: {error}", "?"),
    ),
)
