# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0-FAST writes actions as words: a word read wrongly is a motion that nobody trained."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.checkpoint.fast import (
    FastTokenizer,
    find_fast_tokenizer,
    load_fast_tokenizer,
    place_actions,
)
from flashrt_kernels.checkpoint.tokenizer import load_tokenizer
from flashrt_kernels.errors import CheckpointError

from .conftest import DATA, TOKENIZER

FAST = DATA / "fast_tokenizer_tiny"
PI0_FAST = DATA / "tiny_pi0_fast_e2e"


@pytest.fixture(scope="module")
def fast() -> FastTokenizer:
    return load_fast_tokenizer(FAST)


@pytest.fixture(scope="module")
def oracle() -> dict[str, np.ndarray]:
    return load_file(PI0_FAST / "oracle.safetensors")


def test_chunk_and_ids_are_lerobots(fast: FastTokenizer, oracle: dict[str, np.ndarray]) -> None:
    """Both directions of what LeRobot stored; decoding is the one that a robot needs."""
    ids = oracle["fast.ids"].tolist()
    assert fast.encode(oracle["fast.chunk"][0]) == ids
    np.testing.assert_allclose(fast.decode(ids, 6, 3), oracle["fast.decoded"][0], rtol=0, atol=1e-6)


def test_words_in_the_vocabulary_are_lerobots(fast: FastTokenizer, oracle: dict[str, np.ndarray]) -> None:
    """An id off by one is another coefficient of every action."""
    words = place_actions(load_tokenizer(TOKENIZER / "tokenizer.json"), fast, skip=8)
    written, ids = oracle["fast.pg_ids_generated_form"].tolist(), oracle["fast.ids"].tolist()
    assert words.write(ids) == written
    assert words.read(written) == ids
    assert words.begins(written)
    assert not words.begins(written[1:])


def test_both_forms_of_the_tokenizer_place_actions_alike(fast: FastTokenizer) -> None:
    """Whoever has tokenizer.model only must get the same motion."""
    places = [
        place_actions(load_tokenizer(TOKENIZER / f"tokenizer.{form}"), fast, skip=8)
        for form in ("json", "model")
    ]
    assert places[0] == places[1]


def test_text_around_the_actions_is_dropped(fast: FastTokenizer) -> None:
    """LeRobot's rule: everything behind the first `|`, and every `Action: `."""
    words = place_actions(load_tokenizer(TOKENIZER / "tokenizer.json"), fast, skip=8)
    prefix, word = list(words.prefix), words.top - 5
    assert words.read([*prefix, word, *prefix, word, words.bar, word]) == [5, 5]
    assert words.read([*prefix[:-1], word]) == [*(words.top - i for i in prefix[:-1]), 5]


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1), horizon=st.integers(1, 12), width=st.integers(1, 7), size=st.floats(0, 1)
)
def test_decoding_undoes_encoding_within_the_rounding(
    fast: FastTokenizer, seed: int, horizon: int, width: int, size: float
) -> None:
    """Each coefficient is rounded by at most half a unit, and the transform keeps lengths."""
    chunk = size * np.random.default_rng(seed).uniform(-1, 1, (horizon, width)).astype(np.float32)
    bound = 0.5 / fast.scale * np.sqrt(horizon) + 1e-6
    ids = fast.encode(chunk / np.sqrt(horizon))  # no coefficient beyond those that the vocabulary has
    decoded = fast.decode(ids, horizon, width)
    assert decoded.dtype == np.float32
    assert np.abs(decoded - chunk / np.sqrt(horizon)).max() <= bound


def test_too_many_and_too_few_coefficients(fast: FastTokenizer) -> None:
    """A policy that stops early or goes on still moves as LeRobot lets it."""
    chunk = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    ids = fast.encode(chunk)
    count = fast.coefficients(ids).size
    assert count == 12
    longer = fast.decode([*ids, *ids], 4, 3)
    np.testing.assert_array_equal(longer, fast.decode(ids, 4, 3))
    assert not fast.decode([], 4, 3).any()
    assert not fast.decode([fast.size + 7], 4, 3).any()


def test_ids_that_are_no_action_are_refused(fast: FastTokenizer) -> None:
    """A byte that is no text would be the coefficient 65,000, and the arm would try to reach it."""
    with pytest.raises(ValueError, match="-3 is no id"):
        fast.decode([5, -3], 4, 3)
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({"Ä": 0, "!": 1}, []))  # Ä: the first byte of two
    bpe.decoder = tokenizers.decoders.ByteLevel()
    with pytest.raises(ValueError, match="no text"):
        FastTokenizer(FAST, bpe, 10.0, 0).decode([0, 1], 4, 3)


DAMAGES: dict[str, tuple[str, Any, str]] = {
    "no scale": ("scale", None, "scale is missing"),
    "scale is text": ("scale", "10", 'scale is "10"'),
    "scale not positive": ("scale", 0, "scale is 0"),
    "scale beyond sense": ("scale", 1e30, "expected at most 1000000"),
    "no offset": ("min_token", None, "min_token is missing"),
    "offset beyond characters": ("min_token", -(10**9), "min_token is -1000000000"),
    "offset no integer": ("min_token", 0.5, "min_token is 0.5"),
}


@pytest.mark.parametrize(("key", "value", "words"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_settings_are_named(tmp_path: Path, key: str, value: Any, words: str) -> None:
    """Every action is scaled and shifted by them."""
    shutil.copytree(FAST, tmp_path / "fast")
    file = tmp_path / "fast" / "processor_config.json"
    document = json.loads(file.read_text())
    document = {k: v for k, v in {**document, key: value}.items() if v is not None}
    file.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=r"processor_config\.json") as caught:
        load_fast_tokenizer(tmp_path / "fast")
    assert words in str(caught.value)


def test_damaged_vocabulary_is_named(tmp_path: Path) -> None:
    """A download that stopped half-way."""
    shutil.copytree(FAST, tmp_path / "fast")
    file = tmp_path / "fast" / "tokenizer.json"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: not a readable"):
        load_fast_tokenizer(tmp_path / "fast")
    file.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: no such file"):
        load_fast_tokenizer(tmp_path / "fast")


def test_folder_of_the_checkpoint_comes_first(tmp_path: Path) -> None:
    """A fine-tune with its own action tokenizer must not get the universal one."""
    shutil.copytree(FAST, tmp_path / "fast_tokenizer")
    assert find_fast_tokenizer(tmp_path, FAST) == tmp_path / "fast_tokenizer"
    shutil.rmtree(tmp_path / "fast_tokenizer")
    assert find_fast_tokenizer(tmp_path, FAST) == FAST


def test_missing_action_tokenizer_names_both_places(tmp_path: Path) -> None:
    """LeRobot would download it; here the user has to say where it is."""
    with pytest.raises(CheckpointError, match="no FAST action tokenizer") as caught:
        load_lerobot(PI0_FAST, TOKENIZER)
    assert "`fast_tokenizer`" in str(caught.value)
    with pytest.raises(CheckpointError, match="no FAST action tokenizer") as caught:
        load_lerobot(PI0_FAST, TOKENIZER, fast_tokenizer=tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_vocabularies_that_do_not_belong_together_are_refused(fast: FastTokenizer) -> None:
    """More action words than the language vocabulary has room for: some would be negative ids."""
    text = load_tokenizer(TOKENIZER / "tokenizer.json")
    with pytest.raises(CheckpointError, match="last 450 are left free"):
        place_actions(text, fast, skip=450)
