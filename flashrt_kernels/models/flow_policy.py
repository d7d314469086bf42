# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""What Pi0 and Pi0.5 share: a prefix, computed once, and an action expert that denoises a chunk behind it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch

from flashrt_kernels.checkpoint.layout import VLM
from flashrt_kernels.checkpoint.pi import PiCheckpoint
from flashrt_kernels.graph import Buffer, StaticGraph
from flashrt_kernels.models.action_expert import flow_times
from flashrt_kernels.models.denoising import denoise, to_robot_units
from flashrt_kernels.models.gemma import Cache, Span, prefix
from flashrt_kernels.models.model import Bucket, Outcome
from flashrt_kernels.models.paligemma import PaliGemma


class FlowPolicy(PaliGemma):
    """Builds the graphs of a flow-matching policy for a number of cameras and prompt tokens.

    state_rows: tokens of the expert that are neither prefix nor actions.
    """

    state_rows = 0

    def __init__(
        self,
        checkpoint: PiCheckpoint,
        dtype: torch.dtype,
        steps: int,
        device: torch.device,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """steps: denoising steps. Everything else as `PaliGemma`."""
        super().__init__(checkpoint, dtype, device, progress)
        self.expert = self.dims.action_expert
        self.steps, self.horizon = steps, self.config.chunk_size
        self.noise_shape = (self.horizon, self.config.max_action_dim)
        self.fold_time(flow_times(steps, checkpoint.time))

    @abstractmethod
    def fold_time(self, times: Sequence[float]) -> None:
        """Keep what the flow times turn into, as constants of the weights."""

    @abstractmethod
    def velocity(self, g: StaticGraph, x: Buffer, caches: list[Cache], span: Span, step: int) -> Buffer:
        """x [horizon, max_action_dim] at one step → velocity of the same shape, fp32."""

    def compose_state(self, g: StaticGraph, caches: list[Cache], span: Span) -> None:
        """Tokens between prefix and actions, which depend on neither noise nor time: none."""

    # ---- the graph ----

    def compose(self, g: StaticGraph, cameras: int, tokens: int) -> None:
        """Inputs `tokens`, `valid`, `positions`, `noise` and, where actions are relative, `base`.

        Output: `actions` [horizon, D] in the policy's units. Marks carry the names of LeRobot's
        intermediates: `prefix.layer0`, `suffix.step0.layer1`, `x_t.step3`, …
        """
        length = cameras * self.dims.vision.patches + tokens
        first = length + self.state_rows  # row of the first action token
        rows = first + self.horizon
        x = g.borrow("prefix")[:length]
        valid = g.input("valid", (rows,), torch.bool)
        positions = g.input("positions", (rows,), torch.int32)
        noise = g.input("noise", (self.horizon, self.config.max_action_dim), torch.float32)
        caches = self.caches(g, rows)
        with g.section("prefix"):
            ids = g.input("tokens", (tokens,), torch.int32)
            g.mark("tokens", ids)
            self.embed(g, ids, out=x[length - tokens :])
            g.mark("prefix.embs", x)
            g.mark("prefix.pad_masks", valid[:length])
            span = Span(slice(0, length), self.rotation(g, positions[:length]), valid[:length])
            prefix(g, self.weights, VLM, self.dims.vlm, x, caches, span, self.dims.rms_eps)
            own = slice(length, first)
            if self.state_rows:
                self.compose_state(g, caches, Span(own, self.rotation(g, positions[own]), valid[:first]))
        with g.section("action"):
            own = slice(first, rows)
            span = Span(own, self.rotation(g, positions[own]), valid, settled=first)
            x = denoise(g, noise, self.steps, lambda x, step: self.velocity(g, x, caches, span, step))
            g.output("actions", to_robot_units(g, self.weights, x, self.action_norm, self._base(g)))

    def _base(self, g: StaticGraph) -> Buffer | None:
        """What relative actions are relative to."""
        return None if self.relative is None else g.input("base", (self.config.action_dim,), torch.float32)

    # ---- its inputs ----

    def write_inputs(
        self, g: StaticGraph, ids: Sequence[int], present: Sequence[bool], state: np.ndarray
    ) -> None:
        """Token ids, which prefix tokens count, and what relative actions are relative to.

        Padding and missing cameras keep their place, are masked and do not advance positions; the positions
        of state and actions follow the valid tokens.
        """
        tokens, valid, positions = g.host("tokens"), g.host("valid"), g.host("positions")
        length = valid.size - self.horizon - self.state_rows
        text = length - tokens.size
        tokens[: len(ids)] = ids
        tokens[len(ids) :] = self.pad_id
        self.write_images(valid, present)
        valid[text : text + len(ids)] = True
        valid[text + len(ids) : length] = False
        valid[length:] = True
        positions[:] = np.cumsum(valid) - 1
        if self.relative is not None:
            base, relative = g.host("base"), np.flatnonzero(self.relative)  # a state may have fewer numbers
            base[:] = 0
            base[relative] = self.units.to_policy(state)[relative]

    def finish(self, bucket: Bucket, state: np.ndarray, taps: Sequence[str]) -> Outcome:
        """The graph has done it all but what `units` of the robot ask for."""
        return Outcome(self.units.to_robot(bucket.graph.read("actions")))

    def describe(self) -> str:
        return f"{super().describe()}, {self.steps} denoising steps\naction expert: {self.expert}"
