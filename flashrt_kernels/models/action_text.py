# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What Pi0-FAST has written → a normalised action chunk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.fast import FastTokenizer
from flashrt_kernels.checkpoint.pi import DecodeRule
from flashrt_kernels.checkpoint.tokenizer import Tokenizer
from flashrt_kernels.errors import CheckpointError


class ActionText:
    """`Action: ` + FAST ids counted down from the end of the vocabulary + `|`.

    stops: ids after which nothing more is written. Sources: lerobot 0.6.1 (detokenize_actions), openpi
    15a9616 (FASTTokenizer.extract_actions).
    """

    def __init__(self, tokenizer: Tokenizer, fast: FastTokenizer, rule: DecodeRule, vocabulary: int) -> None:
        self._fast, self._rule = fast, rule
        self._last = tokenizer.size - 1 - rule.skipped_ids
        self._prefix = tokenizer.encode("Action: ")[1:]
        bar = tokenizer.encode("|")[1:]
        if len(bar) != 1 or not self._prefix:
            raise CheckpointError(
                f"{tokenizer.source}: '|' is the ids {bar}; expected one, which ends a text of actions"
            )
        self._bar = bar[0]
        self.stops = {self._bar, tokenizer.eos_id} if rule.stops_at_eos else {self._bar}

    def actions(self, ids: Sequence[int], horizon: int, width: int) -> NDArray[np.float32]:
        """Normalised chunk [horizon, width]; zeros where no actions can be read out of the text."""
        body = self.body(list(ids))
        return self._fast.decode(body, horizon, width, strict=self._rule.strict)

    def body(self, ids: list[int]) -> list[int]:
        """FAST ids of a text."""
        end = next((i for i, token in enumerate(ids) if token in self.stops), len(ids))
        pieces = split(ids[:end], self._prefix)
        # LeRobot drops every `Action: `; openpi reads what follows the first one, to the next.
        kept = pieces[1:2] if self._rule.strict else pieces
        return [self._last - token for piece in kept for token in piece]


def split(ids: Sequence[int], mark: Sequence[int]) -> list[list[int]]:
    """The pieces of `ids` between occurrences of `mark`, as str.split gives them."""
    pieces: list[list[int]] = [[]]
    i = 0
    while i < len(ids):
        if list(ids[i : i + len(mark)]) == list(mark):
            pieces.append([])
            i += len(mark)
        else:
            pieces[-1].append(ids[i])
            i += 1
    return pieces
