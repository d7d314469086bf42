# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The saved pipelines decide what the policy sees and what its output means."""

import json

import numpy as np
import pytest

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.checkpoint.processors import relative_mask
from flashrt_kernels.errors import CheckpointError

from .conftest import REMOVED, STATE_FILE, Folder
from .damage import CONFIG, NORMALIZER, POST, PRE, RELATIVE, RENAME, TOKENIZE

NAMES = ["shoulder", "elbow", "Left_Gripper", "wrist", "gripper_right"]


def enable_relative(folder: Folder, **settings: object) -> None:
    config = {"enabled": True, "exclude_joints": ["gripper"], "action_names": NAMES, **settings}
    folder.edit_json(PRE, "steps", RELATIVE, "config", value=config)
    folder.edit_json(POST, "steps", 1, "config", "enabled", value=True)


def test_R35_relative_actions_are_read_from_the_steps(folder: Folder) -> None:
    """Offsets taken for joint positions drive the arm into its zero pose."""
    enable_relative(folder)
    loaded = load_lerobot(folder.path)
    np.testing.assert_array_equal(loaded.relative_action_mask, [True, True, False, True, False])
    assert loaded.relative_actions == ("shoulder", "elbow", "wrist")
    assert loaded.config.action_names == tuple(NAMES)


def test_R35_config_alone_does_not_make_actions_relative(folder: Folder) -> None:
    """LeRobot runs the saved steps; the flag in config.json only shaped them when they were made."""
    folder.edit_json(CONFIG, "use_relative_actions", value=True)
    loaded = load_lerobot(folder.path)
    assert loaded.relative_action_mask is None
    assert loaded.relative_actions == ()


def test_R35_exclusion_without_names_has_no_effect_and_is_noted(folder: Folder) -> None:
    """LeRobot then makes every dimension relative, the gripper too: users should hear of it."""
    enable_relative(folder, action_names=None)
    loaded = load_lerobot(folder.path)
    np.testing.assert_array_equal(loaded.relative_action_mask, [True] * 5)
    assert loaded.relative_actions == ("0", "1", "2", "3", "4")
    assert any("exclude_joints (gripper)" in note for note in loaded.notes)


def test_R35_relative_actions_need_a_state_for_every_dimension(folder: Folder) -> None:
    """An action wider than the state has nothing to be relative to."""
    enable_relative(folder)
    folder.edit_json(CONFIG, "input_features", "observation.state", "shape", value=[4])
    folder.edit_json(PRE, "steps", NORMALIZER, "config", "features", "observation.state", "shape", value=[4])
    folder.edit_tensors(
        STATE_FILE, lambda t: [t.update({k: v[:4]}) for k, v in list(t.items()) if "state" in k]
    )
    with pytest.raises(CheckpointError, match=r"observation\.state has 4 dimensions and action 5"):
        load_lerobot(folder.path)


@pytest.mark.parametrize(
    ("names", "excluded", "mask"),
    [
        (None, ("gripper",), [True, True, True]),
        (("a", "b", "c"), (), [True, True, True]),
        (("a", "b", "c"), ("",), [True, True, True]),
        (("arm", "Gripper.pos", "x"), ("gripper",), [True, False, True]),
        (("arm", "gripper", "x"), ("GRIP", "X"), [True, False, False]),
    ],
)
def test_R35_exclusion_is_a_substring_in_any_case(
    names: tuple[str, ...] | None, excluded: tuple[str, ...], mask: list[bool]
) -> None:
    """LeRobot's rule; another one shifts a gripper by its own position."""
    np.testing.assert_array_equal(relative_mask(3, names, excluded), mask)


def test_steps_of_lerobot_04_load(folder: Folder) -> None:
    """Checkpoints from before relative actions have neither of the two steps."""
    folder.edit_json(PRE, "steps", RELATIVE, value=REMOVED)
    folder.edit_json(POST, "steps", 1, value=REMOVED)
    for field in ("use_relative_actions", "relative_exclude_joints", "action_feature_names"):
        folder.edit_json(CONFIG, field, value=REMOVED)
    loaded = load_lerobot(folder.path)
    assert loaded.relative_action_mask is None
    (note,) = loaded.notes
    assert "LeRobot 0.4" in note  # whose training wrote another prompt
    assert "padded to 8 numbers, ours hold 5" in note


