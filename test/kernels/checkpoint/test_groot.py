# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A robot that runs GR00T must get the policy that was trained, for its own body."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from flashrt_kernels.checkpoint.groot import GrootCheckpoint, load_groot, recognise
from flashrt_kernels.checkpoint.groot_dims import (
    GrootDims,
    GrootVisionDims,
    HeadDims,
    QwenDims,
    check_dims,
)
from flashrt_kernels.checkpoint.groot_layout import DIT, LLM, LM_HEAD, groot_tensors
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, REMOVED
from .damage import WEIGHTS, drop
from .groot_folders import DECODE, N16, N17, PACK, as_lerobot, copied, raw, sharded, with_flat_statistics

EMBEDDING, HEAD = LLM["n17"] + "embed_tokens.weight", LM_HEAD["n17"]


@pytest.fixture(scope="module", params=[N16, N17], ids=["n16", "n17"])
def loaded(request: pytest.FixtureRequest) -> GrootCheckpoint:
    return load_groot(request.param)


def test_fixture_loads_with_its_own_values(loaded: GrootCheckpoint) -> None:
    """Without this no GR00T policy runs at all."""
    n17 = loaded.dims.version == "n17"
    assert (loaded.policy_type, loaded.origin) == ("groot_n17" if n17 else "groot_n16", "isaac-groot")
    assert loaded.embodiment == ("tiny_arm" if n17 else "libero_panda")
    assert loaded.embodiment_index == (2 if n17 else 1)
    assert loaded.cameras == (("front", "wrist") if n17 else ("view0", "view1"))
    assert (loaded.state_dim, loaded.action_dim, loaded.horizon, loaded.denoising_steps) == (7, 7, 5, 4)
    assert loaded.action_names == (*(f"arm.{i}" for i in range(6)), "gripper.0")
    assert (loaded.dims.head.horizon, loaded.dims.head.max_state, loaded.dims.head.max_action) == (6, 10, 8)
    assert loaded.dims.llm.mrope_section == ((4, 2, 2) if n17 else None)
    assert loaded.dims.vision.deepstack == ((0, 1) if n17 else ())
    assert loaded.images.albumentations is not n17
    assert loaded.state_stats["q99"].shape == loaded.action_stats["q99"].shape == (7,)
    square = "cameras are taken to be square: image_size = (height, width) says otherwise"
    assert loaded.notes == (() if n17 else (square,))


def test_tensors_are_those_of_the_file(loaded: GrootCheckpoint) -> None:
    """A tensor under another's name gives a policy that moves the robot at random."""
    stored = load_file(loaded.folder / WEIGHTS)
    unused = {LLM["n17"] + "norm.weight"} if loaded.dims.version == "n17" else set()
    assert set(loaded.tensors) == set(stored) - unused
    for key, tensor in loaded.tensors.items():
        assert torch.equal(tensor, stored[key]), key


def test_state_and_actions_are_those_of_the_public_implementation(loaded: GrootCheckpoint) -> None:
    """A wrong scale or reference moves every joint to another place."""
    oracle = raw(loaded.folder)
    state = oracle["raw.state"]
    np.testing.assert_allclose(loaded.normalise_state(state), oracle["in.state"][0, 0, :7], atol=1e-6)
    decoded = loaded.decode(oracle["action_pred"][0], state)
    assert decoded.dtype == np.float32
    np.testing.assert_allclose(decoded, oracle["actions_decoded"][0], atol=1e-6)


