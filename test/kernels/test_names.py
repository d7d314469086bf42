# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The robot's names of cameras and parts of the state."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flashrt_kernels import ObservationError
from flashrt_kernels.names import Names

CHECKPOINT: Any = SimpleNamespace(
    cameras=("front", "wrist"), camera_names={}, state_widths={"arm": 2, "gripper": 1}
)


def test_renamed_cameras_and_groups() -> None:
    """A robot keeps its own names; the mapping leads to the checkpoint's."""
    names = Names(CHECKPOINT, {"cam_high": "front", "left_arm": "arm"})
    assert names.slot("cam_high") == names.slot("front") == names.slot("video.front") == "front"
    state = names.state({"gripper": 0.5, "left_arm": [1, 2]})
    np.testing.assert_array_equal(state, [1, 2, 0.5])


def test_a_vector_is_taken_as_it_is() -> None:
    """Who has the joints in order need not name them."""
    assert Names(CHECKPOINT, {}).state([1, 2, 3]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"arm": [1, 2]}, "state lacks gripper; it has arm"),
        ({}, "state lacks arm, gripper; it has nothing"),
        ({"arm": [1, 2], "gripper": [3], "leg": [4]}, "state group 'leg' is unknown; the checkpoint has arm"),
        ({"arm": [1], "gripper": [3]}, r"state group 'arm' has shape \[1\]; expected \[2\]"),
        ({"arm": [1, 2], "hand": [3], "gripper": [3]}, "'gripper' for the second time"),
    ],
)
def test_states_that_do_not_fit_are_refused(state: dict[str, Any], words: str) -> None:
    """A joint in the wrong place moves another joint."""
    with pytest.raises(ObservationError, match=words):
        Names(CHECKPOINT, {"hand": "gripper"}).state(state)


def test_a_rename_to_nothing_is_refused_when_loading() -> None:
    """Not at the first decision, on a robot that is already live."""
    with pytest.raises(ObservationError, match="rename: 'a' → 'back', which the checkpoint does not have"):
        Names(CHECKPOINT, {"a": "back"})


@pytest.mark.parametrize(
    "rename", ["head:front", ["head", "front"], {"head": 1}, {"head": ["front"]}, {2: "front"}]
)
def test_a_rename_that_is_no_mapping_of_names_is_refused(rename: Any) -> None:
    """Who writes it as text, as on a command line, would look for the mistake in our code."""
    with pytest.raises(ObservationError, match=r"rename is .*; expected \{robot's name: checkpoint's name\}"):
        Names(CHECKPOINT, rename)


def test_a_robot_may_call_its_cameras_as_the_checkpoint_calls_others() -> None:
    """Swapped names: pictures of one camera would reach the policy as those of the other."""
    names = Names(CHECKPOINT, {"front": "wrist", "wrist": "front"})
    assert (names.slot("front"), names.slot("wrist")) == ("wrist", "front")
    names = Names(CHECKPOINT, {"front": "wrist", "head": "front"})
    assert (names.slot("front"), names.slot("head")) == ("wrist", "front")
