# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""FAST: a chunk of actions as text, by a cosine transform and byte-pair encoding.

Source of the rules: lerobot 0.6.1, policies/pi0_fast/modeling_pi0_fast.py, and Pertsch et al., "FAST:
Efficient Action Tokenization for Vision-Language-Action Models", 2025.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.fields import read_json
from flashrt_kernels.checkpoint.tokenizer import Tokenizer
from flashrt_kernels.errors import CheckpointError

FAST_FOLDER = "fast_tokenizer"
PROCESSOR_FILE = "processor_config.json"
TOKENIZER_FILE = "tokenizer.json"
_FARTHEST = 1_000_000  # from zero, of min_token: a Unicode character is below 1,114,112
_FINEST = 1e6  # scale
_BROKEN = "\ufffd"  # stands for bytes that are no UTF-8; as a coefficient it would be far beyond all others


class FastTokenizer:
    """Normalised chunk [T, D] ↔ FAST ids.

    A chunk is a DCT-II (orthonormal) over T, times `scale`, rounded, row by row, one character each:
    chr(coefficient − min_token); then byte-level BPE. `size`: one more than the largest id.
    """

    def __init__(self, source: Path, bpe: tokenizers.Tokenizer, scale: float, min_token: int) -> None:
        self.source, self.scale, self.min_token = source, scale, min_token
        self._bpe = bpe
        self.size = max(bpe.get_vocab().values()) + 1

    def encode(self, chunk: NDArray[np.floating]) -> list[int]:
        """[T, D] normalised → ids."""
        coefficients = np.around(_cosines(len(chunk)) @ np.asarray(chunk, np.float64) * self.scale)
        text = "".join(chr(max(int(c) - self.min_token, 0)) for c in coefficients.ravel())
        return list(self._bpe.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], horizon: int, width: int) -> NDArray[np.float32]:
        """Ids → [horizon, width] normalised.

        Coefficients too many are cut and too few are zeros, as LeRobot does; ids that FAST does not have
        give none. Raises ValueError where the ids cannot be an action: a negative one, or no text.
        """
        found = self.coefficients(ids)
        coefficients = np.zeros(horizon * width)
        count = min(len(coefficients), len(found))
        coefficients[:count] = found[:count]
        chunk = _cosines(horizon).T @ (coefficients.reshape(horizon, width) / self.scale)
        return chunk.astype(np.float32)

    def coefficients(self, ids: Sequence[int]) -> NDArray[np.float64]:
        """Ids → as many coefficients as they stand for, times `scale`. Raises ValueError as `decode`."""
        if any(i < 0 for i in ids):
            raise ValueError(f"{min(ids)} is no id of a FAST action")
        text = self._bpe.decode([i for i in ids if i < self.size], skip_special_tokens=False)
        if _BROKEN in text:
            raise ValueError(f"the FAST ids {list(ids)} are no text")
        return np.array([ord(character) for character in text], np.float64) + self.min_token


@dataclass(frozen=True)
class ActionTokens:
    """FAST ids as ids of a language model: counted downwards from `top`.

    prefix: ids of `Action: `. bar: id of `|`.
    """

    prefix: tuple[int, ...]
    bar: int
    top: int

    def write(self, ids: Sequence[int]) -> list[int]:
        """FAST ids → the tokens that the policy is trained to write, EOS left out."""
        return [*self.prefix, *(self.top - i for i in ids), self.bar]

    def begins(self, tokens: Sequence[int]) -> bool:
        """Whether the tokens begin with the two that stand for `Action` and `:`."""
        return tuple(tokens[:2]) == self.prefix[:2]

    def read(self, tokens: Sequence[int]) -> list[int]:
        """Written tokens → FAST ids: up to the first `|`, without every `Action: `.

        Tokens that stand for no action give ids that FAST does not have: negative or too large ones.
        """
        left = list(tokens)
        if self.bar in left:
            left = left[: left.index(self.bar)]
        count, i = len(self.prefix), 0
        while i <= len(left) - count:
            if tuple(left[i : i + count]) == self.prefix:
                del left[i : i + count]
            else:
                i += 1
        return [self.top - token for token in left]


def place_actions(text: Tokenizer, fast: FastTokenizer, skip: int) -> ActionTokens:
    """Where in the vocabulary of `text` the ids of `fast` are; its last `skip` ids are left free.

    Raises `CheckpointError` where they do not fit, or `|` is more than one token.
    """
    _, *prefix = text.encode("Action: ")
    _, *bar = text.encode("|")
    if len(bar) != 1 or len(prefix) < 2:
        raise CheckpointError(
            f"{text.source}: `|` is {len(bar)} token(s) and `Action: ` {len(prefix)}, expected one and at "
            f"least two as in PaliGemma's vocabulary"
        )
    top = text.vocab_size - 1 - skip
    if fast.size > top + 1:
        raise CheckpointError(
            f"{fast.source}: has ids up to {fast.size - 1}, but {text.source} has {text.vocab_size} ids, of "
            f"which the last {skip} are left free; expected the tokenizers that the policy was trained with"
        )
    return ActionTokens(tuple(prefix), bar[0], top)


def _cosines(count: int) -> NDArray[np.float64]:
    """[count, count]: the orthonormal DCT-II; its transpose is the inverse."""
    k, t = np.arange(count)[:, None], np.arange(count)[None, :]
    matrix = np.cos(math.pi * k * (2 * t + 1) / (2 * count)) * math.sqrt(2 / count)
    matrix[0] /= math.sqrt(2)
    return matrix


def find_fast_tokenizer(folder: Path, elsewhere: str | Path | None) -> Path:
    """`fast_tokenizer/` of the checkpoint `folder`, else the folder `elsewhere`.

    Raises `CheckpointError` naming both places.
    """
    places = [folder / FAST_FOLDER]
    if elsewhere is not None:
        places.append(Path(elsewhere).expanduser())
    for place in places:
        if (place / PROCESSOR_FILE).is_file():
            return place
    looked = ", ".join(str(place / PROCESSOR_FILE) for place in places)
    hint = "" if elsewhere is not None else "; put one there or give its folder as `fast_tokenizer`"
    raise CheckpointError(f"no FAST action tokenizer found, looked for {looked}{hint}")


def load_fast_tokenizer(folder: Path) -> FastTokenizer:
    """Reads processor_config.json and tokenizer.json of `folder`. Raises `CheckpointError`."""
    fields = read_json(folder / PROCESSOR_FILE)
    scale = fields.positive("scale")
    if scale > _FINEST:
        raise fields.error("scale", f"is {scale}, expected at most {_FINEST:.0f}")
    min_token = fields.integer("min_token", -_FARTHEST, _FARTHEST)
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file, expected the BPE beside {PROCESSOR_FILE}")
    try:
        bpe = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise CheckpointError(f"{path}: not a readable tokenizers file: {error}") from error
    if not bpe.get_vocab():
        raise CheckpointError(f"{path}: has no tokens, expected those of FAST")
    bpe.no_padding()
    bpe.no_truncation()
    return FastTokenizer(folder, bpe, scale, min_token)


def read_actions(
    folder: Path, elsewhere: str | Path | None, text: Tokenizer, skip: int
) -> tuple[FastTokenizer, ActionTokens]:
    """The FAST tokenizer of the checkpoint `folder`, and its place in the vocabulary of `text`.

    Arguments and errors as `find_fast_tokenizer`, `load_fast_tokenizer` and `place_actions`.
    """
    fast = load_fast_tokenizer(find_fast_tokenizer(folder, elsewhere))
    return fast, place_actions(text, fast, skip)
