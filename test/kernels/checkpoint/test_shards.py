# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Weights in several files: large checkpoints are uploaded so, and one file may be missing or another's."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.errors import CheckpointError

from .conftest import FIXTURE, TOKENIZER, Folder
from .damage import FC1, Q0, WEIGHTS, drop, poison

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(folder: Folder) -> Folder:
    """The Pi0.5 fixture in two files, the language model in the first."""
    tensors = load_file(folder.path / WEIGHTS)
    places = {key: FIRST if "language_model" in key else SECOND for key in tensors}
    for name in (FIRST, SECOND):
        save_file({key: tensors[key] for key in tensors if places[key] == name}, folder.path / name)
    (folder.path / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    (folder.path / WEIGHTS).unlink()
    return folder


def test_shards_are_one_checkpoint(sharded: Folder) -> None:
    """The same tensors, whatever file they are in."""
    want, got = load_lerobot(FIXTURE, TOKENIZER).tensors, load_lerobot(sharded.path).tensors
    assert list(got) == list(want)
    assert all(torch.equal(got[key], want[key]) for key in want)


def test_single_file_comes_first(sharded: Folder) -> None:
    """As other programs read a folder that has both."""
    shutil.copy(FIXTURE / WEIGHTS, sharded.path)
    (sharded.path / FIRST).unlink()
    assert load_lerobot(sharded.path).tensors


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "", "model.bin", "..", 3, None]
)
def test_names_that_lead_elsewhere_are_refused(sharded: Folder, name: Any) -> None:
    """A downloaded index must not choose which file of the machine is read."""
    sharded.edit_json(INDEX, "weight_map", Q0, value=name)
    with pytest.raises(CheckpointError, match="weight_map"):
        load_lerobot(sharded.path)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"weight_map": 3}', b"{}", b'{"weight_map": {}}'])
def test_damaged_indices_are_refused(sharded: Folder, content: bytes) -> None:
    """Whatever is left of the index."""
    (sharded.path / INDEX).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"index\.json"):
        load_lerobot(sharded.path)


def test_missing_file_is_named(sharded: Folder) -> None:
    """The most frequent damage of a checkpoint in parts."""
    (sharded.path / SECOND).unlink()
    with pytest.raises(CheckpointError, match=rf"{SECOND}: no such file"):
        load_lerobot(sharded.path)


def test_cut_file_is_named(sharded: Folder) -> None:
    """A download that stopped."""
    data = (sharded.path / FIRST).read_bytes()
    (sharded.path / FIRST).write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=rf"{FIRST}: truncated"):
        load_lerobot(sharded.path)


def test_files_of_two_trainings_are_refused(sharded: Folder) -> None:
    """Every tensor that the index puts elsewhere is named with its file."""
    sharded.edit_tensors(FIRST, drop(Q0))
    sharded.edit_tensors(SECOND, lambda t: t.update({Q0: torch.zeros(2)}))
    with pytest.raises(CheckpointError) as caught:
        load_lerobot(sharded.path)
    text = str(caught.value)
    assert f"missing, but in the index (1): {Q0} in {FIRST}" in text
    assert f"unexpected, not in the index (1): {Q0} in {SECOND}" in text


def test_shards_of_another_policy_are_listed(sharded: Folder) -> None:
    """The strict comparison does not stop at the border of a file."""
    document = json.loads((sharded.path / INDEX).read_text())
    del document["weight_map"][FC1]
    (sharded.path / INDEX).write_text(json.dumps(document))
    sharded.edit_tensors(SECOND, drop(FC1))
    with pytest.raises(CheckpointError, match=rf"{INDEX}: .*\n  missing \(1\): .*mlp\.fc1\.bias"):
        load_lerobot(sharded.path)


def test_not_finite_is_seen_in_every_file(sharded: Folder) -> None:
    """A NaN in the second file turns every action into NaN, too."""
    sharded.edit_tensors(SECOND, poison(FC1, float("nan")))
    with pytest.raises(CheckpointError, match=r"NaN or infinity .*fc1\.bias"):
        load_lerobot(sharded.path)


def test_index_without_the_single_file_is_found_in_messages(tmp_path: Path) -> None:
    """Neither file nor index: the message says which file is looked for."""
    shutil.copytree(FIXTURE, tmp_path / "tiny", ignore=shutil.ignore_patterns("oracle*", WEIGHTS))
    with pytest.raises(CheckpointError, match=rf"{WEIGHTS}: no such file"):
        load_lerobot(tmp_path / "tiny", TOKENIZER)
