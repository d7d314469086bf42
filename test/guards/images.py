# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Images: what makes the rows true, and how to switch it off."""

from __future__ import annotations

from typing import Any

from test.guards.guard import Guard, edited, returns, value
from test.guards.places import INPUTS, KERNELS, OWN, ROS, ROWS


def unfiltered(real: Any) -> Any:
    """A table of encodings in which depth is grey levels."""
    direct = type(real["mono8"])
    return {**real, **{name: direct("mono8", 1) for name in ("16UC1", "mono16", "32FC1", "rgb16")}}


def rgb_only(real: Any) -> Any:
    """A table of pixel formats that takes every colour for rgb."""
    first = {3: (0, 1, 2), 4: (0, 1, 2), 1: (0, 0, 0)}
    return {key: row._replace(rgb=first[row.channels]) for key, row in real.items()}


def stretched(rows: int, columns: int, height: int, width: int) -> tuple[int, int]:
    """`fitted_size` that does not keep the aspect ratio."""
    return height, width


IMAGES = (
    Guard(
        "R1",
        ROWS + "R1_padded_rows_arrive_unskewed",
        "flashrt_ros.encodings:_prepare_raw",
        edited("int(message.step) or packed", "packed"),
    ),
    Guard(
        "R1",
        ROS + "encodings.py::test_R1_padded_rows_are_sliced_by_step_and_zero_means_packed",
        "flashrt_ros.encodings:_prepare_raw",
        edited("int(message.step) or packed", "packed"),
    ),
    Guard(
        "R1",
        ROS + "encodings.py::test_R1_padded_rows_of_a_coded_encoding",
        "flashrt_ros.encodings:_packed_rows",
        edited(".reshape(rows, step)[:, :packed]", "[: rows * packed].reshape(rows, packed)"),
    ),
    Guard(
        "R1",
        KERNELS + "image.py::test_R1_rows_are_padded",
        "flashrt_kernels.pixels:RawImage.write",
        edited("self.step,", "self.width * 3,"),
    ),
    Guard(
        "R1",
        KERNELS + "image.py::test_R1_a_single_row_may_have_any_step",
        "flashrt_kernels.pixels:RawImage.__post_init__",
        edited('"step", row)  # nothing follows', '"step", min(self.step, 1 << 30))  # nothing follows'),
    ),
    Guard(
        "R2",
        INPUTS + "R2_malformed_images_are_dropped_with_one_warning",
        "flashrt_ros.encodings:_prepare_raw",
        edited("step < packed", "False", "length < rows * step", "False"),
    ),
    Guard(
        "R2",
        INPUTS + "R2_malformed_images_are_dropped_with_one_warning",
        "flashrt_ros.freshness:EdgeWarnings.fault",
        edited("last_ns is None or", "True or"),
    ),
    Guard(
        "R2",
        ROS + "ingest.py::test_R2_malformed_frames_are_dropped_with_one_warning",
        "flashrt_ros.ingest:Ingest._put_image",
        edited('self._drop(name, "malformed", str(error), arrival_ns)', "camera.newest = None"),
    ),
    Guard(
        "R2",
        ROS + "ingest.py::test_R2_undecodable_jpeg_falls_back_to_the_last_good_one",
        "flashrt_ros.ingest:Ingest._convert",
        edited("camera.newest = None", "camera.good = None"),
    ),
    Guard(
        "R2",
        ROS + "encodings.py::test_R2_malformed_image_is_refused_with_its_numbers",
        "flashrt_ros.encodings:_prepare_raw",
        edited("if problem:", "if False:"),
    ),
    Guard(
        "R2",
        ROS + "encodings.py::test_R2_undecodable_image_is_malformed",
        "flashrt_ros.encodings:_decompress",
        edited(
            "if pixels is None:",
            "if pixels is None:\n        pixels = np.zeros((1, 1, 3), np.uint8)\n    if False:",
        ),
    ),
    Guard(
        "R2",
        ROS + "encodings.py::test_R2_compressed_image_that_promises_gigapixels_is_malformed",
        "flashrt_ros.encodings:_decompress",
        edited(
            "if pixels is None:",
            "if pixels is None:\n        pixels = np.zeros((1, 1, 3), np.uint8)\n    if False:",
        ),
    ),
    Guard(
        "R2",
        KERNELS + "image.py::test_R2_contradicting_sizes_are_refused[step]",
        "flashrt_kernels.pixels:RawImage.__post_init__",
        edited("self.step < row", "False"),
    ),
    Guard(
        "R2",
        KERNELS + "image.py::test_R2_contradicting_sizes_are_refused[length]",
        "flashrt_kernels.pixels:RawImage.__post_init__",
        edited("self.length < self.bytes", "False"),
    ),
    Guard(
        "R3",
        ROWS + "R3_red_is_red_in_every_encoding",
        "flashrt_ros.encodings:_prepare_raw",
        edited("else row.read_as", 'else {3: "rgb8", 4: "rgba8", 1: "mono8"}[row.channels]'),
    ),
    Guard(
        "R3",
        ROS + "encodings.py::test_R3_red_is_red_in_every_direct_encoding[bgr8]",
        "flashrt_ros.encodings:_prepare_raw",
        edited("else row.read_as", 'else "rgb8"'),
    ),
    Guard(
        "R3",
        ROS + "encodings.py::test_R3_compressed_with_exchanged_channels",
        "flashrt_ros.encodings:_from_bgr",
        edited("exchanged != camera.swap_red_blue", "False"),
    ),
    Guard(
        "R3",
        ROS + "ingest.py::test_R3_encoding_of_each_camera_is_told_once",
        "flashrt_ros.ingest:Ingest._tell_once",
        edited("(source, text) not in self._told", "True"),
    ),
    Guard(
        "R3",
        KERNELS + "image.py::test_R3_red_is_red_in_every_encoding[bgra8]",
        "flashrt_kernels.image:BY_CODE",
        rgb_only,
    ),
    Guard(
        "R3",
        KERNELS + "image_resample.py::test_R3_any_encoding_and_stride[bgr8-area]",
        "flashrt_kernels.image_resample:BY_CODE",
        rgb_only,
    ),
    Guard(
        "R4",
        INPUTS + "R4_what_the_model_saw_is_published",
        "flashrt_ros.outputs:Outputs._publish_images",
        returns(None),
    ),
    Guard(
        "R4",
        ROS + "encodings.py::test_R4_swap_red_blue",
        "flashrt_ros.encodings:_prepare_raw",
        edited("if camera.swap_red_blue", "if False"),
    ),
    Guard(
        "R4",
        ROS + "encodings.py::test_R4_swap_red_blue_of_decoded_images",
        "flashrt_ros.encodings:_from_bgr",
        edited("exchanged != camera.swap_red_blue", "exchanged"),
    ),
    Guard(
        "R4",
        KERNELS + "policy.py::test_R4_model_images_show_what_the_model_saw",
        "flashrt_kernels.policy:Policy.model_images",
        edited("in self._seen.items()", "in ()"),
    ),
    Guard(
        "R4",
        KERNELS + "policy.py::test_R4_warming_up_again_leaves_no_picture_nobody_took",
        "flashrt_kernels.policy:Policy._write_images",
        edited("self._seen = {}", "pass"),
    ),
    Guard(
        "R4",
        KERNELS + "image.py::test_R4_model_image_shows_what_went_in",
        "flashrt_kernels.image:patches_to_image",
        edited("3, patch, patch)", "3, patch, patch)[..., ::-1, :]"),
    ),
    Guard(
        "R5",
        ROWS + "R5_R6_depth_camera_is_refused_naming_slot_and_camera",
        "flashrt_ros.encodings:ENCODINGS",
        unfiltered,
    ),
    Guard(
        "R5",
        ROS + "encodings.py::test_R5_R6_depth_and_wide_encodings_are_refused_naming_the_camera[0-16UC1]",
        "flashrt_ros.encodings:ENCODINGS",
        unfiltered,
    ),
    Guard(
        "R5",
        ROS + "encodings.py::test_R5_coded_encodings_give_the_colours_that_were_encoded",
        "flashrt_ros.encodings:_from_bgr",
        edited("exchanged != camera.swap_red_blue", "True"),
    ),
    Guard(
        "R5",
        ROS + "encodings.py::test_R5_compressed_images[ndarray-jpeg-.jpg]",
        "flashrt_ros.encodings:_from_bgr",
        edited("exchanged != camera.swap_red_blue", "True"),
    ),
    Guard(
        "R5",
        ROS + "encodings.py::test_R5_other_compressed_formats_are_refused[16UC1; png compressed 16UC1]",
        "flashrt_ros.encodings:_prepare_compressed",
        edited("known is None or wide", "known is None"),
    ),
    Guard(
        "R5",
        ROS + "ingest.py::test_R5_depth_camera_is_refused_at_the_first_message",
        "flashrt_ros.encodings:ENCODINGS",
        unfiltered,
    ),
    Guard("R5", INPUTS + "R5_compressed_camera", "flashrt_ros.encodings:COMPRESSED_FORMATS", value(())),
    Guard(
        "R6",
        ROWS + "R5_R6_depth_camera_is_refused_naming_slot_and_camera[mono16-1]",
        "flashrt_ros.encodings:ENCODINGS",
        unfiltered,
    ),
    Guard(
        "R6",
        ROWS + "R6_byte_order_of_bytes_does_not_matter",
        "flashrt_ros.encodings:_prepare_raw",
        edited("if height <= 0", "if message.is_bigendian or height <= 0"),
    ),
    Guard(
        "R6",
        ROS + "encodings.py::test_R5_R6_depth_and_wide_encodings_are_refused_naming_the_camera[1-mono16]",
        "flashrt_ros.encodings:ENCODINGS",
        unfiltered,
    ),
    Guard(
        "R8",
        OWN + "R8_R10_slow_camera_does_not_slow_the_node_and_its_images_are_read_once",
        "flashrt_ros.camera_input:CameraInput.reasons",
        edited(
            "if sample is None and self.received",
            "if sample is not None and sample.used:\n"
            '        return [("old", "old")]\n    if sample is None and self.received',
        ),
    ),
    Guard(
        "R8",
        OWN + "R8_R10_slow_camera_does_not_slow_the_node_and_its_images_are_read_once",
        "flashrt_ros.sources:Traffic.rate",
        returns(0.0),
    ),
    Guard(
        "R8",
        ROS + "ingest.py::test_R8_rate_of_each_source_is_measured",
        "flashrt_ros.statistics:Rate.add",
        returns(None),
    ),
    Guard(
        "R8",
        ROS + "statistics.py::test_R8_rate_of_a_source_that_stopped_falls",
        "flashrt_ros.statistics:Rate.hz",
        edited("silence > span / intervals", "False"),
    ),
    Guard(
        "R9",
        KERNELS + "image.py::test_R9_resize_is_that_of_the_training_code[size0]",
        "flashrt_kernels.image:fitted_size",
        value(stretched),
    ),
    Guard(
        "R9",
        KERNELS + "image.py::test_R9_antialias_is_that_of_openpi[size0-rgb8]",
        "flashrt_kernels.image:FILTERS",
        lambda real: {**real, "antialias": real["bilinear"]},
    ),
    Guard(
        "R9",
        KERNELS + "image_rules.py::test_R9_openpi_is_its_client[size0]",
        "flashrt_kernels.image_resample:result_size",
        edited("fitted_size(rows, columns, height, width)", "(height, width)"),
    ),
    Guard(
        "R9",
        KERNELS + "image_rules.py::test_R9_smolvla_pads_on_the_left_and_top[size0]",
        "flashrt_kernels.image:fitted_size",
        value(stretched),
    ),
    Guard(
        "R9",
        KERNELS + "image_rules.py::test_R9_groot_n17_is_lerobot",
        "flashrt_kernels.image_resample:window_of",
        edited("crop < 1", "False"),
    ),
    Guard(
        "R9",
        KERNELS + "image_resample.py::test_R9_is_pillow_bit_for_bit[size0-to0-bicubic]",
        "flashrt_kernels.image_resample:levels",
        edited("half = 1 << (ONE_BITS - 1)", "half = 0"),
    ),
    Guard(
        "R9",
        KERNELS + "image_resample.py::test_R9_area_with_one_axis_growing[to0]",
        "flashrt_kernels.image_resample:area",
        edited("min(ratios) < 1", "False"),
    ),
    Guard(
        "R10",
        OWN + "R8_R10_slow_camera_does_not_slow_the_node_and_its_images_are_read_once",
        "flashrt_ros.ingest:Ingest._convert",
        edited("or sample.raw is not None", ""),
    ),
    Guard(
        "R10",
        ROS + "ingest.py::test_R10_only_the_image_that_is_used_is_converted",
        "flashrt_ros.ingest:Ingest._convert",
        edited("or sample.raw is not None", ""),
    ),
    Guard(
        "R9",
        KERNELS + "image_resample.py::test_R9_area_shrinks_as_opencv[size0-to0]",
        "flashrt_kernels.image_resample:area",
        edited(".round_()", ".floor_()"),
    ),
    Guard(
        "R9",
        KERNELS + "image_rules.py::test_R9_groot_by_area_is_its_training_code[False-size0-n160-n170]",
        "flashrt_kernels.image_resample:window_of",
        edited("crop < 1", "False"),
    ),
)
