# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Joint groups between a robot's numbers and GR00T's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt_kernels.checkpoint.groot import GrootCheckpoint, load_groot
from flashrt_kernels.checkpoint.groot_groups import compose_poses
from flashrt_kernels.errors import CheckpointError, ObservationError

from .conftest import Folder
from .groot_folders import N17, copied, raw

SETTINGS, STATISTICS = "processor_config.json", "statistics.json"
MODALITY = ("processor_kwargs", "modality_configs", "tiny_arm")
REFERENCE = [0.1, -0.2, 0.3, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0]  # turned by a quarter about z


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return copied(N17, tmp_path / "n17")


def settings(folder: Folder, **kwargs: Any) -> None:
    for name, value in kwargs.items():
        folder.edit_json(SETTINGS, "processor_kwargs", name, value=value)


def modality(folder: Folder, kind: str, **fields: Any) -> None:
    for name, value in fields.items():
        folder.edit_json(SETTINGS, *MODALITY, kind, name, value=value)


def with_poses(folder: Folder) -> GrootCheckpoint:
    """The arm replaced by an end effector whose actions are relative poses in ±1."""
    bounds = {"min": [-1.0] * 9, "max": [1.0] * 9, "q01": [-1.0] * 9, "q99": [1.0] * 9}
    for kind in ("state", "action", "relative_action"):
        folder.edit_json(STATISTICS, "tiny_arm", kind, "eef", value=bounds)
        groups = ["eef"] if kind == "relative_action" else ["gripper", "eef"]
        if kind != "relative_action":
            modality(folder, kind, modality_keys=groups)
    config = {"rep": "RELATIVE", "type": "EEF", "format": "XYZ_ROT6D", "state_key": None}
    plain = {"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None}
    modality(folder, "action", action_configs=[plain, config])
    for file, name in (("config.json", "max_action_dim"), ("config.json", "max_state_dim")):
        folder.edit_json(file, name, value=10)
    widen(folder)
    return load_groot(folder.path)


def widen(folder: Folder) -> None:
    """Room for ten numbers of an action."""

    def edit(tensors: Any) -> None:
        for key in ("action_encoder.W1.W", "action_decoder.layer2.W", "action_decoder.layer2.b"):
            tensor = tensors[f"action_head.{key}"]
            axis = 1 if key == "action_encoder.W1.W" else tensor.ndim - 1
            tensors[f"action_head.{key}"] = tensor.repeat_interleave(2, axis).narrow(axis, 0, 10)

    folder.edit_tensors("model.safetensors", edit)


def test_poses_are_composed_as_by_the_public_implementation() -> None:
    """A wrong frame drives the hand into the table."""
    oracle = raw(N17)
    composed = compose_poses(
        oracle["eef.reference"][0].astype(float), oracle["eef.relative"][0].astype(float)
    )
    np.testing.assert_allclose(composed, oracle["eef.absolute"][0], atol=1e-6)


@given(st.integers(0, 1000))
def test_relative_poses_undo_each_other(seed: int) -> None:
    """reference ∘ (reference⁻¹ ∘ pose) is the pose: no axis is mixed up."""
    generator = np.random.default_rng(seed)
    reference, pose = (np.linalg.qr(generator.normal(size=(3, 3)))[0] for _ in range(2))
    reference, pose = (m * np.sign(np.linalg.det(m)) for m in (reference, pose))
    origin, place = generator.normal(size=(2, 3))
    turned, moved = reference.T @ pose, reference.T @ (place - origin)
    composed = compose_poses(
        np.concatenate([origin, reference[:2].ravel()]),
        np.concatenate([moved, turned[:2].ravel()])[None],
    )
    np.testing.assert_allclose(composed[0], np.concatenate([place, pose[:2].ravel()]), atol=1e-9)


def test_end_effector_is_decoded_in_the_frame_of_its_own_state(folder: Folder) -> None:
    """The reference lies behind another group: a wrong slice takes the gripper for a position."""
    loaded = with_poses(folder)
    state = np.array([0.5, *REFERENCE], np.float32)
    relative = np.array([0.25, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    actions = np.tile(np.concatenate([[1.0], relative]), (6, 1)).astype(np.float32)
    decoded = loaded.decode(actions, state)
    assert decoded.shape == (5, 10)
    # A quarter turn whose first row is y: a step along x leads along −y of the base.
    expected = compose_poses(np.array(REFERENCE), relative[None])[0]
    np.testing.assert_allclose(decoded[:, 1:], np.tile(expected, (5, 1)), atol=1e-6)
    np.testing.assert_allclose(decoded[0, 1:4], [0.1, -0.45, 0.3], atol=1e-6)


def test_state_without_a_rotation_is_refused(folder: Folder) -> None:
    """A robot that has not sent its pose yet must not get NaN for actions."""
    loaded = with_poses(folder)
    with pytest.raises(ObservationError, match="state of eef"):
        loaded.decode(np.zeros((6, 10), np.float32), np.zeros(10, np.float32))


def test_state_is_clipped_and_an_empty_span_gives_zero(folder: Folder) -> None:
    """Values that training never saw give unpredictable actions."""
    folder.edit_json(STATISTICS, "tiny_arm", "state", "gripper", "q99", value=[0.0])
    loaded = load_groot(folder.path)
    normalised = loaded.normalise_state(np.array([100, -100, 0, 0, 0, 0, 5], np.float32))
    assert normalised[:2].tolist() == [1.0, -1.0]
    assert normalised[6] == 0.0


def test_outliers_stay_where_the_checkpoint_says_so(folder: Folder) -> None:
    """clip_outliers is a choice of training."""
    settings(folder, clip_outliers=False)
    assert load_groot(folder.path).normalise_state(np.full(7, 100, np.float32)).min() > 1


def test_minimum_and_maximum_without_percentiles(folder: Folder) -> None:
    """use_percentiles decides which statistics the policy was trained with."""
    settings(folder, use_percentiles=False)
    low = np.array([-1.7, -1.58, -1.46, -1.34, -1.22, -1.1, -0.2], np.float32)
    np.testing.assert_allclose(load_groot(folder.path).normalise_state(low), -1, atol=1e-6)


def test_mean_and_deviation_where_a_group_asks_for_it(folder: Folder) -> None:
    """Groups may be scaled differently from each other."""
    modality(folder, "state", mean_std_embedding_keys=["gripper"])
    modality(folder, "action", mean_std_embedding_keys=["gripper"])
    loaded = load_groot(folder.path)
    state = np.array([0, 0, 0, 0, 0, 0, 10], np.float32)
    assert loaded.normalise_state(state)[6] == pytest.approx((10 - 0.5) / 0.25)  # and not clipped
    decoded = loaded.decode(np.full((6, 8), 3, np.float32), state)
    assert decoded[:, 6] == pytest.approx(3 * 0.25 + 0.5)


def test_angles_are_encoded_where_a_group_asks_for_it(folder: Folder) -> None:
    """The encoding doubles the group: everything behind it moves."""
    settings(folder, apply_sincos_state_encoding=True, max_state_dim=14)
    modality(folder, "state", modality_keys=["gripper", "arm"], sin_cos_embedding_keys=["gripper"])
    loaded = load_groot(folder.path)
    normalised = loaded.normalise_state(np.array([0.5, 100, 0, 0, 0, 0, 0], np.float32))
    assert normalised[:3] == pytest.approx([np.sin(0.5), np.cos(0.5), 1.0])
    assert (loaded.state_dim, len(normalised)) == (7, 8)


def test_relative_actions_only_where_the_checkpoint_uses_them(folder: Folder) -> None:
    """Adding the state to absolute targets doubles them."""
    assert load_groot(folder.path).relative_actions == ("arm",)
    settings(folder, use_relative_action=False)
    loaded = load_groot(folder.path)
    assert loaded.relative_actions == ()
    state = np.full(7, 5, np.float32)
    decoded = loaded.decode(np.ones((6, 8), np.float32), state)
    np.testing.assert_allclose(decoded[:, :6], np.tile([1.2, 1.28, 1.36, 1.44, 1.52, 1.6], (5, 1)), atol=1e-6)


def test_relative_actions_of_another_state_group(folder: Folder) -> None:
    """state_key names the reference; its width must fit."""
    folder.edit_json(SETTINGS, *MODALITY, "action", "action_configs", 0, "state_key", value="gripper")
    with pytest.raises(CheckpointError, match="is 6 wide and its reference, the state group gripper, 1"):
        load_groot(folder.path)
    folder.edit_json(SETTINGS, *MODALITY, "action", "action_configs", 0, "state_key", value="leg")
    with pytest.raises(CheckpointError, match="relative to the state group leg, but the state has arm"):
        load_groot(folder.path)


def test_more_rows_of_statistics_than_actions(folder: Folder) -> None:
    """A chunk shorter than the statistics starts with their first row."""
    oracle = raw(N17)
    modality(folder, "action", delta_indices=[0, 1, 2])
    loaded = load_groot(folder.path)
    decoded = loaded.decode(oracle["action_pred"][0], oracle["raw.state"])
    assert decoded.shape == (3, 7)
    np.testing.assert_allclose(decoded, oracle["actions_decoded"][0, :3], atol=1e-6)


def test_changes_and_other_steps_are_said_aloud(folder: Folder) -> None:
    """A controller of positions must not get changes unnoticed, nor actions at half their rate."""
    folder.edit_json(SETTINGS, *MODALITY, "action", "action_configs", 1, "rep", value="DELTA")
    modality(folder, "action", delta_indices=[0, 2, 4, 6])
    loaded = load_groot(folder.path)
    notes = loaded.notes
    assert any("gripper are changes (DELTA)" in note for note in notes)
    assert loaded.not_positions == "gripper: changes"
    assert any("delta_indices is [0.0, 2.0, 4.0, 6.0]" in note for note in notes)
