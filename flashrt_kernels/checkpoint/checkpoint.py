# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What every reader of checkpoints gives, whoever wrote the folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flashrt_kernels.checkpoint.tensors import Unscanned

Floats = NDArray[np.float32]
# Where absent cameras stand, as the program that trained the policy put them. present first: masked, behind
# the others; fixed: masked, in their own slot; fixed, seen: as black pictures in their own slot, not masked;
# all: a decision needs every camera that is bound.
CameraRule = Literal["present first", "fixed", "fixed, seen", "all"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint(ABC):
    """A verified checkpoint: the part that `Policy` uses. Families of policies add what their models need.

    policy_type: key of `models.MODELS`. origin: who wrote the folder, for people.
    cameras: full slot names, in the model's order. camera_names: other names that a robot may use → slot.
    state_dim, action_dim: of one state and of one action, in robot units. horizon: actions of one chunk.
    denoising_steps: the checkpoint's own number; None where the policy has none.
    tensors: exactly the policy's canonical keys, memory-mapped. unscanned: what still has to be verified,
    where the reader was told not to look at every value.
    not_positions: what the actions are, where they are known or likely to be something else than joint
    positions; empty otherwise.
    notes: where the files contradict each other harmlessly, and which one was followed.
    """

    folder: Path
    origin: str
    policy_type: str
    cameras: tuple[str, ...]
    camera_names: Mapping[str, str]
    state_dim: int
    action_dim: int
    horizon: int
    denoising_steps: int | None
    action_names: tuple[str, ...] | None
    tensors: Mapping[str, Tensor]
    unscanned: Unscanned | None = None
    not_positions: str = ""
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def state_widths(self) -> Mapping[str, int]:
        """Groups of the state, in their order → numbers in each."""

    @property
    @abstractmethod
    def state_stats(self) -> Mapping[str, Floats]:
        """Statistic → [state_dim] in robot units, as far as the checkpoint has it."""

    @property
    @abstractmethod
    def action_stats(self) -> Mapping[str, Floats]:
        """Statistic → [action_dim] in robot units, as far as the checkpoint has it."""

    def statistics_units(self, state: Floats) -> Floats:
        """[state_dim] in robot units → [state_dim] in the units of `state_stats`."""
        return state

    @property
    def relative_actions(self) -> tuple[str, ...]:
        """Actions that the policy gives relative to the state of its observation, for people.

        What `Policy.decide` returns is absolute all the same.
        """
        return ()

    @abstractmethod
    def normalise_state(self, state: Floats) -> Floats:
        """[state_dim] in robot units → [state_dim] as the model sees it, before padding."""

    @abstractmethod
    def describe(self) -> list[str]:
        """Tokenizer, normalisation and relative actions, as lines for people."""
