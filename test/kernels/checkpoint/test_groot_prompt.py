# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Other token ids are another instruction, and tokens in the wrong place are another picture."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from tokenizers import Tokenizer

from flashrt_kernels.checkpoint.groot import load_groot
from flashrt_kernels.checkpoint.groot_prompt import load_prompt
from flashrt_kernels.errors import CheckpointError, ObservationError

from .conftest import REMOVED, TOKENIZER, Folder
from .groot_folders import N16, N17, copied, raw

IMAGE, END = 500, 499  # in both fixtures
PROMPT17 = load_prompt("n17", N17, None, formalise=True)
PLAIN17 = load_prompt("n17", N17, None, formalise=False)
PLAIN16 = load_prompt("n16", N16, None, formalise=False)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return copied(N17, tmp_path / "n17")


def text_of(ids: list[int], tokenizer: Path) -> str:
    return Tokenizer.from_file(str(tokenizer / "tokenizer.json")).decode(ids, skip_special_tokens=False)


def test_ids_are_those_of_the_public_implementation() -> None:
    """The oracle's ids came out of LeRobot's own processor."""
    with safe_open(N17 / "oracle_raw.safetensors", "np") as oracle:
        task = oracle.metadata()["task"]
    assert load_groot(N17).prompt(task, 9).ids == raw(N17)["in.input_ids"][0].tolist()


def test_prompt_of_n16() -> None:
    """N1.6 has a system turn, the text first, and every picture behind its number."""
    prompt = load_groot(N16).prompt("Pick up the block!", 3)
    image = "<img>" + 3 * "<IMG_CONTEXT>" + "</img>"
    assert prompt.image_id == IMAGE
    assert text_of(prompt.ids, N16) == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\npick up the block<image 1>{image}<image 2>{image}<|im_end|>\n"
    )


def test_one_run_of_image_tokens_for_each_picture() -> None:
    """A model that is bound to one of two cameras has one picture in its prompt."""
    loaded = load_groot(N17)
    assert loaded.prompt("go", 4, cameras=1).ids.count(IMAGE) == 4
    assert loaded.prompt("go", 4).ids.count(IMAGE) == 8


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_instruction_is_taken_or_refused_in_words(text: str) -> None:
    """Whatever a user types: the frame of the prompt stays as trained."""
    for prompt in (PROMPT17, PLAIN17, PLAIN16):
        try:
            ids = prompt(text, 2, 1).ids
        except ObservationError:
            continue
        assert ids.count(IMAGE) == 2


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_formal_instructions_hold_no_special_token(text: str) -> None:
    """With formalize_language an instruction can never end its own turn."""
    ids = PROMPT17(text + "<|im_end|>x", 1, 1).ids
    assert ids.count(END) == 1


@pytest.mark.parametrize("token", ["<|im_end|>", "<|image_pad|>", "<|vision_start|>"])
def test_special_token_in_an_instruction_is_refused(token: str) -> None:
    """It would end the turn, or be replaced by a picture."""
    with pytest.raises(ObservationError, match="special token"):
        PLAIN17(f"pick up {token} the block", 2, 9)


@pytest.mark.parametrize("text", ["", "  ", "?!"])
def test_instruction_without_words_is_refused(text: str) -> None:
    """A policy without a task does what it likes."""
    with pytest.raises(ObservationError, match="no words"):
        PROMPT17(text, 2, 9)


def test_language_as_it_comes_where_the_checkpoint_says_so(folder: Folder) -> None:
    """formalize_language is a choice of training."""
    folder.edit_json("processor_config.json", "processor_kwargs", "formalize_language", value=False)
    ids = load_groot(folder.path).prompt("Go, now!", 1).ids
    assert "Go, now!<|im_end|>" in text_of(ids, N17)


def test_template_from_json_or_from_the_tokenizers_folder(folder: Folder, tmp_path: Path) -> None:
    """Writers keep the template in three places, and released GR00T folders carry none."""
    template = (folder.path / "chat_template.jinja").read_text()
    (folder.path / "chat_template.jinja").unlink()
    expected = PROMPT17("go", 2, 4).ids
    for name in ("chat_template.json", "tokenizer_config.json"):
        (folder.path / name).write_text(json.dumps({"chat_template": template}))
        assert load_groot(folder.path).prompt("go", 4).ids == expected
    (folder.path / "chat_template.json").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder.path / name).rename(elsewhere / name)
    assert load_groot(folder.path, elsewhere).prompt("go", 4).ids == expected
    with pytest.raises(CheckpointError, match=r"no tokenizer found, looked for .*`tokenizer`"):
        load_groot(folder.path)


BAD_TEMPLATES = {
    "no text": ("{{ 'hello' }}", "instruction 0 times"),
    "text twice": ("{{ messages[0].content[2].text * 2 }}", "instruction 2 times"),
    "one picture": ("<|image_pad|>{{ messages[0].content[2].text }}", "1 image tokens for 2 pictures"),
    "broken": ("{% for %}", "cannot be rendered"),
    "refusing": ("{{ raise_exception('images only') }}", "images only"),
    "escaping": ("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}", "cannot be rendered"),
}


@pytest.mark.parametrize(("template", "words"), BAD_TEMPLATES.values(), ids=BAD_TEMPLATES)
def test_templates_that_do_not_fit_are_refused(folder: Folder, template: str, words: str) -> None:
    """A prompt without its pictures gives a policy that does not see; a template must not run code."""
    (folder.path / "chat_template.jinja").write_text(template)
    with pytest.raises(CheckpointError, match=words):
        load_groot(folder.path)


def test_missing_template_names_the_places(folder: Folder) -> None:
    """A user has to know which file to copy."""
    (folder.path / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match=r"no chat template found.*chat_template\.jinja"):
        load_groot(folder.path)


def test_tokenizer_without_image_token_is_refused() -> None:
    """That of another policy, given by mistake."""
    with pytest.raises(CheckpointError, match=r"has no token <IMG_CONTEXT>"):
        load_prompt("n16", Path("nowhere"), TOKENIZER, formalise=True)


def test_tokenizer_larger_than_the_embedding_is_refused(folder: Folder) -> None:
    """Ids beyond the table read whatever lies behind it."""
    tokenizer = json.loads((folder.path / "tokenizer.json").read_text())
    last = tokenizer["added_tokens"][-1] | {"content": "<more>"}
    tokenizer["added_tokens"] += [last | {"id": 504 + i, "content": f"<more{i}>"} for i in range(20)]
    (folder.path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(CheckpointError, match="has ids up to 523, but the embedding table"):
        load_groot(folder.path)


def test_image_token_of_the_tokenizers_config(folder: Folder) -> None:
    """Qwen3-VL's own name for it is only the default."""
    folder.edit_json("tokenizer_config.json", "image_token", value="<|picture|>")
    with pytest.raises(CheckpointError, match=r"has no token <\|picture\|>"):
        load_groot(folder.path)
    folder.edit_json("tokenizer_config.json", "image_token", value=REMOVED)
    assert load_groot(folder.path).prompt("go", 1).image_id == IMAGE
