# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What the checkpoints of Pi0, Pi0.5 and Pi0-FAST hold, whichever program wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flashrt_kernels.checkpoint.checkpoint import CameraRule, Checkpoint, Floats
from flashrt_kernels.checkpoint.config import IMAGES, PolicyConfig
from flashrt_kernels.checkpoint.dims import ModelDims
from flashrt_kernels.checkpoint.fast import ActionTokens, FastTokenizer
from flashrt_kernels.checkpoint.normaliser import Normaliser
from flashrt_kernels.checkpoint.robot_units import RobotUnits
from flashrt_kernels.checkpoint.tokenizer import Tokenizer

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
class DecodingRule:
    """How the tokens of a chunk are written, one after another, and read.

    bos_behind_padding: BOS stands behind the prompt padded to its full length too, and is valid.
    skipped_positions: the first written token stands so many positions further than the prefix is long.
    ends_at_bar: `|` alone ends the text; otherwise EOS does too.
    lenient: coefficients too many are cut, too few are zeros; otherwise all of them are zeros.
    """

    bos_behind_padding: bool
    skipped_positions: int
    ends_at_bar: bool
    lenient: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class PiCheckpoint(Checkpoint):
    """A checkpoint of the Pi family.

    time: t of step k is 1 − k/steps, or the float32 sum of as many steps as openpi takes.
    image_filter: how pictures are resized. camera_rule: where absent cameras stand, never `all`.
    state_name: of the one group of its state.
    relative_action_mask: [action_dim]; True where the policy gives an offset to the observed state.
    units: of the robot's state and actions; statistics and relative actions are in those of the policy.

    Of Pi0-FAST only: fast; action_tokens, its ids in the vocabulary, of which the last fast_skip_tokens are
    left free; decoding; max_decoding_steps, the most tokens of one chunk, `Action: ` included.
    """

    state_name: str
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
    action_tokens: ActionTokens | None = None
    decoding: DecodingRule | None = None
    fast_skip_tokens: int = 0
    max_decoding_steps: int = 0
    units: RobotUnits = field(default_factory=RobotUnits)

    @property
    def state_widths(self) -> Mapping[str, int]:
        return {self.state_name: self.state_dim}

    @property
    def state_stats(self) -> Mapping[str, Floats]:
        return dict(self.state_norm.stats)

    @property
    def action_stats(self) -> Mapping[str, Floats]:
        return dict(self.action_norm.stats)

    def statistics_units(self, state: Floats) -> Floats:
        return self.units.to_policy(state)

    @property
    def relative_actions(self) -> tuple[str, ...]:
        if self.relative_action_mask is None:
            return ()
        names = self.action_names or tuple(map(str, range(self.action_dim)))
        return tuple(names[i] for i in np.flatnonzero(self.relative_action_mask))

    def normalise_state(self, state: Floats) -> Floats:
        return self.state_norm.normalise(self.units.to_policy(state))

    def describe(self) -> list[str]:
        lines = [f"tokenizer: {self.tokenizer.source}"]
        if self.fast is not None:
            lines += [f"action tokenizer: {self.fast.source}"]
        lines += self.state_norm.describe("state", None)
        lines += self.action_norm.describe("action", self.action_names)
        if self.relative_action_mask is not None:
            relative = np.flatnonzero(self.relative_action_mask).tolist()
            lines += [f"actions {relative} are relative to the state of the observation"]
        lines += self.units.describe()
        if self.camera_names:
            names = (f"{name} = {slot.removeprefix(IMAGES)}" for name, slot in self.camera_names.items())
            lines += [f"other camera names: {', '.join(names)}"]
        return lines
