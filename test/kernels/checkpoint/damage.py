# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Ways to damage a checkpoint folder."""

import re
from collections.abc import Callable

import torch

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
