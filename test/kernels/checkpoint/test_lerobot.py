# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A robot must get the policy that was trained, or an error that tells what to repair."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flashrt_kernels.checkpoint import layout, load_lerobot
from flashrt_kernels.checkpoint.dims import GEMMA_VARIANTS, RELEASED_VOCAB, ModelDims, released_vision
from flashrt_kernels.errors import CheckpointError

from .conftest import FIXTURE, TOKENIZER, Folder
from .damage import (
    CONFIG,
    DIMS,
    EMBED,
    EXPERT,
    FC1,
    HEAD,
    NORMALIZER,
    PRE,
    Q0,
    WEIGHTS,
    Edit,
    drop,
    poison,
    rename,
)


def test_fixture_loads_with_its_own_values() -> None:
    """Without this no policy runs at all."""
    loaded = load_lerobot(FIXTURE, TOKENIZER)
    config = loaded.config
    assert (loaded.policy_type, loaded.origin) == ("pi05", "lerobot")
    assert config.cameras == tuple(f"observation.images.{name}" for name in ("top", "wrist", "extra"))
    assert (config.chunk_size, config.max_action_dim, config.state_dim, config.action_dim) == (6, 8, 5, 5)
    assert (config.image_resolution, config.tokenizer_max_length) == ((56, 56), 48)
    assert (config.num_inference_steps, config.min_period, config.max_period) == (10, 0.004, 4.0)
    assert loaded.dims.vision.patches == 16
    assert (loaded.dims.vlm.num_heads, loaded.dims.action_expert.width, loaded.dims.vocab) == (8, 32, 512)
    assert loaded.relative_action_mask is None
    assert loaded.notes == ()
    stored = load_file(FIXTURE / WEIGHTS)
    assert len(loaded.tensors) == len(stored) - 2  # the second embedding copy and the expert's unused head
    for key, tensor in loaded.tensors.items():
        assert torch.equal(tensor, stored["model." + key]), key


def released_dims() -> ModelDims:
    vlm, expert = GEMMA_VARIANTS["gemma_2b"], GEMMA_VARIANTS["gemma_300m"]
    return ModelDims(released_vision(224), vlm, expert, RELEASED_VOCAB)


def test_released_size_has_the_released_tensors() -> None:
    """A wrong table would refuse every released Pi0.5 (813 tensors, two of them unused copies)."""
    specs = {spec.key: spec for spec in layout.pi05_tensors(released_dims(), action_width=32, state_width=32)}
    assert len(specs) == 813 - 2
    assert round(sum(torch.Size(spec.shape).numel() for spec in specs.values()) / 1e9, 2) == 3.35
    shapes = {
        layout.VISION + "embeddings.patch_embedding.weight": (1152, 3, 14, 14),
        layout.VISION + "embeddings.position_embedding.weight": (256, 1152),
        layout.VISION + "encoder.layers.26.mlp.fc1.weight": (4304, 1152),
        layout.PROJECTOR + "weight": (2048, 1152),
        layout.EMBEDDING: (257152, 2048),
        layout.VLM + "layers.17.self_attn.k_proj.weight": (256, 2048),
        layout.VLM + "layers.17.mlp.down_proj.weight": (2048, 16384),
        layout.EXPERT + "layers.17.self_attn.o_proj.weight": (1024, 2048),
        layout.EXPERT + "layers.0.input_layernorm.dense.weight": (3072, 1024),
        layout.EXPERT + "norm.dense.bias": (3072,),
        "action_in_proj.weight": (1024, 32),
        "action_out_proj.bias": (32,),
        "time_mlp_in.weight": (1024, 1024),
    }
    assert {key: specs[key].shape for key in shapes} == shapes


def test_released_sizes_are_used_without_model_dims(folder: Folder) -> None:
    """Released checkpoints carry no model_dims.json; their sizes follow from the variants."""
    (folder.path / DIMS).unlink()
    folder.edit_json(CONFIG, "image_resolution", value=[224, 224])
    with pytest.raises(
        CheckpointError,
        match=r"(?s)from the released variants .* model\.action_in_proj\.bias is \[32\], expected \[1024\]",
    ):
        load_lerobot(folder.path)