def test_released_sizes_have_the_released_tensors() -> None:
    """The released N1.7 has 1031 tensors and 3.455 billion numbers, its unused norm and output included."""
    dims = GrootDims(
        version="n17",
        vision=GrootVisionDims(
            width=1024, depth=24, heads=16, mlp=4096, patch=16, position_grid=48, deepstack=(5, 11, 17)
        ),
        llm=QwenDims(
            width=2048,
            depth=16,
            heads=16,
            kv_heads=8,
            head_dim=128,
            mlp=6144,
            vocab=151_936,
            theta=5e6,
            mrope_section=(24, 20, 20),
        ),
        head=HeadDims(
            hidden=1024,
            width=1536,
            heads=32,
            head_dim=48,
            depth=32,
            output=1024,
            vlsa_depth=4,
            vlsa_heads=32,
            horizon=40,
            max_state=132,
            max_action=132,
            embodiments=32,
        ),
    )
    check_dims(dims, "released")
    specs = list(groot_tensors(dims))
    assert len(specs) == len({spec.key for spec in specs}) == 1031 - 2
    numbers = sum(torch.Size(spec.shape).numel() for spec in specs)
    assert numbers + 151_936 * 2048 + 2048 == pytest.approx(3.455e9, rel=1e-4)


def test_recognise() -> None:
    """A folder that is taken for another origin's is refused with the wrong advice."""
    assert recognise(N16)
    assert recognise(N17)
    assert not recognise(DATA / "tiny_pi05")
    assert not recognise(DATA / "no such folder")


def test_shards_give_the_same_tensors(tmp_path: Path) -> None:
    """Released checkpoints come in shards."""
    folder = copied(N17, tmp_path / "n17")
    sharded(folder)
    found, whole = load_groot(folder.path).tensors, load_groot(N17).tensors
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[key], whole[key]) for key in whole)


def test_unused_copy_of_the_embedding_is_ignored(tmp_path: Path) -> None:
    """Released files carry an output layer that no action depends on, whatever it holds."""
    folder = copied(N17, tmp_path / "n17")
    folder.edit_tensors(WEIGHTS, lambda t: t.update({HEAD: t[EMBEDDING] + 1}))
    assert torch.equal(load_groot(folder.path).tensors[EMBEDDING], load_groot(N17).tensors[EMBEDDING])


def test_output_layer_stands_for_a_missing_embedding(tmp_path: Path) -> None:
    """Of tied weights a writer may keep either name."""
    folder = copied(N17, tmp_path / "n17")
    folder.edit_tensors(WEIGHTS, lambda t: t.update({HEAD: t.pop(EMBEDDING)}))
    assert torch.equal(load_groot(folder.path).tensors[EMBEDDING], load_groot(N17).tensors[EMBEDDING])


def test_unscanned_weights_are_left_to_the_caller(tmp_path: Path) -> None:
    """On a GPU the weights are checked there; reading them twice costs seconds."""
    folder = copied(N17, tmp_path / "n17")
    folder.edit_tensors(WEIGHTS, lambda t: t[EMBEDDING].view(-1).__setitem__(0, float("nan")))
    unscanned = load_groot(folder.path, scan=False).unscanned
    assert unscanned is not None
    assert unscanned.file == folder.path / WEIGHTS
    with pytest.raises(CheckpointError, match="NaN or infinity in 1 tensor"):
        load_groot(folder.path)


def test_embodiment_is_chosen_or_asked_for(tmp_path: Path) -> None:
    """The wrong body's statistics send joints beyond their limits."""
    folder = copied(N17, tmp_path / "n17")
    for file, place in (
        ("processor_config.json", ("processor_kwargs", "modality_configs")),
        ("statistics.json", ()),
    ):
        own = folder.read_json(file, *place, "tiny_arm")
        folder.edit_json(file, *place, "other_arm", value=own)
    with pytest.raises(CheckpointError, match=r"several embodiments.*tiny_arm, other_arm"):
        load_groot(folder.path)
    assert load_groot(folder.path, embodiment="other_arm").embodiment_index == 1
    with pytest.raises(CheckpointError, match=r"embodiment gr1 is not in processor_config.json, stati"):
        load_groot(folder.path, embodiment="gr1")


def test_released_ids_fill_in_for_a_folder_without_its_own(tmp_path: Path) -> None:
    """Isaac-GR00T falls back to them too."""
    folder = copied(N17, tmp_path / "n17")
    for file, place in (
        ("processor_config.json", ("processor_kwargs", "modality_configs")),
        ("statistics.json", ()),
    ):
        folder.edit_json(file, *place, "libero_sim", value=folder.read_json(file, *place, "tiny_arm"))
        folder.edit_json(file, *place, "tiny_arm", value=REMOVED)
    (folder.path / "embodiment_id.json").unlink()
    found = load_groot(folder.path)
    assert (found.embodiment, found.embodiment_index) == ("libero_sim", 2)
    assert any("gripper" in note for note in found.notes)


