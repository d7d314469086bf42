# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Which topics of a recording the parameters ask for."""

from __future__ import annotations

from typing import Any

import pytest

from flashrt_ros.bag import BagError, wanted_topics
from flashrt_ros.parameters import NodeConfig


def config(**parameters: Any) -> NodeConfig:
    flat = {"checkpoint": "/x", "action_rate_hz": 30.0, "cameras": ["top"], **parameters}
    return NodeConfig.from_dict({name.replace("__", "."): value for name, value in flat.items()})


GROUPS: dict[str, Any] = {
    "state_groups": ["arm", "hand", "ee"],
    "state__arm__names": ["a"],
    "state__hand__source": "array",
    "state__hand__names": ["x"],
    "state__ee__source": "pose",
    "action_names": ["a"],
}


def test_every_group_is_read_from_its_topic() -> None:
    """A replay without the pose that the policy was trained with decides nothing."""
    assert wanted_topics(config(**GROUPS), "left", {"hand": "/glove"}) == {
        "/left/top/image_raw": ("top", "sensor_msgs/msg/Image"),
        "/left/joint_states": ("joint_states", "sensor_msgs/msg/JointState"),
        "/glove": ("state.hand", "std_msgs/msg/Float64MultiArray"),
        "/left/ee/pose": ("state.ee", "geometry_msgs/msg/PoseStamped"),
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {
                **GROUPS,
                "state__ee__source": "tf",
                "state__ee__frame": "base",
                "state__ee__child_frame": "hand",
            },
            "state.ee takes its data from tf",
        ),
        ({"joint_names": ["a"], "camera__top__transport": "pointcloud"}, "camera 'top' takes its data from"),
    ],
)
def test_what_needs_a_robots_libraries_is_refused(changes: dict[str, Any], words: str) -> None:
    """In words, before an hour of replay."""
    with pytest.raises(BagError, match=words):
        wanted_topics(config(**changes), "", {})
