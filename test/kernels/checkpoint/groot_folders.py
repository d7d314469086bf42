# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T folders that a test may change: Isaac-GR00T's, and what LeRobot would have saved of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from .conftest import DATA, Folder
from .damage import WEIGHTS

N16, N17 = DATA / "tiny_groot_n16", DATA / "tiny_groot_n17"
TAG = {"n16": "libero_panda", "n17": "tiny_arm"}
PACK_STATE = "policy_preprocessor_step_2_groot_n1_7_pack_inputs_v1.safetensors"
UNPACK_STATE = "policy_postprocessor_step_0_groot_action_unpack_unnormalize_v2.safetensors"
PACK, ENCODE, DECODE = 2, 3, 0  # steps of the fixture's JSONs
ISAAC_FILES = ("processor_config.json", "statistics.json", "embodiment_id.json")


def raw(folder: Path) -> dict[str, np.ndarray]:
    """What the public implementation made of a raw observation."""
    return {key: tensor.numpy() for key, tensor in load_file(folder / "oracle_raw.safetensors").items()}


def copied(source: Path, target: Path) -> Folder:
    """A copy of a fixture, its tokenizer included."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("oracle*"))
    return Folder(target)


def sharded(folder: Folder) -> None:
    """The weights in two files and an index, as released ones are."""
    tensors = load_file(folder.path / WEIGHTS)
    (folder.path / WEIGHTS).unlink()
    weight_map: dict[str, str] = {}
    for number, part in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), 1):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file({key: tensors[key] for key in part}, folder.path / name)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder.path / "model.safetensors.index.json").write_text(json.dumps(index))


def as_lerobot(folder: Folder, **config: Any) -> Folder:
    """The N1.7 fixture as LeRobot saves a tuned policy: its own config.json, keys behind `_groot_model.`."""
    for name in ISAAC_FILES:
        (folder.path / name).unlink()

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for key in list(tensors):
            tensors["_groot_model." + key] = tensors.pop(key)

    folder.edit_tensors(WEIGHTS, rename)
    features = {f"observation.images.{name}": {"type": "VISUAL", "shape": [3, 40, 64]} for name in "ba"}
    features["observation.state"] = {"type": "STATE", "shape": [7]}
    document = {
        "type": "groot",
        "chunk_size": 5,
        "n_action_steps": 5,
        "max_state_dim": 132,
        "max_action_dim": 132,
        "embodiment_tag": "tiny_arm",
        "input_features": features,
        "output_features": {"action": {"type": "ACTION", "shape": [7]}},
    }
    (folder.path / "config.json").write_text(json.dumps(document | config))
    return folder


def with_flat_statistics(folder: Folder, **decode: Any) -> Folder:
    """LeRobot's other form: tuned with a dataset's statistics, which know no groups."""
    bounds = {"action.min": torch.arange(7.0) - 4, "action.max": torch.arange(7.0)}
    bounds["action.max"][3] = bounds["action.min"][3]  # a joint that never moved
    save_file(bounds, folder.path / UNPACK_STATE)
    settings = {
        "env_action_dim": 7,
        "normalize_min_max": True,
        "clip_normalized_action": True,
        "libero_gripper_action": False,
        "libero_gripper_binarize": True,
    }
    step = {
        "registry_name": "groot_action_unpack_unnormalize_v2",
        "config": settings | decode,
        "state_file": UNPACK_STATE,
    }
    folder.edit_json("policy_postprocessor.json", "steps", DECODE, value=step)
    for key in ("raw_stats", "modality_config", "video_modality_keys"):
        folder.edit_json("policy_preprocessor.json", "steps", PACK, "config", key, value=None)
    return folder
