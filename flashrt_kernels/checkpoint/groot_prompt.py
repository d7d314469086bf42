# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""GR00T's prompt: pictures and instruction in one turn of a chat, as token ids. Never from the network.

N1.7: the chat template beside the tokenizer, pictures first. N1.6: Eagle's template, which no folder carries,
pictures last (NVIDIA/Isaac-GR00T, gr00t/model/modules/nvidia/Eagle-Block2A-2B-v2).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flashrt_kernels.checkpoint.fields import read_json
from flashrt_kernels.checkpoint.groot_dims import Version
from flashrt_kernels.checkpoint.tokenizer import CONFIG_FILE, JSON_FILE
from flashrt_kernels.errors import CheckpointError, ObservationError

TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", CONFIG_FILE)
_TEXT = "\ue000"  # stands for the instruction while the template is rendered
_LONGEST_TEMPLATE = 100_000
_IMAGE_TOKEN: dict[Version, str] = {"n16": "<IMG_CONTEXT>", "n17": "<|image_pad|>"}
# What Eagle adds to the tokenizer of Qwen3, whose ids end at 151668.
_QWEN3_SIZE = 151_669
_EAGLE_TOKENS = (
    *("<IMG_CONTEXT>", "<img>", "</img>", "<box>", "</box>", "<quad>", "</quad>"),
    *("<ref>", "</ref>", "<interval>", "</interval>"),
)

# Number of pictures → text before and behind the instruction, each picture one image token.
Frame = Callable[[int], tuple[str, str]]


@dataclass(frozen=True)
class PromptIds:
    """ids: of the whole prompt in order; each picture is one run of `image_id`."""

    ids: list[int]
    image_id: int


class GrootPrompt:
    """Instruction → ids. `source` is the tokenizer's file, `size` one more than the largest id."""

    def __init__(
        self, source: Path, tokenizer: tokenizers.Tokenizer, image_token: str, frame: Frame, formalise: bool
    ) -> None:
        self.source = source
        self.size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.image_id = _token_id(source, tokenizer, image_token)
        self._tokenizer, self._frame, self._formalise = tokenizer, frame, formalise
        self._added = frozenset(tokenizer.get_added_tokens_decoder())
        self._frames: dict[int, tuple[str, str, int]] = {}

    def frame(self, pictures: int) -> tuple[str, str, int]:
        """(text before the instruction, text behind it, special tokens in both).

        Raises `CheckpointError` where the template does not give one image token for each picture.
        """
        if pictures not in self._frames:
            before, behind = self._frame(pictures)
            ids = self._encode(before + behind)
            if ids.count(self.image_id) != pictures:
                raise CheckpointError(
                    f"{self.source}: its chat template gives {ids.count(self.image_id)} image tokens for "
                    f"{pictures} pictures, expected one for each"
                )
            self._frames[pictures] = before, behind, self._special(ids)
        return self._frames[pictures]

    def __call__(self, instruction: str, pictures: int, tokens_per_image: int) -> PromptIds:
        """Raises ObservationError for an instruction without words, or with text of special tokens."""
        before, behind, special = self.frame(pictures)
        text = formalised(instruction) if self._formalise else instruction
        if not text.strip():
            raise ObservationError(f"instruction {instruction!r} has no words; expected a task")
        ids = self._encode(before + text + behind)
        if self._special(ids) != special:
            raise ObservationError(
                f"instruction {instruction!r} holds a special token of the tokenizer; expected plain words"
            )
        return PromptIds(list(_expanded(ids, self.image_id, tokens_per_image)), self.image_id)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def _special(self, ids: list[int]) -> int:
        return sum(token in self._added for token in ids)


def formalised(text: str) -> str:
    """In lower case, without anything but letters, digits, `_` and white space."""
    return "".join(c for c in text.lower() if c.isalnum() or c.isspace() or c == "_")


def _expanded(ids: list[int], image_id: int, tokens_per_image: int) -> Iterator[int]:
    for token in ids:
        for _ in range(tokens_per_image if token == image_id else 1):
            yield token


