# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Plain fields → ROS messages. Arrays go in as `array.array`: the only assignment rclpy does not copy value
by value."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
from builtin_interfaces.msg import Duration, Time
from sensor_msgs.msg import Image, JointState

from flashrt_ros.chunk import ChunkFields
from flashrt_ros.msg import ActionChunk
from flashrt_ros.observation import NS_PER_S


def time_message(stamp_ns: int) -> Time:
    """Nanoseconds since the epoch of the clock → builtin_interfaces/Time."""
    seconds, nanoseconds = divmod(int(stamp_ns), NS_PER_S)
    return Time(sec=seconds, nanosec=nanoseconds)


def duration_message(duration_ns: int) -> Duration:
    """Nanoseconds → builtin_interfaces/Duration."""
    seconds, nanoseconds = divmod(int(duration_ns), NS_PER_S)
    return Duration(sec=seconds, nanosec=nanoseconds)


def _array(typecode: str, values: np.ndarray) -> array[float]:
    """A contiguous numpy array of the matching dtype → array.array, as one copy of bytes."""
    result: array[float] = array(typecode)
    result.frombytes(values.tobytes())
    return result


def action_chunk(fields: ChunkFields) -> ActionChunk:
    """flashrt_ros/ActionChunk of one decision."""
    message = ActionChunk()
    message.header.stamp = time_message(fields.stamp_ns)
    message.source_names = list(fields.source_names)
    message.source_stamps = [time_message(stamp) for stamp in fields.source_stamps_ns]
    message.action_names = list(fields.action_names)
    message.horizon = fields.horizon
    message.action_dim = fields.action_dim
    message.step = duration_message(fields.step_ns)
    message.data = _array("f", fields.data.astype(np.float32, copy=False))  # [horizon * action_dim]
    message.steps_consumed = fields.steps_consumed
    message.sequence = fields.sequence
    message.epoch = fields.epoch
    message.seed = fields.seed
    message.instruction = fields.instruction
    message.model = fields.model
    message.age_ms = float(fields.age_ms)
    message.ingest_ms = float(fields.ingest_ms)
    message.policy_ms = float(fields.policy_ms)
    message.stage_names = list(fields.stage_names)
    message.stage_ms = array("f", fields.stage_ms)
    message.group_names = list(fields.group_names)
    message.group_spaces = list(fields.group_spaces)
    message.group_widths = array("I", fields.group_widths)
    message.commanded = fields.commanded
    message.wait_ms = float(fields.wait_ms)
    message.post_ms = float(fields.post_ms)
    message.publish_ms = float(fields.publish_ms)
    message.decision_rate_hz = float(fields.decision_rate_hz)
    message.missed_deadlines = fields.missed_deadlines
    return message


def lag_message(lag: Mapping[str, float], stamp_ns: int) -> JointState:
    """sensor_msgs/JointState whose positions are differences by joint, in the robot's units."""
    message = JointState(name=list(lag), position=array("d", lag.values()))
    message.header.stamp = time_message(stamp_ns)
    return message


def rgb_image(pixels: np.ndarray, stamp_ns: int, frame_id: str) -> Image:
    """sensor_msgs/Image (rgb8, packed rows) of pixels uint8 [h, w, 3]."""
    height, width, channels = pixels.shape
    message = Image(height=height, width=width, encoding="rgb8", is_bigendian=0, step=width * channels)
    message.header.stamp = time_message(stamp_ns)
    message.header.frame_id = frame_id
    message.data = array("B", np.ascontiguousarray(pixels, dtype=np.uint8).tobytes())
    return message