def test_lerobot_folder_gives_the_same_policy(tmp_path: Path) -> None:
    """A policy tuned with LeRobot must move as the one tuned with Isaac-GR00T."""
    found, isaac = load_groot(as_lerobot(copied(N17, tmp_path / "n17")).path), load_groot(N17)
    oracle = raw(N17)
    assert (found.origin, found.policy_type) == ("lerobot", "groot_n17")
    assert found.cameras == ("front", "wrist")
    assert found.camera_names["observation.images.front"] == "front"
    assert found.dims == isaac.dims
    assert found.images == isaac.images
    assert found.embodiment_index == 2
    assert found.horizon == 5
    assert found.tensors.keys() == isaac.tensors.keys()
    state = oracle["raw.state"]
    np.testing.assert_allclose(found.normalise_state(state), isaac.normalise_state(state), atol=1e-6)
    np.testing.assert_allclose(
        found.decode(oracle["action_pred"][0], state), oracle["actions_decoded"][0], atol=1e-6
    )
    assert found.action_stats["q01"].tolist() == isaac.action_stats["q01"].tolist()


def test_lerobot_settings_are_followed(tmp_path: Path) -> None:
    """Steps, chunk length, renamed cameras and LIBERO's gripper are in LeRobot's files only."""
    folder = as_lerobot(copied(N17, tmp_path / "n17"), chunk_size=3, num_inference_timesteps=8)
    folder.edit_json("model_dims.json", "steps", value=REMOVED)
    pre, post = "policy_preprocessor.json", "policy_postprocessor.json"
    folder.edit_json(pre, "steps", 0, "config", "rename_map", value={"cam0": "observation.images.wrist"})
    folder.edit_json(post, "steps", 0, "config", "action_decode_transform", value="libero")
    found = load_groot(folder.path)
    assert (found.horizon, found.denoising_steps) == (3, 8)
    assert found.camera_names["cam0"] == "wrist"
    oracle = raw(N17)
    decoded = found.decode(oracle["action_pred"][0], oracle["raw.state"])
    assert decoded[:, :6].tolist() == pytest.approx(oracle["actions_decoded"][0, :3, :6], abs=1e-6)
    assert decoded[:, 6].tolist() == (-np.sign(2 * oracle["actions_decoded"][0, :3, 6] - 1)).tolist()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lerobot", [False, True])
def test_huge_statistics_are_no_matter_where_none_are_needed(tmp_path: Path, lerobot: bool) -> None:
    """A warning out of NumPy's depths names no file, and there is nothing to be done about it."""
    folder = copied(N17, tmp_path / "n17")
    file = "statistics.json"
    place: tuple[str | int, ...] = ("tiny_arm",)
    if lerobot:
        folder = as_lerobot(folder)
        file, place = "policy_postprocessor.json", ("steps", DECODE, "config", "raw_stats")
    folder.edit_json(file, *place, "action", "arm", "mean", 0, value=1e308)
    assert np.isinf(load_groot(folder.path).action_stats["mean"][0])


def test_lerobot_with_a_datasets_statistics(tmp_path: Path) -> None:
    """What LeRobot saves by default after fine-tuning: no groups, and cameras in alphabetical order."""
    folder = with_flat_statistics(as_lerobot(copied(N17, tmp_path / "n17")))
    found = load_groot(folder.path)
    assert found.cameras == ("observation.images.a", "observation.images.b")
    assert found.camera_names["a"] == found.camera_names["video.a"] == "observation.images.a"
    assert found.action_names is None
    assert (found.state_dim, found.action_dim) == (7, 7)
    decoded = found.decode(np.full((6, 8), 2.0, np.float32), np.zeros(7, np.float32))
    low, high = np.arange(7.0) - 4, np.arange(7.0)
    high[3] = low[3]
    np.testing.assert_array_equal(decoded, np.tile(high, (5, 1)))  # clipped to 1
    assert found.normalise_state(np.full(7, 100, np.float32)).tolist() == [1.0] * 7


