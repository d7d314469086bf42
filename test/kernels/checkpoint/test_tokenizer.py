# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Other token ids are another instruction."""

import shutil
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from flashrt_kernels.checkpoint import load_lerobot
from flashrt_kernels.checkpoint.tokenizer import Tokenizer, find_tokenizer, load_tokenizer
from flashrt_kernels.errors import CheckpointError

from .conftest import FIXTURE, TOKENIZER, Folder

BOTH = load_tokenizer(TOKENIZER / "tokenizer.json"), load_tokenizer(TOKENIZER / "tokenizer.model")
TEXTS = [
    "",
    "pick up the red block",
    "Task: pick up the red block, State: 12 -1 255 0;\nAction: ",
    "  two  spaces \t tab\nline\r\n",
    "123456 7.5",
    "Ärger mit 猫 🤖",
    "<eos> <bos> <pad> <mask> <seg003>",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_files_give_equal_ids(text: str) -> None:
    """A checkpoint with tokenizer.model must behave as the one with tokenizer.json."""
    json_form, model_form = BOTH
    assert json_form.encode(text) == model_form.encode(text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40))
def test_both_files_give_equal_ids_for_any_text(text: str) -> None:
    """The same for whatever a user types."""
    json_form, model_form = BOTH
    assert json_form.encode(text) == model_form.encode(text)


def test_prompt_of_the_fixture_gives_the_ids_that_lerobot_gave() -> None:
    """The oracle's tokens were computed by LeRobot itself."""
    with safe_open(FIXTURE / "oracle.safetensors", "np") as oracle:
        tokens, mask = oracle.get_tensor("in.tokens")[0], oracle.get_tensor("in.token_mask")[0]
        state = oracle.get_tensor("in.state_normalized")[0]
    bins = [int((value + 1) // (2 / 256)) for value in state]
    text = f"Task: pick up the red block, State: {' '.join(map(str, bins))};\nAction: "
    for tokenizer in BOTH:
        assert tokenizer.encode(text) == tokens[mask].tolist()


def test_special_ids_come_from_the_files() -> None:
    """A hard-coded id is wrong for the next vocabulary."""
    for tokenizer in BOTH:
        assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id) == (0, 1, 2)
        assert tokenizer.encode("")[0] == tokenizer.bos_id


@pytest.mark.parametrize("tokenizer", BOTH, ids=["json", "model"])
def test_special_words_in_an_instruction_are_text(tokenizer: Tokenizer) -> None:
    """ "<eos>" in an instruction must not end the prompt, and no id may leave the embedding table."""
    ids = tokenizer.encode("a <eos> b <mask> c")
    assert tokenizer.eos_id not in ids
    assert max(ids) < tokenizer.size <= 512


def test_folder_wins_then_the_given_path(tmp_path: Path) -> None:
    """The checkpoint's own tokenizer is the one that it was trained with."""
    elsewhere = tmp_path / "elsewhere"
    own = tmp_path / "own"
    for place in (elsewhere, own):
        place.mkdir()
        shutil.copy(TOKENIZER / "tokenizer.model", place)
    assert find_tokenizer(own, elsewhere) == own / "tokenizer.model"
    shutil.copy(TOKENIZER / "tokenizer.json", own)
    assert find_tokenizer(own, None) == own / "tokenizer.json"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert find_tokenizer(empty, elsewhere) == elsewhere / "tokenizer.model"
    assert find_tokenizer(empty, str(elsewhere / "tokenizer.model")) == elsewhere / "tokenizer.model"


def test_R59_missing_tokenizer_names_every_place(tmp_path: Path) -> None:
    """A robot in a field cannot download one: the message must say where to put it."""
    with pytest.raises(CheckpointError) as caught:
        load_lerobot(FIXTURE, tmp_path)
    for place in (FIXTURE / "tokenizer.json", FIXTURE / "tokenizer.model", tmp_path / "tokenizer.json"):
        assert str(place) in str(caught.value)
    with pytest.raises(CheckpointError, match=r"nowhere\.model"):
        load_lerobot(FIXTURE, tmp_path / "nowhere.model")


def test_R59_given_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A path to the wrong file must not be guessed at."""
    other = tmp_path / "vocab.txt"
    other.write_text("a")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: not a tokenizer, expected .*tokenizer\.json"):
        load_lerobot(FIXTURE, other)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize("data", [b"", b"{}", b"\x00\x01\x02 nonsense"], ids=["empty", "object", "noise"])
def test_R59_unreadable_tokenizer_is_named(tmp_path: Path, name: str, data: bytes) -> None:
    """A damaged copy must be told apart from a damaged policy."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        load_lerobot(FIXTURE, tmp_path)


def test_tokenizer_of_another_kind_of_model_is_read(tmp_path: Path) -> None:
    """Only some kinds have a cache to switch off."""
    words = {token: i for i, token in enumerate(("<pad>", "<eos>", "<bos>", "go"))}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    made.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path / "tokenizer.json").encode("go") == [2, 3]


def test_padding_and_truncation_of_the_file_are_ignored(folder: Folder) -> None:
    """Saved after training, a tokenizer.json pads or cuts by itself: the prompt would lose its state."""
    padding = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    folder.edit_json("tokenizer.json", "padding", value=padding)
    folder.edit_json("tokenizer.json", "truncation", value=truncation)
    assert load_lerobot(folder.path).tokenizer.encode(TEXTS[2]) == BOTH[0].encode(TEXTS[2])


def test_special_tokens_described_as_objects_are_read(folder: Folder) -> None:
    """Older tokenizer_config.json files describe a token as an object."""
    folder.edit_json("tokenizer_config.json", "bos_token", value={"content": "<bos>", "lstrip": False})
    assert load_lerobot(folder.path).tokenizer.bos_id == 2
