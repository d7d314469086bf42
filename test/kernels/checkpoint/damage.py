# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Ways to damage a checkpoint folder."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from flashrt_kernels import CheckpointError
from flashrt_kernels.checkpoint.checkpoint import Checkpoint

from .conftest import Folder

WEIGHTS = "model.safetensors"
CONFIG, DIMS = "config.json", "model_dims.json"
PRE, POST = "policy_preprocessor.json", "policy_postprocessor.json"
RENAME, RELATIVE, NORMALIZER, TOKENIZE = 0, 2, 3, 5  # steps of the fixture's preprocessor
PALIGEMMA = "model.paligemma_with_expert.paligemma."
EXPERT = "model.paligemma_with_expert.gemma_expert."
EMBED, HEAD = PALIGEMMA + "model.language_model.embed_tokens.weight", PALIGEMMA + "lm_head.weight"
Q0 = PALIGEMMA + "model.language_model.layers.0.self_attn.q_proj.weight"
FC1 = PALIGEMMA + "model.vision_tower.vision_model.encoder.layers.1.mlp.fc1.bias"
CAMERAS = [f"observation.images.{name}" for name in ("top", "wrist", "extra")]

Edit = Callable[[dict[str, torch.Tensor]], object]

Damage = Callable[[Folder], object]


def tensors(edit: Edit, file: str = WEIGHTS) -> Damage:
    return lambda folder: folder.edit_tensors(file, edit)


def entry(file: str, *keys: str | int, value: object) -> Damage:
    return lambda folder: folder.edit_json(file, *keys, value=value)


def content(file: str, data: bytes) -> Damage:
    return lambda folder: (folder.path / file).write_bytes(data)


def gone(file: str) -> Damage:
    return lambda folder: (folder.path / file).unlink()


def cut(file: str, keep: float) -> Damage:
    def damage(folder: Folder) -> None:
        data = (folder.path / file).read_bytes()
        (folder.path / file).write_bytes(data[: int(keep * len(data))])

    return damage


def pickled(file: str, zipped: bool) -> Damage:
    return lambda folder: torch.save(
        {"weight": torch.zeros(2)}, folder.path / file, _use_new_zipfile_serialization=zipped
    )


def several(*damages: Damage) -> Damage:
    return lambda folder: [damage(folder) for damage in damages]


def only_bin(folder: Folder) -> None:
    (folder.path / WEIGHTS).rename(folder.path / "pytorch_model.bin")


def no_tokenizer(folder: Folder) -> None:
    for file in folder.path.glob("tokenizer*"):
        file.unlink()


def poison(key: str, value: float) -> Callable[[dict[str, torch.Tensor]], None]:
    def edit(t: dict[str, torch.Tensor]) -> None:
        t[key].view(-1)[0] = value

    return edit


def rename(pattern: str, replacement: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        for key in list(tensors):
            tensors[re.sub(pattern, replacement, key)] = tensors.pop(key)

    return edit


def drop(*keys: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        for key in keys:
            del tensors[key]

    return edit


# Anything that may stand in a JSON file.
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CHOICES = st.lists(st.integers(0, 2**16), min_size=1, max_size=5)


def replaced(document: Any, choices: list[int], value: Any) -> Any:
    """The document with `value` somewhere: `choices` lead there."""
    place = document
    for depth, choice in enumerate(choices, 1):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = keys[choice % len(keys)]
        if depth == len(choices) or not isinstance(place[key], dict | list):
            place[key] = value
            break
        place = place[key]
    return document


def load_with(
    load: Callable[[Path], Checkpoint], folder: Path, name: str, data: bytes
) -> Checkpoint | CheckpointError:
    """What `load` says of `folder` with `name` replaced, which is restored afterwards.

    Any exception but CheckpointError passes through.
    """
    original = (folder / name).read_bytes()
    (folder / name).unlink()  # a new file: the mapping of an earlier load must keep its own
    (folder / name).write_bytes(data)
    try:
        return load(folder)
    except CheckpointError as error:
        return error
    finally:
        (folder / name).unlink()
        (folder / name).write_bytes(original)