def load_prompt(version: Version, folder: Path, elsewhere: str | Path | None, formalise: bool) -> GrootPrompt:
    """The tokenizer in the checkpoint `folder`, else at `elsewhere` (a file or a folder), with its template.

    Raises `CheckpointError` naming every file that was looked for, or what is wrong with the one found.
    """
    source = _find(folder, elsewhere)
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(source))
    except Exception as error:  # tokenizers raises nothing more specific
        raise CheckpointError(f"{source}: not a readable tokenizers file: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    image_token = _IMAGE_TOKEN[version]
    if version == "n16":
        if tokenizer.get_vocab_size(with_added_tokens=True) == _QWEN3_SIZE:
            tokenizer.add_special_tokens(list(_EAGLE_TOKENS))
        return GrootPrompt(source, tokenizer, image_token, _eagle_frame, formalise)
    config = source.with_name(CONFIG_FILE)
    if config.is_file():
        image_token = read_json(config).string("image_token", default=image_token)
    return GrootPrompt(source, tokenizer, image_token, _template_frame(folder, source), formalise)


def _find(folder: Path, elsewhere: str | Path | None) -> Path:
    places = [folder / JSON_FILE]
    if elsewhere is not None:
        given = Path(elsewhere).expanduser()
        places.append(given / JSON_FILE if given.is_dir() else given)
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place) for place in places)
    hint = "" if elsewhere is not None else "; put one there or give its path as `tokenizer`"
    raise CheckpointError(f"no tokenizer found, looked for {looked}{hint}")


def _token_id(source: Path, tokenizer: tokenizers.Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    if found is None:
        raise CheckpointError(f"{source}: has no token {token}, expected the one that stands for pictures")
    return int(found)


def _eagle_frame(pictures: int) -> tuple[str, str]:
    before = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    images = "".join(f"<image {i}><img><IMG_CONTEXT></img>" for i in range(1, pictures + 1))
    return before, f"{images}<|im_end|>\n"


def _template_frame(folder: Path, source: Path) -> Frame:
    """Renders the chat template of the folder, else the one beside the tokenizer."""
    path, text = _template(folder, source)
    # Flags and globals as transformers has them; a template from a file must not reach Python objects.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception

    def frame(pictures: int) -> tuple[str, str]:
        content: list[dict[str, Any]] = [{"type": "image", "image": str(i)} for i in range(pictures)]
        content.append({"type": "text", "text": _TEXT})
        try:
            rendered = environment.from_string(text).render(
                messages=[{"role": "user", "content": content}], add_generation_prompt=False
            )
        except Exception as error:  # whatever a template can run into
            raise CheckpointError(
                f"{path}: the chat template cannot be rendered: {error}; expected one for text and pictures, "
                f"Qwen3-VL's as {folder / TEMPLATE_FILES[0]} for instance"
            ) from error
        parts = rendered.split(_TEXT)
        if len(parts) != 2:
            raise CheckpointError(
                f"{path}: the chat template shows the instruction {len(parts) - 1} times, expected once"
            )
        return parts[0], parts[1]

    return frame


def _template(folder: Path, source: Path) -> tuple[Path, str]:
    for place in dict.fromkeys((folder, source.parent)):
        for name in TEMPLATE_FILES:
            path = place / name
            if not path.is_file():
                continue
            if path.stat().st_size > _LONGEST_TEMPLATE and name == TEMPLATE_FILES[0]:
                raise CheckpointError(f"{path}: has {path.stat().st_size} bytes, expected a chat template")
            if path.suffix == ".json":
                fields = read_json(path)
                if fields.given("chat_template"):
                    return path, fields.string("chat_template")
                continue
            try:
                return path, path.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise CheckpointError(f"{path}: cannot be read as text: {error}") from error
    looked = " or ".join(str(source.parent / name) for name in TEMPLATE_FILES)
    raise CheckpointError(f"no chat template found, looked in {folder} and for {looked}")
