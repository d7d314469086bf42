# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A LeRobot folder that a test may damage."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

DATA = Path(__file__).parents[2] / "data"
FIXTURE = DATA / "tiny_pi05"
TOKENIZER = DATA / "tokenizer_tiny"
STATE_FILE = "policy_preprocessor_step_3_normalizer_processor.safetensors"
ACTION_FILE = "policy_postprocessor_step_0_unnormalizer_processor.safetensors"
REMOVED = object()


class Folder:
    """A checkpoint folder with the edits that a test makes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def edit_json(self, file: str, *keys: str | int, value: Any) -> None:
        """Sets (or with REMOVED deletes) the entry at `keys`."""
        document = json.loads((self.path / file).read_text())
        place = document
        for key in keys[:-1]:
            place = place[key]
        if value is REMOVED:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
        (self.path / file).write_text(json.dumps(document))

    def read_json(self, file: str, *keys: str | int) -> Any:
        """The entry at `keys`."""
        place = json.loads((self.path / file).read_text())
        for key in keys:
            place = place[key]
        return place

    def steps(self, file: str) -> dict[str, int]:
        """Step name → its index."""
        steps = json.loads((self.path / file).read_text())["steps"]
        return {step["registry_name"]: i for i, step in enumerate(steps)}

    def edit_tensors(self, file: str, edit: Callable[[dict[str, torch.Tensor]], Any]) -> None:
        tensors = load_file(self.path / file)
        edit(tensors)
        save_file({key: tensor.clone().contiguous() for key, tensor in tensors.items()}, self.path / file)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A copy of the Pi0.5 fixture, tokenizer included."""
    path = tmp_path / "tiny"
    shutil.copytree(FIXTURE, path, ignore=shutil.ignore_patterns("oracle*"))
    for file in TOKENIZER.iterdir():
        shutil.copy(file, path)
    return Folder(path)
