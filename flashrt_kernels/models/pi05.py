# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0.5: SigLIP views and a prompt with the state in it → Gemma prefix → action expert."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.models.action_expert import AdaptiveNorms, expert, fold_time
from flashrt_kernels.models.flow_policy import FlowPolicy
from flashrt_kernels.models.gemma import Cache, Span
from flashrt_kernels.models.weights import RESIDUAL, linear


class Pi05(FlowPolicy):
    """One loaded checkpoint; builds its graphs for a number of cameras and prompt tokens."""

    def fold_time(self, times: Sequence[float]) -> None:
        fold_time(self.weights, self.expert, times, self.config.min_period, self.config.max_period)

    def velocity(self, g: StaticGraph, x: Buffer, caches: list[Cache], span: Span, step: int) -> Buffer:
        w = self.weights
        norms = AdaptiveNorms(g, w, self.expert, step, self.dims.rms_eps)
        h = linear(g, w, "action_in_proj", x, out_dtype=RESIDUAL)
        if step == 0:
            g.mark("suffix.t1.embs", h)
            g.mark("suffix.t1.adarms_cond", norms.condition)
        h = expert(g, w, self.expert, h, caches, span, norms, f"suffix.step{step}")
        return linear(g, w, "action_out_proj", h, out_dtype=torch.float32)
