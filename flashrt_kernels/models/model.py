# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What `Policy` asks of a model; nothing else of a model may be used there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.models.weights import Weights


class Model(Protocol):
    """One loaded checkpoint of one policy type.

    Of the graphs' inputs `Policy` writes those that every policy has: `image<i>.{pixels, info}` and `noise`.
    """

    name: str
    weights: Weights

    def compose_vision(self, g: StaticGraph, cameras: int, tokens: int, image_bytes: int) -> None:
        """Build what depends on images only, and keep what `compose` borrows.

        Inputs `image<i>.{pixels, info}`, outputs `image<i>.patches`. tokens: the most that a prompt has.
        """

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Build the rest of the decision behind it for a number of prompt tokens.

        Input `noise`, output `actions`.
        """

    def prompt(self, instruction: str, normalised_state: np.ndarray) -> str:
        """Text of the prompt. normalised_state: float32 [D]."""

    def write_inputs(self, g: StaticGraph, ids: Sequence[int], present: int, state: np.ndarray) -> None:
        """Write the model's own inputs.

        ids: of the prompt, at most `tokens`. present: the first so many camera slots hold an image.
        state: float32 [D] in robot units.
        """

    def describe(self) -> str:
        """The model's parts, as text."""