@pytest.mark.parametrize(("binarize", "expected"), [(True, -1.0), (False, -11.0)])
def test_lerobot_gripper_of_plain_statistics(tmp_path: Path, binarize: bool, expected: float) -> None:
    """LIBERO's gripper closes where it should open if the sign is lost."""
    settings = {"libero_gripper_action": True, "libero_gripper_binarize": binarize}
    folder = with_flat_statistics(as_lerobot(copied(N17, tmp_path / "n17")), **settings)
    found = load_groot(folder.path)
    decoded = found.decode(np.ones((6, 8), np.float32), np.zeros(7, np.float32))
    assert decoded[0, 6] == expected  # g = 6


def test_a_whole_block_that_is_missing_is_noticed(tmp_path: Path) -> None:
    """Sizes come from the tensors: a policy without its last block would run, and move badly."""
    folder = copied(N17, tmp_path / "n17")
    last = [key for key in load_file(N17 / WEIGHTS) if "model.transformer_blocks.3." in key]
    folder.edit_tensors(WEIGHTS, drop(*last))
    with pytest.raises(CheckpointError, match=rf"missing \({len(last)}\):\s+{re.escape(DIT)}"):
        load_groot(folder.path)


def test_state_dropout_token_is_ignored(tmp_path: Path) -> None:
    """N1.6 trained with state dropout carries a token that inference never uses."""
    folder = copied(N16, tmp_path / "n16")
    folder.edit_tensors(WEIGHTS, lambda t: t.update({"action_head.mask_token": torch.zeros(1, 1, 48)}))
    assert "action_head.mask_token" not in load_groot(folder.path).tensors


def test_missing_tensors_are_all_listed(tmp_path: Path) -> None:
    """A user who repairs one at a time copies gigabytes again and again."""
    folder = copied(N16, tmp_path / "n16")
    lost = [f"action_head.model.transformer_blocks.{i}.attn1.to_v.bias" for i in range(4)]
    folder.edit_tensors(WEIGHTS, drop(*lost))
    folder.edit_tensors(WEIGHTS, lambda t: t.update({"extra": torch.zeros(2)}))
    with pytest.raises(CheckpointError) as caught:
        load_groot(folder.path)
    assert "missing (4)" in str(caught.value)
    assert "unexpected (1): extra" in str(caught.value)
    assert "transformer_blocks.{0–3}.attn1.to_v.bias" in str(caught.value)


@pytest.mark.parametrize("size", [480, (480,), (0, 640), (480.0, 640)])
def test_camera_size_is_two_numbers_of_pixels(size: Any) -> None:
    """A size in another form would give another number of tokens, or an exception in the node."""
    with pytest.raises(CheckpointError, match=r"image_size is .*, expected \(height, width\)"):
        load_groot(N16, image_size=size)
    assert load_groot(N16, image_size=(480, 640)).images.camera_size == (480, 640)


def test_describe_names_every_group(loaded: GrootCheckpoint) -> None:
    """The description is where a user sees which body the policy was made for."""
    lines = "\n".join(loaded.describe())
    assert all(f"{kind} {name}:" in lines for kind in ("state", "action") for name in ("arm", "gripper"))
    assert loaded.embodiment in lines
    assert "tokenizer.json" in lines
    relative = "relative to the state, statistics of 5 steps"
    assert (relative in lines) is (loaded.dims.version == "n17")


def test_pack_step_of_another_embodiment_is_refused(tmp_path: Path) -> None:
    """A LeRobot folder is made for one body."""
    folder = as_lerobot(copied(N17, tmp_path / "n17"))
    with pytest.raises(CheckpointError, match=rf"steps\[{PACK}\].config.embodiment_tag is tiny_arm"):
        load_groot(folder.path, embodiment="gr1")
