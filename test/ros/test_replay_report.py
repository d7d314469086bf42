# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What a replay hands to its report: a picture at the wrong time or joint misleads whoever looks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from test.ros.bags import JOINTS, StubPolicy, joints, recording, replay, write_bag


class OneBuffer(StubPolicy):
    """Hands out the same array for every picture, as a policy may."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(seconds)
        self.picture = np.zeros((4, 4, 3), np.uint8)

    def model_images(self) -> dict[str, Any]:
        self.picture += 1
        return {self.cameras[0]: self.picture}


def test_frames_are_those_of_their_decision(tmp_path: Path) -> None:
    """Named by the node's camera, each with its own pixels, spread over the recording."""
    frames = replay(write_bag(tmp_path, recording()), OneBuffer()).log.frames
    assert {camera for _, camera, _ in frames} == {"top"}
    assert [int(pixels[0, 0, 0]) for _, _, pixels in frames] == list(range(1, len(frames) + 1))
    times = [t_s for t_s, _, _ in frames]
    assert times == sorted(times)
    assert times[0] < 0.1
    assert times[-1] > 0.8


def test_chunks_begin_when_they_were_ready(tmp_path: Path) -> None:
    """A commanded motion drawn from the start of its decision would seem to run ahead of the robot."""
    first = replay(write_bag(tmp_path, recording(300)), StubPolicy(0.05)).log.decisions[0]
    began = 0.007  # the last of the required sources is heard of
    assert first.t_s >= began + 0.05


def test_measured_positions_stand_under_their_joint(tmp_path: Path) -> None:
    """Messages list joints in any order; a joint that none names has no curve."""
    swapped = [*JOINTS[::-1], "other"]
    messages = [(at, n, joints(at, swapped) if n == "/joint_states" else m) for at, n, m in recording(300)]
    bag = write_bag(tmp_path, messages)
    outcome = replay(bag, StubPolicy(), action_names=[*JOINTS[:4], "gripper"])
    t_s, positions = outcome.log.joint_samples[0]
    np.testing.assert_allclose(t_s, 0.003)
    want = np.linspace(-0.5, 0.5, 6)[[4, 3, 2, 1]] + 0.0003
    np.testing.assert_allclose(positions, [*want, np.nan], atol=1e-9)
