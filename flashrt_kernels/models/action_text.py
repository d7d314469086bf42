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

    def __init__(
        self, tokenizer: Tokenizer, fast: FastTokenizer, rule: DecodeRule, vocabulary: int
    ) -> None:
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
        return self._fast.decode(body, horizon, width, strict=self._rule.strict_length)

    def body(self, ids: list[int]) -> list[int]:
        """FAST ids of a text."""
        end = next((i for i, token in enumerate(ids) if token in self.stops), len(ids))
        ids, n, i = ids[:end], len(self._prefix), 0
        while i <= len(ids) - n:
            if ids[i : i + n] == self._prefix:
                del ids[i : i + n]
            else:
                i += 1
        return [self._last - token for token in ids]