def test_state_file_is_followed_not_its_usual_name(folder: Folder) -> None:
    """The index in the name differs by release; a fixed name would refuse or, worse, take an old file."""
    (folder.path / STATE_FILE).rename(folder.path / "some_other_name.safetensors")
    folder.edit_json(PRE, "steps", NORMALIZER, "state_file", value="some_other_name.safetensors")
    assert load_lerobot(folder.path).state_norm.offset[0] == np.float32(-0.9)


def test_mode_of_the_step_wins_over_the_config(folder: Folder) -> None:
    """LeRobot normalises as the saved step says, whatever config.json says."""
    folder.edit_json(PRE, "steps", NORMALIZER, "config", "norm_map", "STATE", value="MEAN_STD")
    loaded = load_lerobot(folder.path)
    assert (loaded.state_norm.mode, loaded.action_norm.mode) == ("MEAN_STD", "QUANTILES")


def test_eps_of_the_step_is_used(folder: Folder) -> None:
    """eps decides what a motionless joint is divided by."""
    folder.edit_json(PRE, "steps", NORMALIZER, "config", "norm_map", "STATE", value="MEAN_STD")
    folder.edit_json(PRE, "steps", NORMALIZER, "config", "eps", value=0.5)
    np.testing.assert_allclose(
        load_lerobot(folder.path).state_norm.divisor, [1.0, 0.9, 1.1, 1.5, 0.7], rtol=1e-6
    )


def test_prompt_length_of_the_step_wins_and_is_noted(folder: Folder) -> None:
    """A prompt cut at another length loses the end of the state."""
    folder.edit_json(PRE, "steps", TOKENIZE, "config", "max_length", value=40)
    loaded = load_lerobot(folder.path)
    assert loaded.config.tokenizer_max_length == 40
    assert any("max_length = 40" in note and "48" in note for note in loaded.notes)


def test_observation_left_out_of_normalisation_is_noted(folder: Folder) -> None:
    """normalize_observation_keys can leave the state raw: rare, and invisible unless said."""
    keys = ["observation.images.top"]
    folder.edit_json(PRE, "steps", NORMALIZER, "config", "normalize_observation_keys", value=keys)
    loaded = load_lerobot(folder.path)
    assert loaded.state_norm.mode == "IDENTITY"
    assert any("observation.state" in note for note in loaded.notes)


def test_identity_needs_no_statistics(folder: Folder) -> None:
    """A policy trained on raw values has no state file."""
    folder.edit_json(PRE, "steps", NORMALIZER, "config", "norm_map", "STATE", value="IDENTITY")
    folder.edit_json(PRE, "steps", NORMALIZER, "state_file", value=REMOVED)
    assert load_lerobot(folder.path).state_norm.mode == "IDENTITY"


def test_rename_map_is_read(folder: Folder) -> None:
    """A fine-tune may call its cameras otherwise than the base policy."""
    renames = {"observation.images.head": "observation.images.top"}
    folder.edit_json(PRE, "steps", RENAME, "config", "rename_map", value=renames)
    assert load_lerobot(folder.path).camera_names == renames


def test_empty_cameras_come_after_the_configured_ones(folder: Folder) -> None:
    """Slots in another order put each camera's view into another one's place."""
    folder.edit_json(CONFIG, "empty_cameras", value=2)
    cameras = load_lerobot(folder.path).config.cameras
    assert [name.rpartition(".")[2] for name in cameras] == [
        "top",
        "wrist",
        "extra",
        "empty_camera_0",
        "empty_camera_1",
    ]


def test_empty_camera_saved_with_the_config_keeps_its_place(folder: Folder) -> None:
    """LeRobot saves the features it added: counting them again would add a slot that training never had."""
    features = json.loads((folder.path / CONFIG).read_text())["input_features"]
    empty = {"observation.images.empty_camera_0": {"type": "VISUAL", "shape": [3, 56, 56]}}
    folder.edit_json(CONFIG, "input_features", value=empty | features)
    folder.edit_json(CONFIG, "empty_cameras", value=1)
    cameras = load_lerobot(folder.path).config.cameras
    assert [name.rpartition(".")[2] for name in cameras] == ["empty_camera_0", "top", "wrist", "extra"]
