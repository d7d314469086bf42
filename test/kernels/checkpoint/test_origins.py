# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""One function for every checkpoint: its origin is recognised, or the user learns what is missing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashrt_kernels.checkpoint import ORIGINS, load_checkpoint
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, FIXTURE, TOKENIZER, Folder
from .damage import CONFIG
from .openpi_folder import openpi_folder

SAID: dict[str, Any] = {"tokenizer": TOKENIZER}


@pytest.mark.parametrize(
    ("name", "policy", "origin"),
    [
        ("tiny_pi05", "pi05", "lerobot"),
        ("tiny_pi0", "pi0", "lerobot"),
        ("tiny_pi0_fast", "pi0_fast", "lerobot"),
        ("tiny_openpi_jax_pi05", "pi05", "openpi (JAX)"),
        ("tiny_openpi_jax_pi0", "pi0", "openpi (JAX)"),
    ],
)
def test_origin_is_recognised(name: str, policy: str, origin: str) -> None:
    """No option says which program wrote a folder."""
    fast: dict[str, Any] = {"fast_tokenizer": DATA / "fast_tokenizer_tiny"} if "fast" in policy else {}
    loaded = load_checkpoint(DATA / name, **SAID, **fast)
    assert (loaded.policy_type, loaded.origin) == (policy, origin)
    assert loaded.state_dim == 5
    assert loaded.describe()


def test_openpis_folder_is_not_taken_for_lerobots(tmp_path: Path) -> None:
    """Both have config.json and model.safetensors."""
    folder = openpi_folder(tmp_path / "openpi", "tiny_pi0")
    assert load_checkpoint(folder.path).origin == "openpi"
    (folder.path / CONFIG).unlink()
    with pytest.raises(CheckpointError, match="action_in_proj"):  # openpi's own training writes 32 actions
        load_checkpoint(folder.path)


def test_unknown_folder_lists_what_each_origin_needs(tmp_path: Path) -> None:
    """The most frequent slip: the folder above, or below, the checkpoint."""
    (tmp_path / "30000").mkdir()
    with pytest.raises(CheckpointError, match="not recognised as a checkpoint; it holds 30000") as caught:
        load_checkpoint(tmp_path)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == [origin.name for origin in ORIGINS]
    for words in ("policy_preprocessor.json", "params/manifest.ocdbt", "norm_stats.json", "Gr00tN1d7"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "absent", "no such folder"),
        (lambda path: shutil.copy(FIXTURE / CONFIG, path / CONFIG), "a file"),
        (lambda path: path, "it holds nothing"),
    ],
    ids=["absent", "file", "empty"],
)
def test_not_a_checkpoint_folder(tmp_path: Path, make: Callable[[Path], str | Path], words: str) -> None:
    """A wrong path."""
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(make(tmp_path))


@pytest.mark.parametrize(
    ("name", "options", "takes"),
    [
        ("tiny_pi05", {"delta_actions": "6,-1"}, "fast_tokenizer, pad_prompt_state"),
        ("tiny_pi05", {"embodiment": "droid"}, "fast_tokenizer, pad_prompt_state"),
        ("tiny_openpi_jax_pi05", {"pad_prompt_state": True}, "delta_actions, chunk_size"),
        ("tiny_openpi_jax_pi05", {"image_size": (224, 224)}, "delta_actions, chunk_size"),
        ("tiny_pi05", {"fast_tokenizer": "fast"}, "pi05, which writes no tokens"),
        ("tiny_smolvla", {"fast_tokenizer": "fast"}, "smolvla, which writes no tokens"),
        ("tiny_openpi_jax_pi05", {"fast_tokenizer": "fast"}, "pi05, which writes no tokens"),
    ],
)
def test_options_without_a_meaning_are_refused(name: str, options: dict[str, Any], takes: str) -> None:
    """An option that does nothing leaves the user believing that it did."""
    with pytest.raises(CheckpointError, match=next(iter(options))) as caught:
        load_checkpoint(DATA / name, **SAID, **options)
    assert takes in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"state_in_prompt": "false"}, "state_in_prompt is 'false', expected True or False"),
        ({"adapt_to_pi": "no"}, "adapt_to_pi is 'no', expected True or False"),
        ({"chunk_size": 5.0}, "chunk_size is 5.0, expected an integer"),
        ({"chunk_size": True}, "chunk_size is True, expected an integer"),
        ({"delta_actions": 6}, "delta_actions is 6, expected counts joined by commas"),
    ],
)
def test_options_of_a_wrong_type_are_refused(options: dict[str, Any], words: str) -> None:
    """`"false"` is true for Python: the prompt would hold what it was never trained with."""
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(DATA / "tiny_openpi_jax_pi05", **SAID, **options)


def test_unknown_type_of_lerobot_lists_the_known_ones(folder: Folder) -> None:
    """LeRobot has many policies; a user has to learn which ones run here."""
    folder.edit_json(CONFIG, "type", value="act")
    with pytest.raises(CheckpointError, match=r"type is \"act\", expected one of .*pi05.*pi0_fast"):
        load_checkpoint(folder.path)


def test_operating_system_errors_are_checkpoint_errors(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of another user, a failing disk: the node's handler of bad checkpoints must see them, too."""

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", denied)
    with pytest.raises(CheckpointError, match=r"tiny: cannot be read: .*Permission denied"):
        load_checkpoint(folder.path)
