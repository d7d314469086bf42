# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Plain fields → messages."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message

from flashrt_ros.chunk import ChunkFields
from flashrt_ros.messages import action_chunk, duration_message, rgb_image, time_message
from flashrt_ros.msg import ActionChunk

FIELDS = ChunkFields(
    stamp_ns=1_700_000_000_123_456_789,
    source_names=("front", "joint_states"),
    source_stamps_ns=(1_700_000_000_123_456_789, 1_700_000_000_200_000_000),
    action_names=("a", "b"),
    horizon=3,
    action_dim=2,
    step_ns=33_333_333,
    data=np.arange(6, dtype=np.float32),
    steps_consumed=1,
    sequence=2**40,
    epoch=3,
    seed=2**63 - 1,
    instruction="pick up the red cube · now",
    model="pi05",
    age_ms=12.5,
    ingest_ms=0.5,
    policy_ms=100.0,
    stage_names=("vision", "action"),
    stage_ms=(40.0, 60.0),
    group_names=("arm", "gripper"),
    group_spaces=("joint_position", "gripper"),
    group_widths=(1, 1),
    commanded=True,
    wait_ms=0.25,
    post_ms=1.5,
    publish_ms=0.75,
    decision_rate_hz=9.5,
    missed_deadlines=2**33,
)


def test_chunk_survives_the_wire() -> None:
    """What is published is what was decided, every field: a log of chunks is the record of a run."""
    message = deserialize_message(serialize_message(action_chunk(FIELDS)), ActionChunk)
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (1_700_000_000, 123_456_789)
    assert [stamp.nanosec for stamp in message.source_stamps] == [123_456_789, 200_000_000]
    assert (message.step.sec, message.step.nanosec) == (0, 33_333_333)
    assert list(message.data) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert list(message.stage_ms) == [40.0, 60.0]
    integers = ("horizon", "action_dim", "steps_consumed", "sequence", "epoch", "seed")
    times = ("age_ms", "wait_ms", "ingest_ms", "policy_ms", "post_ms", "publish_ms")
    account = ("commanded", "decision_rate_hz", "missed_deadlines")
    same = (*integers, "instruction", "model", *times, *account)
    assert {name: getattr(message, name) for name in same} == {name: getattr(FIELDS, name) for name in same}
    for name in (
        "source_names",
        "action_names",
        "stage_names",
        "group_names",
        "group_spaces",
        "group_widths",
    ):
        assert tuple(getattr(message, name)) == getattr(FIELDS, name)


def test_chunk_needs_no_copy_value_by_value() -> None:
    """Any other type than array.array is checked and converted element by element: milliseconds per chunk."""
    assert isinstance(action_chunk(FIELDS).data, array)


def test_image_is_packed_rgb() -> None:
    """The picture of what the model saw must show in every viewer, whatever memory layout it had."""
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)[:, ::-1]  # [2, 3, 3], not contiguous
    message = rgb_image(pixels, 1_500_000_000, "front")
    assert (message.height, message.width, message.step, message.encoding) == (2, 3, 9, "rgb8")
    assert message.header.frame_id == "front"
    assert message.header.stamp.nanosec == 500_000_000
    assert bytes(message.data) == pixels.tobytes()


@pytest.mark.parametrize(("ns", "sec", "nanosec"), [(0, 0, 0), (1, 0, 1), (2_000_000_001, 2, 1)])
def test_times_are_exact(ns: int, sec: int, nanosec: int) -> None:
    """Stamps are compared for equality when a chunk is matched with the images it came from."""
    for message in (time_message(ns), duration_message(ns)):
        assert (message.sec, message.nanosec) == (sec, nanosec)
