# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Instruction and state → prompt of a Pi policy, as the program that trained it wrote them.

`PromptLimit` is for other policies too.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from flashrt_kernels.checkpoint.pi import PromptRule
from flashrt_kernels.checkpoint.tokenizer import Tokenizer

log = logging.getLogger(__name__)

STATE_BIN_EDGES = np.linspace(-1, 1, 257)[:-1]
# What follows the state: Pi0.5 goes on with actions at once, Pi0-FAST writes "Action: " itself.
ENDINGS = {"pi05": ";\nAction: ", "pi0_fast": ";\n"}


class PromptLimit:
    """Cuts prompts to the length that the policy was trained with, and warns of the first one only."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._warned = False

    def cut(self, ids: Sequence[int], instruction: str) -> list[int]:
        """At most `tokens` of ids."""
        if len(ids) > self.tokens and not self._warned:
            self._warned = True
            log.warning(
                "prompt of %d tokens is cut to %d, as in training: %r…",
                len(ids),
                self.tokens,
                instruction[:80],
            )
        return list(ids[: self.tokens])


class PromptWriter:
    """Source of the texts: openpi 15a9616 (models/tokenizer.py), lerobot 0.6.1 (policies' processors)."""

    def __init__(self, tokenizer: Tokenizer, rule: PromptRule, policy_type: str) -> None:
        self.tokenizer, self.rule = tokenizer, rule
        self._ending = ENDINGS.get(policy_type, "")
        self._newline = tokenizer.encode("\n")[1:]

    def ids(self, instruction: str, normalised_state: np.ndarray) -> list[int]:
        """BOS and the ids of the prompt. normalised_state: float32 [D]."""
        text = self.text(instruction, normalised_state)
        if self.rule.state or not self.rule.clean:
            return self.tokenizer.encode(text)
        return [*self.tokenizer.encode(text), *self._newline]  # openpi tokenises the end of line by itself

    def text(self, instruction: str, normalised_state: np.ndarray) -> str:
        """Bins of the state are −1 … 255, not clipped, as in training."""
        rule = self.rule
        words = instruction
        if rule.lower:
            words = words.lower()
        if rule.clean:
            words = words.strip().replace("_", " ").replace("\n", " ")
        if not rule.state:
            return words if rule.clean or words.endswith("\n") else words + "\n"
        if rule.padded_state is not None:
            normalised_state = np.pad(normalised_state, (0, rule.padded_state - len(normalised_state)))
        bins = np.digitize(normalised_state, STATE_BIN_EDGES) - 1
        return f"Task: {words}, State: {' '.join(map(str, bins))}{self._ending}"