def test_operating_system_errors_are_checkpoint_errors(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of another user, a failing disk: the node's handler of bad checkpoints must see them, too."""

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", denied)
    with pytest.raises(CheckpointError, match=r"tiny: cannot be read: .*Permission denied: .*config\.json"):
        load_lerobot(folder.path)


# ---- other names for the same tensor ----


ALIASES: dict[str, Edit] = {
    "openpi keys without the model prefix": rename(r"^model\.", ""),
    "transformers 5.17 vision keys": rename(r"\.vision_tower\.vision_model\.", ".vision_tower."),
    "both": rename(r"^model\.(.*\.vision_tower\.)vision_model\.", r"\1"),
    "only lm_head of the tied pair": drop(EMBED),
    "only embed_tokens of the tied pair": drop(HEAD),
    "without the expert's unused head": drop(EXPERT + "lm_head.weight"),
    "an expert head of any shape": lambda t: t.update({EXPERT + "lm_head.weight": torch.zeros(3)}),
    "early names of the time MLP": rename(r"^model\.time_mlp_", "model.action_time_mlp_"),
    "Pi0's state projection": lambda t: t.update(
        {"model.state_proj.weight": torch.zeros(32, 8), "model.state_proj.bias": torch.zeros(32)}
    ),
}


@pytest.mark.parametrize("edit", ALIASES.values(), ids=ALIASES)
def test_other_writers_names_are_read(folder: Folder, edit: Edit) -> None:
    """Each of these names stands in files that people have; refusing one locks them out."""
    want = load_lerobot(FIXTURE, TOKENIZER).tensors
    folder.edit_tensors(WEIGHTS, edit)
    got = load_lerobot(folder.path).tensors
    assert list(got) == list(want)
    assert all(torch.equal(got[key], want[key]) for key in want)


def test_half_precision_weights_keep_their_dtype(folder: Folder) -> None:
    """LeRobot's bf16 policies keep norms in float32: a converting reader doubles memory or loses digits."""
    folder.edit_tensors(WEIGHTS, lambda t: t.update({EMBED: t[EMBED].bfloat16(), HEAD: t[HEAD].bfloat16()}))
    tensors = load_lerobot(folder.path).tensors
    assert tensors[layout.EMBEDDING].dtype == torch.bfloat16
    assert tensors[layout.VLM + "norm.weight"].dtype == torch.float32


@pytest.mark.parametrize(
    ("file", "keys", "value", "words"),
    [
        (
            DIMS,
            ("expert", "width"),
            48,
            r"(?s)wrong shape, .*action_in_proj\.weight is \[32, 8\], expected \[48, 8\]",
        ),
        (CONFIG, ("max_action_dim",), 16, r"action_in_proj\.weight is \[32, 8\], expected \[32, 16\]"),
        (PRE, ("steps", NORMALIZER, "registry_name"), "pi0_new_line_processor", "pi0_new_line_processor"),
    ],
    ids=["model dims", "action width", "processor"],
)
def test_R56_wrong_dims_or_processor(
    folder: Folder, file: str, keys: tuple[str | int, ...], value: object, words: str
) -> None:
    """Files of two policies mixed in one folder: refused, with both sizes or the step printed."""
    folder.edit_json(file, *keys, value=value)
    with pytest.raises(CheckpointError, match=words):
        load_lerobot(folder.path)


def test_R55_keys_do_not_match_lists_all_kinds_at_once(folder: Folder) -> None:
    """One kind at a time would send the user through the file again and again."""

    def edit(t: dict[str, torch.Tensor]) -> None:
        del t[Q0]
        t["model.surplus"] = torch.zeros(1)
        t[FC1] = torch.zeros(3)
        t["model.action_in_proj.bias"] = t["model.action_in_proj.bias"].to(torch.int64)

    folder.edit_tensors(WEIGHTS, edit)
    with pytest.raises(CheckpointError) as caught:
        load_lerobot(folder.path)
    text = str(caught.value)
    for words in (
        "missing (1)",
        "unexpected (1): model.surplus",
        "wrong shape, sizes from model_dims.json (1)",
        "wrong dtype (1)",
    ):
        assert words in text


def test_R55_long_lists_are_complete_and_grouped(folder: Folder) -> None:
    """Whoever repairs a file needs every name; 53 lines that differ in the layer hide the odd ones."""
    folder.edit_tensors(WEIGHTS, lambda t: [t.pop(key) for key in list(t) if "vision_tower" in key])
    with pytest.raises(CheckpointError, match=r"missing \(53\):\n") as caught:
        load_lerobot(folder.path)
    text = str(caught.value)
    assert layout.VISION + "encoder.layers.{0–2}.mlp.fc1.bias" in text
    assert layout.VISION + "post_layernorm.weight" in text
    assert len(text.splitlines()) == 2 + 5 + 16


def test_R55_all_non_finite_tensors_are_listed(folder: Folder) -> None:
    """A NaN in one weight turns every action into NaN."""
    folder.edit_tensors(WEIGHTS, lambda t: [poison(Q0, float("nan"))(t), poison(FC1, float("inf"))(t)])
    with pytest.raises(CheckpointError, match="in 2 tensor") as caught:
        load_lerobot(folder.path)
    assert "q_proj.weight" in str(caught.value)
    assert "fc1.bias" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_is_seen_in_every_dtype(folder: Folder, dtype: torch.dtype, value: float) -> None:
    """The check must not depend on how the weights are stored."""
    folder.edit_tensors(WEIGHTS, lambda t: [t.update({FC1: t[FC1].to(dtype)}), poison(FC1, value)(t)])
    with pytest.raises(CheckpointError, match=r"fc1\.bias \(1 of 80 values\)"):
        load_lerobot(folder.path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "absent", "no such folder"),
        (lambda path: shutil.copy(FIXTURE / CONFIG, path / CONFIG), "a file"),
        (lambda path: path, CONFIG),
    ],
    ids=["absent", "file", "empty"],
)
def test_not_a_checkpoint_folder(tmp_path: Path, make: Callable[[Path], str | Path], words: str) -> None:
    """The most frequent slip is a wrong path."""
    with pytest.raises(CheckpointError, match=re.escape(words)):
        load_lerobot(make(tmp_path))
