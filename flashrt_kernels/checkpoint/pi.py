# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the checkpoints of Pi0, Pi0.5 and Pi0-FAST hold, whichever program wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.checkpoint import Checkpoint, Floats
from flashrt_kernels.checkpoint.config import PolicyConfig
from flashrt_kernels.checkpoint.dims import ModelDims
from flashrt_kernels.checkpoint.fast import FastTokenizer
from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.checkpoint.tokenizer import Tokenizer

CameraRule = Literal["present first", "fixed", "fixed, seen"]
ImageFilter = Literal["bilinear", "antialias"]
TimeRule = Literal["exact", "accumulated"]


@dataclass(frozen=True)
class PromptRule:
    """How the program that trained the policy made text of an instruction.

    clean: spaces around it are cut, `_` and newlines become spaces. lower: in lower case.
    state: the binned state is part of the text. padded_state: numbers of the state in the text, where it is
    padded with zeros after normalising; None: the state as it is.
    """

    clean: bool
    lower: bool
    state: bool
    padded_state: int | None = None


@dataclass(frozen=True)
class DecodeRule:
    """How Pi0-FAST was trained to write a chunk, and how what it wrote is read.

    max_tokens: most tokens of one chunk, its prefix included. skipped_ids: ids at the end of the vocabulary
    that action tokens leave free. second_bos: the text begins behind a BOS of its own (LeRobot).
    skipped_positions: positions left out between prompt and text (1 in openpi's JAX code, 0 in LeRobot's).
    stops_at_eos: an EOS ends the text as `|` does. strict: a text of another length than the chunk's, or one
    without `Action: `, gives zeros (openpi), instead of being cut or filled up (LeRobot).
    """

    max_tokens: int
    skipped_ids: int = 128
    second_bos: bool = True
    skipped_positions: int = 0
    stops_at_eos: bool = False
    strict: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class PiCheckpoint(Checkpoint):
    """A checkpoint of the Pi family.

    time: t of step k is 1 − k/steps, or the float32 sum of as many steps as openpi takes.
    image_filter: how pictures are resized. camera_rule: where absent cameras stand: behind the present
    ones, in their own slot, or in their own slot as a black picture that the policy attends to.
    relative_action_mask: [action_dim]; True where the policy gives an offset to the observed state.

    Of Pi0-FAST only: fast and decoding.
    """

    config: PolicyConfig
    dims: ModelDims
    tokenizer: Tokenizer
    state_norm: Normaliser
    action_norm: Normaliser
    relative_action_mask: NDArray[np.bool_] | None
    prompt: PromptRule
    time: TimeRule
    image_filter: ImageFilter
    camera_rule: CameraRule
    fast: FastTokenizer | None = None
    decoding: DecodeRule | None = None

    @property
    def state_stats(self) -> Mapping[str, Floats]:
        return dict(self.state_norm.stats)

    @property
    def action_stats(self) -> Mapping[str, Floats]:
        return dict(self.action_norm.stats)

    def normalise_state(self, state: Floats) -> Floats:
        return self.state_norm.normalise(state)

    def describe(self) -> list[str]:
        lines = [f"tokenizer: {self.tokenizer.source}"]
        if self.fast is not None:
            lines += [f"action tokenizer: {self.fast.source}"]
        lines += self.state_norm.describe("state", None)
        lines += self.action_norm.describe("action", self.action_names)
        if self.relative_action_mask is not None:
            relative = np.flatnonzero(self.relative_action_mask).tolist()
            lines += [f"actions {relative} are relative to the state of the observation"]
        return lines
