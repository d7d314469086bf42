# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What `Policy` asks of a model; nothing else of a model may be used there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from flashrt_kernels.checkpoint.checkpoint import CameraRule
from flashrt_kernels.graph import StaticGraph
from flashrt_kernels.image_rules import ImageRule
from flashrt_kernels.models.weights import Weights


@dataclass(frozen=True)
class Bucket:
    """The graphs of decisions whose prompt has at most `tokens` tokens, behind the one for vision.

    step: one token of an autoregressive policy, replayed as often as it writes one; None for others.
    """

    tokens: int
    graph: StaticGraph
    step: StaticGraph | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a replay has led to.

    actions: float32 [horizon, action_dim] in robot units. timings: milliseconds by section of what `finish`
    itself has run. taps: copies of what the model's own marks name.
    """

    actions: np.ndarray
    timings: Mapping[str, float] = field(default_factory=dict)
    taps: Mapping[str, np.ndarray] = field(default_factory=dict)


class Model(Protocol):
    """One loaded checkpoint of one policy type.

    Of the graphs' inputs `Policy` writes those that every policy has: `image<i>.{pixels, info}`, and `noise`
    where there is any.

    images: from pixels to the patches that the vision tower reads.
    noise_shape: of the start noise, [horizon, width]; None for policies that need none.
    buckets: prompt tokens of the graphs, ascending.
    steps_tokens: there is a graph for one token (`compose_step`).
    marks: names of intermediates that `finish` copies.
    """

    name: str
    weights: Weights
    images: ImageRule
    noise_shape: tuple[int, int] | None
    buckets: tuple[int, ...]
    camera_rule: CameraRule
    steps_tokens: bool
    marks: tuple[str, ...]

    def compose_vision(self, g: StaticGraph, cameras: int, tokens: int, image_bytes: int) -> None:
        """Build what depends on images only, and keep what `compose` borrows.

        Inputs `image<i>.{pixels, info}`, outputs `image<i>.patches`. tokens: the most that a prompt has.
        """

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Build the rest of the decision behind it for a number of prompt tokens.

        Input `noise` where the policy has any.
        """

    def compose_step(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Build one token behind the graph of `compose`; only where `steps_tokens`."""

    def tokenise(self, instruction: str, state: np.ndarray) -> list[int]:
        """Ids of the prompt, at most buckets[-1]. state: float32 [D] in robot units.

        Raises ObservationError for an instruction that the policy cannot take.
        """

    def write_inputs(
        self, g: StaticGraph, ids: Sequence[int], present: Sequence[bool], state: np.ndarray
    ) -> None:
        """Write the model's own inputs.

        ids: of the prompt, at most the tokens of the graph. present: which of the graph's cameras
        have an image. state: float32 [D] in robot units.
        """

    def finish(self, bucket: Bucket, state: np.ndarray, taps: Sequence[str]) -> Outcome:
        """After the replay of `bucket.graph`: actions in robot units. taps: of `marks`."""

    def describe(self) -> str:
        """The model's parts, as text."""
