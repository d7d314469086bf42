# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""Pi0: SigLIP views and a prompt → Gemma prefix → action expert with a token for the state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from flashrt_kernels.arena import align_up
from flashrt_kernels.flow import time_embedding
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.matmul import matmul
from flashrt_kernels.models.action_expert import expert
from flashrt_kernels.models.flow_policy import FlowPolicy
from flashrt_kernels.models.gemma import Cache, PlainNorms, Span
from flashrt_kernels.models.weights import RESIDUAL, linear

ACTION_TIME, TIME = "actions into the time MLP", "flow times into the time MLP"  # constants


class Pi0(FlowPolicy):
    """One loaded checkpoint; builds its graphs for a number of cameras and prompt tokens.

    The state token sees the prefix and itself only, so it is the same in every step: it is computed once,
    and its keys and values stand behind those of the prefix.
    """

    state_rows = 1

    def fold_time(self, times: Sequence[float]) -> None:
        """The first layer of the time MLP reads [projected actions | time embedding].

        Nothing lies between it and the projection: one matrix takes actions there, time adds a row per step.
        """
        w, width = self.weights, self.expert.width
        t = torch.tensor(times, device=w.device)
        embedded = time_embedding(
            time=t, width=width, min_period=self.config.min_period, max_period=self.config.max_period
        )
        into, bias = w.once("action_time_mlp_in.weight"), w.once("action_time_mlp_in.bias")
        actions, time = into[:, :width], into[:, width:]
        project, offset = w.once("action_in_proj.weight"), w.once("action_in_proj.bias")
        w.keep(TIME, embedded @ time.T + (actions @ offset + bias))  # [steps, width]
        w.keep_matrix(ACTION_TIME, actions @ project)  # [width, max_action_dim]

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
        h = g.call(
            matmul,
            x=x,
            weight=w.kept(g, ACTION_TIME),
            bias=w.kept(g, TIME)[step],
            activation="silu",
            out_dtype=w.dtype,
        )
        h = linear(g, w, "action_time_mlp_out", h, out_dtype=RESIDUAL)
        if step == 0:
            g.mark("suffix.t1.embs", h)
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
