# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Whatever a broken download or disk leaves behind: a policy, or a `CheckpointError`, and nothing else.

Any other exception would pass the node's handler of bad checkpoints and leave it half configured.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashrt_kernels.checkpoint import PiCheckpoint, load_checkpoint, load_lerobot
from flashrt_kernels.checkpoint.tokenizer import load_tokenizer
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, FIXTURE, TOKENIZER
from .damage import ANY_JSON, CHOICES, CONFIG, PRE, load_with, replaced
from .openpi_folder import ASSET, openpi_folder

FILES = [
    *(path for path in sorted(FIXTURE.iterdir()) if not path.name.startswith("oracle")),
    *sorted(TOKENIZER.iterdir()),
]
NAMES = [path.name for path in FILES]
SMALL = [path.name for path in FILES if path.suffix == ".json" and "tokenizer" not in path.name]
SAFETENSORS = [path.name for path in FILES if path.suffix == ".safetensors"]
HEADER = 8  # bytes of a safetensors file before its JSON

fuzz = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of which one file at a time is replaced."""
    folder = tmp_path_factory.mktemp("linked")
    for path in FILES:
        shutil.copy(path, folder)
    return folder


@fuzz
@given(name=st.sampled_from(NAMES), keep=st.floats(0, 0.999))
def test_truncated_files_are_refused(linked: Path, name: str, keep: float) -> None:
    """A copy that stopped half-way is the most frequent damage of all."""
    data = (linked / name).read_bytes()
    outcome = load_with(load_lerobot, linked, name, data[: int(keep * len(data.rstrip()))])
    if name == "tokenizer.model":  # not read: tokenizer.json comes first
        assert isinstance(outcome, PiCheckpoint)
    else:
        assert isinstance(outcome, CheckpointError)
        assert name.split("_config")[0] in str(outcome)


@fuzz
@given(keep=st.floats(0, 0.999))
def test_truncated_sentencepiece_model_is_refused_or_harmless(tmp_path: Path, keep: float) -> None:
    """The other tokenizer form, read only where there is no tokenizer.json."""
    data = (TOKENIZER / "tokenizer.model").read_bytes()
    file = tmp_path / "tokenizer.model"
    file.write_bytes(data[: int(keep * len(data))])
    try:
        outcome: int | str = load_tokenizer(file).size
    except CheckpointError as error:
        outcome = str(error)
    # A cut between two protobuf fields leaves a valid, smaller vocabulary.
    assert outcome in range(513) or "tokenizer.model" in str(outcome)


@fuzz
@given(name=st.sampled_from(SAFETENSORS), where=st.floats(0, 0.999), byte=st.integers(0, 255))
def test_damaged_safetensors_headers_raise_nothing_else(
    linked: Path, name: str, where: float, byte: int
) -> None:
    """A flipped byte in the header can change names, shapes, types and offsets."""
    data = bytearray((linked / name).read_bytes())
    length = HEADER + int.from_bytes(data[:HEADER], "little")
    data[int(where * length)] = byte
    outcome = load_with(load_lerobot, linked, name, bytes(data))
    if isinstance(outcome, CheckpointError):
        assert name in str(outcome)


@fuzz
@given(
    name=st.sampled_from(SMALL),
    choices=CHOICES,
    value=ANY_JSON,
)
def test_any_value_anywhere_in_a_json_raises_nothing_else(
    linked: Path, name: str, choices: list[int], value: Any
) -> None:
    """Hand-edited files hold anything anywhere."""
    document = replaced(json.loads((linked / name).read_text()), choices, value)
    outcome = load_with(load_lerobot, linked, name, json.dumps(document).encode())
    if isinstance(outcome, CheckpointError):
        assert str(linked) in str(outcome)


# The other folders: a JSON file of each, and what reads it.
OTHERS = {
    "pi0 config": ("tiny_pi0", CONFIG),
    "pi0 preprocessor": ("tiny_pi0", PRE),
    "pi0_fast config": ("tiny_pi0_fast", CONFIG),
    "openpi config": ("openpi", CONFIG),
    "openpi statistics": ("openpi", ASSET),
    "FAST": ("tiny_pi0_fast", "fast_tokenizer/processor_config.json"),
}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of which one file at a time is replaced."""
    root = tmp_path_factory.mktemp("others")
    for name in ("tiny_pi0", "tiny_pi0_fast"):
        shutil.copytree(DATA / name, root / name)
        shutil.copytree(DATA / "fast_tokenizer_tiny", root / name / "fast_tokenizer")
    return {path.name: path for path in (openpi_folder(root / "openpi", "tiny_pi05").path, *root.iterdir())}


@fuzz
@given(
    which=st.sampled_from(list(OTHERS)),
    choices=CHOICES,
    value=ANY_JSON,
)
def test_any_value_anywhere_in_other_folders_raises_nothing_else(
    others: dict[str, Path], which: str, choices: list[int], value: Any
) -> None:
    """The same of every origin, through the one entry that `load_policy` uses."""
    name, file = OTHERS[which]
    path = others[name] / file
    original = path.read_text()
    path.write_text(json.dumps(replaced(json.loads(original), choices, value)))
    message = ""
    try:
        load_checkpoint(others[name], tokenizer=TOKENIZER)
    except CheckpointError as error:
        message = str(error)
    finally:
        path.write_text(original)
    assert not message or str(others[name]) in message
