# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0: SigLIP views and a prompt → Gemma prefix → action expert with a token for the state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from flashrt_kernels.arena import align_up
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.action_expert import expert
from flashrt_kernels.models.denoising import embed_actions, fold_time
from flashrt_kernels.models.flow_policy import FlowPolicy
from flashrt_kernels.models.gemma import Cache, PlainNorms, Span
from flashrt_kernels.models.weights import RESIDUAL, linear


class Pi0(FlowPolicy):
    """One loaded checkpoint; builds its graphs for a number of cameras and prompt tokens.

    The state token sees the prefix and itself only, so it is the same in every step: it is computed once,
    and its keys and values stand behind those of the prefix.
    """

    state_rows = 1

    def fold_time(self, times: Sequence[float]) -> None:
        fold_time(self.weights, self.expert.width, times, self.config.min_period, self.config.max_period)

    def compose_state(self, g: StaticGraph, caches: list[Cache], span: Span) -> None:
        w = self.weights
        width = align_up(self.config.max_state_dim, 8)
        h = g.call(
            matmul,
            x=g.input("state", (1, width), torch.float32),
            weight=w.patches(g, "state_proj.weight"),
            bias=w.vector(g, "state_proj.bias"),
            out_dtype=RESIDUAL,
        )
        g.mark("suffix.state.embs", h)
        norms = PlainNorms(g, w, self.dims.rms_eps)
        expert(g, w, self.expert, h, caches, span, norms, "suffix.state")

    def velocity(self, g: StaticGraph, x: Buffer, caches: list[Cache], span: Span, step: int) -> Buffer:
        w = self.weights
        h = embed_actions(g, w, x, step)
        norms = PlainNorms(g, w, self.dims.rms_eps)
        h = expert(g, w, self.expert, h, caches, span, norms, f"suffix.step{step}")
        return linear(g, w, "action_out_proj", h, out_dtype=torch.float32)

    def write_inputs(
        self, g: StaticGraph, ids: Sequence[int], present: Sequence[bool], state: np.ndarray
    ) -> None:
        """Also `state`, normalised and filled up with zeros."""
        super().write_inputs(g, ids, present, state)
        row = g.host("state")[0]
        row[: len(state)] = self.normalise_state(state)
        row[len(state) :] = 0
