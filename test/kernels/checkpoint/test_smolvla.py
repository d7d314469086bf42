# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""SmolVLA folders: a robot must get the policy that was trained, or an error that tells what to repair."""

import shutil
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flashrt_kernels.checkpoint import load_checkpoint, load_smolvla
from flashrt_kernels.checkpoint.smolvla import EXPERT, TEXT, VISION, smolvla_tensors
from flashrt_kernels.checkpoint.smolvla_config import expert_mlp_dim, read_smolvla
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, Folder
from .damage import CONFIG, DIMS, POST, PRE, WEIGHTS, Damage, drop, entry, gone, poison, tensors

SMOLVLA = DATA / "tiny_smolvla"
HEAD = "model.vlm_with_expert.vlm.lm_head.weight"
CROSS = "model.vlm_with_expert.lm_expert.layers.1.self_attn.k_proj.weight"
FC1 = "model." + VISION + "encoder.layers.1.mlp.fc1.bias"
RENAME, NEW_LINE, TOKENIZE, NORMALIZE = 0, 2, 3, 5  # steps of the preprocessor


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A copy of the fixture, its tokenizer included."""
    path = tmp_path / "tiny"
    shutil.copytree(SMOLVLA, path, ignore=shutil.ignore_patterns("oracle*"))
    return Folder(path)


def test_fixture_loads_with_its_own_values() -> None:
    """Without this no SmolVLA runs at all."""
    loaded = load_smolvla(SMOLVLA)
    names = ("top", "extra", "wrist", "empty_camera_0")
    assert (loaded.policy_type, loaded.origin, loaded.notes) == ("smolvla", "lerobot", ())
    assert loaded.cameras == tuple(f"observation.images.{name}" for name in names)
    assert (loaded.horizon, loaded.state_dim, loaded.action_dim, loaded.denoising_steps) == (6, 6, 6, 10)
    assert dict(loaded.state_widths) == {"observation.state": 6}
    assert (loaded.config.image_resolution, loaded.config.tokenizer_max_length) == ((64, 64), 32)
    assert (loaded.dims.image_tokens, loaded.dims.cross) == (4, (False, True, False, True))
    assert (loaded.dims.text.depth, loaded.dims.expert.width, loaded.dims.expert.mlp_dim) == (4, 48, 256)
    assert (loaded.dims.rms_eps, loaded.dims.rope_theta) == (1e-5, 10_000.0)
    stored = load_file(SMOLVLA / WEIGHTS)
    assert len(loaded.tensors) == len(stored) - 1  # the language model's unused head
    for key, tensor in loaded.tensors.items():
        assert torch.equal(tensor, stored["model." + key]), key


def test_description_names_tokenizer_and_statistics() -> None:
    """What a user compares with the dataset before a robot moves."""
    lines = load_smolvla(SMOLVLA).describe()
    assert lines[0] == f"tokenizer: {SMOLVLA / 'tokenizer.json'}"
    assert [line for line in lines if "statistics" in line] == [
        "state statistics: MEAN_STD",
        "action statistics: MEAN_STD",
    ]


def test_released_size_has_the_released_tensors(folder: Folder) -> None:
    """A wrong table would refuse every released SmolVLA: 450 M numbers, the unused head among them."""
    (folder.path / DIMS).unlink()
    for key, value in (("resize_imgs_with_padding", [512, 512]), ("num_vlm_layers", 16)):
        folder.edit_json(CONFIG, key, value=value)
    for key in ("max_state_dim", "max_action_dim"):
        folder.edit_json(CONFIG, key, value=32)
    config, dims = read_smolvla(folder.path)
    shapes = {spec.key: spec.shape for spec in smolvla_tensors(config, dims)}
    head = (49_280, 960)
    assert len(shapes) == 499
    assert round((sum(map(prod, shapes.values())) + prod(head)) / 1e6) == 450
    assert dims.image_tokens == 64
    expected = {
        VISION + "embeddings.patch_embedding.weight": (768, 3, 16, 16),
        VISION + "embeddings.position_embedding.weight": (1024, 768),
        VISION + "encoder.layers.11.mlp.fc1.weight": (3072, 768),
        "vlm_with_expert.vlm.model.connector.modality_projection.proj.weight": (960, 12_288),
        TEXT + "embed_tokens.weight": head,
        TEXT + "layers.15.self_attn.k_proj.weight": (320, 960),
        TEXT + "layers.15.mlp.down_proj.weight": (960, 2560),
        EXPERT + "layers.0.self_attn.k_proj.weight": (320, 720),
        EXPERT + "layers.1.self_attn.k_proj.weight": (320, 320),
        EXPERT + "layers.15.mlp.gate_proj.weight": (2048, 720),
        "action_time_mlp_in.weight": (720, 1440),
    }
    assert {key: shapes[key] for key in expected} == expected


@pytest.mark.parametrize(("width", "mlp_dim"), [(720, 2048), (480, 1280), (48, 256), (96, 256), (97, 256)])
def test_width_of_the_experts_mlp(width: int, mlp_dim: int) -> None:
    """LeRobot derives it, no file holds it: where it is wrong, another width multiplier is refused."""
    assert expert_mlp_dim(width) == mlp_dim


@pytest.mark.parametrize("padding", ["longest", "max_length"])
def test_both_paddings_are_read(folder: Folder, padding: str) -> None:
    """What the prompt is padded to is masked, so policies saved with either must run."""
    folder.edit_json(PRE, "steps", TOKENIZE, "config", "padding", value=padding)
    assert load_smolvla(folder.path).config.tokenizer_max_length == 32


def test_recognised_among_other_origins(folder: Folder) -> None:
    """load_policy takes any folder: `type` in config.json must lead to this reader and its options."""
    (folder.path / "tokenizer.json").rename(folder.path.parent / "tokenizer.json")
    shutil.copy(SMOLVLA / "tokenizer_config.json", folder.path.parent)
    assert load_checkpoint(folder.path, tokenizer=folder.path.parent).policy_type == "smolvla"
    with pytest.raises(CheckpointError, match="pad_prompt_state"):
        load_checkpoint(folder.path, tokenizer=folder.path.parent, pad_prompt_state=True)


def test_unscanned_weights_are_left_to_the_device(folder: Folder) -> None:
    """On a GPU the values are checked there: without the note nobody would look at them."""
    folder.edit_tensors(WEIGHTS, poison(FC1, float("nan")))
    unscanned = load_smolvla(folder.path, scan=False).unscanned
    assert unscanned is not None
    assert unscanned.file == folder.path / WEIGHTS


# What was done → words that the message must contain.
DAMAGES: dict[str, tuple[Damage, list[str]]] = {
    "tensor missing": (tensors(drop(CROSS)), [WEIGHTS, "missing (1)", CROSS.removeprefix("model.")]),
    "tensor unexpected": (tensors(lambda t: t.update(extra=torch.zeros(2))), ["unexpected (1)", "extra"]),
    "not finite": (tensors(poison(FC1, float("inf"))), ["NaN or infinity", "fc1.bias (1 of 64 values)"]),
    "self-attention where the prefix is read": (
        tensors(lambda t: t.update({CROSS: torch.zeros(32, 48)})),
        ["wrong shape, sizes from model_dims.json", "is [32, 48], expected [32, 32]"],
    ),
    "another rhythm of layers": (
        entry(CONFIG, "self_attn_every_n_layers", value=1),
        ["lm_expert.layers.{1, 3}.self_attn.k_proj.weight is [32, 32], expected [32, 48]"],
    ),
    "another width of the expert": (
        entry(CONFIG, "expert_width_multiplier", value=0.5),
        ["action_in_proj.weight is [48, 8], expected [32, 8]"],
    ),
    "no weights": (gone(WEIGHTS), [WEIGHTS, "no such file"]),
    "no preprocessor": (gone(PRE), [PRE, "no such file"]),
    "no tokenizer": (gone("tokenizer.json"), ["no tokenizer found", "tokenizer"]),
    "no new line": (
        entry(PRE, "steps", NEW_LINE, "registry_name", value="to_batch_processor"),
        ["to_batch_processor for the second time"],
    ),
    "normaliser of another feature": (
        entry(PRE, "steps", NORMALIZE, "config", "features", "observation.state", "shape", value=[7]),
        ["observation.state.shape is [7], expected [6]"],
    ),
    "unknown step": (
        entry(POST, "steps", 1, "registry_name", value="absolute_actions_processor"),
        ["absolute_actions_processor, a step that this policy does not know"],
    ),
    "special tokens around images": (
        entry(CONFIG, "add_image_special_tokens", value=True),
        ["add_image_special_tokens is true, expected false: no special tokens around images"],
    ),
    "ALOHA's joints": (entry(CONFIG, "adapt_to_pi_aloha", value=True), ["adapt_to_pi_aloha is true"]),
    "every layer sees all": (
        entry(CONFIG, "attention_mode", value="self_attn"),
        ['attention_mode is "self_attn", expected one of cross_attn'],
    ),
    "half an expert": (
        entry(CONFIG, "num_expert_layers", value=2),
        ["num_expert_layers is 2, expected num_vlm_layers = 4"],
    ),
    "more layers than there are": (
        entry(CONFIG, "num_vlm_layers", value=6),
        ["num_vlm_layers is 6, but HuggingFaceTB/SmolVLM2-500M-Video-Instruct has 5 layers"],
    ),
    "all layers": (
        entry(CONFIG, "num_vlm_layers", value=0),
        ["num_vlm_layers is 0, expected an integer from 1"],
    ),
    "images are not square": (
        entry(CONFIG, "resize_imgs_with_padding", value=[64, 48]),
        ["resize_imgs_with_padding is [64, 48], expected a square"],
    ),
    "images are not resized": (
        entry(CONFIG, "resize_imgs_with_padding", value=None),
        ["resize_imgs_with_padding is null, expected a list of 2 positive integers"],
    ),
    "images of another size": (
        entry(CONFIG, "resize_imgs_with_padding", value=[128, 128]),
        [DIMS, "vision.image_size is 64, expected 128"],
    ),
    "state too wide": (
        entry(CONFIG, "max_state_dim", value=5),
        ["observation.state is 6 wide, expected at most max_state_dim = 5"],
    ),
    "periods reversed": (entry(CONFIG, "min_period", value=5.0), ["min_period is 5.0, expected less than"]),
    "scale does not divide": (
        entry(DIMS, "scale", value=3),
        [DIMS, "scale is 3, expected a divisor of the 8 patches along an edge"],
    ),
    "odd grid": (
        entry(DIMS, "vision", "patch_size", value=4),
        ["position_embedding.weight is [64, 48], expected [256, 48]"],
    ),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_refused(folder: Folder, damage: Damage, words: list[str]) -> None:
    """Anything that would run another policy than the trained one, in words that say what to repair."""
    damage(folder)
    with pytest.raises(CheckpointError) as caught:
        load_smolvla(folder.path)
    for word in words:
        assert word in str(caught.value)


def test_unknown_backbone(folder: Folder) -> None:
    """The name is all that config.json says of the sizes: another model needs them written down."""
    (folder.path / DIMS).unlink()
    folder.edit_json(CONFIG, "vlm_model_name", value="somebody/other")
    with pytest.raises(CheckpointError, match=r"vlm_model_name is somebody/other, .*in model_dims\.json"):
        load_smolvla(folder.path)


def test_released_backbone_has_images_of_its_own_size(folder: Folder) -> None:
    """512 pixels are in the sizes of the position table, not in a choice of the user."""
    (folder.path / DIMS).unlink()
    with pytest.raises(CheckpointError, match=r"resize_imgs_with_padding is \[64, 64\], expected 512"):
        load_smolvla(folder.path)


def test_grid_of_another_kind_is_refused(folder: Folder) -> None:
    """transformers finds a position by rounding a fraction: only for powers of two it is surely its own."""
    for key, value in (("image_size", 96), ("patch_size", 8)):
        folder.edit_json(DIMS, "vision", key, value=value)
    folder.edit_json(CONFIG, "resize_imgs_with_padding", value=[96, 96])
    with pytest.raises(CheckpointError, match="12 patches along an edge, expected a power of two"):
        load_smolvla(folder.path)
