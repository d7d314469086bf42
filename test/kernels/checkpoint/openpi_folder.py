# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Folders as openpi writes them, made of the LeRobot fixtures: the weights are the same."""

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from .conftest import DATA, TOKENIZER, Folder

ASSET = "assets/tiny_robot/norm_stats.json"
STATS: dict[str, dict[str, list[float]]] = {
    "state": {
        "mean": [0.1, -0.2, 0.3, 0.0, 0.5],
        "std": [0.5, 0.4, 0.6, 1.0, 0.2],
        "q01": [-0.9, -0.8, -0.95, -1.9, 0.02],
        "q99": [0.9, 0.85, 0.9, 1.8, 0.98],
    },
    "actions": {
        "mean": [0.05, -0.1, 0.2, 0.1, 0.4],
        "std": [0.3, 0.5, 0.4, 0.9, 0.3],
        "q01": [-0.7, -0.9, -0.8, -1.5, 0.0],
        "q99": [0.8, 0.9, 0.7, 1.6, 1.0],
    },
}
CONFIG_JSON: dict[str, Any] = {
    "action_dim": 8,
    "action_horizon": 6,
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
    "precision": "float32",
}


def write_statistics(folder: Path, asset: str, stats: Any = STATS) -> None:
    """assets/<asset>/norm_stats.json."""
    place = folder / "assets" / asset
    place.mkdir(parents=True)
    (place / "norm_stats.json").write_text(json.dumps({"norm_stats": stats}))


def openpi_folder(path: Path, name: str, asset: str = "tiny_robot") -> Folder:
    """openpi's PyTorch form of `tiny_pi05` or `tiny_pi0`, with the sizes of the toy beside it."""
    path.mkdir()
    tensors = load_file(DATA / name / "model.safetensors")
    bare = {
        key.removeprefix("model."): tensor for key, tensor in tensors.items() if "embed_tokens" not in key
    }
    save_file(bare, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG_JSON))
    shutil.copy(DATA / name / "model_dims.json", path)
    for file in TOKENIZER.iterdir():
        shutil.copy(file, path)
    write_statistics(path, asset)
    return Folder(path)
